"""Clipping: the range of a quantizer is smaller than what its tensor holds."""

from roundoff.diagnosis.ideal import called, option_fixes, tried
from roundoff.diagnosis.interventions import reach
from roundoff.diagnosis.registry import Intervention, Signal, cause
from roundoff.diagnosis.result import Remedy, RemedyChange
from roundoff.diagnosis.subject import Case, Suspect
from roundoff.messages.message import Argument, message

# Less than this share of the error's energy on saturated values is the tail of a range that was chosen well.
_LEAST_SHARE = 0.3


@cause("clipping", of="quantization", order=30)
class Clipping:
    """Values are cut off: the range of a quantizer is smaller than what its tensor holds."""

    def signal(self, case: Case, suspect: Suspect) -> Signal | None:
        """The share of the error's energy that saturated values have."""
        damage = case.facts.damage(suspect)
        if damage is None or suspect.kind == "bias" or damage.clipped_share < _LEAST_SHARE:
            return None
        numbers = {
            "clipped_energy_share": damage.clipped_share,
            "saturated_share": damage.saturated / max(1, damage.count),
        }
        return Signal(damage.clipped_share, numbers)

    def intervene(self, case: Case, suspect: Suspect) -> Intervention | None:
        """The same bits over the range that the values have."""
        fixes = option_fixes(case, suspect, "range")
        damage = case.facts.damage(suspect)
        if fixes is None or damage is None:
            return None
        low, high = reach(case.facts.quantizers[suspect.name])
        wide_low, wide_high = case.facts.value_range(suspect)
        share = damage.saturated / max(1, damage.count)
        ranges: dict[str, Argument] = {
            "what": called(suspect),
            "low": low,
            "high": high,
            "wide_low": wide_low,
            "wide_high": wide_high,
        }
        return tried(
            case,
            suspect,
            fixes,
            changed=message("diagnosis.clipping_changed", **ranges),
            summary=message("diagnosis.clipping_summary", **ranges, share=share),
            changes=[
                RemedyChange("range", tensors=suspect.tensors, nodes=suspect.nodes, low=wide_low, high=wide_high),
            ],
        )

    def remedy(self, case: Case, suspect: Suspect, proof: Intervention) -> Remedy:
        """Give it the range it needs."""
        low, high = case.facts.value_range(suspect)
        title = message("diagnosis.set_range", tensor=suspect.tensor, low=low, high=high)
        return Remedy(title, "free", proof.changes)
