"""Colours: noise, JPEG and resizing are accused of nothing; matrices, gray and gamma are named."""

import io
from collections.abc import Callable

import numpy as np
import pytest
from PIL import Image, ImageFilter

from roundoff.core.tensors import Array
from roundoff.preprocessing.colours import MATRICES, MATRIX_DIGITS, yuv_to_rgb
from roundoff.studies.check_io.colours import colour_claims, left_in_place
from roundoff.studies.check_io.explanation import excluded, explain_difference
from tests.studies.check_io.pictures import fed, planes


def drawn(seed: int, height: int = 64, width: int = 72) -> Array:
    """A field with the spectrum of photographs, channels that are alike, rectangles with edges, and letters."""
    rng = np.random.default_rng(seed)

    def field() -> Array:
        frequency = np.hypot(np.fft.fftfreq(height)[:, None], np.fft.fftfreq(width)[None])
        frequency[0, 0] = 1
        waves = np.fft.ifft2(np.fft.fft2(rng.normal(size=(height, width))) / frequency**1.3).real
        return np.asarray(waves / waves.std())

    shared = field()
    picture = np.stack([shared + rng.uniform(0.1, 0.8) * field() for _ in range(3)], axis=-1)
    for _ in range(rng.integers(2, 8)):
        top, left = rng.integers(0, height), rng.integers(0, width)
        part = picture[top : top + rng.integers(3, 30), left : left + rng.integers(3, 30)]
        part[:] = part * rng.uniform(0.2, 1) + 1.5 * rng.normal(size=3)
    if seed % 2:
        letters = rng.random((height // 8, width // 6, 1)) < 0.2
        picture = np.where(np.kron(letters[..., 0], np.ones((8, 6)))[..., None] * rng.random(3) > 0.5, 3, picture)
    return np.clip(np.rint(picture * rng.uniform(35, 70) + rng.uniform(90, 160)), 0, 255).astype(np.uint8)


def jpeg(picture: Array, quality: int) -> Array:
    stored = io.BytesIO()
    Image.fromarray(picture).save(stored, "JPEG", quality=quality)
    return np.asarray(Image.open(stored))


def resized(picture: Array, rng: np.random.Generator) -> Array:
    filters = rng.choice([Image.Resampling.BILINEAR, Image.Resampling.BICUBIC, Image.Resampling.LANCZOS], 2)
    height, width = picture.shape[:2]
    factor = rng.choice([0.75, 0.9, 1.3, 2.0])
    there = Image.fromarray(picture).resize((int(width * factor), int(height * factor)), int(filters[0]))
    return np.asarray(there.resize((width, height), int(filters[1])))


NULLS: dict[str, Callable[[Array, np.random.Generator], Array]] = {
    "noise": lambda p, rng: p + rng.choice([0.05, 0.5, 2, 8]) * rng.normal(size=p.shape),
    "luma noise": lambda p, rng: p + rng.choice([0.5, 2, 8]) * rng.normal(size=(*p.shape[:2], 1)),
    "rounded noise": lambda p, rng: np.clip(np.rint(p + rng.choice([1, 4]) * rng.normal(size=p.shape)), 0, 255),
    "dithered": lambda p, rng: np.floor(p / 4 + rng.random(p.shape)) * 4,
    "jpeg": lambda p, rng: jpeg(p, int(rng.choice([30, 60, 85, 95]))),
    "resized": resized,
    "blurred": lambda p, rng: np.asarray(
        Image.fromarray(p).filter(ImageFilter.GaussianBlur(float(rng.choice([0.5, 1.0, 2.0]))))
    ),
    "contrast": lambda p, rng: np.clip(np.rint((p - 128.0) * rng.choice([0.8, 0.86, 1.1, 1.16]) + 138), 0, 255),
    "dead pixels": lambda p, rng: np.where(rng.random((*p.shape[:2], 1)) < 0.02, 0, p),
}
NUMBERS: tuple[Callable[[Array], Array], ...] = (
    lambda p: p * 1.0,
    lambda p: p / 255,
    lambda p: p / 127.5 - 1,
    lambda p: (p / 255 - np.array((0.485, 0.456, 0.406))) / np.array((0.229, 0.224, 0.225)),
)


@pytest.mark.parametrize("kind", NULLS)
def test_what_is_no_difference_of_colours_is_accused_of_nothing(kind: str) -> None:
    for seed in range(24):
        rng = np.random.default_rng([seed, len(kind)])
        picture, numbers = drawn(seed), NUMBERS[seed % len(NUMBERS)]
        deployed = NULLS[kind](picture, rng).astype(np.float64)
        # Nor where the numbers are made in another way, which is a large difference without any of the colours.
        for made in (numbers, NUMBERS[0]):
            found = list(colour_claims([(numbers(picture.astype(np.float64)), made(deployed))], tolerance=1e-4))
            assert not found, [str(change.text) for claim in found for change in claim.changes]


@pytest.mark.parametrize("kind", NULLS)
def test_nor_by_the_whole_search(kind: str) -> None:
    rng = np.random.default_rng(len(kind))
    pictures = [drawn(seed) for seed in (101, 102)]
    training = [planes(p / 255).astype(np.float32) for p in pictures]
    deployed = [planes(NULLS[kind](p, rng) / 255).astype(np.float32) for p in pictures]
    assert explain_difference(training, deployed) is None


def test_exact_matrices_agree_with_the_published_digits() -> None:
    for name, rounded in MATRICES.items():
        exact = MATRIX_DIGITS[name][0]
        assert np.allclose(np.array(exact).reshape(3, 4)[:, :3], np.array(rounded).reshape(3, 4)[:, :3], atol=1e-3)
        # Black and white stay black and white.
        rows = np.array(exact).reshape(3, 4)
        ends = ((16, 128, 128), (235, 128, 128)) if "limited" in name else ((0, 128, 128), (255, 128, 128))
        for end, value in zip(ends, (0, 255), strict=True):
            assert rows[:, :3] @ end + rows[:, 3] == pytest.approx([value] * 3, abs=1e-9)
    red = (1 - 0.299) * 2
    assert yuv_to_rgb(0.299, 0.114, limited=False)[2] == pytest.approx(red)


@pytest.mark.parametrize("whole", [False, True])
@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("BT.601 limited range", "BT.709 limited range"),
        ("BT.601 limited range", "BT.601 full range"),
        ("BT.709 full range", "BT.601 limited range"),
    ],
)
@pytest.mark.parametrize("digits", [0, -1])
def test_matrices_are_named_in_float_and_in_bytes(one: str, other: str, digits: int, whole: bool) -> None:
    first, second = (np.array(MATRIX_DIGITS[name][digits]).reshape(3, 4) for name in (one, other))
    picture = drawn(7) * 0.6 + 50
    stored = (picture - first[:, 3]) @ np.linalg.inv(first[:, :3]).T
    stored = np.rint(stored) if whole else stored
    sides = [stored @ rows[:, :3].T + rows[:, 3] for rows in (first, second)]
    sides = [np.rint(side) for side in sides] if whole else sides
    found = list(colour_claims([(sides[0], sides[1])], tolerance=1e-4))
    assert len(found) == 1
    words = f"training decodes YUV by {one}, the deployed side by {other}"
    assert words in [str(found[0].changes[0].text), *map(str, found[0].alternatives)]
    assert found[0].exact != whole


