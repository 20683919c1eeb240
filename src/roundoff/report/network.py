"""The network as a graph, coloured by the most telling number that the run has for its nodes."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from roundoff.core.document import RunDocument, json_text
from roundoff.messages.catalogue import Language, Phrase, bilingual, named, plain
from roundoff.messages.numbers import percentage
from roundoff.pages.blocks import ColumnKind, NetworkBlock, NetworkNode, Page, TableBlock, cell_text

_Values = Mapping[str, float | None]


@dataclass(frozen=True, slots=True)
class Colouring:
    """By what nodes are coloured.

    Attributes:
        name: Of its caption in the catalogue.
        kind: What the numbers are.
        higher_is_better: Which way they are better.
        best: From which on they are as good as can be; None when nothing is.
        values: By the names of nodes.
    """

    name: str
    kind: ColumnKind
    higher_is_better: bool
    best: float | None
    values: _Values


def node_colouring(document: RunDocument) -> Colouring | None:
    """The most telling number that a run has for its nodes; None when it has none."""
    for name, kind, higher, best, read in _COLOURINGS:
        values = read(document)
        if any(value is not None for value in values.values()):
            return Colouring(name, kind, higher, best, values)
    return None


def network_page(document: RunDocument) -> Page | None:
    """The page with the graph; None where the run knows no network."""
    topology = document.network
    if topology is None or not topology.nodes:
        return None
    colouring, facts = node_colouring(document) or _PLAIN, _joint(document)
    nodes = tuple(
        NetworkNode(
            node.name,
            node.op_type,
            node.inputs,
            node.outputs,
            colouring.values.get(node.name),
            facts.get(node.name, ()),
        )
        for node in topology.nodes
    )
    caption = bilingual(f"network.{colouring.name}")
    block = NetworkBlock("network", caption, nodes, colouring.kind, colouring.higher_is_better, colouring.best)
    return Page("network", bilingual("network.title"), (block,))


def _proven(document: RunDocument) -> _Values:
    findings = () if document.diagnosis is None else document.diagnosis.accused
    shares: dict[str, float | None] = {}
    for each in findings:
        for node in each.accused_nodes:
            shares[node] = max(each.share, shares.get(node) or 0.0)
    return shares


def _joint(document: RunDocument) -> dict[str, tuple[tuple[Phrase, Phrase], ...]]:
    """What the card of a node says that is accused together with others; a finding of one node is in a table."""
    facts: dict[str, tuple[tuple[Phrase, Phrase], ...]] = {}
    for each in () if document.diagnosis is None else document.diagnosis.accused:
        cause = named(f"diagnosis.cause_{each.cause}") or plain(each.cause)
        text = bilingual(
            "network.joint", number=each.number, cause=cause, count=each.places, share=percentage(each.share)
        )
        for node in each.accused_nodes if each.places > 1 else ():
            facts[node] = (*facts.get(node, ()), (bilingual("network.finding"), text))
    return facts


def _introduced(document: RunDocument) -> _Values:
    rows = () if document.layers is None else document.layers.rows
    return {row.node: row.introduced.output_share for row in rows if row.introduced is not None}


def _sensitivity(document: RunDocument) -> _Values:
    report = document.sensitivity
    rows = () if report is None else report.rankings.get("node", ())
    return {row.node: row.scores.get("sqnr_db") for row in rows}


def _comparison(document: RunDocument) -> _Values:
    rows = () if document.comparison is None else document.comparison.rows
    return {row.node: row.score.values.get("relative_euclidean") for row in rows if row.node}


def _accumulated(document: RunDocument) -> _Values:
    found = document.accumulation
    if found is None:
        return {}
    return {node.node: value for node, value in zip(found.nodes, found.base_line.sqnr_db, strict=True)}


def _changed(document: RunDocument) -> _Values:
    rows = () if document.diff is None else document.diff.rows
    found: dict[str, float | None] = {}
    for row in rows:
        if row.node and row.change_db is not None:
            found[row.node] = min(row.change_db, found.get(row.node) or row.change_db)
    return found


_COLOURINGS: tuple[tuple[str, ColumnKind, bool, float | None, Callable[[RunDocument], _Values]], ...] = (
    ("changed", "decibels", True, 0.0, _changed),
    ("proven", "share", False, 0.0, _proven),
    ("introduced", "share", False, 0.0, _introduced),
    ("sensitivity", "decibels", True, None, _sensitivity),
    ("comparison", "number", False, 0.0, _comparison),
    ("accumulation", "decibels", True, None, _accumulated),
)
"""What nodes can be coloured by, the most telling first: caption, kind, whether higher is better, best, values."""

_PLAIN = Colouring("plain", "number", True, None, {})


# From the best to the worst, as in our own drawing of the network.
_GOOD, _MIDDLE, _BAD = "#cfe8d5", "#fde7a8", "#f2938a"


def model_explorer_overlay(document: RunDocument) -> str | None:
    """The number by which our own drawing is coloured, as node data of Model Explorer; None without any.

    Its ONNX adapter calls nodes by their names, as we do. Infinite values cannot be drawn there and are left out.
    """
    colouring = node_colouring(document)
    values = {} if colouring is None else colouring.values
    drawn = {name: value for name, value in values.items() if value is not None and math.isfinite(value)}
    if colouring is None or not drawn:
        return None
    ends = (_BAD, _MIDDLE, _GOOD) if colouring.higher_is_better else (_GOOD, _MIDDLE, _BAD)
    stops = [{"stop": at / 2, "bgColor": colour} for at, colour in enumerate(ends)]
    return json_text({"results": {name: {"value": value} for name, value in drawn.items()}, "gradient": stops})


def node_facts(pages: Sequence[Page], *, language: Language = "en") -> dict[str, dict[str, str]]:
    """What the tables of a report say of each node: words and values, by its name.

    Where a node has several rows in a table, the first one counts.

    Args:
        pages: The report.
        language: Of the words.
    """
    found: dict[str, dict[str, str]] = {}
    for page in pages:
        for table in (block for block in page.blocks if isinstance(block, TableBlock)):
            place = next((at for at, column in enumerate(table.columns) if column.kind == "node"), None)
            if place is None:
                continue
            for row in table.rows:
                node = row[place]
                facts = found.setdefault(str(node), {}) if node else {}
                for at, (value, column) in enumerate(zip(row, table.columns, strict=True)):
                    text = cell_text(value, column).within(language)
                    if at != place and text:
                        facts.setdefault(f"{page.title.within(language)}: {column.label.within(language)}", text)
    return found
