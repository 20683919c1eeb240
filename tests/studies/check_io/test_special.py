"""Borders, colours, tensors that are no pictures, and the way from an original."""

from collections.abc import Callable

import cv2
import numpy as np
import pytest
from PIL import Image

from roundoff.core.tensors import Array
from roundoff.preprocessing.colours import MATRICES, Csc, PackedFormat, from_yuv, packed, unpacked
from roundoff.studies.check_io.candidates import ClaimCriteria
from roundoff.studies.check_io.explanation import explain_difference
from roundoff.studies.check_io.origins import find_origin
from tests.preprocessing.yuv import to_yuv
from tests.studies.check_io.pictures import fed, natural, planes

RNG = np.random.default_rng(0)
ORIGINALS = [natural(RNG, 120, 160) for _ in range(2)]


def boxed(picture: Array, value: int, *, top: int) -> Array:
    canvas = np.full((64, 64, 3), value, np.uint8)
    canvas[top : top + 48] = cv2.resize(picture, (64, 48))
    return canvas


@pytest.mark.parametrize(
    ("deployed", "kinds"),
    [
        (lambda p: fed(boxed(p, 0, top=8)), ("padding",)),
        (lambda p: fed(boxed(p, 114, top=0)), ("placement",)),
        (lambda p: planes(boxed(p, 0, top=0)), ("normalization", "placement", "padding")),
        (
            lambda p: boxed(p, 0, top=8)[None, ..., ::-1],
            ("layout", "channel-order", "normalization", "padding"),
        ),
    ],
)
def test_letterboxes(deployed: Callable[[Array], Array], kinds: tuple[str, ...]) -> None:
    training = [fed(boxed(p, 114, top=8)) for p in ORIGINALS]
    found = explain_difference(training, [np.ascontiguousarray(deployed(p)) for p in ORIGINALS])
    assert found is not None
    assert found.kinds == kinds
    assert found.exact


def decoded(picture: Array, matrix: str, stored: PackedFormat, read: PackedFormat, *, by: str) -> Array:
    """A picture that was stored as YUV of one matrix and read by another."""
    muted = picture * 0.6 + 50  # nothing is cut off at black or white
    values = packed(np.clip(np.rint(to_yuv(muted, matrix)), 0, 255).astype(np.uint8), stored)
    numbers = tuple(v / 256 if place % 4 == 3 else v for place, v in enumerate(MATRICES[by]))
    return np.rint(from_yuv(unpacked(values, read), Csc("matrix", numbers))).astype(np.uint8)


@pytest.mark.parametrize("raw", [False, True])
@pytest.mark.parametrize(
    ("other", "read"),
    [
        ("BT.601 full range", "YUV420SP"),
        ("BT.709 limited range", "YUV420SP"),
        ("BT.709 full range", "YUV420SP"),
        ("BT.601 limited range", "YVU420SP"),
    ],
)
def test_yuv_matrices(other: str, read: PackedFormat, raw: bool) -> None:
    right = [
        decoded(p, "BT.601 limited range", "YUV420SP", "YUV420SP", by="BT.601 limited range") for p in ORIGINALS
    ]
    wrong = [decoded(p, "BT.601 limited range", "YUV420SP", read, by=other) for p in ORIGINALS]
    found = explain_difference([fed(p) for p in right], [planes(p) if raw else fed(p) for p in wrong])
    assert found is not None
    assert found.kinds == (("colour-matrix", "normalization") if raw else ("colour-matrix",))
    exchanged = " with U and V exchanged" if read == "YVU420SP" else ""
    assert f"training decodes YUV by BT.601 limited range, the deployed side by {other}{exchanged}" in str(
        found.changes[0].text
    )


def test_tensors_that_are_no_pictures() -> None:
    rng = np.random.default_rng(1)
    logits = [rng.normal(size=(1, 500)).astype(np.float32) for _ in range(2)]
    odds = [np.exp(x) / np.exp(x).sum() for x in logits]
    grid = [x.reshape(1, 10, 10, 5) for x in logits]
    boxes = [rng.normal(size=(1, 20, 6)) for _ in range(2)]
    cases: list[tuple[list[Array], list[Array], str]] = [
        (odds, logits, "softmax is missing"),
        ([1 / (1 + np.exp(-x)) for x in logits], logits, "sigmoid is missing"),
        (logits, [1 / (1 + np.exp(-x.astype(np.float64))) for x in logits], "applies sigmoid, training does not"),
        (logits, [np.rint(x / 0.03 + 3).astype(np.int16) for x in logits], "zero point 3"),
        (logits, [x.reshape(500) for x in logits], "with the values in the same order"),
        (grid, [x.transpose(0, 3, 1, 2) for x in grid], "axes are permuted"),
        (boxes, [x[:, rng.permutation(20)] for x in boxes], "the same rows in another order"),
    ]
    for training, deployed, words in cases:
        found = explain_difference(training, deployed, pictures=False, tolerance=1e-4)
        assert found is not None, words
        assert words in str(found.changes[0].text)
    assert explain_difference(logits, [rng.normal(size=(1, 500)) for _ in logits], pictures=False) is None
    noisy = [x + 0.01 * rng.normal(size=x.shape) for x in logits]
    assert explain_difference(logits, noisy, pictures=False) is None


