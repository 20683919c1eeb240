"""From a plan and what was observed to quantizers with numbers: every scale and zero point is decided here."""

import shlex
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from math import prod
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from roundoff.core.plan import PlannedQuantizer, QuantPlan
from roundoff.core.quantizers import Quantizer, QuantParams, QuantSpec, parameters_from_range
from roundoff.core.target import Target
from roundoff.core.tensors import Array
from roundoff.errors import BadInput, RoundoffError
from roundoff.graph.draft import MOST_NAMED
from roundoff.graph.insertion import Edges
from roundoff.graph.load import Model
from roundoff.graph.shapes import values
from roundoff.graph.weights import Weights
from roundoff.messages.message import Message, english, joined, message, some
from roundoff.messages.numbers import first_of
from roundoff.quantize.calibration.calibration import weight_range
from roundoff.run.bench import spread
from roundoff.run.capture import LiveSource, Samples, read_feed

if TYPE_CHECKING:
    from roundoff.run.integer.results import AccumulatorOverflow

Parameters = Mapping[str, QuantParams]

# A note names so many biases.
_LISTED = 5
# Half of what 32 bits hold: products are added to the bias in the same accumulator.
_LARGEST_BIAS = float(2**30)


class RangeSource(Protocol):
    """What calibration says of the activations."""

    def range(self, tensors: Sequence[str], spec: QuantSpec, method: str) -> tuple[Array, Array]:
        """Smallest and largest value that codes should cover when these tensors share one scale."""
        ...


@dataclass(frozen=True, slots=True)
class QuantNumbers:
    """The quantizers of a plan with their numbers.

    Attributes:
        quantizers: In the order of the plan.
        notes: Where a number is not what the target's rule alone would give, and why.
    """

    quantizers: tuple[Quantizer, ...]
    notes: tuple[Message, ...]


def find_parameters(
    plan: QuantPlan,
    model: Model,
    ranges: RangeSource,
    *,
    weights: Parameters,
    options: Mapping[str, float] | None = None,
) -> QuantNumbers:
    """Give every planned quantizer its scale and zero point.

    Args:
        plan: What to quantize, and how.
        model: The float model the plan is for.
        ranges: What calibration observed.
        weights: Numbers of the weights, from `weight_parameters`.
        options: Options of the calibration methods, for constants that share a scale with activations.
    """
    found = dict(weights)
    for members in _groups(plan.quantizers).values():
        params = _shared(members, ranges, Weights(model), options)
        found.update((member.name, params) for member in members)
    notes = _make_room_for_biases(plan, found, Weights(model))
    for planned in plan.quantizers:
        if planned.scale_of is not None:
            found[planned.name] = _bias_parameters(*(found[name] for name in planned.scale_of))
    return QuantNumbers(tuple(planned_with(planned, found[planned.name]) for planned in plan.quantizers), notes)


def weight_parameters(
    plan: QuantPlan, model: Model, *, options: Mapping[str, float] | None = None
) -> dict[str, QuantParams]:
    """Scales of the weights that depend on the model alone; those shared with activations are not among them.

    Args:
        plan: What to quantize, and how.
        model: The float model the plan is for.
        options: Options of the calibration methods.

    Raises:
        BadInput: A weight or bias holds values that are not finite.
    """
    constants = Weights(model)
    check_finite(plan, constants)
    return {
        planned.name: _of_weight(constants[planned.tensor], planned, options)
        for planned in plan.quantizers
        if planned.kind == "weight" and not planned.group and planned.fixed_range is None
    }


def check_finite(plan: QuantPlan, weights: Weights) -> None:
    """Refuse constants that no code stands for; each tool would make something else of them.

    Args:
        plan: What is to be quantized.
        weights: The constants of the model.

    Raises:
        BadInput: A weight or bias holds values that are not finite.
    """
    for planned in plan.quantizers:
        if planned.kind == "activation":
            continue
        bad = int(np.count_nonzero(~np.isfinite(weights[planned.tensor].astype(np.float32, copy=False))))
        if bad:
            many = english("{bad} {bad:value|values} that {bad:is|are} NaN or infinite", bad=bad)
            what = english(
                "The {kind} {tensor!r} holds {many}.", kind=planned.kind, tensor=planned.tensor, many=many
            )
            readers = " ".join(f"--set '{consumer.node}=float'" for consumer in planned.consumers)
            raise BadInput(
                what, fix=english("repair the model, or leave what reads it in float: {readers}", readers=readers)
            )


def _of_weight(values: Array, planned: PlannedQuantizer, options: Mapping[str, float] | None) -> QuantParams:
    params = parameters_from_range(*weight_range(values, planned.spec, planned.method, options), planned.spec)
    if planned.spec.axis is None:
        return params
    # A slice of zeros gets the scale of the whole tensor: at the default, 1, a bias in steps of it would be lost.
    axes = tuple(axis for axis in range(values.ndim) if axis != planned.spec.axis % values.ndim)
    dead = ~np.any(values, axis=axes)
    if not dead.any() or dead.all():
        return params
    return QuantParams(np.where(dead, params.scale[~dead].max(), params.scale), params.zero_point)


