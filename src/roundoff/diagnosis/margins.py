"""Ranges that end where the samples do: what they cost on samples that they do not know, and a margin for these.

A range that is found on a few dozen samples ends at the largest of them, and the next sample goes beyond it. What
is clipped makes large errors at few samples, which hold most of the energy of all errors; of those that a range
was found on, none is clipped. So samples are left out in turns: ranges are drawn in to where the others end, and
what those lose that were left out is what other samples have to expect.

How much further a range has to reach is another question at every tensor: pixels end at white in each sample, what
gates multiply has a long tail. The largest values of single samples tell, by the theory of extremes.
"""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import pairwise

import numpy as np

from roundoff.core.quantizers import Quantizer, representable_range
from roundoff.core.tensors import Array
from roundoff.diagnosis.evidence import CLIP_WEIGHT, rounding_energy
from roundoff.diagnosis.interventions import can_fuse, with_range
from roundoff.diagnosis.loss import ENDLESS, Loss, LossMeter
from roundoff.diagnosis.repairable_model import range_limits, retied
from roundoff.diagnosis.subject import Case, Fixes, Suspect
from roundoff.graph.load import Model
from roundoff.graph.quantized_model import QuantizedModel
from roundoff.measure.inference import (
    ExtremeValues,
    crossed_widening,
    energy_ratio_interval_db,
    fit_extremes,
    safe_end,
)
from roundoff.measure.metrics import ratio_db
from roundoff.run.capture import Samples
from roundoff.run.evaluators import Subset

# Samples are left out in so many turns.
_TURNS = 6
# A range ends where the samples do within a step inside and this share beyond, by rounded zero points or a margin.
_FURTHEST = 1.06
# Methods that cut off a little end within this share; what ends further inside is meant to cut values off. On most
# of 13 networks whose ranges were a tool's, other samples lost less where these got a margin, too.
_CUT_A_LITTLE = 0.9

MOST_OBSERVED = 128
"""So many samples are looked at, at most, to see where ranges end and what lies beyond."""


def decibel_interval(loss: Loss, rare: Array | None = None, *, turns: int = 0) -> tuple[float, float] | None:
    """Where signal to noise lies for many more samples, at the part of the outputs that is worst off.

    Args:
        loss: Of samples that nothing was fitted to.
        rare: Energy of errors that samples add which are rarer than these, by part of the outputs.
        turns: In how many turns samples were left out of what judges them; 0 where nothing was fitted to any.
    """
    signal, _, noise = loss.sums[:, :, loss.worst].T
    ends = energy_ratio_interval_db(signal, noise)
    if ends is None:
        return None
    middle, half = sum(ends) / 2, crossed_widening(turns) * (ends[1] - ends[0]) / 2
    ends = middle - half, middle + half
    if rare is None:
        return ends
    return ratio_db(1.0, 10 ** (-ends[0] / 10) + float(rare[loss.worst] / signal.mean())), ends[1]


@dataclass(frozen=True, slots=True)
class _Fitted:
    """A range that ends where samples do, or further out.

    Attributes:
        suspect: Its suspect.
        ends: Both ends.
        known: Which samples these are of; none where an end is not that of any.
        open_to: Whether an end may be moved outwards: it is not meant to cut values off.
    """

    suspect: Suspect
    ends: tuple[float, float]
    known: tuple[tuple[int, ...], tuple[int, ...]]
    open_to: tuple[bool, bool]


# Rarer samples than those at hand: one in so many times their number, from each to the next.
_RARER = (1.0, 3.0, 10.0, 30.0, 100.0)
# They are thought of as like so many of those at hand that reach furthest.
_EXTREME = 3
# What reaches less far does not reach anywhere.
_NOWHERE = 1e-30


@dataclass(frozen=True, slots=True, eq=False)
class _Reach:
    """One end of a range: its suspect, side and distance from zero, and how far samples reach there.

    Attributes:
        suspect: The suspect.
        side: 0 below zero, 1 above it.
        end: Where the range ends.
        seen: How far each sample reaches.
        extremes: How far others do.
        limit: What none goes beyond.
    """

    suspect: Suspect
    side: int
    end: float
    seen: Array
    extremes: ExtremeValues
    limit: float


