"""Which of its codes a quantizer really uses."""

import numpy as np

from roundoff.core.quantizer import QuantSpec
from roundoff.core.tensors import Array

__all__ = ["LevelSet"]

_BLOCK = 1 << 16
# As many codes are looked at one by one before the common ones are known.
_FIRST_LOOK = 1 << 12


class LevelSet:
    """The distinct codes seen so far; exact, whatever the order in which codes come.

    Codes in the longest run of consecutive ones that were seen already are not news; only the few others are
    marked one by one.
    """

    def __init__(self, spec: QuantSpec) -> None:
        self._spec = spec
        self._seen = np.zeros(spec.code_max - spec.code_min + 1, np.bool_)
        # The longest run of codes that were all seen.
        self._first, self._last = 0, -1

    @property
    def used(self) -> int:
        """How many codes were seen."""
        return int(np.count_nonzero(self._seen))

    @property
    def available(self) -> int:
        """How many codes there are."""
        return self._seen.size

    def add(self, codes: Array) -> None:
        """See codes: integers of 8 or 16 bits, within the range of the quantizer."""
        flat = codes.reshape(-1)
        if not flat.size:
            return
        if self._last < self._first:
            self._mark(flat[:_FIRST_LOOK])
        for start in range(0, flat.size, _BLOCK):
            block = flat[start : start + _BLOCK]
            # Where the extremes are is found fast, and in most blocks they say it all.
            if block[block.argmin()] >= self._first and block[block.argmax()] <= self._last:
                continue
            self._mark(block[(block < self._first) | (block > self._last)])

    def _mark(self, codes: Array) -> None:
        places = codes.astype(np.intp) - self._spec.code_min
        if self._seen[places].all():
            return
        self._seen[places] = True
        edges = np.flatnonzero(np.diff(self._seen, prepend=False, append=False))
        starts, ends = edges[::2], edges[1::2]
        longest = int(np.argmax(ends - starts))
        self._first = int(starts[longest]) + self._spec.code_min
        self._last = int(ends[longest]) - 1 + self._spec.code_min
