"""What devices call their tensors: the styles of names under which a dump can come."""

import hashlib
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from benchmarks.planted.case import PlantedCase

# The clock of the chip when it wrote its first tensor, in microseconds.
_CLOCK = 1_700_000_000_123_456

Entry = tuple[str, str, str]
"""A tensor, the node that computes it and the kind of that; the last two empty for an input."""


def _mangled(text: str) -> str:
    return re.sub(r"[^0-9A-Za-z]+", "_", text).strip("_")


def _file_names(entries: Sequence[Entry], rng: np.random.Generator) -> list[str]:
    """The tensor's own name with everything but letters and digits replaced."""
    del rng
    return [_mangled(tensor) for tensor, _, _ in entries]


def _node_names(entries: Sequence[Entry], rng: np.random.Generator) -> list[str]:
    """The name of the node, mangled too."""
    del rng
    return [_mangled(node or tensor) for tensor, node, _ in entries]


def _time_stamps(entries: Sequence[Entry], rng: np.random.Generator) -> list[str]:
    """The kind of node before its name; behind it the number of the output and the time in microseconds."""
    times = _CLOCK + np.cumsum(rng.integers(20, 900, len(entries)))
    return [
        f"{op or 'Data'}_{_mangled(node or tensor)}.0.{time}"
        for (tensor, node, op), time in zip(entries, times, strict=True)
    ]


def _identifiers(entries: Sequence[Entry], rng: np.random.Generator) -> list[str]:
    """Numbers of a compiler that rise with the execution, with gaps where it dropped something."""
    numbers = np.cumsum(rng.integers(1, 4, len(entries)))
    return [f"t_{number:04d}" for number in numbers]


def _numbered(entries: Sequence[Entry], rng: np.random.Generator) -> list[str]:
    del rng
    return [f"layer_{index:03d}_out" for index in range(len(entries))]


def _counting_down(entries: Sequence[Entry], rng: np.random.Generator) -> list[str]:
    """A compiler that numbers from the outputs: sorted, its files are in the opposite order."""
    del rng
    return [f"subgraph0_t{len(entries) - index:03d}_out" for index in range(len(entries))]


def _hashed(entries: Sequence[Entry], rng: np.random.Generator) -> list[str]:
    """No order and no names."""
    salt = str(rng.integers(1 << 30))
    return [hashlib.sha256((salt + tensor).encode()).hexdigest()[:12] for tensor, _, _ in entries]


def _by_kind(entries: Sequence[Entry], rng: np.random.Generator) -> list[str]:
    """Each kind of operation counted for itself, as Keras and many compilers do: no order of all of them."""
    del rng
    seen: dict[str, int] = {}
    found = []
    for _, _, op in entries:
        kind = op.lower() or "input"
        seen[kind] = seen.get(kind, -1) + 1
        found.append(f"{kind}_{seen[kind]}")
    return found


STYLES: Mapping[str, Callable[[Sequence[Entry], np.random.Generator], list[str]] | None] = {
    "same names": None,
    "mangled for files": _file_names,
    "names of nodes": _node_names,
    "kind and time stamp": _time_stamps,
    "t_0017": _identifiers,
    "numbered": _numbered,
    "counting down": _counting_down,
    "hashed": _hashed,
    "kind and number": _by_kind,
}
"""By what they are called in tables; the first is how the suite itself writes."""


def named(case: PlantedCase, style: str, rng: np.random.Generator) -> PlantedCase:
    """The case with the names of a style in its dump."""
    assert case.dumps is not None
    make = STYLES[style]
    if make is None:
        return replace(case, dumps=replace(case.dumps, style=style))
    producers: dict[str, Any] = {name: node for node in case.model.proto.graph.node for name in node.output}
    entries: list[Entry] = []
    for tensor in case.dumps.samples[0]:
        node = producers.get(tensor)
        entries.append((tensor, "", "") if node is None else (tensor, node.name, node.op_type))
    files = make(entries, rng)
    if len(set(files)) < len(files):
        files = [f"{name}_{index}" if files.count(name) > 1 else name for index, name in enumerate(files)]
    names = {tensor: name for (tensor, _, _), name in zip(entries, files, strict=True)}
    return replace(case, dumps=replace(case.dumps, style=style, names=names))
