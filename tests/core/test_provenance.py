"""What a run says of its inputs."""

import hashlib
from pathlib import Path

import pytest

import roundoff.core.document
from roundoff.core.document import input_file
from roundoff.errors import BadInput


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "in" / "deep").mkdir(parents=True)
    (tmp_path / "in" / "a.npy").write_bytes(b"aaaa")
    (tmp_path / "in" / "deep" / "b.npy").write_bytes(b"bb")
    return tmp_path / "in"


def test_a_file_is_known_by_its_content(folder: Path) -> None:
    found = input_file("model", folder / "a.npy")
    assert (found.role, found.size_bytes, found.hashed) == ("model", 4, "content")
    assert found.sha256 == hashlib.sha256(b"aaaa").hexdigest()


def test_a_folder_is_known_by_its_content(folder: Path) -> None:
    before = input_file("data", folder)
    assert (before.size_bytes, before.hashed) == (6, "content")
    assert input_file("data", folder) == before
    (folder / "deep" / "b.npy").write_bytes(b"bc")
    changed = input_file("data", folder)
    assert changed.sha256 != before.sha256
    (folder / "a.npy").rename(folder / "c.npy")
    assert input_file("data", folder).sha256 not in (changed.sha256, before.sha256)


def test_much_data_is_known_by_names_and_sizes(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(roundoff.core.document, "_HASHED_BYTES", 5)
    before = input_file("data", folder)
    assert (before.size_bytes, before.hashed) == (6, "listing")
    (folder / "deep" / "b.npy").write_bytes(b"bc")
    assert input_file("data", folder) == before
    (folder / "deep" / "b.npy").write_bytes(b"bcd")
    assert input_file("data", folder).sha256 != before.sha256
    assert input_file("data", folder / "a.npy").hashed == "content"


def test_a_file_that_cannot_be_read_costs_the_content_hash_only(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> str:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(roundoff.core.document, "_file_hash", refuse)
    assert input_file("data", folder).hashed == "listing"


def test_an_input_that_is_gone_is_bad_input(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="does not exist"):
        input_file("data", tmp_path / "gone")
