"""Pictures against computations that share nothing with the code under test."""

import struct
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

from roundoff.core.tensors import Array, InputSpec
from roundoff.errors import BadInput
from roundoff.samples.images import place
from roundoff.samples.options import ImageOptions, SampleOptions
from roundoff.samples.sample_set import open_samples
from tests.samples.support import complaint, save, spec, values


def pixels(height: int, width: int, channels: int = 3, *, seed: int = 0) -> Array:
    rng = np.random.default_rng(seed)
    shape = (height, width, channels) if channels > 1 else (height, width)
    return rng.integers(0, 256, shape, dtype=np.uint8)


def picture(path: Path, array: Array, **params: Any) -> Path:
    Image.fromarray(array).save(path, **params)
    return path


def read(path: Path, wanted: InputSpec, **options: Any) -> Array:
    image = ImageOptions(**options) if options else None
    return open_samples(path, [wanted], SampleOptions(image=image)).feed(0)[wanted.name]


def triangle_weights(size: int, target: int) -> Array:
    """Weights [target, size] of a triangle filter that widens when shrinking; written from its definition."""
    ratio = size / target
    reach = max(ratio, 1.0)
    centres = (np.arange(target) + 0.5) * ratio
    distance = np.abs(np.arange(size) + 0.5 - centres[:, None]) / reach
    weights = np.clip(1 - distance, 0, None)
    normed: Array = weights / weights.sum(axis=1, keepdims=True)
    return normed


