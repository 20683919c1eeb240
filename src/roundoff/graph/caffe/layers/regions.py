"""Parts of planes: where objects may be, what is found there, and the grids of detectors that see all at once."""

import math
import re

import numpy as np

from roundoff.core.tensors import Array
from roundoff.graph.caffe.conversion import LayerJob, Params, converter_of, converts
from roundoff.messages.message import english

_FLOAT, _INT64 = 1, 7
_LOWEST = float(np.finfo(np.float32).min)


def _parts(job: LayerJob, *, bottoms: tuple[int, ...] = (2,)) -> str:
    """The second bottom as rows of sample, left, top, right, bottom."""
    job.check_counts(bottoms)
    plane, parts = (bottom.shape for bottom in job.bottoms[:2])
    if len(plane) != 4 or math.prod(parts[1:]) != 5:
        raise job.refuse(english("takes planes, and parts of five numbers each"))
    job.fix_batch(
        english("layer {name!r} has a number of parts besides the number of samples", name=job.layer.name)
    )
    source = job.bottoms[1].name
    return source if len(parts) == 2 else job.step("Flatten", [source], "parts", axis=1)


def _grid(job: LayerJob, params: Params) -> tuple[int, int]:
    height, width = params.integer("pooled_h"), params.integer("pooled_w")
    if min(height, width) < 1:
        raise job.refuse(english("has a grid without a cell"), fix=english("give pooled_h and pooled_w"))
    return height, width


@converts("ROIPooling")
def roi_pooling(job: LayerJob) -> None:
    """The largest values of a grid laid over parts of a plane."""
    params = job.params("roi_pooling_param")
    # A third bottom says how many parts there are: a vendor's chip pads them, here there are just so many.
    source = _parts(job, bottoms=(2, 3))
    height, width = _grid(job, params)
    scales = [params.number(f"spatial_scale{end}") for end in ("_h", "_w") if params.has(f"spatial_scale{end}")]
    scale = params.number("spatial_scale") if params.has("spatial_scale") or not scales else scales[0]
    if any(each != scale for each in scales):
        raise job.refuse(english("scales height and width differently, which ONNX cannot"))
    job.top(
        "MaxRoiPool",
        [job.bottoms[0].name, source],
        (job.bottoms[1].shape[0], job.bottoms[0].shape[1], height, width),
        pooled_shape=[height, width],
        spatial_scale=scale,
    )


@converts("ROIAlign")
def roi_align(job: LayerJob) -> None:
    """Means of values between pixels, on a grid laid over parts of a plane."""
    params, source = job.params("roi_align_param"), _parts(job)
    height, width = _grid(job, params)
    if params.flag("position_sensitive") or params.integer("roi_end_mode"):
        raise job.refuse(english("has position_sensitive or roi_end_mode, whose meaning is not known"))
    ratio = params.integer("sampling_ratio" if params.has("sampling_ratio") else "sample_ratio")
    number, corners = job.steps("Split", [source, job.integers([1, 4], "sizes")], ("number", "corners"), axis=1)
    flat = job.step("Reshape", [number, job.integers([-1], "rows")], "numbers")
    samples = job.step("Cast", [flat], "samples", to=_INT64)
    job.top(
        "RoiAlign",
        [job.bottoms[0].name, corners, samples],
        (job.bottoms[1].shape[0], job.bottoms[0].shape[1], height, width),
        output_height=height,
        output_width=width,
        sampling_ratio=max(ratio, 0),
        spatial_scale=params.number("spatial_scale"),
        coordinate_transformation_mode="output_half_pixel",
    )


