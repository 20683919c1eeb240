"""Real nets against what Caffe 1.0 itself computed, blob by blob."""

import json
from pathlib import Path

import numpy as np
import pytest

from roundoff.graph.caffe.convert import import_caffe
from tests.graph.caffe.nets import relative_error, run_all
from tests.graph.caffe.opencv import TOLERANCE, opencv_layers

SHARED = Path(__file__).resolve().parents[4] / "shared"
NETS = [
    ("lenet_mnist/lenet.prototxt", "lenet_mnist/lenet_iter_10000.caffemodel", "lenet"),
    (
        "squeezenet_v1.0_dc/deploy.prototxt",
        "squeezenet_v1.0_dc/squeezenet_v1.0_dc.caffemodel",
        "squeezenet_v1.0_dc",
    ),
]

pytestmark = pytest.mark.skipif(not (SHARED / "data").exists(), reason="no real nets beside this checkout")


@pytest.mark.parametrize(("prototxt", "caffemodel", "golden"), NETS, ids=[net[2] for net in NETS])
def test_every_blob_equals_caffes(prototxt: str, caffemodel: str, golden: str) -> None:
    model = import_caffe(SHARED / "models" / prototxt, SHARED / "models" / caffemodel).model
    folder = SHARED / "data" / "golden_caffe"
    with np.load(folder / f"{golden}.npz") as archive:
        blobs = {name.replace("#", "/"): array for name, array in archive.items()}
    ours = run_all(model, {"data": blobs.pop("data")})
    layers = json.loads((folder / f"{golden}_layers.json").read_text())
    # Caffe copies blobs that several layers read; the copies have the value of the last version as well.
    copies = {top: each["bottoms"][0] for each in layers if each["type"] == "Split" for top in each["tops"]}
    for name, wanted in blobs.items():
        assert relative_error(ours[copies.get(name, name)], wanted) < TOLERANCE, name


def test_layers_and_blobs_keep_their_names() -> None:
    model = import_caffe(*(SHARED / "models" / file for file in NETS[0][:2])).model
    layers = json.loads((SHARED / "data" / "golden_caffe" / "lenet_layers.json").read_text())
    nodes = {node.name: node for node in model.proto.graph.node}
    tensors = {name for node in model.proto.graph.node for name in node.output}
    assert {each["name"] for each in layers if each["type"] != "Input"} <= set(nodes)
    assert {top for each in layers if each["type"] != "Input" for top in each["tops"]} <= tensors
    assert list(nodes["relu1"].input) == ["ip1#ip1"]
    assert list(nodes["relu1"].output) == ["ip1"]


def test_real_net_equals_opencv_at_every_layer() -> None:
    files = (SHARED / "models" / NETS[1][0], SHARED / "models" / NETS[1][1])
    with np.load(SHARED / "data" / "golden_caffe" / "squeezenet_v1.0_dc.npz") as archive:
        feed = {"data": archive["data"]}
    wanted = opencv_layers(files, feed)
    model = import_caffe(*files).model
    ours = run_all(model, feed)
    tensors = {node.name: node.output[0] for node in model.proto.graph.node}
    for name in wanted.keys() & tensors.keys():
        assert relative_error(ours[tensors[name]], wanted[name]) < TOLERANCE, name
