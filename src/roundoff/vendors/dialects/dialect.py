"""A dialect: how one tool is told what was decided, and what it cannot be told."""

import hashlib
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from roundoff.core.quantizers import Quantizer
from roundoff.messages.numbers import counted
from roundoff.vendors.dialects.decisions import COMMON_BITS, Decisions, NodeDecision

__all__ = [
    "Dialect",
    "Written",
    "graph_digest",
    "named",
    "names_of",
    "said_of",
    "unsaid_codes",
    "unsaid_method",
    "unsaid_scales",
    "unsaid_weights",
]


_MOST_NAMED = 4
# What reads weights; constants of other operations are quantized as what they meet.
_WITH_WEIGHTS = frozenset({"Conv", "ConvTranspose", "Gemm", "MatMul", "LSTM", "GRU", "RNN"})


@dataclass(frozen=True, slots=True)
class Written:
    """The settings for one tool.

    Attributes:
        files: Texts by name of file.
        said: What they say, in a few words.
        missing: What the tool cannot be told, each in a few words.
        use: How the tool is given them.
    """

    files: Mapping[str, str]
    said: str
    missing: tuple[str, ...]
    use: str


@dataclass(frozen=True, slots=True)
class Dialect:
    """One tool's way of saying things.

    Attributes:
        name: As it is asked for.
        summary: What is written, in a few words.
        write: Makes the files.
    """

    name: str
    summary: str
    write: Callable[[Decisions], Written]


def named(names: Iterable[str]) -> str:
    """The first few names."""
    found = list(dict.fromkeys(names))
    more = f" and {len(found) - _MOST_NAMED} more" if len(found) > _MOST_NAMED else ""
    return ", ".join(repr(name) for name in found[:_MOST_NAMED]) + more


def unsaid_scales(decisions: Decisions, *, weights_only: bool = False) -> list[str]:
    """That scales cannot be said."""
    activations = {each.tensor for each in decisions.of_kind("activation")}
    weights = {each.tensor for each in decisions.of_kind("weight")}
    if weights_only:
        own = {each.tensor for each in _weights(decisions)}
        return [f"the scales of {counted(len(own), 'weight')}: it finds its own"] if own else []
    if not activations | weights:
        return []
    tensors = counted(len(activations | weights), "tensor")
    return [f"the scales and zero points of {tensors}: it calibrates by itself"]


def unsaid_codes(decisions: Decisions) -> list[str]:
    """That codes cannot be said which are not what rounding gives."""
    corrected = [each.tensor for each in decisions.of_kind("weight") if each.codes is not None]
    return [f"weights whose rounding was corrected: {named(corrected)}"] if corrected else []


def unsaid_weights(decisions: Decisions, allowed: Sequence[str] = ("s8",)) -> list[str]:
    """That weights of other widths cannot be said."""
    found: dict[str, list[str]] = {}
    for each in _weights(decisions):
        if each.spec.dtype not in allowed:
            found.setdefault(each.spec.dtype, []).append(each.tensor)
    return [f"{dtype} weights: {named(tensors)}" for dtype, tensors in found.items()]


def unsaid_method(decisions: Decisions, known: Mapping[str, str], instead: str) -> list[str]:
    """That a calibration method is none of the tool's."""
    if not decisions.made.method or decisions.made.method in known:
        return []
    return [f"calibration by {decisions.made.method}: {instead} instead"]


def _weights(decisions: Decisions) -> list[Quantizer]:
    """The quantizers of weights, without those of other constants."""
    kinds = {node.name: node.op_type for node in decisions.quantized.float_model.proto.graph.node}
    return [
        each
        for each in decisions.of_kind("weight")
        if any(kinds.get(consumer.node) in _WITH_WEIGHTS for consumer in each.consumers)
    ]


def said_of(decisions: Decisions, *, weights: bool = False) -> str:
    """How many nodes are otherwise than plain int8.

    Args:
        decisions: What was decided.
        weights: Whether the tool is told the widths of weights, too.
    """
    widths = Counter(each.spec.bits for each in _weights(decisions) if weights and each.spec.bits != COMMON_BITS)
    parts = [
        text
        for nodes, text in (
            (decisions.floats, f"{counted(len(decisions.floats), 'node')} in float"),
            (decisions.wide, f"{counted(len(decisions.wide), 'node')} at 16 bits"),
        )
        if nodes
    ]
    parts += [f"{counted(count, 'weight')} at {bits} bits" for bits, count in sorted(widths.items())]
    if widths and not (decisions.floats or decisions.wide):
        parts.insert(0, "activations at 8 bits")
    return ", ".join(parts) or "all nodes at 8 bits"


def names_of(nodes: Iterable[NodeDecision]) -> list[str]:
    """Names of nodes."""
    return [node.name for node in nodes]


# By what a graph is known again by a script that runs without us.
#
# The function is written into the scripts as it stands here, so that both sides compute the same.


def graph_digest(graph: "Any", values: "Callable[[Any], Any]") -> str:
    """A hash of what a graph computes: operations and wires, and floating-point constants.

    Names of nodes and their order do not count, nor where constants are stored.

    Args:
        graph: An onnx.GraphProto.
        values: Gives the array of an onnx.TensorProto.
    """
    held = [(tensor.name, tensor) for tensor in graph.initializer]
    parts = []
    for node in graph.node:
        parts.append(repr((node.op_type, list(node.input), list(node.output))))
        held += [(node.output[0], each.t) for each in node.attribute if each.HasField("t")]
    for name, tensor in held:
        if tensor.data_type in (tensor.FLOAT, tensor.FLOAT16, tensor.DOUBLE):
            array = values(tensor)
            parts.append(repr((name, array.shape, hashlib.sha256(array.tobytes()).hexdigest())))
    return hashlib.sha256("\n".join(sorted(parts)).encode("utf-8", "surrogatepass")).hexdigest()
