"""Kernels that compute their operation wrongly, each in one of the ways that boards are known for.

What is planted is made by editing the model or the result here, and not by what a diagnosis tries: the two must
agree by themselves.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from onnx import helper, numpy_helper

from benchmarks.planted.case import PlantedCase, truth
from benchmarks.planted.device import Device, Patch, few_samples
from benchmarks.planted.faults.kernels import EXACT, device_case, hurts
from benchmarks.planted.faults.registry import fault
from benchmarks.planted.subject import Subject
from roundoff.core.tensors import Array
from roundoff.graph.load import Model, model_from_proto

Edit = Callable[["Edited", np.random.Generator], bool]
# A fault that the outputs hardly notice is none that a user would ask about.
_MOST_DB = 25.0


@dataclass(frozen=True, eq=False)
class Edited:
    """A copy of a network whose node may be changed."""

    subject: Subject
    graph: Any
    node: Any

    def constant(self, position: int) -> Array | None:
        if position >= len(self.node.input) or self.node.input[position] not in self.subject.weights:
            return None
        return np.array(self.subject.weights[self.node.input[position]])

    def put(self, position: int, values: Array) -> None:
        """Another constant for this node alone."""
        name = f"planted_{position}"
        self.graph.initializer.append(numpy_helper.from_array(np.ascontiguousarray(values, np.float32), name))
        self.node.input[position] = name

    def become(self, op_type: str, inputs: Sequence[str], **attributes: Any) -> bool:
        made = helper.make_node(op_type, list(inputs), list(self.node.output), name=self.node.name, **attributes)
        self.node.CopyFrom(made)
        return True

    def attribute(self, name: str) -> Any:
        return next((each for each in self.node.attribute if each.name == name), None)


@dataclass(frozen=True, slots=True)
class Operation:
    """A wrong way to compute operations of some kinds; `patch` changes the result, `computed` what it is made of.

    `most_db` is what may be left of the outputs at most; `computed` is for boards that compute in float.
    """

    kinds: tuple[str, ...]
    edit: Edit | None = None
    patch: Callable[[Array, np.random.Generator], Patch | None] | None = None
    causes: tuple[str, ...] = ("kernel-fault",)
    computed: Callable[[Subject, Any], Patch | None] | None = None
    most_db: float = _MOST_DB


def _bias(factor: float) -> Edit:
    def edit(at: Edited, _rng: np.random.Generator) -> bool:
        values = at.constant(2)
        if values is None:
            return False
        at.put(2, values * factor)
        return True

    return edit


def _without_second(at: Edited, rng: np.random.Generator) -> bool:
    shapes = [at.subject.values[name].shape if name in at.subject.values else () for name in at.node.input]
    if len(shapes) != 2 or shapes[0] != shapes[1]:
        return False
    return at.become("Identity", [at.node.input[int(rng.integers(2))]])


def _left_out(at: Edited, _rng: np.random.Generator) -> bool:
    return at.become("Identity", at.node.input[:1])


def _other_activation(at: Edited, rng: np.random.Generator) -> bool:
    x = at.node.input[0]
    ways: list[tuple[str, dict[str, Any]]] = [
        ("LeakyRelu", {"alpha": 0.1}),
        ("Sigmoid", {}),
        ("Tanh", {}),
        ("Abs", {}),
    ]
    if at.node.op_type != "Relu":
        ways.append(("Relu", {}))
    op_type, named = ways[int(rng.integers(len(ways)))]
    return at.node.op_type != op_type and at.become(op_type, [x], **named)


def _one_sided(at: Edited, rng: np.random.Generator) -> bool:
    pads = at.attribute("pads")
    if pads is None or not any(pads.ints):
        return False
    count = len(pads.ints) // 2
    both = [pads.ints[axis] + pads.ints[axis + count] for axis in range(count)]
    pads.ints[:] = [*both, *[0] * count] if rng.random() < 0.5 else [*[0] * count, *both]
    return True


def _flipped(at: Edited, _rng: np.random.Generator) -> bool:
    weight = at.constant(1)
    if weight is None or weight.ndim != 4 or weight.shape[-1] < 2:
        return False
    at.put(1, weight[:, :, ::-1, ::-1])
    return True


def _turned(at: Edited, _rng: np.random.Generator) -> bool:
    weight = at.constant(1)
    if weight is None or weight.ndim != 4 or weight.shape[-1] < 2:
        return False
    at.put(1, weight.swapaxes(2, 3))
    return True


def _misread(at: Edited, _rng: np.random.Generator) -> bool:
    """Weights stored with input channels last, and read as if they were first."""
    weight = at.constant(1)
    if weight is None or min(weight.shape[:2]) < 2:
        return False
    order = (0, *range(2, weight.ndim), 1) if weight.ndim > 2 else (1, 0)
    other = weight.transpose(order).reshape(weight.shape)
    if np.array_equal(other, weight):
        return False
    at.put(1, other)
    return True


def _rolled_inputs(at: Edited, _rng: np.random.Generator) -> bool:
    weight = at.constant(1)
    if weight is None or weight.ndim != 4 or weight.shape[1] < 2:
        return False
    at.put(1, np.roll(weight, 1, axis=1))
    return True


def _other_axis(at: Edited, _rng: np.random.Generator) -> bool:
    rank = at.subject.values[at.node.output[0]].ndim
    axis = at.attribute("axis")
    if axis is None or rank < 3:
        return False
    axis.i = 1 if axis.i % rank != 1 else rank - 1
    return True


def _reversed(at: Edited, _rng: np.random.Generator) -> bool:
    if len(at.node.input) < 2:
        return False
    at.node.input[:] = list(at.node.input)[::-1]
    return True


def _counts_pads(at: Edited, _rng: np.random.Generator) -> bool:
    pads, counted = at.attribute("pads"), at.attribute("count_include_pad")
    if pads is None or not any(pads.ints):
        return False
    value = 0 if counted is not None and counted.i else 1
    named = {each.name: helper.get_attribute_value(each) for each in at.node.attribute}
    return at.become("AveragePool", at.node.input, **{**named, "count_include_pad": value})


def _other_pool(at: Edited, _rng: np.random.Generator) -> bool:
    named = {each.name: helper.get_attribute_value(each) for each in at.node.attribute}
    others = {"MaxPool": "AveragePool", "AveragePool": "MaxPool", "GlobalAveragePool": "GlobalMaxPool"}
    named.pop("count_include_pad", None)
    named.pop("storage_order", None)
    return at.become(others[at.node.op_type], at.node.input, **named)


def _other_resize(at: Edited, rng: np.random.Generator) -> bool:
    mode = at.attribute("mode")
    if mode is None or mode.s == b"nearest":
        named = {
            "mode": "linear",
            "coordinate_transformation_mode": ("half_pixel", "align_corners")[rng.integers(2)],
        }
    else:
        named = {
            "mode": "linear",
            "coordinate_transformation_mode": ("asymmetric", "align_corners")[rng.integers(2)],
        }
    return at.become("Resize", at.node.input, **named)


def _unscaled(at: Edited, _rng: np.random.Generator) -> bool:
    variance = at.constant(4)
    if variance is None:
        return False
    at.put(4, np.ones_like(variance))
    return True


def _no_centre(at: Edited, _rng: np.random.Generator) -> bool:
    mean = at.constant(3)
    if mean is None:
        return False
    at.put(3, np.zeros_like(mean))
    return True


def _negated(_values: Array, _rng: np.random.Generator) -> Patch:
    return lambda array, _index, _held: -array


def _box(values: Array, rng: np.random.Generator) -> tuple[slice, ...] | None:
    if values.ndim != 4 or min(values.shape[2:]) < 4:
        return None
    height, width = values.shape[2:]
    top, left = int(rng.integers(height // 2)), int(rng.integers(width // 2))
    return (slice(None), slice(None), slice(top, top + height // 2), slice(left, left + width // 2))


def _zero_tile(values: Array, rng: np.random.Generator) -> Patch | None:
    box = _box(values, rng)

    def patch(array: Array, _index: int, _held: Mapping[str, Array]) -> Array:
        made = array.copy()
        made[box] = 0
        return made

    return None if box is None else patch


def _stale_tile(values: Array, rng: np.random.Generator) -> Patch | None:
    box = _box(values, rng)
    before: dict[int, Array] = {}

    def patch(array: Array, index: int, _held: Mapping[str, Array]) -> Array:
        made = array.copy()
        if index - 1 in before:
            made[box] = before[index - 1][box]
        before[index] = array
        return made

    return None if box is None else patch


def _shifted_tile(values: Array, rng: np.random.Generator) -> Patch | None:
    box = _box(values, rng)

    def patch(array: Array, _index: int, _held: Mapping[str, Array]) -> Array:
        made = array.copy()
        made[box] = np.roll(array[box], 1, axis=-1)
        return made

    return None if box is None else patch


def _cut_off(values: Array, _rng: np.random.Generator) -> Patch:
    limit = 0.35 * float(np.abs(values).max())
    return lambda array, _index, _held: np.clip(array, -limit, limit)


def _wraps(values: Array, _rng: np.random.Generator) -> Patch:
    limit = 0.5 * float(np.abs(values).max())
    return lambda array, _index, _held: ((array + limit) % (2 * limit) - limit).astype(np.float32)


def _shortened(values: Array, digits: int) -> Array:
    """Values with so many significant bits."""
    fraction, exponent = np.frexp(values)
    return np.asarray(np.ldexp(np.round(np.ldexp(fraction, digits)), exponent - digits), np.float32)


def _channel_sums(digits: int) -> Callable[[Subject, Any], Patch | None]:
    """A convolution that adds up its input channels in a short float, the taps of each of them exactly."""

    def computed(subject: Subject, node: Any) -> Patch | None:
        named = {each.name: helper.get_attribute_value(each) for each in node.attribute}
        weight = subject.weights[node.input[1]]
        if named.get("group", 1) != 1 or any(each != 1 for each in named.get("dilations", [1])):
            return None
        count, bias = weight.ndim - 2, subject.weights[node.input[2]] if len(node.input) > 2 else None
        pads = [(0, 0), (0, 0), *zip(named["pads"][:count], named["pads"][count:], strict=True)]
        every = tuple(slice(None, None, step) for step in named.get("strides", [1] * count))

        def patch(_array: Array, _index: int, held: Mapping[str, Array]) -> Array:
            x, kernels = (_shortened(each, digits) for each in (np.pad(held[node.input[0]], pads), weight))
            seen = np.lib.stride_tricks.sliding_window_view(x, weight.shape[2:], axis=tuple(range(2, x.ndim)))
            axes = list(range(-count, 0))
            total: Array = np.zeros((), np.float32)
            for channel in range(x.shape[1]):
                one = np.tensordot(seen[:, channel][(slice(None), *every)], kernels[:, channel], (axes, axes))
                total = _shortened(total + np.moveaxis(one, -1, 1), digits)
            if bias is not None:
                total = _shortened(total + bias.reshape(-1, *[1] * count), digits)
            return total

        return patch

    return computed


def _coarse(at: Edited, rng: np.random.Generator) -> bool:
    """Weights of so few bits, with one scale, as only one layer of the board has them."""
    weight = at.constant(1)
    if weight is None:
        return False
    step = np.abs(weight).max() / (2 ** (int(rng.integers(4, 6)) - 1) - 1)
    at.put(1, np.round(weight / step) * step)
    return True


_ACTIVATIONS = (
    "Relu",
    "Clip",
    "HardSwish",
    "HardSigmoid",
    "Sigmoid",
    "LeakyRelu",
    "PRelu",
    "Gelu",
    "Tanh",
    "Swish",
)
_CONV = ("Conv",)

OPERATIONS: dict[str, Operation] = {
    "bias-missing": Operation(("Conv", "Gemm"), _bias(0.0)),
    "bias-doubled": Operation(("Conv", "Gemm"), _bias(2.0)),
    "activation-missing": Operation(_ACTIVATIONS, _left_out),
    "activation-wrong": Operation(_ACTIVATIONS, _other_activation),
    "add-one-input": Operation(("Add", "Mul"), _without_second),
    "normalization-missing": Operation(("BatchNormalization", "LayerNormalization"), _left_out),
    "normalization-unscaled": Operation(("BatchNormalization",), _unscaled),
    "normalization-not-centred": Operation(("BatchNormalization",), _no_centre),
    "padding-one-side": Operation((*_CONV, "MaxPool", "AveragePool"), _one_sided),
    "kernel-flipped": Operation(_CONV, _flipped),
    "kernel-turned": Operation(_CONV, _turned),
    "weights-misread": Operation(("Conv", "Gemm", "MatMul"), _misread),
    "weights-rolled": Operation(_CONV, _rolled_inputs),
    "wrong-axis": Operation(("Softmax", "LogSoftmax", "LayerNormalization"), _other_axis),
    "concat-order": Operation(("Concat",), _reversed, causes=("kernel-fault", "layout")),
    "pads-counted": Operation(("AveragePool",), _counts_pads),
    "pooling-wrong": Operation(("MaxPool", "AveragePool", "GlobalAveragePool"), _other_pool),
    "resize-wrong": Operation(("Resize",), _other_resize),
    "sign-flipped": Operation(("Conv", "Gemm", "Add", "MatMul"), patch=_negated),
    "tile-zero": Operation(("Conv", "Relu", "Add"), patch=_zero_tile),
    "tile-stale": Operation(("Conv", "Relu", "Add"), patch=_stale_tile, causes=("kernel-fault", "stale-tensor")),
    "tile-shifted": Operation(("Conv", "Relu", "Add"), patch=_shifted_tile, causes=("kernel-fault", "layout")),
    "result-cut-off": Operation(("Conv", "Gemm", "Add"), patch=_cut_off, causes=("kernel-fault", "overflow")),
    "result-wraps": Operation(("Conv", "Gemm", "Add"), patch=_wraps, causes=("kernel-fault", "overflow")),
    "weights-coarse": Operation(("Conv", "Gemm", "MatMul"), _coarse, most_db=35.0),
    "sums-bfloat16": Operation(_CONV, computed=_channel_sums(8), most_db=50.0),
    "sums-float16": Operation(_CONV, computed=_channel_sums(11), most_db=70.0),
}


def _edited(subject: Subject, name: str, edit: Edit, rng: np.random.Generator) -> Model | None:
    proto = type(subject.model.proto)()
    proto.CopyFrom(subject.model.proto)
    node = next(each for each in proto.graph.node if each.name == name)
    if not edit(Edited(subject, proto.graph, node), rng):
        return None
    return model_from_proto(proto, path=subject.model.path)


def _dumped_as(subject: Subject, device: Device, tensor: str) -> str | None:
    """The first tensor of the chip that holds what a node computes."""
    while tensor not in device.dumped:
        readers = subject.readers(tensor)
        if len(readers) != 1:
            return None
        tensor = subject.nodes[readers[0]].output[0]
    return tensor


def _board(subject: Subject, rng: np.random.Generator) -> dict[str, Any]:
    """What the chip computes with: float, half precision or integers."""
    kind = int(rng.integers(3))
    return {"quantized": subject.healthy} if kind == 2 else {"half": kind == 1}


def _plant(subject: Subject, rng: np.random.Generator, name: str, how: Operation) -> PlantedCase | None:
    board = _board(subject, rng) if how.computed is None else {}
    chip = Device(subject, **board)
    healthy = chip.run(few_samples(subject))
    nodes = [node.name for node in subject.nodes.values() if node.op_type in how.kinds]
    for place in rng.permutation(len(nodes)):
        node = subject.nodes[nodes[place]]
        tensor = _dumped_as(subject, chip, node.output[0])
        if tensor is None:
            continue
        parts: dict[str, Any] = {}
        if how.edit is not None:
            model = _edited(subject, node.name, how.edit, rng)
            parts = {"kernels": {tensor: (model, EXACT)}} if model is not None else {}
        elif how.patch is not None and tensor == node.output[0]:
            patch = how.patch(subject.values[tensor], rng)
            parts = {"patches": {tensor: patch}} if patch is not None else {}
        elif how.computed is not None and tensor == node.output[0]:
            patch = how.computed(subject, node)
            parts = {"patches": {tensor: patch}} if patch is not None else {}
        if not parts:
            continue
        broken = Device(subject, **board, **parts)
        try:
            dumps = broken.run(few_samples(subject))
        except Exception:  # noqa: BLE001, S112 - a kernel that cannot run at all is no wrong kernel
            continue
        if dumps[0][tensor].shape == healthy[0][tensor].shape and hurts(
            subject, dumps, healthy, most_db=how.most_db
        ):
            unit = subject.unit(tensor, subject.healthy) if "quantized" in board else frozenset()
            return device_case(broken, name, truth((node.name, tensor, *unit), *how.causes), dumps)
    return None


def _declare(name: str, how: Operation) -> None:
    @fault(f"operation-{name}")
    def plant(subject: Subject, rng: np.random.Generator) -> PlantedCase | None:
        return _plant(subject, rng, f"operation-{name}", how)


for _name, _how in OPERATIONS.items():
    _declare(_name, _how)
