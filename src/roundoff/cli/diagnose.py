"""Find out why a quantized model loses accuracy: which nodes, why, what to do.

Cheap checks come first. What the arithmetic should cost is compared with what
it costs; what is lost beyond that is traced to quantizers by putting others in
their place: the same bits over another range, a scale per channel or slice,
16 bits, codes rounded again, float. The intervention that takes the loss away
names the cause, and its numbers before and after are in the verdict. Nodes that
only inherit an error from their inputs are listed apart.

With --dumps a device is looked at instead: each part is fed what the device fed
it, so that a part is to blame only for what it does wrong by itself.

Verdicts: HEALTHY, CULPRITS, DISTRIBUTED (the loss adds up over many places),
NOT A QUANTIZATION PROBLEM (of dumps: NOT A DEVICE PROBLEM), NOT ENOUGH
EVIDENCE. Exit code 0 when healthy, or repaired by --fix; 1 otherwise. Where no
place is to blame, or its remedies do not suffice, --fix searches for a better
recipe as tune does; bound that with --time.
"""

import argparse
import time
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from roundoff.cli.data_options import add_data_options
from roundoff.cli.device_options import add_device_options, check_device_options, diagnose_dumps
from roundoff.cli.html_option import add_html_option, check_html, write_html
from roundoff.cli.inspection_options import add_limits
from roundoff.cli.next_steps import next_steps
from roundoff.cli.quantize_options import settings_from
from roundoff.cli.repairing import repaired
from roundoff.cli.settings_files import DIALECT_HELP, print_settings
from roundoff.cli.subject import Subject, add_subject_options, check_subject, given_file, open_subject
from roundoff.cli.terminal import Terminal
from roundoff.cli.values import seconds
from roundoff.core.progress import Deadline
from roundoff.errors import EXIT_OK, EXIT_THRESHOLD_MISSED, BadInput
from roundoff.messages.message import message

if TYPE_CHECKING:
    from roundoff.cli.settings_files import Settings
    from roundoff.core.document import RunDocument
    from roundoff.core.plan import QuantPlan
    from roundoff.diagnosis.investigation import DiagnoseSettings
    from roundoff.diagnosis.repair import Fixed
    from roundoff.diagnosis.result import Check, Diagnosis
    from roundoff.diagnosis.task_metric import Metric

SUMMARY = "find out which nodes lose accuracy, why, and what helps"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's options."""
    add_subject_options(parser, required=False)
    add_device_options(parser)
    judge = parser.add_mutually_exclusive_group()
    judge.add_argument("--evaluator", type=Path, metavar="FILE", help="a Python file with evaluate(run, samples)")
    judge.add_argument("--labels", type=Path, metavar="FILE", help="right classes as .npy or CSV")
    parser.add_argument(
        "--fix", action="store_true", help="try remedies, cheapest first, and write the repaired model to -o DIR"
    )
    parser.add_argument("--dialect", metavar="NAME,...", help=f"with --fix: {DIALECT_HELP}")
    parser.add_argument("--time", type=seconds, metavar="TIME", help="be done by then, as 90s or 10m")
    output = parser.add_argument_group("output")
    output.add_argument("--json", action="store_true", help="print the run document instead of the verdict")
    add_html_option(output)
    output.add_argument("-o", "--output", type=Path, metavar="DIR", help="write run.json and findings.csv to DIR")
    output.add_argument("--force", action="store_true", help="replace what an earlier run wrote")
    add_limits(parser)
    add_data_options(parser)


def run(args: argparse.Namespace, terminal: Terminal) -> int:
    """Quantize or read, diagnose, repair, write, print."""
    started = time.monotonic()
    check_device_options(args)
    check_subject(args)
    _check_output(args)
    check_html(args)
    subject = open_subject(args, terminal)
    settings = replace(
        _settings(args, subject, terminal),
        deadline=Deadline.after(args.time, start=started),
        opened_s=time.monotonic() - started,
    )
    found = _diagnosed(args, subject, settings)
    fixed = None
    if args.fix:
        _before_repair(args, subject, found, terminal, started=started)
        fixed = repaired(args, subject, found, settings, terminal)
    if fixed is not None:
        found = replace(found, repair=fixed.repair)
    found = replace(found, next_steps=tuple(next_steps(args, found)))
    helpful = fixed if fixed is not None and any(step.kept for step in fixed.repair.steps) else None
    dialects = _dialects(args, subject, helpful)
    written = _write(args, subject, found, fixed=helpful, settings=dialects, started=started)
    document = _document(args, subject, found, time.monotonic() - started)
    written = [*written, *write_html(args, document)]
    _print(args, terminal, document, found)
    if args.fix and helpful is None:
        key = "diagnosis.not_repaired_nothing" if args.dialect is None else "diagnosis.not_repaired_settings"
        terminal.remark(message(key))
    if dialects is not None and not args.json:
        print_settings(terminal, dialects, args.output)
    if written:
        terminal.written(written)
    return EXIT_OK if found.kind == "healthy" or _repaired(found) else EXIT_THRESHOLD_MISSED


