"""Fingerprints: a few standardised elements of each tensor, so that one matrix product correlates all."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from roundoff.align.sampling import Floats

__all__ = ["SAMPLES", "SHORT", "Fingerprints", "fingerprints", "joined"]

SAMPLES = 2048
"""Elements in a fingerprint."""

SHORT = 3
"""Up to this many elements any two tensors correlate well, so that only their plain values can speak."""

_CONSTANT = 1e-5
"""A standard deviation this small, relative to the largest value, is rounding and not signal."""


@dataclass(frozen=True, slots=True)
class Fingerprints:
    """Fingerprints of several tensors at the same positions, one per row.

    Attributes:
        owners: Whose each row is; any number the caller understands.
        unit: Elements minus their mean, of length one; zero for tensors that are (nearly) constant or short.
            Shape (tensors, elements).
        mean: Mean of each row.
        deviation: Standard deviation of each row.
        effective: How many independent, evenly strong elements each row is worth: few when a handful of
            outliers make up all of its variance.
        head: The first elements as they are, all there is to know of a constant or short tensor.
            Shape (tensors, up to SHORT).
    """

    owners: tuple[int, ...]
    unit: npt.NDArray[np.float32]
    mean: Floats
    deviation: Floats
    effective: Floats
    head: Floats

    def subset(self, wanted: Collection[int]) -> "Fingerprints":
        """The rows of the owners wanted."""
        rows = [row for row, owner in enumerate(self.owners) if owner in wanted]
        return Fingerprints(
            tuple(self.owners[row] for row in rows),
            self.unit[rows],
            self.mean[rows],
            self.deviation[rows],
            self.effective[rows],
            self.head[rows],
        )

    @property
    def flat(self) -> npt.NDArray[np.bool_]:
        """Which rows cannot be correlated."""
        return np.asarray(self.effective == 0)


def joined(parts: Sequence[Fingerprints]) -> Fingerprints:
    """Fingerprints at the same positions, one after the other."""
    return Fingerprints(
        tuple(owner for part in parts for owner in part.owners),
        np.concatenate([part.unit for part in parts]),
        np.concatenate([part.mean for part in parts]),
        np.concatenate([part.deviation for part in parts]),
        np.concatenate([part.effective for part in parts]),
        np.concatenate([part.head for part in parts]),
    )


def fingerprints(rows: Mapping[int, Floats]) -> Fingerprints:
    """Standardise sampled elements: one row per owner, all of one length."""
    values = np.stack(list(rows.values()))
    largest = np.abs(values).max(axis=1)
    # In units of the largest value no square over- or underflows.
    scaled = values / np.where(largest > 0, largest, 1.0)[:, None]
    mean = scaled.mean(axis=1)
    scaled -= mean[:, None]
    squares = scaled * scaled
    variance = squares.mean(axis=1)
    flat = (variance <= _CONSTANT**2) | (values.shape[1] <= SHORT)
    safe = np.where(flat, 1.0, variance)
    kurtosis = np.maximum((squares * squares).mean(axis=1) / safe**2, 1.0)
    length = values.shape[1]
    unit = np.where(flat[:, None], 0.0, scaled / np.sqrt(safe * length)[:, None])
    return Fingerprints(
        owners=tuple(rows),
        unit=unit.astype(np.float32),
        mean=mean * largest,
        deviation=np.sqrt(variance) * largest,
        effective=np.where(flat, 0.0, length * np.minimum(1.0, 2.0 / kurtosis)),
        head=values[:, :SHORT],
    )
