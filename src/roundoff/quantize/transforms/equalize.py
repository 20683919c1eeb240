"""Cross-layer equalization: neighbouring layers share out their channels' ranges, so that one scale serves all."""

from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from roundoff.core.tensors import Array
from roundoff.core.wording import counted
from roundoff.graph.preparation.changes import CannotFold
from roundoff.graph.preparation.draft import named
from roundoff.graph.weights import Weights
from roundoff.quantize.step_options import StepOption
from roundoff.quantize.transforms.balancing import Side, balanced
from roundoff.quantize.transforms.grouping import Group, group_layers, magnitudes
from roundoff.quantize.transforms.limits import Bounds, bounds_of, channel_axis
from roundoff.quantize.transforms.mapping import map_scaling
from roundoff.quantize.transforms.participants import participants
from roundoff.quantize.transforms.registry import Job, Transformed, transform
from roundoff.quantize.transforms.rescaling import rescaled, rounded_to_power_of_two
from roundoff.quantize.transforms.scaling_map import Layer, ScalingMap
from roundoff.quantize.transforms.statistics import ChannelRange, channel_ranges

__all__ = ["equalize"]


@transform(
    "equalize",
    iterations=StepOption(50, "how often all layers are gone through at most", least=1, most=1000),
    activations=StepOption(True, "whether ranges of activations count beside those of weights"),
    clip=StepOption(
        "observed",
        "whether channels behind a Clip such as Relu6 are scaled whose values never reach its limits in the samples",
        words=("observed", "keep"),
    ),
    power_of_two=StepOption(False, "whether factors are powers of two, which keeps float outputs bit for bit"),
)
def equalize(job: Job) -> Transformed:
    """Balance the ranges of channels between the layers that write them and those that read them."""
    found = map_scaling(job.model, job.context.samples, through_limits=job.options["clip"] == "observed")
    groups = [group for group in group_layers(found) if group.writers and _is_wanted(job, group)]
    if not groups:
        return Transformed(job.model, (), ("equalize: no two layers share channels that can be scaled",))
    ranges = channel_ranges(job.model, job.context, _observed(job, found, groups))
    bounds = bounds_of(found, ranges)
    free = [roots[~bounds.fixed[roots]] for roots in (np.array(group.roots) for group in groups)]
    sides = list(_sides(job, found, ranges))
    logarithms = balanced(free, sides, low=bounds.low, iterations=int(job.options["iterations"]))
    factors = {int(root): float(np.exp(logarithms[root])) for roots in free for root in roots}
    if job.options["power_of_two"]:
        factors = rounded_to_power_of_two(factors)
    notes = tuple(_notes(job, found, groups, bounds))
    try:
        return Transformed(rescaled(job.model, found, factors), participants(found, factors), notes)
    except CannotFold as reason:
        return Transformed(job.model, (), (*notes, f"equalize: nothing was changed, because {reason}"))


def _is_wanted(job: Job, group: Group) -> bool:
    return not job.nodes or bool(job.nodes & {layer.node for layer in (*group.layers, *group.writers)})


def _observed(job: Job, found: ScalingMap, groups: Sequence[Group]) -> dict[str, int]:
    """Tensors whose channels must be looked at, each with their axis."""
    wanted = {limit.source: axis for limit in found.limits if (axis := channel_axis(limit)) is not None}
    if job.options["activations"]:
        wanted |= {layer.source: layer.axis for group in groups for layer in group.layers}
    return wanted


def _sides(job: Job, found: ScalingMap, ranges: Mapping[str, ChannelRange]) -> Iterator[Side]:
    """All weights and, if asked for, all tensors between them."""
    weights, axes = Weights(job.model), job.context.target.weight_axes
    for layer in found.layers:
        times, over = found.roots(layer.reads), found.roots(layer.writes)
        rows = None
        if layer.op_type in axes:
            # Each output channel has a scale of its own, which a factor on it does not change.
            rows = np.unique(layer.writes, return_inverse=True)[1].reshape(layer.writes.shape)
            over = np.zeros_like(over)
        yield Side(magnitudes(weights[layer.weight]), times, over, rows)
    if job.options["activations"]:
        for source, channels in {layer.source: layer.inputs for layer in found.layers}.items():
            if source in ranges:
                low, high = ranges[source]
                roots = found.roots(channels)
                yield Side(np.maximum(-low, high), np.zeros_like(roots), roots)


def _notes(job: Job, found: ScalingMap, groups: Sequence[Group], bounds: Bounds) -> Iterator[str]:
    roots = np.array([root for group in groups for root in group.roots])
    if found.limits:
        cut = int(np.count_nonzero(bounds.fixed[roots]))
        yield (
            f"equalize: {cut} of {counted(roots.size, 'channel')} reach the limit of a Clip and keep their scale; "
            f"the others stay below it in all {counted(len(job.context.samples.names), 'sample')}, and only there "
            "is it known that nothing changes"
        )
    alone = [layer.node for layer in found.layers if not _shares(found, layer, groups)]
    if alone and not job.nodes:
        yield f"equalize: {counted(len(alone), 'layer')} share no channels that can be scaled: {named(alone)}"
    blocked = list(found.blocked.items())
    if blocked and not job.nodes:
        yield f"equalize: channels are held fast where {blocked[0][1]}" + (
            f", and in {counted(len(blocked) - 1, 'more place')}" if len(blocked) > 1 else ""
        )


def _shares(found: ScalingMap, layer: Layer, groups: Sequence[Group]) -> bool:
    return any(layer is each for group in groups for each in (*group.layers, *group.writers))
