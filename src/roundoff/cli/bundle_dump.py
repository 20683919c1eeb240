"""The bundle of a device's fault: the tensor where the error starts, on both sides, in the worst sample."""

import argparse
import io
import json
import shlex
from dataclasses import replace
from typing import TYPE_CHECKING

from roundoff.api.comparison import ComparedSides as Sides
from roundoff.cli.bundle import Packed
from roundoff.cli.compare import compare_sides, open_sides
from roundoff.cli.terminal import Terminal
from roundoff.core.files import is_model
from roundoff.errors import BadInput

if TYPE_CHECKING:
    from collections.abc import Iterator

    from roundoff.align.pairing import TensorPair
    from roundoff.case.result import DumpFault
    from roundoff.core.document import RunDocument
    from roundoff.core.tensors import Array
    from roundoff.studies.compare.result import Comparison, TensorComparison

__all__ = ["is_faulty", "npy", "pack_device", "pack_dump"]

_WHAT = {
    "TICKET.txt": "this form",
    "test_case.py": "shows the numbers of this form with numpy alone; with onnxruntime where there is a model",
    "case.json": "what the script compares, and what it should find",
    "model/float.onnx": "the float model",
    "model/float_with_tensor.onnx": "the same, with the tensor as an output",
    "data/worst.txt": "the sample, for --data",
    "tensors/reference.npy": "the tensor in the reference",
    "tensors/candidate.npy": "the same in the candidate, in the layout of the reference",
    "tensors/inputs.json": "what the node that computes it reads, on both sides: names and files",
    "environment.json": "versions and host",
    "run.json": "what the run found",
}
_REFERENCE, _CANDIDATE = "tensors/reference.npy", "tensors/candidate.npy"
_TAPPED, _INPUTS = "model/float_with_tensor.onnx", "tensors/inputs.json"
_SIDES = ("reference", "candidate")


def pack_device(
    args: argparse.Namespace, terminal: Terminal, document: "RunDocument", again: argparse.Namespace
) -> Packed:
    """Pack what a diagnosis of dumps found: the model is compared with them, at what was accused."""
    from roundoff.cli import parse_words

    words = ["compare", str(again.model or again.quantized), str(again.dumps)]
    compared = argparse.Namespace(**{**vars(parse_words(words)), "words": words})
    for name in vars(compared):
        # How samples are read is said by the same options.
        if name not in ("reference", "candidate", "model", "words", "command", "output") and hasattr(again, name):
            setattr(compared, name, getattr(again, name))
    compared.format = again.dump_format
    if not is_model(compared.reference):
        what = f"The diagnosis was of {compared.reference} alone, a folder, of which no bundle can be made."
        again_words = ["roundoff", *document.command[1:2], "MODEL.onnx", *document.command[2:]]
        raise BadInput(what, fix=f"name the float model in it: {shlex.join(again_words)}")
    comparison, _ = compare_sides(compared, terminal, None)
    return pack_dump(args, terminal, replace(document, comparison=comparison), compared)


def pack_dump(
    args: argparse.Namespace, terminal: Terminal, document: "RunDocument", again: argparse.Namespace
) -> Packed:
    """Choose the tensor and the sample, and describe."""
    comparison = document.comparison
    if comparison is None:
        raise BadInput("The run holds no comparison.", fix="run roundoff compare again with -o")
    accused = () if document.diagnosis is None else document.diagnosis.accused
    row = _row(comparison, [name for finding in accused for name in finding.tensors])
    with open_sides(again, terminal) as sides:
        pair = _pair(sides, row.reference)
        if pair is None:
            raise BadInput(f"{row.reference!r} has no partner any more.", fix="run roundoff compare again")
        sample, arrays, fault = _worst(sides, pair, row)
        if args.confidential:
            from roundoff.cli.bundle_dump_secret import pack_secret

            return pack_secret(args, document, fault, arrays=arrays, sides=sides)
        members, description = _members(again, sides, row.reference, sample=sample, arrays=arrays)
    description["expected_sqnr_db"] = fault.sqnr_db
    members = _finished(members, description, document, fault, sample=sample)
    return Packed(members, None, _lines(fault, sample, comparison, faulty=is_faulty(document)), shown=True)


