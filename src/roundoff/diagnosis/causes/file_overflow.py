"""What exact integers do otherwise than fake quantization: sums that do not fit their register."""

from dataclasses import dataclass, replace

from roundoff.core.target import Arithmetic
from roundoff.diagnosis.checks import FileCase, FileSuspect
from roundoff.diagnosis.loss import Loss, LossMeter
from roundoff.diagnosis.registry import Intervention, Signal, cause
from roundoff.diagnosis.result import Remedy, RemedyChange
from roundoff.diagnosis.subject import Case, loss_measures
from roundoff.messages.message import message
from roundoff.run.integer.machine import IntegerRunner
from roundoff.run.integer.results import AccumulatorOverflow

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


@dataclass(frozen=True, slots=True, eq=False)
class _Narrow:
    """The network in integers with the accumulator of the hardware.

    Attributes:
        loss: What it loses.
        overflows: Sums that did not fit.
        worst: The worst of them.
        share: The part of its sums that did not.
    """

    loss: Loss
    overflows: tuple[AccumulatorOverflow, ...]
    worst: AccumulatorOverflow
    share: float


@cause("overflow", of="file", order=5)
class SumOverflow:
    """Sums of products do not fit the register of the hardware: they wrap around or saturate."""

    def signal(self, case: FileCase, suspect: FileSuspect) -> Signal | None:
        """How far sums are beyond their register, in exact integers."""
        narrow = _narrow(case) if suspect.nodes else None
        if narrow is None:
            return None
        numbers = {"worst_ratio": narrow.worst.worst_ratio, "share": narrow.share}
        return Signal(1.0, {**numbers, "nodes_that_may": float(len(suspect.nodes))})

    def intervene(self, case: FileCase, suspect: FileSuspect) -> Intervention | None:
        """The same integers with sums of 64 bits."""
        del suspect
        narrow = _narrow(case)
        if narrow is None:
            return None
        arithmetic, wider = accumulators(case.case.facts.arithmetic)
        wide, _ = _run(case.case, wider)
        worst = narrow.worst
        nodes = tuple(dict.fromkeys((worst.node, *(each.node for each in narrow.overflows))))
        return Intervention(
            message("diagnosis.overflow_sums_changed", bits=_WIDE_BITS),
            loss_measures(narrow.loss, wide),
            1.0 if narrow.loss.excess_db(wide) >= _WORSE_DB else 0.0,
            message(
                f"diagnosis.overflow_sums_{arithmetic.overflow}",
                node=worst.node,
                times=worst.worst_ratio,
                bits=arithmetic.accumulator_bits,
                share=narrow.share,
            ),
            (RemedyChange("float", nodes=nodes),),
            nodes=nodes,
        )

    def remedy(self, case: FileCase, suspect: FileSuspect, proof: Intervention) -> Remedy:
        """Smaller sums, or none of integers."""
        del case, suspect
        return Remedy(message("diagnosis.overflow_sums_remedy", node=proof.nodes[0]), "float", proof.changes)


def _narrow(case: FileCase) -> _Narrow | None:
    """What the hardware makes of it, run once; None where every sum fits."""
    if "narrow" not in case.known:
        loss, overflows = _run(case.case, accumulators(case.case.facts.arithmetic)[0])
        worst = max(overflows, key=lambda each: each.worst_ratio, default=None)
        case.known["narrow"] = (
            None if worst is None else _Narrow(loss, tuple(overflows), worst, worst.count / max(1, worst.elements))
        )
    found: _Narrow | None = case.known["narrow"]
    return found


def _run(case: Case, arithmetic: Arithmetic) -> tuple[Loss, list[AccumulatorOverflow]]:
    """The loss in integers, and where sums did not fit."""
    runner = case.runner
    integers = IntegerRunner(runner.model, case.quantizers(), arithmetic)
    meter = LossMeter(runner.parts)
    names = list(dict.fromkeys(part.output for part in runner.parts))
    for place in runner.few()[:_SAMPLES]:
        sample, feed = runner.feeds()[place]
        found = integers.run(feed, names, sample=sample).values
        meter.add(runner.float_outputs()[place], {name: found[name] for name in names})
    return meter.loss(), [each for each in integers.report.overflows if each.kind == "accumulator"]
