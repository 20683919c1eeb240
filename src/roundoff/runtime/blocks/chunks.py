"""Samples in chunks that are run at a time."""

import hashlib
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from roundoff.core.tensors import Array
from roundoff.graph.load import Model
from roundoff.runtime.feeds import Samples
from roundoff.runtime.runner import read_feed

__all__ = ["Chunk", "even_chunks", "read_chunks", "rows_of", "stack_feeds"]


@dataclass(frozen=True, slots=True, eq=False)
class Chunk:
    """Samples that are run together, one after the other along the first axis of every input.

    Attributes:
        samples: Their indices.
        names: What the user calls them.
        feed: The inputs.
        digest: A hash of the values of each sample.
    """

    samples: tuple[int, ...]
    names: tuple[str, ...]
    feed: Mapping[str, Array]
    digest: tuple[str, ...]

    @property
    def label(self) -> str:
        """The samples in words, for messages."""
        return self.names[0] if len(self.names) == 1 else f"{self.names[0]} ... {self.names[-1]}"


def read_chunks(model: Model, samples: Samples, indices: Sequence[int], *, most: int) -> Iterator[Chunk]:
    """Read samples and put neighbours of equal shapes together.

    Args:
        model: What they are for.
        samples: The samples.
        indices: Which of them, in this order.
        most: How many may be put together.

    Raises:
        BadInput: One cannot be read, or does not fit the model.
    """
    waiting: list[tuple[int, Mapping[str, Array]]] = []
    for index in indices:
        feed = read_feed(model, samples, index)
        if waiting and (len(waiting) >= most or not _alike(waiting[0][1], feed)):
            yield _chunk(waiting, samples)
            waiting = []
        waiting.append((index, feed))
    if waiting:
        yield _chunk(waiting, samples)


def even_chunks(samples: int, *, most: int, workers: int) -> int:
    """How many samples to put together so that all workers are done at the same time.

    Args:
        samples: How many there are.
        most: How many may be put together.
        workers: How many chunks are run side by side.
    """
    rounds = math.ceil(samples / (most * workers))
    return max(1, math.ceil(samples / max(1, rounds * workers)))


def stack_feeds(feeds: Sequence[Mapping[str, Array]]) -> dict[str, Array]:
    """Feeds of equal shapes as one."""
    if len(feeds) == 1:
        return {name: np.asarray(array, order="C") for name, array in feeds[0].items()}
    return {name: np.concatenate([feed[name] for feed in feeds]) for name in feeds[0]}


def rows_of(array: Array, count: int) -> Array:
    """What belongs to each of so many samples: the same values in the shape (samples, elements of each)."""
    return array.reshape(count, array.size // count)


def _alike(left: Mapping[str, Array], right: Mapping[str, Array]) -> bool:
    return all(array.ndim > 0 and array.shape == right[name].shape for name, array in left.items())


def _chunk(waiting: Sequence[tuple[int, Mapping[str, Array]]], samples: Samples) -> Chunk:
    indices = tuple(index for index, _ in waiting)
    return Chunk(
        samples=indices,
        names=tuple(samples.names[index] for index in indices),
        feed=stack_feeds([feed for _, feed in waiting]),
        digest=tuple(_digest(feed) for _, feed in waiting),
    )


def _digest(feed: Mapping[str, Array]) -> str:
    found = hashlib.blake2b(digest_size=16)
    for name in sorted(feed):
        array = np.asarray(feed[name], order="C")
        found.update(f"{name} {array.dtype.str} {array.shape} ".encode())
        found.update(array.reshape(-1).view(np.uint8).data)
    return found.hexdigest()
