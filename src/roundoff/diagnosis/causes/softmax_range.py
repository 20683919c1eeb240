"""Scores whose steps are too coarse for the exponential of a Softmax, and probabilities that become zero."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from weakref import WeakKeyDictionary

from roundoff.core.quantizers import Quantizer
from roundoff.diagnosis.ideal import called, tried
from roundoff.diagnosis.interventions import WIDE_BITS, reach, with_bits, with_range
from roundoff.diagnosis.registry import Intervention, Signal, cause
from roundoff.diagnosis.result import Remedy, RemedyChange
from roundoff.diagnosis.subject import Case, Fixes, QuantizationFacts, Suspect
from roundoff.graph.nodes import producers
from roundoff.graph.transformers import MASK_LEVEL, Attention
from roundoff.messages.message import Argument, message
from roundoff.quantize.transforms.clamp_mask import observe_rows

# A step of scores changes a probability by the factor exp(step): from this on by 28 % and more.
_COARSE = 0.25
# Rounding takes this part of the energy of probabilities where most of them are below half a step.
_LOST = 0.02


@dataclass(frozen=True, slots=True, eq=False)
class CoarseScores:
    """A quantizer of scores or of probabilities that is too coarse, and a better one.

    Attributes:
        fixed: The better one.
        softmax: Whose scores or probabilities.
        step: Its step, of scores in the units of what the Softmax reads.
        low: Scores below weigh less than half a step of an 8-bit probability; 0 of probabilities.
        high: The largest; 1 of probabilities.
        lost: Share of the energy of probabilities that is rounded away; 0 of scores.
    """

    fixed: Quantizer
    softmax: str
    step: float
    low: float
    high: float
    lost: float = 0.0


_KNOWN: WeakKeyDictionary[QuantizationFacts, dict[str, CoarseScores]] = WeakKeyDictionary()


def coarse_scores(case: Case) -> Mapping[str, CoarseScores]:
    """By quantizer what is too coarse in the attentions of a network."""
    if case.facts not in _KNOWN:
        _KNOWN[case.facts] = dict(_coarse_scores(case))
    return _KNOWN[case.facts]


def _coarse_scores(case: Case) -> Iterator[tuple[str, CoarseScores]]:
    of_tensor: dict[str, list[Quantizer]] = {}
    for each in case.facts.quantizers.values():
        if each.kind == "activation" and each.params.scale.size == 1:
            of_tensor.setdefault(each.tensor, []).append(each)
    scaled = {part.softmax: (part, _score_tensors(case, part)) for part in _attentions(case)}
    suspected = [
        part
        for part, factors in scaled.values()
        for name, factor in factors.items()
        for each in of_tensor.get(name, ())
        if _step(each, factor) >= _COARSE
    ]
    model = case.facts.quantized.float_model
    unique = tuple(dict.fromkeys(suspected))
    rows = observe_rows(model, case.runner.chosen, unique).rows if unique else {}
    for name, seen in rows.items():
        for tensor, factor in scaled[name][1].items():
            for each in of_tensor.get(tensor, ()):
                # What a mask puts there is another matter.
                if _step(each, factor) >= _COARSE and reach(each)[0] > MASK_LEVEL:
                    ends = sorted((seen.low / factor, seen.most / factor))
                    fixed = with_range(each, ends[0], ends[1])
                    fixed = fixed if _step(fixed, factor) < _COARSE else with_bits(fixed, WIDE_BITS)
                    yield each.name, CoarseScores(fixed, name, _step(each, factor), seen.low, seen.most)
    yield from _lost_probabilities(case, of_tensor)


def _lost_probabilities(
    case: Case, of_tensor: Mapping[str, list[Quantizer]]
) -> Iterator[tuple[str, CoarseScores]]:
    for part in _attentions(case):
        for each in of_tensor.get(case.facts.nodes[part.softmax].output[0], ()):
            seen = case.facts.observed.get(each.tensor)
            lost = 0.0 if seen is None else seen.damage[each.name].ratio
            if lost >= _LOST:
                step, fixed = float(each.params.scale.max()), with_bits(each, WIDE_BITS)
                yield each.name, CoarseScores(fixed, part.softmax, step, 0.0, 1.0, lost)


def _attentions(case: Case) -> Iterator[Attention]:
    return (part for part in case.facts.parts.attentions if not part.is_fused)


def _step(quantizer: Quantizer, factor: float) -> float:
    return float(quantizer.params.scale.max()) * abs(factor)


def _score_tensors(case: Case, part: Attention) -> dict[str, float]:
    """Tensors from what a Softmax reads up to the product, each with what a unit of it is there.

    Behind a learned bias only: what is left of a score that saturates before it is not known.
    """
    makers = producers(case.facts.quantized.float_model.proto.graph.node)
    biases = {each.node for each in part.operands if each.kind not in ("mask", "nothing")}
    tensor, factor = part.masked, 1.0
    found = {tensor: factor}
    while tensor != part.scores and (node := makers.get(tensor)) is not None and node.name not in biases:
        inner = [name for name in node.input if name == part.scores or _made_in(makers.get(name), part)]
        if len(inner) != 1:
            break
        tensor = inner[0]
        if node.op_type in ("Mul", "Div"):
            [other] = [name for name in node.input if name != tensor] or [""]
            if other not in case.facts.weights or case.facts.weights[other].size != 1:
                break
            value = float(case.facts.weights[other].ravel()[0])
            factor = factor * value if node.op_type == "Mul" else factor / value
        elif node.op_type == "Tanh" or not factor:
            break
        found[tensor] = factor
    return found


def _made_in(node: object, part: Attention) -> bool:
    return getattr(node, "name", "") in part.nodes


@cause("softmax-range", of="quantization", order=32)
class SoftmaxRange:
    """Scores in front of a Softmax have coarse steps, or its probabilities round to zero."""

    def places(self, case: Case) -> tuple[Suspect, Fixes] | None:
        """All such quantizers of a network, as one, and what puts them right."""
        found = coarse_scores(case)
        if not found:
            return None
        tensors = tuple(dict.fromkeys(case.facts.quantizers[name].tensor for name in found))
        nodes = tuple(dict.fromkeys(each.softmax for each in found.values()))
        suspect = Suspect("", "activation", tuple(found), "", tensors, "", nodes)
        return suspect, {name: each.fixed for name, each in found.items()}

    def signal(self, case: Case, suspect: Suspect) -> Signal | None:
        """The coarsest step of scores; how much of probabilities is rounded away."""
        found = _of(case, suspect)
        if not found:
            return None
        step, lost = max(each.step for each in found.values()), max(each.lost for each in found.values())
        return Signal(1.0, {"step": step, "lost_share": lost, "attentions": float(_count(found))})

    def intervene(self, case: Case, suspect: Suspect) -> Intervention | None:
        """The same bits over the scores that get a probability; 16 bits where that is not fine enough."""
        found = _of(case, suspect)
        if not found:
            return None
        worst = max(found.values(), key=lambda each: (not each.lost, each.step))
        what = called(suspect) if suspect.name else message("diagnosis.called_attentions", count=_count(found))
        wide = sum(each.fixed.spec.bits == WIDE_BITS for each in found.values())
        numbers: dict[str, Argument] = {"what": what, "low": worst.low, "high": worst.high, "step": worst.step}
        kind = "lost" if worst.lost else "summary"
        return tried(
            case,
            suspect,
            {name: each.fixed for name, each in found.items()},
            changed=message(
                f"diagnosis.softmax_range_changed{_both(len(found), wide)}",
                what=what,
                count=len(found) - wide,
                wide=wide,
                bits=WIDE_BITS,
            ),
            summary=message(f"diagnosis.softmax_range_{kind}", **numbers, share=worst.lost),
            changes=[_change(case, name, each) for name, each in found.items()],
        )

    def remedy(self, case: Case, suspect: Suspect, proof: Intervention) -> Remedy:
        """Ranges of the scores that matter, which cost nothing; more bits where these are not enough."""
        wide = sum(each.kind == "bits" for each in proof.changes)
        key = f"diagnosis.softmax_range_remedy{_both(len(proof.changes), wide)}"
        title = message(key, count=len(proof.changes) - wide, wide=wide, bits=WIDE_BITS)
        return Remedy(title, "16 bit" if wide else "free", proof.changes)


def _both(count: int, wide: int) -> str:
    """Which of the two changes are made: ranges alone, more bits alone, or each somewhere."""
    return "" if not wide else "_wide" if wide == count else "_both"


def _of(case: Case, suspect: Suspect) -> dict[str, CoarseScores]:
    return {name: each for name, each in coarse_scores(case).items() if name in suspect.quantizers}


def _count(found: Mapping[str, CoarseScores]) -> int:
    return len({each.softmax for each in found.values()})


def _change(case: Case, name: str, found: CoarseScores) -> RemedyChange:
    tensor, fixed = case.facts.quantizers[name].tensor, found.fixed
    if fixed.spec.bits == WIDE_BITS:
        dtype = f"{'s' if fixed.spec.signed else 'u'}{WIDE_BITS}"
        return RemedyChange("bits", (tensor,), (found.softmax,), value=dtype)
    low, high = reach(fixed)
    return RemedyChange("range", (tensor,), (found.softmax,), low=low, high=high)
