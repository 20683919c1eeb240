"""The bundle of a quantized model: the case, its verification, its disguise and its text."""

import argparse
import json
from pathlib import Path
from typing import TYPE_CHECKING

from roundoff.cli.bundle import Packed
from roundoff.cli.inspection_options import limits_from
from roundoff.cli.subject import Subject, open_subject
from roundoff.cli.terminal import Terminal
from roundoff.errors import BadInput

if TYPE_CHECKING:
    from roundoff.analysis.bundle.case import Case, Chosen
    from roundoff.analysis.bundle.disguising import Found
    from roundoff.core.bundle import CaseNumbers, Confidence, Ticket
    from roundoff.core.document import RunDocument
    from roundoff.core.quantizer import Quantizer

__all__ = ["environment_text", "pack_case"]

_WHAT = {
    "TICKET.txt": "this form",
    "test_case.py": "shows the fault with numpy and onnxruntime alone",
    "case.json": "what the script compares, and what it should find",
    "model/float.onnx": "the float model",
    "model/quantized.onnx": "the same with quantize-dequantize pairs",
    "data/worst.txt": "the samples, for --data",
    "config/quantizers.csv": "scale and zero point of every tensor",
    "config/plan.json": "what was asked for and what became of it",
    "config/target.toml": "the target",
    "config/rules.toml": "the rules",
    "environment.json": "versions and host",
    "run.json": "what the run found",
}


def pack_case(
    args: argparse.Namespace,
    terminal: Terminal,
    document: "RunDocument",
    again: argparse.Namespace,
    *,
    folder: Path,
) -> Packed:
    """Choose the samples, verify, disguise if asked, and describe."""
    from roundoff.analysis.bundle import Case, choose_samples
    from roundoff.analysis.bundle.disguising import find_disguise

    subject = _subject(document, again, terminal, folder)
    if not again.data and not subject.quantized.float_model.proto.graph.input:
        raise BadInput("The run had no samples, so that there is no fault to show.", fix="run it with --data")
    limits = limits_from(args)
    chosen = choose_samples(subject.quantized, subject.samples, limits=limits, progress=terminal)
    case = Case(subject.quantized, chosen.samples)
    if not args.confidential:
        members, ticket = _open(document, again, subject, case, chosen, folder)
        return Packed(members, None, tuple(_lines(chosen.numbers, chosen, None, ticket)), shown=True)
    found = find_disguise(
        case, chosen.numbers, keep_data=args.keep_data, seed=args.seed, limits=limits, progress=terminal
    )
    lines = tuple(_lines(found.numbers, chosen, found.confidence, None))
    if found.confidence.reasons:
        return Packed({}, None, lines, shown=False)
    members = _secret(document, again, found, chosen)
    said = (found.confidence.weights, found.confidence.data)
    _check_leaks(document, case, members, said=said)
    names = {"nodes and tensors": found.disguised.names, "others": found.disguised.others}
    return Packed(members, names, lines, shown=True)


def _subject(document: "RunDocument", again: argparse.Namespace, terminal: Terminal, folder: Path) -> Subject:
    """What the run analyzed; what quantize made is read from its folder."""
    if document.command[1] != "quantize":
        if again.quantized is None and again.target is None:
            what = f"The run of {document.command[1]} looked at a float model: nothing in it is quantized."
            raise BadInput(what, fix="run it with --quantized or --target")
        if not again.data:
            raise BadInput("The run had no samples, so that there is no fault to show.", fix="run it with --data")
        return open_subject(again, terminal)
    if not again.data:
        what = "The model was quantized without samples (--statistics), so that there is no fault to show."
        raise BadInput(what, fix="analyze it with roundoff layers --data, and bundle that run")
    stored = argparse.Namespace(**{**vars(again), "quantized": folder, "target": None})
    for name in ("calibration", "weight_method", "rules"):
        setattr(stored, name, None)
    stored.calibration_option, stored.set = [], []
    return open_subject(stored, terminal)


def _open(
    document: "RunDocument",
    again: argparse.Namespace,
    subject: Subject,
    case: "Case",
    chosen: "Chosen",
    folder: Path,
) -> "tuple[dict[str, bytes], Ticket]":
    """Everything as it is."""
    from roundoff.analysis.bundle.members import quantized_members
    from roundoff.core.names import shown
    from roundoff.graph.load import load_model
    from roundoff.report.documents import to_json

    original = subject.quantized.float_model if again.model is None else load_model(again.model)
    members, description = quantized_members(case, original, chosen.numbers)
    members |= _configuration(again, folder)
    members["run.json"] = to_json(document).encode()
    ticket = _ticket(
        document,
        again,
        numbers=chosen.numbers,
        chosen=chosen,
        confidence=None,
        model="model/float.onnx" + ("" if again.model is None else f" ({shown(again.model.name)})"),
        subject=subject.words or "quantized as in config/quantizers.csv",
        recalibrated=_recalibrated(again, case),
    )
    return _finished(members, description, case, ticket, document), ticket