def bilinear(array: Array, height: int, width: int) -> Array:
    """Columns first, rounded to bytes, then rows, rounded to bytes; weights of 22 bits."""
    one = 1 << 22
    columns = np.floor(triangle_weights(array.shape[1], width) * one + 0.5).astype(np.int64)
    rows = np.floor(triangle_weights(array.shape[0], height) * one + 0.5).astype(np.int64)
    across = (np.einsum("tw,hwc->htc", columns, array.astype(np.int64)) + one // 2) // one
    down: Array = (np.einsum("th,hwc->twc", rows, across) + one // 2) // one
    return down.astype(np.uint8)


# Values


def test_uint8_inputs_get_the_pixels(tmp_path: Path) -> None:
    array = pixels(5, 7)
    path = picture(tmp_path / "a.png", array)
    np.testing.assert_array_equal(read(path, spec("x", 1, 5, 7, 3, dtype="uint8")), array[None])
    np.testing.assert_array_equal(
        read(path, spec("x", "N", 3, 5, 7, dtype="uint8")), array.transpose(2, 0, 1)[None]
    )


@settings(max_examples=15, deadline=None)
@given(
    st.floats(-2, 2).filter(bool),
    st.lists(st.floats(-300, 300), min_size=3, max_size=3),
    st.lists(st.floats(0.1, 300), min_size=3, max_size=3),
    st.sampled_from(["float16", "float32", "float64"]),
)
def test_scale_then_mean_then_std(
    tmp_path_factory: pytest.TempPathFactory, scale: float, mean: list[float], std: list[float], dtype: str
) -> None:
    array = pixels(2, 3)
    path = picture(tmp_path_factory.getbasetemp() / "scaled.png", array)
    wanted = spec("x", 1, 3, 2, 3, dtype=dtype)
    expected = np.empty((1, 3, 2, 3), dtype)
    for channel in range(3):
        plane = array[..., channel].astype(float)
        expected[0, channel] = (plane * scale - mean[channel]) / std[channel]
    got = read(path, wanted, layout="nchw", scale=scale, mean=tuple(mean), std=tuple(std))
    assert got.dtype == dtype
    assert got.flags.c_contiguous
    np.testing.assert_array_equal(got, expected)


def test_float_without_numbers_gets_pixel_values(tmp_path: Path) -> None:
    array = pixels(5, 5)
    got = read(picture(tmp_path / "a.bmp", array), spec("x", 1, 5, 5, 3))
    assert got.dtype == np.float32
    np.testing.assert_array_equal(got[0], array)


def test_bgr_turns_channels_and_means_follow(tmp_path: Path) -> None:
    array = pixels(4, 5)
    got = read(picture(tmp_path / "a.png", array), spec("x", 1, 3, 4, 5), color="bgr", mean=(1.0, 2.0, 3.0))
    for channel, source in enumerate((2, 1, 0)):
        np.testing.assert_array_equal(got[0, channel], array[..., source].astype(np.float32) - (channel + 1))


def test_one_number_serves_all_channels(tmp_path: Path) -> None:
    array = pixels(4, 4)
    path = picture(tmp_path / "a.png", array)
    wanted = spec("x", 1, 3, 4, 4)
    got = read(path, wanted, layout="nchw", scale=1 / 255, mean=0.5, std=(0.25,))
    expected = ((array / 255 - 0.5) / 0.25).astype(np.float32).transpose(2, 0, 1)[None]
    np.testing.assert_allclose(got, expected, rtol=1e-6)


def test_int8_takes_shifted_pixels_only(tmp_path: Path) -> None:
    array = pixels(4, 5)
    path = picture(tmp_path / "a.png", array)
    wanted = spec("x", 1, 3, 4, 5, dtype="int8")
    got = read(path, wanted, mean=128.0)
    np.testing.assert_array_equal(got[0].transpose(1, 2, 0), array.astype(int) - 128)
    with pytest.raises(BadInput) as caught:
        read(path, wanted)
    complaint(
        caught, "a.png does not fit the input 'x': expected int8 [1, 3, 4, 5], got values from", fix="--mean"
    )
    for options in ({"std": 2.0}, {"scale": 0.5}, {"mean": 0.485}):
        with pytest.raises(BadInput) as caught:
            read(path, wanted, **options)
        complaint(caught, "whole pixel values", fix="leave --scale and --std out")


# Colours


def test_gray_follows_the_luma_of_bt601(tmp_path: Path) -> None:
    array = pixels(6, 5)
    got = read(picture(tmp_path / "a.png", array), spec("x", 1, 1, 6, 5, dtype="uint8"))
    red, green, blue = (array[..., channel].astype(int) for channel in range(3))
    expected = (red * 19595 + green * 38470 + blue * 7471 + 32768) // 65536
    np.testing.assert_array_equal(got[0, 0], expected)


@pytest.mark.parametrize("shape", [(6, 5), (1, 6, 5), (6, 5, 1), ("N", 6, 5), (1, 6, 5, 1), ("N", 1, 6, 5)])
def test_gray_in_every_rank(tmp_path: Path, shape: tuple[int | str, ...]) -> None:
    array = pixels(6, 5, 1)
    got = read(picture(tmp_path / "a.png", array), spec("x", *shape, dtype="uint8"))
    assert got.shape == tuple(1 if size == "N" else size for size in shape)
    np.testing.assert_array_equal(got.ravel(), array.ravel())


def test_gray_pictures_fill_colour_inputs(tmp_path: Path) -> None:
    array = pixels(6, 5, 1)
    got = read(picture(tmp_path / "a.png", array), spec("x", 3, 6, 5, dtype="uint8"))
    np.testing.assert_array_equal(got, np.stack([array] * 3))


def test_alpha_is_dropped_without_blending_or_kept_for_four_channels(tmp_path: Path) -> None:
    array = pixels(6, 7, 4)
    array[0] = (10, 20, 30, 0)
    path = picture(tmp_path / "a.png", array)
    np.testing.assert_array_equal(read(path, spec("x", 1, 6, 7, 3, dtype="uint8"))[0], array[..., :3])
    np.testing.assert_array_equal(read(path, spec("x", 1, 6, 7, 4, dtype="uint8"))[0], array)
    bgra = read(path, spec("x", 1, 6, 7, 4, dtype="uint8"), color="bgr")[0]
    np.testing.assert_array_equal(bgra, array[..., [2, 1, 0, 3]])
    opaque = picture(tmp_path / "b.png", array[..., :3])
    assert (read(opaque, spec("x", 1, 6, 7, 4, dtype="uint8"))[..., 3] == 255).all()


def test_alpha_does_not_weigh_the_colours_when_resizing(tmp_path: Path) -> None:
    array = pixels(4, 6, 4)
    got = read(picture(tmp_path / "a.png", array), spec("x", 1, 8, 12, 4, dtype="uint8"), resize="stretch")
    np.testing.assert_array_equal(got[0], bilinear(array, 8, 12))


def test_palettes_and_bits_become_colours(tmp_path: Path) -> None:
    indices = np.array([[0, 1], [1, 0]], np.uint8)
    palette = Image.fromarray(indices).convert("P")
    palette.putpalette([10, 20, 30, 40, 50, 60])
    palette.putdata(indices.ravel().tolist())
    palette.save(tmp_path / "p.png", transparency=0)
    got = read(tmp_path / "p.png", spec("x", 1, 2, 2, 3, dtype="uint8"), layout="nhwc")
    np.testing.assert_array_equal(got[0], np.array([[10, 20, 30], [40, 50, 60]])[indices])
    Image.fromarray(indices * 255).convert("1").save(tmp_path / "b.png")
    np.testing.assert_array_equal(read(tmp_path / "b.png", spec("x", 2, 2, dtype="uint8")), indices * 255)


def test_exif_rotation_is_left_alone(tmp_path: Path) -> None:
    array = pixels(5, 6)
    turned = Image.Exif()
    turned[0x0112] = 6
    path = picture(tmp_path / "a.png", array, exif=turned)
    np.testing.assert_array_equal(read(path, spec("x", 1, 5, 6, 3, dtype="uint8"))[0], array)


def sixteen_bit_png(path: Path, array: Array) -> Path:
    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    height, width = array.shape[:2]
    rows = b"".join(b"\0" + row.astype(">u2").tobytes() for row in array)
    header = struct.pack(">IIBBBBB", width, height, 16, 2 if array.ndim == 3 else 0, 0, 0, 0)
    chunks = chunk(b"IHDR", header) + chunk(b"IDAT", zlib.compress(rows)) + chunk(b"IEND", b"")
    path.write_bytes(b"\x89PNG\r\n\x1a\n" + chunks)
    return path


@pytest.mark.parametrize("shape", [(4, 4), (4, 4, 3)])
def test_sixteen_bits_are_refused(tmp_path: Path, shape: tuple[int, ...]) -> None:
    path = sixteen_bit_png(tmp_path / "deep.png", np.full(shape, 40000, np.uint16))
    with pytest.raises(BadInput) as caught:
        read(path, spec("x", 1, 4, 4, 3), layout="nhwc")
    complaint(caught, "deep.png has more than 8 bits per channel", fix="convert it to 8 bits")


def test_several_pictures_in_one_file_are_refused(tmp_path: Path) -> None:
    frames = [Image.fromarray(pixels(4, 4, 1, seed=seed)) for seed in range(2)]
    frames[0].save(tmp_path / "a.gif", save_all=True, append_images=frames[1:])
    with pytest.raises(BadInput) as caught:
        read(tmp_path / "a.gif", spec("x", 4, 4, dtype="uint8"))
    complaint(caught, "a.gif holds 2 pictures", fix="its own file")


# Sizes


@settings(max_examples=25, deadline=None)
@given(st.integers(2, 9), st.integers(2, 9), st.integers(5, 12), st.integers(5, 12))
def test_stretch_bilinear(
    tmp_path_factory: pytest.TempPathFactory, height: int, width: int, target_height: int, target_width: int
) -> None:
    array = pixels(height, width)
    path = picture(tmp_path_factory.getbasetemp() / "stretched.png", array)
    wanted = spec("x", 1, target_height, target_width, 3, dtype="uint8")
    got = read(path, wanted, resize="stretch", layout="nhwc")[0]
    # One step off where the weights round the other way; the sizes below are exact.
    assert np.abs(got.astype(int) - bilinear(array, target_height, target_width)).max() <= 1


@pytest.mark.parametrize("target", [(5, 7), (10, 14), (3, 2), (8, 3), (17, 40), (1, 1)])
def test_bilinear_exactly(tmp_path: Path, target: tuple[int, int]) -> None:
    array = pixels(6, 9, seed=5)
    wanted = spec("x", 1, *target, 3, dtype="uint8")
    got = read(picture(tmp_path / "a.png", array), wanted, resize="stretch", layout="nhwc")
    np.testing.assert_array_equal(got[0], bilinear(array, *target))


def test_bilinear_doubling_by_hand(tmp_path: Path) -> None:
    array = np.array([[[0], [100]]], np.uint8).repeat(3, axis=2)
    got = read(
        picture(tmp_path / "a.png", array), spec("x", 1, 3, 1, 4, dtype="uint8"), resize="stretch", layout="nchw"
    )
    np.testing.assert_array_equal(got[0], [[[0, 25, 75, 100]]] * 3)


@pytest.mark.parametrize(
    ("method", "expected"),
    [("nearest", [[30, 40], [70, 80]]), ("area", [[20, 30], [60, 70]])],
)
def test_nearest_and_area(tmp_path: Path, method: str, expected: list[list[int]]) -> None:
    array = np.array([[10, 30, 20, 40], [10, 30, 20, 40], [50, 70, 60, 80], [50, 70, 60, 80]], np.uint8)
    got = read(picture(tmp_path / "a.png", array), spec("x", 2, 2, dtype="uint8"), resize="stretch", filter=method)
    np.testing.assert_array_equal(got, expected)


def test_bicubic_keeps_a_flat_picture_and_sharpens_an_edge(tmp_path: Path) -> None:
    flat = read(
        picture(tmp_path / "a.png", np.full((4, 4), 77, np.uint8)),
        spec("x", 9, 7, dtype="uint8"),
        resize="stretch",
        filter="bicubic",
    )
    assert (flat == 77).all()
    edge = np.repeat(np.array([[50, 50, 50, 200, 200, 200]], np.uint8), 2, axis=0)
    got = read(
        picture(tmp_path / "b.png", edge), spec("x", 2, 12, dtype="uint8"), resize="stretch", filter="bicubic"
    )
    assert got.min() < 50
    assert got.max() > 200


@settings(max_examples=100)
@given(*[st.integers(1, 60)] * 4)
def test_letterbox_geometry(height: int, width: int, target_height: int, target_width: int) -> None:
    target = (target_height, target_width)
    placed = place((height, width), target, canvas=target, mode="letterbox")
    assert placed.canvas == target
    # One side is filled, the other not exceeded, and the proportions are kept to half a pixel.
    assert target_height in placed.resized[:1] or target_width in placed.resized[1:]
    assert placed.resized[0] <= target_height
    assert placed.resized[1] <= target_width
    ratio = min(target_height / height, target_width / width)
    for side, had in zip(placed.resized, (height, width), strict=True):
        assert side == 1 or abs(side - had * ratio) <= 0.5 + 1e-9
    # The padding is even; an odd pixel goes below or to the right.
    for offset, side, full in zip(placed.offset, placed.resized, target, strict=True):
        assert full - side - 2 * offset in (0, 1)


@settings(max_examples=100)
@given(*[st.integers(1, 60)] * 4)
def test_crop_geometry(height: int, width: int, target_height: int, target_width: int) -> None:
    target = (target_height, target_width)
    placed = place((height, width), target, canvas=target, mode="crop")
    assert target_height in placed.resized[:1] or target_width in placed.resized[1:]
    for side, offset, full in zip(placed.resized, placed.offset, target, strict=True):
        assert side >= full
        assert offset <= 0
        assert side + offset >= full  # the canvas is covered
        assert abs((side - full) / 2 + offset) <= 0.5


@pytest.mark.parametrize("pad", [None, 7])
def test_letterbox_pixels(tmp_path: Path, pad: int | None) -> None:
    array = pixels(4, 8)
    options = {} if pad is None else {"pad": pad}
    got = read(
        picture(tmp_path / "a.png", array), spec("x", 1, 11, 8, 3, dtype="uint8"), resize="letterbox", **options
    )[0]
    np.testing.assert_array_equal(got[3:7], array)
    assert (np.delete(got, slice(3, 7), axis=0) == (114 if pad is None else pad)).all()


def test_crop_cuts_the_middle(tmp_path: Path) -> None:
    array = pixels(4, 9)
    path = picture(tmp_path / "a.png", array)
    got = read(path, spec("x", 1, 4, 5, 3, dtype="uint8"), resize="crop", layout="nhwc")[0]
    np.testing.assert_array_equal(got, array[:, 2:7])


def test_crop_from_a_larger_size(tmp_path: Path) -> None:
    array = pixels(8, 8)
    path = picture(tmp_path / "a.png", array)
    got = read(path, spec("x", 1, 6, 6, 3, dtype="uint8"), resize="crop", size=(8, 8))[0]
    np.testing.assert_array_equal(got, array[1:7, 1:7])
    free = read(path, spec("x", 1, "h", "w", 3, dtype="uint8"), resize="crop", size=(4, 4))[0]
    assert free.shape == (4, 4, 3)


def test_free_sizes_without_resizing(tmp_path: Path) -> None:
    picture(tmp_path / "a.png", pixels(5, 6))
    picture(tmp_path / "b.png", pixels(7, 8))
    samples = open_samples(tmp_path, [spec("x", "N", 3, "h", "w")])
    assert [samples.feed(index)["x"].shape for index in range(2)] == [(1, 3, 5, 6), (1, 3, 7, 8)]


def test_wrong_size_without_resizing(tmp_path: Path) -> None:
    path = picture(tmp_path / "a.png", pixels(5, 6))
    with pytest.raises(BadInput) as caught:
        read(path, spec("x", 1, 3, 8, 8))
    complaint(
        caught,
        "a.png does not fit the input 'x': expected float32 [1, 3, 8, 8], got a picture of 5x6 pixels",
        fix="--image-resize stretch, crop or letterbox",
    )


# What pictures cannot be made of


@pytest.mark.parametrize(
    ("wanted", "options", "part", "fix"),
    [
        (
            spec("x", 1, 8),
            {"mean": (1.0, 2.0)},
            "The mean has 2 numbers, the input 'x' has 1 channel(s)",
            "one number",
        ),
        (spec("x", 1, 2, 3, 4, 5), {}, "'x' takes float32 [1, 2, 3, 4, 5], which is no picture", ".npy"),
        (spec("x", 8), {}, "which is no picture", ".npy"),
        (spec("x", 1, 8, 8, dtype="bool"), {}, "which is no picture", ".npy"),
        (spec("x", 1, 3, 8, 3), {}, "Which axis of the input 'x' holds the channels", "--image-layout"),
        (spec("x", "N", "c", "h", "w"), {}, "Which axis of the input 'x' holds the channels", "--image-layout"),
        (InputSpec("x", "float32", None), {}, "Which axis of the input 'x' holds", "--image-layout"),
        (spec("x", 1, 3, 8, 8), {"layout": "nhwc"}, "with 8 channels; pictures have 1, 3 or 4", "another"),
        (spec("x", 1, 3, 8, 8), {"color": "gray"}, "3 channel(s), which gray pictures", "rgb or bgr"),
        (spec("x", 1, 1, 8, 8), {"color": "bgr"}, "1 channel(s), which bgr pictures", "--image-color gray"),
        (spec("x", 1, 3, 8, 8), {"std": (1.0, 2.0)}, "The std has 2 numbers", "3 separated by commas"),
        (
            spec("x", 1, 3, "h", 8),
            {"resize": "crop"},
            "The size to resize pictures to is not known",
            "--image-size",
        ),
        (
            spec("x", 1, 3, 8, 8),
            {"resize": "stretch", "size": (9, 8)},
            "Pictures resized to 9x8 do not fit the input 'x'",
            "leave --image-size out",
        ),
        (
            spec("x", 1, 3, 8, 8),
            {"resize": "crop", "size": (7, 9)},
            "Pictures resized to 7x9",
            "leave --image-size",
        ),
    ],
)
def test_contradictions_are_found_on_opening(
    tmp_path: Path, wanted: InputSpec, options: dict[str, Any], part: str, fix: str
) -> None:
    picture(tmp_path / "a.png", pixels(8, 8))
    with pytest.raises(BadInput) as caught:
        open_samples(tmp_path, [wanted], SampleOptions(image=ImageOptions(**options)))
    complaint(caught, part, fix=fix)


def test_unknown_rank_with_a_layout(tmp_path: Path) -> None:
    path = picture(tmp_path / "a.png", pixels(5, 6))
    assert read(path, InputSpec("x", "float32", None), layout="nhwc").shape == (1, 5, 6, 3)


def test_values_too_large_for_the_type(tmp_path: Path) -> None:
    path = picture(tmp_path / "a.png", pixels(4, 4))
    with pytest.raises(BadInput, match=r"expected float16 .* got values from"):
        read(path, spec("x", 1, 4, 4, 3, dtype="float16"), layout="nhwc", scale=1e6)


# Folders


def test_nested_folder_with_notes(tmp_path: Path) -> None:
    for name in ("cat/1.png", "cat/10.PNG", "cat/2.bmp", "dog/1.webp"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        picture(tmp_path / name, pixels(8, 8))
    for name in ("labels.csv", ".DS_Store", "cat/1.txt", "README", "dog/Thumbs.db"):
        (tmp_path / name).write_text("x")
    samples = open_samples(tmp_path, [spec("x", 1, 3, 8, 8)])
    assert samples.names == ("cat/1", "cat/2", "cat/10", "dog/1")
    assert {Path(name).name for name in samples.skipped} == {
        "labels.csv",
        ".DS_Store",
        "1.txt",
        "README",
        "Thumbs.db",
    }


def test_something_else_among_pictures(tmp_path: Path) -> None:
    picture(tmp_path / "a.png", pixels(8, 8))
    (tmp_path / "model.onnx").write_text("x")
    with pytest.raises(BadInput) as caught:
        open_samples(tmp_path, [spec("x", 1, 3, 8, 8)])
    complaint(caught, "model.onnx is of no known kind (suffix .onnx)", fix="remove it")


def test_pictures_fill_a_fixed_batch(tmp_path: Path) -> None:
    arrays = [pixels(8, 8, seed=seed) for seed in range(4)]
    for number, array in enumerate(arrays):
        picture(tmp_path / f"{number}.png", array)
    samples = open_samples(tmp_path, [spec("x", 2, 8, 8, 3, dtype="uint8")])
    assert samples.names == ("0..1", "2..3")
    np.testing.assert_array_equal(samples.feed(1)["x"], arrays[2:])


def test_pictures_beside_numbers(tmp_path: Path) -> None:
    (tmp_path / "x").mkdir()
    picture(tmp_path / "x" / "a.png", pixels(8, 8))
    save(tmp_path / "info" / "a.npy", values(1, 3))
    options = SampleOptions(image=ImageOptions(scale=0.5))
    feed = open_samples(tmp_path, [spec("x", 1, 3, 8, 8), spec("info", 1, 3)], options).feed(0)
    assert feed["info"].tolist() == [[0, 1, 2]]
    np.testing.assert_array_equal(feed["x"][0].transpose(1, 2, 0), pixels(8, 8) * 0.5)


@pytest.mark.parametrize("damage", ["empty", "text", "cut"])
def test_damaged_pictures(tmp_path: Path, damage: str) -> None:
    path = picture(tmp_path / "a.jpg", pixels(64, 64))
    whole = path.read_bytes()
    path.write_bytes({"empty": b"", "text": b"no picture", "cut": whole[: len(whole) // 2]}[damage])
    samples = open_samples(tmp_path, [spec("x", 1, 3, 64, 64)])
    with pytest.raises(BadInput) as caught:
        samples.feed(0)
    complaint(caught, "a.jpg cannot be decoded as a picture", fix="remove it")
    assert "_io" not in caught.value.what


def test_picture_that_is_gone(tmp_path: Path) -> None:
    path = picture(tmp_path / "a.png", pixels(8, 8))
    samples = open_samples(tmp_path, [spec("x", 1, 3, 8, 8)])
    path.unlink()
    with pytest.raises(BadInput, match=r"The picture .*a\.png does not exist"):
        samples.feed(0)


def test_bomb(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = picture(tmp_path / "a.png", pixels(8, 8))
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", 4)
    with pytest.raises(BadInput, match=r"a\.png cannot be decoded"):
        read(path, spec("x", 1, 3, 8, 8))
