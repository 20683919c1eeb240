"""What is wrong with a quantized model on the face of it, whoever made it and whatever was asked for."""

from collections import Counter, defaultdict
from collections.abc import Collection, Iterator
from dataclasses import replace
from functools import cached_property
from typing import Any

import numpy as np

from roundoff.core.plan import FLOAT
from roundoff.core.quantizers import Consumer, Quantizer, quantize
from roundoff.core.tensors import Array
from roundoff.graph.load import Model
from roundoff.graph.nodes import attribute, producer_names, reads
from roundoff.graph.qdq import TensorShapes, wrong_count
from roundoff.graph.quantized_model import QuantizedModel
from roundoff.graph.units import LAYERS, NodePrecisions
from roundoff.graph.weights import Weights
from roundoff.messages.message import english, listed
from roundoff.messages.numbers import share_text
from roundoff.studies.audit.result import AuditFinding, Part, QuantizedPart, Severity

# What every node of a quantized model really computes with, and with which scales.


class EffectiveView(NodePrecisions[Quantizer]):
    """Looks at a quantized model node by node.

    Attributes:
        model: The model.
    """

    def __init__(self, model: QuantizedModel) -> None:
        super().__init__(model.float_model, model.quantizers)
        self.model = model

    @cached_property
    def _weights(self) -> Weights:
        return Weights(self.float_model)

    def has_one_slice(self, tensor: str, axis: int) -> bool:
        """Whether a constant has a single slice along an axis, so that one scale per slice is one scale."""
        if tensor not in self._weights:
            return False
        shape = self._weights.shape(tensor)
        return -len(shape) <= axis < len(shape) and shape[axis] == 1

    def parts(self, node: Any) -> tuple[QuantizedPart, ...]:
        """How the inputs and outputs of a node are quantized."""
        found: dict[tuple[Part, str], QuantizedPart] = {}
        for at in range(len(node.input)):
            quantizer = self.seen_at(node, at) if at in self.operands(node) else None
            quantizer = quantizer or self._by_edge.get(Consumer(node.name, at))
            if quantizer is not None:
                found.setdefault((quantizer.kind, quantizer.name), _part(quantizer.kind, quantizer))
        for name in node.output:
            for quantizer in self._of_tensor.get(name, []):
                found.setdefault(("output", quantizer.name), _part("output", quantizer))
        return tuple(found.values())

    def producer(self, tensor: str) -> Any:
        """The node that computes a tensor; None for inputs and constants."""
        return self._producers.get(tensor)

    def of_tensor(self, tensor: str) -> list[Quantizer]:
        """The quantizers of a tensor."""
        return self._of_tensor.get(tensor, [])

    def reached(self, start: Collection[str], *, backwards: bool) -> set[str]:
        """The nodes that depend on what some nodes compute; or, backwards, those on which these depend."""
        found: set[str] = set()
        for node in reversed(self.nodes) if backwards else self.nodes:
            others = self._behind(node) if backwards else self._before(node)
            if any(other in start or other in found for other in others):
                found.add(node.name)
        return found

    def _before(self, node: Any) -> list[str]:
        return [self._producers[name].name for name in reads(node) if name in self._producers]

    def _behind(self, node: Any) -> list[str]:
        return [edge.node for name in node.output for edge in self._readers.get(name, ())]


def _part(part: Part, quantizer: Quantizer) -> QuantizedPart:
    scale, zero_point = quantizer.params.scale, quantizer.params.zero_point
    return QuantizedPart(
        part=part,
        tensor=quantizer.tensor,
        dtype=quantizer.spec.dtype,
        axis=quantizer.spec.axis,
        scales=int(scale.size),
        scale_min=float(scale.min()),
        scale_max=float(scale.max()),
        zero_point_min=int(zero_point.min()),
        zero_point_max=int(zero_point.max()),
    )


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
            text = english(
                "left in float between quantized nodes, while {count} of {all} {kind} nodes are quantized",
                count=done[kind],
                all=total[kind],
                kind=kind,
            )
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
        names = listed(english("input {at} ({name})", at=at, name=node.input[at]) for at in floats)
        if live or not set(places) - set(floats) <= weights:
            text = english("{names} in float while its other inputs are quantized", names=names)
            yield node.name, _finding("partial_inputs", "silent", text)
        elif node.name not in dynamic:
            yield (
                node.name,
                _finding("weight_only", "info", english("only its weight is quantized; it computes in float")),
            )


def _in_float(view: EffectiveView, node: Any) -> list[int]:
    """The operands and weights of a node that are not quantized."""
    return [at for at in _places(view, node) if view.seen_at(node, at) is None]


