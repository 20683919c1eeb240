"""Activations, sums and products, joins and reductions, computed wrongly."""

from collections.abc import Iterator, Mapping, Sequence
from itertools import permutations
from typing import Any

import numpy as np

from roundoff.diagnosis.devices.kernels.kernel import DeviceKernel, KernelNode, wrong
from roundoff.messages.message import Message, message

Ways = Iterator[tuple[Message, DeviceKernel]]
Steps = Sequence[tuple[str, Sequence[str], Mapping[str, Any]]]

_SIXTH = 1 / 6
# Activations, made of operations that every opset has; "$" is the step before, "$0" their input.
_ACTIVATIONS: dict[str, Steps] = {
    "Relu": [("Relu", ["$"], {})],
    "Relu6": [("Relu", ["$"], {}), ("Min", ["$", "#6"], {})],
    "Relu1": [("Relu", ["$"], {}), ("Min", ["$", "#1"], {})],
    "Sigmoid": [("Sigmoid", ["$"], {})],
    "HardSigmoid(1/6)": [("HardSigmoid", ["$"], {"alpha": _SIXTH, "beta": 0.5})],
    "HardSigmoid(0.2)": [("HardSigmoid", ["$"], {"alpha": 0.2, "beta": 0.5})],
    "HardSwish": [("HardSigmoid", ["$"], {"alpha": _SIXTH, "beta": 0.5}), ("Mul", ["$", "$0"], {})],
    "HardSwish(0.2)": [("HardSigmoid", ["$"], {"alpha": 0.2, "beta": 0.5}), ("Mul", ["$", "$0"], {})],
    "Swish": [("Sigmoid", ["$"], {}), ("Mul", ["$", "$0"], {})],
    "QuickGelu": [("Mul", ["$", "#1.702"], {}), ("Sigmoid", ["$"], {}), ("Mul", ["$", "$0"], {})],
    "Gelu": [
        ("Mul", ["$", "#0.70710678"], {}),
        ("Erf", ["$"], {}),
        ("Add", ["$", "#1"], {}),
        ("Mul", ["$", "$0"], {}),
        ("Mul", ["$", "#0.5"], {}),
    ],
    "Tanh": [("Tanh", ["$"], {})],
    "Abs": [("Abs", ["$"], {})],
    "Elu": [("Elu", ["$"], {"alpha": 1.0})],
    "Softplus": [("Softplus", ["$"], {})],
    "Exp": [("Exp", ["$"], {})],
    "Clip(-1, 1)": [("Min", ["$", "#1"], {}), ("Max", ["$", "#-1"], {})],
    **{
        f"LeakyRelu({slope:g})": [("LeakyRelu", ["$"], {"alpha": slope})]
        for slope in (0.01, 0.1, 0.125, 0.2, 0.25)
    },
}
_UNARY = (
    *(
        "Relu",
        "Clip",
        "LeakyRelu",
        "PRelu",
        "Sigmoid",
        "HardSigmoid",
        "HardSwish",
        "Swish",
        "Mish",
        "Tanh",
        "Gelu",
    ),
    *("Elu", "Selu", "Celu", "Softplus", "Softsign", "Erf", "ThresholdedRelu"),
)
# Who may have an activation fused behind it that is not in the model.
_FUSED_BEHIND = ("Conv", "ConvTranspose", "Gemm", "MatMul", "Add", "BatchNormalization", "Mul")


def _with_numbers(kernel: DeviceKernel, steps: Steps) -> tuple[DeviceKernel, Steps]:
    """Numbers in steps ("#6") as constants."""
    for _, inputs, _ in steps:
        for name in inputs:
            if name.startswith("#"):
                kernel = kernel.with_constant(name, np.asarray(float(name[1:]), np.float32))
    return kernel, steps


@wrong("*")
def bypassed(at: KernelNode) -> Ways:
    """The node is left out: one of its inputs goes on as it is."""
    wanted = at.result.shape
    for position, name in enumerate(at.inputs):
        if not name or name in at.kernel.constants or at.values[name].shape != wanted:
            continue
        several = sum(1 for each in at.inputs if each and each not in at.kernel.constants) > 1
        kept: dict[str, Any] = {"op": at.op, "number": position + 1}
        text = (
            message("diagnosis.way_one_input", **kept) if several else message("diagnosis.way_left_out", op=at.op)
        )
        yield text, at.kernel.with_type(at.name, "Identity", [name])


@wrong("*")
def sign(at: KernelNode) -> Ways:
    """The sign is wrong."""
    if at.result.dtype.kind == "f":
        yield message("diagnosis.way_sign", op=at.op), at.kernel.behind(at.name, [("Neg", ["$"], {})])


@wrong(*_UNARY)
def other_activation(at: KernelNode) -> Ways:
    """Another activation."""
    inputs = at.inputs[0]
    for name, steps in _ACTIVATIONS.items():
        if name == at.op:
            continue
        kernel, made = _with_numbers(at.kernel, steps)
        plain = kernel.with_type(at.name, "Identity", [inputs])
        yield message("diagnosis.way_instead", op=at.op, other=name), plain.behind(at.name, made)


