"""The judge of diagnoses, on answers made by hand."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from benchmarks.planted.answers import Answer, judge, judge_pair
from benchmarks.planted.case import CLEAN, Dumps, Truth, truth
from benchmarks.planted.document import page
from benchmarks.planted.io_pairs import pair_cases
from benchmarks.planted.journal import Journal
from benchmarks.planted.subject import subject
from benchmarks.planted.suite import Choice
from benchmarks.planted.tables import confusion, dumps_table, faults_table, reached, repairs_table, summary

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
    text = page([good, bad, clean], Choice([0]))
    assert "| clipping | 1 | 1 |" in text
    assert "--seeds 1" in text
    assert "These tables are of 3 cases." in text
    assert "of 3 cases, a sample:" in page([good, bad, clean], Choice([0], part=(1, 8)))


def broken_board(kind: str, *, failed: int, not_judged: tuple[str, ...] = ()) -> Answer:
    """What is said of a board whose output has its sign flipped, by diagnose and by compare."""
    count = 3
    samples = {name: values[:count] for name, values in NETWORK.built.samples.items()}
    wrong = tuple({"classifier_out": -NETWORK.values["classifier_out"][i : i + 1]} for i in range(count))
    dumps = Dumps(wrong, style="hashed", way="outputs only")
    case = NETWORK.case("fault", Truth("somewhere"), samples=samples, dumps=dumps)
    comparison = {"verdict": {"failed": failed, "compared": 1}, "outputs": {"not_judged": list(not_judged)}}
    return judge(case, {"kind": kind, "findings": []}, comparison=comparison)


def test_a_good_verdict_on_a_broken_board_is_counted() -> None:
    told = broken_board("healthy", failed=0)
    assert told.output_db == pytest.approx(-6.02, abs=0.01)
    assert told.good == ("diagnose", "compare")
    assert broken_board("not_enough_evidence", failed=0, not_judged=("classifier_out",)).good == ()
    assert broken_board("elsewhere", failed=1).good == ()
    assert dumps_table([told], "style")[1] == ("hashed", "", "", "1/1", "")
    assert dumps_table([told], "way")[1][0] == "outputs only"
    assert "broken boards called HEALTHY or PASS" in reached([told])


def test_where_outputs_alone_are_known_no_place_is_asked_for() -> None:
    assert broken_board("elsewhere", failed=1).found == ()


def test_each_style_of_names_has_to_reach_the_target() -> None:
    good = replace(answer(truth(("conv1",), "clipping"), finding("clipping", "conv1")), style="numbered")
    lost = replace(answer(truth(("conv1",), "clipping")), style="hashed")
    assert reached([good] * 30) == []
    assert reached([*[good] * 30, lost]) == ["culprit in top 3, hashed"]


def test_claims_of_repairs_are_held_against_other_samples() -> None:
    base = Answer("fix-x/plain/0", "fix-x", "plain", clean=False, unit="dB", slack=1.0)
    true, false = replace(base, claim=(25.0, 24.1)), replace(base, claim=(26.8, 17.3))
    assert true.holds
    assert not false.holds
    assert not base.holds
    assert repairs_table([true, false, base])[1] == ("fix-x", "3", "2", "1/2", "9.50 dB")
    assert summary([true, false, base])["repairs that keep their word on other samples"] == (1, 2)


def test_noise_that_is_given_a_name_is_a_false_accusation() -> None:
    pairs = {name.partition("/")[0]: make for name, make in pair_cases(0)}
    noise, swapped = pairs["clean-io-jpeg-75"](), pairs["io-swapped"]()
    stage = {"explanation": {"changes": [{"kind": "colour-matrix"}]}}
    said = {"schema": 1, "check_io": {"stages": [stage]}}
    assert judge_pair(noise, said).accused
    assert not judge_pair(noise, {"check_io": {"stages": [{"explanation": None}]}}).accused
    told = judge_pair(swapped, said)
    assert (told.found, told.right, told.said) == ((True,), (False,), ("colour-matrix",))
    assert swapped.family == "imagenet"
    named = {"explanation": {"changes": [{"kind": "channel-order"}]}}
    assert judge_pair(swapped, {"check_io": {"stages": [named]}}).right == (True,)
    both = {"explanation": {"changes": [{"kind": "channel-order"}, {"kind": "gamma"}]}}
    assert judge_pair(swapped, {"check_io": {"stages": [both]}}).right == (False,), "more than what is there"


def test_a_matrix_is_right_only_with_its_name() -> None:
    pairs = {name.partition("/")[0]: make for name, make in pair_cases(0)}
    pair = pairs["io-yuv-601full-709limited-float"]()
    stage = {"explanation": {"changes": [{"kind": "colour-matrix", "text": "BT.601 full range"}]}}
    assert judge_pair(pair, {"check_io": {"stages": [stage]}}).right == (False,)
    stage["explanation"]["changes"][0]["text"] += ", BT.709 limited range"
    assert judge_pair(pair, {"check_io": {"stages": [stage]}}).right == (True,)


def test_answers_on_disk_are_not_asked_again(tmp_path: Path) -> None:
    first = answer(truth(("conv1",), "clipping"), finding("clipping", "conv1"))
    Journal(tmp_path / "answers.jsonl").add(first)
    again = Journal(tmp_path / "answers.jsonl")
    assert first.case in again
    assert again[first.case] == first
    assert "other" not in again
