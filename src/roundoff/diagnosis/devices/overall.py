"""Findings of a device beside its single kernels: indices, exchanged names, rounding all over the network."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from roundoff.align.swapped import swapped_names, swapped_values
from roundoff.core.target import Arithmetic
from roundoff.core.tensors import Array
from roundoff.diagnosis.devices.proof import SHIFTED, arithmetics
from roundoff.diagnosis.devices.readout import DeviceView
from roundoff.diagnosis.devices.replay import DeviceReplay
from roundoff.diagnosis.devices.suspects import (
    DeviceSuspect,
    LocalError,
    Survey,
)
from roundoff.diagnosis.registry import ask, find_cause
from roundoff.diagnosis.result import Finding, Measure, Remedy, RemedyChange
from roundoff.graph.nodes import attribute
from roundoff.messages.message import Message, message

# Outputs of indices, such as those of ArgMax.


def index_findings(replay: DeviceReplay) -> list[Finding]:
    """Indices that are not those that the device's own tensors give."""
    findings = []
    views = [replay.readout.view(at, replay.feed(at)) for at in range(len(replay.readout.samples))]

    makers = {name: node for node in replay.model.proto.graph.node for name in node.output}

    def given(name: str) -> Callable[[int], Array]:
        return lambda at: _index_right(replay, makers[name], views[at], at)

    for name in replay.readout.indices:
        if not _was_dumped(replay, makers[name].input[0], makers):
            continue
        counts = replay.readout.equal_indices(name, given(name))
        if counts.state != "different":
            continue
        node, op_type = makers[name].name, makers[name].op_type
        what = message("diagnosis.measure_indices_equal")
        findings.append(
            Finding(
                number=0,
                cause="kernel-fault",
                nodes=(node,),
                tensors=(name,),
                summary=message(
                    "diagnosis.indices_wrong", op=op_type, count=counts.differing, all=counts.total, name=name
                ),
                intervention=message("diagnosis.indices_wrong_changed", op=op_type),
                measures=(Measure(what, "", counts.share, 1.0, samples=len(views)),),
                remedy=Remedy(
                    message("diagnosis.kernel_fault_remedy"),
                    "outside",
                    (RemedyChange("report", nodes=(node,), tensors=(name,)),),
                ),
                proven=True,
            )
        )
    return findings


def _was_dumped(replay: DeviceReplay, name: str, makers: Mapping[str, Any]) -> bool:
    """Whether a tensor was dumped, or one of which nothing but itself is computed."""
    while name not in replay.readout.pairs and name in makers and len(makers[name].input) == 1:
        name = makers[name].input[0]
    return name in replay.readout.pairs


# Values this part of their range apart are a step of 8 bits apart: which is larger is a matter of rounding.
_TIED = 1 / 127


def _index_right(replay: DeviceReplay, node: Any, view: DeviceView, at: int) -> Array:
    """Indices that the device's tensors give; its own where ArgMax found what rounding makes as good."""
    name = node.output[0]
    right = replay.golden.compute(name, view)
    found = replay.readout.index_values(name, at)
    if node.op_type not in ("ArgMax", "ArgMin") or found.shape != right.shape:
        return right
    read = node.input[0]
    values = np.asarray(view[read] if read in view else replay.golden.compute(read, view))
    axis = int(attribute(node, "axis", 0))
    wide = (
        (right, found)
        if attribute(node, "keepdims", 1)
        else [np.expand_dims(each, axis) for each in (right, found)]
    )
    inside = [np.clip(each, 0, values.shape[axis] - 1).astype(np.int64) for each in wide]
    own, other = (np.take_along_axis(values, each, axis) for each in inside)
    tied = np.abs(own - other) <= _TIED * float(np.ptp(values))
    return np.where((tied & (inside[1] == wide[1])).reshape(right.shape), found, right)


def swapped_findings(replay: DeviceReplay, findings: Sequence[Finding]) -> list[Finding]:
    """Tensors of a dump that carry each other's names, whether values undid that or they are wrong for it."""
    readout, sample = replay.readout, replay.indices[0]
    partners = {name: pair.candidate for name, pair in readout.pairs.items()}
    found = swapped_names(readout.reference.tensors, readout.device.tensors, partners)
    undone = set(found)
    wrong = [name for each in findings if each.proven for name in each.tensors[:1] if name in replay.tensors]
    found += swapped_values(
        dict.fromkeys(wrong), lambda name: readout.exact(name, sample), lambda name: readout.read(name, sample)
    )
    replay.believed.update(name for pair in undone for name in pair)
    return [
        Finding(
            number=0,
            cause="wrong-dump",
            nodes=tuple(replay.spans[name].nodes[0] for name in pair if name in replay.spans),
            tensors=pair,
            summary=message("diagnosis.swapped", first=pair[0], second=pair[1]),
            intervention=message("diagnosis.swapped_changed"),
            measures=tuple(
                Measure(
                    message("diagnosis.measure_swapped", tensor=one),
                    "",
                    _alike(readout.exact(one, sample), readout.exact(other, sample)),
                    1.0,
                    samples=1,
                )
                for one, other in (pair,)
            ),
            remedy=Remedy(message("diagnosis.swapped_remedy"), "outside", (RemedyChange("report", tensors=pair),)),
            proven=True,
        )
        for pair in found
    ]


