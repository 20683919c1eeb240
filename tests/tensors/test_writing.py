"""Whatever is written is read again: names, order, values, samples."""

import errno
import json
import os
import tempfile
import zipfile
from pathlib import Path
from typing import get_args

import ml_dtypes
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from roundoff.core.tensors import Array, TensorInfo
from roundoff.errors import BadInput
from roundoff.tensors import open_source
from roundoff.tensors.manifest import read_manifest
from roundoff.tensors.writer import WriteFormat, open_writer

WRITE_FORMATS: tuple[WriteFormat, ...] = get_args(WriteFormat)
EXTENDED = (ml_dtypes.bfloat16, ml_dtypes.float8_e4m3fn, ml_dtypes.float8_e5m2, ml_dtypes.int4)

NAMES = st.one_of(
    st.text(max_size=8),
    st.text(alphabet="aA_/.:\\\0 ", max_size=4),
    st.text(alphabet="ab/\u5377", min_size=240, max_size=300),
    st.sampled_from(["con", "..", "a/../b", "tensors", "tensors.json", "/abs", "a.npy", "C:\\x"]),
)
SHAPES = hnp.array_shapes(min_dims=0, max_dims=4, min_side=0, max_side=4)
PLAIN = hnp.arrays(
    st.one_of(hnp.boolean_dtypes(), hnp.integer_dtypes(endianness="?"), hnp.floating_dtypes(endianness="?")),
    SHAPES,
)


@st.composite
def arrays(draw: st.DrawFn) -> Array:
    """Any numbers in any memory layout."""
    array = draw(PLAIN | hnp.arrays(np.complex64, SHAPES))
    if draw(st.booleans()):
        array = (array != 0).astype(draw(st.sampled_from(EXTENDED)))
    if array.ndim > 1 and draw(st.booleans()):
        array = np.asfortranarray(array)
    if array.ndim > 0 and draw(st.booleans()):
        array = np.repeat(array, 2, axis=0)[::2]
    return array


def readable(array: Array) -> Array:
    """What must come back: the same numbers, in native order, with bfloat16 and its kin as float32."""
    if array.dtype.isbuiltin == 2:
        return array.astype(np.float32)
    return array.astype(array.dtype.newbyteorder("="))


def same(left: Array, right: Array) -> bool:
    """Bit for bit, so that NaN and -0.0 count too."""
    return left.dtype == right.dtype and left.shape == right.shape and left.tobytes() == right.tobytes()


@pytest.mark.parametrize("kind", WRITE_FORMATS)
@given(
    samples=st.lists(NAMES, min_size=1, max_size=3, unique=True),
    tensors=st.dictionaries(NAMES, st.tuples(arrays(), NAMES), min_size=1, max_size=5),
)
@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_round_trip(kind: WriteFormat, samples: list[str], tensors: dict[str, tuple[Array, str]]) -> None:
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch) / "dump"
        with open_writer(folder, kind, samples=samples) as writer:
            for sample in samples:
                writer.begin_sample(sample)
                for name, (array, node) in tensors.items():
                    writer.write(TensorInfo(name, node=node, op_type="Op" if node else ""), array)
        source = open_source(folder)
        assert source.ordered
        assert source.samples == tuple(samples)
        assert source.tensors == tuple(
            TensorInfo(name, array.dtype.name, array.shape, node=node, op_type="Op" if node else "")
            for name, (array, node) in tensors.items()
        )
        for sample in samples:
            for name, (array, _) in tensors.items():
                assert same(source.read(name, sample), readable(array)), (name, array)


def write_two(folder: Path, kind: WriteFormat, *, samples: tuple[str, ...] = ("",)) -> None:
    with open_writer(folder, kind, samples=samples, timestamp_us=1_700_000_000_000_000) as writer:
        for sample in samples:
            writer.begin_sample(sample)
            writer.write(TensorInfo("/a:0", node="a", op_type="Conv"), np.arange(4, dtype=np.float32))
            writer.write(TensorInfo("b"), np.arange(3, dtype=ml_dtypes.bfloat16))


def files_below(folder: Path) -> list[str]:
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file())


@pytest.mark.parametrize(
    ("kind", "files"),
    [
        ("npy", ["_a_0.npy", "b.npy", "tensors.json"]),
        ("npz", ["tensors.json", "tensors.npz"]),
        ("bin", ["_a_0.bin", "b.bin", "tensors.json"]),
        ("ascend-npy", ["a.0.1700000000000000.npy", "b.0.1700000000000000.npy", "tensors.json"]),
    ],
)
def test_one_sample_lies_flat(tmp_path: Path, kind: WriteFormat, files: list[str]) -> None:
    write_two(tmp_path, kind)
    assert files_below(tmp_path) == files


def test_several_samples_lie_apart(tmp_path: Path) -> None:
    write_two(tmp_path / "npy", "npy", samples=("img/1", "img_1"))
    folders = {path.name for path in (tmp_path / "npy").iterdir()} - {"tensors.json"}
    assert "img_1" in folders
    assert len(folders) == 2
    write_two(tmp_path / "npz", "npz", samples=("x", "tensors"))
    assert files_below(tmp_path / "npz") == ["tensors.json", "tensors.npz", "x.npz"]


