"""Causes in what a network is fed: other preprocessing than in calibration, or samples unlike those."""

import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from roundoff.core.quantizers import OUTPUT_LIMITS, Quantizer
from roundoff.core.tensors import Array
from roundoff.diagnosis.evidence import observe, safe_range
from roundoff.diagnosis.interventions import InterventionRunner, reach, times_wider, with_range
from roundoff.diagnosis.registry import Intervention, Signal, cause
from roundoff.diagnosis.result import Remedy, RemedyChange
from roundoff.diagnosis.subject import Case, Fixes, Suspect, loss_measures, not_narrower
from roundoff.graph.interface import inputs
from roundoff.graph.shapes import channel_axes
from roundoff.messages.message import message
from roundoff.preprocessing.conventions import Hypothesis
from roundoff.run.capture import Samples
from roundoff.run.evaluators import Subset
from roundoff.studies.check_calibration.preparation import (
    CalibrationMismatch,
    mismatch_by_statistics,
    mismatch_with_calibration,
)

# Preprocessing: the samples are not processed as those were that the model was calibrated on.

# Samples on which the batch normalizations of the float model are asked.
_ASKED = 8


@dataclass(frozen=True, slots=True)
class _Processed:
    """Samples one of whose inputs is made in another way."""

    samples: Samples
    name: str
    axis: int
    hypothesis: Hypothesis

    @property
    def label(self) -> str:
        return self.samples.label

    @property
    def names(self) -> tuple[str, ...]:
        return self.samples.names

    def feed(self, index: int) -> Mapping[str, Array]:
        feed = dict(self.samples.feed(index))
        values = feed[self.name]
        feed[self.name] = self.hypothesis.change(values.astype(np.float64), self.axis).astype(values.dtype)
        return feed


@cause("preprocessing", of="quantization", order=4)
class Preprocessing:
    """The samples are not processed as those were that the model was calibrated on."""

    def signal(self, case: Case, suspect: Suspect) -> Signal | None:
        """An input whose values fit one usual way to make numbers of pixels, and its range another."""
        if suspect.name:
            return None
        found = _candidate(case)
        if found is None:
            return None
        numbers = {
            "used_before": found.used,
            "used_after": found.used_then,
            "ways_that_fit": float(len(found.told)),
        }
        return Signal(1.0, numbers)

    def intervene(self, case: Case, suspect: Suspect) -> Intervention | None:
        """The ranges found again on one half of the samples as they are, and measured on the other half.

        The samples are what the user vouches for: what is proven is that ranges for them help, not that the
        network would rather be fed something else. Both models agree on whatever lies inside their ranges.
        """
        found = _candidate(case)
        if found is None:
            return None
        proof = CalibrationCoverage().intervene(case, suspect)
        proof = _fed_otherwise(case, found) if proof is None else proof
        changes = (RemedyChange("recalibrate", tensors=suspect.tensors, value=str(found.wanted)),)
        return replace(proof, summary=found.text, changes=changes, tensors=(found.tensor,), detail=found.wanted)

    def remedy(self, case: Case, suspect: Suspect, proof: Intervention) -> Remedy:
        """Calibrate on the samples; process them otherwise only where the float model itself asks for it."""
        del suspect
        feeds = [feed for _, feed in case.runner.feeds()][:_ASKED]
        slip = mismatch_by_statistics(case.runner.model, feeds)
        if slip is not None and slip.how is not None:
            node, value = slip.node, f"{slip.before:.2g}"
            title = message(
                "diagnosis.preprocessing_remedy_input",
                wanted=proof.detail,
                node=node,
                value=value,
                after=slip.after,
            )
            return Remedy(title, "outside", ())
        return Remedy(message("diagnosis.preprocessing_remedy", wanted=proof.detail), "free", proof.changes)


def _fed_otherwise(case: Case, found: CalibrationMismatch) -> Intervention:
    """Both models fed with inputs that are made in the likeliest way: for one sample, which cannot be halved."""
    likeliest, name = found.told[0], found.tensor
    runner = InterventionRunner(
        case.runner.model,
        _Processed(case.runner.samples, name, found.axis, likeliest),
        everything=case.facts.everything,
    )
    before, after = case.loss(more=True), runner.loss(case.quantizers(), more=True)
    gone = (before.value - after.value) / before.value if before.value else 0.0
    changed = message("diagnosis.preprocessing_changed", tensor=name, how=likeliest.wanted.formula)
    return Intervention(changed, loss_measures(before, after), gone if after.agrees else 0.0, changed)


def _candidate(case: Case) -> CalibrationMismatch | None:
    """The first input that was surely made in another way than in calibration."""
    quantizers = [each for each in case.facts.quantizers.values() if each.tensor in case.facts.observed]
    return mismatch_with_calibration(
        quantizers, inputs(case.runner.model), [feed for _, feed in case.runner.feeds()]
    )


