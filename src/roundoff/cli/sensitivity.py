"""Rank nodes, weights and activations by what each one alone does to the outputs.

Each is quantized alone, everything else stays float, and the outputs are
compared with those of the float model; --leave-one-out does the opposite.
By default all are measured on 16 samples, then the leading ones on all;
with --fast all on 4, then the leading ones on 16.
Ctrl-C shows what is done so far; with --resume FILE the next run goes on there.

This is not the local error of 'roundoff layers': a node whose own error is
large may hardly matter to the outputs, and the other way round.
"""

import argparse
import time
from pathlib import Path
from typing import TYPE_CHECKING

from roundoff.cli.data_options import add_data_options
from roundoff.cli.inspection_options import add_limits, document_of, rows
from roundoff.cli.results import Results, add_result_options, check_results, show_results
from roundoff.cli.subject import add_subject_options, check_subject, open_subject
from roundoff.cli.terminal import Terminal
from roundoff.cli.values import positive, seconds
from roundoff.errors import EXIT_INTERRUPTED, EXIT_OK, BadInput
from roundoff.messages.catalogue import told

if TYPE_CHECKING:
    from roundoff.graph.load import Model
    from roundoff.report.plots.canvas import PictureForm
    from roundoff.studies.sensitivity.result import SensitivityReport
    from roundoff.studies.sensitivity.settings import SensitivitySettings

SUMMARY = "rank nodes, weights, activations by what each does to outputs"

_DEFAULT_ROWS = 10
_KINDS = ("node", "weight", "activation")
_DEFAULT_METRICS = "sqnr_db,cosine,mse,mean_relative_error,chebyshev"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's options."""
    add_subject_options(parser)
    what = parser.add_argument_group("what is measured")
    what.add_argument(
        "--kind",
        nargs="+",
        choices=_KINDS,
        default=list(_KINDS),
        metavar="KIND",
        help="node, weight, activation: which rankings (default: all three, from one run)",
    )
    what.add_argument(
        "--nodes",
        nargs="+",
        action="extend",
        default=[],
        metavar="GLOB",
        help="only these nodes, tensors or quantizers",
    )
    what.add_argument(
        "--group",
        nargs="+",
        action="append",
        default=[],
        metavar="NAME",
        help="also switch these nodes, tensors or quantizers together; may be repeated",
    )
    what.add_argument(
        "--metric",
        default=_DEFAULT_METRICS,
        metavar="NAME,...",
        help="what outputs are compared by; the first ranks (default: sqnr_db and four more)",
    )
    what.add_argument(
        "--output-node",
        nargs="+",
        action="extend",
        default=[],
        metavar="NAME",
        help="compare these tensors, or outputs of these nodes, instead of the model's outputs",
    )
    what.add_argument(
        "--leave-one-out", action="store_true", help="quantize everything but the one, instead of it alone"
    )
    effort = parser.add_argument_group("effort")
    effort.add_argument("--exact", action="store_true", help="measure all on all samples")
    effort.add_argument(
        "--fast", action="store_true", help="take fewer samples: 4 for all, 16 for the leading ones"
    )
    effort.add_argument(
        "--first-samples",
        type=positive,
        metavar="N",
        help="samples that all are measured on (default: 16, with --fast 4)",
    )
    effort.add_argument("--budget", type=seconds, metavar="TIME", help="stop after this time, as 90s, 5m or 1h")
    effort.add_argument(
        "--resume", type=Path, metavar="FILE", help="remember what is measured in FILE, and go on from there"
    )
    output = add_result_options(parser, table="sensitivity.csv", pictures=True)
    output.add_argument(
        "--top", type=rows, default=_DEFAULT_ROWS, metavar="N|all", help="rows of each table (default: 10)"
    )
    add_limits(parser)
    add_data_options(parser)


def run(args: argparse.Namespace, terminal: Terminal) -> int:
    """Quantize or read, measure, print, write."""
    from roundoff.studies.sensitivity.page import SENSITIVITY_CSV_START
    from roundoff.studies.sensitivity.study import analyze_sensitivity
    from roundoff.studies.sensitivity.summary import report_sensitivity

    started = time.monotonic()
    check_subject(args)
    check_results(args, csv_start=SENSITIVITY_CSV_START)
    _check_journal(args)
    settings = _settings(args)
    subject = open_subject(args, terminal)
    begun = time.monotonic()
    found = analyze_sensitivity(
        subject.quantized, subject.samples, settings, progress=terminal, journal=args.resume
    )
    # What was not done because of the budget was asked for; the rest was not.
    interrupted = not found.complete and (args.budget is None or time.monotonic() - begun < args.budget)
    report = report_sensitivity(found, subject.quantized)
    show_results(args, terminal, _results(args, subject.quantized.float_model, report, time.monotonic() - started))
    if interrupted and args.resume is not None:
        terminal.note(told("sensitivity.interrupted", file=args.resume))
    return EXIT_INTERRUPTED if interrupted else EXIT_OK


def _check_journal(args: argparse.Namespace) -> None:
    """Refuse a journal that results would be written over, or into whose folder they could not be written."""
    if args.resume is None:
        return
    journal = args.resume.resolve()
    for option, path in (("--csv", args.csv), ("--plot", args.plot)):
        if path is not None and path.resolve() == journal:
            raise BadInput(f"--resume and {option} both name {path}.", fix="give each a file of its own")
    if args.output is not None and journal.is_relative_to(args.output.resolve()):
        what = f"--resume {args.resume} is in the folder of -o, which is written whole or not at all."
        raise BadInput(what, fix="keep the journal beside that folder")


def _settings(args: argparse.Namespace) -> "SensitivitySettings":
    """What was asked for; a misspelt metric should not be told after minutes of work."""
    from roundoff.studies.sensitivity.scoring import Scorer
    from roundoff.studies.sensitivity.settings import SensitivitySettings

    if args.exact and args.first_samples is not None:
        what = "--first-samples has no effect with --exact, which measures all on all samples."
        raise BadInput(what, fix="leave one of them out")
    metrics = tuple(name.strip() for name in args.metric.split(",") if name.strip())
    Scorer(metrics)
    return SensitivitySettings(
        kinds=tuple(dict.fromkeys(args.kind)),
        metrics=metrics,
        outputs=tuple(args.output_node),
        nodes=tuple(args.nodes),
        groups={" + ".join(names): tuple(names) for names in args.group},
        mode="left_out" if args.leave_one_out else "alone",
        first_samples=args.first_samples,
        top=max(_DEFAULT_ROWS, args.top or _DEFAULT_ROWS),
        exact=args.exact,
        fast=args.fast,
        budget_s=args.budget,
        max_memory=args.max_memory,
        threads=args.threads,
    )


def _results(args: argparse.Namespace, model: "Model", report: "SensitivityReport", elapsed_s: float) -> Results:
    from functools import partial

    from roundoff.pages.blocks import View
    from roundoff.report.plots.sensitivity import sensitivity_picture
    from roundoff.studies.sensitivity.page import sensitivity_page

    def painter(kind: str, form: "PictureForm") -> bytes:
        return sensitivity_picture(report, kind, form=form)

    document = document_of(args, model, elapsed_s, sensitivity=report)
    return Results(
        document=document,
        table="sensitivity.csv",
        picture={f"sensitivity_of_{kind}": partial(painter, kind) for kind in report.rankings},
        page=sensitivity_page(document, View(args.top)),
    )
