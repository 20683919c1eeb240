"""Codes whose scales nobody tells: wrong kernels are named; what a hidden gain explains accuses nobody."""

from dataclasses import replace

import numpy as np
import pytest
from benchmarks.planted.case import PlantedCase

from roundoff.core.tensors import Array
from tests.diagnosis.devices.devices import diagnosed, planted
from tests.diagnosis.devices.test_causes import clean


def coded(case: PlantedCase) -> PlantedCase:
    """The same dump as codes, of tensors that have some."""
    assert case.dumps is not None
    assert case.quantized is not None
    known = {each.tensor: each.params for each in case.quantized.quantizers if each.kind == "activation"}

    def codes(name: str, values: Array) -> Array:
        made = np.rint(values / known[name].scale) + known[name].zero_point
        return made.astype(np.int16 if made.min() < -128 or made.max() > 127 else np.int8)

    rows = tuple(
        {
            name: codes(name, array) if name in known and name not in case.samples else array
            for name, array in row.items()
        }
        for row in case.dumps.samples
    )
    return replace(case, dumps=replace(case.dumps, samples=rows))


@pytest.mark.parametrize("fault", ["swapped-channels", "kernel-wrong-tap"])
def test_a_wrong_kernel_is_named_and_nothing_behind_it(fault: str) -> None:
    case = planted(fault, "residual", 0)
    found = diagnosed(coded(case), with_quantized=False)
    assert found.kind == "culprits"
    (culprit,) = found.findings
    assert culprit.cause == "kernel-fault"
    assert case.truths[0].nodes & {*culprit.nodes, *culprit.tensors}


def test_a_gain_that_scales_hide_accuses_nobody() -> None:
    case = planted("kernel-wrong-channels", "plain", 0)
    found = diagnosed(coded(case), with_quantized=False)
    assert found.kind != "healthy"
    assert all(case.truths[0].nodes & {*each.nodes, *each.tensors} for each in found.findings)


def test_what_is_right_is_not_accused() -> None:
    assert not diagnosed(coded(clean("integer")), with_quantized=False).findings
