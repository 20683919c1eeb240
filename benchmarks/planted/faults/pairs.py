"""Two faults at once, of which one hides the other."""

from dataclasses import replace

import numpy as np

from benchmarks.planted.case import PlantedCase, truth
from benchmarks.planted.device import Device, few_samples
from benchmarks.planted.faults.kernels import (
    EXACT,
    device_case,
    find_wrong_kernel,
    moved_taps,
    places,
    wrong_channel_weights,
    wrong_tap,
)
from benchmarks.planted.faults.ranges import changed_until_it_costs, clipped_activation, scaled, with_bits
from benchmarks.planted.faults.registry import fault
from benchmarks.planted.subject import Subject
from roundoff.core.quantizers import Quantizer

__all__: list[str] = []


@fault("two-quantizers")
def two_quantizers(subject: Subject, rng: np.random.Generator) -> PlantedCase | None:
    """One activation is clipped hard; another, far from it, has too few bits."""
    first = clipped_activation(subject, rng)
    if first is None or first.quantized is None:
        return None
    others = [q for q in subject.activations(subject.healthy) if q.tensor not in first.truths[0].nodes]
    second = changed_until_it_costs(
        subject, subject.healthy, others, rng=rng, change=with_bits, strengths=[4.0, 3.0, 2.0]
    )
    if second is None:
        return None
    chosen = second[1]
    changed = {q.name: q for q in second[0].quantizers if q.tensor == chosen.tensor}
    both = replace(first.quantized, quantizers=tuple(changed.get(q.name, q) for q in first.quantized.quantizers))
    more = truth(subject.unit(chosen.tensor, subject.healthy), "resolution")
    return subject.case("two-quantizers", (*first.truths, more), quantized=both)


@fault("two-weights")
def two_weights(subject: Subject, rng: np.random.Generator) -> PlantedCase | None:
    """The scale of one weight is far too small; that of another too."""
    quantized = subject.healthy
    chosen: list[Quantizer] = []
    for strengths in ([1 / 8, 1 / 16], [1 / 4, 1 / 8]):
        known = {q.tensor for q in chosen}
        places_left = [q for q in subject.weight_quantizers(subject.healthy) if q.tensor not in known]
        found = changed_until_it_costs(
            subject, subject.healthy, places_left, rng=rng, change=scaled, strengths=strengths
        )
        if found is None:
            return None
        changed = {q.name: q for q in found[0].quantizers if q.tensor == found[1].tensor}
        quantized = replace(quantized, quantizers=tuple(changed.get(q.name, q) for q in quantized.quantizers))
        chosen.append(found[1])
    truths = [truth((q.consumers[0].node, q.tensor), "clipping") for q in chosen]
    return subject.case("two-weights", truths, quantized=quantized)


@fault("two-kernels")
def two_kernels(subject: Subject, rng: np.random.Generator) -> PlantedCase | None:
    """Two kernels are wrong, one behind the other."""
    one = find_wrong_kernel(subject, rng, moved_taps)
    other = find_wrong_kernel(subject, rng, wrong_channel_weights, ("Conv", "Gemm"))
    if one is None or other is None or one.tensor == other.tensor:
        return None
    kernels = {each.tensor: (each.model, EXACT) for each in (one, other)}
    broken = Device(subject, subject.healthy, kernels=kernels)
    truths = [
        truth(frozenset({each.node.name, *subject.unit(each.tensor, subject.healthy)}), "kernel-fault")
        for each in (one, other)
    ]
    return device_case(broken, "two-kernels", truths, broken.run(few_samples(subject)))


@fault("kernel-and-dump")
def kernel_and_dump(subject: Subject, rng: np.random.Generator) -> PlantedCase | None:
    """One kernel is wrong, and another tensor was dequantized wrongly."""
    one = wrong_tap(subject, rng)
    if one is None or one.dumps is None:
        return None
    chip = Device(subject, subject.healthy)
    others = [t for t in places(subject, chip, rng) if t not in one.truths[0].nodes and subject.readers(t)]
    if not others:
        return None
    read = others[0]
    samples = tuple({**each, read: each[read] * np.float32(0.5)} for each in one.dumps.samples)
    more = truth(subject.unit(read, subject.healthy), "wrong-dequantization")
    return replace(
        one, fault="kernel-and-dump", truths=(*one.truths, more), dumps=replace(one.dumps, samples=samples)
    )
