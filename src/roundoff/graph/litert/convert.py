"""A .tflite model as ONNX: float networks as such, quantized ones with quantize/dequantize pairs.

LiteRT has channels last; pictures are kept with channels first from the first convolution on, and brought back
where an operator asks for it, and at the outputs. Tensors keep their names.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from roundoff.core.tensors import Array
from roundoff.errors import BadInput
from roundoff.graph.litert.schema import (
    UNREADABLE,
    LiteModel,
    LiteOperator,
    LiteTensor,
    StoredScale,
    damaged_file,
    read_lite,
)
from roundoff.graph.load import Model, checked_model
from roundoff.graph.nodes import GraphAssembly
from roundoff.messages.message import english

_PICTURE = 4
_FIRST, _LAST = [0, 3, 1, 2], [0, 2, 3, 1]
_SAME = 0
_CODES = frozenset({"int8", "uint8", "int16"})


def import_lite(path: Path) -> Model:
    """Read a .tflite file as a model.

    Raises:
        BadInput: It is missing, damaged, or has operators that are not known.
    """
    lite = read_lite(path)
    try:
        proto = LiteConversion(lite, path).run()
    except UNREADABLE as error:
        raise damaged_file(path, lite.size) from error
    return checked_model(proto, path=path, size=lite.size)


class LiteConversion(GraphAssembly):
    """The graph as it grows. Each tensor has a name for what readers see, with channels last or first."""

    def __init__(self, lite: LiteModel, path: Path) -> None:
        super().__init__()
        self._lite, self._path = lite, path
        self._seen: dict[tuple[int, bool], str] = {}
        # An output has its name where it leaves the network: behind its codes, with channels last.
        leaving = {place: self.free(lite.tensors[place].name or f"output_{place}") for place in lite.outputs}
        self._leaving = leaving
        self._names = [
            self.free(f"{leaving[at]}_computed" if at in leaving else tensor.name or f"tensor_{at}")
            for at, tensor in enumerate(lite.tensors)
        ]

    def run(self) -> Any:
        """The model."""
        unknown = sorted({each.name for each in self._lite.operators if each.name not in _CONVERTERS})
        if unknown:
            raise BadInput(
                english(
                    "{path} has operators that are not read: {names}.", path=self._path, names=", ".join(unknown)
                ),
                fix=english("give the model that it was converted from, as ONNX"),
            )
        entering = [self._enter(place) for place in self._lite.inputs]
        for operator in self._lite.operators:
            _CONVERTERS[operator.name](LiteCall(self, operator))
        leaving = [self._leave(place) for place in self._lite.outputs]
        return self.finished("litert", entering, leaving)

    def tensor(self, place: int) -> LiteTensor:
        """A tensor of the file."""
        return self._lite.tensors[place]

    def name(self, place: int) -> str:
        """Its name."""
        return self._names[place]

    def _shape(self, place: int) -> list[int]:
        return list(self.tensor(place).shape)

    # What is read and written.

    def _enter(self, place: int) -> Any:
        from onnx import TensorProto, helper

        tensor, name = self.tensor(place), self._names[place]
        coded = tensor.dtype in _CODES and tensor.scales is not None
        kind = "float32" if coded else tensor.dtype
        self._seen[place, False] = self._rounded(name, tensor.scales, tensor.dtype) if coded else name
        dtype = helper.np_dtype_to_tensor_dtype(np.dtype(kind)) if kind else TensorProto.UNDEFINED
        return helper.make_tensor_value_info(name, dtype, self._shape(place))

    def _leave(self, place: int) -> Any:
        from onnx import helper

        tensor = self.tensor(place)
        kind = "float32" if tensor.dtype in _CODES and tensor.scales is not None else tensor.dtype
        given, name = self.read(place), self._leaving[place]
        maker = next((node for node in self.nodes if given in node.output), None)
        if maker is None or sum(given == self._seen.get((other, False)) for other in self._lite.outputs) > 1:
            self.add("Identity", [given], name)
        else:
            for node in self.nodes:
                for names in (node.input, node.output):
                    for at, each in enumerate(names):
                        if each == given:
                            names[at] = name
        return helper.make_tensor_value_info(
            name, helper.np_dtype_to_tensor_dtype(np.dtype(kind)), self._shape(place)
        )

    def is_first(self, place: int) -> bool:
        """Whether a tensor is there with channels first, and not with channels last."""
        return (place, True) in self._seen and (place, False) not in self._seen

    def read(self, place: int, *, first: bool = False) -> str:
        """The name of a tensor's values, with channels last or first."""
        if (place, first) not in self._seen and (place, not first) in self._seen:
            given = self._seen[place, not first]
            moved = self.free(f"{self._names[place]}_{'nchw' if first else 'nhwc'}")
            self._seen[place, first] = self.add("Transpose", [given], moved, perm=_FIRST if first else _LAST)
        elif (place, first) not in self._seen:
            tensor = self.tensor(place)
            if tensor.values is None:
                what = english(
                    "{path} reads '{name}' before it is computed.", path=self._path, name=self._names[place]
                )
                raise BadInput(what, fix=english("copy or convert the model again"))
            values, scales = tensor.values, tensor.scales
            if first and values.ndim == _PICTURE:
                values = values.transpose(_FIRST)
            self._seen[place, first] = self.stored(place, values, scales, axis=0)
        return self._seen[place, first]

    def stored(self, place: int, values: Array, scales: StoredScale | None, *, axis: int) -> str:
        """The constant of a tensor, through its codes where it has some."""
        name = self._names[place] if self._names[place] not in self.initializers else f"{self._names[place]}_moved"
        if scales is None or values.dtype.kind == "f":
            return self.constant(
                values.astype(np.float32) if values.dtype.kind == "f" else values, f"{name}_value"
            )
        many = scales.scale.size > 1
        scale = scales.scale if many else scales.scale.reshape(())
        zero = (scales.zero_point if many else scales.zero_point.reshape(())).astype(values.dtype)
        inputs = [self.constant(values, f"{name}_codes"), self.constant(scale, f"{name}_scale")]
        inputs.append(self.constant(zero, f"{name}_zero"))
        return self.add(
            "DequantizeLinear", inputs, self.free(f"{name}_weights"), **({"axis": axis} if many else {})
        )

    def _rounded(self, given: str, scales: StoredScale | None, dtype: str) -> str:
        """What is read of a tensor behind its codes."""
        if scales is None or scales.scale.size != 1:
            return given
        ends = (
            self.constant(scales.scale.reshape(()), f"{given}_scale"),
            self.constant(scales.zero_point.reshape(()).astype(dtype), f"{given}_zero"),
        )
        codes = self.add("QuantizeLinear", [given, *ends], self.free(f"{given}_quantized"))
        return self.add("DequantizeLinear", [codes, *ends], self.free(f"{given}_dequantized"))

    def write(self, place: int, given: str, *, first: bool = False) -> None:
        """Take a value for a tensor, which rounds it where it has codes."""
        tensor = self.tensor(place)
        coded = tensor.dtype in _CODES
        self._seen[place, first] = self._rounded(given, tensor.scales, tensor.dtype) if coded else given


