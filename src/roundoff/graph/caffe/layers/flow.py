"""How pictures move: two of them compared at many displacements, warped, resampled (FlowNet, DispNet)."""

import math
from collections.abc import Sequence
from typing import Any

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


@converts("Correlation", "Correlation1D")
def correlation(job: LayerJob) -> None:
    """The mean product of two pictures' values, or of their distances, at each displacement of the second.

    ``Correlation1D``, of DispNet, moves along rows only, to both sides or to one.
    """
    job.check_counts((2,))
    params, shape = job.params("correlation_param"), _planes(job)
    kernel, reach, pad = (params.integer(name) for name in ("kernel_size", "max_displacement", "pad"))
    stride, step = params.integer("stride_1"), params.integer("stride_2")
    if kernel % 2 == 0 or min(stride, step) < 1 or job.bottoms[1].shape != shape:
        raise job.refuse(english("takes an odd kernel_size, strides of at least 1, and two bottoms of one shape"))
    along = job.layer.type.endswith("1D")
    # What windows cannot reach, and what is added, at each end of columns and of rows.
    ends, edges = (0 if along else reach, reach), (0 if along else pad, pad)
    sizes = zip(shape[2:], edges, ends, strict=True)
    places = [-(-(size + 2 * edge - 2 * end - kernel + 1) // stride) for size, edge, end in sizes]
    if min(places) < 1:
        raise job.refuse(english("has a kernel and displacements that do not fit into its input"))
    # How much of the padded planes the windows see at one displacement.
    seen = [(count - 1) * stride + kernel for count in places]
    radius = reach // step
    across = np.arange(-radius, radius + 1)
    if along and params.integer("single_direction"):
        # To the left it begins one step away, and goes one step further than it should.
        across = np.arange(-radius - 1, 0) if params.integer("single_direction") < 0 else np.arange(radius + 1)
    columns = step * across
    beyond = max(0, -int(columns[0]) - reach)
    first, second = (_padded(job, number, (*edges, beyond * number)) for number in (0, 1))
    here = _rows(job, first, "here", start=ends[0], size=seen[0])
    here = job.step("Gather", [here, job.integers(reach + np.arange(seen[1]), "columns")], "here_columns", axis=3)
    here = job.step("Unsqueeze", [here, job.integers([3], "axis")], "here_once")
    moved = job.integers(beyond + reach + columns[:, None] + np.arange(seen[1]), "moved_columns")
    mean_of = "Mul" if params.choice("correlation_type") == "MULTIPLY" else "Sub"
    moves = [0] if along else columns.tolist()
    parts = []
    for number, move in enumerate(moves):
        rows = _rows(job, second, f"{number}/there", start=ends[0] + move, size=seen[0])
        there = job.step("Gather", [rows, moved], f"{number}/displaced", axis=3)
        both = job.step(mean_of, [here, there], f"{number}/both")
        if mean_of == "Sub":
            both = job.step("Abs", [both], f"{number}/distance")
        mean = job.step("ReduceMean", [both], f"{number}/mean", axes=[1], keepdims=0)
        parts.append(job.step("Transpose", [mean], f"{number}/by_move", perm=[0, 2, 1, 3]))
    top = (shape[0], len(moves) * len(columns), *places)
    if kernel == stride == 1:
        job.top("Concat", parts, top, axis=1)
        return
    every = job.step("Concat", parts, "every", axis=1)
    job.top("AveragePool", [every], top, kernel_shape=[kernel] * 2, strides=[stride] * 2)


def _padded(job: LayerJob, number: int, edges: tuple[int, int, int]) -> str:
    """A bottom with zeros above and below, at both sides, and some more at the left."""
    source, (high, wide, left) = job.bottoms[number].name, edges
    if not any(edges):
        return source
    pads = job.integers([0, 0, high, wide + left, 0, 0, high, wide], f"pads_{number}")
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
    _weigh(job, rows, columns)


def _weigh(job: LayerJob, rows: Array, columns: Array) -> None:
    """Planes whose values are weighted sums of the bottom's, along rows and columns."""
    shape = (*_planes(job)[:2], len(rows), len(columns))
    across = job.step("MatMul", [job.bottoms[0].name, job.floats(columns.T, "columns")], "across")
    job.top("MatMul", [job.floats(rows, "rows"), across], shape)


@converts("Downsample")
def downsample(job: LayerJob) -> None:
    """Planes in another size, corners on corners: means of the values around each place, weighted by a pyramid."""
    job.check_counts((1, 2))
    params, shape = job.params("downsample_param"), _planes(job)
    named = params.integer("top_height"), params.integer("top_width")
    wanted = job.bottoms[1].shape[-2:] if len(job.bottoms) > 1 else named
    if min(wanted) < 1:
        raise job.refuse(english("says nothing of its size"), fix=english("give top_height and top_width"))
    if wanted == shape[2:]:
        job.top("Identity", [job.bottoms[0].name], shape)
        return
    if min(*wanted, *shape[2:]) == 1:
        raise job.refuse(english("has planes of one row or column, for which its formula gives no number"))
    _weigh(job, *(_pyramid(size, target) for size, target in zip(shape[2:], wanted, strict=True)))


def _pyramid(size: int, wanted: int) -> Array:
    step = (size - 1) / (wanted - 1)
    distance = np.abs(np.arange(wanted)[:, None] * step - np.arange(size))
    weights = np.maximum(0, 1 - distance / step)
    sums = weights.sum(1, keepdims=True)
    # Between two values further apart than the pyramid reaches there is none; the program divides by zero.
    return np.asarray(np.divide(weights, sums, out=np.full_like(weights, math.nan), where=sums != 0))


@converts("Mean")
def mean(job: LayerJob) -> None:
    """A mean of each channel added to pictures or taken off, each side with a factor."""
    params = job.params("mean_param")
    values = np.array(params.numbers("value"), np.float64)
    if params.has("file") or not values.size:
        raise job.refuse(english("has its mean in a file of its own"), fix=english("give the mean as value: ..."))
    job.check_counts(range(1, len(job.bottoms) + 1), (len(job.bottoms),))
    factor = params.number("output_scale")
    added = (
        factor * params.number("mean_scale") * (-values if params.choice("operation") == "SUBTRACT" else values)
    )
    for index, bottom in enumerate(job.bottoms):
        if len(bottom.shape) != _PLANE + 2 or bottom.shape[1] % values.size:
            raise job.refuse(english("has {count} means for other channels", count=values.size))
        whole = np.resize(added, bottom.shape[1]).reshape(-1, 1, 1)
        scaled = job.floats(factor * params.number("input_scale"), f"{index}/factor")
        product = job.step("Mul", [bottom.name, scaled], f"{index}/scaled")
        job.top("Add", [product, job.floats(whole, f"{index}/mean")], bottom.shape, index=index)


@converts("DataAugmentation")
def data_augmentation(job: LayerJob) -> None:
    """What FlowNet does to pictures when it is run: the middle of them, where a size is given, less their mean."""
    job.check_counts((1,))
    params, shape = job.params("augmentation_param"), _planes(job)
    if params.flag("augment_during_test"):
        raise job.refuse(english("changes its input by chance"), fix=english("take out augment_during_test: true"))
    means = _mean_of_pictures(job)
    named = params.integer("crop_height"), params.integer("crop_width")
    wanted = named if all(params.has(name) for name in ("crop_height", "crop_width")) else shape[2:]
    if (min(wanted) < 2 and wanted == named) or any(a > b for a, b in zip(wanted, shape[2:], strict=True)):
        raise job.refuse(english("cuts out more than its input has"))
    middle = job.bottoms[0].name
    if wanted == named:
        rows, columns = (_middle(size, target) for size, target in zip(shape[2:], wanted, strict=True))
        across = job.step("MatMul", [middle, job.floats(columns.T, "columns")], "across")
        middle = job.step("MatMul", [job.floats(rows, "rows"), across], "middle")
    top = (*shape[:2], *wanted)
    if means is None:
        job.top("Identity", [middle], top)
        return
    if means.shape[1:] not in (wanted, (1, 1)):
        means = means.mean((1, 2), keepdims=True)
    job.top("Sub", [middle, job.floats(means, "mean")], top)


def _middle(size: int, wanted: int) -> Array:
    """Weights that take the middle of an axis; the last value is never quite reached, as in the program."""
    places = np.clip(np.arange(wanted) + (size - wanted) / 2, 0, size - 1.05)
    return np.asarray(np.maximum(0, 1 - np.abs(places[:, None] - np.arange(size))))


def _mean_of_pictures(job: LayerJob) -> Array | None:
    """The mean that is taken off: that of training, which the layer has stored, or that of its parameters."""
    params, shape = job.params("augmentation_param"), _planes(job)
    pixels = params.flag("mean_per_pixel")
    if params.integer("recompute_mean"):
        # A count of pictures, the mean of each pixel in the size of training, and that of each channel.
        stored = job.blob(1, job.layer.blobs[1].shape if len(job.layer.blobs) > 1 else (1, *shape[1:]))
        if job.net.fills:
            job.blob(0, (1, 1, 1, 1))
        channels = job.blob(2, (1, shape[1], 1, 1)).reshape(-1, 1, 1)
        return stored.reshape(shape[1], *stored.shape[-2:]) if pixels else channels
    given = np.array(params.numbers("mean"), np.float32)
    return given.reshape(-1, 1, 1) if given.size == shape[1] and not pixels else None


@converts("Accum")
def accum(job: LayerJob) -> None:
    """Blobs enlarged to the size of the largest, or to a given one, corners on corners, and put together."""
    params = job.params("accum_param")
    reference = params.flag("have_reference")
    parts = job.bottoms[: len(job.bottoms) - reference]
    if not parts or any(len(bottom.shape) != _PLANE + 2 for bottom in job.bottoms):
        raise job.refuse(english("has {count} bottoms; it takes two or more", count=len(job.bottoms)))
    largest = [max(bottom.shape[axis] for bottom in parts) for axis in (2, 3)]
    by = params.integer("size_divisible_by")
    named = [-(-size // by) * by for size in largest] if by else [
        params.integer(name) for name in ("top_height", "top_width")]  # fmt: skip
    wanted = named if all(a > b for a, b in zip(named, largest, strict=True)) else largest
    wanted = list(job.bottoms[-1].shape[2:]) if reference else wanted
    enlarged = []
    for number, bottom in enumerate(parts):
        size = job.step("Shape", [bottom.name], f"{number}/kept", start=0, end=2)
        size = job.step("Concat", [size, job.integers(wanted, f"{number}/size")], f"{number}/sizes", axis=0)
        how = {"mode": "linear", "coordinate_transformation_mode": "align_corners"}
        enlarged.append(job.step("Resize", [bottom.name, "", "", size], f"{number}/enlarged", **how))
    top = (parts[0].shape[0], sum(bottom.shape[1] for bottom in parts), *wanted)
    job.top("Concat", enlarged, top, axis=1)


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


_FLOAT = 1


@converts("LSTM")
def lstm(job: LayerJob) -> None:
    """A cell with input, forget and output gates; where the second bottom is 0 a new sequence begins."""
    hidden = job.params("recurrent_param").integer("num_output")
    gates, blobs = _from_input(job, 4 * hidden, states=2)
    steps, samples = job.bottoms[1].shape
    body = _lstm_body(hidden, job.blob(blobs, (4 * hidden, hidden)))
    _run(job, body, gates, job.bottoms[1].name, (steps, samples, hidden))


def _lstm_body(hidden: int, recurrent: Array) -> "_Body":
    body = _Body(("h", "c"), (("x", 4 * hidden), ("cont", 1)), hidden)
    body.add("Mul", ["h", "cont"], "kept")
    body.add("MatMul", ["kept", body.constant(recurrent.T, "weight")], "from_state")
    body.add("Add", ["x", "from_state"], "gates")
    body.add("Split", ["gates", body.constant(np.full(4, hidden, np.int64), "sizes")], "i f o g", axis=-1)
    for gate in "ifo":
        body.add("Sigmoid", [gate], f"{gate}_gate")
    body.add("Tanh", ["g"], "g_gate")
    _cell(body.add)
    return body


@converts("Lstm")
def lstm_of_forks(job: LayerJob) -> None:
    """The cell of CTPN, which takes steps x samples x values; or of caffe-lstm, which has both on one axis."""
    job.check_counts((1, 2))
    params, shape = job.params("lstm_param"), job.bottoms[0].shape
    hidden, samples = params.integer("num_output"), params.integer("batch_size")
    parted = len(shape) == 3 and not params.has("batch_size")
    if len(shape) < 2 or hidden < 1 or samples < 1 or (not parted and shape[0] % samples):
        sizes = "x".join(map(str, shape))
        raise job.refuse(
            english("takes steps x samples of values, and num_output; it got the shape {sizes}", sizes=sizes)
        )
    _fix_steps(job)
    steps, samples = shape[:2] if parted else (shape[0] // samples, samples)
    width = math.prod(shape) // (steps * samples)
    source = job.bottoms[0].name
    if not parted:
        source = job.step("Reshape", [source, job.integers([steps, samples, width], "rows")], "by_step")
    product = job.step("MatMul", [source, job.floats(job.blob(0, (4 * hidden, width)).T, "weight")], "product")
    drive = job.step("Add", [product, job.floats(job.blob(2, (4 * hidden,)), "bias")], "drive")
    if len(job.bottoms) == 2:
        continues = job.step("Reshape", [job.bottoms[1].name, job.integers([steps, samples], "grid")], "given")
    else:
        continues = job.floats(np.repeat(np.arange(steps)[:, None] > 0, samples, axis=1), "behind_first")
    body = _lstm_body(hidden, job.blob(1, (4 * hidden, hidden)))
    whole = (steps, samples, hidden)
    if parted:
        _run(job, body, drive, continues, whole)
        return
    states = _run(job, body, drive, continues, whole, out="states")
    top = (steps * samples, hidden)
    job.top("Reshape", [states, job.integers(top, "shape")], top)


def _fix_steps(job: LayerJob) -> None:
    job.fix_batch(
        english(
            "layer {name!r} ({type}) has steps, not samples, along its first axis",
            name=job.layer.name,
            type=job.layer.type,
        )
    )


def _cell(add: Any) -> None:
    """The new state of a cell from its gates and the old one; the forget gate lets nothing into a new sequence."""
    add("Mul", ["f_gate", "cont"], "f_open")
    add("Mul", ["f_open", "c"], "old")
    add("Mul", ["i_gate", "g_gate"], "new")
    add("Add", ["old", "new"], "c_next")
    add("Tanh", ["c_next"], "c_limited")
    add("Mul", ["o_gate", "c_limited"], "h_next")


@converts("RNN")
def rnn(job: LayerJob) -> None:
    """A state through tanh, and an output through another; where the second bottom is 0 a new sequence begins."""
    hidden = job.params("recurrent_param").integer("num_output")
    drive, blobs = _from_input(job, hidden, states=1)
    recurrent, outward = (job.blob(blobs + step, (hidden, hidden)) for step in (0, 1))
    body = _Body(("h",), (("x", hidden), ("cont", 1)), hidden)
    body.add("Mul", ["h", "cont"], "kept")
    body.add("MatMul", ["kept", body.constant(recurrent.T, "weight")], "from_state")
    body.add("Add", ["x", "from_state"], "drive")
    body.add("Tanh", ["drive"], "h_next")
    shape = (*job.bottoms[1].shape, hidden)
    states = _run(job, body, drive, job.bottoms[1].name, shape, out="states")
    product = job.step("MatMul", [states, job.floats(outward.T, "out_weight")], "out_product")
    shifted = job.step("Add", [product, job.floats(job.blob(blobs + 2, (hidden,)), "out_bias")], "out_sum")
    job.top("Tanh", [shifted], (*job.bottoms[0].shape[:2], hidden))


def _from_input(job: LayerJob, size: int, *, states: int) -> tuple[str, int]:
    """What the inputs of all steps add, and the number of the first blob behind those it took."""
    params = job.params("recurrent_param")
    exposed = states if params.flag("expose_hidden") else 0
    job.check_counts((2 + exposed, 3 + exposed), (1 + exposed,))
    steps, others = job.bottoms[0].shape, job.bottoms[1].shape
    if len(steps) < 3 or others != steps[:2] or size < 1:
        sizes = " and ".join("x".join(map(str, each)) for each in (steps, others))
        raise job.refuse(
            english(
                "takes steps x samples x values, steps x samples, and num_output; it got the shapes {sizes}",
                sizes=sizes,
            )
        )
    _fix_steps(job)
    width = int(np.prod(steps[2:]))
    source = job.bottoms[0].name
    if len(steps) != 3:
        source = job.step("Reshape", [source, job.integers([0, 0, -1], "rows")], "flat")
    weights = job.blob(0, (size, width))
    product = job.step("MatMul", [source, job.floats(weights.T, "weight")], "product")
    drive = job.step("Add", [product, job.floats(job.blob(1, (size,)), "bias")], "drive")
    if len(job.bottoms) == 2 + exposed:
        return drive, 2
    shape = job.bottoms[2].shape
    static = job.step("Flatten", [job.bottoms[2].name], "static_flat", axis=1)
    matrix = job.blob(2, (size, int(np.prod(shape[1:]))))
    added = job.step("MatMul", [static, job.floats(matrix.T, "static_weight")], "static_product")
    return job.step("Add", [drive, added], "drive_and_static"), 3


class _Body:
    """What one step computes; weights lie in it, so that it stands by itself."""

    def __init__(self, states: Sequence[str], inputs: Sequence[tuple[str, int]], hidden: int) -> None:
        self.states, self._inputs, self._hidden = states, inputs, hidden
        self._nodes: list[Any] = []
        self._constants: list[Any] = []

    def constant(self, values: Array, name: str) -> str:
        from onnx.numpy_helper import from_array

        self._constants.append(from_array(np.ascontiguousarray(values), name))
        return name

    def add(self, op_type: str, inputs: Sequence[str], outputs: str, **attributes: Any) -> None:
        from onnx.helper import make_node

        self._nodes.append(
            make_node(op_type, list(inputs), outputs.split(), name=outputs.split(maxsplit=1)[0], **attributes)
        )

    def graph(self, samples: int) -> Any:
        from onnx.helper import make_graph, make_tensor_value_info

        self.add("Identity", ["h_next"], "shown")
        sizes = [*((name, self._hidden) for name in self.states), *self._inputs]
        given = [make_tensor_value_info(name, _FLOAT, [samples, size]) for name, size in sizes]
        made = [f"{name}_next" for name in self.states] + ["shown"]
        shown = [make_tensor_value_info(name, _FLOAT, [samples, self._hidden]) for name in made]
        return make_graph(self._nodes, "step", given, shown, self._constants)


def _run(
    job: LayerJob,
    body: _Body,
    drive: str,
    continues: str,
    shape: tuple[int, ...],
    *,
    out: str | None = None,
) -> str:
    """Add the Scan, and the tops: the states of all steps (unless they go on to `out`), and the last states."""
    _, samples, hidden = shape
    names = body.states
    cont = job.step("Unsqueeze", [continues, job.integers([2], "column")], "continues")
    exposed = job.params("recurrent_param").flag("expose_hidden")
    if exposed:
        rows = job.integers([samples, hidden], "state_shape")
        given = [
            job.step("Reshape", [bottom.name, rows], f"{name}_first")
            for bottom, name in zip(job.bottoms[-len(names) :], names, strict=True)
        ]
    else:
        given = [job.floats(np.zeros((samples, hidden)), f"{name}_first") for name in names]
    wanted = [*(f"{name}_last" for name in names), out or "hidden"]
    found = job.steps("Scan", [*given, drive, cont], wanted, body=body.graph(samples), num_scan_inputs=2)
    if out is None:
        job.top("Identity", [found[-1]], shape)
    if exposed:
        rows = job.integers([1, samples, hidden], "last_shape")
        for index, last in enumerate(found[:-1], start=1):
            job.top("Reshape", [last, rows], (1, samples, hidden), index=index)
    return found[-1]


@converts("LSTMUnit")
def lstm_unit(job: LayerJob) -> None:
    """One step of a cell: old state, gates and what continues; new state and output."""
    job.check_counts((3,), (2,))
    state, gates, cont = (bottom.shape for bottom in job.bottoms)
    if len(state) != 3 or gates != (*state[:2], 4 * state[2]) or cont != state[:2] or state[0] != 1:
        sizes = ", ".join("x".join(map(str, bottom.shape)) for bottom in job.bottoms)
        raise job.refuse(english("combines blobs of the shapes {sizes}, which do not fit", sizes=sizes))
    _fix_steps(job)
    parts = [f"{gate}_raw" for gate in "ifog"]
    raw = job.steps("Split", [job.bottoms[1].name, job.integers([state[2]] * 4, "sizes")], parts, axis=2)
    made = {"c": job.bottoms[0].name}
    made["cont"] = job.step("Unsqueeze", [job.bottoms[2].name, job.integers([2], "column")], "continues")
    for gate, tensor in zip("ifog", raw, strict=True):
        made[f"{gate}_gate"] = job.step("Tanh" if gate == "g" else "Sigmoid", [tensor], f"{gate}_gate")

    def add(op_type: str, inputs: Sequence[str], output: str) -> None:
        made[output] = job.step(op_type, [made[name] for name in inputs], output)

    _cell(add)
    job.top("Identity", [made["c_next"]], state)
    job.top("Identity", [made["h_next"]], state, index=1)


@converts("ContinuationIndicator")
def continuation(job: LayerJob) -> None:
    """Which steps go on with a sequence: all but the first."""
    job.check_counts((0, 1))
    params = job.params("continuation_indicator_param")
    steps, samples = (params.integer(name) for name in ("time_step", "batch_size"))
    if job.bottoms:
        steps, samples = steps or job.bottoms[0].shape[0], samples or job.bottoms[0].shape[1]
    if min(steps, samples) < 1:
        raise job.refuse(english("needs time_step and batch_size"))
    job.fix_batch(english("layer {name!r} names the number of steps and samples", name=job.layer.name))
    goes_on = np.ones((steps, samples), np.float32)
    goes_on[0] = 0
    job.top("Identity", [job.floats(goes_on, "continues")], (steps, samples))