def _drawn_in(
    reaches: Sequence[_Reach], quantizers: Mapping[str, Quantizer], extreme: Sequence[int], *, period: float
) -> tuple[dict[str, Quantizer], float]:
    """Ranges that cut some samples off as they would one sample in so many, and how much further that reaches."""
    ends: dict[str, list[float]] = {}
    factors = []
    for each in reaches:
        far = min(float(each.extremes.level(np.array(period))), each.limit)
        times = max(1.0, far / max(float(each.seen[list(extreme)].mean()), _NOWHERE))
        factors.append(times)
        # Where it reaches beyond the range, what is at hand is cut off at the same part of itself.
        if far > each.end:
            for name in each.suspect.quantizers:
                low, high = representable_range(quantizers[name].params, quantizers[name].spec)
                ends.setdefault(name, [float(low), float(high)])[each.side] /= times
    drawn = {name: with_range(quantizers[name], *both) for name, both in ends.items()}
    return drawn, float(np.median(factors))


class RangeMargins:
    """The ranges of a network that fit the samples they were found on.

    Args:
        case: The network, opened on all samples.
        used: Places of the samples that a margin may be found on; the others, which judge the repair, tell only
            whether ranges end where the samples do. All of them when there are none.

    Attributes:
        case: The same.
        all_places: Places of all samples.
        used_places: Places of those that were used.
    """

    def __init__(self, case: Case, used: Sequence[int]) -> None:
        self.case = case
        self.all_places = tuple(range(len(case.runner.indices)))
        self.used_places = tuple(place for place in used if place < len(self.all_places)) or self.all_places
        self._losses: dict[bool, Loss] = {}

    @cached_property
    def fitted(self) -> tuple[_Fitted, ...]:
        """Ranges with an end where all samples end, or those that were used, or beyond."""
        return tuple(self._find())

    def _find(self) -> Iterator[_Fitted]:
        facts = self.case.facts
        for suspect in facts.suspects:
            quantizer = facts.quantizers[suspect.name]
            single = quantizer.params.scale.size == 1 and not quantizer.spec.power_of_two
            if suspect.kind != "activation" or not single or suspect.tensor not in facts.observed:
                continue
            low, high = (float(end) for end in representable_range(quantizer.params, quantizer.spec))
            known, open_to = zip(*(self._known(suspect, *each) for each in enumerate((low, high))), strict=True)
            if any(open_to):
                yield _Fitted(suspect, (low, high), known, open_to)

    def _known(self, suspect: Suspect, side: int, end: float) -> tuple[tuple[int, ...], bool]:
        """The samples that end where a range does, and whether it may reach further.

        They are those that were used, or all where that is nearer.
        """
        reach = {places: self._seen(suspect, places)[side] for places in (self.used_places, self.all_places)}
        ratios = {places: end / seen for places, seen in reach.items() if seen * end > 0}
        near = {places: abs(ratio - 1) for places, ratio in ratios.items() if _CUT_A_LITTLE <= ratio <= _FURTHEST}
        open_to = ratios.get(self.used_places, 0.0) >= _CUT_A_LITTLE
        return (min(near, key=lambda places: near[places]), True) if near else ((), open_to)

    def _seen(self, suspect: Suspect, places: Sequence[int]) -> tuple[float, float]:
        observed = self.case.facts.observed
        ranges = [observed[name].range_of(places) for name in suspect.tensors if name in observed]
        return min(low for low, _ in ranges), max(high for _, high in ranges)

    def fixes(self, *, wide: bool, left_out: Sequence[int] = ()) -> Fixes:
        """Ranges with a margin or without, as if some samples had not been there."""
        found: dict[str, Quantizer | None] = {}
        facts, out = self.case.facts, set(left_out)
        for each in self.fitted:
            limits, ends = range_limits(self.case, each.suspect), list(each.ends)
            for side, movable in enumerate(each.open_to):
                end = self._end(each, side, out, wide=wide) if movable else ends[side]
                if end != ends[side]:
                    ends[side] = float(np.clip(end, *limits))
            low, high = ends
            if low < high and (low, high) != each.ends:
                found |= {name: with_range(facts.quantizers[name], low, high) for name in each.suspect.quantizers}
        return retied(self.case, found)

    def _end(self, fitted: _Fitted, side: int, out: set[int], *, wide: bool) -> float:
        places, end = fitted.known[side], fitted.ends[side]
        drawn, rest = abs(end), [place for place in places if place not in out]
        if rest:
            drawn *= self._seen(fitted.suspect, rest)[side] / self._seen(fitted.suspect, places)[side]
        if wide:
            reach, other = self._reach(fitted.suspect, side, out), abs(fitted.ends[1 - side])
            facts, suspect = self.case.facts, fitted.suspect
            seen = [facts.observed[name] for name in suspect.tensors if name in facts.observed]
            rounding = rounding_energy(seen, facts.quantizers[suspect.name].spec.bits)
            drawn = max(drawn, safe_end(reach, other=other, rounding=rounding, weight=CLIP_WEIGHT))
        return math.copysign(drawn, end)

    def _reach(self, suspect: Suspect, side: int, out: set[int]) -> Array:
        """How far each sample that was used and is not left out reaches on one side of zero."""
        far = self._far(suspect, side)
        return np.asarray(far[[place for place in self.used_places if place not in out and place < far.size]])

    def _far(self, suspect: Suspect, side: int) -> Array:
        """How far each sample reaches on one side of zero."""
        observed = self.case.facts.observed
        ends = [observed[name].ends[:, side] * (1 if side else -1) for name in suspect.tensors if name in observed]
        return np.asarray(np.maximum(np.max(ends, axis=0), 0.0))

    def best(self) -> bool:
        """Whether a margin serves samples which ranges do not know; each is left out of what it is judged by.

        Raises:
            ModelFailed: The network cannot be run.
        """
        wider = bool(self.fixes(wide=True))
        return wider and self._expected_db(wide=True) >= self._expected_db(wide=False)

    def _expected_db(self, *, wide: bool) -> float:
        """Signal to noise of samples that ranges do not know, what rarer ones lose by clipping among it."""
        loss = self.left_out(wide=wide)
        rare = len(loss.sums) * self.rare(self.fixes(wide=wide), self.used_places)
        return replace(loss, noise=loss.noise + rare).sqnr_db

    def left_out(self, *, wide: bool) -> Loss:
        """What those samples lose, each of them by ranges that do not know it.

        Raises:
            ModelFailed: The network cannot be run.
        """
        if wide not in self._losses:
            meter = LossMeter(self.case.runner.parts)
            for places in self.turns(_TURNS):
                self.add(meter, self.case.quantizers(self.fixes(wide=wide, left_out=places)), places)
            self._losses[wide] = meter.loss()
        return self._losses[wide]

    def rare(self, fixes: Fixes, known: Sequence[int] = ()) -> Array:
        """Energy of errors that a sample has to expect by being rarer than those at hand, by part of the outputs.

        How far one sample in thousands reaches is extrapolated at each range. It loses about what one that reaches
        half as far loses in ranges of half the width, four times over; so those that reach furthest are run in
        ranges that are drawn in.

        Args:
            fixes: The ranges of the network.
            known: Places of the samples that are at hand; all of them when there are none.

        Raises:
            ModelFailed: The network cannot be run.
        """
        runner, quantizers = self.case.runner, {each.name: each for each in self.case.quantizers(fixes)}
        known, suspects = list(known or self.all_places), self.case.facts.suspects
        reaches = [each for suspect in suspects for each in self._reaches(suspect, quantizers, known)]
        found = np.zeros(len(runner.parts))
        if not reaches:
            return found
        furthest = np.max([each.seen / each.end for each in reaches], axis=0)
        extreme = np.argsort(furthest)[-_EXTREME:].tolist()
        places = [known[at] for at in extreme]
        here = runner.loss(tuple(quantizers.values()), places=places).noise
        for first, last in pairwise(len(known) * each for each in _RARER):
            drawn, times = _drawn_in(reaches, quantizers, extreme, period=math.sqrt(first * last))
            if drawn:
                loss = runner.loss(tuple({**quantizers, **drawn}.values()), places=places)
                clipped = np.maximum(np.minimum(loss.noise, ENDLESS * loss.signal) - here, 0.0)
                found += (1 / first - 1 / last) * times**2 * clipped / len(places)
        return found

    def _reaches(
        self, suspect: Suspect, quantizers: Mapping[str, Quantizer], known: Sequence[int]
    ) -> Iterator[_Reach]:
        """Both ends of a range, with how far each sample reaches there, where that differs."""
        quantizer = quantizers.get(suspect.name)
        single = quantizer is not None and quantizer.params.scale.size == 1
        if quantizer is None or suspect.kind != "activation" or not single:
            return
        if suspect.tensor not in self.case.facts.observed:
            return
        limits, ends = range_limits(self.case, suspect), representable_range(quantizer.params, quantizer.spec)
        for side, (end, limit) in enumerate(zip(ends, limits, strict=True)):
            seen = self._far(suspect, side)[list(known)]
            extremes = fit_extremes(seen)
            if extremes is not None and abs(float(end)) > 0 and seen.max() > 0:
                yield _Reach(suspect, side, abs(float(end)), seen, extremes, abs(float(limit)))

    def turns(self, most: int) -> list[tuple[int, ...]]:
        """Samples that were used, left out in turns; all at once where no range knows them."""
        known = any(any(each.known) for each in self.fitted)
        turns = min(most, len(self.used_places)) if known or most < _TURNS else 1
        return [self.used_places[turn::turns] for turn in range(turns)]

    def add(self, meter: LossMeter, network: Model | Sequence[Quantizer], places: Sequence[int]) -> None:
        """Take in what some samples lose with a network, or with quantizers of this one."""
        fused = not isinstance(network, Model) and can_fuse(network)
        for exact, found in self.case.runner.pairs(network, places, fused=fused):
            meter.add(exact, found)


