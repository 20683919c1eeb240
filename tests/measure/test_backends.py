"""One accumulator and its faster forms: they agree on every metric they offer, and refuse the others."""

import math
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from roundoff.core.tensors import Array
from roundoff.errors import BadInput
from roundoff.measure import metrics as table
from roundoff.measure.light_pairs import LIGHT_FIELDS, ErrorTotals, LightMeter, MeterJob
from roundoff.measure.metrics import Metric, all_metrics, get_metric, judging, mean_of, metric, require
from roundoff.measure.pairs import ALL_FIELDS, NOTHING, Field, PairSums, SideSums, measure_pair
from roundoff.measure.rows import ROW_FIELDS, SampleTally, merged_rows, row_table
from roundoff.measure.statistics import histogram_of

ODD = np.array([0.0, -0.0, 1.0, -1.0, 1e-3, 1.0005, 3e4, math.nan, math.inf, -math.inf])
DTYPES = (np.float32, np.float64, np.float16, np.int8, np.uint8, np.int32, np.bool_)


@contextmanager
def registered(name: str, needs: tuple[Field, ...], compute: Any) -> Iterator[Metric]:
    """A metric that exists only inside."""
    try:
        metric(name, needs=needs, direction="lower", perfect=0.0)(compute)
        yield get_metric(name)
    finally:
        table._METRICS.pop(name, None)


def light_sums(reference: Array, candidate: Array) -> PairSums:
    totals = ErrorTotals()
    with np.errstate(all="ignore"):
        LightMeter().measure([MeterJob(reference, [candidate], [totals])])
    return totals.sums()


def row_sums_of(samples: list[tuple[Array, Array]]) -> PairSums:
    rows = [row_table(x.reshape(1, -1), y.reshape(1, -1)) for x, y in samples]
    found = merged_rows(np.concatenate(rows))
    assert found is not None
    return found


@st.composite
def pairs(draw: Any) -> list[tuple[Array, Array]]:
    """A few samples of one shape and type, in any order."""
    shape = tuple(draw(st.lists(st.integers(0, 7), min_size=0, max_size=3)))
    dtype = draw(st.sampled_from(DTYPES))
    kind = draw(st.sampled_from(["normal", "odd", "same", "zero", "one zero"]))
    rng = np.random.default_rng(draw(st.integers(0, 2**16)))
    found = []
    for _ in range(draw(st.integers(1, 4))):
        if kind == "odd" and np.issubdtype(dtype, np.floating):
            x, y = rng.choice(ODD, shape), rng.choice(ODD, shape)
        else:
            x = rng.standard_normal(shape) * 10
            y = x + rng.standard_normal(shape) * 0.1
            x = np.zeros(shape) if "zero" in kind else x
            y = x.copy() if kind in ("same", "zero") else y
        with np.errstate(all="ignore"):
            found.append((np.asarray(x).astype(dtype), np.asarray(y).astype(dtype)))
    return found


def agree(sums: PairSums, full: PairSums, offers: frozenset[Field], rel: float) -> None:
    assert (sums.count, sums.excluded) == (full.count, full.excluded)
    assert sums.reference.nonfinite == full.reference.nonfinite
    assert sums.candidate.nonfinite == full.candidate.nonfinite
    for name in judging(offers):
        ours, theirs = get_metric(name).value(sums), get_metric(name).value(full)
        # A difference of two lengths keeps fewer digits of it.
        slack = 1e-5 if name == "norm_error" or get_metric(name).unit == "dB" else 1e-12
        assert ours == pytest.approx(theirs, rel=rel, abs=slack, nan_ok=True), name


@settings(max_examples=120, deadline=None)
@given(pairs(), st.randoms(use_true_random=False))
def test_all_back_ends_agree_on_what_they_offer(samples: list[tuple[Array, Array]], random: Any) -> None:
    with np.errstate(all="ignore"):
        whole = NOTHING
        for x, y in samples:
            whole = whole.add(x, y)
        joined = measure_pair(*(np.stack(side) for side in zip(*samples, strict=True)))
        mixed = samples[:]
        random.shuffle(mixed)
        by_rows = row_sums_of(mixed)
        light = NOTHING
        for x, y in mixed:
            light = light.merge(light_sums(x, y))
    agree(whole, joined, ALL_FIELDS - {"histograms"}, 1e-9)
    agree(by_rows, joined, ROW_FIELDS, 1e-6)
    agree(light, joined, LIGHT_FIELDS, 2e-5)


