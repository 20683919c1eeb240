"""What a run says of one node or tensor, and of one finding, in sentences."""

from collections.abc import Iterator

from roundoff.core.document import RunDocument
from roundoff.core.findings import Finding
from roundoff.core.layer_scores import LayerReport, LayerRow, LayerScore

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
    told = [sentence for part in parts for sentence in part(document, name)]
    if len(told) <= 1:
        told.append("This run measured nothing of it.")
    return " ".join(told)


def finding_text(finding: Finding) -> str:
    """A paragraph on a finding."""
    told = [f"Finding {finding.number} ({finding.cause}): {finding.summary}."]
    if finding.proven:
        told.append(f"It is proven: {finding.intervention or 'it was put right'}.")
    else:
        told.append("It is suspected only; no intervention has proven it.")
    for measure in finding.measures[:1]:
        unit = f" {measure.unit}" if measure.unit else ""
        told.append(f"{measure.what} went from {measure.before:.4g} to {measure.after:.4g}{unit}.")
    if finding.share:
        told.append(f"It makes {100 * finding.share:.0f} % of the loss.")
    if finding.remedy is not None:
        told.append(f"What to do: {finding.remedy.title} (cost: {finding.remedy.cost}).")
    return " ".join(told)


def _place(document: RunDocument, name: str) -> Iterator[str]:
    network = document.network
    for at, node in enumerate(() if network is None else network.nodes):
        if name == node.name or name in node.outputs:
            count = 0 if network is None else len(network.nodes)
            yield f"{name}: operation {node.op_type}, node {at + 1} of {count}."
            return
    yield f"{name}:"


def _layer(document: RunDocument, name: str) -> Iterator[str]:
    report = document.layers
    rows = () if report is None else report.rows
    row = next((each for each in rows if name in (each.tensor, each.node)), None)
    if report is None or row is None:
        return
    if row.local is not None:
        yield f"Alone, fed with float tensors, it keeps {_score(row.local)}."
    if row.accumulated is not None:
        yield f"In the whole quantized network {_score(row.accumulated)} are left at it."
    if row.introduced is not None:
        share = 100 * row.introduced.output_share
        yield (
            f"It adds an estimated {share:.2g} % of the error at the outputs, mostly by {row.introduced.cause}."
        )
    if row.clipped:
        yield f"{100 * row.clipped:.2g} % of its values are clipped."
    used = None if row.accumulated is None else row.accumulated.used_levels
    if used is not None and row.levels:
        yield f"{used} of {row.levels} codes occur."
    yield from _blame(report, row)


def _blame(report: LayerReport, row: LayerRow) -> Iterator[str]:
    if any(
        row.tensor == each.tensor or row.node in (each.node, each.weighted) for each in report.verdict.culprits
    ):
        yield "It is a culprit: with it in float the loss at the outputs was measured to go away."
    elif row.tensor in report.verdict.masked:
        yield "It is bad by itself, but hardly shows at the outputs as things are."
    elif report.verdict.kind == "local":
        yield "It is no culprit."


def _score(score: LayerScore) -> str:
    return f"no score ({score.detail or score.status})" if score.sqnr_db is None else f"{score.sqnr_db:.1f} dB"


def _compared(document: RunDocument, name: str) -> Iterator[str]:
    found = document.comparison
    row = next((each for each in (found.rows if found else ()) if name in (each.reference, each.node)), None)
    if row is None:
        return
    scores = ", ".join(
        f"{key} {row.score.values[key]:.4g}" for key in ("cosine", "sqnr_db") if key in row.score.values
    )
    judged = {True: "it passes", False: "it fails", None: "it is not judged"}[row.passed]
    yield f"Compared with {row.candidate}: {scores or row.score.detail}; {judged}."
    if row.difference:
        yield f"What differs: {row.difference}."
    if row.role:
        yield (
            "The error starts here."
            if row.role == "introduces"
            else "It is a victim: what it reads is wrong already."
        )


def _curve(document: RunDocument, name: str) -> Iterator[str]:
    found = document.accumulation
    for place in () if found is None else found.nodes:
        if found is not None and name in (place.tensor, place.node):
            value = found.base_line.sqnr_db[place.order]
            if value is not None:
                yield f"On the curve of the quantized network it is at {value:.1f} dB."
            return


def _rank(document: RunDocument, name: str) -> Iterator[str]:
    report = document.sensitivity
    for kind, rows in {} if report is None else report.rankings.items():
        row = next((each for each in rows if name in (each.name, each.tensor, each.node)), None)
        if report is not None and row is not None:
            score = row.scores.get(report.metrics[0])
            doing = "quantized alone" if report.mode == "alone" else "alone left in float"
            told = "" if score is None else f": {report.metrics[0]} {score:.4g} at the outputs"
            yield f"Of {len(rows)} subjects of kind {kind} it hurts as number {row.rank}; {doing}{told}."


def _found(document: RunDocument, name: str) -> Iterator[str]:
    found = document.diagnosis
    if found is None:
        return
    for finding in found.findings:
        if name in (*finding.nodes, *finding.tensors):
            yield finding_text(finding)
    if name in found.victims:
        yield "It is a victim: wrong only because of what it reads."


def _changed(document: RunDocument, name: str) -> Iterator[str]:
    for row in () if document.diff is None else document.diff.rows:
        if name in (row.tensor, row.node) and row.before is not None and row.after is not None:
            yield f"Its {row.measure} score went from {row.before:.1f} to {row.after:.1f} dB: {row.change}."
