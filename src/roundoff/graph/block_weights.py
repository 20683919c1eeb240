"""Weights with one scale per block: a matrix as rows of blocks, and products that hold such weights as codes.

A block is a row of a matrix of blocks, so that one scale per row says the same; readers of models that others made
write them down alike. In a float model the rows are joined and turned to the matrix again, which changes nothing.
"""

import math
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from roundoff.core.tensors import Array
from roundoff.graph.draft import Draft
from roundoff.graph.load import Model, inside_bytes
from roundoff.graph.nodes import attribute, input_at, producers
from roundoff.graph.save import DeferredModel, drop_unused
from roundoff.graph.weights import Weights

MATMUL_N_BITS, _MICROSOFT = "MatMulNBits", "com.microsoft"
_MATRIX = 2
_SMALLEST_BLOCK = 16


@dataclass(frozen=True, slots=True)
class BlockProduct:
    """A product whose weight is made of rows of blocks.

    Attributes:
        node: The MatMul.
        rows: The tensor of rows.
        joined: The node that reads it.
        between: All nodes between the rows and the product.
        inner: How many terms a sum has.
        outer: How many columns the weight has.
        size: Values in a block.
    """

    node: str
    rows: str
    joined: str
    between: tuple[str, ...]
    inner: int
    outer: int
    size: int


def split_weights(model: Model, size: int, nodes: Collection[str] = ()) -> tuple[Model, tuple[str, ...]]:
    """Write the constant matrices of products as rows of blocks.

    Args:
        model: A float model; it is not changed.
        size: Values in a block; those of the last one of a column are filled up with zeros.
        nodes: Of these products only; of all but the smallest when empty.

    Returns:
        The model, and the products whose weight is made of rows now.
    """
    from onnx.helper import make_node

    draft, found, taken = Draft(model), list[Any](), list[str]()
    for node in draft.nodes.values():
        if _has_matrix(draft, node, 1 if nodes else _SMALLEST_BLOCK) and (not nodes or node.name in nodes):
            matrix = draft.constants.value(node.input[1])
            (inner, outer), name = matrix.shape, f"{node.name}_weight"
            count = math.ceil(inner / size)
            filled = np.zeros((outer, count * size), matrix.dtype)
            filled[:, :inner] = matrix.T
            rows = draft.add_constant(filled.reshape(outer * count, size), f"{name}_blocks")
            shape = draft.add_constant(np.array([outer, count * size], np.int64), f"{name}_shape")
            steps: list[tuple[str, list[str], dict[str, Any], str]] = [("Reshape", [rows, shape], {}, "joined")]
            if count * size != inner:
                ends = [draft.add_constant(np.array([end], np.int64), f"{name}_end") for end in (0, inner, 1)]
                steps.append(("Slice", ["", *ends], {}, "used"))
            steps.append(("Transpose", [""], {"perm": [1, 0]}, "turned"))
            last = ""
            for op_type, inputs, options, suffix in steps:
                result = draft.free_tensor(f"{name}_{suffix}")
                read = [each or last for each in inputs]
                found.append(make_node(op_type, read, [result], name=draft.free_node(result), **options))
                last = result
            draft.set_input(node, 1, last)
            taken.append(node.name)
        found.append(node)
    draft.replace(found)
    return (draft.finish(), tuple(taken)) if taken else (model, ())


def _has_matrix(draft: Draft, node: Any, least: int) -> bool:
    if node.op_type != "MatMul" or node.domain or node.input[1] not in draft.constants:
        return False
    held = draft.constants.value(node.input[1])
    return held.ndim == _MATRIX and held.dtype == np.float32 and held.shape[0] >= least


def block_products(model: Model) -> dict[str, BlockProduct]:
    """Products whose weight is made of rows of blocks, by the name of the product."""
    weights = Weights(model)
    found = _found(model, lambda name: weights.shape(name) if name in weights.protos else None)
    return {each.node: each for each in found}


