"""Arrays that are no pictures: outputs, results and other tensors."""

import itertools
from collections.abc import Callable, Iterator, Sequence

import numpy as np

from roundoff.core.tensors import Array
from roundoff.messages.message import message, verbatim
from roundoff.studies.check_io.candidate import Claim, Judging, PixelPairs, Trial, sample_pixels, verify
from roundoff.studies.check_io.fitting import best_order
from roundoff.studies.check_io.result import Correction, InputChange
from roundoff.studies.check_io.storage import storages

__all__ = ["vector_claims"]

_FEWEST, _LOOKED_AT = 8, 20_000
_LOOSE = 0.05
_MOST_AXES = 4

Read = Callable[[Array], Array]


def vector_claims(training: Sequence[Array], deployed: Sequence[Array], judging: Judging) -> Iterator[Claim]:
    """Verified claims about two sets of tensors, the plainest first.

    Args:
        training: Training's arrays.
        deployed: The deployed side's, paired with them.
        judging: By what claims are judged.
    """
    for changes, read in _reads(training[0], deployed[0]):
        trial = _trial(training, deployed, changes=changes, read=read)
        if trial is None or trial.fit.unexplained > _LOOSE:
            continue
        claim = verify(trial, judging)
        if claim is not None:
            yield claim


def _reads(training: Array, deployed: Array) -> Iterator[tuple[tuple[InputChange, ...], Read]]:
    if training.size == deployed.size:
        yield from _arranged(training.shape, deployed.shape)
        yield from _activations(training.shape, deployed.shape)
        if training.ndim >= 2 and training.shape == deployed.shape and training.shape[-1] < training.size:
            yield _ROWS, _sorted_rows
    for storage in storages(training, deployed):
        if not storage.partial:
            yield storage.changes, storage.read


def _arranged(wanted: tuple[int, ...], had: tuple[int, ...]) -> Iterator[tuple[tuple[InputChange, ...], Read]]:
    if wanted == had:
        yield (), lambda array: array
    axes = range(len(had))
    if len(had) == len(wanted) <= _MOST_AXES:
        for order in itertools.permutations(axes):
            if tuple(had[axis] for axis in order) == wanted and order != tuple(axes):
                turned = ", ".join(map(str, order))
                value, facts = message("check_io.set_transpose_by", axes=turned), (("axes", str(list(order))),)
                text = message("check_io.axes_permuted", axes=turned)
                correction = Correction(message("check_io.set_layout"), value, facts)
                yield (InputChange("axes", text, correction),), _transposing(order)
    if wanted != had:
        sizes = {"deployed": ", ".join(map(str, had)), "training": ", ".join(map(str, wanted))}
        correction = Correction(message("check_io.set_shape"), verbatim(str(list(wanted))))
        change = InputChange("reshaped", message("check_io.shape_is", **sizes), correction)
        yield (change,), lambda array: array.reshape(wanted)
    elif len(had) >= 2:
        # The same shape over another order of memory.
        for first in range(1, len(had)):
            memory = (*had[first:], *had[:first])
            text = message("check_io.order_of_shape", shape=", ".join(map(str, memory)))
            order = (*range(len(had) - first, len(had)), *range(len(had) - first))
            correction = Correction(message("check_io.set_layout"), message("check_io.set_no_reshape"))
            yield (InputChange("reshaped", text, correction),), _reshaping(memory, order)


def _activations(wanted: tuple[int, ...], had: tuple[int, ...]) -> Iterator[tuple[tuple[InputChange, ...], Read]]:
    if wanted != had:
        return
    named = (
        (message("check_io.softmax_missing"), _softmax),
        (message("check_io.sigmoid_missing"), _sigmoid),
        (message("check_io.sigmoid_more"), _logit),
        (message("check_io.exponential_missing"), _exponential),
    )
    for text, function in named:
        yield (InputChange("activation", text, Correction(message("check_io.set_after"), text)),), function


_ROWS = (
    InputChange(
        "row-order",
        message("check_io.rows_in_order"),
        Correction(message("check_io.set_rows"), message("check_io.set_sort")),
    ),
)


def _trial(
    training: Sequence[Array], deployed: Sequence[Array], *, changes: tuple[InputChange, ...], read: Read
) -> Trial | None:
    by_rows = any(change.kind == "row-order" for change in changes)

    def pairs() -> PixelPairs:
        for one, other in zip(training, deployed, strict=True):
            wanted = _sorted_rows(one) if by_rows else one
            yield wanted.reshape(-1, 1), read(other).reshape(-1, 1)

    try:
        first, second = sample_pixels(pairs(), _LOOKED_AT)
    except ValueError:
        return None
    if len(first) != len(second) or len(first) < _FEWEST:
        return None
    fit = best_order(first, second)
    return None if fit is None else Trial(changes, pairs, fit)


def _sorted_rows(array: Array) -> Array:
    rows = array.reshape(-1, array.shape[-1])
    return rows[np.lexsort(rows.T[::-1])]


def _transposing(order: tuple[int, ...]) -> Read:
    return lambda array: array.transpose(order)


def _reshaping(shape: tuple[int, ...], order: tuple[int, ...]) -> Read:
    return lambda array: np.ascontiguousarray(array).reshape(shape).transpose(order)


def _softmax(array: Array) -> Array:
    powers = np.exp(array.astype(np.float64) - array.max(axis=-1, keepdims=True))
    normed: Array = powers / powers.sum(axis=-1, keepdims=True)
    return normed


def _sigmoid(array: Array) -> Array:
    with np.errstate(over="ignore"):
        squashed: Array = 1 / (1 + np.exp(-array.astype(np.float64)))
    return squashed


def _logit(array: Array) -> Array:
    values = array.astype(np.float64)
    with np.errstate(all="ignore"):
        stretched: Array = np.log(values / (1 - values))
    return stretched


def _exponential(array: Array) -> Array:
    with np.errstate(over="ignore"):
        powers: Array = np.exp(array.astype(np.float64))
    return powers
