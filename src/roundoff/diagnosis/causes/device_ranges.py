"""Ranges that a tool gave tensors: far wider than the values, narrower, or one for parts of different size."""

import statistics
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from roundoff.core.quantizers import Quantizer, QuantSpec, fake_quantize, parameters_from_range
from roundoff.core.tensors import Array
from roundoff.diagnosis.devices.proof import called
from roundoff.diagnosis.devices.replay import DeviceReplay, Pair
from roundoff.diagnosis.devices.suspects import DeviceSuspect, OutputLoss, Survey
from roundoff.diagnosis.devices.tool_scales import activation_quantizers, codes_of
from roundoff.diagnosis.interventions import times_wider, with_range
from roundoff.diagnosis.loss import Loss
from roundoff.diagnosis.registry import Intervention, Signal, ask, cause, find_cause
from roundoff.diagnosis.result import Finding, Measure, Remedy, RemedyChange
from roundoff.diagnosis.subject import loss_measures
from roundoff.graph.interface import OutputPart, output_parts, outputs
from roundoff.graph.nodes import attribute, consumers, producers
from roundoff.graph.weights import Weights
from roundoff.measure.metrics import ratio_db
from roundoff.measure.verdicts import ValueTally
from roundoff.messages.message import Argument, message, short_name
from roundoff.tensors.ranges import (
    BOUNDED,
    FILLED,
    OBSERVED,
    WIDE,
    excess_range,
    least_excess,
    on_grid,
    shares_scale,
)
from roundoff.tensors.stored import ToolScale, scales_of

_WITHIN_STEPS, _EXPLAINED = 2.0, 0.999
_CAUSE = "wide-range"
_HELD = 4
_COSTS = 0.2
"""By itself it has no less than this part of what the outputs lose."""
_ROOM = 1.1
"""Samples that were not seen may need this much more than twice what was."""
_EIGHT_BITS = QuantSpec(bits=8, signed=False, symmetric=False)


@cause(_CAUSE, of="device", order=25)
class WideRange:
    """A range that is many times as wide as the values it is for; the tool's other ranges are not."""

    def signal(self, case: DeviceReplay, suspect: DeviceSuspect) -> Signal | None:
        """How many times as wide."""
        if suspect.flow == "dump only" or suspect.tensor not in case.tensors:
            return None
        excess = _excess(case, suspect.tensor)
        return None if excess is None else Signal(1.0, {"times_too_wide": excess})

    def intervene(self, case: DeviceReplay, suspect: DeviceSuspect) -> Intervention | None:
        """The same values rounded in a range that just holds them; how the tool's other ranges are."""
        scale, peak = case.scales.get(suspect.tensor), _peak(case, suspect.tensor)
        excess = _excess(case, suspect.tensor)
        if scale is None or excess is None:
            return None
        least = least_excess(scale, len(case.indices) * suspect.pairs[0].found.size)
        width = partial(_width, case, seen=least == OBSERVED)
        others = [width(name) for name in case.tensors if name != suspect.tensor and name in case.scales]
        usual = statistics.median([each for each in others if each > 0] or [1.0])
        low, high = _held_range(case, suspect.tensor, scale, excess)
        now, right = _with_range(case, suspect.tensor, scale, (low, high))
        sums = [0.0, 0.0, 0.0]
        for sample in suspect.places:
            exact = case.readout.exact(suspect.tensor, sample).astype(np.float64)
            sums[0] += float(np.square(exact).sum())
            for place, each in enumerate((now, right), start=1):
                rounded = fake_quantize(exact.astype(np.float32), each.params, each.spec)
                sums[place] += float(np.square(rounded - exact).sum())
        measures = [
            Measure(
                message("diagnosis.measure_device_rounding", tensor=called(suspect)),
                "dB",
                ratio_db(sums[0], sums[1]),
                ratio_db(sums[0], sums[2]),
                samples=len(suspect.pairs),
            )
        ]
        recovered = 1 - sums[2] / sums[1] if sums[1] > 0 else 0.0
        # Where all ranges are like that, it is how the tool works and no place in particular.
        if width(suspect.tensor) < least * max(1.0, usual):
            recovered = 0.0
        # Behind what is quiet in these samples a tensor is quiet, too, and its range is for others.
        used = 1.0 if scales_of(case.readout.device) else case.used_by(suspect.tensor)
        if used < 1 / FILLED and excess * used < least:
            recovered = 0.0
        outputs_lost = OutputLoss(case)
        if recovered and outputs_lost.can_tell:
            known = _told_quantizers(case) or case.eight_bits.quantizers
            others_on = [each for each in known if each.tensor != suspect.tensor]
            before, after = (outputs_lost.of_quantizers([*others_on, each]) for each in (now, right))
            measures += [each for each in loss_measures(before, after)[:1] if each.after > each.before]
            # A range that nobody tells of is guessed by its step, and may be for rarer samples: it is a fault
            # where it costs. What others lose falls otherwise with every change, so it is judged by itself.
            if not scales_of(case.readout.device):
                alone, held = (outputs_lost.of_quantizers([each]).value for each in (now, right))
                recovered *= held <= alone and alone >= _COSTS * outputs_lost.of_device().value
        summary = message(
            "diagnosis.wide_range_summary",
            tensor=called(suspect), low=scale.low, high=scale.high, peak=peak, times=excess,
            levels=max(1, round(peak / scale.scale)),
        )  # fmt: skip
        changes = (RemedyChange("range", nodes=suspect.nodes, tensors=(suspect.tensor,), low=low, high=high),)
        changed = message("diagnosis.wide_range_changed", count=len(others), usual=usual)
        return Intervention(changed, tuple(measures), recovered, summary, changes)

    def remedy(self, case: DeviceReplay, suspect: DeviceSuspect, proof: Intervention) -> Remedy:
        """Give it the range of its values, in the settings of the tool."""
        change = proof.changes[0]
        return Remedy(
            message("diagnosis.wide_range_remedy", tensor=called(suspect), low=change.low, high=change.high),
            "free",
            proof.changes,
        )


