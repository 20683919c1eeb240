"""Sums of products: Conv, ConvTranspose, Gemm, MatMul."""

from collections.abc import Callable
from dataclasses import replace
from functools import partial

import numpy as np

from roundoff.core.quantizers import aligned
from roundoff.core.tensors import Array
from roundoff.messages.message import english
from roundoff.run.integer.call import IntegerKernel, KernelCall, KernelResult, NotInteger, Operand
from roundoff.run.integer.convolution import (
    BlockPlan,
    Geometry,
    Kernel,
    conv_geometry,
    convolve,
    convolve_transposed,
    plan_for_bounds,
    plan_for_weights,
    prepare_kernel,
    prepare_transposed_kernel,
    transposed_geometry,
)
from roundoff.run.integer.convolution import (
    exact_product as product,
)
from roundoff.run.integer.results import Coded, Wide

# Scales are float32: a bias quantized at the product of two may differ from it in the last bits.
_SAME_SCALE = 1e-6
_TOO_WIDE = english("its operands are too wide for exact products")


def _conv(call: KernelCall, *, transposed: bool = False) -> KernelResult:
    prepare = prepare_transposed_kernel if transposed else prepare_kernel
    values, operand = call.operand(0).whole, call.operand(1)
    weights = operand.coded
    groups = call.attributes.get("group", 1)
    kernel = call.keep("kernel", lambda: _kernel(prepare, weights, groups, values), constant=operand.constant)
    find = transposed_geometry if transposed else conv_geometry
    geometry = find(call.attributes, values.shape[2:], kernel.size)
    _check_windows(geometry)
    compute = convolve_transposed if transposed else convolve
    total = compute(values.centred(kernel.plan.dtype), kernel, geometry)
    channel_scale = _channel_scale(weights, int(transposed))
    if transposed and channel_scale.size > 1:
        channel_scale = np.tile(channel_scale, groups)
    return [_finished(call, total, values, channel_scale, kernel.plan)]


def _kernel(
    prepare: Callable[[Array, int, int], Kernel | None], weights: Coded, groups: int, values: Coded
) -> Kernel:
    kernel = prepare(weights.centred(weights.float_type), groups, values.largest)
    if kernel is None:
        raise NotInteger(_TOO_WIDE)
    return kernel


def _check_windows(geometry: Geometry) -> None:
    if min((*geometry.begins, *geometry.ends), default=0) < 0:
        raise NotInteger(english("its padding is negative"))
    if min(geometry.out, default=1) < 1:
        raise NotInteger(english("its window is larger than its input"))


def _channel_scale(weights: Coded, axis: int) -> Array:
    """float64 scales, [] or one for each slice along the axis of output channels."""
    if weights.whole:
        return weights.params.scale.reshape(()).astype(np.float64)
    if weights.spec.axis is None or weights.spec.axis % weights.codes.ndim != axis:
        raise NotInteger(
            english("the scales of its weight run along axis {axis}, which sums run over", axis=weights.spec.axis)
        )
    return weights.params.scale.astype(np.float64)


def _finished(call: KernelCall, total: Array, values: Coded, channel_scale: Array, plan: BlockPlan) -> Wide:
    along = 1 if channel_scale.size > 1 else None
    scale = values.scale.reshape(()) * aligned(channel_scale, total.ndim, along)
    return with_bias(call, Wide(total, scale, largest=plan.largest), call.optional(2), along=1)


def _gemm(call: KernelCall) -> KernelResult:
    values, operand = call.operand(0).whole, call.operand(1)
    weights = operand.coded
    turned = bool(call.attributes.get("transB", 0))
    channel_scale = _channel_scale(weights, 0 if turned else 1)
    right, plan = call.keep(
        "matrix",
        lambda: _matrix(weights, values.largest, turned=turned),
        constant=operand.constant,
    )
    left = values.centred(plan.dtype)
    total = product(left.T if call.attributes.get("transA", 0) else left, right, plan)
    scale = values.scale.reshape(()) * channel_scale * float(call.attributes.get("alpha", 1.0))
    beta = float(call.attributes.get("beta", 1.0))
    sums = Wide(total, scale, largest=plan.largest)
    return [with_bias(call, sums, call.optional(2), factor=beta)]


def _matrix(weights: Coded, largest: int, *, turned: bool = False) -> tuple[Array, BlockPlan]:
    """A right operand [..., K, N] that is known beforehand, or given as [N, K]."""
    numbers = weights.centred(weights.float_type)
    plan = plan_for_weights(numbers if turned else np.swapaxes(numbers, -1, -2), largest)
    if plan is None:
        raise NotInteger(_TOO_WIDE)
    matrix = numbers.astype(plan.dtype, copy=False)
    return matrix.T if turned else matrix, plan


