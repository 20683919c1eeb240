"""Ranges that end where the samples do: what they cost on samples that they do not know, and a margin for these.

A range that is found on a few dozen samples ends at the largest of them, and the next sample goes beyond it. What
is clipped makes large errors at few samples, which hold most of the energy of all errors; of those that a range
was found on, none is clipped. So samples are left out in turns: ranges are drawn in to where the others end, and
what those lose that were left out is what other samples have to expect.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from roundoff.core.quantizers import Quantizer, representable_range
from roundoff.diagnosis.interventions import can_fuse, with_range
from roundoff.diagnosis.loss import Loss, LossMeter
from roundoff.diagnosis.repairable_model import range_limits, retied
from roundoff.diagnosis.subject import Case, Fixes, Suspect
from roundoff.measure.inference import energy_ratio_interval_db
from roundoff.measure.metrics import ratio_db

# How much further ranges may reach than the samples: the step gets coarser by as much, 2 and 3.5 dB at most.
_MARGINS = (0.0, 0.25, 0.5)
# Samples of which all do alike tell what others do within so many decibels, and need no margin. Else the widest is
# taken of those that do about as well: what one sample in hundreds loses by clipping, a few dozen do not show. On
# 52 networks of the planted suite, which this was chosen on, 256 other samples gain 1.6 dB by it.
_STEADY_DB, _ABOUT_DB = 2.0, 2.0
# Samples are left out in so many turns.
_TURNS = 6
# A range ends where the samples do within these shares; a little beyond them by rounded zero points, or a margin.
_NEAREST, _FURTHEST = 0.97, 1.06


BEYOND = 3
"""What clipping costs is known by the few samples that it happened to: the next may lose so many times what the
worst of them did. Without that, 8 of 37 intervals of the planted suite lie above what 512 others have."""


def decibel_interval(
    loss: Loss, unseen: Loss | None = None, *, beyond: int = BEYOND
) -> tuple[float, float] | None:
    """Where signal to noise lies for many more samples, at the part of the outputs that is worst off.

    Args:
        loss: Of samples that were held out.
        unseen: Of the same and others, each by ranges that do not know it: errors of clipping, which few samples
            have, are among them. Both have to be possible.
        beyond: How many times as much as the worst sample one more may lose.
    """
    ends = [_ends(each, beyond) for each in (loss, unseen) if each is not None]
    known = [each for each in ends if each is not None]
    return (min(low for low, _ in known), max(high for _, high in known)) if known else None


def _ends(loss: Loss, beyond: int) -> tuple[float, float] | None:
    signal, _, noise = loss.sums[:, :, loss.worst].T
    ends = energy_ratio_interval_db(signal, noise)
    if ends is None:
        return None
    return ends[0] - ratio_db(1 + beyond * float(noise.max() / noise.sum()), 1.0), ends[1]


@dataclass(frozen=True, slots=True)
class _Fitted:
    """A range that ends where samples do: its suspect, both ends, and which samples these are of."""

    suspect: Suspect
    ends: tuple[float, float]
    known: tuple[tuple[int, ...], tuple[int, ...]]


class RangeMargins:
    """The ranges of a network that fit the samples they were found on.

    Args:
        case: The network, opened on all samples.
        used: Places of the samples that ranges may have been found on alone.
    """

    def __init__(self, case: Case, used: Sequence[int]) -> None:
        self.case = case
        self._all = tuple(range(len(case.runner.indices)))
        self._used = tuple(place for place in used if place < len(self._all))
        self._losses: dict[float, Loss] = {}

    @cached_property
    def fitted(self) -> tuple[_Fitted, ...]:
        """Ranges with an end where all samples end, or those that were used."""
        return tuple(self._find())

    def _find(self) -> Iterator[_Fitted]:
        facts = self.case.facts
        for suspect in facts.suspects:
            quantizer = facts.quantizers[suspect.name]
            single = quantizer.params.scale.size == 1 and not quantizer.spec.power_of_two
            if suspect.kind != "activation" or not single or suspect.tensor not in facts.observed:
                continue
            low, high = (float(end) for end in representable_range(quantizer.params, quantizer.spec))
            known = self._known(suspect, 0, low), self._known(suspect, 1, high)
            if any(known):
                yield _Fitted(suspect, (low, high), known)

    def _known(self, suspect: Suspect, side: int, end: float) -> tuple[int, ...]:
        """The samples that end where a range does."""
        for places in (self._all, self._used):
            seen = self._seen(suspect, places)[side]
            if seen * end > 0 and _NEAREST <= end / seen <= _FURTHEST:
                return places
        return ()

    def _seen(self, suspect: Suspect, places: Sequence[int]) -> tuple[float, float]:
        observed = self.case.facts.observed
        ranges = [observed[name].range_of(places) for name in suspect.tensors if name in observed]
        return min(low for low, _ in ranges), max(high for _, high in ranges)

    def fixes(self, margin: float, left_out: Sequence[int] = ()) -> Fixes:
        """The same ranges with a margin, as if some samples had not been there."""
        found: dict[str, Quantizer | None] = {}
        facts, out = self.case.facts, set(left_out)
        for each in self.fitted:
            limits, ends = range_limits(self.case, each.suspect), list(each.ends)
            for side, places in enumerate(each.known):
                if places:
                    before = self._seen(each.suspect, places)[side]
                    after = self._seen(each.suspect, [place for place in places if place not in out])[side]
                    ends[side] *= after / before * (1 + margin)
            low, high = np.clip(ends, *limits).tolist()
            if low < high and (low, high) != each.ends:
                found |= {name: with_range(facts.quantizers[name], low, high) for name in each.suspect.quantizers}
        return retied(self.case, found)

    def best(self) -> float:
        """The margin that serves samples which ranges do not know, by those that may be used.

        Raises:
            ModelFailed: The network cannot be run.
        """
        if not self.fitted:
            return 0.0
        places = [at for at, place in enumerate(self._order) if place in set(self._used)]
        found = {margin: self.loss(margin).of_samples(places) for margin in _MARGINS}
        most = max(each.sqnr_db for each in found.values())
        ends = decibel_interval(found[0.0], beyond=0)
        if found[0.0].sqnr_db == most and ends is not None and ends[1] - ends[0] <= _STEADY_DB:
            return 0.0
        return max(margin for margin, loss in found.items() if loss.sqnr_db >= most - _ABOUT_DB)

    @property
    def _order(self) -> list[int]:
        """Places of the samples, in the order in which they are left out."""
        return [place for turn in range(self._turns) for place in self._all[turn :: self._turns]]

    @property
    def _turns(self) -> int:
        return min(_TURNS, len(self._all)) if self.fitted else 1

    def loss(self, margin: float = 0.0) -> Loss:
        """What is lost by samples that the ranges do not know; each is left out once.

        Raises:
            ModelFailed: The network cannot be run.
        """
        if margin not in self._losses:
            self._losses[margin] = self._measured(margin)
        return self._losses[margin]

    def _measured(self, margin: float) -> Loss:
        runner = self.case.runner
        meter = LossMeter(runner.parts)
        for turn in range(self._turns):
            places = self._all[turn :: self._turns]
            quantizers = self.case.quantizers(self.fixes(margin, places))
            for exact, found in runner.pairs(quantizers, places, fused=can_fuse(quantizers)):
                meter.add(exact, found)
        return meter.loss()
