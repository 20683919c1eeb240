"""Archives: stored and compressed members, damage, bombs, and folders of archives."""

import io
import zipfile
from pathlib import Path

import numpy as np
import pytest

from roundoff.core.tensors import TensorInfo
from roundoff.errors import BadInput
from roundoff.tensors import open_source
from roundoff.tensors.writer import open_writer


def npy_bytes(array: object) -> bytes:
    stream = io.BytesIO()
    np.save(stream, np.asarray(array))
    return stream.getvalue()


def problem_of(path: Path, name: str) -> str:
    return next(info.problem for info in open_source(path).tensors if info.name == name)


@pytest.mark.parametrize("save", [np.savez, np.savez_compressed])
def test_reads_any_array_an_archive_can_hold(tmp_path: Path, save: object) -> None:
    arrays = {
        "/net/conv 1:0": np.asfortranarray(np.arange(12.0).reshape(3, 4)),
        "scalar": np.array(2, np.int8),
        "empty": np.zeros((2, 0), np.float32),
        "big": np.arange(3, dtype=">f4"),
    }
    assert callable(save)
    save(tmp_path / "a.npz", **arrays)
    source = open_source(tmp_path / "a.npz")
    assert {info.name for info in source.tensors} == set(arrays)
    for name, array in arrays.items():
        np.testing.assert_array_equal(source.read(name, ""), array)


def test_stored_members_are_mapped(tmp_path: Path) -> None:
    np.savez(tmp_path / "a.npz", x=np.arange(8))
    values = open_source(tmp_path / "a.npz").read("x", "")
    assert not values.flags.owndata
    assert not values.flags.writeable


def test_members_are_listed_in_natural_order(tmp_path: Path) -> None:
    np.savez(tmp_path / "a.npz", layer10=np.zeros(1), layer2=np.zeros(1))
    assert [info.name for info in open_source(tmp_path / "a.npz").tensors] == ["layer2", "layer10"]


@pytest.mark.parametrize("compression", [zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED])
def test_flipped_bits_are_noticed(tmp_path: Path, compression: int) -> None:
    path = tmp_path / "a.npz"
    rng = np.random.default_rng(1)
    with zipfile.ZipFile(path, "w", compression) as archive:
        archive.writestr("x.npy", npy_bytes(rng.integers(0, 256, 4000, np.uint8)))
    content = bytearray(path.read_bytes())
    content[2000] ^= 1
    path.write_bytes(content)
    with pytest.raises(BadInput, match=r"a\.npz/x\.npy: damaged: .*checksum does not fit"):
        open_source(path).read("x", "")


def test_strange_members_are_listed_with_their_problem(tmp_path: Path) -> None:
    path = tmp_path / "a.npz"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("good.npy", npy_bytes([1, 2]))
        archive.writestr("folder/", b"")
        archive.writestr("notes.txt", b"hello")
        archive.writestr("pickled.npy", npy_bytes(np.array([0])).replace(b"'<i8'", b"'|O' "))
        archive.writestr("short.npy", npy_bytes([1, 2])[:-3])
        archive.writestr("odd.npy", npy_bytes([1, 2]), compress_type=zipfile.ZIP_BZIP2)
    assert [(info.name, info.problem) for info in open_source(path).tensors] == [
        ("good", ""),
        ("notes.txt", "is not a .npy member"),
        ("odd", "is compressed in an unusual way"),
        ("pickled", "holds Python objects (a pickle), which are never loaded"),
        ("short", "truncated: 13 of 16 bytes"),
    ]


def test_an_encrypted_member_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "a.npz"
    np.savez(path, x=np.zeros(1))
    content = path.read_bytes()
    # The flag is at byte 6 of the local header and at byte 8 of the directory's.
    for signature, at in ((b"PK\x03\x04", 6), (b"PK\x01\x02", 8)):
        place = content.index(signature) + at
        content = content[:place] + b"\x01" + content[place + 1 :]
    path.write_bytes(content)
    assert problem_of(path, "x") == "is encrypted"


def test_two_members_of_one_name_are_not_guessed_between(tmp_path: Path) -> None:
    path = tmp_path / "a.npz"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("x.npy", npy_bytes([1]))
        with pytest.warns(UserWarning, match="Duplicate name"):
            archive.writestr("x.npy", npy_bytes([2]))
    assert problem_of(path, "x") == f"stored twice: in {path}/x.npy and in {path}/x.npy"


def bomb(path: Path, *, claimed: int) -> None:
    """Write an archive whose only member claims to unpack to a length its data cannot have."""
    header = npy_bytes(np.zeros(0, np.uint8)).replace(b"(0,)", f"({claimed - 128},)".encode())[:128]
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("x.npy", header.ljust(128))
    content = path.read_bytes()
    size = (128).to_bytes(4, "little")
    path.write_bytes(content.replace(size, claimed.to_bytes(4, "little")))