def _secret(
    document: "RunDocument", again: argparse.Namespace, found: "Found", chosen: "Chosen"
) -> dict[str, bytes]:
    """Everything under other names."""
    from roundoff.analysis.bundle.members import quantized_members

    case = found.disguised.case
    members, description = quantized_members(case, case.quantized.float_model, found.numbers)
    members |= _target(again, own=False)
    ticket = _ticket(
        document,
        again,
        numbers=found.numbers,
        chosen=chosen,
        confidence=found.confidence,
        model="model/float.onnx, with batch normalization folded",
        subject="quantized as in config/quantizers.csv",
        recalibrated="",
        names=case.samples.names,
    )
    return _finished(members, description, case, ticket, document)


def _finished(
    members: dict[str, bytes],
    description: "dict[str, object]",
    case: "Case",
    ticket: "Ticket",
    document: "RunDocument",
) -> dict[str, bytes]:
    from dataclasses import replace

    from roundoff.report.bundle import ticket_text
    from roundoff.report.bundle_script import TEST_SCRIPT

    members = dict(members)
    members["test_case.py"] = TEST_SCRIPT.encode()
    members["case.json"] = (json.dumps(description, indent=1, ensure_ascii=False) + "\n").encode()
    members["config/quantizers.csv"] = _quantizers(case.quantized.quantizers).encode()
    members["environment.json"] = environment_text(document)
    names = sorted({*members, "TICKET.txt"})
    files = {name: _WHAT[name] for name in names if name in _WHAT}
    members["TICKET.txt"] = ticket_text(replace(ticket, files=files)).encode()
    return members


def environment_text(document: "RunDocument") -> bytes:
    """Versions and host of the run, and those of this one, which packed it."""
    from dataclasses import asdict

    from roundoff.cli.provenance import environment

    def plain(each: object) -> dict[str, object]:
        return {key: value for key, value in asdict(each).items() if key != "elapsed_s"}  # type: ignore[call-overload]

    content = {"run": plain(document.environment), "packed": plain(environment(0.0))}
    return (json.dumps(content, indent=1) + "\n").encode()


def _quantizers(quantizers: "tuple[Quantizer, ...]") -> str:
    import numpy as np

    from roundoff.report.figures import csv_text

    def row(each: "Quantizer") -> list[object]:
        scales, zeros = np.atleast_1d(each.params.scale), np.atleast_1d(each.params.zero_point)
        readers = " ".join(f"{consumer.node}:{consumer.input}" for consumer in each.consumers)
        axis = "" if each.spec.axis is None else each.spec.axis
        numbers = " ".join(map(repr, map(float, scales))), " ".join(map(str, map(int, zeros)))
        return [each.tensor, each.kind, each.spec.dtype, axis, *numbers, readers]

    heading = ["tensor", "kind", "dtype", "axis", "scale", "zero_point", "read_by"]
    return csv_text(heading, map(row, quantizers))


def _configuration(again: argparse.Namespace, folder: Path) -> dict[str, bytes]:
    """Plan, rules and target, as far as the run had them."""
    from roundoff.core.files import read_small
    from roundoff.quantize.plan_file import PLAN_NAME

    members = _target(again, own=True)
    quantized = getattr(again, "quantized", None)
    # What diagnose --fix left in its folder is the repaired model's.
    for place in (folder if again.words[0] == "quantize" else None, quantized):
        if place is not None and (place / PLAN_NAME).is_file():
            members["config/plan.json"] = read_small(place / PLAN_NAME, what="The plan")
            break
    if again.rules is not None:
        members["config/rules.toml"] = read_small(again.rules, what="The rules")
    return members


def _target(again: argparse.Namespace, *, own: bool) -> dict[str, bytes]:
    """The target's file; one of the user's own only where that is allowed."""
    from roundoff.quantize.targets.loading import target_text

    if not again.target or (Path(again.target).is_file() and not own):
        return {}
    return {"config/target.toml": target_text(again.target).encode()}


def _recalibrated(again: argparse.Namespace, case: "Case") -> str:
    """What calibrating on the chosen samples alone gives: the minimal calibration set of the vendor's form."""
    from roundoff.cli.quantize_options import settings_from
    from roundoff.core.wording import counted
    from roundoff.graph.load import load_model
    from roundoff.quantize.pipeline import quantize_model

    if not again.target or again.model is None:
        return ""
    result = quantize_model(load_model(again.model), case.samples, settings_from(again))
    few = counted(len(case.samples.names), "sample")
    return f"calibrated on {few} alone: {result.best.sqnr_db:.4g} dB at the worst output"


