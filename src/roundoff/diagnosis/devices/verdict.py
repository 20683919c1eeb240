"""The verdict on a device, in words."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

from roundoff.core.coverage import OutputCoverage
from roundoff.core.names import shown
from roundoff.diagnosis.devices.not_finite import NotFinite
from roundoff.diagnosis.devices.replay import Bench
from roundoff.diagnosis.devices.suspects import DeviceSuspect, Survey
from roundoff.diagnosis.investigation import Investigation
from roundoff.diagnosis.loss import ENDLESS, Loss
from roundoff.diagnosis.result import Diagnosis, DiagnosisKind, Finding
from roundoff.diagnosis.subject import loss_measures
from roundoff.messages.numbers import EXACT_DB, counted, decibels_text

__all__ = ["Evidence", "conclude", "kept_text"]

# A tensor whose error has this part of its energy is wrong; behind a culprit it is a victim.
_WRONG = 0.01
_MOST_VICTIMS = 12
# A device this much worse than its arithmetic has something wrong that no part shows.
_UNEXPLAINED_DB = 6.0


@dataclass(frozen=True, slots=True, eq=False)
class Evidence:
    """All that was found on a device.

    Attributes:
        bench: The device.
        survey: Errors of its tensors.
        findings: What was explained.
        suspects: Tensors that their inputs do not explain.
        loss: What the outputs lose; None when they were not dumped.
        expected: What they lose by their arithmetic, or with what was found put right; None without either.
        unexplained: Whether so many tensors are wrong that no part can be blamed.
        not_finite: Tensors that are not all numbers.
        outputs: Which outputs of the network were judged.
    """

    bench: Bench
    survey: Survey
    findings: tuple[Finding, ...]
    suspects: tuple[DeviceSuspect, ...]
    loss: Loss | None
    expected: Loss | None
    unexplained: bool
    not_finite: NotFinite
    outputs: OutputCoverage


def conclude(evidence: Evidence, notebook: Investigation) -> Diagnosis:
    """The diagnosis."""
    bench = evidence.bench
    findings = _numbered(evidence)
    kind = _kind(evidence, findings)
    loss = evidence.loss
    measures = () if loss is None else loss_measures(loss, evidence.expected or loss)
    return Diagnosis(
        reference=shown(bench.model.path),
        subject=notebook.settings.subject or shown(bench.readout.device.label),
        side="device",
        kind=kind,
        verdict=_sentence(kind, evidence, findings),
        findings=findings,
        measures=measures,
        victims=_victims(evidence, findings),
        checks=tuple(notebook.checks),
        not_looked_at=tuple(notebook.skipped),
        notes=tuple(notebook.notes),
        samples=len(bench.indices),
        outputs=evidence.outputs,
    )


def _numbered(evidence: Evidence) -> tuple[Finding, ...]:
    """Proven ones first; of these what the device computes wrongly before what was only read wrongly."""
    only_read = evidence.bench.believed
    ordered = sorted(
        evidence.findings,
        key=lambda each: (not each.proven, not only_read.isdisjoint(each.tensors), -each.share),
    )
    return tuple(replace(each, number=number) for number, each in enumerate(ordered, start=1))


def _kind(evidence: Evidence, findings: tuple[Finding, ...]) -> DiagnosisKind:
    if any(each.proven for each in findings):
        return "culprits"
    if findings or evidence.unexplained or evidence.not_finite.tensors:
        return "not_enough_evidence"
    loss, expected = evidence.loss, evidence.expected
    # What was not judged may be wrong: nothing good is said of a device whose outputs were not all seen.
    if loss is None or not evidence.outputs.complete or not evidence.bench.tensors:
        return "not_enough_evidence"
    if loss.agrees:
        return "healthy"
    if expected is not None and loss.excess_db(expected) > _UNEXPLAINED_DB:
        return "not_enough_evidence"
    return "not_enough_evidence" if _computes_in_float(evidence.bench) else "elsewhere"


def _computes_in_float(bench: Bench) -> bool:
    """Whether no quantization can be what costs the outputs: there is none, and no value lies on a grid."""
    return not bench.quantizers and bench.numbers.kind != "integer"


def _sentence(kind: DiagnosisKind, evidence: Evidence, findings: tuple[Finding, ...]) -> str:
    bench, loss = evidence.bench, evidence.loss
    tensors = counted(len(bench.tensors), "tensor")
    keeps = "" if loss is None else f"; the outputs keep {kept_text(loss)}"
    if kind == "culprits":
        return _culprits_text(bench, [each for each in findings if each.proven], keeps)
    if kind == "healthy":
        return f"nothing is wrong on the device: all {tensors} follow from what they read{keeps}"
    if kind == "elsewhere":
        return (
            f"nothing is wrong on the device: all {tensors} follow from what they read{keeps}: "
            "the quantization itself costs that"
        )
    if evidence.unexplained:
        wrong = len(evidence.suspects)
        return (
            f"{wrong} of {tensors} do not follow from what they read; is this the dump of "
            "this model, and of these samples?"
        )
    text = f"something is wrong on the device{keeps}, and no intervention proves what"
    if evidence.not_finite.tensors:
        text = f"tensors on the device are {evidence.not_finite.text}{keeps}"
    elif not findings and not evidence.outputs.complete:
        # What the others keep would read as if it were all of them.
        text = f"nothing wrong was found in {tensors}, but not every output of the network was judged"
    return text


def kept_text(loss: Loss) -> str:
    """What outputs keep, in words: decibels, or nothing where they are NaN or beyond all measure."""
    nothing = float(loss.ratios.max(initial=0.0)) >= ENDLESS
    if nothing:
        return "nothing (NaN, infinite, or beyond all measure)"
    return "everything (exact)" if loss.sqnr_db >= EXACT_DB else decibels_text(loss.sqnr_db)


def _culprits_text(bench: Bench, proven: Sequence[Finding], keeps: str) -> str:
    tensors = counted(len(bench.tensors), "tensor")
    if all(len(each.tensors) > 1 for each in proven):
        wrong = sum(len(each.tensors) for each in proven)
        return f"the device computes in another way than it should in {wrong} of {tensors}{keeps}"
    places = counted(len(proven), "place")
    if all(not bench.believed.isdisjoint(each.tensors) for each in proven):
        return f"the device computes what it should{keeps}, but its dump is wrong in {places}"
    return f"{places} of {tensors} on the device {'is' if len(proven) == 1 else 'are'} wrong{keeps}"


def _victims(evidence: Evidence, findings: tuple[Finding, ...]) -> tuple[str, ...]:
    """Tensors behind a culprit that are wrong and follow from what they read."""
    bench, total = evidence.bench, evidence.survey.total
    blamed = {name for each in findings for name in each.tensors}
    behind: set[str] = set()
    for name in blamed - bench.believed:
        behind |= bench.golden.behind(name)
    lost = dict.fromkeys(evidence.not_finite.tensors, math.inf)
    wrong = {name: lost.get(name, total[name]) for name in bench.tensors if name in behind - blamed}
    victims = [name for name, error in wrong.items() if error > _WRONG]
    return tuple(sorted(victims, key=lambda name: -wrong[name])[:_MOST_VICTIMS])
