"""One paragraph on anything that a report mentions."""

import math
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Protocol

from roundoff.core.document import RunDocument
from roundoff.diagnosis.cards import amount_text
from roundoff.diagnosis.page import control_text
from roundoff.diagnosis.result import Finding
from roundoff.errors import BadInput, nearest
from roundoff.measure.metrics import ALIASES
from roundoff.messages.catalogue import (
    cause_name,
    cost_name,
    current_language,
    english_of,
    phrase_names,
    semicolons,
    sentences,
    translate,
)
from roundoff.messages.message import english, shown
from roundoff.messages.numbers import (
    decibels,
    decibels_with_unit,
    named_score,
    percent_digits,
    percent_number,
    score_text,
)
from roundoff.studies.layers.result import LayerReport, LayerRow, LayerScore
from roundoff.studies.run_diff.page import measure_name
from roundoff.studies.run_diff.result import CEILING_DB

# What a run says of one node or tensor, and of one finding, in sentences.


def subject_names(document: RunDocument) -> tuple[str, ...]:
    """Nodes and tensors that a run knows."""
    names: list[str] = []
    if document.network is not None:
        names += [name for node in document.network.nodes for name in (node.name, *node.outputs)]
    if document.layers is not None:
        names += [name for row in document.layers.rows for name in (row.node, row.tensor)]
    if document.comparison is not None:
        names += [name for row in document.comparison.rows for name in (row.node, row.reference)]
    if document.sensitivity is not None:
        names += [row.name for rows in document.sensitivity.rankings.values() for row in rows]
    if document.diff is not None:
        names += [name for row in document.diff.rows for name in (row.node, row.tensor)]
    return tuple(name for name in dict.fromkeys(names) if name)


def subject_text(document: RunDocument, name: str) -> str:
    """A paragraph on a node or tensor with the numbers of a run."""
    parts = (_place, _layer, _compared, _curve, _rank, _found, _changed)
    said = [sentence for part in parts for sentence in part(document, name)]
    if len(said) <= 1:
        said.append(translate("explain_text.nothing"))
    return sentences(*said)


def finding_text(finding: Finding) -> str:
    """A paragraph on a finding."""
    cause, summary = cause_name(finding.cause), shown(finding.summary)
    said = [translate("explain_text.finding", number=finding.number, cause=cause, summary=summary)]
    if finding.places > 1 and finding.nodes:
        said.append(translate("explain_text.places", names=", ".join(finding.accused_nodes)))
    if finding.proven:
        how = shown(finding.intervention) if finding.intervention else translate("explain_text.put_right")
        said.append(translate("explain_text.proven", how=how))
    else:
        said.append(translate("explain_text.suspected"))
    for measure in (*finding.measures[:1], *finding.of_task):
        before, after = (amount_text(each, measure) for each in (measure.before, measure.after))
        said.append(translate("explain_text.went", what=shown(measure.what), before=before, after=after))
    if finding.control is not None:
        said.append(translate("explain_text.control", control=control_text(finding.control)))
    if finding.share:
        said.append(translate("explain_text.share", share=percent_digits(finding.share, 0)))
    if finding.remedy is not None:
        title, cost = shown(finding.remedy.title), cost_name(finding.remedy.cost)
        said.append(translate("explain_text.remedy", title=title, cost=cost))
    return sentences(*said)


def _place(document: RunDocument, name: str) -> Iterator[str]:
    network = document.network
    for at, node in enumerate(() if network is None else network.nodes):
        if name == node.name or name in node.outputs:
            count = 0 if network is None else len(network.nodes)
            yield translate("explain_text.place", name=name, op=node.op_type, at=at + 1, count=count)
            return
    yield translate("explain_text.no_place", name=name)


def _layer(document: RunDocument, name: str) -> Iterator[str]:
    report = document.layers
    rows = () if report is None else report.rows
    row = next((each for each in rows if name in (each.tensor, each.node)), None)
    if report is None or row is None:
        return
    if row.local is not None:
        yield translate("explain_text.local", score=_score(row.local))
    if row.accumulated is not None:
        yield translate("explain_text.accumulated", score=_score(row.accumulated))
    if row.introduced is not None:
        cause = translate(f"explain_text.cause_{row.introduced.cause.replace(' ', '_')}")
        yield translate("explain_text.adds", share=percent_number(row.introduced.output_share), cause=cause)
    if row.clipped:
        yield translate("explain_text.clipped", share=percent_number(row.clipped))
    used = None if row.accumulated is None else row.accumulated.used_levels
    if used is not None and row.levels:
        yield translate("explain_text.codes", used=used, all=row.levels)
    yield from _blame(report, row)


