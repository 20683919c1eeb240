"""Planted mistakes are named; what agrees, and what has nothing to do with each other, is not."""

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from roundoff.core.tensors import Array
from roundoff.preprocessing.conventions import MeanStd
from roundoff.studies.check_io.explanation import explain_difference
from roundoff.studies.check_io.result import Explanation
from tests.studies.check_io.pictures import LAYOUTS, TURNS, VALUES, fed, natural, noise, normalized, planes


def explained(training: list[Array], deployed: list[Array], **options: object) -> Explanation:
    found = explain_difference(training, deployed, **options)  # type: ignore[arg-type]
    assert found is not None
    return found


def text_of(found: Explanation) -> str:
    return "; ".join(str(change.text) for change in found.changes)


@pytest.mark.parametrize("make", [natural, noise])
@pytest.mark.parametrize("mistake", VALUES)
def test_every_slip_of_values_has_its_name(mistake: str, make: object) -> None:
    rng = np.random.default_rng(len(mistake))
    pictures = [make(rng) for _ in range(2)]  # type: ignore[operator]
    change, words = VALUES[mistake]
    found = explained([fed(p) for p in pictures], [planes(change(p)).astype(np.float32) for p in pictures])
    assert found.kinds == ("normalization",)
    assert words in text_of(found)
    assert found.exact
    assert found.samples == 2
    assert found.changes[0].correction is not None


@pytest.mark.parametrize("top", [255.0, 1.0])
@pytest.mark.parametrize("limited", ["deployed", "training"])
def test_pixels_of_limited_range_are_no_codes(limited: str, top: float) -> None:
    rng = np.random.default_rng(6)
    full = [planes(natural(rng)).astype(np.float32) * top / 255 for _ in range(2)]
    squeezed = [(each * 219 / 255 + 16 * top / 255).astype(np.float32) for each in full]
    sides = (full, squeezed) if limited == "deployed" else (squeezed, full)
    found = explained(*sides)
    assert found.kinds == ("range",)
    words = "the deployed side has" if limited == "deployed" else "training has"
    assert text_of(found).startswith(f"{words} pixels of limited range (black 16, white 235)")


def test_limited_range_is_seen_behind_a_normalization_and_rounding() -> None:
    rng = np.random.default_rng(8)
    full = [natural(rng).astype(np.float32) for _ in range(2)]
    squeezed = [np.rint(each * 219 / 255 + 16) for each in full]
    found = explained(
        *([planes(each).astype(np.float32) / 127.5 - 1 for each in side] for side in (full, squeezed))
    )
    assert found.kinds == ("range",)
    found = explained([fed(each) for each in full], [fed(each * 219 / 255 + 16) for each in full])
    assert found.kinds == ("range",)
    assert found.exact


def test_codes_have_a_whole_zero_point() -> None:
    rng = np.random.default_rng(7)
    pixels = [planes(natural(rng)).astype(np.float32) for _ in range(2)]
    assert explained(pixels, [(each - 3) * np.float32(0.05) for each in pixels]).kinds == ("codes",)
    between = explained(pixels, [(each - np.float32(3.4)) * np.float32(0.05) for each in pixels])
    assert between.kinds != ("codes",)


@pytest.mark.parametrize("make", [natural, noise])
@pytest.mark.parametrize(("turn", "layout"), [*itertools.product([*TURNS, ""], LAYOUTS)])
def test_every_arrangement_has_its_name(turn: str, layout: str, make: object) -> None:
    if not turn and not layout:
        return
    rng = np.random.default_rng(3)
    pictures = [make(rng) for _ in range(2)]  # type: ignore[operator]
    turned = [TURNS[turn](p) if turn else p for p in pictures]
    found = explained(
        [fed(p) for p in pictures], [LAYOUTS[layout](normalized(p)).astype(np.float32) for p in turned]
    )
    assert set(found.kinds) == {turn, layout} - {""}
    assert found.exact


@settings(max_examples=40, deadline=None)
@given(
    st.integers(0, 10_000),
    st.sampled_from([*VALUES]),
    st.sets(st.sampled_from([*TURNS]), max_size=2),
    st.sampled_from([*LAYOUTS]),
    st.booleans(),
)
def test_several_mistakes_at_once(seed: int, value: str, turns: set[str], layout: str, noisy: bool) -> None:
    if layout and len(turns) > 1:
        turns = set(sorted(turns)[:1])
    rng = np.random.default_rng(seed)
    pictures = [noise(rng) if noisy else natural(rng) for _ in range(2)]
    deployed = []
    for picture in pictures:
        for turn in sorted(turns):
            picture = TURNS[turn](picture)  # noqa: PLW2901
        deployed.append(LAYOUTS[layout](VALUES[value][0](picture)).astype(np.float32))
    found = explained([fed(p) for p in pictures], deployed)
    expected = {*turns, layout, "normalization"} - {""}
    if value == "reversed" and "channel-order" in turns:
        expected -= {"normalization"}  # swapped before or behind the mean, and the mean with it: the swap alone
    if {"transposed", "mirrored"} <= turns:
        # Transposing exchanges the two ways to mirror.
        assert set(found.kinds) in (expected, (expected - {"mirrored"}) | {"upside-down"})
    elif {"transposed", "upside-down"} <= turns:
        assert set(found.kinds) in (expected, (expected - {"upside-down"}) | {"mirrored"})
    else:
        assert set(found.kinds) == expected
    assert found.exact


