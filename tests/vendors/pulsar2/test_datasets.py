"""Calibration data sets, from archives and folders, in every format."""

import io
import tarfile
import zipfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import pytest
from PIL import Image

from roundoff.core.tensors import Array, InputSpec
from roundoff.errors import BadInput
from roundoff.vendors.pulsar2.config.checks import resolve_config
from roundoff.vendors.pulsar2.config.schema import (
    BuildConfig,
    CalibrationFormat,
    ColorSpace,
    InputProcessor,
    InputQuantConfig,
    PictureLayout,
    QuantConfig,
)
from roundoff.vendors.pulsar2.datasets import CalibrationSet, open_datasets

X = InputSpec("x", "float32", (1, 3, 4, 6))
IMAGE, NUMPY, BINARY, OBJECT = CalibrationFormat


def opened(
    folder: Path,
    *configs: InputQuantConfig,
    specs: tuple[InputSpec, ...] = (X,),
    processors: tuple[InputProcessor, ...] = (),
) -> CalibrationSet:
    config = BuildConfig(quant=QuantConfig(input_configs=configs), input_processors=processors)
    return open_datasets(resolve_config(config, specs, ()), folder / "unpacked", base=folder)


def npy(value: Any, *, pickled: bool = False) -> bytes:
    stream = io.BytesIO()
    np.save(stream, value, allow_pickle=pickled)
    return stream.getvalue()


def png(pixels: Array) -> bytes:
    stream = io.BytesIO()
    Image.fromarray(pixels).save(stream, "PNG")
    return stream.getvalue()


def tar(path: Path, files: Mapping[str, bytes]) -> Path:
    with tarfile.open(path, "w:gz") as archive:
        for name, content in files.items():
            info = tarfile.TarInfo(name)
            info.size = len(content)
            archive.addfile(info, io.BytesIO(content))
    return path


def zipped(path: Path, files: Mapping[str, bytes]) -> Path:
    with zipfile.ZipFile(path, "w") as archive:
        for name, content in files.items():
            archive.writestr(name, content)
    return path


def plain(path: Path, files: Mapping[str, bytes]) -> Path:
    for name, content in files.items():
        (path / name).parent.mkdir(parents=True, exist_ok=True)
        (path / name).write_bytes(content)
    return path


def arrays(count: int, shape: tuple[int, ...] = (1, 3, 4, 6)) -> list[Array]:
    return list(np.random.default_rng(0).standard_normal((count, *shape)).astype(np.float32))


@pytest.mark.parametrize("pack", [tar, zipped, plain])
def test_numpy_files_are_fed_as_they_are(pack: Callable[..., Path], tmp_path: Path) -> None:
    values = arrays(12)
    pack(tmp_path / "set", {f"all/{index}.npy": npy(each) for index, each in enumerate(values)})
    found = opened(tmp_path, InputQuantConfig("x", "set", NUMPY, calibration_size=11))
    assert found.names == tuple(map(str, range(11)))
    for index in range(11):
        np.testing.assert_array_equal(found.feed(index)["x"], values[index])
    kept = tmp_path / ("set" if pack is plain else "unpacked/x") / "all"
    assert found.folders == {"x": kept}
    with pytest.raises(IndexError):
        found.feed(11)


def test_all_samples_and_more_than_there_are(tmp_path: Path) -> None:
    tar(tmp_path / "set.tar", {f"{index}.npy": npy(each) for index, each in enumerate(arrays(3))})
    assert len(opened(tmp_path / "a", InputQuantConfig("x", str(tmp_path / "set.tar"), NUMPY, -1))) == 3
    assert len(opened(tmp_path / "b", InputQuantConfig("DEFAULT", str(tmp_path / "set.tar"), NUMPY, 99))) == 3


def test_binary_files(tmp_path: Path) -> None:
    (value,) = arrays(1)
    tar(tmp_path / "set.tar", {"a.bin": value.astype("<f4").tobytes()})
    np.testing.assert_array_equal(opened(tmp_path, InputQuantConfig("x", "set.tar", BINARY)).feed(0)["x"], value)


