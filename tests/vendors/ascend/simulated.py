"""Networks by seed and a device that runs them: float or quantized, with or without fusion, sound or with a fault.

Everything is computed here with numpy alone, so that nothing of what is under test makes its own evidence.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

import roundoff.vendors.amct.caffe as amct_caffe
import roundoff.vendors.amct.onnx as amct_onnx
from roundoff.core.tensors import Array
from roundoff.graph.nodes import make_model
from tests.ascend_dumps import TIME, Item, item, write_dump
from tests.graph.caffe.nets import NetText
from tests.vendors.ascend.models import attr, op, output, write_model

Framework = Literal["onnx", "caffe"]
Hook = Callable[[str, Array], Array]
"""Is given the name of a step and what it computed, and gives what the device makes of it."""

_SUFFIX = {"caffe": ("_0_quant_layer", "_dequant_layer"), "onnx": (".quant", ".dequant")}
_TYPES = {
    "conv": "Conv2D",
    "fc": "MatMulV2",
    "relu": "Relu",
    "pool": "MaxPool",
    "add": "Add",
    "softmax": "SoftmaxV2",
    "concat": "ConcatD",
    "sigmoid": "Sigmoid",
    "flatten": "Flatten",
    "reshape": "Reshape",
    "squeeze": "Squeeze",
    "mean": "GlobalAveragePool",
    "mul": "Mul",
}
_VIEWS = ("flatten", "reshape", "squeeze")
"""Layers that the device has in its model and does not run: it dumps nothing of them."""

_REMOVED = ("identity", "dropout")
"""Layers that the compiler leaves out."""


@dataclass(frozen=True)
class Layer:
    """A layer of the original: what it reads, and its weights."""

    name: str
    kind: str
    reads: tuple[str, ...]
    weight: Array | None = None
    bias: Array | None = None
    stride: int = 1
    pad: int = 0
    groups: int = 1


def convolve(values: Array, weight: Array, *, stride: int = 1, pad: int = 0, groups: int = 1) -> Array:
    """A convolution in float64, exact for integers of this size."""
    padded = np.pad(values.astype(np.float64), ((0, 0), (0, 0), (pad, pad), (pad, pad)))
    size = weight.shape[2]
    windows = np.lib.stride_tricks.sliding_window_view(padded, (size, size), axis=(2, 3))[:, :, ::stride, ::stride]
    inputs, outputs = weight.shape[1], weight.shape[0] // groups
    parts = [
        np.einsum("nchwij,ocij->nohw", windows[:, g * inputs : (g + 1) * inputs],
                  weight[g * outputs : (g + 1) * outputs].astype(np.float64), optimize=True)
        for g in range(groups)
    ]  # fmt: skip
    return np.concatenate(parts, axis=1)


def computed(layer: Layer, inputs: Sequence[Array], weight: Array | None, bias: Array | None) -> Array:
    """What a layer gives for these inputs, in float64."""
    first = inputs[0].astype(np.float64)
    if layer.kind == "conv":
        assert weight is not None
        found = convolve(first, weight, stride=layer.stride, pad=layer.pad, groups=layer.groups)
        return found if bias is None else found + bias.astype(np.float64).reshape(1, -1, 1, 1)
    if layer.kind == "fc":
        assert weight is not None
        found = first.reshape(len(first), -1) @ weight.astype(np.float64).T
        return np.asarray(found if bias is None else found + bias)
    plain: dict[str, Callable[[], Array]] = {
        "relu": lambda: np.maximum(first, 0),
        "sigmoid": lambda: 1 / (1 + np.exp(-first)),
        "add": lambda: first + inputs[1].astype(np.float64),
        "mul": lambda: first * inputs[1].astype(np.float64),
        "concat": lambda: np.concatenate([each.astype(np.float64) for each in inputs], axis=1),
        "mean": lambda: first.mean(axis=(2, 3), keepdims=True),
        **dict.fromkeys(_VIEWS, lambda: first.reshape(len(first), -1)),
        **dict.fromkeys(_REMOVED, lambda: first),
    }
    if layer.kind in plain:
        return np.asarray(plain[layer.kind]())
    if layer.kind == "pool":
        n, c, h, w = first.shape
        return np.asarray(first.reshape(n, c, h // 2, 2, w // 2, 2).max(axis=(3, 5)))
    shifted = np.exp(first - first.max(axis=1, keepdims=True))
    return np.asarray(shifted / shifted.sum(axis=1, keepdims=True))


@dataclass
class Net:
    """A network: layers in order, its input, how layers are quantized, and to how many bits, inputs first."""

    framework: Framework
    layers: list[Layer]
    data: Array
    factors: dict[str, tuple[float, int, Array]] = field(default_factory=dict)
    bits: tuple[int, int] = (8, 8)

    @property
    def ends(self) -> tuple[int, int]:
        """The smallest and the largest code of an input."""
        return -(1 << (self.bits[0] - 1)), (1 << (self.bits[0] - 1)) - 1

    @property
    def quantized(self) -> list[Layer]:
        return [layer for layer in self.layers if layer.name in self.factors]

    @cached_property
    def floats(self) -> dict[str, Array]:
        """The float original, tensor by tensor."""
        values = {"data": self.data}
        for layer in self.layers:
            found = computed(layer, [values[name] for name in layer.reads], layer.weight, layer.bias)
            values[layer.name] = found.astype(np.float32)
        return values

    def quantizer(self, layer: Layer) -> str:
        """The name of the quantizer in front of a layer: that of the first layer that reads the same tensor."""
        first = next(other for other in self.quantized if other.reads[0] == layer.reads[0])
        return f"{first.name}{_SUFFIX[self.framework][0]}"

    def dequantizer(self, layer: Layer) -> str:
        return f"{layer.name}{_SUFFIX[self.framework][1]}"

    def codes_of_weights(self, layer: Layer) -> tuple[Array, Array]:
        """Codes of the weights and of the bias."""
        scale, _, steps = self.factors[layer.name]
        assert layer.weight is not None
        shape = (-1, *(1,) * (layer.weight.ndim - 1))
        half = 1 << (self.bits[1] - 1)
        codes = np.clip(np.rint(layer.weight / steps.reshape(shape)), -half, half - 1)
        bias = np.zeros(len(layer.weight)) if layer.bias is None else layer.bias
        return codes, np.rint(bias / (np.float32(scale) * steps).astype(np.float64))

    @cached_property
    def fakes(self) -> dict[str, Array]:
        """The fake-quant original, tensor by tensor, those of quantizers and dequantizers included."""
        values: dict[str, Array] = {"data": self.data}
        for layer in self.layers:
            inputs = [values[name] for name in layer.reads]
            if layer.name not in self.factors:
                values[layer.name] = computed(layer, inputs, layer.weight, layer.bias).astype(np.float32)
                continue
            scale, offset, steps = self.factors[layer.name]
            codes = np.clip(np.rint(inputs[0] / np.float32(scale)) + offset, *self.ends) - offset
            values[self.quantizer(layer)] = (codes * np.float32(scale)).astype(np.float32)
            weight, bias = self.codes_of_weights(layer)
            sums = computed(layer, [codes], weight, bias)
            step = (np.float32(scale) * steps).astype(np.float64)
            step = step.reshape(1, -1, 1, 1) if layer.kind == "conv" else step
            values[f"{layer.name} "] = values[self.dequantizer(layer)] = (sums * step).astype(np.float32)
            values[layer.name] = values[self.dequantizer(layer)]
        return {name: array for name, array in values.items() if not name.endswith(" ")}


def make_net(seed: int, framework: Framework = "onnx") -> Net:
    """A network of random width, depth and shape: convolutions, some grouped, a sum, pooling, two matrices."""
    rng = np.random.default_rng(seed)
    caffe = framework == "caffe"
    layers: list[Layer] = []
    side = int(rng.choice([8, 12, 16]))
    data = rng.normal(rng.uniform(-0.3, 0.3), 1, (1, 3, side, side)).astype(np.float32)

    def add(kind: str, reads: Sequence[str], **more: Any) -> str:
        label = {
            "conv": "Conv",
            "relu": "Relu",
            "fc": "Gemm",
            "pool": "MaxPool",
            "add": "Add",
            "softmax": "Softmax",
        }
        number = len(layers)
        name = f"{kind}{number}" if caffe else f"{label[kind]}_{number}"
        layers.append(Layer(name, kind, tuple(reads), **more))
        return name

    def conv(read: str, inputs: int, outputs: int, size: int, *, stride: int = 1, groups: int = 1) -> str:
        spread = np.sqrt(2 / (inputs // groups * size * size))
        weight = (rng.normal(size=(outputs, inputs // groups, size, size)) * spread).astype(np.float32)
        bias = (rng.normal(size=outputs) * 0.3).astype(np.float32)
        return add("conv", [read], weight=weight, bias=bias, stride=stride, pad=size // 2, groups=groups)

    width = int(rng.choice([6, 8, 20]))
    now = add("relu", [conv("data", 3, width, 3)])
    for _ in range(int(rng.integers(2, 5))):
        kind = rng.choice(["plain", "residual", "deep", "wide"])
        if kind == "residual":
            left = add("relu", [conv(now, width, width, 3)])
            now = add("relu", [add("add", [conv(left, width, width, 1), now])])
        elif kind == "deep":
            now = add("relu", [conv(now, width, width, 3, groups=width)])
        elif kind == "wide":
            more = int(rng.choice([10, 16, 24]))
            now, width = add("relu", [conv(now, width, more, 1)]), more
        else:
            now = add("relu", [conv(now, width, width, 3)])
    now = add("pool", [now])
    size = width * (side // 2) ** 2
    weight = (rng.normal(size=(10, size)) * np.sqrt(1 / size)).astype(np.float32)
    now = add("fc", [now], weight=weight, bias=(rng.normal(size=10) * 0.1).astype(np.float32))
    add("softmax", [now])
    return Net(framework, layers, data)


class _Builder:
    """A network that grows layer by layer; its layers are named as exporters of a framework name them."""

    def __init__(self, seed: int, framework: Framework) -> None:
        self.rng = np.random.default_rng(seed)
        self.framework: Framework = framework
        self.layers: list[Layer] = []

    def add(self, kind: str, *reads: str, outputs: int = 0, inputs: int = 0, size: int = 3) -> str:
        shape = (outputs, inputs, size, size) if kind == "conv" else (outputs, inputs)
        spread = np.sqrt(2 / np.prod(shape[1:])) if outputs else 0
        weight = (self.rng.normal(size=shape) * spread).astype(np.float32) if outputs else None
        bias = (self.rng.normal(size=outputs) * 0.3).astype(np.float32) if outputs else None
        number = len(self.layers)
        name = f"{kind}{number}" if self.framework == "caffe" else f"/net/{kind}_{number}"
        self.layers.append(Layer(name, kind, reads, weight=weight, bias=bias, pad=size // 2))
        return name

    @property
    def net(self) -> Net:
        return Net(self.framework, self.layers, self.rng.normal(size=(1, 3, 8, 8)).astype(np.float32))


def make_heads(seed: int, framework: Framework = "onnx", *, turned: bool = False) -> Net:
    """A network of blocks that are joined channel by channel, with two heads that read one tensor; or turned."""
    new = _Builder(seed, framework)
    add = new.add
    now, width = add("relu", add("conv", "data", outputs=12, inputs=3)), 12
    for _ in range(2):
        more = add("relu", add("conv", now, outputs=8, inputs=width))
        now, width = add("concat", now, more), width + 8
    now = add("relu", add("conv", now, outputs=10, inputs=width, size=1))
    for head in ("sigmoid", "softmax") if turned else ("softmax", "sigmoid"):
        if head == "softmax":
            add(head, add("fc", now, outputs=10, inputs=10 * 8 * 8))
        else:
            add(head, add("conv", now, outputs=5, inputs=10, size=1))
    return new.net


def make_views(seed: int, framework: Framework = "onnx") -> Net:
    """A network with layers that pass on what they read, some in another shape, and two branches of such."""
    new = _Builder(seed, framework)
    add, onnx_only = new.add, framework == "onnx"
    now = add("relu", add("conv", "data", outputs=12, inputs=3))
    now = add("identity", now) if onnx_only else now
    now = add("dropout", add("relu", add("conv", now, outputs=10, inputs=12)))
    rows = add("dropout", add("squeeze" if onnx_only else "flatten", add("mean", now)))
    add("sigmoid", add("fc", add("relu", add("fc", rows, outputs=14, inputs=10)), outputs=5, inputs=14))
    add("softmax", add("fc", add("reshape", now), outputs=7, inputs=10 * 8 * 8))
    return new.net


def quantized(net: Net, *, asymmetric: bool = True, bits: tuple[int, int] = (8, 8)) -> Net:
    """The network with the scales that the ranges of its tensors give."""
    net.bits = bits
    codes, half = (1 << bits[0]) - 1, (1 << (bits[1] - 1)) - 1
    for layer in net.layers:
        if layer.weight is None:
            continue
        values = net.floats[layer.reads[0]]
        low, high = min(0.0, float(values.min())), max(0.0, float(values.max()))
        scale = (high - low) / codes if asymmetric else max(high, -low) / net.ends[1]
        offset = round(net.ends[0] - low / scale) if asymmetric else 0
        peaks = np.abs(layer.weight.reshape(len(layer.weight), -1)).max(axis=1)
        steps = peaks / half if layer.kind == "conv" else np.array([peaks.max() / half])
        net.factors[layer.name] = (float(f"{scale:.9g}"), int(offset), steps.astype(np.float32))
    return net


# Files of the original.


def record_text(factors: Mapping[str, tuple[float, int, Array]], bits: tuple[int, int] = (8, 8)) -> str:
    """A record file as AMCT writes it."""
    lines = []
    types = "".join(
        f'    {part}_type: "INT{width}"\n' for part, width in zip(("act", "wts"), bits, strict=True) if width != 8
    )
    for name, (scale, offset, steps) in factors.items():
        weights = "".join(f"    scale_w: {float(step):.9g}\n" for step in steps)
        weights += "    offset_w: 0\n" * len(steps)
        lines.append(f'record {{\n  key: "{name}"\n  value {{\n    scale_d: {scale:.9g}\n    offset_d: {offset}\n'
                     f"{weights}{types}  }}\n}}\n")  # fmt: skip
    return "".join(lines)


def write_model_files(net: Net, folder: Path) -> Path:
    """The float model: net.onnx, or net.prototxt beside net.caffemodel."""
    if net.framework == "onnx":
        return _write_onnx(net, folder / "net.onnx")
    text = NetText({"data": net.data.shape})
    for layer in net.layers:
        blobs = [part for part in (layer.weight, layer.bias) if part is not None]
        conv = (
            f"convolution_param {{ num_output: {len(blobs[0]) if blobs else 0} kernel_size: "
            f"{blobs[0].shape[-1] if blobs else 0} stride: {layer.stride} pad: {layer.pad} "
            f"group: {layer.groups} }}"
        )
        product = f"inner_product_param {{ num_output: {len(blobs[0]) if blobs else 0} }}"
        kind, params = {
            "conv": ("Convolution", conv), "relu": ("ReLU", ""), "add": ("Eltwise", ""),
            "softmax": ("Softmax", ""), "fc": ("InnerProduct", product),
            "pool": ("Pooling", "pooling_param { pool: MAX kernel_size: 2 stride: 2 }"),
            "concat": ("Concat", ""), "sigmoid": ("Sigmoid", ""), "flatten": ("Flatten", ""),
            "dropout": ("Dropout", ""), "reshape": ("Reshape", "reshape_param { shape { dim: 0 dim: -1 } }"),
            "mean": ("Pooling", "pooling_param { pool: AVE global_pooling: true }"),
            "mul": ("Eltwise", "eltwise_param { operation: PROD }"),
        }[layer.kind]  # fmt: skip
        text.add(kind, layer.name, list(layer.reads), "", params, blobs)
    return text.write(folder)[0]


def _write_onnx(net: Net, path: Path) -> Path:
    nodes, weights = [], []
    for layer in net.layers:
        names = list(layer.reads)
        for part, values in (("weight", layer.weight), ("bias", layer.bias)):
            if values is not None:
                weights.append(numpy_helper.from_array(values, f"{layer.name}.{part}"))
                names.append(f"{layer.name}.{part}")
        kinds: dict[str, tuple[str, dict[str, Any]]] = {
            "conv": ("Conv", {"strides": [layer.stride] * 2, "pads": [layer.pad] * 4, "group": layer.groups}),
            "relu": ("Relu", {}), "add": ("Add", {}), "softmax": ("Softmax", {"axis": 1}),
            "fc": ("Gemm", {"transB": 1}), "pool": ("MaxPool", {"kernel_shape": [2, 2], "strides": [2, 2]}),
            "concat": ("Concat", {"axis": 1}), "sigmoid": ("Sigmoid", {}), "flatten": ("Flatten", {}),
            "reshape": ("Reshape", {}), "squeeze": ("Squeeze", {}), "identity": ("Identity", {}),
            "dropout": ("Dropout", {}), "mean": ("GlobalAveragePool", {}), "mul": ("Mul", {}),
        }  # fmt: skip
        kind, more = kinds[layer.kind]
        if layer.kind in ("reshape", "squeeze"):
            numbers = np.array([0, -1] if layer.kind == "reshape" else [2, 3], np.int64)
            weights.append(numpy_helper.from_array(numbers, f"{layer.name}.numbers"))
            names.append(f"{layer.name}.numbers")
        if layer.kind == "fc" and net.floats[layer.reads[0]].ndim > 2:
            nodes.append(helper.make_node("Flatten", names[:1], [f"{layer.name}.flat"], name=f"{layer.name}_flat"))
            names[0] = f"{layer.name}.flat"
        nodes.append(helper.make_node(kind, names, [layer.name], name=layer.name, **more))
    read = {name for layer in net.layers for name in layer.reads}
    ends = [layer.name for layer in net.layers if layer.name not in read]
    graph = helper.make_graph(
        nodes, "net", [helper.make_tensor_value_info("data", TensorProto.FLOAT, net.data.shape)],
        [helper.make_tensor_value_info(name, TensorProto.FLOAT, net.floats[name].shape) for name in ends],
        weights,
    )  # fmt: skip
    onnx.save(make_model(graph, opset=13, ir_version=8), path)
    return path


def write_quantized_files(net: Net, folder: Path) -> dict[str, Path]:
    """Record, deploy model and quantization information."""
    record = folder / "record.txt"
    record.write_text(record_text(net.factors, net.bits))
    prefix = str(folder / "net")
    if net.framework == "onnx":
        amct_onnx.convert_model(str(folder / "net.onnx"), str(record), prefix)
        return {"record": record, "deploy": folder / "net_deploy_model.onnx", "info": folder / "net_quant.json"}
    amct_caffe.convert_model(str(folder / "net.prototxt"), str(folder / "net.caffemodel"), str(record), prefix)
    return {"record": record, "deploy": folder / "net_deploy_model.prototxt", "info": folder / "net_quant.json"}


def write_golden(folder: Path, tensors: Mapping[str, Array]) -> Path:
    """Golden data, one file for each tensor."""
    folder.mkdir(parents=True)
    for place, (name, array) in enumerate(tensors.items()):
        np.save(folder / f"{_spelled(name)}.0.{TIME + place}.npy", array)
    return folder


# The device.


@dataclass(frozen=True)
class Step:
    """One step of the device's work: what it reads, its own part of the original, and its values."""

    name: str
    kind: str
    reads: tuple[str, ...]
    values: Array
    layer: Layer


