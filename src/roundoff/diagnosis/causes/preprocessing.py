"""Preprocessing: the samples are not processed as those were that the model was calibrated on."""

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np

from roundoff.core.quantizers import Quantizer, parameters_from_range, representable_range
from roundoff.core.tensors import Array
from roundoff.diagnosis.causes.calibration_coverage import CalibrationCoverage
from roundoff.diagnosis.ideal import alternatives
from roundoff.diagnosis.interventions import InterventionRunner, reach
from roundoff.diagnosis.registry import Intervention, Signal, cause
from roundoff.diagnosis.result import Remedy, RemedyChange
from roundoff.diagnosis.subject import Case, Suspect, loss_measures
from roundoff.graph.interface import inputs
from roundoff.graph.shapes import input_channel_axis
from roundoff.messages.message import Message, message
from roundoff.preprocessing.conventions import Convention
from roundoff.preprocessing.hypotheses import Hypothesis, InputObservation, leading, plausible, rank
from roundoff.run.capture import Samples
from roundoff.studies.check_calibration.preparation import mismatch_by_statistics

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
