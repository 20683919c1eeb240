"""How much of a network's outputs is lost: energies of signal and error, part by part.

A part is an output, or a slice of one that an own branch of the network computes: next to boxes in hundreds of
pixels, scores between 0 and 1 could vanish without a trace in the energy of the whole.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from roundoff.core.tensors import Array
from roundoff.graph.interface import OutputPart, joined_slices, output_parts
from roundoff.measure.classes import index_pair, same_classes
from roundoff.measure.metrics import ratio_db
from roundoff.measure.verdicts import ValueTally, load_profile
from roundoff.messages.message import Argument, message
from roundoff.messages.numbers import EXACT_DB, decibels_text

__all__ = [
    "ENDLESS",
    "NEGLIGIBLE",
    "Loss",
    "LossMeter",
    "OutputPart",
    "decibels_of",
    "joined_slices",
    "output_parts",
]


ENDLESS = 1e6
"""An error beyond measure, such as NaN or another shape, counts as this many times the energy of the output."""

NEGLIGIBLE = 10**-3.5
"""An error of this share of the signal's energy, 35 dB, is better than 8 bits usually do, and harms nobody."""

# More axes are maps or sequences; a largest element in each row of them means nothing.
_CLASSIFIER_RANK = 2


@dataclass(frozen=True, slots=True, eq=False)
class Loss:
    """What is lost at the outputs.

    Attributes:
        parts: Names of the parts.
        signal: Energy of each part in float.
        candidate: Its energy in the other network.
        noise: Energy of the difference; infinite where that cannot be measured.
        rows: Rows of classes that were compared.
        agreeing: Those with the same largest element.
        samples: Samples that were run.
        by_sample: What each of them adds to the loss, all parts together.
        sums: Energies of signal, candidate and difference of each sample, of shape (samples, 3, parts).
        flat: Which parts are left only a few of their values, and hardly vary any more, and which share of their
            energy in float varies.
    """

    parts: tuple[str, ...]
    signal: Array
    candidate: Array
    noise: Array
    rows: int = 0
    agreeing: int = 0
    samples: int = 0
    by_sample: tuple[float, ...] = ()
    sums: Array = field(default_factory=lambda: np.zeros((0, 3, 0)))
    flat: Mapping[str, float] = field(default_factory=dict)

    @property
    def ratios(self) -> Array:
        """Energy of the error over that of the signal, by part, at most `ENDLESS`."""
        return _ratios(self.noise, self.signal)

    @property
    def value(self) -> float:
        """On the scale on which losses add up: the ratio where it is small, its logarithm where it is large."""
        return float(np.log1p(self.ratios).sum())

    @property
    def worst(self) -> int:
        """The part that lost most."""
        return int(self.ratios.argmax()) if self.parts else 0

    @property
    def sqnr_db(self) -> float:
        """Of the worst part."""
        return ratio_db(1.0, float(self.ratios.max(initial=0.0)))

    @property
    def cosine(self) -> float:
        """Of the worst part."""
        if not self.parts:
            return 1.0
        at = self.worst
        norm = math.sqrt(self.signal[at] * self.candidate[at])
        if norm == 0 or not math.isfinite(self.noise[at]):
            return float(self.noise[at] == 0)
        return float((self.signal[at] + self.candidate[at] - self.noise[at]) / (2 * norm))

    @property
    def top1(self) -> float | None:
        """Share of rows with the same largest element; None where there are no classes."""
        return self.agreeing / self.rows if self.rows else None

    @property
    def agrees(self) -> bool:
        """Whether the worst part keeps the usual thresholds."""
        scores = {"cosine": self.cosine, "relative_euclidean": math.sqrt(float(self.ratios.max(initial=0.0)))}
        return not self.flat.keys() & set(self.parts) and load_profile("default").holds(scores)

    def of_part(self, at: int) -> "Loss":
        """The loss of one part alone."""
        place = slice(at, at + 1)
        return replace(
            self,
            parts=self.parts[place],
            signal=self.signal[place],
            candidate=self.candidate[place],
            noise=self.noise[place],
            sums=self.sums[:, :, place],
        )

    def of_samples(self, places: Sequence[int]) -> "Loss":
        """The loss of some of the samples that were run, by their places; without classes."""
        sums = self.sums[list(places)]
        signal, candidate, noise = sums.sum(axis=0)
        by_sample = tuple(self.by_sample[place] for place in places)
        return replace(
            self,
            signal=signal,
            candidate=candidate,
            noise=noise,
            rows=0,
            agreeing=0,
            samples=len(places),
            by_sample=by_sample,
            sums=sums,
        )

    def sample_decibels(self, part: int, other: "Loss") -> tuple[Array, Array]:
        """Error of each sample in decibels of its signal, here and in another loss, at one part of the outputs."""
        least = self._least(other, NEGLIGIBLE)[part]
        ratios = (_ratios(each.sums[:, 2, part], each.sums[:, 0, part]) for each in (self, other))
        ours, theirs = (10 * np.log10(np.maximum(each, least)) for each in ratios)
        return ours, theirs

    def _least(self, other: "Loss", negligible: float) -> Array:
        """Below which ratios all are the same, by part: of one that is flat, what varies is all that counts."""
        return np.array([negligible * min(self.flat.get(n, 1.0), other.flat.get(n, 1.0)) for n in self.parts])

    def excess_db(self, expected: "Loss", negligible: float = NEGLIGIBLE) -> float:
        """By how many decibels some part is worse than expected; what is negligible is all the same."""
        least = self._least(expected, negligible)
        ours, theirs = (np.maximum(each.ratios, least) for each in (self, expected))
        return max(0.0, *(ratio_db(*pair) for pair in zip(ours.tolist(), theirs.tolist(), strict=True)))


