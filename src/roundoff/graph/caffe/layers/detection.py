"""Boxes: those a detector starts from, and parts of a plane pooled to one size."""

import math

import numpy as np

from roundoff.core.tensors import Array
from roundoff.graph.caffe.job import LayerJob
from roundoff.graph.caffe.params import Params
from roundoff.graph.caffe.registry import converts

__all__ = ["prior_box", "roi_pooling"]

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
        raise job.refuse("takes two blobs with 4 axes")
    boxes = _box_sizes(job, params)
    numbers = feature[2] * feature[3] * len(boxes) * 4
    if numbers > _MOST_NUMBERS:
        raise job.refuse(f"would make {numbers // 4} boxes", fix="check the sizes of its bottoms")
    height, width = _pair(params, "img", "img_size", default=image[2:])
    steps = _pair(params, "step", "step", default=(height / feature[2], width / feature[3]))
    corners = _corners(feature[2:], boxes, steps=steps, image=(height, width), offset=params.number("offset"))
    if params.flag("clip"):
        corners = corners.clip(0, 1)
    variances = params.numbers("variance") or (_DEFAULT_VARIANCE,)
    if len(variances) not in (1, 4):
        raise job.refuse(f"has {len(variances)} variances; it takes 1 or 4")
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
        raise job.refuse("needs min_size, and as many max_size as min_size or none")
    if any(most <= least for least, most in zip(smallest, largest, strict=False)):
        raise job.refuse("has a max_size that does not exceed its min_size")
    ratios = [1.0]
    for ratio in params.numbers("aspect_ratio"):
        if ratio <= 0:
            raise job.refuse(f"has the aspect ratio {ratio:g}")
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


@converts("ROIPooling")
def roi_pooling(job: LayerJob) -> None:
    """The largest values of a grid laid over parts of a plane."""
    job.check_counts((2,))
    params, (plane, parts) = job.params("roi_pooling_param"), (bottom.shape for bottom in job.bottoms)
    height, width = params.integer("pooled_h"), params.integer("pooled_w")
    if len(plane) != 4 or math.prod(parts[1:]) != 5 or min(height, width) < 1:
        raise job.refuse("takes planes, parts of five numbers each, and a grid of at least one cell")
    job.fix_batch(f"layer {job.layer.name!r} has a number of parts besides the number of samples")
    source = job.bottoms[1].name
    if len(parts) != 2:
        source = job.step("Flatten", [source], "parts", axis=1)
    job.top(
        "MaxRoiPool",
        [job.bottoms[0].name, source],
        (parts[0], plane[1], height, width),
        pooled_shape=[height, width],
        spatial_scale=params.number("spatial_scale"),
    )
