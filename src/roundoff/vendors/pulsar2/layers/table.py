"""The resolution of layer_configs for people, and for programs."""

from collections.abc import Sequence
from typing import Any

from roundoff.core.harmless import short_name
from roundoff.vendors.pulsar2.layers.resolving import NodeOutcome, ResolvedEntry
from roundoff.vendors.pulsar2.operators import vendor_dtype
from roundoff.vendors.pulsar2.tables.rendering import NATURAL, Column, render_table

__all__ = ["resolution_json", "resolution_table"]

_COLUMNS: tuple[Column, ...] = (
    ("#", "left"), ("Asked for", "left"), ("Applied", "left"), ("Why not, and remarks", "left"),
)  # fmt: skip
_LISTED = 3
_MOST_SELECTOR = 3


def resolution_table(entries: Sequence[ResolvedEntry], *, width: int = NATURAL) -> str:
    """What became of each entry: what it asks for, how many of the nodes it names have it, and why others not."""
    rows = [
        (
            str(entry.number),
            f"{_selector(entry)}: {entry.requested}",
            f"{entry.applied} of {len(entry.nodes)}",
            "\n".join(_remarks(entry)),
        )
        for entry in entries
    ]
    return render_table("Layer Config Resolution", _COLUMNS, rows, width=width, fold=True)


def _selector(entry: ResolvedEntry) -> str:
    names = entry.selector.split(", ")
    more = f" and {len(names) - _MOST_SELECTOR} more" if len(names) > _MOST_SELECTOR else ""
    return f"{entry.kind} {', '.join(map(short_name, names[:_MOST_SELECTOR]))}{more}"


def _remarks(entry: ResolvedEntry) -> list[str]:
    lines = [f"{name!r} names nothing: {hint}" for name, hint in entry.unknown.items()]
    groups: dict[tuple[bool, str], list[NodeOutcome]] = {}
    for node in entry.nodes:
        if node.why:
            groups.setdefault((node.applied, node.cause), []).append(node)
    for (applied, cause), nodes in sorted(groups.items(), key=lambda each: each[0][0]):
        rest = len(nodes) - _LISTED
        names = ", ".join(node.node for node in nodes[:_LISTED]) + (f" and {rest} more" if rest > 0 else "")
        reason = nodes[0].why if len(nodes) == 1 else cause
        lines.append(f"{names} {'applied' if applied else 'NOT applied'}: {reason}")
    return lines


def resolution_json(entries: Sequence[ResolvedEntry]) -> list[dict[str, Any]]:
    """The same as data."""
    return [
        {
            "entry": entry.number - 1,
            "kind": entry.kind,
            "selector": entry.selector,
            "requested": entry.requested,
            "matched": len(entry.nodes),
            "applied": entry.applied,
            "unknown": dict(entry.unknown),
            "nodes": [
                {
                    "node": node.node,
                    "op_type": node.op_type,
                    "applied": node.applied,
                    "data_type": vendor_dtype(node.effective.activation),
                    "weight_data_type": vendor_dtype(node.effective.weight),
                    "output_data_type": vendor_dtype(node.effective.output),
                    "why": node.why,
                }
                for node in entry.nodes
            ],
        }
        for entry in entries
    ]
