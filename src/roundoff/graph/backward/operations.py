"""Operations that rules are made of, spelled as the model's own version of the standard operators wants them."""

import math
from collections.abc import Sequence

import numpy as np

from roundoff.core.tensors import Array
from roundoff.graph.backward.step import NoRule, Step

__all__ = [
    "along_axis",
    "broadcast_to",
    "crop",
    "equal",
    "flip",
    "mask",
    "product",
    "reduce_mean",
    "reduce_sum",
    "reduce_to",
    "require",
    "reshape",
    "reshape_like",
    "sign",
    "square",
    "transpose",
    "weighted",
    "zero_pad",
    "zeros",
]

Shape = Sequence[int]


def require(at: Step, opset: int, what: str) -> None:
    """Refuse where the operators are too old.

    Raises:
        NoRule: They are older than that.
    """
    if at.opset < opset:
        raise NoRule(f"{what} needs opset {opset}, the model has {at.opset}")


def reshape(at: Step, x: str, shape: Shape) -> str:
    """The same elements in another shape."""
    return at.op("Reshape", x, at.integers(shape))


def reshape_like(at: Step, x: str, index: int) -> str:
    """The same elements in the shape of one of the node's inputs, which need not be known."""
    if at.knows_shape(index) and 0 not in at.shape(index):
        return reshape(at, x, at.shape(index))
    return at.op("Reshape", x, at.op("Shape", at.inputs[index]))


def transpose(at: Step, x: str, order: Sequence[int]) -> str:
    """Axes in another order."""
    return x if list(order) == sorted(order) else at.op("Transpose", x, perm=list(order))


def product(at: Step, a: str, b: str, *, transposed: tuple[bool, bool], alpha: float = 1.0) -> str:
    """The product of two matrices, either of them transposed first, times a number."""
    # Older versions insist on something to add.
    added = () if at.opset >= 11 else (at.number(0),)
    first, second = map(int, transposed)
    return at.op("Gemm", a, b, *added, transA=first, transB=second, alpha=alpha)


def square(at: Step, x: str) -> str:
    """Each element times itself."""
    return at.op("Mul", x, x)


def weighted(at: Step, x: str, factor: float) -> str:
    """All elements times a number."""
    return x if factor == 1 else at.op("Mul", x, at.number(factor))


def mask(at: Step, condition: str) -> str:
    """1 where a condition holds, 0 elsewhere. Faster in a product than a choice by Where."""
    from onnx.helper import np_dtype_to_tensor_dtype

    return at.op("Cast", condition, to=int(np_dtype_to_tensor_dtype(at.gradient_dtype)))


def equal(at: Step, a: str, b: str) -> str:
    """Where two float tensors are equal."""
    if at.opset >= 11:
        return at.op("Equal", a, b)
    # Older versions compare only integers so.
    return at.op("Not", at.op("Or", at.op("Less", a, b), at.op("Greater", a, b)))


def sign(at: Step, x: str) -> str:
    """1 above zero, -1 below."""
    zero = at.number(0)
    return at.op("Sub", mask(at, at.op("Greater", x, zero)), mask(at, at.op("Less", x, zero)))


def zeros(at: Step, shape: Shape) -> str:
    """Zeros of a shape."""
    from onnx.numpy_helper import from_array

    if at.opset < 9:
        return at.constant(np.zeros(shape, at.gradient_dtype))
    value = from_array(np.zeros(1, at.gradient_dtype))
    return at.op("ConstantOfShape", at.integers(shape), value=value)


def broadcast_to(at: Step, x: str, shape: Shape) -> str:
    """A tensor repeated along the axes where it has one element only."""
    if at.opset >= 8:
        return at.op("Expand", x, at.integers(shape))
    return at.op("Add", x, zeros(at, shape))


def reduce_sum(at: Step, x: str, axes: Sequence[int], *, keepdims: bool = True) -> str:
    """The sum over some axes."""
    if not axes:
        return x
    if at.opset >= 13:
        return at.op("ReduceSum", x, at.integers(axes), keepdims=int(keepdims))
    return at.op("ReduceSum", x, axes=list(axes), keepdims=int(keepdims))


def reduce_mean(at: Step, x: str, axes: Sequence[int]) -> str:
    """The mean over some axes, which stay with one element."""
    if at.opset >= 18:
        return at.op("ReduceMean", x, at.integers(axes), keepdims=1)
    return at.op("ReduceMean", x, axes=list(axes), keepdims=1)


def reduce_to(at: Step, x: str, shape: Shape, target: Shape) -> str:
    """The sum over the axes along which a tensor of the target shape was repeated to the given one."""
    extra = len(shape) - len(target)
    axes = [axis for axis, size in enumerate(shape) if axis < extra or (target[axis - extra] == 1 and size != 1)]
    summed = reduce_sum(at, x, axes)
    return reshape(at, summed, target) if extra else summed


def crop(at: Step, x: str, *, axis: int, start: int, end: int) -> str:
    """The part of a tensor from one index up to before another along an axis."""
    if at.opset >= 10:
        return at.op("Slice", x, at.integers([start]), at.integers([end]), at.integers([axis]))
    return at.op("Slice", x, starts=[start], ends=[end], axes=[axis])


def zero_pad(at: Step, x: str, before: Sequence[int], after: Sequence[int]) -> str:
    """A tensor with zeros around it, so many before and after each axis."""
    if not any(before) and not any(after):
        return x
    if at.opset >= 11:
        return at.op("Pad", x, at.integers([*before, *after]))
    return at.op("Pad", x, pads=[*before, *after])


def flip(at: Step, x: str, *, axis: int, size: int) -> str:
    """A tensor in reversed order along an axis of that size."""
    return x if size == 1 else at.op("Gather", x, at.integers(range(size - 1, -1, -1)), axis=axis)


def along_axis(at: Step, x: str, matrix: Array, *, axis: int, shape: Shape) -> str:
    """A matrix applied to a tensor along one axis.

    Args:
        at: The step.
        x: The tensor.
        matrix: Of shape [new size, old size].
        axis: The axis.
        shape: Shape of the tensor.
    """
    new, old = matrix.shape
    before, after = math.prod(shape[:axis]), math.prod(shape[axis + 1 :])
    result = [*shape[:axis], new, *shape[axis + 1 :]]
    if new and old % new == 0 and np.array_equal(matrix, np.repeat(np.eye(new), old // new, axis=1)):
        # It sums up neighbours, as many at each place.
        split = reshape(at, x, [before, new, old // new, after])
        return reshape(at, reduce_sum(at, split, [2]), result)
    if after == 1:
        product = at.op("MatMul", reshape(at, x, [before, old]), at.numbers(np.ascontiguousarray(matrix.T)))
    else:
        product = at.op("MatMul", at.numbers(matrix), reshape(at, x, [before, old, after]))
    return reshape(at, product, result)
