"""A fault as a ticket that someone else can reproduce: an archive of the case, a test script and a filled-in form.

Of a quantized model the case is the model and the fewest samples that show the fault; of a device it is the tensor
at which the error starts, on both sides, in the worst sample. Both can be made confidential.
"""

import contextlib
import shlex
import zipfile
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from roundoff.align.pairing import TensorPair, pair_samples
from roundoff.case.archive import (
    FLOAT_MODEL,
    MANIFEST_NAME,
    SCRIPT,
    Content,
    environment_bytes,
    json_bytes,
    model_members,
    npy_bytes,
    quantized_members,
    quantizer_table,
    refuse_leaks,
    sample_members,
    zip_bytes,
)
from roundoff.case.excerpt import (
    CaseNumbers,
    CaseSamples,
    ChosenSamples,
    QuantizedCase,
    Tell,
    choose_samples,
    untold,
)
from roundoff.case.minimal import NotLocal
from roundoff.case.reproduce import Reproduction
from roundoff.case.sources import (
    BundleSettings,
    CaseSource,
    EarlierRun,
    Extra,
    OpenedSides,
    build_reader,
    number_of,
    open_run,
    source_of,
)
from roundoff.case.synthetic import Confidentiality, find_synthetic, permuted_alike
from roundoff.case.ticket import DumpFault, Ticket, ticket_text
from roundoff.core.document import RunDocument, json_text, to_json
from roundoff.core.files import check_output_file, is_model, write_bytes, write_text
from roundoff.core.progress import SILENT, Progress
from roundoff.core.tensors import Array
from roundoff.diagnosis.page import word_key
from roundoff.diagnosis.result import Diagnosis
from roundoff.errors import BadInput
from roundoff.graph.anonymous import texts_of
from roundoff.graph.interface import inputs
from roundoff.graph.load import Model, load_model
from roundoff.graph.subgraph import tap
from roundoff.measure.metrics import score
from roundoff.measure.pairs import measure_pair
from roundoff.messages.catalogue import bilingual, few, named, plain
from roundoff.messages.message import (
    Remark,
    english,
    joined,
    message,
    phrase_of,
    sanitize_for_display,
    some,
    verbatim,
)
from roundoff.messages.numbers import counted, decibels_text, decibels_with_unit, format_size, number, score_text
from roundoff.pages.blocks import Facts, Headline, Page
from roundoff.run.budget import RunBudget
from roundoff.studies.compare.pairs import read_pair
from roundoff.studies.compare.result import Comparison, TensorComparison

# Commands that look into a quantized model; what they share says what is analyzed.
_OF_MODELS = (
    "diagnose", "layers", "sensitivity", "accumulate", "partial", "distribution", "channels", "outliers",
    "samples",
)  # fmt: skip
SUPPORTED = ("quantize", "tune", "compare", *_OF_MODELS)
"""Commands of whose runs bundles can be made."""

_FORM, _SCRIPT, _CASE = "TICKET.txt", "test_case.py", "case.json"
_RUN, _ENVIRONMENT = "run.json", "environment.json"
_REFERENCE, _CANDIDATE = "tensors/reference.npy", "tensors/candidate.npy"
_TAPPED, _INPUTS = "model/float_with_tensor.onnx", "tensors/inputs.json"
_FILES = {
    _FORM: english("this form"),
    _SCRIPT: english("shows the numbers of this form with numpy and onnxruntime alone"),
    _CASE: english("what the script compares, and what it should find"),
    FLOAT_MODEL: english("the float model"),
    "model/quantized.onnx": english("the same with quantize-dequantize pairs"),
    _TAPPED: english("the same, with the tensor as an output"),
    "data/worst.txt": english("the samples, for --data"),
    _REFERENCE: english("the tensor in the reference"),
    _CANDIDATE: english("the same in the candidate, in the layout of the reference"),
    _INPUTS: english("what the node that computes it reads, on both sides: names and files"),
    "config/quantizers.csv": english("scale and zero point of every tensor"),
    "config/plan.json": english("what was asked for and what became of it"),
    "config/target.toml": english("the target"),
    "config/rules.toml": english("the rules"),
    _ENVIRONMENT: english("versions and host"),
    _RUN: english("what the run found"),
}
"""What each file of a bundle is."""
_LAYERS = "roundoff layers model/float.onnx --quantized model/quantized.onnx --data data/worst.txt"
_TRY_INSTEAD = "try --keep-data or another --seed, or send the bundle without --confidential"
# So many places are named.
_NAMED = 4


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class Bundle:
    """What was packed.

    Attributes:
        members: The files of the archive; empty when no synthetic case shows the fault.
        names: What everything was called; None where nothing was renamed.
        lines: What to say of it, each with the word before it.
        shown: Whether it shows the fault; otherwise nothing was written.
        archive: The archive.
        names_file: Where the names are; None where nothing was renamed.
    """

    members: Mapping[str, bytes]
    names: Mapping[str, Mapping[str, str]] | None
    lines: tuple[tuple[str, Remark], ...]
    shown: bool
    archive: Path = Path()
    names_file: Path | None = None