def steps_of(net: Net, hook: Hook) -> dict[str, Step]:
    """Everything the device computes, one step for each operator without fusion."""
    found: dict[str, Step] = {}
    now: dict[str, str] = {"data": "data"}
    first = net.data.astype(np.float16)
    found["data"] = Step("data", "data", (), first, Layer("data", "data", ()))

    def put(name: str, kind: str, reads: Sequence[str], values: Array, layer: Layer) -> None:
        found[name] = Step(name, kind, tuple(reads), hook(name, values), layer)

    for layer in net.layers:
        reads = [now[name] for name in layer.reads]
        inputs = [found[name].values for name in reads]
        if layer.kind in _REMOVED:
            now[layer.name] = reads[0]
            continue
        if layer.name not in net.factors:
            weight, bias = (
                None if part is None else part.astype(np.float16) for part in (layer.weight, layer.bias)
            )
            put(layer.name, layer.kind, reads, computed(layer, inputs, weight, bias).astype(np.float16), layer)
            now[layer.name] = layer.name
            continue
        scale, offset, steps = net.factors[layer.name]
        quantizer = net.quantizer(layer)
        if quantizer not in found:
            codes = np.clip(np.rint(inputs[0].astype(np.float32) / np.float32(scale)) + offset, *net.ends)
            put(quantizer, "quant", reads, codes.astype(np.int8), layer)
        weight, bias = net.codes_of_weights(layer)
        numbers = found[quantizer].values.astype(np.float64) - offset
        put(layer.name, layer.kind, [quantizer], computed(layer, [numbers], weight, bias).astype(np.int32), layer)
        step = np.float32(scale) * steps
        step = step.reshape(1, -1, 1, 1) if layer.kind == "conv" else step
        with np.errstate(over="ignore"):
            values = (found[layer.name].values.astype(np.float32) * step).astype(np.float16)
        put(net.dequantizer(layer), "dequant", [layer.name], values, layer)
        now[layer.name] = net.dequantizer(layer)
    return found


