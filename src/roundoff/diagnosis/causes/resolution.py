"""Resolution: the steps of a quantizer are too coarse for its tensor."""

from roundoff.diagnosis.ideal import called, option_fixes, tried
from roundoff.diagnosis.interventions import WIDE_BITS, reach, with_bits
from roundoff.diagnosis.registry import ENOUGH, Intervention, Signal, cause
from roundoff.diagnosis.result import Remedy, RemedyChange
from roundoff.diagnosis.subject import Case, Suspect
from roundoff.messages.message import Argument, message


@cause("resolution", of="quantization", order=60)
class CoarseResolution:
    """Steps are too coarse: the range is far wider than the values, or there are too few bits."""

    def signal(self, case: Case, suspect: Suspect) -> Signal | None:
        """Its error is that of rounding; how wide its range is for its values."""
        damage = case.facts.damage(suspect)
        if damage is None or suspect.kind == "bias":
            return None
        quantizer = case.facts.quantizers[suspect.name]
        numbers = {
            "bits": float(quantizer.spec.bits),
            "range_over_data": _times_wider(case, suspect),
            "noise_ratio": damage.ratio,
        }
        return Signal(1 - damage.clipped_share, numbers)

    def intervene(self, case: Case, suspect: Suspect) -> Intervention | None:
        """The same bits over a tighter range, the bits that others have, or 16 bits over the same range."""
        tight = self._tighter(case, suspect)
        if tight is not None and tight.recovered >= ENOUGH:
            return tight
        usual = self._usual_bits(case, suspect)
        if usual is not None and usual.recovered >= ENOUGH:
            return usual
        return self._wide(case, suspect)

    def _tighter(self, case: Case, suspect: Suspect) -> Intervention | None:
        fixes = option_fixes(case, suspect, "range")
        if fixes is None:
            return None
        low, high = reach(case.facts.quantizers[suspect.name])
        data_low, data_high = case.facts.value_range(suspect)
        ranges: dict[str, Argument] = {
            "what": called(suspect),
            "low": low,
            "high": high,
            "data_low": data_low,
            "data_high": data_high,
        }
        times = _times_wider(case, suspect)
        return tried(
            case,
            suspect,
            fixes,
            changed=message("diagnosis.resolution_tighter_changed", **ranges),
            summary=message("diagnosis.resolution_tighter_summary", **ranges, times=times),
            changes=[
                RemedyChange("range", tensors=suspect.tensors, nodes=suspect.nodes, low=data_low, high=data_high)
            ],
        )

    def _usual_bits(self, case: Case, suspect: Suspect) -> Intervention | None:
        fixes = option_fixes(case, suspect, "bits")
        if fixes is None:
            return None
        main = case.facts.quantizers[suspect.name]
        bits = case.facts.prevailing_bits(main)
        what = called(suspect)
        return tried(
            case,
            suspect,
            fixes,
            changed=message("diagnosis.resolution_bits_changed", what=what, bits=bits, had=main.spec.bits),
            summary=message("diagnosis.resolution_bits_summary", what=what, bits=bits, had=main.spec.bits),
            changes=[_bits_change(suspect, main.spec.signed, bits)],
        )

    def _wide(self, case: Case, suspect: Suspect) -> Intervention:
        members = [case.facts.quantizers[name] for name in suspect.quantizers]
        fixes = {each.name: with_bits(each, WIDE_BITS) for each in members}
        what, bits = called(suspect), members[0].spec.bits
        damage = case.facts.damage(suspect)
        summary = message("diagnosis.resolution_wide_summary", what=what, bits=bits)
        if damage is not None:
            summary = message("diagnosis.resolution_wide_summary_noise", what=what, bits=bits, share=damage.ratio)
        return tried(
            case,
            suspect,
            fixes,
            changed=message("diagnosis.resolution_wide_changed", what=what, bits=WIDE_BITS),
            summary=summary,
            changes=[_bits_change(suspect, members[0].spec.signed, WIDE_BITS)],
        )

    def remedy(self, case: Case, suspect: Suspect, proof: Intervention) -> Remedy:
        """The range it needs where that is it, else more bits."""
        change = proof.changes[0]
        if change.kind == "range":
            low, high = case.facts.value_range(suspect)
            title = message("diagnosis.set_range", tensor=suspect.tensor, low=low, high=high)
            return Remedy(title, "free", proof.changes)
        wide = change.value.endswith(str(WIDE_BITS))
        title = message("diagnosis.resolution_remedy", what=called(suspect), dtype=change.value)
        return Remedy(title, "16 bit" if wide else "free", proof.changes)


def _times_wider(case: Case, suspect: Suspect) -> float:
    """How many times coarser its steps are than its values need; symmetric codes reach as far on both sides."""
    quantizer = case.facts.quantizers[suspect.name]
    (low, high), (data_low, data_high) = reach(quantizer), case.facts.value_range(suspect)
    if quantizer.spec.symmetric:
        return min(-low, high) / max(-data_low, data_high, 1e-30)
    return (high - low) / max(data_high - data_low, 1e-30)


def _bits_change(suspect: Suspect, signed: bool, bits: int) -> RemedyChange:
    return RemedyChange(
        "bits", tensors=suspect.tensors, nodes=suspect.nodes, value=f"{'s' if signed else 'u'}{bits}"
    )
