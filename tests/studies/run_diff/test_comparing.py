"""Which nodes of two runs are better or worse."""

import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from roundoff.core.document import InputFile, RunDocument
from roundoff.core.tensors import Array
from roundoff.errors import BadInput
from roundoff.messages.message import verbatim
from roundoff.studies.compare.result import Role
from roundoff.studies.layers.result import LayerScore
from tests.report.curves import curves_of
from tests.report.documents import chain, empty_document
from tests.studies.compare.test_page import make_comparison, make_row
from tests.studies.run_diff.support import diffed, layer_run, noisy

NODES, SAMPLES = 20, 12


def test_a_run_is_the_same_as_itself() -> None:
    run = layer_run(noisy(NODES, SAMPLES, seed=0))
    found = diffed(run, run)
    assert (found.kind, found.first, found.pairing) == ("same", None, "paired")
    assert {row.change for row in found.rows} == {"same"}
    assert found.inputs == ()


def test_a_worse_node_is_named_with_those_that_follow() -> None:
    levels = noisy(NODES, SAMPLES, seed=1)
    spoilt = levels.copy()
    spoilt[7:] -= np.linspace(4, 5, SAMPLES)
    found = diffed(layer_run(levels), layer_run(spoilt))
    assert (found.kind, found.first) == ("worse", "t8")
    assert len(found.tensors("worse")) == NODES - 7
    assert [row.tensor for row in found.rows if row.starts] == ["t8"]
    turned = diffed(layer_run(spoilt), layer_run(levels))
    assert (turned.kind, turned.first, len(turned.tensors("better"))) == ("better", None, NODES - 7)


def test_alone_a_node_is_worse_by_itself_unless_what_it_reads_is() -> None:
    levels = noisy(NODES, SAMPLES, seed=1)
    spoilt = levels.copy()
    spoilt[[3, 4, 12]] -= 6
    found = diffed(layer_run(levels, measure="local"), layer_run(spoilt, measure="local"))
    assert [row.tensor for row in found.rows if row.starts] == ["t4", "t13"]
    assert found.first == "t4"


def test_better_here_and_worse_there_is_mixed() -> None:
    levels = noisy(NODES, SAMPLES, seed=2)
    other = levels.copy()
    other[2] += 3
    other[5] -= 3
    found = diffed(layer_run(levels), layer_run(other))
    assert (found.kind, found.tensors("better"), found.tensors("worse")) == ("mixed", ("t3",), ("t6",))


def test_a_change_below_the_floor_is_none_however_sure() -> None:
    levels = noisy(NODES, SAMPLES, seed=3)
    assert diffed(layer_run(levels), layer_run(levels - 0.01)).kind == "same"
    assert diffed(layer_run(levels), layer_run(levels - 0.01), floor_db=0.005).kind == "worse"


def test_errors_of_float_arithmetic_are_no_change() -> None:
    levels = noisy(NODES, SAMPLES, seed=4) + 90
    assert diffed(layer_run(levels), layer_run(levels - 25)).kind == "same"
    exact = np.full_like(levels, math.inf)
    assert diffed(layer_run(exact), layer_run(levels)).kind == "same"


def test_noise_in_few_samples_is_unclear_when_large() -> None:
    levels = noisy(NODES, 3, seed=5)
    other = levels.copy()
    other[4] += np.asarray([-9.0, 1.0, -4.0])
    found = diffed(layer_run(levels), layer_run(other))
    assert (found.kind, found.tensors("unclear")) == ("unclear", ("t5",))


def test_one_sample_cannot_be_tested() -> None:
    levels = noisy(NODES, 1, seed=6)
    found = diffed(layer_run(levels), layer_run(levels - 5))
    assert found.kind == "untested"
    assert "one sample: nothing can be tested, differences are listed; give more samples" in map(str, found.notes)


def test_documents_of_older_versions_are_compared_without_a_test() -> None:
    run = layer_run(noisy(NODES, SAMPLES, seed=7))
    assert run.layers is not None
    rows = tuple(replace(row, accumulated=LayerScore("ok", sqnr_db=20.0 + row.order)) for row in run.layers.rows)
    lower = tuple(replace(row, accumulated=LayerScore("ok", sqnr_db=10.0 + row.order)) for row in run.layers.rows)
    old, new = (replace(run, layers=replace(run.layers, rows=each)) for each in (rows, lower))
    found = diffed(old, new)
    assert (found.kind, found.pairing) == ("untested", "none")
    assert {row.change_db for row in found.rows} == {-10.0}
    assert any("nothing can be tested" in str(note) for note in found.notes)


def test_other_samples_are_no_pairs() -> None:
    levels = noisy(NODES, SAMPLES, seed=8)
    found = diffed(layer_run(levels), layer_run(levels[:, ::-1], data="other"))
    assert (found.pairing, found.kind) == ("unpaired", "same")
    assert [each.what for each in found.inputs] == ["data"]
    assert any(str(note).startswith("the samples differ") for note in found.notes)
    assert diffed(layer_run(levels), layer_run(levels, data="other"), paired=True).pairing == "paired"


def test_some_of_the_samples_are_pairs_by_name() -> None:
    levels = noisy(NODES, SAMPLES, seed=9)
    found = diffed(layer_run(levels), layer_run(levels[:, :5] - 2))
    assert (found.pairing, found.kind, found.samples) == ("paired", "worse", (SAMPLES, 5))
    assert {row.samples for row in found.rows} == {5}