def test_sides_that_agree_are_not_explained() -> None:
    picture = fed(natural(np.random.default_rng(0)))
    assert explain_difference(picture, picture) is None
    assert explain_difference(picture, picture + np.float32(9e-5)) is None


@pytest.mark.parametrize("seed", range(50))
def test_unrelated_pictures_get_no_name(seed: int) -> None:
    rng = np.random.default_rng(seed)
    make = natural if seed % 2 else noise
    training, deployed = ([make(rng, 24, 28) for _ in range(2)] for _ in range(2))
    assert explain_difference([fed(p) for p in training], [fed(p) for p in deployed]) is None
    raw = [np.ascontiguousarray(p[None]) for p in deployed]
    assert explain_difference([fed(p) for p in training], raw) is None


@pytest.mark.parametrize("seed", range(10))
def test_a_change_that_holds_for_one_sample_only_is_none(seed: int) -> None:
    rng = np.random.default_rng(seed)
    pictures = [natural(rng) for _ in range(3)]
    deployed = [fed(p[..., ::-1]) for p in pictures[:2]] + [fed(pictures[2][::-1])]
    assert explain_difference([fed(p) for p in pictures], deployed) is None


def test_gray_pictures_leave_the_order_open() -> None:
    rng = np.random.default_rng(0)
    grays = [np.repeat(natural(rng, channels=1), 3, axis=-1) for _ in range(2)]
    found = explained([fed(p) for p in grays], [planes(p) for p in grays])
    assert found.kinds == ("normalization",)
    assert any("too much alike" in str(note) for note in found.notes)


def test_a_mean_that_follows_the_swap_or_not() -> None:
    rng = np.random.default_rng(1)
    pictures = [natural(rng) for _ in range(2)]
    training = [fed(p) for p in pictures]
    behind = explained(training, [np.ascontiguousarray(t[:, ::-1]) for t in training])
    assert (behind.kinds, behind.notes) == (("channel-order",), ())
    before = explained(training, [fed(p[..., ::-1]) for p in pictures])
    assert before.kinds == ("channel-order",)
    assert any("stayed in their places" in str(note) for note in before.notes)


def test_means_of_nobodys() -> None:
    rng = np.random.default_rng(2)
    mean, std = np.array((0.3, 0.31, 0.29)), np.array((0.2, 0.21, 0.22))
    pictures = [natural(rng) for _ in range(2)]
    training = [planes((p / 255 - mean) / std).astype(np.float32) for p in pictures]
    missing = explained(training, [planes(p / 255).astype(np.float32) for p in pictures])
    assert "training applies mean [0.3, 0.31, 0.29] and std [0.2, 0.21, 0.22]" in text_of(missing)
    correction = missing.changes[0].correction
    assert correction is not None
    assert dict(correction.facts) == {"mean": "[0.3, 0.31, 0.29]", "std": "[0.2, 0.21, 0.22]"}
    twice = explained(
        training, [planes(((p / 255 - mean) / std - mean) / std).astype(np.float32) for p in pictures]
    )
    assert "applied twice, by all appearances" in text_of(twice)
    order = [planes(p / 255 / std - mean).astype(np.float32) for p in pictures]
    assert explained(training, order).kinds == ("affine",)
    known = MeanStd("training", tuple(mean), tuple(std))
    assert "divided by std before" in text_of(explained(training, order, known=[known]))


def test_ranges_without_means() -> None:
    pictures = [natural(np.random.default_rng(3)) for _ in range(2)]
    found = explained([planes(p / 255).astype(np.float32) for p in pictures], [planes(p) for p in pictures])
    assert found.kinds == ("range",)
    assert "training has values of 0..1, the deployed side 0..255" in text_of(found)


