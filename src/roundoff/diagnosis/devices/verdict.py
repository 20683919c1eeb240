"""The verdict on a device: what was found, what it rests on, and the words for it."""

import math
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from roundoff.core.coverage import Coverage, CoverageGap, Grade, Judgement, LeftOut, OutputCoverage, Share
from roundoff.core.names import shown
from roundoff.core.tensors import Array
from roundoff.diagnosis.devices.replay import DeviceReplay, NotFinite
from roundoff.diagnosis.devices.suspects import (
    ONE_KERNEL,
    DeviceSuspect,
    Survey,
)
from roundoff.diagnosis.investigation import Investigation
from roundoff.diagnosis.loss import ENDLESS, Loss
from roundoff.diagnosis.result import Diagnosis, DiagnosisKind, Finding, LayerErrors, ValuePairs
from roundoff.diagnosis.subject import loss_measures
from roundoff.graph.interface import topology
from roundoff.measure.classes import IndexCounts
from roundoff.measure.metrics import ratio_db
from roundoff.measure.verdicts import index_doubts, usual_limits
from roundoff.messages.message import Message, joined, message, short_name, verbatim
from roundoff.messages.numbers import EXACT_DB, decibels_text, shape_text
from roundoff.studies.compare.coverage import files_share, left_out, unplaced_files

# A tensor whose error has this part of its energy is wrong; behind a culprit it is a victim.
_WRONG = 0.01
_MOST_VICTIMS = 12
# Findings, places and samples of each that are drawn, values of a picture, where what has no decibels is drawn.
_DRAWN, _POINTS, _LOWEST_DB = 4, 300, -99.0
# A device this much worse than its arithmetic has something wrong that no part shows.
_UNEXPLAINED_DB = 6.0
COARSER_CODES_DB = 3.0
"""One scale for each tensor is the coarsest that 8 bits are used with; what fitted scales hide comes on top."""


@dataclass(frozen=True, slots=True, eq=False)
class DeviceEvidence:
    """All that was found on a device.

    Attributes:
        replay: The device.
        survey: Errors of its tensors.
        findings: What was explained.
        suspects: Tensors that their inputs do not explain.
        loss: What the outputs lose; None when they were not dumped.
        expected: What they lose by their arithmetic, or with what was found put right; None without either.
        unexplained: Whether so many tensors are wrong that no part can be blamed.
        not_finite: Tensors that are not all numbers.
        outputs: Which outputs of the network were judged.
        indices: How many are equal of those that hold indices.
        open: Why outputs that keep what is usual are no ground for a good verdict; None where they are.
    """

    replay: DeviceReplay
    survey: Survey
    findings: tuple[Finding, ...]
    suspects: tuple[DeviceSuspect, ...]
    loss: Loss | None
    expected: Loss | None
    unexplained: bool
    not_finite: NotFinite
    outputs: OutputCoverage
    indices: Mapping[str, IndexCounts] = field(default_factory=dict)
    open: Message | None = None

    @property
    def differing(self) -> tuple[str, IndexCounts] | None:
        """The output of indices of which most differ, where more do than is usual."""
        wrong = [pair for pair in self.indices.items() if pair[1].state == "different"]
        return min(wrong, key=lambda pair: pair[1].share, default=None)


def conclude(evidence: DeviceEvidence, notebook: Investigation) -> Diagnosis:
    """The diagnosis."""
    replay = evidence.replay
    findings = _with_pairs(_numbered(evidence), evidence)
    kind = _kind(evidence, findings)
    loss = evidence.loss
    measures = () if loss is None else loss_measures(loss, evidence.expected or loss)
    return Diagnosis(
        reference=shown(replay.model.path),
        subject=notebook.settings.subject or verbatim(shown(replay.readout.device.label)),
        side="device",
        kind=kind,
        verdict=_verdict(kind, evidence, findings),
        findings=findings,
        measures=measures,
        victims=_victims(evidence, findings),
        checks=tuple(notebook.checks),
        not_looked_at=tuple(notebook.skipped),
        notes=tuple(notebook.notes),
        samples=len(replay.indices),
        outputs=evidence.outputs,
        judgement=_judgement(evidence, kind),
        layers=_layer_errors(evidence),
    )