def _places(view: EffectiveView, node: Any) -> list[int]:
    """The inputs at which a node reads values from outside of its unit, and its weights; both sides of a sum.

    Some chips add codes to what a layer computed before it is rounded. Nothing in a file tells that from a missing
    quantizer: who has a plan compares with that.
    """
    operands = view.outer_operands(node)
    if node.op_type == "Add" and any(view.producer(node.input[at]) is not None for at in operands):
        operands = view.operands(node)
    return list(dict.fromkeys([*operands, *view.weight_at(node)]))


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
                text = english(
                    "weight {tensor!r} has one scale per tensor, while {sliced} of {count} {op_type} weights are "
                    "per channel",
                    tensor=quantizer.tensor,
                    sliced=sliced,
                    count=len(group),
                    op_type=op_type,
                )
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
            text = english(
                "bias {tensor!r} has {size} scales, its weight {size2}",
                tensor=bias.tensor,
                size=found.size,
                size2=wanted.size,
            )
            yield node.name, _finding("bias_scale", "silent", text)
            continue
        if not np.all((wanted > 0) & np.isfinite(wanted)):
            continue  # A broken scale, which is a finding of its own.
        apart = float(np.max(np.abs(found / wanted - 1)))
        if apart > _BIAS_TOLERANCE:
            by = share_text(apart)
            text = english(
                "the scale of bias {tensor!r} is off the product of input and weight scale by {by}",
                tensor=bias.tensor,
                by=by,
            )
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
                    text = english(
                        "{tensor!r} is quantized again with {scale} after {scale2}",
                        tensor=tensor,
                        scale=_scale(quantizer),
                        scale2=_scale(first),
                    )
                    yield node, _finding("requantized", "info", text)
            elif quantizer.spec.dtype != first.spec.dtype:
                text = english(
                    "{tensor!r} is {dtype} for some readers and {dtype2} for others",
                    tensor=tensor,
                    dtype=first.spec.dtype,
                    dtype2=quantizer.spec.dtype,
                )
                yield node, _finding("two_types", "info", text)
            elif not _same_numbers(first, quantizer):
                text = english(
                    "{tensor!r} has {scale} for some readers and {scale2} for others",
                    tensor=tensor,
                    scale=_scale(first),
                    scale2=_scale(quantizer),
                )
                yield node, _finding("two_scales", "silent", text)


def _same_numbers(first: Quantizer, second: Quantizer) -> bool:
    return first.params.equals(second.params)


def _scale(quantizer: Quantizer) -> str:
    scale = quantizer.params.scale
    if scale.ndim:
        return english("{size} scales up to {max:.6g}", size=scale.size, max=scale.max())
    return english(
        "scale {scale:.6g} and zero point {zero_point}",
        scale=float(scale),
        zero_point=int(quantizer.params.zero_point),
    )


# Scales, zero points and integers of a quantized model that cannot be right, or waste what there is.

_SMALLEST_NORMAL = float(np.finfo(np.float32).tiny)
_REACH = (1e-10, 1e10)
"""Scales outside of this are legal, but no network has values of that size."""
_UNEVEN = 1e-5
"""A channel whose scale is this small part of the largest holds nothing, or was lost in calibration."""
_INT32_MOST = 2**31 - 1
_NEAR_MOST = 2**30
_WASTED = 0.5


def check_numbers(model: Model, quantizers: tuple[Quantizer, ...]) -> Findings:
    """Findings about scales, zero points, weights and biases, by node.

    Weights are read one at a time.
    """
    findings: Findings = defaultdict(list)
    weights = Weights(model)
    shapes = TensorShapes(model)
    producers = producer_names(model.proto.graph.node)
    for quantizer in quantizers:
        found = [*_scale_numbers(quantizer), *_zero_point(quantizer)]
        if quantizer.spec.axis is not None and (problem := wrong_count(quantizer, shapes.of(quantizer.tensor))):
            text = english("{tensor!r} has {problem}", tensor=quantizer.tensor, problem=problem)
            found.append(AuditFinding("scale_count", "silent", text))
        sound = not any(finding.severity == "silent" for finding in found)
        if sound and quantizer.kind != "activation" and quantizer.tensor in weights:
            codes = _codes(quantizer, weights[quantizer.tensor])
            found += _overflow(quantizer, codes) if quantizer.kind == "bias" else _waste(quantizer, codes)
        nodes = dict.fromkeys(edge.node for edge in quantizer.consumers)
        for node in nodes or [producers.get(quantizer.tensor, quantizer.tensor)]:
            findings[node] += found
    return {node: found for node, found in findings.items() if found}


