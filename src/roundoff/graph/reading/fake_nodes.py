"""Single nodes that quantize and dequantize: HzCalibration, OpenVINO's FakeQuantize, QONNX's Quant."""

import re
from collections.abc import Callable
from typing import Any

import numpy as np

from roundoff.core.quantizer import Rounding
from roundoff.core.tensors import Array
from roundoff.errors import BadInput
from roundoff.graph.element_types import ElementType, by_dtype
from roundoff.graph.reading.constants import attribute
from roundoff.graph.reading.draft import Draft
from roundoff.graph.reading.points import QUANTIZE, CannotRepresent
from roundoff.graph.reading.rewriting import Coding, Rewriting

__all__ = ["rewrite_fake_nodes"]

_HORIZON_COMPILED = ("HzSQuantized", "HzQuantize", "HzDequantize", "HzRequantize", "HzLut", "HzSElementwise")
_CALIBRATION = "HzCalibration"
_ROUNDINGS: dict[str, Rounding] = {"ROUND": "half_even", "FLOOR": "floor", "HALF_UP": "half_up"}
_WIDTHS = (4, 8, 16)
_FEWEST_LEVELS = 2
_GRID_TOLERANCE = 1e-3
"""How far, in steps, a range may miss the grid on which zero has a code; float32 limits miss it by less."""


class _NotQuantized(Exception):
    """The node passes values on as they are."""


def rewrite_fake_nodes(draft: Draft) -> None:
    """Replace such nodes by QuantizeLinear and DequantizeLinear.

    Raises:
        BadInput: The model is of a later stage of a toolchain, or its scales are kept in another file.
    """
    readers: dict[str, Callable[[Draft, Any], Coding]] = {
        _CALIBRATION: _horizon,
        "FakeQuantize": _openvino,
        "Quant": _qonnx,
    }
    if not any(node.op_type in readers or _other_stage(node) for node in draft.nodes):
        return
    rewriting = Rewriting(draft)
    for node in draft.nodes:
        _refuse_other_stages(draft, node)
        if node.op_type not in readers:
            rewriting.keep(node)
            continue
        try:
            coding = readers[node.op_type](draft, node)
        except CannotRepresent as reason:
            text = f"{node.op_type} {node.name!r} passes float values on: {reason}"
            draft.odd("not_represented", node.name, text)
            rewriting.rename(node.output[0], node.input[0])
        except _NotQuantized:
            rewriting.rename(node.output[0], node.input[0])
        else:
            _rewrite(rewriting, node, coding)
    rewriting.finish()


def _other_stage(node: Any) -> bool:
    return bool(node.op_type.startswith((*_HORIZON_COMPILED, "QcQuantize")))


def _refuse_other_stages(draft: Draft, node: Any) -> None:
    if node.op_type.startswith(_HORIZON_COMPILED):
        raise BadInput(
            f"{draft.model.path} is a compiled integer model: node {node.name!r} is {node.op_type}.",
            fix="give the *_calibrated_model.onnx that the same conversion wrote",
        )
    if node.op_type.startswith("QcQuantize"):
        raise BadInput(
            f"{draft.model.path} has {node.op_type} nodes, whose scales are kept in another file.",
            fix="export the model with QuantizeLinear and DequantizeLinear nodes (to_onnx_qdq)",
        )


def _rewrite(rewriting: Rewriting, node: Any, coding: Coding) -> None:
    source = rewriting.current(node.input[0])
    ending = f"_{_CALIBRATION}"
    # A calibration node is named after its tensor, which names the quantizer.
    name = node.name.removesuffix(ending) if node.name.endswith(ending) else node.name
    name = name.removesuffix(f"_{QUANTIZE}")
    codes = rewriting.quantize(source, coding, name=name)
    rewriting.dequantize(codes, coding, node.output[0])


def _integer(bits: int, *, signed: bool) -> ElementType:
    width = next((width for width in _WIDTHS if width >= bits), 0) if bits > signed else 0
    element = by_dtype(f"{'int' if signed else 'uint'}{width}") if width else None
    if element is None:
        raise CannotRepresent(f"it has codes of {bits} bits")
    return element


def _constants(draft: Draft, node: Any, scale: Array, zero_point: Array, element: ElementType) -> tuple[str, str]:
    """Add scale and zero point; those of one number are taken for the whole tensor."""
    whole = scale.size == 1
    scale_name = draft.add_constant(scale.astype(np.float32).reshape(() if whole else -1), f"{node.name}_scale")
    zeros = np.broadcast_to(zero_point.ravel(), scale.size).astype(np.int64).reshape(() if whole else -1)
    return scale_name, draft.add_constant(zeros, f"{node.name}_zero_point", element)


# Horizon -------------------------------------------------------------------------------------------------------