def _blame(report: LayerReport, row: LayerRow) -> Iterator[str]:
    if any(
        row.tensor == each.tensor or row.node in (each.node, each.weighted) for each in report.verdict.culprits
    ):
        yield translate("explain_text.culprit")
    elif row.tensor in report.verdict.masked:
        yield translate("explain_text.masked")
    elif report.verdict.kind == "local":
        yield translate("explain_text.no_culprit")


def _score(score: LayerScore) -> str:
    if score.sqnr_db is None:
        return translate("explain_text.no_score", why=score.detail or score.status)
    return decibels_with_unit(score.sqnr_db)


def _compared(document: RunDocument, name: str) -> Iterator[str]:
    found = document.comparison
    row = next((each for each in (found.rows if found else ()) if name in (each.reference, each.node)), None)
    if row is None:
        return
    scores = ", ".join(
        named_score(key, row.score.values[key]) for key in ("cosine", "sqnr_db") if key in row.score.values
    )
    judged = {True: "passes", False: "fails", None: "not_judged"}[row.passed]
    yield translate(
        "explain_text.compared",
        candidate=row.candidate,
        scores=scores or row.score.detail,
        judged=translate(f"explain_text.{judged}"),
    )
    if row.difference:
        yield translate("explain_text.differs", difference=shown(row.difference))
    if row.role:
        yield translate("explain_text.introduces" if row.role == "introduces" else "explain_text.victim_reads")


def _curve(document: RunDocument, name: str) -> Iterator[str]:
    found = document.accumulation
    for place in () if found is None else found.nodes:
        if found is not None and name in (place.tensor, place.node):
            value = found.base_line.sqnr_db[place.order]
            if value is not None:
                yield translate("explain_text.curve", db=decibels_with_unit(value))
            return


def _rank(document: RunDocument, name: str) -> Iterator[str]:
    report = document.sensitivity
    for kind, rows in {} if report is None else report.rankings.items():
        row = next((each for each in rows if name in (each.name, each.tensor, each.node)), None)
        if report is not None and row is not None:
            score = row.scores.get(report.metrics[0])
            doing = translate(f"explain_text.{report.mode}")
            if score is not None:
                metric = report.metrics[0]
                said = score_text(metric, score)
                doing = translate("explain_text.at_outputs", doing=doing, metric=metric, score=said)
            named = translate(f"sensitivity.kind_{kind}")
            yield translate("explain_text.rank", count=len(rows), kind=named, rank=row.rank, doing=doing)


def _found(document: RunDocument, name: str) -> Iterator[str]:
    found = document.diagnosis
    if found is None:
        return
    for finding in found.findings:
        if name in (*finding.nodes, *finding.tensors):
            if finding.places > 1 and name not in finding.nodes[:1]:
                first = finding.nodes[0] if finding.nodes else finding.tensors[0]
                yield translate("explain_text.joint", number=finding.number, count=finding.places, first=first)
            yield finding_text(finding)
    if name in found.victims:
        yield translate("explain_text.victim")


def _changed(document: RunDocument, name: str) -> Iterator[str]:
    for row in () if document.diff is None else document.diff.rows:
        if name in (row.tensor, row.node) and row.before is not None and row.after is not None:
            yield translate(
                "explain_text.changed",
                measure=measure_name(row),
                before=decibels(row.before, exact=CEILING_DB),
                after=decibels(row.after, exact=CEILING_DB),
                change=translate(f"run_diff.change_{row.change}"),
            )


# What words mean: metrics, verdicts, causes and columns, from data.

_UNITS = {"dB": "decibels", "share": "share", "value": "value", "": "none"}


class MetricFacts(Protocol):
    """What is known of a metric."""

    @property
    def name(self) -> str:
        """Its name."""

    @property
    def summary(self) -> str:
        """What it is."""

    @property
    def unit(self) -> str:
        """Its unit."""

    @property
    def direction(self) -> str:
        """Which way it is better."""

    @property
    def perfect(self) -> float | None:
        """Its value for equal tensors."""


def term_names() -> tuple[str, ...]:
    """Every term that is known."""
    return tuple(dict.fromkeys(name for _, name in _terms()))