def _matmul(call: KernelCall) -> KernelResult:
    first, second = call.operand(0), call.operand(1)
    if first.constant and not second.constant:
        return [_constant_left(call, first, second)]
    values, weights = first.whole, second.coded
    scale = values.scale.reshape(()) * _column_scale(weights)
    if second.constant and weights.codes.ndim > 1:
        right, plan = call.keep("matrix", lambda: _matrix(weights, values.largest), constant=True)
        left = values.centred(plan.dtype)
    else:
        plan = _live_plan(values, weights)
        left, right = values.centred(plan.dtype), weights.centred(plan.dtype)
    total = call.accumulated(_broadcast_product(left, right, plan), plan.largest)
    return [Wide(total, scale, largest=plan.largest)]


def _constant_left(call: KernelCall, first: Operand, second: Operand) -> Wide:
    """MatMul whose weight stands on the left; its scales may run along its rows."""
    weights, values = first.coded, second.whole
    rank = max(weights.codes.ndim, values.codes.ndim)
    if weights.whole:
        scale = weights.scale.reshape(())
    else:
        rows = weights.codes.ndim - 2
        if rows < 0 or values.codes.ndim < 2:
            raise NotInteger(english("the scales of its weight run along an axis which sums run over"))
        scale = aligned(_channel_scale(weights, rows), rank, rank - 2)
    plan = _live_plan(weights, values)
    total = _broadcast_product(weights.centred(plan.dtype), values.centred(plan.dtype), plan)
    return Wide(call.accumulated(total, plan.largest), values.scale.reshape(()) * scale, largest=plan.largest)


def _column_scale(weights: Coded) -> Array:
    if weights.whole:
        return weights.scale.reshape(())
    if weights.codes.ndim < 2:
        raise NotInteger(english("the scales of its weight run along an axis which sums run over"))
    return _channel_scale(weights, weights.codes.ndim - 1)


def _live_plan(left: Coded, right: Coded) -> BlockPlan:
    plan = plan_for_bounds(left.shape[-1] if left.shape else 0, left.largest, right.largest)
    if plan is None:
        raise NotInteger(_TOO_WIDE)
    return plan


def _broadcast_product(left: Array, right: Array, plan: BlockPlan) -> Array:
    """Like numpy's matmul, vectors included."""
    total = product(left[None, :] if left.ndim == 1 else left, right[:, None] if right.ndim == 1 else right, plan)
    if left.ndim == 1:
        total = total[..., 0, :]
    return total[..., 0] if right.ndim == 1 else total


def with_bias(
    call: KernelCall, sums: Wide, bias: Operand | None, *, along: int | None = None, factor: float = 1.0
) -> Wide:
    """Sums of products and a bias: in the accumulator when it has codes at their scale, else as real numbers.

    Args:
        call: Whose bias it is.
        sums: The sums.
        bias: The bias, if there is one.
        along: Axis of the sums that a bias of one axis runs along; None when it broadcasts as it is.
        factor: What it is multiplied by.
    """
    if bias is None:
        return replace(sums, total=call.accumulated(sums.total, sums.largest))
    rank = sums.total.ndim
    if isinstance(bias.value, Coded):
        codes = _placed(bias.value.centred(), rank, along)
        scale = _placed(np.broadcast_to(bias.value.scale * factor, bias.value.shape), rank, along)
        if np.all(np.abs(scale - sums.scale) <= _SAME_SCALE * np.abs(sums.scale)):
            largest = sums.largest + float(np.abs(codes).max(initial=0))
            total = call.accumulated(sums.total + codes.astype(sums.total.dtype), largest)
            return Wide(total, sums.scale, largest=largest)
        offset = codes * scale
    elif bias.plain is not None:
        offset = _placed(bias.plain.astype(np.float64) * factor, rank, along)
    else:
        raise NotInteger(english("its bias {name!r} is neither constant nor quantized", name=bias.name))
    total = call.accumulated(sums.total, sums.largest) * sums.scale + offset
    return Wide(total, np.ones(()), integral=False)


def _placed(bias: Array, rank: int, along: int | None) -> Array:
    return bias if along is None or bias.ndim != 1 else aligned(bias, rank, along)


LINEAR_KERNELS: dict[str, IntegerKernel] = {
    "Conv": _conv,
    "ConvTranspose": partial(_conv, transposed=True),
    "Gemm": _gemm,
    "MatMul": _matmul,
}
