"""Say whether samples are fit for calibration, what is wrong, and what to do.

Looked for: too few samples, broken and blank ones, duplicates, single samples
that set a range alone, samples prepared otherwise than in training, missing
classes, and ranges that are too narrow for samples that are held out: those of
--held-out, or some of the set, chosen at random.

Columns: half, width of the range that half of the samples give over that of
all; held out, share of the values of held-out samples beyond the range; lone,
how much wider a single sample makes the range, and which.
"""

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from roundoff.cli.options import add_data_options, add_limits, data_words, rows
from roundoff.cli.results import Results, add_result_options, check_results, show_results
from roundoff.cli.terminal import Terminal
from roundoff.messages.message import english

if TYPE_CHECKING:
    from roundoff.api.outcome import Outcome
    from roundoff.studies.check_calibration.result import CalibrationCheck

_DEFAULT_ROWS = 10
_DEFAULT_TARGET = "generic-int8"
_DEFAULT_SHARE = 0.2
# By this an earlier table of ours is known.
_CSV_START = "tensor,low,high,half,lone_sample"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's options."""
    # The list of all options would be wider than a terminal.
    parser.usage = "%(prog)s MODEL --data PATH [options]"
    parser.add_argument(
        "model", type=Path, metavar="MODEL", help="the float model: .onnx, or .prototxt[,.caffemodel] of Caffe"
    )
    parser.add_argument(
        "--target",
        default=_DEFAULT_TARGET,
        metavar="NAME|FILE",
        help="the chip; says which tensors are quantized, and how (default: generic-int8)",
    )
    parser.add_argument(
        "--calibration", metavar="NAME", help="minmax, percentile, mse, entropy ... (default: the target's)"
    )
    others = parser.add_mutually_exclusive_group()
    others.add_argument(
        "--held-out", type=Path, metavar="PATH", help="other samples that ranges must hold for, read like --data"
    )
    others.add_argument(
        "--share",
        type=_share,
        default=_DEFAULT_SHARE,
        metavar="X",
        help="share of the samples that is held out instead; 0 for none (default: 0.2)",
    )
    parser.add_argument(
        "--labels", type=Path, metavar="FILE", help="right classes of the samples, as .npy or CSV: check coverage"
    )
    parser.add_argument(
        "--seed", type=int, default=0, metavar="N", help="of what is chosen at random (default: 0)"
    )
    output = add_result_options(parser, table="calibration.csv")
    output.add_argument(
        "--top", type=rows, default=_DEFAULT_ROWS, metavar="N|all", help="ranges shown (default: 10)"
    )
    add_limits(parser)
    add_data_options(parser)


def _share(text: str) -> float:
    try:
        share = float(text)
    except ValueError:
        share = -1.0
    if not 0 <= share <= 0.5:
        raise argparse.ArgumentTypeError(
            english("{text!r} is not a share; write a number from 0 to 0.5", text=text)
        )
    return share


def run(args: argparse.Namespace, terminal: Terminal) -> int:
    """Run the model over the samples, judge, print, write; 1 when there is a fault."""
    from roundoff.api.checks import check_calibration

    check_results(args, csv_start=_CSV_START)
    outcome = check_calibration(
        args.model,
        target=args.target,
        calibration=args.calibration,
        held_out=args.held_out,
        share=args.share,
        labels=args.labels,
        seed=args.seed,
        threads=args.threads,
        max_memory=args.max_memory,
        progress=terminal,
        **data_words(args),
    )
    show_results(args, terminal, _results(args, outcome))
    return outcome.exit_code


def _results(args: argparse.Namespace, outcome: "Outcome[CalibrationCheck]") -> Results:
    from roundoff.pages.blocks import View
    from roundoff.report.plots.curves import calibration_picture
    from roundoff.studies.check_calibration.page import calibration_page

    page = calibration_page(outcome.document, View(args.top))
    return Results(
        document=outcome.document,
        table="calibration.csv",
        picture=lambda form: calibration_picture(outcome.result, form=form),
        page=page,
    )
