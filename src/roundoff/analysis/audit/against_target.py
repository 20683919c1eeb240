"""Whether a model that somebody else made is quantized where, and how, a target would do it."""

from collections import defaultdict
from collections.abc import Iterator
from typing import Any

import numpy as np

from roundoff.analysis.audit.effective import EffectiveView
from roundoff.core.audit import AuditFinding
from roundoff.core.quant_plan import FLOAT, PlannedQuantizer, QuantPlan
from roundoff.core.quantizer import Quantizer, QuantParams
from roundoff.graph.quantized_model import QuantizedModel

__all__ = ["compare_edges"]

Findings = dict[str, list[AuditFinding]]


def compare_edges(plan: QuantPlan, view: EffectiveView) -> Findings:
    """What differs between a plan and a model at each input of each node, and at the outputs of the network.

    Names of quantizers and their number do not matter, nor do scales; only what reaches a node.
    """
    findings: Findings = defaultdict(list)
    model = view.model.float_model
    planned = EffectiveView(QuantizedModel(model, tuple(map(_without_numbers, plan.quantizers))))
    who = f"target {plan.target}"
    for node in view.nodes:
        for at, name in enumerate(node.input):
            wanted, found = planned.seen_at(node, at), view.seen_at(node, at)
            if wanted is not None or found is not None:
                findings[node.name] += _differences(wanted, found, f"input {at} ({name})", who)
        for name in node.output:
            wanted, found = _leaving(planned, name), _leaving(view, name)
            if wanted is not None or found is not None:
                findings[node.name] += _differences(wanted, found, f"output {name}", who)
    return {node: found for node, found in findings.items() if found}


def _without_numbers(planned: PlannedQuantizer) -> Quantizer:
    """A planned quantizer with numbers that mean nothing."""
    shape = () if planned.spec.axis is None else (1,)
    return Quantizer(
        name=planned.name,
        tensor=planned.tensor,
        kind=planned.kind,
        spec=planned.spec,
        params=QuantParams(np.ones(shape, np.float32), np.zeros(shape, np.int64)),
        consumers=planned.consumers,
        output=planned.output,
        after=planned.after,
    )


def _leaving(view: EffectiveView, tensor: str) -> Quantizer | None:
    return next((quantizer for quantizer in view.of_tensor(tensor) if quantizer.output), None)


def _differences(
    wanted: Quantizer | None, found: Quantizer | None, place: str, who: str
) -> Iterator[AuditFinding]:
    if wanted is None or found is None or wanted.spec.dtype != found.spec.dtype:
        asked, got = (FLOAT if each is None else each.spec.dtype for each in (wanted, found))
        yield AuditFinding("dtype", "silent", f"{place} is {got}; {who} makes it {asked}")
        return
    if wanted.spec.axis != _axis(found):
        text = f"{place} is {_slices(_axis(found))}; {who} makes it {_slices(wanted.spec.axis)}"
        yield AuditFinding("granularity", "silent", text)
    if wanted.spec.symmetric and not found.spec.symmetric:
        yield AuditFinding("symmetry", "silent", f"{place} has a zero point of its own; {who} makes it symmetric")


def _axis(quantizer: Quantizer) -> Any:
    return quantizer.spec.axis if quantizer.params.scale.ndim else None


def _slices(axis: int | None) -> str:
    return "per tensor" if axis is None else f"per channel (axis {axis})"
