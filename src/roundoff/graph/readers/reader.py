"""Weights with one scale per block, as language models have them: MatMulNBits and DequantizeLinear with blocks.

A block is a row of a matrix of blocks, so that one scale per row says the same. The float model keeps the blocks
as rows, and brings them into the shape of the weight where it is read.
"""

import math
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any, get_args

import numpy as np

from roundoff.core.quantizers import Rounding
from roundoff.core.tensors import Array
from roundoff.errors import BadInput
from roundoff.graph.load import Model, name_nodes
from roundoff.graph.nodes import STANDARD_DOMAINS, OnnxType, all_nodes, attribute, by_dtype, input_at, subgraphs
from roundoff.graph.quantized_model import Oddity, OddityKind, QuantizedModel
from roundoff.graph.readers.ascend import rewrite_ascend
from roundoff.graph.readers.extraction import Extraction
from roundoff.graph.readers.float_model import float_model_of, quantizers_of, restore_activations
from roundoff.graph.readers.integer_operators import rewrite_integer_products, rewrite_qoperators
from roundoff.graph.readers.points import (
    DEQUANTIZE,
    MICROSOFT,
    QUANTIZE,
    CannotRepresent,
    Coding,
    DialectDraft,
    Rewriting,
    plain_name,
)
from roundoff.graph.readers.transfer import transfer_quantizers
from roundoff.messages.message import Message, english, message, some

_NBITS = "MatMulNBits"
_CODES, _SCALES, _ZEROS, _ORDER, _BIAS = 1, 2, 3, 4, 5
_PACKED = {4: 2, 8: 1}
"""Codes in a byte, by their bits."""
_WRITTEN = "_blocks_codes_packed"
"""Behind the name of a weight that roundoff wrote: it is called as in the model that it was written from."""


def rewrite_block_weights(draft: DialectDraft) -> None:
    """Write weights with scales per block as rows with a scale each; what cannot be stays, and is reported."""
    rewriting = Rewriting(draft)
    for node in draft.nodes.values():
        if node.op_type == _NBITS and node.domain == MICROSOFT and _is_plain(draft, node):
            _product(rewriting, node)
        elif node.op_type == DEQUANTIZE and node.domain in STANDARD_DOMAINS and _has_blocks(draft, node):
            _constant(rewriting, node)
        else:
            rewriting.keep(node)
    rewriting.finish()


def _is_plain(draft: DialectDraft, node: Any) -> bool:
    """Whether the weights of a product are constant codes of 4 or 8 bits in the order of its inputs."""
    held = [input_at(node, at) for at in (_CODES, _SCALES, _ZEROS) if input_at(node, at)]
    zeros = input_at(node, _ZEROS)
    whole = not zeros or (zeros in draft.constants and draft.constants.value(zeros).dtype == np.uint8)
    known = all(name in draft.constants for name in held)
    return known and whole and not input_at(node, _ORDER) and int(attribute(node, "bits", 4)) in _PACKED


def _unpacked(packed: Array, bits: int) -> Array:
    """Codes one by one along the last axis, the lower half of a byte first."""
    if _PACKED[bits] == 1:
        return packed
    return np.stack([packed & 0x0F, packed >> 4], axis=-1).reshape(*packed.shape[:-1], -1)


def _product(rewriting: Rewriting, node: Any) -> None:
    draft = rewriting.draft
    bits, size = int(attribute(node, "bits", 4)), int(attribute(node, "block_size"))
    inner, outer = int(attribute(node, "K")), int(attribute(node, "N"))
    count = math.ceil(inner / size)
    codes = _unpacked(draft.constants.value(node.input[_CODES]), bits).reshape(outer * count, -1)[:, :size]
    scales = draft.constants.value(node.input[_SCALES]).reshape(-1)
    # Codes around the middle one are signed codes around zero.
    signed = not input_at(node, _ZEROS)
    if signed:
        codes = (codes.astype(np.int16) - (1 << (bits - 1))).astype(np.int8)
        zeros = np.zeros(outer * count, np.int8)
    else:
        packed = draft.constants.value(node.input[_ZEROS]).reshape(outer, -1)
        zeros = np.ascontiguousarray(_unpacked(packed, bits)[:, :count]).reshape(-1)
    name = plain_name(node.input[_CODES]).removesuffix(_WRITTEN)
    shape = (outer, count * size)
    codes = _filled(codes.reshape(shape), zeros, inner, size)
    rows = _rows(rewriting, name, codes, scales, zeros, form=(bits, signed, False))
    weight = _used(rewriting, _reshaped(rewriting, rows, shape, name), shape, inner, name)
    turned = _transposed(rewriting, weight, (1, 0), name)
    bias = input_at(node, _BIAS)
    result = draft.free_tensor(f"{node.output[0]}_product") if bias else node.output[0]
    own = [item.name for item in node.attribute]
    inputs = [rewriting.current(node.input[0]), turned]
    rewriting.add("MatMul", inputs, result, name=node.name, like=node, without=own)
    if bias:
        rewriting.add("Add", [result, rewriting.current(bias)], node.output[0], name=f"{node.name}_bias")