@converts("PSROIPooling")
def psroi_pooling(job: LayerJob) -> None:
    """Means of a grid laid over parts of a plane, each cell of channels of its own (R-FCN)."""
    params, source = job.params("psroi_pooling_param"), _parts(job)
    out, cells = params.integer("output_dim"), params.integer("group_size")
    samples, channels, *sizes = job.bottoms[0].shape
    if min(out, cells) < 1 or channels != out * cells * cells:
        raise job.refuse(
            english(
                "needs output_dim x group_size x group_size = {wanted} channels; there are {channels}",
                wanted=out * cells * cells,
                channels=channels,
            )
        )
    columns = job.steps("Split", [source, job.integers([1] * 5, "columns")], ("n", "x1", "y1", "x2", "y2"), axis=1)
    inside = [
        _cells(job, columns[1 + axis], columns[3 + axis], cells=cells, size=sizes[1 - axis], axis="xy"[axis])
        for axis in (0, 1)
    ]
    numbers = job.floats(np.arange(samples)[None], "samples")
    own = job.step("Cast", [job.step("Equal", [columns[0], numbers], "is_own")], "own", to=_FLOAT)
    own = job.step("Unsqueeze", [own, job.integers([2, 3], "own_axes")], "own_plane")
    rows = job.step("Unsqueeze", [inside[1], job.integers([1], "row_axis")], "rows")
    rows = job.step("Mul", [own, rows], "own_rows")
    shape = job.integers([samples, out, cells, cells, *sizes], "shape")
    parted = job.step("Reshape", [job.bottoms[0].name, shape], "parted")
    # n samples, d outputs, i and j cells, y and x pixels, r parts.
    sums = job.step("Einsum", [parted, rows], "row_sums", equation="ndijyx,rniy->rdijx")
    sums = job.step("Einsum", [sums, inside[0]], "sums", equation="rdijx,rjx->rdij")
    counts = [
        job.step("ReduceSum", [mask, job.integers([2], f"{axis}_axis")], f"{axis}_count", keepdims=0)
        for mask, axis in zip(inside, "xy", strict=True)
    ]
    wide = job.step("Unsqueeze", [counts[0], job.integers([1, 2], "x_axes")], "x_counts")
    high = job.step("Unsqueeze", [counts[1], job.integers([1, 3], "y_axes")], "y_counts")
    area = job.step("Max", [job.step("Mul", [wide, high], "area"), job.floats(1.0, "one")], "counted")
    job.top("Div", [sums, area], (job.bottoms[1].shape[0], out, cells, cells))


def _cells(job: LayerJob, first: str, last: str, *, cells: int, size: int, axis: str) -> str:
    """Which pixels along an axis are in which cell: parts x cells x pixels, of ones and zeros."""
    scale = job.floats(job.params("psroi_pooling_param").number("spatial_scale"), f"{axis}_scale")
    half, one = job.floats(0.5, f"{axis}_half"), job.floats(1.0, f"{axis}_one")

    def step(op_type: str, inputs: list[str], name: str, **attributes: int) -> str:
        return job.step(op_type, inputs, f"{axis}_{name}", **attributes)

    def rounded(edge: str, name: str) -> str:
        # C rounds halves away from zero, ONNX to even numbers.
        raised = step(
            "Floor", [step("Add", [step("Abs", [edge], f"{name}_size"), half], f"{name}_up")], f"{name}_"
        )
        return step("Mul", [step("Sign", [edge], f"{name}_sign"), raised], f"{name}_rounded")

    begin = step("Mul", [rounded(first, "begin"), scale], "begin")
    end = step("Mul", [step("Add", [rounded(last, "end"), one], "behind"), scale], "end")
    least = job.floats(0.1, f"{axis}_least")
    extent = step("Max", [step("Sub", [end, begin], "difference"), least], "extent")
    cell = step("Div", [extent, job.floats(float(cells), f"{axis}_cells")], "cell")
    numbers = np.arange(cells, dtype=np.float32)[None]
    edges = []
    for op_type, place, name in (("Floor", numbers, "low"), ("Ceil", numbers + 1, "high")):
        moved = step("Mul", [cell, job.floats(place, f"{axis}_{name}_number")], f"{name}_moved")
        edge = step(op_type, [step("Add", [moved, begin], f"{name}_place")], name)
        edges.append(step("Unsqueeze", [edge, job.integers([2], f"{axis}_{name}_axis")], f"{name}_edge"))
    pixels = job.floats(np.arange(size)[None, None], f"{axis}_pixels")
    behind = step("GreaterOrEqual", [pixels, edges[0]], "from")
    before = step("Less", [pixels, edges[1]], "to")
    return step("Cast", [step("And", [behind, before], "within")], "inside", to=_FLOAT)


# Where objects may be.

_RATIOS, _SCALES = (0.5, 1.0, 2.0), (8.0, 16.0, 32.0)


