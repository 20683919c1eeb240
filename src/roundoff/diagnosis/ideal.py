"""What a quantizer would be at its best: the same bits over the range that its values have, and scales of slices.

The loss of a network whose quantizers are all at their best is what its arithmetic costs, and no fault. Only what
is lost beyond that is looked into.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Literal

import numpy as np

from roundoff.core.quantizers import Quantizer
from roundoff.core.tensors import Array
from roundoff.diagnosis.evidence import channel_loss
from roundoff.diagnosis.interventions import (
    per_slice,
    reach,
    rounded_again,
    with_bits,
    with_range,
    with_slice_ranges,
)
from roundoff.diagnosis.loss import joined_slices
from roundoff.diagnosis.registry import ENOUGH, Intervention
from roundoff.diagnosis.result import RemedyChange
from roundoff.diagnosis.subject import Case, Fixes, QuantizationFacts, Suspect, same_grid
from roundoff.messages.message import Message, joined, message

OptionKind = Literal["codes", "range", "bits", "per_channel", "per_slice", "wide_bias"]

# Another quantizer is better when the tensor loses so many times less with it; the rest is chance of rounding.
_CLEARLY = 1.5
# So is one with which its error has so many times less energy, where that error is this part of the tensor: what
# is cut off of few large channels hardly shows in the mean of all, small ones hide it.
_FAR, _WRECKED = 10.0, 0.02
# Mean squared error of rounding, in squared steps.
_ROUNDING = 1 / 12
# Biases of 32 bits lose nothing; a share of their energy above this is no rounding.
_BIAS_NOISE = 1e-5
# Operations whose results have codes for 0 to 1, up to a code, in most kernels.
_UNIT_RANGE, _ONE_CODE = frozenset({"Softmax", "Sigmoid"}), 1 / 128
_TINY = float(np.finfo(np.float32).tiny)


@dataclass(frozen=True, slots=True, eq=False)
class IdealOption:
    """One better way to quantize a suspect, with the same bits.

    Attributes:
        kind: What is otherwise.
        fixes: The quantizers.
        loss: What the tensor loses then, on the scale on which losses add up.
        ratio: Energy of its error over its own.
        setting: Whether it only puts numbers right, instead of asking for what the hardware may not have.
    """

    kind: OptionKind
    fixes: Fixes
    loss: float
    ratio: float
    setting: bool

    def is_better(self, loss: float, ratio: float) -> bool:
        """Whether a tensor that loses so much loses clearly less this way."""
        return self.loss * _CLEARLY < loss or self.is_blatant(ratio)

    def is_blatant(self, ratio: float) -> bool:
        """Whether a tensor whose error has this part of its energy is wrecked, and sound this way."""
        return ratio > _WRECKED and self.ratio * _FAR < ratio


@dataclass(frozen=True, slots=True, eq=False)
class Ideal:
    """A suspect, and what it would be at its best.

    Attributes:
        suspect: The suspect.
        loss: What its tensor loses as it is.
        found: Better ways, if there are any.
    """

    suspect: Suspect
    loss: float
    found: Sequence[IdealOption] = field(default=())

    def best(self, *, settings: bool) -> IdealOption | None:
        """The best way; with the hardware as it is, or as it should be."""
        return min(
            (each for each in self.found if each.setting or not settings), key=lambda each: each.loss, default=None
        )

    def range_of_values(self) -> IdealOption | None:
        """An activation over the range of its values, where calibration would find that; None where it is fine."""
        if self.suspect.kind != "activation":
            return None
        best = self.best(settings=True)
        if best is not None and best.kind != "range":
            return None
        free = self.suspect.op_type not in _UNIT_RANGE
        return next((each for each in self.found if each.kind == "range" and (each.setting or free)), None)


def ideals(case: Case) -> list[Ideal]:
    """All suspects that could clearly be better with the same bits."""
    found = []
    for suspect in case.facts.suspects:
        loss, better = options(case.facts, suspect)
        if better:
            found.append(Ideal(suspect, loss, tuple(better)))
    return found


def unlike_values(case: Case, *, settings: bool = False) -> dict[Suspect, Fixes]:
    """Activations whose ranges do not fit these samples, whatever others may need, with those that do.

    Args:
        case: The network.
        settings: Only those that no kernel asks for.
    """
    activations = (each for each in case.facts.suspects if each.kind == "activation")
    found = (
        (each, Ideal(each, *options(case.facts, each, rarer=False)).range_of_values()) for each in activations
    )
    return {each: option.fixes for each, option in found if option and (option.setting or not settings)}


def options(facts: QuantizationFacts, suspect: Suspect, *, rarer: bool = True) -> tuple[float, list[IdealOption]]:
    """What the tensor of a suspect loses, and the ways in which it clearly loses less."""
    main = facts.quantizers[suspect.name]
    damage = facts.damage(suspect)
    if facts.masks is not None and facts.masks.ranges.keys() & set(suspect.tensors):
        return _of_masked(facts, suspect, main)
    if main.tensor in facts.weights:
        loss, found = _of_constant(facts, suspect, main)
    elif suspect.tensor in facts.observed:
        loss, found = _of_activation(facts, suspect, main, rarer=rarer)
    else:
        return 0.0, []
    # Judged at the tensor, without a run: a constant is quantized anew, an activation that fits its range has the
    # error of rounding, step^2 / 12 a value. What that is worth at the outputs is measured for the best only.
    ratio = 0.0 if damage is None else damage.ratio
    return loss, [each for each in found if each.is_better(loss, ratio)]


def _of_constant(facts: QuantizationFacts, suspect: Suspect, main: Quantizer) -> tuple[float, list[IdealOption]]:
    values, axis = facts.values(main.tensor), facts.channel_axis(main)
    damage = facts.constant_damage(main)
    if suspect.kind == "bias":
        return _of_bias(facts, main, damage.ratio)

    def option(kind: OptionKind, other: Quantizer, *, setting: bool = True) -> IdealOption:
        then = facts.constant_damage(other)
        return IdealOption(kind, {main.name: other}, then.channel_loss, then.ratio, setting)

    found = []
    if main.codes is not None and not np.array_equal(main.codes, facts.rounded_codes(main)):
        found.append(option("codes", rounded_again(main)))
    if values.size:
        found.append(option("range", at_its_range(main, values)))
        bits = facts.prevailing_bits(main)
        if bits > main.spec.bits:
            found.append(option("bits", at_its_range(with_bits(main, bits), values)))
        if axis is not None and main.params.scale.size == 1:
            axes = tuple(at for at in range(values.ndim) if at != axis)
            sliced = with_slice_ranges(main, axis, values.min(axis=axes), values.max(axis=axes))
            found.append(option("per_channel", sliced, setting=False))
    return damage.channel_loss, found


def at_its_range(quantizer: Quantizer, values: Array) -> Quantizer:
    """The same granularity over the range of the values."""
    axis = quantizer.spec.axis
    if axis is None or quantizer.params.scale.ndim == 0:
        return with_range(quantizer, float(values.min()), float(values.max()))
    axes = tuple(at for at in range(values.ndim) if at != axis % values.ndim)
    return with_slice_ranges(quantizer, axis, values.min(axis=axes), values.max(axis=axes))


def _of_bias(facts: QuantizationFacts, main: Quantizer, ratio: float) -> tuple[float, list[IdealOption]]:
    if ratio <= _BIAS_NOISE:
        return ratio, []
    again = rounded_again(main)
    found = [IdealOption("wide_bias", {main.name: None}, 0.0, 0.0, setting=True)]
    if main.codes is not None and not np.array_equal(main.codes, facts.rounded_codes(main)):
        rest = facts.constant_damage(again).ratio
        found.append(IdealOption("codes", {main.name: again}, rest, rest, setting=True))
    return ratio, found


def _of_activation(
    facts: QuantizationFacts, suspect: Suspect, main: Quantizer, *, rarer: bool
) -> tuple[float, list[IdealOption]]:
    """Of several tensors the one that loses most counts."""
    members = [facts.quantizers[name] for name in suspect.quantizers]
    seen = [each for each in members if each.tensor in facts.observed]
    loss = max(facts.observed[each.tensor].damage[each.name].channel_loss for each in seen)

    def option(kind: OptionKind, fixes: dict[str, Quantizer], *, setting: bool = True) -> IdealOption:
        found = [_rounding(facts, fixes[each.name]) for each in seen]
        return IdealOption(kind, fixes, max(loss for loss, _ in found), max(ratio for _, ratio in found), setting)

    # All members keep one grid: values only move between their tensors, so that a range of its own for one of them
    # would need a requantization that the hardware does not have there.
    low, high = facts.value_range(suspect, rarer=rarer)
    fixed = {each.name: with_range(each, low, high) for each in members}
    found = [option("range", fixed, setting=not _is_tied(facts, suspect, main))]
    bits = facts.prevailing_bits(main)
    if bits > main.spec.bits:
        # The range comes last: with few bits it ends where their few codes do.
        found.append(option("bits", {each.name: with_range(with_bits(each, bits), low, high) for each in members}))
    if main.spec.rounding != "half_even":
        found.append(option("codes", {each.name: rounded_again(each) for each in members}))
    node = facts.nodes.get(suspect.join)
    if node is not None and node.op_type == "Concat":
        slices = slices_of(facts, suspect)
        found += [] if slices is None else _sliced(facts, suspect, slices)
    elif node is not None and len(suspect.tensors) > 1:
        own = {each.name: with_range(each, *facts.observed[each.tensor].range) for each in seen}
        found.append(option("per_slice", {**fixed, **own}, setting=False))
    return loss, found


def _of_masked(facts: QuantizationFacts, suspect: Suspect, main: Quantizer) -> tuple[float, list[IdealOption]]:
    """Error against a mask says nothing, what saturates there is meant to: asked is whether keys stay masked."""
    members, needed = [facts.quantizers[name] for name in suspect.quantizers], facts.value_range(suspect)
    bits = facts.prevailing_bits(main)
    found = []
    if bits > main.spec.bits:
        wide = {each.name: with_range(with_bits(each, bits), *needed) for each in members}
        found.append(IdealOption("bits", wide, 0.0, 0.0, setting=True))
    if not all(_hides(facts, each, needed) for each in members):
        fixed = {each.name: with_range(each, *needed) for each in members}
        found.append(IdealOption("range", fixed, 1.0, 0.0, setting=True))
    return math.inf, found


# Of masked scores a range that ends here is as good as the best one, and a step so many times as wide.
_REACHES, _AS_FINE = 0.9, 1.5


def _hides(facts: QuantizationFacts, quantizer: Quantizer, needed: tuple[float, float]) -> bool:
    """Whether masked keys stay masked, and scores keep their levels."""
    low, high = reach(quantizer)
    missing = facts.masks is not None and facts.masks.missing(quantizer.tensor, low, high)
    wide = _step(quantizer) > _AS_FINE * _step(with_range(quantizer, *needed))
    return not missing and not wide and high >= _REACHES * needed[1]


def _is_tied(facts: QuantizationFacts, suspect: Suspect, main: Quantizer) -> bool:
    """Whether a kernel asks for the range: that of what it reads, or 0 to 1 for a Softmax or Sigmoid."""
    node = facts.nodes.get(suspect.node)
    if node is None:
        return False
    low, high = reach(main)
    if node.op_type in _UNIT_RANGE and low == 0 and abs(high - 1) <= _ONE_CODE:
        return True
    others = (each for each in facts.quantizers.values() if each.name not in suspect.quantizers)
    return any(
        each.tensor in node.input and each.kind == "activation" and same_grid(each, main) for each in others
    )


def _rounding(facts: QuantizationFacts, quantizer: Quantizer) -> tuple[float, float]:
    """What rounding alone loses of a tensor, with one scale, and the energy of that over its own."""
    seen = facts.observed[quantizer.tensor]
    noise = seen.nonzero * _step(quantizer) ** 2 * _ROUNDING
    return channel_loss(seen.energy, noise), float(noise.sum() / max(seen.energy.sum(), _TINY))


def _step(quantizer: Quantizer) -> float:
    return float(quantizer.params.scale.max())


def slices_of(
    facts: QuantizationFacts, suspect: Suspect
) -> tuple[int, tuple[int, ...], list[tuple[float, float]]] | None:
    """Axis and sizes of what a Concat joins, with the range of each slice; None where that is not known."""
    node = facts.nodes.get(suspect.join)
    if node is None or node.op_type != "Concat":
        return None
    found = joined_slices(node, facts.shapes)
    seen = facts.observed.get(node.output[0])
    if found is None:
        return None
    axis, sizes = found
    if seen is not None and seen.axis == axis and seen.low.size == sum(sizes):
        ends = np.cumsum(sizes)[:-1]
        lows, highs = np.split(seen.low, ends), np.split(seen.high, ends)
        return axis, sizes, [(float(a.min()), float(b.max())) for a, b in zip(lows, highs, strict=True)]
    ranges = [facts.observed[name].range for name in node.input if name in facts.observed]
    return (axis, sizes, ranges) if len(ranges) == len(sizes) else None


def _sliced(
    facts: QuantizationFacts, suspect: Suspect, slices: tuple[int, tuple[int, ...], list[tuple[float, float]]]
) -> Iterator[IdealOption]:
    """Each slice of a Concat at its own range, and what goes into it likewise."""
    axis, sizes, ranges = slices
    output = facts.nodes[suspect.join].output[0]
    seen = facts.observed.get(output)
    fixes: dict[str, Quantizer | None] = {}
    for name in suspect.quantizers:
        member = facts.quantizers[name]
        if member.tensor == output:
            fixes[name] = per_slice(member, axis, sizes, ranges)
        elif member.tensor in facts.nodes[suspect.join].input and member.tensor in facts.observed:
            fixes[name] = with_range(member, *facts.observed[member.tensor].range)
        else:
            fixes[name] = None  # it only passes on what is on a grid already
    main = next((each for each in fixes.values() if each is not None and each.tensor == output), None)
    if seen is None or main is None:
        return
    steps = main.params.scale.astype(np.float64)
    if seen.axis != axis or steps.size != seen.energy.size:
        steps = np.full(seen.energy.shape, float(np.min(steps)))
    noise = seen.nonzero * np.square(steps) * _ROUNDING
    ratio = float(noise.sum() / max(seen.energy.sum(), _TINY))
    yield IdealOption("per_slice", fixes, channel_loss(seen.energy, noise), ratio, setting=False)


def tried(
    case: Case,
    suspect: Suspect,
    fixes: Fixes,
    *,
    changed: Message,
    summary: Message,
    changes: Sequence[RemedyChange] = (),
) -> Intervention:
    """Put quantizers in the place of a suspect's, and see how much of what it costs is gone.

    Args:
        case: With everything else mended.
        suspect: The suspect.
        fixes: The quantizers.
        changed: What is changed.
        summary: The finding.
        changes: What is changed, as data.
    """
    measures, recovered = case.measures(fixes), case.recovered(suspect, fixes)
    return Intervention(changed, measures, recovered, summary, tuple(changes), fixes=fixes)


def option_fixes(case: Case, suspect: Suspect, kind: OptionKind) -> Fixes | None:
    """The quantizers of a better way of this kind; None where there is none."""
    return next((each.fixes for each in options(case.facts, suspect)[1] if each.kind == kind), None)


def range_or_bits_suffice(case: Case, suspect: Suspect) -> bool:
    """Whether one range that fits, or the bits that others have, would do: then nothing else is to blame."""
    found = (option_fixes(case, suspect, "range"), option_fixes(case, suspect, "bits"))
    return any(fixes is not None and case.recovered(suspect, fixes) >= ENOUGH for fixes in found)


def alternatives(ways: Sequence[Message]) -> Message:
    """Ways that cannot be told apart, side by side."""
    return joined(ways, key="terminal.alternatives")


def called(suspect: Suspect) -> Message:
    """What a suspect is called: ``the weight of 'conv1' (Conv)``, ``'relu1' (Relu)``."""
    if suspect.kind != "activation":
        return message(f"diagnosis.called_{suspect.kind}", node=suspect.node, op=suspect.op_type)
    if suspect.tensor not in {suspect.node, *suspect.nodes} and not suspect.node:
        return message("diagnosis.called_input", tensor=suspect.tensor)
    return message("diagnosis.called_tensor", tensor=suspect.tensor, op=suspect.op_type)
