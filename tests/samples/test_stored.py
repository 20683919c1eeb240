"""Raw files, and files that are damaged or hostile."""

import io
import zipfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from roundoff.core.array_files import Member
from roundoff.core.tensors import Array, InputSpec
from roundoff.errors import BadInput
from roundoff.samples.options import ImageOptions, SampleOptions
from roundoff.samples.sample_set import open_samples
from tests.samples.support import complaint, save, spec, values

X = spec("x", 1, 4)


def npy_bytes(array: Array) -> bytes:
    stream = io.BytesIO()
    np.save(stream, array)
    return stream.getvalue()


def feed_or_complain(path: Path) -> None:
    """A damaged file either still gives a feed of the right shape or an error that names it."""
    try:
        feed = open_samples(path, [X]).feed(0)
    except BadInput as error:
        told = error.what
    else:
        assert feed["x"].shape == (1, 4)
        return
    assert path.name in told


# Raw files


def test_raw_shape_comes_from_a_static_input(tmp_path: Path) -> None:
    save(tmp_path / "0.bin", values(1, 4))
    save(tmp_path / "1.raw", values(3, 4))
    assert open_samples(tmp_path, [X]).names == ("0", "1[0]", "1[1]", "1[2]")


def test_raw_rows_of_a_free_batch(tmp_path: Path) -> None:
    path = save(tmp_path / "a.bin", values(3, 4))
    assert len(open_samples(path, [spec("x", "N", 4)])) == 3


@pytest.mark.parametrize("shape", [(2, 3), (1, 2, 3)])
def test_raw_shape_and_type_from_the_options(tmp_path: Path, shape: tuple[int, ...]) -> None:
    array = values(5, 2, 3, dtype="float16")
    path = save(tmp_path / "a.bin", array)
    options = SampleOptions(raw_dtype="float16", raw_shape=shape)
    samples = open_samples(path, [spec("x", "N", "h", "w")], options)
    assert len(samples) == 5
    np.testing.assert_array_equal(samples.feed(3)["x"], array[3:4].astype("float32"))


def test_raw_shape_stands_in_for_an_unknown_rank(tmp_path: Path) -> None:
    path = save(tmp_path / "a.bin", values(4, 3))
    samples = open_samples(path, [InputSpec("x", "float32", None)], SampleOptions(raw_shape=(2, 3)))
    assert [samples.feed(index)["x"].shape for index in range(2)] == [(2, 3), (2, 3)]


def test_raw_byte_order_may_be_said(tmp_path: Path) -> None:
    path = save(tmp_path / "a.bin", values(1, 4, dtype=">f4"))
    assert open_samples(path, [X], SampleOptions(raw_dtype=">f4")).feed(0)["x"].tolist() == [[0, 1, 2, 3]]


def test_raw_scalar_and_truth_values(tmp_path: Path) -> None:
    assert open_samples(save(tmp_path / "a.bin", values(2)), [spec("x")]).feed(1)["x"] == 1.0
    mask = spec("mask", 3, dtype="bool")
    path = save(tmp_path / "b.bin", np.array([True, False, True]))
    assert open_samples(path, [mask]).feed(0)["mask"].tolist() == [True, False, True]
    samples = open_samples(save(tmp_path / "c.bin", values(3, dtype="uint8")), [mask])
    with pytest.raises(BadInput) as caught:
        samples.feed(0)
    complaint(caught, "expected bool [3], got bytes other than 0 and 1")


@pytest.mark.parametrize("size", [0, 15, 17])
def test_raw_file_of_the_wrong_size(tmp_path: Path, size: int) -> None:
    (tmp_path / "a.bin").write_bytes(bytes(size))
    with pytest.raises(BadInput) as caught:
        open_samples(tmp_path / "a.bin", [X])
    complaint(
        caught,
        "a.bin does not fit the input 'x': expected float32 [1, 4]",
        "one sample of float32 [1, 4] takes 16 bytes",
        f"got a file of {size} bytes",
        fix="--raw-dtype and --raw-shape",
    )


