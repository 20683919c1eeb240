"""The text of a ticket: the form that chip makers ask for, filled in as far as a run knows."""

import shlex
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Literal

from roundoff.case.excerpt import CaseNumbers
from roundoff.case.synthetic import Confidentiality
from roundoff.core.document import Environment
from roundoff.diagnosis.page import control_text
from roundoff.diagnosis.result import Finding
from roundoff.messages.message import Translatable, as_message, english, escape_control, joined, shown
from roundoff.messages.numbers import decibels_message, number, percentage, score_text

BY_HAND = english("[please fill in]")
"""Stands where only a person knows the answer."""

_QUESTIONS = (
    english("Deployed on other platforms before"),
    english("Vendor, chip, version of its tools"),
    english("Quantization script or configuration there"),
    english("Command that quantizes there"),
    english("Metric; float / quantized / on the board"),
)
_VERDICTS = {
    "fine": english("the outputs agree; nothing stands out"),
    "local": english("few nodes make most of the loss, proven by putting them into float"),
    "distributed": english("the loss adds up over many nodes"),
    "open": english("not everything that decides it could be measured"),
}


@dataclass(frozen=True, slots=True)
class DumpFault:
    """What a comparison of two sets of tensors shows.

    Attributes:
        tensor: The tensor at which the error starts, or the worst.
        op_type: What computes it; empty when unknown.
        role: Whether the error starts there.
        kind: What the difference looks like.
        sqnr_db: Signal to noise of the candidate in the sample chosen; None without a score.
        cosine: The same as a cosine.
    """

    tensor: str
    op_type: str
    role: Literal["introduces", "victim", ""]
    kind: str
    sqnr_db: float | None
    cosine: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Ticket:
    """Everything that the text of a ticket says.

    Attributes:
        kind: The command whose run it is.
        model: The float model, as it is called in the bundle's text.
        subject: What is wrong, in words: quantized how, or compared with what.
        numbers: What the samples in the bundle show; None for a comparison.
        fault: What a comparison shows; None otherwise.
        whole: What many samples show; None when not measured.
        samples: Names of the samples in the bundle.
        total: How many samples the run had.
        recalibrated: What calibrating on these samples alone gives, in words; empty when not tried.
        target: For which chip; empty when unknown.
        original: The command of the run, word by word; empty where it is confidential.
        reproduce: Commands that show the fault again, in the folder of the bundle.
        environment: Where the run was made.
        confidence: What was done to keep secrets; None when nothing was to be kept.
        findings: Causes that a diagnosis proved; of a confidential ticket, no more than their kind is told.
        disguise: What was done to keep the secrets of a comparison, a sentence each; empty when nothing was.
        files: What each file of the bundle is.
        verdict: What a diagnosis said of the whole run, in words; empty without one.
        faulty: Whether the run found anything wrong.
        missed: Whether it had a goal and did not reach it.
    """

    kind: str
    model: str
    subject: str
    environment: Environment
    numbers: CaseNumbers | None = None
    fault: DumpFault | None = None
    whole: CaseNumbers | None = None
    samples: tuple[str, ...] = ()
    total: int = 0
    recalibrated: str = ""
    target: str = ""
    original: tuple[str, ...] = ()
    reproduce: tuple[str, ...] = ()
    confidence: Confidentiality | None = None
    findings: tuple[Finding, ...] = ()
    disguise: tuple[str, ...] = ()
    files: Mapping[str, str] = field(default_factory=dict)
    verdict: str = ""
    faulty: bool = True
    missed: bool = False


