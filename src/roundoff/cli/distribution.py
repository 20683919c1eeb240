"""Show how values are distributed, and what their quantizers make of them.

NODE is the name of a node (its outputs, before and after quantization), of a
tensor, of a weight, or of a quantizer (the values it is fed with; also by
the name other tools give it, as TENSOR_QuantizeLinear); or a glob, best in
quotes. Weights need no --data.
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
from roundoff.messages.message import english

if TYPE_CHECKING:
    from roundoff.api.outcome import Outcome
    from roundoff.cli.results import Painter
    from roundoff.studies.distribution.result import DistributionReport, TensorDistribution

_MOST_BINS = 10_000


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's options."""
    add_inspection_options(parser, names="names or globs of nodes, tensors, weights and quantizers")
    parser.add_argument("--bins", type=_bins, metavar="N", help="bins of a histogram (default: by the values)")
    add_result_options(parser, table="distribution.csv", pictures=True)
    add_limits(parser)


def _bins(text: str) -> int:
    if not text.isascii() or not text.isdigit() or not 2 <= int(text) <= _MOST_BINS:
        raise argparse.ArgumentTypeError(
            english("{text!r} is not a number of bins; write 2 to {most_bins}", text=text, most_bins=_MOST_BINS)
        )
    return int(text)


def run(args: argparse.Namespace, terminal: Terminal) -> int:
    """Open, look, print, write."""
    from roundoff.api.studies import distribution
    from roundoff.studies.distribution.page import DISTRIBUTION_CSV_START

    names = names_from(args)
    check_results(args, csv_start=DISTRIBUTION_CSV_START)
    outcome = distribution(args.model, names, kind=args.kind, bins=args.bins, **subject_words(args, terminal))
    show_results(args, terminal, _results(args, outcome))
    return outcome.exit_code


def _results(args: argparse.Namespace, outcome: "Outcome[DistributionReport]") -> Results:
    from roundoff.report.plots.distributions import distribution_picture
    from roundoff.studies.distribution.page import distribution_page

    report = outcome.result

    def painter(each: "TensorDistribution") -> "Painter":
        return lambda form: distribution_picture(each, form=form)

    return Results(
        document=outcome.document,
        table="distribution.csv",
        picture={f"{each.name}_{each.kind}": painter(each) for each in report.distributions},
        page=distribution_page(outcome.document),
    )
