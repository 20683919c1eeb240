"""A tensor belongs to another sample."""

from collections.abc import Sequence

import numpy as np

from roundoff.core.tensors import Array
from roundoff.diagnosis.devices.proof import MOST_LEFT, called, only_dumped, residual_energy, tried, where
from roundoff.diagnosis.devices.replay import DeviceReplay
from roundoff.diagnosis.devices.suspects import DeviceSuspect
from roundoff.diagnosis.registry import Intervention, Signal, cause
from roundoff.diagnosis.result import Remedy, RemedyChange
from roundoff.messages.message import Argument, message

# So much nearer to another sample than to its own, a tensor is that one's.
_NEARER = 0.1


@cause("stale-tensor", of="device", order=20)
class StaleTensor:
    """A tensor belongs to another sample: its buffer was not written, or written too late."""

    def signal(self, case: DeviceReplay, suspect: DeviceSuspect) -> Signal | None:
        """How many samples hold what another one should."""
        if len(suspect.pairs) < 2:
            return None
        stale = [other for own, other in enumerate(_nearest(suspect, _references(case, suspect))) if other != own]
        return Signal(len(stale) / len(suspect.pairs), {"stale_samples": float(len(stale))}) if stale else None

    def intervene(self, case: DeviceReplay, suspect: DeviceSuspect) -> Intervention | None:
        """The reference of the other sample."""
        references = _references(case, suspect)
        nearest = _nearest(suspect, references)
        explained = [references[other] for other in nearest]
        # What is merely nearer to another sample, as few values that are cut off may be, is no copy of it.
        if residual_energy(suspect, explained) > MOST_LEFT:
            return None
        names = [case.readout.samples[place][0] for place in case.indices]
        own = next(index for index, other in enumerate(nearest) if other != index)
        what = called(suspect)
        samples: dict[str, Argument] = {"own": names[own] or own, "other": names[nearest[own]] or nearest[own]}
        return tried(
            suspect,
            explained,
            changed=message("diagnosis.stale_tensor_changed", tensor=what),
            summary=where(suspect, message("diagnosis.stale_tensor_summary", tensor=what, **samples)),
            changes=(RemedyChange("report", nodes=suspect.nodes, tensors=(suspect.tensor,), value="stale"),),
        )

    def remedy(self, case: DeviceReplay, suspect: DeviceSuspect, proof: Intervention) -> Remedy:
        """Synchronize."""
        if suspect.flow == "dump only":
            title = only_dumped(message("diagnosis.stale_tensor_remedy_dump", tensor=called(suspect)))
            return Remedy(title, "outside", proof.changes)
        return Remedy(message("diagnosis.stale_tensor_remedy"), "outside", proof.changes)


def _references(case: DeviceReplay, suspect: DeviceSuspect) -> list[Array]:
    """What the tensor should be in all samples, those of the suspect first."""
    held = [pair.exact for pair in suspect.pairs]
    if suspect.tensor not in case.tensors:
        return held
    return held + [case.golden.compute(suspect.tensor, case.view(place)) for place in case.indices[len(held) :]]


def _nearest(suspect: DeviceSuspect, references: Sequence[Array]) -> list[int]:
    """For each sample the one whose reference its tensor is nearest to; itself when it is not clear."""
    found = []
    for own, pair in enumerate(suspect.pairs):
        distance = [
            float(np.square(np.nan_to_num(pair.found - other).astype(np.float64)).sum())
            if other.shape == pair.found.shape
            else np.inf
            for other in references
        ]
        best = int(np.argmin(distance))
        found.append(best if distance[best] < _NEARER * distance[own] else own)
    return found
