"""What is wrong with a quantized model on the face of it, whoever made it and whatever was asked for."""

from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np

from roundoff.analysis.audit.effective import EffectiveView
from roundoff.core.audit import AuditFinding, Severity
from roundoff.core.quant_plan import FLOAT
from roundoff.core.quantizer import Quantizer
from roundoff.graph.joined import LAYERS
from roundoff.graph.reading.constants import attribute

__all__ = ["check_structure"]

Findings = dict[str, list[AuditFinding]]

# Operations that compute: left in float between quantized ones, each costs two conversions.
_COMPUTES = frozenset({
    *LAYERS, "Add", "Sub", "Mul", "Concat", "AveragePool", "GlobalAveragePool", "Sigmoid", "HardSwish", "Relu",
    "LeakyRelu", "PRelu", "Clip", "HardSigmoid", "Softmax", "Gelu", "Resize", "MaxPool",
})  # fmt: skip
_SEVERAL_OPERANDS = frozenset({"Add", "Sub", "Mul", "Concat", "MatMul", "Sum", "Max", "Min"})
_MOST_ARE = 0.5
_BIAS_TOLERANCE = 1e-4
"""float32 products of two scales, in whatever order and through float16 factors, agree better than this."""


def check_structure(view: EffectiveView) -> Findings:
    """Findings about how quantizers are placed, by node."""
    findings: Findings = defaultdict(list)
    for check in (_islands, _partial, _granularity, _bias_scales, _two_scales):
        for node, finding in check(view):
            findings[node].append(finding)
    return dict(findings)


_Found = Iterator[tuple[str, AuditFinding]]


def _finding(kind: str, severity: Severity, text: str) -> AuditFinding:
    return AuditFinding(kind, severity, text)


def _is_quantized(view: EffectiveView, node: Any) -> bool:
    """Whether a node computes with integers, as far as its inputs tell; a float weight is a finding of its own."""
    precision = view.effective(node)
    return replace(precision, weight="").arithmetic == "integer"


def _islands(view: EffectiveView) -> _Found:
    """Nodes in float, with quantized ones before and behind, while others of their kind are quantized."""
    quantized = {node.name for node in view.nodes if _is_quantized(view, node)}
    total = Counter(node.op_type for node in view.nodes)
    # Those that are computed with others do not tell whether their kind is quantized.
    own = (node for node in view.nodes if node.name in quantized and view.outer_operands(node))
    done = Counter(node.op_type for node in own)
    behind = view.reached(quantized, backwards=False)
    before = view.reached(quantized, backwards=True)
    for node in view.nodes:
        kind = node.op_type
        if node.name in quantized or kind not in _COMPUTES or not done[kind]:
            continue
        if node.name in behind and node.name in before:
            others = f"{done[kind]} of {total[kind]} {kind} nodes are quantized"
            text = f"left in float between quantized nodes, while {others}"
            yield node.name, _finding("float_island", "silent", text)


def _partial(view: EffectiveView) -> _Found:
    """Nodes of which some inputs are quantized and others are not."""
    live = any(quantizer.kind == "activation" for quantizer in view.model.quantizers)
    dynamic = {oddity.node for oddity in view.model.oddities if oddity.kind == "dynamic"}
    whole = {node.op_type for node in view.nodes if not _in_float(view, node)}
    for node in view.nodes:
        if node.op_type not in LAYERS and node.op_type not in _SEVERAL_OPERANDS:
            continue
        places = _places(view, node)
        floats = _in_float(view, node)
        if not floats or len(floats) == len(places):
            continue
        # A node that a tool never quantizes may read what is quantized for the sake of others.
        meant = node.op_type in LAYERS or node.op_type in whole or view.effective(node).output != FLOAT
        if not meant:
            continue
        weights = set(view.weight_at(node))
        names = ", ".join(f"input {at} ({node.input[at]})" for at in floats)
        if live or not set(places) - set(floats) <= weights:
            text = f"{names} in float while its other inputs are quantized"
            yield node.name, _finding("partial_inputs", "silent", text)
        elif node.name not in dynamic:
            yield node.name, _finding("weight_only", "info", "only its weight is quantized; it computes in float")


def _in_float(view: EffectiveView, node: Any) -> list[int]:
    """The operands and weights of a node that are not quantized."""
    return [at for at in _places(view, node) if view.seen_at(node, at) is None]


