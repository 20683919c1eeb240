"""The table of conventions: what it says holds, and every way can be done and undone."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from roundoff.preprocessing.conventions import (
    BYTE,
    Convention,
    MeanStd,
    alike,
    conventions,
    preparations,
    table_rows,
)

EVERY = [each for channels in (1, 3) for each in conventions(channels)]


@pytest.mark.parametrize("row", table_rows(), ids=lambda row: f"{row['name']} {row['mean']}")
def test_ranges_are_those_of_black_and_white(row: Mapping[str, Any]) -> None:
    mean, std = np.asarray(row["mean"], float), np.asarray(row["std"], float)
    ends = [(end / row.get("divisor", 1.0) - mean) / std for end in (0.0, BYTE)]
    low, high = row["range"]
    assert np.min(ends) == pytest.approx(low, rel=1e-3, abs=1e-4)
    assert np.max(ends) == pytest.approx(high, rel=1e-3, abs=1e-4)
    assert set(row) <= {
        "name", "formula", "says", "divisor", "mean", "std", "order", "channels", "range", "rarity", "slip",
    }  # fmt: skip


def test_every_row_is_a_way_for_pictures_of_its_channels() -> None:
    known = {each.name for each in EVERY}
    assert {row["name"] for row in table_rows()} == known
    assert {each.name for each in preparations(3)} | {each.name for each in preparations(1)} == {
        row["name"] for row in table_rows() if np.all(np.asarray(row["std"]) > 0)
    }


def test_ways_of_colours_are_known_in_both_orders_of_channels() -> None:
    found = {(each.name, each.order): each for each in preparations(3) if each.form == "right"}
    for name in ("ImageNet", "CLIP", "CIFAR-10", "CIFAR-100", "Caffe", "Caffe, times 0.017"):
        rgb, bgr = found[name, "RGB"], found[name, "BGR"]
        assert rgb.words == rgb.formula
        assert str(bgr.words) == f"{bgr.formula}, channels being BGR"
        assert not alike(rgb, bgr, 1.0)
    (imagenet,) = [each for each in preparations(3) if str(each.words) == "(x / 255 - mean) / std of ImageNet"]
    white = (1 - np.array([0.485, 0.456, 0.406])) / np.array([0.229, 0.224, 0.225])
    np.testing.assert_allclose(imagenet.ends()[1], white)
    caffe = found["Caffe", "BGR"]
    assert caffe.ends()[0].argmin() == 2, "red, the last of B, G, R, has the largest mean"


def test_the_users_own_mean_and_std_come_first() -> None:
    own = MeanStd("training", (0.1, 0.2, 0.3), (0.4, 0.5, 0.6))
    found = [each for each in conventions(3, [own]) if each.form == "right"]
    assert found[0].name == "training"
    assert found[0].cost < next(each.cost for each in found if each.name == "ImageNet")


@given(st.sampled_from(EVERY), st.integers(0, 3), st.integers(0, 2**32 - 1))
def test_what_is_made_can_be_undone(way: Convention, axis: int, seed: int) -> None:
    shape = [2, 4, 5, 6]
    shape[axis] = way.gain.size
    pixels = np.random.default_rng(seed).integers(0, 256, shape).astype(np.float64)
    values = way.made(pixels, axis)
    np.testing.assert_allclose(way.undone(values, axis), pixels, atol=1e-6)
    low, high = way.ends()
    channels = np.moveaxis(values, axis, -1)
    slack = 1e-9 * (high - low)
    assert np.all(channels >= low - slack)
    assert np.all(channels <= high + slack)
