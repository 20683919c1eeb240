"""Results appear whole or not at all, and nothing of the user's is lost."""

import errno
from pathlib import Path

import pytest

from roundoff.core.files import output_directory, reading, write_text, writing
from roundoff.errors import BadInput


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_the_folder_appears_when_it_is_complete(tmp_path: Path) -> None:
    target = tmp_path / "deep" / "out"
    with output_directory(target, marker="m.json") as staged:
        (staged / "m.json").write_text("{}")
        assert not target.exists()
    assert names(target) == ["m.json"]
    assert names(target.parent) == ["out"]


@pytest.mark.parametrize("error", [RuntimeError, KeyboardInterrupt])
def test_nothing_is_left_after_a_failure(tmp_path: Path, error: type[BaseException]) -> None:
    with pytest.raises(error), output_directory(tmp_path / "out", marker="m.json") as staged:  # noqa: PT012
        (staged / "m.json").write_text("{}")
        raise error
    assert names(tmp_path) == []


def test_a_failed_replacement_keeps_the_old_result(tmp_path: Path) -> None:
    target = tmp_path / "out"
    with output_directory(target, marker="m.json") as staged:
        (staged / "m.json").write_text("old")
    with pytest.raises(RuntimeError), output_directory(target, marker="m.json", force=True):
        raise RuntimeError
    assert (target / "m.json").read_text() == "old"
    with output_directory(target, marker="m.json", force=True) as staged:
        (staged / "m.json").write_text("new")
    assert (target / "m.json").read_text() == "new"
    assert names(tmp_path) == ["out"]


@pytest.mark.parametrize(
    ("force", "message"),
    [(False, "holds files that roundoff did not write"), (True, "holds files that roundoff did not write")],
)
def test_a_strangers_folder_is_never_replaced(tmp_path: Path, force: bool, message: str) -> None:
    (tmp_path / "thesis.doc").write_text("years of work")
    with pytest.raises(BadInput, match=message), output_directory(tmp_path, marker="m.json", force=force):
        pass
    assert (tmp_path / "thesis.doc").read_text() == "years of work"


def test_a_file_in_the_way_is_named(tmp_path: Path) -> None:
    (tmp_path / "out").write_text("")
    with pytest.raises(BadInput, match="exists and is a file"), output_directory(tmp_path / "out", marker="m"):
        pass


def test_an_empty_folder_may_be_filled(tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    with output_directory(tmp_path / "out", marker="m") as staged:
        (staged / "m").write_text("")
    assert names(tmp_path) == ["out"]


def test_a_full_disk_is_said_and_cleaned_up(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="The disk is full"), output_directory(tmp_path / "out", marker="m"):
        raise OSError(errno.ENOSPC, "No space left on device")
    assert names(tmp_path) == []


def test_other_write_errors_name_the_reason(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="could not be written: Read-only"), writing(tmp_path):
        raise OSError(errno.EROFS, "Read-only file system")
    (tmp_path / "file").write_text("")
    with pytest.raises(BadInput, match="could not be written"):
        write_text(tmp_path / "file" / "below.txt", "")


def test_text_replaces_text_whole(tmp_path: Path) -> None:
    write_text(tmp_path / "a" / "b.txt", "one\r\n")
    write_text(tmp_path / "a" / "b.txt", "two\n")
    assert (tmp_path / "a" / "b.txt").read_bytes() == b"two\n"
    assert names(tmp_path / "a") == ["b.txt"]


@pytest.mark.parametrize(
    ("error", "message"),
    [
        (FileNotFoundError(), "The model x does not exist"),
        (PermissionError(), "The model x may not be read"),
        (OSError(errno.EIO, "Input/output error"), "The model x cannot be read: Input/output error"),
    ],
)
def test_read_errors_are_sentences(error: OSError, message: str) -> None:
    with pytest.raises(BadInput, match=message), reading(Path("x"), what="The model"):
        raise error