def cropped(picture: Array, size: int) -> Array:
    scaled = cv2.resize(picture, (size * 160 // 120, size))
    top, left = round((scaled.shape[0] - 64) / 2), round((scaled.shape[1] - 64) / 2)
    result: Array = scaled[top : top + 64, left : left + 64]
    return result


WAYS: dict[str, tuple[Callable[[Array], Array], tuple[str, ...]]] = {
    "nearest": (lambda p: cv2.resize(p, (64, 64), interpolation=cv2.INTER_NEAREST), ("resized nearest (OpenCV)",)),
    "bilinear": (lambda p: cv2.resize(p, (64, 64)), ("stretched", "resized bilinear (OpenCV), in bytes")),
    "float": (lambda p: cv2.resize(p.astype(np.float32), (64, 64)), ("resized bilinear (OpenCV), in float",)),
    "area": (lambda p: cv2.resize(p, (64, 64), interpolation=cv2.INTER_AREA), ("resized area (OpenCV)",)),
    "bicubic": (lambda p: cv2.resize(p, (64, 64), interpolation=cv2.INTER_CUBIC), ("resized bicubic (OpenCV)",)),
    "pillow": (
        lambda p: np.asarray(Image.fromarray(p).resize((64, 48), Image.Resampling.BILINEAR)),
        ("resized bilinear antialiased",),
    ),
    "pillow nearest": (
        lambda p: np.asarray(Image.fromarray(p).resize((50, 50), Image.Resampling.NEAREST)),
        ("resized nearest (Pillow",),
    ),
    "letterbox": (lambda p: boxed(p, 114, top=8), ("letterboxed, centred", "border 114")),
    "corner": (lambda p: boxed(p, 0, top=0), ("top left corner", "border 0")),
    "crop": (lambda p: cropped(p, 73), ("scaled to cover 73x73, middle cut out",)),
    "cover": (lambda p: cropped(p, 64), ("scaled to cover 64x64, middle cut out",)),
    "cut": (lambda p: p[28:92, 48:112], ("middle cut out without resizing",)),
    "mirrored": (lambda p: cv2.resize(p, (64, 64))[:, ::-1], ("mirrored left to right",)),
    "bgr": (lambda p: cv2.resize(p, (64, 64))[..., ::-1], ("channels reversed",)),
    "transposed": (lambda p: cv2.resize(p, (64, 48)).transpose(1, 0, 2), ("height and width exchanged",)),
}


@pytest.mark.parametrize("way", WAYS)
def test_the_way_from_the_original(way: str) -> None:
    change, words = WAYS[way]
    found = find_origin(ORIGINALS, [fed(change(p)) for p in ORIGINALS], ClaimCriteria(1e-4))
    assert found is not None
    assert found.claim.accepted
    # OpenCV's bicubic with IPP, and Pillow from version 13 on, round some bytes in their own way.
    assert found.claim.exact or way in ("bicubic", "pillow")
    said = "; ".join(map(str, found.words()))
    for word in words:
        assert word in said
    assert "mean and std of ImageNet" in said


def test_the_way_from_packed_yuv() -> None:
    stored = [
        packed(np.rint(to_yuv(p * 0.8 + 20, "BT.601 full range")).astype(np.uint8), "YVU420SP") for p in ORIGINALS
    ]
    matrix = tuple(v / 256 if place % 4 == 3 else v for place, v in enumerate(MATRICES["BT.601 full range"]))
    colours = [np.rint(from_yuv(unpacked(s, "YVU420SP"), Csc("matrix", matrix))).astype(np.uint8) for s in stored]
    found = find_origin(stored, [fed(c) for c in colours], ClaimCriteria(1e-4))
    assert found is not None
    assert str(found.words()[0]) == "decoded as YVU420SP by BT.601 full range"
    assert found.claim.exact


def test_nothing_comes_from_another_original() -> None:
    rng = np.random.default_rng(5)
    made = [fed(natural(rng, 64, 64)) for _ in ORIGINALS]
    found = find_origin(ORIGINALS, made, ClaimCriteria(1e-4))
    assert found is None or not found.claim.accepted
