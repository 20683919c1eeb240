"""Compare two runs: which nodes got better or worse, and can it be chance?

RUN_A and RUN_B are folders that one command (compare, layers, sensitivity,
accumulate or diagnose) wrote with -o, or their run.json: before and after
another version, chip, calibration or option. Nodes are matched by name, renamed
ones by operation, shape and place. A change counts when it is at least --floor
large and chance is excluded over all nodes together.
"""

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from roundoff.cli.options import add_html_option, check_html, rows, write_html
from roundoff.cli.terminal import Terminal
from roundoff.messages.message import english

if TYPE_CHECKING:
    from roundoff.core.document import RunDocument

__all__ = [
    "CSV_START", "add_arguments", "add_comparing_options", "add_diff_outputs", "check_diff_outputs",
    "run", "write_diff",
]  # fmt: skip

CSV_START = "order,node,op_type,tensor,renamed_from,"
"""By this an earlier table of ours is known."""

_DEFAULT_ROWS = 20


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's options."""
    parser.add_argument(
        "before", type=Path, metavar="RUN_A", help="the run before: a run directory or its run.json"
    )
    parser.add_argument("after", type=Path, metavar="RUN_B", help="the run after")
    add_comparing_options(parser)
    output = add_diff_outputs(parser)
    output.add_argument("--sort", choices=("worst", "order"), default="worst", help="order of the table")


def add_comparing_options(parser: argparse.ArgumentParser) -> None:
    """Declare how runs are compared."""
    judging = parser.add_argument_group("judging")
    judging.add_argument(
        "--floor", type=decibels_option, metavar="DB", help="smaller changes are none (default: 0.5dB)"
    )
    judging.add_argument(
        "--paired", action="store_true", help="samples of one name are the same ones, although their files differ"
    )


def decibels_option(text: str) -> float:
    """Decibels from 0 on, like ``1`` or ``0.5dB``."""
    from roundoff.studies.run_diff.gate import decibels

    try:
        found = decibels(text)
    except ValueError:
        found = -1.0
    if found < 0:
        raise argparse.ArgumentTypeError(english("{text!r} are no decibels; write them as 1 or 0.5dB", text=text))
    return found


def add_diff_outputs(parser: argparse.ArgumentParser) -> argparse._ArgumentGroup:
    """Declare where results go; the group, for more of them."""
    output = parser.add_argument_group("output")
    output.add_argument(
        "--top", type=rows, default=_DEFAULT_ROWS, metavar="N|all", help="rows shown (default: 20)"
    )
    output.add_argument("--json", action="store_true", help="print the run document instead of the table")
    output.add_argument("--csv", type=Path, metavar="FILE", help="also write all rows and columns as CSV")
    add_html_option(output)
    output.add_argument("-o", "--output", type=Path, metavar="DIR", help="write run.json and diff.csv to DIR")
    output.add_argument("--force", action="store_true", help="replace what an earlier run wrote")
    return output


def check_diff_outputs(args: argparse.Namespace) -> None:
    """Refuse before the work what could not be written after it."""
    from roundoff.cli.results import check_csv
    from roundoff.core.document import DOCUMENT_NAME
    from roundoff.core.files import check_output_directory

    if args.output is not None:
        check_output_directory(args.output, marker=DOCUMENT_NAME, force=args.force)
    check_html(args)
    if args.csv is not None:
        check_csv(args.csv, force=args.force, start=CSV_START)


def run(args: argparse.Namespace, terminal: Terminal) -> int:
    """Read, compare, print, write."""
    from roundoff.api.runs import diff
    from roundoff.core.document import to_json
    from roundoff.pages.blocks import View
    from roundoff.pages.terminal import terminal_page
    from roundoff.studies.run_diff.page import diff_page

    check_diff_outputs(args)
    outcome = diff(args.before, args.after, floor=args.floor, paired=args.paired)
    document = outcome.document
    written = write_diff(args, document)
    if args.json:
        terminal.text(to_json(document))
    elif (page := diff_page(document, View(args.top, args.sort))) is not None:
        terminal.print(terminal_page(page))
    if written:
        terminal.written(written)
    return outcome.exit_code


def write_diff(args: argparse.Namespace, document: "RunDocument") -> list[Path]:
    """Write the files that were asked for."""
    from roundoff.core.files import write_text
    from roundoff.report.pages import run_files, write_run

    written = [] if args.output is None else list(write_run(document, args.output, force=args.force))
    if args.csv is not None and document.diff is not None:
        write_text(args.csv, run_files(document)["diff.csv"])
        written.append(args.csv)
    return written + write_html(args, document)
