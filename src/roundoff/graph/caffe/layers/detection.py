"""Boxes: those a detector starts from, and parts of a plane pooled to one size."""

import math
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
    job.check_counts((len(job.bottoms),))
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
    reported = tuple(label for label in range(classes) if label != background)
    if not reported:
        raise job.refuse(english("has no class besides the background"))
    return _Sizes(samples, priors, classes, shared, reported)


def _boxes(job: LayerJob, params: Params, sizes: _Sizes) -> str:
    """Corrected boxes: samples x reported classes (or 1) x priors x 4."""
    several = 1 if sizes.shared else sizes.classes
    shape = job.integers([sizes.samples, sizes.priors, several, 4], "location_shape")
    change = job.step("Reshape", [job.bottoms[0].name, shape], "changes")
    table = job.step(
        "Reshape", [job.bottoms[2].name, job.integers([2, 1, sizes.priors, 1, 4], "prior_shape")], "table"
    )
    prior = job.step("Gather", [table, job.integers(0, "first")], "priors", axis=0)
    if not params.flag("variance_encoded_in_target"):
        variance = job.step("Gather", [table, job.integers(1, "second")], "variances", axis=0)
        change = job.step("Mul", [change, variance], "corrections")
    corrected = _corrected(job, params.choice("code_type"), prior, change)
    by_class = job.step("Transpose", [corrected], "by_class", perm=[0, 2, 1, 3])
    if sizes.shared:
        return by_class
    return job.step("Gather", [by_class, job.integers(sizes.wanted, "box_classes")], "boxes", axis=1)


def _corrected(job: LayerJob, code: str, prior: str, change: str) -> str:
    if code == "CORNER":
        return job.step("Add", [prior, change], "corrected")
    halves = job.integers([2, 2], "halves")
    first, last = job.steps("Split", [prior, halves], ("prior_first", "prior_last"), axis=-1)
    size = job.step("Sub", [last, first], "prior_size")
    if code == "CORNER_SIZE":
        sides = job.step("Concat", [size, size], "prior_sides", axis=-1)
        return job.step("Add", [prior, job.step("Mul", [change, sides], "moved")], "corrected")
    half = job.floats(0.5, "half")
    middle = job.step("Mul", [job.step("Add", [first, last], "prior_sum"), half], "prior_middle")
    move, grow = job.steps("Split", [change, halves], ("move", "grow"), axis=-1)
    centre = job.step("Add", [job.step("Mul", [move, size], "shift"), middle], "centre")
    reach = job.step("Mul", [job.step("Mul", [job.step("Exp", [grow], "growth"), size], "size"), half], "reach")
    begin, end = job.step("Sub", [centre, reach], "begin"), job.step("Add", [centre, reach], "end")
    return job.step("Concat", [begin, end], "corrected", axis=-1)


def _scores(job: LayerJob, params: Params, sizes: _Sizes) -> str:
    """Confidences of the reported classes: samples x classes x priors; those beyond the top_k sunk."""
    shape = job.integers([sizes.samples, sizes.priors, sizes.classes], "confidence_shape")
    shaped = job.step("Reshape", [job.bottoms[1].name, shape], "confidences")
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