def _anchors(base: float, ratios: tuple[float, ...], scales: tuple[float, ...]) -> Array:
    """Left, top, right and bottom of the boxes at the first place, as Faster R-CNN rounds them."""
    middle, boxes = (base - 1) / 2, []
    for ratio in ratios:
        width = np.round(np.sqrt(base * base / ratio))
        height = np.round(width * ratio)
        for scale in scales:
            half = np.array([width * scale - 1, height * scale - 1]) / 2
            boxes.append([*(middle - half), *(middle + half)])
    return np.array(boxes, np.float32)


@converts("Proposal", "ProposalLayer")
def proposal(job: LayerJob) -> None:
    """The best boxes around each place that do not overlap: sample, left, top, right, bottom."""
    job.check_counts((3,), (1, 2))
    params = _proposal_params(job)
    stride, base = params.number("feat_stride"), params.number("base_size")
    ratios, scales = params.numbers("ratio") or _RATIOS, params.numbers("scale") or _SCALES
    scores, moves, image = (bottom.shape for bottom in job.bottoms)
    count = len(ratios) * len(scales)
    fits = len(scores) == 4 and scores[:2] == (1, 2 * count) and moves == (1, 4 * count, *scores[2:])
    if not fits or math.prod(image) < 3 or min(*ratios, *scales, base, stride) <= 0:
        shapes = ", ".join("x".join(map(str, bottom.shape)) for bottom in job.bottoms)
        raise job.refuse(
            english(
                "has {count} boxes at each place, one sample, and an im_info of three; its bottoms are {shapes}",
                count=count,
                shapes=shapes,
            )
        )
    job.fix_batch(english("layer {name!r} (Proposal) takes one sample", name=job.layer.name))
    rows, columns = (np.arange(size, dtype=np.float32) * np.float32(stride) for size in scores[2:])
    shift = np.stack([*np.meshgrid(columns, rows)] * 2, axis=-1)
    every = (shift[:, :, None] + _anchors(base, ratios, scales)).reshape(-1, 4)
    boxes, chance = _moved(job, every), _chances(job, count)
    info = job.step("Reshape", [job.bottoms[2].name, job.integers([-1], "info_row")], "info")
    height, width, zoom = (
        job.step("Gather", [info, job.integers([place], name)], f"image_{name}", axis=0)
        for place, name in enumerate(("height", "width", "zoom"))
    )
    sides = job.step("Concat", [width, height, width, height], "sides", axis=0)
    last = job.step("Sub", [sides, job.floats(1.0, "one")], "last")
    limited = job.step("Min", [job.step("Max", [boxes, job.floats(0.0, "zero")], "from_zero"), last], "limited")
    chance = _large_enough(job, limited, chance, zoom, least=params.number("min_size"))
    _best(job, params, limited, chance, total=len(every))


def _proposal_params(job: LayerJob) -> Params:
    """The parameters, from their message or from the text that the layer in Python reads."""
    params = job.params("proposal_param")
    text = job.params("python_param").message.get("param_str", "") if job.given("python_param") else ""
    if not text or params.message.entries:
        return params
    from roundoff.core.text_proto import TextEntry, TextMessage

    entries = []
    for name, field in (("feat_stride", "feat_stride"), ("scales", "scale"), ("ratios", "ratio")):
        found = re.search(rf"{name}['\"]?\s*:\s*(?:!!python/tuple\s*)?[\[(]?([-\d., ]+)", str(text))
        numbers = re.findall(r"-?\d+(?:\.\d*)?", found[1]) if found else []
        entries += [TextEntry(field, float(number)) for number in numbers]
    return Params(params.name, TextMessage(tuple(entries)), params.spec, params.refuse)


