"""Padding with zeros in a node of its own becomes padding of the convolution behind it."""

from typing import Any

from roundoff.graph.preparation.changes import attribute, set_attribute
from roundoff.graph.preparation.draft import Draft, named

__all__ = ["merge_padding"]

_PADS_ARE_INPUTS = 11
_PADS, _VALUE, _AXES = 1, 2, 3


def merge_padding(draft: Draft) -> None:
    """Merge Pad into the Conv that alone reads it, where that is exactly the same."""
    merged = [node.name for node in draft.of_type("Pad") if _merge(draft, node)]
    if merged:
        draft.notes.append(f"Pad merged into the convolution behind it: {named(merged)}")


def _merge(draft: Draft, pad: Any) -> bool:
    readers = draft.readers(pad.output[0])
    conv = draft.nodes[readers[0]] if draft.read_once(pad.output[0]) else None
    if conv is None or conv.op_type != "Conv" or conv.domain or conv.input[0] != pad.output[0]:
        return False
    amounts = _zero_padding(draft, pad)
    weight = draft.constant_shape(conv.input[1]) if draft.is_constant(conv.input[1]) else ()
    rank = len(weight)
    if amounts is None or not rank or attribute(conv, "auto_pad", b"NOTSET") not in (b"NOTSET", b"VALID"):
        return False
    axes, values = amounts
    total = [0] * (2 * rank)
    for index, axis in enumerate(axes or range(rank)):
        total[axis % rank] += values[index]
        total[axis % rank + rank] += values[index + len(values) // 2]
    spatial = total[2:rank] + total[rank + 2 :]
    if len(values) != 2 * len(axes or range(rank)) or min(total) < 0 or sum(spatial) != sum(total):
        return False
    own = attribute(conv, "pads", [0] * len(spatial))
    if attribute(conv, "auto_pad", b"NOTSET") == b"VALID":
        own = [0] * len(spatial)
    set_attribute(conv, "auto_pad", None)
    set_attribute(conv, "pads", [first + second for first, second in zip(own, spatial, strict=True)])
    draft.set_input(conv, 0, pad.input[0])
    draft.remove(pad, into=conv.name)
    return True


def _zero_padding(draft: Draft, pad: Any) -> tuple[list[int], list[int]] | None:
    """Axes (none for all) and amounts of a Pad with zeros; None when it is of another kind, or not constant."""
    if attribute(pad, "mode", b"constant") != b"constant":
        return None
    if draft.opset < _PADS_ARE_INPUTS:
        amounts = attribute(pad, "pads", [])
        return ([], list(amounts)) if attribute(pad, "value", 0.0) == 0 else None
    given = {at: pad.input[at] for at in (_PADS, _VALUE, _AXES) if len(pad.input) > at and pad.input[at]}
    if not all(map(draft.is_constant, given.values())):
        return None
    held = {at: draft.constant(name) for at, name in given.items()}
    if _VALUE in held and held[_VALUE].any():
        return None
    axes = held[_AXES].astype(int).ravel().tolist() if _AXES in held else []
    return axes, held[_PADS].astype(int).ravel().tolist()
