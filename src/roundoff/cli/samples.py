"""Rank samples by how much quantization changes their outputs.

The worst sample comes first; a sample is as bad as its worst output. With
--copy-to the worst ones are stored as the model is fed with them, beside a
list worst.txt that any command takes: --data DIR/worst.txt.
"""

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from roundoff.cli.options import add_data_options, add_limits, add_subject_options, rows, subject_words
from roundoff.cli.results import Results, add_result_options, check_results, show_results
from roundoff.cli.terminal import Terminal
from roundoff.errors import BadInput
from roundoff.messages.message import english

if TYPE_CHECKING:
    from roundoff.api.outcome import Outcome
    from roundoff.studies.samples.result import WorstSamples

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
    from roundoff.api.studies import samples
    from roundoff.messages.catalogue import translate
    from roundoff.studies.samples.page import WORST_SAMPLES_CSV_START

    check_results(args, csv_start=WORST_SAMPLES_CSV_START)
    _check_copy(args)
    outcome = samples(
        args.model, metric=args.metric, output_node=args.output_node, **subject_words(args, terminal)
    )
    show_results(args, terminal, _results(args, outcome))
    if args.copy_to is not None:
        listed = outcome.copy_to(args.copy_to, top=args.top, force=args.force)
        terminal.note(translate("samples.copied", folder=args.copy_to, list=listed))
    return outcome.exit_code


def _check_copy(args: argparse.Namespace) -> None:
    from roundoff.core.files import check_output_directory
    from roundoff.samples.sample_set import LIST_NAME

    if args.copy_to is None:
        return
    if args.output is not None and args.copy_to.resolve() == args.output.resolve():
        raise BadInput(
            english("-o and --copy-to both name {copy_to}.", copy_to=args.copy_to),
            fix=english("give each a folder of its own"),
        )
    check_output_directory(args.copy_to, marker=LIST_NAME, force=args.force, option="--copy-to")


def _results(args: argparse.Namespace, outcome: "Outcome[WorstSamples]") -> Results:
    from roundoff.pages.blocks import View
    from roundoff.report.plots.curves import worst_samples_picture
    from roundoff.studies.samples.page import samples_page

    worst = outcome.result
    return Results(
        document=outcome.document,
        table="samples.csv",
        picture={"samples": lambda form: worst_samples_picture(worst, form=form)},
        page=samples_page(outcome.document, View(args.top)),
    )
