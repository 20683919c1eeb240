"""Runs as JUnit XML, for build servers: what is wrong is a failure, what was not judged is skipped."""

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal
from xml.sax.saxutils import escape, quoteattr

from roundoff.core.coverage import Judgement, OutputCoverage
from roundoff.core.document import RunDocument
from roundoff.messages.catalogue import use_language
from roundoff.messages.message import escape_control
from roundoff.messages.numbers import percentage, score_text
from roundoff.pages.coverage import OtherSide, doubt_line, judged_line, why_unjudged

if TYPE_CHECKING:
    from roundoff.diagnosis.result import Diagnosis, Measure
    from roundoff.search.result import Tuning
    from roundoff.studies.audit.result import Audit
    from roundoff.studies.check_calibration.result import CalibrationCheck
    from roundoff.studies.check_io.result import IoCheck
    from roundoff.studies.compare.result import Comparison, TensorComparison
    from roundoff.studies.layers.result import LayerReport
    from roundoff.studies.partial.result import PartialQuantization
    from roundoff.studies.run_diff.result import Gate, GateRow, RunDiff

# Characters that XML 1.0 cannot hold even when escaped.
_NOT_XML = re.compile("[^\t\n\r\u0020-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")

_UNKNOWN = "\ufffd"


@dataclass(frozen=True, slots=True)
class _Case:
    kind: str
    name: str
    outcome: Literal["passed", "failure", "skipped"] = "passed"
    why: str = ""
    # What is worth telling of a case that passes.
    measured: str = ""


def document_junit(document: RunDocument) -> str | None:
    """A run as JUnit XML; None where it has nothing that passes or fails."""
    if document.comparison is not None:
        return comparison_junit(document.comparison)
    if document.diff is not None and document.diff.gate is not None:
        return gate_junit(document.diff, document.diff.gate)
    for name, field, cases in _SUITES:
        part = getattr(document, field)
        if part is not None:
            return _text(name, tuple(cases(part)))
    return None


def comparison_junit(comparison: "Comparison") -> str:
    """Failed rows and outputs that were not judged are failures; other tensors that were not are skipped cases."""
    outputs = list(_unjudged(comparison.outputs, other="candidate"))
    failing = {each.name for each in outputs}
    inner = [name for name in comparison.unmatched_reference if name not in failing]
    rows = [row for row in comparison.rows if row.passed is False or row.reference not in failing]
    told = {row.reference for row in rows}
    cases = [_compared(row, comparison) for row in rows]
    cases += [each for each in outputs if each.name not in told]
    cases += _covered(comparison.judgement, other="candidate")
    cases += [_Case("tensor", name, "skipped", "only in the reference") for name in inner]
    cases += [_Case("tensor", name, "skipped", "only in the candidate") for name in comparison.unmatched_candidate]
    return _text("compare", cases)


def _covered(judgement: Judgement | None, *, other: OtherSide) -> Iterator[_Case]:
    """What a verdict rests on, and a failure for each doubt about it."""
    if judgement is None:
        return
    with use_language("en"):
        yield _Case("coverage", "judged", measured=judged_line(judgement.coverage, other=other))
        for each in judgement.doubts:
            yield _Case("coverage", each.kind.replace("_", " "), "failure", doubt_line(each))


def _unjudged(outputs: OutputCoverage | None, *, other: OtherSide) -> Iterator[_Case]:
    """A failure for each output that was not judged: a run without it has not passed."""
    for each in () if outputs is None else outputs.not_judged:
        why = why_unjudged(each, other=other).en
        detail = str(each.detail)
        text = f"not judged: {why}" if detail in ("", why) else f"not judged: {why}; {detail}"
        yield _Case("output", each.name, "failure", text)


def gate_junit(diff: "RunDiff", gate: "Gate") -> str:
    """A test case for each row; over budget fails, what is not judged or in one run only is skipped."""
    cases = [_gated(row) for row in gate.rows]
    for each in gate.metrics:
        loss = "not in the run" if each.loss is None else f"loses {each.loss:.4g}, {each.allowed:.4g} is allowed"
        loss += "; not enough samples to tell" if each.unclear else ""
        cases.append(_Case("metric", each.name, "passed" if each.passed else "failure", loss, loss))
    cases += [_Case("coverage", "evidence", "failure", str(each)) for each in gate.doubts]
    cases += [_Case("run", str(each), "failure", str(each)) for each in gate.problems]
    cases += [_Case("tensor", name, "skipped", "only in the baseline") for name in diff.only_before]
    cases += [_Case("tensor", name, "skipped", "only in the run") for name in diff.only_after]
    return _text("gate", cases)


