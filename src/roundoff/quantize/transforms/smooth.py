"""SmoothQuant: the outliers of activations go into the weights behind them, which have room for them."""

from collections.abc import Mapping, Sequence

import numpy as np

from roundoff.core.tensors import Array
from roundoff.core.wording import counted
from roundoff.graph.load import Model
from roundoff.graph.preparation.changes import CannotFold
from roundoff.graph.preparation.draft import named
from roundoff.graph.weights import Weights
from roundoff.quantize.step_options import StepOption
from roundoff.quantize.transforms.gains import insert_gains
from roundoff.quantize.transforms.grouping import Group, group_layers, magnitudes
from roundoff.quantize.transforms.mapping import map_scaling
from roundoff.quantize.transforms.migration import Balance, Reader, best_alpha, smoothing_factors
from roundoff.quantize.transforms.participants import participants
from roundoff.quantize.transforms.registry import Job, Transformed, transform
from roundoff.quantize.transforms.rescaling import rescaled, rounded_to_power_of_two
from roundoff.quantize.transforms.scaling_map import Layer, ScalingMap
from roundoff.quantize.transforms.statistics import channel_statistics

__all__ = ["smooth"]


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
def smooth(job: Job) -> Transformed:
    """Move outliers of activations into the weights that read them (SmoothQuant)."""
    found = map_scaling(job.model, job.context.samples)
    free = [layer for layer in found.layers if found.roots(layer.inputs).any()]
    rest = [layer for layer in found.layers if layer not in free]
    looked_at = [*free, *rest] if job.options["insert"] else free
    looked_at = [layer for layer in looked_at if layer.inputs.size > 1]
    if not looked_at:
        return Transformed(job.model, (), (_nothing(found),))
    axes = {layer.source: layer.axis for layer in looked_at}
    seen = channel_statistics(job.model, job.context, axes, title="looking at channels")
    peaks = {name: channels.peak for name, channels in seen.items()}
    chosen = _chosen(job, looked_at, peaks)
    model, notes = job.model, _notes(job, found, rest, chosen)
    places = [layer for layer in rest if layer.node in chosen]
    if places and job.options["insert"]:
        model, made = insert_gains(model, places)
        peaks |= {new: peaks[old] for new, old in made.items()}
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
        notes.append(f"smooth: migration strengths {min(strengths):g} .. {max(strengths):g} were taken")
    return _rescaled(job, model, found, factors, notes=notes)


def _rescaled(
    job: Job, model: Model, found: ScalingMap, factors: dict[int, float], *, notes: list[str]
) -> Transformed:
    if job.options["power_of_two"]:
        factors = rounded_to_power_of_two(factors)
    try:
        return Transformed(rescaled(model, found, factors), participants(found, factors), tuple(notes))
    except CannotFold as reason:
        return Transformed(job.model, (), (*notes, f"smooth: nothing was changed, because {reason}"))


def _nothing(found: ScalingMap) -> str:
    if not found.layers:
        return "smooth: there is no layer with constant weights"
    return "smooth: nothing in front of any layer can take up factors; insert=true inserts a Mul"


def _chosen(job: Job, layers: Sequence[Layer], peaks: Mapping[str, Array]) -> frozenset[str]:
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


def _notes(job: Job, found: ScalingMap, rest: Sequence[Layer], chosen: frozenset[str]) -> list[str]:
    notes = []
    if rest and not job.options["insert"]:
        left = named([layer.node for layer in rest])
        notes.append(
            f"smooth: nothing in front of {counted(len(rest), 'layer')} can take up factors, insert=true "
            f"would insert a Mul: {left}"
        )
    even = [layer.node for layer in found.layers if layer not in rest and layer.node not in chosen]
    even = [node for node in even if not job.nodes or node in job.nodes]
    if even:
        notes.append(f"smooth: {counted(len(even), 'layer')} read no outliers by the threshold: {named(even)}")
    return notes


def _balance(
    found: ScalingMap, group: Group, peaks: Mapping[str, Array], *, weights: Weights, job: Job
) -> Balance:
    numbers = np.full(found.size, -1)
    numbers[list(group.roots)] = np.arange(len(group.roots))
    readers = tuple(
        Reader(
            channels=numbers[found.roots(layer.inputs)],
            peaks=peaks.get(layer.source, np.zeros(layer.inputs.size)),
            reads=numbers[found.roots(layer.reads)],
            matrix=magnitudes(weights[layer.weight]),
            rows=np.unique(layer.writes, return_inverse=True)[1].reshape(layer.writes.shape),
        )
        for layer in group.layers
    )
    return Balance(len(group.roots), readers, per_channel=bool(job.context.target.weight_axes))