def test_raw_file_without_a_known_shape(tmp_path: Path) -> None:
    path = save(tmp_path / "a.bin", values(4))
    for shape in ((1, "w"), None):
        with pytest.raises(BadInput) as caught:
            open_samples(path, [InputSpec("x", "float32", shape)])
        complaint(caught, "says nothing of its shape", "'x' leaves it open", fix="--raw-shape 1x3x224x224")


def test_raw_types_are_called_as_in_manifests(tmp_path: Path) -> None:
    for name, array in (("float", values(1, 4)), ("FP16", values(1, 4, dtype="float16"))):
        path = save(tmp_path / "a.bin", array)
        assert open_samples(path, [X], SampleOptions(raw_dtype=name)).feed(0)["x"].tolist() == [[0, 1, 2, 3]]
    for name, reason in (("i8", "could count bits or bytes"), ("flot32", "did you mean 'float32'?")):
        with pytest.raises(BadInput) as caught:
            open_samples(path, [X], SampleOptions(raw_dtype=name))
        complaint(caught, f"{name!r} is not a numeric type", fix=reason)
    with pytest.raises(BadInput) as caught:
        open_samples(path, [X], SampleOptions(raw_dtype="bf16"))
    complaint(caught, "cannot be read from raw files of bfloat16", fix="save them as float32")


@pytest.mark.parametrize("dtype", ["float33", "object", "U4", "f4,f4", "datetime64[s]"])
def test_raw_type_that_is_none(tmp_path: Path, dtype: str) -> None:
    with pytest.raises(BadInput) as caught:
        open_samples(save(tmp_path / "a.bin", values(1, 4)), [X], SampleOptions(raw_dtype=dtype))
    complaint(caught, f"{dtype!r} is not a numeric type", fix="--raw-dtype float32")


def test_raw_options_without_raw_files(tmp_path: Path) -> None:
    path = save(tmp_path / "a.npy", values(1, 4))
    with pytest.raises(BadInput) as caught:
        open_samples(path, [X], SampleOptions(raw_dtype="float32", raw_shape=(1, 4)))
    complaint(caught, "--raw-dtype and --raw-shape cannot apply: the samples are .npy", fix="leave --raw-dtype")


def test_raw_options_describe_one_input(tmp_path: Path) -> None:
    save(tmp_path / "x" / "0.bin", values(1, 4))
    save(tmp_path / "y" / "0.bin", values(1, 4))
    with pytest.raises(BadInput) as caught:
        open_samples(tmp_path, [X, spec("y", 1, 4)], SampleOptions(raw_shape=(1, 4)))
    complaint(caught, "--raw-shape can describe one input", "'x', 'y'", fix="save the samples as .npy")


def test_image_options_without_pictures(tmp_path: Path) -> None:
    path = save(tmp_path / "a.npy", values(1, 4))
    with pytest.raises(BadInput) as caught:
        open_samples(path, [X], SampleOptions(image=ImageOptions(mean=0.5, std=(0.5,))))
    complaint(caught, "--mean and --std cannot apply: the samples are .npy", fix="leave --mean and --std out")
    with pytest.raises(BadInput) as caught:
        open_samples(path, [X], SampleOptions(image=ImageOptions()))
    complaint(caught, "options for pictures cannot apply")


# Damage


