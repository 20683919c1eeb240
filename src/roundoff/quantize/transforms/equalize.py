"""Cross-layer equalization: neighbouring layers share out their channels' ranges, so that one scale serves all.

Which factors are best depends on what noise costs: a channel that is always cut off needs no precision, however
wide its range is. So factors are not taken from ranges alone, but chosen for the least noise that rounding of
weights and activations is expected to leave.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np

from roundoff.core.tensors import Array
from roundoff.graph.draft import MOST_NAMED, CannotFold
from roundoff.graph.load import Model
from roundoff.graph.weights import Weights
from roundoff.messages.message import Message, joined, message, some
from roundoff.quantize.steps import StepOption, StepOutcome, Transformed, TransformJob, transform
from roundoff.quantize.transforms.factors import (
    LARGEST_LOGARITHM,
    Bounds,
    ChannelStatistics,
    Group,
    bounds_of,
    channel_axis,
    channel_statistics,
    free_bounds,
    group_layers,
    magnitudes,
    participants,
    rescaled,
    rounded_to_power_of_two,
    with_channel_limits,
)
from roundoff.quantize.transforms.rules import map_scaling
from roundoff.quantize.transforms.scaling_map import ScaledLayer, ScalingMap

# How much noise rounding puts into a network, as a function of the factors of its channels.
#
# Rounding to steps leaves an error of variance step^2 / 12, and a step is in proportion to the largest magnitude
# that shares it. In the logarithms of the factors the noise of all scales together is convex (a sum of products of
# powers), so that its least value is found by walking downhill. The largest magnitude is replaced by a power mean,
# which has a slope everywhere.

_POWER = 16
"""Of the mean that stands for the largest magnitude: at 16, thousands of equal ones count as 1.7 of them."""

# Adam, with steps that become shorter to the end.
_FIRST_STEP, _DECAY, _SQUARE_DECAY = 0.3, 0.9, 0.99
# The search ends when so many steps together have brought less than this share.
_PATIENCE, _WORTHWHILE = 25, 1e-3
_TINY = float(np.finfo(np.float64).tiny)
# So much of a weight is looked at in one go: it stays in the second cache of any machine.
_ROWS_BYTES = 1 << 17


class NoiseTerm(Protocol):
    """The noise of one scale."""

    def add_to(self, logarithms: Array, slope: Array) -> float:
        """The noise at factors whose logarithms are given; adds its slope to another array."""
        ...


class SlopePlaces:
    """Where values are added to a slope; only the channels concerned are touched.

    Args:
        channels: The channel of each value.
    """

    def __init__(self, channels: Array) -> None:
        self._channels, self._places = np.unique(channels.ravel(), return_inverse=True)

    def add(self, slope: Array, values: Array) -> None:
        """Add a value for each."""
        slope[self._channels] += np.bincount(self._places, values.ravel(), self._channels.size)


@dataclass(frozen=True, slots=True, eq=False)
class PairedNoise:
    """Noise of values that share one scale, each of which arises between one channel and one other.

    Attributes:
        magnitudes: Magnitudes of the values.
        times: Channels by whose factors they are multiplied, of the same shape.
        over: Channels by whose factors they are divided.
        cost: What a squared unit of the step costs at each of them, before anything is scaled.
    """

    magnitudes: Array
    times: Array
    over: Array
    cost: Array
    _slopes: tuple[SlopePlaces, SlopePlaces] = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "_slopes", (SlopePlaces(self.times), SlopePlaces(self.over)))

    def add_to(self, logarithms: Array, slope: Array) -> float:
        """See `NoiseTerm`."""
        # Noise = step^2 x cost. The step follows the largest scaled magnitude, as a power mean that has a slope;
        # the cost of a unit of noise falls with the square of the same factor, which is divided out behind it.
        ratio = np.exp(logarithms[self.times] - logarithms[self.over])
        scaled = self.magnitudes * ratio
        top = float(scaled.max(initial=0.0))
        if not top:
            return 0.0
        shares = (scaled / top) ** _POWER
        total = float(shares.sum())
        costs = self.cost / ratio**2
        cost = float(costs.sum())
        value = (top * total ** (1 / _POWER)) ** 2 * cost
        if value:
            # Slope by the logarithm of each ratio: its share of the step, less its share of the cost.
            push = 2 * value * (shares / total - costs / cost)
            times, over = self._slopes
            times.add(slope, push)
            over.add(slope, -push)
        return float(value)


@dataclass(frozen=True, slots=True, eq=False)
class DenseNoise:
    """Noise of a weight through which every input channel reaches every output channel.

    Attributes:
        powers: Magnitudes over their largest, to the power of the mean, [outputs, inputs].
        largest: The largest magnitude.
        inputs: Channels it reads, [inputs].
        outputs: Channels it writes, [outputs].
        energy: What a squared unit of the step costs by each input, [inputs].
        gain: How much a unit of noise in each output counts, [outputs].
        per_output: Whether each output has a scale of its own.
    """

    powers: Array
    largest: float
    inputs: Array
    outputs: Array
    energy: Array
    gain: Array
    per_output: bool
    _slopes: tuple[SlopePlaces, SlopePlaces] = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "_slopes", (SlopePlaces(self.inputs), SlopePlaces(self.outputs)))

    @staticmethod
    def of(
        magnitudes: Array, *, inputs: Array, outputs: Array, energy: Array, gain: Array, per_output: bool
    ) -> "DenseNoise":
        """The noise of a weight with these magnitudes, [outputs, inputs]."""
        largest = float(magnitudes.max(initial=0.0))
        # Half the memory of float64; what is too small for float32 at this power is no largest magnitude.
        powers = ((magnitudes / (largest or 1.0)) ** _POWER).astype(np.float32)
        return DenseNoise(powers, largest, inputs, outputs, energy, gain, per_output)

    def add_to(self, logarithms: Array, slope: Array) -> float:
        """See `NoiseTerm`."""
        into, out = np.exp(logarithms[self.inputs]), np.exp(logarithms[self.outputs])
        energies, gains = self.energy / into**2, self.gain * out**2
        energy = float(energies.sum())
        # The scaled weight is w x into / out, so that its power sums are a matrix product: no scaled copy is made.
        # What comes back is one, too, of the same rows while they are in the cache.
        far, unit = into**_POWER, 1 / out**_POWER
        by_output, costs, back = np.empty(out.size), np.empty(out.size), np.zeros(into.size)
        count = max(1, _ROWS_BYTES // (8 * max(1, into.size)))
        for rows in (slice(at, at + count) for at in range(0, out.size, count)):
            powers = self.powers[rows].astype(np.float64)
            by_output[rows] = powers @ far * unit[rows]
            pushed = unit[rows]
            if self.per_output:
                costs[rows] = self._cost(by_output[rows], gains[rows])
                pushed = pushed * _ratio(costs[rows], by_output[rows])
            back += pushed @ powers
        shared = by_output if self.per_output else np.full(out.size, by_output.sum())
        if not self.per_output:
            costs = self._cost(shared, gains)
            back *= _ratio(costs.sum(), shared[:1]) if out.size else 1.0
        value = float(costs.sum()) * energy
        if not value:
            return 0.0
        shares = _ratio(costs if self.per_output else costs.sum(), shared)
        inputs, outputs = self._slopes
        inputs.add(slope, 2 * energy * back * far - 2 * value / energy * energies)
        outputs.add(slope, 2 * energy * (costs - shares * by_output))
        return value

    def _cost(self, shared: Array, gains: Array) -> Array:
        """What the squared step of each output costs."""
        return np.asarray(shared ** (2 / _POWER) * self.largest**2 * gains)


def _ratio(costs: Array, shared: Array) -> Array:
    """Costs over power sums; nothing where there is none."""
    return np.asarray(np.where(shared > 0, costs, 0.0) / np.where(shared > 0, shared, 1.0))


def least_noise(
    terms: Sequence[NoiseTerm], *, free: Array, low: Array, high: Array, iterations: int
) -> tuple[Array, float, float]:
    """Find the factors that leave the least noise.

    Args:
        terms: The noise of all scales.
        free: Which channels may be scaled, bool of all that there are.
        low: Least logarithm of the factor of each.
        high: Largest logarithm of each.
        iterations: Steps at most.

    Returns:
        Logarithms of the factors, the noise when all are 1, and the least noise.
    """
    now = np.zeros(free.size)
    best, first, least = now, 0.0, np.inf
    mean, square = np.zeros(free.size), np.zeros(free.size)
    record = []
    for step in range(1, iterations + 1):
        slope = np.zeros(free.size)
        noise = sum(term.add_to(now, slope) for term in terms)
        if step == 1:
            first = noise
        if noise < least:
            best, least = now, noise
        record.append(least)
        if len(record) > _PATIENCE and least > (1 - _WORTHWHILE) * record[-_PATIENCE - 1]:
            break
        # Of the logarithm of the noise: then it does not matter how loud the network is.
        slope = np.where(free, slope / max(noise, _TINY), 0.0)
        mean = _DECAY * mean + (1 - _DECAY) * slope
        square = _SQUARE_DECAY * square + (1 - _SQUARE_DECAY) * slope**2
        length = np.sqrt(square / (1 - _SQUARE_DECAY**step)) + _TINY
        rate = _FIRST_STEP * (1 - step / (iterations + 1)) / (1 - _DECAY**step)
        now = np.where(free, np.clip(now - rate * mean / length, low, high), 0.0)
    return best, first, least


# How much noise in each channel counts: its power at the next place where channels cannot be followed further.
#
# Noise goes through a layer with the squares of its weights, and through an activation only where that is not
# flat. Where it ends, at an output or in front of something else than a layer, it is set against the energy there.


class Importance:
    """What noise counts.

    Attributes:
        channel: In each channel, [size].
        at_result: Of each layer, in what it computes, by place of the first two axes of its weight.
        energy: Of each layer, the energy of the input at each of these places.
    """

    channel: Array
    at_result: dict[str, Array]
    energy: dict[str, Array]

    def __init__(self, size: int) -> None:
        self.channel, self.at_result, self.energy = np.zeros(size), {}, {}


def importance_of(found: ScalingMap, weights: Weights, seen: Mapping[str, ChannelStatistics]) -> Importance:
    """Follow noise backwards through all layers.

    Args:
        found: The map.
        weights: The weights.
        seen: What was seen of the tensors that layers read.
    """
    result = Importance(found.size)
    alive = _alive(found, seen)
    for layer in reversed(found.layers):
        values = weights[layer.weight].astype(np.float64)
        squares = np.square(values).reshape(*values.shape[:2], -1).sum(axis=-1)
        energy = _by_place(found, layer, seen[layer.source].energy)
        reads, writes = found.roots(layer.reads), found.roots(layer.writes)
        outputs = np.unique(layer.writes).size
        power = float((squares * energy).sum()) / max(outputs, 1)
        # Where channels cannot be followed further, noise is set against the energy of what is computed there.
        ends = (writes == 0) | (result.channel[writes] == 0)
        counts = np.where(ends, 1 / power if power else 0.0, result.channel[writes] * alive[writes])
        result.at_result[layer.node], result.energy[layer.node] = counts, energy
        reached = np.bincount(reads.ravel(), (squares * counts).ravel(), found.size)
        reached[0] = 0.0
        result.channel += reached
    return result


def _alive(found: ScalingMap, seen: Mapping[str, ChannelStatistics]) -> Array:
    """The share of its values in which each channel is not held at zero, or at its largest value."""
    share = np.zeros(found.size)
    for layer in found.layers:
        np.maximum.at(share, found.roots(layer.inputs), seen[layer.source].moving)
    return share


def _by_place(found: ScalingMap, layer: ScaledLayer, energy: Array) -> Array:
    """The energy of the input that each place of a weight reads."""
    sums = np.bincount(layer.inputs, energy, found.size)
    counts = np.bincount(layer.inputs, minlength=found.size)
    return np.asarray((sums / np.maximum(counts, 1))[layer.reads])


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
def equalize(job: TransformJob) -> Transformed:
    """Share out the ranges of channels between the layers that write them and those that read them."""
    found = map_scaling(job.model, job.context.samples, through_limits=job.options["clip"] != "keep")
    groups = [group for group in group_layers(found) if group.writers and _is_wanted(job, group)]
    if not groups:
        return StepOutcome(job.model, (), (_held(message("quantize.equalize_no_pair"), found),))
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
    notes = [message("quantize.equalize_noise", share=f"{after / before:.2g}")] if before else []
    notes += _notes(job, found, groups, bounds)
    return _changed(job, found, factors, notes=notes)


def _changed(
    job: TransformJob, found: ScalingMap, factors: Mapping[int, float], *, notes: list[Message]
) -> Transformed:
    try:
        model: Model = rescaled(job.model, found, factors)
    except CannotFold as reason:
        return StepOutcome(
            job.model, (), (*notes, message("quantize.step_unchanged", step="equalize", why=str(reason)))
        )
    taken = participants(found, factors)
    if job.options["clip"] == "split":
        model, split = with_channel_limits(model, found, factors)
        if split:
            names = some(list(split), MOST_NAMED, quoted=True)
            notes.append(message("quantize.equalize_limits", count=len(split), names=names))
    return StepOutcome(model, taken, tuple(notes))


def _is_wanted(job: TransformJob, group: Group) -> bool:
    return not job.nodes or bool(job.nodes & {layer.node for layer in (*group.layers, *group.writers)})


def _observed(job: TransformJob, found: ScalingMap) -> dict[str, int]:
    """Tensors whose channels must be looked at, each with their axis."""
    wanted = {layer.source: layer.axis for layer in found.layers}
    if job.options["clip"] == "observed":
        wanted |= {limit.source: axis for limit in found.limits if (axis := channel_axis(limit)) is not None}
    return wanted


def _terms(job: TransformJob, found: ScalingMap, seen: Mapping[str, ChannelStatistics]) -> Iterator[NoiseTerm]:
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
    found: ScalingMap, layer: ScaledLayer, weight: Array, *, importance: Importance, unit: float, per_output: bool
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
    rows = np.concatenate([reads, energy.view(np.int64)], axis=1)
    groups = np.zeros(len(rows), np.int64)
    if (rows != rows[:1]).any():
        groups = np.unique(rows, axis=0, return_inverse=True)[1].reshape(-1)
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


def _notes(job: TransformJob, found: ScalingMap, groups: Sequence[Group], bounds: Bounds) -> Iterator[Message]:
    roots = np.array([root for group in groups for root in group.roots])
    if found.limits and job.options["clip"] == "observed":
        cut = int(np.count_nonzero(bounds.fixed[roots]))
        samples = len(job.context.samples.names)
        yield message("quantize.equalize_cut", cut=cut, count=int(roots.size), samples=samples)
    alone = [layer.node for layer in found.layers if not _shares(layer, groups)]
    if alone and not job.nodes:
        names = some(alone, MOST_NAMED, quoted=True)
        yield _held(message("quantize.equalize_alone", count=len(alone), names=names), found)


def _held(text: Message, found: ScalingMap) -> Message:
    """A note, and what holds channels fast, if anything does."""
    if not found.blocked:
        return text
    first, more = next(iter(found.blocked.values())), len(found.blocked) - 1
    key = "quantize.channels_held_more" if more else "quantize.channels_held"
    return joined((text, message(key, first=first, **({"count": more} if more else {}))))


def _shares(layer: ScaledLayer, groups: Sequence[Group]) -> bool:
    return any(layer is each for group in groups for each in (*group.layers, *group.writers))