def _horizon(draft: Draft, node: Any) -> Coding:
    """Scales, or thresholds to divide by the largest code; attributes are found by what their names contain."""
    bits = _horizon_bits(draft, node)
    scale = _numbers(draft, node, "scale")
    if scale is None:
        threshold = _numbers(draft, node, "threshold")
        if threshold is None:
            raise CannotRepresent("it has neither scales nor thresholds")
        # One below zero stays so, and is told: a largest magnitude cannot be.
        scale = threshold.astype(np.float64) / ((1 << (bits - 1)) - 1)
    zeros = _numbers(draft, node, "zero")
    element = _integer(bits, signed=True)
    names = _constants(draft, node, scale, np.zeros(1) if zeros is None else zeros, element)
    given = next((attribute(node, item.name) for item in node.attribute if "axis" in item.name.lower()), None)
    axis = given if isinstance(given, int) else None
    if scale.size > 1 and axis is None:
        axis = 0 if node.input[0] in draft.constants else 1
    return Coding(*names, axis=axis if scale.size > 1 else None)


def _horizon_bits(draft: Draft, node: Any) -> int:
    for item in node.attribute:
        value = attribute(node, item.name)
        if "type" in item.name.lower() and isinstance(value, str):
            if value.lower().startswith(("float", "bfloat", "fp")):
                raise _NotQuantized
            found = re.search(r"int(\d+)$", value.lower())
            if found:
                return int(found.group(1))
    widths = _numbers(draft, node, "bit")
    return 8 if widths is None else int(widths.ravel()[0])


def _numbers(draft: Draft, node: Any, word: str) -> Array | None:
    """The first attribute, or constant input, with a word in its name that holds numbers."""
    from onnx.numpy_helper import to_array

    for item in node.attribute:
        if word not in item.name.lower():
            continue
        value = to_array(item.t) if item.HasField("t") else attribute(node, item.name)
        array = np.atleast_1d(np.asarray(value)) if not isinstance(value, str) else np.zeros(0)
        if array.size and array.dtype.kind in "fiu":
            return array
    named = (name for name in node.input[1:] if word in name.lower() and name in draft.constants)
    return next((np.atleast_1d(draft.constants.value(name)) for name in named), None)


# OpenVINO ------------------------------------------------------------------------------------------------------


def _openvino(draft: Draft, node: Any) -> Coding:
    """x, lowest and highest value in, lowest and highest value out; ``levels`` values between."""
    names = list(node.input[1:5])
    if len(names) != 4 or any(name not in draft.constants for name in names):
        raise CannotRepresent("its range is computed while the model runs")
    low, high, out_low, out_high = (draft.constants.value(name).astype(np.float64) for name in names)
    levels = int(attribute(node, "levels", 256))
    if levels < _FEWEST_LEVELS:
        raise CannotRepresent(f"it has {levels} levels")
    if not (np.allclose(low, out_low, rtol=1e-6) and np.allclose(high, out_high, rtol=1e-6)):
        raise CannotRepresent("its output has another range than its input")
    low, high = np.broadcast_arrays(low, high)
    scale = (high - low) / (levels - 1)
    if not np.all(scale > 0):
        raise CannotRepresent("its range is empty")
    exact = -low / scale
    lowest = np.rint(exact)
    if np.any(np.abs(exact - lowest) > _GRID_TOLERANCE) or np.any(lowest < 0) or np.any(lowest > levels - 1):
        raise CannotRepresent("zero is not one of its levels")
    bits = (levels - 1).bit_length()
    narrow = levels == (1 << bits) - 1
    if not narrow and levels != 1 << bits:
        raise CannotRepresent(f"its {levels} levels are no whole number of bits")
    signed = narrow or bool(np.all(lowest == levels // 2))
    zero_point = lowest + (-(1 << (bits - 1)) + narrow if signed else 0)
    constants = _constants(draft, node, scale, zero_point, _integer(bits, signed=signed))
    return Coding(*constants, axis=_sliced_axis(draft, node, scale), form=(bits, signed, narrow))


def _sliced_axis(draft: Draft, node: Any, scale: Array) -> int | None:
    """The axis along which a scale that is broadcast has several values, counted from the end."""
    axes = [axis - scale.ndim for axis, size in enumerate(scale.shape) if size > 1]
    if len(axes) > 1:
        raise CannotRepresent(f"its scale has the shape {list(scale.shape)}")
    if not axes:
        return None
    rank = len(draft.constants.shape(node.input[0])) if node.input[0] in draft.constants else scale.ndim
    return axes[0] + rank


# QONNX ---------------------------------------------------------------------------------------------------------


def _qonnx(draft: Draft, node: Any) -> Coding:
    """x, scale, zero point, bit width; attributes ``signed``, ``narrow``, ``rounding_mode``."""
    names = list(node.input[1:4])
    if len(names) != 3 or any(name not in draft.constants for name in names):
        raise CannotRepresent("its scale is computed while the model runs")
    scale, zero_point, width = (draft.constants.value(name) for name in names)
    bits, signed = int(width.ravel()[0]), bool(attribute(node, "signed", 1))
    rounding = _ROUNDINGS.get(str(attribute(node, "rounding_mode", "ROUND")).upper())
    if rounding is None:
        raise CannotRepresent(f"it rounds by {attribute(node, 'rounding_mode')}")
    axis = _sliced_axis(draft, node, scale)
    constants = _constants(draft, node, scale, zero_point, _integer(bits, signed=signed))
    form = (bits, signed, bool(attribute(node, "narrow", 0)))
    return Coding(*constants, axis=axis, form=form, rounding=rounding)