def bundle(  # noqa: PLR0913 - the options of the command
    run: Path,
    archive: Path,
    *,
    confidential: bool = False,
    keep_data: bool = False,
    seed: int = 0,
    force: bool = False,
    limits: RunBudget,
    progress: Progress = SILENT,
    tell: Tell = untold,
) -> Bundle:
    """Pack what a run found into an archive that someone else can reproduce.

    Args:
        run: The folder that a command wrote, or its run.json; or the folder of a vendor's build.
        archive: The archive to be written. What was called how goes beside it, where names are replaced.
        confidential: Replace weights, names and samples, and verify that the fault is still there.
        keep_data: Keep the samples as they are all the same.
        seed: Of what is chosen at random.
        force: Replace an earlier bundle.
        limits: Threads and memory.
        progress: Told of runs.
        tell: Told of each step when it is over.

    Raises:
        BadInput: The run cannot be used, or the archive would replace something or give something away.
        ModelFailed: A model cannot be run.
    """
    if keep_data and not confidential:
        raise BadInput(
            english("--keep-data has no effect without --confidential."),
            fix=english("leave it out, samples are kept"),
        )
    number_of(seed, what="--seed", least=0)
    names_file = archive.with_suffix(".names.json")
    _check_free(archive, force=force)
    if confidential:
        _check_free(names_file, force=force)
    settings = BundleSettings(confidential, keep_data, seed, limits, progress, tell)
    packed = replace(_packed(run, settings), archive=archive)
    if packed.shown:
        write_bytes(archive, zip_bytes(packed.members))
    if packed.shown and packed.names is not None:
        write_text(names_file, json_text(packed.names))
        packed = replace(packed, names_file=names_file)
    return packed


def _check_free(path: Path, *, force: bool) -> None:
    """Refuse to replace anything but an earlier bundle or its list of names."""
    if force and path.is_file():
        ours = path.suffix == ".json"
        # What only ends like an archive is none.
        with contextlib.suppress(zipfile.BadZipFile), zipfile.ZipFile(path) as archive:
            ours = {_FORM, MANIFEST_NAME} <= set(archive.namelist())
        if ours:
            return
        what = english("{path} exists and does not look like a bundle that roundoff wrote.", path=path)
        raise BadInput(what, fix=english("choose another file with -o; --force replaces only earlier bundles"))
    check_output_file(path, force=False, option="-o")


def _packed(folder: Path, settings: BundleSettings) -> Bundle:
    """Pack what the folder holds: a build, a comparison, or something quantized."""
    open_build = build_reader(folder)
    if open_build is not None:
        with open_build(folder, settings) as source:
            return _pack_model(source, settings)
    run = open_run(folder, SUPPORTED, what="bundle", limits=settings.limits, progress=settings.progress)
    if run.given.dumps is not None or run.document.command[1] == "compare":
        return _pack_dump(_compared(run), settings)
    return _pack_model(source_of(run), settings)


