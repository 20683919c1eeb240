"""Let a run pass, or not: has any node lost more against a baseline than it may?

RUN and the baseline are folders that one command (compare, layers, sensitivity,
accumulate or diagnose) wrote with -o, or their run.json; any run can be a
baseline. A loss counts when it is above its budget and chance is excluded over
all nodes together. The accuracy in a run (labels or evaluator) is judged by
the same samples in both, and scores from elsewhere by a CSV. Leaves with 0 when
RUN passes, 1 when it does not, 2 when it cannot be judged.
"""

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from roundoff.cli.diff import (
    add_comparing_options,
    add_diff_outputs,
    check_diff_outputs,
    decibels_option,
    write_diff,
)
from roundoff.cli.terminal import Terminal

if TYPE_CHECKING:
    from roundoff.core.document import RunDocument


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's options."""
    parser.add_argument("run_path", type=Path, metavar="RUN", help="a run directory or its run.json")
    parser.add_argument("--baseline", type=Path, required=True, metavar="RUN", help="the run it is held against")
    parser.add_argument(
        "--max-regression", type=decibels_option, metavar="DB", help="loss that is allowed (default: 1dB)"
    )
    parser.add_argument(
        "--budget", type=Path, metavar="FILE", help="TOML or JSON: what nodes may lose, or must reach, by pattern"
    )
    parser.add_argument(
        "--metric",
        action="append",
        default=[],
        metavar="BUDGET",
        help="what a metric may lose, as 'top-1 accuracy: -0.5%%' (default: 1%%); may be given several times",
    )
    parser.add_argument(
        "--scores",
        type=Path,
        metavar="CSV",
        help="scores from elsewhere, such as a board: a column 'sample', then one for each metric",
    )
    parser.add_argument("--baseline-scores", type=Path, metavar="CSV", help="the same of the baseline")
    parser.add_argument(
        "--strict", action="store_true", help="losses over budget fail even where chance is not excluded"
    )
    add_comparing_options(parser)
    output = add_diff_outputs(parser)
    output.add_argument("--junit", type=Path, metavar="FILE", help="also write JUnit XML")
    output.add_argument("--annotate", action="store_true", help="also print a line per failure as GitHub reads it")


def run(args: argparse.Namespace, terminal: Terminal) -> int:
    """Read, compare, judge, print, write; 1 when the run does not pass."""
    from roundoff.api.runs import gate
    from roundoff.core.document import to_json
    from roundoff.core.files import check_output_file, write_text
    from roundoff.report.junit import gate_junit

    check_diff_outputs(args)
    if args.junit is not None:
        check_output_file(args.junit, force=args.force, option="--junit")
    outcome = gate(
        args.run_path,
        args.baseline,
        max_regression=args.max_regression,
        budget=args.budget,
        metric=args.metric,
        scores=args.scores,
        baseline_scores=args.baseline_scores,
        strict=args.strict,
        floor=args.floor,
        paired=args.paired,
    )
    document, found = outcome.document, outcome.result
    written = write_diff(args, document)
    if args.junit is not None and found.gate is not None:
        write_text(args.junit, gate_junit(found, found.gate))
        written.append(args.junit)
    if args.json:
        terminal.text(to_json(document))
    else:
        _print(args, terminal, document)
    if written:
        terminal.written(written)
    return outcome.exit_code


def _print(args: argparse.Namespace, terminal: Terminal, document: "RunDocument") -> None:
    from roundoff.messages.sanitize import for_people
    from roundoff.pages.blocks import View
    from roundoff.pages.terminal import terminal_page
    from roundoff.studies.run_diff.page import annotations, diff_page

    page, diff = diff_page(document, View(args.top)), for_people(document.diff)
    if page is None or diff is None or diff.gate is None:
        return
    terminal.print(terminal_page(page))
    if args.annotate and not diff.gate.passed:
        terminal.text(annotations(diff, diff.gate))