def test_codes_are_dequantized() -> None:
    rng = np.random.default_rng(4)
    training = [fed(natural(rng, 48, 64)) for _ in range(2)]
    codes = [np.clip(np.rint(t / 0.0187) - 14, -128, 127).astype(np.int8) for t in training]
    found = explained(training, codes)
    assert found.kinds == ("codes",)
    assert not found.exact
    assert found.residual <= 0.0187 * 0.52
    correction = found.changes[0].correction
    assert correction is not None
    assert dict(correction.facts)["zero point"] == "-14"
    assert 0.0186 < float(str(correction.value).split()[1].strip(",")) < 0.0188
    assert any("rounding" in str(note) for note in found.notes)


def test_codes_that_are_cut_off_at_their_ends() -> None:
    training = [fed(natural(np.random.default_rng(seed), 48, 64)) for seed in (4, 5)]
    codes = [np.clip(np.rint(t / 0.012), -128, 127).astype(np.int8) for t in training]
    assert all((c == 127).any() for c in codes)
    found = explained(training, codes)
    assert found.kinds == ("codes",)
    assert "scale 0.01" in text_of(found)
    assert any("cut off at -128 or 127" in str(note) for note in found.notes)


@pytest.mark.parametrize("top", [1.0, 255.0])
def test_full_range_that_was_taken_for_limited(top: float) -> None:
    """Expanding cuts off what lies beyond black and white: many pixels become one, which shows the way forward."""
    rng = np.random.default_rng(6)
    pictures = [planes(natural(rng)).astype(np.float64) for _ in range(2)]
    expanded = [np.clip((each - 16) * 255 / 219, 0, 255) for each in pictures]
    sides = [[(each * top / 255).astype(np.float32) for each in side] for side in (pictures, expanded)]
    found = explained(*sides)
    assert found.kinds == ("range",)
    assert "training has pixels of limited range (black 16, white 235)" in text_of(found)
    assert any("of the values are cut off" in str(note) for note in found.notes)


def test_pixels_that_were_cut_off_instead_of_rounded() -> None:
    rng = np.random.default_rng(8)
    pictures = [natural(rng, 48, 64) * 0.97 for _ in range(2)]
    found = explained([fed(p) for p in pictures], [planes(p).astype(np.uint8) for p in pictures])
    assert "training applies mean and std of ImageNet" in text_of(found)
    assert any("cut off to whole numbers" in str(note) for note in found.notes)


@pytest.mark.parametrize("kind", ["float16", "bfloat16"])
def test_lost_digits(kind: str) -> None:
    import ml_dtypes

    training = [fed(natural(np.random.default_rng(5)))]
    dtype = np.dtype(np.float16) if kind == "float16" else np.dtype(ml_dtypes.bfloat16)
    found = explained(training, [t.astype(dtype).astype(np.float32) for t in training])
    assert f"rounded to {kind}" in text_of(found)
    assert not found.exact
    stepped = explained(training, [(np.rint(t / 0.02) * 0.02).astype(np.float32) for t in training])
    assert "rounded to steps of 0.02" in text_of(stepped)


def test_storage() -> None:
    rng = np.random.default_rng(6)
    pictures = [natural(rng, 24, 36) for _ in range(2)]
    training = [fed(p) for p in pictures]
    pixels = [planes(p).astype(np.float32) for p in pictures]
    cases: list[tuple[list[Array], list[Array], tuple[str, ...]]] = [
        (pixels, [planes(p).view(np.int8) for p in pictures], ("signedness",)),
        (training, [t.byteswap() for t in training], ("byte-order",)),
        (training, [t.astype(np.float16).view(np.float32) for t in training], ("element-type",)),
        (training, [t.astype(np.float16).view(np.uint8) for t in training], ("element-type",)),
        (training, [np.pad(t, ((0, 0),) * 3 + ((0, 12),)).ravel() for t in training], ("row-padding",)),
        (
            training,
            [np.pad(p.reshape(24, -1), ((0, 0), (0, 20))).ravel() for p in pictures],
            ("row-padding", "layout", "normalization"),
        ),
    ]
    for wanted, deployed, kinds in cases:
        assert explained(wanted, deployed).kinds == kinds


def test_shifts() -> None:
    pictures = [natural(np.random.default_rng(seed), 40, 50) for seed in (7, 8)]
    found = explained([fed(p[4:36, 5:45]) for p in pictures], [fed(p[3:35, 7:47]) for p in pictures])
    assert text_of(found) == "the picture lies 1 pixel further down and 2 pixels further left"


def test_alpha_and_a_single_channel() -> None:
    pictures = [natural(np.random.default_rng(9)) for _ in range(2)]
    alpha = [np.dstack([p, np.full(p.shape[:2], 255, np.uint8)])[None] for p in pictures]
    found = explained([fed(p) for p in pictures], alpha)
    assert found.kinds == ("layout", "channels", "normalization")
    gray = [natural(np.random.default_rng(10), channels=1) for _ in range(2)]
    single = explained([planes(g / 255) for g in gray], [g[None] for g in gray])
    assert set(single.kinds) == {"layout", "range"}