def _finished(
    members: Content, description: Mapping[str, object], ticket: Ticket, *, known: Mapping[str, str] = _FILES
) -> Content:
    """With the script, what it compares, the environment and the form.

    Args:
        members: Files so far.
        description: What the script compares.
        ticket: What the form says.
        known: What files are; the form lists them in this order.
    """
    whole = {
        **members,
        _SCRIPT: SCRIPT.encode(),
        _CASE: json_bytes(description),
        _ENVIRONMENT: environment_bytes(ticket.environment),
    }
    files = {name: what for name, what in known.items() if name in {*whole, _FORM}}
    whole[_FORM] = ticket_text(replace(ticket, files=files)).encode()
    return whole


def _verdict(diagnosis: Diagnosis | None, *, names: bool) -> str:
    """What a diagnosis said; empty without one.

    Args:
        diagnosis: The diagnosis.
        names: Whether names of the network may be told.
    """
    if diagnosis is None:
        return ""
    kind = diagnosis.kind.replace("_", " ")
    if names:
        return f"{kind}: {diagnosis.verdict}"
    places = sum(each.places for each in diagnosis.accused)
    return f"{kind}: {counted(places, 'place')} proven" if places else kind


# A quantized model and the fewest samples that show the fault.


def _pack_model(source: CaseSource, settings: BundleSettings) -> Bundle:
    """Choose the samples, verify, disguise if asked, and describe."""
    limits, progress = settings.limits, settings.progress
    chosen = choose_samples(source.quantized, source.samples, limits=limits, progress=progress, tell=settings.tell)
    settings.tell(message("case.step_chosen", count=len(chosen.indices), all=chosen.total))
    case = QuantizedCase(source.quantized, chosen.samples)
    if settings.confidential:
        return _pack_secret_model(source, case, chosen, settings)
    members, description = quantized_members(case, source.original, chosen.numbers)
    extra = source.extras.open(case, chosen)
    ticket = _model_ticket(source, extra, numbers=chosen.numbers, chosen=chosen, confidence=None)
    members = _finished_model(members | extra.members, description, case, ticket, extra=extra)
    lines = tuple(_model_lines(source, chosen.numbers, chosen, None, extra=extra))
    return Bundle(members=members, names=None, lines=lines, shown=True)


def _pack_secret_model(
    source: CaseSource, case: QuantizedCase, chosen: ChosenSamples, settings: BundleSettings
) -> Bundle:
    """Another model that shows the same fault, without names, weights and samples of the first."""
    found = find_synthetic(
        case,
        chosen.numbers,
        keep_data=settings.keep_data,
        seed=settings.seed,
        limits=settings.limits,
        progress=settings.progress,
    )
    if found.confidence.reasons:
        lines = tuple(_model_lines(source, found.numbers, chosen, found.confidence, extra=None))
        return Bundle(members={}, names=None, lines=lines, shown=False)
    secret = found.case.case
    members, description = quantized_members(secret, secret.quantized.float_model, found.numbers)
    extra = source.extras.secret(found, chosen)
    ticket = _model_ticket(source, extra, numbers=found.numbers, chosen=chosen, confidence=found.confidence)
    ticket = replace(ticket, samples=secret.samples.names)
    members = _finished_model(members | extra.members, description, secret, ticket, extra=extra)
    model = source.quantized.float_model
    texts = [*texts_of(model), *texts_of(source.original), *source.samples.names, *source.texts]
    texts += [each.name for each in source.quantized.quantizers]
    said = [found.confidence.weights, found.confidence.data, *extra.files.values(), *extra.reproduce]
    said += [*extra.vocabulary, extra.recalibrated, *(node.op_type for node in model.proto.graph.node)]
    said += source.kind.split()
    _refuse_leaks(members, texts, source.paths, models=[model, source.original], said=said)
    names = {"nodes and tensors": found.case.names, "others": found.case.others}
    lines = tuple(_model_lines(source, found.numbers, chosen, found.confidence, extra=extra))
    return Bundle(members=members, names=names, lines=lines, shown=True)


