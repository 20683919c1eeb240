"""Overflow: a bias, or a sum of products, does not fit the integers it is computed in."""

import numpy as np

from roundoff.diagnosis.ideal import called, tried
from roundoff.diagnosis.registry import Intervention, Signal, cause
from roundoff.diagnosis.result import Remedy, RemedyChange
from roundoff.diagnosis.subject import Case, Suspect
from roundoff.messages.message import message


@cause("overflow", of="quantization", order=10)
class BiasOverflow:
    """A bias, or a sum of products, does not fit the integers it is computed in."""

    def signal(self, case: Case, suspect: Suspect) -> Signal | None:
        """How much larger a bias is than what its codes can hold."""
        if suspect.kind != "bias":
            return None
        times = _times(case, suspect)
        return Signal(1.0, {"bias_over_limit": times}) if times > 1 else None

    def intervene(self, case: Case, suspect: Suspect) -> Intervention | None:
        """A bias that fits: in float."""
        bits = case.facts.quantizers[suspect.name].spec.bits
        what = called(suspect)
        return tried(
            case,
            suspect,
            case.in_float(suspect),
            changed=message("diagnosis.overflow_changed", what=what, bits=bits),
            summary=message("diagnosis.overflow_summary", what=what, times=_times(case, suspect), bits=bits),
            changes=[RemedyChange("accumulator", tensors=suspect.tensors, nodes=suspect.nodes, value="wide")],
        )

    def remedy(self, case: Case, suspect: Suspect, proof: Intervention) -> Remedy:
        """Wider scales, so that it fits."""
        change = RemedyChange("float", tensors=suspect.tensors, nodes=suspect.nodes)
        return Remedy(message("diagnosis.overflow_remedy", node=suspect.node), "free", (change,))


def _times(case: Case, suspect: Suspect) -> float:
    """The largest bias over what fits."""
    quantizer = case.facts.quantizers[suspect.name]
    values = case.facts.values(quantizer.tensor).astype(np.float64)
    with np.errstate(divide="ignore", invalid="ignore"):
        steps = np.abs(values / quantizer.params.scale.astype(np.float64))
    return float(np.nan_to_num(steps, posinf=np.inf).max(initial=0.0) / quantizer.spec.code_max)
