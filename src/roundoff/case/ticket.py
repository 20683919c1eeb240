"""The text of a ticket: the form that chip makers ask for, filled in as far as a run knows."""

import shlex
from collections.abc import Iterator

from roundoff.case.result import CaseNumbers, Confidence, DumpFault, Ticket
from roundoff.diagnosis.result import Finding
from roundoff.messages.numbers import counted, number, percentage
from roundoff.messages.sanitize import harmless

__all__ = [
    "BY_HAND",
    "TEST_SCRIPT",
    "ticket_text",
]


BY_HAND = "[please fill in]"
"""Stands where only a person knows the answer."""

_QUESTIONS = (
    "Deployed on other platforms before",
    "Vendor, chip, version of its tools",
    "Quantization script or configuration there",
    "Command that quantizes there",
    "Metric; float / quantized / on the board",
)
_VERDICTS = {
    "fine": "the outputs agree; nothing stands out",
    "local": "few nodes make most of the loss, proven by putting them into float",
    "distributed": "the loss adds up over many nodes",
    "open": "not everything that decides it could be measured",
}


def ticket_text(ticket: Ticket) -> str:
    """The whole form, as plain text."""
    sections: tuple[tuple[str, list[str]], ...] = (
        (
            "1. Experience with other platforms (to be filled in by hand)",
            [f"{each}: {BY_HAND}" for each in _QUESTIONS],
        ),
        ("2. The fault" if ticket.faulty else "2. What was measured", list(_fault(ticket))),
        ("3. Minimal case", list(_case(ticket))),
        ("4. How to reproduce it", list(_reproduce(ticket))),
        ("5. Environment of the run", list(_environment(ticket))),
    )
    hidden = [*ticket.disguise, *(_confidence(ticket.confidence, ticket.verdict) if ticket.confidence else ())]
    if hidden:
        sections = (*sections, ("6. What was made unrecognizable", hidden))
    title = "Accuracy fault" if ticket.faulty else "Accuracy, no fault found"
    lines = [f"{title}: {_headline(ticket)}", ""]
    for title, content in sections:
        lines += [title, *(f"   {line}" for line in content), ""]
    return harmless("\n".join(lines), newlines=True)


def _headline(ticket: Ticket) -> str:
    if ticket.fault is not None:
        return f"{ticket.fault.tensor}, {_scores(ticket.fault.sqnr_db, ticket.fault.cosine)}"
    if ticket.numbers is None:
        return "unknown"
    return f"{ticket.numbers.output}, {_scores(ticket.numbers.sqnr_db, ticket.numbers.cosine)}"


def _scores(sqnr_db: float | None, cosine: float | None) -> str:
    return "no score" if sqnr_db is None else f"{number(sqnr_db)} dB, cosine {number(cosine, 6)}"


def _fault(ticket: Ticket) -> Iterator[str]:
    yield f"Found by: roundoff {ticket.kind}; {ticket.subject}"
    if ticket.target:
        yield f"Target: {ticket.target}"
    if ticket.verdict:
        yield f"Verdict: {ticket.verdict}"
    if ticket.fault is not None:
        yield from _dump(ticket.fault)
    if ticket.numbers is not None:
        yield from _numbers(ticket.numbers, judged=bool(ticket.verdict))
    for finding in ticket.findings:
        yield from _finding(finding, ticket.confidence)
    if ticket.whole is not None and ticket.numbers is not None:
        same = "the same" if ticket.whole == ticket.numbers else _scores(ticket.whole.sqnr_db, ticket.whole.cosine)
        yield f"On more of the worst samples: {same}"


def _finding(finding: Finding, confidence: Confidence | None) -> Iterator[str]:
    """A cause and its proof; what is said of a confidential network has no names and no values in it."""
    node = finding.nodes[0] if finding.nodes else "no single node"
    if confidence is not None and finding.nodes:
        node = confidence.names.get(node, "a node")
    yield f"Cause found: {finding.cause} at {node}, {percentage(finding.share)} of the loss"
    if confidence is None:
        yield f"   {finding.summary}"
        if finding.places > 1:
            yield f"   the places: {', '.join(finding.accused_nodes)}"
        yield f"   proven by: {finding.intervention or ''}"
    for measure in finding.measures[:1]:
        what = measure.what if confidence is None else "then"
        yield f"   {what}: {number(measure.before)} -> {number(measure.after)} {measure.unit}".rstrip()


def _dump(fault: DumpFault) -> Iterator[str]:
    where = {"introduces": "its inputs are right: the error starts here", "victim": "an input is wrong already"}
    yield f"Tensor: {fault.tensor}" + (f" ({fault.op_type})" if fault.op_type else "")
    if fault.role:
        yield f"   {where[fault.role]}"
    yield f"Against the reference: {_scores(fault.sqnr_db, fault.cosine)}" + (
        f"; {fault.kind}" if fault.kind else ""
    )


def _numbers(numbers: CaseNumbers, *, judged: bool) -> Iterator[str]:
    """What the samples show; where the run was judged by more than these, that verdict alone is told."""
    yield f"Output {numbers.output}: {_scores(numbers.sqnr_db, numbers.cosine)}"
    if not judged:
        yield f"Verdict: {numbers.verdict}: {_VERDICTS[numbers.verdict]}"
    for name, value in numbers.culprits.items():
        yield f"   made by {name}: {number(value)} dB at what it writes, its inputs being exact"
    if numbers.nodes:
        yield "Nodes that add most to the error at the outputs (estimated share; dB at their own result; cause):"
    for node in numbers.nodes[:5]:
        yield f"   {node.node} ({node.op_type}): {percentage(node.share)}; {number(node.sqnr_db)} dB; {node.cause}"