@wrong(*_FUSED_BEHIND)
def activation_too_many(at: KernelNode) -> Ways:
    """An activation that the model does not have."""
    for name in (
        "Relu",
        "Relu6",
        "LeakyRelu(0.01)",
        "LeakyRelu(0.1)",
        "Sigmoid",
        "HardSigmoid(1/6)",
        "Tanh",
        "Swish",
    ):
        kernel, made = _with_numbers(at.kernel, _ACTIVATIONS[name])
        yield message("diagnosis.way_too_many", op=at.op, other=name), kernel.behind(at.name, made)


@wrong("PRelu")
def slopes(at: KernelNode) -> Ways:
    """Slopes of other channels, or one for all."""
    values = at.constant(1)
    if values is None or values.size < 2:
        return
    axis = int(np.argmax(values.shape))
    for step in (1, -1):
        yield (
            message("diagnosis.way_slopes_moved", op=at.op, by=step),
            at.with_input(1, np.roll(values, step, axis)),
        )
    first = np.full_like(values, values.ravel()[0])
    yield message("diagnosis.way_slopes_one", op=at.op), at.with_input(1, first)


_OTHERS = {
    "Add": ("Sub", "Mul", "Max"),
    "Sub": ("Add",),
    "Mul": ("Add", "Div"),
    "Div": ("Mul",),
    "Max": ("Min", "Add"),
    "Min": ("Max", "Add"),
    "ReduceMean": ("ReduceSum", "ReduceMax"),
    "ReduceMax": ("ReduceMean", "ReduceMin"),
    "ReduceSum": ("ReduceMean",),
    "Softmax": ("LogSoftmax",),
    "LogSoftmax": ("Softmax",),
    "ArgMax": ("ArgMin",),
    "ArgMin": ("ArgMax",),
    "Floor": ("Round", "Ceil"),
    "Sqrt": ("Abs",),
    "Exp": ("Softplus",),
}


@wrong(*_OTHERS)
def other_operation(at: KernelNode) -> Ways:
    """Another operation on the same inputs."""
    for other in _OTHERS[at.op]:
        text = message("diagnosis.way_instead", op=at.op, other=other)
        yield text, at.kernel.with_type(at.name, other, **at.attributes)


@wrong("Add", "Sub", "Mul", "Div", "MatMul")
def operands(at: KernelNode) -> Ways:
    """Operands exchanged, or one of them taken twice."""
    if len(at.inputs) != 2 or at.value(0) is None or at.value(1) is None:
        return
    first, second = at.inputs
    if at.op in ("Sub", "Div", "MatMul"):
        yield message("diagnosis.way_exchanged", op=at.op), at.kernel.with_inputs(at.name, (second, first))
    if first in at.kernel.constants or second in at.kernel.constants:
        return
    if at.values[first].shape == at.values[second].shape:
        for number, name in enumerate((first, second), start=1):
            text = message("diagnosis.way_one_twice", op=at.op, number=number)
            yield text, at.kernel.with_inputs(at.name, (name, name))


@wrong("Add", "Mul")
def broadcast(at: KernelNode) -> Ways:
    """What holds for channels is taken from the next one."""
    for position in (0, 1):
        values = at.value(position)
        if values is None or values.shape == at.result.shape or at.inputs[position] in at.kernel.constants:
            continue
        axes = [axis for axis, size in enumerate(values.shape) if size > 1]
        for axis in axes:
            for step in (1, -1):
                places = np.roll(np.arange(values.shape[axis]), step)
                name = f"{at.name}/order"
                kernel = at.kernel.with_constant(name, places.astype(np.int64))
                text = message("diagnosis.way_operand_moved", op=at.op, number=position + 1, by=step)
                yield text, kernel.before(at.name, position, "Gather", [name], axis=axis)


@wrong("Concat")
def concatenated(at: KernelNode) -> Ways:
    """Inputs in another order, one of them zero or in the place of another, or dealt one by one."""
    names = at.inputs
    if len(names) <= 4:
        for order in permutations(range(len(names))):
            if order != tuple(range(len(names))):
                text = message("diagnosis.way_concat_order", op=at.op, order=tuple(each + 1 for each in order))
                yield text, at.kernel.with_inputs(at.name, [names[each] for each in order])
    else:
        yield message("diagnosis.way_concat_reversed", op=at.op), at.kernel.with_inputs(at.name, names[::-1])
    for number, name in enumerate(names):
        values = at.value(number)
        if values is None or values.dtype.kind != "f":
            continue
        nothing = f"{at.name}/zero{number}"
        kernel = at.kernel.with_constant(nothing, np.zeros_like(values))
        inputs = [nothing if place == number else each for place, each in enumerate(names)]
        text = message("diagnosis.way_concat_zero", op=at.op, number=number + 1)
        yield text, kernel.with_inputs(at.name, inputs)
        for other, else_name in enumerate(names):
            same = at.value(other)
            if other != number and same is not None and same.shape == values.shape and else_name != name:
                inputs = [else_name if place == number else each for place, each in enumerate(names)]
                text = message("diagnosis.way_concat_repeated", op=at.op, number=number + 1, other=other + 1)
                yield text, at.kernel.with_inputs(at.name, inputs)
    sizes = {None if (each := at.value(place)) is None else each.shape for place in range(len(names))}
    if len(sizes) == 1 and len(names) > 1:
        axis = int(at.attributes.get("axis", 1)) % at.result.ndim
        places = np.arange(at.result.shape[axis]).reshape(len(names), -1).T.ravel()
        kernel = at.kernel.with_constant(f"{at.name}/order", places.astype(np.int64))
        dealt = kernel.behind(at.name, [("Gather", ["$", f"{at.name}/order"], {"axis": axis})])
        yield message("diagnosis.way_concat_dealt", op=at.op), dealt


