"""Causes in what a network is fed: other preprocessing than in calibration, or samples unlike those."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from roundoff.core.quantizers import Quantizer, parameters_from_range, representable_range
from roundoff.core.tensors import Array
from roundoff.diagnosis.evidence import observe
from roundoff.diagnosis.ideal import alternatives
from roundoff.diagnosis.interventions import InterventionRunner, reach, with_range
from roundoff.diagnosis.registry import Intervention, Signal, cause
from roundoff.diagnosis.result import Remedy, RemedyChange
from roundoff.diagnosis.subject import Case, Fixes, Suspect, loss_measures, not_narrower
from roundoff.graph.interface import inputs
from roundoff.graph.shapes import channel_axes, input_channel_axis
from roundoff.messages.message import Message, message
from roundoff.preprocessing.conventions import Convention, Hypothesis, InputObservation, leading, plausible, rank
from roundoff.run.capture import Samples
from roundoff.run.evaluators import Subset
from roundoff.studies.check_calibration.preparation import mismatch_by_statistics

# Preprocessing: the samples are not processed as those were that the model was calibrated on.

_IMAGE_RANK = 4
# That samples were made in the same way as those of calibration must be less likely than another way by so much.
_CLEARLY = 0.25
# Samples on which the batch normalizations of the float model are asked.
_ASKED = 8
# Pictures of one narrow kind, dark ones say, still span this part of what is between black and white ...
_NARROWEST = 0.05
# ... and do not end, by chance, this near to where black and white of another way are, unless that is a slip.
_AT_ITS_ENDS = 0.1
# What resizing and the grid of a quantizer go beyond black and white.
_SLACK = 0.02


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


@dataclass(frozen=True, slots=True, eq=False)
class _Candidate:
    """An input whose values are not those it was calibrated for.

    Attributes:
        name: The input.
        axis: Of its channels.
        told: In which ways both may have been made, the likeliest first; these cannot be told apart.
        before: The part of its range that it uses.
        after: The part it uses once it is made in the likeliest way.
    """

    name: str
    axis: int
    told: tuple[Hypothesis, ...]
    before: float
    after: float

    @property
    def wanted(self) -> Message:
        """How the model was calibrated."""
        return _one_of([each.wanted.formula for each in self.told])

    @property
    def given(self) -> Message:
        """How the samples are made."""
        return _one_of([each.given.formula for each in self.told])


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
        numbers = {"used_before": found.before, "used_after": found.after, "ways_that_fit": float(len(found.told))}
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
        low, high = case.facts.observed[found.name].range
        range_low, range_high = reach(_quantizer(case, found.name))
        summary = message(
            "diagnosis.preprocessing_summary",
            tensor=found.name,
            low=low,
            high=high,
            range_low=range_low,
            range_high=range_high,
            given=found.given,
            wanted=found.wanted,
        )
        changes = (RemedyChange("recalibrate", tensors=suspect.tensors, value=str(found.wanted)),)
        return replace(proof, summary=summary, changes=changes, tensors=(found.name,), detail=found.wanted)

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


def _fed_otherwise(case: Case, found: _Candidate) -> Intervention:
    """Both models fed with inputs that are made in the likeliest way: for one sample, which cannot be halved."""
    likeliest, name = found.told[0], found.name
    runner = InterventionRunner(
        case.runner.model,
        _Processed(case.runner.samples, name, found.axis, likeliest),
        everything=case.facts.everything,
    )
    before, after = case.loss(more=True), runner.loss(case.quantizers(), more=True)
    gone = (before.value - after.value) / before.value if before.value else 0.0
    changed = message("diagnosis.preprocessing_changed", tensor=name, how=likeliest.wanted.formula)
    return Intervention(changed, loss_measures(before, after), gone if after.agrees else 0.0, changed)


def _one_of(formulas: list[Message]) -> Message:
    ways = list(dict.fromkeys(formulas))
    return ways[0] if len(ways) == 1 else message("diagnosis.one_of", ways=alternatives(ways))


def _quantizer(case: Case, name: str) -> Quantizer:
    return next(each for each in case.facts.quantizers.values() if each.tensor == name)


def _candidate(case: Case) -> _Candidate | None:
    """The first input that was surely made in another way than in calibration."""
    for spec in inputs(case.runner.model):
        if spec.name not in case.facts.observed:
            continue
        values = np.concatenate([feed[spec.name] for _, feed in case.runner.feeds()])
        if values.ndim != _IMAGE_RANK or not np.isfinite(values).all():
            continue
        axis, quantizer = input_channel_axis(values.shape), _quantizer(case, spec.name)
        ours, theirs = InputObservation.of(values, axis), _calibrated(quantizer, values.shape[axis])
        ranked = rank(ours, theirs)
        if not ranked or any(each.same for each in leading(ranked, _CLEARLY)):
            continue
        told, (low, high) = leading(ranked), reach(quantizer)
        wanted = told[0].wanted
        if (wanted.slip or _off(theirs, wanted)[1] > _AT_ITS_ENDS) and _is_narrow(ours, theirs):
            continue
        after = told[0].change(values.astype(np.float64), axis)
        return _Candidate(spec.name, axis, told, _used(values, low, high), _used(after, low, high))
    return None


def _is_narrow(ours: InputObservation, theirs: InputObservation) -> bool:
    """Whether pictures made as the samples are, if of a narrow kind, can have the range of calibration."""
    ways = plausible(ours)
    likely = [way for way, cost in ways if cost <= ways[0][1] + _CLEARLY]
    found = [_off(theirs, way) for way in likely]
    return any(beyond <= _SLACK and off <= 1 - _NARROWEST for beyond, off in found)


def _off(observed: InputObservation, way: Convention) -> tuple[float, float]:
    """How far ends are beyond those of black and white, and how far from them, in parts of what is between."""
    low, high = way.ends()
    if observed.low.size == 1:
        ends = float(low.min()), float(high.max())
        low, high = (np.array([end]) for end in (observed.represent(*ends) if observed.represent else ends))
    span = np.maximum(high - low, 1e-30)
    below, above = (low - observed.low) / span, (observed.high - high) / span
    return float(np.maximum(below, above).max()), float((np.abs(below) + np.abs(above)).max())


def _calibrated(quantizer: Quantizer, channels: int) -> InputObservation:
    """What a quantizer says of the values that it was calibrated on."""
    spec = quantizer.spec.along(None)
    low, high = representable_range(quantizer.params, quantizer.spec)
    if low.size == channels and quantizer.spec.axis is not None:
        return InputObservation(channels, low.reshape(-1).astype(np.float64), high.reshape(-1).astype(np.float64))

    def represent(bottom: float, top: float) -> tuple[float, float]:
        # A grid holds zero, may be the same on both sides of it, or reach up to twice as far.
        ends = representable_range(parameters_from_range(bottom, top, spec), spec)
        return float(ends[0]), float(ends[1])

    return InputObservation.within(float(low.min()), float(high.max()), channels, represent)


def _used(values: Array, low: float, high: float) -> float:
    """The span of values over that of a range."""
    return float(values.max() - values.min()) / max(high - low, 1e-30)


# Calibration coverage: the samples a model was calibrated on are not like those it is used on.

# So many ranges that do not fit, and such a part of all, are no accident of one tensor.
_MANY, _LARGE_PART = 3, 0.4
# A range is far too wide when it is so many times what is needed; two bits are lost then.
_FAR = 4.0
_MARGIN = 1 / 8
_FEWEST_SAMPLES = 2
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
        fixes = _recalibrated(case, suspect, [case.runner.indices[place] for place in seen])
        ours, best, after = (
            case.runner.loss(case.quantizers(each), places=unseen) for each in ({}, case.in_float(suspect), fixes)
        )
        possible = ours.value - best.value
        recovered = min(1.0, max(0.0, (ours.value - after.value) / possible)) if possible > 0 else 0.0
        clipped, wide = _misfits(case, _observed(case))
        total, beyond = len(case.facts.observed), clipped >= wide
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
            message(summary, all=total, count=clipped if beyond else wide),
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
    data_low, data_high = case.facts.value_range(suspect)
    return max(low - data_low, data_high - high) > _BEYOND * (high - low)


def _observed(case: Case) -> list[Suspect]:
    return [each for each in case.facts.suspects if each.tensor in case.facts.observed]


def _misfits(case: Case, suspects: Iterable[Suspect]) -> tuple[int, int]:
    """How many suspects reach beyond their ranges, and how many have ranges that are too wide."""
    clipped = wide = 0
    for suspect in suspects:
        damage = case.facts.damage(suspect)
        low, high = reach(case.facts.quantizers[suspect.name])
        data_low, data_high = case.facts.value_range(suspect)
        beyond = damage is not None and damage.clipped_share > 1 / 2
        clipped += beyond
        wide += not beyond and high - low > _FAR * (data_high - data_low)
    return clipped, wide


def _recalibrated(case: Case, suspect: Suspect, indices: Sequence[int]) -> dict[str, Quantizer | None]:
    facts, model = case.facts, case.facts.quantized.float_model
    live = [facts.quantizers[name] for name in suspect.quantizers]
    observed = observe(
        model, Subset(case.runner.samples, tuple(indices)), live, axes=channel_axes(model, facts.everything)
    )
    groups = [each for each in facts.suspects if set(each.quantizers) <= set(suspect.quantizers)]
    fixes: dict[str, Quantizer | None] = {}
    for group in groups:
        ranges = [observed[name].range for name in group.tensors if name in observed]
        if ranges:
            low, high = min(each for each, _ in ranges), max(each for _, each in ranges)
            # A few samples do not show how far others reach; a range that starts at zero still does.
            margin = _MARGIN * (high - low)
            seen = low - margin * (low < 0), high + margin * (high > 0)
            own = reach(facts.quantizers[group.name])
            # What half of the samples does not reach, the other half may.
            low, high = (not_narrower(*ends) for ends in zip(seen, own, strict=True))
            fixes |= {name: with_range(facts.quantizers[name], low, high) for name in group.quantizers}
    return fixes