def _case(ticket: Ticket) -> Iterator[str]:
    yield f"Float model: {ticket.model}"
    if ticket.samples:
        yield f"Samples: {counted(len(ticket.samples), 'sample')} of {ticket.total}, the worst: " + ", ".join(
            ticket.samples
        )
        yield f"   verified: these alone show {'the fault' if ticket.faulty else 'these numbers'}"
    if ticket.recalibrated:
        yield f"   {ticket.recalibrated}"
    yield "Files:"
    for name, what in ticket.files.items():
        yield f"   {name}: {what}"


def _reproduce(ticket: Ticket) -> Iterator[str]:
    yield "python test_case.py"
    yield "   needs numpy and onnxruntime only; prints the numbers above, exit code 0 when they are met"
    yield from ticket.reproduce
    if ticket.original:
        yield f"The command of the run: {shlex.join(ticket.original)}"


def _environment(ticket: Ticket) -> Iterator[str]:
    environment = ticket.environment
    packages = ", ".join(f"{name} {version}" for name, version in environment.packages.items())
    yield f"roundoff {environment.roundoff}, Python {environment.python}, {packages}"
    yield environment.host
    yield environment.arithmetic
    yield f"Chip, board, version of the vendor's tools: {BY_HAND}"


def _confidence(confidence: Confidence, verdict: str) -> Iterator[str]:
    yield "Names of nodes, tensors, inputs and sizes are replaced; remarks and metadata are removed."
    yield f"Weights: {confidence.weights}"
    yield f"Samples: {confidence.data}"
    before = confidence.before
    word = "" if verdict else f"; {before.verdict}"
    yield f"The original shows: {_scores(before.sqnr_db, before.cosine)}{word}"
    for name, value in before.culprits.items():
        yield f"   made by {confidence.names.get(name, 'a node')}: {number(value)} dB"
    factor = f"errors within {number(confidence.close_db)} dB (a factor of two)"
    if confidence.reasons:
        yield f"NOT the same fault ({factor} were asked for): " + "; ".join(confidence.reasons)
    else:
        yield f"Verified: the same verdict, the same nodes, {factor} at {confidence.where}."


# The test script of a bundle: plain numpy and onnxruntime, the same text in every bundle.

TEST_SCRIPT = '''\
"""Shows the numbers of this bundle's ticket. Needs numpy and onnxruntime: python test_case.py"""

import json
import math
import os
import sys
from pathlib import Path

import numpy as np

HERE = Path(__file__).resolve().parent
# onnxruntime must not send anything; it reads this when it is imported.
os.environ["ORT_DISABLE_TELEMETRY"] = "1"
# Arithmetic differs in the last bits from machine to machine.
CLOSE_DB = 1.0


def scores(reference, candidate):
    """Signal to noise in decibels, and cosine."""
    a = np.asarray(reference, np.float64).ravel()
    b = np.asarray(candidate, np.float64).ravel()
    good = np.isfinite(a) & np.isfinite(b)
    a, b = a[good], b[good]
    signal, noise = float(a @ a), float((a - b) @ (a - b))
    db = math.inf if noise == 0 else (-math.inf if signal == 0 else 10 * math.log10(signal / noise))
    size = math.sqrt(signal * float(b @ b))
    return db, (float(a @ b) / size if size else float(signal == float(b @ b)))


def run(model, feed):
    """Outputs of a model by name, computed as its graph says."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.log_severity_level = 3
    session = onnxruntime.InferenceSession(str(HERE / model), options, providers=["CPUExecutionProvider"])
    return dict(zip([each.name for each in session.get_outputs()], session.run(None, feed)))


def pairs(case):
    """Name, reference and candidate of everything that is compared."""
    for sample in case["samples"]:
        feed = {name: np.load(HERE / path) for name, path in sample["inputs"].items()}
        if "quantized" in case:
            left, right = run(case["float"], feed), run(case["quantized"], feed)
            for name in case["outputs"]:
                yield f"{sample['name']}: {name}", left[name], right[name]
            continue
        computed = run(case["float"], feed) if feed else {}
        for name, paths in sample["tensors"].items():
            stored, candidate = (np.load(HERE / path) for path in paths)
            yield f"{sample['name']}: {name}", computed.get(name, stored), candidate


def main():
    case = json.loads((HERE / "case.json").read_text(encoding="utf-8"))
    worst = math.inf
    for name, reference, candidate in pairs(case):
        db, cosine = scores(reference, candidate)
        print(f"{name}: {db:.2f} dB, cosine {cosine:.6f}")
        worst = min(worst, db)
    expected = float(case["expected_sqnr_db"])
    print(f"worst {worst:.2f} dB, expected {expected:.2f} dB")
    met = worst == expected or abs(worst - expected) <= CLOSE_DB
    print("the numbers are those of the ticket" if met else "the numbers are NOT those of the ticket")
    return 0 if met else 1


if __name__ == "__main__":
    sys.exit(main())
'''
