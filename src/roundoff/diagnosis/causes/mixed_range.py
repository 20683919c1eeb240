"""Mixed ranges: tensors of different size share the scale of a Concat or an Add, and the small ones are lost."""

from roundoff.diagnosis.ideal import option_fixes, range_or_bits_suffice, slices_of, tried
from roundoff.diagnosis.registry import Intervention, Signal, cause
from roundoff.diagnosis.result import Remedy, RemedyChange
from roundoff.diagnosis.subject import Case, Suspect
from roundoff.messages.message import message

# What is joined differs by so much in size that the smaller has less than two bits fewer than the others.
_RATIO = 4.0


@cause("mixed-range", of="quantization", order=40)
class MixedRange:
    """Tensors of different size share one scale where they are joined, and the small ones are lost."""

    def signal(self, case: Case, suspect: Suspect) -> Signal | None:
        """How much wider the widest of the joined tensors is than the narrowest."""
        spans = [high - low for _, (low, high) in _joined(case, suspect)]
        if len(spans) < 2 or min(spans) <= 0 or max(spans) / min(spans) < _RATIO:
            return None
        ratio = max(spans) / min(spans)
        return Signal(min(1.0, ratio / 100), {"widest_over_narrowest": ratio})

    def intervene(self, case: Case, suspect: Suspect) -> Intervention | None:
        """Each of them at its own range, same bits."""
        if range_or_bits_suffice(case, suspect):
            return None
        node = case.facts.nodes[suspect.join]
        fixes = option_fixes(case, suspect, "per_slice")
        how = message("diagnosis.mixed_range_changed", node=suspect.join)
        if fixes is None and node.op_type != "Concat":
            fixes, how = case.in_float(suspect), message("diagnosis.mixed_range_not_rounded", node=suspect.join)
        if fixes is None:
            return None
        joined = sorted(_joined(case, suspect), key=lambda each: each[1][1] - each[1][0])
        small, large = joined[0], joined[-1]
        kind = "concat" if node.op_type == "Concat" else "join"
        return tried(
            case,
            suspect,
            fixes,
            changed=how,
            summary=message(
                f"diagnosis.mixed_range_{kind}",
                node=suspect.join,
                op=node.op_type,
                small=small[0],
                low=small[1][0],
                high=small[1][1],
                large=large[0],
                large_low=large[1][0],
                large_high=large[1][1],
            ),
            changes=[_change(case, suspect)],
        )

    def remedy(self, case: Case, suspect: Suspect, proof: Intervention) -> Remedy:
        """Keep them apart, or give what they share more bits."""
        wide = RemedyChange("bits", tensors=suspect.tensors, nodes=(suspect.join,), value="s16")
        title = message("diagnosis.mixed_range_remedy", node=suspect.join)
        return Remedy(title, "free", (*proof.changes, wide))


def _joined(case: Case, suspect: Suspect) -> list[tuple[str, tuple[float, float]]]:
    """What is joined, with its range."""
    node = case.facts.nodes.get(suspect.join)
    if node is None:
        return []
    if node.op_type == "Concat":
        slices = slices_of(case.facts, suspect)
        return [] if slices is None else list(zip(node.input, slices[2], strict=True))
    found: list[tuple[str, tuple[float, float]]] = [
        (name, ends) for name in node.input if (ends := case.facts.tensor_range(name)) is not None
    ]
    # Large values that cancel each other leave a small sum.
    sums = (each.tensor for each in case.facts.suspects if each.kind == "activation" and node.name in each.nodes)
    left = [(name, case.facts.observed[name].range) for name in sums if name in case.facts.observed]
    return [*found, *[each for each in left if each[0] not in dict(found)][:1]]


def _change(case: Case, suspect: Suspect) -> RemedyChange:
    found = slices_of(case.facts, suspect)
    if found is None:
        return RemedyChange("per_slice", tensors=suspect.tensors, nodes=(suspect.join,))
    return RemedyChange("per_slice", tensors=suspect.tensors, nodes=(suspect.join,), axis=found[0], sizes=found[1])
