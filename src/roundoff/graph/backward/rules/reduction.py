"""Sums, means and extremes over axes, and softmax: the gradient goes back to all that took part."""

import math
from collections.abc import Callable
from typing import TypeAlias

from roundoff.graph.backward.operations import (
    broadcast_to,
    equal,
    mask,
    reduce_sum,
    reshape,
    sign,
    weighted,
)
from roundoff.graph.backward.registry import rule
from roundoff.graph.backward.step import NoRule, Step

__all__ = ()

_Reduction: TypeAlias = Callable[[Step, str, str, list[int]], str]


def _reduction(*op_types: str) -> Callable[[_Reduction], _Reduction]:
    """Make a function the rule of reductions.

    It is given the gradient and the result with the axes that were reduced put back, and these axes, and gives a
    gradient that may be repeated along them.
    """

    def register(function: _Reduction) -> _Reduction:
        @rule(*op_types)
        def gradient(at: Step, index: int) -> str:
            if index:
                raise NoRule("its axes have no gradient")
            shape = at.shape(0)
            axes = _axes(at, len(shape))
            if axes is None:
                # An elementwise function then, if not the identity.
                axes = []
            kept = [1 if axis in axes else size for axis, size in enumerate(shape)]
            same = tuple(kept) == at.output_shape()
            tensors = (at.gradient, at.outputs[0])
            restored = [name if same else reshape(at, name, kept) for name in tensors]
            return function(at, restored[0], restored[1], axes)

        return function

    return register


def _axes(at: Step, rank: int) -> list[int] | None:
    """The axes a node reduces; None for none."""
    axes = at.ints(1) if at.has(1) else tuple(at.attribute("axes") or ())
    if not axes:
        return None if at.attribute("noop_with_empty_axes", 0) else list(range(rank))
    return sorted(axis % rank for axis in axes)


@_reduction("ReduceSum")
def _sum(at: Step, gradient: str, _y: str, _axes: list[int]) -> str:
    return broadcast_to(at, gradient, at.shape(0))


@_reduction("ReduceMean")
def _mean(at: Step, gradient: str, _y: str, axes: list[int]) -> str:
    count = math.prod(at.shape(0)[axis] for axis in axes)
    return broadcast_to(at, weighted(at, gradient, 1 / max(count, 1)), at.shape(0))


@_reduction("ReduceMax", "ReduceMin")
def _extreme(at: Step, gradient: str, y: str, axes: list[int]) -> str:
    """Elements that are equally large share the gradient."""
    hits = mask(at, equal(at, at.inputs[0], y))
    return at.op("Mul", hits, at.op("Div", gradient, reduce_sum(at, hits, axes)))


@_reduction("ReduceL1")
def _l1(at: Step, gradient: str, _y: str, _axes: list[int]) -> str:
    return at.op("Mul", gradient, sign(at, at.inputs[0]))


@_reduction("ReduceL2")
def _l2(at: Step, gradient: str, y: str, _axes: list[int]) -> str:
    return at.op("Mul", at.inputs[0], at.op("Div", gradient, y))


@_reduction("ReduceSumSquare")
def _sum_square(at: Step, gradient: str, _y: str, _axes: list[int]) -> str:
    return at.op("Mul", at.inputs[0], weighted(at, gradient, 2))


@_reduction("ReduceLogSum")
def _log_sum(at: Step, gradient: str, y: str, _axes: list[int]) -> str:
    return broadcast_to(at, at.op("Mul", gradient, at.op("Exp", at.op("Neg", y))), at.shape(0))


@_reduction("ReduceLogSumExp")
def _log_sum_exp(at: Step, gradient: str, y: str, _axes: list[int]) -> str:
    return at.op("Mul", gradient, at.op("Exp", at.op("Sub", at.inputs[0], y)))


@rule("Softmax")
def _softmax(at: Step, _index: int) -> str:
    y = at.outputs[0]
    weighed = at.op("Mul", at.gradient, y)
    return at.op("Sub", weighed, at.op("Mul", y, reduce_sum(at, weighed, _softmax_axes(at))))


@rule("LogSoftmax")
def _log_softmax(at: Step, _index: int) -> str:
    total = reduce_sum(at, at.gradient, _softmax_axes(at))
    return at.op("Sub", at.gradient, at.op("Mul", at.op("Exp", at.outputs[0]), total))


def _softmax_axes(at: Step) -> list[int]:
    """The axes over which it adds up to one."""
    rank = len(at.output_shape())
    if at.opset >= 13:
        return [at.attribute("axis", -1) % rank]
    # The first versions saw a matrix: all axes from the given one on are its rows.
    return list(range(at.attribute("axis", 1) % rank, rank))


@rule("CumSum")
def _cumsum(at: Step, index: int) -> str:
    if index:
        raise NoRule("its axis has no gradient")
    exclusive, reverse = at.attribute("exclusive", 0), at.attribute("reverse", 0)
    return at.op("CumSum", at.gradient, at.inputs[1], exclusive=exclusive, reverse=1 - reverse)