def ticket_text(ticket: Ticket) -> str:
    """The whole form, as plain text."""
    sections: tuple[tuple[str, list[str]], ...] = (
        (
            english("1. Experience with other platforms (to be filled in by hand)"),
            [f"{shown(each)}: {shown(BY_HAND)}" for each in _QUESTIONS],
        ),
        (english("2. The fault") if ticket.faulty else english("2. What was measured"), list(_fault(ticket))),
        (english("3. Minimal case"), list(_case(ticket))),
        (english("4. How to reproduce it"), list(_reproduce(ticket))),
        (english("5. Environment of the run"), list(_environment(ticket))),
    )
    hidden = [*ticket.disguise, *(_confidence(ticket.confidence, ticket.verdict) if ticket.confidence else ())]
    if hidden:
        sections = (*sections, (english("6. What was made unrecognizable"), hidden))
    title = english("Accuracy fault") if ticket.faulty else english("Accuracy, no fault found")
    if ticket.missed:
        title = english("Accuracy goal missed")
    lines = [f"{shown(title)}: {shown(_headline(ticket))}", ""]
    for title, content in sections:
        lines += [shown(title), *(f"   {shown(line)}" for line in content), ""]
    return escape_control("\n".join(lines), newlines=True)


def _headline(ticket: Ticket) -> str:
    if ticket.fault is not None:
        return english(
            "{tensor}, {scores}",
            tensor=ticket.fault.tensor,
            scores=_scores(ticket.fault.sqnr_db, ticket.fault.cosine),
        )
    if ticket.numbers is None:
        return english("unknown")
    return english(
        "{output}, {scores}",
        output=ticket.numbers.output,
        scores=_scores(ticket.numbers.sqnr_db, ticket.numbers.cosine),
    )


def _scores(sqnr_db: float | None, cosine: float | None) -> str:
    if sqnr_db is None:
        return english("no score")
    return english("{db}, cosine {cosine}", db=decibels_message(sqnr_db), cosine=score_text("cosine", cosine))


def _fault(ticket: Ticket) -> Iterator[str]:
    yield english("Found by: roundoff {kind}; {subject}", kind=ticket.kind, subject=ticket.subject)
    if ticket.target:
        yield english("Target: {target}", target=ticket.target)
    if ticket.verdict:
        yield english("Verdict: {verdict}", verdict=ticket.verdict)
    if ticket.fault is not None:
        yield from _dump(ticket.fault)
    if ticket.numbers is not None:
        yield from _numbers(ticket.numbers, judged=bool(ticket.verdict), proven=bool(ticket.findings))
    for finding in ticket.findings:
        yield from _finding(finding, ticket.confidence)
    if ticket.whole is not None and ticket.numbers is not None:
        same = (
            english("the same")
            if ticket.whole == ticket.numbers
            else _scores(ticket.whole.sqnr_db, ticket.whole.cosine)
        )
        yield english("On more of the worst samples: {same}", same=same)


def _finding(finding: Finding, confidence: Confidentiality | None) -> Iterator[str]:
    """A cause and its proof; what is said of a confidential network has no names and no values in it."""
    node = finding.nodes[0] if finding.nodes else english("no single node")
    if confidence is not None and finding.nodes:
        node = confidence.names.get(node, "a node")
    yield english(
        "Cause found: {cause} at {node}, {share} of the loss",
        cause=finding.cause,
        node=node,
        share=percentage(finding.share),
    )
    if confidence is None:
        yield f"   {finding.summary}"
        if finding.places > 1:
            yield english("   the places: {accused_nodes}", accused_nodes=", ".join(finding.accused_nodes))
        yield english("   proven by: {intervention}", intervention=finding.intervention or "")
    for measure in (*finding.measures[:1], *finding.of_task):
        what = measure.what if confidence is None else "then"
        yield f"   {what}: {number(measure.before)} -> {number(measure.after)} {measure.unit}".rstrip()
    if finding.control is not None:
        yield english("   control: {control}", control=control_text(finding.control))


def _dump(fault: DumpFault) -> Iterator[str]:
    where = {
        "introduces": english("its inputs are right: the error starts here"),
        "victim": english("an input is wrong already"),
    }
    yield english(
        "Tensor: {tensor}{value}", tensor=fault.tensor, value=f" ({fault.op_type})" if fault.op_type else ""
    )
    if fault.role:
        yield f"   {where[fault.role]}"
    yield english(
        "Against the reference: {scores}{value}",
        scores=_scores(fault.sqnr_db, fault.cosine),
        value=f"; {fault.kind}" if fault.kind else "",
    )


