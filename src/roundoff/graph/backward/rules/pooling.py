"""Pooling: the gradient goes to the largest element of each window, or to all of them alike."""

import math

import numpy as np

from roundoff.core.tensors import Array
from roundoff.graph.backward.operations import (
    broadcast_to,
    equal,
    mask,
    reduce_sum,
    reshape,
    reshape_like,
    weighted,
    zeros,
)
from roundoff.graph.backward.registry import rule
from roundoff.graph.backward.step import NoRule, Step
from roundoff.graph.backward.windows import Windows, patches, spread, windows_of
from roundoff.graph.evaluation import CannotEvaluate, evaluate

__all__ = ()


@rule("MaxPool")
def _max_pool(at: Step, _index: int) -> str:
    windows = windows_of(at, at.attribute("kernel_shape"), at.shape(0)[2:], at.output_shape()[2:])
    plain = at.attribute("storage_order", 0) == 0
    if plain and (at.opset >= 16 or (at.opset >= 11 and not windows.overlap)):
        return _scattered(at, windows)
    return _compared(at, windows)


def _scattered(at: Step, windows: Windows) -> str:
    """Put the gradient where the node says that it found its maximum."""
    size = math.prod(at.shape(0))
    flat = zeros(at, [size])
    places = reshape(at, at.second_output(1), [-1])
    adding = {"reduction": "add"} if windows.overlap else {}
    return reshape_like(at, at.op("ScatterElements", flat, places, reshape(at, at.gradient, [-1]), **adding), 0)


def _compared(at: Step, windows: Windows) -> str:
    """Share the gradient among the elements of each window that are equal to its maximum."""
    images, elements = math.prod(at.shape(0)[:2]), math.prod(windows.kernel)
    seen = patches(at, at.inputs[0], windows, images=images)
    largest = reshape(at, at.outputs[0], [images, 1, *windows.counts])
    hits = mask(at, equal(at, seen, largest))
    inside = windows.inside()
    if not inside.all():
        hits = at.op("Mul", hits, at.numbers(inside[None]))
    share = at.op("Div", reshape(at, at.gradient, [images, 1, *windows.counts]), reduce_sum(at, hits, [1]))
    pick = at.numbers(np.eye(elements).reshape(elements, 1, *windows.kernel))
    return reshape(at, spread(at, at.op("Mul", hits, share), pick, windows), at.shape(0))


@rule("AveragePool")
def _average_pool(at: Step, _index: int) -> str:
    shape = at.shape(0)
    windows = windows_of(at, at.attribute("kernel_shape"), shape[2:], at.output_shape()[2:])
    weight = at.numbers(_averaging_weight(at, windows))
    images = math.prod(shape[:2])
    share = reshape(at, at.op("Mul", at.gradient, weight), [images, 1, *windows.counts])
    kernel = at.numbers(np.ones((1, 1, *windows.kernel)))
    return reshape(at, spread(at, share, kernel, windows), shape)


def _averaging_weight(at: Step, windows: Windows) -> Array:
    """By how much each window divides, as a factor. That is its own affair, but over ones it shows."""
    from onnx import NodeProto

    node = NodeProto(op_type="AveragePool", input=["ones"], output=["average"], attribute=at.node.attribute)
    ones = np.ones((1, 1, *windows.sizes), np.float32)
    try:
        (average,) = evaluate([node], {"ones": ones}, ["average"], model=at.model)
    except CannotEvaluate as error:
        raise NoRule(f"its weights cannot be found: {error}") from error
    if average.shape[2:] != windows.counts:
        raise NoRule(f"it has {average.shape[2:]} windows, its shape says {windows.counts}")
    weight: Array = average.astype(np.float64) / np.maximum(windows.inside().sum(axis=0), 1)
    return weight


@rule("GlobalAveragePool")
def _global_average_pool(at: Step, _index: int) -> str:
    shape = at.shape(0)
    return broadcast_to(at, weighted(at, at.gradient, 1 / math.prod(shape[2:])), shape)


@rule("GlobalMaxPool")
def _global_max_pool(at: Step, _index: int) -> str:
    hits = mask(at, equal(at, at.inputs[0], at.outputs[0]))
    count = reduce_sum(at, hits, range(2, len(at.shape(0))))
    return at.op("Mul", hits, at.op("Div", at.gradient, count))
