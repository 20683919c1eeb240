"""Norms whose insides are rounded, or whose rows are: each is divided by its own size, which a step may exceed."""

from weakref import WeakKeyDictionary

from roundoff.core.quantizers import Quantizer
from roundoff.diagnosis.ideal import called, range_or_bits_suffice, tried
from roundoff.diagnosis.interventions import WIDE_BITS, with_bits
from roundoff.diagnosis.registry import ENOUGH, Intervention, Signal, cause
from roundoff.diagnosis.result import Remedy, RemedyChange
from roundoff.diagnosis.subject import Case, Fixes, QuantizationFacts, Suspect
from roundoff.messages.message import message

# A step of this part of the rms of a row leaves it 23 dB, and a norm makes every row as large as any other.
_PART_OF_ROW = 0.25

_INSIDE: WeakKeyDictionary[QuantizationFacts, tuple[Suspect | None, int]] = WeakKeyDictionary()


def _inside(case: Case) -> tuple[Suspect | None, int]:
    """Quantizers inside norms that are spelled out, as one, and of how many norms; None where there are none."""
    if case.facts not in _INSIDE:
        spelled = [norm for norm in case.facts.parts.norms if len(norm.nodes) > 1]
        nodes = {name: norm.exit for norm in spelled for name in norm.nodes}
        made = {
            tensor: name
            for name, last in nodes.items()
            for tensor in case.facts.nodes[name].output
            if tensor != last
        }
        members = [
            each
            for each in case.facts.quantizers.values()
            if each.tensor in made and each.tensor in case.facts.observed
        ]
        suspect = None
        if members:
            tensors = tuple(dict.fromkeys(each.tensor for each in members))
            blamed = tuple(dict.fromkeys(made[name] for name in tensors))
            suspect = Suspect("", "activation", tuple(each.name for each in members), "", tensors, "", blamed)
        touched = {nodes[made[each.tensor]] for each in members}
        _INSIDE[case.facts] = suspect, len(touched)
    return _INSIDE[case.facts]


@cause("norm-precision", of="quantization", order=36)
class NormPrecision:
    """A norm is computed from rounded squares, or of rows that are smaller than a few steps of their tensor."""

    def places(self, case: Case) -> tuple[Suspect, Fixes] | None:
        """All quantizers inside norms, as one, and what puts them right."""
        suspect = _inside(case)[0]
        return None if suspect is None else (suspect, _inside_fixes(case, suspect))

    def signal(self, case: Case, suspect: Suspect) -> Signal | None:
        """The step over the rms of a usual row; inside norms, how many tensors are rounded."""
        inside, norms = _inside(case)
        if inside is not None and set(suspect.quantizers) <= set(inside.quantizers):
            return Signal(1.0, {"inside": float(len(suspect.tensors)), "norms": float(norms)})
        if suspect.kind != "activation" or not suspect.name or not _is_normalized(case, suspect):
            return None
        seen = case.facts.observed.get(suspect.tensor)
        if seen is None or not seen.row_rms:
            return None
        part = _step(case, suspect) / seen.row_rms
        return Signal(min(1.0, part), {"step_over_row_rms": part}) if part >= _PART_OF_ROW else None

    def intervene(self, case: Case, suspect: Suspect) -> Intervention | None:
        """16 bits; inside norms, nothing rounded where these are not enough."""
        inside, norms = _inside(case)
        if inside is not None and set(suspect.quantizers) <= set(inside.quantizers):
            return self._as_one(case, suspect, norms)
        if range_or_bits_suffice(case, suspect):
            return None
        seen, step = case.facts.observed[suspect.tensor], _step(case, suspect)
        return tried(
            case,
            suspect,
            {each.name: with_bits(each, WIDE_BITS) for each in _members(case, suspect)},
            changed=message("diagnosis.residual_outliers_changed", what=called(suspect), bits=WIDE_BITS),
            summary=message(
                "diagnosis.norm_precision_rows",
                what=called(suspect),
                rms=seen.row_rms,
                step=step,
                part=step / seen.row_rms,
            ),
            changes=[_bits(case, suspect)],
        )

    def _as_one(self, case: Case, suspect: Suspect, norms: int) -> Intervention:
        worst = max(_members(case, suspect), key=lambda each: max(case.facts.observed[each.tensor].range))
        seen = case.facts.observed[worst.tensor]
        summary = message(
            "diagnosis.norm_precision_inside",
            count=norms,
            tensor=worst.tensor,
            reach=seen.range[1],
            rms=seen.rms,
            step=float(worst.params.scale.max()),
        )
        fixes, count = _inside_fixes(case, suspect), len(suspect.tensors)
        if None in fixes.values():
            changed = message("diagnosis.norm_precision_as_one", count=count)
            change = RemedyChange("float", suspect.tensors, suspect.nodes)
        else:
            changed = message("diagnosis.norm_precision_wide", count=count, bits=WIDE_BITS)
            change = _bits(case, suspect)
        return tried(case, suspect, fixes, changed=changed, summary=summary, changes=[change])

    def remedy(self, case: Case, suspect: Suspect, proof: Intervention) -> Remedy:
        """The norm as one node, or more bits."""
        change = proof.changes[0]
        if change.kind == "float":
            return Remedy(message("diagnosis.norm_precision_unit"), "float", proof.changes)
        title = message("diagnosis.norm_precision_remedy", what=change.tensors[0], count=len(change.tensors) - 1)
        return Remedy(title, "16 bit", proof.changes)


def _inside_fixes(case: Case, suspect: Suspect) -> Fixes:
    """16 bits where these are as good as none, else what is inside not rounded."""
    wide = {each.name: with_bits(each, WIDE_BITS) for each in _members(case, suspect)}
    return wide if case.recovered(suspect, wide) >= ENOUGH else case.in_float(suspect)


def _members(case: Case, suspect: Suspect) -> list[Quantizer]:
    return [case.facts.quantizers[name] for name in suspect.quantizers]


def _step(case: Case, suspect: Suspect) -> float:
    return max(float(each.params.scale.max()) for each in _members(case, suspect))


def _bits(case: Case, suspect: Suspect) -> RemedyChange:
    signed = _members(case, suspect)[0].spec.signed
    return RemedyChange("bits", suspect.tensors, suspect.nodes, value=f"{'s' if signed else 'u'}{WIDE_BITS}")


def _is_normalized(case: Case, suspect: Suspect) -> bool:
    """Whether a norm reads one of its tensors."""
    return bool({norm.entry for norm in case.facts.parts.norms} & set(suspect.tensors))