def _told_quantizers(case: DeviceReplay) -> Sequence[Quantizer]:
    """How the tool codes the network, as far as its files say so."""
    return case.quantizers or activation_quantizers(case.readout, case.model)


def _width(case: DeviceReplay, tensor: str, *, seen: bool) -> float:
    """How many times as wide as its values a range is, or as all that the tool saw; 0 where there is nothing."""
    scale = case.scales[tensor]
    observed = scale.observed if seen and scale.observed is not None else (0.0, 0.0)
    peak = max(_peak(case, tensor), *map(abs, observed))
    return scale.reach / peak if peak > 0 else 0.0


def wide_ranges(case: DeviceReplay) -> tuple[int, float]:
    """How many ranges are wider than their values need, and how many times in the middle of these.

    Returns:
        None of them where they are less than half of all and none is far too wide: some always are wider.
    """
    told = scales_of(case.readout.device)
    widths = [] if told else [_width(case, name, seen=False) for name in case.tensors if name in case.scales]
    wide = [each for each in widths if each >= FILLED]
    if not wide or (2 * len(wide) < len(widths) and max(wide) < WIDE):
        return 0, 0.0
    return len(wide), statistics.median(wide)


def roomy_quantizers(case: DeviceReplay) -> tuple[int, float, list[Quantizer]]:
    """How many ranges of the file are too wide for their values, how many times, and its quantizers with others.

    Returns:
        None of them where the one in the middle of all is no wider than samples that were not seen may need.
    """
    nodes = producers(case.model.proto.graph.node)
    held: dict[str, tuple[float, float]] = {}
    for name in {each.tensor for each in case.quantizers if each.kind == "activation"} & case.readout.pairs.keys():
        if name not in nodes or nodes[name].op_type not in BOUNDED:
            seen = [case.readout.exact(name, at) if name in nodes else case.feed(at)[name] for at in case.indices]
            held[name] = (
                min(0.0, *(float(each.min()) for each in seen)),
                max(0.0, *(float(each.max()) for each in seen)),
            )
    known = [each for each in case.quantizers if each.tensor in held and each.params.scale.size == 1]
    widths = {each.name: times_wider(each, held[each.tensor]) for each in known if any(held[each.tensor])}
    wide = {name for name, width in widths.items() if width >= FILLED}
    narrow = [with_range(each, *held[each.tensor]) if each.name in wide else each for each in case.quantizers]
    times = statistics.median(widths.values()) if widths else 0.0
    return (len(wide), times, narrow) if times > _ROOM * FILLED else (0, 0.0, narrow)