def _scale_numbers(quantizer: Quantizer) -> Iterator[AuditFinding]:
    scale = quantizer.params.scale.astype(np.float64)
    broken = ~(np.isfinite(scale) & (scale >= _SMALLEST_NORMAL))
    if np.any(broken):
        worst = scale.ravel()[int(np.argmax(broken.ravel()))]
        where = english(" for {count} {count:channel|channels}", count=int(broken.sum())) if scale.ndim else ""
        text = english(
            "{tensor!r} has the scale {worst:g}{where}, with which nothing can be quantized",
            tensor=quantizer.tensor,
            worst=worst,
            where=where,
        )
        yield AuditFinding("degenerate_scale", "silent", text)
        return
    if scale.min() < _REACH[0] or scale.max() > _REACH[1]:
        text = english(
            "{tensor!r} has scales from {min:.3g} to {max:.3g}",
            tensor=quantizer.tensor,
            min=scale.min(),
            max=scale.max(),
        )
        yield AuditFinding("extreme_scale", "info", text)
    elif quantizer.kind != "bias" and scale.min() < _UNEVEN * scale.max():
        count = int(np.count_nonzero(scale < _UNEVEN * scale.max()))
        text = english(
            "{count} {count:channel|channels} of {tensor!r} with next to no range",
            count=count,
            tensor=quantizer.tensor,
        )
        yield AuditFinding("uneven_scales", "info", text)


def _zero_point(quantizer: Quantizer) -> Iterator[AuditFinding]:
    low, high = int(quantizer.params.zero_point.min()), int(quantizer.params.zero_point.max())
    spec = quantizer.spec
    if low < spec.code_min or high > spec.code_max:
        worst = low if low < spec.code_min else high
        text = english(
            "the zero point {worst} of {tensor!r} is not among the codes of {dtype}",
            worst=worst,
            tensor=quantizer.tensor,
            dtype=spec.dtype,
        )
        yield AuditFinding("zero_point_range", "silent", text)


def _codes(quantizer: Quantizer, values: Array) -> Array:
    if quantizer.codes is not None:
        return quantizer.codes
    return quantize(values.astype(np.float32, copy=False), quantizer.params, quantizer.spec)


def _overflow(quantizer: Quantizer, codes: Array) -> Iterator[AuditFinding]:
    if quantizer.spec.bits != 32 or not codes.size:
        return
    largest = int(np.abs(codes.astype(np.int64)).max())
    if largest >= _INT32_MOST:
        text = english("bias {tensor!r} does not fit into 32 bits: its codes are cut off", tensor=quantizer.tensor)
        yield AuditFinding("bias_overflow", "silent", text)
    elif largest > _NEAR_MOST:
        share = share_text(largest / 2**31, 0)
        text = english(
            "bias {tensor!r} needs {share} of 32 bits, and sums are added to it",
            tensor=quantizer.tensor,
            share=share,
        )
        yield AuditFinding("bias_near_overflow", "info", text)


def _waste(quantizer: Quantizer, codes: Array) -> Iterator[AuditFinding]:
    """How much of the codes the slices of a weight use."""
    spec = quantizer.spec
    if codes.size < 2:
        return
    axis = spec.axis if quantizer.params.scale.ndim else None
    others = None if axis is None else tuple(at for at in range(codes.ndim) if at != axis % codes.ndim)
    wide = codes.astype(np.int64)
    # A symmetric weight may be on one side of zero only; what counts then is how far it reaches.
    low, high = wide.min(axis=others), wide.max(axis=others)
    if spec.symmetric:
        middle = 0 if spec.signed else spec.code_max // 2 + 1
        share = np.asarray(np.maximum(high - middle, middle - low) / (spec.code_max - middle))
    else:
        zero = quantizer.params.zero_point
        spread = np.maximum(high, zero) - np.minimum(low, zero) + 1
        share = np.asarray(spread / (spec.code_max - spec.code_min + 1))
    wasteful = int(np.count_nonzero(share < _WASTED))
    if wasteful * 2 <= share.size:
        return
    best = (
        share_text(float(share.max()), 0)
        if share.size == 1
        else english("at most {share} in most channels", share=share_text(float(np.median(share)), 0))
    )
    text = english(
        "weight {tensor!r} uses only {best} of the codes of {dtype}",
        tensor=quantizer.tensor,
        best=best,
        dtype=spec.dtype,
    )
    yield AuditFinding("unused_codes", "info", text)
