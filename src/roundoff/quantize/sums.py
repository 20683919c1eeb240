"""Sums of products that do not fit the accumulator of the target: found by computing them with integers.

The models that are written compute in float and do not show it.
"""

import shlex
from collections.abc import Iterator, Mapping, Sequence
from math import prod
from typing import Any

from roundoff.core.quantizer import Quantizer
from roundoff.core.target import Target
from roundoff.core.wording import counted
from roundoff.errors import RoundoffError
from roundoff.graph.edges import Edges
from roundoff.graph.load import Model
from roundoff.graph.preparation.draft import named
from roundoff.graph.shapes import values
from roundoff.graph.weights import Weights
from roundoff.quantize.agreement import spread
from roundoff.runtime.feeds import Samples
from roundoff.runtime.integer import IntegerRunner, Overflow
from roundoff.runtime.runner import read_feed

__all__ = ["sum_notes"]

_PRODUCTS = frozenset({"Conv", "ConvTranspose", "Gemm", "MatMul"})
# Exact integers take a while; a sum that overflows does so in most samples.
_SAMPLES = 4
# Terms of a sum where the shape of its operands is not known.
_MANY_TERMS = 4096
_NARROW_BITS = 8
_FACTORS = 2
_LISTED = 3


def sum_notes(
    model: Model, quantizers: Sequence[Quantizer], target: Target, *, samples: Samples | None
) -> tuple[str, ...]:
    """Which nodes add up more than the accumulator holds, by how much, and what to ask for instead.

    Args:
        model: The prepared float model.
        quantizers: Its quantizers.
        target: For which chip.
        samples: What the sums are computed on; without them the largest possible ones are told.
    """
    edges = Edges(model, quantizers)
    terms = _Terms(model)
    largest = (1 << (target.arithmetic.accumulator_bits - 1)) - 1
    ratios: dict[str, float] = {}
    for node in model.proto.graph.node:
        operands = _operands(node, edges)
        if node.op_type in _PRODUCTS and len(operands) == _FACTORS:
            bound = terms.of(node) * prod(map(_largest_code, operands))
            if bound > largest:
                ratios[node.name] = bound / largest
    if not ratios:
        return ()
    try:
        found = _found(model, quantizers, target, samples=samples, ratios=ratios)
    except RoundoffError as error:
        return (f"whether the sums of {named(list(ratios))} fit could not be found out: {error.what}",)
    nodes = {node.name: node for node in model.proto.graph.node}
    notes = [
        f"sums of {name!r} ({nodes[name].op_type}) {text}{_advice(nodes[name], edges, target, ratio)}"
        for name, ratio, text in found[:_LISTED]
    ]
    if len(found) > _LISTED:
        notes.append(f"sums of {counted(len(found) - _LISTED, 'more node')} do not fit either")
    return tuple(notes)


def _found(
    model: Model,
    quantizers: Sequence[Quantizer],
    target: Target,
    *,
    samples: Samples | None,
    ratios: Mapping[str, float],
) -> list[tuple[str, float, str]]:
    """Each node with the worst ratio to what fits, and words for that."""
    if samples is None:
        bits = target.arithmetic.accumulator_bits
        return [
            (name, ratio, f"may reach {_times(ratio)} what {bits} bits hold") for name, ratio in ratios.items()
        ]
    overflows = _measured(model, quantizers, target, samples)
    return [(each.node, each.worst_ratio, _in_words(each, target)) for each in overflows]


class _Terms:
    """How many products a node adds up."""

    def __init__(self, model: Model) -> None:
        self._weights = Weights(model)
        self._shapes = {value.name: value.shape for value in values(model)}

    def of(self, node: Any) -> int:
        """The number for one element of its result; a guess on the safe side where shapes are not known."""
        for name in node.input[1::-1]:
            if name in self._weights.protos:
                shape = self._weights.shape(name)
                outer = 1 if node.op_type == "ConvTranspose" else 0
                if node.op_type in ("Gemm", "MatMul"):
                    return max(shape[-2:], default=1)
                return prod(shape) // max(1, shape[outer])
        live = self._shapes.get(node.input[0])
        return live[-1] if live else _MANY_TERMS


def _operands(node: Any, edges: Edges) -> list[Quantizer]:
    found = (edges.read_by(node.name, place) for place in (0, 1))
    return [quantizer for quantizer in found if quantizer is not None]


def _largest_code(quantizer: Quantizer) -> int:
    """The largest distance of a code from a zero point."""
    spec, zero = quantizer.spec, quantizer.params.zero_point
    return int(max(abs(spec.code_min - int(zero.max())), abs(spec.code_max - int(zero.min()))))


def _measured(
    model: Model, quantizers: Sequence[Quantizer], target: Target, samples: Samples
) -> Iterator[Overflow]:
    runner = IntegerRunner(model, quantizers, target.arithmetic)
    for index in spread(len(samples.names), _SAMPLES):
        runner.run(read_feed(model, samples, index), sample=samples.names[index])
    return (each for each in runner.report.overflows if each.kind == "accumulator")


def _in_words(overflow: Overflow, target: Target) -> str:
    bits, does = target.arithmetic.accumulator_bits, target.arithmetic.overflow
    return (
        f"do not fit {bits} bits and {does}: {overflow.count} of {overflow.elements} on a few samples, up to "
        f"{_times(overflow.worst_ratio)} what fits; only --mode integer and the chip show it"
    )


def _times(ratio: float) -> str:
    return f"{ratio:.1f} times" if ratio < 100 else f"{ratio:.0f} times"


def _advice(node: Any, edges: Edges, target: Target, ratio: float) -> str:
    """The rule that makes the sums fit: narrower weights, else narrower inputs, else float."""
    offered = {"weight": target.weights, "activation": target.activations}
    for quantizer in reversed(_operands(node, edges)):
        part = "weight" if quantizer.kind == "weight" else "activation"
        saved = 1 << max(0, quantizer.spec.bits - _NARROW_BITS)
        narrow = next((dtype for dtype, spec in offered[part].items() if spec.bits == _NARROW_BITS), "")
        if narrow and ratio < saved:
            return f"; --set {shlex.quote(f'{node.name}={part}={narrow}')} makes them fit"
    return f"; --set {shlex.quote(f'{node.name}=float')} avoids them" if target.float_allowed else ""
