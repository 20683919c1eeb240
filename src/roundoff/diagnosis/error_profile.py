"""What the pictures of a diagnosis are drawn from: errors of all layers, values of tensors to blame, scores.

All of it is bounded: a few samples, a few places of each finding, few numbers of each.
"""

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

import numpy as np

from roundoff.core.quantizers import Quantizer, fake_quantize
from roundoff.core.tensors import Array
from roundoff.diagnosis.interventions import reach
from roundoff.diagnosis.investigation import DiagnoseSettings
from roundoff.diagnosis.result import Finding, LayerErrors, NetworkName, NetworkScore, Repair, ValueProfile
from roundoff.diagnosis.subject import Case
from roundoff.graph.load import Model
from roundoff.graph.quantized_model import QuantizedModel
from roundoff.graph.shapes import Value, values
from roundoff.measure.inference import mean_interval, share_interval
from roundoff.messages.message import Message
from roundoff.messages.numbers import shape_text
from roundoff.run.bench import FEW_SAMPLES, spread_over
from roundoff.run.budget import RunBudget
from roundoff.run.capture import LiveSource, Samples, complete_values, read_feed
from roundoff.run.evaluators import Subset
from roundoff.run.variants import FUSED, Variant, layer_tensors
from roundoff.studies.layers.measurement import LayerBench, layer_row
from roundoff.studies.layers.result import LayerRow

# Findings and places of each that are drawn; a page has room for no more.
_FINDINGS, _PLACES = 6, 6
_BINS, _CHANNELS = 60, 512
# Layers that nobody accuses, of which the worst are drawn, too.
_OTHERS = 16
# Of a larger tensor every so manieth value is looked at.
_MOST_VALUES = 1 << 20
_DECIMALS, _DIGITS = 2, 4
_BOTH: tuple[Variant, ...] = ("local", "accumulated")


# Every tensor that leaves a unit.


def layer_errors(
    quantized: QuantizedModel,
    everything: Sequence[Value],
    samples: Samples,
    indices: Sequence[int],
    settings: DiagnoseSettings,
    *,
    variants: Sequence[Variant] = _BOTH,
) -> LayerErrors:
    """Measure what tensors lose, in one pass over the samples that the outputs are judged on.

    Args:
        quantized: The network.
        everything: What is known of its tensors.
        samples: What it is fed.
        indices: Which samples.
        settings: Threads and memory to use.
        variants: Which errors.

    Raises:
        BadInput: The memory is too small.
        ModelFailed: The model cannot be run.
    """
    budget = RunBudget(settings.threads, settings.max_memory).settled()
    tensors = layer_tensors(quantized, everything)
    bench = LayerBench(quantized, tensors, samples, budget, settings.progress)
    tallies = bench.reference(variants, indices, fused=False, levels=False)
    leaving = [each for each in tensors if each.value.node and each.quantized != FUSED]
    rows = [layer_row(at, each, tallies.get(each.name), variants) for at, each in enumerate(leaving)]
    return _columns(rows, tuple(samples.names[index] for index in indices))


def _columns(rows: Sequence[LayerRow], samples: tuple[str, ...]) -> LayerErrors:
    local, whole = [each.local for each in rows], [each.accumulated for each in rows]
    return LayerErrors(
        samples,
        nodes=tuple(each.node for each in rows),
        units=tuple(each.unit for each in rows),
        tensors=tuple(each.tensor for each in rows),
        shapes=tuple(shape_text(each.shape) for each in rows),
        dtypes=tuple(each.quantized for each in rows),
        outputs=tuple(each.output for each in rows),
        local_db=tuple(None if each is None else _decibels(each.sqnr_db) for each in local),
        accumulated_db=tuple(None if each is None else _decibels(each.sqnr_db) for each in whole),
        cosine=tuple(None if each is None else each.cosine and round(each.cosine, 6) for each in whole),
        rms_steps=tuple(None if each is None else _short(each.rms_steps) for each in local),
        clipped=tuple(_short(each.clipped) for each in rows),
        worst_channel=tuple(None if each is None else each.worst_channel for each in local),
        worst_channel_db=tuple(None if each is None else _decibels(each.worst_channel_sqnr_db) for each in local),
    )


def _decibels(value: float | None) -> float | None:
    return None if value is None or math.isnan(value) else round(value, _DECIMALS) + 0.0


def _short(value: float | None) -> float | None:
    return None if value is None else float(f"{value:.{_DIGITS}g}")


def repaired_profile(
    done: Repair,
    layers: LayerErrors | None,
    before: QuantizedModel,
    after: QuantizedModel,
    samples: Samples,
    settings: DiagnoseSettings,
) -> Repair:
    """A repair with what the repaired network is made of and loses, tensor by tensor.

    Args:
        done: The repair.
        layers: What the tensors of the diagnosed network lose; None where they were not measured.
        before: The network that was diagnosed.
        after: The repaired network.
        samples: What both are fed.
        settings: Threads and memory to use.
    """
    done = replace(
        done,
        operators=added_operators(before.float_model, after.float_model),
        precisions=precisions(after.quantizers),
    )
    if layers is None or settings.deadline.left <= settings.opened_s:
        return done
    model = after.float_model
    feed = read_feed(model, samples, 0)
    inferred = values(model, {name: array.shape for name, array in feed.items()})
    everything = complete_values(model, inferred, feed, threads=settings.threads)
    indices = [index for index, name in enumerate(samples.names) if name in layers.samples]
    found = layer_errors(after, everything, samples, indices, settings, variants=("accumulated",))
    known = dict(zip(found.tensors, found.accumulated_db, strict=True))
    return replace(done, accumulated_db=tuple(known.get(name) for name in layers.tensors))