@settings(max_examples=40, deadline=None)
@given(st.data())
def test_any_cut_npy_is_refused(tmp_path_factory: pytest.TempPathFactory, data: st.DataObject) -> None:
    whole = npy_bytes(values(1, 4))
    path = tmp_path_factory.getbasetemp() / "cut.npy"
    path.write_bytes(whole[: data.draw(st.integers(0, len(whole) - 1))])
    with pytest.raises(BadInput, match=r"cut\.npy"):
        open_samples(path, [X])


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 400), st.integers(0, 255), st.sampled_from([np.savez, np.savez_compressed]))
def test_any_changed_byte_gives_an_error_or_a_feed(
    tmp_path_factory: pytest.TempPathFactory, position: int, byte: int, store: Callable[..., None]
) -> None:
    path = tmp_path_factory.getbasetemp() / "changed.npz"
    store(path, x=values(1, 4))
    damaged = bytearray(path.read_bytes())
    damaged[position % len(damaged)] = byte
    path.write_bytes(damaged)
    feed_or_complain(path)


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 143), st.integers(0, 255))
def test_any_changed_byte_of_an_npy_gives_an_error_or_a_feed(
    tmp_path_factory: pytest.TempPathFactory, position: int, byte: int
) -> None:
    path = tmp_path_factory.getbasetemp() / "changed.npy"
    damaged = bytearray(npy_bytes(values(1, 4)))
    damaged[position] = byte
    path.write_bytes(damaged)
    feed_or_complain(path)


def test_truncated_npy_names_the_bytes(tmp_path: Path) -> None:
    (tmp_path / "a.npy").write_bytes(npy_bytes(values(1, 4))[:-3])
    with pytest.raises(BadInput) as caught:
        open_samples(tmp_path, [X])
    complaint(
        caught,
        "a.npy cannot be read for the input 'x' (expected float32 [1, 4]): ",
        "truncated: 13 of 16 bytes of float32 [1, 4].",
        fix="save it again",
    )


def test_bytes_behind_the_array_are_not_dropped(tmp_path: Path) -> None:
    (tmp_path / "a.npy").write_bytes(npy_bytes(values(1, 4)) * 2)
    with pytest.raises(
        BadInput, match=r"a\.npy .*: 160 bytes of values where the header says 16 of float32 \[1, 4\]"
    ):
        open_samples(tmp_path, [X])


def test_not_an_npy_at_all(tmp_path: Path) -> None:
    (tmp_path / "a.npy").write_text("1,2,3,4")
    with pytest.raises(BadInput) as caught:
        open_samples(tmp_path, [X])
    complaint(
        caught,
        "a.npy cannot be read for the input 'x' (expected float32 [1, 4]): is not a .npy file",
        fix="numpy.save(path, array.astype('float32'), allow_pickle=False)",
    )


def test_objects_are_never_unpickled(tmp_path: Path) -> None:
    objects = np.array([[{}, 1, 2, 3]], dtype=object)
    np.save(tmp_path / "a.npy", objects, allow_pickle=True)
    np.savez(tmp_path / "a.npz", x=objects)
    for name in ("a.npy", "a.npz"):
        with pytest.raises(BadInput) as caught:
            open_samples(tmp_path / name, [X])
        complaint(caught, name, "'x'", "holds Python objects (a pickle), which are never loaded", fix="numpy.save")


def test_headers_of_python_2_are_read(tmp_path: Path) -> None:
    text = npy_bytes(values(1, 4)).replace(b"(1, 4), }  ", b"(1L, 4L), }")
    (tmp_path / "a.npy").write_bytes(text)
    assert open_samples(tmp_path, [X]).feed(0)["x"].tolist() == [[0, 1, 2, 3]]


def test_not_an_archive(tmp_path: Path) -> None:
    (tmp_path / "a.npz").write_bytes(b"PK and then nothing")
    with pytest.raises(BadInput) as caught:
        open_samples(tmp_path, [X])
    complaint(caught, "a.npz cannot be read for the input 'x'", "is not a complete zip archive", fix="numpy.savez")


def test_archive_that_promises_more_than_it_holds(tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "a.npz", "w") as archive:
        archive.writestr("x.npy", npy_bytes(values(1, 4))[:-4])
    with pytest.raises(BadInput) as caught:
        open_samples(tmp_path, [X])
    complaint(
        caught,
        "a.npz (member 'x') cannot be read",
        "truncated: 12 of 16 bytes of float32 [1, 4]",
        fix="numpy.savez",
    )