def term_text(name: str, metrics: Sequence[MetricFacts]) -> str | None:
    """A paragraph on a term, in any spelling of upper and lower case; None when it is not known.

    Args:
        name: The term.
        metrics: All metrics there are.
    """
    keys = {_key(each) for each in (name, *english_of(name))}
    for kind, term in _terms():
        text = translate(f"terms.{kind}_{term}")
        # A verdict is also known by the word that is shown of it, with which its text begins: "WORD: ...".
        shown = re.split(r"[:\uff1a\uff08\uff09]", text, maxsplit=3)[:-1] if kind == "verdict" else []
        if not keys.isdisjoint(map(_key, (term, *shown))):
            metric = next((each for each in metrics if each.name == term), None)
            return text if kind != "metric" or metric is None else _metric_text(metric, text)
    # What no file of words has says itself what it tells.
    metric = next((each for each in metrics if _key(each.name) in keys), None)
    return None if metric is None else _metric_text(metric, "")


def _key(name: str) -> str:
    return name.strip().casefold().replace(",", "").replace(" ", "_").replace("-", "_")


def _terms() -> Iterator[tuple[str, str]]:
    """The kind and the name of each term."""
    for name in phrase_names("terms"):
        kind, _, term = name.partition("_")
        yield kind, term


def _metric_text(metric: MetricFacts, misleading: str) -> str:
    summary = _first_lower(metric.summary)
    key = "explain_text.metric" if misleading else "explain_text.metric_itself"
    return translate(key, name=metric.name, summary=summary, range=_range(metric), misleading=misleading).strip()


def _range(metric: MetricFacts) -> str:
    unit, direction = f"unit_{_UNITS[metric.unit]}", f"direction_{metric.direction}"
    perfect = ""
    if metric.perfect is not None:
        value = translate("explain_text.infinite") if math.isinf(metric.perfect) else f"{metric.perfect:g}"
        perfect = translate("explain_text.perfect", value=value)
    return semicolons(translate(f"explain_text.{unit}"), translate(f"explain_text.{direction}"), perfect)


def _first_lower(text: str) -> str:
    return text if text[:2].isupper() else text[:1].lower() + text[1:]


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
    if name.endswith(_PAGE):
        return _page_text(name)
    number = _FINDING.fullmatch(name.strip())
    if number is not None:
        return _finding(int(number[1]), document)
    word = name.strip().casefold()
    # Several of a kind are printed under their plural, and some words with a number: "3 TIED", "TOP 4".
    bare = re.sub(r"^\d+\s*(?:\u4e2a)?|\s*\d+\s*(?:\u4e2a)?$", "", word)
    spellings = (name, ALIASES.get(word, name), word.removesuffix("s"), bare)
    text = next((found for each in spellings if (found := term_text(each, metrics)) is not None), None)
    if text is not None:
        return text
    if document is None and f"{name}{_PAGE}" in _pages():
        return _page_text(f"{name}{_PAGE}")
    if document is None:
        what = english("{name!r} is no metric, verdict, cause or column.", name=name)
        meant = nearest(name, sorted({*term_names(), *(each.name for each in metrics)}))
        stop = "" if meant.endswith(("?", "\uff1f")) else ("\u3002" if current_language() == "zh" else ".")
        raise BadInput(
            what, fix=english("{meant}{stop} Of a node or finding, name its run, too", meant=meant, stop=stop)
        )
    raise BadInput(
        english("{name!r} is in this run neither a node nor a word.", name=name),
        fix=nearest(name, (*names, *term_names())),
    )


_PAGE = ".md"


def _pages() -> dict[str, Path]:
    """The pages of the documentation, which the package carries, by their names."""
    package = Path(__file__).parents[1]
    # A package that was built has the pages inside; a repository beside its sources.
    folder = next(each for each in (package / "docs", package.parents[1] / "docs") if each.is_dir())
    return {path.name: path for path in sorted(folder.rglob(f"*{_PAGE}"))}


def _page_text(name: str) -> str:
    """A page of the documentation; in Chinese where it has that form."""
    pages, wanted = _pages(), Path(name).name
    local = wanted.removesuffix(_PAGE) + f".{current_language()}{_PAGE}"
    found = pages.get(local) or pages.get(wanted)
    if found is None:
        what = english("The documentation has no page {name!r}.", name=name)
        raise BadInput(what, fix=nearest(wanted, sorted(pages)))
    return found.read_text("utf-8").rstrip()


def _finding(number: int, document: RunDocument | None) -> str:
    if document is None or document.diagnosis is None:
        what = english(
            "Finding {number} is asked for, but no run of 'roundoff diagnose' was given.", number=number
        )
        raise BadInput(what, fix=english("roundoff explain {number} RUN", number=number))
    findings = {each.number: each for each in document.diagnosis.findings}
    if number not in findings:
        what = english("The diagnosis has no finding {number}.", number=number)
        raise BadInput(what, fix=nearest(str(number), map(str, findings)))
    return finding_text(findings[number])
