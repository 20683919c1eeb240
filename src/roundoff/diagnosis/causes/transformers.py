"""Causes in transformers: masks among scores, coarse scores, norms, and outliers in the residual stream."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from weakref import WeakKeyDictionary

from roundoff.core.plan import Step
from roundoff.core.quantizers import Quantizer, dequantize
from roundoff.diagnosis.evidence import Observed
from roundoff.diagnosis.ideal import called, range_or_bits_suffice, tried
from roundoff.diagnosis.interventions import WIDE_BITS, reach, with_bits, with_range
from roundoff.diagnosis.registry import ENOUGH, Intervention, Signal, cause
from roundoff.diagnosis.result import Remedy, RemedyChange
from roundoff.diagnosis.subject import Case, Fixes, QuantizationFacts, Suspect
from roundoff.graph.nodes import producers
from roundoff.graph.transformers import MASK_LEVEL, Attention, ScoreOperand
from roundoff.messages.message import Argument, Message, message
from roundoff.quantize.transforms.clamp_mask import (
    CLAMP_MASK,
    observe_rows,
)

# Attention masks that share a scale with the scores they are added to, so that all scores become one; and masks
# that their own quantizer does not reach, so that padding is attended to.


@dataclass(frozen=True, slots=True)
class MaskedScores:
    """Quantizers whose range reaches down to a mask, or not far enough, and what is needed instead.

    Attributes:
        suspect: They, as one.
        ranges: The range of each tensor that leaves the mask out.
        limit: To what a mask can be limited without changing a bit.
        lowest: How far down their codes reach.
        scores: Where scores lie that are not masked.
        step: The coarsest of their steps.
        attentions: How many attentions they belong to.
        stored: What is left of masks that were lost; None where they set the scale.
    """

    suspect: Suspect
    ranges: dict[str, tuple[float, float]]
    limit: float
    lowest: float
    scores: tuple[float, float]
    step: float
    attentions: int
    stored: float | None

    def fixes(self, case: Case) -> Fixes:
        """The same bits over the scores that matter; a mask saturates."""
        members = [case.facts.quantizers[name] for name in self.suspect.quantizers]
        return {each.name: with_range(each, *self.ranges[each.tensor]) for each in members}


_KNOWN: WeakKeyDictionary[QuantizationFacts, MaskedScores | None] = WeakKeyDictionary()


def masked_scores(case: Case) -> MaskedScores | None:
    """The quantizers of a network whose range a mask sets; None where there are none."""
    if case.facts not in _KNOWN:
        _KNOWN[case.facts] = _masked_scores(case)
    return _KNOWN[case.facts]


def _masked_scores(case: Case) -> MaskedScores | None:
    needs = case.facts.masks
    if needs is None:
        return None
    single = [
        each
        for each in case.facts.quantizers.values()
        if each.kind != "bias" and each.params.scale.size == 1 and each.tensor in needs.ranges
    ]
    wide = [each for each in single if reach(each)[0] <= MASK_LEVEL]
    lost = [each for each in single if needs.missing(each.tensor, *_held(each))]
    found = [*wide, *(each for each in lost if each not in wide)]
    if not found:
        return None
    tensors = tuple(dict.fromkeys(each.tensor for each in found))
    nodes = tuple(dict.fromkeys(part.softmax for part in needs.parts))
    suspect = Suspect("", "activation", tuple(each.name for each in found), "", tensors, "", nodes)
    return MaskedScores(
        suspect,
        dict(needs.ranges),
        needs.limits.added,
        min(reach(each)[0] for each in found),
        (min(each.low for each in needs.rows), max(each.most for each in needs.rows)),
        max(float(each.params.scale.max()) for each in found),
        len(needs.parts),
        max(_depth(each, needs.moved.get(each.tensor)) for each in lost) if not wide else None,
    )


def _depth(quantizer: Quantizer, mask: ScoreOperand | None) -> float:
    """How far down its codes take scores."""
    low, high = _held(quantizer)
    return -high if mask is not None and mask.subtracted else low


def _held(quantizer: Quantizer) -> tuple[float, float]:
    """Smallest and largest value that it gives: of a constant whose codes are stored, those that these give."""
    if quantizer.codes is None:
        return reach(quantizer)
    values = dequantize(quantizer.codes, quantizer.params, quantizer.spec.axis)
    return float(values.min(initial=0.0)), float(values.max(initial=0.0))


@cause("attention-mask", of="quantization", order=5)
class AttentionMask:
    """A mask is added to attention scores and sets their scale, or is lost, so that padding is attended to."""

    def places(self, case: Case) -> tuple[Suspect, Fixes] | None:
        """All quantizers whose range a mask sets, as one, and what puts them right."""
        found = masked_scores(case)
        return None if found is None else (found.suspect, found.fixes(case))

    def signal(self, case: Case, suspect: Suspect) -> Signal | None:
        """How far down the codes of scores reach; asked once, for all of them."""
        found = None if suspect.name else masked_scores(case)
        if found is None:
            return None
        if found.stored is not None:
            return Signal(1.0, {"stored": found.stored, "needed": found.limit})
        span = found.scores[1] - found.scores[0]
        return Signal(1.0, {"lowest": found.lowest, "step": found.step, "levels_left": span / found.step})

    def intervene(self, case: Case, suspect: Suspect) -> Intervention | None:
        """The same bits over the scores that matter."""
        found = masked_scores(case)
        if found is None:
            return None
        low, high = found.scores
        return tried(
            case,
            found.suspect,
            found.fixes(case),
            changed=_mask_text("changed", found, low=low, high=high, limit=found.limit),
            summary=_mask_text(
                "summary",
                found,
                lowest=found.lowest,
                low=low,
                high=high,
                step=found.step,
                levels=max(1, int((high - low) / found.step) + 1),
                stored=found.stored or 0.0,
            ),
            changes=[
                RemedyChange("transform", found.suspect.tensors, found.suspect.nodes, step=Step(CLAMP_MASK)),
                *(
                    RemedyChange("range", (name,), low=ends[0], high=ends[1])
                    for name, ends in found.ranges.items()
                    if name in found.suspect.tensors
                ),
            ],
        )

    def remedy(self, case: Case, suspect: Suspect, proof: Intervention) -> Remedy:
        """Limit the mask, which costs nothing."""
        found = masked_scores(case)
        limit = MASK_LEVEL if found is None else found.limit
        return Remedy(message("diagnosis.attention_mask_remedy", limit=limit), "free", proof.changes)


def _mask_text(part: str, found: MaskedScores, **numbers: Argument) -> Message:
    kind = "mask" if found.stored is None else "mask_lost"
    return message(f"diagnosis.attention_{kind}_{part}", count=found.attentions, **numbers)


# Scores whose steps are too coarse for the exponential of a Softmax, and probabilities that become zero.

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


_KNOWN_SCORES: WeakKeyDictionary[QuantizationFacts, dict[str, CoarseScores]] = WeakKeyDictionary()


def coarse_scores(case: Case) -> Mapping[str, CoarseScores]:
    """By quantizer what is too coarse in the attentions of a network."""
    if case.facts not in _KNOWN_SCORES:
        _KNOWN_SCORES[case.facts] = dict(_coarse_scores(case))
    return _KNOWN_SCORES[case.facts]


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
        if _score_step(each, factor) >= _COARSE
    ]
    model = case.facts.quantized.float_model
    unique = tuple(dict.fromkeys(suspected))
    rows = observe_rows(model, case.runner.chosen, unique).rows if unique else {}
    for name, seen in rows.items():
        for tensor, factor in scaled[name][1].items():
            for each in of_tensor.get(tensor, ()):
                # What a mask puts there is another matter.
                if _score_step(each, factor) >= _COARSE and reach(each)[0] > MASK_LEVEL:
                    ends = sorted((seen.low / factor, seen.most / factor))
                    fixed = with_range(each, ends[0], ends[1])
                    fixed = fixed if _score_step(fixed, factor) < _COARSE else with_bits(fixed, WIDE_BITS)
                    yield each.name, CoarseScores(fixed, name, _score_step(each, factor), seen.low, seen.most)
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


def _score_step(quantizer: Quantizer, factor: float) -> float:
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


# Outliers in a transformer's residual stream: a few values set the scale, and the rest is rounded away.

# A normal tensor reaches four or five times its rms; one that reaches so many times that of a usual channel has a
# step of a sixth of it.
_RATIO = 20.0


_STREAMS: WeakKeyDictionary[QuantizationFacts, Suspect | None] = WeakKeyDictionary()


def _stream(case: Case) -> Suspect | None:
    """Tensors of the residual stream that a few values set the scale of, as one; None where there is but one.

    What a norm hands on is left out: products read it.
    """
    if case.facts not in _STREAMS:
        exits = {norm.exit for norm in case.facts.parts.norms}
        found = [
            each
            for each in case.facts.suspects
            if each.tensor not in exits and _reach(case, each) is not None and _can_be_wider(case, each)
        ]
        _STREAMS[case.facts] = None
        if len(found) > 1:
            names = tuple(dict.fromkeys(name for each in found for name in each.quantizers))
            tensors = tuple(dict.fromkeys(name for each in found for name in each.tensors))
            nodes = tuple(dict.fromkeys(name for each in found for name in each.nodes))
            _STREAMS[case.facts] = Suspect("", "activation", names, "", tensors, "", nodes)
    return _STREAMS[case.facts]


def _can_be_wider(case: Case, suspect: Suspect) -> bool:
    return all(case.facts.quantizers[name].spec.bits < WIDE_BITS for name in suspect.quantizers)


def _reach(case: Case, suspect: Suspect) -> float | None:
    """How far a tensor of the stream reaches beyond a usual channel's rms; None where that is no matter."""
    seen = case.facts.observed.get(suspect.tensor)
    if suspect.kind != "activation" or seen is None or not seen.usual_rms or not _in_stream(case, suspect):
        return None
    ratio = max(map(abs, seen.range)) / seen.usual_rms
    # A token that is large in all its channels is no outlier by the rms, which it makes.
    return ratio if ratio >= _RATIO or seen.sink is not None else None


