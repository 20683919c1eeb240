"""NaN or infinite values out of finite ones."""

import numpy as np

from roundoff.diagnosis.devices.proof import called, only_dumped, where
from roundoff.diagnosis.devices.replay import DeviceReplay
from roundoff.diagnosis.devices.suspects import DeviceSuspect
from roundoff.diagnosis.registry import Intervention, Signal, cause
from roundoff.diagnosis.result import Measure, Remedy, RemedyChange
from roundoff.messages.message import message


@cause("not-finite", of="device", order=35)
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
        kind = "nan" if nans == many else "infinite" if not nans else "any"
        measure = Measure(
            message("diagnosis.measure_not_finite", tensor=called(suspect)),
            "",
            many / size,
            left / size,
            higher_is_better=False,
            samples=len(case.indices),
        )
        told = message(f"diagnosis.not_finite_{kind}", count=many, all=size, tensor=called(suspect))
        if suspect.flow == "dump only":
            summary = where(suspect, told)
        else:
            summary = message("diagnosis.not_finite_although", whole=told)
        return Intervention(
            message("diagnosis.not_finite_changed"),
            (measure,),
            1 - left / many,
            summary,
            (RemedyChange("report", nodes=suspect.nodes, tensors=(suspect.tensor,)),),
        )

    def remedy(self, case: DeviceReplay, suspect: DeviceSuspect, proof: Intervention) -> Remedy:
        """Only the vendor can, or other bits."""
        if suspect.flow == "dump only":
            title = only_dumped(message("diagnosis.dump_again", tensor=called(suspect)))
            return Remedy(title, "outside", proof.changes)
        return Remedy(message("diagnosis.not_finite_remedy"), "outside", proof.changes)