@dataclass
class Operator:
    """An operator of the offline model: the steps that it holds, what it writes, and what it reads."""

    steps: list[Step]
    writes: list[Step]
    reads: list[str]

    @property
    def name(self) -> str:
        return "".join(step.name for step in self.steps)


def compiled(steps: Mapping[str, Step], *, fused: bool) -> list[Operator]:
    """The operators of the offline model; with fusion a layer takes what follows it unless somebody else reads."""
    readers: dict[str, list[str]] = {}
    for step in steps.values():
        for read in step.reads:
            readers.setdefault(read, []).append(step.name)
    owner: dict[str, Operator] = {}
    operators: list[Operator] = []
    for step in steps.values():
        if step.kind == "data":
            continue
        home = owner.get(step.reads[0]) or (owner.get(step.reads[-1]) if step.kind == "add" else None)
        if step.kind == "add" and fused:
            # The later of both branches takes the sum.
            homes = [owner.get(read) for read in step.reads]
            home = max((each for each in homes if each), key=operators.index, default=None)
        joins = fused and home is not None and _joins(home, step, readers)
        if joins and home is not None:
            home.steps.append(step)
            home.reads += [read for read in step.reads if owner.get(read) is not home and read not in home.reads]
            home.writes = [each for each in home.writes if set(readers.get(each.name, ())) - _names(home)]
            home.writes.append(step)
        else:
            home = Operator([step], [step], list(step.reads))
            operators.append(home)
        owner[step.name] = home
    return operators


