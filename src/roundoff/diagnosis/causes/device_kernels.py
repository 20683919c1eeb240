"""A kernel, or several fused into one, computes something else than it should."""

import numpy as np

from roundoff.diagnosis.devices.kernels.fit import KernelFit, try_kernels
from roundoff.diagnosis.devices.proof import called, pattern, recovered
from roundoff.diagnosis.devices.replay import DeviceReplay
from roundoff.diagnosis.devices.suspects import ONE_KERNEL, DeviceSuspect
from roundoff.diagnosis.loss import decibels_of
from roundoff.diagnosis.registry import Intervention, Signal, cause
from roundoff.diagnosis.result import Measure, Remedy, RemedyChange
from roundoff.messages.message import Argument, Message, joined, message, short_name

# Where it is not known how tensors are coded, codes that end before the values do explain smaller errors; so may
# whatever makes a whole device coarser. In float, rounding of 16 bits explains what is smaller than this.
_MILD_DB, _MILD_FLOAT_DB = 25.0, 50.0
_ALL_RIGHT = 0.9995


@cause("kernel-fault", of="device", order=90)
class KernelFault:
    """A kernel, or several fused into one, computes something else than it should from the inputs it had."""

    def signal(self, case: DeviceReplay, suspect: DeviceSuspect) -> Signal | None:
        """How many values are off by more than arithmetic explains."""
        # What reads it had the right values: no kernel is wrong.
        if suspect.flow == "dump only" or suspect.tensor not in case.tensors:
            return None
        coarse = case.numbers.kind == "integer" or case.coarseness.weights or case.coarseness.relative
        mild = _MILD_DB if coarse else _MILD_FLOAT_DB
        if not case.quantizers and suspect.error.sqnr_db > mild and try_kernels(case, suspect).fit is None:
            return None
        numbers = {"share_off": suspect.error.share_beyond(), "largest_steps": suspect.error.largest}
        return Signal(1.0, numbers)

    def intervene(self, case: DeviceReplay, suspect: DeviceSuspect) -> Intervention | None:
        """Known wrong kernels on the device's own inputs; without one that fits, how its other kernels do."""
        trial = try_kernels(case, suspect)
        if trial.fit is not None:
            return _fitted(case, suspect, trial.fit, trial.tried)
        if suspect.whole:
            return _open(case, suspect)
        own = suspect.error.share_beyond(suspect.floor)
        measure = Measure(
            message("diagnosis.measure_share_off_elsewhere", tensor=called(suspect)),
            "",
            own,
            suspect.others_off,
            higher_is_better=False,
            samples=len(case.indices),
        )
        what = _what(case, suspect)
        summary = message(
            f"diagnosis.kernel_fault_{'step' if case.quantizers else 'arithmetic'}",
            what=what,
            pattern=pattern(suspect.pairs),
        )
        if trial.tried:
            summary = joined([summary, message("diagnosis.kernel_fault_none_fits", count=trial.tried)])
        return Intervention(
            message("diagnosis.kernel_fault_elsewhere_changed", count=suspect.others),
            (measure,),
            1 - suspect.others_off / max(own, np.finfo(float).tiny),
            summary,
            (RemedyChange("report", nodes=suspect.nodes, tensors=(suspect.tensor,)),),
        )

    def remedy(self, case: DeviceReplay, suspect: DeviceSuspect, proof: Intervention) -> Remedy:
        """Only the vendor can."""
        if suspect.wide and try_kernels(case, suspect).fit is None:
            between: dict[str, Argument] = {"reads": _reads(case, suspect), "tensor": called(suspect)}
            return Remedy(message("diagnosis.kernel_fault_remedy_wide", **between), "outside", proof.changes)
        return Remedy(message("diagnosis.kernel_fault_remedy"), "outside", proof.changes)


def _fitted(case: DeviceReplay, suspect: DeviceSuspect, fit: KernelFit, tried: int) -> Intervention:
    """A wrong kernel that gives what the device wrote."""
    what = called(suspect)
    measure = Measure(
        message("diagnosis.measure_wrong_kernel", tensor=what),
        "dB",
        fit.right_db,
        fit.sqnr_db,
        samples=fit.samples,
    )
    # Where no value by itself is off by too much, the share of those that are within tolerance tells nothing.
    told: dict[str, Argument] = {"tensor": what, "way": fit.text}
    summary = (
        message("diagnosis.kernel_fault_fitted", **told, share=fit.share, right=fit.right_share)
        if fit.right_share < _ALL_RIGHT
        else message(
            "diagnosis.kernel_fault_fitted_faint",
            **told,
            db=decibels_of(fit.sqnr_db),
            right=decibels_of(fit.right_db),
        )
    )
    # With a single sample there is no other one that the way could have been chosen on.
    alone = "_alone" if len(suspect.pairs) == 1 else ""
    changed: Message = message(f"diagnosis.kernel_fault_fitted_changed{alone}", count=tried)
    if fit.next_db is not None:
        changed = joined([changed, message("diagnosis.kernel_fault_next", db=fit.next_db)])
    nodes = (fit.node,) if fit.node else suspect.nodes
    change = RemedyChange("report", nodes=nodes, tensors=(suspect.tensor,), value=str(fit.text))
    return Intervention(changed, (measure,), recovered(suspect, fit.explained), summary, (change,))


def _open(case: DeviceReplay, suspect: DeviceSuspect) -> Intervention:
    """The whole network at once, and nothing of the device that is right: nothing is proven by that."""
    measure = Measure(
        message("diagnosis.measure_device", tensor=called(suspect)),
        "dB",
        suspect.error.sqnr_db,
        suspect.error.sqnr_db,
        samples=len(suspect.pairs),
    )
    return Intervention(
        message("diagnosis.kernel_fault_cannot_tell_changed"),
        (measure,),
        0.0,
        message(
            f"diagnosis.kernel_fault_cannot_tell{'_node' if case.inputs else ''}",
            tensor=called(suspect),
            count=len(suspect.nodes),
        ),
    )


def _reads(case: DeviceReplay, suspect: DeviceSuspect) -> Argument:
    reads = case.spans[suspect.tensor].reads
    return tuple(f"'{short_name(name)}'" for name in reads[:2]) or message("diagnosis.kernel_fault_inputs")


def _what(case: DeviceReplay, suspect: DeviceSuspect) -> Argument:
    """What is computed: the operations, or where they are when they are many."""
    if suspect.wide:
        between: dict[str, Argument] = {"reads": _reads(case, suspect), "tensor": called(suspect)}
        return message("diagnosis.kernel_fault_one_of", count=len(suspect.nodes), **between)
    kinds = {node.name: node.op_type for node in case.model.proto.graph.node}
    return " + ".join(dict.fromkeys(kinds[name] for name in reversed(suspect.nodes[:ONE_KERNEL])))
