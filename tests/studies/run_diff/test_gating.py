"""Whether a run may pass."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from roundoff.core.coverage import Coverage, Grade, Judgement, OutputCoverage, Unjudged
from roundoff.core.document import RunDocument
from roundoff.diagnosis.result import Diagnosis
from roundoff.errors import BadInput
from roundoff.measure.verdicts import usual_limits
from roundoff.messages.message import verbatim
from roundoff.pages.blocks import Facts
from roundoff.studies.run_diff.gate import (
    Budgets,
    GateBudget,
    GateRules,
    gate_runs,
    judge_diff,
    new_problems,
    read_budgets,
)
from roundoff.studies.run_diff.page import diff_page
from tests.studies.run_diff.support import diffed, layer_run, noisy

LEVELS = noisy(20, 12, seed=0)


def spoilt(loss: float, *nodes: int) -> np.ndarray:
    levels = LEVELS.copy()
    levels[list(nodes)] -= loss + np.linspace(-0.3, 0.3, 12)
    return levels


def test_twenty_identical_runs_pass() -> None:
    for _ in range(20):
        assert judge_diff(diffed(layer_run(LEVELS), layer_run(LEVELS.copy())), max_regression_db=0.0).passed


def test_other_samples_of_the_same_network_seldom_fail() -> None:
    failed = 0
    for seed in range(200):
        found = diffed(
            layer_run(noisy(30, 8, seed=2 * seed)), layer_run(noisy(30, 8, seed=2 * seed + 1), data="b")
        )
        failed += not judge_diff(found, max_regression_db=0.0).passed
    # 5 % of 200 are 10; 19 or more would be seen once in 200 tries.
    assert failed < 19


@pytest.mark.parametrize("node", [0, 7, 19])
def test_one_node_that_lost_too_much_fails(node: int) -> None:
    gate = judge_diff(diffed(layer_run(LEVELS), layer_run(spoilt(2.0, node))))
    assert [row.tensor for row in gate.rows if row.passed is False] == [f"t{node + 1}"]
    assert str(gate.rows[node].why).startswith("lost 2.0 dB (")
    assert judge_diff(diffed(layer_run(LEVELS), layer_run(spoilt(2.0, node))), max_regression_db=2.5).passed


def test_a_loss_that_may_be_chance_fails_only_when_strict() -> None:
    levels = LEVELS[:, :3].copy()
    levels[4] += [-9.0, 1.0, -4.0]
    found = diffed(layer_run(LEVELS[:, :3]), layer_run(levels))
    # The other rows are the same bit for bit, so that this is the only test: one-sided p = 0.15.
    assert judge_diff(found).passed
    gate = judge_diff(found, strict=True)
    assert [row.tensor for row in gate.rows if row.passed is False] == ["t5"]
    assert str(gate.rows[4].why).endswith("chance is not excluded")


def test_a_single_sample_is_judged_by_its_loss() -> None:
    before, after = LEVELS[:, :1], spoilt(3.0, 4)[:, :1]
    gate = judge_diff(diffed(layer_run(before), layer_run(after)))
    assert [row.tensor for row in gate.rows if row.passed is False] == ["t5"]
    assert str(gate.rows[4].why).endswith("chance could not be tested")
    # Other samples differ anyway.
    assert judge_diff(diffed(layer_run(before), layer_run(after, data="b"))).passed


def test_the_first_budget_that_fits_decides() -> None:
    budgets = Budgets(
        None, (GateBudget("t5", ignored=True), GateBudget("n7", loss_db=5.0), GateBudget("t?", loss_db=0.1))
    )
    gate = judge_diff(diffed(layer_run(LEVELS), layer_run(spoilt(2.0, 4, 7, 8, 12))), budgets=budgets)
    assert [row.tensor for row in gate.rows if row.passed is False] == ["t9", "t13"]
    assert (gate.rows[4].passed, str(gate.rows[4].why)) == (None, "ignored by its budget")
    assert gate.rows[7].allowed_db == 5.0
    assert gate.unused == ()


def test_what_must_be_reached_is_judged_without_a_baseline() -> None:
    budgets = Budgets(None, (GateBudget("t3", at_least_db=60.0), GateBudget("nothing*", loss_db=1.0)))
    gate = judge_diff(diffed(layer_run(LEVELS), layer_run(LEVELS)), budgets=budgets)
    assert [row.tensor for row in gate.rows if row.passed is False] == ["t3"]
    assert str(gate.rows[2].why).endswith("must reach 60 dB")
    assert gate.unused == ("nothing*",)


def test_a_run_whose_outputs_were_not_all_judged_does_not_pass_even_where_its_baseline_is_the_same() -> None:
    outputs = OutputCoverage(("t1",), (Unjudged("t20", "unmatched"),))
    found = Diagnosis("m.onnx", verbatim("dump"), "device", "not_enough_evidence", verbatim(""), outputs=outputs)
    run = replace(layer_run(LEVELS), diagnosis=found)
    diff = diffed(run, run)
    gate = judge_diff(diff, problems=new_problems(run, run, diff))
    assert tuple(map(str, gate.problems)) == ("the output t20 was not judged",)
    assert not gate.passed


@pytest.mark.parametrize(
    ("before", "after", "passed"), [("fine", "lossy", False), ("lossy", "lossy", True), ("lossy", "fine", True)]
)
def test_outputs_that_miss_their_limits_newly_fail_and_are_never_passed_over(
    before: Grade, after: Grade, passed: bool
) -> None:
    old, new = (_judged(layer_run(LEVELS), grade) for grade in (before, after))
    gate = gate_runs(old, new, diffed(old, new), GateRules()).gate
    assert gate is not None
    assert gate.passed == passed
    assert gate.lossy == (before == after == "lossy")
    said = [] if passed else ["LOSSY: outputs miss the limits that those of the baseline keep"]
    assert [str(each) for each in gate.problems] == said


@pytest.mark.parametrize(
    ("rules", "passed"),
    [
        (GateRules(max_regression_db=1.0), False),
        (GateRules(max_regression_db=60.0), True),
        (GateRules(Budgets(nodes=(GateBudget("zzz*", 60.0),))), False),
        (GateRules(Budgets(nodes=(GateBudget("t1", 60.0),))), True),
        (GateRules(Budgets(nodes=(GateBudget("t1", ignored=True),))), True),
    ],
)
def test_outputs_may_miss_limits_where_a_budget_of_theirs_says_so(rules: GateRules, passed: bool) -> None:
    old, new = (_judged(layer_run(LEVELS), grade) for grade in ("fine", "lossy"))
    gate = gate_runs(old, new, diffed(old, new), rules).gate
    assert gate is not None
    assert gate.passed == passed
    assert gate.lossy == passed


@pytest.mark.parametrize(
    ("gain", "left", "rules", "passed"),
    [
        (5.0, 3.0, GateRules(), True),
        (0.0, 3.0, GateRules(), False),
        (5.0, 20.0, GateRules(), False),
        (5.0, 3.0, GateRules(max_regression_db=1.0), False),
        (5.0, 3.0, GateRules(Budgets(1.0)), False),
        (5.0, 3.0, GateRules(Budgets(nodes=(GateBudget("t8", 1.0),))), False),
        (5.0, 3.0, GateRules(strict=True), False),
    ],
)
def test_an_inner_loss_is_a_note_where_every_output_got_better(
    gain: float, left: float, rules: GateRules, passed: bool
) -> None:
    levels = spoilt(left, 7)
    levels[-1] += gain
    old, new = (_judged(layer_run(each), "fine", output="t20") for each in (LEVELS, levels))
    diff = gate_runs(old, new, diffed(old, new), rules)
    assert diff.gate is not None
    assert diff.gate.passed == passed
    why = str(diff.gate.rows[7].why)
    # 16.5 dB are the energy of an error of 15 % of the signal, which outputs may have.
    assert ("every output got better, and it keeps what outputs must (16.5 dB)" in why) == passed
    page = diff_page(replace(new, diff=diff))
    assert page is not None
    facts = next(each for each in page.blocks if isinstance(each, Facts))
    label, text = (each.en for each in facts.rows[0])
    means = [float(each[-1].mean()) for each in (LEVELS, levels)]
    assert (label, text.split(" (")[0]) == ("outputs", f"t20: {means[0]:.1f} to {means[1]:.1f} dB")


def _judged(run: RunDocument, grade: Grade, output: str = "t1") -> RunDocument:
    assert run.layers is not None
    judgement = Judgement(grade, Coverage(OutputCoverage((output,))), limits=usual_limits().describe())
    return replace(run, layers=replace(run.layers, judgement=judgement))


def test_budgets_are_read(tmp_path: Path) -> None:
    toml = tmp_path / "budget.toml"
    toml.write_text(
        'max_regression = "2 dB"\n[nodes]\n"head/*" = 0.5\n"x" = "ignore"\n'
        '"y" = { loss = "1dB", at_least = 20, measure = "local" }\n',
        encoding="utf-8",
    )
    expected = Budgets(
        2.0,
        (GateBudget("head/*", 0.5), GateBudget("x", ignored=True), GateBudget("y", 1.0, 20.0, measure="local")),
    )
    assert read_budgets(toml) == expected
    other = tmp_path / "budget.json"
    other.write_text('{"nodes": {"head/*": 0.5}}', encoding="utf-8")
    assert read_budgets(other) == Budgets(None, (GateBudget("head/*", 0.5),))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("nodes = 3", "'nodes' is no table"),
        ("[node]\na = 1", "did you mean 'nodes'"),
        ("[nodes]\na = -1", "no decibels from 0 on"),
        ("[nodes]\na = true", "no decibels"),
        ("[nodes]\na = 'nan'", "no decibels"),
        ("[nodes]\na = { los = 1 }", "did you mean 'loss'"),
        ("[nodes]\na = { measure = 'local' }", "sets no limit"),
        ("[nodes", "is not valid TOML"),
    ],
)
def test_wrong_budgets_are_refused(tmp_path: Path, text: str, message: str) -> None:
    file = tmp_path / "budget.toml"
    file.write_text(text, encoding="utf-8")
    with pytest.raises(BadInput, match=message):
        read_budgets(file)
