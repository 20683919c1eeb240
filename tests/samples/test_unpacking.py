"""Archives: what is in them comes out, and nothing else happens."""

import contextlib
import io
import stat
import tarfile
import zipfile
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from roundoff.errors import BadInput
from roundoff.samples.files import ArchiveLimits, unpack

FILES = {"a.npy": b"first", "sub/b.npy": b"second" * 1000, "sub/empty.npy": b""}


def tar(path: Path, files: dict[str, bytes], mode: str = "w") -> Path:
    with tarfile.open(path, mode) as archive:  # type: ignore[call-overload]
        for name, content in files.items():
            info = tarfile.TarInfo(name)
            info.size = len(content)
            archive.addfile(info, io.BytesIO(content))
    return path


def special_tar(path: Path, kind: bytes, name: str = "x", link: str = "") -> Path:
    with tarfile.open(path, "w") as archive:
        info = tarfile.TarInfo(name)
        info.type, info.linkname = kind, link
        archive.addfile(info)
    return path


def zipped(path: Path, files: dict[str, bytes], *, compression: int = zipfile.ZIP_DEFLATED) -> Path:
    with zipfile.ZipFile(path, "w", compression) as archive:
        for name, content in files.items():
            archive.writestr(zipfile.ZipInfo(name), content, compress_type=compression)
    return path


def found(folder: Path) -> dict[str, bytes]:
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@pytest.mark.parametrize("kind", ["w", "w:gz", "zip", "stored"])
def test_files_come_out_as_they_went_in(kind: str, tmp_path: Path) -> None:
    # The name says nothing: real files are called anything.
    path = tmp_path / "archive.dat"
    if kind in ("zip", "stored"):
        zipped(path, FILES, compression=zipfile.ZIP_DEFLATED if kind == "zip" else zipfile.ZIP_STORED)
    else:
        tar(path, FILES, kind)
    assert unpack(path, tmp_path / "out") == 3
    assert found(tmp_path / "out") == FILES


def test_folders_of_an_archive_are_no_files(tmp_path: Path) -> None:
    source = tmp_path / "source"
    (source / "inner").mkdir(parents=True)
    (source / "inner" / "a.npy").write_bytes(b"1")
    with tarfile.open(tmp_path / "a.tar.gz", "w:gz") as archive:
        archive.add(source, arcname=".")
    assert unpack(tmp_path / "a.tar.gz", tmp_path / "out") == 1
    assert found(tmp_path / "out") == {"inner/a.npy": b"1"}


@pytest.mark.parametrize("name", ["../x", "a/../../x", "/etc/x", "..\\x", "C:\\x", "C:/x", "a/\\..\\x"])
@pytest.mark.parametrize("kind", ["tar", "zip"])
def test_nothing_lands_outside(name: str, kind: str, tmp_path: Path) -> None:
    files = {"good.npy": b"1", name: b"evil"}
    path = tar(tmp_path / "a", files) if kind == "tar" else zipped(tmp_path / "a", files)
    with pytest.raises(BadInput, match=r"is refused: .* (leads out of the folder|is an absolute path)"):
        unpack(path, tmp_path / "deep" / "out")
    assert not (tmp_path / "deep" / "out").exists()
    assert found(tmp_path) == {"a": path.read_bytes()}


@pytest.mark.parametrize(
    "kind", [tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.CHRTYPE, tarfile.BLKTYPE, tarfile.FIFOTYPE]
)
def test_links_and_devices_are_refused(kind: bytes, tmp_path: Path) -> None:
    path = special_tar(tmp_path / "a.tar", kind, link="/etc/passwd")
    with pytest.raises(BadInput, match=r"'x' is a link, a device or the like"):
        unpack(path, tmp_path / "out")


def test_links_in_zip_archives_are_refused(tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "a.zip", "w") as archive:
        info = zipfile.ZipInfo("x")
        info.external_attr = (stat.S_IFLNK | 0o777) << 16
        archive.writestr(info, "/etc/passwd")
    with pytest.raises(BadInput, match=r"'x' is neither a file nor a folder"):
        unpack(tmp_path / "a.zip", tmp_path / "out")


def test_a_file_that_is_there_twice_is_refused(tmp_path: Path) -> None:
    with tarfile.open(tmp_path / "a.tar", "w") as archive:
        for _ in range(2):
            archive.addfile(tarfile.TarInfo("x"))
    with pytest.raises(BadInput, match="'x' is there twice"):
        unpack(tmp_path / "a.tar", tmp_path / "out")


