"""Count in every tensor the channels that are small against its largest value.

The level of a channel is the logarithm (to the base 2, or --log-base) of the
tensor's largest magnitude over that of the channel: at level 6 one scale for
all leaves it 4 of 256 levels. Many such channels ask for smoothing, for a scale
per channel or for 16 bits. Needs no quantized model.
"""

import argparse
from typing import TYPE_CHECKING

from roundoff.cli.options import add_data_options, add_limits, add_subject_options, rows, subject_words
from roundoff.cli.results import Results, add_result_options, check_results, show_results
from roundoff.cli.terminal import Terminal

if TYPE_CHECKING:
    from roundoff.api.outcome import Outcome
    from roundoff.studies.distribution.result import OutlierReport

_DEFAULT_ROWS = 20


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's options."""
    add_subject_options(parser, required=False)
    parser.add_argument(
        "--nodes", nargs="+", default=[], metavar="GLOB", help="only tensors or nodes whose names match (quote it)"
    )
    parser.add_argument(
        "--log-base", type=float, default=2.0, metavar="X", help="base of the logarithm, above 1 (default: 2)"
    )
    parser.add_argument(
        "--axis", type=int, metavar="N", help="where the channels are (default: as usual for the operation)"
    )
    output = add_result_options(parser, table="outliers.csv", pictures=True)
    output.add_argument("--sort", choices=("worst", "order"), default="worst", help="order of the table")
    output.add_argument(
        "--top", type=rows, default=_DEFAULT_ROWS, metavar="N|all", help="rows shown (default: 20)"
    )
    add_limits(parser)
    add_data_options(parser)


def run(args: argparse.Namespace, terminal: Terminal) -> int:
    """Open, look, print, write."""
    from roundoff.api.studies import outliers
    from roundoff.studies.distribution.channel_pages import OUTLIERS_CSV_START

    check_results(args, csv_start=OUTLIERS_CSV_START)
    outcome = outliers(
        args.model, args.nodes, log_base=args.log_base, axis=args.axis, **subject_words(args, terminal)
    )
    show_results(args, terminal, _results(args, outcome))
    return outcome.exit_code


def _results(args: argparse.Namespace, outcome: "Outcome[OutlierReport]") -> Results:
    from roundoff.pages.blocks import View
    from roundoff.report.plots.distributions import outliers_picture
    from roundoff.studies.distribution.channel_pages import outliers_page

    report = outcome.result
    return Results(
        document=outcome.document,
        table="outliers.csv",
        picture={"outliers": lambda form: outliers_picture(report, form=form)},
        page=outliers_page(outcome.document, View(args.top, args.sort)),
    )
