"""The folder in which golden commands run: networks, samples, dumps and configurations.

Everything here is made by onnx, onnxruntime and numpy alone. A change inside roundoff changes what is measured,
never what it is measured on.
"""

import json
import shutil
import struct
from collections.abc import Callable, Mapping, Sequence
from importlib import resources
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx
import onnxruntime
from onnx import TensorProto, helper, numpy_helper

from roundoff.demo import load_split, model_path

Array = npt.NDArray[Any]
SHARED = Path(__file__).resolve().parents[3] / "shared"

_SAMPLES = 12
# Of the networks that are made here: few samples, for they are small.
_FEW = 6
_IMAGE = (1, 3, 8, 8)
# Microseconds, as dumps of Ascend tell them.
_TIME = 1_700_000_000_000_000

_EVALUATOR = """\
import numpy as np
import onnxruntime as ort
from roundoff.vendors.amct.common.auto_calibration import AutoCalibrationEvaluatorBase

FEEDS = np.random.default_rng(0).normal(0.3, 1, (2, 1, 3, 8, 8)).astype(np.float32)


class Evaluator(AutoCalibrationEvaluatorBase):
    def calibration(self, model_file):
        session = ort.InferenceSession(model_file)
        for feed in FEEDS:
            session.run(None, {"image": feed})

    def evaluate(self, model_file):
        session = ort.InferenceSession(model_file)
        return np.stack([session.run(None, {"image": feed})[0] for feed in FEEDS])

    def metric_eval(self, original_metric, new_metric):
        loss = np.abs(original_metric - new_metric).max()
        return loss < 0.02, loss
"""

# Two chips and two commands.
_ZOO = """
store = "zoo_store"
targets = ["generic-int8", "litert"]

[models.digits]
model = "digits.onnx"
data = "images.npy"

[commands.quantize]
[commands.layers]
"""


def make_scene(folder: Path) -> Path:
    """Write all inputs of the golden commands into a folder."""
    folder.mkdir(parents=True, exist_ok=True)
    _digits(folder)
    for name, make in _NETWORKS.items():
        model, samples = make()
        onnx.save(model, folder / f"{name}.onnx")
        onnx.save(fake_quantized(model, samples, spoilt=_SPOILT[name]), folder / f"{name}_quantized.onnx")
        np.save(folder / f"{name}.npy", samples)
    _boards(folder)
    _io(folder)
    _horizon(folder)
    _amct(folder)
    _pulsar2(folder)
    _ascend(folder)
    _caffe(folder)
    _from_shared(folder)
    return folder


# The demo -------------------------------------------------------------------------------------------------------


def _digits(folder: Path) -> None:
    images, labels = load_split("calibration")[:2]
    np.save(folder / "images.npy", images[:_SAMPLES])
    np.save(folder / "labels.npy", labels[:_SAMPLES])
    np.save(folder / "more_images.npy", images[:48])
    np.save(folder / "more_labels.npy", labels[:48])
    shutil.copy(model_path(), folder / "digits.onnx")
    (folder / "zoo.toml").write_text(_ZOO, encoding="utf-8")
    shipped = Path(str(resources.files("roundoff.demo")))
    shutil.copy(shipped / "tiny-chip.toml", folder)
    shutil.copy(shipped / "samples.npy", folder / "board_samples.npy")
    shutil.copytree(shipped / "board_dump", folder / "board_dump")
    model = onnx.load(folder / "digits.onnx")
    onnx.save(
        fake_quantized(model, images[:_SAMPLES], spoilt={"block3/relu": 0.2}), folder / "digits_quantized.onnx"
    )
    onnx.save(fake_quantized(model, images[:_SAMPLES]), folder / "digits_healthy.onnx")


# Networks made here ---------------------------------------------------------------------------------------------


def _weight(name: str, *shape: int, seed: int) -> Any:
    values = np.random.default_rng(seed).normal(0, 1 / np.sqrt(np.prod(shape[1:]) or 1), shape)
    return numpy_helper.from_array(values.astype(np.float32), name)


def _value(name: str, shape: Sequence[int | str] | None = None) -> Any:
    return helper.make_tensor_value_info(name, TensorProto.FLOAT, shape)