def _finished_model(
    members: Content, description: Mapping[str, object], case: QuantizedCase, ticket: Ticket, *, extra: Extra
) -> Content:
    members = {**members, "config/quantizers.csv": quantizer_table(case.quantized.quantizers).encode()}
    known = dict(sorted({**_FILES, **extra.files}.items()))
    return _finished(members, description, ticket, known=known)


def _as_proven(
    source: CaseSource, numbers: CaseNumbers, confidence: Confidentiality | None
) -> tuple[CaseNumbers, Confidentiality | None]:
    """What a case showed, without nodes that few samples accuse and the run, which looked at all, does not."""
    proven = source.proven
    if proven is None:
        return numbers, confidence
    names = {name: name for name in proven}
    if confidence is not None:
        names = {name: confidence.names[name] for name in proven if name in confidence.names}
        before = confidence.before
        kept = {name: value for name, value in before.culprits.items() if name in proven}
        confidence = replace(confidence, before=replace(before, culprits=kept))
    kept = {name: value for name, value in numbers.culprits.items() if name in names.values()}
    return replace(numbers, culprits=kept), confidence


def _model_ticket(
    source: CaseSource,
    extra: Extra,
    *,
    numbers: CaseNumbers,
    chosen: ChosenSamples,
    confidence: Confidentiality | None,
) -> Ticket:
    folded = "model/float.onnx, with batch normalization folded"
    numbers, confidence = _as_proven(source, numbers, confidence)
    return Ticket(
        kind=source.kind,
        model=folded if confidence else source.model,
        subject="quantized as in config/quantizers.csv" if confidence else source.words,
        numbers=numbers,
        whole=None if confidence else chosen.whole,
        samples=chosen.samples.names,
        total=chosen.total,
        recalibrated=extra.recalibrated,
        target=extra.target,
        original=() if confidence else source.command,
        reproduce=(_LAYERS, *extra.reproduce),
        environment=source.environment,
        confidence=confidence,
        findings=source.findings,
        verdict=_verdict(source.diagnosis, names=confidence is None),
        faulty=_shows_fault(source.diagnosis, numbers),
        missed=source.missed,
    )


def _shows_fault(diagnosis: Diagnosis | None, numbers: CaseNumbers) -> bool:
    return numbers.verdict != "fine" if diagnosis is None else diagnosis.kind != "healthy"


def _model_lines(
    source: CaseSource,
    numbers: CaseNumbers,
    chosen: ChosenSamples,
    confidence: Confidentiality | None,
    *,
    extra: Extra | None,
) -> list[tuple[str, Remark]]:
    faulty = _shows_fault(source.diagnosis, numbers)
    numbers, confidence = _as_proven(source, numbers, confidence)
    kind = f"layers.word_{numbers.verdict}" if source.diagnosis is None else word_key(source.diagnosis)
    scores = message("case.scores", name=numbers.output, db=_db(numbers.sqnr_db), cosine=_cosine(numbers.cosine))
    lines: list[tuple[str, Remark]] = [
        ("fault" if faulty else "result", joined([scores, message(kind)])),
        ("samples", message("case.worst_samples", some=len(chosen.indices), all=chosen.total)),
    ]
    accused = list(dict.fromkeys(name for each in source.findings for name in each.accused_nodes))
    if accused and confidence is not None:
        accused = [confidence.names[name] for name in accused if name in confidence.names]
    makers = accused or ([] if source.findings else list(numbers.culprits))
    estimated = [] if makers or source.findings else [node.node for node in numbers.nodes[:3]]
    if makers:
        lines.insert(1, ("made by", few(makers, _NAMED)))
    elif estimated:
        lines.insert(1, ("made by", message("case.unproven", names=few(estimated, _NAMED))))
    if not faulty:
        lines.append(("note", message("case.little_to_show")))
    if extra is not None and extra.recalibrated:
        lines.append(("", extra.recalibrated))
    if confidence is not None:
        before = confidence.before
        original = [verbatim(_db(before.sqnr_db))]
        if source.diagnosis is None:
            original.append(message(f"layers.word_{before.verdict}"))
        if not confidence.reasons:
            original.append(message("case.within", db=number(confidence.close_db), where=confidence.where))
        lines.append(("original", joined(original)))
        lines.append(("weights", confidence.weights))
        lines.append(("data", confidence.data))
        lines += _lacks(confidence.reasons, _TRY_INSTEAD)
    return lines


