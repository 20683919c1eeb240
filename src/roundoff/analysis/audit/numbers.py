"""Scales, zero points and integers of a quantized model that cannot be right, or waste what there is."""

from collections import defaultdict
from collections.abc import Iterator

import numpy as np

from roundoff.core.audit import AuditFinding
from roundoff.core.quantization import quantize
from roundoff.core.quantizer import Quantizer
from roundoff.core.tensors import Array
from roundoff.core.wording import counted
from roundoff.graph.load import Model
from roundoff.graph.numbers import TensorShapes, wrong_count
from roundoff.graph.weights import Weights

__all__ = ["check_numbers"]

Findings = dict[str, list[AuditFinding]]

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
    producers = {name: node.name for node in model.proto.graph.node for name in node.output}
    for quantizer in quantizers:
        found = [*_scale(quantizer), *_zero_point(quantizer)]
        if quantizer.spec.axis is not None and (problem := wrong_count(quantizer, shapes.of(quantizer.tensor))):
            found.append(AuditFinding("scale_count", "silent", f"{quantizer.tensor!r} has {problem}"))
        sound = not any(finding.severity == "silent" for finding in found)
        if sound and quantizer.kind != "activation" and quantizer.tensor in weights:
            codes = _codes(quantizer, weights[quantizer.tensor])
            found += _overflow(quantizer, codes) if quantizer.kind == "bias" else _waste(quantizer, codes)
        nodes = dict.fromkeys(edge.node for edge in quantizer.consumers)
        for node in nodes or [producers.get(quantizer.tensor, quantizer.tensor)]:
            findings[node] += found
    return {node: found for node, found in findings.items() if found}


def _scale(quantizer: Quantizer) -> Iterator[AuditFinding]:
    scale = quantizer.params.scale.astype(np.float64)
    broken = ~(np.isfinite(scale) & (scale >= _SMALLEST_NORMAL))
    if np.any(broken):
        worst = scale.ravel()[int(np.argmax(broken.ravel()))]
        where = f" for {counted(int(broken.sum()), 'channel')}" if scale.ndim else ""
        text = f"{quantizer.tensor!r} has the scale {worst:g}{where}, with which nothing can be quantized"
        yield AuditFinding("degenerate_scale", "silent", text)
        return
    if scale.min() < _REACH[0] or scale.max() > _REACH[1]:
        text = f"{quantizer.tensor!r} has scales from {scale.min():.3g} to {scale.max():.3g}"
        yield AuditFinding("extreme_scale", "info", text)
    elif quantizer.kind != "bias" and scale.min() < _UNEVEN * scale.max():
        count = int(np.count_nonzero(scale < _UNEVEN * scale.max()))
        text = f"{counted(count, 'channel')} of {quantizer.tensor!r} with next to no range"
        yield AuditFinding("uneven_scales", "info", text)


def _zero_point(quantizer: Quantizer) -> Iterator[AuditFinding]:
    low, high = int(quantizer.params.zero_point.min()), int(quantizer.params.zero_point.max())
    spec = quantizer.spec
    if low < spec.code_min or high > spec.code_max:
        worst = low if low < spec.code_min else high
        text = f"the zero point {worst} of {quantizer.tensor!r} is not among the codes of {spec.dtype}"
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
        text = f"bias {quantizer.tensor!r} does not fit into 32 bits: its codes are cut off"
        yield AuditFinding("bias_overflow", "silent", text)
    elif largest > _NEAR_MOST:
        text = f"bias {quantizer.tensor!r} needs {largest / 2**31:.0%} of 32 bits, and sums are added to it"
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
        f"{float(share.max()):.0%}"
        if share.size == 1
        else f"at most {float(np.median(share)):.0%} in most channels"
    )
    text = f"weight {quantizer.tensor!r} uses only {best} of the codes of {spec.dtype}"
    yield AuditFinding("unused_codes", "info", text)
