"""The bundle of a quantized model: the case, its verification, its disguise and its text."""

import argparse
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from roundoff.cli.bundle import Packed
from roundoff.cli.inspection_options import limits_from
from roundoff.cli.terminal import Terminal
from roundoff.errors import BadInput

if TYPE_CHECKING:
    from roundoff.case.disguise import Found
    from roundoff.case.excerpt import Case, Chosen
    from roundoff.case.result import CaseNumbers, Confidence, Ticket
    from roundoff.core.document import Environment
    from roundoff.core.quantizers import Quantizer
    from roundoff.diagnosis.result import Diagnosis, Finding
    from roundoff.graph.load import Model
    from roundoff.graph.quantized_model import QuantizedModel
    from roundoff.run.feeds import Samples

__all__ = ["Extra", "Extras", "Source", "environment_text", "pack_case", "refuse_leaks", "verdict_of"]

_WHAT = {
    "TICKET.txt": "this form",
    "test_case.py": "shows the numbers of this form with numpy and onnxruntime alone",
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


@dataclass(frozen=True, slots=True, eq=False)
class Source:
    """What a bundle of a quantized model is made of.

    Attributes:
        kind: The command whose run it is.
        quantized: The model that shows the fault.
        samples: What it was fed.
        original: The float model that is handed on.
        model: How that one is called in the ticket.
        words: What is wrong, in words: quantized how.
        command: The command of the run, word by word.
        environment: Where the run was made.
        paths: Files of the run, whose names are secrets.
        texts: More secrets: names that only the run knows.
        diagnosis: What a diagnosis found; None where the run was none.
    """

    kind: str
    quantized: "QuantizedModel"
    samples: "Samples"
    original: "Model"
    model: str
    words: str
    command: tuple[str, ...]
    environment: "Environment"
    paths: tuple[str, ...]
    texts: tuple[str, ...] = ()
    diagnosis: "Diagnosis | None" = None

    @property
    def findings(self) -> "tuple[Finding, ...]":
        """Causes that were proven."""
        return () if self.diagnosis is None else self.diagnosis.accused


@dataclass(frozen=True, slots=True)
class Extra:
    """What one kind of run adds to a bundle.

    Attributes:
        members: Files.
        target: For which chip, in words.
        reproduce: Commands that show the fault again.
        recalibrated: What calibrating on few samples gives, in words.
        files: What each of the files is, where not every bundle has it.
        vocabulary: Words that stand in its files whatever the model is.
    """

    members: dict[str, bytes]
    target: str = ""
    reproduce: tuple[str, ...] = ()
    recalibrated: str = ""
    files: Mapping[str, str] = field(default_factory=dict)
    vocabulary: tuple[str, ...] = ()


class Extras(Protocol):
    """Knows what a run adds."""

    def open(self, case: "Case", chosen: "Chosen") -> Extra:
        """As it is."""
        ...

    def secret(self, found: "Found", chosen: "Chosen") -> Extra:
        """Under other names."""
        ...


# So many places are named.
_NAMED = 4
# The same in every bundle for a target and a machine.
_OURS = ("environment.json", "config/target.toml")


def pack_case(args: argparse.Namespace, terminal: Terminal, source: Source, extras: Extras) -> Packed:
    """Choose the samples, verify, disguise if asked, and describe."""
    from roundoff.case.disguise import find_disguise
    from roundoff.case.excerpt import Case, choose_samples, quantized_members

    limits = limits_from(args)
    chosen = choose_samples(source.quantized, source.samples, limits=limits, progress=terminal)
    case = Case(source.quantized, chosen.samples)
    if not args.confidential:
        members, description = quantized_members(case, source.original, chosen.numbers)
        extra = extras.open(case, chosen)
        ticket = _ticket(source, extra, numbers=chosen.numbers, chosen=chosen, confidence=None)
        members = _finished(members | extra.members, description, case, ticket, extra=extra)
        return Packed(members, None, tuple(_lines(source, chosen.numbers, chosen, None, extra=extra)), shown=True)
    found = find_disguise(
        case, chosen.numbers, keep_data=args.keep_data, seed=args.seed, limits=limits, progress=terminal
    )
    if found.confidence.reasons:
        lines = tuple(_lines(source, found.numbers, chosen, found.confidence, extra=None))
        return Packed({}, None, lines, shown=False)
    secret = found.disguised.case
    members, description = quantized_members(secret, secret.quantized.float_model, found.numbers)
    extra = extras.secret(found, chosen)
    ticket = _ticket(source, extra, numbers=found.numbers, chosen=chosen, confidence=found.confidence)
    members = _finished(
        members | extra.members, description, secret, replace(ticket, samples=secret.samples.names), extra=extra
    )
    said = (found.confidence.weights, found.confidence.data, *extra.files.values(), *extra.reproduce)
    _check_leaks(source, members, said=(*said, *extra.vocabulary, extra.recalibrated))
    names = {"nodes and tensors": found.disguised.names, "others": found.disguised.others}
    lines = tuple(_lines(source, found.numbers, chosen, found.confidence, extra=extra))
    return Packed(members, names, lines, shown=True)


def _finished(
    members: dict[str, bytes], description: "dict[str, object]", case: "Case", ticket: "Ticket", *, extra: Extra
) -> dict[str, bytes]:
    from roundoff.case.ticket import TEST_SCRIPT, ticket_text

    members = dict(members)
    members["test_case.py"] = TEST_SCRIPT.encode()
    members["case.json"] = (json.dumps(description, indent=1, ensure_ascii=False) + "\n").encode()
    members["config/quantizers.csv"] = _quantizers(case.quantized.quantizers).encode()
    members["environment.json"] = environment_text(ticket.environment)
    names = sorted({*members, "TICKET.txt"})
    known = {**_WHAT, **extra.files}
    files = {name: known[name] for name in names if name in known}
    members["TICKET.txt"] = ticket_text(replace(ticket, files=files)).encode()
    return members


def environment_text(found: "Environment") -> bytes:
    """Versions and host of the run, and those of this one, which packed it."""
    from roundoff.cli.provenance import environment

    def plain(each: object) -> dict[str, object]:
        return {key: value for key, value in asdict(each).items() if key != "elapsed_s"}  # type: ignore[call-overload]

    content = {"run": plain(found), "packed": plain(environment(0.0))}
    return (json.dumps(content, indent=1) + "\n").encode()


def _quantizers(quantizers: "tuple[Quantizer, ...]") -> str:
    import numpy as np

    from roundoff.messages.numbers import csv_text

    def row(each: "Quantizer") -> list[object]:
        scales, zeros = np.atleast_1d(each.params.scale), np.atleast_1d(each.params.zero_point)
        readers = " ".join(f"{consumer.node}:{consumer.input}" for consumer in each.consumers)
        axis = "" if each.spec.axis is None else each.spec.axis
        numbers = " ".join(map(repr, map(float, scales))), " ".join(map(str, map(int, zeros)))
        return [each.tensor, each.kind, each.spec.dtype, axis, *numbers, readers]

    heading = ["tensor", "kind", "dtype", "axis", "scale", "zero_point", "read_by"]
    return csv_text(heading, map(row, quantizers))


def _ticket(
    source: Source,
    extra: Extra,
    *,
    numbers: "CaseNumbers",
    chosen: "Chosen",
    confidence: "Confidence | None",
) -> "Ticket":
    from roundoff.case.result import Ticket

    layers = "roundoff layers model/float.onnx --quantized model/quantized.onnx --data data/worst.txt"
    folded = "model/float.onnx, with batch normalization folded"
    return Ticket(
        kind=source.kind,
        model=folded if confidence else source.model,
        subject="quantized as in config/quantizers.csv" if confidence else source.words,
        numbers=numbers,
        fault=None,
        whole=None if confidence else chosen.whole,
        samples=chosen.samples.names,
        total=chosen.total,
        recalibrated=extra.recalibrated,
        target=extra.target,
        original=() if confidence else source.command,
        reproduce=(layers, *extra.reproduce),
        environment=source.environment,
        confidence=confidence,
        findings=source.findings,
        files={},
        verdict=verdict_of(source.diagnosis, names=confidence is None),
        faulty=_is_faulty(source.diagnosis, numbers),
    )


def verdict_of(diagnosis: "Diagnosis | None", *, names: bool) -> str:
    """What a diagnosis said; empty without one.

    Args:
        diagnosis: The diagnosis.
        names: Whether names of the network may be told.
    """
    from roundoff.messages.numbers import counted

    if diagnosis is None:
        return ""
    kind = diagnosis.kind.replace("_", " ")
    if names:
        return f"{kind}: {diagnosis.verdict}"
    places = sum(each.places for each in diagnosis.accused)
    return f"{kind}: {counted(places, 'place')} proven" if places else kind


def _is_faulty(diagnosis: "Diagnosis | None", numbers: "CaseNumbers") -> bool:
    return numbers.verdict != "fine" if diagnosis is None else diagnosis.kind != "healthy"


def _lines(
    source: Source,
    numbers: "CaseNumbers",
    chosen: "Chosen",
    confidence: "Confidence | None",
    *,
    extra: Extra | None,
) -> "list[tuple[str, str]]":
    from roundoff.messages.numbers import counted, number
    from roundoff.messages.phrases import few

    some = counted(len(chosen.indices), "sample")
    scores = f"{number(numbers.sqnr_db)} dB, cosine {number(numbers.cosine, 6)}"
    faulty = _is_faulty(source.diagnosis, numbers)
    word = numbers.verdict if source.diagnosis is None else source.diagnosis.kind.replace("_", " ")
    lines = [
        ("fault" if faulty else "result", f"{numbers.output}: {scores}; {word}"),
        ("samples", f"{some} of {chosen.total}, the worst, verified to show it"),
    ]
    accused = list(dict.fromkeys(name for each in source.findings for name in each.accused_nodes))
    if accused and confidence is not None:
        accused = [confidence.names[name] for name in accused if name in confidence.names]
    makers = accused or ([] if source.findings else list(numbers.culprits))
    estimated = [] if makers or source.findings else [node.node for node in numbers.nodes[:3]]
    if makers or estimated:
        lines.insert(1, ("made by" if makers else "mostly by", few(makers or estimated, _NAMED)))
    if not faulty:
        lines.append(("note", "the outputs agree with those of the float model: there is little to show"))
    if extra is not None and extra.recalibrated:
        lines.append(("", extra.recalibrated))
    if confidence is not None:
        before = confidence.before
        same = (
            "" if confidence.reasons else f"; errors within {number(confidence.close_db)} dB at {confidence.where}"
        )
        shown = "" if source.diagnosis is not None else f"; {before.verdict}"
        lines.append(("original", f"{number(before.sqnr_db)} dB{shown}{same}"))
        lines.append(("weights", confidence.weights))
        lines.append(("data", confidence.data))
        if confidence.reasons:
            lines += [("" if at else "lacks", reason) for at, reason in enumerate(confidence.reasons)]
            lines.append(
                ("instead", "try --keep-data or another --seed, or send the bundle without --confidential")
            )
    return lines


def _check_leaks(source: Source, members: dict[str, bytes], *, said: tuple[str, ...]) -> None:
    from roundoff.graph.anonymous import texts_of

    model = source.quantized.float_model
    texts = [*texts_of(model), *texts_of(source.original), *source.samples.names, *source.texts]
    texts += [each.name for each in source.quantized.quantizers]
    operations = tuple(node.op_type for node in model.proto.graph.node)
    models = [model, source.original]
    refuse_leaks(members, texts, paths=source.paths, models=models, said=(*said, *operations))


def refuse_leaks(
    members: dict[str, bytes],
    texts: Iterable[str],
    *,
    paths: Iterable[str],
    models: "Sequence[Model]",
    said: tuple[str, ...],
) -> None:
    """Refuse to hand out anything that tells; that it does would be a fault of ours.

    Args:
        members: The files of the bundle.
        texts: Names that must not be in them.
        paths: Files of the run, whose names must not be in them.
        models: Their weights must not be in them.
        said: Words that stand in the bundle whatever the model is.

    Raises:
        BadInput: Something is in them.
    """
    from roundoff.case.leaks import find_leaks, secrets_of
    from roundoff.case.ticket import TEST_SCRIPT
    from roundoff.cli import COMMANDS

    # Words that are in every bundle tell nothing, whatever else is called so.
    known = [*COMMANDS, *members, *said, TEST_SCRIPT, _plain_words()]
    known += [content.decode() for name, content in members.items() if name in _OURS]
    leaks = find_leaks(members, secrets_of(texts, paths), ours="\n".join(known), models=models)
    if leaks:
        raise BadInput(
            f"The bundle was not written, it would give away {leaks[0]}"
            + (f" and {len(leaks) - 1} more." if len(leaks) > 1 else "."),
            fix="rename it in the model, or send the bundle without --confidential",
        )


def _plain_words() -> str:
    """The words of the form itself."""
    from roundoff.case import ticket as bundle

    return Path(bundle.__file__).read_text(encoding="utf-8") + " ".join(_WHAT.values())