@pytest.mark.parametrize("deployed_is_gray", [False, True])
@pytest.mark.parametrize("channels", [1, 3])
@pytest.mark.parametrize("weights", [(0.299, 0.587, 0.114), (0.2126, 0.7152, 0.0722), (1 / 3, 1 / 3, 1 / 3)])
def test_gray_against_colour(weights: tuple[float, ...], channels: int, deployed_is_gray: bool) -> None:
    picture = drawn(9)
    gray = np.repeat(np.rint(picture @ np.array(weights))[..., None], channels, axis=-1)
    sides = [planes(each / 255).astype(np.float32) for each in (picture, gray)]
    found = explain_difference(*(sides if deployed_is_gray else sides[::-1]))
    assert found is not None
    assert found.kinds == ("channels",)
    first = "(R + G" if weights[0] == weights[1] else f"{weights[0]} R"
    assert first in str(found.changes[0].text)
    assert any("verified by making" in str(note) for note in found.notes) == deployed_is_gray


@pytest.mark.parametrize("exponent", [2.2, 1 / 2.2, 1.8])
def test_gamma(exponent: float) -> None:
    picture = drawn(12)
    curved = np.rint(255 * (picture / 255) ** exponent)
    found = explain_difference(planes(picture), planes(curved.astype(np.uint8)))
    assert found is not None
    assert found.kinds == ("gamma",)
    assert "gamma of" in str(found.changes[0].text)
    assert found.residual < 1


@pytest.mark.parametrize("axis", [1, 2])
@pytest.mark.parametrize("side", ["deployed", "training"])
def test_softmax_on_either_side_and_any_axis(axis: int, side: str) -> None:
    logits = np.random.default_rng(1).normal(size=(1, 12, 30)) * 3
    powers = np.exp(logits)
    odds = powers / powers.sum(axis=axis, keepdims=True)
    pair = (logits, odds) if side == "deployed" else (odds, logits)
    found = explain_difference(*pair, pictures=False, tolerance=1e-4)
    assert found is not None
    said = str(found.changes[0].text)
    assert "softmax" in said
    assert f"along axis {axis}" in said
    assert ("applies softmax" in said) == (side == "deployed")


def _softmax(values: Array) -> Array:
    powers = np.exp(values)
    return np.asarray(powers / powers.sum(axis=-1, keepdims=True))


FUNCTIONS: dict[str, Callable[[Array], Array]] = {
    "tanh": np.tanh,
    "ReLU": lambda x: np.maximum(x, 0),
    "ReLU6": lambda x: np.clip(x, 0, 6),
    "a threshold of 0": lambda x: (x > 0).astype(np.float32),
    "one-hot": lambda x: (x == x.max(axis=-1, keepdims=True)).astype(np.float32),
    "L2": lambda x: x / np.linalg.norm(x, axis=-1, keepdims=True),
    "argmax": lambda x: x.argmax(axis=-1),
    "(along axis 1)": lambda x: x.argmax(axis=1)[:, None],
}


