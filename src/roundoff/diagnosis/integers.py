"""What exact integers do otherwise than fake quantization: sums that do not fit their register."""

from collections.abc import Sequence
from dataclasses import replace

from roundoff.core.findings import Change, Finding, Remedy
from roundoff.core.target import Arithmetic
from roundoff.diagnosis.case import Case, loss_measures
from roundoff.diagnosis.loss import Loss, LossMeter
from roundoff.runtime.integer import IntegerRunner, Overflow

__all__ = ["accumulator_finding", "accumulators"]

# Exact integers take a while; a sum that overflows does so in most samples.
_SAMPLES = 4
_WIDE_BITS = 64
# A loss in integers that is higher by so much is not the last bit of rounding.
_WORSE_DB = 3.0


def accumulators(arithmetic: Arithmetic) -> tuple[Arithmetic, Arithmetic]:
    """The arithmetic of a hardware, with sums of 32 bits where that is not known, and the same with wide ones."""
    if arithmetic.accumulator_bits >= _WIDE_BITS:
        arithmetic = replace(arithmetic, accumulator_bits=32, overflow="wrap")
    return arithmetic, replace(arithmetic, accumulator_bits=_WIDE_BITS, overflow="saturate")


def accumulator_finding(case: Case, nodes: Sequence[str]) -> Finding | None:
    """Whether sums of products overflow in this hardware, proven by making the accumulator wide.

    Args:
        case: The network.
        nodes: Nodes whose sums may not fit.

    Returns:
        A finding, with its number still open; None where nothing overflows, or nothing comes of it.

    Raises:
        BadInput: A quantizer has no integer version.
    """
    arithmetic, wider = accumulators(case.facts.arithmetic)
    bits = arithmetic.accumulator_bits
    narrow, overflows = _run(case, arithmetic)
    if not overflows:
        return None
    wide, _ = _run(case, wider)
    worst = max(overflows, key=lambda each: each.worst_ratio)
    if narrow.excess_db(wide) < _WORSE_DB:
        return None
    named = tuple(dict.fromkeys((worst.node, *(each.node for each in overflows))))
    share = worst.count / max(1, worst.elements)
    return Finding(
        number=0,
        cause="overflow",
        nodes=named,
        tensors=(),
        summary=f"sums of {worst.node!r} reach {worst.worst_ratio:.3g} times what {bits} bits hold, and "
        f"{arithmetic.overflow} ({share:.1%} of them)",
        evidence={"worst_ratio": worst.worst_ratio, "share": share, "nodes_that_may": float(len(nodes))},
        intervention=f"the same integers with sums of {_WIDE_BITS} bits",
        measures=loss_measures(narrow, wide),
        share=1.0,
        remedy=Remedy(
            f"narrower weights or inputs at {worst.node!r}, or float for it",
            "float",
            (Change("float", nodes=named),),
        ),
        proven=True,
    )


def _run(case: Case, arithmetic: Arithmetic) -> tuple[Loss, list[Overflow]]:
    """The loss in integers, and where sums did not fit."""
    lab = case.lab
    runner = IntegerRunner(lab.model, case.quantizers(), arithmetic)
    meter = LossMeter(lab.parts)
    names = list(dict.fromkeys(part.output for part in lab.parts))
    for place in lab.few()[:_SAMPLES]:
        sample, feed = lab.feeds()[place]
        found = runner.run(feed, names, sample=sample).values
        meter.add(lab.float_outputs()[place], {name: found[name] for name in names})
    return meter.loss(), [each for each in runner.report.overflows if each.kind == "accumulator"]
