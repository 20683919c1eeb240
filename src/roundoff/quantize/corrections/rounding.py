"""Rounding a weight up or down so that the errors of its elements cancel in what the layer computes."""

import numpy as np

from roundoff.core.tensors import Array

__all__ = ["output_error", "rounded_together"]

_DAMPING = 0.01
"""Share of the mean energy that is added to each input: samples are few, and what they do not show counts too."""


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

    Element after element is rounded the other way wherever that lessens the error, with the errors of all others
    as they are; so no row is worse than with the codes it began with.

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
    codes = nearest.astype(np.float64)
    other = np.where(steps >= codes, codes + 1, codes - 1)
    # A value that is a code already, or beyond the last one, has no other.
    movable = (steps != codes) & (other >= limits[0]) & (other <= limits[1]) & (np.abs(steps - codes) < 1)
    pull = (codes - steps) @ whole
    own = np.einsum("gkk->gk", whole)
    order = np.argsort(-own.sum(axis=0), kind="stable")
    for _ in range(sweeps):
        changed = False
        for at in order.tolist():
            move = other[:, :, at] - codes[:, :, at]
            gain = 2 * move * pull[:, :, at] + move**2 * own[:, at, None]
            better = movable[:, :, at] & (gain < -1e-12 * own[:, at, None])
            if not better.any():
                continue
            changed = True
            groups, rows = np.nonzero(better)
            step = move[groups, rows]
            other[groups, rows, at] = codes[groups, rows, at]
            codes[groups, rows, at] += step
            if len(whole) == 1:
                pull[0, rows] += step[:, None] * whole[0, at]
            else:
                pull[groups, rows] += step[:, None] * whole[groups, at]
        if not changed:
            break
    return codes
