"""Cross-layer equalization: neighbouring layers share out their channels' ranges, so that one scale serves all.

Which factors are best depends on what noise costs: a channel that is always cut off needs no precision, however
wide its range is. So factors are not taken from ranges alone, but chosen for the least noise that rounding of
weights and activations is expected to leave.
"""

from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from roundoff.core.tensors import Array
from roundoff.core.wording import counted
from roundoff.graph.load import Model
from roundoff.graph.preparation.changes import CannotFold
from roundoff.graph.preparation.draft import named
from roundoff.graph.weights import Weights
from roundoff.quantize.step_options import StepOption
from roundoff.quantize.transforms.grouping import Group, group_layers, magnitudes
from roundoff.quantize.transforms.importance import Importance, importance_of
from roundoff.quantize.transforms.limits import (
    LARGEST_LOGARITHM,
    Bounds,
    bounds_of,
    channel_axis,
    free_bounds,
    with_channel_limits,
)
from roundoff.quantize.transforms.mapping import map_scaling
from roundoff.quantize.transforms.noise import DenseNoise, NoiseTerm, PairedNoise, least_noise
from roundoff.quantize.transforms.participants import participants
from roundoff.quantize.transforms.registry import Job, Transformed, transform
from roundoff.quantize.transforms.rescaling import rescaled, rounded_to_power_of_two
from roundoff.quantize.transforms.scaling_map import Layer, ScalingMap
from roundoff.quantize.transforms.statistics import ChannelStatistics, channel_statistics

__all__ = ["equalize"]

_ROUNDING = 1 / 12
"""Variance of a rounding error, in squared steps."""


@transform(
    "equalize",
    iterations=StepOption(300, "how many steps the search for the factors takes at most", least=1, most=10_000),
    activations=StepOption(True, "whether rounding of activations counts beside that of weights"),
    clip=StepOption(
        "split",
        "what becomes of a Clip such as Relu6: split gives it a limit for each channel by a Min behind it, "
        "observed scales only channels that never reach the limit in the samples, keep scales none behind it",
        words=("split", "observed", "keep"),
    ),
    power_of_two=StepOption(False, "whether factors are powers of two, which keeps float outputs bit for bit"),
)
def equalize(job: Job) -> Transformed:
    """Share out the ranges of channels between the layers that write them and those that read them."""
    found = map_scaling(job.model, job.context.samples, through_limits=job.options["clip"] != "keep")
    groups = [group for group in group_layers(found) if group.writers and _is_wanted(job, group)]
    if not groups:
        return Transformed(job.model, (), (f"equalize: no two layers share channels to scale{_why(found)}",))
    seen = channel_statistics(job.model, job.context, _observed(job, found), title="looking at channels")
    bounds = bounds_of(found, seen) if job.options["clip"] == "observed" else free_bounds(found)
    free = np.zeros(found.size, bool)
    free[[root for group in groups for root in group.roots]] = True
    free &= ~bounds.fixed
    logarithms, before, after = least_noise(
        list(_terms(job, found, seen)),
        free=free,
        low=bounds.low,
        high=np.full(found.size, LARGEST_LOGARITHM),
        iterations=int(job.options["iterations"]),
    )
    factors = {int(root): float(np.exp(logarithms[root])) for root in np.flatnonzero(free & (logarithms != 0))}
    if job.options["power_of_two"]:
        factors = rounded_to_power_of_two(factors)
    notes = [f"equalize: expected noise down to {after / before:.2g} of what it was"] if before else []
    notes += _notes(job, found, groups, bounds)
    return _changed(job, found, factors, notes=notes)


def _changed(job: Job, found: ScalingMap, factors: Mapping[int, float], *, notes: list[str]) -> Transformed:
    try:
        model: Model = rescaled(job.model, found, factors)
    except CannotFold as reason:
        return Transformed(job.model, (), (*notes, f"equalize: nothing was changed, because {reason}"))
    taken = participants(found, factors)
    if job.options["clip"] == "split":
        model, split = with_channel_limits(model, found, factors)
        if split:
            notes.append(
                f"equalize: limits for each channel, by a Min which a chip computes as one more operation, behind "
                f"{counted(len(split), 'Clip')}: {named(list(split))}"
            )
    return Transformed(model, taken, tuple(notes))


def _is_wanted(job: Job, group: Group) -> bool:
    return not job.nodes or bool(job.nodes & {layer.node for layer in (*group.layers, *group.writers)})


def _observed(job: Job, found: ScalingMap) -> dict[str, int]:
    """Tensors whose channels must be looked at, each with their axis."""
    wanted = {layer.source: layer.axis for layer in found.layers}
    if job.options["clip"] == "observed":
        wanted |= {limit.source: axis for limit in found.limits if (axis := channel_axis(limit)) is not None}
    return wanted