def test_renamed_nodes_are_matched_by_operation_shape_and_place() -> None:
    levels = noisy(6, SAMPLES, seed=10)
    before = layer_run(levels, names=["a", "b", "c", "d", "e", "f"], c="Relu", e="Gemm")
    after = layer_run(levels - 5, names=["a", "b2", "c2", "d", "x", "f"], c2="Relu", x="Softmax")
    found = diffed(before, after)
    assert found.renamed == (("b", "b2"), ("c", "c2"))
    assert (found.only_before, found.only_after) == (("e",), ("x",))
    assert [row.renamed_from for row in found.rows] == ["", "b", "c", "", ""]
    assert found.kind == "worse"


def test_a_tensor_that_lost_its_score_is_worse_without_a_test() -> None:
    run = layer_run(noisy(4, SAMPLES, seed=11))
    assert run.layers is not None
    broken = LayerScore("nonfinite", verbatim("3 values are NaN"), sqnr_db=30.0)
    rows = (run.layers.rows[0], replace(run.layers.rows[1], accumulated=broken), *run.layers.rows[2:])
    after = replace(run, layers=replace(run.layers, rows=rows))
    found = diffed(run, after)
    assert (found.kind, found.first) == ("worse", "t2")
    assert found.rows[1].detail == "3 values are NaN"
    assert diffed(after, run).kind == "better"


def test_what_was_not_the_same_is_told() -> None:
    run = layer_run(noisy(4, SAMPLES, seed=12))
    other = replace(
        run,
        command=("roundoff", "layers", "m.onnx", "--target", "amct", "-o", "out"),
        environment=replace(run.environment, packages={"numpy": "2.1"}),
    )
    told = [(each.what, each.before, each.after, each.environment) for each in diffed(run, other).inputs]
    assert told == [("target", "", "amct", False), ("numpy", "2.0", "2.1", True)]


def test_runs_of_different_kinds_are_refused() -> None:
    run = layer_run(noisy(4, SAMPLES, seed=13))
    with pytest.raises(BadInput, match="give two runs of the same command"):
        diffed(run, empty_document(accumulation=curves_of()))
    with pytest.raises(BadInput, match="scores no nodes"):
        diffed(run, empty_document())
    with pytest.raises(BadInput, match="no node in common"):
        diffed(run, layer_run(noisy(2, SAMPLES, seed=1), names=["x", "y"], x="Add", y="Mul"))


@pytest.mark.parametrize("data", ["same", "other"])
def test_runs_without_a_change_seldom_name_a_node(data: str) -> None:
    """Over the family at most 5 %: 300 comparisons of 40 nodes whose scores differ by chance alone."""
    alarms = 0
    for seed in range(300):
        before = noisy(40, 10, seed=2 * seed)
        after = noisy(40, 10, seed=2 * seed + 1) if data == "other" else before
        if data == "same":
            after = before + np.random.default_rng(seed).normal(0, 1.0, before.shape)
        found = diffed(layer_run(before), layer_run(after, data=data), floor_db=0.0)
        alarms += bool(found.changed("worse", "better"))
    # 5 % of 300 are 15; 26 or more would be seen once in 200 tries.
    assert alarms < 26


@settings(max_examples=40, deadline=None)
@given(seed=st.integers(0, 10_000), nodes=st.integers(1, 12), samples=st.integers(1, 6))
def test_a_diff_turned_round_says_the_opposite(seed: int, nodes: int, samples: int) -> None:
    before, after = noisy(nodes, samples, seed=seed), noisy(nodes, samples, seed=seed + 1)
    there = diffed(layer_run(before), layer_run(after))
    back = diffed(layer_run(after), layer_run(before))
    opposite = {"better": "worse", "worse": "better"}
    assert [opposite.get(row.change, row.change) for row in back.rows] == [row.change for row in there.rows]
    assert [row.probability for row in back.rows] == pytest.approx([row.probability for row in there.rows])


def test_a_large_local_loss_is_its_own_though_what_it_reads_is_slightly_worse() -> None:
    levels = noisy(NODES, SAMPLES, seed=1)
    spoilt = levels.copy()
    spoilt[3] -= 3
    spoilt[4] -= 25
    spoilt[5] -= 25
    found = diffed(layer_run(levels, measure="local"), layer_run(spoilt, measure="local"))
    assert [row.tensor for row in found.rows if row.starts] == ["t4", "t5"]
    assert found.first == "t4"
    assert found.largest is not None
    assert found.largest.tensor == "t5"


def _compare_run(levels: Array, roles: dict[str, Role]) -> RunDocument:
    rows = [
        make_row(
            at,
            f"t{at + 1}",
            1.0,
            node=f"n{at}",
            sample_sqnr_db=tuple(line.tolist()),
            role=roles.get(f"t{at + 1}", ""),
        )
        for at, line in enumerate(levels)
    ]
    data = (InputFile("reference", "ref.npy", 1, "same", "content"),)
    found = make_comparison(*rows, samples=tuple(str(at) for at in range(levels.shape[1])))
    network = chain(*(f"n{at}" for at in range(len(levels))))
    return replace(empty_document(), comparison=found, network=network, inputs=data)


def test_who_introduces_an_error_of_a_comparison_is_named_before_who_lost_little_above() -> None:
    levels = noisy(6, SAMPLES, seed=1, spread=0.1) + 10
    spoilt = levels.copy()
    spoilt[1:] -= 2
    spoilt[3:] -= 35
    before, after = _compare_run(levels, {}), _compare_run(spoilt, {"t4": "introduces", "t5": "victim"})
    found = diffed(before, after)
    assert [row.tensor for row in found.rows if row.starts] == ["t2", "t4"]
    assert found.largest is not None
    assert (found.first, found.largest.tensor) == ("t2", "t4")
    # What fails for what came to it, as its noise is no more than that of what it reads, starts nothing.
    unfounded = diffed(before, _compare_run(spoilt, {"t5": "introduces"}))
    assert [row.tensor for row in unfounded.rows if row.starts] == ["t2"]