@wrong("Softmax", "LogSoftmax", "ArgMax", "ArgMin", "LayerNormalization", "CumSum", "Hardmax")
def axis_of(at: KernelNode) -> Ways:
    """Another axis."""
    usual = int(at.attributes.get("axis", -1)) % at.result.ndim
    for axis in range(at.result.ndim):
        if axis != usual:
            yield message("diagnosis.way_axis", op=at.op, axis=axis), at.with_attributes(axis=axis)
    if at.op == "Softmax":
        yield message("diagnosis.way_not_normalized", op=at.op), at.kernel.with_type(at.name, "Exp")
        for scale in (0.5, 2.0):
            kernel, _ = _with_numbers(at.kernel, [("Mul", ["$", f"#{scale:g}"], {})])
            text = message("diagnosis.way_input_scaled", op=at.op, gain=scale)
            yield text, kernel.before(at.name, 0, "Mul", [f"#{scale:g}"])


@wrong("ReduceMean", "ReduceMax", "ReduceSum", "ReduceMin", "ReduceL2")
def reduced_axes(at: KernelNode) -> Ways:
    """Other axes, where the shape stays the same."""
    axes = at.attributes.get("axes")
    held = at.constant(1)
    given = at.value(0)
    told = axes if axes is not None else held
    if given is None or told is None:
        return
    usual = [int(each) % given.ndim for each in np.ravel(told)]
    for others in permutations(range(1, given.ndim), len(usual)):
        if list(others) != sorted(others) or set(others) == set(usual):
            continue
        text = message("diagnosis.way_axes", op=at.op, axes=tuple(others))
        if axes is not None:
            yield text, at.with_attributes(axes=list(others))
        else:
            yield text, at.with_input(1, np.array(others, np.int64))


@wrong("Flatten", "Reshape")
def flattened(at: KernelNode) -> Ways:
    """Values are taken in another order of axes."""
    given = at.value(0)
    if given is None or not 3 <= given.ndim <= 4:
        return
    for order in permutations(range(1, given.ndim)):
        if order != tuple(range(1, given.ndim)):
            text = message("diagnosis.way_flattened", op=at.op, order=(0, *order))
            yield text, at.kernel.before(at.name, 0, "Transpose", perm=[0, *order])


@wrong("Transpose")
def turned(at: KernelNode) -> Ways:
    """Other axes exchanged, or none."""
    given = at.value(0)
    if given is None or not 2 <= given.ndim <= 5:
        return
    usual = tuple(at.attributes.get("perm", range(given.ndim)[::-1]))
    shape = f"{at.name}/shape"
    kernel = at.kernel.with_constant(shape, np.array(at.result.shape, np.int64))
    for order in permutations(range(given.ndim)):
        if order != usual:
            text = message("diagnosis.way_transposed", op=at.op, order=tuple(order))
            other = kernel.with_attributes(at.name, perm=list(order))
            yield text, other.behind(at.name, [("Reshape", ["$", shape], {})])


@wrong("Split")
def split(at: KernelNode) -> Ways:
    """Parts in another order."""
    names = list(at.node.output)
    for first in range(len(names)):
        for second in range(first + 1, len(names)):
            if at.kernel.tensor not in (names[first], names[second]):
                continue
            turned_names = list(names)
            turned_names[first], turned_names[second] = turned_names[second], turned_names[first]
            yield message("diagnosis.way_split_order", op=at.op), at.kernel.with_outputs(at.name, turned_names)


@wrong("Slice")
def sliced(at: KernelNode) -> Ways:
    """Begins one place off."""
    starts, ends = at.constant(1), at.constant(2)
    given = at.value(0)
    if starts is None or ends is None or given is None:
        return
    for step in (1, -1):
        text = message("diagnosis.way_slice_moved", op=at.op, by=step)
        moved = at.with_input(1, starts + step)
        yield (
            text,
            moved.with_inputs(
                at.name, [*moved.node(at.name).input[:2], f"{at.name}/ends", *moved.node(at.name).input[3:]]
            ).with_constant(f"{at.name}/ends", np.where(np.abs(ends) < np.iinfo(np.int32).max, ends + step, ends)),
        )