def _db(value: float | None) -> str:
    return "-" if value is None else decibels_with_unit(value)


def _cosine(value: float | None) -> str:
    return "-" if value is None else score_text("cosine", value)


def _lacks(reasons: tuple[str, ...], instead: Remark) -> list[tuple[str, Remark]]:
    """Why nothing was packed, and what to do instead; nothing where there is no reason."""
    lines: list[tuple[str, Remark]] = [("" if at else "lacks", reason) for at, reason in enumerate(reasons)]
    return [*lines, ("instead", instead)] if lines else []


def _refuse_leaks(
    members: Content, texts: list[str], paths: tuple[str, ...], *, models: list[Model], said: list[str]
) -> None:
    """Refuse what tells; the names of commands and what files are stand in every form."""
    words = (*said, *SUPPORTED, *_FILES.values())
    refuse_leaks(members, texts, paths=paths, models=models, said=words)


# What a device computed, next to what it should have: one tensor in the worst sample.

_SECRET_NAME, _SECRET_SAMPLE = "tensor_0", "sample_0"
_SECRET_FILES = {
    _FORM: _FILES[_FORM],
    _SCRIPT: "shows the numbers of this form with numpy alone",
    _CASE: _FILES[_CASE],
    _REFERENCE: "the tensor in the reference, its elements in another order",
    _CANDIDATE: "the same in the candidate, in that order",
    _ENVIRONMENT: _FILES[_ENVIRONMENT],
}
_MIXED = (
    "The names of tensor, sample and files are replaced; the operation is kept.",
    "Elements of each channel are in another order, the same in both tensors: values remain, pictures do not.",
    "Verified: the same error, to the last bit, and the same kind of difference.",
    "The model is left out: what a device computed with its weights cannot be computed again with others.",
)
_DUMP_FILES = {
    **_FILES,
    _SCRIPT: "shows the numbers of this form with numpy alone; with onnxruntime where there is a model",
    "data/worst.txt": "the sample, for --data",
}


def _compared(run: EarlierRun) -> EarlierRun:
    """A comparison; a diagnosis of dumps becomes one of the model with them."""
    if run.document.command[1] == "compare":
        return run
    model = run.given.model or run.given.quantized
    if model is None or not is_model(model):
        what = english(
            "The diagnosis was of {model} alone, a folder, of which no bundle can be made.", model=model
        )
        again = ["roundoff", *run.document.command[1:2], "MODEL.onnx", *run.document.command[2:]]
        raise BadInput(what, fix=english("name the float model in it: {again}", again=shlex.join(again)))
    return run.compared()


def _pack_dump(run: EarlierRun, settings: BundleSettings) -> Bundle:
    """Choose the tensor and the sample, and describe."""
    document, comparison = run.document, run.document.comparison
    if comparison is None:
        raise BadInput(english("The run holds no comparison."), fix=english("run roundoff compare again with -o"))
    accused = () if document.diagnosis is None else document.diagnosis.accused
    row = _telling_row(comparison, [name for finding in accused for name in finding.tensors])
    with run.sides() as sides:
        pair = _pair(sides, row.reference)
        if pair is None:
            raise BadInput(
                english("{reference!r} has no partner any more.", reference=row.reference),
                fix=english("run roundoff compare again"),
            )
        sample, arrays, fault = _worst_sample(sides, pair, row)
        if settings.confidential:
            return _pack_secret_dump(document, fault, arrays=arrays, sides=sides, seed=settings.seed)
        members, description = _dump_members(run, sides, row.reference, sample=sample, arrays=arrays)
    description["expected_sqnr_db"] = fault.sqnr_db
    ticket = _dump_ticket(
        document,
        fault,
        model=FLOAT_MODEL if FLOAT_MODEL in members else "not known to the run",
        subject=f"{comparison.candidate} against {comparison.reference}",
        samples=sample[:1] if sample[0] else (),
        original=document.command,
        findings=accused,
        verdict=_verdict(document.diagnosis, names=True),
    )
    members[_RUN] = to_json(document).encode()
    members = _finished(members, description, ticket, known=_DUMP_FILES)
    lines: list[tuple[str, Remark]] = [_dump_line(document, fault)]
    lines += [("", message(f"case.role_{fault.role}"))] if fault.role else []
    if sample[0]:
        lines.append(("sample", message("case.worst_sample", name=sample[0], all=len(comparison.samples))))
    return Bundle(members=members, names=None, lines=tuple(lines), shown=True)