def _held_range(case: DeviceReplay, tensor: str, scale: ToolScale, excess: float) -> tuple[float, float]:
    """The range of the values; of all that the tool saw too, where that is far narrower than its range."""
    if scale.observed is None or max(map(abs, scale.observed)) * OBSERVED > scale.reach:
        return scale.low / excess, scale.high / excess
    values = [case.readout.exact(tensor, sample) for sample in case.indices]
    lows, highs = (float(each.min()) for each in values), (float(each.max()) for each in values)
    return min(0.0, scale.observed[0], *lows), max(0.0, scale.observed[1], *highs)


def _with_range(
    case: DeviceReplay, tensor: str, scale: ToolScale, ends: tuple[float, float]
) -> tuple[Quantizer, Quantizer]:
    """The quantizer of a tensor by the tool's scale, and the same with other ends."""
    known = next((each for each in _told_quantizers(case) if each.tensor == tensor and not each.after), None)
    spec, params = codes_of(scale) if known is None else (known.spec, known.params)
    readers = tuple(consumers(case.model.proto.graph.node)[tensor]) if known is None else known.consumers
    leaving = tensor in outputs(case.model)
    now = Quantizer(f"tool:{tensor}", tensor, "activation", spec, params, readers, output=leaving)
    return now, replace(now, params=parameters_from_range(*ends, spec))


def range_findings(case: DeviceReplay, found: Survey, accused: frozenset[str]) -> list[Finding]:
    """Ranges that are far too wide, of tensors that follow from what they read all the same."""
    findings: list[Finding] = []
    for name in case.tensors:
        if name in accused or _excess(case, name) is None:
            continue
        blamed = {tensor for each in findings for tensor in each.tensors}
        # What only hands values on has the range of what it reads.
        if any(
            shares_scale(case.scales[name], case.scales[each])
            for each in blamed.intersection(_neighbours(case, name))
        ):
            continue
        places = case.indices[:_HELD]
        pairs = tuple(case.pair(name, sample) for sample in places)
        nodes = case.spans[name].nodes
        suspect = DeviceSuspect(name, nodes, found.local[name], "flows on", pairs, places)
        asked = ask(find_cause(_CAUSE, "device"), case, suspect, nodes=nodes, tensors=(name,))
        if asked is not None and asked[0].proven:
            findings.append(asked[0])
    return findings


def follows_scale(case: DeviceReplay, suspect: DeviceSuspect) -> bool:
    """Whether a tensor is what the tool's own scale makes of it: rounded to steps, cut off where codes end."""
    scale = case.scales.get(suspect.tensor) if scales_of(case.readout.device) else None
    return scale is not None and all(_is_coded(pair, scale) for pair in suspect.pairs)


def _is_coded(pair: Pair, scale: ToolScale) -> bool:
    exact, found = pair.free.astype(np.float64), pair.found.astype(np.float64)
    if not np.isfinite(found).all() or not on_grid(found, scale.scale):
        return False
    difference = np.abs(np.clip(exact, scale.low, scale.high) - found)
    return float(np.mean(difference <= _WITHIN_STEPS * scale.scale)) >= _EXPLAINED


def _peak(case: DeviceReplay, tensor: str) -> float:
    """The largest magnitude of a tensor, in the float model and on the device."""
    sizes = [
        float(np.abs(values[np.isfinite(values)]).max(initial=0.0))
        for sample in case.indices
        for values in (case.readout.exact(tensor, sample), case.readout.read(tensor, sample))
    ]
    return max(sizes, default=0.0)