def _model(nodes: Sequence[Any], inputs: Sequence[Any], outputs: Sequence[Any], weights: Sequence[Any]) -> Any:
    graph = helper.make_graph(nodes, "net", inputs, outputs, weights)
    made = onnx.ModelProto(ir_version=8, opset_import=[helper.make_opsetid("", 17)], graph=graph)
    onnx.checker.check_model(made)
    return made


def _samples(*shape: int, seed: int = 0) -> Array:
    return np.random.default_rng(seed).normal(0.3, 1, (_FEW, *shape)).astype(np.float32)


def _plain() -> tuple[Any, Array]:
    nodes = [
        helper.make_node("Conv", ["image", "w1"], ["conv1"], name="Conv1", pads=[1] * 4),
        helper.make_node("Relu", ["conv1"], ["relu1"], name="Relu1"),
        helper.make_node("Conv", ["relu1", "w2"], ["conv2"], name="Conv2", pads=[1] * 4, group=4),
        helper.make_node("Relu", ["conv2"], ["relu2"], name="Relu2"),
        helper.make_node("GlobalAveragePool", ["relu2"], ["pooled"], name="Pool"),
        helper.make_node("Flatten", ["pooled"], ["flat"], name="Flatten"),
        helper.make_node("Gemm", ["flat", "w3", "b3"], ["logits"], name="Classifier"),
    ]
    weights = [
        _weight("w1", 4, 3, 3, 3, seed=1), _weight("w2", 4, 1, 3, 3, seed=2), _weight("w3", 4, 10, seed=3),
        _weight("b3", 10, seed=4),
    ]  # fmt: skip
    return _model(nodes, [_value("image", _IMAGE)], [_value("logits", (1, 10))], weights), _samples(*_IMAGE[1:])


def _residual() -> tuple[Any, Array]:
    nodes = [
        helper.make_node("Conv", ["image", "w1"], ["a"], name="stem", pads=[1] * 4),
        helper.make_node("Conv", ["a", "w2"], ["b"], name="body", pads=[1] * 4),
        helper.make_node("Relu", ["b"], ["c"], name="act"),
        helper.make_node("Add", ["a", "c"], ["sum"], name="add"),
        helper.make_node("Conv", ["sum", "w3"], ["features"], name="head"),
    ]
    weights = [_weight(f"w{n}", 4, 3 if n == 1 else 4, 3, 3, seed=n) for n in (1, 2, 3)]
    return _model(nodes, [_value("image", _IMAGE)], [_value("features", (1, 4, 6, 6))], weights), _samples(
        *_IMAGE[1:], seed=1
    )


def _forked() -> tuple[Any, Array]:
    """Two outputs that quantization hurts differently: a mean over them is neither of theirs."""
    nodes = [
        helper.make_node("Conv", ["image", "w1"], ["a"], name="stem", pads=[1] * 4),
        helper.make_node("Relu", ["a"], ["b"], name="act"),
        helper.make_node("Conv", ["b", "w2"], ["boxes"], name="box_head"),
        helper.make_node("Conv", ["b", "w3"], ["c"], name="class_head"),
        helper.make_node("Sigmoid", ["c"], ["scores"], name="gate"),
    ]
    weights = [
        _weight("w1", 6, 3, 3, 3, seed=5),
        _weight("w2", 4, 6, 3, 3, seed=6),
        _weight("w3", 5, 6, 1, 1, seed=7),
    ]
    outputs = [_value("boxes", (1, 4, 6, 6)), _value("scores", (1, 5, 8, 8))]
    return _model(nodes, [_value("image", _IMAGE)], outputs, weights), _samples(*_IMAGE[1:], seed=2)


def _attention() -> tuple[Any, Array]:
    """One block of a transformer: LayerNormalization, attention with one head, and a classifier."""
    nodes = [
        helper.make_node("LayerNormalization", ["tokens", "gain", "shift"], ["n"], name="norm", axis=-1),
        helper.make_node("MatMul", ["n", "wq"], ["q"], name="query"),
        helper.make_node("MatMul", ["n", "wk"], ["k"], name="key"),
        helper.make_node("MatMul", ["n", "wv"], ["v"], name="value"),
        helper.make_node("Transpose", ["k"], ["kt"], name="turn", perm=[0, 2, 1]),
        helper.make_node("MatMul", ["q", "kt"], ["s"], name="scores"),
        helper.make_node("Softmax", ["s"], ["p"], name="softmax", axis=-1),
        helper.make_node("MatMul", ["p", "v"], ["o"], name="context"),
        helper.make_node("Add", ["tokens", "o"], ["r"], name="skip"),
        helper.make_node("MatMul", ["r", "wo"], ["logits"], name="classifier"),
    ]
    spread = np.geomspace(0.2, 8, 16).astype(np.float32)
    weights = [
        numpy_helper.from_array(spread, "gain"), numpy_helper.from_array(np.zeros(16, np.float32), "shift"),
        *(_weight(name, 16, 16, seed=seed) for seed, name in enumerate(("wq", "wk", "wv"))),
        _weight("wo", 16, 5, seed=9),
    ]  # fmt: skip
    return _model(nodes, [_value("tokens", (1, 6, 16))], [_value("logits", (1, 6, 5))], weights), _samples(
        6, 16, seed=3
    )


