"""The search for few units that take most of a loss away."""

import math
from collections.abc import Callable, Collection

import pytest
from hypothesis import given
from hypothesis import strategies as st

from roundoff.core.progress import SILENT
from roundoff.measure.verdicts import load_profile
from roundoff.run.budget import RunBudget
from roundoff.studies.layers.experiments import (
    ExperimentOutcome,
    Experiments,
    Proof,
    UnitQuantizers,
    prove,
    reference_runs,
    takes_most,
)
from roundoff.studies.layers.measurement import LayerBench
from roundoff.studies.layers.result import Experiment
from tests.studies.layers.support import demo_network


def outcome(loss: float, off: Collection[str] = ()) -> ExperimentOutcome:
    """An outcome that keeps the thresholds up to a loss of 0.02."""
    db = math.inf if loss == 0 else -10 * math.log10(loss)
    return ExperimentOutcome(Experiment(tuple(sorted(off)), db, 1.0, loss <= 0.02), loss)


class Network:
    """A network whose loss is a function of the quantizers that are off; counts its runs."""

    def __init__(self, loss: Callable[[frozenset[str]], float], confirmed: float | None = None) -> None:
        self._loss, self._confirmed = loss, confirmed
        self.runs = 0
        self._known: dict[frozenset[str], ExperimentOutcome] = {}

    def run(self, off: Collection[str]) -> ExperimentOutcome:
        key = frozenset(off)
        if key not in self._known:
            self.runs += 1
            self._known[key] = outcome(self._loss(key), off)
        return self._known[key]

    def confirm(self, off: Collection[str]) -> tuple[ExperimentOutcome, ExperimentOutcome]:
        return self.run(()), self.run(off) if self._confirmed is None else outcome(self._confirmed)


def parts(unit: str) -> UnitQuantizers:
    return UnitQuantizers(weights=frozenset({f"{unit}.w"}), result=frozenset({f"{unit}.r"}))


def adding_up(costs: dict[str, float]) -> Callable[[frozenset[str]], float]:
    return lambda off: math.fsum(cost for name, cost in costs.items() if name not in off)


def proven(network: Network, order: str, limit: int = 8) -> Proof:
    return prove(network, parts, [list(order)], limit=limit)


def test_the_part_of_the_unit_that_costs_is_found_behind_better_candidates() -> None:
    network = Network(adding_up({"c.w": 0.5, **{f"{unit}.r": 0.002 for unit in "abdefgh"}}))
    proof = proven(network, "abcdefgh")
    assert proof.holds
    assert proof.tried == ("c",)
    role = proof.roles["c"]
    assert (role.inside, role.result, role.costlier) == (True, False, "inside")
    assert role.quantized_again is None
    assert proof.after.found.switched_off == ("c.w",)
    assert network.runs <= 10


def test_two_units_that_only_help_together_are_both_needed() -> None:
    def loss(off: frozenset[str]) -> float:
        return 0.001 if {"a.w", "b.r"} <= off else 0.4 if "a.w" in off or "b.r" in off else 0.6

    proof = proven(Network(loss), "abcd")
    assert proof.tried == ("a", "b")
    assert {unit: (role.inside, role.result) for unit, role in proof.roles.items()} == {
        "a": (True, False),
        "b": (False, True),
    }
    assert [round(role.quantized_again.sqnr_db, 1) for role in proof.roles.values() if role.quantized_again] == [
        4.0,
        4.0,
    ]


def test_parts_that_can_stand_in_for_each_other_are_both_kept() -> None:
    """Either part alone can be quantized at no cost, both cannot."""

    def loss(off: frozenset[str]) -> float:
        return 0.5 if not off & {"a.w", "a.r"} else 0.0

    proof = proven(Network(loss), "a")
    assert (proof.roles["a"].inside, proof.roles["a"].result) == (True, True)


def test_many_equal_units_are_no_proof() -> None:
    network = Network(adding_up({f"{unit}.w": 0.1 for unit in "abcdefghijklmnopqrst"}))
    proof = proven(network, "abcdefghijklmnopqrst", limit=4)
    assert not proof.holds
    assert proof.tried == tuple("abcd")
    assert not proof.roles
    assert network.runs == 2


def test_a_second_order_is_tried_when_the_first_does_not_help() -> None:
    network = Network(adding_up({"z.w": 0.9, **{f"{unit}.r": 0.01 for unit in "abc"}}))
    assert not prove(network, parts, [list("abc")], limit=2).holds
    assert prove(network, parts, [list("abc"), list("zab")], limit=2).tried == ("z",)


def test_what_does_not_hold_on_more_samples_is_not_claimed() -> None:
    costs = {"a.w": 0.9, "b.w": 0.01}
    assert proven(Network(adding_up(costs)), "ab", limit=1).holds
    proof = proven(Network(adding_up(costs), confirmed=0.5), "ab", limit=1)
    assert not proof.holds
    assert (proof.after.loss, proof.tried) == (0.5, ("a",))


def test_half_is_enough_where_the_outputs_are_good_then() -> None:
    assert takes_most(outcome(0.04), outcome(0.02))
    assert not takes_most(outcome(0.04), outcome(0.021))
    assert takes_most(outcome(1.0), outcome(0.25))
    assert not takes_most(outcome(1.0), outcome(0.26))
    assert not takes_most(outcome(0.0), outcome(0.0))


@given(st.lists(st.floats(0, 1), min_size=1, max_size=8), st.integers(1, 8))
def test_whatever_is_claimed_takes_most_of_the_loss_away(costs: list[float], limit: int) -> None:
    names = [f"{unit}.{part}" for unit in "abcd" for part in "wr"]
    network = Network(adding_up(dict(zip(names, costs, strict=False))))
    proof = proven(network, "abcd", limit)
    assert len(proof.tried) <= limit
    if proof.holds:
        assert takes_most(proof.before, proof.after)
        assert proof.after.loss == network.run(proof.after.found.switched_off).loss
        assert set(proof.roles) == set(proof.tried)
    else:
        assert not proof.roles


def test_outputs_too_large_to_keep_leave_samples_out_and_mix_up_none(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without any quantizer the network is the float one, on whichever samples; on others it would not be."""
    quantized, samples = demo_network()
    one_sample = 8 * 10 * 4  # eight images, ten classes, float32
    monkeypatch.setattr("roundoff.studies.layers.experiments._MOST_KEPT_BYTES", one_sample)
    layers = LayerBench(quantized, (), samples, RunBudget(threads=1), SILENT)
    experiments = Experiments(
        layers, range(5), thresholds=load_profile("default"), open_network=reference_runs(layers, 1)
    )
    found = experiments.run({each.name for each in quantized.quantizers}).found
    assert experiments.samples == 2
    assert found.sqnr_db == math.inf
