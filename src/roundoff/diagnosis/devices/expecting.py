"""How far a device may be from the reference before its arithmetic no longer explains it."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace

import numpy as np

from roundoff.core.measure import channel_axis_of
from roundoff.core.quantization import parameters_from_range
from roundoff.core.quantizer import Consumer, Quantizer, QuantSpec
from roundoff.core.tensors import Array
from roundoff.diagnosis.devices.golden import Golden, Span
from roundoff.diagnosis.devices.numbers import DeviceNumbers
from roundoff.graph.load import Model
from roundoff.graph.weights import Weights

__all__ = ["Expected", "cancelling_input", "expect_coded", "expect_uncoded", "ideal_quantizers"]

_LAYERS = ("Conv", "ConvTranspose", "Gemm", "MatMul")
# Rounding to codes may differ by one step; a table or a float routine in between may add another.
_STEPS, _STEPS_LOOSE = 1.02, 2.02
# Errors of tensors that are rounded inside of a span, times this, are within what their arithmetic explains.
_SPREAD = 6.0
# What is not coded on a device with integers is computed in half precision, or by a short table.
_LOOSE_SHARE = 5e-3
# Errors of float types relative to the largest value: unit roundoff, and what sums make of it.
_ROUNDOFF = {"float32": 2.0**-19, "float16": 2.0**-11, "bfloat16": 2.0**-8, "integer": 2.0**-11}
_ADDS_UP = 8.0
_WEIGHT = QuantSpec(bits=8, signed=True, symmetric=True)
_ACTIVATION = QuantSpec(bits=8, signed=False, symmetric=False)
_ELEMENTWISE = frozenset({"Add", "Sub", "Concat", "Sum", "Mul", "Div", "Where", "Max", "Min"})


@dataclass(frozen=True, slots=True, eq=False)
class Expected:
    """What may differ in one tensor.

    Attributes:
        tolerance: How far single elements may be off; broadcasts against the tensor.
        noise: Mean square of the error that is expected.
        step: Step of the codes, where there are some; broadcasts likewise.
    """

    tolerance: Array
    noise: float
    step: Array | None = None

    def wider(self, error: float) -> "Expected":
        """The same with one more error of this root mean square."""
        return (
            self
            if error == 0
            else replace(self, tolerance=self.tolerance + _SPREAD * error, noise=self.noise + error**2)
        )


def expect_coded(
    exact: Array, quantizer: Quantizer | None, *, loose: bool, without_hidden: Array | None = None
) -> Expected:
    """What may differ where it is known how tensors are coded.

    Args:
        exact: What the reference computes.
        quantizer: Codes of the tensor; None where it stays in float.
        loose: Whether something in between is computed by a table or in float.
        without_hidden: What the reference computes without rounding tensors that were not dumped.
    """
    hidden = 0.0 if without_hidden is None else float(np.sqrt(np.square(exact - without_hidden).mean()))
    if quantizer is None:
        size = float(np.abs(exact[np.isfinite(exact)]).max(initial=0.0))
        share = _LOOSE_SHARE * size
        return Expected(np.asarray(share + _SPREAD * hidden), (share / 4) ** 2 + hidden**2)
    scale = quantizer.params.scale.astype(np.float64)
    if scale.ndim and quantizer.spec.axis is not None:
        shape = [1] * exact.ndim
        shape[quantizer.spec.axis] = -1
        scale = scale.reshape(shape)
    steps = _STEPS_LOOSE if loose else _STEPS
    return Expected(steps * scale + _SPREAD * hidden, float(np.square(scale).mean()) / 12 + hidden**2, scale)


def expect_uncoded(
    tensor: str,
    exact: Array,
    found: Array,
    *,
    numbers: DeviceNumbers,
    simulated: Array | None,
    largest_input: float,
) -> Expected:
    """What may differ where only the dump tells what the device computes with.

    Args:
        tensor: The tensor.
        exact: What the float model computes from the device's inputs.
        found: What the device wrote.
        numbers: What the device computes with.
        simulated: The same with weights, and with what was not rounded yet, in 8 bits; None on a float device.
        largest_input: Largest magnitude that sums of the node are made of, where they may cancel.
    """
    size = max(float(np.abs(exact[np.isfinite(exact)]).max(initial=0.0)), largest_input)
    roundoff = _ROUNDOFF[numbers.kind] * size
    if simulated is None:
        return Expected(np.asarray(_ADDS_UP * roundoff), (2 * roundoff) ** 2)
    # A tensor whose grid cannot be seen may have codes for more than its values in this sample.
    step = numbers.steps.get(tensor) or 2 * float(np.ptp(found)) / 255
    error = np.square((simulated - exact).astype(np.float64))
    spread = float(np.sqrt(error.mean()))
    # Channels with large weights are noisier than others.
    tolerance = _STEPS_LOOSE * step + _SPREAD * np.maximum(spread, _by_channel(error)) + _ADDS_UP * roundoff
    return Expected(np.asarray(tolerance), step**2 / 12 + spread**2 + roundoff**2, np.asarray(step))


def _by_channel(squares: Array) -> Array:
    """Root mean square of each channel, shaped so that it broadcasts."""
    axis = channel_axis_of(squares.shape)
    if axis is None:
        return np.zeros(())
    others = tuple(place for place in range(squares.ndim) if place != axis)
    return np.asarray(np.sqrt(squares.mean(axis=others, keepdims=True)))


def ideal_quantizers(
    model: Model, ranges: Mapping[str, tuple[float, float]], rounded: Collection[str]
) -> list[Quantizer]:
    """The plainest 8-bit quantizers: one scale for each weight, and for each activation that is not rounded yet.

    Args:
        model: The float model.
        ranges: Smallest and largest value of activations.
        rounded: Activations that the device rounded already.
    """
    weights = Weights(model)
    found: dict[str, Quantizer] = {}
    readers: dict[str, list[Consumer]] = {}
    for node in model.proto.graph.node:
        for position, name in enumerate(node.input):
            readers.setdefault(name, []).append(Consumer(node.name, position))
    for node in model.proto.graph.node:
        if node.op_type not in _LAYERS:
            continue
        for name in node.input[:2]:
            consumers = tuple(each for each in readers[name] if each.node == node.name)
            if name in weights and weights[name].dtype == np.float32:
                size = float(np.abs(weights[name]).max(initial=0.0))
                params = parameters_from_range(-size, size, _WEIGHT)
                found[f"{node.name}:{name}"] = Quantizer(
                    f"ideal:{node.name}:{name}", name, "weight", _WEIGHT, params, consumers
                )
            elif name in ranges and name not in rounded:
                params = parameters_from_range(*ranges[name], _ACTIVATION)
                found.setdefault(
                    name,
                    Quantizer(f"ideal:{name}", name, "activation", _ACTIVATION, params, tuple(readers[name])),
                )
    return list(found.values())


def cancelling_input(golden: Golden, span: Span, given: Mapping[str, Array]) -> float:
    """Largest magnitude among the inputs of a span that adds or joins them; 0 for others."""
    kinds = {node.name: node.op_type for node in golden.model.proto.graph.node}
    if not any(kinds[name] in _ELEMENTWISE for name in span.nodes):
        return 0.0
    sizes = [np.abs(given[name]) for name in span.reads if name in given and given[name].dtype.kind == "f"]
    return max((float(each[np.isfinite(each)].max(initial=0.0)) for each in sizes), default=0.0)
