"""One paragraph on anything that a report mentions."""

import re
from collections.abc import Sequence

from roundoff.core.document import RunDocument
from roundoff.errors import BadInput, nearest
from roundoff.report.explaining.subjects import finding_text, subject_names, subject_text
from roundoff.report.explaining.terms import MetricFacts, term_names, term_text

__all__ = ["explain"]

_FINDING = re.compile(r"(?:finding\s*)?#?(\d+)", re.IGNORECASE)


def explain(name: str, document: RunDocument | None = None, *, metrics: Sequence[MetricFacts] = ()) -> str:
    """Explain a node, a tensor, a finding by its number, a metric, a verdict, a cause or a column.

    Args:
        name: What to explain; a name of the run comes before a word of the same spelling.
        document: The run whose numbers are wanted; None for what is true of all.
        metrics: All metrics there are.

    Raises:
        BadInput: It is not known.
    """
    names = () if document is None else subject_names(document)
    if document is not None and name in names:
        return subject_text(document, name)
    number = _FINDING.fullmatch(name.strip())
    if number is not None:
        return _finding(int(number[1]), document)
    text = term_text(name, metrics)
    if text is not None:
        return text
    if document is None:
        what = f"{name!r} is no metric, verdict, cause or column."
        meant = nearest(name, sorted(term_names()))
        stop = "" if meant.endswith("?") else "."
        raise BadInput(what, fix=f"{meant}{stop} Of a node or finding, name its run, too")
    raise BadInput(
        f"{name!r} is in this run neither a node nor a word.", fix=nearest(name, (*names, *term_names()))
    )


def _finding(number: int, document: RunDocument | None) -> str:
    if document is None or document.diagnosis is None:
        what = f"Finding {number} is asked for, but no run of 'roundoff diagnose' was given."
        raise BadInput(what, fix=f"roundoff explain {number} RUN")
    findings = {each.number: each for each in document.diagnosis.findings}
    if number not in findings:
        what = f"The diagnosis has no finding {number}."
        raise BadInput(what, fix=nearest(str(number), map(str, findings)))
    return finding_text(findings[number])
