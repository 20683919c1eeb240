"""NaN or infinite values out of finite ones."""

import numpy as np

from roundoff.diagnosis.devices.proof import called, where
from roundoff.diagnosis.devices.replay import DeviceReplay
from roundoff.diagnosis.devices.suspects import DeviceSuspect
from roundoff.diagnosis.registry import Intervention, Signal, cause
from roundoff.diagnosis.result import Change, Measure, Remedy

__all__ = ["NotFiniteValues"]


@cause("not-finite", side="device", order=35)
class NotFiniteValues:
    """A node gives NaN or infinite values although all that it reads is finite."""

    def signal(self, case: DeviceReplay, suspect: DeviceSuspect) -> Signal | None:
        """How many values are NaN or infinite where they should be numbers."""
        if suspect.tensor not in case.tensors or not suspect.error.nonfinite:
            return None
        share = suspect.error.nonfinite / max(1, suspect.error.count)
        return Signal(1.0, {"share_not_finite": share})

    def intervene(self, case: DeviceReplay, suspect: DeviceSuspect) -> Intervention | None:
        """The reference on the device's own inputs, which are finite."""
        reads = case.spans[suspect.tensor].reads
        many = size = left = nans = 0
        # All samples: the same numbers as those of a comparison.
        for sample in case.indices:
            view = case.view(sample)
            if not all(np.isfinite(view[name]).all() for name in reads):
                return None
            pair = case.pair(suspect.tensor, sample, view)
            wrong = ~np.isfinite(pair.found)
            many, size = many + int(wrong.sum()), size + wrong.size
            left += int((~np.isfinite(pair.exact))[wrong].sum())
            nans += int(np.isnan(pair.found).sum())
        if not many:
            return None
        what = "NaN" if nans == many else "infinite" if not nans else "NaN or infinite"
        measure = Measure(
            f"share of {called(suspect)} that is not finite",
            "",
            many / size,
            left / size,
            higher_is_better=False,
            samples=len(case.indices),
        )
        why = where(suspect) if suspect.flow == "dump only" else "although all that it reads is finite"
        return Intervention(
            "the reference was fed what the device fed it, which is finite",
            (measure,),
            1 - left / many,
            f"{many} of {size} values of {called(suspect)} are {what}, {why}",
            (Change("report", nodes=suspect.nodes, tensors=(suspect.tensor,)),),
        )

    def remedy(self, case: DeviceReplay, suspect: DeviceSuspect, proof: Intervention) -> Remedy:
        """Only the vendor can, or other bits."""
        if suspect.flow == "dump only":
            title = f"dump {called(suspect)} again, and check how it is written; the device itself is right"
            return Remedy(title, "outside", proof.changes)
        title = "run this node in a wider precision or elsewhere, and report it to the vendor with a reproducer"
        return Remedy(title, "outside", proof.changes)
