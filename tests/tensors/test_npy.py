"""Folders of .npy files: every type and layout, damage, nesting, samples, maps."""

import json
import os
from collections.abc import Mapping
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest

from roundoff.core.tensors import Array, TensorInfo
from roundoff.errors import BadInput
from roundoff.tensors import open_source
from roundoff.tensors.writer import open_writer

ARRAYS = {
    "fortran": np.asfortranarray(np.arange(24, dtype=np.float32).reshape(2, 3, 4)),
    "big_endian": np.arange(6, dtype=">i2").reshape(3, 2),
    "scalar": np.array(3.5, np.float64),
    "empty": np.zeros((0, 4), np.float32),
    "flags": np.array([True, False]),
    "complex": np.array([1 + 2j], np.complex64),
    "half": np.array([1, np.nan, np.inf], np.float16),
    "bytes": np.arange(5, dtype=np.uint8),
    "long": np.array([1, 2], np.longdouble),
    "wide": np.zeros((1,) * 32, np.int8),
}


def problem_of(folder: Path, name: str) -> str:
    return next(info.problem for info in open_source(folder, format="npy").tensors if info.name == name)


def write_npy(path: Path, header: str, values: bytes = b"") -> None:
    text = header.encode("latin-1")
    path.write_bytes(b"\x93NUMPY\x01\x00" + len(text).to_bytes(2, "little") + text + values)


@pytest.mark.parametrize("name", ARRAYS)
def test_reads_every_type_and_layout(tmp_path: Path, name: str) -> None:
    array = ARRAYS[name]
    np.save(tmp_path / f"{name}.npy", array)
    values = open_source(tmp_path).read(name, "")
    np.testing.assert_array_equal(values, array)
    assert values.shape == array.shape
    assert values.dtype == array.dtype.newbyteorder("=")


def test_values_are_mapped_and_read_only(tmp_path: Path) -> None:
    np.save(tmp_path / "a.npy", np.zeros(8))
    values = open_source(tmp_path).read("a", "")
    assert not values.flags.writeable
    assert not values.flags.owndata


def test_one_file_is_a_source_of_one_tensor(tmp_path: Path) -> None:
    np.save(tmp_path / "conv1.npy", np.arange(3))
    np.save(tmp_path / "other.npy", np.arange(3))
    source = open_source(tmp_path / "conv1.npy")
    assert source.tensors == (TensorInfo("conv1", "int64", (3,)),)
    assert not source.ordered


@pytest.mark.parametrize(
    ("array", "problem"),
    [
        (np.array([{}, None], object), "holds Python objects (a pickle), which are never loaded"),
        (np.zeros(2, [("a", "f4"), ("b", "i4")]), "holds records of several fields, not plain numbers"),
        (np.array(["text"]), "holds values of type '<U4', not numbers"),
        (np.array(["2020-01-01"], "M8[D]"), "holds values of type '<M8[D]', not numbers"),
        (np.zeros(2, "V3"), "holds raw values of 3 bytes without saying of which type"),
        (np.zeros(2, ml_dtypes.bfloat16), "holds raw values of 2 bytes without saying of which type"),
        (np.zeros(2, ml_dtypes.float8_e5m2), "holds raw values of 1 bytes without saying of which type"),
    ],
)
def test_what_is_not_plain_numbers_is_listed_and_refused(tmp_path: Path, array: Array, problem: str) -> None:
    np.save(tmp_path / "odd.npy", array, allow_pickle=True)
    np.save(tmp_path / "good.npy", np.arange(3))
    assert problem_of(tmp_path, "odd") == problem
    source = open_source(tmp_path)
    with pytest.raises(BadInput, match=r"odd\.npy"):
        source.read("odd", "")
    assert source.read("good", "").sum() == 3


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        (b"", "is empty"),
        (b"hello world!", "is not a .npy file: it does not begin with the magic bytes"),
        (b"\x93NUMPY", "the .npy header is cut off or of an unknown version"),
        (b"\x93NUMPY\x09\x00\x10\x00" + b" " * 16, "the .npy header is cut off or of an unknown version"),
        (b"\x93NUMPY\x01\x00\x76\x00{'descr'", "truncated: the header alone needs 128 bytes, the file has 18"),
        (b"\x93NUMPY\x02\x00\xff\xff\xff\x7f{}", "the .npy header claims to be 2147483647 bytes long"),
    ],
)
def test_damaged_files_say_what_is_wrong(tmp_path: Path, content: bytes, problem: str) -> None:
    (tmp_path / "bad.npy").write_bytes(content)
    assert problem_of(tmp_path, "bad") == problem