# What networks are made of, and what they score.


def precisions(quantizers: Iterable[Quantizer]) -> dict[str, int]:
    """How many quantizers have which codes: ``weight s8 per channel``; those of biases follow from the others."""
    found = Counter(
        f"{each.kind} {each.spec.dtype} per {'channel' if each.params.scale.size > 1 else 'tensor'}"
        for each in quantizers
        if each.kind != "bias"
    )
    return dict(sorted(found.items()))


def added_operators(before: Model, after: Model) -> dict[str, int]:
    """Nodes that one model has beyond another, by operation."""
    ours, theirs = (Counter(node.op_type for node in each.proto.graph.node) for each in (before, after))
    return dict(sorted((theirs - ours).items()))


def network_score(
    of: NetworkName, scores: Array, *, samples: int, held_out: bool = False, grouped: bool = False
) -> NetworkScore:
    """The user's metric of a network.

    Args:
        of: ``float``, ``quantized`` or ``repaired``.
        scores: A value for each sample, or one for all.
        samples: On how many samples.
        held_out: Whether nothing was chosen on them.
        grouped: Whether scores are what groups of samples add to one for all.
    """
    flat = np.atleast_1d(scores).astype(np.float64)
    answers = not grouped and flat.size > 1 and bool(np.isin(flat, (0.0, 1.0)).all())
    right = int(flat.sum()) if answers else None
    ends = mean_interval(flat) if right is None else share_interval(right, flat.size)
    count = samples if right is None else flat.size
    return NetworkScore(of, float(flat.mean()), count, right, ends, held_out)


# What the tensors to blame hold.


def with_profiles(findings: Sequence[Finding], case: Case) -> tuple[Finding, ...]:
    """Findings, the first proven ones with what their tensors hold; activations are run on a few samples."""
    drawn = [each for each in findings if each.proven and each.tensors][:_FINDINGS]
    wanted = {name for each in drawn for name in each.tensors[: min(each.places, _PLACES)]}
    wanted &= set(case.facts.observed)
    wanted |= {name for each in drawn if (name := _smaller(each)) and case.facts.tensor_range(name) is not None}
    live = _activations(case, sorted(wanted))
    return tuple(
        replace(each, profiles=tuple(_profiles(each, case, live))) if each in drawn else each for each in findings
    )


def with_other_profiles(layers: LayerErrors, findings: Sequence[Finding], case: Case) -> LayerErrors:
    """Errors of all layers, with what the weights of the worst that nobody accuses hold."""
    facts = case.facts
    told = {each.node for finding in findings for each in finding.profiles}
    readers = {
        reader.node: each
        for each in facts.quantized.quantizers
        if each.kind == "weight" and each.tensor in facts.weights
        for reader in each.consumers
    }
    known = ((value, unit) for value, unit in zip(layers.local_db, layers.units, strict=True) if value is not None)
    wanted = [unit for _, unit in sorted(known) if unit in readers and unit not in told][:_OTHERS]
    profiles = []
    for unit in dict.fromkeys(wanted):
        quantizer = readers[unit]
        damage = facts.constant_damage(quantizer)
        found = _profile(quantizer, facts.values(quantizer.tensor), np.zeros(0))
        clipped = _kept(damage.saturated / max(1, damage.count))
        profiles.append(replace(found, node=unit, weight=True, clipped=clipped))
    return replace(layers, profiles=tuple(profiles))