class LiteCall:
    """One operator on its way into the graph."""

    def __init__(self, graph: LiteConversion, operator: LiteOperator) -> None:
        self.graph, self.operator, self.options = graph, operator, operator.options

    @property
    def places(self) -> tuple[int, ...]:
        """What it reads."""
        return tuple(place for place in self.operator.inputs if place >= 0)

    def shape(self, at: int = 0) -> tuple[int, ...]:
        """The shape of what it reads."""
        return self.graph.tensor(self.places[at]).shape

    @property
    def result(self) -> LiteTensor:
        """What it writes first."""
        return self.graph.tensor(self.operator.outputs[0])

    def read(self, at: int = 0, *, first: bool = False) -> str:
        """An input."""
        return self.graph.read(self.places[at], first=first)

    def fixed(self, at: int) -> Array:
        """The values of an input that must be a constant."""
        values = self.graph.tensor(self.places[at]).values if at < len(self.places) else None
        if values is None:
            what = english(
                "{operation} '{name}' has an input that is computed where a constant is needed.",
                operation=self.operator.name,
                name=self.graph.name(self.operator.outputs[0]),
            )
            raise BadInput(what, fix=english("give the model that it was converted from, as ONNX"))
        return values

    def integers(self, values: Sequence[int], name: str) -> str:
        """A constant list."""
        return self.graph.constant(np.asarray(values, np.int64), f"{self.name}_{name}")

    @property
    def name(self) -> str:
        """The name of what it writes."""
        return self.graph.name(self.operator.outputs[0])

    def node(self, op_type: str, inputs: Sequence[str], *, part: str, **attributes: Any) -> str:
        """A node in front of the last."""
        return self.graph.add(op_type, inputs, self.graph.free(f"{self.name}_{part}"), **attributes)

    def finish(
        self, op_type: str, inputs: Sequence[str], *, activation: int = 0, first: bool = False, **attributes: Any
    ) -> None:
        """The last node, with the activation that is fused into it."""
        place = self.operator.outputs[0]
        if activation:
            made = self.node(op_type, inputs, part="sum", **attributes)
            made = _activated(self, made, activation)
        else:
            made = self.graph.add(op_type, inputs, self.name, **attributes)
        self.graph.write(place, made, first=first)