@pytest.mark.parametrize("rows", [1, 500])
def test_archive_whose_directory_lies(tmp_path: Path, rows: int) -> None:
    path = tmp_path / "a.npz"
    content = npy_bytes(values(rows, 4))
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("x.npy", content[:128])
    # The sizes say that the values are there, and the checksum is that of what is there.
    claimed = len(content).to_bytes(4, "little")
    path.write_bytes(path.read_bytes().replace((128).to_bytes(4, "little"), claimed))
    samples = open_samples(path, [X])
    with pytest.raises(BadInput) as caught:
        samples.feed(rows - 1)
    complaint(caught, "a.npz (member 'x') cannot be read for the input 'x'", "damaged", fix="numpy.savez")


def test_archive_that_claims_more_than_it_can_hold(tmp_path: Path) -> None:
    path = tmp_path / "a.npz"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("x.npy", npy_bytes(values(0)))
    claimed = (4_000_000_000).to_bytes(4, "little")
    path.write_bytes(path.read_bytes().replace((128).to_bytes(4, "little"), claimed))
    with pytest.raises(BadInput, match="claims to unpack to 4000000000 bytes, more than its data can hold"):
        open_samples(path, [X])


@pytest.mark.parametrize("rows", [1, 3])
def test_flipped_bits_in_an_archive_are_noticed(tmp_path: Path, rows: int) -> None:
    path = tmp_path / "a.npz"
    array = values(rows, 4000)  # too many for a look at the header to see them all
    np.savez(path, x=array)
    path.write_bytes(path.read_bytes().replace(array[-1, -4:].tobytes(), bytes(16)))
    samples = open_samples(path, [spec("x", 1, 4000)])
    with pytest.raises(BadInput, match="its checksum does not fit"):
        samples.feed(0)


def test_archive_with_two_members_of_one_name(tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "a.npz", "w") as archive:
        archive.writestr("x.npy", npy_bytes(values(1, 4)))
        with pytest.warns(UserWarning, match="Duplicate name"):
            archive.writestr("x.npy", npy_bytes(values(1, 4, start=1)))
    with pytest.raises(BadInput) as caught:
        open_samples(tmp_path, [X])
    complaint(caught, "a.npz holds the member 'x' more than once", fix="numpy.savez")


def test_archive_that_does_not_fit_into_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(member: Member) -> Array:
        raise MemoryError

    np.savez_compressed(tmp_path / "a.npz", x=values(1, 4))
    samples = open_samples(tmp_path, [X])
    monkeypatch.setattr(Member, "content", refuse)
    with pytest.raises(BadInput) as caught:
        samples.feed(0)
    complaint(caught, "a.npz (member 'x')", "does not fit into memory", fix="store it uncompressed")


def test_archive_of_something_else(tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "a.npz", "w") as archive:
        archive.writestr("readme.txt", "hello")
    with pytest.raises(BadInput, match="no member of its own for the input 'x'"):
        open_samples(tmp_path, [X])


def test_file_that_changes_after_opening(tmp_path: Path) -> None:
    path = save(tmp_path / "a.npy", values(1, 4))
    samples = open_samples(tmp_path, [X])
    save(path, values(1, 5))
    with pytest.raises(BadInput, match=r"expected float32 \[1, 4\], got float32 \[1, 5\]"):
        samples.feed(0)
    path.unlink()
    with pytest.raises(BadInput, match=r"a\.npy does not exist"):
        samples.feed(0)


def test_unreadable_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(path: Path) -> None:
        raise PermissionError(13, "Permission denied", str(path))

    # Root may read everything, so taking the rights away would prove nothing there.
    monkeypatch.setattr("roundoff.samples.files.os.scandir", refuse)
    with pytest.raises(BadInput, match=f"{tmp_path} may not be read"):
        open_samples(tmp_path, [X])