def _groups(quantizers: Iterable[PlannedQuantizer]) -> dict[str, list[PlannedQuantizer]]:
    """Quantizers that find their range together; one without a group stands alone."""
    groups: dict[str, list[PlannedQuantizer]] = defaultdict(list)
    for planned in quantizers:
        settled = planned.kind == "weight" and not planned.group and planned.fixed_range is None
        if planned.scale_of is None and not settled:
            groups[f"group {planned.group}" if planned.group else f"alone {planned.name}"].append(planned)
    return groups


def _shared(
    members: Sequence[PlannedQuantizer],
    ranges: RangeSource,
    weights: Weights,
    options: Mapping[str, float] | None,
) -> QuantParams:
    """The parameters of quantizers that share them."""
    fixed = next((member for member in members if member.fixed_range is not None), None)
    if fixed is not None and fixed.fixed_range is not None:
        return parameters_from_range(*fixed.fixed_range, fixed.spec)
    spec, method = members[0].spec, members[0].method
    constants = [weights[member.tensor] for member in members if member.kind == "weight"]
    parts = [weight_range(values, spec, method, options) for values in constants]
    live = list(dict.fromkeys(member.tensor for member in members if member.kind == "activation"))
    if live:
        parts.append(ranges.range(live, spec, method))
    low = np.min(np.stack([np.asarray(part[0], dtype=np.float64) for part in parts]), axis=0)
    high = np.max(np.stack([np.asarray(part[1], dtype=np.float64) for part in parts]), axis=0)
    limits = [member.range_limit for member in members if member.range_limit is not None]
    if limits:
        low = np.maximum(low, min(limit[0] for limit in limits))
        high = np.minimum(high, max(limit[1] for limit in limits))
    return parameters_from_range(low, high, spec)


def _bias_parameters(source: QuantParams, weight: QuantParams) -> QuantParams:
    # The product of two small steps may be none in float32.
    scale = np.maximum(source.scale * weight.scale, np.finfo(np.float32).tiny).astype(np.float32)
    return QuantParams(scale, np.zeros(scale.shape, dtype=np.int64))


def _make_room_for_biases(plan: QuantPlan, found: dict[str, QuantParams], weights: Weights) -> tuple[Message, ...]:
    """Widen the scale of weights whose bias would not fit into 32 bits at the product of the scales."""
    widened: dict[str, int] = {}
    for planned in plan.quantizers:
        if planned.scale_of is None:
            continue
        source, weight = planned.scale_of
        bias = np.abs(weights[planned.tensor].astype(np.float64))
        if found[weight].scale.ndim == 0:
            bias = bias.max(initial=0.0)
        needed = bias / (_LARGEST_BIAS * found[source].scale.astype(np.float64))
        short = found[weight].scale < needed
        if np.any(short):
            scale = np.where(short, needed, found[weight].scale).astype(np.float32)
            found[weight] = replace(found[weight], scale=scale)
            widened[planned.tensor] = int(np.count_nonzero(short))
    if not widened:
        return ()
    named = first_of(list(map(repr, widened)), _LISTED)
    return (message("quantize.scales_widened", count=sum(widened.values()), names=named),)


def planned_with(planned: PlannedQuantizer, params: QuantParams) -> Quantizer:
    """A planned quantizer with its numbers."""
    return Quantizer(
        name=planned.name,
        tensor=planned.tensor,
        kind=planned.kind,
        spec=planned.spec,
        params=params,
        consumers=planned.consumers,
        output=planned.output,
        after=planned.after,
    )


# Sums of products that do not fit the accumulator of the target: found by computing them with integers.
#
# The models that are written compute in float and do not show it.

_PRODUCTS = frozenset({"Conv", "ConvTranspose", "Gemm", "MatMul"})
# Exact integers take a while; a sum that overflows does so in most samples.
_SAMPLES = 4
# Terms of a sum where the shape of its operands is not known.
_MANY_TERMS = 4096
_NARROW_BITS = 8
_FACTORS = 2
_LISTED_SUMS = 3


def sum_notes(
    model: Model, quantizers: Sequence[Quantizer], target: Target, *, samples: Samples | None
) -> tuple[Message, ...]:
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
        return (
            message(
                "quantize.sums_unknown", names=some(list(ratios), MOST_NAMED, quoted=True), why=str(error.what)
            ),
        )
    nodes = {node.name: node for node in model.proto.graph.node}
    notes = [
        joined((_in_words(nodes[name], ratio, overflow, target), *_advice(nodes[name], edges, target, ratio)))
        for name, ratio, overflow in found[:_LISTED_SUMS]
    ]
    if len(found) > _LISTED_SUMS:
        notes.append(message("quantize.sums_more", count=len(found) - _LISTED_SUMS))
    return tuple(notes)