def suite_junit(name: str, units: Sequence[tuple[str, str, tuple[str, ...], str]]) -> str:
    """A suite as JUnit XML.

    Args:
        name: Of the suite.
        units: For each its command, its name, what is wrong with it, and its verdict.
    """
    cases = [
        _Case(command, label, "failure" if wrong else "passed", "; ".join(wrong), verdict)
        for command, label, wrong, verdict in units
    ]
    return _text(f"suite {name}", cases)


def _gated(row: "GateRow") -> _Case:
    if row.passed is None:
        return _Case("tensor", f"{row.tensor} ({row.measure})", "skipped", str(row.why))
    if row.passed:
        return _Case(row.measure, row.tensor)
    return _Case(row.measure, row.tensor, "failure", str(row.why))


def _compared(row: "TensorComparison", comparison: "Comparison") -> _Case:
    if row.passed is None:
        return _Case("tensor", row.reference, "skipped", "not judged by this profile")
    kind = row.op_type or "tensor"
    if row.passed:
        return _Case(kind, row.reference)
    missed = [t for t in comparison.thresholds.thresholds if not t.holds(row.score.values)]
    reasons = [
        f"{t.metric} {row.score.values.get(t.metric, float('nan')):.6g}, needs {t.describe()}" for t in missed
    ]
    message = "; ".join(filter(None, (row.score.detail, str(row.difference), *reasons)))
    return _Case(kind, row.reference, "failure", message)


def _layers(report: "LayerReport") -> Iterator[_Case]:
    """The outputs fail where they miss the thresholds, and layers that were proven to be the cause of it."""
    yield from _covered(report.judgement, other="candidate")
    verdict = report.verdict
    guilty = {each.tensor: each for each in verdict.culprits}
    wrong: Literal["failure", "skipped"] = "skipped" if verdict.kind == "fine" else "failure"
    for row in report.rows:
        culprit = guilty.get(row.tensor)
        if culprit is not None:
            share = culprit.introduced.output_share if culprit.introduced is not None else None
            adds = "" if share is None else f"adds {percentage(share)} of the error at the outputs; "
            yield _Case(row.op_type, row.tensor, wrong, f"{adds}keep it in higher precision: {culprit.remedy}")
        elif row.output and verdict.agrees is not True:
            outcome: Literal["failure", "skipped"] = "skipped" if verdict.agrees is None else "failure"
            why = "could not be judged" if verdict.agrees is None else f"needs {verdict.thresholds}"
            yield _Case(row.op_type, row.tensor, outcome, why)
        elif row.local is None and row.accumulated is None:
            yield _Case(row.op_type, row.tensor, "skipped", "not measured")
        else:
            yield _Case(row.op_type, row.tensor)


def _diagnosis(found: "Diagnosis") -> Iterator[_Case]:
    """Proven causes and what was measured fail unless they were repaired; the rest is skipped."""
    repaired = found.repair is not None and found.repair.reached
    wrong: Literal["failure", "passed", "skipped"] = "failure"
    if repaired or found.kind == "healthy":
        wrong = "passed" if repaired else "skipped"
    for each in found.findings:
        place, summary = each.nodes[0] if each.nodes else "whole network", str(each.summary)
        if each in found.accused:
            yield _Case(each.cause, place, wrong, summary, f"repaired: {summary}")
        else:
            yield _Case(each.cause, place, "skipped", summary)
    if found.kind not in ("healthy", "culprits"):
        verdict = str(found.verdict)
        yield _Case("verdict", found.kind.replace("_", " "), wrong, verdict, f"repaired: {verdict}")
    yield from _covered(found.judgement, other="dump")
    yield from _unjudged(found.outputs, other="dump")
    if found.repair is not None:
        yield from (_mended(each, repaired=repaired) for each in found.repair.measures[:1])
    for check in found.checks:
        name, result = str(check.name), str(check.result)
        if check.ok:
            yield _Case("check", name, measured=result)
        else:
            yield _Case("check", name, wrong, result, f"before the repair: {result}")
    for text in found.not_looked_at:
        yield _Case("check", str(text), "skipped", "not looked at")


def _mended(measure: "Measure", *, repaired: bool) -> _Case:
    """What the repair came to."""
    what = str(measure.what)
    text = f"{score_text(what, measure.before)} -> {score_text(what, measure.after)} {measure.unit}"
    return _Case("repair", what, "passed" if repaired else "failure", text.rstrip(), text.rstrip())