def test_batches_are_taken_apart() -> None:
    rng = np.random.default_rng(11)
    batch = np.concatenate([fed(natural(rng)) for _ in range(3)])
    found = explain_difference(batch, batch[:, ::-1])
    assert found is not None
    assert (found.kinds, found.samples) == (("channel-order",), 3)


def test_pictures_that_were_not_resized() -> None:
    import cv2

    pictures = [natural(np.random.default_rng(seed), 48, 64) for seed in (12, 13)]
    small = [fed(cv2.resize(p, (32, 24))) for p in pictures]
    found = explained(small, [p[None] for p in pictures])
    assert "has 48x64 pixels; in training they are stretched, resized" in text_of(found)
    assert {"resize", "normalization"} <= set(found.kinds)
    assert found.before == np.inf


@pytest.mark.parametrize(
    ("part", "words"),
    [
        (np.s_[:20, :], "rows 0 to 19"),
        (np.s_[3:30, 7:24], "rows 3 to 29 and columns 7 to 23"),
        (np.s_[:, 4:], "columns 4 to 31"),
    ],
)
def test_a_part_of_a_picture_is_cropped_and_no_letterbox(part: tuple[slice, slice], words: str) -> None:
    pixels = np.random.default_rng(9).normal(0, 1, (2, 1, 3, 32, 32)).astype(np.float32)
    whole, cut = list(pixels), [each[(slice(None), slice(None), *part)] for each in pixels]
    fewer = explained(whole, cut)
    assert text_of(fewer) == f"the deployed side has only {words} of the 32x32 pixels of training"
    assert (fewer.kinds, fewer.residual) == (("placement",), 0)
    more = explained(cut, [255 * each.transpose(0, 2, 3, 1) for each in whole])
    assert more.kinds[:2] == ("layout", "placement")
    assert f"training has only {words} of the 32x32 pixels of the deployed side" in text_of(more)
    assert more.residual < 1e-5


@pytest.mark.parametrize("mode", ["constant", "edge", "reflect"])
def test_a_border_that_holds_nothing_of_its_own_is_padding(mode: str) -> None:
    pictures = [natural(np.random.default_rng(seed), 24, 32) for seed in (1, 2)]
    widths = ((0, 8), (0, 0), (0, 0))
    boxed = [fed(np.pad(each, widths, mode=mode)) for each in pictures]  # type: ignore[call-overload]
    assert "letterboxed, in the top left corner" in text_of(explained(boxed, [p[None] for p in pictures]))


def test_an_offset_of_rounding_is_none() -> None:
    training = [np.random.default_rng(3).normal(0, 1, (1, 3, 16, 16)).astype(np.float32)]
    found = explained(training, [(127.5 * each).astype(np.float32) for each in training])
    assert text_of(found) == "training is the deployed side times a gain plus an offset: gain 0.0078431, offset 0"


@pytest.mark.parametrize(
    ("training", "deployed"),
    [
        (np.zeros((1, 3, 8, 8)), np.ones((1, 3, 8, 8))),
        (np.zeros((0,)), np.ones((0, 3))),
        (np.full((1, 3, 8, 8), np.nan), np.ones((1, 3, 8, 8))),
        (np.ones((2, 2)), np.zeros((2, 2))),
    ],
)
def test_values_that_say_nothing_are_not_explained(training: Array, deployed: Array) -> None:
    assert explain_difference(training, deployed) is None


def test_not_equally_many_samples_are_refused() -> None:
    with pytest.raises(ValueError, match="2 arrays of training, 1 of the deployed side"):
        explain_difference([np.ones(3), np.ones(3)], [np.ones(3)])


@pytest.mark.parametrize("planar", [False, True])
@pytest.mark.parametrize("dtype", ["uint8", "float32"])
def test_padded_rows_that_were_copied_as_if_they_had_no_padding(planar: bool, dtype: str) -> None:
    pixels = np.random.default_rng(3).integers(0, 255, (60, 50, 3)).astype(dtype)
    picture = pixels.transpose(2, 0, 1) if planar else pixels
    row = 50 if planar else 150
    stride = 64 if planar else 160
    rows = np.zeros((picture.size // row, stride), dtype)
    rows[:, :row] = picture.reshape(-1, row)
    deployed = rows.reshape(-1)[: picture.size].reshape(1, *picture.shape)
    found = explain_difference(np.ascontiguousarray(picture)[None], deployed)
    assert found is not None
    assert found.kinds == ("row-padding",)
    assert f"rows have {stride} values in memory, {stride - row} of them padding" in str(found.changes[0].text)
    assert "rows are lost" in str(found.changes[0].text)
