"""The right class of each sample, from files as people have them."""

import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from roundoff.errors import BadInput
from roundoff.samples.labels import load_labels

NAMES = ("s0", "s1", "s2")


def labels(folder: Path, text: str, names: tuple[str, ...] = NAMES) -> list[int]:
    path = folder / "labels.csv"
    path.write_text(text, encoding="utf-8")
    return [int(each) for each in load_labels(path, names)]


@pytest.mark.parametrize(
    "text",
    [
        "3\n1\n2\n",
        "label\n3\n1\n2\n\n",
        "s0,3\ns1,1\ns2,2\n",
        "s0 3\ns1  1\ns2\t2\n",
        "s0.JPEG;3\ns1.JPEG;1\ns2.JPEG;2\n",
        "\ufefffile\tlabel\ns0\t3\ns1\t1\ns2\t2\n",
        "file,note,class\ns2.png,x,2\ns1.png,y,1\ns0.png,z,3\nother.png,z,9\n",
        "file,label,wnid,role\ns0.jpg,3,n03,eval\ns1.jpg,1,n01,eval\ns2.jpg,2,n02,calib\n",
        "Label,Width,File\n3,64,s0.jpg\n1,64,s1.jpg\n2,64,s2.jpg\n",
        "id,class,label\ns0,cat,3\ns1,dog,1\ns2,cow,2\n",
        "s0,cat,3\ns1,dog,1\ns2,cow,2\n",
        "val/s0.jpg 3\nval/s1.jpg 1\nval/s2.jpg 2\n",
        'file,label\n"s0",3\n"s1",1\n"s2",2\n',
    ],
)
def test_a_text_or_a_table(text: str, tmp_path: Path) -> None:
    assert labels(tmp_path, text) == [3, 1, 2]


def test_samples_of_one_name_are_told_apart_by_their_folders(tmp_path: Path) -> None:
    text = "file,label\ndata/cats/1.jpg,7\ndata/dogs/1.jpg,8\n"
    assert labels(tmp_path, text, ("dogs/1.jpg", "cats/1.jpg")) == [8, 7]
    with pytest.raises(BadInput, match="has 2 labels for sample '1': 7, 8"):
        labels(tmp_path, text, ("1",))


def test_a_name_may_hold_blanks_and_dots(tmp_path: Path) -> None:
    assert labels(tmp_path, "my cat.png 4\nv1.2.png 5\nv1.3 6\n", ("my cat", "v1.2", "v1.3")) == [4, 5, 6]


def test_arrays(tmp_path: Path) -> None:
    path = tmp_path / "labels.npy"
    np.save(path, np.array([[3], [1]], np.uint8))
    assert load_labels(path, ()).tolist() == [3, 1]
    np.save(path, np.array([0.5]))
    with pytest.raises(BadInput, match="labels are whole numbers"):
        load_labels(path, ())
    path.write_bytes(b"nothing of the kind")
    with pytest.raises(BadInput, match=r"cannot be read as a \.npy file"):
        load_labels(path, ())


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("", "holds no labels"),
        ("label\n", "holds no labels"),
        ("1\n--5\n", "'--5', which is not a class number"),
        ("1\n99999999999999999999\n", "'99999999999999999999', which is not a class number"),
        ("x" * 200_000 + ",1\n", "cannot be read as CSV: field larger than field limit"),
        ("1\ncat\n", "'cat', which is not a class number"),
        ("s0,1\nx,2\n", "has no label for sample 's1'"),
        ("s0,1\ns1,cat\n", "'cat', which is not a class number"),
        ("s0,1\ns1,2,3\n", "holds lines of 2 and of 3 columns"),
        ("s0,1,5\ns1,2,6\n", "has 3 columns, of which several hold whole numbers"),
        ("file,a,b\ns0,x,y1\ns1,x,y2\n", r"has 3 columns \(file, a, b\), of which none holds whole numbers"),
        ("file,label,role\ns0,cat,1\ns1,dog,2\n", "'cat', which is not a class number"),
        ("s0,1\ns0,2\ns1,1\n", "has 2 labels for sample 's0': 1, 2"),
    ],
)
def test_what_cannot_be_used_is_refused(text: str, what: str, tmp_path: Path) -> None:
    with pytest.raises(BadInput, match=what):
        labels(tmp_path, text, ("s0", "s1"))


@given(
    classes=st.lists(st.integers(0, 999), min_size=1, max_size=9),
    order=st.randoms(),
    separator=st.sampled_from(",\t; "),
)
def test_the_order_of_the_lines_does_not_matter(
    classes: list[int], order: random.Random, separator: str, tmp_path_factory: pytest.TempPathFactory
) -> None:
    names = tuple(f"img{index}" for index in range(len(classes)))
    lines = [f"{name}.png{separator}{label}" for name, label in zip(names, classes, strict=True)]
    order.shuffle(lines)
    assert labels(tmp_path_factory.mktemp("labels"), "\n".join(lines), names) == classes


@pytest.mark.parametrize("wrong", [np.array([0, -1]), np.array([2**62]), np.array([2**64 - 1], dtype=np.uint64)])
def test_classes_count_from_zero(wrong: Any, tmp_path: Path) -> None:
    np.save(tmp_path / "labels.npy", wrong)
    with pytest.raises(BadInput, match=f"{wrong[-1]}, which is not a class number"):
        load_labels(tmp_path / "labels.npy", ["a", "b"])
    (tmp_path / "labels.txt").write_text("0\n-1\n", encoding="utf-8")
    with pytest.raises(BadInput, match="'-1', which is not a class number"):
        load_labels(tmp_path / "labels.txt", ["a", "b"])