def _excess(case: DeviceReplay, tensor: str) -> float | None:
    """How many times as wide as its values a range is; None where it is not far too wide, or others need it."""
    scale = case.scales.get(tensor)
    if scale is None:
        return None
    values = [case.readout.read(tensor, sample) for sample in case.indices]
    excess = excess_range(scale, _peak(case, tensor), values, _bound(case, tensor))
    if excess is None or any(_fills(case, name, scale) for name in _neighbours(case, tensor)):
        return None
    return excess


def _fills(case: DeviceReplay, tensor: str, scale: ToolScale) -> bool:
    """Whether another tensor shares a scale and needs it: then the scale is not too wide for both."""
    other = case.scales.get(tensor)
    return other is not None and shares_scale(scale, other) and other.reach < FILLED * _peak(case, tensor)


def _neighbours(case: DeviceReplay, tensor: str) -> Iterator[str]:
    """Tensors that share a node with a tensor, and those beside them; also through what was not dumped."""
    graph = case.model.proto.graph
    near = {tensor}
    for _ in range(4):
        near |= {name for node in graph.node if not near.isdisjoint((*node.input, *node.output))
                 for name in (*node.input, *node.output)}  # fmt: skip
    yield from (name for name in near if name != tensor and name in case.readout.pairs)


def _bound(case: DeviceReplay, tensor: str) -> float:
    """What the operation in front of a tensor can give at most; 0 where it has no such end."""
    node = next((each for each in case.model.proto.graph.node if tensor in each.output), None)
    if node is None:
        return 0.0
    if node.op_type != "Clip":
        return BOUNDED.get(node.op_type, 0.0)
    weights = Weights(case.model)
    ends = [float(weights[name]) for name in node.input[1:] if name in weights]
    ends += [float(attribute(node, key, 0.0)) for key in ("min", "max")]
    return max(map(abs, ends), default=0.0)


# Codes that end before the values do.

# Cut off is what has this part of a tensor's energy; a range is to blame for no less of what the outputs lose, by
# no less than this many decibels.
_CUT_OFF, _LEAST_SHARE, _LEAST_DB = 1e-3, 0.3, 1.0
# What a line may leave of values whose scale it tells.
_FITTED = 0.1


def _ends(case: DeviceReplay, name: str) -> tuple[float, float]:
    values = [case.readout.read(name, sample) for sample in case.indices]
    return min(float(each.min()) for each in values), max(float(each.max()) for each in values)


def _cut_off(ends: tuple[float, float], right: Array, _written: Array) -> Array:
    return np.clip(right, *ends)


def clipping_findings(case: DeviceReplay, seen: OutputLoss, loss: Loss, accused: frozenset[str]) -> list[Finding]:
    """Tensors whose codes end before their values do, at the cost of the outputs.

    What is behind each is computed in float, with its values as they should be and with the same cut off.
    """
    findings = []
    kinds = {node.name: node.op_type for node in case.model.proto.graph.node}
    inputs = {name: _ends(case, name) for name in case.inputs}
    limits = {} if case.quantizers else {**inputs, **case.numbers.limits}
    for name, ends in limits.items():
        # The ends of codes are as uncertain as the scale that was fitted to them.
        fit = case.readout.fits.get(name)
        if name in accused or (fit is not None and fit.rest > _FITTED):
            continue
        # What a fault in front makes larger than the float model's values is cut off by right.
        held = [case.feed(at)[name] if name in inputs else case.readout.exact(name, at) for at in case.indices]
        values = np.concatenate([np.ravel(each) for each in held])
        off = np.square(values - np.clip(values, *ends), dtype=np.float64).sum()
        if not off > _CUT_OFF * np.square(values, dtype=np.float64).sum():
            continue
        whole = seen.behind(name, lambda right, _: right)
        cut = seen.behind(name, partial(_cut_off, ends))
        gain = cut.value - whole.value
        halves = [range(0, whole.samples, 2), range(1, whole.samples, 2)] if whole.samples > 1 else []
        lucky = any(cut.of_samples(half).value <= whole.of_samples(half).value for half in halves)
        measures = loss_measures(cut, whole)
        if lucky or gain < _LEAST_SHARE * loss.value or measures[0].after < measures[0].before + _LEAST_DB:
            continue
        given = name in inputs
        readers = [node.name for node in case.model.proto.graph.node if name in node.input]
        nodes = tuple(readers) if given else case.spans[name].nodes
        what = (
            message("diagnosis.called_input", tensor=name)
            if given
            else message("diagnosis.called_tensor", tensor=short_name(name), op=kinds[nodes[0]])
        )
        told: dict[str, Argument] = {
            "what": what,
            "low": ends[0],
            "high": ends[1],
            "wide_low": float(values.min()),
            "wide_high": float(values.max()),
        }
        low, high = min(0.0, float(values.min())), max(0.0, float(values.max()))
        change = RemedyChange("range", nodes=nodes, tensors=(name,), low=low, high=high)
        findings.append(
            Finding(
                number=0,
                cause="clipping",
                nodes=nodes,
                tensors=(name,),
                summary=message(
                    "diagnosis.clipping_summary",
                    **told,
                    share=float(np.mean((values < ends[0]) | (values > ends[1]))),
                ),
                intervention=message("diagnosis.clipping_device_changed", tensor=short_name(name)),
                measures=measures[:1],
                share=min(1.0, gain / loss.value) if loss.value else 0.0,
                remedy=Remedy(
                    message("diagnosis.wide_range_remedy", tensor=short_name(name), low=low, high=high),
                    "free",
                    (change,),
                ),
                proven=True,
            )
        )
    return findings