# Calibration coverage: the samples a model was calibrated on are not like those it is used on.

# So many ranges that do not fit, and such a part of all, are no accident of one tensor.
_MANY, _LARGE_PART = 3, 0.4
# A range is far too wide when it is so many times what is needed; two bits are lost then.
_FAR = 4.0
_MARGIN = 1 / 8
_FEWEST_SAMPLES = 2
# All that was calibrated on the same samples is too wide together: half of the codes are unused in the middle.
# That is told. It is a fault where they are so many times as wide as rarer samples may need: of 11 kinds of
# networks calibrated on 1,000 samples and seen by 32, the one in the middle was 1.1 to 2.0 times as wide as the
# values, and 0.7 to 1.2 times as wide as that. What is wider than any of them was is no ground for a good word.
_ROOMY, _HALF, _FURTHER = 1.5, 1.8, 2.25
# Beside an input of the network that is cut off, so many others, and such a part of them, that reach beyond their
# ranges by this part of their width: ranges that were found on the same samples fit each other.
_SEVERAL, _SOME_PART, _BEYOND = 2, 0.1, 0.1


@cause("calibration-coverage", of="quantization", order=5)
class CalibrationCoverage:
    """The ranges of many activations do not fit the samples: the model was calibrated on others."""

    def signal(self, case: Case, suspect: Suspect) -> Signal | None:
        """How many activations reach beyond their ranges, or use little of them."""
        if suspect.kind != "activation" or suspect.name:
            return None
        clipped, wide = _misfits(case, _observed(case))
        numbers = {
            "clipped_tensors": float(clipped),
            "wide_tensors": float(wide),
            "tensors": float(len(case.facts.observed)),
        }
        return Signal(1.0, numbers)

    def intervene(self, case: Case, suspect: Suspect) -> Intervention | None:
        """The suspect's ranges, and no others, found on one half of the samples and measured on the other."""
        count = len(case.runner.indices)
        if count < _FEWEST_SAMPLES:
            return None
        seen, unseen = range(0, count, 2), range(1, count, 2)
        roomy = roomy_ranges(case)
        wide = roomy is not None and roomy.faulty
        fixes = _recalibrated(case, suspect, [case.runner.indices[place] for place in seen], rarer=wide)
        # Where ranges are only too wide it is of what ranges can do: their bits round in any of them.
        ideal = {
            name: with_range(case.facts.quantizers[name], *case.facts.value_range(each))
            for each in _observed(case)
            for name in each.quantizers
            if name in fixes
        }
        best = case.runner.loss(case.quantizers(ideal if wide else case.in_float(suspect)), places=unseen)
        ours, after = (case.runner.loss(case.quantizers(each), places=unseen) for each in ({}, fixes))
        possible = ours.value - best.value
        recovered = min(1.0, max(0.0, (ours.value - after.value) / possible)) if possible > 0 else 0.0
        clipped, far = _misfits(case, _observed(case), far=_FAR if misfit(case) else _HALF)
        total, beyond = len(case.facts.observed), clipped >= far
        summary = "diagnosis.calibration_coverage_clipped" if beyond else "diagnosis.calibration_coverage_wide"
        return Intervention(
            message(
                "diagnosis.calibration_coverage_changed",
                count=len(suspect.tensors),
                some=len(seen),
                others=len(unseen),
            ),
            loss_measures(ours, after),
            recovered,
            message(summary, all=total, count=clipped if beyond else far),
            (RemedyChange("recalibrate", tensors=suspect.tensors),),
        )

    def remedy(self, case: Case, suspect: Suspect, proof: Intervention) -> Remedy:
        """Calibrate on samples like these."""
        return Remedy(message("diagnosis.calibration_coverage_remedy"), "free", proof.changes)


def misfit(case: Case) -> bool:
    """Whether the ranges of many activations, or of an input and several more, do not fit the samples."""
    everyone = _observed(case)
    if max(_misfits(case, everyone)) >= max(_MANY, _LARGE_PART * len(everyone)):
        return True
    entering = {each.name for each in inputs(case.runner.model)}
    fed = [each for each in everyone if not entering.isdisjoint(each.tensors)]
    others = [each for each in everyone if each not in fed]
    beyond = sum(_goes_beyond(case, each) for each in others)
    return _misfits(case, fed)[0] > 0 and beyond >= max(_SEVERAL, _SOME_PART * len(others))


def cut_off(case: Case) -> dict[Suspect, Fixes]:
    """Activations that reach beyond their ranges, little as each may lose, with the ranges of their values."""
    facts = case.facts
    return {
        each: {name: with_range(facts.quantizers[name], *facts.value_range(each)) for name in each.quantizers}
        for each in _observed(case)
        if _goes_beyond(case, each)
    }


