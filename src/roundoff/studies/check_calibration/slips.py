"""Samples that were prepared in one usual way where another was meant, by what sets of them are like."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import numpy as np

from roundoff.messages.message import Message, joined, message, verbatim
from roundoff.preprocessing.conventions import BYTE, Convention, alike, preparations
from roundoff.preprocessing.ranking import Hypothesis, Observation, apart, leading, rank
from roundoff.studies.check_calibration.result import InputFacts

__all__ = ["Way", "could_be", "fills", "not_told_apart", "slip_between", "slips", "ways"]

# Resizing goes a little beyond pixels; what fills less of them than this is something else.
_BEYOND, _FILLED = 3.0, 85.0
# Ways that are no further apart, in parts of what they span, are tried as one: how one scene differs from another
# hides such a difference. ImageNet, CLIP and CIFAR-10 are 3 to 8 % apart.
_ALIKE = 0.08
# Two sets are prepared otherwise when they are at least so far apart, when not more than this is left of it, and
# when their ends then agree to this part of the range.
_APART, _LEFT, _BETTER, _ENDS = 0.6, 0.5, 2.0, 0.35
# Sets of photographs hold black and white, up to so many pixels; those that do not may be of odd scenes.
_BLACK, _WHITE = 20.0, 235.0
# Numbers of channels that pictures have.
_PICTURES = (1, 3)
_MOST_NAMED = 4


@dataclass(frozen=True, slots=True, eq=False)
class Way:
    """A way to prepare samples, with those that statistics cannot tell from it.

    Attributes:
        usual: The most usual of them.
        others: The others.
    """

    usual: Convention
    others: tuple[Convention, ...] = ()

    @property
    def words(self) -> Message:
        """The usual one as a formula."""
        return self.usual.words

    @property
    def also(self) -> tuple[Message, ...]:
        """The formulas of the others."""
        return tuple(dict.fromkeys(each.words for each in self.others if each.words != self.words))


def not_told_apart(text: Message, others: Iterable[Message]) -> Message:
    """A text that names one way, with the others that may be meant as well."""
    listed = list(others)
    if not listed:
        return text
    named = joined(
        listed[:_MOST_NAMED] + [verbatim("...")] * (len(listed) > _MOST_NAMED), key="terminal.alternatives"
    )
    return joined((text, message("check_calibration.not_told_apart", ways=named)))


def ways(channels: int) -> tuple[Way, ...]:
    """All of them for so many channels, the most usual first."""
    groups: list[list[Convention]] = []
    for each in preparations(channels):
        home = next((group for group in groups if alike(group[0], each, _ALIKE)), None)
        if home is None:
            groups.append([each])
        else:
            home.append(each)
    return tuple(Way(first, tuple(others)) for first, *others in groups)


def could_be(way: Convention, low: float, high: float) -> bool:
    """Whether values from `low` to `high` can come of pixels in this way, and fill enough of them."""
    bottom, top = (np.asarray((end - way.offset) / way.gain) for end in (low, high))
    inside = float(bottom.max()) >= -_BEYOND and float(top.min()) <= BYTE + _BEYOND
    return inside and float(top.max() - bottom.min()) > _FILLED and float(top.max()) > _FILLED


def fills(way: Convention, low: float, high: float) -> bool:
    """Whether values from `low` to `high` are pixels from black to white, prepared in this way."""
    bottom, top = (float(np.mean((end - way.offset) / way.gain)) for end in (low, high))
    return bottom <= _BLACK and top >= _WHITE


def slips(low: float, high: float, channels: int) -> Iterator[tuple[Way, Way]]:
    """Pairs of how values may have been prepared, and how else they may have to be.

    Args:
        low: Smallest value.
        high: Largest value.
        channels: How many channels there are.
    """
    known = ways(channels)
    seen = [(each, _seen(each, low, high)) for each in known]
    for other in known:
        if not other.usual.slip:
            yield from ((one, other) for each, one in seen if one is not None and each is not other)


def _seen(way: Way, low: float, high: float) -> Way | None:
    """The one of a group that values from `low` to `high` can come of; best one that they fill."""
    possible = [each for each in (way.usual, *way.others) if could_be(each, low, high)]
    best = next((each for each in possible if fills(each, low, high)), possible[0] if possible else None)
    return None if best is None else Way(best)


def slip_between(ours: InputFacts, theirs: InputFacts) -> tuple[Hypothesis, ...]:
    """How one set of samples and another seem to be prepared, where they are not prepared alike.

    Args:
        ours: An input in one set.
        theirs: The same input in the other.

    Returns:
        The likeliest first, then those that cannot be told from it; none when they may well be prepared alike, or
        in no known way.
    """
    channels = len(ours.means)
    if channels not in _PICTURES or channels != len(theirs.means):
        return ()
    if not (min(ours.stds) > 0 and min(theirs.stds) > 0):
        return ()
    one, other = _observed(ours), _observed(theirs)
    before = _left(one, other)
    if before < _APART:
        return ()
    ranked = [each for each in rank(one, other) if not each.wanted.slip]
    sure = [each for each in ranked if not each.same and _is_sure(each, one, other, before)]
    return leading(sure)


def _observed(facts: InputFacts) -> Observation:
    means, stds = np.array(facts.means), np.array(facts.stds)
    return Observation(means.size, np.array([facts.low]), np.array([facts.high]), means, stds)


def _left(ours: Observation, theirs: Observation, how: Hypothesis | None = None) -> float:
    """How far means and deviations are apart; after what a hypothesis would change."""
    assert ours.mean is not None  # noqa: S101 - sets have them
    assert ours.std is not None  # noqa: S101
    assert theirs.mean is not None  # noqa: S101
    assert theirs.std is not None  # noqa: S101
    mean, std = ours.mean, ours.std
    if how is not None:
        mean, std = how.change(mean, 0), std * how.wanted.gain / how.given.gain
    return apart((mean, std), (theirs.mean, theirs.std))


def _is_sure(how: Hypothesis, ours: Observation, theirs: Observation, before: float) -> bool:
    """Whether little is left of what is between two sets, and both hold black and white."""
    ends = [
        float(np.mean(how.change(np.full(ours.channels, float(end)), 0))) for end in (ours.low[0], ours.high[0])
    ]
    low, high = float(theirs.low[0]), float(theirs.high[0])
    sides = ((how.given, float(ours.low[0]), float(ours.high[0])), (how.wanted, low, high))
    fits = max(abs(ends[0] - low), abs(ends[1] - high)) <= _ENDS * (high - low)
    filled = all(fills(*side) and could_be(*side) for side in sides)
    return fits and filled and _left(ours, theirs, how) < min(_LEFT, before / _BETTER)
