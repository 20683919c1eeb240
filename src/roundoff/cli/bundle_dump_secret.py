"""The confidential bundle of a device's fault: two tensors without names, in which nothing can be recognised."""

import argparse
import json
from dataclasses import replace
from typing import TYPE_CHECKING

from roundoff.api.comparison import ComparedSides as Sides
from roundoff.cli.bundle import Packed
from roundoff.cli.bundle_dump import is_faulty, npy

if TYPE_CHECKING:
    from roundoff.case.result import DumpFault
    from roundoff.core.document import RunDocument
    from roundoff.core.tensors import Array

__all__ = ["pack_secret"]

_NAME, _SAMPLE = "tensor_0", "sample_0"
_FILES = ("tensors/reference.npy", "tensors/candidate.npy")
_WHAT = {
    "TICKET.txt": "this form",
    "test_case.py": "shows the numbers of this form with numpy alone",
    "case.json": "what the script compares, and what it should find",
    _FILES[0]: "the tensor in the reference, its elements in another order",
    _FILES[1]: "the same in the candidate, in that order",
    "environment.json": "versions and host",
}
_DONE = (
    "The names of tensor, sample and files are replaced; the operation is kept.",
    "Elements of each channel are in another order, the same in both tensors: values remain, pictures do not.",
    "Verified: the same error, to the last bit, and the same kind of difference.",
    "The model is left out: what a device computed with its weights cannot be computed again with others.",
)


def pack_secret(
    args: argparse.Namespace,
    document: "RunDocument",
    fault: "DumpFault",
    *,
    arrays: "tuple[Array, Array]",
    sides: Sides,
) -> Packed:
    """Mix the elements of both tensors alike, and verify that the fault is still there."""
    from roundoff.case.mixing import mixed_alike
    from roundoff.messages.numbers import counted, number

    mixed = mixed_alike(*arrays, seed=args.seed)
    kind = f"; {fault.kind}" if fault.kind else ""
    scores = f"{number(fault.sqnr_db)} dB, cosine {number(fault.cosine, 6)}{kind}"
    lines = [
        ("fault" if is_faulty(document) else "result", f"{_NAME}: {scores}"),
        ("values", f"{counted(arrays[0].size, 'element')} in another order"),
    ]
    reasons = list(mixed.reasons)
    if fault.kind == "layout":
        reasons.append("axes that were exchanged cannot be seen when elements are in another order")
    if reasons:
        lines += [("" if at else "lacks", reason) for at, reason in enumerate(reasons)]
        lines.append(("instead", "send the bundle without --confidential, or 'roundoff reproduce' of a diagnosis"))
        return Packed({}, None, tuple(lines), shown=False)
    members = _members(document, fault, (mixed.reference, mixed.candidate))
    _check(members, document, sides, fault)
    names = {"nodes and tensors": {fault.tensor: _NAME}, "others": {}}
    return Packed(members, names, tuple(lines), shown=True)


def _members(document: "RunDocument", fault: "DumpFault", arrays: "tuple[Array, Array]") -> dict[str, bytes]:
    from roundoff.case.result import Ticket
    from roundoff.case.ticket import TEST_SCRIPT, ticket_text
    from roundoff.cli.bundle_case import environment_text

    place = {"name": _SAMPLE, "inputs": {}, "tensors": {_NAME: list(_FILES)}}
    description = {"float": "", "samples": [place], "expected_sqnr_db": fault.sqnr_db}
    accused = () if document.diagnosis is None else document.diagnosis.accused
    causes = ", ".join(dict.fromkeys(finding.cause for finding in accused))
    ticket = Ticket(
        kind=document.command[1],
        model="left out, as it is confidential",
        subject="a device against its reference" + (f"; causes proven: {causes}" if causes else ""),
        numbers=None,
        fault=replace(fault, tensor=_NAME),
        whole=None,
        samples=(_SAMPLE,),
        total=0 if document.comparison is None else len(document.comparison.samples),
        recalibrated="",
        target="",
        original=(),
        reproduce=(),
        environment=document.environment,
        confidence=None,
        disguise=_DONE,
        files=_WHAT,
        faulty=is_faulty(document),
    )
    return {
        "TICKET.txt": ticket_text(ticket).encode(),
        "test_case.py": TEST_SCRIPT.encode(),
        "case.json": (json.dumps(description, indent=1) + "\n").encode(),
        "environment.json": environment_text(document.environment),
        _FILES[0]: npy(arrays[0]),
        _FILES[1]: npy(arrays[1]),
    }


def _check(members: dict[str, bytes], document: "RunDocument", sides: Sides, fault: "DumpFault") -> None:
    """Refuse to hand out anything that tells."""
    from roundoff.cli.bundle_case import refuse_leaks
    from roundoff.graph.anonymous import texts_of

    texts = [fault.tensor, *sides.reference.samples, *sides.candidate.samples]
    texts += [] if sides.model is None else texts_of(sides.model)
    paths = [each.path for each in document.inputs]
    models = [] if sides.model is None else [sides.model]
    refuse_leaks(members, texts, paths=paths, models=models, said=(*_DONE, *_WHAT.values(), fault.op_type))
