"""Find out why a quantized model loses accuracy: which nodes, why, what to do.

Cheap checks come first. What the arithmetic should cost is compared with what
it costs; what is lost beyond that is traced to quantizers by putting others in
their place: the same bits over another range, a scale per channel or slice,
16 bits, codes rounded again, float. The intervention that takes the loss away
names the cause, and its numbers before and after are in the verdict. Nodes that
are wrong only because of what they read are listed apart.

Verdicts: HEALTHY, CULPRITS, DISTRIBUTED (the loss adds up over many places),
ELSEWHERE (the quantization is not what is wrong), NOT ENOUGH EVIDENCE. Exit
code 0 when healthy, or repaired by --fix; 1 otherwise.
"""

import argparse
import time
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from roundoff.cli.data_options import add_data_options
from roundoff.cli.device_options import (
    add_device_options,
    check_device_options,
    device_next_steps,
    diagnose_dumps,
)
from roundoff.cli.html_option import add_html_option, check_html, write_html
from roundoff.cli.inspection_options import add_limits
from roundoff.cli.quantize_options import settings_from
from roundoff.cli.subject import Subject, add_subject_options, check_subject, open_subject
from roundoff.cli.terminal import Terminal
from roundoff.cli.values import seconds
from roundoff.errors import EXIT_OK, EXIT_THRESHOLD_MISSED, BadInput

if TYPE_CHECKING:
    from roundoff.core.document import RunDocument
    from roundoff.core.findings import Check, Diagnosis
    from roundoff.core.recipe import Recipe
    from roundoff.diagnosis.fixing import Fixed
    from roundoff.diagnosis.investigation import DiagnoseSettings
    from roundoff.diagnosis.metric import Metric
    from roundoff.graph.load import Model
    from roundoff.quantize.recipes import RecipeBuilder

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
    parser.add_argument("--time", type=seconds, metavar="TIME", help="begin nothing after it, as 90s or 10m")
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
    settings = _settings(args, subject, terminal)
    found = _diagnosed(args, subject, settings)
    fixed = _fixed(args, subject, found, settings, terminal) if args.fix and found.accused else None
    if fixed is not None:
        found = replace(found, repair=fixed.repair)
    found = replace(found, next_steps=tuple(_next_steps(args, found)))
    written = _write(args, subject, found, fixed, started)
    document = _document(args, subject, found, time.monotonic() - started)
    written = [*written, *write_html(args, document)]
    _print(args, terminal, document, found)
    if written:
        terminal.note("written: " + ", ".join(str(path) for path in written))
    return EXIT_OK if found.kind == "healthy" or _repaired(found) else EXIT_THRESHOLD_MISSED


def _diagnosed(args: argparse.Namespace, subject: Subject, settings: "DiagnoseSettings") -> "Diagnosis":
    from roundoff.diagnosis.quantization import diagnose_quantization

    if args.dumps is not None:
        return diagnose_dumps(args, subject, replace(settings, subject=str(args.dumps)))
    return diagnose_quantization(subject.quantized, subject.samples, settings)


def _check_output(args: argparse.Namespace) -> None:
    """Refuse before the work what could not be written after it."""
    from roundoff.core.files import check_output_directory
    from roundoff.report.documents import DOCUMENT_NAME

    if args.output is not None:
        check_output_directory(args.output, marker=DOCUMENT_NAME, force=args.force)
    elif args.fix:
        raise BadInput("--fix writes a repaired model, but no folder was given.", fix="add -o DIR")
    elif args.force and args.html is None:
        raise BadInput("--force has no effect without -o or --html.", fix="add -o DIR, or leave it out")


def _settings(args: argparse.Namespace, subject: Subject, terminal: Terminal) -> "DiagnoseSettings":
    from roundoff.diagnosis.investigation import DiagnoseSettings
    from roundoff.report.diagnosis import check_line

    def tell(check: "Check") -> None:
        terminal.note(check_line(check.name, check.result, check.seconds))

    return DiagnoseSettings(
        arithmetic=subject.arithmetic,
        metric=_metric(args, subject),
        time_s=args.time,
        threads=args.threads,
        max_memory=args.max_memory,
        progress=terminal,
        tell=tell,
        subject=subject.words,
        given=_given(args),
    )


def _given(args: argparse.Namespace) -> "Model | None":
    """The file of the quantized model, where one was given."""
    from roundoff.graph.load import load_model

    return load_model(args.quantized) if args.quantized is not None and args.quantized.is_file() else None