def _ratios(noise: Array, signal: Array) -> Array:
    with np.errstate(divide="ignore", invalid="ignore"):
        ratios = np.where(noise == 0, 0.0, noise / signal)
    return np.asarray(np.minimum(np.nan_to_num(ratios, nan=ENDLESS, posinf=ENDLESS), ENDLESS))


@dataclass(slots=True)
class LossMeter:
    """Adds up samples.

    Attributes:
        parts: What is told apart.
    """

    parts: Sequence[OutputPart]
    _rows: int = 0
    _agreeing: int = 0
    _samples: int = 0
    _sums: list[Array] = field(default_factory=list)
    _values: list[ValueTally] = field(default_factory=list)

    def add(self, reference: Mapping[str, Any], candidate: Mapping[str, Any]) -> None:
        """Take in one sample: outputs by name; one of which no output is finite in float is none."""
        usable = any(np.isfinite(reference[part.output].astype(np.float64)).any() for part in self.parts)
        self._samples += usable
        mine = np.zeros((3, len(self.parts)))
        self._values = self._values or [ValueTally() for _ in self.parts]
        for at, part in enumerate(self.parts):
            ours, theirs = reference[part.output], candidate[part.output]
            if ours.shape != theirs.shape:
                mine[2, at] = np.inf
                continue
            self._values[at].add(part.of(ours), part.of(theirs))
            ours, theirs = (part.of(each).astype(np.float64).ravel() for each in index_pair(ours, theirs))
            finite = np.isfinite(ours)
            if not finite.all():
                ours, theirs = ours[finite], theirs[finite]
            with np.errstate(over="ignore", invalid="ignore"):
                noise = float(np.square(ours - theirs).sum())
                sums = float(np.square(ours).sum()), float(np.square(theirs).sum()), noise
            mine[:, at] = np.nan_to_num(sums, nan=np.inf, posinf=np.inf)
        self._sums.append(mine)
        for name in dict.fromkeys(part.output for part in self.parts) if usable else ():
            self._compare_classes(reference[name], candidate[name])

    def _compare_classes(self, ours: Any, theirs: Any) -> None:
        if ours.shape == theirs.shape and 1 <= ours.ndim <= _CLASSIFIER_RANK:
            same, rows = same_classes(ours, theirs)
            self._rows, self._agreeing = self._rows + rows, self._agreeing + same

    def loss(self) -> Loss:
        """What was lost so far."""
        names = tuple(part.source or part.output for part in self.parts)
        sums = np.stack(self._sums) if self._sums else np.zeros((0, 3, len(self.parts)))
        signal, candidate, noise = sums.sum(axis=0)
        by_sample = tuple(float(_ratios(each[2], signal).sum()) for each in sums)
        return Loss(
            names,
            signal,
            candidate,
            noise,
            self._rows,
            self._agreeing,
            self._samples,
            by_sample=by_sample,
            sums=sums,
            flat={
                name: each.varying
                for name, each in zip(names, self._values, strict=False)
                if each.lost or each.drowned
            },
        )


def decibels_of(value: float) -> Argument:
    """Decibels in the gap of a message; what is exact is so in every language."""
    return message("common.exact") if value >= EXACT_DB else decibels_text(value)