def _names(home: Operator) -> set[str]:
    return {step.name for step in home.steps}


def _joins(home: Operator, step: Step, readers: Mapping[str, list[str]]) -> bool:
    if home.steps[0].kind not in ("conv", "fc"):
        return False
    last = home.steps[-1]
    if last.name not in step.reads:
        return False
    if step.kind == "quant":
        return last.kind in ("relu", "dequant", "add")
    return step.kind in ("dequant", "relu", "add") and len(readers[last.name]) == 1


def blocked(array: Array, size: int) -> Array:
    """NCHW in blocks of channels."""
    n, c, h, w = array.shape
    padded = np.pad(array, ((0, 0), (0, -c % size), (0, 0), (0, 0)))
    return np.ascontiguousarray(padded.reshape(n, -1, size, h, w).transpose(0, 1, 3, 4, 2))


def stored(
    array: Array, *, origin: str = "", block: int | None = None, plain: bool = False, bits: int = 8
) -> Item:
    """A tensor as the device holds it."""
    if array.dtype == np.int8 and bits == 4:
        whole = stored(array, origin=origin, block=block or 64)
        halves = np.frombuffer(whole.data + b"\0" * (len(whole.data) % 2), np.uint8).reshape(-1, 2) & 15
        return replace(whole, data=(halves[:, 0] | halves[:, 1] << 4).tobytes(), element_type="INT4")
    size = block or (32 if array.dtype == np.int8 else 16)
    if plain:
        return item(array, format="NCHW", original=array.shape, origin=origin)
    if array.ndim == 4:
        return item(blocked(array, size), format="NC1HWC0", original=array.shape, origin=origin)
    return item(array, format="ND", original=array.shape, origin=origin)


