"""The quantizers of a whole network, on a part of it."""

from collections.abc import Collection, Iterator, Sequence
from dataclasses import replace

from roundoff.core.quantizer import Quantizer
from roundoff.graph.subgraph import Part

__all__ = ["placed"]


def placed(quantizers: Sequence[Quantizer], part: Part, preferred: Collection[str] = ()) -> list[Quantizer]:
    """Those that a part sees: of what its nodes read, and of what it hands on to others.

    Args:
        quantizers: All that are on.
        part: The part.
        preferred: Where readers outside get a tensor in several ways, one of these quantizers makes its output.
    """
    inside = set(part.nodes)
    leaving = {tensor: each.name for tensor, each in _leaving(quantizers, part, preferred)}
    found = []
    for each in quantizers:
        consumers = tuple(edge for edge in each.consumers if edge.node in inside)
        output = leaving.get(each.tensor) == each.name
        if consumers or output:
            found.append(replace(each, consumers=consumers, output=output))
    # What another one quantizes again comes along, though nobody else reads it.
    names = {each.name for each in found}
    needed = {each.after for each in found} - names
    before = [replace(each, consumers=(), output=False) for each in quantizers if each.name in needed]
    return [*before, *found]


def _leaving(
    quantizers: Sequence[Quantizer], part: Part, preferred: Collection[str]
) -> Iterator[tuple[str, Quantizer]]:
    inside, written = set(part.nodes), set(part.writes)
    chosen: dict[str, Quantizer] = {}
    for each in quantizers:
        out = each.output or any(edge.node not in inside for edge in each.consumers)
        if each.tensor in written and out and (each.tensor not in chosen or each.name in preferred):
            chosen[each.tensor] = each
    yield from chosen.items()