def test_files_of_equal_name_are_one_sample(tmp_path: Path) -> None:
    other = InputSpec("m", "int64", (1, 2))
    tar(tmp_path / "x.tar", {f"left/{name}.npy": npy(each) for name, each in zip("ba", arrays(2), strict=True)})
    zipped(tmp_path / "m.zip", {f"right/{name}.npy": npy(np.full((1, 2), ord(name))) for name in "ab"})
    found = opened(
        tmp_path,
        InputQuantConfig("x", "x.tar", NUMPY, calibration_size=5),
        InputQuantConfig("m", "m.zip", NUMPY, calibration_size=1),
        specs=(X, other),
    )
    assert found.names == ("a",)
    assert found.notes == ("the inputs ask for different calibration_size; 1 sample taken for all",)
    np.testing.assert_array_equal(found.feed(0)["x"], arrays(2)[1])
    np.testing.assert_array_equal(found.feed(0)["m"], [[ord("a")] * 2])


def test_a_file_without_partner_is_named(tmp_path: Path) -> None:
    (value,) = arrays(1)
    tar(tmp_path / "x.tar", {"a.npy": npy(value), "b.npy": npy(value)})
    tar(tmp_path / "y.tar", {"a.npy": npy(value), "c.npy": npy(value)})
    specs = (X, InputSpec("y", "float32", X.shape))
    with pytest.raises(BadInput, match=r"b\.npy of the input 'x' has no partner for the input 'y'"):
        opened(tmp_path, InputQuantConfig("x", "x.tar", NUMPY), InputQuantConfig("y", "y.tar", NUMPY), specs=specs)


def test_a_dictionary_holds_all_inputs(tmp_path: Path) -> None:
    specs = (X, InputSpec("mask", "int8", (1, 2)))
    (value,) = arrays(1)
    feed = {"x": value, "mask": np.array([[1, 0]], np.int8), "more": np.zeros(3)}
    zipped(tmp_path / "set.zip", {"0.npy": npy(feed, pickled=True)})
    found = opened(tmp_path, InputQuantConfig("DEFAULT", "set.zip", OBJECT), specs=specs)
    np.testing.assert_array_equal(found.feed(0)["x"], value)
    np.testing.assert_array_equal(found.feed(0)["mask"], [[1, 0]])
    # Unpacked once, for the first input that names it.
    assert sorted(path.name for path in (tmp_path / "unpacked").iterdir()) == ["x"]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (npy({"y": np.zeros(3)}, pickled=True), r"has no array for the input 'x': it holds 'y'"),
        (
            npy({"x": np.zeros((1, 3, 4, 6))}, pickled=True),
            r"\(array 'x'\) does not fit .* got float64 \[1, 3, 4, 6\]",
        ),
        (npy(np.zeros(3)), r"is no \.npy file of objects"),
        (npy({"x": "text"}, pickled=True), r"does not hold a dictionary of arrays"),
        (npy({"x": np.datetime64("2020")}, pickled=True), r"cannot be read for the input 'x'"),
        (npy(np.array([Path("a"), 1], object), pickled=True), r"asks to run (pathlib|_codecs)"),
        (b"\x93NUMPY\x01", r"is no \.npy file of objects"),
        (b"", r"is no \.npy file of objects"),
    ],
)
def test_other_things_are_no_dictionary(content: bytes, message: str, tmp_path: Path) -> None:
    plain(tmp_path / "set", {"a.npy": content})
    with pytest.raises(BadInput, match=message):
        opened(tmp_path, InputQuantConfig("x", "set", OBJECT)).feed(0)


