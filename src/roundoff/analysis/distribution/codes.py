"""Recording what a quantizer makes of the values it is fed with: codes, clipping, error."""

import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from roundoff.core.distributions import QuantizerFacts
from roundoff.core.quantization import dequantize, quantize, representable_range
from roundoff.core.quantizer import Quantizer, QuantParams, QuantSpec
from roundoff.core.tensors import Array

__all__ = ["CodeRecord"]

# Values of one step: with all that is computed between, they stay in the cache.
_BLOCK = 1 << 16
# Codes of more bits are too many to have a counter each.
_MOST_COUNTED_BITS = 16


@dataclass(frozen=True, slots=True, eq=False)
class _Part:
    """Values that share one scale.

    Attributes:
        values: float32, flat.
        codes: Theirs, where they are given.
        params: Of shape [].
        low: Below this a value is clipped.
        high: Above this.
    """

    values: Array
    codes: Array | None
    params: QuantParams
    low: float
    high: float


class CodeRecord:
    """What was seen of one quantizer; values that are not finite are left out."""

    def __init__(self, quantizer: Quantizer) -> None:
        self._quantizer = quantizer
        spec = quantizer.spec
        # Codes of one scale, whatever the quantizer has.
        self._spec = spec.along(None)
        self._counts = np.zeros(0 if spec.bits > _MOST_COUNTED_BITS else _levels(spec), np.int64)
        self._rare: dict[int, int] = {}
        self._count = self._below = self._above = self._nonzero = self._zeroed = 0
        self._signal = self._noise = 0.0

    def add(self, values: Array) -> None:
        """See values that the quantizer is fed with."""
        for part in self._parts(values):
            self._take(part)

    def facts(self) -> QuantizerFacts:
        """All of it in numbers."""
        quantizer, total = self._quantizer, max(1, self._count)
        low, high = representable_range(quantizer.params, quantizer.spec)
        points = np.unique(quantizer.params.zero_point)
        counts = self._counts[self._counts > 0] if self._counts.size else np.array(list(self._rare.values()))
        widest = int(np.argmax(high - low))
        return QuantizerFacts(
            name=quantizer.name,
            dtype=quantizer.spec.dtype,
            axis=quantizer.spec.axis if quantizer.params.scale.size > 1 else None,
            scales=(float(quantizer.params.scale.min()), float(quantizer.params.scale.max())),
            scale_ratio=float(quantizer.params.scale.max() / np.median(quantizer.params.scale)),
            zero_point=int(points[0]) if points.size == 1 else None,
            low=float(low.max()),
            high=float(high.min()),
            widest=(float(low.reshape(-1)[widest]), float(high.reshape(-1)[widest])),
            clipped_low=self._below / total,
            clipped_high=self._above / total,
            zeroed=self._zeroed / max(1, self._nonzero),
            levels_used=int(counts.size),
            levels=_levels(quantizer.spec),
            entropy_bits=_entropy_bits(counts),
            sqnr_db=self._sqnr_db(),
        )

    def _sqnr_db(self) -> float | None:
        if not self._count:
            return None
        if self._noise == 0:
            return math.inf
        return 10 * math.log10(self._signal / self._noise) if self._signal else -math.inf

    def _parts(self, values: Array) -> Iterator[_Part]:
        quantizer = self._quantizer
        params, axis, codes = quantizer.params, quantizer.spec.axis, quantizer.codes
        low, high = representable_range(params, quantizer.spec)
        half = params.scale.astype(np.float64) / 2
        # Within half a step of a code it is rounding, not clipping.
        limits = np.stack([low - half, high + half]).reshape(2, -1)
        if params.scale.size == 1:
            whole = QuantParams(params.scale.reshape(()), params.zero_point.reshape(()))
            yield from _blocks(
                values.reshape(-1), None if codes is None else codes.reshape(-1), whole, limits[:, 0]
            )
            return
        rows = np.moveaxis(values, axis or 0, 0)
        code_rows = None if codes is None else np.moveaxis(codes, axis or 0, 0)
        for row in range(len(rows)):
            own = QuantParams(params.scale[row], params.zero_point[row])
            some = None if code_rows is None else code_rows[row].reshape(-1)
            yield from _blocks(rows[row].reshape(-1), some, own, limits[:, row])

    def _take(self, part: _Part) -> None:
        values, codes = part.values, part.codes
        finite = np.isfinite(values)
        if not finite.all():
            values, codes = values[finite], None if codes is None else codes[finite]
        if not values.size:
            return
        if codes is None:
            codes = quantize(values, part.params, self._spec)
        self._count += values.size
        exact = values.astype(np.float64)
        self._below += int(np.count_nonzero(exact < part.low))
        self._above += int(np.count_nonzero(exact > part.high))
        restored = dequantize(codes, part.params)
        error = exact - restored
        self._nonzero += int(np.count_nonzero(exact))
        self._zeroed += int(np.count_nonzero((restored == 0) & (exact != 0)))
        self._signal += float(np.add.reduce(exact * exact))
        self._noise += float(np.add.reduce(error * error))
        if self._counts.size:
            places = codes.astype(np.intp) - self._spec.code_min
            self._counts += np.bincount(places, minlength=self._counts.size)
        else:
            for code, times in zip(*np.unique(codes, return_counts=True), strict=True):
                self._rare[int(code)] = self._rare.get(int(code), 0) + int(times)


def _blocks(values: Array, codes: Array | None, params: QuantParams, limits: Array) -> Iterator[_Part]:
    for start in range(0, values.size, _BLOCK):
        part = slice(start, start + _BLOCK)
        some = values[part].astype(np.float32, copy=False)
        yield _Part(some, None if codes is None else codes[part], params, float(limits[0]), float(limits[1]))


def _levels(spec: QuantSpec) -> int:
    return spec.code_max - spec.code_min + 1


def _entropy_bits(counts: Array) -> float:
    """Shannon's entropy of a code that occurs so often."""
    if not counts.size:
        return 0.0
    shares = counts / counts.sum()
    return float(max(0.0, -np.add.reduce(shares * np.log2(shares))))
