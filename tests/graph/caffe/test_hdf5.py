"""Numbers of a net in HDF5, as Caffe stores them on request."""

import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from roundoff.cli import main
from roundoff.core.files import caffe_pair, is_caffe, joined_pairs
from roundoff.core.tensors import Array
from roundoff.errors import BadInput
from roundoff.graph.caffe.convert import import_caffe
from roundoff.graph.caffe.net import read_weights
from tests.graph.caffe.nets import NetText, relative_error, run_all, values

SHARED = "convolution_param { num_output: 3 kernel_size: 1 } param { name: 'w' } param { name: '%s' }"


def two_layers() -> NetText:
    net = NetText({"data": (2, 3, 5, 5)})
    net.add("Convolution", "one/a", "data", params=SHARED % "b", blobs=[values(3, 3, 1, 1), values(3, seed=1)])
    return net.add(
        "Convolution", "two", "data", params=SHARED % "c", blobs=[values(3, 3, 1, 1), values(3, seed=2)]
    )


def stored(net: NetText, path: Path) -> Any:
    """What Caffe stores: a group for each layer, a blob that is shared with its first layer alone."""
    h5py = pytest.importorskip("h5py", reason="h5py is not installed")
    with h5py.File(path, "w") as file:
        for name, (_, blobs) in net.blobs.items():
            for number, blob in enumerate(blobs):
                if (name, number) != ("two", 0):
                    file[f"data/{name}/{number}"] = blob.astype(np.float64 if number else np.float32)
    return h5py


def test_the_same_numbers_as_from_the_other_form(tmp_path: Path) -> None:
    net = two_layers()
    prototxt, other = net.write(tmp_path)
    stored(net, tmp_path / "net.caffemodel.h5")
    data = values(2, 3, 5, 5, seed=4)
    wanted = run_all(import_caffe(prototxt, other).model, {"data": data})
    other.unlink()
    assert caffe_pair(prototxt) == (prototxt, tmp_path / "net.caffemodel.h5")
    found = run_all(import_caffe(*caffe_pair(prototxt)).model, {"data": data})
    for name in ("one/a", "two"):
        assert np.array_equal(found[name], wanted[name])
        weights, bias = net.blobs[name][1]
        plain: Array = np.einsum("oc,nchw->nohw", weights[:, :, 0, 0], data) + bias[:, None, None]
        assert relative_error(found[name], plain) < 1e-6


def test_it_is_named_like_the_other_form(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    both = Path("net.prototxt,other.caffemodel.h5")
    assert is_caffe(both)
    assert caffe_pair(both) == (Path("net.prototxt"), Path("other.caffemodel.h5"))
    assert not is_caffe(Path("values.h5"))
    assert joined_pairs(["dump", "a.prototxt", "b.caffemodel.h5"]) == ["dump", "a.prototxt,b.caffemodel.h5"]
    monkeypatch.chdir(tmp_path)
    net = two_layers()
    net.write(tmp_path)
    stored(net, Path("numbers.caffemodel.h5"))
    assert main(["convert", "net.prototxt", "numbers.caffemodel.h5", "-o", "net.onnx"]) == 0
    capsys.readouterr()


def test_without_the_package_it_says_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "net.caffemodel.h5"
    path.write_bytes(b"\x89HDF\r\n\x1a\n" + bytes(100))
    monkeypatch.setitem(sys.modules, "h5py", None)
    with pytest.raises(BadInput, match="needs the package 'h5py'") as caught:
        read_weights(path)
    assert caught.value.fix == "pip install h5py"


def test_damage_and_links_to_elsewhere(tmp_path: Path) -> None:
    path = tmp_path / "net.caffemodel.h5"
    h5py = stored(two_layers(), path)
    whole = path.read_bytes()
    path.write_bytes(whole[: len(whole) // 2])
    with pytest.raises(BadInput, match="cannot be read"):
        read_weights(path)
    path.write_bytes(whole)
    with h5py.File(path, "a") as file:
        file["data/link/0"] = h5py.ExternalLink("elsewhere.h5", "/x")
        file["data/loop/again"] = file["data"]
    assert sorted(read_weights(path).blobs) == ["one/a", "two"]
    with h5py.File(path, "w") as file:
        file["other"] = np.zeros(3)
    with pytest.raises(BadInput, match="holds no numbers of layers"):
        read_weights(path)
