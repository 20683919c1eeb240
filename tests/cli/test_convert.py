"""roundoff convert, and Caffe nets in the other commands."""

import json
from pathlib import Path

import numpy as np
import onnxruntime
import pytest

from roundoff.cli import main
from tests.graph.caffe.nets import NetText, values


@pytest.fixture
def net(tmp_path: Path) -> Path:
    """A net with a fully connected layer, a layer in place, and a loss."""
    text = NetText({"data": (1, 3, 8, 8)})
    conv = "convolution_param { num_output: 4 kernel_size: 3 }"
    text.add("Convolution", "conv/1", "data", params=conv, blobs=[values(4, 3, 3, 3), values(4)])
    text.add("ReLU", "relu.1", "conv/1", "conv/1")
    text.add("Slice", "cut", "conv/1", ["left", "right"])
    text.add("Eltwise", "sum", ["left", "right"])
    fc = "inner_product_param { num_output: 5 }"
    text.add("InnerProduct", "fc", "sum", params=fc, blobs=[values(5, 72), values(5)])
    text.add("Accuracy", "accuracy", "fc")
    np.save(tmp_path / "data.npy", values(2, 3, 8, 8, seed=2))
    return text.write(tmp_path)[0]


def run(*words: object) -> int:
    return main([str(word) for word in words])


def test_convert_writes_a_model_and_says_what_became_of_the_net(
    net: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    target = tmp_path / "net.onnx"
    assert run("convert", net, net.with_suffix(".caffemodel"), "-o", target) == 0
    out = capsys.readouterr()
    assert "7 layers as 6 nodes" in out.out
    assert "input   data: Nx3x8x8" in out.out
    assert "output  fc" in out.out
    assert "dropped accuracy (Accuracy): serves training or scoring" in out.out
    assert out.err.split() == ["written:", str(target)]
    session = onnxruntime.InferenceSession(str(target), providers=["CPUExecutionProvider"])
    assert session.run(None, {"data": values(2, 3, 8, 8)})[0].shape == (2, 5)
    assert run("convert", net, "-o", target) == 2
    assert "exists" in capsys.readouterr().err
    assert run("convert", net, "-o", target, "--force", "--json") == 0
    found = json.loads(capsys.readouterr().out)
    assert found["inputs"] == {"data": ["N", 3, 8, 8]}
    assert found["dropped"] == [{"name": "accuracy", "type": "Accuracy", "why": "serves training or scoring"}]


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("net.onnx", "-o", "x.onnx"), "is no Caffe net"),
        (("missing.prototxt", "-o", "x.onnx"), "does not exist"),
        (("net.prototxt", "-o", "x.model"), "does not end in .onnx"),
        (("net.prototxt", "net.prototxt", "-o", "x.onnx"), "does not name a .prototxt and a .caffemodel"),
    ],
)
def test_convert_refuses(
    words: tuple[str, ...],
    told: str,
    net: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(net.parent)
    assert run("convert", *words) == 2
    assert told in capsys.readouterr().err


def test_dump_names_files_by_layer_as_the_vendor_does(
    net: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    given = f"{net},{net.with_suffix('.caffemodel')}"
    dump = ("dump", given, "--data", tmp_path / "data.npy", "--samples", 1, "-o")
    assert run(*dump, tmp_path / "golden", "--format", "ascend-npy") == 0
    assert "left out: 1 tensor inside layers, such as 'fc/flat'" in capsys.readouterr().err
    names = sorted(path.name.rsplit(".", 2)[0] for path in (tmp_path / "golden").glob("*.npy"))
    # Each layer by its own name: the value before and after what works in place are two files.
    assert names == ["conv_1.0", "cut.0", "cut.1", "data.0", "fc.0", "relu_1.0", "sum.0"]
    files = {path.name.rsplit(".", 2)[0]: np.load(path) for path in (tmp_path / "golden").glob("*.npy")}
    assert files["conv_1.0"].min() < 0 <= files["relu_1.0"].min()
    assert np.array_equal(np.concatenate([files["cut.0"], files["cut.1"]], axis=1), files["relu_1.0"])
    # A converted model remembers its layers.
    assert run("convert", net, "-o", tmp_path / "net.onnx") == 0
    again = ("dump", tmp_path / "net.onnx", "--data", tmp_path / "data.npy", "--samples", 1, "-o")
    assert run(*again, tmp_path / "again", "--format", "ascend-npy") == 0
    assert sorted(path.name.rsplit(".", 2)[0] for path in (tmp_path / "again").glob("*.npy")) == names
    # Other formats keep the names of blobs, and all steps.
    assert run(*dump, tmp_path / "npy") == 0
    stored = {each["name"] for each in json.loads((tmp_path / "npy" / "tensors.json").read_text())["tensors"]}
    assert stored == {"data", "conv/1#conv/1", "conv/1", "left", "right", "sum", "fc/flat", "fc"}


def test_a_net_is_taken_wherever_a_model_is(net: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    data = ("--data", tmp_path / "data.npy")
    assert run("convert", net, "-o", tmp_path / "net.onnx") == 0
    assert run("compare", net, tmp_path / "net.onnx", *data, "--json") == 0
    document = json.loads(capsys.readouterr().out.partition("{")[2].join(["{", ""]))
    sizes = [file.stat().st_size for file in (net, net.with_suffix(".caffemodel"))]
    assert document["inputs"][0]["size_bytes"] == sum(sizes)
    quantized = tmp_path / "quantized"
    assert run("quantize", net, "--target", "ascend", *data, "-o", quantized) == 0
    assert (quantized / "net_fake_quant_model.onnx").is_file()
    assert run("layers", net, "--quantized", quantized, *data) == 0
    assert run("sensitivity", net, "--quantized", quantized, *data) == 0
    assert run("audit", quantized) == 0
    # What it was made from is recognised by both files.
    numbers = net.with_suffix(".caffemodel")
    numbers.write_bytes(numbers.read_bytes() + b"\x0a\x03new")
    capsys.readouterr()
    assert run("layers", net, "--quantized", quantized, *data) == 2
    assert "content differs" in capsys.readouterr().err
