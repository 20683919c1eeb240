"""Whether a model that somebody else made is quantized where, and how, a target would do it."""

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from roundoff.analysis.audit.against_plan import is_wide_bias
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
                place = _Place(_noun(wanted, found), f"input {at} ({name})", who)
                differences = _differences(wanted, found, place)
                single = wanted is not None and _is_single(wanted, found, view)
                findings[node.name] += [
                    each for each in differences if not (single and each.kind == "granularity")
                ]
        for name in node.output:
            wanted, found = _leaving(planned, name), _leaving(view, name)
            if wanted is not None or found is not None:
                findings[node.name] += _differences(wanted, found, _Place("output", f"output {name}", who))
    return {node: found for node, found in findings.items() if found}


def _is_single(wanted: Quantizer, found: Quantizer | None, view: EffectiveView) -> bool:
    """Whether one scale and one per slice are the same, because there is a single slice."""
    if found is None or found.params.scale.size != 1:
        return False
    axes = (wanted.spec.axis, found.spec.axis)
    return all(axis is None or view.has_one_slice(found.tensor, axis) for axis in axes)


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


@dataclass(frozen=True, slots=True)
class _Place:
    """An input or output of a node.

    Attributes:
        noun: What it is to the node.
        name: How it is called in sentences.
        who: Who wants it otherwise.
    """

    noun: str
    name: str
    who: str

    def finding(self, kind: str, got: str, asked: str, how: str) -> AuditFinding:
        text = f"{self.name} {got}; {self.who} makes it {asked}"
        return AuditFinding(kind, "silent", text, self.noun, how)


def _noun(wanted: Quantizer | None, found: Quantizer | None) -> str:
    known = wanted or found
    return "input" if known is None or known.kind == "activation" else known.kind


def _differences(wanted: Quantizer | None, found: Quantizer | None, place: _Place) -> Iterator[AuditFinding]:
    if wanted is None and found is not None and is_wide_bias(found):
        # As integer hardware adds it, or as corrections leave it: no precision is lost by it.
        text = f"{place.name} is {found.spec.dtype}; {place.who} makes it float, which adds the same"
        yield AuditFinding("integer_bias", "info", text, place.noun, "in integers instead of float")
        return
    if wanted is None or found is None or wanted.spec.dtype != found.spec.dtype:
        asked, got = (FLOAT if each is None else each.spec.dtype for each in (wanted, found))
        yield place.finding("dtype", f"is {got}", asked, f"{got} instead of {asked}")
        return
    if wanted.spec.axis != _axis(found):
        asked, got = _slices(wanted.spec.axis), _slices(_axis(found))
        short = [words.partition(" (")[0] for words in (got, asked)]
        how = " instead of ".join(short) if short[0] != short[1] else "sliced along another axis"
        yield place.finding("granularity", f"is {got}", asked, how)
    if wanted.spec.symmetric and not found.spec.symmetric:
        yield place.finding("symmetry", "has a zero point of its own", "symmetric", "not symmetric")


def _axis(quantizer: Quantizer) -> Any:
    return quantizer.spec.axis if quantizer.params.scale.ndim else None


def _slices(axis: int | None) -> str:
    return "per tensor" if axis is None else f"per channel (axis {axis})"
