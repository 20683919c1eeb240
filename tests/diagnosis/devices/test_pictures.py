"""What the page of a device is drawn from, against numbers that are computed here."""

import math

import numpy as np
import pytest

from roundoff.diagnosis.devices.verdict import value_pairs
from roundoff.run.capture import LiveSource
from roundoff.samples.sample_set import ArraySamples
from tests.diagnosis.devices.devices import diagnosed, planted


def test_every_tensor_of_a_device_has_its_error_against_the_float_model() -> None:
    case = planted("requantized-wrong")
    found = diagnosed(case)
    layers = found.layers
    assert layers is not None
    assert case.dumps is not None
    source = LiveSource(case.model, ArraySamples(case.samples), tensors=list(layers.tensors))
    try:
        for tensor, whole in zip(layers.tensors, layers.accumulated_db, strict=True):
            signal = error = 0.0
            for name, written in zip(source.samples, case.dumps.samples, strict=False):
                exact = source.read(tensor, name).astype(np.float64)
                signal += float(np.square(exact).sum())
                error += float(np.square(written[case.dumps.names.get(tensor, tensor)] - exact).sum())
            assert whole == pytest.approx(10 * math.log10(signal / error), abs=0.01), tensor
    finally:
        source.close()
    assert layers.outputs[-1]
    # The figure of the headline is the one in the picture.
    assert layers.accumulated_db[-1] == pytest.approx(found.measures[0].before, abs=0.01)
    # By itself only the culprit is wrong; what stands behind it inherits.
    local = dict(zip(layers.tensors, layers.local_db, strict=True))
    wrong = found.findings[0].tensors[0]
    assert local[wrong] == min(each for each in local.values() if each is not None)
    assert min(each for name, each in local.items() if name != wrong and each is not None) > 30


def test_a_wrong_gain_is_the_slope_of_its_picture() -> None:
    finding = diagnosed(planted("requantized-wrong")).findings[0]
    (pairs,) = finding.pairs
    assert pairs.tensor == finding.tensors[0]
    slope = np.polyfit(pairs.expected, pairs.found, 1)[0]
    assert pairs.gain == pytest.approx(slope, rel=0.02)
    assert f"{pairs.gain:.1g}" in str(finding.summary)
    assert pairs.correlation == pytest.approx(np.corrcoef(pairs.expected, pairs.found)[0, 1], abs=0.01)


def test_pairs_are_few_and_keep_the_ends() -> None:
    rng = np.random.default_rng(0)
    exact = rng.normal(size=5000)
    found = 0.25 * exact - 3 + rng.normal(size=5000) / 100
    pairs = value_pairs("node", "tensor", exact, found)
    assert len(pairs.expected) == len(pairs.found) == 300
    assert (pairs.expected[0], pairs.expected[-1]) == pytest.approx((exact.min(), exact.max()), rel=1e-3)
    assert (pairs.gain, pairs.offset) == pytest.approx(tuple(np.polyfit(exact, found, 1)), rel=1e-3)
    assert pairs.correlation == pytest.approx(np.corrcoef(exact, found)[0, 1], rel=1e-3)


@pytest.mark.parametrize("constant", ["exact", "found"])
def test_a_constant_tensor_has_no_line(constant: str) -> None:
    varied, same = np.arange(4.0), np.full(4, 2.0)
    pairs = value_pairs("", "t", *((same, varied) if constant == "exact" else (varied, same)))
    assert (pairs.gain, pairs.correlation) == (0.0, 0.0)
