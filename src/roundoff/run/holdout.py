"""A hold-out: samples on which a repair or a search is judged, and which neither sees before."""

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from roundoff.core.tensors import Array
from roundoff.run.capture import Samples

__all__ = ["FEWEST_HELD_OUT", "JoinedSamples", "SampleSplit", "Subset", "split_samples"]

FEWEST_HELD_OUT = 4
"""Fewer tell nothing of others, and as few are too few to choose by."""

# A third is held out, of few samples half: what is claimed of them depends on how many they are.
_SHARE, _ENOUGH = 1 / 3, 16
_SEED = 1


@dataclass(frozen=True, slots=True)
class Subset:
    """Some of the samples.

    Attributes:
        samples: All of them.
        indices: Which.
    """

    samples: Samples
    indices: tuple[int, ...]

    @property
    def label(self) -> str:
        """Where they come from."""
        return self.samples.label

    @property
    def names(self) -> tuple[str, ...]:
        """Their names."""
        return tuple(self.samples.names[index] for index in self.indices)

    def feed(self, index: int) -> Mapping[str, Array]:
        """The inputs of one of them."""
        return self.samples.feed(self.indices[index])


class JoinedSamples:
    """Samples, and others behind them.

    Args:
        first: The former.
        second: The latter, numbered on.

    Attributes:
        label: Where both come from.
        names: The names of both.
    """

    label: str
    names: tuple[str, ...]

    def __init__(self, first: Samples, second: Samples) -> None:
        self._first, self._second = first, second
        self.label = f"{first.label}, {second.label}"
        self.names = (*first.names, *second.names)

    def feed(self, index: int) -> Mapping[str, Array]:
        """The inputs of one of them."""
        behind = index - len(self._first.names)
        return self._first.feed(index) if behind < 0 else self._second.feed(behind)


@dataclass(frozen=True, slots=True)
class SampleSplit:
    """Samples in two parts.

    Attributes:
        used: Places of those that ranges are found on and choices are made by.
        held_out: Places of those that what was chosen is judged on; empty where there are too few.
    """

    used: tuple[int, ...]
    held_out: tuple[int, ...] = ()


def split_samples(
    total: int, *, share: float | None = None, labels: Array | None = None, fewest: int = FEWEST_HELD_OUT
) -> SampleSplit:
    """Hold out some of the samples: the same ones each time, spread over all of them.

    Sorted by class where classes are known, samples are cut into as many runs as are held out, and one of each run
    is: all classes are on both sides then. Which one of a run is drawn, with a fixed seed: every third sample of a
    set in which classes take turns might be all of one class.

    Args:
        total: How many samples there are.
        share: How large a part to hold out; by default a third, of few samples up to half.
        labels: The class of each sample; None where it is not known.
        fewest: At least so many on either side, else nothing is held out.
    """
    count = max(round(total * _SHARE), min(total // 2, _ENOUGH)) if share is None else round(total * share)
    if not fewest <= count <= total - fewest:
        return SampleSplit(tuple(range(total)))
    order = np.arange(total)
    if labels is not None and len(labels) == total:
        order = np.argsort(np.asarray(labels), kind="stable")
    drawn = np.random.default_rng(_SEED)
    edges = np.linspace(0, total, count + 1).round().astype(int)
    held = {int(order[drawn.integers(low, high)]) for low, high in pairwise(edges)}
    return SampleSplit(tuple(at for at in range(total) if at not in held), tuple(sorted(held)))