def _ticket(  # noqa: PLR0913 - all that its text says
    document: "RunDocument",
    again: argparse.Namespace,
    *,
    numbers: "CaseNumbers",
    chosen: "Chosen",
    confidence: "Confidence | None",
    model: str,
    subject: str,
    recalibrated: str,
    names: tuple[str, ...] = (),
) -> "Ticket":
    from roundoff.core.bundle import Ticket

    built_in = bool(again.target) and not Path(again.target).is_file()
    target = again.target or ""
    if target and not built_in:
        target = "one of the sender's own" if confidence else "config/target.toml"
    data = "--data data/worst.txt"
    commands = [f"roundoff layers model/float.onnx --quantized model/quantized.onnx {data}"]
    if again.target and (built_in or confidence is None):
        chip = again.target if built_in else "config/target.toml"
        commands.append(f"roundoff quantize model/float.onnx --target {chip} {data} -o again")
    return Ticket(
        kind=document.command[1],
        model=model,
        subject=subject,
        numbers=numbers,
        fault=None,
        whole=None if confidence else chosen.whole,
        samples=names or chosen.samples.names,
        total=chosen.total,
        recalibrated=recalibrated,
        target=target,
        original=() if confidence else document.command,
        reproduce=tuple(commands),
        environment=document.environment,
        confidence=confidence,
        findings=() if document.diagnosis is None else document.diagnosis.accused,
        files={},
    )


def _lines(
    numbers: "CaseNumbers", chosen: "Chosen", confidence: "Confidence | None", ticket: "Ticket | None"
) -> "list[tuple[str, str]]":
    from roundoff.core.wording import counted
    from roundoff.report.figures import number

    few = counted(len(chosen.indices), "sample")
    scores = f"{number(numbers.sqnr_db)} dB, cosine {number(numbers.cosine, 6)}"
    lines = [
        ("fault", f"{numbers.output}: {scores}; {numbers.verdict}"),
        ("samples", f"{few} of {chosen.total}, the worst, verified to show it"),
    ]
    makers = list(numbers.culprits) or [node.node for node in numbers.nodes[:3]]
    if makers:
        lines.insert(1, ("made by" if numbers.culprits else "mostly by", ", ".join(makers)))
    if numbers.verdict == "fine":
        lines.append(("note", "the outputs agree with those of the float model: there is little to show"))
    if ticket is not None and ticket.recalibrated:
        lines.append(("", ticket.recalibrated))
    if confidence is not None:
        before = confidence.before
        same = (
            "" if confidence.reasons else f"; errors within {number(confidence.close_db)} dB at {confidence.where}"
        )
        lines.append(("original", f"{number(before.sqnr_db)} dB; {before.verdict}{same}"))
        lines.append(("weights", confidence.weights))
        lines.append(("data", confidence.data))
        if confidence.reasons:
            lines += [("" if at else "lacks", reason) for at, reason in enumerate(confidence.reasons)]
            lines.append(
                ("instead", "try --keep-data or another --seed, or send the bundle without --confidential")
            )
    return lines


def _check_leaks(
    document: "RunDocument", case: "Case", members: dict[str, bytes], *, said: tuple[str, ...]
) -> None:
    """Refuse to hand out anything that tells; that it does would be a fault of ours."""
    from roundoff.analysis.bundle.leaks import find_leaks, secrets_of
    from roundoff.cli import COMMANDS
    from roundoff.graph.anonymous import texts_of
    from roundoff.report.bundle_script import TEST_SCRIPT

    model = case.quantized.float_model
    texts = [*texts_of(model), *case.samples.names, *(each.name for each in case.quantized.quantizers)]
    secrets = secrets_of(texts, [each.path for each in document.inputs])
    # Words that are in every bundle tell nothing, whatever else is called so.
    known = [*COMMANDS, *members, *said, *(node.op_type for node in model.proto.graph.node), TEST_SCRIPT]
    known += [content.decode() for name, content in members.items() if name == "environment.json"]
    known += [content.decode() for name, content in members.items() if name == "config/target.toml"]
    leaks = find_leaks(members, secrets, ours="\n".join([*known, _plain_words()]), models=[model])
    if leaks:
        raise BadInput(
            f"The bundle was not written, it would give away {leaks[0]}"
            + (f" and {len(leaks) - 1} more." if len(leaks) > 1 else "."),
            fix="rename it in the model, or send the bundle without --confidential",
        )


def _plain_words() -> str:
    """The words of the form itself."""
    from roundoff.report import bundle

    return Path(bundle.__file__).read_text(encoding="utf-8") + " ".join(_WHAT.values())
