"""Layers whose operands or sums have fewer digits than float32 has."""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from roundoff.core.tensors import Array
from roundoff.diagnosis.devices.kernels.kernel import KernelNode
from roundoff.diagnosis.devices.kernels.layers import explicit_pads
from roundoff.messages.message import Message, message

# Steps of sums that are computed at most: a layer of 64 to 64 channels on 56 x 56 pixels has 13 million of them.
_MOST_STEPS = 1 << 25
_KINDS = ("float16", "bfloat16")
# Products that are added exactly before the sum is rounded: one by one, or as many as a unit adds at once.
_AT_ONCE = (1, 16, 32)


def rounded_to(values: Array, kind: str) -> Array:
    """Values with the digits of a shorter kind of float, to the nearest and halves to even, as float32."""
    plain = np.asarray(values, np.float32)
    if kind == "float16":
        with np.errstate(over="ignore"):
            return plain.astype(np.float16).astype(np.float32)
    bits = plain.view(np.uint32).astype(np.uint64)
    rounded = (bits + 0x7FFF + ((bits >> 16) & 1)) & 0xFFFF0000
    return np.where(np.isfinite(plain), rounded.astype(np.uint32).view(np.float32), plain)


def short_sums(at: KernelNode) -> Iterator[tuple[Message, "ShortSum"]]:
    """Ways to compute a layer with short operands, or with sums that are rounded on the way."""
    weight, named = at.constant(1), at.attributes
    plain = all(float(named.get(key, 1.0)) == 1 for key in ("alpha", "beta")) and not named.get("transA")
    if at.op not in _OPERANDS or weight is None or weight.dtype != np.float32 or not plain:
        return
    if at.op != "Conv" and weight.ndim != 2:
        return
    for kind in _KINDS:
        told = message(f"diagnosis.way_operands_{kind}", op=at.op)
        yield told, ShortSum(at.op, named, kind)
        yield message("diagnosis.way_all_short", op=at.op, kind=kind), ShortSum(at.op, named, kind, stored=True)
    factors = weight.size // at.result.shape[1 if at.op == "Conv" else -1]
    if at.result.size * factors > _MOST_STEPS:
        return
    for kind in _KINDS:
        told = message("diagnosis.way_sums", op=at.op, kind=kind)
        ways = [(True, 1), (False, 1), (True, 0), (False, 0)] if at.op == "Conv" else [(True, n) for n in _AT_ONCE]
        for channels_outside, at_once in ways:
            yield told, ShortSum(at.op, named, kind, channels_outside, at_once)
            if at_once == 1:
                yield told, ShortSum(at.op, named, kind, channels_outside, at_once, products=True)


@dataclass(frozen=True, slots=True, eq=False)
class ShortSum:
    """A layer with short operands.

    Attributes:
        op: Its operation.
        named: Its attributes.
        kind: The digits.
        channels_outside: Whether sums, which are rounded then, run over all taps of one channel first, or over all
            channels of one tap; None for sums that are not rounded.
        at_once: Products that are added exactly before the sum is rounded; 0 for those of one channel or tap.
        products: Whether each product is rounded before it is added.
        stored: Whether bias and result are rounded, whatever the sums are.
    """

    op: str
    named: Mapping[str, Any]
    kind: str
    channels_outside: bool | None = None
    at_once: int = 0
    products: bool = False
    stored: bool = False

    def __call__(self, x: Array, weight: Array, bias: Array | None) -> Array:
        """What it computes."""
        columns, rows, shape = _OPERANDS[self.op](
            rounded_to(x, self.kind), rounded_to(weight, self.kind), self.named
        )
        made = self._sum(columns, rows)
        # Of a product of matrices, places are rows of the result.
        made = made.reshape(shape) if self.op == "Conv" else made[0, 0].T.reshape(shape)
        if bias is None:
            return rounded_to(made, self.kind) if self.stored else made
        bias = rounded_to(bias, self.kind) if self.stored else bias
        made = made + (bias.reshape(-1, *[1] * (made.ndim - 2)) if self.op == "Conv" else bias)
        return rounded_to(made, self.kind) if self.stored or self.channels_outside is not None else made

    def _sum(self, columns: Array, rows: Array) -> Array:
        """Products added up, (batch, group, out, place)."""
        if self.channels_outside is None:
            return np.asarray(np.einsum("bgctp,goct->bgop", columns, rows, optimize=True))
        if not self.channels_outside:
            columns, rows = columns.swapaxes(2, 3), rows.swapaxes(2, 3)
        step = self.at_once or columns.shape[3]
        columns = columns.reshape(*columns.shape[:2], -1, columns.shape[-1])
        rows = rows.reshape(*rows.shape[:2], -1)
        total = np.zeros((*columns.shape[:2], rows.shape[1], columns.shape[-1]), np.float32)
        for first in range(0, columns.shape[2], step):
            part = slice(first, first + step)
            added = np.einsum("bgkp,gok->bgop", columns[:, :, part], rows[..., part])
            added = rounded_to(added, self.kind) if self.products else added
            total = rounded_to(total + added, self.kind)
        return total


Operands = tuple[Array, Array, Sequence[int]]
"""Columns (batch, group, channel, tap, place) and rows (group, out, channel, tap), and the shape of the result."""


def _of_conv(x: Array, weight: Array, named: Mapping[str, Any]) -> Operands:
    count, group = weight.ndim - 2, int(named.get("group", 1))
    strides, dilations = (list(named.get(each, [1] * count)) for each in ("strides", "dilations"))
    pads = explicit_pads(named, x.shape[2:], weight.shape[2:], strides, dilations)
    wide = np.pad(x, [(0, 0), (0, 0), *zip(pads[:count], pads[count:], strict=True)])
    reach = [(size - 1) * apart + 1 for size, apart in zip(weight.shape[2:], dilations, strict=True)]
    seen = np.lib.stride_tricks.sliding_window_view(wide, reach, axis=tuple(range(2, x.ndim)))
    steps = (*(slice(None, None, each) for each in strides), *(slice(None, None, each) for each in dilations))
    seen = seen[(slice(None), slice(None), *steps)]
    places, taps = seen.shape[2 : 2 + count], math.prod(weight.shape[2:])
    columns = np.moveaxis(seen, range(2, 2 + count), range(-count, 0)).reshape(
        len(x), group, -1, taps, math.prod(places)
    )
    rows = weight.reshape(group, len(weight) // group, weight.shape[1], taps)
    return columns, rows, (len(x), len(weight), *places)


def _of_product(x: Array, weight: Array, named: Mapping[str, Any]) -> Operands:
    weight = weight if named.get("transB") else weight.T
    columns = x.reshape(-1, x.shape[-1]).T[None, None, :, None]
    return columns, weight[None, :, :, None], (*x.shape[:-1], len(weight))


_OPERANDS: dict[str, Callable[[Array, Array, Mapping[str, Any]], Operands]] = {
    "Conv": _of_conv,
    "Gemm": _of_product,
    "MatMul": _of_product,
}
