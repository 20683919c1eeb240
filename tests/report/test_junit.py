"""Every kind of run that can fail, as JUnit XML."""

import xml.etree.ElementTree as ET
from dataclasses import replace

from roundoff.core.document import RunDocument
from roundoff.diagnosis.result import Check, Diagnosis, Finding, Measure, Repair
from roundoff.messages.message import verbatim
from roundoff.report.junit import document_junit
from roundoff.studies.check_io.result import IoCheck, StageCheck
from roundoff.studies.run_diff.result import Change
from tests.report.curves import sweep_of, without_goal
from tests.report.diffs import diff_of
from tests.report.documents import HOSTILE, empty_document
from tests.search import test_tuning
from tests.studies.audit import test_audit
from tests.studies.layers import test_layers


def cases(document: RunDocument) -> dict[str, tuple[str, str]]:
    """Outcome and message of each case, by its name; the counts agree with them."""
    text = document_junit(document)
    assert text is not None
    root = ET.fromstring(text)  # noqa: S314 - our own text
    found = {}
    for case in root.iter("testcase"):
        outcome = next((each for each in case if each.tag != "system-out"), None)
        found[case.get("name", "")] = (
            ("passed", "") if outcome is None else (outcome.tag, outcome.get("message", ""))
        )
    assert root.get("tests") == str(len(list(root.iter("testcase"))))
    assert root.get("failures") == str(len(list(root.iter("failure"))))
    assert root.get("skipped") == str(len(list(root.iter("skipped"))))
    return found


def test_culprits_and_outputs_that_miss_their_limits_fail() -> None:
    report = test_layers.REPORT
    verdict = replace(report.verdict, agrees=False)
    found = cases(empty_document(layers=replace(report, verdict=verdict)))
    guilty = {each.tensor for each in verdict.culprits}
    outputs = {row.tensor for row in report.rows if row.output}
    failed = {name for name, (outcome, _) in found.items() if outcome == "failure"}
    assert failed == (guilty & set(found)) | outputs
    fine = replace(report, verdict=replace(verdict, agrees=True, culprits=()))
    assert "failure" not in {outcome for outcome, _ in cases(empty_document(layers=fine)).values()}


def test_silent_differences_fail() -> None:
    found = cases(empty_document(audit=test_audit.AUDIT))
    assert found["=cmd('x')"] == ("failure", "input 0 (x) is u8; target t makes it u16")
    assert [outcome for outcome, _ in found.values()] == ["passed", "passed", "failure", "passed"]


def test_stages_that_differ_fail_and_absent_ones_are_skipped() -> None:
    stages = (
        StageCheck("original", 0.1, 0, None, None, None),
        StageCheck("preprocessed", 0.1, 2, False, 0.5, 0.1),
        StageCheck("output", 0.1, 2, True, 0.0, 0.0),
    )
    assert cases(empty_document(io_check=IoCheck(stages))) == {
        "original": ("skipped", "one side was not given"),
        "preprocessed": ("failure", "differs by 0.5, 0.1 is allowed"),
        "output": ("passed", ""),
    }


def test_proven_causes_fail_and_suspected_ones_do_not() -> None:
    proven = Finding(
        number=1, cause="clipping", nodes=(HOSTILE,), tensors=(), proven=True, summary=verbatim("cut off")
    )
    findings = (proven, replace(proven, number=2, nodes=("other",), proven=False))
    found = Diagnosis(
        "m",
        verbatim("s"),
        "quantization",
        "culprits",
        verbatim("one"),
        findings,
        checks=(Check(verbatim("a"), verbatim("fine")),),
        not_looked_at=(verbatim("b"),),
    )
    assert [outcome for outcome, _ in cases(empty_document(diagnosis=found)).values()] == [
        "failure", "skipped", "passed", "skipped",
    ]  # fmt: skip
    assert "failure" in {
        each for each, _ in cases(empty_document(diagnosis=replace(found, kind="elsewhere"))).values()
    }


def test_what_was_repaired_passes_and_what_was_not_fails() -> None:
    proven = Finding(
        number=1, cause="clipping", nodes=("n",), tensors=(), proven=True, summary=verbatim("cut off")
    )
    checks = (
        Check(verbatim("outputs"), verbatim("-0.1 dB"), ok=False),
        Check(verbatim("numbers"), verbatim("in order")),
    )
    measure = Measure(verbatim("accuracy of <all>"), "", 0.0, 0.5)
    found = Diagnosis("m", verbatim("s"), "quantization", "culprits", verbatim("one"), (proven,), checks=checks)
    outcomes = {
        reached: {
            name: outcome
            for name, (outcome, _) in cases(
                empty_document(diagnosis=replace(found, repair=Repair((), (measure,), reached=reached)))
            ).items()
        }
        for reached in (True, False)
    }
    assert set(outcomes[True].values()) == {"passed"}
    assert outcomes[False] == {
        "n": "failure", "accuracy of <all>": "failure", "outputs": "failure", "numbers": "passed",
    }  # fmt: skip
    assert cases(empty_document(diagnosis=found))["outputs"] == ("failure", "-0.1 dB")
    text = document_junit(empty_document(diagnosis=replace(found, repair=Repair((), (measure,), reached=True))))
    told = [each.text for each in ET.fromstring(text or "").iter("system-out")]  # noqa: S314 - our own text
    assert told == ["repaired: cut off", "0 -> 0.5", "before the repair: -0.1 dB", "in order"]


def test_a_healthy_run_has_no_failure() -> None:
    checks = (Check(verbatim("outputs"), verbatim("odd"), ok=False),)
    found = Diagnosis("m", verbatim("s"), "quantization", "healthy", verbatim("fine"), checks=checks)
    assert cases(empty_document(diagnosis=found)) == {"outputs": ("skipped", "odd")}


def test_a_run_without_a_judgement_has_none() -> None:
    assert document_junit(empty_document()) is None


def test_goals_that_are_missed_fail() -> None:
    found = test_tuning.FOUND
    assert cases(empty_document(tuning=found)) == {str(found.goal): ("passed", "")}
    missed = cases(empty_document(tuning=replace(found, verdict="best_effort")))
    assert missed[str(found.goal)][0] == "failure"
    sweep = sweep_of()
    assert [outcome for outcome, _ in cases(empty_document(partial=sweep)).values()] == ["passed"]
    failed = cases(empty_document(partial=without_goal(sweep)))
    assert [outcome for outcome, _ in failed.values()] == ["failure"]


def test_what_got_worse_between_runs_fails() -> None:
    made = diff_of("bad", "unsure", "fine")
    kinds: tuple[Change, ...] = ("worse", "unclear", "same")
    rows = tuple(replace(row, change=kind) for row, kind in zip(made.rows, kinds, strict=True))
    diff = replace(made, rows=rows)
    worse = {f"{row.tensor} ({row.measure})" for row in diff.rows if row.change == "worse"}
    found = cases(empty_document(diff=diff))
    assert found["unsure (local)"][0] == "skipped"
    assert found["fine (local)"][0] == "passed"
    assert {name for name, (outcome, _) in found.items() if outcome == "failure"} == worse
