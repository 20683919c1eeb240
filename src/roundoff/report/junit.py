"""Comparisons and gates as JUnit XML, one test case per judged tensor."""

import re
from collections.abc import Sequence
from xml.sax.saxutils import quoteattr

from roundoff.core.comparison import Comparison, TensorComparison
from roundoff.core.run_diff import Gate, GateRow, RunDiff

__all__ = ["comparison_junit", "gate_junit"]

# Characters that XML 1.0 cannot hold even when escaped.
_NOT_XML = re.compile("[^\t\n\r\u0020-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def comparison_junit(comparison: Comparison) -> str:
    """Failed rows and missing outputs are failures; what was not judged, or has no partner, is a skipped case."""
    missing = comparison.verdict.missing_outputs
    inner = [name for name in comparison.unmatched_reference if name not in missing]
    cases = [_case(row, comparison) for row in comparison.rows]
    cases += [_failed("tensor", name, "only in the reference, and an output of the network") for name in missing]
    cases += [_skipped(name, "only in the reference") for name in inner]
    cases += [_skipped(name, "only in the candidate") for name in comparison.unmatched_candidate]
    unmatched = len(inner) + len(comparison.unmatched_candidate)
    skipped = unmatched + sum(row.passed is None for row in comparison.rows)
    return _suite("roundoff compare", cases, failures=comparison.verdict.failed, skipped=skipped)


def gate_junit(diff: RunDiff, gate: Gate) -> str:
    """A test case for each row; over budget fails, what is not judged or in one run only is skipped."""
    cases = [_gated(row) for row in gate.rows]
    cases += [_failed("run", problem, problem) for problem in gate.problems]
    cases += [_skipped(name, "only in the baseline") for name in diff.only_before]
    cases += [_skipped(name, "only in the run") for name in diff.only_after]
    skipped = sum(row.passed is None for row in gate.rows) + len(diff.only_before) + len(diff.only_after)
    return _suite("roundoff gate", cases, failures=gate.failed, skipped=skipped)


def _gated(row: GateRow) -> str:
    if row.passed is None:
        return _skipped(f"{row.tensor} ({row.measure})", row.why)
    if row.passed:
        return f"<testcase classname={_quote(row.measure)} name={_quote(row.tensor)}/>"
    return _failed(row.measure, row.tensor, row.why)


def _suite(name: str, cases: Sequence[str], *, failures: int, skipped: int) -> str:
    counts = f'tests="{len(cases)}" failures="{failures}" errors="0" skipped="{skipped}"'
    lines = [
        '<?xml version="1.0" encoding="UTF-8"?>',
        f"<testsuites {counts}>",
        f'<testsuite name="{name}" {counts}>',
        *cases,
        "</testsuite>",
        "</testsuites>",
    ]
    return "\n".join(lines) + "\n"


def _case(row: TensorComparison, comparison: Comparison) -> str:
    if row.passed is None:
        return _skipped(row.reference, "not judged by this profile")
    kind = row.op_type or "tensor"
    if row.passed:
        return f"<testcase classname={_quote(kind)} name={_quote(row.reference)}/>"
    missed = [t for t in comparison.thresholds.thresholds if not t.holds(row.score.values)]
    reasons = [
        f"{t.metric} {row.score.values.get(t.metric, float('nan')):.6g}, needs {t.describe()}" for t in missed
    ]
    message = "; ".join(filter(None, (row.score.detail, row.difference, *reasons)))
    return _failed(kind, row.reference, message)


def _failed(kind: str, name: str, why: str) -> str:
    head = f"<testcase classname={_quote(kind)} name={_quote(name)}>"
    return f"{head}\n<failure message={_quote(why)}/>\n</testcase>"


def _skipped(name: str, why: str) -> str:
    return f'<testcase classname="tensor" name={_quote(name)}>\n<skipped message={_quote(why)}/>\n</testcase>'


def _quote(text: str) -> str:
    return quoteattr(_NOT_XML.sub("\ufffd", text))