def _activated(call: LiteCall, given: str, activation: int) -> str:
    if activation == 1:
        return call.graph.add("Relu", [given], call.name)
    if activation == 4:
        return call.graph.add("Tanh", [given], call.name)
    low, high = {2: (-1.0, 1.0), 3: (0.0, 6.0)}.get(activation, (-np.inf, np.inf))
    ends = [
        call.graph.constant(np.asarray(end, np.float32), f"{call.name}_{at}")
        for at, end in (("low", low), ("high", high))
    ]
    return call.graph.add("Clip", [given, *ends], call.name)


def _pads(
    size: tuple[int, int], kernel: tuple[int, int], stride: tuple[int, int], dilation: tuple[int, int]
) -> list[int]:
    """Zeros around a picture so that it is covered: what is odd comes at the end."""
    before, after = [], []
    for length, taps, step, gap in zip(size, kernel, stride, dilation, strict=True):
        wide = (taps - 1) * gap + 1
        total = max(0, (math.ceil(length / step) - 1) * step + wide - length)
        before.append(total // 2)
        after.append(total - total // 2)
    return [*before, *after]


def _convolution(call: LiteCall) -> None:
    depthwise = call.operator.name == "DEPTHWISE_CONV_2D"
    kernel_place = call.places[1]
    weights = call.graph.tensor(kernel_place)
    values = call.fixed(1)
    strides = call.options.integer(2, 1), call.options.integer(1, 1)
    at = 5 if depthwise else 4
    dilations = call.options.integer(at + 1, 1), call.options.integer(at, 1)
    activation = call.options.integer(4 if depthwise else 3, byte=True)
    height, width, channels = call.shape()[1:]
    if depthwise:  # [1, h, w, channels * multiplier]
        moved, groups = values.transpose(3, 0, 1, 2), channels
    else:  # [out, h, w, in of a group]
        moved, groups = values.transpose(0, 3, 1, 2), max(1, channels // values.shape[3])
    kernel = moved.shape[2], moved.shape[3]
    pads = [0] * 4
    if call.options.integer(0, _SAME, byte=True) == _SAME:
        pads = _pads((height, width), kernel, strides, dilations)
    inputs = [call.read(first=True), call.graph.stored(kernel_place, moved, weights.scales, axis=0)]
    inputs += _bias(call, 2)
    call.finish(
        "Conv", inputs, activation=activation, first=True, kernel_shape=list(kernel), strides=list(strides),
        dilations=list(dilations), pads=pads, group=groups,
    )  # fmt: skip


def _bias(call: LiteCall, at: int) -> list[str]:
    if len(call.places) <= at:
        return []
    place = call.places[at]
    values, scales = call.fixed(at), call.graph.tensor(place).scales
    return [call.graph.stored(place, values, scales, axis=0)]


def _fully_connected(call: LiteCall) -> None:
    place = call.places[1]
    weights = call.graph.tensor(place)
    source = call.read()
    keep = bool(call.options.integer(2, byte=True)) and len(call.result.shape) > 2
    activation = call.options.integer(0, byte=True)
    if weights.values is None or keep:
        right = (
            call.node("Transpose", [call.read(1)], part="columns", perm=[1, 0])
            if weights.values is None
            else call.graph.stored(place, weights.values.T, weights.scales, axis=1)
        )
        if bias := _bias(call, 2):
            product = call.node("MatMul", [source, right], part="product")
            call.finish("Add", [product, *bias], activation=activation)
        else:
            call.finish("MatMul", [source, right], activation=activation)
        return
    if call.shape() != (call.result.shape[0], weights.shape[1]):
        rows = call.integers([-1, weights.shape[1]], "rows")
        source = call.node("Reshape", [source, rows], part="rows_of")
    codes = call.graph.stored(place, weights.values, weights.scales, axis=0)
    call.finish("Gemm", [source, codes, *_bias(call, 2)], activation=activation, transB=1)


def _pool(call: LiteCall) -> None:
    strides = call.options.integer(2, 1), call.options.integer(1, 1)
    kernel = call.options.integer(4, 1), call.options.integer(3, 1)
    height, width = call.shape()[1:3]
    pads = [0] * 4
    if call.options.integer(0, _SAME, byte=True) == _SAME:
        pads = _pads((height, width), kernel, strides, (1, 1))
    op_type = "MaxPool" if call.operator.name == "MAX_POOL_2D" else "AveragePool"
    call.finish(
        op_type, [call.read(first=True)], activation=call.options.integer(5, byte=True), first=True,
        kernel_shape=list(kernel), strides=list(strides), pads=pads,
    )  # fmt: skip


def _both(call: LiteCall) -> bool:
    """Whether an operation on single elements can go on with channels first."""
    pictures = [place for place in call.places if len(call.graph.tensor(place).shape) == _PICTURE]
    plain = [
        place
        for place in call.places
        if len(call.graph.tensor(place).shape) == 0 or math.prod(call.graph.tensor(place).shape) == 1
    ]
    return (
        len(pictures) > 0
        and len(set(pictures) | set(plain)) == len(set(call.places))
        and any(call.graph.is_first(place) for place in pictures)
    )


def _elementwise(op_type: str, activation_field: int | None = None) -> "Callable[[LiteCall], None]":
    def convert(call: LiteCall) -> None:
        first = _both(call)
        inputs = [call.read(at, first=first and len(call.shape(at)) == _PICTURE) for at in range(len(call.places))]
        fused = 0 if activation_field is None else call.options.integer(activation_field, byte=True)
        call.finish(op_type, inputs, activation=fused, first=first)

    return convert


def _limited(low: float, high: float) -> "Callable[[LiteCall], None]":
    def convert(call: LiteCall) -> None:
        first = _both(call)
        ends = [call.graph.constant(np.asarray(end, np.float32), f"{call.name}_end") for end in (low, high)]
        call.finish("Clip", [call.read(first=first), *ends], first=first)

    return convert


def _leaky(call: LiteCall) -> None:
    first = _both(call)
    call.finish("LeakyRelu", [call.read(first=first)], first=first, alpha=call.options.real(0))


def _gelu(call: LiteCall) -> None:
    first = _both(call)
    source = call.read(first=first)

    def number(value: float, part: str) -> str:
        return call.graph.constant(np.asarray(value, np.float32), f"{call.name}_{part}")

    if call.options.integer(0, byte=True):
        cube = call.node("Pow", [source, number(3.0, "three")], part="cube")
        inner = call.node("Mul", [cube, number(0.044715, "part")], part="bend")
        inner = call.node("Add", [source, inner], part="bent")
        inner = call.node("Mul", [inner, number(math.sqrt(2 / math.pi), "steep")], part="steeper")
        curve = call.node("Tanh", [inner], part="curve")
    else:
        inner = call.node("Div", [source, number(math.sqrt(2), "root")], part="inner")
        curve = call.node("Erf", [inner], part="curve")
    half = call.node("Mul", [source, number(0.5, "half")], part="halved")
    call.finish("Mul", [half, call.node("Add", [curve, number(1.0, "one")], part="raised")], first=first)


def _softmax(call: LiteCall) -> None:
    source, beta = call.read(), call.options.real(0, 1.0)
    if beta != 1.0:
        scale = call.graph.constant(np.asarray(beta, np.float32), f"{call.name}_beta")
        source = call.node("Mul", [source, scale], part="scaled")
    call.finish("Softmax" if call.operator.name == "SOFTMAX" else "LogSoftmax", [source], axis=-1)


def _concat(call: LiteCall) -> None:
    rank = len(call.result.shape)
    axis = call.options.integer(0) % rank
    first = rank == _PICTURE and all(call.graph.is_first(place) for place in call.places)
    inputs = [call.read(at, first=first) for at in range(len(call.places))]
    axis = _LAST[axis] if first else axis
    call.finish("Concat", inputs, activation=call.options.integer(1, byte=True), first=first, axis=axis)


def _reshape(call: LiteCall) -> None:
    call.finish("Reshape", [call.read(), call.integers(call.result.shape, "shape")])


def _pad(call: LiteCall) -> None:
    amounts = call.fixed(1).astype(np.int64)
    value = call.fixed(2) if len(call.places) > 2 else np.zeros((), np.float32)
    first = len(call.shape()) == _PICTURE
    order = _FIRST if first else range(len(call.shape()))
    pads = [*(int(amounts[axis, 0]) for axis in order), *(int(amounts[axis, 1]) for axis in order)]
    scales = call.graph.tensor(call.places[2]).scales if len(call.places) > 2 else None
    if scales is not None:
        value = (value.astype(np.float32) - scales.zero_point[0]) * scales.scale[0]
    fill = call.graph.constant(np.asarray(value, np.float32).reshape(()), f"{call.name}_fill")
    call.finish("Pad", [call.read(first=first), call.integers(pads, "pads"), fill], first=first)


def _axes(call: LiteCall, at: int = 1) -> list[int]:
    rank = len(call.shape())
    return [int(axis) % rank for axis in np.atleast_1d(call.fixed(at))]


def _reduced(op_type: str) -> "Callable[[LiteCall], None]":
    def convert(call: LiteCall) -> None:
        axes, keep = _axes(call), call.options.integer(0, byte=True)
        if op_type == "ReduceMean" and len(call.shape()) == _PICTURE and sorted(axes) == [1, 2]:
            source = call.read(first=True)
            if keep:
                call.finish("GlobalAveragePool", [source], first=True)
            else:
                mean = call.node("GlobalAveragePool", [source], part="mean")
                call.finish("Flatten", [mean])
            return
        if op_type == "ReduceSum":
            call.finish(op_type, [call.read(), call.integers(axes, "axes")], keepdims=keep)
        else:
            call.finish(op_type, [call.read()], axes=axes, keepdims=keep)

    return convert


def _transpose(call: LiteCall) -> None:
    call.finish("Transpose", [call.read()], perm=[int(axis) for axis in call.fixed(1)])


def _resize(call: LiteCall) -> None:
    nearest = call.operator.name == "RESIZE_NEAREST_NEIGHBOR"
    fields = (0, 1) if nearest else (2, 3)
    corners, centers = (bool(call.options.integer(field, byte=True)) for field in fields)
    way = "align_corners" if corners else "half_pixel" if centers else "asymmetric"
    shape = call.result.shape
    sizes = call.integers([shape[0], shape[3], shape[1], shape[2]], "sizes")
    rounding = "round_prefer_ceil" if corners else "floor"
    if nearest and centers:
        rounding = "round_prefer_ceil"
    call.finish(
        "Resize", [call.read(first=True), "", "", sizes], first=True, mode="nearest" if nearest else "linear",
        coordinate_transformation_mode=way, nearest_mode=rounding,
    )  # fmt: skip


def _forward(call: LiteCall) -> None:
    """A change of codes: what is read is rounded again, or not at all."""
    first = _both(call)
    if call.graph.tensor(call.places[0]).dtype in _CODES and call.result.dtype in _CODES:
        # The values are those of the tensor before, through a second pair.
        call.graph.write(call.operator.outputs[0], call.read(first=first), first=first)
        return
    call.finish("Identity", [call.read(first=first)], first=first)


def _product(call: LiteCall) -> None:
    names = []
    for at, field in enumerate((0, 1)):
        source = call.read(at)
        if call.options.integer(field, byte=True):
            rank = len(call.shape(at))
            order = [*range(rank - 2), rank - 1, rank - 2]
            source = call.node("Transpose", [source], part=f"operand{at}", perm=order)
        names.append(source)
    call.finish("MatMul", names)


def _squared_difference(call: LiteCall) -> None:
    difference = call.node("Sub", [call.read(0), call.read(1)], part="difference")
    call.finish("Mul", [difference, difference])


def _rsqrt(call: LiteCall) -> None:
    call.finish("Reciprocal", [call.node("Sqrt", [call.read()], part="root")])


def _square(call: LiteCall) -> None:
    call.finish("Mul", [call.read(), call.read()])


def _slice(call: LiteCall) -> None:
    starts = [int(each) for each in call.fixed(1)]
    ends = [start + size for start, size in zip(starts, call.result.shape, strict=True)]
    call.finish("Slice", [call.read(), call.integers(starts, "starts"), call.integers(ends, "ends")])


def _split(call: LiteCall) -> None:
    from onnx import helper

    axis = int(np.ravel(call.fixed(0))[0]) % len(call.shape(1))
    outputs = [call.graph.name(place) for place in call.operator.outputs]
    parts = [call.graph.tensor(place).shape[axis] for place in call.operator.outputs]
    sizes = call.integers(parts, "parts")
    call.graph.nodes.append(helper.make_node("Split", [call.read(1), sizes], outputs, name=outputs[0], axis=axis))
    for place, name in zip(call.operator.outputs, outputs, strict=True):
        call.graph.write(place, name)


def _prelu(call: LiteCall) -> None:
    call.finish("PRelu", [call.read(0), call.read(1)])


def _arg_max(call: LiteCall) -> None:
    from onnx import TensorProto

    found = call.node("ArgMax", [call.read()], part="place", axis=_axes(call)[0], keepdims=0)
    kind = TensorProto.INT32 if call.result.dtype == "int32" else TensorProto.INT64
    call.finish("Cast", [found], to=kind)


_CONVERTERS: Mapping[str, Callable[[LiteCall], None]] = {
    "ABS": _elementwise("Abs"),
    "ADD": _elementwise("Add", 0),
    "ARG_MAX": _arg_max,
    "AVERAGE_POOL_2D": _pool,
    "BATCH_MATMUL": _product,
    "CONCATENATION": _concat,
    "CONV_2D": _convolution,
    "DEPTHWISE_CONV_2D": _convolution,
    "DEQUANTIZE": _forward,
    "DIV": _elementwise("Div", 0),
    "ELU": _elementwise("Elu"),
    "EXP": _elementwise("Exp"),
    "EXPAND_DIMS": _reshape,
    "FULLY_CONNECTED": _fully_connected,
    "GELU": _gelu,
    "HARD_SWISH": _elementwise("HardSwish"),
    "LEAKY_RELU": _leaky,
    "LOG": _elementwise("Log"),
    "LOGISTIC": _elementwise("Sigmoid"),
    "LOG_SOFTMAX": _softmax,
    "MAXIMUM": _elementwise("Max"),
    "MAX_POOL_2D": _pool,
    "MEAN": _reduced("ReduceMean"),
    "MINIMUM": _elementwise("Min"),
    "MUL": _elementwise("Mul", 0),
    "NEG": _elementwise("Neg"),
    "PAD": _pad,
    "PADV2": _pad,
    "POW": _elementwise("Pow"),
    "PRELU": _prelu,
    "QUANTIZE": _forward,
    "REDUCE_MAX": _reduced("ReduceMax"),
    "RELU": _elementwise("Relu"),
    "RELU6": _limited(0.0, 6.0),
    "RESHAPE": _reshape,
    "RESIZE_BILINEAR": _resize,
    "RESIZE_NEAREST_NEIGHBOR": _resize,
    "RSQRT": _rsqrt,
    "SLICE": _slice,
    "SOFTMAX": _softmax,
    "SPLIT": _split,
    "SQRT": _elementwise("Sqrt"),
    "SQUARE": _square,
    "SQUARED_DIFFERENCE": _squared_difference,
    "SQUEEZE": _reshape,
    "SUB": _elementwise("Sub", 0),
    "SUM": _reduced("ReduceSum"),
    "TANH": _elementwise("Tanh"),
    "TRANSPOSE": _transpose,
}
