"""Show how the channels of a tensor differ, and whether one scale serves them.

NODE is a node, a tensor, a weight or a quantizer, or a glob, best in quotes.
For each channel the smallest and the largest value, quartiles, median, mean,
and how many levels it has when all share one scale. Weights need no --data.
"""

import argparse
from typing import TYPE_CHECKING

from roundoff.cli.options import (
    add_inspection_options,
    add_limits,
    names_from,
    subject_words,
)
from roundoff.cli.results import Results, add_result_options, check_results, show_results
from roundoff.cli.terminal import Terminal

if TYPE_CHECKING:
    from roundoff.api.outcome import Outcome
    from roundoff.cli.results import Painter
    from roundoff.studies.distribution.result import ChannelReport, ChannelSpread


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's options."""
    add_inspection_options(parser, names="names or globs of nodes, tensors, weights and quantizers")
    parser.add_argument(
        "--axis",
        type=int,
        metavar="N",
        help="where the channels are (default: where the scales are, else as usual for the operation)",
    )
    add_result_options(parser, table="channels.csv", pictures=True)
    add_limits(parser)


def run(args: argparse.Namespace, terminal: Terminal) -> int:
    """Open, look, print, write."""
    from roundoff.api.studies import channels
    from roundoff.studies.distribution.channel_pages import CHANNELS_CSV_START

    names = names_from(args)
    check_results(args, csv_start=CHANNELS_CSV_START)
    outcome = channels(args.model, names, kind=args.kind, axis=args.axis, **subject_words(args, terminal))
    show_results(args, terminal, _results(args, outcome))
    return outcome.exit_code


def _results(args: argparse.Namespace, outcome: "Outcome[ChannelReport]") -> Results:
    from roundoff.report.plots.distributions import channels_picture
    from roundoff.studies.distribution.channel_pages import channels_page

    report = outcome.result

    def painter(each: "ChannelSpread") -> "Painter":
        return lambda form: channels_picture(each, form=form)

    return Results(
        document=outcome.document,
        table="channels.csv",
        picture={f"{each.name}_{each.kind}": painter(each) for each in report.spreads},
        page=channels_page(outcome.document),
    )
