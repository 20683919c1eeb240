"""Ranges that end where the samples do, and what samples lose that they do not know."""

import math
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

from roundoff.core.quantizers import Quantizer, QuantParams, representable_range
from roundoff.diagnosis.loss import Loss
from roundoff.diagnosis.margins import RangeMargins, decibel_interval
from roundoff.diagnosis.subject import Case, open_case
from roundoff.graph.quantized_model import QuantizedModel
from roundoff.measure.inference import safe_end
from roundoff.run.capture import Samples
from tests.diagnosis.planting import demo


def opened() -> tuple[Case, QuantizedModel, Samples]:
    quantized, samples = demo()
    return open_case(quantized, samples), quantized, samples


def ends(quantizer: Quantizer | None) -> tuple[float, float]:
    assert quantizer is not None
    low, high = representable_range(quantizer.params, quantizer.spec)
    return float(low), float(high)


def test_ranges_of_the_samples_reach_as_far_as_rare_ones_and_those_of_operations_do_not() -> None:
    case, quantized, _ = opened()
    margins = RangeMargins(case, range(4))
    assert margins.fitted
    fixes, before = margins.fixes(wide=True), {each.name: each for each in quantized.quantizers}
    wider = [each for each in margins.fitted if each.suspect.op_type in ("Conv", "Gemm") and each.known[1]]
    assert wider
    for each in wider:
        seen = case.facts.observed[each.suspect.tensor].ends[:, 1]
        # Those that were held out say nothing of how far it goes: they are to judge it.
        quantizer, values = before[each.suspect.name], case.facts.observed[each.suspect.tensor].count / len(seen)
        rounding = values / 12 / (2**quantizer.spec.bits - 1) ** 2
        low, high = ends(quantizer)
        expected = max(safe_end(seen[:4], other=-low, rounding=rounding, weight=8.0), high)
        # But for the rounding of a zero point; pixels end at white in each sample, and need no margin.
        name = each.suspect.name
        assert ends(fixes.get(name, before[name]))[1] == pytest.approx(expected, rel=0.02)
        assert (name in fixes) == (expected > 1.01 * ends(before[name])[1])
    clipped = [each for each in margins.fitted if each.suspect.op_type == "Clip"]
    assert all(ends(fixes[each.suspect.name])[1] <= 6.0 + 1e-3 for each in clipped if each.suspect.name in fixes)


@pytest.mark.parametrize(("factor", "found"), [(0.95, True), (0.6, False)])
def test_ranges_that_cut_off_a_little_get_a_margin_and_those_that_are_meant_to_cut_do_not(
    factor: float, found: bool
) -> None:
    quantized, samples = demo()

    def inside(quantizer: Quantizer) -> Quantizer:
        scale = np.asarray(quantizer.params.scale * factor, dtype=np.float32)
        params = QuantParams(scale, quantizer.params.zero_point)
        return replace(quantizer, params=params) if quantizer.kind == "activation" else quantizer

    calibrated = replace(quantized, quantizers=tuple(map(inside, quantized.quantizers)))
    margins = RangeMargins(open_case(calibrated, samples), ())
    assert bool(margins.fitted) == found
    before, wide = {each.name: each for each in calibrated.quantizers}, margins.fixes(wide=True)
    for each in margins.fitted:
        name, seen = each.suspect.name, margins.case.facts.observed[each.suspect.tensor].range[1]
        # All the samples, at least, but for the rounding of a zero point and what an operation allows.
        if each.known[1] and each.suspect.op_type != "Clip":
            assert ends(wide.get(name, before[name]))[1] >= 0.98 * seen


def test_samples_that_judge_a_repair_do_not_choose_its_margin() -> None:
    quantized, samples = demo()
    case = open_case(quantized, samples)
    used = range(0, len(case.runner.indices), 2)
    before = RangeMargins(case, used)
    fixes = before.fixes(wide=True)
    # The same network with other samples held out: each tensor reaches three times as far there.
    for observed in case.facts.observed.values():
        observed.ends[1::2] *= 3
    after = RangeMargins(case, used)
    same = {each.suspect.name for each in before.fitted} & {each.suspect.name for each in after.fitted}
    assert same & fixes.keys()
    for name in same & fixes.keys():
        assert ends(after.fixes(wide=True)[name])[1] == ends(fixes[name])[1]


def test_a_sample_that_is_left_out_is_not_known_to_the_ranges() -> None:
    case, quantized, _ = opened()
    margins = RangeMargins(case, ())
    before = {each.name: each for each in quantized.quantizers}
    each = next(item for item in margins.fitted if item.suspect.op_type in ("Conv", "Gemm"))
    observed = case.facts.observed[each.suspect.tensor]
    furthest = int(observed.ends[:, 1].argmax())
    others = np.delete(observed.ends[:, 1], furthest).max()
    drawn = margins.fixes(wide=False, left_out=[furthest]).get(each.suspect.name, before[each.suspect.name])
    expected = ends(before[each.suspect.name])[1] * others / observed.ends[furthest, 1]
    assert ends(drawn)[1] == pytest.approx(expected, rel=0.02)