def _places(view: EffectiveView, node: Any) -> list[int]:
    """The inputs at which a node reads values from outside of its unit, and its weights."""
    return list(dict.fromkeys([*view.outer_operands(node), *view.weight_at(node)]))


def _granularity(view: EffectiveView) -> _Found:
    """Weights with one scale where most of their kind have one per channel."""
    weights: dict[str, list[tuple[str, Quantizer]]] = defaultdict(list)
    for node in view.nodes:
        for at in view.weight_at(node) if node.op_type in LAYERS else ():
            quantizer = view.seen_at(node, at)
            if quantizer is not None:
                weights[node.op_type].append((node.name, quantizer))
    for op_type, group in weights.items():
        axes = Counter(quantizer.spec.axis for _, quantizer in group if quantizer.params.scale.ndim)
        sliced = axes.total()
        if sliced <= _MOST_ARE * len(group):
            continue
        axis = axes.most_common(1)[0][0]
        for node, quantizer in group:
            single = axis is not None and view.has_one_slice(quantizer.tensor, axis)
            if quantizer.params.scale.ndim == 0 and not single:
                others = f"{sliced} of {len(group)} {op_type} weights are per channel"
                text = f"weight {quantizer.tensor!r} has one scale per tensor, while {others}"
                yield node, _finding("granularity", "silent", text)


def _bias_scales(view: EffectiveView) -> _Found:
    """Integer biases whose scale is not the product of the scales of what they are added to."""
    for node in view.nodes:
        if node.op_type not in LAYERS or len(node.input) < 3:
            continue
        source, weight, bias = (view.seen_at(node, at) for at in range(3))
        if source is None or weight is None or bias is None or bias.spec.bits <= 16:
            continue
        factor = float(attribute(node, "alpha", 1.0)) / (float(attribute(node, "beta", 1.0)) or 1.0)
        wanted = source.params.scale.astype(np.float64).max() * weight.params.scale.astype(np.float64) * factor
        found = bias.params.scale.astype(np.float64)
        if found.size not in (1, wanted.size) and wanted.size != 1:
            text = f"bias {bias.tensor!r} has {found.size} scales, its weight {wanted.size}"
            yield node.name, _finding("bias_scale", "silent", text)
            continue
        if not np.all((wanted > 0) & np.isfinite(wanted)):
            continue  # A broken scale, which is a finding of its own.
        apart = float(np.max(np.abs(found / wanted - 1)))
        if apart > _BIAS_TOLERANCE:
            text = f"the scale of bias {bias.tensor!r} is off the product of input and weight scale by {apart:.2%}"
            yield node.name, _finding("bias_scale", "silent", text)


def _two_scales(view: EffectiveView) -> _Found:
    """One tensor that is quantized in two ways."""
    for tensor in dict.fromkeys(quantizer.tensor for quantizer in view.model.quantizers):
        own = [quantizer for quantizer in view.of_tensor(tensor) if quantizer.kind == "activation"]
        producer = view.producer(tensor)
        node = tensor if producer is None else producer.name
        for quantizer in own[1:]:
            first = own[0]
            if quantizer.after:
                if not _same_numbers(first, quantizer):
                    text = f"{tensor!r} is quantized again with {_scale(quantizer)} after {_scale(first)}"
                    yield node, _finding("requantized", "info", text)
            elif quantizer.spec.dtype != first.spec.dtype:
                text = f"{tensor!r} is {first.spec.dtype} for some readers and {quantizer.spec.dtype} for others"
                yield node, _finding("two_types", "info", text)
            elif not _same_numbers(first, quantizer):
                text = f"{tensor!r} has {_scale(first)} for some readers and {_scale(quantizer)} for others"
                yield node, _finding("two_scales", "silent", text)


def _same_numbers(first: Quantizer, second: Quantizer) -> bool:
    same_scale = np.array_equal(first.params.scale, second.params.scale)
    return same_scale and np.array_equal(first.params.zero_point, second.params.zero_point)


def _scale(quantizer: Quantizer) -> str:
    scale = quantizer.params.scale
    if scale.ndim:
        return f"{scale.size} scales up to {scale.max():.6g}"
    return f"scale {float(scale):.6g} and zero point {int(quantizer.params.zero_point)}"