def loss_left_out(case: Case) -> Loss | None:
    """What samples lose by ranges that do not know them; None where no range ends where these samples do.

    Raises:
        ModelFailed: The network cannot be run.
    """
    margins = RangeMargins(case, ())
    known = any(any(each.known) for each in margins.fitted)
    return margins.left_out(wide=False) if known and len(margins.all_places) > 1 else None


# With biases that are corrected anew for each, samples are left out in so many turns.
_CORRECTED_TURNS = 5


@dataclass(frozen=True, slots=True, eq=False)
class UnseenSamples:
    """The samples of a repair, each measured by a network whose numbers were found without it.

    Attributes:
        margins: The ranges of the repaired network.
        wide: Whether they have a margin.
        correct: Corrects biases on some samples, where the repair did so.
        whole: Whether samples that were used are measured, too: what many trials on them chose is theirs.
    """

    margins: RangeMargins
    wide: bool
    correct: Callable[[QuantizedModel, Samples], QuantizedModel] | None = None
    whole: bool = True

    @property
    def _turns(self) -> list[tuple[int, ...]]:
        """Places of those that were used, left out in turns; none where they are not measured."""
        turns = self.margins.turns(_CORRECTED_TURNS if self.correct is not None else _TURNS)
        return [each for each in turns if each] if self.whole else []

    @property
    def turns(self) -> int:
        """In how many turns samples are left out of what judges them."""
        return len(self._turns)

    @property
    def _groups(self) -> list[tuple[int, ...]]:
        """Places of those that were held out, then of those that were used, which are left out in turns."""
        margins = self.margins
        held = tuple(place for place in margins.all_places if place not in set(margins.used_places))
        return [each for each in (held, *self._turns) if each]

    def before(self, network: Model) -> Loss:
        """What a network that knows none of this loses on the same samples.

        Raises:
            ModelFailed: The network cannot be run.
        """
        meter = LossMeter(self.margins.case.runner.parts)
        for places in self._groups:
            self.margins.add(meter, network, places)
        return meter.loss()

    def after(self) -> Loss:
        """What the repaired network loses.

        Raises:
            ModelFailed: The network cannot be run.
            RoundoffError: Biases cannot be corrected.
        """
        margins, runner = self.margins, self.margins.case.runner
        meter, used = LossMeter(runner.parts), set(margins.used_places)
        for places in self._groups:
            quantizers: Sequence[Quantizer] = margins.case.quantizers(
                margins.fixes(wide=self.wide, left_out=places)
            )
            # Biases know none of those that were held out.
            if self.correct is not None and used & set(places):
                rest = tuple(runner.indices[place] for place in margins.used_places if place not in set(places))
                made = replace(margins.case.facts.quantized, quantizers=tuple(quantizers))
                quantizers = self.correct(made, Subset(runner.samples, rest)).quantizers
            margins.add(meter, quantizers, places)
        return meter.loss()
