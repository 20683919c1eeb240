"""Nets of AMCT in OpenCV, which computes everything but AMCT's own layers by itself."""

import sys
from dataclasses import replace
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

import roundoff.vendors.amct.caffe as amct
from roundoff.graph.caffe import conversion as registry
from roundoff.vendors.amct.records import read_records, write_records
from tests.graph.caffe.nets import NetText, relative_error, values
from tests.vendors.amct.caffe_nets import CaffeWork, batches


def both(files: tuple[str, str]) -> float:
    """How far OpenCV and we are apart."""
    pytest.importorskip("cv2", reason="opencv-python-headless<5 is not installed")
    feed = batches(1, seed=3)[0]
    net = amct.opencv_net(*files)
    net.setInput(feed["data"])
    (ours,) = amct.run_model(*files, [feed])
    return relative_error(np.asarray(net.forward()), ours["prob"])


def test_it_computes_what_we_do(tmp_path: Path) -> None:
    work = CaffeWork(tmp_path)
    fake, deploy = work.save()
    assert both(work.files) < 1e-4
    assert both(work.modified) < 1e-4
    # Both round sums of floats in their own order: a value on the edge of two codes may fall to either side.
    assert both(fake) < 0.01
    with pytest.raises(RuntimeError, match="integers of a deploy net, as layer 'conv1' has them"):
        amct.opencv_net(*deploy)


def test_shifts_too(tmp_path: Path) -> None:
    work = CaffeWork(tmp_path)
    work.save()
    shifted = {
        name: replace(each, shift_bit=(9,) * len(each.scale_w))
        for name, each in read_records(Path(work.record)).items()
    }
    write_records(Path(work.record), shifted)
    amct.convert_model(*work.files, work.record, str(tmp_path / "shift/net"))
    fake, _ = work.results("shift/net")
    assert both(fake) < 0.05


def test_layers_that_serve_training_are_left_out(tmp_path: Path) -> None:
    net = NetText({"data": (1, 3, 4, 4), "label": (1,)})
    net.add(
        "InnerProduct", "score", "data", "", "inner_product_param { num_output: 2 }", [values(2, 48), values(2)]
    )
    net.add("SoftmaxWithLoss", "loss", ["score", "label"])
    files = tuple(map(str, net.write(tmp_path)))
    pytest.importorskip("cv2", reason="opencv-python-headless<5 is not installed")
    opened = amct.opencv_net(*files)
    assert list(opened.getLayerNames()) == ["score"]


def test_what_opencv_cannot_read_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry, "_OWN", {})
    pytest.importorskip("cv2", reason="opencv-python-headless<5 is not installed")
    text = 'type: "Mine" my_param { word: "OpenCV takes no words in parameters that it does not know" }'
    registry.register_layer("Mine", lambda job: job.top("Relu", [job.bottoms[0].name], job.bottoms[0].shape))
    net = NetText()
    files = net.write(tmp_path)
    files[0].write_text(f'{net.text}layer {{ name: "mine" bottom: "data" top: "mine" {text} }}', encoding="utf-8")
    with pytest.raises(RuntimeError, match=r"OpenCV cannot read .*net\.prototxt") as told:
        amct.opencv_net(str(files[0]), str(files[1]))
    assert "run_model" in str(told.value)


def test_without_opencv(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    files = tuple(map(str, NetText().add("ReLU", "relu", "data").write(tmp_path)))
    monkeypatch.setitem(sys.modules, "cv2", None)
    with pytest.raises(RuntimeError, match="OpenCV is not installed"):
        amct.opencv_net(*files)
    newer = ModuleType("cv2")
    newer.__version__ = "5.0.0"  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "cv2", newer)
    with pytest.raises(RuntimeError, match=r"OpenCV 5\.0\.0 reads no Caffe nets"):
        amct.opencv_net(*files)