def _has_blocks(draft: DialectDraft, node: Any) -> bool:
    """Whether constant codes have a scale per block, and as many as fill an axis; the last may go beyond it."""
    size = int(attribute(node, "block_size", 0))
    if not size or any(name not in draft.constants for name in node.input if name):
        return False
    shape, scales = (draft.constants.shape(name) for name in node.input[:2])
    axis = int(attribute(node, "axis", 1)) % max(1, len(shape))
    return len(scales) == len(shape) and bool(shape) and math.ceil(shape[axis] / size) == scales[axis]


def _constant(rewriting: Rewriting, node: Any) -> None:
    draft, size = rewriting.draft, int(attribute(node, "block_size"))
    codes = draft.constants.value(node.input[0])
    element = draft.constants.element(node.input[0])
    axis = int(attribute(node, "axis", 1)) % codes.ndim
    last = np.moveaxis(codes, axis, -1)
    scales = np.moveaxis(draft.constants.value(node.input[1]), axis, -1).reshape(-1)
    zeros = np.zeros(scales.size, codes.dtype)
    if input_at(node, 2):
        zeros = np.moveaxis(draft.constants.value(node.input[2]), axis, -1).reshape(-1).astype(codes.dtype)
    name = plain_name(node.input[0])
    bits = codes.dtype.itemsize * 8 if element is None else element.bits
    held = codes.dtype.name if element is None else element.dtype
    form = (bits, held.startswith("int"), False)
    inner = last.shape[-1]
    shape = (*last.shape[:-1], inner + -inner % size)
    wide = np.pad(last, [(0, 0)] * (last.ndim - 1) + [(0, shape[-1] - inner)])
    rows = _rows(rewriting, name, _filled(wide, zeros, inner, size), scales, zeros, form=form)
    weight = _used(rewriting, _reshaped(rewriting, rows, shape, name), shape, inner, name)
    back = list(range(codes.ndim - 1))
    back.insert(axis, codes.ndim - 1)
    turned = _transposed(rewriting, weight, tuple(back), name)
    rewriting.rename(node.output[0], turned)


def _filled(codes: Array, zeros: Array, inner: int, size: int) -> Array:
    """Blocks of a weight as rows, with zeros where the last one of a row of the weight goes beyond its end."""
    known = np.arange(codes.shape[-1]) < inner
    points = np.repeat(zeros.reshape(*codes.shape[:-1], -1), size, axis=-1)
    return np.where(known, codes, points.astype(codes.dtype)).reshape(-1, size)


def _rows(
    rewriting: Rewriting, name: str, codes: Array, scales: Array, zeros: Array, *, form: tuple[int, bool, bool]
) -> str:
    draft = rewriting.draft
    codes, scales, zeros = _upright(codes, scales, zeros, form=form)
    held = draft.add_constant(np.ascontiguousarray(codes), f"{name}_blocks")
    scale = draft.add_constant(scales.astype(np.float32), f"{name}_scales")
    zero = draft.add_constant(zeros.astype(codes.dtype), f"{name}_zeros")
    return rewriting.dequantize(held, Coding(scale, zero, axis=0, form=form))


def _upright(
    codes: Array, scales: Array, zeros: Array, *, form: tuple[int, bool, bool]
) -> tuple[Array, Array, Array]:
    """The same values with scales above zero.

    onnxruntime gives the largest value of a block the lowest code, by a scale below zero where it is positive:
    codes counted from the other end say the same. A block of zeros has the scale 0.
    """
    bits, signed, _ = form
    turned, empty = scales < 0, scales == 0
    last = -1 if signed else (1 << bits) - 1
    wide, points = codes.astype(np.int64), zeros.astype(np.int64)
    wide, points = np.where(turned[:, None], last - wide, wide), np.where(turned, last - points, points)
    wide = np.where(empty[:, None], points[:, None], wide)
    return wide.astype(codes.dtype), np.where(empty, 1, np.abs(scales)), points.astype(codes.dtype)


