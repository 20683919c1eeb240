"""The network as a graph, coloured by the most telling number that the run has for its nodes."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from roundoff.core.document import RunDocument
from roundoff.messages.catalogue import Phrase, named, plain, say
from roundoff.messages.numbers import percentage
from roundoff.pages.blocks import ColumnKind, NetworkBlock, NetworkNode, Page

__all__ = ["Colouring", "network_page", "node_colouring"]

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
    caption = say(f"network.{colouring.name}")
    block = NetworkBlock("network", caption, nodes, colouring.kind, colouring.higher_is_better, colouring.best)
    return Page("network", say("network.title"), (block,))


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
        text = say(
            "network.joint", number=each.number, cause=cause, count=each.places, share=percentage(each.share)
        )
        for node in each.accused_nodes if each.places > 1 else ():
            facts[node] = (*facts.get(node, ()), (say("network.finding"), text))
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
