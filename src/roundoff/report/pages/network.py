"""The network as a graph, coloured by the most telling number that the run has for its nodes."""

from collections.abc import Callable, Mapping

from roundoff.core.document import RunDocument
from roundoff.core.topology import Topology
from roundoff.report.pages.blocks import ColumnKind, Network, NetworkNode, Page
from roundoff.report.words import say

__all__ = ["network_page"]

_Values = Mapping[str, float | None]


def network_page(document: RunDocument) -> Page | None:
    """The page with the graph; None where the run knows no network."""
    topology = document.network
    if topology is None or not topology.nodes:
        return None
    for caption, kind, higher, read in _COLOURINGS:
        values = read(document)
        if any(value is not None for value in values.values()):
            return _page(topology, values, caption=caption, kind=kind, higher_is_better=higher)
    return _page(topology, {}, caption="plain", kind="number", higher_is_better=True)


def _page(topology: Topology, values: _Values, *, caption: str, kind: ColumnKind, higher_is_better: bool) -> Page:
    nodes = tuple(
        NetworkNode(node.name, node.op_type, node.inputs, node.outputs, values.get(node.name))
        for node in topology.nodes
    )
    block = Network("network", say(f"network.{caption}"), nodes, kind, higher_is_better)
    return Page("network", say("network.title"), (block,))


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


_COLOURINGS: tuple[tuple[str, ColumnKind, bool, Callable[[RunDocument], _Values]], ...] = (
    ("introduced", "share", False, _introduced),
    ("sensitivity", "decibels", True, _sensitivity),
    ("comparison", "number", False, _comparison),
    ("accumulation", "decibels", True, _accumulated),
)
"""What nodes can be coloured by, the most telling first: caption, kind, whether higher is better, values."""