def _activations(case: Case, tensors: Sequence[str]) -> dict[str, Array]:
    """Values of tensors in a few samples, thinned."""
    if not tensors:
        return {}
    runner = case.runner
    few = Subset(runner.samples, tuple(spread_over(runner.indices, FEW_SAMPLES)))
    source = LiveSource(runner.model, few, tensors=list(tensors))
    found: dict[str, list[Array]] = {name: [] for name in tensors}
    try:
        for sample in source.samples:
            for name in tensors:
                flat = source.read(name, sample).ravel()
                found[name].append(flat[:: max(1, flat.size * len(few.names) // _MOST_VALUES)])
    finally:
        source.close()
    return {name: np.concatenate(parts) for name, parts in found.items()}


def _profiles(finding: Finding, case: Case, live: Mapping[str, Array]) -> Iterable[ValueProfile]:
    facts, places = case.facts, min(finding.places, _PLACES)
    by_tensor = {each.tensor: each for each in reversed(facts.quantized.quantizers)}
    for at, tensor in enumerate(finding.tensors[:places]):
        quantizer = by_tensor.get(tensor)
        if quantizer is None or not (tensor in facts.weights or tensor in live):
            continue
        node = finding.nodes[at] if at < len(finding.nodes) else ""
        small = "" if at else _smaller(finding)
        if small in live and small != tensor:
            yield _lost_profile(quantizer, small, live[small], node)
            continue
        inner = False
        if tensor in facts.weights:
            array, damage = facts.values(tensor), facts.constant_damage(quantizer)
            axis = facts.channel_axis(quantizer)
            inner = axis is not None and _is_inner(finding)
            reaches = _reaches(array, _read_axis(axis, array.ndim) if inner and axis is not None else axis)
            if quantizer.kind == "bias":
                reaches = np.abs(np.ravel(array)) / np.ravel(quantizer.params.scale)
        else:
            seen, array = facts.observed[tensor], live[tensor]
            damage = seen.damage[quantizer.name]
            reaches = np.zeros(0) if seen.axis is None else np.maximum(np.abs(seen.low), np.abs(seen.high))
        found = _profile(quantizer, array, reaches)
        clipped = _kept(damage.saturated / max(1, damage.count))
        yield replace(found, node=node, weight=tensor in facts.weights, inner=inner, clipped=clipped)


def _smaller(finding: Finding) -> str:
    """The tensor that is lost at the scale of another; empty where a finding is of none."""
    text = dict(finding.summary.arguments)
    whole = text.get("whole", finding.summary)
    return str(dict(whole.arguments).get("small", "")) if isinstance(whole, Message) else ""


def _is_inner(finding: Finding) -> bool:
    """Whether the channels that a finding is about are those that a weight reads: they can have no scales."""
    changes = () if finding.remedy is None else finding.remedy.changes
    return finding.cause == "outlier-channel" and all(each.kind != "per_channel" for each in changes)


def _read_axis(axis: int, rank: int) -> int:
    """The axis of a weight along what it reads, beside that of what it writes."""
    axis %= rank
    return 1 if axis == 0 else axis - 1


def _reaches(array: Array, axis: int | None) -> Array:
    """The largest magnitude of each channel; none without channels."""
    if axis is None or array.ndim < 2:
        return np.zeros(0)
    return np.asarray(np.abs(array).max(axis=tuple(at for at in range(array.ndim) if at != axis), initial=0.0))


def _lost_profile(quantizer: Quantizer, tensor: str, array: Array, node: str) -> ValueProfile:
    """What a tensor holds, beside the steps of the scale of another; its own ends are no ends of a range."""
    step, finite = float(quantizer.params.scale.max()), array[np.isfinite(array)].astype(np.float64)
    counts, edges = np.histogram(finite, bins=_BINS)
    zeros = np.count_nonzero((np.abs(finite) <= step / 2) & (finite != 0)) / max(1, finite.size)
    return ValueProfile(
        node,
        tensor,
        weight=False,
        dtype=quantizer.spec.dtype,
        scales=1,
        scale=_kept(step),
        low=_kept(float(edges[0]) - step),
        high=_kept(float(edges[-1]) + step),
        counts=tuple(map(int, counts)),
        start=_kept(float(edges[0])),
        end=_kept(float(edges[-1])),
        zeros=_kept(zeros),
        shared=quantizer.tensor,
    )


def _profile(quantizer: Quantizer, array: Array, reaches: Array) -> ValueProfile:
    (low, high), step = reach(quantizer), quantizer.params.scale
    finite = array[np.isfinite(array)].astype(np.float32, copy=False)
    start, end = min(low, float(finite.min(initial=0.0))), max(high, float(finite.max(initial=0.0)))
    # Edges are of the values' own type, in which a range from the lowest to the largest number has no width.
    dtype = np.float32 if end - start < float(np.finfo(np.float32).max) / 2 else np.float64
    edges = (start, end if end > start else start + 1.0)
    counts, _ = np.histogram(finite.astype(dtype, copy=False), bins=_BINS, range=edges)
    # Values of an activation come without their channels; those of many scales have no code of zero in common.
    told = array.ndim > 1 or step.size == 1
    lost = (fake_quantize(array, quantizer.params, quantizer.spec) == 0) & (array != 0) if told else array[:0]
    if told and step.size == 1:  # what is cut off at a range that ends at zero is told as such
        lost &= np.abs(array) <= float(step.max()) / 2
    return ValueProfile(
        "",
        quantizer.tensor,
        weight=False,
        dtype=quantizer.spec.dtype,
        scales=int(step.size),
        scale=_kept(float(step.max())),
        low=_kept(low),
        high=_kept(high),
        channels=int(reaches.size),
        reaches=tuple(_kept(float(each)) for each in _few(reaches)),
        counts=tuple(int(each) for each in counts),
        start=_kept(start),
        end=_kept(end),
        zeros=_kept(float(np.count_nonzero(lost)) / max(1, array.size)),
    )


def _few(reaches: Array) -> Array:
    if reaches.size <= _CHANNELS:
        return reaches
    places = np.linspace(0, reaches.size - 1, _CHANNELS).round().astype(np.intp)
    return np.asarray(np.sort(reaches)[::-1][places])


def _kept(value: float) -> float:
    return float(f"{value:.6g}")
