"""What single pages of the documentation start from: files of chips, nets, evaluators, by the names they use."""

import shutil
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import onnx
from onnx import numpy_helper

from roundoff.cli import main
from roundoff.demo import model_path
from roundoff.graph.caffe.convert import import_caffe
from roundoff.graph.load import load_model
from tests.ascend_dumps import TIME, item, write_dump
from tests.documented import ROOT, network
from tests.graph.caffe.nets import NetText, run_all
from tests.graph.caffe.test_zoo import drawn
from tests.graph.caffe.zoo_of_forks import ZOO
from tests.tensors.test_tools import write_snapshot
from tests.vendors.ascend.networks import SHAPES, write_sides

_PICTURE = 224
_QUANTIZED = "int8/model_fake_quant_model.onnx"


def set_scene(page: str, folder: Path) -> None:
    """Write what one page alone starts from; the folder is the current one."""
    if page in _SCENES:
        _SCENES[page](folder)


def _check_calibration(folder: Path) -> None:
    """The one page whose folder is of pictures."""
    shutil.rmtree(folder / "calib")
    shutil.copytree(folder / "photos", folder / "calib")


def _readme(folder: Path) -> None:
    demo = model_path().parent
    shutil.copy(demo / "digits.onnx", folder)
    shutil.copytree(demo / "board_dump", folder / "board_dump")


def _convert(folder: Path) -> None:
    """The Caffe nets that the page speaks of, and what a chip dumped of one."""
    for name, numbers, net in (
        ("lenet", "lenet_iter_10000", "lenet"),
        ("fcn", "fcn", "fsrcnn_of_colours"),
        ("deploy", "squeezenet", "all_convolutional"),
        ("net", "net", "all_convolutional"),
    ):
        drawn(ZOO[net](), folder)
        if name != "net":
            (folder / "net.prototxt").rename(folder / f"{name}.prototxt")
            (folder / "net.caffemodel").rename(folder / f"{numbers}.caffemodel")
    model = import_caffe(folder / "deploy.prototxt", folder / "squeezenet.caffemodel").model
    picture = np.load(folder / "calib" / "00.npy")
    shutil.rmtree(folder / "calib")
    (folder / "calib").mkdir()
    np.save(folder / "calib" / "00.npy", picture)  # a dump is of one
    shutil.rmtree(folder / "npu_dump")
    computed = {name.partition("#")[0]: each for name, each in run_all(model, {"data": picture}).items()}
    (folder / "npu_dump").mkdir()
    for place, (name, array) in enumerate({"data": picture, **computed}.items()):
        held = item(array, format="NCHW" if array.ndim == len(picture.shape) else "ND", original=array.shape)
        write_dump(folder / "npu_dump" / f"Op.{name}.{place}.1.{TIME + place}", [held], op_name=name)


def _ascend(folder: Path, **others: str) -> None:
    """Dumps and files of a chip, under the names that the pages give them; `others` are of other sides."""
    sides = write_sides(folder / "sides")
    named = {
        "npu_dump": "npu", "golden": "float", "GOLDEN": "float", "FAKE": "fake", "fake": "fake", "DUMP": "npu",
        "NPU": "npu", "npu": "npu", "NPU_OFF": "quant_off", "NEW": "npu", "OLD": "npu", "FUSED": "npu", "UNFUSED": "npu_off",
        "om.json": "on", "om_off.json": "quant_off_om", "quant.json": "amct", **others,
    }  # fmt: skip
    for name, side in named.items():
        made = Path(getattr(sides, side))
        shutil.rmtree(folder / name, ignore_errors=True)
        if made.is_dir():
            shutil.copytree(made, folder / name)
        else:
            shutil.copy(made, folder / name)
    shutil.copytree(folder / "calib", folder / "calibration_folder")


def _ascend_quantized(folder: Path) -> None:
    """Where the chip's dump is that of the quantized model."""
    _ascend(folder, NPU="quant_off", **{"om.json": "quant_off_om"})


def _ascend_fusion(folder: Path) -> None:
    """Where the same model was compiled with fusion and without."""
    _ascend(folder, **{"om_off.json": "off"})