def _used(rewriting: Rewriting, weight: str, shape: tuple[int, ...], inner: int, name: str) -> str:
    """What blocks hold of a weight: the last one of a row may go beyond its end."""
    if shape[-1] == inner:
        return weight
    draft = rewriting.draft
    ends = [draft.add_constant(np.array([end], np.int64), f"{name}_end") for end in (0, inner, len(shape) - 1)]
    sliced = draft.free_tensor(f"{name}_used")
    rewriting.add("Slice", [weight, *ends], sliced, name=f"{name}_used")
    return sliced


def _reshaped(rewriting: Rewriting, tensor: str, shape: tuple[int, ...], name: str) -> str:
    sizes = rewriting.draft.add_constant(np.array(shape, np.int64), f"{name}_shape")
    result = rewriting.draft.free_tensor(f"{name}_joined")
    rewriting.add("Reshape", [tensor, sizes], result, name=f"{name}_joined")
    return result


def _transposed(rewriting: Rewriting, tensor: str, order: tuple[int, ...], name: str) -> str:
    from onnx.helper import make_attribute

    if order == tuple(range(len(order))):
        return tensor
    result = rewriting.draft.free_tensor(f"{name}_turned")
    node = rewriting.add("Transpose", [tensor], result, name=f"{name}_turned")
    node.attribute.append(make_attribute("perm", list(order)))
    return result


# From the file of a quantized model to a float model and its quantizers.

# Quantized parts that are not in the main graph: functions are put in line, subgraphs stay and are reported.

_QUANTIZES = ("QuantizeLinear", "HzCalibration", "AscendQuant", "FakeQuantize", "DynamicQuantizeLinear", "QLinear")


def inlined(model: Model) -> Model:
    """The model with those of its functions that quantize something replaced by what they do."""
    if not any(_quantizes(node) for function in model.proto.functions for node in function.node):
        return model
    from onnx.inliner import inline_local_functions

    # It names what it puts in line, but not always uniquely.
    proto = inline_local_functions(model.proto)
    name_nodes(proto.graph)
    return replace(model, proto=proto)


def inside_subgraphs(model: Model) -> Iterator[Oddity]:
    """Say which nodes have quantizers in their subgraphs."""
    for node in model.proto.graph.node:
        count = sum(_quantizes(inner) for graph in subgraphs(node) for inner in all_nodes(graph))
        if count:
            text = message("graph.inside_subgraph", count=count, node=node.name, op=node.op_type)
            yield Oddity("not_represented", node.name, text)


def _quantizes(node: Any) -> bool:
    return bool(node.op_type.startswith(_QUANTIZES))


# Single nodes that quantize and dequantize: HzCalibration, OpenVINO's FakeQuantize, QONNX's Quant.

_HORIZON_COMPILED = ("HzSQuantized", "HzQuantize", "HzDequantize", "HzRequantize", "HzLut", "HzSElementwise")
_CALIBRATION = "HzCalibration"
_ROUNDINGS: dict[str, Rounding] = {"ROUND": "half_even", "FLOOR": "floor", "HALF_UP": "half_up"}
_WIDTHS = (4, 8, 16)
_FEWEST_LEVELS = 2
_GRID_TOLERANCE = 1e-3
"""How far, in steps, a range may miss the grid on which zero has a code; float32 limits miss it by less."""


class _NotQuantized(Exception):
    """The node passes values on as they are."""


def rewrite_fake_nodes(draft: DialectDraft) -> None:
    """Replace such nodes by QuantizeLinear and DequantizeLinear.

    Raises:
        BadInput: The model is of a later stage of a toolchain, or its scales are kept in another file.
    """
    readers: dict[str, Callable[[DialectDraft, Any], Coding]] = {
        _CALIBRATION: _horizon,
        "FakeQuantize": _openvino,
        "Quant": _qonnx,
    }
    if not any(node.op_type in readers or _other_stage(node) for node in draft.nodes.values()):
        return
    rewriting = Rewriting(draft)
    for node in draft.nodes.values():
        _refuse_other_stages(draft, node)
        if node.op_type not in readers:
            rewriting.keep(node)
            continue
        try:
            coding = readers[node.op_type](draft, node)
        except CannotRepresent as reason:
            text = message("graph.passes_float", op=node.op_type, node=node.name, why=str(reason))
            draft.odd("not_represented", node.name, text)
            rewriting.rename(node.output[0], node.input[0])
        except _NotQuantized:
            rewriting.rename(node.output[0], node.input[0])
        else:
            _rewrite(rewriting, node, coding)
    rewriting.finish()


