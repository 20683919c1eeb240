"""What a run says of one node or tensor, and of one finding, in sentences."""

from collections.abc import Iterator

from roundoff.core.document import RunDocument
from roundoff.core.findings import Finding
from roundoff.core.layer_scores import LayerReport, LayerRow, LayerScore
from roundoff.report.phrasing import cause_name, cost_name, sentences
from roundoff.report.run_diff import measure_name
from roundoff.report.words import sentence, told

__all__ = ["finding_text", "subject_names", "subject_text"]


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
        said.append(told("explain_text.nothing"))
    return sentences(*said)


def finding_text(finding: Finding) -> str:
    """A paragraph on a finding."""
    cause, summary = cause_name(finding.cause), sentence(finding.summary)
    said = [told("explain_text.finding", number=finding.number, cause=cause, summary=summary)]
    if finding.places > 1 and finding.nodes:
        said.append(told("explain_text.places", names=", ".join(finding.accused_nodes)))
    if finding.proven:
        how = sentence(finding.intervention) or told("explain_text.put_right")
        said.append(told("explain_text.proven", how=how))
    else:
        said.append(told("explain_text.suspected"))
    for measure in finding.measures[:1]:
        before, after = f"{measure.before:.4g}", f"{measure.after:.4g} {measure.unit}".rstrip()
        said.append(told("explain_text.went", what=sentence(measure.what), before=before, after=after))
    if finding.share:
        said.append(told("explain_text.share", share=f"{100 * finding.share:.0f}"))
    if finding.remedy is not None:
        title, cost = sentence(finding.remedy.title), cost_name(finding.remedy.cost)
        said.append(told("explain_text.remedy", title=title, cost=cost))
    return sentences(*said)


def _place(document: RunDocument, name: str) -> Iterator[str]:
    network = document.network
    for at, node in enumerate(() if network is None else network.nodes):
        if name == node.name or name in node.outputs:
            count = 0 if network is None else len(network.nodes)
            yield told("explain_text.place", name=name, op=node.op_type, at=at + 1, count=count)
            return
    yield told("explain_text.no_place", name=name)


def _layer(document: RunDocument, name: str) -> Iterator[str]:
    report = document.layers
    rows = () if report is None else report.rows
    row = next((each for each in rows if name in (each.tensor, each.node)), None)
    if report is None or row is None:
        return
    if row.local is not None:
        yield told("explain_text.local", score=_score(row.local))
    if row.accumulated is not None:
        yield told("explain_text.accumulated", score=_score(row.accumulated))
    if row.introduced is not None:
        cause = told(f"explain_text.cause_{row.introduced.cause.replace(' ', '_')}")
        yield told("explain_text.adds", share=f"{100 * row.introduced.output_share:.2g}", cause=cause)
    if row.clipped:
        yield told("explain_text.clipped", share=f"{100 * row.clipped:.2g}")
    used = None if row.accumulated is None else row.accumulated.used_levels
    if used is not None and row.levels:
        yield told("explain_text.codes", used=used, all=row.levels)
    yield from _blame(report, row)


def _blame(report: LayerReport, row: LayerRow) -> Iterator[str]:
    if any(
        row.tensor == each.tensor or row.node in (each.node, each.weighted) for each in report.verdict.culprits
    ):
        yield told("explain_text.culprit")
    elif row.tensor in report.verdict.masked:
        yield told("explain_text.masked")
    elif report.verdict.kind == "local":
        yield told("explain_text.no_culprit")


def _score(score: LayerScore) -> str:
    if score.sqnr_db is None:
        return told("explain_text.no_score", why=score.detail or score.status)
    return f"{score.sqnr_db:.1f} dB"


def _compared(document: RunDocument, name: str) -> Iterator[str]:
    found = document.comparison
    row = next((each for each in (found.rows if found else ()) if name in (each.reference, each.node)), None)
    if row is None:
        return
    scores = ", ".join(
        f"{key} {row.score.values[key]:.4g}" for key in ("cosine", "sqnr_db") if key in row.score.values
    )
    judged = {True: "passes", False: "fails", None: "not_judged"}[row.passed]
    yield told(
        "explain_text.compared",
        candidate=row.candidate,
        scores=scores or row.score.detail,
        judged=told(f"explain_text.{judged}"),
    )
    if row.difference:
        yield told("explain_text.differs", difference=sentence(row.difference))
    if row.role:
        yield told("explain_text.introduces" if row.role == "introduces" else "explain_text.victim_reads")


def _curve(document: RunDocument, name: str) -> Iterator[str]:
    found = document.accumulation
    for place in () if found is None else found.nodes:
        if found is not None and name in (place.tensor, place.node):
            value = found.base_line.sqnr_db[place.order]
            if value is not None:
                yield told("explain_text.curve", db=f"{value:.1f}")
            return


def _rank(document: RunDocument, name: str) -> Iterator[str]:
    report = document.sensitivity
    for kind, rows in {} if report is None else report.rankings.items():
        row = next((each for each in rows if name in (each.name, each.tensor, each.node)), None)
        if report is not None and row is not None:
            score = row.scores.get(report.metrics[0])
            doing = told(f"explain_text.{report.mode}")
            if score is not None:
                metric = report.metrics[0]
                doing = told("explain_text.at_outputs", doing=doing, metric=metric, score=f"{score:.4g}")
            named = told(f"sensitivity_text.kind_{kind}")
            yield told("explain_text.rank", count=len(rows), kind=named, rank=row.rank, doing=doing)


def _found(document: RunDocument, name: str) -> Iterator[str]:
    found = document.diagnosis
    if found is None:
        return
    for finding in found.findings:
        if name in (*finding.nodes, *finding.tensors):
            if finding.places > 1 and name not in finding.nodes[:1]:
                first = finding.nodes[0] if finding.nodes else finding.tensors[0]
                yield told("explain_text.joint", number=finding.number, count=finding.places, first=first)
            yield finding_text(finding)
    if name in found.victims:
        yield told("explain_text.victim")


def _changed(document: RunDocument, name: str) -> Iterator[str]:
    for row in () if document.diff is None else document.diff.rows:
        if name in (row.tensor, row.node) and row.before is not None and row.after is not None:
            yield told(
                "explain_text.changed",
                measure=measure_name(row),
                before=f"{row.before:.1f}",
                after=f"{row.after:.1f}",
                change=told(f"run_diff_text.change_{row.change}"),
            )
