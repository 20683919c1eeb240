"""Which channels of which tensors must be scaled alike: every channel is a number, equal channels are joined."""

import numpy as np

from roundoff.core.tensors import Array

__all__ = ["FIXED", "ChannelIds"]

FIXED = 0
"""The channel that nothing can scale; whatever is joined with it cannot be scaled either."""


class ChannelIds:
    """Numbers of channels, some of which stand for the same (a union-find)."""

    def __init__(self) -> None:
        self._parents = [FIXED]

    def __len__(self) -> int:
        return len(self._parents)

    def fresh(self, shape: tuple[int, ...]) -> Array:
        """New channels, int64 of this shape."""
        first = len(self._parents)
        count = int(np.prod(shape, dtype=np.int64))
        self._parents.extend(range(first, first + count))
        return np.arange(first, first + count, dtype=np.int64).reshape(shape)

    def root(self, channel: int) -> int:
        """The number that stands for a channel: the smallest of those it is joined with."""
        parents = self._parents
        while parents[channel] != channel:
            parents[channel] = parents[parents[channel]]
            channel = parents[channel]
        return channel

    def join(self, left: Array, right: Array) -> Array:
        """Say that channels are the same, element by element; gives their numbers, of the shape of both."""
        left, right = np.broadcast_arrays(left, right)
        for pair in {*zip(left.ravel().tolist(), right.ravel().tolist(), strict=True)}:
            first, second = sorted(map(self.root, pair))
            self._parents[second] = first
        return self.roots(left)

    def fix(self, channels: Array) -> None:
        """Say that channels cannot be scaled."""
        self.join(channels, np.zeros((), np.int64))

    def roots(self, channels: Array) -> Array:
        """The numbers that stand for channels."""
        unique, inverse = np.unique(channels, return_inverse=True)
        found = np.array([self.root(channel) for channel in unique.tolist()], dtype=np.int64)
        return found[inverse].reshape(channels.shape)

    def is_fixed(self, channels: Array) -> bool:
        """Whether none of these can be scaled."""
        return not self.roots(channels).any()
