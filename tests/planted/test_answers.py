"""The judge of diagnoses, on answers made by hand."""

from dataclasses import replace
from pathlib import Path
from typing import Any

from benchmarks.planted.answers import Answer, judge
from benchmarks.planted.case import CLEAN, Truth, truth
from benchmarks.planted.document import page
from benchmarks.planted.journal import Journal
from benchmarks.planted.subject import subject
from benchmarks.planted.tables import confusion, faults_table, summary

NETWORK = subject("plain", 0)


def finding(cause: str, node: str, *, proven: bool = True, after: float = 20.0) -> dict[str, Any]:
    measure = {"before": 5.0, "after": after, "higher_is_better": True}
    return {"cause": cause, "nodes": [node], "tensors": [], "proven": proven, "measures": [measure]}


def answer(truths: Truth | tuple[Truth, ...], *findings: dict[str, Any], kind: str = "culprits") -> Answer:
    case = NETWORK.case("fault", truths)
    return judge(case, {"kind": kind, "findings": list(findings)})


def test_the_right_node_and_cause() -> None:
    found = answer(truth(("conv1",), "clipping"), finding("clipping", "conv1"))
    assert found.found == found.right == (True,)


def test_the_right_node_with_the_wrong_cause() -> None:
    found = answer(truth(("conv1",), "clipping"), finding("resolution", "conv1"))
    assert (found.found, found.right, found.said) == ((True,), (False,), ("resolution",))


def test_a_culprit_beyond_the_third_does_not_count() -> None:
    others = [finding("clipping", f"conv{index}") for index in (2, 3, 4)]
    assert answer(truth(("conv1",), "clipping"), *others, finding("clipping", "conv1")).found == (False,)


def test_what_is_only_suspected_does_not_count() -> None:
    assert answer(truth(("conv1",), "clipping"), finding("clipping", "conv1", proven=False)).found == (False,)


def test_two_faults_are_judged_one_by_one() -> None:
    both = truth(("conv1",), "clipping"), truth(("conv2",), "resolution")
    assert answer(both, finding("clipping", "conv1")).found == (True, False)


def test_distributed_loss_needs_that_verdict() -> None:
    spread = Truth("distributed", causes=("accumulated-error",))
    assert answer(spread, kind="distributed").right == (True,)
    assert answer(spread, finding("clipping", "conv1")).right == (False,)


def test_a_clean_network_may_have_artefacts_but_no_culprits() -> None:
    assert not answer(CLEAN, finding("metric-artefact", "conv1"), kind="healthy").accused
    assert answer(CLEAN, finding("clipping", "conv1")).accused
    assert answer(CLEAN, kind="distributed").accused


def test_claims_that_show_no_gain_are_counted() -> None:
    found = answer(truth(("conv1",), "clipping"), finding("clipping", "conv1", after=4.0))
    assert found.fixes == (1, 0)


def test_a_failed_run_is_an_accusation_on_clean_models_and_a_miss_on_others() -> None:
    assert judge(NETWORK.case("x", CLEAN), {}, error="boom").accused
    assert judge(NETWORK.case("x", truth(("conv1",), "clipping")), {}, error="boom").found == (False,)


def test_tables_and_page() -> None:
    good = answer(truth(("conv1",), "clipping"), finding("clipping", "conv1"))
    bad = replace(answer(truth(("conv1",), "clipping"), finding("resolution", "conv1")), case="other")
    clean = replace(answer(CLEAN, kind="healthy"), fault="clean-x")
    rows = faults_table([good, bad, clean])
    assert rows[1][:4] == ("fault", "2", "2/2", "1/2")
    assert rows[2][4] == "0/1"
    assert confusion([good, bad])[1] == ("clipping", "1", "1")
    assert summary([good, bad, clean])["right cause"] == (1, 2)
    text = page([good, bad, clean], seeds=1)
    assert "| clipping | 1 | 1 |" in text
    assert "--seeds 1" in text


def test_answers_on_disk_are_not_asked_again(tmp_path: Path) -> None:
    first = answer(truth(("conv1",), "clipping"), finding("clipping", "conv1"))
    Journal(tmp_path / "answers.jsonl").add(first)
    again = Journal(tmp_path / "answers.jsonl")
    assert first.case in again
    assert again[first.case] == first
    assert "other" not in again