@pytest.mark.parametrize("color", ["RGB", "BGR", "AutoColorSpace"])
@pytest.mark.parametrize("layout", ["NCHW", "NHWC"])
def test_pictures_become_what_opencv_makes_of_them(color: str, layout: str, tmp_path: Path) -> None:
    pixels = np.random.default_rng(1).integers(0, 256, (13, 9, 3), np.uint8)
    plain(tmp_path / "set", {"a.png": png(pixels), ".hidden": b"", "labels.txt": b""})
    mean, std = (10.0, 20.0, 30.0), (2.0, 3.0, 4.0)
    shape = (1, 3, 4, 6) if layout == "NCHW" else (1, 4, 6, 3)
    found = opened(
        tmp_path,
        InputQuantConfig("x", "set", calibration_mean=mean, calibration_std=std),
        specs=(InputSpec("x", "float32", shape),),
        processors=(InputProcessor("x", ColorSpace[color], PictureLayout[layout]),),
    )
    resized = cv2.resize(pixels, (6, 4), interpolation=cv2.INTER_LINEAR)
    ordered = resized if color == "RGB" else resized[..., ::-1]
    expected = ((ordered - np.array(mean)) / np.array(std)).astype(np.float32)[np.newaxis]
    if layout == "NCHW":
        expected = expected.transpose(0, 3, 1, 2)
    np.testing.assert_allclose(found.feed(0)["x"], expected, atol=1e-5)
    assert found.skipped == ("set/.hidden", "set/labels.txt")
    assert any("read as BGR" in note for note in found.notes) == (color == "AutoColorSpace")


def test_a_mean_and_std_of_other_pixels_are_doubted(tmp_path: Path) -> None:
    plain(tmp_path / "set", {"a.png": png(np.zeros((4, 6, 3), np.uint8))})
    processors = (InputProcessor("x", ColorSpace.RGB),)
    slip = InputQuantConfig("x", "set", calibration_mean=(0.485, 0.456, 0.406), calibration_std=(0.004,) * 3)
    notes = opened(tmp_path, slip, processors=processors).notes
    assert any("looks like 1/255" in note for note in notes)
    assert any("lies between 0 and 1 while the source has pixel values" in note for note in notes)
    right = InputQuantConfig("x", "set", calibration_mean=(123.7,) * 3, calibration_std=(58.4,) * 3)
    assert opened(tmp_path, right, processors=processors).notes == ()


def test_gray_pictures(tmp_path: Path) -> None:
    pixels = np.arange(24, dtype=np.uint8).reshape(4, 6)
    plain(tmp_path / "set", {"a.png": png(pixels)})
    found = opened(tmp_path, InputQuantConfig("x", "set"), specs=(InputSpec("x", "uint8", (1, 1, 4, 6)),))
    np.testing.assert_array_equal(found.feed(0)["x"], pixels[np.newaxis, np.newaxis])
    assert found.notes == ()


def spec(*shape: int | str, dtype: str = "float32") -> tuple[InputSpec, ...]:
    return (InputSpec("x", dtype, shape),)


@pytest.mark.parametrize(
    ("specs", "config", "processor", "message"),
    [
        (spec(1, 10), {}, {}, r"takes float32 \[1, 10\], which is no picture"),
        (spec(1, 5, 4, 6), {}, {}, r"with 5 channels; pictures have 1 or 3"),
        (spec(1, 3, "H", 6), {}, {}, r"The size to which pictures are resized is not known"),
        (spec(2, 3, 4, 6), {}, {}, r"takes batches of 2; a picture is a batch of one"),
        (spec(1, 3, 4, 6), {"calibration_mean": (1.0, 2.0)}, {}, r"calibration_mean has 2 numbers, .* 3 channel"),
        (spec(1, 3, 4, 6, dtype="uint8"), {"calibration_std": (2.0,)}, {}, r"calibration_std cannot be applied"),
        (spec(1, 3, 4, 6), {}, {"tensor_format": ColorSpace.GRAY}, r"3 channel\(s\) are not GRAY"),
        (spec(1, 1, 4, 6), {}, {"tensor_format": ColorSpace.RGB}, r"1 channel\(s\) are not RGB"),
    ],
)
def test_inputs_that_take_no_pictures(
    specs: tuple[InputSpec, ...], config: dict[str, Any], processor: dict[str, Any], message: str, tmp_path: Path
) -> None:
    plain(tmp_path / "set", {"a.png": png(np.zeros((4, 6, 3), np.uint8))})
    with pytest.raises(BadInput, match=message):
        opened(
            tmp_path,
            InputQuantConfig("x", "set", **config),
            specs=specs,
            processors=(InputProcessor("x", **processor),),
        )


