"""Integer products with scales that are computed in each run: weights become quantizers, the rest float."""

from dataclasses import dataclass
from typing import Any

import numpy as np

from roundoff.graph.reading.constants import attribute
from roundoff.graph.reading.draft import Draft
from roundoff.graph.reading.points import MICROSOFT, QUANTIZE, is_operator
from roundoff.graph.reading.rewriting import Coding, Rewriting, plain_name

__all__ = ["rewrite_integer_products"]

_PRODUCTS = {"MatMulInteger": "MatMul", "ConvInteger": "Conv"}
_FLOAT_TYPES = (1, 10)


@dataclass(frozen=True, slots=True)
class _Product:
    """An integer product and the nodes that scale it.

    Attributes:
        node: MatMulInteger or ConvInteger.
        last: The node that writes the scaled result.
        activation: The float values of its first operand.
        scale: Scale of that operand, where it is constant.
        weight: Codes, scale and zero point of its second operand.
    """

    node: Any
    last: Any
    activation: str
    scale: str
    weight: tuple[str, str, str]


def rewrite_integer_products(draft: Draft) -> None:
    """Replace MatMulInteger and ConvInteger, with the scaling behind, by float operators and DequantizeLinear."""
    products = {}
    for node in draft.nodes:
        if node.op_type in _PRODUCTS and node.domain in ("", "ai.onnx"):
            found = _product(draft, node)
            if found is None:
                why = "the scale of its operands or of its result was not found"
                draft.odd("not_represented", node.name, f"{node.op_type} {node.name!r} stays as it is: {why}")
            else:
                products[found.last.name] = found
    rewriting = Rewriting(draft)
    for node in draft.nodes:
        if node.name in products:
            _rewrite(rewriting, products[node.name])
        elif node.domain == MICROSOFT and node.op_type in ("DynamicQuantizeMatMul", "MatMulIntegerToFloat"):
            _rewrite_fused(rewriting, node)
        else:
            rewriting.keep(node)
    rewriting.finish()


def _product(draft: Draft, node: Any) -> _Product | None:
    source = draft.producer(node.input[0])
    cast = draft.only_reader(node.output[0])
    if source is None or node.input[1] not in draft.constants or cast is None or cast.op_type != "Cast":
        return None
    if attribute(cast, "to", 0) not in _FLOAT_TYPES:
        return None
    scaling = draft.only_reader(cast.output[0])
    if scaling is None or scaling.op_type != "Mul":
        return None
    factor = next((name for name in scaling.input if name != cast.output[0]), "")
    dynamic = source.op_type == "DynamicQuantizeLinear"
    if not dynamic and not is_operator(source, QUANTIZE):
        return None
    own = source.output[1] if dynamic else source.input[1]
    scale = _other_factor(draft, factor, own) or ("" if dynamic else _quotient(draft, factor, own))
    if not scale or scale not in draft.constants:
        return None
    zero_point = node.input[3] if len(node.input) > 3 else ""
    weight = (node.input[1], scale, zero_point)
    return _Product(node, scaling, source.input[0], "" if dynamic else own, weight)


def _other_factor(draft: Draft, product: str, known: str) -> str:
    """The other factor of a product of two scales; empty when the tensor is no such product."""
    node = draft.producer(product)
    if node is None or node.op_type != "Mul" or known not in node.input:
        return ""
    return str(node.input[1] if node.input[0] == known else node.input[0])


def _quotient(draft: Draft, product: str, known: str) -> str:
    """A constant: what a constant product of two scales is without the known one."""
    if product not in draft.constants or known not in draft.constants:
        return ""
    values = draft.constants.value(product).astype(np.float64) / draft.constants.value(known).astype(np.float64)
    return draft.add_constant(values.astype(np.float32), f"{product}_quotient")


def _rewrite(rewriting: Rewriting, product: _Product) -> None:
    draft, node = rewriting.draft, product.node
    axis = 0 if node.op_type == "ConvInteger" else -1
    codes, scale, zero_point = product.weight

    inputs = [rewriting.current(product.activation)]
    if product.scale:
        zero = node.input[2] if len(node.input) > 2 else ""
        inputs = [rewriting.dequantize(node.input[0], Coding(product.scale, zero))]
    else:
        _say_dynamic(draft, node, product.activation)
    inputs.append(rewriting.dequantize(codes, Coding(_flatten_scale(draft, scale), zero_point, axis=axis)))
    op_type, name = _PRODUCTS[node.op_type], plain_name(node.name)
    rewriting.add(op_type, inputs, product.last.output[0], name=name, like=node)


def _flatten_scale(draft: Draft, scale: str) -> str:
    """The name of a scale that is a number or a row of numbers, whatever it has to be broadcast to."""
    shape = draft.constants.shape(scale)
    if len(shape) <= 1:
        return scale
    return draft.add_constant(draft.constants.value(scale).ravel(), f"{scale}_flat")


def _rewrite_fused(rewriting: Rewriting, node: Any) -> None:
    """DynamicQuantizeMatMul: A, B, scale of B, zero point of B, bias. MatMulIntegerToFloat has A's scale too."""
    draft = rewriting.draft
    inputs = [*node.input, "", "", "", "", ""]
    fused = node.op_type == "DynamicQuantizeMatMul"
    first, second, scale, zero_point, bias = (
        inputs[:5] if fused else (inputs[0], inputs[1], inputs[3], inputs[5], inputs[6])
    )
    source: Any = None if fused else draft.producer(first)
    dynamic = source is not None and source.op_type == "DynamicQuantizeLinear"
    own = "" if fused else inputs[2]
    static = own in draft.constants
    if second not in draft.constants or scale not in draft.constants or not (fused or dynamic or static):
        why = "the scale of its operands was not found"
        draft.odd("not_represented", node.name, f"{node.op_type} {node.name!r} stays as it is: {why}")
        rewriting.keep(node)
        return
    if static:
        operand = rewriting.dequantize(first, Coding(own, inputs[4]))
    else:
        operand = rewriting.current(source.input[0] if dynamic else first)
        _say_dynamic(draft, node, operand)
    weight = rewriting.dequantize(second, Coding(scale, zero_point, axis=-1))
    name = plain_name(node.name)
    result = node.output[0] if not bias else draft.free(f"{node.output[0]}_MatMul")
    rewriting.add("MatMul", [operand, weight], result, name=name, like=node)
    if bias:
        rewriting.add("Add", [result, rewriting.current(bias)], node.output[0], name=f"{name}_Add")


def _say_dynamic(draft: Draft, node: Any, activation: str) -> None:
    draft.odd(
        "dynamic",
        plain_name(node.name),
        f"{activation!r} is quantized for {plain_name(node.name)!r} with a scale computed in each run; "
        "a quantizer has a fixed one, so it is float here, and only the weight is quantized",
    )
