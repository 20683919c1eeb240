"""Members of archives, whole and piece by piece; what each damage is called is tested where files are read."""

import zipfile
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from roundoff.core.array_files import Member, Pieces, Unreadable, list_members

CONTENT = np.random.default_rng(3).integers(0, 50, 3_000_000, np.uint8)
KINDS = [zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED]


def archive(path: Path, kind: int, content: bytes = CONTENT.tobytes()) -> Member:
    with zipfile.ZipFile(path, "w", kind) as writer:
        writer.writestr("folder/", b"")
        writer.writestr("folder/x", content)
    (member,) = list_members(path)
    return member


@pytest.mark.parametrize("kind", KINDS)
def test_a_member_is_read_whole_or_by_its_head(tmp_path: Path, kind: int) -> None:
    member = archive(tmp_path / "a.zip", kind)
    assert (member.name, member.size) == ("folder/x", CONTENT.size)
    assert member.is_stored == (kind == zipfile.ZIP_STORED)
    assert member.head(10) == CONTENT[:10].tobytes()
    np.testing.assert_array_equal(member.content(), CONTENT)


@pytest.fixture(scope="module", params=KINDS)
def pieces(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Pieces:
    return Pieces(archive(tmp_path_factory.mktemp("pieces") / "a.zip", request.param))


@settings(max_examples=25, deadline=None)
@given(st.lists(st.tuples(st.integers(0, CONTENT.size), st.integers(0, 5000)), max_size=4))
def test_pieces_come_in_any_order(pieces: Pieces, places: list[tuple[int, int]]) -> None:
    for offset, length in places:
        wanted = CONTENT[offset : offset + length]
        np.testing.assert_array_equal(pieces.read(offset, wanted.size), wanted)


def test_a_damaged_piece_does_not_spoil_the_ones_before_it(tmp_path: Path) -> None:
    member = archive(tmp_path / "a.zip", zipfile.ZIP_DEFLATED)
    content = bytearray((tmp_path / "a.zip").read_bytes())
    content[-1000] ^= 0xFF  # in the data, near their end
    (tmp_path / "a.zip").write_bytes(content)
    damaged = Pieces(member)
    for _ in range(2):
        np.testing.assert_array_equal(damaged.read(5, 100), CONTENT[5:105])
        with pytest.raises(Unreadable, match="damaged: it cannot be unpacked, or its checksum does not fit"):
            damaged.read(CONTENT.size - 100, 100)


def test_a_stored_member_is_checked_before_its_first_piece(tmp_path: Path) -> None:
    member = archive(tmp_path / "a.zip", zipfile.ZIP_STORED)
    content = bytearray((tmp_path / "a.zip").read_bytes())
    content[-1000] ^= 0xFF
    (tmp_path / "a.zip").write_bytes(content)
    with pytest.raises(Unreadable, match="damaged: its checksum does not fit"):
        Pieces(member)


@pytest.mark.parametrize("offset", [-1, 40, 10**6, 2**63, 2**64 - 1])
def test_a_member_that_is_not_where_the_archive_says(tmp_path: Path, offset: int) -> None:
    member = archive(tmp_path / "a.zip", zipfile.ZIP_STORED, b"abc")
    member.info.header_offset = offset
    with pytest.raises(Unreadable, match="damaged: it is not where the archive says"):
        member.head(1)


def test_a_member_cut_off_behind_its_header(tmp_path: Path) -> None:
    member = archive(tmp_path / "a.zip", zipfile.ZIP_STORED)
    (tmp_path / "a.zip").write_bytes((tmp_path / "a.zip").read_bytes()[:1000])
    with pytest.raises(Unreadable, match=r"truncated: \d+ of 3000000 bytes"):
        member.content()
