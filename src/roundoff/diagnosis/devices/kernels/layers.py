"""Convolutions, products of matrices, normalizations and recurrent layers, computed wrongly."""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import permutations
from typing import Any

import numpy as np

from roundoff.core.quantizers import QuantSpec, fake_quantize, parameters_from_range
from roundoff.core.tensors import Array
from roundoff.diagnosis.devices.expectation import rounded_to
from roundoff.diagnosis.devices.kernels.kernel import DeviceKernel, KernelNode, wrong
from roundoff.messages.message import Message, message

Ways = Iterator[tuple[Message, DeviceKernel]]

_EPSILONS = (0.0, 1e-12, 1e-7, 1e-6, 1e-5, 1e-4, 1e-3, 1e-2)
# Bits that are kept of weights, with one scale or one for each channel.
_BITS = (8, 7, 6, 5, 4, 3, 2)


@wrong("Conv", "ConvTranspose", "Gemm")
def bias(at: KernelNode) -> Ways:
    """The bias is left out, added twice, subtracted, or that of the next channel."""
    values = at.constant(2)
    if values is None:
        return
    yield message("diagnosis.way_no_bias", op=at.op), at.with_input(2, np.zeros_like(values))
    yield message("diagnosis.way_bias_twice", op=at.op), at.with_input(2, 2 * values)
    yield message("diagnosis.way_bias_subtracted", op=at.op), at.with_input(2, -values)
    for step in (1, -1):
        yield message("diagnosis.way_bias_moved", op=at.op, by=step), at.with_input(2, np.roll(values, step))


@wrong("Add")
def added_constant(at: KernelNode) -> Ways:
    """A bias that is a node of its own."""
    for position in (0, 1):
        values = at.constant(position)
        if values is None:
            continue
        op = message("diagnosis.way_add_of_constant")
        yield message("diagnosis.way_no_bias", op=op), at.with_input(position, np.zeros_like(values))
        yield message("diagnosis.way_bias_twice", op=op), at.with_input(position, 2 * values)
        yield message("diagnosis.way_bias_subtracted", op=op), at.with_input(position, -values)
        if values.ndim and values.shape[-1] > 1:
            yield message("diagnosis.way_bias_moved", op=op, by=1), at.with_input(position, np.roll(values, 1, -1))


@wrong("Conv", "ConvTranspose", "Gemm", "MatMul")
def weight_order(at: KernelNode) -> Ways:
    """The weights are read in another order."""
    weight = at.constant(1)
    if weight is None or weight.ndim < 2:
        return
    for what, changed in _reordered(weight):
        if not np.array_equal(changed, weight):
            yield message(f"diagnosis.way_weights_{what}", op=at.op), at.with_input(1, changed)
    # Channels of the result: with the bias where it was; with it, the result itself is in another order.
    channels = {"Conv": 0, "ConvTranspose": 1, "Gemm": 0 if at.attributes.get("transB") else 1}
    axis = channels.get(at.op, weight.ndim - 1)
    for step in (1, -1):
        rolled = np.roll(weight, step, axis)
        yield message("diagnosis.way_weights_rolled", op=at.op, by=step), at.with_input(1, rolled)
    entering = {"Conv": 1, "ConvTranspose": 0, "Gemm": 1 - axis}.get(at.op, weight.ndim - 2)
    if weight.shape[entering] > 1:
        for step in (1, -1):
            text = message("diagnosis.way_weights_rolled_inputs", op=at.op, by=step)
            yield text, at.with_input(1, np.roll(weight, step, entering))
        text = message("diagnosis.way_weights_inputs_reversed", op=at.op)
        yield text, at.with_input(1, np.flip(weight, entering))


def _reordered(weight: Array) -> Iterator[tuple[str, Array]]:
    if weight.ndim >= 3:
        spatial = tuple(range(2, weight.ndim))
        yield "flipped", np.flip(weight, spatial)
        if len(spatial) == 2:
            yield "flipped_down", np.flip(weight, 2)
            yield "flipped_right", np.flip(weight, 3)
            if weight.shape[2] == weight.shape[3]:
                yield "turned", weight.swapaxes(2, 3)
        for axis in spatial:
            for step in (1, -1):
                yield "taps_moved", np.roll(weight, step, axis)
    if weight.shape[0] == weight.shape[1]:
        yield "transposed", weight.swapaxes(0, 1)
    # What was stored in one order of axes and is read in another.
    for order in permutations(range(weight.ndim)):
        if order != tuple(range(weight.ndim)):
            yield "misread", weight.transpose(order).reshape(weight.shape)
            sizes = [weight.shape[place] for place in order]
            yield "misread", weight.reshape(sizes).transpose(np.argsort(order))