def _judgement(evidence: DeviceEvidence, kind: DiagnosisKind) -> Judgement:
    """The grade of the outputs, and what of network, dump and samples was judged."""
    replay, readout = evidence.replay, evidence.replay.readout
    computed = [name for node in topology(replay.model).nodes for name in node.outputs]
    judged = {*replay.tensors, *readout.indices.keys() & set(evidence.outputs.judged)}
    lost = [name for name in computed if name not in judged]
    # A quantized model does not say how what leads to no output is computed.
    unused = [name for name in lost if name in readout.pairs and name not in replay.needed]
    alone = [name for name in lost if name not in set(unused)]
    files = readout.device.tensors
    taken = {pair.candidate for pair in (*readout.pairs.values(), *readout.indices.values())}
    spare = [info for info in files if info.name not in taken]
    fed, used = max(len(readout.reference.samples), len(readout.device.samples)), len(replay.indices)
    lacking = fed - len(readout.samples)
    few = (LeftOut("unmatched", lacking), LeftOut("few_suffice", fed - lacking - used))
    coverage = Coverage(
        evidence.outputs,
        tensors=Share(
            len(computed), len(computed) - len(lost), left_out(("unmatched", alone), ("unused", unused))
        ),
        samples=Share(fed, used, tuple(each for each in few if each.count)),
        files=files_share(files, spare, readout.copies),
        gap=_gap(evidence, computed, judged),
        unplaced=unplaced_files(
            spare, [info for info in readout.reference.tensors if info.name in set(lost)], readout.copies
        ),
    )
    grade: Grade = "no_evidence"
    if evidence.differing is not None or (evidence.loss is not None and not evidence.loss.agrees):
        grade = "lossy"
    elif evidence.loss is not None and not evidence.outputs.complete:
        grade = "incomplete"
    elif kind in ("healthy", "culprits"):
        grade = "fine"
    return Judgement(grade, coverage, index_doubts(evidence.indices), limits=usual_limits().describe())


def _gap(evidence: DeviceEvidence, computed: Sequence[str], judged: Collection[str]) -> CoverageGap | None:
    """Tensors in front of the first wrong one that were not compared; None where the one before it was."""
    wrong = {each.tensor for each in evidence.suspects}
    first = next((at for at, name in enumerate(computed) if name in wrong), 0)
    before = next((at for at in range(first - 1, -1, -1) if computed[at] in judged), -1)
    missing = first - before - 1
    return (
        CoverageGap(computed[before] if before >= 0 else "", computed[first], missing)
        if first and missing
        else None
    )


def _numbered(evidence: DeviceEvidence) -> tuple[Finding, ...]:
    """Proven ones first; of these what the device computes wrongly before what was only read wrongly."""
    only_read = evidence.replay.believed
    ordered = sorted(
        evidence.findings,
        key=lambda each: (not each.proven, not only_read.isdisjoint(each.tensors), -each.share),
    )
    return tuple(replace(each, number=number) for number, each in enumerate(ordered, start=1))


def _kind(evidence: DeviceEvidence, findings: tuple[Finding, ...]) -> DiagnosisKind:
    if any(each.proven for each in findings):
        return "culprits"
    if findings or evidence.unexplained or evidence.not_finite.tensors or evidence.differing:
        return "not_enough_evidence"
    loss, expected = evidence.loss, evidence.expected
    # What was not judged may be wrong: nothing good is said of a device whose outputs were not all seen.
    # Without other outputs than indices there is no loss; they were judged as such.
    measured = loss is not None or set(evidence.outputs.judged) <= set(evidence.replay.readout.indices)
    seen = evidence.replay.tensors or evidence.outputs.judged
    excess = 0.0 if loss is None or expected is None else loss.excess_db(expected)
    # Where tensors are far apart none of them shows a kernel that is slightly wrong; the outputs do.
    wide = any(len(span.nodes) > ONE_KERNEL for span in evidence.replay.spans.values())
    if not measured or not evidence.outputs.complete or not seen or (wide and excess > COARSER_CODES_DB):
        return "not_enough_evidence"
    if evidence.open is None and (loss is None or loss.agrees):
        return "healthy"
    if excess > _UNEXPLAINED_DB or evidence.open is not None:
        return "not_enough_evidence"
    return "not_enough_evidence" if computes_in_float(evidence.replay) or _far_apart(evidence) else "elsewhere"


def _far_apart(evidence: DeviceEvidence) -> int:
    """Nodes between what was dumped, where so many that rounding all of them excuses any kernel; else 0.

    Without the quantized model what 8 bits may cost is a guess; over more than one kernel it says nothing.
    """
    replay, total = evidence.replay, evidence.survey.total
    wrong = [] if replay.quantizers else [name for name in replay.tensors if total[name] > _WRONG]
    widest = max((len(replay.spans[name].nodes) for name in wrong), default=0)
    return widest if widest > ONE_KERNEL else 0