def _before_repair(
    args: argparse.Namespace, subject: Subject, found: "Diagnosis", terminal: Terminal, *, started: float
) -> None:
    """Tell and write what was found: a repair may take long, and whatever becomes of it, nothing is lost."""
    from roundoff.diagnosis.terminal import diagnosis_verdict
    from roundoff.messages.sanitize import for_people

    unrepaired = argparse.Namespace(**{**vars(args), "fix": False})
    first = replace(found, next_steps=tuple(next_steps(unrepaired, found)))
    _write(args, subject, first, fixed=None, settings=None, started=started)
    # From here on what is replaced is our own.
    args.force = True
    write_html(args, _document(args, subject, first, time.monotonic() - started))
    if not args.json:
        terminal.print(diagnosis_verdict(for_people(found)))


def _diagnosed(args: argparse.Namespace, subject: Subject, settings: "DiagnoseSettings") -> "Diagnosis":
    from roundoff.diagnosis.study import diagnose_quantization
    from roundoff.messages.message import verbatim

    if args.dumps is not None:
        return diagnose_dumps(args, subject, replace(settings, subject=verbatim(str(args.dumps))))
    return diagnose_quantization(subject.quantized, subject.samples, settings)


def _check_output(args: argparse.Namespace) -> None:
    """Refuse before the work what could not be written after it."""
    from roundoff.core.document import DOCUMENT_NAME
    from roundoff.core.files import check_output_directory

    if args.dialect is not None:
        from roundoff.vendors.dialects.registry import find_dialects

        find_dialects(args.dialect)
        if not args.fix:
            raise BadInput("--dialect has no effect without --fix.", fix="add --fix -o DIR, or leave it out")
    if args.output is not None:
        check_output_directory(args.output, marker=DOCUMENT_NAME, force=args.force)
    elif args.fix:
        raise BadInput("--fix writes a repaired model, but no folder was given.", fix="add -o DIR")
    elif args.force and args.html is None:
        raise BadInput("--force has no effect without -o or --html.", fix="add -o DIR, or leave it out")


def _settings(args: argparse.Namespace, subject: Subject, terminal: Terminal) -> "DiagnoseSettings":
    from roundoff.diagnosis.investigation import DiagnoseSettings
    from roundoff.diagnosis.terminal import check_line
    from roundoff.messages.sentences import recognised

    def tell(check: "Check") -> None:
        terminal.wrapped(check_line(check))

    return DiagnoseSettings(
        arithmetic=subject.arithmetic,
        metric=_metric(args, subject),
        threads=args.threads,
        max_memory=args.max_memory,
        progress=terminal,
        tell=tell,
        subject=recognised(subject.words),
        given=given_file(args),
        plan=_plan(args),
    )


def _plan(args: argparse.Namespace) -> "QuantPlan | None":
    """What was asked for each node, where a run of ours or the rules say so."""
    from roundoff.graph.load import load_model
    from roundoff.graph.preparation.steps import prepare
    from roundoff.quantize.plan_file import load_plan
    from roundoff.quantize.planning.planner import plan_quantization

    if args.quantized is not None and args.quantized.is_dir():
        return load_plan(args.quantized).plan
    if args.target is None or not (args.set or args.rules):
        return None
    prepared, how = prepare(load_model(args.model)), settings_from(args)
    return plan_quantization(prepared.model, how.target, rules=how.rules, origins=prepared.origins)


def _repaired(found: "Diagnosis") -> bool:
    """Whether remedies brought the metric about to where it should be."""
    return found.repair is not None and found.repair.reached


