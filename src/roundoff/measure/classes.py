"""Answers instead of amounts: classes, indices and truth values, which are equal or not.

The distance of two class numbers is no size. Wherever such tensors are measured they are replaced by ones, against
ones where they are equal and zeros where they are not (`index_pair`), so that every sum of squares counts answers;
and whether an output of them is good is asked of `IndexCounts`.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np

from roundoff.core.tensors import Array

# Scores of classes.

# Rows, places (such as the words of a text) and classes; nobody knows where the classes are among more.
_MOST_AXES = 3
_ROWS_AND_CLASSES = 2


def class_predictions(output: Array) -> Array | None:
    """The best class in each row of an output; None when it has no rows of several scores.

    Args:
        output: Scores of shape (rows, classes), (rows, places, classes), or one of these with axes of size 1
            behind it; or class numbers, of which the first in a row is the best.

    Returns:
        int64 of shape (rows,).
    """
    if isinstance(output, np.ndarray) and output.dtype.kind in "iu" and is_index(output.dtype):
        best = output[:, 0] if output.ndim == _ROWS_AND_CLASSES and output.shape[1] else output
        return np.asarray(best.astype(np.int64).ravel())
    classes = class_count(output)
    return None if classes is None else np.asarray(output.reshape(-1, classes).argmax(axis=-1))


def class_count(output: Array) -> int | None:
    """How many classes an output scores, see `class_predictions`; None when it has no rows of several scores."""
    if not isinstance(output, np.ndarray) or output.dtype.kind not in "fiu" or is_index(output.dtype):
        return None
    shape = output.shape
    while len(shape) > _ROWS_AND_CLASSES and shape[-1] == 1:
        shape = shape[:-1]
    return None if not 1 <= len(shape) <= _MOST_AXES or shape[-1] < 2 else int(shape[-1])


def class_places(outputs: Sequence[Array]) -> list[int]:
    """Which outputs of a network say classes: scores first, then class numbers.

    The scores beside class numbers of the same shape are those of TopK: their first is always the highest, and
    they come last.
    """
    able = [at for at, each in enumerate(outputs) if class_predictions(each) is not None]
    numbers = [at for at in able if is_index(outputs[at].dtype)]
    shapes = {outputs[at].shape for at in numbers if outputs[at].ndim > 1}
    ordered = [at for at in able if at not in numbers and outputs[at].shape in shapes]
    return [*(at for at in able if at not in (*numbers, *ordered)), *numbers, *ordered]


def same_classes(ours: Array, theirs: Array) -> tuple[int, int]:
    """Rows of two outputs with the same best class, and how many rows there are; (0, 0) without classes."""
    left, right = class_predictions(ours), class_predictions(theirs)
    if left is None or right is None or left.shape != right.shape:
        return 0, 0
    return int(np.count_nonzero(left == right)), int(left.size)


# Indices and truth values.

INDEX_SHARE = 0.95
"""So many answers of a healthy 8-bit network are those in float; others are the ones it is hardly sure of."""

# So rare may be as many as differ, before they are more than that: the only answer, or one of two, always are.
_RARE = 0.1
# A value that more of them have than this tells nothing: a mask of nothing would agree with a rare one.
_USUAL = 0.5
# More values than these have no usual one among them.
_MOST_VALUES = 1 << 12

INDEX_TYPES = frozenset({"bool", "int32", "int64", "uint32", "uint64"})
"""Types of tensors that hold indices or truth values; codes of 8 and 16 bits are numbers."""

IndexState = Literal["equal", "unclear", "different"]


def is_index(dtype: np.dtype[Any]) -> bool:
    """Whether a tensor of this type holds indices or truth values."""
    return dtype.name in INDEX_TYPES


def index_pair(reference: Array, candidate: Array) -> tuple[Array, Array]:
    """Two tensors of indices as what can be measured of them: ones, against ones where they are equal.

    Other tensors, and those of other shapes, are given back as they are.
    """
    if not is_index(reference.dtype) or reference.shape != candidate.shape:
        return reference, candidate
    return np.ones(reference.shape, np.float32), np.asarray(reference == candidate, dtype=np.float32)


@dataclass(frozen=True, slots=True)
class IndexCounts:
    """How many indices of an output are those of the reference.

    Attributes:
        total: How many there are.
        equal: How many are equal.
        values: By value of the reference, as long as these are few, how many have it and how many of them are
            equal; None where they are not few.
    """

    total: int = 0
    equal: int = 0
    values: Mapping[int, tuple[int, int]] | None = field(default_factory=dict)

    def add(self, ours: Array, theirs: Array) -> "IndexCounts":
        """These and one more sample; of another shape all are different."""
        same = ours == theirs if ours.shape == theirs.shape else np.zeros(ours.shape, bool)
        values: dict[int, tuple[int, int]] | None = None
        if self.values is not None:
            found, places = np.unique(ours, return_inverse=True)
            if found.size + len(self.values) <= _MOST_VALUES:
                counts = np.bincount(places.ravel(), minlength=found.size)
                equal = np.bincount(places.ravel(), weights=np.asarray(same).ravel(), minlength=found.size)
                values = dict(self.values)
                for value, many, right in zip(found.tolist(), counts.tolist(), equal.tolist(), strict=True):
                    before = values.get(value, (0, 0))
                    values[value] = before[0] + many, before[1] + int(right)
        return IndexCounts(self.total + int(ours.size), self.equal + int(np.count_nonzero(same)), values)

    @property
    def share(self) -> float:
        """Share of them that is equal."""
        return self.equal / self.total if self.total else 1.0

    @property
    def differing(self) -> int:
        """How many differ."""
        return self.total - self.equal

    @property
    def telling(self) -> int:
        """How many tell anything: without those that have, on both sides, the value that most have."""
        many, right = max((self.values or {}).values(), default=(0, 0))
        return self.total - right if many > _USUAL * self.total else self.total

    @property
    def state(self) -> IndexState:
        """Whether they agree; ``unclear`` where more differ than is usual, of so few that it may be chance."""
        if self.differing <= (1 - INDEX_SHARE) * self.telling:
            return "equal"
        return "unclear" if _at_least(self.differing, self.telling) > _RARE else "different"


def _at_least(count: int, total: int) -> float:
    """How probable so many differing ones are, if each differs with the usual share."""
    usual = 1 - INDEX_SHARE
    if total > 2000:
        spread = math.sqrt(total * usual * INDEX_SHARE)
        return 0.5 * math.erfc((count - 0.5 - total * usual) / (spread * math.sqrt(2.0)))
    below = sum(math.comb(total, each) * usual**each * INDEX_SHARE ** (total - each) for each in range(count))
    return 1.0 - below