@settings(max_examples=60, deadline=None)
@given(pairs())
def test_a_metric_over_samples_is_pooled_or_a_mean_and_never_both(samples: list[tuple[Array, Array]]) -> None:
    for name in ("sqnr_db", "cosine", "mse", "kl_divergence"):
        with np.errstate(all="ignore"):
            sums = [measure_pair(x, y) for x, y in samples]
            pooled, mean = SampleTally(get_metric(name)), SampleTally(get_metric(mean_of(name)))
            for at, each in enumerate(sums):
                pooled.add(each, str(at))
                mean.add(each, str(at))
            merged = NOTHING
            for each in sums:
                merged = merged.merge(each)
            expected = get_metric(name).value(merged)
        assert pooled.value == (None if math.isnan(expected) else pytest.approx(expected))
        values = [get_metric(name).value(each) for each in sums]
        known = [value for value in values if not math.isnan(value)]
        finite = [value for value in known if value != math.inf] or known
        assert mean.value == (pytest.approx(sum(finite) / len(finite)) if finite else None)


def poisoned(sums: PairSums, keep: frozenset[Field]) -> PairSums:
    """Sums in which everything that is not kept is wrong."""
    bad = math.nan
    sides: dict[str, Any] = {}
    for name in ("reference", "candidate"):
        side: SideSums = getattr(sums, name)
        changes: dict[str, Any] = {}
        if f"{name}_energy" not in keep:
            changes["energy"] = bad
        if "totals" not in keep:
            changes["total"] = bad
        if "extremes" not in keep:
            changes |= {"low": bad, "high": bad, "at_low": -7, "at_high": -7}
        if "zeros" not in keep:
            changes["zeros"] = -7
        if "histograms" not in keep:
            changes["histogram"] = histogram_of(np.array([1e9 if name == "reference" else 1e-9]))
        sides[name] = replace(side, **changes)
    rest: dict[Field, dict[str, Any]] = {
        "error_energy": {"error_energy": bad},
        "product": {"product": bad},
        "abs_error": {"abs_error": bad},
        "max_abs_error": {"max_abs_error": bad},
        "relative_errors": {"relative_count": -7, "relative_error": bad, "max_relative_error": bad},
        "near_counts": {"within_1e3": -7, "within_5e3": -7},
        "channels": {"channels": None},
    }
    changes = {key: value for field, each in rest.items() if field not in keep for key, value in each.items()}
    return replace(sums, **sides, **changes, offers=keep)


@pytest.mark.parametrize("name", [each.name for each in all_metrics()])
def test_metrics_read_only_what_they_declare(name: str) -> None:
    rng = np.random.default_rng(3)
    x = rng.standard_normal((2, 3, 4, 4)).astype(np.float32)
    for y in (
        x + np.float32(0.1) * rng.standard_normal(x.shape).astype(np.float32),
        x.copy(),
        x * 0,
        np.minimum(x, 1),
    ):
        sums = measure_pair(x, y, channel_axis=1)
        found = get_metric(name)
        value = found.value(sums)
        assert found.value(poisoned(sums, found.needs)) == value
    assert found.needs <= ALL_FIELDS


def test_sums_without_what_a_metric_needs_are_no_score() -> None:
    sums = row_sums_of([(np.ones(3), np.zeros(3))])
    with pytest.raises(ValueError, match="kl_divergence needs histograms"):
        get_metric("kl_divergence").value(sums)


def span_error(sums: PairSums) -> float:
    """Largest error over the span of the reference."""
    return sums.max_abs_error / (sums.reference.high - sums.reference.low)


def test_a_metric_of_a_contributor_is_served_where_its_sums_are_gathered_and_refused_elsewhere() -> None:
    with registered("span_error", ("max_abs_error", "extremes"), span_error):
        assert [each.name for each in require(["span_error"], command="compare")] == ["span_error"]
        for offers in (ROW_FIELDS, LIGHT_FIELDS):
            with pytest.raises(BadInput, match="it does not gather extremes") as caught:
                require(["span_error"], command="sensitivity", offers=offers)
            assert "choose from: cosine, sqnr_db" in caught.value.fix
            assert "span_error" not in caught.value.fix
        assert get_metric("mean_span_error").per_sample
    with registered("half_mse", ("error_energy",), half_mse):
        for offers in (ALL_FIELDS, ROW_FIELDS, LIGHT_FIELDS):
            assert "half_mse" in judging(offers)


def half_mse(sums: PairSums) -> float:
    """Half of the mean of the squared errors."""
    return sums.error_energy / sums.count / 2


def test_what_cannot_be_registered() -> None:
    with pytest.raises(ValueError, match="which nobody gathers"):
        metric("half", needs=["colour"], direction="lower", perfect=0.0)(half_mse)  # type: ignore[list-item]
    with pytest.raises(ValueError, match="no docstring"):
        metric("half", needs=["error_energy"], direction="lower", perfect=0.0)(lambda sums: 0.5 * sums.count)
    with pytest.raises(ValueError, match="registered twice"):
        metric("mse", needs=["error_energy"], direction="lower", perfect=0.0)(half_mse)
    with pytest.raises(BadInput, match="There is no metric 'mean_zeros'"):
        get_metric("mean_zeros")
    with pytest.raises(BadInput, match="No metric was given"):
        require([], command="samples")