@pytest.mark.parametrize(
    ("kind", "files", "message"),
    [
        (
            NUMPY,
            {"a.npy": npy(np.zeros((1, 3, 4, 6), np.uint8))},
            r"got uint8 .*src_dtype U8 is for the deployed model",
        ),
        (NUMPY, {"a.npy": npy(np.zeros((1, 3, 4, 6)))}, r"expected float32 \[1, 3, 4, 6\], got float64"),
        (NUMPY, {"a.npy": npy(np.zeros((3, 4, 6), np.float32))}, r"got float32 \[3, 4, 6\].*batch axis included"),
        (NUMPY, {"a.npy": b"no"}, r"cannot be read for the input 'x'"),
        (NUMPY, {"a.npy": npy(np.zeros(3)), "a.png": b""}, r"is to be Numpy \(\.npy\), but holds a\.png"),
        (BINARY, {"a.bin": b"12"}, r"got 2 bytes where 288 are needed"),
        (IMAGE, {"a.npy": b"", "b.npy": b""}, r"is to be Image .*but holds a\.npy and 1 more like it"),
        (IMAGE, {"a.png": b"no picture"}, r"cannot be decoded as a picture"),
        (IMAGE, {".hidden": b""}, r"holds no sample files beside"),
    ],
)
def test_files_that_do_not_fit(
    kind: CalibrationFormat, files: dict[str, bytes], message: str, tmp_path: Path
) -> None:
    plain(tmp_path / "set", files)
    with pytest.raises(BadInput, match=r"(?s)" + message):
        opened(tmp_path, InputQuantConfig("x", "set", kind)).feed(0)


@pytest.mark.parametrize(
    ("kind", "name", "content"),
    [(NUMPY, "a.npy", b"no"), (OBJECT, "a.npy", npy({"x": [1]}, pickled=True)), (IMAGE, "a.png", b"no picture")],
)
def test_files_are_called_by_their_archive(
    kind: CalibrationFormat, name: str, content: bytes, tmp_path: Path
) -> None:
    zipped(tmp_path / "set.zip", {name: content})
    with pytest.raises(BadInput) as caught:
        opened(tmp_path, InputQuantConfig("x", "set.zip", kind)).feed(0)
    assert caught.value.what.startswith(f"set.zip/{name} ")


def test_binary_files_need_a_shape(tmp_path: Path) -> None:
    plain(tmp_path / "set", {"a.bin": b""})
    with pytest.raises(BadInput, match=r"Binary files say nothing of their shape"):
        opened(tmp_path, InputQuantConfig("x", "set", BINARY), specs=spec("N", 3))


def test_data_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match=r"The calibration data of 'x' does not exist: none\.tar"):
        opened(tmp_path, InputQuantConfig("x", "none.tar"))
    with pytest.raises(BadInput, match=r"The calibration data a+ cannot be read: File name too long"):
        opened(tmp_path, InputQuantConfig("x", "a" * 5000))
    with pytest.raises(BadInput, match=r"is at s3://a/b\.zip, and nothing is ever downloaded"):
        opened(tmp_path, InputQuantConfig("x", "s3://a/b.zip"))
    with pytest.raises(BadInput, match=r"No calibration data is configured for the input 'x'"):
        opened(tmp_path)


def test_means_of_arrays_are_not_applied_and_that_is_said(tmp_path: Path) -> None:
    (value,) = arrays(1)
    plain(tmp_path / "set", {"a.npy": npy(value)})
    found = opened(tmp_path, InputQuantConfig("x", "set", NUMPY, calibration_mean=(1.0,)))
    assert found.notes == (
        "x: calibration_mean and calibration_std are not applied to Numpy data, only to pictures",
    )
    np.testing.assert_array_equal(found.feed(0)["x"], value)