def computes_in_float(replay: DeviceReplay) -> bool:
    """Whether no quantization can be what costs the outputs: there is none, and no value lies on a grid."""
    return not replay.quantizers and replay.numbers.kind != "integer"


def _verdict(kind: DiagnosisKind, evidence: DeviceEvidence, findings: tuple[Finding, ...]) -> Message:
    kept = None if evidence.loss is None else output_sqnr_text(evidence.loss)
    if kind == "culprits":
        return _culprits_text(evidence.replay, [each for each in findings if each.proven], kept)
    tensors = len(evidence.replay.tensors)
    if kind == "healthy":
        return _with_kept(_fine_text(evidence), kept)
    if kind == "elsewhere":
        if kept is None:
            return message("diagnosis.device_fine_costs", count=tensors)
        return _with_kept(message("diagnosis.device_fine", count=tensors), kept, "diagnosis.outputs_keep_costs")
    return _open_text(evidence, findings, kept)


def _fine_text(evidence: DeviceEvidence) -> Message:
    """That nothing is wrong, with those named that are off by too little to be a fault."""
    if not evidence.replay.tensors:
        counts = [evidence.indices[name] for name in evidence.outputs.judged]
        equal, total = sum(each.equal for each in counts), sum(each.total for each in counts)
        return message("diagnosis.device_fine_indices", count=equal, all=total)
    tensors, beside = len(evidence.replay.tensors), [short_name(each.tensor) for each in evidence.suspects]
    if not beside:
        return message("diagnosis.device_fine", count=tensors)
    names = beside[0] if len(beside) == 1 else message("terminal.and_more", names=beside[0], count=len(beside) - 1)
    return message(
        "diagnosis.device_fine_beside", count=tensors - len(beside), all=tensors, names=names, others=len(beside)
    )


def _open_text(  # noqa: PLR0911 - one for each reason
    evidence: DeviceEvidence, findings: tuple[Finding, ...], kept: Message | None
) -> Message:
    """What can be said without a proof."""
    tensors = len(evidence.replay.tensors)
    if evidence.unexplained:
        wrong = message("diagnosis.device_not_following", count=len(evidence.suspects), all=tensors)
        return joined([wrong, message("diagnosis.device_right_dump_asked")])
    if evidence.not_finite.tensors:
        return _with_kept(message("diagnosis.device_not_finite", where=evidence.not_finite.text), kept)
    if not findings and evidence.differing is not None:
        name, counts = evidence.differing
        return message("diagnosis.device_indices", name=name, count=counts.differing, all=counts.total)
    if not findings and not evidence.outputs.complete:
        # What the others keep would read as if it were all of them.
        return message("diagnosis.device_nothing_found", count=tensors)
    if kept is None:
        return message("diagnosis.device_wrong_no_proof")
    if not findings and not computes_in_float(evidence.replay) and (nodes := _far_apart(evidence)):
        return evidence.open or message("diagnosis.device_cannot_tell", kept=kept, count=nodes)
    wrong = _with_kept(message("diagnosis.device_wrong"), kept, "diagnosis.outputs_keep_no_proof")
    return wrong if findings else evidence.open or wrong


def _with_kept(text: Message, kept: Message | None, key: str = "diagnosis.outputs_keep", **more: int) -> Message:
    """A verdict, and what the outputs keep where they were dumped."""
    return text if kept is None else joined([text, message(key, kept=kept, **more)])


def output_sqnr_text(loss: Loss) -> Message:
    """What outputs keep: decibels, or nothing where they are NaN or beyond all measure."""
    nothing = float(loss.ratios.max(initial=0.0)) >= ENDLESS
    if nothing:
        return message("diagnosis.kept_nothing")
    exact = loss.sqnr_db >= EXACT_DB
    return message("diagnosis.kept_everything") if exact else verbatim(decibels_text(loss.sqnr_db))


def _culprits_text(replay: DeviceReplay, proven: Sequence[Finding], kept: Message | None) -> Message:
    tensors, places = len(replay.tensors), len(proven)
    exchanged = all(each.cause == "wrong-dump" for each in proven)
    if not exchanged and all(len(each.tensors) > 1 for each in proven):
        wrong = sum(len(each.tensors) for each in proven)
        return _with_kept(message("diagnosis.device_computes_otherwise", count=wrong, all=tensors), kept)
    if exchanged or all(not replay.believed.isdisjoint(each.tensors) for each in proven):
        if kept is None:
            return message("diagnosis.device_right_dump", count=places)
        right = message("diagnosis.device_right")
        return _with_kept(right, kept, "diagnosis.outputs_keep_dump", count=places)
    return _with_kept(message("diagnosis.device_places_wrong", count=places, all=tensors), kept)


