"""OpenVINO models (.xml with .bin) as ONNX; each FakeQuantize becomes a quantize/dequantize pair."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as ET

import numpy as np

from roundoff.core.files import reading, regular_file
from roundoff.core.tensors import Array
from roundoff.errors import BadInput
from roundoff.graph.load import Model, checked_model
from roundoff.graph.nodes import GraphAssembly
from roundoff.messages.message import english

_TYPES = {
    "f32": "float32", "f16": "float16", "f64": "float64", "i8": "int8", "u8": "uint8", "i16": "int16",
    "u16": "uint16", "i32": "int32", "i64": "int64", "boolean": "bool",
}  # fmt: skip
_BYTE = 255
_ON_GRID = 1e-2
"""How far, in steps, a range may miss the grid on which zero has a code."""


def import_openvino(path: Path) -> Model:
    """Read an IR as a model.

    Raises:
        BadInput: A file is missing or damaged, or has operators that are not known.
    """
    size = regular_file(path, what=english("The model"))
    beside = path.with_suffix(".bin")
    size += regular_file(beside, what=english("The model's weights"))
    with reading(path, what=english("The model")):
        text = path.read_bytes()
    with reading(beside, what=english("The model's weights")):
        weights = beside.read_bytes()
    try:
        # Without definitions of its own, in bytes that show them, a document cannot grow when it is read.
        if b"<!" in text.replace(b"<!--", b"") or b"\0" in text:
            raise ValueError("an IR defines no entities")
        root = ET.fromstring(text)  # noqa: S314 - see above
        with np.errstate(all="ignore"):  # what overflows or is NaN among damaged constants stays that
            proto = IrConversion(_layers(root), weights, path).run()
    except (
        ET.ParseError,
        LookupError,
        ValueError,
        TypeError,
        ArithmeticError,
        RecursionError,
        StopIteration,
    ) as error:
        raise BadInput(
            english("{path} is no OpenVINO model, or is damaged: {reason}.", path=path, reason=str(error)),
            fix=english("copy or convert the model again"),
        ) from error
    return checked_model(proto, path=path, size=size)


@dataclass(frozen=True, slots=True)
class IrLayer:
    """One layer: what it reads (layer and port), and the shapes and names of what it writes, by port."""

    key: str
    name: str
    kind: str
    data: Mapping[str, str]
    reads: tuple[tuple[str, str], ...]
    outputs: Mapping[str, tuple[tuple[int, ...], str]]
    shapes: tuple[tuple[int, ...], ...]


def _layers(root: Any) -> list[IrLayer]:
    if root.tag != "net":
        raise ValueError("no <net>")
    edges: dict[tuple[str, str], tuple[str, str]] = {}
    for edge in root.iterfind("./edges/edge"):
        edges[edge.attrib["to-layer"], edge.attrib["to-port"]] = (
            edge.attrib["from-layer"],
            edge.attrib["from-port"],
        )
    found = []
    for layer in root.iterfind("./layers/layer"):
        key, data = layer.attrib["id"], layer.find("data")
        entering = layer.findall("./input/port")
        found.append(
            IrLayer(
                key,
                layer.attrib["name"],
                layer.attrib["type"],
                {} if data is None else dict(data.attrib),
                tuple(edges[key, port.attrib["id"]] for port in entering),
                {
                    port.attrib["id"]: (_shape(port), port.attrib.get("names", "").split(",")[0])
                    for port in layer.findall("./output/port")
                },
                tuple(_shape(port) for port in entering),
            )
        )
    return found


def _shape(port: Any) -> tuple[int, ...]:
    return tuple(int(dim.text or 0) for dim in port.findall("dim"))


@dataclass(frozen=True, slots=True, eq=False)
class IrCodes:
    """A constant kept as codes: (codes - zero) * scale, each of a shape that broadcasts."""

    codes: Array
    scale: Array
    zero: Array


class IrConversion(GraphAssembly):
    """The graph as it grows; constants are kept as values or codes until something reads them."""

    def __init__(self, layers: Sequence[IrLayer], weights: bytes, path: Path) -> None:
        super().__init__()
        self._layers, self._weights, self._path = layers, weights, path
        self.known: dict[tuple[str, str], Array] = {}
        self.codes: dict[tuple[str, str], IrCodes] = {}
        self.names: dict[tuple[str, str], str] = {}

    def run(self) -> Any:
        """The model."""
        from onnx import TensorProto, helper

        unknown = sorted({layer.kind for layer in self._layers if layer.kind not in _CONVERTERS} - _ENDS)
        if unknown:
            raise BadInput(
                english(
                    "{path} has operators that are not read: {names}.", path=self._path, names=", ".join(unknown)
                ),
                fix=english("give the model that it was converted from, as ONNX"),
            )
        entering, leaving = [], []
        for layer in self._ordered():
            if layer.kind == "Parameter":
                port, (shape, name) = next(iter(layer.outputs.items()))
                self.names[layer.key, port] = self.free(name or layer.name)
                kind = helper.np_dtype_to_tensor_dtype(np.dtype(_TYPES[layer.data["element_type"]]))
                entering.append(helper.make_tensor_value_info(self.names[layer.key, port], kind, list(shape)))
            elif layer.kind == "Result":
                given = self.read(layer, 0)
                leaving.append(helper.make_tensor_value_info(given, TensorProto.FLOAT, list(layer.shapes[0])))
            else:
                _CONVERTERS[layer.kind](self, layer)
        return self.finished("openvino", entering, leaving)

    def _ordered(self) -> list[IrLayer]:
        """Layers behind what they read; a circle is refused."""
        waiting, done, found = {layer.key: layer for layer in self._layers}, set(), []
        while waiting:
            ready = [layer for layer in waiting.values() if all(source in done for source, _ in layer.reads)]
            if not ready:
                raise ValueError("layers read one another in a circle, or what is not there")
            for layer in ready:
                found.append(waiting.pop(layer.key))
                done.add(layer.key)
        return found

    def stored(self, data: Mapping[str, str]) -> Array:
        """The values of a constant in the file of weights."""
        dtype = np.dtype(_TYPES[data["element_type"]])
        shape = tuple(int(each) for each in data["shape"].split(",") if each.strip())
        start, count = int(data["offset"]), math.prod(shape)
        if start < 0 or min((*shape, 1)) < 0 or start + count * dtype.itemsize > len(self._weights):
            raise ValueError("the file of weights is too short")
        return np.frombuffer(self._weights, dtype, count, start).reshape(shape)

    def read(self, layer: IrLayer, at: int) -> str:
        """The name of what a layer reads; a constant is written where it is first read."""
        place = layer.reads[at]
        if place not in self.names:
            if place in self.codes:
                self.names[place] = self.dequantized(self.codes[place], f"{layer.name}_{at}")
            else:
                values = self.known[place]
                kept = values.astype(np.float32) if values.dtype.kind == "f" else values
                self.names[place] = self.constant(kept, f"{layer.name}_{at}")
        return self.names[place]

    def dequantized(self, codes: IrCodes, name: str) -> str:
        """A constant behind its codes."""
        sizes = [
            axis for axis, size in enumerate(np.broadcast_shapes(codes.scale.shape, codes.zero.shape)) if size > 1
        ]
        if len(sizes) > 1:
            return self.constant(((codes.codes - codes.zero) * codes.scale).astype(np.float32), name)
        axis = sizes[0] + codes.codes.ndim - max(codes.scale.ndim, codes.zero.ndim) if sizes else None
        flat = () if axis is None else (codes.codes.shape[axis],)
        scale = np.broadcast_to(codes.scale.ravel(), flat or (1,)).reshape(flat).astype(np.float32)
        zero = np.broadcast_to(codes.zero.ravel(), flat or (1,)).reshape(flat).astype(codes.codes.dtype)
        inputs = [self.constant(codes.codes, f"{name}_codes"), self.constant(scale, f"{name}_scale")]
        inputs.append(self.constant(zero, f"{name}_zero"))
        more = {} if axis is None else {"axis": axis}
        return self.node("DequantizeLinear", inputs, f"{name}_weights", **more)

    def node(self, op_type: str, inputs: Sequence[str], name: str, **attributes: Any) -> str:
        """A node; what it gives has this name, or one like it."""
        return self.add(op_type, inputs, self.free(name), **attributes)

    def write(self, layer: IrLayer, op_type: str, inputs: Sequence[str], **attributes: Any) -> None:
        """The last node of a layer."""
        port, (_, name) = next(iter(layer.outputs.items()))
        self.names[layer.key, port] = self.node(op_type, inputs, name or layer.name, **attributes)

    def fixed(self, layer: IrLayer, at: int) -> Array:
        """What a layer reads where it must be a constant."""
        if layer.reads[at] not in self.known:
            raise ValueError(f"{layer.kind} '{layer.name}' reads what is computed where a constant is needed")
        return self.known[layer.reads[at]]

    def shape(self, layer: IrLayer) -> tuple[int, ...]:
        """The shape of what a layer writes."""
        return next(iter(layer.outputs.values()))[0]


_Convert = Callable[[IrConversion, IrLayer], None]
_ENDS = frozenset({"Parameter", "Result"})


def _const(graph: IrConversion, layer: IrLayer) -> None:
    graph.known[layer.key, next(iter(layer.outputs))] = graph.stored(layer.data)


def _shape_of(graph: IrConversion, layer: IrLayer) -> None:
    graph.known[layer.key, next(iter(layer.outputs))] = np.asarray(layer.shapes[0], np.int64)


def _folded(compute: Callable[..., Array], otherwise: _Convert) -> _Convert:
    """What is computed of constants alone is one."""

    def convert(graph: IrConversion, layer: IrLayer) -> None:
        if all(place in graph.known for place in layer.reads):
            values = compute(layer, *(graph.known[place] for place in layer.reads))
            graph.known[layer.key, next(iter(layer.outputs))] = np.asarray(values)
        else:
            otherwise(graph, layer)

    return convert


def _refused(graph: IrConversion, layer: IrLayer) -> None:
    raise ValueError(f"{layer.kind} '{layer.name}' is computed while the model runs")


def _cast(graph: IrConversion, layer: IrLayer) -> None:
    place, port = layer.reads[0], next(iter(layer.outputs))
    kind = np.dtype(_TYPES[layer.data["destination_type"]])
    if place in graph.known:
        values = graph.known[place]
        if values.dtype in (np.int8, np.uint8) and kind.kind == "f":
            ones = np.ones((), np.float32)
            graph.codes[layer.key, port] = IrCodes(values, ones, np.zeros((), np.int64))
        graph.known[layer.key, port] = values.astype(kind)
        return
    from onnx import helper

    graph.write(layer, "Cast", [graph.read(layer, 0)], to=helper.np_dtype_to_tensor_dtype(kind))


def _elementwise(op_type: str, numpy_form: Callable[..., Array] | None = None) -> _Convert:
    def convert(graph: IrConversion, layer: IrLayer) -> None:
        places, port = layer.reads, next(iter(layer.outputs))
        coded = [at for at, place in enumerate(places) if place in graph.codes]
        if len(places) == 2 and coded == [0] and places[1] in graph.known and op_type in ("Mul", "Sub"):
            old, other = graph.codes[places[0]], graph.known[places[1]].astype(np.float32)
            if op_type == "Mul":
                graph.codes[layer.key, port] = IrCodes(old.codes, old.scale * other, old.zero)
            else:
                graph.codes[layer.key, port] = IrCodes(old.codes, old.scale, np.rint(other).astype(np.int64))
        if numpy_form is not None and all(place in graph.known for place in places):
            graph.known[layer.key, port] = np.asarray(numpy_form(*(graph.known[place] for place in places)))
            return
        graph.write(layer, op_type, [graph.read(layer, at) for at in range(len(places))])

    return convert


def _numbers(text: str) -> list[int]:
    return [int(each) for each in text.split(",") if each.strip()]


def _padding(layer: IrLayer, rank: int) -> dict[str, Any]:
    way = layer.data.get("auto_pad", "explicit").lower()
    if way in ("same_upper", "same_lower"):
        return {"auto_pad": way.upper()}
    ends = [_numbers(layer.data.get(key, "")) or [0] * rank for key in ("pads_begin", "pads_end")]
    return {"pads": [*ends[0], *ends[1]] if way == "explicit" else [0] * (2 * rank)}


def _convolution(graph: IrConversion, layer: IrLayer) -> None:
    grouped = layer.kind == "GroupConvolution"
    shape, place = layer.shapes[1], layer.reads[1]
    if grouped:
        flat = (shape[0] * shape[1], *shape[2:])
        if place in graph.codes:
            old = graph.codes[place]
            scale = np.broadcast_to(old.scale, (*shape[:2], *[1] * (len(shape) - 2))).reshape(
                flat[0], *[1] * (len(flat) - 1)
            )
            zero = np.broadcast_to(old.zero, (*shape[:2], *[1] * (len(shape) - 2))).reshape(scale.shape)
            weights = graph.dequantized(IrCodes(old.codes.reshape(flat), scale, zero), layer.name)
        else:
            weights = graph.constant(
                graph.fixed(layer, 1).astype(np.float32).reshape(flat), f"{layer.name}_weights"
            )
    else:
        weights = graph.read(layer, 1)
    kernel = shape[3:] if grouped else shape[2:]
    graph.write(
        layer, "Conv", [graph.read(layer, 0), weights], strides=_numbers(layer.data["strides"]),
        dilations=_numbers(layer.data["dilations"]), kernel_shape=list(kernel), group=shape[0] if grouped else 1,
        **_padding(layer, len(kernel)),
    )  # fmt: skip


def _pool(graph: IrConversion, layer: IrLayer) -> None:
    kernel = _numbers(layer.data["kernel"])
    more: dict[str, Any] = {"ceil_mode": int(layer.data.get("rounding_type", "floor").lower() != "floor")}
    if layer.kind == "AvgPool":
        more["count_include_pad"] = int(layer.data.get("exclude-pad", "true").lower() != "true")
    op_type = "MaxPool" if layer.kind == "MaxPool" else "AveragePool"
    graph.write(
        layer, op_type, [graph.read(layer, 0)], kernel_shape=kernel,
        strides=_numbers(layer.data["strides"]), **_padding(layer, len(kernel)), **more,
    )  # fmt: skip


def _matmul(graph: IrConversion, layer: IrLayer) -> None:
    inputs = []
    for at, key in enumerate(("transpose_a", "transpose_b")):
        place, turned = layer.reads[at], layer.data.get(key, "false").lower() == "true"
        if not turned:
            inputs.append(graph.read(layer, at))
            continue
        rank = len(layer.shapes[at])
        order = [*range(rank - 2), rank - 1, rank - 2]
        if place in graph.codes:
            old = graph.codes[place]
            sides = [
                each.reshape((1,) * (rank - each.ndim) + each.shape).transpose(order)
                for each in (old.scale, old.zero)
            ]
            inputs.append(graph.dequantized(IrCodes(old.codes.transpose(order), *sides), layer.name))
        elif place in graph.known:
            inputs.append(
                graph.constant(graph.known[place].astype(np.float32).transpose(order), f"{layer.name}_weights")
            )
        else:
            inputs.append(graph.node("Transpose", [graph.read(layer, at)], f"{layer.name}_{key}", perm=order))
    graph.write(layer, "MatMul", inputs)


def _reshape(graph: IrConversion, layer: IrLayer) -> None:
    shape, place, port = graph.shape(layer), layer.reads[0], next(iter(layer.outputs))
    if place in graph.known:
        graph.known[layer.key, port] = graph.known[place].reshape(shape)
        if place in graph.codes:
            old, rank = graph.codes[place], len(shape)
            sides = [np.asarray(each) for each in (old.scale, old.zero)]
            first = old.codes.shape[0]
            # Only what has a scale for each slice of the first axis, or one, is known to stay so.
            if all(each.size in (1, first) for each in sides) and first in (shape[0], math.prod(shape[:2])):
                lead = (first, 1) if shape[0] == first else shape[:2]
                made = [
                    each.reshape(()) if each.size == 1 else each.reshape(*lead[:2], *[1] * (rank - 2))
                    for each in sides
                ]
                graph.codes[layer.key, port] = IrCodes(old.codes.reshape(shape), made[0], made[1])
        return
    graph.write(
        layer,
        "Reshape",
        [graph.read(layer, 0), graph.constant(np.asarray(shape, np.int64), f"{layer.name}_shape")],
    )


def _transpose(graph: IrConversion, layer: IrLayer) -> None:
    graph.write(layer, "Transpose", [graph.read(layer, 0)], perm=[int(each) for each in graph.fixed(layer, 1)])


def _concat(graph: IrConversion, layer: IrLayer) -> None:
    graph.write(
        layer, "Concat", [graph.read(layer, at) for at in range(len(layer.reads))], axis=int(layer.data["axis"])
    )


def _split(graph: IrConversion, layer: IrLayer) -> None:
    from onnx import helper

    axis = int(np.ravel(graph.fixed(layer, 1))[0])
    parts = [shape[axis] for shape, _ in layer.outputs.values()]
    if layer.reads[0] in graph.known:
        values = np.split(graph.known[layer.reads[0]], np.cumsum(parts)[:-1], axis=axis)
        graph.known.update({(layer.key, port): each for port, each in zip(layer.outputs, values, strict=True)})
        return
    made = [graph.free(name or f"{layer.name}_{port}") for port, (_, name) in layer.outputs.items()]
    sizes = graph.constant(np.asarray(parts, np.int64), f"{layer.name}_parts")
    graph.nodes.append(helper.make_node("Split", [graph.read(layer, 0), sizes], made, name=made[0], axis=axis))
    graph.names.update({(layer.key, port): name for port, name in zip(layer.outputs, made, strict=True)})


def _reduce(op_type: str) -> _Convert:
    def convert(graph: IrConversion, layer: IrLayer) -> None:
        rank = len(layer.shapes[0])
        axes = sorted(int(each) % rank for each in np.ravel(graph.fixed(layer, 1)))
        keep = int(layer.data.get("keep_dims", "false").lower() == "true")
        if op_type == "ReduceMean" and keep and rank > 2 and axes == list(range(2, rank)):
            graph.write(layer, "GlobalAveragePool", [graph.read(layer, 0)])
        elif op_type == "ReduceSum":
            places = graph.constant(np.asarray(axes, np.int64), f"{layer.name}_axes")
            graph.write(layer, op_type, [graph.read(layer, 0), places], keepdims=keep)
        else:
            graph.write(layer, op_type, [graph.read(layer, 0)], axes=axes, keepdims=keep)

    return convert


def _normalization(graph: IrConversion, layer: IrLayer) -> None:
    graph.write(
        layer,
        "BatchNormalization",
        [graph.read(layer, at) for at in range(5)],
        epsilon=float(layer.data["epsilon"]),
    )


def _mvn(graph: IrConversion, layer: IrLayer) -> None:
    source, rank = graph.read(layer, 0), len(layer.shapes[0])
    axes = sorted(int(each) % rank for each in np.ravel(graph.fixed(layer, 1)))

    def made(op_type: str, inputs: Sequence[str], part: str, **more: Any) -> str:
        return graph.node(op_type, inputs, f"{layer.name}_{part}", **more)

    centred = made("Sub", [source, made("ReduceMean", [source], "mean", axes=axes, keepdims=1)], "centred")
    if layer.data.get("normalize_variance", "true").lower() != "true":
        graph.write(layer, "Identity", [centred])
        return
    squares = made("Mul", [centred, centred], "squares")
    variance = made("ReduceMean", [squares], "variance", axes=axes, keepdims=1)
    eps = graph.constant(np.asarray(float(layer.data["eps"]), np.float32), f"{layer.name}_eps")
    if layer.data.get("eps_mode", "inside_sqrt").lower() == "inside_sqrt":
        root = made("Sqrt", [made("Add", [variance, eps], "raised")], "root")
    else:
        root = made("Add", [made("Sqrt", [variance], "root"), eps], "raised")
    graph.write(layer, "Div", [centred, root])


def _clamp(graph: IrConversion, layer: IrLayer) -> None:
    ends = [
        graph.constant(np.asarray(float(layer.data[key]), np.float32), f"{layer.name}_{key}")
        for key in ("min", "max")
    ]
    graph.write(layer, "Clip", [graph.read(layer, 0), *ends])


def _swish(graph: IrConversion, layer: IrLayer) -> None:
    source = graph.read(layer, 0)
    inner = (
        source
        if len(layer.reads) < 2
        else graph.node("Mul", [source, graph.read(layer, 1)], f"{layer.name}_steep")
    )
    graph.write(layer, "Mul", [source, graph.node("Sigmoid", [inner], f"{layer.name}_gate")])


def _softmax(graph: IrConversion, layer: IrLayer) -> None:
    graph.write(layer, "Softmax", [graph.read(layer, 0)], axis=int(layer.data.get("axis", 1)))


def _quantizer(graph: IrConversion, layer: IrLayer) -> None:
    levels, place = int(layer.data["levels"]), layer.reads[0]
    low, high, out_low, out_high = (graph.fixed(layer, at).astype(np.float64) for at in range(1, 5))
    scale = (high - low) / (levels - 1)
    if levels < 2 or not (scale > 0).all() or not np.isfinite(scale).all():
        raise ValueError(f"FakeQuantize '{layer.name}' has no range")
    zero = np.rint(-low / scale)
    axes = [axis for axis, size in enumerate(scale.shape) if size > 1]
    same = np.allclose(low, out_low) and np.allclose(high, out_high) and levels <= _BYTE + 1
    plain = same and len(axes) <= 1 and np.abs(-low / scale - zero).max() <= _ON_GRID
    plain = plain and zero.min() >= 0 and zero.max() <= _BYTE
    if place in graph.known:
        values = np.clip(graph.known[place].astype(np.float64), low, high)
        codes = np.rint((values - low) / scale)
        port = next(iter(layer.outputs))
        graph.known[layer.key, port] = (codes * (out_high - out_low) / (levels - 1) + out_low).astype(np.float32)
        if plain:
            steps = scale.astype(np.float32), zero.astype(np.int64)
            graph.codes[layer.key, port] = IrCodes(codes.astype(np.uint8), *steps)
        return
    source = graph.read(layer, 0)

    def number(values: Array, part: str) -> str:
        return graph.constant(values.astype(np.float32), f"{layer.name}_{part}")

    if not plain or levels <= _BYTE:
        source = graph.node("Min", [source, number(high, "high")], f"{layer.name}_upper")
        source = graph.node("Max", [source, number(low, "low")], f"{layer.name}_lower")
    if not plain:
        # No codes of one integer type: the same in steps, which stays in the network as it is.
        source = graph.node("Sub", [source, number(low, "start")], f"{layer.name}_moved")
        source = graph.node("Div", [source, number(scale, "step")], f"{layer.name}_steps")
        source = graph.node("Round", [source], f"{layer.name}_rounded")
        source = graph.node(
            "Mul", [source, number((out_high - out_low) / (levels - 1), "size")], f"{layer.name}_sized"
        )
        graph.write(layer, "Add", [source, number(out_low, "end")])
        return
    flat = () if not axes else (scale.shape[axes[0]],)
    more = {"axis": axes[0] + len(layer.shapes[0]) - scale.ndim} if axes else {}
    ends = [
        number(scale.reshape(flat), "scale"),
        graph.constant(zero.reshape(flat).astype(np.uint8), f"{layer.name}_zero"),
    ]
    codes_name = graph.node("QuantizeLinear", [source, *ends], f"{layer.name}_quantized", **more)
    graph.write(layer, "DequantizeLinear", [codes_name, *ends], **more)


def _range(_layer: IrLayer, start: Array, stop: Array, step: Array) -> Array:
    values = np.arange(int(start), int(stop), int(step), dtype=np.int64)
    if values.size > 64:
        raise ValueError("a Range of many numbers")
    return values


_CONVERTERS: Mapping[str, _Convert] = {
    "Abs": _elementwise("Abs"),
    "Add": _elementwise("Add", np.add),
    "AvgPool": _pool,
    "BatchNormInference": _normalization,
    "Clamp": _clamp,
    "Concat": _folded(lambda layer, *parts: np.concatenate(parts, int(layer.data["axis"])), _concat),
    "Const": _const,
    "Convert": _cast,
    "Convolution": _convolution,
    "Divide": _elementwise("Div", np.divide),
    "Elu": _elementwise("Elu"),
    "Erf": _elementwise("Erf"),
    "Exp": _elementwise("Exp"),
    "FakeQuantize": _quantizer,
    "GroupConvolution": _convolution,
    "HSwish": _elementwise("HardSwish"),
    "MVN": _mvn,
    "MatMul": _matmul,
    "MaxPool": _pool,
    "Maximum": _elementwise("Max", np.maximum),
    "Minimum": _elementwise("Min", np.minimum),
    "Multiply": _elementwise("Mul", np.multiply),
    "PReLU": _elementwise("PRelu"),
    "Power": _elementwise("Pow", np.power),
    "Range": _folded(_range, _refused),
    "ReLU": _elementwise("Relu"),
    "ReduceMax": _reduce("ReduceMax"),
    "ReduceMean": _reduce("ReduceMean"),
    "ReduceSum": _reduce("ReduceSum"),
    "Reshape": _reshape,
    "ShapeOf": _shape_of,
    "Sigmoid": _elementwise("Sigmoid"),
    "SoftMax": _softmax,
    "Softmax": _softmax,
    "Sqrt": _elementwise("Sqrt", np.sqrt),
    "Squeeze": _reshape,
    "Subtract": _elementwise("Sub", np.subtract),
    "Swish": _swish,
    "Tanh": _elementwise("Tanh"),
    "Transpose": _transpose,
    "Unsqueeze": _reshape,
    "VariadicSplit": _split,
}