_NETWORKS: Mapping[str, Callable[[], tuple[Any, Array]]] = {
    "plain": _plain, "residual": _residual, "forked": _forked, "attention": _attention,
}  # fmt: skip
_SPOILT: Mapping[str, Mapping[str, float]] = {
    "plain": {"relu1": 0.25}, "residual": {"a": 0.3}, "forked": {"b": 0.35}, "attention": {"n": 0.2},
}  # fmt: skip


# Quantizing and running, as plainly as can be -------------------------------------------------------------------


def ran(model: Any, samples: Array, names: Sequence[str]) -> list[dict[str, Any]]:
    """Tensors of a model, sample by sample, graph optimization off."""
    tapped = onnx.ModelProto.FromString(model.SerializeToString())
    known = {output.name for output in tapped.graph.output}
    tapped.graph.output.extend(onnx.ValueInfoProto(name=name) for name in names if name not in known)
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    session = onnxruntime.InferenceSession(tapped.SerializeToString(), options, ["CPUExecutionProvider"])
    feed = tapped.graph.input[0].name
    found = (session.run(list(names), {feed: sample[None]}) for sample in samples)
    return [dict(zip(names, values, strict=True)) for values in found]


def fake_quantized(model: Any, samples: Array, spoilt: Mapping[str, float] | None = None) -> Any:
    """A model with an 8-bit QuantizeLinear and DequantizeLinear per tensor in front of Conv, Gemm, MatMul and Add.

    Args:
        model: The float model.
        samples: What ranges are taken from, least to greatest.
        spoilt: Tensors whose range is to be this much too small: planted faults.
    """
    heavy = [node for node in model.graph.node if node.op_type in ("Conv", "Gemm", "MatMul", "Add")]
    weights = {each.name: numpy_helper.to_array(each) for each in model.graph.initializer}
    read = {node.input[place] for node in heavy for place in range(2)}
    seen = ran(model, samples, sorted(read - weights.keys() - {model.graph.input[0].name}))
    values: dict[str, Array] = {name: np.stack([row[name] for row in seen]) for name in seen[0]}
    values |= {model.graph.input[0].name: samples, **{name: weights[name] for name in read & weights.keys()}}
    made = onnx.ModelProto.FromString(model.SerializeToString())
    pairs: dict[str, list[Any]] = {}
    for name in sorted(read):
        pairs[name] = _quantizer(made, name, values[name], name in weights, (spoilt or {}).get(name, 1.0))
    nodes, placed = [], set()
    for node in made.graph.node:
        if node.op_type in ("Conv", "Gemm", "MatMul", "Add"):
            for place in range(2):
                name = node.input[place]
                nodes += [] if name in placed else pairs[name]
                placed.add(name)
                node.input[place] = f"{name}:dequantized"
        nodes.append(node)
    kept = [onnx.NodeProto.FromString(node.SerializeToString()) for node in nodes]
    del made.graph.node[:]
    made.graph.node.extend(kept)
    return made


def _quantizer(made: Any, name: str, values: Array, symmetric: bool, factor: float) -> list[Any]:
    low, high = min(float(values.min()), 0.0) * factor, max(float(values.max()), 0.0) * factor
    if symmetric:
        scale, zero = np.float32(max(-low, high) / 127), np.int8(0)
    else:
        scale = np.float32((high - low) / 255)
        zero = np.int8(round(-128 - low / float(scale)))
    made.graph.initializer.extend([
        numpy_helper.from_array(np.array(scale), f"{name}:scale"),
        numpy_helper.from_array(np.array(zero), f"{name}:zero"),
    ])  # fmt: skip
    parts = [f"{name}:scale", f"{name}:zero"]
    return [
        helper.make_node("QuantizeLinear", [name, *parts], [f"{name}:quantized"], name=f"{name}:q"),
        helper.make_node(
            "DequantizeLinear", [f"{name}:quantized", *parts], [f"{name}:dequantized"], name=f"{name}:dq"
        ),
    ]