def is_faulty(document: "RunDocument") -> bool:
    """Whether the run found anything wrong: a diagnosis its cause, a comparison a tensor beyond its thresholds."""
    if document.diagnosis is not None:
        return document.diagnosis.kind != "healthy"
    return document.comparison is None or document.comparison.state != "pass"


def _row(comparison: "Comparison", accused: "list[str]") -> "TensorComparison":
    """The tensor that tells most: what is accused, where the error starts, the first that fails, the worst."""
    verdict = comparison.verdict
    first = (verdict.first_divergence,) if verdict.first_divergence else ()
    rows = {row.reference: row for row in comparison.rows if "sqnr_db" in row.score.values}
    for name in (*accused, *verdict.introduces, *first, *verdict.worst):
        if name in rows:
            return rows[name]
    if not rows:
        raise BadInput("No tensor of the run has a score.", fix="see roundoff compare for the reasons")
    return min(rows.values(), key=lambda row: row.score.values["sqnr_db"])


def _pair(sides: Sides, reference: str) -> "TensorPair | None":
    return next((each for each in sides.pairing.pairs if each.reference == reference), None)


def _worst(
    sides: Sides, pair: "TensorPair", row: "TensorComparison"
) -> "tuple[tuple[str, str], tuple[Array, Array], DumpFault]":
    """The sample in which both sides differ most, what they hold there, and the numbers."""
    from roundoff.align.pairing import pair_samples
    from roundoff.case.result import DumpFault
    from roundoff.measure.metrics import score
    from roundoff.measure.pairs import measure_pair
    from roundoff.studies.compare.measuring import read_pair

    best: tuple[float, tuple[str, str], tuple[Array, Array], float | None] | None = None
    for sample in pair_samples(sides.reference.samples, sides.candidate.samples):
        arrays = read_pair((sides.reference, sides.candidate), pair, sample)
        if arrays[0].shape != arrays[1].shape:
            continue
        values = score(measure_pair(*arrays)).values
        found = values.get("sqnr_db")
        if found is not None and (best is None or found < best[0]):
            best = found, sample, arrays, values.get("cosine")
    if best is None:
        what = f"{pair.reference!r} has no score in any sample."
        raise BadInput(what, fix="see roundoff compare for the reasons")
    fault = DumpFault(row.reference, row.op_type, row.role, row.kind, best[0], best[3])
    return best[1], best[2], fault


def _members(
    again: argparse.Namespace,
    sides: Sides,
    tensor: str,
    *,
    sample: tuple[str, str],
    arrays: "tuple[Array, Array]",
) -> "tuple[dict[str, bytes], dict[str, object]]":
    """The tensors; the model and the sample where they are known."""
    from roundoff.case.excerpt import FLOAT_MODEL, CaseSamples, model_members, sample_members
    from roundoff.cli.data_options import samples_from
    from roundoff.graph.interface import inputs
    from roundoff.graph.load import load_model
    from roundoff.graph.subgraph import tap

    members = {_REFERENCE: npy(arrays[0]), _CANDIDATE: npy(arrays[1]), **_node_inputs(sides, tensor, sample)}
    stored: dict[str, object] = {tensor: [_REFERENCE, _CANDIDATE]}
    place: dict[str, object] = {"name": sample[0] or "sample", "inputs": {}, "tensors": stored}
    description: dict[str, object] = {"float": _TAPPED, "samples": [place]}
    model = again.reference if is_model(again.reference) else again.model
    if model is not None:
        members |= model_members(load_model(model), FLOAT_MODEL)
    if is_model(again.reference) and again.data and sides.model is not None:
        samples = samples_from(again, inputs(sides.model))
        feed = samples.feed(samples.names.index(sample[0]))
        files, places = sample_members(CaseSamples("sample", (sample[0],), (feed,)))
        members |= files
        taps = tap(sides.model, [tensor])
        # An output under another name could not be found by the script.
        if taps.outputs == (tensor,):
            members[_TAPPED] = taps.data
            place["inputs"] = places[0]["inputs"]
    return members, description


