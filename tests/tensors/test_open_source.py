"""Choosing a format, and what is said when there is none or more than one."""

import json
import os
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import save_file

from roundoff.errors import BadInput
from roundoff.tensors import FORMATS, open_source
from roundoff.tensors.folders import list_files


def put_npy(folder: Path, name: str = "a.npy") -> None:
    folder.mkdir(parents=True, exist_ok=True)
    np.save(folder / name, np.arange(2, dtype=np.float32))


def test_a_path_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="nowhere does not exist") as caught:
        open_source(tmp_path / "nowhere")
    assert caught.value.fix == "check the path"


def test_an_unknown_format_suggests_the_nearest(tmp_path: Path) -> None:
    put_npy(tmp_path)
    with pytest.raises(BadInput, match="There is no format 'safetensor'") as caught:
        open_source(tmp_path, format="safetensor")
    assert caught.value.fix == "did you mean 'safetensors'?"


@pytest.mark.parametrize("name", FORMATS)
def test_a_folder_without_such_files_holds_none(tmp_path: Path, name: str) -> None:
    (tmp_path / "notes.txt").write_text("")
    with pytest.raises(BadInput, match="holds no ") as caught:
        open_source(tmp_path, format=name)
    assert caught.value.fix


def test_an_empty_folder(tmp_path: Path) -> None:
    (tmp_path / ".hidden.npy").write_bytes(b"")
    with pytest.raises(BadInput, match=r"The folder .* is empty") as caught:
        open_source(tmp_path)
    assert caught.value.fix.startswith("give a folder of .npy")


def test_a_folder_of_other_things_shows_some(tmp_path: Path) -> None:
    for number in range(5):
        (tmp_path / f"{number}.png").write_bytes(b"")
    with pytest.raises(BadInput, match=r"only 0\.png, 1\.png, 2\.png and 2 more"):
        open_source(tmp_path)