@pytest.mark.parametrize(
    ("header", "problem"),
    [
        ("{'descr': '<f4', 'shape': (2,)}", "header is damaged: \"{'descr': '<f4', 'shape': (2,)}\""),
        ("not python", "header is damaged: 'not python'"),
        ("(" * 3000, "header is damaged: '" + "(" * 100),
        ("{'descr': '<f4', 'fortran_order': 0, 'shape': (2,)}", "'fortran_order': 0"),
        ("{'descr': '<f4', 'fortran_order': False, 'shape': (-2,)}", "its shape is (-2,)"),
        ("{'descr': '<f4', 'fortran_order': False, 'shape': [2]}", "'shape': [2]"),
        (
            "{'descr': '<f4', 'fortran_order': False, 'shape': (0, 2**70)}".replace("2**70", str(2**70)),
            "impossible",
        ),
        (f"{{'descr': '<f4', 'fortran_order': False, 'shape': {(1,) * 65}}}", "has 65 axes, more than the 64"),
        ("{'descr': '<i3', 'fortran_order': False, 'shape': (2,)}", "'descr': '<i3'"),
    ],
)
def test_damaged_headers_say_what_is_wrong(tmp_path: Path, header: str, problem: str) -> None:
    write_npy(tmp_path / "bad.npy", header)
    assert problem in problem_of(tmp_path, "bad")


def test_headers_of_python_2_are_understood(tmp_path: Path) -> None:
    header = "{'descr': '<i2', 'fortran_order': False, 'shape': (2L, 1L), }\n"
    write_npy(tmp_path / "old.npy", header, np.array([5, 6], "<i2").tobytes())
    assert open_source(tmp_path).read("old", "").tolist() == [[5], [6]]


def test_a_truncated_file_keeps_its_type_and_shape(tmp_path: Path) -> None:
    np.save(tmp_path / "a.npy", np.zeros((10, 10), np.float32))
    path = tmp_path / "a.npy"
    path.write_bytes(path.read_bytes()[:-360])
    assert open_source(tmp_path).tensors == (
        TensorInfo("a", "float32", (10, 10), problem="truncated: 40 of 400 bytes"),
    )


def test_surplus_bytes_are_a_problem(tmp_path: Path) -> None:
    with (tmp_path / "a.npy").open("wb") as file:
        np.save(file, np.zeros(2, np.float32))
        np.save(file, np.ones(2, np.float32))
    assert problem_of(tmp_path, "a") == "144 bytes of values where the header says 8"


def test_what_is_no_regular_file_does_not_block(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.npy")
    (tmp_path / "link.npy").symlink_to(tmp_path / "nowhere.npy")
    assert problem_of(tmp_path, "pipe") == "is not a regular file"
    assert problem_of(tmp_path, "link") == "the file is missing"


def test_a_file_that_vanishes_after_opening_is_bad_input(tmp_path: Path) -> None:
    np.save(tmp_path / "a.npy", np.zeros(2))
    source = open_source(tmp_path)
    (tmp_path / "a.npy").unlink()
    with pytest.raises(BadInput, match=r"a\.npy: the file is missing"):
        source.read("a", "")


@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() == 0, reason="root may read everything")
def test_an_unreadable_file_is_one_row(tmp_path: Path) -> None:
    np.save(tmp_path / "a.npy", np.zeros(2))
    (tmp_path / "a.npy").chmod(0)
    assert problem_of(tmp_path, "a") == "the file may not be read"


