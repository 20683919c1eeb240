"""Operators that take and give codes (QLinearConv, QGemm, QLinearAdd ...), written anew as float ones."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from roundoff.graph.element_types import ElementType, by_dtype
from roundoff.graph.reading.constants import attribute
from roundoff.graph.reading.draft import Draft
from roundoff.graph.reading.points import MICROSOFT
from roundoff.graph.reading.rewriting import Coding, Rewriting, plain_name

__all__ = ["rewrite_qoperators"]

_DOMAINS = ("", "ai.onnx", MICROSOFT)


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


def rewrite_qoperators(draft: Draft) -> None:
    """Replace operators on codes by float ones between DequantizeLinear and QuantizeLinear.

    Those without a counterpart, or whose scales are not constant, stay and are reported.
    """
    rewriting = Rewriting(draft)
    for node in draft.nodes:
        form = _form(node)
        problem = "" if form is None else _problem(draft, node, form)
        if form is not None and not problem:
            _rewrite(rewriting, node, form)
            continue
        if problem or (node.domain in _DOMAINS and node.op_type.startswith(_UNKNOWN)):
            why = problem or "its meaning cannot be said with quantizers and float operators"
            draft.odd("not_represented", node.name, f"{node.op_type} {node.name!r} stays as it is: {why}")
        rewriting.keep(node)
    rewriting.finish()


def _form(node: Any) -> _Form | None:
    if node.domain not in _DOMAINS:
        return None
    if node.op_type == "QLinearConcat":
        return _Form("Concat", tuple(range(2, len(node.input) - 1, 3)), 0)
    return _FORMS.get(node.op_type)


def _problem(draft: Draft, node: Any, form: _Form) -> str:
    """Why a node cannot be written anew; empty when it can."""
    if attribute(node, "channels_last", 0):
        return "it keeps channels last, which its float version does not know"
    if node.op_type == "QLinearSoftmax":
        old = int(attribute(node, "opset", draft.opset)) < _SOFTMAX_CHANGED
        if old != (draft.opset < _SOFTMAX_CHANGED) and int(attribute(node, "axis", -1)) != -1:
            return "it follows another opset than the model"
    scales = [at + 1 for at in form.coded] + ([form.output] if _input(node, form.output) else [])
    if any(_input(node, at) not in draft.constants for at in scales):
        return "its scale is computed while the model runs"
    sizes = [draft.constants.size(_input(node, at)) for at in scales]
    if form.bias is not None and 1 not in sizes[:2]:
        return f"its operands have {sizes[0]} and {sizes[1]} scales"
    return ""


def _input(node: Any, at: int) -> str:
    return str(node.input[at]) if at < len(node.input) else ""


def _rewrite(rewriting: Rewriting, node: Any, form: _Form) -> None:
    draft = rewriting.draft
    codings = [_coding(node, form, at) for at in form.coded]
    inputs = [rewriting.current(_input(node, at)) for at in form.plain]
    inputs += [
        rewriting.dequantize(_input(node, at), coding) for at, coding in zip(form.coded, codings, strict=True)
    ]
    if form.bias is not None and _input(node, form.bias):
        inputs.append(_bias(rewriting, node, form, codings))
    name = plain_name(node.name)
    if form.op_type == "ReduceMean" and draft.opset >= _REDUCE_TAKES_AXES and attribute(node, "axes"):
        axes = np.array(attribute(node, "axes"), np.int64)
        inputs.append(draft.add_constant(axes, f"{name}_axes"))
    without = (*_OWN_ATTRIBUTES, "axes") if len(inputs) > 1 else _OWN_ATTRIBUTES
    if not _input(node, form.output):
        rewriting.add(form.op_type, inputs, node.output[0], name=name, like=node, without=without)
        return
    values, codes = rewriting.name_values(node.output[0])
    rewriting.add(form.op_type, inputs, values, name=name, like=node, without=without)
    zero_point = _input(node, form.output + 1)
    element = None if zero_point else _element(draft, [coding.zero_point for coding in codings])
    rewriting.quantize(values, Coding(_input(node, form.output), zero_point, element=element), codes)


def _coding(node: Any, form: _Form, at: int) -> Coding:
    axis = None
    second = at != form.coded[0]
    if node.op_type == "QLinearConv" and second:
        axis = 0
    elif node.op_type == "QGemm" and second:
        axis = 0 if attribute(node, "transB", 0) else 1
    elif node.op_type == "QLinearMatMul":
        axis = -1 if second else -2
    return Coding(_input(node, at + 1), _input(node, at + 2), axis=axis)


def _element(draft: Draft, zero_points: Sequence[str]) -> ElementType | None:
    """The type of codes when the output has no zero point: that of the inputs."""
    known = (draft.constants.element(name) for name in zero_points if name in draft.constants)
    return next((element for element in known if element is not None), by_dtype("uint8"))


def _bias(rewriting: Rewriting, node: Any, form: _Form, codings: Sequence[Coding]) -> str:
    """The values of an integer bias, whose scale is the product of the others."""
    draft = rewriting.draft
    name = _input(node, form.bias or 0)
    scales = [draft.constants.value(coding.scale).astype(np.float32) for coding in codings]
    product = np.asarray(scales[0] * scales[1] * np.float32(attribute(node, "alpha", 1.0)))
    scale = draft.add_constant(product.astype(np.float32), f"{plain_name(name)}_scale")
    return rewriting.dequantize(name, Coding(scale, axis=0))