def _terms(job: Job, found: ScalingMap, seen: Mapping[str, ChannelStatistics]) -> Iterator[NoiseTerm]:
    """The noise of all weights and, if asked for, of all tensors between them."""
    weights, target = Weights(job.model), job.context.target
    importance = importance_of(found, weights, seen)
    steps = float(target.weights[target.weight].code_max)
    for layer in found.layers:
        yield from weight_noise(
            found,
            layer,
            weights[layer.weight],
            importance=importance,
            unit=_ROUNDING / steps**2,
            per_output=layer.op_type in target.weight_axes,
        )
    if job.options["activations"]:
        spec = target.activations[target.activation]
        unit = _ROUNDING / float(spec.code_max - spec.code_min) ** 2
        for source, inputs in {layer.source: layer.inputs for layer in found.layers}.items():
            roots, channels = found.roots(inputs), seen[source]
            extent = np.maximum(channels.high, 0) - np.minimum(channels.low, 0)
            yield PairedNoise(extent, np.zeros_like(roots), roots, unit * importance.channel[roots])
        # In front of limits for each channel stands a tensor that only the widest of them cuts off.
        for limit in found.limits if job.options["clip"] == "split" else ():
            roots = found.roots(limit.channels).ravel()
            extent = np.full(roots.size, sum(abs(end) for end in (limit.low, limit.high) if np.isfinite(end)))
            yield PairedNoise(extent, np.zeros_like(roots), roots, unit * importance.channel[roots])


def weight_noise(
    found: ScalingMap, layer: Layer, weight: Array, *, importance: Importance, unit: float, per_output: bool
) -> Iterator[NoiseTerm]:
    """The noise that rounding a weight puts into a network.

    Args:
        found: The map.
        layer: The layer.
        weight: Its weight.
        importance: What noise counts.
        unit: Noise of a step, when the largest magnitude is 1.
        per_output: Whether each output channel has a scale of its own.
    """
    matrix, reads, writes = magnitudes(weight), found.roots(layer.reads), found.roots(layer.writes)
    energy, counts = importance.energy[layer.node], importance.at_result[layer.node]
    taps = max(weight[0, 0].size, 1) if weight.size else 1
    if (layer.reads == layer.reads[:, :1]).all() and layer.reads.shape[1] > 1:
        # Inputs along the first axis, as of a matrix that is multiplied from the right.
        matrix, reads, writes, energy, counts = (each.T for each in (matrix, reads, writes, energy, counts))
    by_row = bool((writes == writes[:, :1]).all())
    groups = np.unique(np.concatenate([reads, energy.view(np.int64)], axis=1), axis=0, return_inverse=True)[1]
    groups = groups.reshape(-1)
    if not by_row or (groups.any() and not per_output):
        yield PairedNoise(matrix, reads, writes, unit * taps * energy * counts)
        return
    # Where a single input makes an output that has a scale of its own, factors change nothing.
    for group in range(int(groups.max(initial=-1)) + 1 if matrix.shape[1] > 1 or not per_output else 0):
        own = groups == group
        yield DenseNoise.of(
            matrix[own],
            inputs=reads[own][0],
            outputs=writes[own, 0],
            energy=unit * taps * energy[own][0],
            gain=counts[own, 0],
            per_output=per_output,
        )


def _notes(job: Job, found: ScalingMap, groups: Sequence[Group], bounds: Bounds) -> Iterator[str]:
    roots = np.array([root for group in groups for root in group.roots])
    if found.limits and job.options["clip"] == "observed":
        cut = int(np.count_nonzero(bounds.fixed[roots]))
        yield (
            f"equalize: {cut} of {counted(roots.size, 'channel')} reach the limit of a Clip and keep their scale; "
            f"the others stay below it in all {counted(len(job.context.samples.names), 'sample')}, and only there "
            "is it known that nothing changes"
        )
    alone = [layer.node for layer in found.layers if not _shares(layer, groups)]
    if alone and not job.nodes:
        yield f"equalize: {counted(len(alone), 'layer')} share no channels to scale: {named(alone)}{_why(found)}"


def _why(found: ScalingMap) -> str:
    """What holds channels fast, if anything does."""
    if not found.blocked:
        return ""
    first, more = next(iter(found.blocked.values())), len(found.blocked) - 1
    return f"; channels are held fast where {first}" + (f", and in {counted(more, 'more place')}" if more else "")


def _shares(layer: Layer, groups: Sequence[Group]) -> bool:
    return any(layer is each for group in groups for each in (*group.layers, *group.writers))
