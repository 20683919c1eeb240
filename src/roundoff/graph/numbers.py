"""Whether the numbers of quantizers are possible: files of others may hold any."""

from collections.abc import Iterable
from functools import cached_property

import numpy as np

from roundoff.core.quantizer import Quantizer
from roundoff.core.tensors import Array
from roundoff.errors import BadInput
from roundoff.graph.load import Model
from roundoff.graph.shapes import values

__all__ = ["TensorShapes", "check_numbers", "wrong_count"]

_FIX = "quantize the model again, or mend that number; roundoff audit lists all of them"


def check_numbers(model: Model, quantizers: Iterable[Quantizer]) -> None:
    """Refuse scales and zero points that nothing can be computed with.

    Raises:
        BadInput: A scale is not positive and finite, a zero point is no code, or there are too few or too many.
    """
    shapes = TensorShapes(model)
    for quantizer in quantizers:
        scale, zero_point, spec = quantizer.params.scale, quantizer.params.zero_point, quantizer.spec
        _refuse(quantizer, scale, ~(np.isfinite(scale) & (scale > 0)), what="scale {}, which is not above zero")
        outside = (zero_point < spec.code_min) | (zero_point > spec.code_max)
        limits = f"zero point {{}}, and its codes go from {spec.code_min} to {spec.code_max}"
        _refuse(quantizer, zero_point, outside, what=limits)
        if spec.axis is not None and scale.ndim:
            problem = wrong_count(quantizer, shapes.of(quantizer.tensor))
            if problem:
                raise BadInput(f"{_named(quantizer)} has {problem}.", fix=_FIX)


def _refuse(quantizer: Quantizer, numbers: Array, wrong: Array, *, what: str) -> None:
    if not wrong.any():
        return
    place = int(np.argmax(wrong.ravel()))
    slice_ = f" for slice {place}" if numbers.size > 1 else ""
    said = what.format(f"{numbers.ravel()[place]:.6g}{slice_}")
    if "scale" in what and not np.isfinite(numbers.ravel()[place]):
        said = said.replace("above zero", "finite")
    raise BadInput(f"{_named(quantizer)} has the {said}.", fix=_FIX)


def wrong_count(quantizer: Quantizer, shape: tuple[int, ...] | None) -> str:
    """Why scales do not fit a tensor of this shape, as the end of a sentence; empty when they do."""
    axis, count = quantizer.spec.axis, quantizer.params.scale.size
    if shape is None or axis is None or not quantizer.params.scale.ndim:
        return ""
    if not -len(shape) <= axis < len(shape):
        return f"one scale per slice along axis {axis} of a tensor of rank {len(shape)}"
    return "" if count in (1, shape[axis]) else f"{count} scales for {shape[axis]} slices along axis {axis}"


class TensorShapes:
    """Shapes of constants and computed tensors; those of the latter are inferred when the first is asked for."""

    def __init__(self, model: Model) -> None:
        self._model = model

    def of(self, tensor: str) -> tuple[int, ...] | None:
        """The shape of a tensor; None when not all of it is known."""
        return self._constants[tensor] if tensor in self._constants else self._computed.get(tensor)

    @cached_property
    def _constants(self) -> dict[str, tuple[int, ...]]:
        return {tensor.name: tuple(tensor.dims) for tensor in self._model.proto.graph.initializer}

    @cached_property
    def _computed(self) -> dict[str, tuple[int, ...] | None]:
        return {value.name: value.shape for value in values(self._model)}


def _named(quantizer: Quantizer) -> str:
    readers = list(dict.fromkeys(consumer.node for consumer in quantizer.consumers))
    read_by = f", which node {readers[0]!r} reads," if readers else ""
    return f"The quantizer of {quantizer.tensor!r}{read_by}"
