"""Splitting the outputs' error among the units that added it."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from roundoff.core.tensors import Array, NodeInfo, Topology
from roundoff.measure.light_pairs import ErrorTotals, LightMeter, MeterJob
from roundoff.studies.layers.attribution import OwnError, loss_of, output_shares


def totals(x: Array, y: Array) -> ErrorTotals:
    found = ErrorTotals()
    with np.errstate(all="ignore"):
        LightMeter().measure([MeterJob(x.astype(np.float32), [y.astype(np.float32)], [found])])
    return found


def noise(ratio: float, size: int = 4000, seed: int = 0) -> ErrorTotals:
    """A tensor with so much noise on it."""
    rng = np.random.default_rng(seed)
    x = rng.standard_normal(size)
    return totals(x, x + math.sqrt(ratio) * rng.standard_normal(size))


def own(ratio: float) -> OwnError:
    found = noise(ratio, seed=1)
    return OwnError(found.noise_ratio, loss_of(found), ratio, "rounding", None, None)


def chain(length: int) -> Topology:
    nodes = tuple(NodeInfo(f"n{i}", "Conv", (f"t{i}",), (f"t{i + 1}",)) for i in range(length))
    return Topology(nodes, ("t0",), (f"t{length}",))


def test_errors_that_add_up_are_split_as_they_were_added() -> None:
    added = [0.001, 0.004, 0.002, 0.003]
    sums = {f"t{i}": noise(sum(added[: i + 1]), seed=i) for i in range(4)}
    shares = output_shares(chain(3), {f"t{i}": own(each) for i, each in enumerate(added)}, sums, inside=())
    assert sum(shares.values()) == pytest.approx(1)
    assert [shares[f"t{i}"] for i in range(4)] == pytest.approx([0.1, 0.4, 0.2, 0.3], abs=0.03)


def test_the_last_of_many_wreckers_is_not_blamed_for_all() -> None:
    """Each of five nodes keeps half of the signal; the output has nothing to do with the right one any more."""
    rng = np.random.default_rng(0)
    x = rng.standard_normal(20_000)
    sums, y = {"t0": totals(x, x)}, x
    for index in range(5):
        y = (y + rng.standard_normal(x.size) * y.std()) / math.sqrt(2)
        sums[f"t{index + 1}"] = totals(x, y)
    alone = totals(x, (x + rng.standard_normal(x.size)) / math.sqrt(2))
    each = OwnError(alone.noise_ratio, loss_of(alone), 1.0, "rounding", None, None)
    shares = output_shares(chain(5), {f"t{i}": each for i in range(1, 6)}, sums, inside=())
    assert [shares[f"t{i}"] for i in range(1, 6)] == pytest.approx([0.2] * 5, abs=0.05)


def test_what_is_added_inside_a_unit_counts_at_its_end() -> None:
    sums = {"t0": noise(0), "t1": noise(0.01), "t2": noise(0.01)}
    shares = output_shares(chain(2), {"t1": own(0.01), "t2": own(0.01)}, sums, inside={"t1"})
    assert shares == {"t2": pytest.approx(1)}


def test_the_branch_with_more_error_gets_more_of_the_blame() -> None:
    nodes = (
        NodeInfo("left", "Conv", ("x",), ("a",)),
        NodeInfo("right", "Conv", ("x",), ("b",)),
        NodeInfo("join", "Add", ("a", "b"), ("sum",)),
    )
    sums = {"x": noise(0), "a": noise(0.003), "b": noise(0.001), "sum": noise(0.002)}
    shares = output_shares(Topology(nodes, ("x",), ("sum",)), {"a": own(0.003), "b": own(0.001)}, sums, inside=())
    assert shares == {"a": pytest.approx(0.75, abs=0.03), "b": pytest.approx(0.25, abs=0.03)}


def test_outputs_without_error_blame_nobody() -> None:
    sums = {name: noise(0) for name in ("t0", "t1")}
    assert output_shares(chain(1), {"t1": own(0.1)}, sums, inside=()) == {}


def test_of_several_outputs_the_wrecked_one_decides() -> None:
    nodes = (NodeInfo("good", "Conv", ("x",), ("a",)), NodeInfo("bad", "Conv", ("x",), ("b",)))
    sums = {"x": noise(0), "a": noise(1e-4), "b": noise(0.5)}
    shares = output_shares(Topology(nodes, ("x",), ("a", "b")), {"a": own(1e-4), "b": own(0.5)}, sums, inside=())
    assert shares["b"] > 0.99


@settings(deadline=None)
@given(st.floats(1e-6, 1e-2))
def test_a_small_loss_is_the_energy_of_the_error(ratio: float) -> None:
    found = noise(ratio)
    assert loss_of(found) == pytest.approx(found.noise_ratio, rel=0.05)


def test_a_gain_is_a_loss_although_the_direction_is_right() -> None:
    x = np.random.default_rng(0).standard_normal(1000)
    assert loss_of(totals(x, 0.5 * x)) == pytest.approx(math.log1p(0.25), rel=1e-3)


def test_nonfinite_values_are_a_loss_beyond_measure() -> None:
    x = np.random.default_rng(0).standard_normal(1000)
    y = x.copy()
    y[3] = np.nan
    assert loss_of(totals(x, y)) > 10