def _ascend_float(folder: Path) -> None:
    """The chip's dump, and a Caffe net and its twin that have the layers in it."""
    _ascend(folder)
    net = NetText({"data": SHAPES["data"]})
    said = f"convolution_param {{ num_output: {SHAPES['conv1'][1]} kernel_size: 3 pad: 1 }}"
    net.add("Convolution", "conv1", "data", params=said).add("ReLU", "relu1", "conv1", "conv1")
    net.add("InnerProduct", "fc1", "conv1", params=f"inner_product_param {{ num_output: {SHAPES['fc1'][1]} }}")
    onnx.save(drawn(net, folder).model.proto, folder / "model.onnx")
    for ending in ("prototxt", "caffemodel"):
        (folder / f"net.{ending}").rename(folder / f"model.{ending}")
    np.save(folder / "input.npy", np.random.default_rng(3).normal(size=SHAPES["data"]).astype(np.float32))


def _rknn(folder: Path) -> None:
    """What the tool's accuracy analysis writes of one sample."""
    sample = np.load(folder / "calib" / "00.npy")
    np.save(folder / "sample.npy", sample)
    shutil.rmtree(folder / "DIR")
    tensors = run_all(load_model(folder / "model.onnx"), {"image": sample})
    write_snapshot(folder / "DIR", {"golden": tensors, "simulator": tensors})


def _check_io(folder: Path) -> None:
    """Both sides' inputs and results: the deployed side has channels last, in the other order."""
    pictures = np.load(folder / "calib.npy")[:3]
    for name, arrays in (
        ("train", pictures), ("board_in", pictures), ("train_out", pictures * 2), ("board_out", pictures * 2),
    ):  # fmt: skip
        (folder / name).mkdir()
        for number, array in enumerate(arrays):
            np.save(folder / name / f"img{number}.npy", array[None])
    shutil.rmtree(folder / "board")
    (folder / "board_in").rename(folder / "board")


def _partial(folder: Path) -> None:
    """With the evaluator that the page shows."""
    page = (ROOT / "docs" / "reference" / "partial.md").read_text("utf-8")
    (folder / "eval.py").write_text(page.split("```python\n# eval.py\n")[1].split("```")[0], encoding="utf-8")


def _project(folder: Path) -> None:
    """A folder with one model and one set of samples, as a new project has them."""
    kept = {"model.onnx", "calib", "other.npy", "labels.npy"}
    shutil.copy(folder / "samples.npy", folder / "other.npy")
    for path in folder.iterdir():
        if path.name not in kept:
            shutil.rmtree(path) if path.is_dir() else path.unlink()


_EVALUATOR = """\
import numpy as np
import onnxruntime
import roundoff.vendors.amct.caffe as caffe
import roundoff.vendors.amct.onnx as amct
from roundoff.vendors.amct.common.auto_calibration import AutoCalibrationEvaluatorBase

PICTURES = np.random.default_rng(3).normal(size=(2, 3, 224, 224)).astype(np.float32)


class Evaluator(AutoCalibrationEvaluatorBase):
    def calibration(self, *files):
        if len(files) == 2:
            caffe.run_model(*files, [{"data": PICTURES}] * 8)
        else:
            amct.calibrate(files[0], [{"x": PICTURES}] * 8)

    def evaluate(self, *files):
        if len(files) == 2:
            (found,) = caffe.run_model(*files, [{"data": PICTURES}])
            return float(np.max(found["score"]))
        return float(np.max(onnxruntime.InferenceSession(files[0]).run(["logits"], {"x": PICTURES})[0]))

    def metric_eval(self, original_metric, new_metric):
        loss = abs(original_metric - new_metric)
        return loss < 0.5, loss
"""


