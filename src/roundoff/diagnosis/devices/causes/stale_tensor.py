"""A tensor belongs to another sample."""

import numpy as np

from roundoff.core.findings import Change, Remedy
from roundoff.core.tensors import Array
from roundoff.diagnosis.devices.bench import Bench
from roundoff.diagnosis.devices.proof import called, tried
from roundoff.diagnosis.devices.suspects import DeviceSuspect
from roundoff.diagnosis.registry import Intervention, Signal, cause

__all__ = ["StaleTensor"]

# So much nearer to another sample than to its own, a tensor is that one's.
_NEARER = 0.1


@cause("stale-tensor", side="device", order=20)
class StaleTensor:
    """A tensor belongs to another sample: its buffer was not written, or written too late."""

    def signal(self, case: Bench, suspect: DeviceSuspect) -> Signal | None:
        """How many samples hold what another one should."""
        if len(suspect.pairs) < 2:
            return None
        stale = [other for own, other in enumerate(_nearest(suspect)) if other != own]
        return Signal(len(stale) / len(suspect.pairs), {"stale_samples": float(len(stale))}) if stale else None

    def intervene(self, case: Bench, suspect: DeviceSuspect) -> Intervention | None:
        """The reference of the other sample."""
        nearest = _nearest(suspect)
        explained: list[Array] = [suspect.pairs[other].exact for other in nearest]
        names = [case.readout.samples[place][0] for place in suspect.places]
        own = next(index for index, other in enumerate(nearest) if other != index)
        what = called(suspect)
        told = f"sample {names[own] or own} holds what sample {names[nearest[own]] or nearest[own]} should"
        return tried(
            suspect,
            explained,
            changed=f"the reference's {what} of the samples that it fits",
            summary=f"{what} is stale: {told}",
            changes=(Change("report", nodes=suspect.nodes, tensors=(suspect.tensor,), value="stale"),),
        )

    def remedy(self, case: Bench, suspect: DeviceSuspect, proof: Intervention) -> Remedy:
        """Synchronize."""
        title = "look for a missing synchronization or a buffer that two tensors share; report it to the vendor"
        return Remedy(title, "outside", proof.changes)


def _nearest(suspect: DeviceSuspect) -> list[int]:
    """For each sample the one whose reference its tensor is nearest to; itself when it is not clear."""
    found = []
    for own, pair in enumerate(suspect.pairs):
        shapes = [other.exact.shape == pair.found.shape for other in suspect.pairs]
        distance = [
            float(np.square(np.nan_to_num(pair.found - other.exact).astype(np.float64)).sum()) if same else np.inf
            for other, same in zip(suspect.pairs, shapes, strict=True)
        ]
        best = int(np.argmin(distance))
        found.append(best if distance[best] < _NEARER * distance[own] else own)
    return found