def _other_stage(node: Any) -> bool:
    return bool(node.op_type.startswith((*_HORIZON_COMPILED, "QcQuantize")))


def _refuse_other_stages(draft: DialectDraft, node: Any) -> None:
    if node.op_type.startswith(_HORIZON_COMPILED):
        raise BadInput(
            english(
                "{path} is a compiled integer model: node {name!r} is {op_type}.",
                path=draft.model.path,
                name=node.name,
                op_type=node.op_type,
            ),
            fix=english("give the *_calibrated_model.onnx that the same conversion wrote"),
        )
    if node.op_type.startswith("QcQuantize"):
        raise BadInput(
            english(
                "{path} has {op_type} nodes, whose scales are kept in another file.",
                path=draft.model.path,
                op_type=node.op_type,
            ),
            fix=english("export the model with QuantizeLinear and DequantizeLinear nodes (to_onnx_qdq)"),
        )


def _rewrite(rewriting: Rewriting, node: Any, coding: Coding) -> None:
    source = rewriting.current(node.input[0])
    ending = f"_{_CALIBRATION}"
    # A calibration node is named after its tensor, which names the quantizer.
    name = node.name.removesuffix(ending) if node.name.endswith(ending) else node.name
    name = name.removesuffix(f"_{QUANTIZE}")
    codes = rewriting.quantize(source, coding, name=name)
    rewriting.dequantize(codes, coding, node.output[0])


def _integer(bits: int, *, signed: bool) -> OnnxType:
    width = next((width for width in _WIDTHS if width >= bits), 0) if bits > signed else 0
    element = by_dtype(f"{'int' if signed else 'uint'}{width}") if width else None
    if element is None:
        raise CannotRepresent(english("it has codes of {bits} bits", bits=bits))
    return element


def _constants(
    draft: DialectDraft, node: Any, scale: Array, zero_point: Array, element: OnnxType
) -> tuple[str, str]:
    """Add scale and zero point; those of one number are taken for the whole tensor."""
    whole = scale.size == 1
    scale_name = draft.add_constant(scale.astype(np.float32).reshape(() if whole else -1), f"{node.name}_scale")
    zeros = np.broadcast_to(zero_point.ravel(), scale.size).astype(np.int64).reshape(() if whole else -1)
    return scale_name, draft.add_constant(zeros, f"{node.name}_zero_point", element)


# Horizon -------------------------------------------------------------------------------------------------------


def _horizon(draft: DialectDraft, node: Any) -> Coding:
    """Scales, or thresholds to divide by the largest code; attributes are found by what their names contain."""
    bits = _horizon_bits(draft, node)
    scale = _numbers(draft, node, "scale")
    if scale is None:
        threshold = _numbers(draft, node, "threshold")
        if threshold is None:
            raise CannotRepresent(english("it has neither scales nor thresholds"))
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


def _horizon_bits(draft: DialectDraft, node: Any) -> int:
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


def _numbers(draft: DialectDraft, node: Any, word: str) -> Array | None:
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