# Outputs that join parts of very different size under one scale.


def mixed_findings(case: DeviceReplay, accused: frozenset[str]) -> list[Finding]:
    """Joined outputs one part of which keeps only a few of its values."""
    shapes = {info.name: info.shape for info in case.readout.reference.tensors if not info.problem}
    named = {name: shapes[name] for name in outputs(case.model) if name in case.readout.pairs and name in shapes}
    parts = [each for each in output_parts(case.model, named, shapes) if each.axis is not None]
    makers = producers(case.model.proto.graph.node)
    findings = []
    for name in dict.fromkeys(each.output for each in parts):
        if name in accused:
            continue
        sample = case.indices[0]
        exact, found = case.readout.exact(name, sample), case.readout.read(name, sample)
        for part in (each for each in parts if each.output == name and exact.shape == found.shape):
            values = ValueTally()
            values.add(part.of(exact), part.of(found))
            if values.lost is not None:
                findings.append(_mixed(case, name, part, values.lost, _joining(name, makers)))
    return findings


def _mixed(case: DeviceReplay, name: str, part: OutputPart, left: tuple[int, int], node: str) -> Finding:
    """The finding of a joined output, with what its part keeps when it is rounded with a scale of its own."""
    sample = case.indices[0]
    exact = case.readout.exact(name, sample)
    others = [each for each in case.quantizers if each.tensor != name]
    joined_up = case.golden.with_quantizers(others).compute(name, case.view(sample))
    alone = part.of(joined_up).astype(np.float32)
    params = parameters_from_range(float(alone.min()), float(alone.max()), _EIGHT_BITS)
    own = np.unique(fake_quantize(alone, params, _EIGHT_BITS)).size
    before, after = left
    small, large = (float(np.abs(each).max()) for each in (part.of(exact), exact))
    return Finding(
        number=0,
        cause="mixed-range",
        nodes=(node,),
        tensors=(name,),
        summary=message(
            "diagnosis.mixed_part", node=node, part=part.source, tensor=name, count=after, all=before,
            small=small, large=large,
        ),
        intervention=message("diagnosis.mixed_part_changed", part=part.source, count=own),
        measures=(
            Measure(
                message("diagnosis.measure_mixed_part", part=part.source), "", float(after), float(own), samples=1
            ),
        ),
        remedy=Remedy(
            message("diagnosis.mixed_part_remedy", node=node),
            "nodes",
            (RemedyChange("report", nodes=(node,), tensors=(name,)),),
        ),
        proven=own > after,
    )  # fmt: skip


def _joining(name: str, makers: Mapping[str, Any]) -> str:
    node = makers[name]
    while node.op_type != "Concat" and node.input and node.input[0] in makers:
        node = makers[node.input[0]]
    return str(node.name or node.output[0])