@pytest.mark.parametrize("name", FUNCTIONS)
@pytest.mark.parametrize("side", ["deployed", "training"])
def test_functions_that_forget_are_verified_forward(name: str, side: str) -> None:
    values = np.random.default_rng(2).normal(size=(3, 12, 9)) * 4
    made = FUNCTIONS[name](values)
    found = explain_difference(*((values, made) if side == "deployed" else (made, values)), pictures=False)
    assert found is not None
    assert found.kinds == ("activation",)
    assert found.exact
    assert name in str(found.changes[0].text)
    assert any("verified by making" in str(note) for note in found.notes) == (side == "deployed")


def test_a_function_under_noise_is_named_and_noise_alone_is_none() -> None:
    rng = np.random.default_rng(3)
    logits = rng.normal(size=(4, 50)) * 3
    noisy = logits + 0.1 * rng.normal(size=logits.shape)
    found = explain_difference(_softmax(logits), noisy, pictures=False)
    assert found is not None
    assert "softmax is missing" in str(found.changes[0].text)
    assert not found.exact
    assert explain_difference(_softmax(logits), _softmax(noisy), pictures=False) is None


@pytest.mark.parametrize("seed", [1, 2])
def test_a_slip_is_named_under_jpeg_and_jpeg_alone_is_not(seed: int) -> None:
    picture = drawn(seed)
    stored = jpeg(picture, 90)
    assert explain_difference(fed(picture), fed(stored)) is None
    found = explain_difference(fed(picture), fed(stored[:, ::-1]))
    assert found is not None
    assert found.kinds == ("mirrored",)
    assert not found.exact
    apart = float(np.sqrt(np.square(fed(picture) - fed(stored)).mean()))
    assert found.residual_rms == pytest.approx(apart, rel=1e-6), "what is left is what JPEG makes"
    assert any("such as noise, JPEG or resampling" in str(note) for note in found.notes)


def test_pixels_that_stay_in_place_are_explained_by_a_filter_at_best() -> None:
    picture = drawn(4).astype(np.float64)
    blurred = np.asarray(Image.fromarray(drawn(4)).filter(ImageFilter.GaussianBlur(0.7)), np.float64)
    left = left_in_place([(picture, blurred)])
    assert left is not None
    assert left < 0.5 * float(np.sqrt(np.square(picture - blurred).mean()))
    assert left_in_place([(picture[:4, :4], blurred[:4, :4])]) is None


def test_ranges_that_give_the_same_colours_are_both_listed() -> None:
    """Full and limited range on both sides alike make the same difference of colours."""
    picture = drawn(5).astype(np.float64)
    weights = ((0.299, 0.114), (0.2126, 0.0722))
    matrices = [np.array(yuv_to_rgb(*each, limited=False)).reshape(3, 4) for each in weights]
    yuv = (picture - matrices[0][:, 3]) @ np.linalg.inv(matrices[0][:, :3]).T
    other = yuv @ matrices[1][:, :3].T + matrices[1][:, 3]
    found = explain_difference(planes(picture / 255), planes(other / 255))
    assert found is not None
    assert found.kinds == ("colour-matrix",)
    said = " ".join(map(str, (found.changes[0].text, *found.alternatives)))
    for name in ("BT.601 full range", "BT.601 limited range"):
        assert name in said


def test_what_was_not_tried_is_not_excluded() -> None:
    rng = np.random.default_rng(0)

    def told(one: Array, other: Array, *, pictures: bool = True) -> str:
        return "; ".join(map(str, excluded([one], [other], pictures=pictures)))

    picture = drawn(6)[None].astype(np.float32)
    assert "BT.601" in told(picture, picture + 1)
    assert "gray against colour" in told(picture, picture + 1)
    gray = picture[..., :1]
    assert "BT.601" not in told(gray, gray + 1), "one channel has no colours"
    assert "gamma" in told(gray, gray + 1)
    assert "gamma" not in told(picture[:, :5, :5], picture[:, :5, :5] + 1), "too small to judge"
    assert told(picture, picture[:, :40, :50]).startswith("resizing"), "of two sizes nothing lies on the other"
    values = rng.normal(size=(4, 9))
    assert "softmax" in told(values, values + 1, pictures=False)
    assert "softmax" not in told(values, values[:, 0], pictures=False)
    assert "argmax" in told(values, values[:, 0], pictures=False)
    assert told(values, rng.normal(size=(5, 5)), pictures=False) == ""


def test_values_that_are_cut_off_and_not_rounded() -> None:
    rng = np.random.default_rng(1)
    fine = planes(drawn(7) + rng.uniform(0, 0.999, (64, 72, 3)))
    found = explain_difference(fine, np.floor(fine))
    assert found is not None
    assert found.kinds == ("codes",)
    assert "cut off to steps of 1" in str(found.changes[0].text)