@pytest.mark.parametrize("name", ["model.onnx", "weights", "table.xlsx"])
def test_a_file_of_another_kind(tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_bytes(b"\0" * 9)
    with pytest.raises(BadInput, match=f"{name} is not a file of tensors that roundoff can read"):
        open_source(tmp_path / name)


def test_two_kinds_in_one_folder_must_be_chosen_from(tmp_path: Path) -> None:
    put_npy(tmp_path)
    np.savez(tmp_path / "b.npz", x=np.zeros(1))
    save_file({"y": np.zeros(1)}, tmp_path / "c.safetensors")
    with pytest.raises(BadInput, match="could be read as npy or as npz or as safetensors") as caught:
        open_source(tmp_path)
    assert caught.value.fix == "say which is meant: --format npy"
    assert [info.name for info in open_source(tmp_path, format="npz").tensors] == ["x"]


def test_a_manifest_settles_what_is_meant(tmp_path: Path) -> None:
    put_npy(tmp_path)
    np.savez(tmp_path / "b.npz", x=np.zeros(1))
    entry = {"name": "first", "file": "a.npy", "dtype": "float32", "shape": [2]}
    (tmp_path / "manifest.json").write_text(json.dumps([entry]))
    for path in (tmp_path, tmp_path / "manifest.json"):
        assert [info.name for info in open_source(path).tensors] == ["first"]


def test_a_table_of_something_else_is_no_manifest(tmp_path: Path) -> None:
    put_npy(tmp_path)
    np.savez(tmp_path / "b.npz", x=np.zeros(1))
    (tmp_path / "labels.csv").write_text("0\n4\n")
    with pytest.raises(BadInput, match=r"labels\.csv is not a file of tensors .*its first line is '0'") as caught:
        open_source(tmp_path / "labels.csv")
    assert caught.value.fix.startswith("give a folder of .npy")


def test_a_manifest_of_two_kinds_must_be_chosen_from(tmp_path: Path) -> None:
    put_npy(tmp_path)
    (tmp_path / "b.bin").write_bytes(bytes(8))
    about = {"dtype": "float32", "shape": [2]}
    entries = [{"name": file, "file": file, **about} for file in ("a.npy", "b.bin")]
    (tmp_path / "manifest.json").write_text(json.dumps(entries))
    with pytest.raises(BadInput, match="could be read as npy or as bin"):
        open_source(tmp_path)
    problems = {info.name: info.problem for info in open_source(tmp_path, format="bin").tensors}
    assert problems == {"a.npy": "is missing, or not of the format being read", "b.bin": ""}


def test_a_manifest_under_any_name_can_be_given(tmp_path: Path) -> None:
    (tmp_path / "b.bin").write_bytes(bytes(8))
    (tmp_path / "shapes of board.csv").write_text("name,dtype,shape\nb,float32,2\n")
    assert open_source(tmp_path / "shapes of board.csv").read("b", "").tolist() == [0, 0]


def test_a_broken_manifest_is_told_whatever_else_is_there(tmp_path: Path) -> None:
    put_npy(tmp_path)
    (tmp_path / "manifest.json").write_text('{"unrelated": 1}')
    with pytest.raises(BadInput, match="unrelated: unknown key") as caught:
        open_source(tmp_path)
    assert caught.value.fix == "correct it, or rename it if it does not describe these tensors"


def test_a_folder_that_may_not_be_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(path: object) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr("os.scandir", refuse)
    with pytest.raises(BadInput, match=r"The folder .* may not be read"):
        open_source(tmp_path)


def test_a_format_of_ones_own_can_be_added(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    put_npy(tmp_path, "a.npy")
    monkeypatch.setitem(FORMATS, "mine", FORMATS["npy"])
    assert open_source(tmp_path, format="mine").tensors[0].name == "a"


def test_files_are_listed_in_natural_order_with_suffixes_aside(tmp_path: Path) -> None:
    for name in ("a1.npy", "a.npy", "a.bin", "a10.npy", "a2.npy"):
        (tmp_path / name).write_bytes(b"")
    assert list_files(tmp_path) == ["a.bin", "a.npy", "a1.npy", "a2.npy", "a10.npy"]


@pytest.mark.parametrize(("name", "suffix"), [("npy", ".npy"), ("npz", ".npz"), ("ascend-npy", ".npy")])
def test_a_named_format_reads_a_file_under_any_suffix(tmp_path: Path, name: str, suffix: str) -> None:
    saved = tmp_path / f"a{suffix}"
    (np.savez if suffix == ".npz" else np.save)(saved, np.arange(2))
    odd = saved.rename(tmp_path / "a.out")
    source = open_source(odd, format=name)
    assert [source.read(info.name, "").tolist() for info in source.tensors] == [[0, 1]]


def test_pipes_and_devices_are_not_read(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.bin")
    for path in (tmp_path / "pipe.bin", Path(os.devnull)):
        with pytest.raises(BadInput, match="is a pipe or a device, not a file"):
            open_source(path)


def test_a_path_longer_than_the_disk_allows(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="cannot be read: File name too long"):
        open_source(tmp_path / ("n" * 300))


def test_a_link_in_a_circle_is_a_problem_of_one_tensor(tmp_path: Path) -> None:
    put_npy(tmp_path)
    (tmp_path / "loop.npy").symlink_to("loop.npy")
    (tmp_path / "other").symlink_to("other")
    problems = {info.name: info.problem for info in open_source(tmp_path).tensors}
    assert problems == {"a": "", "loop": "Too many levels of symbolic links"}


def test_samples_whose_names_are_no_text_are_spelled_out(tmp_path: Path) -> None:
    put_npy(tmp_path)
    listed = {"name": "a", "dtype": "float32", "shape": [2], "file": "a.npy", "sample": "\ud800"}
    (tmp_path / "manifest.json").write_text(json.dumps([listed]))
    source = open_source(tmp_path)
    assert source.samples == (r"\ud800",)
    assert source.tensors[0].problem == "its name is not valid Unicode"
