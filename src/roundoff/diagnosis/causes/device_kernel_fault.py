"""A kernel, or several fused into one, computes something else than it should."""

import numpy as np

from roundoff.core.target import Arithmetic
from roundoff.diagnosis.devices.proof import called, pattern
from roundoff.diagnosis.devices.replay import DeviceReplay
from roundoff.diagnosis.devices.suspects import DeviceSuspect, LocalError
from roundoff.diagnosis.registry import Intervention, Signal, cause
from roundoff.diagnosis.result import Measure, Remedy, RemedyChange
from roundoff.messages.message import Argument, message
from roundoff.messages.sanitize import short_name

__all__ = ["KernelFault"]

# Another right way to compute the same: what it differs by, any right kernel may.
_CONTROL = Arithmetic(rounding="half_away", requantization="fixed_point", accumulator_bits=64)

# More nodes than one kernel computes: an activation in pieces has about as many.
_FUSED = 7
# Where it is not known how tensors are coded, codes that end before the values do explain smaller errors.
_MILD_DB = 25.0


@cause("kernel-fault", of="device", order=90)
class KernelFault:
    """A kernel, or several fused into one, computes something else than it should from the inputs it had."""

    def signal(self, case: DeviceReplay, suspect: DeviceSuspect) -> Signal | None:
        """How many values are off by more than arithmetic explains."""
        unsure = not case.quantizers and case.numbers.kind == "integer"
        # What reads it had the right values: no kernel is wrong.
        if suspect.flow == "dump only":
            return None
        if suspect.tensor not in case.tensors or (unsure and suspect.error.sqnr_db > _MILD_DB):
            return None
        numbers = {"share_off": suspect.error.share_beyond(), "largest_steps": suspect.error.largest}
        return Signal(1.0, numbers)

    def intervene(self, case: DeviceReplay, suspect: DeviceSuspect) -> Intervention | None:
        """Another implementation on the same inputs."""
        control = case.golden.with_arithmetic(_CONTROL)
        other = LocalError()
        for sample, pair in zip(suspect.places, suspect.pairs, strict=True):
            other.add(pair.exact, control.compute(suspect.tensor, case.view(sample)), pair.expected)
        own = suspect.error
        measure = Measure(
            message("diagnosis.measure_share_off", tensor=called(suspect)),
            "",
            own.share_beyond(),
            other.share_beyond(),
            higher_is_better=False,
            samples=len(suspect.pairs),
        )
        wrong = max(own.share_beyond(), np.finfo(float).tiny)
        what = _what(case, suspect)
        summary = f"diagnosis.kernel_fault_{'step' if case.quantizers else 'arithmetic'}"
        return Intervention(
            message("diagnosis.kernel_fault_changed", what=what),
            (measure,),
            1 - other.share_beyond() / wrong,
            message(summary, what=what, pattern=pattern(suspect.pairs)),
            (RemedyChange("report", nodes=suspect.nodes, tensors=(suspect.tensor,)),),
        )

    def remedy(self, case: DeviceReplay, suspect: DeviceSuspect, proof: Intervention) -> Remedy:
        """Only the vendor can."""
        if _is_wide(case, suspect):
            between: dict[str, Argument] = {"reads": _reads(case, suspect), "tensor": called(suspect)}
            return Remedy(message("diagnosis.kernel_fault_remedy_wide", **between), "outside", proof.changes)
        return Remedy(message("diagnosis.kernel_fault_remedy"), "outside", proof.changes)


def _is_wide(case: DeviceReplay, suspect: DeviceSuspect) -> bool:
    """Whether so few tensors were dumped that it cannot be told which node it is."""
    return len(case.spans[suspect.tensor].nodes) > _FUSED


def _reads(case: DeviceReplay, suspect: DeviceSuspect) -> Argument:
    reads = case.spans[suspect.tensor].reads
    return tuple(f"'{short_name(name)}'" for name in reads[:2]) or message("diagnosis.kernel_fault_inputs")


def _what(case: DeviceReplay, suspect: DeviceSuspect) -> Argument:
    """What is computed: the operations, or where they are when they are many."""
    if _is_wide(case, suspect):
        between: dict[str, Argument] = {"reads": _reads(case, suspect), "tensor": called(suspect)}
        return message("diagnosis.kernel_fault_one_of", count=len(suspect.nodes), **between)
    kinds = {node.name: node.op_type for node in case.model.proto.graph.node}
    return " + ".join(dict.fromkeys(kinds[name] for name in reversed(suspect.nodes[:_FUSED])))
