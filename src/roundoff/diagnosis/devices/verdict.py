"""The verdict on a device, in words."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

from roundoff.core.coverage import OutputCoverage
from roundoff.core.names import shown
from roundoff.diagnosis.devices.not_finite import NotFinite
from roundoff.diagnosis.devices.replay import DeviceReplay
from roundoff.diagnosis.devices.suspects import DeviceSuspect, Survey
from roundoff.diagnosis.investigation import Investigation
from roundoff.diagnosis.loss import ENDLESS, Loss
from roundoff.diagnosis.result import Diagnosis, DiagnosisKind, Finding
from roundoff.diagnosis.subject import loss_measures
from roundoff.messages.message import Message, joined, message, verbatim
from roundoff.messages.numbers import EXACT_DB, decibels_text

__all__ = ["DeviceEvidence", "conclude", "kept_text"]

# A tensor whose error has this part of its energy is wrong; behind a culprit it is a victim.
_WRONG = 0.01
_MOST_VICTIMS = 12
# A device this much worse than its arithmetic has something wrong that no part shows.
_UNEXPLAINED_DB = 6.0


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


def conclude(evidence: DeviceEvidence, notebook: Investigation) -> Diagnosis:
    """The diagnosis."""
    replay = evidence.replay
    findings = _numbered(evidence)
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
    if findings or evidence.unexplained or evidence.not_finite.tensors:
        return "not_enough_evidence"
    loss, expected = evidence.loss, evidence.expected
    # What was not judged may be wrong: nothing good is said of a device whose outputs were not all seen.
    if loss is None or not evidence.outputs.complete or not evidence.replay.tensors:
        return "not_enough_evidence"
    if loss.agrees:
        return "healthy"
    if expected is not None and loss.excess_db(expected) > _UNEXPLAINED_DB:
        return "not_enough_evidence"
    return "not_enough_evidence" if _computes_in_float(evidence.replay) else "elsewhere"


def _computes_in_float(replay: DeviceReplay) -> bool:
    """Whether no quantization can be what costs the outputs: there is none, and no value lies on a grid."""
    return not replay.quantizers and replay.numbers.kind != "integer"


def _verdict(kind: DiagnosisKind, evidence: DeviceEvidence, findings: tuple[Finding, ...]) -> Message:
    kept = None if evidence.loss is None else kept_text(evidence.loss)
    if kind == "culprits":
        return _culprits_text(evidence.replay, [each for each in findings if each.proven], kept)
    tensors = len(evidence.replay.tensors)
    if kind == "healthy":
        return _with_kept(message("diagnosis.device_fine", count=tensors), kept)
    if kind == "elsewhere":
        if kept is None:
            return message("diagnosis.device_fine_costs", count=tensors)
        return _with_kept(message("diagnosis.device_fine", count=tensors), kept, "diagnosis.outputs_keep_costs")
    return _open_text(evidence, findings, kept)


def _open_text(evidence: DeviceEvidence, findings: tuple[Finding, ...], kept: Message | None) -> Message:
    """What can be said without a proof."""
    tensors = len(evidence.replay.tensors)
    if evidence.unexplained:
        wrong = message("diagnosis.device_not_following", count=len(evidence.suspects), all=tensors)
        return joined([wrong, message("diagnosis.device_right_dump_asked")])
    if evidence.not_finite.tensors:
        return _with_kept(message("diagnosis.device_not_finite", where=evidence.not_finite.text), kept)
    if not findings and not evidence.outputs.complete:
        # What the others keep would read as if it were all of them.
        return message("diagnosis.device_nothing_found", count=tensors)
    if kept is None:
        return message("diagnosis.device_wrong_no_proof")
    return _with_kept(message("diagnosis.device_wrong"), kept, "diagnosis.outputs_keep_no_proof")


def _with_kept(text: Message, kept: Message | None, key: str = "diagnosis.outputs_keep", **more: int) -> Message:
    """A verdict, and what the outputs keep where they were dumped."""
    return text if kept is None else joined([text, message(key, kept=kept, **more)])


def kept_text(loss: Loss) -> Message:
    """What outputs keep: decibels, or nothing where they are NaN or beyond all measure."""
    nothing = float(loss.ratios.max(initial=0.0)) >= ENDLESS
    if nothing:
        return message("diagnosis.kept_nothing")
    exact = loss.sqnr_db >= EXACT_DB
    return message("diagnosis.kept_everything") if exact else verbatim(decibels_text(loss.sqnr_db))


def _culprits_text(replay: DeviceReplay, proven: Sequence[Finding], kept: Message | None) -> Message:
    tensors, places = len(replay.tensors), len(proven)
    if all(len(each.tensors) > 1 for each in proven):
        wrong = sum(len(each.tensors) for each in proven)
        return _with_kept(message("diagnosis.device_computes_otherwise", count=wrong, all=tensors), kept)
    if all(not replay.believed.isdisjoint(each.tensors) for each in proven):
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