def _found(
    model: Model,
    quantizers: Sequence[Quantizer],
    target: Target,
    *,
    samples: Samples | None,
    ratios: Mapping[str, float],
) -> list[tuple[str, float, "AccumulatorOverflow | None"]]:
    """Each node with the worst ratio to what fits, and what was measured of that."""
    if samples is None:
        return [(name, ratio, None) for name, ratio in ratios.items()]
    overflows = _measured(model, quantizers, target, samples)
    return [(each.node, each.worst_ratio, each) for each in overflows]


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
) -> Iterator["AccumulatorOverflow"]:
    from roundoff.run.integer.machine import IntegerRunner

    runner = IntegerRunner(model, quantizers, target.arithmetic)
    for index in spread(len(samples.names), _SAMPLES):
        runner.run(read_feed(model, samples, index), sample=samples.names[index])
    return (each for each in runner.report.overflows if each.kind == "accumulator")


def _in_words(node: Any, ratio: float, overflow: "AccumulatorOverflow | None", target: Target) -> Message:
    times = f"{ratio:.1f}" if ratio < 100 else f"{ratio:.0f}"
    bits = target.arithmetic.accumulator_bits
    if overflow is None:
        return message("quantize.sums_may_reach", node=repr(node.name), op=node.op_type, ratio=times, bits=bits)
    return message(
        "quantize.sums_overflow",
        node=repr(node.name),
        op=node.op_type,
        bits=bits,
        does=message(f"quantize.overflow_{target.arithmetic.overflow}"),
        count=overflow.count,
        all=overflow.elements,
        ratio=times,
    )


def _advice(node: Any, edges: Edges, target: Target, ratio: float) -> Iterator[Message]:
    """The rule that makes the sums fit: narrower weights, else narrower inputs, else float."""
    offered = {"weight": target.weights, "activation": target.activations}
    for quantizer in reversed(_operands(node, edges)):
        part = "weight" if quantizer.kind == "weight" else "activation"
        saved = 1 << max(0, quantizer.spec.bits - _NARROW_BITS)
        narrow = next((dtype for dtype, spec in offered[part].items() if spec.bits == _NARROW_BITS), "")
        if narrow and ratio < saved:
            yield message("quantize.sums_fit", rule=shlex.quote(f"{node.name}={part}={narrow}"))
            return
    if target.float_allowed:
        yield message("quantize.sums_avoided", rule=shlex.quote(f"{node.name}=float"))


# Scales that one part of a tensor sets, and that leave the rest of it next to nothing.

FEWEST_LEVELS = 4
"""With fewer levels a tensor is a sign at best."""

# Values beyond these shares of a tensor are what may set its scale; those between are the rest.
_REST = (0.005, 0.995)
# A tensor of few values (a mask, a count) needs few levels.
_MANY_VALUES = 16
_MOST_LOOKED_AT = 1 << 18


def level_notes(
    model: Model, quantizers: Sequence[Quantizer], samples: Samples, *, max_memory: int | None = None
) -> tuple[Message, ...]:
    """Which tensors have a scale that leaves nearly all of their values fewer than four levels.

    Args:
        model: The float model that is quantized.
        quantizers: Its quantizers.
        samples: One of them is looked at.
        max_memory: Bytes the process may take.
    """
    whole = {each.tensor: each for each in quantizers if each.kind == "activation" and not each.params.scale.ndim}
    if not whole or not samples.names:
        return ()
    found: dict[str, tuple[int, float]] = {}
    source = LiveSource(model, samples, max_memory=max_memory)
    try:
        for info in source.tensors:
            if info.name in whole and not info.problem:
                levels = levels_left(source.read(info.name, samples.names[0]), whole[info.name])
                if levels is not None and levels < FEWEST_LEVELS:
                    found[info.name] = levels, float(whole[info.name].params.scale)
    finally:
        source.close()
    notes = [
        message("quantize.few_levels", tensor=repr(name), count=levels, scale=f"{scale:.2g}")
        for name, (levels, scale) in list(found.items())[:_LISTED]
    ]
    if len(found) > _LISTED:
        notes.append(message("quantize.few_levels_more", count=len(found) - _LISTED))
    return tuple(notes)


def levels_left(values: Array, quantizer: Quantizer) -> int | None:
    """How many codes the middle 99 % of some values get; None where they are few values anyway."""
    flat = np.asarray(values, np.float64).ravel()
    flat = flat[:: max(1, flat.size // _MOST_LOOKED_AT)]
    flat = flat[np.isfinite(flat)]
    if np.unique(flat[: _MANY_VALUES * _MANY_VALUES]).size < _MANY_VALUES:
        return None
    low, high = np.quantile(flat, _REST)
    middle = flat[(flat >= low) & (flat <= high)]
    return int(np.unique(np.rint(middle / float(quantizer.params.scale))).size)