def _moved(job: LayerJob, anchors: Array) -> str:
    """The boxes after the corrections of the net: places x 4."""
    turned = job.step("Transpose", [job.bottoms[1].name], "moves_last", perm=[0, 2, 3, 1])
    moves = job.step("Reshape", [turned, job.integers([-1, 4], "move_rows")], "moves")
    move, grow = job.steps("Split", [moves, job.integers([2, 2], "halves")], ("move", "grow"), axis=1)
    size = anchors[:, 2:] - anchors[:, :2] + 1
    sizes = job.floats(size, "sizes")
    middle = job.floats(anchors[:, :2] + 0.5 * size, "middles")
    centre = job.step("Add", [job.step("Mul", [move, sizes], "shift"), middle], "centre")
    grown = job.step("Mul", [job.step("Exp", [grow], "growth"), sizes], "grown")
    reach = job.step("Mul", [grown, job.floats(0.5, "half")], "reach")
    ends = [job.step(op_type, [centre, reach], name) for op_type, name in (("Sub", "begin"), ("Add", "end"))]
    return job.step("Concat", ends, "boxes", axis=1)


def _chances(job: LayerJob, count: int) -> str:
    """How likely each box holds something: the second half of the channels."""
    halves = job.integers([count, count], "chance_halves")
    _, found = job.steps("Split", [job.bottoms[0].name, halves], ("nothing", "something"), axis=1)
    turned = job.step("Transpose", [found], "chance_last", perm=[0, 2, 3, 1])
    return job.step("Reshape", [turned, job.integers([-1], "chance_row")], "chances")


def _large_enough(job: LayerJob, boxes: str, chance: str, zoom: str, *, least: float) -> str:
    """The chances, sunk where a box is too small."""
    first, last = job.steps("Split", [boxes, job.integers([2, 2], "corner_halves")], ("first", "last_"), axis=1)
    one = job.floats(1.0, "pixel")
    size = job.step("Add", [job.step("Sub", [last, first], "span"), one], "size")
    smallest = job.step("ReduceMin", [size], "smaller", axes=[1], keepdims=0)
    limit = job.step("Mul", [zoom, job.floats(least, "min_size")], "least")
    enough = job.step("GreaterOrEqual", [smallest, limit], "enough")
    return job.step("Where", [enough, chance, job.floats(_LOWEST, "lowest")], "kept_chances")


def _best(job: LayerJob, params: Params, boxes: str, chance: str, *, total: int) -> None:
    """Of the likeliest boxes those that do not overlap a likelier one."""
    before, after = params.integer("pre_nms_topn"), params.integer("post_nms_topn")
    overlap = params.number("iou_threshold" if params.has("iou_threshold") else "nms_thresh")
    many = min(before, total) if before else total
    after = min(after, many) if after else many
    likely, places = job.steps("TopK", [chance, job.integers([many], "count")], ("likely", "places"), axis=0)
    chosen = job.step("Gather", [boxes, places], "chosen", axis=0)
    # Faster R-CNN counts the last pixel too; ONNX does not.
    whole = job.step("Add", [chosen, job.floats([0.0, 0.0, 1.0, 1.0], "pixels")], "whole")
    inputs = [
        job.step("Unsqueeze", [whole, job.integers([0], "whole_axis")], "layered"),
        job.step("Unsqueeze", [likely, job.integers([0, 1], "likely_axes")], "layered_chances"),
        job.integers(after, "most"),
        job.floats(overlap, "overlap"),
        job.floats(_LOWEST, "threshold"),
    ]
    found = job.step("NonMaxSuppression", inputs, "found")
    kept = job.step("Gather", [found, job.integers(2, "column")], "kept", axis=1)
    # Layers behind it cannot take no box at all: where all are too small the likeliest stays.
    first = job.integers([0], "first_place")
    ends = job.step("Max", [job.step("Shape", [kept], "kept_count"), job.integers([1], "one_box")], "box_count")
    some = job.step("Concat", [kept, first], "kept_or_first", axis=0)
    picked = job.step("Slice", [some, first, ends], "picked")
    corners = job.step("Gather", [chosen, picked], "corners", axis=0)
    job.top("Pad", [corners, job.integers([0, 1, 0, 0], "pads"), job.floats(0.0, "sample")], (after, 5))
    job.varies(0)
    if job.top_count() == 1:
        return
    if params.flag("output_actual_rois_num"):
        number = job.step("Shape", [picked], "number")
        job.top("Cast", [number], (1,), index=1, to=_FLOAT)
        return
    best = job.step("Gather", [likely, picked], "best", axis=0)
    job.top("Unsqueeze", [best, job.integers([1], "best_axis")], (after, 1), index=1)
    job.varies(0, index=1)