def _pack_secret_dump(
    document: RunDocument, fault: DumpFault, *, arrays: tuple[Array, Array], sides: OpenedSides, seed: int
) -> Bundle:
    """Mix the elements of both tensors alike, and verify that the fault is still there."""
    mixed = permuted_alike(*arrays, seed=seed)
    told = replace(fault, tensor=_SECRET_NAME)
    mixed_up = message("case.mixed", count=arrays[0].size)
    lines: list[tuple[str, Remark]] = [_dump_line(document, told), ("values", mixed_up)]
    reasons = list(mixed.reasons)
    if fault.kind == "layout":
        reasons.append(english("axes that were exchanged cannot be seen when elements are in another order"))
    if reasons:
        instead = message("case.without_confidential")
        return Bundle(members={}, names=None, lines=(*lines, *_lacks(tuple(reasons), instead)), shown=False)
    accused = () if document.diagnosis is None else document.diagnosis.accused
    causes = ", ".join(dict.fromkeys(finding.cause for finding in accused))
    ticket = _dump_ticket(
        document,
        told,
        model="left out, as it is confidential",
        subject="a device against its reference" + (f"; causes proven: {causes}" if causes else ""),
        samples=(_SECRET_SAMPLE,),
        disguise=_MIXED,
    )
    place = {"name": _SECRET_SAMPLE, "inputs": {}, "tensors": {_SECRET_NAME: [_REFERENCE, _CANDIDATE]}}
    description = {"float": "", "samples": [place], "expected_sqnr_db": fault.sqnr_db}
    pair = {_REFERENCE: npy_bytes(mixed.reference), _CANDIDATE: npy_bytes(mixed.candidate)}
    members = _finished(pair, description, ticket, known=_SECRET_FILES)
    texts = [fault.tensor, *sides.reference.samples, *sides.candidate.samples]
    texts += [] if sides.model is None else texts_of(sides.model)
    paths = tuple(each.path for each in document.inputs)
    models = [] if sides.model is None else [sides.model]
    _refuse_leaks(members, texts, paths, models=models, said=[*_MIXED, *_SECRET_FILES.values(), fault.op_type])
    names = {"nodes and tensors": {fault.tensor: _SECRET_NAME}, "others": {}}
    return Bundle(members=members, names=names, lines=tuple(lines), shown=True)


def _dump_ticket(document: RunDocument, fault: DumpFault, **said: Any) -> Ticket:
    """The form of a comparison; `said` are fields that differ with what may be told."""
    return Ticket(
        kind=document.command[1],
        fault=fault,
        total=0 if document.comparison is None else len(document.comparison.samples),
        environment=document.environment,
        faulty=_found_wrong(document),
        **said,
    )


def _dump_line(document: RunDocument, fault: DumpFault) -> tuple[str, Remark]:
    scores = message("case.scores", name=fault.tensor, db=_db(fault.sqnr_db), cosine=_cosine(fault.cosine))
    return ("fault" if _found_wrong(document) else "result", scores)


def _found_wrong(document: RunDocument) -> bool:
    """Whether the run found anything wrong: a diagnosis its cause, a comparison a tensor beyond its thresholds."""
    if document.diagnosis is not None:
        return document.diagnosis.kind != "healthy"
    return document.comparison is None or document.comparison.state != "pass"