def _numbers(numbers: CaseNumbers, *, judged: bool, proven: bool) -> Iterator[str]:
    """What the samples show; where the run was judged by more than these, that verdict alone is told."""
    yield english(
        "Output {output}: {scores}", output=numbers.output, scores=_scores(numbers.sqnr_db, numbers.cosine)
    )
    if not judged:
        yield english(
            "Verdict: {verdict}: {verdicts}", verdict=numbers.verdict, verdicts=_VERDICTS[numbers.verdict]
        )
    for name, value in numbers.culprits.items():
        yield english(
            "   made by {name}: {value} dB at what it writes, its inputs being exact",
            name=name,
            value=number(value),
        )
    if numbers.nodes and not (proven or numbers.culprits):
        yield english("No place is proven to make the loss. These lose most, not proven:")
    if numbers.nodes:
        yield english(
            "Nodes that add most to the error at the outputs (estimated share; dB at their own result; cause):"
        )
    for node in numbers.nodes[:5]:
        yield english(
            "   {node} ({op_type}): {share}; {sqnr_db} dB; {cause}",
            node=node.node,
            op_type=node.op_type,
            share=percentage(node.share),
            sqnr_db=number(node.sqnr_db),
            cause=node.cause,
        )


def _case(ticket: Ticket) -> Iterator[str]:
    yield english("Float model: {model}", model=ticket.model)
    if ticket.samples:
        yield english(
            "Samples: {count} {count:sample|samples} of {total}, the worst: {samples}",
            count=len(ticket.samples),
            total=ticket.total,
            samples=", ".join(ticket.samples),
        )
        yield english(
            "   verified: these alone show {which}",
            which=english("the fault") if ticket.faulty else english("these numbers"),
        )
    if ticket.recalibrated:
        yield "   " + ticket.recalibrated
    yield english("Files:")
    for name, what in ticket.files.items():
        yield english("   {name}: {what}", name=name, what=what)


def _reproduce(ticket: Ticket) -> Iterator[str]:
    yield english("python test_case.py")
    yield english("   needs numpy and onnxruntime only; prints the numbers above, exit code 0 when they are met")
    yield from ticket.reproduce
    if ticket.original:
        yield english("The command of the run: {original}", original=shlex.join(ticket.original))


def _environment(ticket: Ticket) -> Iterator[str]:
    environment = ticket.environment
    packages = ", ".join(f"{name} {version}" for name, version in environment.packages.items())
    yield english(
        "roundoff {roundoff}, Python {python}, {packages}",
        roundoff=environment.roundoff,
        python=environment.python,
        packages=packages,
    )
    yield environment.host
    yield Translatable(environment.arithmetic)
    yield english("Chip, board, version of the vendor's tools: {by_hand}", by_hand=BY_HAND)


def _confidence(confidence: Confidentiality, verdict: str) -> Iterator[str]:
    yield english("Names of nodes, tensors, inputs and sizes are replaced; remarks and metadata are removed.")
    yield english("Weights: {weights}", weights=confidence.weights)
    yield english("Samples: {data}", data=confidence.data)
    before = confidence.before
    word = "" if verdict else f"; {before.verdict}"
    yield english("The original shows: {scores}{word}", scores=_scores(before.sqnr_db, before.cosine), word=word)
    for name, value in before.culprits.items():
        yield english(
            "   made by {get}: {value} dB", get=confidence.names.get(name, "a node"), value=number(value)
        )
    factor = english("errors within {close_db} dB (a factor of two)", close_db=number(confidence.close_db))
    if confidence.reasons:
        yield english(
            "NOT the same fault ({factor} were asked for): {reasons}",
            factor=factor,
            reasons=joined(map(as_message, confidence.reasons)),
        )
    else:
        yield english(
            "Verified: the same verdict, the same nodes, {factor} at {where}.",
            factor=factor,
            where=confidence.where,
        )
