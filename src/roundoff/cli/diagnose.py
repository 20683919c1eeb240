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
from roundoff.cli.inspection_options import add_limits
from roundoff.cli.subject import Subject, add_subject_options, check_subject, open_subject, subject_inputs
from roundoff.cli.terminal import Terminal
from roundoff.cli.values import seconds
from roundoff.errors import EXIT_OK, EXIT_THRESHOLD_MISSED, BadInput

if TYPE_CHECKING:
    from roundoff.core.document import RunDocument
    from roundoff.core.findings import Check, Diagnosis
    from roundoff.diagnosis.metric import Metric

SUMMARY = "find out which nodes lose accuracy, why, and what helps"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's options."""
    add_subject_options(parser, required=False)
    add_device_options(parser)
    judge = parser.add_mutually_exclusive_group()
    judge.add_argument("--evaluator", type=Path, metavar="FILE", help="a Python file with evaluate(run, samples)")
    judge.add_argument("--labels", type=Path, metavar="FILE", help="right classes as .npy or CSV")
    parser.add_argument("--time", type=seconds, metavar="TIME", help="begin nothing after it, as 90s or 10m")
    output = parser.add_argument_group("output")
    output.add_argument("--json", action="store_true", help="print the run document instead of the verdict")
    output.add_argument("-o", "--output", type=Path, metavar="DIR", help="write run.json and findings.csv to DIR")
    output.add_argument("--force", action="store_true", help="replace what an earlier run wrote")
    add_limits(parser)
    add_data_options(parser)


def run(args: argparse.Namespace, terminal: Terminal) -> int:
    """Quantize or read, diagnose, print, write."""
    started = time.monotonic()
    check_device_options(args)
    check_subject(args)
    _check_output(args)
    subject = open_subject(args, terminal)
    found = _diagnosed(args, subject, terminal)
    found = replace(found, next_steps=tuple(_next_steps(args, found)))
    document = _document(args, found, time.monotonic() - started)
    _print(args, terminal, document, found)
    if args.output is not None:
        from roundoff.report.run_directory import write_run

        written = write_run(document, args.output, force=args.force)
        terminal.note("written: " + ", ".join(str(path) for path in written))
    return EXIT_OK if found.kind == "healthy" else EXIT_THRESHOLD_MISSED


def _check_output(args: argparse.Namespace) -> None:
    """Refuse before the work what could not be written after it."""
    from roundoff.core.files import check_output_directory
    from roundoff.report.documents import DOCUMENT_NAME

    if args.output is not None:
        check_output_directory(args.output, marker=DOCUMENT_NAME, force=args.force)
    elif args.force:
        raise BadInput("--force has no effect without -o.", fix="add -o DIR, or leave it out")


def _diagnosed(args: argparse.Namespace, subject: Subject, terminal: Terminal) -> "Diagnosis":
    from roundoff.diagnosis.quantization import DiagnoseSettings, diagnose_quantization
    from roundoff.report.diagnosis import check_line

    def tell(check: "Check") -> None:
        terminal.note(check_line(check.name, check.result, check.seconds))

    settings = DiagnoseSettings(
        arithmetic=subject.arithmetic,
        metric=_metric(args, subject),
        time_s=args.time,
        threads=args.threads,
        max_memory=args.max_memory,
        progress=terminal,
        tell=tell,
        subject=subject.words,
    )
    if args.dumps is not None:
        return diagnose_dumps(args, subject, replace(settings, subject=str(args.dumps)))
    return diagnose_quantization(subject.quantized, subject.samples, settings)


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
    if found.kind == "distributed":
        target = args.target or "TARGET"
        return [f"roundoff tune {model} {data} --target {target} -o tuned"]
    tensors = [name for each in found.accused for name in each.tensors[:1]]
    if found.kind == "culprits" and tensors:
        return [f"roundoff distribution {model} {shlex.quote(tensors[0])} {data} {quantized}"]
    if found.kind == "not_enough_evidence":
        return [f"roundoff layers {whole}"]
    return []


def _document(args: argparse.Namespace, found: "Diagnosis", elapsed_s: float) -> "RunDocument":
    from roundoff.cli.provenance import environment, input_file
    from roundoff.core.document import SCHEMA, RunDocument

    more = [
        ("evaluator", args.evaluator),
        ("labels", args.labels),
        ("dumps", args.dumps),
        ("aliases", args.aliases),
    ]
    read = (*subject_inputs(args), *(input_file(role, path) for role, path in more if path is not None))
    return RunDocument(
        schema=SCHEMA,
        command=("roundoff", *args.words),
        inputs=read,
        diagnosis=found,
        environment=environment(elapsed_s),
    )


def _print(args: argparse.Namespace, terminal: Terminal, document: "RunDocument", found: "Diagnosis") -> None:
    from roundoff.core.harmless import for_people
    from roundoff.report.diagnosis import diagnosis_verdict
    from roundoff.report.documents import to_json

    if args.json:
        terminal.text(to_json(document))
        return
    terminal.print(diagnosis_verdict(for_people(found)))
    for note in found.notes:
        terminal.note(f"note: {note}")