def _telling_row(comparison: Comparison, accused: list[str]) -> TensorComparison:
    """The tensor that tells most: what is accused, where the error starts, the first that fails, the worst."""
    verdict = comparison.verdict
    first = (verdict.first_divergence,) if verdict.first_divergence else ()
    rows = {row.reference: row for row in comparison.rows if "sqnr_db" in row.score.values}
    for name in (*accused, *verdict.introduces, *first, *verdict.worst):
        if name in rows:
            return rows[name]
    if not rows:
        raise BadInput(
            english("No tensor of the run has a score."), fix=english("see roundoff compare for the reasons")
        )
    return min(rows.values(), key=lambda row: row.score.values["sqnr_db"])


def _pair(sides: OpenedSides, reference: str) -> TensorPair | None:
    return next((each for each in sides.pairing.pairs if each.reference == reference), None)


def _worst_sample(
    sides: OpenedSides, pair: TensorPair, row: TensorComparison
) -> tuple[tuple[str, str], tuple[Array, Array], DumpFault]:
    """The sample in which both sides differ most, what they hold there, and the numbers."""
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
        what = english("{reference!r} has no score in any sample.", reference=pair.reference)
        raise BadInput(what, fix=english("see roundoff compare for the reasons"))
    fault = DumpFault(row.reference, row.op_type, row.role, row.kind, best[0], best[3])
    return best[1], best[2], fault


def _dump_members(
    run: EarlierRun, sides: OpenedSides, tensor: str, *, sample: tuple[str, str], arrays: tuple[Array, Array]
) -> tuple[Content, dict[str, object]]:
    """The tensors; the model and the sample where they are known."""
    given = run.given
    members = {_REFERENCE: npy_bytes(arrays[0]), _CANDIDATE: npy_bytes(arrays[1])}
    members |= _node_inputs(sides, tensor, sample)
    stored: dict[str, object] = {tensor: [_REFERENCE, _CANDIDATE]}
    place: dict[str, object] = {"name": sample[0] or "sample", "inputs": {}, "tensors": stored}
    description: dict[str, object] = {"float": _TAPPED, "samples": [place]}
    computed = given.reference is not None and is_model(given.reference)
    model = given.reference if computed else given.model
    if model is not None:
        members |= model_members(load_model(model), FLOAT_MODEL)
    if computed and given.data and sides.model is not None:
        samples = run.samples(inputs(sides.model))
        feed = samples.feed(samples.names.index(sample[0]))
        files, places = sample_members(CaseSamples("sample", (sample[0],), (feed,)))
        members |= files
        taps = tap(sides.model, [tensor])
        # An output under another name could not be found by the script.
        if taps.outputs == (tensor,):
            members[_TAPPED] = taps.data
            place["inputs"] = places[0]["inputs"]
    return members, description


def _node_inputs(sides: OpenedSides, tensor: str, sample: tuple[str, str]) -> Content:
    """What the node that computes a tensor reads, on both sides as far as these hold it."""
    members: Content = {}
    listed: list[dict[str, str]] = []
    for place, name in enumerate(_reads(sides, tensor)):
        entry = {"tensor": name}
        for side, array in zip(("reference", "candidate"), _both(sides, name, sample), strict=True):
            if array is not None:
                entry[side] = f"tensors/input_{place}_{side}.npy"
                members[entry[side]] = npy_bytes(array)
        listed.append(entry)
    if members:
        members[_INPUTS] = json_bytes(listed)
    return members


def _reads(sides: OpenedSides, tensor: str) -> Iterator[str]:
    if sides.model is None:
        return
    graph = sides.model.proto.graph
    constant = {each.name for each in graph.initializer}
    constant |= {name for node in graph.node if node.op_type == "Constant" for name in node.output}
    node = next((node for node in graph.node if tensor in node.output), None)
    yield from dict.fromkeys(name for name in (node.input if node else ()) if name and name not in constant)


