"""Show how the channels of a tensor differ, and whether one scale serves them.

NODE is a node, a tensor, a weight or a quantizer, or a glob, best in quotes.
For each channel the smallest and the largest value, quartiles, median, mean,
and how many levels it has when all share one scale. Weights need no --data.
"""

import argparse
import time
from typing import TYPE_CHECKING

from roundoff.cli.inspection_options import (
    add_inspection_options,
    add_limits,
    document_of,
    limits_from,
    names_from,
    open_inspected,
)
from roundoff.cli.results import Results, add_result_options, check_results, show_results
from roundoff.cli.subject import check_subject
from roundoff.cli.terminal import Terminal
from roundoff.errors import EXIT_OK

if TYPE_CHECKING:
    from roundoff.cli.results import Painter
    from roundoff.graph.load import Model
    from roundoff.studies.channels.result import ChannelReport, ChannelSpread

SUMMARY = "show how channels differ, and the risk of one scale for all"


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
    from roundoff.studies.channels.page import CHANNELS_CSV_START
    from roundoff.studies.channels.study import ChannelSettings, describe_channels

    started = time.monotonic()
    names = names_from(args)
    check_subject(args)
    check_results(args, csv_start=CHANNELS_CSV_START)
    quantized, samples = open_inspected(args, terminal)
    settings = ChannelSettings(names=names, kinds=tuple(args.kind), axis=args.axis, limits=limits_from(args))
    report = describe_channels(quantized, samples, settings, progress=terminal)
    show_results(args, terminal, _results(args, quantized.float_model, report, time.monotonic() - started))
    return EXIT_OK


def _results(args: argparse.Namespace, model: "Model", report: "ChannelReport", elapsed_s: float) -> Results:
    from roundoff.report.plots.channels import channels_picture
    from roundoff.studies.channels.page import channels_page

    def painter(each: "ChannelSpread") -> "Painter":
        return lambda form: channels_picture(each, form=form)

    document = document_of(args, model, elapsed_s, channels=report)
    return Results(
        document=document,
        table="channels.csv",
        picture={f"{each.name}_{each.kind}": painter(each) for each in report.spreads},
        page=channels_page(document),
    )