def dumped(folder: Path, model: Any, samples: Array) -> None:
    """Write every tensor that a model computes, one archive per sample."""
    folder.mkdir()
    rows = ran(model, samples, [node.output[0] for node in model.graph.node])
    for place, row in enumerate(rows):
        np.savez(folder / f"{place}.npz", **{name.replace("/", "."): value for name, value in row.items()})


# Devices --------------------------------------------------------------------------------------------------------


def _boards(folder: Path) -> None:
    """Dumps of boards: right; with two filters swapped; maps turned in the file alone; a layer times 1.5."""
    model, samples = _plain()
    wrong = onnx.ModelProto.FromString(model.SerializeToString())
    for weight in wrong.graph.initializer:
        if weight.name == "w2":
            weight.CopyFrom(numpy_helper.from_array(numpy_helper.to_array(weight)[[1, 0, 2, 3]].copy(), "w2"))
    dumped(folder / "swapped_dump", wrong, samples)
    dumped(folder / "right_dump", model, samples)
    shutil.copytree(folder / "right_dump", folder / "turned_dump")
    for path in (folder / "turned_dump").iterdir():
        with np.load(path) as archive:
            row = {name: archive[name] for name in archive.files}
        np.savez(path, **(row | {"conv2": row["conv2"].swapaxes(2, 3).copy()}))
    quantized = fake_quantized(model, samples)
    onnx.save(quantized, folder / "plain_healthy.onnx")
    louder = onnx.ModelProto.FromString(quantized.SerializeToString())
    for node in louder.graph.node:
        if node.output[0] == "relu1":
            node.output[0] = "relu1/quiet"
            louder.graph.initializer.append(numpy_helper.from_array(np.array(1.5, np.float32), "gain"))
            place = list(louder.graph.node).index(node) + 1
            louder.graph.node.insert(place, helper.make_node("Mul", ["relu1/quiet", "gain"], ["relu1"], name="x"))
            break
    names = [node.output[0] for node in model.graph.node]
    (folder / "louder_dump").mkdir()
    for place, row in enumerate(ran(louder, samples, names)):
        np.savez(folder / "louder_dump" / f"{place}.npz", **row)


def _io(folder: Path) -> None:
    photos = np.random.default_rng(0).integers(0, 256, (4, 3, 12, 12)).astype(np.float32)
    np.save(folder / "training.npy", (photos - 120) / 60)
    np.save(folder / "board.npy", photos[:, ::-1] / 255)


# Vendors --------------------------------------------------------------------------------------------------------


def _horizon(folder: Path) -> None:
    target = folder / "calibration_data" / "image"
    target.mkdir(parents=True)
    for place, sample in enumerate(_plain()[1][:4]):
        np.save(target / f"{place}.npy", sample[None])


def _amct(folder: Path) -> None:
    (folder / "bins").mkdir()
    for place, sample in enumerate(_plain()[1][:2]):
        sample.tofile(folder / "bins" / f"{place}.bin")
    (folder / "evaluator.py").write_text(_EVALUATOR, encoding="utf-8")


def _pulsar2(folder: Path) -> None:
    config = {
        "model_type": "ONNX",
        "quant": {
            "input_configs": [
                {"tensor_name": "DEFAULT", "calibration_dataset": "calibration_data/image",
                 "calibration_format": "Numpy", "calibration_size": 4}
            ],
            "calibration_method": "MinMax",
        },
    }  # fmt: skip
    (folder / "pulsar2.json").write_text(json.dumps(config), encoding="utf-8")
    (folder / "pulsar2_in" / "0").mkdir(parents=True)
    _plain()[1][0].tofile(folder / "pulsar2_in" / "0" / "image.bin")
    (folder / "list.txt").write_text("0\n", encoding="utf-8")


def _field(number: int, value: int | bytes) -> bytes:
    """One field of a message of protocol buffers."""
    if isinstance(value, int):
        return _varint(number << 3) + _varint(value)
    return _varint(number << 3 | 2) + _varint(len(value)) + value


