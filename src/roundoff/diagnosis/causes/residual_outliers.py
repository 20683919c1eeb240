"""Outliers in a transformer's residual stream: a few values set the scale, and the rest is rounded away."""

from roundoff.diagnosis.evidence import Observed
from roundoff.diagnosis.ideal import called, range_or_bits_suffice, tried
from roundoff.diagnosis.interventions import WIDE_BITS, with_bits
from roundoff.diagnosis.registry import Intervention, Signal, cause
from roundoff.diagnosis.result import Remedy, RemedyChange
from roundoff.diagnosis.subject import Case, Suspect
from roundoff.messages.message import Message, message

# A normal tensor reaches four or five times its rms; one that reaches so many times has a step of a tenth of it.
_RATIO = 20.0


@cause("residual-outliers", of="quantization", order=35)
class ResidualOutliers:
    """A few values of the residual stream set its scale, and the rest is rounded away."""

    def signal(self, case: Case, suspect: Suspect) -> Signal | None:
        """How far a tensor of the stream reaches beyond its rms."""
        seen = case.facts.observed.get(suspect.tensor)
        if suspect.kind != "activation" or seen is None or not seen.rms or not _in_stream(case, suspect):
            return None
        low, high = seen.range
        ratio = max(-low, high) / seen.rms
        numbers = {"reach_over_rms": ratio}
        if seen.sink is not None:
            numbers |= {"sink_token": float(seen.sink.token), "sink_channel": float(seen.sink.channel)}
        # A token that is large in all its channels is no outlier by the rms, which it makes.
        return Signal(min(1.0, ratio / 100), numbers) if ratio >= _RATIO or seen.sink is not None else None

    def intervene(self, case: Case, suspect: Suspect) -> Intervention | None:
        """16 bits over the same range; a range that fits, where that would do, is another matter."""
        if range_or_bits_suffice(case, suspect):
            return None
        members = [case.facts.quantizers[name] for name in suspect.quantizers]
        seen, step = case.facts.observed[suspect.tensor], float(members[0].params.scale.max())
        return tried(
            case,
            suspect,
            {each.name: with_bits(each, WIDE_BITS) for each in members},
            changed=message("diagnosis.residual_outliers_changed", what=called(suspect), bits=WIDE_BITS),
            summary=_summary(suspect, seen, step),
            changes=[
                RemedyChange(
                    "bits",
                    tensors=suspect.tensors,
                    nodes=suspect.nodes,
                    value=f"{'s' if members[0].spec.signed else 'u'}{WIDE_BITS}",
                )
            ],
        )

    def remedy(self, case: Case, suspect: Suspect, proof: Intervention) -> Remedy:
        """More bits for the stream."""
        return Remedy(message("diagnosis.residual_outliers_remedy", what=called(suspect)), "16 bit", proof.changes)


def _summary(suspect: Suspect, seen: Observed, step: float) -> Message:
    largest, sink = max(map(abs, seen.range)), seen.sink
    if sink is not None:
        return message(
            "diagnosis.residual_outliers_sink",
            what=called(suspect),
            token=sink.token,
            channel=sink.channel,
            reach=sink.reach,
            others=sink.others,
            step=step,
            levels=int(2 * sink.others / step) + 1,
        )
    return message(
        "diagnosis.residual_outliers_summary",
        what=called(suspect),
        reach=largest,
        ratio=largest / seen.rms,
        step=step,
        part=step / seen.rms,
    )


def sink_notes(case: Case) -> tuple[Message, ...]:
    """What to know of a token that holds the maxima of the residual stream, whether or not that costs anything."""
    members = [each for each in case.facts.suspects if each.kind == "activation" and _in_stream(case, each)]
    seen = {
        each.tensor: case.facts.observed[each.tensor] for each in members if each.tensor in case.facts.observed
    }
    sinks = {name: each.sink for name, each in seen.items() if each.sink is not None}
    tensor = max(sinks, key=lambda name: sinks[name].reach, default=None)
    if tensor is None:
        return ()
    most = sinks[tensor]
    count = sum(each.token == most.token for each in sinks.values())
    return (
        message(
            "diagnosis.note_sink_token",
            token=most.token,
            channel=most.channel,
            reach=most.reach,
            others=most.others,
            tensor=tensor,
            count=count,
        ),
    )


def _in_stream(case: Case, suspect: Suspect) -> bool:
    """Whether a tensor is added to the residual stream, is it, or is read by one of its norms."""
    parts = case.facts.parts
    if any(suspect.node in norm.nodes and norm.exit not in suspect.tensors for norm in parts.norms):
        return False
    touched = {edge.node for name in suspect.quantizers for edge in case.facts.quantizers[name].consumers}
    return bool(set(parts.stream) & ({suspect.node, suspect.join} | touched))