@cause("residual-outliers", of="quantization", order=35)
class ResidualOutliers:
    """A few values of the residual stream set its scale, and the rest is rounded away."""

    def places(self, case: Case) -> tuple[Suspect, Fixes] | None:
        """All such tensors of a network, as one, and what puts them right."""
        suspect = _stream(case)
        if suspect is None:
            return None
        return suspect, {each.name: with_bits(each, WIDE_BITS) for each in _members(case, suspect)}

    def signal(self, case: Case, suspect: Suspect) -> Signal | None:
        """How far a tensor of the stream reaches beyond the rms of a usual channel."""
        one = suspect if suspect.name else _farthest(case, suspect)
        ratio = None if one is None else _reach(case, one)
        if one is None or ratio is None:
            return None
        seen = case.facts.observed[one.tensor]
        numbers = {"reach_over_rms": ratio}
        if not suspect.name:
            numbers["tensors"] = float(len(suspect.tensors))
        if seen.sink is not None:
            numbers |= {"sink_token": float(seen.sink.token), "sink_channel": float(seen.sink.channel)}
        return Signal(min(1.0, ratio / 100), numbers)

    def intervene(self, case: Case, suspect: Suspect) -> Intervention | None:
        """16 bits over the same range; a range that fits, where that would do, is another matter."""
        one = suspect if suspect.name else _farthest(case, suspect)
        if one is None or (suspect.name and range_or_bits_suffice(case, suspect)):
            return None
        members = _members(case, suspect)
        step = float(case.facts.quantizers[one.name].params.scale.max())
        changed = message("diagnosis.residual_outliers_changed", what=called(one), bits=WIDE_BITS)
        if not suspect.name:
            changed = message("diagnosis.residual_outliers_all", count=len(suspect.tensors), bits=WIDE_BITS)
        return tried(
            case,
            suspect,
            {each.name: with_bits(each, WIDE_BITS) for each in members},
            changed=changed,
            summary=_summary(one, case.facts.observed[one.tensor], step),
            changes=[_bits(case, suspect)],
        )

    def remedy(self, case: Case, suspect: Suspect, proof: Intervention) -> Remedy:
        """More bits for the stream."""
        if suspect.name:
            title = message("diagnosis.residual_outliers_remedy", what=called(suspect))
        else:
            title = message("diagnosis.residual_outliers_remedy_all", count=len(suspect.tensors))
        return Remedy(title, "16 bit", proof.changes)


