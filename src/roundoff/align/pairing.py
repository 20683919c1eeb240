"""Which tensor of the candidate is which tensor of the reference, and how its axes are arranged."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

from roundoff.core.tensors import Array, TensorInfo

# alias: the user said so; origin: the tool that made the candidate recorded it; order: its place among the others;
# elimination: what is left for it, by shape and kind; prediction: its values follow from what the candidate itself
# computed before it.
MatchedBy = Literal[
    "alias", "origin", "name", "normalized", "value", "prediction", "order", "elimination", "shape"
]


@dataclass(frozen=True, slots=True)
class Layout:
    """How to view a candidate tensor in the reference's layout.

    The steps are taken in this order; each may be absent.

    Attributes:
        name: What a person calls it, e.g. ``NHWC -> NCHW`` or ``8 channels padded to 16``.
        split: Shape to reshape the candidate to first.
        axes: Order of axes for `numpy.transpose`.
        merged: Shape to reshape to after that.
        crop: How many leading elements to keep on each axis.
    """

    name: str
    split: tuple[int, ...] | None = None
    axes: tuple[int, ...] | None = None
    merged: tuple[int, ...] | None = None
    crop: tuple[int, ...] | None = None

    def apply(self, array: Array) -> Array:
        """View `array` (candidate layout) in the reference's layout; copies only when numpy must."""
        if self.split is not None:
            array = array.reshape(self.split)
        if self.axes is not None:
            array = array.transpose(self.axes)
        if self.merged is not None:
            array = array.reshape(self.merged)
        if self.crop is not None:
            array = array[tuple(slice(0, size) for size in self.crop)]
        return array


@dataclass(frozen=True, slots=True)
class TensorPair:
    """One tensor on both sides.

    Attributes:
        reference: Name in the reference.
        candidate: Name in the candidate.
        how: What the match rests on.
        confidence: 1.0 when certain; for matches by value or order, how sure (0 to 1).
        layout: The change of layout found, None when the axes agree.
    """

    reference: str
    candidate: str
    how: MatchedBy = "name"
    confidence: float = 1.0
    layout: Layout | None = None


@dataclass(frozen=True, slots=True)
class Pairing:
    """All pairs, in the reference's order, and everything that found no partner.

    Attributes:
        pairs: The pairs.
        unmatched_reference: Tensors of the reference without a partner.
        unmatched_candidate: Tensors of the candidate without one, copies among them.
        copies: Tensors of the candidate that are another one of it as codes or in another form, and which.
    """

    pairs: tuple[TensorPair, ...]
    unmatched_reference: tuple[str, ...] = ()
    unmatched_candidate: tuple[str, ...] = ()
    copies: Mapping[str, str] = field(default_factory=dict)


def pair_samples(reference: Sequence[str], candidate: Sequence[str]) -> tuple[tuple[str, str], ...]:
    """Which samples belong together: those of equal name; by position when no name agrees but the numbers do."""
    known = set(candidate)
    common = tuple((name, name) for name in reference if name in known)
    if common or len(reference) != len(candidate):
        return common
    return tuple(zip(reference, candidate, strict=True))


# What the stages of matching exchange: tensors under a name, and pairs of them.


@dataclass(frozen=True, slots=True)
class NamedTensor:
    """A tensor under one of the names it goes by.

    Attributes:
        index: Its place in the source.
        name: That name.
        info: What is known of it.
    """

    index: int
    name: str
    info: TensorInfo


@dataclass(frozen=True, slots=True)
class Match:
    """A pair of tensors, by index on both sides; the rest as in `TensorPair`."""

    reference: int
    candidate: int
    how: MatchedBy
    confidence: float = 1.0
    layout: Layout | None = None