def _amct(folder: Path) -> None:
    """A net of ONNX, one of Caffe, and an evaluator for both."""
    proto = network()
    for node in proto.graph.node:
        node.input[:] = ["x" if name == "image" else name for name in node.input]
    proto.graph.input[0].name = "x"
    for size in proto.graph.input[0].type.tensor_type.shape.dim[2:]:
        size.dim_value = _PICTURE
    onnx.save(proto, folder / "m.onnx")
    shutil.copy(folder / _QUANTIZED, folder / "qat.onnx")
    (folder / "eval.py").write_text(_EVALUATOR)
    net = NetText({"data": (8, 3, _PICTURE, _PICTURE)})
    net.add("Convolution", "conv", "data", "", "convolution_param { num_output: 4 kernel_size: 3 stride: 4 }")
    net.add("ReLU", "relu", "conv", "conv")
    net.add("Pooling", "pool", "conv", "", "pooling_param { pool: AVE global_pooling: true }")
    net.add("InnerProduct", "score", "pool", "", "inner_product_param { num_output: 5 }")
    drawn(net, folder)


def _horizon(folder: Path) -> None:
    shutil.copy(folder / _QUANTIZED, folder / "calibrated_model.onnx")
    shutil.copytree(folder / "calib", folder / "calibration_data" / "image")


def _distribution(folder: Path) -> None:
    shutil.copy(folder / _QUANTIZED, folder / "calibrated_model.onnx")


def _export_settings(folder: Path) -> None:
    main(["export-settings", "int8", "--dialect", "aimet", "-o", "aimet"])
    shutil.copy(next((folder / "aimet").glob("*.encodings")), folder / "model.encodings")


def _reproduce(folder: Path) -> None:
    """A quantized model in which the range of one tensor was measured wrongly."""
    proto = onnx.load(folder / "model_int8.onnx")
    (scale,) = {
        node.input[1] for node in proto.graph.node if node.op_type == "QuantizeLinear" and node.input[0] == "relu1"
    }
    (held,) = (each for each in proto.graph.initializer if each.name == scale)
    held.CopyFrom(numpy_helper.from_array(numpy_helper.to_array(held) / np.float32(16), held.name))
    onnx.save(proto, folder / "model_int8.onnx")


def _diagnose_dumps(folder: Path) -> None:
    """A dump that has the names already."""
    (folder / "names.csv").write_text("reference,candidate\nlogits,logits\n")


def _pulsar2_config(folder: Path) -> None:
    main(["pulsar2", "build", "--config", str(folder / "config.json")])


def _pulsar2(folder: Path) -> None:
    """A folder of the vendor's tool."""
    main(["pulsar2", "build", "--config", str(folder / "config.json"), "--output_dir", "vendor"])


def _explain(folder: Path) -> None:
    main(["layers", str(folder / "model.onnx"), "--quantized", "int8", "--data", "calib.npy", "-o", "run"])


def _zoo(folder: Path) -> None:
    """The suite that the page shows, on the network of the demo."""
    shutil.copy(model_path(), folder)
    shutil.copy(model_path().with_name("samples.npy"), folder)
    page = (ROOT / "docs" / "how-to" / "zoo.md").read_text("utf-8")
    (folder / "suite.toml").write_text(page.split("```toml\n")[1].split("```")[0], encoding="utf-8")


_SCENES: dict[str, Callable[[Path], None]] = {
    "README": _readme, "amct": _amct, "ascend": _ascend, "ascend-float-model": _ascend_float,
    "ascend-quantized-model": _ascend_quantized, "ascend-quick-check": _ascend_quantized, "ascend-single-operator": _ascend,
    "ascend-two-dumps": _ascend_fusion, "check-io": _check_io, "partial": _partial, "project": _project, "rknn": _rknn,
    "check-calibration": _check_calibration,
    "convert": _convert, "diagnose-dumps": _diagnose_dumps, "distribution": _distribution, "explain": _explain,
    "export-settings": _export_settings, "horizon": _horizon, "pulsar2": _pulsar2,
    "pulsar2-config": _pulsar2_config, "reproduce": _reproduce, "zoo": _zoo,
}  # fmt: skip


def batches_for(words: Sequence[str]) -> None:
    """Raw batches of the shape that a command names."""
    if "--input_shape" not in words:
        return
    shape = [int(size) for size in words[words.index("--input_shape") + 1].partition(":")[2].split(",")]
    Path("bins").mkdir(exist_ok=True)
    for number in range(int(words[words.index("--batch_num") + 1])):
        np.random.default_rng(number).normal(size=shape).astype(np.float32).tofile(Path("bins") / f"{number}.bin")