def _fixed(
    args: argparse.Namespace,
    subject: Subject,
    found: "Diagnosis",
    settings: "DiagnoseSettings",
    terminal: Terminal,
) -> "Fixed":
    """Try remedies: on the recipe of a model that is made here, else on the quantizers of the given one."""
    from roundoff.diagnosis.fixing import fix_model, fix_recipe

    def out_of_time() -> bool:
        return args.time is not None and time.monotonic() - began > args.time

    began = time.monotonic()
    if args.target is None:
        return fix_model(found, subject.quantized, subject.samples, settings, out_of_time=out_of_time)
    builder, recipe = _recipe(args, subject, terminal)
    return fix_recipe(found, builder, recipe, subject.samples, settings=settings, out_of_time=out_of_time)


def _recipe(args: argparse.Namespace, subject: Subject, terminal: Terminal) -> "tuple[RecipeBuilder, Recipe]":
    """What makes the model that was diagnosed, and how."""
    from roundoff.core.recipe import Recipe
    from roundoff.graph.load import load_model
    from roundoff.quantize.recipes import Making, RecipeBuilder

    how = settings_from(args)
    making = Making(how.options, threads=args.threads, max_memory=args.max_memory, progress=terminal)
    builder = RecipeBuilder(load_model(args.model), subject.samples, how.target, making=making)
    method = how.methods[0] if how.methods else ""
    return builder, Recipe(method=method, weight_method=how.weight_method, rules=how.rules)


def _repaired(found: "Diagnosis") -> bool:
    """Whether remedies brought the metric about to where it should be."""
    return found.repair is not None and found.repair.reached


def _write(
    args: argparse.Namespace, subject: Subject, found: "Diagnosis", fixed: "Fixed | None", started: float
) -> "list[Path]":
    from roundoff.core.files import output_directory, write_text
    from roundoff.report.documents import DOCUMENT_NAME
    from roundoff.report.run_directory import run_files

    if args.output is None:
        return []
    with output_directory(args.output, marker=DOCUMENT_NAME, force=args.force) as staged:
        helped = fixed is not None and any(step.kept for step in fixed.repair.steps)
        names = _write_model(args, subject, fixed, staged) if fixed is not None and helped else []
        files = run_files(_document(args, subject, found, time.monotonic() - started))
        for name, text in files.items():
            write_text(staged / name, text)
    return [args.output / name for name in (*names, *files)]


def _write_model(args: argparse.Namespace, subject: Subject, fixed: "Fixed", folder: Path) -> "list[str]":
    """The repaired model and its plan; settings in the words of other tools belong here, too."""
    from roundoff import __version__
    from roundoff.cli.provenance import input_file
    from roundoff.core.model_files import model_stem
    from roundoff.diagnosis.delivering import Origin, write_repaired

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
    return list(dict.fromkeys(written.values()))


def _metric(args: argparse.Namespace, subject: Subject) -> "Metric | None":
    from roundoff.analysis.evaluation import load_evaluator
    from roundoff.analysis.labels import load_labels
    from roundoff.diagnosis.metric import accuracy_metric, evaluator_metric

    if args.evaluator is not None:
        return evaluator_metric(load_evaluator(args.evaluator), subject.samples, threads=args.threads)
    if args.labels is not None:
        labels = load_labels(args.labels, subject.samples.names)
        return accuracy_metric(labels, subject.samples, threads=args.threads)
    return None


def _next_steps(args: argparse.Namespace, found: "Diagnosis") -> list[str]:
    """Commands that lead on, with what was given here."""
    import shlex

    if args.dumps is not None:
        return device_next_steps(args, found)

    data = " ".join(f"--data {shlex.quote(text)}" for text in args.data or ())
    model = "" if args.model is None else shlex.quote(str(args.model))
    quantized = (
        f"--target {shlex.quote(args.target)}"
        if args.target
        else f"--quantized {shlex.quote(str(args.quantized))}"
    )
    whole = " ".join(filter(None, [model, data, quantized]))
    tensors = [name for each in found.accused for name in each.tensors[:1]]
    if found.repair is not None and found.repair.reached:
        return [f"roundoff layers {data} --quantized {shlex.quote(str(args.output))}"]
    if found.kind == "culprits" and not args.fix:
        return [f"roundoff diagnose {whole} --fix -o repaired"]
    if found.kind == "culprits" and tensors:
        return [f"roundoff distribution {model} {shlex.quote(tensors[0])} {data} {quantized}"]
    others = {
        "distributed": f"roundoff tune {model} {data} --target {args.target or 'TARGET'} -o tuned",
        "not_enough_evidence": f"roundoff layers {whole}",
    }
    return [others[found.kind]] if found.kind in others else []


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
    from roundoff.core.harmless import for_people
    from roundoff.report.diagnosis import diagnosis_verdict, repair_table
    from roundoff.report.documents import to_json

    if args.json:
        terminal.text(to_json(document))
        return
    shown = for_people(found)
    terminal.print(diagnosis_verdict(shown))
    if shown.repair is not None:
        terminal.text("")
        terminal.print(repair_table(shown.repair))
    for note in found.notes:
        terminal.note(f"note: {note}")
