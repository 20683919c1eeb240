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
from pathlib import Path
from typing import TYPE_CHECKING

from roundoff.cli.options import (
    add_data_options,
    add_limits,
    add_subject_options,
    positive,
    rows,
    seconds,
    subject_words,
)
from roundoff.cli.results import Results, add_result_options, check_results, show_results
from roundoff.cli.terminal import Terminal
from roundoff.errors import EXIT_INTERRUPTED, BadInput
from roundoff.messages.catalogue import translate
from roundoff.messages.message import english

if TYPE_CHECKING:
    from roundoff.api.outcome import Outcome
    from roundoff.report.plots.canvas import PictureForm
    from roundoff.studies.sensitivity.result import SensitivityReport

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
    from roundoff.api.studies import sensitivity
    from roundoff.studies.sensitivity.page import SENSITIVITY_CSV_START

    check_results(args, csv_start=SENSITIVITY_CSV_START)
    _check_journal(args)
    outcome = sensitivity(
        args.model,
        kind=args.kind,
        nodes=args.nodes,
        group=args.group,
        metric=args.metric,
        output_node=args.output_node,
        leave_one_out=args.leave_one_out,
        exact=args.exact,
        fast=args.fast,
        first_samples=args.first_samples,
        budget=args.budget,
        resume=args.resume,
        top=args.top,
        **subject_words(args, terminal),
    )
    show_results(args, terminal, _results(args, outcome))
    if outcome.exit_code == EXIT_INTERRUPTED and args.resume is not None:
        terminal.note(translate("sensitivity.interrupted", file=args.resume))
    return outcome.exit_code


def _check_journal(args: argparse.Namespace) -> None:
    """Refuse a journal that results would be written over, or into whose folder they could not be written."""
    if args.resume is None:
        return
    journal = args.resume.resolve()
    for option, path in (("--csv", args.csv), ("--plot", args.plot)):
        if path is not None and path.resolve() == journal:
            raise BadInput(
                english("--resume and {option} both name {path}.", option=option, path=path),
                fix=english("give each a file of its own"),
            )
    if args.output is not None and journal.is_relative_to(args.output.resolve()):
        what = english(
            "--resume {resume} is in the folder of -o, which is written whole or not at all.", resume=args.resume
        )
        raise BadInput(what, fix=english("keep the journal beside that folder"))


def _results(args: argparse.Namespace, outcome: "Outcome[SensitivityReport]") -> Results:
    from functools import partial

    from roundoff.pages.blocks import View
    from roundoff.report.plots.curves import sensitivity_picture
    from roundoff.studies.sensitivity.page import sensitivity_page

    report = outcome.result

    def painter(kind: str, form: "PictureForm") -> bytes:
        return sensitivity_picture(report, kind, form=form)

    return Results(
        document=outcome.document,
        table="sensitivity.csv",
        picture={f"sensitivity_of_{kind}": partial(painter, kind) for kind in report.rankings},
        page=sensitivity_page(outcome.document, View(args.top)),
    )
