"""Quantizers with a wrong range, a wrong zero point or too few bits at one tensor."""

from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np

from benchmarks.planted.case import PlantedCase, truth
from benchmarks.planted.faults.registry import fault
from benchmarks.planted.subject import Subject, replaced
from roundoff.core.quantizers import Quantizer, QuantParams, parameters_from_range, representable_range
from roundoff.graph.quantized_model import QuantizedModel

Change = Callable[[Quantizer, float], Quantizer]


def scaled(quantizer: Quantizer, factor: float) -> Quantizer:
    """With another scale at the same zero point: below 1 values are clipped, above 1 levels are lost."""
    params = QuantParams(
        (quantizer.params.scale * np.float32(factor)).astype(np.float32), quantizer.params.zero_point
    )
    return replace(quantizer, params=params)


def with_bits(quantizer: Quantizer, bits: float) -> Quantizer:
    """The same range in fewer bits."""
    spec = replace(quantizer.spec, bits=int(bits))
    low, high = representable_range(quantizer.params, quantizer.spec)
    return replace(quantizer, spec=spec, params=parameters_from_range(low, high, spec))


def with_zero_point_moved(quantizer: Quantizer, steps: float) -> Quantizer:
    spec, moved = quantizer.spec, quantizer.params.zero_point + int(steps)
    if np.any(moved > spec.code_max) or np.any(moved < spec.code_min):
        moved = quantizer.params.zero_point - int(steps)
    moved = np.clip(moved, spec.code_min, spec.code_max)
    return replace(quantizer, params=QuantParams(quantizer.params.scale, moved))


def changed_until_it_costs(
    subject: Subject,
    quantized: QuantizedModel,
    candidates: Sequence[Quantizer],
    *,
    rng: np.random.Generator,
    change: Change,
    strengths: Sequence[float],
) -> tuple[QuantizedModel, Quantizer] | None:
    """Change one of some quantizers, by chance, just so much that it costs accuracy."""
    for index in rng.permutation(len(candidates)):
        chosen = candidates[index]
        same = [each for each in quantized.quantizers if each.tensor == chosen.tensor and not each.after]
        for strength in strengths:
            planted = replaced(quantized, {each.name: change(each, strength) for each in same})
            if subject.costs(planted):
                return planted, chosen
    return None


def _at_one_activation(
    subject: Subject, rng: np.random.Generator, name: str, causes: tuple[str, ...], how: tuple[Change, list[float]]
) -> PlantedCase | None:
    quantized = subject.healthy
    places = subject.activations(quantized)
    found = changed_until_it_costs(subject, quantized, places, rng=rng, change=how[0], strengths=how[1])
    if found is None:
        return None
    planted, chosen = found
    return subject.case(name, truth(subject.unit(chosen.tensor, quantized), *causes), quantized=planted)


@fault("clipped-activation")
def clipped_activation(subject: Subject, rng: np.random.Generator) -> PlantedCase | None:
    """The range of one activation is too small."""
    how = scaled, [1 / 3, 1 / 5, 1 / 8, 1 / 16]
    return _at_one_activation(subject, rng, "clipped-activation", ("clipping",), how)


@fault("range-too-wide")
def range_too_wide(subject: Subject, rng: np.random.Generator) -> PlantedCase | None:
    """The range of one activation is far wider than its values."""
    how = scaled, [16.0, 32.0, 64.0]
    return _at_one_activation(subject, rng, "range-too-wide", ("resolution",), how)


@fault("few-bits")
def few_bits(subject: Subject, rng: np.random.Generator) -> PlantedCase | None:
    """One activation has 4 bits or fewer, all others 8."""
    how = with_bits, [4.0, 3.0, 2.0]
    return _at_one_activation(subject, rng, "few-bits", ("resolution",), how)


@fault("wrong-zero-point")
def wrong_zero_point(subject: Subject, rng: np.random.Generator) -> PlantedCase | None:
    """The zero point of one activation is off, so that its range ends too early on one side."""
    how = with_zero_point_moved, [128.0, 170.0, 200.0]
    return _at_one_activation(subject, rng, "wrong-zero-point", ("clipping",), how)


@fault("clipped-weight")
def clipped_weight(subject: Subject, rng: np.random.Generator) -> PlantedCase | None:
    """The scale of one weight is too small."""
    quantized = subject.healthy
    places = subject.weight_quantizers(quantized)
    strengths = [1 / 3, 1 / 5, 1 / 8, 1 / 16]
    found = changed_until_it_costs(subject, quantized, places, rng=rng, change=scaled, strengths=strengths)
    if found is None:
        return None
    planted, chosen = found
    return subject.case(
        "clipped-weight", truth((chosen.consumers[0].node, chosen.tensor), "clipping"), quantized=planted
    )


@fault("few-weight-bits")
def few_weight_bits(subject: Subject, rng: np.random.Generator) -> PlantedCase | None:
    """One weight has 3 bits or fewer, all others 8."""
    quantized = subject.healthy
    places = subject.weight_quantizers(quantized)
    found = changed_until_it_costs(
        subject, quantized, places, rng=rng, change=with_bits, strengths=[4.0, 3.0, 2.0]
    )
    if found is None:
        return None
    planted, chosen = found
    causes = truth((chosen.consumers[0].node, chosen.tensor), "resolution")
    return subject.case("few-weight-bits", causes, quantized=planted)
