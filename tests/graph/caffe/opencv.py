"""OpenCV's dnn module as an independent judge of Caffe nets."""

from collections.abc import Mapping
from pathlib import Path

import pytest

from roundoff.core.tensors import Array
from tests.graph.caffe.nets import NetText, relative_error, run_all, values

TOLERANCE = 1e-4


def opencv_layers(files: tuple[Path, Path], feed: Mapping[str, Array]) -> dict[str, Array]:
    """The first top of every layer."""
    cv2 = pytest.importorskip("cv2", reason="opencv-python-headless<5 is not installed")
    net = cv2.dnn.readNetFromCaffe(str(files[0]), str(files[1]))
    net.enableFusion(False)
    for name, array in feed.items():
        net.setInput(array, name)
    names = list(net.getLayerNames())
    return dict(zip(names, net.forward(names), strict=True))


def agree(net: NetText, folder: Path, feed: Mapping[str, Array] | None = None) -> None:
    """Assert that both compute the same at every layer."""
    feed = feed or {name: values(*shape, seed=7) for name, shape in net.inputs.items()}
    wanted = opencv_layers(net.write(folder), feed)
    model = net.load(folder).model
    ours = run_all(model, feed)
    tensors = {node.name: node.output[0] for node in model.proto.graph.node}
    judged = [name for name in wanted if name in tensors]
    assert judged
    for name in judged:
        assert relative_error(ours[tensors[name]], wanted[name]) < TOLERANCE, name
