"""Operators that take and give codes (QLinearConv, QGemm, QLinearAdd ...), written anew as float ones."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from roundoff.graph.nodes import STANDARD_DOMAINS, OnnxType, attribute, by_dtype, input_at
from roundoff.graph.readers.points import (
    MICROSOFT,
    QUANTIZE,
    Coding,
    DialectDraft,
    Rewriting,
    is_operator,
    plain_name,
)
from roundoff.messages.message import english, message

_DOMAINS = (*STANDARD_DOMAINS, MICROSOFT)


@dataclass(frozen=True, slots=True)
class _Form:
    """Where an operator has its inputs.

    Attributes:
        op_type: The operator that computes the same with values.
        coded: Where each run of codes, scale and zero point starts.
        output: Where scale and zero point of the output are.
        plain: Inputs that are passed on as they are, in front of the others.
        bias: Where the integer bias is.
    """

    op_type: str
    coded: tuple[int, ...]
    output: int
    plain: tuple[int, ...] = ()
    bias: int | None = None


_FORMS = {
    "QLinearConv": _Form("Conv", (0, 3), 6, bias=8),
    "QGemm": _Form("Gemm", (0, 3), 7, bias=6),
    "QLinearMatMul": _Form("MatMul", (0, 3), 6),
    "QLinearAdd": _Form("Add", (0, 3), 6),
    "QLinearMul": _Form("Mul", (0, 3), 6),
    "QLinearWhere": _Form("Where", (1, 4), 7, plain=(0,)),
    "QLinearAveragePool": _Form("AveragePool", (0,), 3),
    "QLinearGlobalAveragePool": _Form("GlobalAveragePool", (0,), 3),
    "QLinearReduceMean": _Form("ReduceMean", (0,), 3),
    "QLinearSigmoid": _Form("Sigmoid", (0,), 3),
    "QLinearLeakyRelu": _Form("LeakyRelu", (0,), 3),
    "QLinearSoftmax": _Form("Softmax", (0,), 3),
}
# Attributes that only the versions for codes have.
_OWN_ATTRIBUTES = ("channels_last", "opset")
_SOFTMAX_CHANGED, _REDUCE_TAKES_AXES = 13, 18
# Operators on codes that have no float operator of the same meaning.
_UNKNOWN = (
    "QLinear", "QOrdered", "QAttention", "QEmbedLayerNormalization", "NhwcMaxPool", "QMoE", "MatMulNBits",
    "MatMulBnb4", "GatherBlockQuantized", "DynamicQuantizeLSTM", "QuantizeBFP", "DequantizeBFP",
)  # fmt: skip


def rewrite_qoperators(draft: DialectDraft) -> None:
    """Replace operators on codes by float ones between DequantizeLinear and QuantizeLinear.

    Those without a counterpart, or whose scales are not constant, stay and are reported.
    """
    rewriting = Rewriting(draft)
    for node in draft.nodes.values():
        form = _form(node)
        problem = "" if form is None else _problem(draft, node, form)
        if form is not None and not problem:
            _rewrite(rewriting, node, form)
            continue
        if problem or (node.domain in _DOMAINS and node.op_type.startswith(_UNKNOWN)):
            why = problem or english("its meaning cannot be said with quantizers and float operators")
            _stays(draft, node, why)
        rewriting.keep(node)
    rewriting.finish()


def _stays(draft: DialectDraft, node: Any, why: str) -> None:
    text = message("graph.stays", op=node.op_type, node=node.name, why=why)
    draft.odd("not_represented", node.name, text)


def _form(node: Any) -> _Form | None:
    if node.domain not in _DOMAINS:
        return None
    if node.op_type == "QLinearConcat":
        return _Form("Concat", tuple(range(2, len(node.input) - 1, 3)), 0)
    return _FORMS.get(node.op_type)


def _problem(draft: DialectDraft, node: Any, form: _Form) -> str:
    """Why a node cannot be written anew; empty when it can."""
    if attribute(node, "channels_last", 0):
        return english("it keeps channels last, which its float version does not know")
    if node.op_type == "QLinearSoftmax":
        old = int(attribute(node, "opset", draft.opset)) < _SOFTMAX_CHANGED
        if old != (draft.opset < _SOFTMAX_CHANGED) and int(attribute(node, "axis", -1)) != -1:
            return english("it follows another opset than the model")
    scales = [at + 1 for at in form.coded] + ([form.output] if input_at(node, form.output) else [])
    if any(input_at(node, at) not in draft.constants for at in scales):
        return english("its scale is computed while the model runs")
    sizes = [draft.constants.size(input_at(node, at)) for at in scales]
    if form.bias is not None and 1 not in sizes[:2]:
        return english("its operands have {first} and {second} scales", first=sizes[0], second=sizes[1])
    return ""


def _rewrite(rewriting: Rewriting, node: Any, form: _Form) -> None:
    draft = rewriting.draft
    codings = [_coding(node, form, at) for at in form.coded]
    inputs = [rewriting.current(input_at(node, at)) for at in form.plain]
    inputs += [
        rewriting.dequantize(input_at(node, at), coding) for at, coding in zip(form.coded, codings, strict=True)
    ]
    if form.bias is not None and input_at(node, form.bias):
        inputs.append(_bias(rewriting, node, form, codings))
    name = plain_name(node.name)
    if form.op_type == "ReduceMean" and draft.opset >= _REDUCE_TAKES_AXES and attribute(node, "axes"):
        axes = np.array(attribute(node, "axes"), np.int64)
        inputs.append(draft.add_constant(axes, f"{name}_axes"))
    without = (*_OWN_ATTRIBUTES, "axes") if len(inputs) > 1 else _OWN_ATTRIBUTES
    if not input_at(node, form.output):
        rewriting.add(form.op_type, inputs, node.output[0], name=name, like=node, without=without)
        return
    values, codes = rewriting.name_values(node.output[0])
    rewriting.add(form.op_type, inputs, values, name=name, like=node, without=without)
    zero_point = input_at(node, form.output + 1)
    element = None if zero_point else _element(draft, [coding.zero_point for coding in codings])
    rewriting.quantize(values, Coding(input_at(node, form.output), zero_point, element=element), codes)


def _coding(node: Any, form: _Form, at: int) -> Coding:
    axis = None
    second = at != form.coded[0]
    if node.op_type == "QLinearConv" and second:
        axis = 0
    elif node.op_type == "QGemm" and second:
        axis = 0 if attribute(node, "transB", 0) else 1
    elif node.op_type == "QLinearMatMul":
        axis = -1 if second else -2
    return Coding(input_at(node, at + 1), input_at(node, at + 2), axis=axis)


def _element(draft: DialectDraft, zero_points: Sequence[str]) -> OnnxType | None:
    """The type of codes when the output has no zero point: that of the inputs."""
    known = (draft.constants.element(name) for name in zero_points if name in draft.constants)
    return next((element for element in known if element is not None), by_dtype("uint8"))


def _bias(rewriting: Rewriting, node: Any, form: _Form, codings: Sequence[Coding]) -> str:
    """The values of an integer bias, whose scale is the product of the others."""
    draft = rewriting.draft
    name = input_at(node, form.bias or 0)
    scales = [draft.constants.value(coding.scale).astype(np.float32) for coding in codings]
    product = np.asarray(scales[0] * scales[1] * np.float32(attribute(node, "alpha", 1.0)))
    scale = draft.add_constant(product.astype(np.float32), f"{plain_name(name)}_scale")
    return rewriting.dequantize(name, Coding(scale, axis=0))


# Integer products with scales that are computed in each run: weights become quantizers, the rest float.

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


def rewrite_integer_products(draft: DialectDraft) -> None:
    """Replace MatMulInteger and ConvInteger, with the scaling behind, by float operators and DequantizeLinear."""
    products = {}
    # What the new nodes take the place of beside the last one; nothing else reads the results of these.
    gone: set[str] = set()
    for node in draft.nodes.values():
        if node.op_type in _PRODUCTS and node.domain in STANDARD_DOMAINS:
            found = _product(draft, node)
            if found is None:
                why = english("the scale of its operands or of its result was not found")
                _stays(draft, node, why)
            else:
                products[found.last.name] = found
                gone |= {node.name, draft.only_reader(node.output[0]).name}
    rewriting = Rewriting(draft)
    for node in draft.nodes.values():
        if node.name in products:
            _rewrite_dynamic(rewriting, products[node.name])
        elif node.domain == MICROSOFT and node.op_type in ("DynamicQuantizeMatMul", "MatMulIntegerToFloat"):
            _rewrite_fused(rewriting, node)
        elif node.name not in gone:
            rewriting.keep(node)
    rewriting.finish()


def _product(draft: DialectDraft, node: Any) -> _Product | None:
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
    zero_point = input_at(node, 3)
    weight = (node.input[1], scale, zero_point)
    return _Product(node, scaling, source.input[0], "" if dynamic else own, weight)


def _other_factor(draft: DialectDraft, product: str, known: str) -> str:
    """The other factor of a product of two scales; empty when the tensor is no such product."""
    node = draft.producer(product)
    if node is None or node.op_type != "Mul" or known not in node.input:
        return ""
    return str(node.input[1] if node.input[0] == known else node.input[0])


def _quotient(draft: DialectDraft, product: str, known: str) -> str:
    """A constant: what a constant product of two scales is without the known one."""
    if product not in draft.constants or known not in draft.constants:
        return ""
    values = draft.constants.value(product).astype(np.float64) / draft.constants.value(known).astype(np.float64)
    return draft.add_constant(values.astype(np.float32), f"{product}_quotient")


def _rewrite_dynamic(rewriting: Rewriting, product: _Product) -> None:
    draft, node = rewriting.draft, product.node
    axis = 0 if node.op_type == "ConvInteger" else -1
    codes, scale, zero_point = product.weight

    inputs = [rewriting.current(product.activation)]
    if product.scale:
        zero = input_at(node, 2)
        inputs = [rewriting.dequantize(node.input[0], Coding(product.scale, zero))]
    else:
        _say_dynamic(draft, node, product.activation)
    inputs.append(rewriting.dequantize(codes, Coding(_flatten_scale(draft, scale), zero_point, axis=axis)))
    op_type, name = _PRODUCTS[node.op_type], plain_name(node.name)
    rewriting.add(op_type, inputs, product.last.output[0], name=name, like=node)


def _flatten_scale(draft: DialectDraft, scale: str) -> str:
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
        why = english("the scale of its operands was not found")
        _stays(draft, node, why)
        rewriting.keep(node)
        return
    if static:
        operand = rewriting.dequantize(first, Coding(own, inputs[4]))
    else:
        operand = rewriting.current(source.input[0] if dynamic else first)
        _say_dynamic(draft, node, operand)
    weight = rewriting.dequantize(second, Coding(scale, zero_point, axis=-1))
    name = plain_name(node.name)
    result = node.output[0] if not bias else draft.free_tensor(f"{node.output[0]}_MatMul")
    rewriting.add("MatMul", [operand, weight], result, name=name, like=node)
    if bias:
        rewriting.add("Add", [result, rewriting.current(bias)], node.output[0], name=f"{name}_Add")


def _say_dynamic(draft: DialectDraft, node: Any, activation: str) -> None:
    draft.odd(
        "dynamic",
        plain_name(node.name),
        message("graph.dynamic_scale", tensor=activation, node=plain_name(node.name)),
    )
