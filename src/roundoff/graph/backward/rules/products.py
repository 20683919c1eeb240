"""Products of matrices, and sums of products in general."""

import math

from roundoff.graph.backward.operations import broadcast_to, product, reduce_to, reshape, transpose, weighted
from roundoff.graph.backward.registry import rule
from roundoff.graph.backward.step import NoRule, Step

__all__ = ()

_LETTERS = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"


@rule("Gemm")
def _gemm(at: Step, index: int) -> str:
    if index == 2:
        summed = reduce_to(at, at.gradient, at.output_shape(), at.shape(2))
        return weighted(at, summed, at.attribute("beta", 1.0))
    a, b, gradient = at.inputs[0], at.inputs[1], at.gradient
    first, second = bool(at.attribute("transA", 0)), bool(at.attribute("transB", 0))
    alpha = at.attribute("alpha", 1.0)
    if index == 0 and first:
        return product(at, b, gradient, transposed=(second, True), alpha=alpha)
    if index == 0:
        return product(at, gradient, b, transposed=(False, not second), alpha=alpha)
    if second:
        return product(at, gradient, a, transposed=(True, first), alpha=alpha)
    return product(at, a, gradient, transposed=(not first, False), alpha=alpha)


@rule("MatMul")
def _matmul(at: Step, index: int) -> str:
    shape = at.shape(index)
    # A vector is a matrix of one row on the left, of one column on the right.
    left, right = _as_matrix(at.shape(0), row=True), _as_matrix(at.shape(1), row=False)
    batch = _broadcast(left[:-2], right[:-2])
    whole = (*batch, left[-2], right[-1])
    gradient = at.gradient if whole == at.output_shape() else reshape(at, at.gradient, whole)
    a = at.inputs[0] if left == at.shape(0) else reshape(at, at.inputs[0], left)
    b = at.inputs[1] if right == at.shape(1) else reshape(at, at.inputs[1], right)
    if index == 0:
        each = at.op("MatMul", gradient, _transposed(at, b, len(right)))
        summed = reduce_to(at, each, (*batch, *left[-2:]), left)
        return summed if shape == left else reshape(at, summed, shape)
    if len(right) == 2 and len(left) > 2:
        # One matrix for all: a single product instead of one for each and their sum.
        rows = math.prod(left[:-1])
        flat, flat_gradient = reshape(at, a, (rows, left[-1])), reshape(at, gradient, (rows, right[-1]))
        summed = product(at, flat, flat_gradient, transposed=(True, False))
    else:
        each = at.op("MatMul", _transposed(at, a, len(left)), gradient)
        summed = reduce_to(at, each, (*batch, *right[-2:]), right)
    return summed if shape == right else reshape(at, summed, shape)


def _as_matrix(shape: tuple[int, ...], *, row: bool) -> tuple[int, ...]:
    if len(shape) > 1:
        return shape
    return (1, *shape) if row else (*shape, 1)


def _broadcast(a: tuple[int, ...], b: tuple[int, ...]) -> tuple[int, ...]:
    longer = max(len(a), len(b))
    padded = ((1,) * (longer - len(a)) + a, (1,) * (longer - len(b)) + b)
    return tuple(second if first == 1 else first for first, second in zip(*padded, strict=True))


def _transposed(at: Step, x: str, rank: int) -> str:
    """A stack of matrices, each transposed."""
    return transpose(at, x, [*range(rank - 2), rank - 1, rank - 2])


@rule("Einsum")
def _einsum(at: Step, index: int) -> str:
    """The same sum of products with the gradient in the place of the operand asked for."""
    operands, result = _letters(at)
    mine, others = operands[index], [letters for place, letters in enumerate(operands) if place != index]
    if any(len(set(letters)) < len(letters) for letters in (*operands, result)):
        raise NoRule("it takes a diagonal (an index twice in one operand)")
    reachable = set(result).union(*others)
    kept = "".join(letter for letter in mine if letter in reachable)
    names = [name for place, name in enumerate(at.inputs) if place != index]
    equation = f"{','.join([result, *others])}->{kept}"
    gradient = at.op("Einsum", at.gradient, *names, equation=equation)
    if kept == mine:
        return gradient
    # What was only summed over is the same all along.
    shape = at.shape(index)
    ones = [size if letter in reachable else 1 for letter, size in zip(mine, shape, strict=True)]
    return broadcast_to(at, reshape(at, gradient, ones), shape)


def _letters(at: Step) -> tuple[list[str], str]:
    """The indices of each operand and of the result, with letters for what dots stand for."""
    equation = at.attribute("equation").replace(" ", "")
    left, arrow, right = equation.partition("->")
    operands = left.split(",")
    named = [letters.replace("...", "") for letters in operands]
    if not arrow:
        once = sorted(letter for letter in set("".join(named)) if "".join(named).count(letter) == 1)
        right = ("..." if "..." in left else "") + "".join(once)
    if "..." not in equation:
        return operands, right
    ranks = [len(at.shape(place)) - len(letters) if "..." in operand else 0
             for place, (operand, letters) in enumerate(zip(operands, named, strict=True))]  # fmt: skip
    free = [letter for letter in _LETTERS if letter not in equation][: max(ranks)]
    if any(count < len(free) for operand, count in zip(operands, ranks, strict=True) if "..." in operand):
        raise NoRule("its operands differ in how many axes the dots stand for")
    dots = "".join(free)
    return [operand.replace("...", dots) for operand in operands], right.replace("...", dots)
