"""NaN or infinite values out of finite ones."""

import numpy as np

from roundoff.core.findings import Change, Measure, Remedy
from roundoff.diagnosis.devices.bench import Bench
from roundoff.diagnosis.devices.proof import called
from roundoff.diagnosis.devices.suspects import DeviceSuspect
from roundoff.diagnosis.registry import Intervention, Signal, cause

__all__ = ["NotFiniteValues"]


@cause("not-finite", side="device", order=35)
class NotFiniteValues:
    """A node gives NaN or infinite values although all that it reads is finite."""

    def signal(self, case: Bench, suspect: DeviceSuspect) -> Signal | None:
        """How many values are NaN or infinite where they should be numbers."""
        if suspect.tensor not in case.tensors or not suspect.error.nonfinite:
            return None
        share = suspect.error.nonfinite / max(1, suspect.error.count)
        return Signal(1.0, {"share_not_finite": share})

    def intervene(self, case: Bench, suspect: DeviceSuspect) -> Intervention | None:
        """The reference on the device's own inputs, which are finite."""
        reads = case.spans[suspect.tensor].reads
        views = [case.view(sample) for sample in suspect.places]
        if not all(np.isfinite(view[name]).all() for view in views for name in reads):
            return None
        wrong = [~np.isfinite(pair.found) for pair in suspect.pairs]
        many = sum(int(each.sum()) for each in wrong)
        size = sum(each.size for each in wrong)
        left = sum(
            int((~np.isfinite(pair.exact))[at].sum()) for pair, at in zip(suspect.pairs, wrong, strict=True)
        )
        if not many:
            return None
        nans = sum(int(np.isnan(pair.found).sum()) for pair in suspect.pairs)
        what = "NaN" if nans == many else "infinite" if not nans else "NaN or infinite"
        measure = Measure(
            f"share of {called(suspect)} that is not finite",
            "",
            many / size,
            left / size,
            higher_is_better=False,
            samples=len(suspect.pairs),
        )
        return Intervention(
            "the reference was fed what the device fed it, which is finite",
            (measure,),
            1 - left / many,
            f"{many} of {size} values of {called(suspect)} are {what}, although all that it reads is finite",
            (Change("report", nodes=suspect.nodes, tensors=(suspect.tensor,)),),
        )

    def remedy(self, case: Bench, suspect: DeviceSuspect, proof: Intervention) -> Remedy:
        """Only the vendor can, or other bits."""
        title = "run this node in a wider precision or elsewhere, and report it to the vendor with a reproducer"
        return Remedy(title, "outside", proof.changes)