def write_npu(
    net: Net, folder: Path, *, fused: bool, hook: Hook = lambda name, values: values, inputs: bool = True,
    constants: bool = False, left_out: Sequence[str] = (), origins: bool = False, block: int | None = None,
    back: bool = False, attributes: bool = False,
) -> tuple[Path, list[Operator]]:  # fmt: skip
    """Run the device: its dump in `folder`, its model beside it; tells the model and its operators."""
    steps = steps_of(net, hook)
    operators = compiled(steps, fused=fused)
    where = {write.name: (each.name, place) for each in operators for place, write in enumerate(each.writes)}
    where["data"] = ("trans", 0)
    types = {"int8": f"DT_INT{net.bits[0]}", "int32": "DT_INT32"}
    viewed = {each.name: each for each in operators if each.steps[0].kind in _VIEWS}
    folder.mkdir(parents=True)
    image = output(net.data.shape, layout="NCHW")
    ops = [op("data", "Data", outputs=[image])]
    ops.append(op("trans", "TransData", originals=[], inputs=["data:0"], outputs=[image]))
    first = item(net.data, format="NCHW", original=net.data.shape)
    write_dump(folder / f"TransData.trans.0.3.{TIME}", [stored(steps["data"].values)], [first], op_name="trans")
    for place, each in enumerate(operators, start=1):
        kind = _kind(each)
        more = _constants(net, each) if constants else []
        edges = [f"{where[read][0]}:{where[read][1]}" for read in each.reads]
        if each.name in viewed and back:
            # What is read in rows is brought out of its blocks before.
            held, name = steps[each.reads[0]].values, f"trans_{each.name}"
            about = output(held.shape, layout="NCHW")
            ops.append(op(name, "TransData", originals=[], inputs=edges[:1], outputs=[about]))
            when = f"{place}.3.{TIME + place}"
            write_dump(
                folder / f"TransData.trans_{_spelled(each.name)}.{when}", [stored(held, plain=True)],
                [stored(held, block=block)], op_name=name,
            )  # fmt: skip
            edges[0] = f"{name}:0"
        for number, _ in enumerate(more):
            ops.append(op(f"dynamic_const_{place}_{number}", "Const", originals=[], outputs=[output((1,))]))
            edges.append(f"dynamic_const_{place}_{number}:0")
        alone = len(each.steps) == 1
        outputs = [
            output(write.values.shape, origin="" if alone else write.name, index=None if alone else 0,
                   layout="NCHW" if write.values.ndim == 4 else "ND",
                   dtype=types.get(write.values.dtype.name, "DT_FLOAT16"))
            for write in each.writes
        ]  # fmt: skip
        names = None if alone else [step.name for step in each.steps]
        told = _attributes(net, each) if attributes else []
        ops.append(op(each.name, kind, inputs=edges, originals=names, outputs=outputs, more=told))
        if each.name in left_out or each.name in viewed:
            continue
        write_dump(
            folder / f"{kind}.{_spelled(each.name)}.{place}.3.{TIME + place}",
            [
                stored(write.values, origin=write.name if origins else "", block=block, bits=net.bits[0])
                for write in each.writes
            ],
            [*(stored(steps[read].values, block=block, bits=net.bits[0]) for read in each.reads), *more]
            if inputs
            else [],
            op_name=each.name,
        )
    ops.append(op("out", "NetOutput", inputs=[f"{operators[-1].name}:0"]))
    return write_model(folder.with_suffix(".json"), *ops), operators


