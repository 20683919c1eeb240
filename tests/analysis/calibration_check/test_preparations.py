"""Samples that are prepared otherwise than the network or held-out samples: every pair of usual ways."""

import itertools
from collections.abc import Sequence

import numpy as np
import pytest

from roundoff.analysis.calibration_check.judging_scale import preparation_findings
from roundoff.analysis.calibration_check.preparations import PREPARATIONS, Preparation, could_be, slips
from roundoff.core.calibration_check import CheckFinding
from roundoff.core.tensors import Array
from tests.analysis.calibration_check.sets import check, normalized_net, photographs

PROPER = [each for each in PREPARATIONS if each.proper and "MNIST" not in each.words]
COLOUR = [each for each in PREPARATIONS if "MNIST" not in each.words]


def prepared(pixels: Array, how: Preparation) -> Array:
    mean, std = how.numbers(pixels.shape[1])
    return np.asarray((pixels - mean.reshape(1, -1, 1, 1)) / std.reshape(1, -1, 1, 1), np.float32)


def alike(one: Preparation, other: Preparation) -> bool:
    """Whether two ways differ by so little that nobody could tell: by at most a part of the spread of pixels."""
    (mean, std), (other_mean, other_std) = one.numbers(3), other.numbers(3)
    near = np.abs(np.log(std / other_std)).max() < 0.25
    return bool(near and np.abs(mean / std - other_mean / other_std).max() < 0.6 * 60 / std.min())


def slip_of(found: Sequence[CheckFinding]) -> str:
    faults = [finding for finding in found if (finding.severity, finding.kind) == ("fault", "scaling")]
    texts = [finding.text for finding in faults if "look like" in finding.text]
    return texts[0] if texts else ""


@pytest.mark.parametrize("wanted", PROPER, ids=lambda each: each.words)
def test_every_slip_is_named_by_batch_normalization(wanted: Preparation) -> None:
    model = normalized_net(lambda pixels: prepared(pixels, wanted))
    pixels = photographs(16, seed=5)
    wrong, shown = 0, []
    for given in COLOUR:
        feeds = [{"image": each[None]} for each in prepared(pixels, given)]
        found = list(preparation_findings(model, feeds, (), labels=None, threads=1))
        if given is wanted:
            assert not found, "a clean set"
        elif not alike(given, wanted):
            wrong += 1
            text = slip_of(found)
            shown.append((given.words, text))
            names = [each.words for each in PROPER if each is wanted or alike(each, wanted)]
            assert any(f"expected {name}" in text for name in names), (given.words, text)
    assert wrong >= 10, shown


@pytest.mark.parametrize(
    ("given", "wanted"),
    [pair for pair in itertools.permutations(PROPER, 2) if not alike(*pair)],
    ids=lambda each: each.words,
)
def test_held_out_samples_tell_a_slip(given: Preparation, wanted: Preparation) -> None:
    found = check(prepared(photographs(12, seed=5), given), others=prepared(photographs(10, seed=9), wanted))
    assert "scaling" in {finding.kind for finding in found.faults}
    text = slip_of(found.findings)
    assert "data look like" in text, [finding.text for finding in found.faults]


@pytest.mark.parametrize("how", PROPER, ids=lambda each: each.words)
@pytest.mark.parametrize("seed", range(4))
def test_clean_held_out_samples_accuse_nobody(how: Preparation, seed: int) -> None:
    pixels = photographs(28, seed)
    # Darker, flatter and brighter scenes are no slips.
    pixels = (pixels, pixels * 0.6, pixels * 0.5 + 60, pixels * 0.5 + 125)[seed]
    model = normalized_net(lambda each: prepared(each, how)) if seed < 2 else None
    found = check(prepared(pixels, how), model=model, others=prepared(photographs(24, seed + 50), how))
    assert not slip_of(found.findings)


def test_what_values_could_be() -> None:
    words = {each.words for each in PREPARATIONS if could_be(each, 0.0, 1.0)}
    assert {"x/255", "(x-127.5)/127.5"} <= words
    assert not any("ImageNet" in each or each.startswith("x,") for each in words)
    assert not slips(-30.0, 1e4, 3)
    assert all("BGR" not in two.words for pair in slips(0.0, 1.0, 1) for two in pair)
