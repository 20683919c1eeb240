"""The one layout in which a dump is stored: decided where shapes tell, then applied where they do not."""

import math
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache

from roundoff.align.layout import (
    Shape,
    blocked,
    core,
    correlation,
    layouts_between,
    positions,
    relabelled,
    seen_through,
    take,
    usual_name,
)
from roundoff.align.pairing import Layout, Match, TensorPair
from roundoff.align.values import SampleSide
from roundoff.core.tensors import TensorInfo

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
    last = _channels_last(reference)
    ours, theirs = core(reference), core(stored)
    if math.prod(reference) != math.prod(stored):
        options = [LayoutFit(layout, _RESHAPED) for layout in blocked(reference, stored)]
    elif channels_last and last is not None and core(last) == theirs:
        moved = _from_last(reference) if last == stored else _named(reference, stored, "NHWC -> NCHW")
        options = [LayoutFit(moved or relabelled(reference, stored), 0.0 if last == stored else _RESHAPED)]
    elif reference == stored:
        options = [LayoutFit(None, 0.0 if last is None or not channels_last else _ODD)]
    elif ours == theirs:
        options = [LayoutFit(relabelled(reference, stored), _RESHAPED)]
    elif len(ours) == len(theirs) and sorted(ours) != sorted(theirs):
        options = []  # as many axes of other lengths: as many elements by chance
    else:
        options = [LayoutFit(layout, _ODD) for layout in layouts_between(reference, stored)]
    return options[0] if options else None


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


_ONE_AGAINST = 2
"""Tensors have a layout of their own where so many times more of as many axes lie as in the reference."""


def of_their_own(
    pairs: Iterable[TensorPair],
    ours: Mapping[str, Shape | None],
    theirs: Mapping[str, Shape | None],
    ends: Collection[str],
) -> list[TensorPair]:
    """Tensors whose axes are in another order while all others are as they should be.

    One may have another shape; several are those whose shape says that they are as they should be.

    Args:
        pairs: Which tensor is which, with the layouts that their values show.
        ours: Shapes of the reference.
        theirs: Shapes of the candidate.
        ends: Inputs and outputs of the network, which a device may hold in a layout of their own.
    """
    pairs = list(pairs)
    odd = [each for each in pairs if each.reference not in ends and each.layout is not None and each.layout.axes]
    shapes = {each.reference: (ours.get(each.reference), theirs.get(each.candidate)) for each in odd}
    if len(odd) > 1 and any(left != right for left, right in shapes.values()):
        return []
    # A dump that is channels last may have one picture and many rows: these lie as they do either way.
    plain = Counter(len(ours.get(each.reference) or ()) for each in pairs if each.layout is None)
    found = []
    for each in odd:
        left, right = shapes[each.reference]
        many = sum(len(ours.get(other.reference) or ()) == len(left or ()) for other in odd)
        alike = left and right and len(left) == len(right) and math.prod(left) == math.prod(right)
        if left and alike and plain[len(left)] >= _ONE_AGAINST * many:
            found.append(each)
    return found


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
    left, right = ours.tensors[match.reference].shape, theirs.tensors[match.candidate].shape
    fit = layout.fit(left, right) if layout.channels_last and left and right else None
    if fit is None or fit.layout is None or fit.prior == _ODD or fit.layout == match.layout:
        return match
    if left != right and match.layout is not None and not _several(left, right):
        return match
    usual = replace(match, layout=fit.layout)
    if left != right and match.layout is None:
        return usual
    exact, stored = ours.read(match.reference), theirs.read(match.candidate)
    if exact is None or stored is None or (exact.shape, stored.shape) != (left, right):
        return usual
    wanted = take(exact, positions(exact.size, _LOOKED_AT))
    seen = [take(stored, seen_through(each.layout, left, right, count=_LOOKED_AT)) for each in (match, usual)]
    own, other = (0.0 if wanted is None or each is None else correlation(wanted, each) for each in seen)
    return match if own >= _AGREES and 1 - own**2 < _CLEARLY * (1 - other**2) else usual


def _several(reference: Shape, stored: Shape) -> bool:
    """Whether shapes allow more than one order of axes, so that values chose."""
    return len(layouts_between(reference, stored)) > 1
