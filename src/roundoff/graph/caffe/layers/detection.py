"""Boxes: those a detector starts from, and parts of a plane pooled to one size."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from roundoff.core.tensors import Array
from roundoff.graph.caffe.conversion import LayerJob, Params, converts
from roundoff.messages.message import english

_SAME = 1e-6
_MOST_NUMBERS = 1 << 26
_DEFAULT_VARIANCE = 0.1


@converts("PriorBox")
def prior_box(job: LayerJob) -> None:
    """The boxes a detector starts from, and the variances of their corrections: constants of the net."""
    job.check_counts((2,))
    params = job.params("prior_box_param")
    feature, image = (bottom.shape for bottom in job.bottoms)
    if len(feature) != 4 or len(image) != 4:
        raise job.refuse(english("takes two blobs with 4 axes"))
    boxes = _box_sizes(job, params)
    numbers = feature[2] * feature[3] * len(boxes) * 4
    if numbers > _MOST_NUMBERS:
        raise job.refuse(
            english("would make {number} boxes", number=numbers // 4),
            fix=english("check the sizes of its bottoms"),
        )
    height, width = _pair(params, "img", "img_size", default=image[2:])
    steps = _pair(params, "step", "step", default=(height / feature[2], width / feature[3]))
    corners = _corners(feature[2:], boxes, steps=steps, image=(height, width), offset=params.number("offset"))
    if params.flag("clip"):
        corners = corners.clip(0, 1)
    variances = params.numbers("variance") or (_DEFAULT_VARIANCE,)
    if len(variances) not in (1, 4):
        raise job.refuse(english("has {count} variances; it takes 1 or 4", count=len(variances)))
    spread = np.broadcast_to(np.array(variances, np.float32), corners.shape)
    values = np.stack([corners.reshape(-1), spread.reshape(-1)])[None]
    job.top("Identity", [job.floats(values, "boxes")], values.shape)


def _pair(params: Params, stem: str, both: str, *, default: tuple[float, ...]) -> tuple[float, float]:
    if params.has(f"{stem}_h") or params.has(f"{stem}_w"):
        return params.number(f"{stem}_h"), params.number(f"{stem}_w")
    if params.has(both):
        return params.number(both), params.number(both)
    return default[0], default[1]


def _box_sizes(job: LayerJob, params: Params) -> list[tuple[float, float]]:
    """Width and height of the boxes at each place."""
    smallest, largest = params.numbers("min_size"), params.numbers("max_size")
    if not smallest or (largest and len(largest) != len(smallest)) or min(smallest) <= 0:
        raise job.refuse(english("needs min_size, and as many max_size as min_size or none"))
    if any(most <= least for least, most in zip(smallest, largest, strict=False)):
        raise job.refuse(english("has a max_size that does not exceed its min_size"))
    ratios = [1.0]
    for ratio in params.numbers("aspect_ratio"):
        if ratio <= 0:
            raise job.refuse(english("has the aspect ratio {ratio:g}", ratio=ratio))
        if all(abs(ratio - known) >= _SAME for known in ratios):
            ratios += [ratio, 1 / ratio] if params.flag("flip") else [ratio]
    boxes = []
    for place, size in enumerate(map(int, smallest)):
        boxes.append((float(size), float(size)))
        if largest:
            middle = math.sqrt(size * int(largest[place]))
            boxes.append((middle, middle))
        others = [math.sqrt(ratio) for ratio in ratios if abs(ratio - 1) >= _SAME]
        boxes += [(size * root, size / root) for root in others]
    return boxes


def _corners(
    grid: tuple[int, ...],
    boxes: list[tuple[float, float]],
    *,
    steps: tuple[float, float],
    image: tuple[float, float],
    offset: float,
) -> Array:
    """Left, top, right and bottom of every box at every place, as fractions of the image."""
    rows = (np.arange(grid[0], dtype=np.float32) + np.float32(offset)) * np.float32(steps[0])
    columns = (np.arange(grid[1], dtype=np.float32) + np.float32(offset)) * np.float32(steps[1])
    halves = np.array(boxes, np.float32) / 2
    y, x = rows[:, None, None], columns[None, :, None]
    sides = (x - halves[:, 0], y - halves[:, 1], x + halves[:, 0], y + halves[:, 1])
    limits = (image[1], image[0], image[1], image[0])
    shape = (*grid, len(boxes))
    scaled = [np.broadcast_to(side, shape) / np.float32(limit) for side, limit in zip(sides, limits, strict=True)]
    return np.stack(scaled, axis=-1).astype(np.float32)


# A detector's last layer: boxes corrected, and of those that overlap the best kept.

_FLOAT = 1
_LOWEST = float(np.finfo(np.float32).min)
# Every sample of a batch has nodes of its own.
_MOST_SAMPLES = 64


@dataclass(frozen=True, slots=True)
class _Sizes:
    """What the detector looks at.

    Attributes:
        samples: Pictures in a batch.
        priors: Boxes it starts from.
        classes: All classes.
        shared: Whether all classes share their boxes.
        wanted: The classes that are reported.
    """

    samples: int
    priors: int
    classes: int
    shared: bool
    wanted: tuple[int, ...]


@converts("DetectionOutput")
def detection_output(job: LayerJob) -> None:
    """Rows of sample, class, confidence and corners; one row of -1 per sample when there is nothing."""
    if len(job.bottoms) < 3:
        raise job.refuse(english("takes three bottoms: locations, confidences and prior boxes"))
    # The fourth are pictures to be drawn on, or confidences of a first stage; the fifth its locations (RefineDet).
    job.check_counts((3, 4, 5))
    params = job.params("detection_output_param")
    if params.inner("nms_param").number("eta") != 1:
        raise job.refuse(
            english("changes its threshold as it goes (eta), which ONNX cannot"), fix=english("set eta to 1")
        )
    sizes = _sizes(job, params)
    boxes, scores = _boxes(job, params, sizes), _scores(job, params, sizes)
    job.fix_batch(english("layer {name!r} (DetectionOutput) has nodes for each sample", name=job.layer.name))
    rows = [_detect(job, params, sizes, boxes, scores, sample) for sample in range(sizes.samples)]
    _deliver(job, rows)


def _sizes(job: LayerJob, params: Params) -> _Sizes:
    location, confidence, prior = (bottom.shape for bottom in job.bottoms[:3])
    classes, shared = params.integer("num_classes"), params.flag("share_location")
    background = params.integer("background_label_id")
    priors = prior[2] // 4 if len(prior) > 2 else 0
    samples, found = location[0], [int(np.prod(shape[1:])) for shape in (location, confidence)]
    wanted = [priors * 4 * (1 if shared else classes), priors * classes]
    if not priors or found != wanted or samples > _MOST_SAMPLES:
        shapes = ", ".join("x".join(map(str, bottom.shape)) for bottom in job.bottoms[:3])
        raise job.refuse(
            english(
                "with {classes} classes cannot use blobs of the shapes {shapes}", classes=classes, shapes=shapes
            )
        )
    first = list(zip(job.bottoms[3:], (priors * 2, wanted[0]), strict=False)) if _two_stages(job, params) else []
    if any(bottom.shape[0] != samples or math.prod(bottom.shape[1:]) != count for bottom, count in first):
        raise job.refuse(english("has a first stage of another number of boxes than its second"))
    reported = tuple(label for label in range(classes) if label != background)
    if not reported:
        raise job.refuse(english("has no class besides the background"))
    return _Sizes(samples, priors, classes, shared, reported)


def _two_stages(job: LayerJob, params: Params) -> bool:
    return len(job.bottoms) > 4 or (len(job.bottoms) > 3 and params.has("objectness_score"))


def _boxes(job: LayerJob, params: Params, sizes: _Sizes) -> str:
    """Corrected boxes: samples x reported classes (or 1) x priors x 4."""
    several = 1 if sizes.shared else sizes.classes
    shape = job.integers([sizes.samples, sizes.priors, several, 4], "location_shape")
    change = job.step("Reshape", [job.bottoms[0].name, shape], "changes")
    table = job.step(
        "Reshape", [job.bottoms[2].name, job.integers([2, 1, sizes.priors, 1, 4], "prior_shape")], "table"
    )
    prior = job.step("Gather", [table, job.integers(0, "first")], "priors", axis=0)
    changes = [change]
    if len(job.bottoms) > 4:
        changes.insert(0, job.step("Reshape", [job.bottoms[4].name, shape], "first/changes"))
    if not params.flag("variance_encoded_in_target"):
        variance = job.step("Gather", [table, job.integers(1, "second")], "variances", axis=0)
        changes = [
            job.step("Mul", [each, variance], f"{stage}corrections")
            for each, stage in zip(changes, _stages(changes), strict=True)
        ]
    corrected = prior
    for each, stage in zip(changes, _stages(changes), strict=True):
        corrected = _corrected(job, params.choice("code_type"), corrected, each, stage=stage)
    by_class = job.step("Transpose", [corrected], "by_class", perm=[0, 2, 1, 3])
    if sizes.shared:
        return by_class
    return job.step("Gather", [by_class, job.integers(sizes.wanted, "box_classes")], "boxes", axis=1)


def _corrected(job: LayerJob, code: str, prior: str, change: str, *, stage: str) -> str:
    def step(op_type: str, inputs: list[str], name: str, **attributes: Any) -> str:
        return job.step(op_type, inputs, f"{stage}{name}", **attributes)

    if code == "CORNER":
        return step("Add", [prior, change], "corrected")
    halves = job.integers([2, 2], f"{stage}halves")
    first, last = job.steps("Split", [prior, halves], (f"{stage}prior_first", f"{stage}prior_last"), axis=-1)
    size = step("Sub", [last, first], "prior_size")
    if code == "CORNER_SIZE":
        sides = step("Concat", [size, size], "prior_sides", axis=-1)
        return step("Add", [prior, step("Mul", [change, sides], "moved")], "corrected")
    half = job.floats(0.5, f"{stage}half")
    middle = step("Mul", [step("Add", [first, last], "prior_sum"), half], "prior_middle")
    move, grow = job.steps("Split", [change, halves], (f"{stage}move", f"{stage}grow"), axis=-1)
    centre = step("Add", [step("Mul", [move, size], "shift"), middle], "centre")
    reach = step("Mul", [step("Mul", [step("Exp", [grow], "growth"), size], "size"), half], "reach")
    begin, end = step("Sub", [centre, reach], "begin"), step("Add", [centre, reach], "end")
    return step("Concat", [begin, end], "corrected", axis=-1)


def _stages(changes: list[str]) -> tuple[str, ...]:
    return ("first/", "")[-len(changes) :]


def _scores(job: LayerJob, params: Params, sizes: _Sizes) -> str:
    """Confidences of the reported classes: samples x classes x priors; those beyond the top_k sunk."""
    shape = job.integers([sizes.samples, sizes.priors, sizes.classes], "confidence_shape")
    shaped = job.step("Reshape", [job.bottoms[1].name, shape], "confidences")
    if _two_stages(job, params):
        # Where the first stage saw nothing, the second is not asked: all is background.
        pairs = job.integers([sizes.samples, sizes.priors, 2], "pair_shape")
        chances = job.step("Reshape", [job.bottoms[3].name, pairs], "objectness_pairs")
        chance = job.step("Gather", [chances, job.integers([1], "object")], "objectness", axis=2)
        least = job.floats(params.number("objectness_score"), "objectness_score")
        nothing = job.floats(np.arange(sizes.classes) == 0, "background")
        shaped = job.step("Where", [job.step("Less", [chance, least], "is_nothing"), nothing, shaped], "asked")
    turned = job.step("Transpose", [shaped], "per_class", perm=[0, 2, 1])
    scores = job.step("Gather", [turned, job.integers(sizes.wanted, "classes")], "scores", axis=1)
    suppression = params.inner("nms_param")
    best = suppression.integer("top_k") if suppression.has("top_k") else -1
    if not -1 < best < sizes.priors:
        return scores
    _, places = job.steps("TopK", [scores, job.integers([best], "top_k")], ("best_scores", "best"), axis=2)
    kept = job.step("GatherElements", [scores, places], "kept_scores", axis=2)
    shape_now = job.step("Shape", [scores], "score_shape")
    sunk = job.step("Expand", [job.floats(_LOWEST, "lowest"), shape_now], "sunk")
    return job.step("ScatterElements", [sunk, places, kept], "top_scores", axis=2)


def _detect(job: LayerJob, params: Params, sizes: _Sizes, boxes: str, scores: str, sample: int) -> str:
    """The rows of one sample, by class and falling confidence."""

    def step(op_type: str, inputs: list[str], name: str, **attributes: Any) -> str:
        return job.step(op_type, inputs, f"{sample}/{name}", **attributes)

    number = job.integers(sample, f"{sample}/number")
    count = len(sizes.wanted)
    own_boxes = step("Gather", [boxes, number], "boxes", axis=0)
    if sizes.shared:
        own_boxes = step("Expand", [own_boxes, job.integers([count, sizes.priors, 4], f"{sample}/all")], "each")
    own = step("Gather", [scores, number], "scores", axis=0)
    layered = step("Unsqueeze", [own, job.integers([1], f"{sample}/axis")], "layered")
    threshold = params.number("confidence_threshold") if params.has("confidence_threshold") else _LOWEST
    limits = [
        job.integers(sizes.priors, f"{sample}/most"),
        job.floats(params.inner("nms_param").number("nms_threshold"), f"{sample}/overlap"),
        job.floats(threshold, f"{sample}/threshold"),
    ]
    # A box whose end lies before its beginning covers nothing; ONNX would turn it round.
    first, last = job.steps(
        "Split",
        [own_boxes, job.integers([2, 2], f"{sample}/halves")],
        (f"{sample}/first", f"{sample}/last"),
        axis=-1,
    )
    proper = step("Concat", [first, step("Max", [first, last], "behind")], "proper", axis=-1)
    chosen = step("NonMaxSuppression", [proper, layered, *limits], "chosen")
    pairs = step("Gather", [chosen, job.integers([0, 2], f"{sample}/columns")], "pairs", axis=1)
    pairs = _best(job, params, own, pairs, sample=sample)
    scored = step("GatherND", [own, pairs], "confidence")
    confidence = step("Unsqueeze", [scored, job.integers([1], f"{sample}/column")], "confidences")
    corners = step("GatherND", [own_boxes, pairs], "corners")
    places = step("Gather", [pairs, job.integers([0], f"{sample}/class")], "places", axis=1)
    labels = job.floats(sizes.wanted, f"{sample}/labels")
    label = step("Gather", [labels, places], "label")
    zero = step("Mul", [confidence, job.floats(0.0, f"{sample}/zero")], "zeros")
    image = step("Add", [zero, job.floats(float(sample), f"{sample}/id")], "image")
    return step("Concat", [image, label, confidence, corners], "rows", axis=1)


def _best(job: LayerJob, params: Params, scores: str, pairs: str, *, sample: int) -> str:
    """The most confident detections of a sample, in the order they had."""
    most = params.integer("keep_top_k")
    if most < 0:
        return pairs
    values = job.step("GatherND", [scores, pairs], f"{sample}/found")
    size = job.step("Shape", [values], f"{sample}/many")
    count = job.step("Min", [size, job.integers([most], f"{sample}/keep_top_k")], f"{sample}/kept_count")
    _, places = job.steps("TopK", [values, count], (f"{sample}/kept_scores", f"{sample}/kept"), axis=0)
    ordered, _ = job.steps("TopK", [places, count], (f"{sample}/ordered", f"{sample}/order"), axis=0, largest=0)
    return job.step("Gather", [pairs, ordered], f"{sample}/best", axis=0)


def _deliver(job: LayerJob, rows: list[str]) -> None:
    """All rows; when there are none, one row of -1 for each sample."""
    samples = len(rows)
    nothing = np.full((samples, 7), -1, np.float32)
    nothing[:, 0] = np.arange(samples)
    together = job.step("Concat", [*rows, job.floats(nothing, "nothing")], "together", axis=0)
    found = rows[0] if samples == 1 else job.step("Concat", rows, "found", axis=0)
    count = job.step("Shape", [found], "count", start=0, end=1)
    some = job.step("Greater", [count, job.integers([0], "none")], "some")
    end = job.step("Where", [some, count, job.integers([samples], "samples")], "end_of_rows")
    limits = [job.integers([0], "start"), end, job.integers([0], "row_axis")]
    kept = job.step("Slice", [together, *limits], "kept_rows")
    job.top("Reshape", [kept, job.integers([1, 1, -1, 7], "shape")], (1, 1, samples, 7))
    job.varies(2)


# The last layers of YOLO in forks: boxes of grids, of which those that overlap a likelier one of any class go.


@converts("YoloDetectionOutput")
def yolo_detection_output(job: LayerJob) -> None:
    """Rows of 0, class from 1 on, confidence and corners, for the likeliest class of each box (YOLOv2)."""
    params = job.params("yolo_detection_output_param")
    job.check_counts((1, 2))
    anchors = [_anchor_pairs(job, params, range(params.integer("num_box")))] * len(job.bottoms)
    boxes, chance, kinds = _grids(job, params, anchors, scales=[1.0] * len(anchors), classes="Softmax")
    best = job.step("ArgMax", [kinds], "best_class", axis=1, keepdims=1)
    likely = job.step("ReduceMax", [kinds], "best_chance", axes=[1], keepdims=1)
    scores = job.step("Mul", [chance, likely], "scores")
    labels = job.step("Cast", [best], "labels", to=_FLOAT)
    # As likely as the threshold is enough here.
    least = float(np.nextafter(np.float32(params.number("confidence_threshold")), np.float32(-np.inf)))
    _suppress(job, params, [boxes, scores, labels], least=least)


@converts("Yolov3DetectionOutput")
def yolo3_detection_output(job: LayerJob) -> None:
    """Rows of 0, class from 1 on, confidence and corners, for every likely class of each box (YOLOv3)."""
    params = job.params("yolov3_detection_output_param")
    job.check_counts((params.integer("mask_group_num"),))
    masks, scales = params.integers("mask"), params.integers("anchors_scale")
    many, each = len(job.bottoms), len(masks) // len(job.bottoms)
    if each < params.integer("num_box") or len(scales) < many:
        raise job.refuse(english("has fewer values of mask or anchors_scale than its bottoms need"))
    chosen = [masks[place * each :][: params.integer("num_box")] for place in range(many)]
    anchors = [_anchor_pairs(job, params, mask) for mask in chosen]
    spreads = _SPREADS if params.flag("gaussian_box") else 0
    boxes, chance, kinds = _grids(
        job, params, anchors, scales=list(map(float, scales)), classes="Sigmoid", spreads=spreads
    )
    classes = params.integer("num_classes")
    column = job.integers([-1, 1], "column")
    scores = job.step("Reshape", [job.step("Mul", [chance, kinds], "by_class"), column], "scores")
    total = sum(math.prod(bottom.shape[2:]) * params.integer("num_box") for bottom in job.bottoms)
    labels = job.floats(np.tile(np.arange(classes), total)[:, None], "labels")
    places = job.integers(np.repeat(np.arange(total), classes), "owners")
    every = job.step("Gather", [boxes, places], "every_box", axis=0)
    _suppress(job, params, [every, scores, labels], least=params.number("confidence_threshold"))


# Of a Gaussian box each number is followed by how unsure it is.
_SPREADS = 4


def _anchor_pairs(job: LayerJob, params: Params, numbers: Sequence[int]) -> Array:
    """Width and height of the boxes with these numbers."""
    biases = params.numbers("biases")
    if not numbers or 2 * max(numbers) + 1 >= len(biases):
        raise job.refuse(english("has fewer values of biases than its boxes need"))
    return np.array([biases[2 * number : 2 * number + 2] for number in numbers], np.float32)


def _grids(
    job: LayerJob, params: Params, anchors: list[Array], *, scales: list[float], classes: str, spreads: int = 0
) -> tuple[str, str, str]:
    """Boxes (middle and size), objectness and classes of all grids, one row for each box."""
    count, parts = params.integer("num_classes"), []
    width = 5 + spreads + count
    for number, (bottom, anchor, scale) in enumerate(zip(job.bottoms, anchors, scales, strict=False)):
        many, side = len(anchor), bottom.shape[-1]
        if bottom.shape != (1, many * width, side, side):
            raise job.refuse(
                english(
                    "has {boxes} boxes and {classes} classes on a square grid, and one sample; "
                    "its input is {shape}",
                    boxes=many,
                    classes=count,
                    shape="x".join(map(str, bottom.shape)),
                )
            )

        def step(op_type: str, inputs: list[str], name: str, number: int = number, **attributes: Any) -> str:
            return job.step(op_type, inputs, f"{number}/{name}", **attributes)

        shape = job.integers([many, width, side * side], f"{number}/shape")
        turned = step("Transpose", [step("Reshape", [bottom.name, shape], "grid")], "turned", perm=[0, 2, 1])
        if spreads:
            own, behind = 2 * np.arange(spreads), 2 * spreads + np.arange(1 + count)
            order = job.integers([*own, *behind, *(own + 1)], f"{number}/order")
            turned = step("Gather", [turned, order], "ordered", axis=2)
        sizes = [2, 2, 1, count, *([spreads] if spreads else [])]
        names = [f"{number}/{name}" for name in ("place", "size", "object", "kinds", "spreads")[: len(sizes)]]
        split = job.integers(sizes, f"{number}/sizes")
        place, size, chance, kinds, *unsure = job.steps("Split", [turned, split], names, axis=2)
        cells = np.stack([np.arange(side * side) % side, np.arange(side * side) // side], axis=1)
        moved = step("Add", [step("Sigmoid", [place], "within"), job.floats(cells, f"{number}/cells")], "moved")
        middle = step("Div", [moved, job.floats(float(side), f"{number}/side")], "middle")
        largeness = job.floats(anchor[:, None] / np.float32(side * scale), f"{number}/anchors")
        extent = step("Mul", [step("Exp", [size], "growth"), largeness], "extent")
        attributes = {"axis": 2} if classes == "Softmax" else {}
        made = [
            middle,
            extent,
            _sure(job, step("Sigmoid", [chance], "chance"), unsure, number=number),
            step(classes, [kinds], "chances", **attributes),
        ]
        row = step("Concat", made, "activated", axis=2)
        parts.append(step("Reshape", [row, job.integers([-1, 5 + count], f"{number}/rows")], "row_of_each"))
    job.fix_batch(english("layer {name!r} ({type}) takes one sample", name=job.layer.name, type=job.layer.type))
    whole = job.step("Concat", parts, "all_boxes", axis=0)
    columns = job.integers([4, 1, count], "columns")
    boxes, chance, kinds = job.steps("Split", [whole, columns], ("boxes", "objectness", "classes"), axis=1)
    return boxes, chance, kinds


def _sure(job: LayerJob, chance: str, unsure: list[str], *, number: int) -> str:
    """Chances times the mean of how sure the numbers of their boxes are."""
    for spread in unsure:
        less = job.step("Sigmoid", [spread], f"{number}/unsure")
        mean = job.step("ReduceMean", [less], f"{number}/mean_unsure", axes=[2], keepdims=1)
        sure = job.step("Sub", [job.floats(1.0, f"{number}/all"), mean], f"{number}/sure")
        chance = job.step("Mul", [chance, sure], f"{number}/sure_chance")
    return chance


def _suppress(job: LayerJob, params: Params, found: list[str], *, least: float) -> None:
    """Of boxes (middle and size), scores and labels those that no likelier box overlaps."""
    boxes, scores, _ = found
    flat = job.step("Reshape", [scores, job.integers([1, 1, -1], "score_row")], "score_row_of_all")
    inputs = [
        job.step("Unsqueeze", [boxes, job.integers([0], "box_axis")], "layered_boxes"),
        flat,
        job.integers(np.iinfo(np.int32).max, "most"),
        job.floats(params.number("nms_threshold"), "overlap"),
        job.floats(least, "least"),
    ]
    chosen = job.step("NonMaxSuppression", inputs, "chosen", center_point_box=1)
    kept = job.step("Gather", [chosen, job.integers(2, "box_column")], "kept", axis=1)
    box, score, label = (
        job.step("Gather", [source, kept], f"kept_{name}", axis=0)
        for source, name in zip(found, ("boxes", "scores", "labels"), strict=True)
    )
    middle, size = job.steps("Split", [box, job.integers([2, 2], "halves")], ("kept_middle", "kept_size"), axis=1)
    reach = job.step("Mul", [size, job.floats(0.5, "half")], "reach")
    ends = [job.step(op_type, [middle, reach], name) for op_type, name in (("Sub", "begin"), ("Add", "end"))]
    named = job.step("Add", [label, job.floats(1.0, "from_one")], "named")
    image = job.step("Mul", [score, job.floats(0.0, "first_image")], "image")
    _deliver(job, [job.step("Concat", [image, named, score, *ends], "rows", axis=1)])
