"""The one layout in which a dump is stored: decided where shapes tell, then applied where they do not."""

import math
from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache

from roundoff.align.layout import Shape, blocked, core, correlation, layouts_between, positions, seen_through, take
from roundoff.align.layout import relabelled, usual_name
from roundoff.align.pairing import Layout, Match
from roundoff.align.values import SampleSide
from roundoff.core.tensors import TensorInfo

__all__ = ["LayoutFit", "UsualLayout", "usual_layout", "with_usual_layout"]

_LAST = {3: (0, 2, 1), 4: (0, 3, 1, 2), 5: (0, 4, 1, 2, 3)}
"""Orders of axes, for `numpy.transpose`, that bring channels from the end to the front, by rank."""

_MAP = 4
"""Tensors of this rank or more have a layout; shorter ones are rows and vectors."""

_KNOWN_PAIR = 3.0
"""Votes of a certain pair against one of a shape that merely occurs on the other side."""

_ODD, _RESHAPED = -2.5, -0.5
"""Log-odds of a tensor that is not stored as the others are, and of one that is reshaped."""


@dataclass(frozen=True, slots=True)
class LayoutFit:
    """How a stored tensor can be one of the reference.

    Attributes:
        layout: The change of layout; None when there is none.
        prior: Log-odds of it, by how usual it is in this dump.
    """

    layout: Layout | None
    prior: float


@dataclass(frozen=True, slots=True)
class UsualLayout:
    """How most tensors of a dump are stored.

    Attributes:
        channels_last: Whether channels are the last axis of tensors that have them first in the reference.
    """

    channels_last: bool = False

    def fit(self, reference: Shape, stored: Shape) -> LayoutFit | None:
        """How a tensor of the stored shape can be one of the reference's; None when it cannot."""
        return _fit(self.channels_last, reference, stored)


@lru_cache(maxsize=16_384)
def _fit(channels_last: bool, reference: Shape, stored: Shape) -> LayoutFit | None:
    if math.prod(reference) != math.prod(stored):
        packed = next(blocked(reference, stored), None)
        return None if packed is None else LayoutFit(packed, _RESHAPED)
    last = _channels_last(reference)
    if channels_last and last is not None:
        if last == stored:
            return LayoutFit(_from_last(reference), 0.0)
        if core(last) == core(stored):
            return LayoutFit(_named(reference, stored, "NHWC -> NCHW") or relabelled(reference, stored), _RESHAPED)
    if reference == stored:
        return LayoutFit(None, 0.0 if last is None or not channels_last else _ODD)
    if core(reference) == core(stored):
        return LayoutFit(relabelled(reference, stored), _RESHAPED)
    options = layouts_between(reference, stored)
    return LayoutFit(options[0], _ODD) if options else None


def _channels_last(shape: Shape) -> Shape | None:
    """The shape with its channels at the end; None where that is the same, or there are none."""
    if len(shape) < _MAP or len(shape) not in _LAST:
        return None
    last = (shape[0], *shape[2:], shape[1])
    return None if len(core(shape)) <= 1 and last == shape else last


def _from_last(reference: Shape) -> Layout:
    axes = _LAST[len(reference)]
    return Layout(usual_name(axes, reference) or "NHWC -> NCHW", axes=axes)


def _named(reference: Shape, stored: Shape, name: str) -> Layout | None:
    return next((each for each in layouts_between(reference, stored) if each.name.startswith(name)), None)


def usual_layout(
    ours: Sequence[TensorInfo], theirs: Sequence[TensorInfo], known: Iterable[Match] = ()
) -> UsualLayout:
    """Decide how a dump is stored, by all tensors whose shapes tell.

    Args:
        ours: Tensors of the reference.
        theirs: Tensors of the dump.
        known: Pairs that are certain.
    """
    last, first = 0.0, 0.0
    for match in known:
        moved, stays = _tells(ours[match.reference].shape, theirs[match.candidate].shape)
        last, first = last + _KNOWN_PAIR * moved, first + _KNOWN_PAIR * stays
    # A shape that is on one side as often as on the other speaks for itself, whoever its partner is.
    shapes = Counter(info.shape for info in theirs)
    for shape in {info.shape for info in ours}:
        moved_shape = _channels_last(shape)
        if moved_shape is None or moved_shape == shape:
            continue
        last, first = last + (moved_shape in shapes), first + (shape in shapes)
    return UsualLayout(last > first)


def _tells(reference: Shape, stored: Shape) -> tuple[bool, bool]:
    """Whether shapes of a pair show that channels were moved to the end, or that they were not."""
    moved = _channels_last(reference)
    if moved is None or moved == reference:
        return False, False
    return moved == stored, reference == stored


_AGREES, _CLEARLY = 0.9, 0.5
"""Values that correlate this well as they lie, while the usual layout leaves the rest of them unexplained."""

_LOOKED_AT = 4096


def with_usual_layout(
    found: Collection[Match], layout: UsualLayout, ours: SampleSide, theirs: SampleSide
) -> list[Match]:
    """The matches, stored as the whole dump is where a shape does not tell, or values of a wrong tensor misled.

    A tensor whose values agree as it lies, and not in the usual layout, is left as it is.
    """
    return [_stored_as_usual(match, layout, ours, theirs) for match in found]


def _stored_as_usual(match: Match, layout: UsualLayout, ours: SampleSide, theirs: SampleSide) -> Match:
    left, right = ours.tensors[match.reference], theirs.tensors[match.candidate]
    if not layout.channels_last or not left.dtype or not right.dtype:
        return match
    fit = layout.fit(left.shape, right.shape)
    if fit is None or fit.layout is None or fit.prior == _ODD or fit.layout == match.layout:
        return match
    if left.shape != right.shape and match.layout is not None and not _several(left.shape, right.shape):
        return match
    exact, stored = ours.read(match.reference), theirs.read(match.candidate)
    if exact is None or stored is None or exact.shape != left.shape or stored.shape != right.shape:
        return replace(match, layout=fit.layout)
    seen = take(exact, positions(exact.size, _LOOKED_AT))
    own, usual = (
        take(stored, seen_through(each, exact.shape, stored.shape, count=_LOOKED_AT))
        for each in (match.layout, fit.layout)
    )
    if left.shape != right.shape and match.layout is None:
        return replace(match, layout=fit.layout)
    if seen is None or own is None or usual is None:
        return replace(match, layout=fit.layout)
    as_found, as_usual = correlation(seen, own), correlation(seen, usual)
    keeps = as_found >= _AGREES and 1 - as_found**2 < _CLEARLY * (1 - as_usual**2)
    return match if keeps else replace(match, layout=fit.layout)


def _several(reference: Shape, stored: Shape) -> bool:
    """Whether shapes allow more than one order of axes, so that values chose."""
    return len(layouts_between(reference, stored)) > 1