def _victims(evidence: DeviceEvidence, findings: tuple[Finding, ...]) -> tuple[str, ...]:
    """Tensors behind a culprit that are wrong and follow from what they read."""
    replay, total = evidence.replay, evidence.survey.total
    blamed = {name for each in findings for name in each.tensors}
    behind: set[str] = set()
    for name in blamed - replay.believed:
        behind |= replay.golden.behind(name)
    lost = dict.fromkeys(evidence.not_finite.tensors, math.inf)
    wrong = {name: lost.get(name, total[name]) for name in replay.tensors if name in behind - blamed}
    victims = [name for name, error in wrong.items() if error > _WRONG]
    return tuple(sorted(victims, key=lambda name: -wrong[name])[:_MOST_VICTIMS])


# What the page draws: the error along the network, and what the device wrote beside what it should have.


def _layer_errors(evidence: DeviceEvidence) -> LayerErrors | None:
    """What every tensor loses by itself and against the float model, in execution order."""
    replay, local, total = evidence.replay, evidence.survey.local, evidence.survey.total
    shapes = {info.name: info.shape for info in replay.readout.reference.tensors}
    nodes = {name: node.name for node in topology(replay.model).nodes for name in node.outputs}
    tensors = tuple(name for name in nodes if name in local)
    if not tensors:
        return None
    blank = (None,) * len(tensors)
    units = tuple(nodes[name] for name in tensors)
    return LayerErrors(
        tuple(replay.readout.samples[at][0] for at in replay.indices),
        nodes=units,
        units=units,
        tensors=tensors,
        shapes=tuple(shape_text(shapes.get(name) or ()) for name in tensors),
        dtypes=("",) * len(tensors),
        outputs=tuple(name in evidence.outputs.judged for name in tensors),
        local_db=tuple(_drawn_db(local[name].sqnr_db) for name in tensors),
        accumulated_db=tuple(_drawn_db(ratio_db(1.0, total[name])) for name in tensors),
        cosine=blank,
        rms_steps=blank,
        clipped=blank,
        worst_channel=blank,
        worst_channel_db=blank,
    )


def _drawn_db(value: float) -> float:
    """Decibels of a picture: what has none at all is drawn at the lower edge."""
    return round(value, 2) + 0.0 if value > _LOWEST_DB else _LOWEST_DB


def _with_pairs(findings: Sequence[Finding], evidence: DeviceEvidence) -> tuple[Finding, ...]:
    """Findings, the first proven ones with values of the device beside those that its own inputs give."""
    replay = evidence.replay
    known = {each.tensor: each.pairs for each in evidence.suspects}
    drawn = [each for each in findings if each.proven][:_DRAWN]

    def pairs(finding: Finding) -> Iterator[ValuePairs]:
        for at, name in enumerate(finding.tensors[: min(finding.places, _DRAWN)]):
            seen = known.get(name, ())
            if not seen and name in replay.tensors:
                seen = tuple(replay.pair(name, sample) for sample in replay.indices[:_DRAWN])
            exact, found = (
                np.concatenate([np.ravel(side).astype(np.float64) for side in sides] or [np.zeros(0)])
                for sides in ([each.exact for each in seen], [each.found for each in seen])
            )
            sound = np.isfinite(exact) & np.isfinite(found)
            if np.count_nonzero(sound) > 1:
                node = finding.nodes[at] if at < len(finding.nodes) else ""
                yield value_pairs(node, name, exact[sound], found[sound])

    return tuple(replace(each, pairs=tuple(pairs(each))) if each in drawn else each for each in findings)


def value_pairs(node: str, tensor: str, exact: Array, found: Array) -> ValuePairs:
    """Some of the values of a device beside those that they should be, and the line through all of them.

    Args:
        node: The node to blame.
        tensor: The tensor.
        exact: What it should hold; finite.
        found: What the device wrote; finite, and as many.
    """
    spread, both = float(np.var(exact)), float(np.mean((exact - exact.mean()) * (found - found.mean())))
    gain = both / spread if spread > 0 else 0.0
    whole = math.sqrt(spread * float(np.var(found)))
    order = np.argsort(exact, kind="stable")
    some = order[np.unique(np.linspace(0, order.size - 1, min(order.size, _POINTS)).round().astype(np.intp))]

    def short(value: float) -> float:
        return float(f"{value:.4g}")

    return ValuePairs(
        node,
        tensor,
        tuple(short(each) for each in exact[some]),
        tuple(short(each) for each in found[some]),
        short(gain),
        short(float(found.mean()) - gain * float(exact.mean())),
        short(both / whole if whole > 0 else 0.0),
    )