def _spelled(name: str) -> str:
    return name.replace("/", "_").replace(".", "_")


def _kind(each: Operator) -> str:
    first = each.steps[0]
    return {"quant": "AscendQuant", "dequant": "AscendDequant"}.get(first.kind) or _TYPES[first.kind]


def _attributes(net: Net, each: Operator) -> list[dict[str, Any]]:
    """What the compiler says of a quantizer on its own."""
    layer = next((one for one in net.quantized if net.quantizer(one) == each.name), None)
    if layer is None:
        return []
    scale, offset, _ = net.factors[layer.name]
    return [attr("scale", "f", 1 / scale), attr("offset", "f", offset), attr("dst_type", "i", 2)]


def _constants(net: Net, each: Operator) -> list[Item]:
    found = []
    for step in each.steps:
        layer = step.layer
        if step.kind in ("conv", "fc") and layer.name in net.factors:
            weight, bias = net.codes_of_weights(layer)
            found += [item(weight.astype(np.int8), format="ND"), item(bias.astype(np.int32), format="ND")]
        elif step.kind == "dequant":
            scale, _, steps = net.factors[layer.name]
            found.append(item((np.float32(scale) * steps).view(np.uint32).astype(np.uint64)))
    return found


# Faults.


@dataclass(frozen=True)
class Fault:
    """What is wrong on the device: at which steps, and what becomes of their values."""

    steps: tuple[str, ...]
    change: Hook

    def hook(self, name: str, values: Array) -> Array:
        return self.change(name, values) if not self.steps or name in self.steps else values