def test_a_bomb_is_refused_before_it_is_unpacked(tmp_path: Path) -> None:
    bomb(tmp_path / "a.npz", claimed=4_000_000_000)
    assert "claims to unpack to 4000000000 bytes, more than its data can hold" in problem_of(
        tmp_path / "a.npz", "x"
    )


def test_a_member_shorter_than_it_claims_is_damaged(tmp_path: Path) -> None:
    bomb(tmp_path / "a.npz", claimed=2000)
    with pytest.raises(BadInput, match="damaged"):
        open_source(tmp_path / "a.npz").read("x", "")


@pytest.mark.parametrize(
    ("content", "reason"),
    [(b"", "is empty"), (b"PK" + b"x" * 99, "is not a complete zip archive")],
)
def test_a_file_that_is_no_archive_is_bad_input(tmp_path: Path, content: bytes, reason: str) -> None:
    (tmp_path / "a.npz").write_bytes(content)
    with pytest.raises(BadInput, match=f"a.npz holds no readable tensors. a: {reason}"):
        open_source(tmp_path / "a.npz")


def test_a_truncated_archive_is_bad_input_and_an_empty_one_too(tmp_path: Path) -> None:
    np.savez(tmp_path / "a.npz", x=np.zeros(100))
    path = tmp_path / "a.npz"
    path.write_bytes(path.read_bytes()[:-50])
    with pytest.raises(BadInput, match="is not a complete zip archive"):
        open_source(path)
    np.savez(path)
    with pytest.raises(BadInput, match="holds no tensors"):
        open_source(path)


def test_a_folder_of_archives_is_one_sample_each(tmp_path: Path) -> None:
    for number in (0, 1, 10):
        np.savez(tmp_path / f"{number}.npz", conv10=np.full(2, number), conv2=np.zeros(1))
    source = open_source(tmp_path)
    assert source.samples == ("0", "1", "10")
    assert [info.name for info in source.tensors] == ["conv2", "conv10"]
    assert source.read("conv10", "10").tolist() == [10, 10]


def test_one_archive_in_a_folder_is_not_split_by_sample(tmp_path: Path) -> None:
    np.savez(tmp_path / "dump.npz", a=np.zeros(1))
    assert open_source(tmp_path).samples == ("",)


def test_archives_without_common_names_are_parts_of_one_sample(tmp_path: Path) -> None:
    np.savez(tmp_path / "encoder.npz", a=np.zeros(1))
    np.savez(tmp_path / "decoder.npz", b=np.zeros(1))
    source = open_source(tmp_path)
    assert source.samples == ("",)
    assert [info.name for info in source.tensors] == ["a", "b"]


def test_a_broken_archive_is_a_broken_sample(tmp_path: Path) -> None:
    np.savez(tmp_path / "0.npz", a=np.arange(2))
    (tmp_path / "1.npz").write_bytes(b"nothing")
    source = open_source(tmp_path)
    assert source.samples == ("0", "1")
    assert source.read("a", "0").tolist() == [0, 1]
    with pytest.raises(BadInput, match=r"Sample '1' of .* cannot be read: is not a complete zip archive"):
        source.read("a", "1")


def test_a_broken_archive_in_a_mapped_dump_names_the_reason(tmp_path: Path) -> None:
    with open_writer(tmp_path, "npz", samples=["x", "y"]) as writer:
        for sample in ("x", "y"):
            writer.begin_sample(sample)
            writer.write(TensorInfo("a"), np.arange(2))
    (tmp_path / "y.npz").write_bytes(b"nothing")
    source = open_source(tmp_path)
    assert [info.problem for info in source.tensors] == [""]
    with pytest.raises(BadInput, match=r"y\.npz: is not a complete zip archive"):
        source.read("a", "y")


def test_a_compressed_member_that_takes_too_much_memory_is_not_unpacked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("roundoff.tensors.npy._MAX_UNPACKED_BYTES", 2**20)
    np.savez_compressed(tmp_path / "a.npz", x=np.zeros(2**18, np.float32), y=np.zeros(4, np.float32))
    source = open_source(tmp_path / "a.npz")
    assert problem_of(tmp_path / "a.npz", "x") == "is compressed and takes 1.0 MB of memory, more than 1 GiB"
    assert source.tensors[0].shape == (2**18,)
    with pytest.raises(BadInput, match="is compressed and takes") as caught:
        source.read("x", "")
    assert "np.savez" in caught.value.fix
    assert source.read("y", "").shape == (4,)


def test_an_archive_cut_short_is_to_be_copied_again(tmp_path: Path) -> None:
    np.savez(tmp_path / "a.npz", x=np.zeros(9))
    content = (tmp_path / "a.npz").read_bytes()
    (tmp_path / "a.npz").write_bytes(content[:-30])
    with pytest.raises(BadInput, match="is not a complete zip archive") as caught:
        open_source(tmp_path / "a.npz")
    assert caught.value.fix == "copy or write it again: it is damaged or cut short"