def test_nested_files_are_named_by_their_paths_in_natural_order(tmp_path: Path) -> None:
    for name in ("layer10/out", "layer2/out", "layer2/in", "top", ".hidden", ".cache/x"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        np.save(tmp_path / f"{name}.npy", np.zeros(1))
    (tmp_path / "README.txt").write_text("ignored")
    (tmp_path / "UPPER.NPY").write_bytes((tmp_path / "top.npy").read_bytes())
    names = [info.name for info in open_source(tmp_path).tensors]
    assert names == ["UPPER", "layer2/in", "layer2/out", "layer10/out", "top"]


def test_linked_folders_are_followed_once(tmp_path: Path) -> None:
    folder = tmp_path / "dump"
    (folder / "sub").mkdir(parents=True)
    np.save(folder / "sub" / "a.npy", np.zeros(1))
    (folder / "sub" / "loop").symlink_to(folder)
    assert [info.name for info in open_source(folder).tensors] == ["sub/a"]


def test_names_that_are_not_unicode_can_be_shown(tmp_path: Path) -> None:
    np.save(tmp_path / os.fsdecode(b"caf\xe9.npy"), np.arange(2))
    source = open_source(tmp_path)
    assert [info.name for info in source.tensors] == ["caf\\xe9"]
    assert source.read("caf\\xe9", "").tolist() == [0, 1]


@pytest.mark.parametrize("tops", [("0", "1", "10"), ("sample_a", "Sample-b")])
def test_folders_called_like_samples_are_samples(tmp_path: Path, tops: tuple[str, ...]) -> None:
    for number, top in enumerate(tops):
        (tmp_path / top / "deep").mkdir(parents=True)
        np.save(tmp_path / top / "conv.npy", np.full(2, number))
        np.save(tmp_path / top / "deep" / "fc.npy", np.full(3, number))
    source = open_source(tmp_path)
    assert sorted(source.samples) == sorted(tops)
    assert [info.name for info in source.tensors] == ["conv", "deep/fc"]
    for number, top in enumerate(tops):
        assert source.read("conv", top).tolist() == [number, number]


def test_samples_come_in_natural_order_and_may_lack_tensors(tmp_path: Path) -> None:
    for top, names in {"2": ("a", "b", "c"), "10": ("a", "b")}.items():
        (tmp_path / top).mkdir()
        for name in names:
            np.save(tmp_path / top / f"{name}.npy", np.zeros(1))
    source = open_source(tmp_path)
    assert source.samples == ("2", "10")
    with pytest.raises(BadInput, match="has no tensor 'c' in sample '10'"):
        source.read("c", "10")


@pytest.mark.parametrize("files", [("encoder/a", "decoder/a"), ("0/a", "1/b", "2/c"), ("0/a", "1/a", "loose")])
def test_other_folders_are_part_of_the_names(tmp_path: Path, files: tuple[str, ...]) -> None:
    for file in files:
        (tmp_path / file).parent.mkdir(exist_ok=True)
        np.save(tmp_path / f"{file}.npy", np.zeros(1))
    source = open_source(tmp_path)
    assert source.samples == ("",)
    assert {info.name for info in source.tensors} == set(files)


def test_a_tensor_broken_in_one_sample_is_described_by_another(tmp_path: Path) -> None:
    for top in ("0", "1"):
        (tmp_path / top).mkdir()
        np.save(tmp_path / top / "a.npy", np.arange(4))
    (tmp_path / "0" / "a.npy").write_bytes(b"")
    source = open_source(tmp_path)
    assert source.tensors == (TensorInfo("a", "int64", (4,)),)
    with pytest.raises(BadInput, match="is empty"):
        source.read("a", "0")
    assert source.read("a", "1").size == 4


def write_map(folder: Path, *entries: Mapping[str, object], samples: tuple[str, ...] = ("",)) -> None:
    document = {"format": "roundoff-tensors", "version": 1, "ordered": True}
    text = json.dumps({**document, "samples": samples, "tensors": entries})
    (folder / "tensors.json").write_text(text)


def test_the_map_gives_names_order_nodes_and_the_rest_is_listed_after(tmp_path: Path) -> None:
    for file in ("x1", "x2", "extra"):
        np.save(tmp_path / f"{file}.npy", np.zeros(2, np.float32))
    about = {"dtype": "float32", "shape": [2]}
    write_map(
        tmp_path,
        {"name": "/second", "file": "x2.npy", "node": "Relu_1", "op_type": "Relu", **about},
        {"name": "extra", "file": "x1.npy", **about},
        {"name": "gone", "file": "gone.npy", **about},
    )
    source = open_source(tmp_path)
    assert source.ordered
    assert source.tensors == (
        TensorInfo("/second", "float32", (2,), node="Relu_1", op_type="Relu"),
        TensorInfo("extra", "float32", (2,)),
        TensorInfo("gone", problem="is missing, or not of the format being read"),
        TensorInfo("extra.npy", "float32", (2,)),
    )
    assert open_source(tmp_path / "tensors.json").tensors == source.tensors


def test_files_beside_those_of_a_sample_belong_to_it(tmp_path: Path) -> None:
    about = {"name": "a", "dtype": "int64", "shape": [1]}
    for top in ("x", "y"):
        (tmp_path / top).mkdir()
        for name in ("a", "more"):
            np.save(tmp_path / top / f"{name}.npy", np.array([ord(top)]))
    np.save(tmp_path / "stray.npy", np.array([0]))
    samples = ("first", "second")
    entries = [{**about, "file": f"{top}/a.npy", "sample": s} for top, s in zip("xy", samples, strict=True)]
    write_map(tmp_path, *entries, samples=samples)
    source = open_source(tmp_path)
    assert source.samples == samples
    assert [info.name for info in source.tensors] == ["a", "stray", "more"]
    assert source.read("more", "second").tolist() == [ord("y")]
    assert source.read("stray", "first").tolist() == [0]


@pytest.mark.parametrize("dtype", [ml_dtypes.bfloat16, ml_dtypes.float8_e4m3fn, ml_dtypes.float8_e5m2])
@pytest.mark.parametrize("stored", ["itself", "bits", "float32"])
def test_types_numpy_does_not_know_are_read_through_the_map(tmp_path: Path, dtype: type, stored: str) -> None:
    truth: Array = np.array([[1.5, -2.0], [0.25, np.nan]]).astype(dtype)
    as_stored = {"itself": truth, "bits": truth.view(f"u{truth.itemsize}"), "float32": truth.astype(np.float32)}
    np.save(tmp_path / "a.npy", as_stored[stored])
    write_map(tmp_path, {"name": "a", "file": "a.npy", "dtype": truth.dtype.name, "shape": [2, 2]})
    source = open_source(tmp_path)
    assert source.tensors == (TensorInfo("a", truth.dtype.name, (2, 2)),)
    values = source.read("a", "")
    assert values.dtype == np.float32
    np.testing.assert_array_equal(values, truth.astype(np.float32))


@pytest.mark.parametrize("declared", [{"dtype": "int32", "shape": [2]}, {"dtype": "float32", "shape": [1, 2]}])
def test_a_map_that_contradicts_the_file_is_a_problem(tmp_path: Path, declared: dict[str, object]) -> None:
    np.save(tmp_path / "a.npy", np.zeros(2, np.float32))
    write_map(tmp_path, {"name": "a", "file": "a.npy", **declared})
    info = open_source(tmp_path).tensors[0]
    assert info.problem == (
        f"tensors.json says {declared['dtype']} {declared['shape']}, the file holds float32 [2]"
    )


def test_links_that_leave_the_folder_are_refused(tmp_path: Path) -> None:
    folder, outside = tmp_path / "dump", tmp_path / "outside"
    folder.mkdir()
    outside.mkdir()
    np.save(outside / "secret.npy", np.zeros(1))
    np.save(folder / "inside.npy", np.zeros(1))
    (folder / "file.npy").symlink_to(outside / "secret.npy")
    (folder / "sub").symlink_to(outside)
    (folder / "fine.npy").symlink_to(folder / "inside.npy")
    about = {"dtype": "float64", "shape": [1]}
    files = ("file.npy", "sub/secret.npy", "fine.npy", "inside.npy")
    write_map(folder, *[{"name": file, "file": file, **about} for file in files])
    problems = [info.problem for info in open_source(folder).tensors]
    assert problems == ["is a link that leaves the folder"] * 2 + [""] * 2


def dump(folder: Path, *, samples: tuple[str, ...] = ("",)) -> None:
    with open_writer(folder, "npy", samples=samples) as writer:
        for sample in samples:
            writer.begin_sample(sample)
            writer.write(TensorInfo("/a:0"), np.arange(2))


def test_folders_of_dumps_called_like_samples_are_samples(tmp_path: Path) -> None:
    dump(tmp_path / "2")
    dump(tmp_path / "10", samples=("x", "y"))
    source = open_source(tmp_path)
    assert source.samples == ("2", "10/x", "10/y")
    assert source.ordered
    assert source.read("/a:0", "10/y").tolist() == [0, 1]


@pytest.mark.parametrize("names", [("first", "second"), ("0", "runs/1")])
def test_folders_of_other_dumps_must_be_chosen_from(tmp_path: Path, names: tuple[str, ...]) -> None:
    for name in names:
        dump(tmp_path / name)
    with pytest.raises(BadInput, match=f"is not a dump itself, but holds some: {', '.join(names)}") as caught:
        open_source(tmp_path)
    assert caught.value.fix == f"give one of them, as in {tmp_path / names[0]}"


def test_dumps_beside_loose_files_must_be_chosen_from(tmp_path: Path) -> None:
    dump(tmp_path / "0")
    np.save(tmp_path / "loose.npy", np.zeros(1))
    with pytest.raises(BadInput, match="is not a dump itself"):
        open_source(tmp_path)
