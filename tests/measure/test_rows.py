"""Rows at once give what each pair gives alone."""

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from roundoff.core.tensors import Array
from roundoff.measure import rows
from roundoff.measure.metrics import get_metric, judging, score
from roundoff.measure.pairs import measure_pair
from roundoff.measure.rows import ROW_FIELDS, RowMeter, row_table, sample_scores, sums_of_row

ODD = [0.0, 0.0, 1.0, -1.0, 1e-3, 1.0005, 1e30, math.nan, math.inf, -math.inf]


def scored(names: Any, references: Any, candidates: Any, count: int) -> Array:
    metrics = [get_metric(name) for name in names]
    return sample_scores(RowMeter(metrics).measure(references, candidates, count), metrics)


@st.composite
def tables(draw: Any) -> tuple[Array, Array]:
    shape = draw(st.integers(1, 4)), draw(st.integers(0, 30))
    seed = draw(st.integers(0, 2**16))
    rng = np.random.default_rng(seed)
    kind = draw(st.sampled_from(["normal", "odd", "same", "zero"]))
    if kind == "odd":
        return rng.choice(ODD, shape), rng.choice(ODD, shape)
    x = np.zeros(shape) if kind == "zero" else rng.standard_normal(shape) * 10.0 ** rng.integers(-9, 9)
    return x, x.copy() if kind == "same" else x + rng.standard_normal(shape) * 1e-3


@settings(max_examples=80, deadline=None)
@given(tables(), st.integers(1, 9), st.integers(1, 20))
def test_every_row_is_scored_like_a_pair(table: tuple[Array, Array], piece: int, block: int) -> None:
    reference, candidate = table
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(rows, "_PIECE", piece)
        patch.setattr(rows, "_BLOCK", block)
        found = scored(judging(ROW_FIELDS), [reference], [candidate], len(reference))
    for row, (x, y) in enumerate(zip(reference, candidate, strict=True)):
        with np.errstate(all="ignore"):
            expected = score(measure_pair(x, y)).values
        values = [expected.get(name, math.nan) for name in judging(ROW_FIELDS)]
        # The one that is a difference of two lengths keeps fewer digits of it.
        slack = [1e-14 if name == "norm_error" else 0.0 for name in judging(ROW_FIELDS)]
        close = np.isclose(found[row, 0], values, rtol=1e-9, atol=slack, equal_nan=True)
        assert close.all(), dict(zip(judging(ROW_FIELDS), zip(found[row, 0], values, strict=True), strict=True))


def test_samples_of_several_rows_and_several_outputs() -> None:
    rng = np.random.default_rng(0)
    outputs: list[Array] = [rng.standard_normal((6, 5)).astype(np.float32), rng.integers(0, 9, (6, 2, 2))]
    others = [outputs[0] + np.float32(0.5), outputs[1]]
    found = scored(["mse", "chebyshev"], outputs, others, 3)
    assert found.shape == (3, 2, 2)
    np.testing.assert_allclose(found[:, 0], [[0.25, 0.5]] * 3, rtol=1e-5)
    np.testing.assert_array_equal(found[:, 1], np.zeros((3, 2)))


def test_outputs_of_another_shape_have_no_score() -> None:
    found = scored(["mse"], [np.zeros((2, 3)), np.ones((2, 3))], [np.zeros((2, 4)), np.ones((2, 3))], 2)
    np.testing.assert_array_equal(found[..., 0], [[math.nan, 0], [math.nan, 0]])


def test_long_rows_are_summed_in_pieces() -> None:
    x = np.random.default_rng(1).standard_normal((2, 20_001)).astype(np.float32)
    y = x + np.float32(1e-3) * np.sin(x)
    one, two = (sums_of_row(row) for row in row_table(x, y))
    assert one is not None
    assert two is not None
    error = (x.astype(float) - y.astype(float)) ** 2
    assert one.error_energy == pytest.approx(error[0].sum(), rel=1e-13)
    assert two.count == 20_001


def test_the_metrics_of_vendors_are_there() -> None:
    assert {"cosine", "mse", "mean_relative_error", "sqnr_db", "chebyshev"} <= set(judging(ROW_FIELDS))