def _openvino(draft: DialectDraft, node: Any) -> Coding:
    """x, lowest and highest value in, lowest and highest value out; ``levels`` values between."""
    names = list(node.input[1:5])
    if len(names) != 4 or any(name not in draft.constants for name in names):
        raise CannotRepresent(english("its range is computed while the model runs"), dynamic=True)
    low, high, out_low, out_high = (draft.constants.value(name).astype(np.float64) for name in names)
    levels = int(attribute(node, "levels", 256))
    if levels < _FEWEST_LEVELS:
        raise CannotRepresent(english("it has {levels} levels", levels=levels))
    if not (np.allclose(low, out_low, rtol=1e-6) and np.allclose(high, out_high, rtol=1e-6)):
        raise CannotRepresent(english("its output has another range than its input"))
    low, high = np.broadcast_arrays(low, high)
    scale = (high - low) / (levels - 1)
    if not np.all(scale > 0):
        raise CannotRepresent(english("its range is empty"))
    exact = -low / scale
    lowest = np.rint(exact)
    if np.any(np.abs(exact - lowest) > _GRID_TOLERANCE) or np.any(lowest < 0) or np.any(lowest > levels - 1):
        raise CannotRepresent(english("zero is not one of its levels"))
    bits = (levels - 1).bit_length()
    narrow = levels == (1 << bits) - 1
    if not narrow and levels != 1 << bits:
        raise CannotRepresent(english("its {levels} levels are no whole number of bits", levels=levels))
    signed = narrow or bool(np.all(lowest == levels // 2))
    zero_point = lowest + (-(1 << (bits - 1)) + narrow if signed else 0)
    constants = _constants(draft, node, scale, zero_point, _integer(bits, signed=signed))
    return Coding(*constants, axis=_sliced_axis(draft, node, scale), form=(bits, signed, narrow))


def _sliced_axis(draft: DialectDraft, node: Any, scale: Array) -> int | None:
    """The axis along which a scale that is broadcast has several values, counted from the end."""
    axes = [axis - scale.ndim for axis, size in enumerate(scale.shape) if size > 1]
    if len(axes) > 1:
        raise CannotRepresent(english("its scale has the shape {shape}", shape=list(scale.shape)))
    if not axes:
        return None
    rank = len(draft.constants.shape(node.input[0])) if node.input[0] in draft.constants else scale.ndim
    return axes[0] + rank


# QONNX ---------------------------------------------------------------------------------------------------------


def _qonnx(draft: DialectDraft, node: Any) -> Coding:
    """x, scale, zero point, bit width; attributes ``signed``, ``narrow``, ``rounding_mode``."""
    names = list(node.input[1:4])
    if len(names) != 3 or any(name not in draft.constants for name in names):
        raise CannotRepresent(english("its scale is computed while the model runs"), dynamic=True)
    scale, zero_point, width = (draft.constants.value(name) for name in names)
    bits, signed = int(width.ravel()[0]), bool(attribute(node, "signed", 1))
    rounding = _ROUNDINGS.get(str(attribute(node, "rounding_mode", "ROUND")).upper())
    if rounding is None:
        raise CannotRepresent(english("it rounds by {attribute}", attribute=attribute(node, "rounding_mode")))
    axis = _sliced_axis(draft, node, scale)
    constants = _constants(draft, node, scale, zero_point, _integer(bits, signed=signed))
    form = (bits, signed, bool(attribute(node, "narrow", 0)))
    return Coding(*constants, axis=axis, form=form, rounding=rounding)


_LISTED = 5
_DIALECTS = (
    rewrite_fake_nodes,
    rewrite_ascend,
    rewrite_block_weights,
    rewrite_qoperators,
    rewrite_integer_products,
)


def read_quantized(model: Model, *, float_model: Model | None = None) -> QuantizedModel:
    """Read a quantized model, whichever tool made it.

    QuantizeLinear and DequantizeLinear in all their arrangements, onnxruntime's operators on codes (QLinearConv,
    QGemm ...) and on codes of dynamic scale, HzCalibration nodes, AMCT's models, OpenVINO's FakeQuantize and
    QONNX's Quant become quantizers. What cannot be said by quantizers stays a node, and is reported. Subgraphs (of
    If, Loop, Scan) stay as they are.

    Args:
        model: The quantized model.
        float_model: The float model it was made from; quantizers are then moved onto its tensors and nodes, and
            keep the codes of weights where rounding gives others. Without it the float model is what remains when
            the quantizers are taken out, its weights being the values of their codes.

    Raises:
        BadInput: The model is of a kind that cannot be read, or the float model is not the one it was made from.
    """
    draft = DialectDraft(inlined(model))
    draft.oddities += inside_subgraphs(draft.model)
    for rewrite in _DIALECTS:
        rewrite(draft)
    extraction = Extraction(draft)
    extraction.run()
    restore_activations(extraction)
    if float_model is not None:
        found = transfer_quantizers(extraction, float_model)
    else:
        twin = float_model_of(extraction)
        found = QuantizedModel(twin, quantizers_of(extraction, twin))
    own = [oddity for oddity in draft.oddities if float_model is None or oddity.kind != "restored"]
    oddities = (*own, *found.oddities)
    return replace(found, notes=tuple(_notes(oddities)), oddities=oddities)


def _notes(oddities: Sequence[Oddity]) -> Iterator[Message]:
    """All oddities of one kind in a sentence."""
    for kind in get_args(OddityKind):
        names = list(dict.fromkeys(oddity.node for oddity in oddities if oddity.kind == kind))
        if names:
            yield message(f"graph.odd_{kind}", nodes=some(names, _LISTED))
