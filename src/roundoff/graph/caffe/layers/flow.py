"""How pictures move: two of them compared at many displacements, warped by a flow, resampled (FlowNet)."""

import math

import numpy as np

from roundoff.core.tensors import Array
from roundoff.graph.caffe.conversion import LayerJob, converts
from roundoff.messages.message import english

_PLANE = 2
# What the operator is called in the version of ONNX that is written.
_LINEAR = "bilinear"


def _planes(job: LayerJob) -> tuple[int, ...]:
    shape = job.bottoms[0].shape
    if len(shape) != _PLANE + 2:
        raise job.refuse(english("takes planes, but its input has {count} axes instead of 4", count=len(shape)))
    return shape


@converts("Correlation")
def correlation(job: LayerJob) -> None:
    """The mean product of two pictures' values, or of their distances, at each displacement of the second."""
    job.check_counts((2,))
    params, shape = job.params("correlation_param"), _planes(job)
    kernel, reach, pad = (params.integer(name) for name in ("kernel_size", "max_displacement", "pad"))
    stride, step = params.integer("stride_1"), params.integer("stride_2")
    if kernel % 2 == 0 or min(stride, step) < 1 or job.bottoms[1].shape != shape:
        raise job.refuse(english("takes an odd kernel_size, strides of at least 1, and two bottoms of one shape"))
    places = [-(-(size + 2 * pad - 2 * reach - kernel + 1) // stride) for size in shape[2:]]
    if min(places) < 1:
        raise job.refuse(english("has a kernel and displacements that do not fit into its input"))
    # How much of the padded planes the windows see at one displacement.
    seen = [(count - 1) * stride + kernel for count in places]
    first, second = (_padded(job, number, pad) for number in (0, 1))
    here = _rows(job, first, "here", start=reach, size=seen[0])
    columns = job.integers(reach + np.arange(seen[1]), "columns")
    here = job.step("Gather", [here, columns], "here_columns", axis=3)
    here = job.step("Unsqueeze", [here, job.integers([3], "axis")], "here_once")
    radius = reach // step
    moves = step * np.arange(-radius, radius + 1)
    moved = job.integers(reach + moves[:, None] + np.arange(seen[1]), "moved_columns")
    mean_of = "Mul" if params.choice("correlation_type") == "MULTIPLY" else "Sub"
    parts = []
    for number, move in enumerate(moves.tolist()):
        rows = _rows(job, second, f"{number}/there", start=reach + move, size=seen[0])
        there = job.step("Gather", [rows, moved], f"{number}/displaced", axis=3)
        both = job.step(mean_of, [here, there], f"{number}/both")
        if mean_of == "Sub":
            both = job.step("Abs", [both], f"{number}/distance")
        mean = job.step("ReduceMean", [both], f"{number}/mean", axes=[1], keepdims=0)
        parts.append(job.step("Transpose", [mean], f"{number}/by_move", perm=[0, 2, 1, 3]))
    top = (shape[0], len(moves) ** 2, *places)
    if kernel == stride == 1:
        job.top("Concat", parts, top, axis=1)
        return
    every = job.step("Concat", parts, "every", axis=1)
    job.top("AveragePool", [every], top, kernel_shape=[kernel] * 2, strides=[stride] * 2)


def _padded(job: LayerJob, number: int, pad: int) -> str:
    source = job.bottoms[number].name
    if not pad:
        return source
    pads = job.integers([0, 0, pad, pad] * 2, f"pads_{number}")
    return job.step("Pad", [source, pads, job.floats(0.0, f"padding_{number}")], f"padded_{number}")


def _rows(job: LayerJob, source: str, name: str, *, start: int, size: int) -> str:
    limits = [job.integers([value], f"{name}_{word}") for value, word in (
        (start, "start"), (start + size, "end"), (2, "axis"))]  # fmt: skip
    return job.step("Slice", [source, *limits], name)


@converts("FlowWarp")
def flow_warp(job: LayerJob) -> None:
    """Values from where a flow points to, linear between pixels; zero, or no number, where that is outside."""
    job.check_counts((2,))
    shape, flow = _planes(job), job.bottoms[1].shape
    if flow != (shape[0], 2, *shape[2:]):
        raise job.refuse(english("takes planes, and a flow of two channels of the same size"))
    inside, grid = "", []
    parts = job.steps("Split", [job.bottoms[1].name, job.integers([1, 1], "halves")], ("x_flow", "y_flow"), axis=1)
    for axis, part, size in zip("xy", parts, reversed(shape[2:]), strict=True):
        pixels = np.arange(size).reshape((1, 1, 1, -1) if axis == "x" else (1, 1, -1, 1))
        place = job.step("Add", [part, job.floats(pixels, f"{axis}_pixels")], f"{axis}_place")
        behind = job.step("GreaterOrEqual", [place, job.floats(0.0, f"{axis}_first")], f"{axis}_from")
        before = job.step("Less", [place, job.floats(float(size), f"{axis}_size")], f"{axis}_to")
        within = job.step("And", [behind, before], f"{axis}_within")
        inside = job.step("And", [inside, within], "inside") if inside else within
        # From -1 at the first pixel to 1 at the last one.
        scaled = job.step("Mul", [place, job.floats(2 / max(size - 1, 1), f"{axis}_scale")], f"{axis}_scaled")
        grid.append(job.step("Sub", [scaled, job.floats(1.0, f"{axis}_one")], f"{axis}_grid"))
    both = job.step("Concat", grid, "both", axis=1)
    turned = job.step("Transpose", [both], "grid", perm=[0, 2, 3, 1])
    sampled = job.step(
        "GridSample",
        [job.bottoms[0].name, turned],
        "sampled",
        mode=_LINEAR,
        padding_mode="border",
        align_corners=1,
    )
    outside = 0.0 if job.params("flow_warp_param").choice("fill_value") == "ZERO" else math.nan
    job.top("Where", [inside, sampled, job.floats(outside, "outside")], shape)


@converts("ChannelNorm")
def channel_norm(job: LayerJob) -> None:
    """The length of the vector of all channels at each pixel."""
    job.check_counts((1,))
    shape = _planes(job)
    job.top("ReduceL2", [job.bottoms[0].name], (shape[0], 1, *shape[2:]), axes=[1], keepdims=1)


@converts("Resample")
def resample(job: LayerJob) -> None:
    """Planes in another size: weighted means along rows and columns, whose weights are constants."""
    job.check_counts((1, 2))
    params, shape = job.params("resample_param"), _planes(job)
    method = params.choice("type")
    if method == "AREA":
        raise job.refuse(english("resamples by AREA, which FlowNet does not compute either"))
    wanted = (
        job.bottoms[1].shape[-2:]
        if len(job.bottoms) > 1
        else tuple(params.integer(name) for name in ("height", "width"))
    )
    if min(wanted) < 1:
        raise job.refuse(english("says nothing of its size"), fix=english("give height and width"))
    steps = [size / target for size, target in zip(shape[2:], wanted, strict=True)]
    smooth = params.flag("antialias") and max(steps) > 1
    # The program adds half a step of the other axis.
    columns, rows = (
        _weights(
            shape[2 + axis], wanted[axis], steps[axis], steps[1 - axis] / 2 - 0.5, method=method, smooth=smooth
        )
        for axis in (1, 0)
    )
    across = job.step("MatMul", [job.bottoms[0].name, job.floats(columns.T, "columns")], "across")
    job.top("MatMul", [job.floats(rows, "rows"), across], (*shape[:2], *wanted))


def _weights(size: int, wanted: int, step: float, offset: float, *, method: str, smooth: bool) -> Array:
    """What each value adds to each new one along an axis."""
    places = np.arange(wanted) * step + offset
    nearest = np.floor(np.abs(places) + 0.5) * np.sign(places)
    pixels = np.arange(size)
    if method == "NEAREST":
        return np.asarray(nearest.clip(0, size - 1)[:, None] == pixels, np.float64)
    narrow = 1 / step if smooth else 1.0
    reach = 2 if step < 1 else math.ceil((4 if method == "CUBIC" else 2) / narrow)
    distance = np.abs(places[:, None] - pixels) * narrow
    weights = _cubic(distance) if method == "CUBIC" else np.maximum(1 - distance, 0)
    weights *= np.abs(pixels - nearest[:, None]) <= reach
    sums = weights.sum(1, keepdims=True)
    return np.asarray(np.divide(weights, sums, out=np.zeros_like(weights), where=sums != 0))


def _cubic(distance: Array) -> Array:
    near = distance**2 * (1.5 * distance - 2.5) + 1
    far = distance * (distance * (2.5 - 0.5 * distance) - 4) + 2
    return np.asarray(np.where(distance <= 1, near, np.where(distance < 2, far, 0.0)))