# Grids that see all at once.


@converts("Region")
def region(job: LayerJob) -> None:
    """YOLOv2's last layer: places and objectness through a sigmoid, classes through softmax or sigmoid."""
    params = job.params("region_param")
    given = next((name for name in ("boxes", "num") if params.has(name)), "boxes_of_each_grid")
    softmax, background = params.flag("softmax"), params.flag("background")
    _activated(job, params, boxes=params.integer(given), softmax=softmax, background=background)


@converts("Yolo")
def yolo(job: LayerJob) -> None:
    """The last layer of YOLOv2 and v3; with three tops: coordinates, objectness and classes."""
    params = job.params("yolo_param")
    second = params.choice("yolo_version").upper() == "V2"
    if params.flag("softmaxtree"):
        raise job.refuse(english("has a tree of classes (softmaxtree), which is not known"))
    softmax, background = (second and params.flag(name) for name in ("softmax", "background"))
    _activated(job, params, boxes=params.integer("boxes"), softmax=softmax, background=background)


def _activated(job: LayerJob, params: Params, *, boxes: int, softmax: bool, background: bool) -> None:
    job.check_counts((1,), (1, 3))
    bottom, classes, coords = job.bottoms[0], params.integer("classes"), params.integer("coords")
    shape = bottom.shape
    if len(shape) != 4 or min(boxes, classes) < 1 or coords < 2 or shape[1] != boxes * (coords + 1 + classes):
        raise job.refuse(
            english(
                "has {boxes} boxes of {coords} coordinates and {classes} classes; its input is {shape}",
                boxes=boxes,
                coords=coords,
                classes=classes,
                shape="x".join(map(str, shape)),
            )
        )
    rows = job.integers([0, boxes, coords + 1 + classes, shape[2] * shape[3]], "rows")
    grid = job.step("Reshape", [bottom.name, rows], "grid")
    sizes = job.integers([2, coords - 2, 1, classes], "sizes")
    place, size, object_, kinds = job.steps("Split", [grid, sizes], ("place", "size", "object", "kinds"), axis=2)
    place = job.step("Sigmoid", [place], "place_sigmoid")
    if background and softmax:
        both = job.step("Concat", [object_, kinds], "object_and_kinds", axis=2)
        both = job.step("Softmax", [both], "both_softmax", axis=2)
        parts = job.integers([1, classes], "parts")
        object_, kinds = job.steps("Split", [both, parts], ("object_softmax", "kinds_softmax"), axis=2)
    else:
        object_ = object_ if background else job.step("Sigmoid", [object_], "object_sigmoid")
        kinds = (
            job.step("Softmax", [kinds], "kinds_softmax", axis=2)
            if softmax
            else job.step("Sigmoid", [kinds], "kinds_sigmoid")
        )
    if job.top_count() == 1:
        whole = job.step("Concat", [place, size, object_, kinds], "activated", axis=2)
        job.top("Reshape", [whole, job.integers([0, *shape[1:]], "shape")], shape)
        return
    cells = shape[2] * shape[3]
    corners = job.step("Concat", [place, size], "coords", axis=2)
    job.top("Reshape", [corners, job.integers([0, boxes * coords, cells], "coord_shape")], (
        shape[0], boxes * coords, cells))  # fmt: skip
    job.top("Reshape", [object_, job.integers([0, -1], "object_shape")], (shape[0], boxes * cells), index=1)
    turned = job.step("Transpose", [kinds], "by_class", perm=[0, 2, 1, 3])
    top = (shape[0], classes, boxes * cells)
    job.top("Reshape", [turned, job.integers([0, *top[1:]], "kind_shape")], top, index=2)


# Layers that were written in Python.


@converts("Python")
def python(job: LayerJob) -> None:
    """A layer of the user's own, by the name of its class; the one of Faster R-CNN is known."""
    params = job.params("python_param")
    module, name = params.choice("module"), params.choice("layer")
    convert = converter_of(f"{module}.{name}") or converter_of(name)
    if convert is None:
        raise job.refuse(
            english("runs the class {name!r} of the Python module {module!r}", name=name, module=module),
            fix=english("teach it: roundoff.register_layer({name!r}, convert)", name=name),
        )
    convert(job)