def _node_inputs(sides: Sides, tensor: str, sample: tuple[str, str]) -> dict[str, bytes]:
    """What the node that computes a tensor reads, on both sides as far as these hold it."""
    members: dict[str, bytes] = {}
    listed: list[dict[str, str]] = []
    for number, name in enumerate(_reads(sides, tensor)):
        entry = {"tensor": name}
        for side, array in zip(_SIDES, _both(sides, name, sample), strict=True):
            if array is not None:
                entry[side] = f"tensors/input_{number}_{side}.npy"
                members[entry[side]] = npy(array)
        listed.append(entry)
    if members:
        members[_INPUTS] = (json.dumps(listed, indent=1, ensure_ascii=False) + "\n").encode()
    return members


def _reads(sides: Sides, tensor: str) -> "Iterator[str]":
    if sides.model is None:
        return
    graph = sides.model.proto.graph
    constant = {each.name for each in graph.initializer}
    constant |= {name for node in graph.node if node.op_type == "Constant" for name in node.output}
    node = next((node for node in graph.node if tensor in node.output), None)
    yield from dict.fromkeys(name for name in (node.input if node else ()) if name and name not in constant)


def _both(sides: Sides, name: str, sample: tuple[str, str]) -> "tuple[Array | None, Array | None]":
    from roundoff.studies.compare.measuring import read_pair

    pair = _pair(sides, name)
    if pair is not None:
        return read_pair((sides.reference, sides.candidate), pair, sample)
    held = any(info.name == name for info in sides.reference.tensors)
    return (sides.reference.read(name, sample[0]) if held else None), None


def npy(array: "Array") -> bytes:
    """An array as the content of a file."""
    import numpy as np

    out = io.BytesIO()
    np.save(out, np.ascontiguousarray(array), allow_pickle=False)
    return out.getvalue()


def _finished(
    members: dict[str, bytes],
    description: "dict[str, object]",
    document: "RunDocument",
    fault: "DumpFault",
    *,
    sample: tuple[str, str],
) -> dict[str, bytes]:
    from roundoff.case.result import Ticket
    from roundoff.case.ticket import TEST_SCRIPT, ticket_text
    from roundoff.cli.bundle_case import environment_text, verdict_of
    from roundoff.core.document import to_json

    comparison = document.comparison
    members = dict(members)
    members["test_case.py"] = TEST_SCRIPT.encode()
    members["case.json"] = (json.dumps(description, indent=1, ensure_ascii=False) + "\n").encode()
    members["environment.json"] = environment_text(document.environment)
    members["run.json"] = to_json(document).encode()
    ticket = Ticket(
        kind=document.command[1],
        model="model/float.onnx" if "model/float.onnx" in members else "not known to the run",
        subject="" if comparison is None else f"{comparison.candidate} against {comparison.reference}",
        numbers=None,
        fault=fault,
        whole=None,
        samples=sample[:1] if sample[0] else (),
        total=0 if comparison is None else len(comparison.samples),
        recalibrated="",
        target="",
        original=document.command,
        reproduce=(),
        environment=document.environment,
        confidence=None,
        findings=() if document.diagnosis is None else document.diagnosis.accused,
        files={name: what for name, what in _WHAT.items() if name in {*members, "TICKET.txt"}},
        verdict=verdict_of(document.diagnosis, names=True),
        faulty=is_faulty(document),
    )
    members["TICKET.txt"] = ticket_text(ticket).encode()
    return members


def _lines(
    fault: "DumpFault", sample: tuple[str, str], comparison: "Comparison", *, faulty: bool
) -> "tuple[tuple[str, str], ...]":
    from roundoff.messages.numbers import number

    kind = f"; {fault.kind}" if fault.kind else ""
    where = {"introduces": "the error starts here", "victim": "an input is wrong already", "": ""}[fault.role]
    word = "fault" if faulty else "result"
    lines = [(word, f"{fault.tensor}: {number(fault.sqnr_db)} dB, cosine {number(fault.cosine, 6)}{kind}")]
    if where:
        lines.append(("", where))
    if sample[0]:
        lines.append(("sample", f"{sample[0]}, the worst of {len(comparison.samples)}"))
    return tuple(lines)
