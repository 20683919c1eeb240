"""SmoothQuant: the outliers of activations go into the weights behind them, which have room for them."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from roundoff.core.tensors import Array
from roundoff.graph.draft import MOST_NAMED, Assembly, CannotFold
from roundoff.graph.load import Model, inside_bytes
from roundoff.graph.weights import Weights
from roundoff.messages.message import Message, message, some
from roundoff.quantize.steps import StepOption, StepOutcome, Transformed, TransformJob, transform
from roundoff.quantize.transforms.factors import (
    Group,
    channel_statistics,
    group_layers,
    magnitudes,
    participants,
    rescaled,
    rounded_to_power_of_two,
)
from roundoff.quantize.transforms.rules import map_scaling
from roundoff.quantize.transforms.scaling_map import ScaledLayer, ScalingMap

# How much of the difficulty of a product goes from its activations into its weights.

LARGEST_FACTOR = 1e3
"""Factors stay between this and one over it, against their geometric mean: beyond, floats of 16 bits overflow."""

_STRENGTHS = tuple(np.arange(0.3, 0.86, 0.05).round(2).tolist())
# Values of a channel are taken for normal, with their largest at three times their spread.
_PEAK_TO_SPREAD = 3.0


@dataclass(frozen=True, slots=True, eq=False)
class ChannelReader:
    """A layer that reads channels.

    Attributes:
        channels: Which channel each of its inputs is, int64 [K]; -1 for those that cannot be scaled.
        peaks: Largest magnitude of each input, float64 [K].
        reads: The channel that each place of the weight reads, int64 of the shape of its first two axes.
        matrix: Largest magnitude of the weight at each of these places, of the same shape.
        rows: The output channel of each place, of the same shape.
    """

    channels: Array
    peaks: Array
    reads: Array
    matrix: Array
    rows: Array


@dataclass(frozen=True, slots=True, eq=False)
class Balance:
    """Channels that are scaled together, and who reads them.

    Attributes:
        count: Number of channels, which are counted from 0.
        readers: Who reads them.
        per_channel: Whether weights have a scale for each output channel.
    """

    count: int
    readers: tuple[ChannelReader, ...]
    per_channel: bool

    def largest(self, *, weights: bool) -> Array:
        """Largest magnitude of each channel in what is read, or in the weights of all who read it."""
        found = np.zeros(self.count + 1)
        for reader in self.readers:
            places, values = (reader.reads, reader.matrix) if weights else (reader.channels, reader.peaks)
            np.maximum.at(found, places.ravel(), values.ravel())
        return found[:-1]


def smoothing_factors(balance: Balance, alpha: float) -> Array:
    """What each channel is divided by: ``max|X|^alpha / max|W|^(1 - alpha)``, of geometric mean 1.

    Channels in which nothing happens, or which nobody weighs, have the factor 1.
    """
    activations, weights = balance.largest(weights=False), balance.largest(weights=True)
    alive = (activations > 0) & (weights > 0)
    factors = np.ones(balance.count)
    if not alive.any():
        return factors
    # Factors are relative: a common one changes no rounding error, so that their geometric mean is made 1.
    logarithms = alpha * np.log(activations[alive]) - (1 - alpha) * np.log(weights[alive])
    logarithms -= logarithms.mean()
    factors[alive] = np.exp(np.clip(logarithms, -np.log(LARGEST_FACTOR), np.log(LARGEST_FACTOR)))
    return factors


def best_alpha(balance: Balance) -> float:
    """The migration strength with the least noise in the results, as far as largest magnitudes tell."""
    return float(min(_STRENGTHS, key=lambda alpha: expected_noise(balance, smoothing_factors(balance, alpha))))


def expected_noise(balance: Balance, factors: Array) -> float:
    """Energy of rounding errors in what all readers compute, against the energy of what they compute.

    Rounding a value to steps leaves an error of variance step^2 / 12; steps are in proportion to the largest
    magnitude that has one scale. Activations have one scale.
    """
    scale = np.append(factors, 1.0)
    total = 0.0
    for reader in balance.readers:
        peaks = reader.peaks / scale[reader.channels]
        weight = reader.matrix * scale[reader.reads]
        # What each place of the weight is multiplied with, as a spread.
        table = np.zeros(scale.size)
        np.maximum.at(table, reader.channels, peaks)
        spread = table[reader.reads] / _PEAK_TO_SPREAD
        largest = np.full(int(reader.rows.max()) + 1, weight.max())
        if balance.per_channel:
            largest = np.zeros(largest.size)
            np.maximum.at(largest, reader.rows.ravel(), weight.ravel())
        # Two sources, each in squared steps: rounded activations are multiplied with all of the weight, and have
        # one step; rounded weights are multiplied with the activations, with a step for each row or one for all.
        # The common 1 / 12 and the number of codes do not change which factors are best.
        signal = float(np.square(weight * spread).sum())
        by_activations = float(np.square(weight).sum()) * float(peaks.max(initial=0.0)) ** 2
        by_weights = float((np.square(largest)[reader.rows] * np.square(spread)).sum())
        total += (by_activations + by_weights) / signal if signal else 0.0
    return total


# A multiplication by ones in front of layers: a place for factors where nothing else can take them up.

_SOURCE, _WEIGHT = 0, 1


def insert_gains(model: Model, layers: Sequence[ScaledLayer]) -> tuple[Model, Mapping[str, str]]:
    """Let layers read their inputs through a Mul with a constant of ones, one for each tensor.

    Args:
        model: The model; it is not changed.
        layers: The layers.

    Returns:
        The model, and for each new tensor the one it is made of.
    """
    graph = Assembly(model)
    for tensor in model.proto.graph.initializer:
        graph.add_tensor(tensor)
    by_node = {layer.node: layer for layer in layers}
    through: dict[str, str] = {}
    for node in model.proto.graph.node:
        layer = by_node.get(node.name)
        if layer is not None and layer.source not in through:
            through[layer.source] = _gain(graph, model, layer)
        copy = graph.copy_node(node)
        if layer is not None:
            copy.input[_SOURCE] = through[layer.source]
    graph.proto.graph.value_info.extend(model.proto.graph.value_info)
    made = Model(graph.proto, model.path, inside_bytes(graph.proto))
    return made, {new: old for old, new in through.items()}


def _gain(graph: Assembly, model: Model, layer: ScaledLayer) -> str:
    # On the last axis a plain vector will do; behind axis 1 there are others.
    weight = Weights(model)
    behind = len(weight.shape(layer.weight)) - 2 if layer.op_type not in ("MatMul", "Gemm") else 0
    dtype = weight[layer.weight].dtype
    ones = graph.add_constant(np.ones((layer.inputs.size, *(1,) * behind), dtype), f"{layer.source}_factors")
    result = graph.free_tensor(f"{layer.source}_smoothed")
    graph.add_node("Mul", [layer.source, ones], result, name=f"{layer.node}_smooth")
    return result


@transform(
    "smooth",
    alpha=StepOption(
        0.5,
        "the share of the difficulty that goes from activations into weights",
        least=0.0,
        most=1.0,
        words=("auto",),
    ),
    threshold=StepOption(
        0.5,
        "the median of a tensor's channel maxima over their largest, below which it takes part",
        least=0.0,
        most=1.0,
    ),
    power_of_two=StepOption(False, "whether factors are powers of two, which keeps float outputs bit for bit"),
    insert=StepOption(False, "whether a Mul is inserted where nothing in front can take up the factors"),
)
def smooth(job: TransformJob) -> Transformed:
    """Move outliers of activations into the weights that read them (SmoothQuant)."""
    found = map_scaling(job.model, job.context.samples)
    free = [layer for layer in found.layers if found.roots(layer.inputs).any()]
    rest = [layer for layer in found.layers if layer not in free]
    looked_at = [*free, *rest] if job.options["insert"] else free
    looked_at = [layer for layer in looked_at if layer.inputs.size > 1]
    if not looked_at:
        return StepOutcome(job.model, (), (message(f"quantize.smooth_no_{'room' if found.layers else 'layer'}"),))
    axes = {layer.source: layer.axis for layer in looked_at}
    seen = channel_statistics(job.model, job.context, axes, title="looking at channels")
    peaks = {name: channels.peak for name, channels in seen.items()}
    chosen = _chosen(job, looked_at, peaks)
    model, notes = job.model, _notes(job, found, rest, chosen)
    places = [layer for layer in rest if layer.node in chosen]
    if places and job.options["insert"]:
        model, made = insert_gains(model, places)
        peaks |= {new: peaks[old] for new, old in made.items()}
        values = sum(seen[old].count.sum() for old in made.values()) / max(len(job.context.samples.names), 1)
        notes.append(message("quantize.smooth_inserted", count=len(made), values=f"{values:,.0f}"))
        found = map_scaling(model, job.context.samples)
    factors: dict[int, float] = {}
    strengths = []
    for group in group_layers(found):
        if any(layer.node in chosen for layer in group.layers):
            balance = _balance(found, group, peaks, weights=Weights(model), job=job)
            alpha = job.options["alpha"]
            strengths.append(best_alpha(balance) if alpha == "auto" else float(alpha))
            values = smoothing_factors(balance, strengths[-1])
            factors |= dict(zip(group.roots, values.tolist(), strict=True))
    if job.options["alpha"] == "auto" and strengths:
        low, high = f"{min(strengths):g}", f"{max(strengths):g}"
        notes.append(message("quantize.smooth_strengths", low=low, high=high))
    return _rescaled(job, model, found, factors, notes=notes)


def _rescaled(
    job: TransformJob, model: Model, found: ScalingMap, factors: dict[int, float], *, notes: list[Message]
) -> Transformed:
    if job.options["power_of_two"]:
        factors = rounded_to_power_of_two(factors)
    try:
        return StepOutcome(rescaled(model, found, factors), participants(found, factors), tuple(notes))
    except CannotFold as reason:
        return StepOutcome(
            job.model, (), (*notes, message("quantize.step_unchanged", step="smooth", why=str(reason)))
        )


def _chosen(job: TransformJob, layers: Sequence[ScaledLayer], peaks: Mapping[str, Array]) -> frozenset[str]:
    """Layers whose input has outliers, among those asked for."""
    threshold = float(job.options["threshold"])
    return frozenset(
        layer.node
        for layer in layers
        if (not job.nodes or layer.node in job.nodes)
        and (threshold == 1 or _evenness(peaks[layer.source]) < threshold)
    )


def _evenness(peaks: Array) -> float:
    largest = float(peaks.max(initial=0.0))
    return float(np.median(peaks)) / largest if largest > 0 else 1.0


def _notes(
    job: TransformJob, found: ScalingMap, rest: Sequence[ScaledLayer], chosen: frozenset[str]
) -> list[Message]:
    notes = []
    if rest and not job.options["insert"]:
        left = some([layer.node for layer in rest], MOST_NAMED, quoted=True)
        notes.append(message("quantize.smooth_no_room_some", count=len(rest), names=left))
    even = [layer.node for layer in found.layers if layer not in rest and layer.node not in chosen]
    even = [node for node in even if not job.nodes or node in job.nodes]
    if even:
        names = some(even, MOST_NAMED, quoted=True)
        notes.append(message("quantize.smooth_even", count=len(even), names=names))
    return notes


def _balance(
    found: ScalingMap, group: Group, peaks: Mapping[str, Array], *, weights: Weights, job: TransformJob
) -> Balance:
    numbers = np.full(found.size, -1)
    numbers[list(group.roots)] = np.arange(len(group.roots))
    readers = tuple(
        ChannelReader(
            channels=numbers[found.roots(layer.inputs)],
            peaks=peaks.get(layer.source, np.zeros(layer.inputs.size)),
            reads=numbers[found.roots(layer.reads)],
            matrix=magnitudes(weights[layer.weight]),
            rows=np.unique(layer.writes, return_inverse=True)[1].reshape(layer.writes.shape),
        )
        for layer in group.layers
    )
    return Balance(len(group.roots), readers, per_channel=bool(job.context.target.weight_axes))
