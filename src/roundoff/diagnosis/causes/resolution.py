"""Resolution: the steps of a quantizer are too coarse for its tensor."""

from roundoff.diagnosis.interventions import WIDE_BITS, reach, with_bits
from roundoff.diagnosis.proving import called, option_fixes, spoken, tried
from roundoff.diagnosis.registry import ENOUGH, Intervention, Signal, cause
from roundoff.diagnosis.result import Change, Remedy
from roundoff.diagnosis.subject import Case
from roundoff.diagnosis.suspects import Suspect

__all__ = ["Resolution"]


@cause("resolution", order=60)
class Resolution:
    """Steps are too coarse: the range is far wider than the values, or there are too few bits."""

    def signal(self, case: Case, suspect: Suspect) -> Signal | None:
        """Its error is that of rounding; how wide its range is for its values."""
        damage = case.facts.damage(suspect)
        if damage is None or suspect.kind == "bias":
            return None
        quantizer = case.facts.quantizers[suspect.name]
        low, high = reach(quantizer)
        data_low, data_high = case.facts.value_range(suspect)
        wider = (high - low) / max(data_high - data_low, 1e-30)
        numbers = {"bits": float(quantizer.spec.bits), "range_over_data": wider, "noise_ratio": damage.ratio}
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
        what, times = called(suspect), (high - low) / max(data_high - data_low, 1e-30)
        return tried(
            case,
            suspect,
            fixes,
            changed=f"the range of {what} narrowed from {spoken(low)} .. {spoken(high)} to {spoken(data_low)} .. "
            f"{spoken(data_high)}, same bits",
            summary=f"{what} has a range {spoken(times)} times as wide as its values: {spoken(low)} .. "
            f"{spoken(high)} for {spoken(data_low)} .. {spoken(data_high)}",
            changes=[Change("range", tensors=suspect.tensors, nodes=suspect.nodes, low=data_low, high=data_high)],
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
            changed=f"{what} with {bits} bits instead of {main.spec.bits}",
            summary=f"{what} has {main.spec.bits} bits where others have {bits}",
            changes=[_bits_change(suspect, main.spec.signed, bits)],
        )

    def _wide(self, case: Case, suspect: Suspect) -> Intervention:
        members = [case.facts.quantizers[name] for name in suspect.quantizers]
        fixes = {each.name: with_bits(each, WIDE_BITS) for each in members}
        what, bits = called(suspect), members[0].spec.bits
        damage = case.facts.damage(suspect)
        noise = "" if damage is None else f": rounding takes {damage.ratio:.2%} of its energy"
        return tried(
            case,
            suspect,
            fixes,
            changed=f"{what} with {WIDE_BITS} bits over the same range",
            summary=f"{what} needs finer steps than {bits} bits give{noise}",
            changes=[_bits_change(suspect, members[0].spec.signed, WIDE_BITS)],
        )

    def remedy(self, case: Case, suspect: Suspect, proof: Intervention) -> Remedy:
        """The range it needs where that is it, else more bits."""
        change = proof.changes[0]
        if change.kind == "range":
            low, high = case.facts.value_range(suspect)
            return Remedy(
                f"set the range of {suspect.tensor!r} to {spoken(low)} .. {spoken(high)}", "free", proof.changes
            )
        wide = change.value.endswith(str(WIDE_BITS))
        return Remedy(f"quantize {called(suspect)} to {change.value}", "16 bit" if wide else "free", proof.changes)


def _bits_change(suspect: Suspect, signed: bool, bits: int) -> Change:
    return Change("bits", tensors=suspect.tensors, nodes=suspect.nodes, value=f"{'s' if signed else 'u'}{bits}")
