"""Channels stored in blocks, as accelerators like them: NC1HWC0 and its kin."""

import math
from collections.abc import Iterator
from dataclasses import dataclass

from roundoff.align.axes import Shape, core, show
from roundoff.core.pairing import Layout

__all__ = ["blocked", "blocked_buffer"]

_BLOCK_SIZES = (4, 8, 16, 32, 64)
"""Channels per block that accelerators use; tried where the shape itself does not tell."""


@dataclass(frozen=True, slots=True)
class _Blocks:
    """A way of storing channels in blocks: some axes, the blocks, the other axes, the places in a block.

    Attributes:
        name: What users call it.
        rank: Rank of the reference it stores.
        axis: The reference's channel axis.
        leading: How many of the reference's other axes come before the blocks.
    """

    name: str
    rank: int
    axis: int
    leading: int

    def stored_shape(self, reference: Shape, block: int) -> Shape:
        others = reference[: self.axis] + reference[self.axis + 1 :]
        blocks = math.ceil(reference[self.axis] / block)
        return (*others[: self.leading], blocks, *others[self.leading :], block)

    def undo(self, reference: Shape, candidate: Shape, *, stored: Shape) -> Layout:
        others = [place for place in range(len(stored) - 1) if place != self.leading]
        channels = stored[self.leading] * stored[-1]
        wide = (*reference[: self.axis], channels, *reference[self.axis + 1 :])
        parts = [self.name]
        if wide != reference:
            parts.append(f"axis {self.axis} padded {reference[self.axis]} -> {channels}")
        if stored != candidate:
            parts.append(f"reshaped {show(candidate)} -> {show(stored)}")
        return Layout(
            ", ".join(parts),
            split=None if stored == candidate else stored,
            axes=(*others[: self.axis], self.leading, len(stored) - 1, *others[self.axis :]),
            merged=wide,
            crop=None if wide == reference else reference,
        )


_BLOCKS = (
    _Blocks("NC1HWC0 -> NCHW", rank=4, axis=1, leading=1),
    _Blocks("NC1HWC0 -> NHWC", rank=4, axis=3, leading=1),
    _Blocks("C1HWC0 -> CHW", rank=3, axis=0, leading=0),
    _Blocks("C1HWC0 -> HWC", rank=3, axis=2, leading=0),
    _Blocks("NDC1HWC0 -> NCDHW", rank=5, axis=1, leading=2),
    _Blocks("NDC1HWC0 -> NDHWC", rank=5, axis=4, leading=2),
)


def blocked(reference: Shape, candidate: Shape) -> Iterator[Layout]:
    """Channels in blocks, as in NC1HWC0, told by the candidate's shape (its batch axis may be missing)."""
    if not candidate or candidate[-1] < min(_BLOCK_SIZES):
        return
    for blocks in _BLOCKS:
        if blocks.rank == len(reference):
            stored = blocks.stored_shape(reference, candidate[-1])
            unbatched = stored[0] == 1 and stored[blocks.leading] > 1 and stored[1:] == candidate
            if stored == candidate or unbatched:
                yield blocks.undo(reference, candidate, stored=stored)


def blocked_buffer(reference: Shape, candidate: Shape) -> Iterator[Layout]:
    """Channels in blocks, given as a flat buffer whose size alone speaks for it."""
    if len(core(candidate)) != 1 or len(core(reference)) < 2:
        return
    for blocks in _BLOCKS:
        for block in _BLOCK_SIZES if blocks.rank == len(reference) else ():
            stored = blocks.stored_shape(reference, block)
            if stored[blocks.leading] > 1 and math.prod(stored) == math.prod(candidate):
                yield blocks.undo(reference, candidate, stored=stored)
