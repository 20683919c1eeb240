"""Elements chosen by indices: the gradient is added up where they were taken from."""

import math

import numpy as np

from roundoff.graph.backward.operations import along_axis, require, reshape, transpose, zero_pad, zeros
from roundoff.graph.backward.registry import rule
from roundoff.graph.backward.step import NoRule, Step

__all__ = ()

# A table of ones and zeros of more elements than this is worse than adding up by indices.
_LARGEST_TABLE = 1 << 20
_ADDING_OPSET = 16


@rule("Gather")
def _gather(at: Step, _index: int) -> str:
    shape, chosen_shape = at.shape(0), at.shape(1)
    axis = at.attribute("axis", 0) % len(shape)
    size, count = shape[axis], math.prod(chosen_shape)
    current = [*shape[:axis], count, *shape[axis + 1 :]]
    gradient = reshape(at, at.gradient, current)
    indices = np.asarray(at.ints(1)) % size if at.is_constant(1) else None
    if indices is not None and count and np.array_equal(indices, np.arange(indices[0], indices[0] + count)):
        before = [int(indices[0]) if place == axis else 0 for place in range(len(shape))]
        after = [size - count - int(indices[0]) if place == axis else 0 for place in range(len(shape))]
        return zero_pad(at, gradient, before, after)
    if indices is not None and (at.opset < _ADDING_OPSET or size * count <= _LARGEST_TABLE):
        places = (indices[None, :] == np.arange(size)[:, None]).astype(np.float64)
        return along_axis(at, gradient, places, axis=axis, shape=current)
    if at.opset < _ADDING_OPSET:
        return _by_table(at, gradient, axis)
    return _by_adding(at, gradient, axis)


def _by_adding(at: Step, gradient: str, axis: int) -> str:
    """Add up along the first axis, and put that in its place again."""
    shape = at.shape(0)
    front = [axis, *(place for place in range(len(shape)) if place != axis)]
    flat = zeros(at, [shape[place] for place in front])
    indices = reshape(at, at.inputs[1], [math.prod(at.shape(1)), 1])
    added = at.op("ScatterND", flat, indices, transpose(at, gradient, front), reduction="add")
    return transpose(at, added, [int(place) for place in np.argsort(front)])


def _by_table(at: Step, gradient: str, axis: int) -> str:
    """Multiply by a table of ones where an element was taken, for versions that cannot add up by indices."""
    require(at, 9, "the gradient of a Gather with computed indices")
    shape, count = at.shape(0), math.prod(at.shape(1))
    size, after = shape[axis], math.prod(shape[axis + 1 :])
    indices = at.op("Cast", reshape(at, at.inputs[1], [count]), to=7)
    # Indices may count from the end.
    below = at.op("Cast", at.op("Less", indices, at.integers([0])), to=7)
    indices = at.op("Add", indices, at.op("Mul", below, at.integers([size])))
    values = at.numbers(np.array([0, 1]))
    table = at.op("OneHot", indices, at.integers([size]), values, axis=0)
    product = at.op("MatMul", table, reshape(at, gradient, [math.prod(shape[:axis]), count, after]))
    return reshape(at, product, shape)


@rule("GatherElements")
def _gather_elements(at: Step, _index: int) -> str:
    require(at, _ADDING_OPSET, "the gradient of GatherElements")
    axis = at.attribute("axis", 0)
    flat = zeros(at, at.shape(0))
    return at.op("ScatterElements", flat, at.inputs[1], at.gradient, axis=axis, reduction="add")


@rule("GatherND")
def _gather_nd(at: Step, _index: int) -> str:
    require(at, _ADDING_OPSET, "the gradient of GatherND")
    if at.attribute("batch_dims", 0):
        raise NoRule("the gradient of GatherND with batch axes has no rule")
    return at.op("ScatterND", zeros(at, at.shape(0)), at.inputs[1], at.gradient, reduction="add")


@rule("ScatterND", "ScatterElements", "Scatter")
def _scatter(at: Step, index: int) -> str:
    """What is overwritten has no gradient; what is written has that of its place."""
    if at.attribute("reduction", "none") != "none":
        raise NoRule(f"scattering by {at.attribute('reduction')!r} has no rule")
    by_elements = at.node.op_type != "ScatterND"
    placed = {"axis": at.attribute("axis", 0)} if by_elements else {}
    if index == 0:
        return at.op(at.node.op_type, at.gradient, at.inputs[1], zeros(at, at.shape(2)), **placed)
    require(at, 11, "the gradient of what is scattered")
    return at.op("GatherElements" if by_elements else "GatherND", at.gradient, at.inputs[1], **placed)


@rule("TopK")
def _top_k(at: Step, index: int) -> str:
    if index:
        raise NoRule("the number of elements has no gradient")
    require(at, 11, "the gradient of TopK")
    flat = zeros(at, at.shape(0))
    return at.op("ScatterElements", flat, at.second_output(1), at.gradient, axis=at.attribute("axis", -1))