FAULTS = ("conv", "scale", "offset", "saturation", "sums", "dead", "two", "noise", "none")


def plant(net: Net, fault: str, seed: int) -> Fault:
    """A fault of a kind, at a place that the seed chooses."""
    rng = np.random.default_rng(seed + 1000)
    if fault == "none":
        return Fault(("nowhere",), lambda _name, values: values)
    if fault == "noise":
        return Fault((), lambda _name, values: _noisy(values, rng))
    if fault in ("scale", "offset", "saturation"):
        return _at_a_quantizer(net, fault, rng)
    products = [layer.name for layer in net.layers if layer.kind == "conv"]
    places = tuple(str(name) for name in rng.permutation(products)[: 2 if fault == "two" else 1])
    kind = fault if fault in ("sums", "dead") else str(rng.choice(["bias", "swap", "shift", "noise"]))
    return Fault(places, lambda name, values: _broken(net, name, values, kind=kind, rng=rng))


def _at_a_quantizer(net: Net, fault: str, rng: np.random.Generator) -> Fault:
    layer = net.quantized[int(rng.integers(len(net.quantized)))]
    _, offset, _ = net.factors[layer.name]
    factor = float(rng.choice([0.5, 0.7, 1.4, 2.0]))
    apart = 1 if net.bits[0] == 8 else 12  # few codes are as many as one of few
    shift = int(rng.choice([-24, -12, 12, 24])) // apart
    limit = int(rng.choice([24, 40, 60])) // apart

    def recoded(_name: str, values: Array) -> Array:
        codes = values.astype(np.float64)
        if fault == "scale":
            codes = np.rint((codes - offset) * factor) + offset
        elif fault == "offset":
            codes += shift
        else:
            codes = np.clip(codes, offset - limit, offset + limit)
        return np.clip(codes, *net.ends).astype(np.int8)

    return Fault((net.quantizer(layer),), recoded)


