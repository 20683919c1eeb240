"""Resizing: a matrix along each axis, found by resizing the identity; the gradient goes through its transpose."""

from typing import Any

import numpy as np

from roundoff.core.tensors import Array
from roundoff.graph.backward.operations import along_axis
from roundoff.graph.backward.registry import rule
from roundoff.graph.backward.step import NoRule, Step
from roundoff.graph.evaluation import CannotEvaluate, evaluate

__all__ = ()


@rule("Resize", "Upsample")
def _resize(at: Step, index: int) -> str:
    if index:
        raise NoRule("its sizes have no gradient")
    if at.attribute("coordinate_transformation_mode") == "tf_crop_and_resize":
        raise NoRule("resizing a region of interest has no rule")
    if at.attribute("keep_aspect_ratio_policy", "stretch") != "stretch":
        raise NoRule("resizing with a fixed aspect ratio has no rule")
    shape, current, gradient = at.shape(0), list(at.output_shape()), at.gradient
    scales = _scales(at)
    changed = [axis for axis in range(len(shape)) if scales[axis] != 1 or current[axis] != shape[axis]]
    resting = [axis for axis in range(len(shape)) if axis not in changed]
    if changed and not resting:
        raise NoRule("resizing all axes at once has no rule")
    for axis in changed:
        matrix = _matrix(at, axis, host=resting[0], scale=scales[axis])
        if matrix.shape != (current[axis], shape[axis]):
            raise NoRule(f"resizing axis {axis} alone gives another size")
        gradient = along_axis(at, gradient, np.ascontiguousarray(matrix.T), axis=axis, shape=current)
        current[axis] = shape[axis]
    return gradient


def _scales(at: Step) -> list[float]:
    """The factor of each axis; NaN where only the size is given, and differs."""
    shape, resized = at.shape(0), at.output_shape()
    axes = [axis % len(shape) for axis in at.attribute("axes") or range(len(shape))]
    given = _given_scales(at)
    if given is None:
        return [1.0 if size == new else float("nan") for size, new in zip(shape, resized, strict=True)]
    scales = [1.0] * len(shape)
    for axis, scale in zip(axes, given, strict=True):
        scales[axis] = scale
    return scales


def _given_scales(at: Step) -> list[float] | None:
    if at.attribute("scales") is not None:
        return [float(scale) for scale in at.attribute("scales")]
    position = 1 if at.opset < 11 else 2
    if not at.has(position):
        return None
    scales = at.value(position)
    return [float(scale) for scale in scales] if scales.size else None


def _matrix(at: Step, axis: int, *, host: int, scale: float) -> Array:
    """What resizing does along one axis, of shape [new size, old size]: each row is how one element is mixed.

    The node itself resizes the identity, which lies along this axis and one that stays as it is, so that every
    mode of every version is right.
    """
    shape, new = at.shape(0), at.output_shape()[axis]
    old = shape[axis]
    probe = np.eye(old, dtype=np.float32)
    probe = np.expand_dims(
        probe if host < axis else probe.T, [place for place in range(len(shape)) if place not in (host, axis)]
    )
    scales = np.ones(len(shape), np.float32)
    scales[axis] = scale
    feeds: dict[str, Array] = {"probe": probe, "none": np.zeros(0, np.float32), "scales": scales}
    inputs = ["probe", "scales"] if at.opset < 11 else ["probe", "none", "scales"]
    if np.isnan(scale):
        feeds["sizes"] = np.asarray(
            [new if place == axis else size for place, size in enumerate(probe.shape)], np.int64
        )
        inputs = ["probe", "none", "none", "sizes"] if at.opset < 13 else ["probe", "", "", "sizes"]
    node = _probe_node(at, inputs, scales)
    try:
        result = evaluate(
            [node], {name: feeds[name] for name in dict.fromkeys(node.input) if name}, ["probed"], model=at.model
        )[0]
    except CannotEvaluate as error:
        raise NoRule(f"resizing along one axis alone fails: {error}") from error
    flat = result.reshape(*(result.shape[place] for place in sorted((host, axis))))
    return flat.T if host < axis else flat


def _probe_node(at: Step, inputs: list[str], scales: Array) -> Any:
    """The node with other inputs, and all its axes named."""
    from onnx.helper import make_attribute, make_node

    plain_scales = at.attribute("scales") is not None
    node = make_node(at.node.op_type, inputs[:1] if plain_scales else inputs, ["probed"])
    for attribute in at.node.attribute:
        if attribute.name not in ("axes", "scales"):
            node.attribute.append(attribute)
    if plain_scales:
        node.attribute.append(make_attribute("scales", scales.tolist()))
    return node