def _found(model: Model, rows_shape: Callable[[str], tuple[int, ...] | None]) -> Iterator[BlockProduct]:
    graph = model.proto.graph
    makers, weights = producers(graph.node), Weights(model)
    for node in graph.node:
        turned = makers.get(node.input[1]) if node.op_type == "MatMul" else None
        if turned is None or turned.op_type != "Transpose" or list(attribute(turned, "perm", [])) != [1, 0]:
            continue
        inner = makers.get(turned.input[0])
        used = inner if inner is not None and inner.op_type == "Slice" else None
        joined = makers.get(used.input[0]) if used is not None else inner
        if joined is None or joined.op_type != "Reshape" or joined.input[1] not in weights.protos:
            continue
        shape = rows_shape(joined.input[0])
        whole = [int(each) for each in weights[joined.input[1]].ravel()]
        if shape is None or len(shape) != _MATRIX or len(whole) != _MATRIX or whole[1] % shape[1]:
            continue
        terms = int(weights[used.input[2]].ravel()[0]) if used is not None else whole[1]
        between = tuple(each.name for each in (joined, used, turned) if each is not None)
        yield BlockProduct(node.name, joined.input[0], joined.name, between, terms, whole[0], shape[1])


def with_block_products(deferred: DeferredModel) -> DeferredModel:
    """A model whose products with rows of codes are MatMulNBits of onnxruntime, which holds these codes packed."""
    from onnx import TensorProto
    from onnx.helper import make_node, make_opsetid

    model = deferred.model
    graph, arrays = model.proto.graph, dict(deferred.arrays)
    makers = producers(graph.node)
    held = {tensor.name: tensor for tensor in graph.initializer}
    bits_of = {TensorProto.INT4: 4, TensorProto.INT8: 8}

    def codes_shape(name: str) -> tuple[int, ...] | None:
        maker = makers.get(name)
        codes = held.get(maker.input[0]) if maker is not None and maker.op_type == "DequantizeLinear" else None
        if maker is None or codes is None or codes.data_type not in bits_of or attribute(maker, "axis", 1) != 0:
            return None
        scales = held.get(maker.input[1])
        whole = scales is not None and list(scales.dims) == list(codes.dims)[:1]
        return tuple(codes.dims) if whole and _is_zero(held.get(input_at(maker, 2))) else None

    products = {each.node: each for each in _found(model, codes_shape)}
    if not products:
        return deferred
    gone = set[str]()
    for node in graph.node:
        part = products.get(node.name)
        if part is None:
            continue
        source = makers[part.rows]
        codes = held[source.input[0]]
        bits, count = bits_of[codes.data_type], math.ceil(part.inner / part.size)
        name = f"{codes.name}_packed"
        dims = [part.outer, count, part.size * bits // 8]
        graph.initializer.append(TensorProto(name=name, data_type=TensorProto.UINT8, dims=dims))
        arrays[name] = partial(_packed, arrays.pop(codes.name), bits)
        gone |= {source.name, *part.between}
        made = make_node(
            MATMUL_N_BITS,
            [node.input[0], name, source.input[1]],
            list(node.output),
            name=node.name,
            domain=_MICROSOFT,
            K=part.inner,
            N=part.outer,
            bits=bits,
            block_size=part.size,
        )
        node.CopyFrom(made)
    kept = [node for node in graph.node if node.name not in gone]
    del graph.node[:]
    graph.node.extend(kept)
    if all(each.domain != _MICROSOFT for each in model.proto.opset_import):
        model.proto.opset_import.append(make_opsetid(_MICROSOFT, 1))
    drop_unused(graph)
    return DeferredModel(Model(model.proto, model.path, inside_bytes(model.proto)), arrays)


def _is_zero(tensor: Any) -> bool:
    """Whether codes have their zero at 0, as they have without a tensor that says where."""
    from onnx.numpy_helper import to_array

    return tensor is None or not np.asarray(to_array(tensor)).astype(np.int16).any()


def _packed(codes: Callable[[], Array], bits: int) -> Array:
    """Codes from 0 on, two of 4 bits in a byte, the first in its lower half."""
    whole = (codes().astype(np.int16) + (1 << (bits - 1))).astype(np.uint8)
    if bits == 8:
        return whole
    return np.asarray(whole[:, 0::2] | (whole[:, 1::2] << 4), np.uint8)
