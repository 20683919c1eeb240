"""Preprocessing: the samples are not processed as those were that the model was calibrated on."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np

from roundoff.core.findings import Change, Remedy
from roundoff.core.quantizer import Quantizer
from roundoff.core.tensors import Array
from roundoff.diagnosis.alternatives import reach
from roundoff.diagnosis.case import Case, loss_measures
from roundoff.diagnosis.lab import Lab
from roundoff.diagnosis.proving import spoken
from roundoff.diagnosis.registry import Intervention, Signal, cause
from roundoff.diagnosis.suspects import Suspect
from roundoff.graph.interface import inputs
from roundoff.runtime.feeds import Samples

__all__ = ["Preprocessing"]

_MEAN, _STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
_IMAGE_RANK, _COLOURS = 4, 3
# Processed inputs use this part of the range they were calibrated for, at least and at most.
_LEAST_USED, _MOST_USED = 0.4, 1.15

Process = Callable[[Array], Array]


def _normalized(values: Array) -> Array:
    """As nets trained on ImageNet want pictures of 0 to 255."""
    shape = [1, _COLOURS, 1, 1] if values.shape[1] == _COLOURS else [1, 1, 1, _COLOURS]
    mean, std = (np.asarray(each, np.float32).reshape(shape) for each in (_MEAN, _STD))
    return np.asarray((values / 255 - mean) / std)


# Values of pixels as they are read, and as nets want them; something larger than this is no share of one.
_PIXELS, _UNIT, _SIGNED_UNIT = (0.0, 255.0), (0.0, 1.0), (-1.0, 1.0)
_NO_SHARE = 16.0

_USUAL: Mapping[str, tuple[tuple[float, float], Process]] = {
    "x / 255": (_PIXELS, lambda x: x / 255),
    "x * 255": (_UNIT, lambda x: x * 255),
    "x / 127.5 - 1": (_PIXELS, lambda x: x / 127.5 - 1),
    "(x + 1) * 127.5": (_SIGNED_UNIT, lambda x: (x + 1) * 127.5),
    "x - 128": (_PIXELS, lambda x: x - 128),
    "(x / 255 - mean) / std of ImageNet": (_PIXELS, _normalized),
}
"""Usual ways to process pictures: the values that each takes, and what it makes of them."""


@dataclass(frozen=True, slots=True)
class _Processed:
    """Samples whose inputs are processed."""

    samples: Samples
    name: str
    process: Process

    @property
    def label(self) -> str:
        return self.samples.label

    @property
    def names(self) -> tuple[str, ...]:
        return self.samples.names

    def feed(self, index: int) -> Mapping[str, Array]:
        feed = dict(self.samples.feed(index))
        feed[self.name] = self.process(feed[self.name]).astype(feed[self.name].dtype)
        return feed


@cause("preprocessing", order=4)
class Preprocessing:
    """The samples are not processed as those were that the model was calibrated on."""

    def signal(self, case: Case, suspect: Suspect) -> Signal | None:
        """An input whose values do not fit its range, and do once they are processed in a usual way."""
        if suspect.name:
            return None
        found = _candidate(case)
        return None if found is None else Signal(1.0, {"used_before": found[2], "used_after": found[3]})

    def intervene(self, case: Case, suspect: Suspect) -> Intervention | None:
        """Both models fed with inputs that are processed so."""
        del suspect
        found = _candidate(case)
        if found is None:
            return None
        name, how, _, _ = found
        samples = _Processed(case.lab.samples, name, _USUAL[how][1])
        lab = Lab(case.lab.model, samples, everything=case.facts.everything)
        before, after = case.loss(more=True), lab.loss(case.quantizers(), more=True)
        gone = (before.value - after.value) / before.value if before.value else 0.0
        low, high = case.facts.observed[name].range
        ends = " .. ".join(map(spoken, reach(_quantizer(case, name))))
        return Intervention(
            f"{name!r} fed with {how}",
            loss_measures(before, after),
            gone if after.agrees else 0.0,
            f"the input {name!r} reaches {spoken(low)} .. {spoken(high)}, its range is {ends}: the model was "
            f"calibrated with {how}",
            (Change("input", tensors=(name,), value=how),),
            tensors=(name,),
        )

    def remedy(self, case: Case, suspect: Suspect, proof: Intervention) -> Remedy:
        """Process samples alike."""
        del case, suspect
        return Remedy(f"feed {proof.changes[0].value}, here and on the chip", "outside", proof.changes)


def _quantizer(case: Case, name: str) -> Quantizer:
    return next(each for each in case.facts.quantizers.values() if each.tensor == name)


def _candidate(case: Case) -> tuple[str, str, float, float] | None:
    """An input, the processing after which it fits, and the part of its range that it uses before and after."""
    for spec in inputs(case.lab.model):
        if spec.name not in case.facts.observed:
            continue
        low, high = reach(_quantizer(case, spec.name))
        values = np.concatenate([feed[spec.name] for _, feed in case.lab.feeds()])
        used = _used(values, low, high)
        if values.ndim != _IMAGE_RANK or _LEAST_USED <= used <= _MOST_USED:
            continue
        for how, (domain, process) in _USUAL.items():
            if "ImageNet" in how and _COLOURS not in (values.shape[1], values.shape[-1]):
                continue
            if not _is_of(values, domain):
                continue
            after = process(values.astype(np.float32))
            if _LEAST_USED <= _used(after, low, high) <= _MOST_USED and _inside(after, low, high):
                return spec.name, how, used, _used(after, low, high)
    return None


def _used(values: Array, low: float, high: float) -> float:
    """The span of values over that of a range."""
    return float(values.max() - values.min()) / max(high - low, 1e-30)


def _is_of(values: Array, domain: tuple[float, float]) -> bool:
    """Whether values are pixels, or shares of one, as a way of processing takes them."""
    low, high = float(values.min()), float(values.max())
    large = domain != _PIXELS or high > _NO_SHARE
    return domain[0] <= low and high <= domain[1] and large


def _inside(values: Array, low: float, high: float) -> bool:
    room = (_MOST_USED - 1) * (high - low)
    return float(values.min()) >= low - room and float(values.max()) <= high + room