def _varint(value: int) -> bytes:
    found = bytearray()
    while value > 0x7F:
        found.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*found, value])


def _ascend(folder: Path) -> None:
    """A device's dump in half precision with one wrong layer, the float model's, and the compiled model's list."""
    model, samples = _plain()
    names = [node.output[0] for node in model.graph.node]
    row = ran(model, samples[:1], names)[0]
    (folder / "npu").mkdir()
    (folder / "golden").mkdir()
    listed = []
    for place, name in enumerate(names):
        exact = row[name]
        np.save(folder / "golden" / f"{name}.0.{_TIME + place}.npy", exact)
        half = (exact[:, ::-1] * 1.2 if name == "conv2" else exact).astype(np.float16)
        dims = b"".join(map(_varint, half.shape))
        # Element type 2 is FLOAT16, format 2 is ND.
        tensor = _field(1, 2) + _field(2, 2) + _field(3, _field(1, dims)) + _field(6, half.nbytes)
        header = _field(1, b"2.0") + _field(2, _TIME) + _field(3, tensor) + _field(6, name.encode())
        path = folder / "npu" / f"Op.{name}.{place}.1.{_TIME + place}"
        path.write_bytes(struct.pack("<Q", len(header)) + header + half.tobytes())
        shape = {"key": "origin_shape", "value": {"list": {"i": list(half.shape)}}}
        form = {"key": "origin_format", "value": {"s": "ND"}}
        listed.append({
            "name": name, "type": "Op", "input": [f"{names[place - 1]}:0"] if place else [], "attr": [],
            "output_desc": [{"attr": [form, shape], "dtype": "DT_FLOAT16"}],
        })  # fmt: skip
    (folder / "om.json").write_text(json.dumps({"graph": [{"op": listed}]}), encoding="utf-8")
    np.save(folder / "mine.npy", row["logits"] * np.float32(1.01))
    np.save(folder / "theirs.npy", row["logits"])


def _caffe(folder: Path) -> None:
    layers = [
        (
            "conv1",
            "Convolution",
            "data",
            "conv1",
            "convolution_param { num_output: 4 kernel_size: 3 }",
            (4, 3, 3, 3),
        ),
        ("relu1", "ReLU", "conv1", "conv1", "", None),
        ("fc", "InnerProduct", "conv1", "fc", "inner_product_param { num_output: 5 }", (5, 144)),
        ("prob", "Softmax", "fc", "prob", "", None),
    ]
    text = 'name: "small"\ninput: "data"\ninput_shape { dim: 1 dim: 3 dim: 8 dim: 8 }\n'
    binary = _field(1, b"small")
    for seed, (name, kind, bottom, top, settings, shape) in enumerate(layers):
        text += f'layer {{ name: "{name}" type: "{kind}" bottom: "{bottom}" top: "{top}" {settings} }}\n'
        layer = _field(1, name.encode()) + _field(2, kind.encode())
        for size in (shape, shape[:1]) if shape else ():
            values = numpy_helper.to_array(_weight("w", *size, seed=20 + seed))
            layer += _field(7, _field(5, values.tobytes()) + _field(7, _field(1, b"".join(map(_varint, size)))))
        binary += _field(100, layer)
    (folder / "small.prototxt").write_text(text, encoding="utf-8")
    (folder / "small.caffemodel").write_bytes(binary)
    np.save(folder / "caffe.npy", _samples(3, 8, 8, seed=4))


# What lies beside this checkout ---------------------------------------------------------------------------------


def _from_shared(folder: Path) -> None:
    """Samples for the networks in ../shared, where they are there."""
    inputs = SHARED / "vectors" / "tools" / "inputs"
    for path in sorted(inputs.glob("*.npz")):
        with np.load(path) as archive:
            for name in archive.files:
                part = name.partition(".")[0]
                np.save(folder / f"shared_{path.stem}_{part}.npy", archive[name][:4])
    if (SHARED / "models").is_dir():
        np.save(folder / "shared_kws.npy", _samples(1, 49, 10, seed=5)[:3])
        np.save(folder / "shared_fmnist.npy", np.abs(_samples(1, 28, 28, seed=6)[:2]))
        np.save(folder / "shared_lenet.npy", np.abs(_samples(1, 28, 28, seed=7)[:3]))
