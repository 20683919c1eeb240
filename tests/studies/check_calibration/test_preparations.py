"""Samples that are prepared otherwise than the network or held-out samples: every pair of usual ways."""

import itertools
from collections.abc import Sequence

import numpy as np
import pytest

from roundoff.core.tensors import Array
from roundoff.preprocessing.conventions import Convention, moment_distance, preparations
from roundoff.studies.check_calibration.findings import preparation_findings
from roundoff.studies.check_calibration.preparation import is_compatible, preparation_mismatches, ways
from roundoff.studies.check_calibration.result import CheckFinding
from tests.studies.check_calibration.sets import check, normalized_net, photographs

# One of each name and order of channels: the others differ from it by digits.
COLOUR = list({each.words: each for each in preparations(3) if each.name != "x * 255"}.values())
HARDLY_APART = 0.75
PROPER = [each for each in COLOUR if not each.slip]
GROUPS = [each.usual for each in ways(3) if not each.usual.slip]


def prepared(pixels: Array, how: Convention) -> Array:
    return how.made(pixels, 1).astype(np.float32)


def alike(one: Convention, other: Convention) -> bool:
    """Whether two ways make so little difference to photographs that nobody could tell."""
    pixels = photographs(64, seed=3)
    moments = [
        (values.mean(axis=(0, 2, 3)), values.std(axis=(0, 2, 3)))
        for values in (each.made(pixels, 1) for each in (one, other))
    ]
    return moment_distance(*moments) < HARDLY_APART


def slip_of(found: Sequence[CheckFinding]) -> str:
    faults = [finding for finding in found if (finding.severity, finding.kind) == ("fault", "scaling")]
    texts = [str(finding.text) for finding in faults if "look like" in str(finding.text)]
    return texts[0] if texts else ""


@pytest.mark.parametrize("wanted", PROPER, ids=lambda each: str(each.words))
def test_every_slip_is_named_by_batch_normalization(wanted: Convention) -> None:
    model = normalized_net(lambda pixels: prepared(pixels, wanted))
    pixels = photographs(16, seed=5)
    wrong, shown = 0, []
    # Every other one, from another start for each that is wanted: all pairs would take a minute.
    for given in (wanted, *COLOUR[PROPER.index(wanted) % 2 :: 2]):
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
    assert wrong >= 5, shown


@pytest.mark.parametrize(
    ("given", "wanted"),
    [pair for pair in itertools.permutations(GROUPS, 2) if not alike(*pair)],
    ids=lambda each: str(each.words),
)
def test_held_out_samples_tell_a_slip(given: Convention, wanted: Convention) -> None:
    found = check(prepared(photographs(12, seed=5), given), others=prepared(photographs(10, seed=9), wanted))
    assert "scaling" in {finding.kind for finding in found.faults}
    text = slip_of(found.findings)
    assert "data look like" in text, [finding.text for finding in found.faults]


@pytest.mark.parametrize("how", PROPER, ids=lambda each: str(each.words))
@pytest.mark.parametrize("seed", range(4))
def test_clean_held_out_samples_accuse_nobody(how: Convention, seed: int) -> None:
    pixels = photographs(28, seed)
    # Darker, flatter and brighter scenes are no slips.
    pixels = (pixels, pixels * 0.6, pixels * 0.5 + 60, pixels * 0.5 + 125)[seed]
    model = normalized_net(lambda each: prepared(each, how)) if seed < 2 else None
    found = check(prepared(pixels, how), model=model, others=prepared(photographs(24, seed + 50), how))
    assert not slip_of(found.findings)


def test_what_values_could_be() -> None:
    words = {str(each.words) for each in preparations(3) if is_compatible(each, 0.0, 1.0)}
    assert {"x / 255", "x / 127.5 - 1"} <= words
    assert not any("ImageNet" in each or each == "plain pixels x" for each in words)
    assert not list(preparation_mismatches(-30.0, 1e4, 3))
    assert all("BGR" not in str(two.words) for pair in preparation_mismatches(0.0, 1.0, 1) for two in pair)
