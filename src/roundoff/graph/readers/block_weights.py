"""Weights with one scale per block, as language models have them: MatMulNBits and DequantizeLinear with blocks.

A block is a row of a matrix of blocks, so that one scale per row says the same. The float model keeps the blocks
as rows, and brings them into the shape of the weight where it is read.
"""

import math
from typing import Any

import numpy as np

from roundoff.core.tensors import Array
from roundoff.graph.nodes import STANDARD_DOMAINS, attribute
from roundoff.graph.readers.points import DEQUANTIZE, MICROSOFT, Coding, DialectDraft, Rewriting, plain_name

_NBITS = "MatMulNBits"
_CODES, _SCALES, _ZEROS, _ORDER, _BIAS = 1, 2, 3, 4, 5
_PACKED = {4: 2, 8: 1}
"""Codes in a byte, by their bits."""


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


def _given(node: Any, at: int) -> str:
    return str(node.input[at]) if at < len(node.input) else ""


def _is_plain(draft: DialectDraft, node: Any) -> bool:
    """Whether the weights of a product are constant codes of 4 or 8 bits in the order of its inputs."""
    held = [_given(node, at) for at in (_CODES, _SCALES, _ZEROS) if _given(node, at)]
    zeros = _given(node, _ZEROS)
    whole = not zeros or (zeros in draft.constants and draft.constants.value(zeros).dtype == np.uint8)
    known = all(name in draft.constants for name in held)
    return known and whole and not _given(node, _ORDER) and int(attribute(node, "bits", 4)) in _PACKED


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
    zeros = np.full(outer * count, 1 << (bits - 1), np.uint8)
    if _given(node, _ZEROS):
        packed = draft.constants.value(node.input[_ZEROS]).reshape(outer, -1)
        zeros = np.ascontiguousarray(_unpacked(packed, bits)[:, :count]).reshape(-1)
    name = plain_name(node.input[_CODES])
    rows = _rows(rewriting, name, codes, scales, zeros, form=(bits, False, False))
    weight = _reshaped(rewriting, rows, (outer, count * size), name)
    if count * size != inner:
        ends = [draft.add_constant(np.array([end], np.int64), f"{name}_end") for end in (0, inner, 1)]
        sliced = draft.free_tensor(f"{name}_used")
        rewriting.add("Slice", [weight, *ends], sliced, name=f"{name}_used")
        weight = sliced
    turned = _transposed(rewriting, weight, (1, 0), name)
    bias = _given(node, _BIAS)
    result = draft.free_tensor(f"{node.output[0]}_product") if bias else node.output[0]
    own = [item.name for item in node.attribute]
    inputs = [rewriting.current(node.input[0]), turned]
    rewriting.add("MatMul", inputs, result, name=node.name, like=node, without=own)
    if bias:
        rewriting.add("Add", [result, rewriting.current(bias)], node.output[0], name=f"{node.name}_bias")


def _has_blocks(draft: DialectDraft, node: Any) -> bool:
    """Whether constant codes have a scale per block, and blocks fill an axis."""
    size = int(attribute(node, "block_size", 0))
    if not size or any(name not in draft.constants for name in node.input if name):
        return False
    shape, scales = (draft.constants.shape(name) for name in node.input[:2])
    axis = int(attribute(node, "axis", 1)) % max(1, len(shape))
    return len(scales) == len(shape) and bool(shape) and shape[axis] == scales[axis] * size


def _constant(rewriting: Rewriting, node: Any) -> None:
    draft, size = rewriting.draft, int(attribute(node, "block_size"))
    codes = draft.constants.value(node.input[0])
    element = draft.constants.element(node.input[0])
    axis = int(attribute(node, "axis", 1)) % codes.ndim
    last = np.moveaxis(codes, axis, -1)
    scales = np.moveaxis(draft.constants.value(node.input[1]), axis, -1).reshape(-1)
    zeros = np.zeros(scales.size, codes.dtype)
    if _given(node, 2):
        zeros = np.moveaxis(draft.constants.value(node.input[2]), axis, -1).reshape(-1).astype(codes.dtype)
    name = plain_name(node.input[0])
    bits = codes.dtype.itemsize * 8 if element is None else element.bits
    form = (bits, codes.dtype.kind == "i", False)
    rows = _rows(rewriting, name, np.ascontiguousarray(last).reshape(-1, size), scales, zeros, form=form)
    weight = _reshaped(rewriting, rows, last.shape, name)
    back = list(range(codes.ndim - 1))
    back.insert(axis, codes.ndim - 1)
    turned = _transposed(rewriting, weight, tuple(back), name)
    rewriting.rename(node.output[0], turned)


def _rows(
    rewriting: Rewriting, name: str, codes: Array, scales: Array, zeros: Array, *, form: tuple[int, bool, bool]
) -> str:
    draft = rewriting.draft
    held = draft.add_constant(np.ascontiguousarray(codes), f"{name}_blocks")
    scale = draft.add_constant(scales.astype(np.float32), f"{name}_scales")
    zero = draft.add_constant(zeros.astype(codes.dtype), f"{name}_zeros")
    return rewriting.dequantize(held, Coding(scale, zero, axis=0, form=form))


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
