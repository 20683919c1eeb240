"""Which files a path that names a model stands for."""

from pathlib import Path

import pytest

from roundoff.core.files import caffe_pair, is_caffe, is_model, joined_pairs, model_files, model_stem, pair_path
from roundoff.errors import BadInput


@pytest.mark.parametrize(
    ("path", "model", "caffe"),
    [
        ("a.onnx", True, False),
        ("a.ONNX", True, False),
        ("a.prototxt", True, True),
        ("a.prototxt,b.caffemodel", True, True),
        ("b.caffemodel,a.prototxt", True, True),
        ("dump", False, False),
        ("a.npz", False, False),
    ],
)
def test_models_are_known_by_their_endings(path: str, *, model: bool, caffe: bool) -> None:
    assert is_model(Path(path)) == model
    assert is_caffe(Path(path)) == caffe


@pytest.mark.parametrize(
    ("typed", "joined"),
    [
        ("layers a.prototxt b.caffemodel", "layers a.prototxt,b.caffemodel"),
        ("layers b.caffemodel a.prototxt", "layers b.caffemodel,a.prototxt"),
        (
            "compare a.prototxt b.caffemodel c.prototxt d.caffemodel",
            "compare a.prototxt,b.caffemodel c.prototxt,d.caffemodel",
        ),
        ("amct --weights b.caffemodel a.prototxt", "amct --weights b.caffemodel a.prototxt"),
        ("b.caffemodel a.prototxt", "b.caffemodel,a.prototxt"),
        (
            "compare b.caffemodel a.prototxt d.caffemodel c.prototxt",
            "compare b.caffemodel,a.prototxt d.caffemodel,c.prototxt",
        ),
    ],
)
def test_two_files_one_behind_the_other_are_one_net(typed: str, joined: str) -> None:
    assert joined_pairs(typed.split()) == joined.split()


def test_both_files_may_be_named(tmp_path: Path) -> None:
    net, numbers = tmp_path / "a.prototxt", tmp_path / "b.caffemodel"
    assert caffe_pair(Path(f"{net},{numbers}")) == (net, numbers)
    assert caffe_pair(Path(f"{numbers},{net}")) == (net, numbers)
    assert model_files(Path(f"{net},{numbers}")) == (net, numbers)
    assert model_files(Path("x.onnx")) == (Path("x.onnx"),)
    assert model_stem(Path(f"{numbers},{net}")) == "a"
    assert model_stem(Path("x.onnx")) == "x"


def test_the_numbers_are_found_beside_the_net(tmp_path: Path) -> None:
    net = tmp_path / "net.prototxt"
    net.touch()
    assert caffe_pair(net) == (net, None)
    (tmp_path / "other.caffemodel").touch()
    assert caffe_pair(net)[1] == tmp_path / "other.caffemodel"
    (tmp_path / "another.caffemodel").touch()
    with pytest.raises(BadInput, match="there are 2"):
        caffe_pair(net)
    (tmp_path / "net.caffemodel").touch()
    assert caffe_pair(net)[1] == tmp_path / "net.caffemodel"


def test_two_files_become_one_path(tmp_path: Path) -> None:
    net, numbers = tmp_path / "net.prototxt", tmp_path / "net.caffemodel"
    net.touch()
    numbers.touch()
    (tmp_path / "other.caffemodel").touch()
    assert pair_path(net, numbers) == pair_path(net, None) == net
    both = pair_path(net, tmp_path / "other.caffemodel")
    assert caffe_pair(both) == (net, tmp_path / "other.caffemodel")


def test_a_comma_in_a_name_is_no_pair(tmp_path: Path) -> None:
    net = tmp_path / "a,b.prototxt"
    net.touch()
    (tmp_path / "a,b.caffemodel").touch()
    assert caffe_pair(net) == (net, tmp_path / "a,b.caffemodel")


@pytest.mark.parametrize(
    "path", ["a.caffemodel", "a.prototxt,b.prototxt", "a.onnx,b.caffemodel", "a,b,c.prototxt"]
)
def test_what_is_no_pair_is_refused(path: str) -> None:
    with pytest.raises(BadInput, match=r"does not name") as caught:
        caffe_pair(Path(path))
    assert "net.prototxt,net.caffemodel" in caught.value.fix


def test_weights_that_are_called_after_their_model(tmp_path: Path) -> None:
    for name in ("a_model.prototxt", "a_weights.caffemodel", "b_weights.caffemodel", "c.caffemodel"):
        (tmp_path / name).touch()
    assert caffe_pair(tmp_path / "a_model.prototxt")[1] == tmp_path / "a_weights.caffemodel"
    (tmp_path / "a_model.caffemodel").touch()
    assert caffe_pair(tmp_path / "a_model.prototxt")[1] == tmp_path / "a_model.caffemodel"