def test_a_file_below_a_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="'x/y' lies below a file"):
        unpack(tar(tmp_path / "a.tar", {"x": b"", "x/y": b""}), tmp_path / "out")


def test_a_name_no_disk_takes_is_refused(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="has a name that no disk takes"):
        unpack(tar(tmp_path / "a.tar", {"x" * 300: b""}), tmp_path / "out")


@pytest.mark.parametrize("kind", ["w:gz", "zip"])
def test_bombs_are_refused_before_they_are_unpacked(kind: str, tmp_path: Path) -> None:
    files = {f"{index}.bin": bytes(1 << 20) for index in range(8)}
    path = tar(tmp_path / "a", files, kind) if kind != "zip" else zipped(tmp_path / "a", files)
    limits = ArchiveLimits(free_bytes=1 << 21, ratio=10)
    with pytest.raises(BadInput, match="as archives made to fill disks do"):
        unpack(path, tmp_path / "out", limits)
    assert not (tmp_path / "out").exists()
    assert unpack(path, tmp_path / "out", ArchiveLimits(free_bytes=1 << 24, ratio=10)) == 8


def test_too_many_files_are_refused(tmp_path: Path) -> None:
    path = tar(tmp_path / "a.tar", {str(index): b"" for index in range(5)})
    with pytest.raises(BadInput, match="holds more than 4 files"):
        unpack(path, tmp_path / "out", ArchiveLimits(files=4))


def test_a_member_that_claims_too_much_is_refused(tmp_path: Path) -> None:
    path = zipped(tmp_path / "a.zip", {"x": b"1" * 100})
    content = bytearray(path.read_bytes())
    place = content.rindex(b"PK\x01\x02") + 24
    content[place : place + 4] = (1 << 27).to_bytes(4, "little")
    path.write_bytes(content)
    with pytest.raises(BadInput, match="claims to unpack to 134217728 bytes"):
        unpack(path, tmp_path / "out")


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "is no archive"),
        (b"Rar!", "is no archive: it does not begin as a tar, tar.gz or zip does"),
        (b"PK\x03\x04rest", "cannot be read: is not a complete zip archive"),
        (b"\x1f\x8brest", "is damaged"),
    ],
)
def test_what_is_no_archive_is_refused(content: bytes, message: str, tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(content)
    with pytest.raises(BadInput, match=message):
        unpack(tmp_path / "a", tmp_path / "out")


def test_an_empty_archive_is_refused(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="holds no files"):
        unpack(tar(tmp_path / "a.tar", {}), tmp_path / "out")


def test_a_truncated_archive_is_refused_and_leaves_nothing(tmp_path: Path) -> None:
    path = tar(tmp_path / "a.tar.gz", {"x": bytes(range(256)) * 4000}, "w:gz")
    path.write_bytes(path.read_bytes()[:-200])
    with pytest.raises(BadInput, match=r"is damaged|is truncated"):
        unpack(path, tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_a_damaged_zip_member_is_refused(tmp_path: Path) -> None:
    path = zipped(tmp_path / "a.zip", {"x": b"some bytes that compress a little " * 50})
    content = bytearray(path.read_bytes())
    content[60] ^= 0xFF
    path.write_bytes(content)
    with pytest.raises(BadInput, match=r"is damaged|cannot be read"):
        unpack(path, tmp_path / "out")


def test_a_folder_in_use_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "mine").write_bytes(b"1")
    with pytest.raises(BadInput, match="exists and is not an empty folder"):
        unpack(tar(tmp_path / "a.tar", {"x": b""}), tmp_path / "out")
    assert found(tmp_path / "out") == {"mine": b"1"}


@settings(max_examples=150)
@given(data=st.data())
def test_no_damage_escapes(tmp_path_factory: pytest.TempPathFactory, data: st.DataObject) -> None:
    folder = tmp_path_factory.mktemp("fuzz")
    kind = data.draw(st.sampled_from(["w", "w:gz", "zip"]))
    path = tar(folder / "a", FILES, kind) if kind != "zip" else zipped(folder / "a", FILES)
    content = bytearray(path.read_bytes())
    for _ in range(data.draw(st.integers(1, 4))):
        content[data.draw(st.integers(0, len(content) - 1))] = data.draw(st.integers(0, 255))
    path.write_bytes(content)
    with contextlib.suppress(BadInput):
        unpack(path, folder / "out")
    assert {each.name for each in folder.iterdir()} <= {"a", "out"}