def _write(
    args: argparse.Namespace,
    subject: Subject,
    found: "Diagnosis",
    *,
    fixed: "Fixed | None",
    settings: "Settings | None",
    started: float,
) -> "list[Path]":
    from roundoff.core.document import DOCUMENT_NAME
    from roundoff.core.files import output_directory, write_text
    from roundoff.report.run_directory import run_files

    if args.output is None:
        return []
    with output_directory(args.output, marker=DOCUMENT_NAME, force=args.force) as staged:
        names = [] if fixed is None else _write_model(args, subject, fixed, staged, settings=settings)
        files = run_files(_document(args, subject, found, time.monotonic() - started))
        for name, text in files.items():
            write_text(staged / name, text)
    return [args.output / name for name in (*names, *files)]


def _write_model(
    args: argparse.Namespace, subject: Subject, fixed: "Fixed", folder: Path, *, settings: "Settings | None"
) -> "list[str]":
    """The repaired model, its plan, and settings in the words of other tools."""
    from roundoff import __version__
    from roundoff.cli.provenance import input_file
    from roundoff.core.files import model_stem, write_text
    from roundoff.diagnosis.repairable_model import Origin, write_repaired

    given = args.model or args.quantized
    origin = Origin(
        model=str(given),
        model_sha256=input_file("model", given).sha256,
        prefix=model_stem(given),
        arithmetic=subject.arithmetic,
        samples=len(subject.samples.names),
        version=__version__,
    )
    written = write_repaired(folder, fixed.quantized, origin, plan=fixed.plan, method=fixed.method)
    if settings is None:
        return list(dict.fromkeys(written.values()))
    for name, text in settings.files().items():
        write_text(folder / name, text)
    return [*dict.fromkeys(written.values()), *settings.files()]


def _dialects(args: argparse.Namespace, subject: Subject, fixed: "Fixed | None") -> "Settings | None":
    """What was repaired, in the words of other tools; None where nothing was, or none are asked for."""
    from roundoff.cli.settings_files import float_model_name, settings_for
    from roundoff.core.files import model_stem
    from roundoff.graph.load import load_model
    from roundoff.vendors.dialects.decisions import Made, decisions_of
    from roundoff.vendors.dialects.registry import find_dialects

    if args.dialect is None or fixed is None:
        return None
    stem, given = model_stem(args.model or args.quantized), None if args.model is None else load_model(args.model)
    made = Made.by_plan(
        fixed.plan,
        stem=stem,
        method=fixed.method,
        samples=len(subject.samples.names),
        graph=float_model_name(stem, given, fixed.quantized.float_model),
    )
    return settings_for(decisions_of(fixed.quantized, made), find_dialects(args.dialect), given=given)


def _metric(args: argparse.Namespace, subject: Subject) -> "Metric | None":
    from roundoff.diagnosis.task_metric import accuracy_metric, evaluator_metric
    from roundoff.run.evaluators import load_evaluator
    from roundoff.samples.labels import load_labels

    if args.evaluator is not None:
        return evaluator_metric(load_evaluator(args.evaluator), subject.samples, threads=args.threads)
    if args.labels is not None:
        labels = load_labels(args.labels, subject.samples.names)
        return accuracy_metric(labels, subject.samples, threads=args.threads)
    return None


def _document(args: argparse.Namespace, subject: Subject, found: "Diagnosis", elapsed_s: float) -> "RunDocument":
    from roundoff.cli.inspection_options import document_of
    from roundoff.cli.provenance import input_file

    more = [
        ("evaluator", args.evaluator),
        ("labels", args.labels),
        ("dumps", args.dumps),
        ("aliases", args.aliases),
    ]
    document = document_of(args, subject.quantized.float_model, elapsed_s, diagnosis=found)
    read = tuple(input_file(role, path) for role, path in more if path is not None)
    return replace(document, inputs=(*document.inputs, *read))


def _print(args: argparse.Namespace, terminal: Terminal, document: "RunDocument", found: "Diagnosis") -> None:
    from roundoff.core.document import to_json
    from roundoff.diagnosis.terminal import diagnosis_verdict, next_lines, repair_line, repair_table
    from roundoff.messages.sanitize import for_people

    if args.json:
        terminal.text(to_json(document))
        return
    shown = for_people(found)
    if not args.fix:
        terminal.print(diagnosis_verdict(shown))
    if shown.repair is not None:
        terminal.text("")
        terminal.print(repair_line(shown))
        terminal.print(repair_table(shown.repair))
    if args.fix and shown.next_steps:
        terminal.print(next_lines(shown))
    for note in found.notes:
        terminal.remark(note)