def _audit(audit: "Audit") -> Iterator[_Case]:
    """Silent differences fail; those with a reason on record pass."""
    for row in audit.rows:
        silent = "; ".join(each.text for each in row.findings if each.severity == "silent")
        yield _Case(row.op_type, row.node, "failure" if silent else "passed", silent)
    for each in audit.findings:
        outcome: Literal["failure", "passed"] = "failure" if each.severity == "silent" else "passed"
        yield _Case("model", each.kind, outcome, each.text)


def _io_check(found: "IoCheck") -> Iterator[_Case]:
    for stage in found.stages:
        if stage.passed is None:
            yield _Case("stage", stage.stage, "skipped", "one side was not given")
        elif stage.passed:
            yield _Case("stage", stage.stage)
        else:
            why = (
                ""
                if stage.explanation is None
                else "; ".join(str(each.text) for each in stage.explanation.changes)
            )
            far = f"differs by {stage.max_abs_error:.6g}, {stage.tolerance:g} is allowed"
            yield _Case("stage", stage.stage, "failure", "; ".join(filter(None, (far, why))))


def _calibration(found: "CalibrationCheck") -> Iterator[_Case]:
    for each in found.findings:
        yield _Case("samples", str(each.text), "failure" if each.severity == "fault" else "skipped", str(each.fix))
    if not found.findings:
        yield _Case("samples", "calibration set")


def _diff(diff: "RunDiff") -> Iterator[_Case]:
    """What got worse beyond chance fails; where chance was not excluded, nothing is judged."""
    for row in diff.rows:
        name = f"{row.tensor} ({row.measure})"
        changed = row.detail or ("" if row.change_db is None else f"changed by {row.change_db:+.3g} dB")
        if row.change == "worse":
            yield _Case(row.op_type, name, "failure", changed or "worse")
        elif row.change in ("same", "better"):
            yield _Case(row.op_type, name)
        else:
            yield _Case(row.op_type, name, "skipped", "; ".join(filter(None, (row.change, changed))))
    for name in diff.only_before:
        yield _Case("tensor", name, "skipped", "only in the first run")
    for name in diff.only_after:
        yield _Case("tensor", name, "skipped", "only in the second run")


def _tuning(found: "Tuning") -> Iterator[_Case]:
    best = f"{found.metric} {score_text(found.metric, found.best.score)}"
    outcome: Literal["failure", "passed"] = "failure" if found.verdict in ("best_effort", "unproven") else "passed"
    yield _Case("goal", str(found.goal), outcome, f"the best found has {best}")
    with use_language("en"):
        for each in found.doubts:
            yield _Case("coverage", each.kind.replace("_", " "), "failure", doubt_line(each))


def _partial(found: "PartialQuantization") -> Iterator[_Case]:
    outcome: Literal["failure", "passed"] = "failure" if found.knee is None else "passed"
    yield _Case("goal", found.goal.text, outcome, f"not reached by changing to {found.to}")


def _text(suite: str, cases: Sequence[_Case]) -> str:
    failures, skipped = (sum(each.outcome == kind for each in cases) for kind in ("failure", "skipped"))
    counts = f'tests="{len(cases)}" failures="{failures}" errors="0" skipped="{skipped}"'
    lines = [
        '<?xml version="1.0" encoding="UTF-8"?>',
        f"<testsuites {counts}>",
        f"<testsuite name={_quote(f'roundoff {suite}')} {counts}>",
        *map(_element, cases),
        "</testsuite>",
        "</testsuites>",
    ]
    return "\n".join(lines) + "\n"


def _element(case: _Case) -> str:
    head = f"<testcase classname={_quote(case.kind or 'tensor')} name={_quote(case.name)}"
    if case.outcome == "passed" and case.measured:
        return f"{head}>\n<system-out>{escape(_harmless(case.measured))}</system-out>\n</testcase>"
    if case.outcome == "passed":
        return f"{head}/>"
    return f"{head}>\n<{case.outcome} message={_quote(case.why)}/>\n</testcase>"


def _quote(text: str) -> str:
    return quoteattr(_harmless(text))


def _harmless(text: str) -> str:
    """What steers a terminal or misleads the eye is spelled; what XML has no place for is replaced."""
    return _NOT_XML.sub(_UNKNOWN, escape_control(text, newlines=True))


# The parts of a run that can fail: suite, field of the document and what makes its cases; the most telling first.
_SUITES: tuple[tuple[str, str, Callable[[Any], Iterator[_Case]]], ...] = (
    ("diff", "diff", _diff),
    ("diagnose", "diagnosis", _diagnosis),
    ("layers", "layers", _layers),
    ("audit", "audit", _audit),
    ("check-io", "io_check", _io_check),
    ("check-calibration", "calibration_check", _calibration),
    ("tune", "tuning", _tuning),
    ("partial", "partial", _partial),
)