def _goes_beyond(case: Case, suspect: Suspect) -> bool:
    low, high = reach(case.facts.quantizers[suspect.name])
    data_low, data_high = case.facts.value_range(suspect, rarer=False)
    return max(low - data_low, data_high - high) > _BEYOND * (high - low)


def _observed(case: Case) -> list[Suspect]:
    return [each for each in case.facts.suspects if each.tensor in case.facts.observed]


@dataclass(frozen=True, slots=True)
class RoomyRanges:
    """Ranges of which most of the codes are never used, all over the network.

    Attributes:
        times: How many times as wide as its values the one in the middle of all ranges is.
        fixes: Those of which half of the codes are not used, at the values.
        count: How many there are.
        beyond: How many times as wide as rarer samples may need the one in the middle is.
        safe: Those of which half of the codes are not used, as wide as rarer samples may need.
        few: How many times more that may be, by so few samples.
    """

    times: float
    fixes: Fixes
    count: int
    beyond: float
    safe: Fixes
    few: float

    @property
    def faulty(self) -> bool:
        """Whether that is more than samples which were not seen may need."""
        return self.beyond >= _ROOMY * self.few

    @property
    def doubtful(self) -> bool:
        """Whether that is more than such samples were seen to need."""
        return self.times >= _FURTHER * self.few


def roomy_ranges(case: Case) -> RoomyRanges | None:
    """Ranges that leave half of their codes unused, where the one in the middle of all does; else None."""
    facts = case.facts
    widths: dict[Suspect, tuple[float, float]] = {}
    ends: dict[Suspect, tuple[tuple[float, float], tuple[float, float]]] = {}
    for each in _observed(case):
        members = [facts.observed[name] for name in each.tensors if name in facts.observed]
        low, high = min(one.range[0] for one in members), max(one.range[1] for one in members)
        if each.op_type not in OUTPUT_LIMITS and high > low:
            quantizer = facts.quantizers[each.name]
            far = facts.safe_range(each)
            ends[each] = (low, high), (min(low, far[0]), max(high, far[1]))
            seen, rare = (times_wider(quantizer, range_) for range_ in ends[each])
            widths[each] = seen, rare
    if len(widths) < _MANY:
        return None
    times, beyond = (statistics.median(each[at] for each in widths.values()) for at in range(2))
    if times < _HALF:
        return None
    wide = [each for each, (width, _) in widths.items() if width >= _HALF]
    fixes, safe = (
        {name: with_range(facts.quantizers[name], *ends[each][at]) for each in wide for name in each.quantizers}
        for at in range(2)
    )
    return RoomyRanges(times, fixes, len(wide), beyond, safe, facts.unseen_by_few)


def _misfits(case: Case, suspects: Iterable[Suspect], *, far: float = _FAR) -> tuple[int, int]:
    """How many suspects reach beyond their ranges, and how many have ranges that are too wide."""
    clipped = wide = 0
    far *= case.facts.unseen_by_few
    for suspect in suspects:
        damage = case.facts.damage(suspect)
        low, high = reach(case.facts.quantizers[suspect.name])
        data_low, data_high = case.facts.value_range(suspect, rarer=False)
        beyond = damage is not None and damage.clipped_share > 1 / 2
        clipped += beyond
        wide += not beyond and high - low > far * (data_high - data_low)
    return clipped, wide


def _recalibrated(
    case: Case, suspect: Suspect, indices: Sequence[int], *, rarer: bool
) -> dict[str, Quantizer | None]:
    """Ranges of some of the samples with a margin; far enough for rarer ones where there is so much room."""
    facts, model = case.facts, case.facts.quantized.float_model
    live = [facts.quantizers[name] for name in suspect.quantizers]
    observed = observe(
        model, Subset(case.runner.samples, tuple(indices)), live, axes=channel_axes(model, facts.everything)
    )
    groups = [each for each in facts.suspects if set(each.quantizers) <= set(suspect.quantizers)]
    fixes: dict[str, Quantizer | None] = {}
    for group in groups:
        members = [observed[name] for name in group.tensors if name in observed]
        if members:
            low, high = min(each.range[0] for each in members), max(each.range[1] for each in members)
            # A few samples do not show how far others reach; a range that starts at zero still does.
            margin = _MARGIN * (high - low)
            seen = low - margin * (low < 0), high + margin * (high > 0)
            safe = safe_range(members, facts.quantizers[group.name].spec.bits) if rarer else seen
            ends = zip(seen, safe, reach(facts.quantizers[group.name]), strict=True)
            # What half of the samples does not reach, the other half may.
            low, high = (
                own if not_narrower(far, own) == own else max(far, rare, key=abs) for far, rare, own in ends
            )
            fixes |= {name: with_range(facts.quantizers[name], low, high) for name in group.quantizers}
    return fixes