def test_the_map_tells_all(tmp_path: Path) -> None:
    write_two(tmp_path, "npy")
    document = json.loads((tmp_path / "tensors.json").read_text())
    assert document == {
        "format": "roundoff-tensors",
        "version": 1,
        "ordered": True,
        "samples": [""],
        "tensors": [
            {
                "name": "/a:0",
                "file": "_a_0.npy",
                "dtype": "float32",
                "shape": [4],
                "node": "a",
                "op_type": "Conv",
            },
            {"name": "b", "file": "b.npy", "dtype": "bfloat16", "shape": [3]},
        ],
    }


def test_what_is_stored_is_what_others_can_read(tmp_path: Path) -> None:
    for kind in ("npy", "npz", "bin"):
        write_two(tmp_path / kind, kind)
    assert np.load(tmp_path / "npy" / "b.npy").dtype == np.float32
    with np.load(tmp_path / "npz" / "tensors.npz") as archive:
        assert archive["/a:0"].tolist() == [0, 1, 2, 3]
    raw = np.arange(3, dtype=ml_dtypes.bfloat16).tobytes()
    assert (tmp_path / "bin" / "b.bin").read_bytes() == raw


def test_an_archive_alone_keeps_the_names_it_can(tmp_path: Path) -> None:
    names = ["/net/conv 1:0", "\u5377\u79ef", "a\0b", "a/../../b"]
    with open_writer(tmp_path, "npz", samples=[""]) as writer:
        writer.begin_sample("")
        for name in names:
            writer.write(TensorInfo(name), np.zeros(1))
    found = {info.name for info in open_source(tmp_path / "tensors.npz").tensors}
    assert found == {"/net/conv 1:0", "\u5377\u79ef", "a_b", "a/_/_/b"}
    with zipfile.ZipFile(tmp_path / "tensors.npz") as archive:
        assert archive.testzip() is None


@pytest.mark.parametrize("kind", WRITE_FORMATS)
def test_the_same_tensors_give_the_same_bytes(tmp_path: Path, kind: WriteFormat) -> None:
    contents = []
    for run in ("one", "two"):
        write_two(tmp_path / run, kind, samples=("x", "y"))
        folder = tmp_path / run
        contents.append({file: (folder / file).read_bytes() for file in files_below(folder)})
    assert contents[0] == contents[1]


def test_samples_that_never_came_are_not_listed(tmp_path: Path) -> None:
    with open_writer(tmp_path, "npy", samples=["x", "y"]) as writer:
        writer.begin_sample("x")
        writer.write(TensorInfo("a"), np.zeros(1))
    assert read_manifest(tmp_path / "tensors.json").samples == ["x"]


@pytest.mark.parametrize("kind", WRITE_FORMATS)
def test_after_an_error_there_is_no_map(tmp_path: Path, kind: WriteFormat) -> None:
    def interrupted() -> None:
        with open_writer(tmp_path, kind, samples=[""]) as writer:
            writer.begin_sample("")
            writer.write(TensorInfo("a"), np.zeros(1))
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert not (tmp_path / "tensors.json").exists()


@pytest.mark.parametrize("values", [np.array(["text"]), np.array([None]), np.zeros(1, "f4,f4")])
def test_tensors_that_are_no_numbers_are_refused(tmp_path: Path, values: Array) -> None:
    with open_writer(tmp_path, "npy", samples=[""]) as writer:
        writer.begin_sample("")
        with pytest.raises(BadInput, match=r"Tensor 'label' holds .*; it cannot be written") as caught:
            writer.write(TensorInfo("label"), values)
    assert caught.value.fix == "leave it out: choose others with --tensors"


def test_samples_of_one_name_are_refused(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="Two samples have the same name: x, x"):
        open_writer(tmp_path, "npy", samples=["x", "x"])


def test_wrong_use_is_an_error_of_the_program(tmp_path: Path) -> None:
    writer = open_writer(tmp_path, "npy", samples=["x"])
    with pytest.raises(ValueError, match="before any sample"):
        writer.write(TensorInfo("a"), np.zeros(1))
    with pytest.raises(ValueError, match="was not announced"):
        writer.begin_sample("y")
    writer.begin_sample("x")
    writer.write(TensorInfo("a"), np.zeros(1))
    with pytest.raises(ValueError, match="or twice in one"):
        writer.write(TensorInfo("a"), np.zeros(1))


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs a device that is always full")
@pytest.mark.parametrize("kind", ["npy", "bin", "ascend-npy"])
def test_a_full_disk_is_named(tmp_path: Path, kind: WriteFormat) -> None:
    name = {"npy": "a.npy", "bin": "a.bin", "ascend-npy": "a.0.7.npy"}[kind]
    (tmp_path / name).symlink_to("/dev/full")
    writer = open_writer(tmp_path, kind, samples=[""], timestamp_us=7)
    writer.begin_sample("")
    with pytest.raises(BadInput, match="The disk is full"):
        writer.write(TensorInfo("a"), np.zeros(100_000))


def test_an_error_of_the_disk_is_bad_input(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object, **__: object) -> None:
        raise OSError(errno.EROFS, os.strerror(errno.EROFS))

    monkeypatch.setattr("zipfile.ZipFile", fail)
    writer = open_writer(tmp_path, "npz", samples=[""])
    with pytest.raises(BadInput, match="Read-only file system"):
        writer.begin_sample("")


def test_a_file_in_the_way_is_bad_input(tmp_path: Path) -> None:
    (tmp_path / "out").write_text("")
    with pytest.raises(BadInput, match="could not be written"):
        open_writer(tmp_path / "out", "npy", samples=[""])