def _broken(net: Net, name: str, values: Array, *, kind: str, rng: np.random.Generator) -> Array:
    layer = next(each for each in net.layers if each.name == name)
    exact = values.astype(np.float64)
    if kind == "sums":
        limit = np.quantile(np.abs(exact), 0.6)
        exact = np.clip(exact, -limit, limit)
    elif kind == "dead":
        exact[:, int(np.maximum(exact, 0).sum(axis=(0, 2, 3)).argmax())] = 0
    elif kind == "bias":
        bias = net.codes_of_weights(layer)[1] if layer.name in net.factors else layer.bias
        exact -= 2 * np.abs(np.asarray(bias)).max()
    elif kind == "swap":
        exact = exact[:, ::-1]
    elif kind == "shift":
        exact = np.roll(exact, 1, axis=3)
    else:
        exact += rng.normal(size=exact.shape) * exact.std() * 0.3
    return np.asarray(exact.astype(values.dtype))


def _noisy(values: Array, rng: np.random.Generator) -> Array:
    if values.dtype != np.float16:
        return values
    spread = 0.06 * float(np.sqrt(np.square(values.astype(np.float64)).mean()))
    return np.asarray((values + rng.normal(size=values.shape) * spread).astype(np.float16))


def culprits(operators: Sequence[Operator], fault: Fault) -> list[str]:
    """The operators that hold the steps at fault."""
    return [each.name for each in operators if any(step.name in fault.steps for step in each.steps)]
