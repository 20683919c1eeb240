"""What a layer's inputs say of its weight: the Gram matrix of all that one row of the weight is multiplied with.

The squared error of a layer's results is a quadratic form of the error of its weight, with this matrix; once it is
known no sample is needed any more.
"""

from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from roundoff.core.tensors import Array
from roundoff.graph.pointwise import attributes
from roundoff.runtime.integer.geometry import conv_geometry, pad_spatial

__all__ = ["Counts", "Gram", "WeightRows", "weight_rows"]

# Products of one sample are summed over at most so many places of its map; neighbours say the same.
_MOST_PLACES, _LEAST_PLACES = 1024, 8
# Multiplications for one layer: a second or two of one core.
_MOST_WORK = 2e10


class Counts(Protocol):
    """Says how much results count."""

    def counts(self, seen: Array) -> Array:
        """Of what places read, [groups, places, length], how much each result counts, [groups, places, rows]."""
        ...


@dataclass(frozen=True, slots=True)
class WeightRows:
    """How a weight is laid out in rows, each of which makes one output channel.

    Attributes:
        groups: Groups of rows, which read different inputs.
        length: Elements of a row.
        turned: Whether the weight is stored with its rows as columns.
    """

    groups: int
    length: int
    turned: bool

    def rows(self, values: Array) -> Array:
        """Values of the weight's shape as [groups, rows, length]."""
        flat = values.T if self.turned else values
        return flat.reshape(self.groups, flat.shape[0] // self.groups, self.length)

    def restored(self, rows: Array, shape: tuple[int, ...]) -> Array:
        """The other way round."""
        flat = rows.reshape(shape[::-1] if self.turned else shape)
        return np.ascontiguousarray(flat.T if self.turned else flat)


def weight_rows(node: Any, shape: tuple[int, ...]) -> WeightRows | None:
    """How the weight of a node is laid out; None when its results are no sums over rows."""
    given = attributes(node)
    if node.op_type == "Conv":
        return WeightRows(int(given.get("group", 1)), int(np.prod(shape[1:])), turned=False)
    if len(shape) != 2 or node.op_type not in ("Gemm", "MatMul") or given.get("transA", 0):
        return None
    turned = not given.get("transB", 0)
    return WeightRows(1, shape[0] if turned else shape[1], turned)


class Gram:
    """Sums up products of a layer's inputs.

    Attributes:
        matrix: float64 [groups, length, length]; where results count differently, one for each row of each group.

    Args:
        node: The layer.
        shape: Shape of its weight.
        rows: How that is laid out.
        samples: How many samples will come.
        counts: How much results count; all the same when None.
    """

    matrix: Array

    def __init__(
        self,
        node: Any,
        shape: tuple[int, ...],
        rows: WeightRows,
        *,
        samples: int,
        counts: Counts | None = None,
    ) -> None:
        self._rows, self._kernel, self._counts = rows, shape[2:], counts
        self._attributes = attributes(node)
        mode = self._attributes.get("auto_pad", b"NOTSET")
        self._attributes["auto_pad"] = mode.decode() if isinstance(mode, bytes) else mode
        self._convolves = node.op_type == "Conv"
        matrices = rows.groups if counts is None else int(np.prod(shape)) // rows.length
        work = _MOST_WORK / (matrices * rows.length**2 * max(samples, 1))
        self._places = int(np.clip(work, _LEAST_PLACES, _MOST_PLACES))
        self.matrix = np.zeros((matrices, rows.length, rows.length))

    def add(self, values: Array) -> None:
        """Take in what the layer reads in one sample."""
        seen = self._windows(values) if self._convolves else values.reshape(1, -1, values.shape[-1])
        if seen.shape[1] > self._places:
            seen = seen[:, np.linspace(0, seen.shape[1] - 1, self._places).round().astype(int)]
        # Products of one sample in float32, twice as fast; their sum over samples in float64.
        finite = np.where(np.isfinite(seen), seen, 0).astype(np.float32)
        if self._counts is None:
            self.matrix += finite.transpose(0, 2, 1) @ finite
            return
        weights = self._counts.counts(finite)
        rows = weights.shape[-1]
        for row in range(rows):
            # The matrices of one row in all groups.
            self.matrix[row::rows] += (finite * weights[..., row, None]).transpose(0, 2, 1) @ finite

    def _windows(self, values: Array) -> Array:
        """What every output place reads, [groups, places, length]."""
        geometry = conv_geometry(self._attributes, values.shape[2:], self._kernel)
        padded = pad_spatial(values, geometry.begins, geometry.ends)
        parts = np.stack([padded[(slice(None), slice(None), *place)] for _, place in geometry.offsets()], axis=-1)
        # [N, C, places..., window] -> [groups, N x places, C / groups x window]
        batch, channels = parts.shape[:2]
        flat = parts.reshape(batch, self._rows.groups, channels // self._rows.groups, -1, parts.shape[-1])
        return flat.transpose(1, 0, 3, 2, 4).reshape(self._rows.groups, -1, self._rows.length)
