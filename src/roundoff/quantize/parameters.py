"""From a plan and what was observed to quantizers with numbers: every scale and zero point is decided here."""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

import numpy as np

from roundoff.core.quant_plan import PlannedQuantizer, QuantPlan
from roundoff.core.quantization import parameters_from_range
from roundoff.core.quantizer import Quantizer, QuantParams, QuantSpec
from roundoff.core.tensors import Array
from roundoff.core.wording import counted
from roundoff.errors import BadInput
from roundoff.graph.load import Model
from roundoff.graph.weights import Weights
from roundoff.quantize.calibration import weight_range

__all__ = ["Numbers", "Ranges", "check_finite", "find_parameters", "planned_with", "weight_parameters"]

Parameters = Mapping[str, QuantParams]

# A note names so many biases.
_LISTED = 5
# Half of what 32 bits hold: products are added to the bias in the same accumulator.
_LARGEST_BIAS = float(2**30)


class Ranges(Protocol):
    """What calibration says of the activations."""

    def range(self, tensors: Sequence[str], spec: QuantSpec, method: str) -> tuple[Array, Array]:
        """Smallest and largest value that codes should cover when these tensors share one scale."""
        ...


@dataclass(frozen=True, slots=True)
class Numbers:
    """The quantizers of a plan with their numbers.

    Attributes:
        quantizers: In the order of the plan.
        notes: Where a number is not what the target's rule alone would give, and why.
    """

    quantizers: tuple[Quantizer, ...]
    notes: tuple[str, ...]


def find_parameters(
    plan: QuantPlan,
    model: Model,
    ranges: Ranges,
    *,
    weights: Parameters,
    options: Mapping[str, float] | None = None,
) -> Numbers:
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
    return Numbers(tuple(planned_with(planned, found[planned.name]) for planned in plan.quantizers), notes)


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
            many = f"{counted(bad, 'value')} that {'is' if bad == 1 else 'are'} NaN or infinite"
            what = f"The {planned.kind} {planned.tensor!r} holds {many}."
            readers = " ".join(f"--set '{consumer.node}=float'" for consumer in planned.consumers)
            raise BadInput(what, fix=f"repair the model, or leave what reads it in float: {readers}")


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
    ranges: Ranges,
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
    return parameters_from_range(low, high, spec)


def _bias_parameters(source: QuantParams, weight: QuantParams) -> QuantParams:
    scale = np.asarray(source.scale * weight.scale, dtype=np.float32)
    return QuantParams(scale, np.zeros(scale.shape, dtype=np.int64))


def _make_room_for_biases(plan: QuantPlan, found: dict[str, QuantParams], weights: Weights) -> tuple[str, ...]:
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
    named = ", ".join(repr(bias) for bias in list(widened)[:_LISTED]) + (", ..." if len(widened) > _LISTED else "")
    what = f"{counted(sum(widened.values()), 'scale')} of weights widened"
    return (f"{what} so that integer biases fit into 32 bits: {named}",)


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