def _alike(one: Array, other: Array) -> float:
    left, right = (np.asarray(each, np.float64).ravel() for each in (one, other))
    sizes = float(np.linalg.norm(left) * np.linalg.norm(right))
    return float(left @ right) / sizes if sizes and left.size == right.size else 0.0


# Devices that stay within a step of the reference and are off in the mean all the same.

_CAUSE = "integer-implementation"
# All over the network rather than here and there: so many tensors, and this part of those with codes.
_FEWEST, _SHARE = 3, 0.4
_TRIED_ON = 6
_HELD = 4
# Codes that must be right with the other arithmetic, of those that are not with the usual one.
_EXPLAINED = 0.8


def rounding_findings(replay: DeviceReplay, found: Survey, accused: frozenset[str]) -> list[Finding]:
    """Tensors whose codes are off to one side, one by one or as one finding when they are everywhere."""
    if not replay.quantizers:
        return []
    coded = [name for name in replay.tensors if name in replay.golden.coded and name not in accused]
    shifted = [name for name in coded if abs(found.local[name].mean_shift) > SHIFTED]
    if len(shifted) >= max(_FEWEST, _SHARE * len(coded)):
        finding = _everywhere(replay, shifted)
        return [] if finding is None else [finding]
    findings = []
    for name in shifted:
        places = replay.indices[:_HELD]
        pairs = tuple(replay.pair(name, sample) for sample in places)
        nodes = replay.spans[name].nodes
        suspect = DeviceSuspect(name, nodes, found.local[name], "flows on", pairs, places)
        asked = ask(find_cause(_CAUSE, "device"), replay, suspect, nodes=nodes, tensors=(name,))
        if asked is not None and asked[0].proven and _is_biased(asked[0]):
            findings.append(asked[0])
    return findings


def _is_biased(finding: Finding) -> bool:
    """Whether results are cut off; a factor of a few bits moves them by less than a step, which is no fault."""
    return finding.remedy is not None and any("rounds down" in each.value for each in finding.remedy.changes)


def _everywhere(replay: DeviceReplay, shifted: list[str]) -> Finding | None:
    """One way of rounding that explains all of them."""
    tried_on = shifted[:: max(1, len(shifted) // _TRIED_ON)][:_TRIED_ON]
    before = _wrong_share(replay, tried_on, None)
    best: tuple[float, Message] | None = None
    for how, arithmetic in arithmetics(replay.arithmetic):
        share = _wrong_share(replay, tried_on, arithmetic)
        if share < (before if best is None else best[0]):
            best = share, how
    if best is None or best[0] > (1 - _EXPLAINED) * before:
        return None
    after, how = best
    nodes = tuple(dict.fromkeys(replay.spans[name].nodes[0] for name in shifted))
    samples = len(replay.indices[:_HELD])
    what = message("diagnosis.measure_codes_differ")
    measure = Measure(what, "", before, after, higher_is_better=False, samples=samples)
    change = RemedyChange("report", nodes=nodes, tensors=tuple(shifted), value=str(how))
    title = message("diagnosis.integer_implementation_everywhere_remedy")
    return Finding(
        number=0,
        cause=_CAUSE,
        nodes=nodes,
        tensors=tuple(shifted),
        summary=message("diagnosis.integer_implementation_everywhere", how=how, count=len(shifted), share=before),
        evidence={"shifted_tensors": float(len(shifted))},
        intervention=message("diagnosis.integer_implementation_everywhere_changed", how=how),
        measures=(measure,),
        remedy=Remedy(title, "outside", (change,)),
        proven=True,
    )


def _wrong_share(replay: DeviceReplay, names: list[str], arithmetic: Arithmetic | None) -> float:
    """Share of codes that are not the reference's, with its own arithmetic or another."""
    golden = replay.golden if arithmetic is None else replay.golden.with_arithmetic(arithmetic)
    error = LocalError()
    for sample in replay.indices[:_HELD]:
        view = replay.view(sample)
        for name in names:
            pair = replay.pair(name, sample, view)
            error.add(golden.compute(name, view), pair.found, pair.expected)
    return 1 - error.same / max(1, error.count)


# Noise in all tensors, over their spread, that is worth telling.
_NOTICED_NOISE = 1e-3


def coarse_notes(replay: DeviceReplay) -> list[Message]:
    """What the whole device does, and no kernel in particular."""
    coarse, notes = replay.coarseness, []
    if replay.operands != replay.numbers.kind:
        notes.append(message(f"diagnosis.note_operands_{replay.operands}"))
    if coarse.weights:
        notes.append(message("diagnosis.note_coarse_weights"))
    if coarse.relative > _NOTICED_NOISE:
        notes.append(message("diagnosis.note_noise", share=coarse.relative))
    return notes
