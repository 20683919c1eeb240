"""What may be done otherwise than a target does by default, within what it allows."""

from collections.abc import Iterable
from dataclasses import replace

from roundoff.core.target import Target
from roundoff.errors import BadInput, nearest
from roundoff.graph.load import Model

__all__ = ["PER_CHANNEL", "SHARED_SCALE", "possible_variations", "varied_target"]

PER_CHANNEL = "per_channel"
"""Weights have a scale per slice wherever the target can have one."""

SHARED_SCALE = "shared_scale:"
"""With an op type behind it: inputs and output of these operations share one scale, and are not rounded twice."""

_ALIGNED = ("Add", "Concat")


def possible_variations(target: Target, model: Model) -> tuple[str, ...]:
    """The variations that would change something in a model, cheap ones first."""
    used = {node.op_type for node in model.proto.graph.node}
    more = {op: axis for op, axis in target.weight_axes_possible.items() if target.weight_axes.get(op) != axis}
    found = [PER_CHANNEL] if used & set(more) else []
    if not target.float_results:
        tied = target.shared_scale | target.pass_through
        found += [SHARED_SCALE + op for op in _ALIGNED if op in used & target.quantized_ops and op not in tied]
    return tuple(found)


def varied_target(target: Target, variations: Iterable[str]) -> Target:
    """A target that does some things otherwise.

    Raises:
        BadInput: There is no such variation, or the target does not allow it.
    """
    for variation in variations:
        if variation == PER_CHANNEL and target.weight_axes_possible:
            target = replace(target, weight_axes={**target.weight_axes, **target.weight_axes_possible})
        elif variation.startswith(SHARED_SCALE) and not target.float_results:
            op = variation.removeprefix(SHARED_SCALE)
            if op not in target.quantized_ops:
                what = f"The target {target.name!r} has no integer version of {op!r} to share scales of."
                raise BadInput(what, fix=nearest(op, target.quantized_ops))
            target = replace(target, shared_scale=target.shared_scale | {op})
        else:
            what = f"The target {target.name!r} does not allow the variation {variation!r}."
            fix = f"leave it out; weight_axes_possible in a target file allows {PER_CHANNEL}"
            raise BadInput(what, fix=fix)
    return target