def _both(sides: OpenedSides, name: str, sample: tuple[str, str]) -> tuple[Array | None, Array | None]:
    pair = _pair(sides, name)
    if pair is not None:
        return read_pair((sides.reference, sides.candidate), pair, sample)
    held = any(info.name == name for info in sides.reference.tensors)
    return (sides.reference.read(name, sample[0]) if held else None), None


_MOST_NAMED = 6


def reproduction_page(made: Reproduction) -> Page:
    """Which nodes show the fault by themselves, and what running them showed."""
    finding = made.finding
    about = english(
        ": {nodes} {nodes:node|nodes} alone {nodes:shows|show} finding {number}{cause}",
        nodes=len(made.reproducer.nodes),
        number=finding.number,
        cause=f" ({finding.cause})" if finding.cause else "",
    )
    files = english("{files}, in {folder}", files=", ".join(made.files), folder=made.folder)
    lines = (*_lines(made), (english("files"), files), (english("next"), f"python {made.folder}/run.py"))
    word = english("REPRODUCED") if made.good else english("NOT VERIFIED")
    headline = Headline("good" if made.good else "bad", phrase_of(about), word=phrase_of(word))
    return _page("reproduce", headline, lines)


def not_reproduced_page(error: NotLocal) -> Page:
    """Why no part of the network shows the fault by itself."""
    about = english(": the fault is in no small part of the network")
    headline = Headline("open", phrase_of(about), word=phrase_of(english("NOT REPRODUCED")))
    return _page("reproduce", headline, [(english("why"), error.what), (english("next"), error.fix)])


def bundle_page(packed: Bundle) -> Page:
    """What was packed, or that nothing was."""
    lines = list(packed.lines)
    if not packed.shown:
        headline = Headline("bad", bilingual("case.not_packed"), word=bilingual("case.word_not_packed"))
        return _page("bundle", headline, lines)
    for place, (name, content) in enumerate(sorted(packed.members.items())):
        lines.append(("" if place else "files", f"{name}, {format_size(len(content))}"))
    about = bilingual("case.packed", file=packed.archive)
    return _page("bundle", Headline("good", about, word=bilingual("case.word_packed")), lines)


def _page(name: str, headline: Headline, lines: Iterable[tuple[str, Remark]]) -> Page:
    rows = []
    for label, text in sanitize_for_display(tuple(lines)):
        known = named(f"case.label_{label.replace(' ', '_')}")
        rows.append((phrase_of(label) if known is None else known, phrase_of(text)))
    return Page(name, plain(name), (headline, Facts(tuple(rows))))


def _lines(made: Reproduction) -> Iterator[tuple[str, str]]:
    found, checked = made.reproducer, made.verified
    names = some([f"{name} ({kind})" for name, kind in found.nodes], _MOST_NAMED)
    yield english("nodes"), english("{names}", names=names)
    yield english("where"), found.spot.text
    faulty, mended = decibels_text(found.faulty_db), decibels_text(found.mended_db)
    yield (
        english("alone"),
        english(
            "{faulty}, {mended} {mending}; fed with {fed_with}",
            faulty=faulty,
            mended=mended,
            mending=found.mending,
            fed_with=found.fed_with,
        ),
    )
    yield (
        "run.py",
        english(
            "{shows}, {passes}",
            shows=english("exit code 1 on what is observed")
            if checked.shows
            else english("does NOT show the fault"),
            passes=english("0 on what is expected")
            if checked.passes
            else english("and does NOT pass on what is expected"),
        ),
    )
    if found.complement is not None:
        usual = english("with all other quantizers on and these off")
        if found.stored:
            usual = english("with this tensor right")
        verdict = english("passes") if found.passes else english("does not pass: more is wrong than this")
        if found.unnoticed:
            verdict = english("both are right, the fault does not reach the outputs")
        yield (
            english("complement"),
            english(
                "output SQNR {after} {right}, {before} as it is: {verdict}",
                after=decibels_text(found.complement.after),
                right=found.right or usual,
                before=decibels_text(found.complement.before),
                verdict=verdict,
            ),
        )
    if found.alone is not None:
        yield "", english("{alone} with only these on", alone=decibels_text(found.alone))