def _farthest(case: Case, suspect: Suspect) -> Suspect | None:
    """The tensor of several that reaches farthest."""
    some = set(suspect.quantizers)
    mine = [each for each in case.facts.suspects if some.issuperset(each.quantizers)]
    return max(mine, key=lambda each: _reach(case, each) or 0.0, default=None)


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
        ratio=largest / seen.usual_rms,
        step=step,
        part=step / seen.usual_rms,
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


# Norms whose insides are rounded, or whose rows are: each is divided by its own size, which a step may exceed.

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
        part = _widest_step(case, suspect) / seen.row_rms
        return Signal(min(1.0, part), {"step_over_row_rms": part}) if part >= _PART_OF_ROW else None

    def intervene(self, case: Case, suspect: Suspect) -> Intervention | None:
        """16 bits; inside norms, nothing rounded where these are not enough."""
        inside, norms = _inside(case)
        if inside is not None and set(suspect.quantizers) <= set(inside.quantizers):
            return self._as_one(case, suspect, norms)
        if range_or_bits_suffice(case, suspect):
            return None
        seen, step = case.facts.observed[suspect.tensor], _widest_step(case, suspect)
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


def _widest_step(case: Case, suspect: Suspect) -> float:
    return max(float(each.params.scale.max()) for each in _members(case, suspect))


def _bits(case: Case, suspect: Suspect) -> RemedyChange:
    signed = _members(case, suspect)[0].spec.signed
    return RemedyChange("bits", suspect.tensors, suspect.nodes, value=f"{'s' if signed else 'u'}{WIDE_BITS}")


def _is_normalized(case: Case, suspect: Suspect) -> bool:
    """Whether a norm reads one of its tensors."""
    return bool({norm.entry for norm in case.facts.parts.norms} & set(suspect.tensors))
