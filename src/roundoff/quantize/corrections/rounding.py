"""Rounding a weight up or down so that the errors of its elements cancel in what the layer computes."""

import numpy as np

from roundoff.core.tensors import Array

__all__ = ["output_error", "rounded_together"]

_DAMPING = 0.01
"""Share of the mean energy that is added to each input: samples are few, and what they do not show counts too."""

_NOTHING = 1e-12
"""Share of an input's energy that is no gain: sums end in other bits."""
_LONGEST_FEEDBACK = 2500
"""Longer rows are only polished: the matrix would have to be inverted, at the third power of their length."""


def output_error(error: Array, gram: Array) -> Array:
    """Squared error of what each row computes, [groups, rows].

    Args:
        error: Error of the weight, [groups, rows, length].
        gram: Gram matrix of the inputs, [groups, length, length].
    """
    return np.asarray(np.einsum("grk,grk->gr", error @ gram, error))


def damped(gram: Array) -> Array:
    """The Gram matrix with every input a little louder."""
    mean = np.einsum("gkk->g", gram) / max(gram.shape[1], 1)
    return np.asarray(gram + _DAMPING * mean[:, None, None] * np.eye(gram.shape[1]))


def rounded_together(steps: Array, nearest: Array, gram: Array, *, limits: tuple[int, int], sweeps: int) -> Array:
    """Codes of a weight, each one of the two next to its value, with the least error of results that was found.

    Two ways are tried for each row. Elements are rounded one after the other, and what each leaves is made up for
    by those that are still to come, as far as inputs are alike. Or one begins with the nearest codes. Then element
    after element is rounded the other way wherever that lessens the error; so no row is worse than with the
    nearest codes.

    Args:
        steps: The weight in steps, as a real number on the scale of its codes, [groups, rows, length].
        nearest: The nearest codes, of the same shape.
        gram: Gram matrix of the inputs, [groups, length, length].
        limits: Smallest and largest code.
        sweeps: How often all elements are gone through at most.

    Returns:
        float64 of the same shape.
    """
    whole = damped(gram)
    best = _polished(steps, nearest.astype(np.float64), whole, limits=limits, sweeps=sweeps)
    start = _with_feedback(steps, whole, limits) if steps.shape[-1] <= _LONGEST_FEEDBACK else None
    if start is None:
        return best
    other = _polished(steps, start, whole, limits=limits, sweeps=sweeps)
    better = output_error(other - steps, whole) < output_error(best - steps, whole)
    return np.where(better[..., None], other, best)


def _with_feedback(steps: Array, whole: Array, limits: tuple[int, int]) -> Array | None:
    """Round element by element, the errors so far being made up for; None where nothing is known of the inputs."""
    order = np.argsort(-np.einsum("gkk->k", whole), kind="stable")
    try:
        inverse = np.linalg.inv(whole[:, order][:, :, order])
        weights = np.linalg.cholesky(inverse).transpose(0, 2, 1)
    except np.linalg.LinAlgError:
        return None
    low, high = (np.clip(side, *limits) for side in (np.floor(steps), np.ceil(steps)))
    left, codes = steps[..., order].copy(), np.empty(steps.shape)
    for place, at in enumerate(order.tolist()):
        chosen = np.clip(np.rint(left[..., place]), low[..., at], high[..., at])
        codes[..., at] = chosen
        error = (left[..., place] - chosen) / weights[:, None, place, place]
        left[..., place + 1 :] -= error[..., None] * weights[:, None, place, place + 1 :]
    return codes


def _polished(steps: Array, codes: Array, whole: Array, *, limits: tuple[int, int], sweeps: int) -> Array:
    """Round single elements the other way as long as that lessens the error."""
    codes = codes.copy()
    low, high = np.floor(steps), np.ceil(steps)
    # A value that is a code already, or beyond the last one, has no other.
    movable = (low < high) & (low >= limits[0]) & (high <= limits[1])
    other = np.where(codes == low, high, low)
    pull = (codes - steps) @ whole
    own = np.einsum("gkk->gk", whole)
    order = np.argsort(-own.sum(axis=0), kind="stable")
    for _ in range(sweeps):
        changed = False
        for at in order.tolist():
            move = other[:, :, at] - codes[:, :, at]
            gain = 2 * move * pull[:, :, at] + move**2 * own[:, at, None]
            better = movable[:, :, at] & (gain < -_NOTHING * own[:, at, None])
            if not better.any():
                continue
            changed = True
            groups, rows = np.nonzero(better)
            step = move[groups, rows]
            other[groups, rows, at] = codes[groups, rows, at]
            codes[groups, rows, at] += step
            # Of one group, indices of rows alone are quicker.
            place = (0, rows) if len(whole) == 1 else (groups, rows)
            pull[place] += step[:, None] * (whole[0, at] if len(whole) == 1 else whole[groups, at])
        if not changed:
            break
    return codes
