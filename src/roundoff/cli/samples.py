"""Rank samples by how much quantization changes their outputs.

The worst sample comes first; a sample is as bad as its worst output. With
--copy-to the worst ones are stored as the model is fed with them, beside a
list worst.txt that any command takes: --data DIR/worst.txt.
"""

import argparse
import time
from pathlib import Path
from typing import TYPE_CHECKING

from roundoff.cli.data_options import add_data_options
from roundoff.cli.inspection_options import add_limits, document_of, limits_from, rows
from roundoff.cli.results import Results, add_result_options, check_results, show_results
from roundoff.cli.subject import Subject, add_subject_options, check_subject, open_subject
from roundoff.cli.terminal import Terminal
from roundoff.errors import EXIT_OK, BadInput

if TYPE_CHECKING:
    from roundoff.graph.load import Model
    from roundoff.studies.samples.result import WorstSamples

SUMMARY = "find the samples that quantization hurts most"

_DEFAULT_ROWS = 10
_DEFAULT_METRICS = "sqnr_db,cosine,mse"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's options."""
    add_subject_options(parser)
    parser.add_argument(
        "--metric",
        default=_DEFAULT_METRICS,
        metavar="NAME,...",
        help=f"what outputs are compared by; the first ranks (default: {_DEFAULT_METRICS})",
    )
    parser.add_argument(
        "--output-node",
        action="append",
        default=[],
        metavar="NAME",
        help="compare this tensor, or the outputs of this node, instead of the model's outputs; may be repeated",
    )
    output = add_result_options(parser, table="samples.csv", pictures=True)
    output.add_argument(
        "--top", type=rows, default=_DEFAULT_ROWS, metavar="N|all", help="samples shown and copied (default: 10)"
    )
    output.add_argument("--copy-to", type=Path, metavar="DIR", help="store the worst samples and a list of them")
    add_limits(parser)
    add_data_options(parser)


def run(args: argparse.Namespace, terminal: Terminal) -> int:
    """Quantize or read, compare, print, write."""
    from roundoff.measure.metrics import get_metric
    from roundoff.studies.samples.page import WORST_SAMPLES_CSV_START
    from roundoff.studies.samples.study import WorstSampleSettings, find_worst_samples

    started = time.monotonic()
    check_subject(args)
    check_results(args, csv_start=WORST_SAMPLES_CSV_START)
    _check_copy(args)
    metrics = tuple(name.strip() for name in args.metric.split(",") if name.strip())
    # What is misspelt should not be told after minutes of work.
    for name in metrics:
        get_metric(name)
    settings = WorstSampleSettings(metrics=metrics, outputs=tuple(args.output_node), limits=limits_from(args))
    subject = open_subject(args, terminal)
    worst = find_worst_samples(subject.quantized, subject.samples, settings, progress=terminal)
    show_results(args, terminal, _results(args, subject.quantized.float_model, worst, time.monotonic() - started))
    if args.copy_to is not None:
        _copy(args, terminal, subject, worst)
    return EXIT_OK


def _check_copy(args: argparse.Namespace) -> None:
    from roundoff.core.files import check_output_directory
    from roundoff.samples.sample_set import LIST_NAME

    if args.copy_to is None:
        return
    if args.output is not None and args.copy_to.resolve() == args.output.resolve():
        raise BadInput(f"-o and --copy-to both name {args.copy_to}.", fix="give each a folder of its own")
    check_output_directory(args.copy_to, marker=LIST_NAME, force=args.force, option="--copy-to")


def _copy(args: argparse.Namespace, terminal: Terminal, subject: Subject, worst: "WorstSamples") -> None:
    from roundoff.core.files import output_directory
    from roundoff.messages.catalogue import told
    from roundoff.samples.sample_set import LIST_NAME, copy_samples

    with output_directory(args.copy_to, marker=LIST_NAME, force=args.force) as staged:
        copy_samples(
            staged,
            ((each.sample, subject.samples.feed(each.index)) for each in worst.samples[: args.top]),
            heading=f"the worst samples of {worst.data} by {worst.metrics[0]}, worst first",
        )
    terminal.note(told("samples.copied", folder=args.copy_to, list=args.copy_to / LIST_NAME))


def _results(args: argparse.Namespace, model: "Model", worst: "WorstSamples", elapsed_s: float) -> Results:
    from roundoff.pages.blocks import View
    from roundoff.report.plots.worst_samples import worst_samples_picture
    from roundoff.studies.samples.page import samples_page

    document = document_of(args, model, elapsed_s, worst_samples=worst)
    return Results(
        document=document,
        table="samples.csv",
        picture={"samples": lambda form: worst_samples_picture(worst, form=form)},
        page=samples_page(document, View(args.top)),
    )