def test_a_range_is_of_the_samples_that_end_nearest_to_it() -> None:
    """Made of those that were used: others reach 4 % further."""
    case, _, _ = opened()
    used = tuple(range(0, len(case.runner.indices), 2))
    names = {each.suspect.name: each.suspect.tensor for each in RangeMargins(case, used).fitted}
    name, tensor = next(
        (name, tensor) for name, tensor in names.items() if case.facts.observed[tensor].range[1] > 0
    )
    observed = case.facts.observed[tensor]
    observed.ends[list(used), 1] = ends(case.facts.quantizers[name])[1]
    observed.ends[1::2, 1] = 1.04 * observed.ends[0, 1]
    (found,) = (each for each in RangeMargins(case, used).fitted if each.suspect.name == name)
    assert found.known[1] == used


def test_ranges_that_reach_far_beyond_the_samples_are_left_alone() -> None:
    quantized, samples = demo()

    calibrated = replace(quantized, quantizers=tuple(map(_times(1.6), quantized.quantizers)))
    margins = RangeMargins(open_case(calibrated, samples), range(4))
    assert not margins.fixes(wide=True)
    assert not margins.best()
    assert len(margins.turns(6)) == 1


def test_a_margin_that_is_too_narrow_for_rare_samples_is_made_wider() -> None:
    """Ranges of a tool that end 10 % beyond the samples: of a long tail that is not enough."""
    quantized, samples = demo()
    case = open_case(replace(quantized, quantizers=tuple(map(_times(1.1), quantized.quantizers))), samples)
    suspect = next(each for each in case.facts.suspects if each.op_type == "Gemm")
    observed = case.facts.observed[suspect.tensor]
    reach = ends(case.facts.quantizers[suspect.name])[1]
    # One of them goes twice as far as most.
    observed.ends[:, 1] = np.linspace(0.4, 0.5, len(observed.ends)) * reach
    observed.ends[0, 1] = reach / 1.1
    margins = RangeMargins(case, ())
    (found,) = (each for each in margins.fitted if each.suspect.name == suspect.name)
    assert not found.known[1]
    assert ends(margins.fixes(wide=True)[suspect.name])[1] > reach
    assert suspect.name not in margins.fixes(wide=False)


def test_the_interval_is_that_of_a_ratio_of_sums() -> None:
    noise = np.array([1.0, 2.0, 1.5, 4.0])
    sums = np.stack([np.full(4, 100.0), np.full(4, 100.0), noise], axis=1)[:, :, None]
    loss = Loss(("out",), sums[:, 0].sum(axis=0), sums[:, 1].sum(axis=0), noise.sum(keepdims=True), sums=sums)
    found = decibel_interval(loss)
    assert found is not None
    # Student's t of three degrees of freedom on the scale of decibels.
    share = noise / noise.sum() - 0.25
    half = 3.182446 * 10 / math.log(10) * math.sqrt(4 / 3 * np.square(share).sum())
    middle = 10 * math.log10(400 / 8.5)
    assert found == pytest.approx((middle - half, middle + half), abs=1e-4)
    # Samples that were left out in six turns err together: five parts of six are fitted to, and one is left out.
    wider = half * math.sqrt((1 / 6 + 1 / 5) / (1 / 6))
    assert decibel_interval(loss, turns=6) == pytest.approx((middle - wider, middle + wider), abs=1e-4)


@pytest.mark.parametrize(("factor", "clips"), [(1.0, True), (3.0, False)])
def test_samples_rarer_than_these_lose_by_clipping_where_ranges_end_where_these_do(
    factor: float, clips: bool
) -> None:
    quantized, samples = demo()
    wider = replace(quantized, quantizers=tuple(map(_times(factor), quantized.quantizers)))
    case = open_case(wider, samples)
    margins = RangeMargins(case, ())
    rare = margins.rare({})
    assert (rare > 0).all() == clips
    loss = case.loss(more=True)
    plain, told = decibel_interval(loss), decibel_interval(loss, rare)
    assert plain is not None
    assert told is not None
    assert (told[0] < plain[0], told[1]) == (clips, plain[1])
    # What is to be expected of them lowers the bound.
    lost = 10 ** (-plain[0] / 10) + rare[0] / loss.sums[:, 0, 0].mean()
    assert told[0] == pytest.approx(-10 * math.log10(lost))


def _times(factor: float) -> Callable[[Quantizer], Quantizer]:
    def wide(quantizer: Quantizer) -> Quantizer:
        scale = np.asarray(quantizer.params.scale * factor, dtype=np.float32)
        params = QuantParams(scale, quantizer.params.zero_point)
        return replace(quantizer, params=params) if quantizer.kind == "activation" else quantizer

    return wide