@wrong("Conv", "ConvTranspose", "Gemm", "MatMul")
def weight_bits(at: KernelNode) -> Ways:
    """The weights have fewer bits."""
    weight = at.constant(1)
    if weight is None or weight.dtype != np.float32:
        return
    for bits in _BITS:
        for axis in (None, 0, weight.ndim - 1):
            sizes = np.abs(weight) if axis is None else np.moveaxis(np.abs(weight), axis, 0)
            size = sizes.max() if axis is None else sizes.reshape(len(sizes), -1).max(axis=1)
            spec = QuantSpec(bits=bits, signed=True, symmetric=True, axis=axis)
            rounded = fake_quantize(weight, parameters_from_range(-size, size, spec), spec)
            yield message("diagnosis.way_weights_bits", op=at.op, bits=bits), at.with_input(1, rounded)


@wrong("Conv")
def padding(at: KernelNode) -> Ways:
    """Pads on one side, moved by one, or of another value; another dilation."""
    weight, given = at.value(1), at.value(0)
    if weight is None or given is None:
        return
    named = at.attributes
    count = weight.ndim - 2
    strides, dilations = (list(named.get(each, [1] * count)) for each in ("strides", "dilations"))
    pads = explicit_pads(named, given.shape[2:], weight.shape[2:], strides, dilations)
    for text, moved in _moved_pads(pads, at.op):
        yield text, at.with_attributes(pads=moved, auto_pad="NOTSET")
    yield from _padded_values(at, pads, given)
    if any(each > 1 for each in dilations):
        less = [(d - 1) * (k - 1) for d, k in zip(dilations, weight.shape[2:], strict=True)]
        inner = [pads[i] - less[i] // 2 for i in range(count)]
        inner += [pads[count + i] - (less[i] - less[i] // 2) for i in range(count)]
        yield (
            message("diagnosis.way_no_dilation", op=at.op),
            at.with_attributes(dilations=[1] * count, pads=inner, auto_pad="NOTSET"),
        )


def explicit_pads(
    named: Mapping[str, Any], sizes: Any, kernel: Any, strides: list[int], dilations: list[int]
) -> list[int]:
    """The pads as numbers, whatever way they are given in."""
    mode = named.get("auto_pad", b"NOTSET")
    if mode in (b"NOTSET", b""):
        return list(named.get("pads", [0] * 2 * len(strides)))
    if mode == b"VALID":
        return [0] * 2 * len(strides)
    before, after = [], []
    for size, k, s, d in zip(sizes, kernel, strides, dilations, strict=True):
        whole = max(0, (-(-size // s) - 1) * s + (k - 1) * d + 1 - size)
        less, more = whole // 2, whole - whole // 2
        before.append(less if mode == b"SAME_UPPER" else more)
        after.append(more if mode == b"SAME_UPPER" else less)
    return before + after


def _moved_pads(pads: list[int], op: str) -> Iterator[tuple[Message, list[int]]]:
    count = len(pads) // 2
    begin, end = pads[:count], pads[count:]
    both = [a + b for a, b in zip(begin, end, strict=True)]
    nothing = [0] * count
    seen = [pads]
    ways: list[tuple[Message, list[int]]] = [
        (message("diagnosis.way_pads_begin", op=op), [*both, *nothing]),
        (message("diagnosis.way_pads_end", op=op), [*nothing, *both]),
        (message("diagnosis.way_pads_exchanged", op=op), [*end, *begin]),
    ]
    for axis in range(count):
        for step in (1, -1):
            moved = list(pads)
            moved[axis], moved[count + axis] = moved[axis] + step, moved[count + axis] - step
            ways.append((message("diagnosis.way_pads_moved", op=op), moved))
    for step in (1, -1):
        moved = [*(each + step for each in begin), *(each - step for each in end)]
        ways.append((message("diagnosis.way_pads_moved", op=op), moved))
    for text, moved in ways:
        if moved not in seen and min(moved) >= 0:
            seen.append(moved)
            yield text, moved


def _padded_values(at: KernelNode, pads: list[int], given: Array) -> Ways:
    if not any(pads):
        return
    count = len(pads) // 2
    whole = np.array([0, 0, *pads[:count], 0, 0, *pads[count:]], np.int64)
    sizes = f"{at.name}/pads"
    bare = at.kernel.with_constant(sizes, whole)

    def padded(mode: str, more: list[str], kernel: DeviceKernel) -> DeviceKernel:
        wide = kernel.before(at.name, 0, "Pad", [sizes, *more], mode=mode)
        return wide.with_attributes(at.name, pads=[0] * len(pads), auto_pad="NOTSET")

    yield message("diagnosis.way_pads_edge", op=at.op), padded("edge", [], bare)
    yield message("diagnosis.way_pads_reflect", op=at.op), padded("reflect", [], bare)
    lowest = at.lowest.get(at.inputs[0])
    tried = {1.0, -1.0, float(given.min()), *(() if lowest is None else (lowest,))}
    for value in sorted(tried - {0.0}):
        name = f"{at.name}/pad"
        kernel = bare.with_constant(name, np.asarray(value, given.dtype))
        text = message("diagnosis.way_pads_value", op=at.op, value=value)
        yield text, padded("constant", [name], kernel)


@wrong("Conv", "ConvTranspose")
def groups(at: KernelNode) -> Ways:
    """Groups read or write the wrong channels."""
    count = int(at.attributes.get("group", 1))
    weight, given = at.constant(1), at.value(0)
    if count < 2 or weight is None or given is None:
        return
    orders: dict[str, Callable[[int], Array]] = {
        "interleaved": lambda size: np.arange(size).reshape(count, -1).T.ravel(),
        "dealt": lambda size: np.arange(size).reshape(-1, count).T.ravel(),
        "next": lambda size: np.roll(np.arange(size), size // count),
    }
    for how, order in orders.items():
        for side, size in (("read", given.shape[1]), ("write", at.result.shape[1])):
            places = order(size).astype(np.int64)
            if np.array_equal(places, np.arange(size)):
                continue
            text = message(f"diagnosis.way_groups_{side}_{how}", op=at.op)
            name = f"{at.name}/channels"
            kernel = at.kernel.with_constant(name, places)
            if side == "read":
                yield text, kernel.before(at.name, 0, "Gather", [name], axis=1)
            else:
                yield text, kernel.behind(at.name, [("Gather", ["$", name], {"axis": 1})])
    if at.op == "Conv" and weight.shape[1] == 1:
        # A multiplier of channels whose two axes are exchanged in the weights, with or without the bias.
        for how in ("interleaved", "dealt"):
            places = orders[how](len(weight))
            if not np.array_equal(places, np.arange(len(weight))):
                yield message("diagnosis.way_groups_multiplier", op=at.op), at.with_input(1, weight[places])


@wrong("Gemm")
def gemm(at: KernelNode) -> Ways:
    """Factors left out."""
    named = at.attributes
    for key in ("alpha", "beta"):
        if float(named.get(key, 1.0)) != 1.0:
            yield message("diagnosis.way_without_factor", op=at.op, factor=key), at.with_attributes(**{key: 1.0})


@wrong("MatMul", "Gemm")
def transposed_operands(at: KernelNode) -> Ways:
    """A computed operand is transposed, where its shape allows it."""
    for position in (0, 1):
        values = at.value(position)
        if values is None or at.constant(position) is not None or values.ndim < 2:
            continue
        if values.shape[-1] != values.shape[-2]:
            continue
        order = [*range(values.ndim - 2), values.ndim - 1, values.ndim - 2]
        text = message("diagnosis.way_operand_transposed", op=at.op, number=position + 1)
        yield text, at.kernel.before(at.name, position, "Transpose", perm=order)


@wrong("BatchNormalization")
def batch_norm(at: KernelNode) -> Ways:
    """One of its parts is left out, another epsilon, or a deviation in the place of the variance."""
    parts = [at.constant(position) for position in range(1, 5)]
    if any(each is None for each in parts):
        return
    scale, shift, mean, variance = (np.asarray(each) for each in parts)
    for what, position, values in (
        ("scale", 1, np.ones_like(scale)),
        ("shift", 2, np.zeros_like(shift)),
        ("mean", 3, np.zeros_like(mean)),
        ("variance", 4, np.ones_like(variance)),
    ):
        yield message(f"diagnosis.way_norm_without_{what}", op=at.op), at.with_input(position, values)
    yield message("diagnosis.way_bias_twice", op=at.op), at.with_input(2, 2 * shift)
    yield message("diagnosis.way_bias_subtracted", op=at.op), at.with_input(2, -shift)
    yield message("diagnosis.way_norm_mean_added", op=at.op), at.with_input(3, -mean)
    yield message("diagnosis.way_norm_no_root", op=at.op), at.with_input(4, np.square(variance))
    yield message("diagnosis.way_norm_root_twice", op=at.op), at.with_input(4, np.sqrt(np.maximum(variance, 0)))
    # The shift of a folded normalization is (shift - mean * factor); what is forgotten there is this.
    factor = scale / np.sqrt(variance + float(at.attributes.get("epsilon", 1e-5)))
    yield (
        message("diagnosis.way_norm_unscaled_mean", op=at.op),
        at.with_input(3, mean / np.where(factor, factor, 1)),
    )
    yield from _epsilons(at)
    for step in (1, -1):
        moved = at.kernel
        for position, values in enumerate((scale, shift, mean, variance), start=1):
            moved = moved.with_constant(at.inputs[position], np.roll(values, step))
        yield message("diagnosis.way_norm_moved", op=at.op, by=step), moved


def _epsilons(at: KernelNode) -> Ways:
    usual = float(at.attributes.get("epsilon", 1e-5))
    for value in _EPSILONS:
        if abs(value - usual) > usual * 1e-3:
            yield message("diagnosis.way_epsilon", op=at.op, value=value), at.with_attributes(epsilon=value)


@wrong("LayerNormalization", "InstanceNormalization", "GroupNormalization")
def layer_norm(at: KernelNode) -> Ways:
    """Scale or shift left out, another axis or epsilon, no mean taken away."""
    for position, what, neutral in ((1, "scale", 1.0), (2, "shift", 0.0)):
        values = at.constant(position)
        if values is not None:
            filled = np.full_like(values, neutral)
            yield message(f"diagnosis.way_norm_without_{what}", op=at.op), at.with_input(position, filled)
    yield from _epsilons(at)


_GATES = {"GRU": 3, "LSTM": 4}


@wrong("GRU", "LSTM")
def recurrent(at: KernelNode) -> Ways:
    """Gates in another order, another place of the reset, the other direction, no bias."""
    gates = _GATES[at.op]
    if at.op == "GRU":
        other = 0 if at.attributes.get("linear_before_reset", 0) else 1
        yield message("diagnosis.way_reset", op=at.op), at.with_attributes(linear_before_reset=other)
    if at.attributes.get("direction", b"forward") in (b"forward", b"reverse"):
        turned = "reverse" if at.attributes.get("direction", b"forward") == b"forward" else "forward"
        yield message("diagnosis.way_direction", op=at.op), at.with_attributes(direction=turned)
    if (both := at.constant(3)) is not None:
        yield message("diagnosis.way_no_bias", op=at.op), at.with_input(3, np.zeros_like(both))
        half = both.shape[1] // 2
        for first, what in ((0, "inputs"), (half, "states")):
            less = np.array(both)
            less[:, first : first + half] = 0
            yield message(f"diagnosis.way_no_bias_of_{what}", op=at.op), at.with_input(3, less)
    if any(at.constant(position) is None for position in (1, 2)):
        return
    for order in permutations(range(gates)):
        if order == tuple(range(gates)):
            continue
        kernel = at.kernel
        for position in (1, 2, 3):
            values = at.constant(position)
            if values is not None:
                kernel = kernel.with_constant(at.inputs[position], _gates(values, order, twice=position == 3))
        yield message("diagnosis.way_gates", op=at.op, order=tuple(order)), kernel


def _gates(values: Array, order: tuple[int, ...], *, twice: bool) -> Array:
    parts = values.reshape(values.shape[0], 2 if twice else 1, len(order), -1, *values.shape[2:])
    return parts[:, :, list(order)].reshape(values.shape)


# Layers whose operands or sums have fewer digits than float32 has.

# Steps of sums that are computed at most: a layer of 64 to 64 channels on 56 x 56 pixels has 13 million of them.
_MOST_STEPS = 1 << 25
_KINDS = ("float16", "bfloat16")
# Products that are added exactly before the sum is rounded: one by one, or as many as a unit adds at once.
_AT_ONCE = (1, 16, 32)


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
