"""Find out how few nodes have to stay in float, or need 16 bits.

The worst of the network is left in float: none of it, the first, the first
two, ... and each time the model is scored. The knee is the smallest number
that reaches --goal. The order is that of a sensitivity ranking, unless
--ranking or --nodes give another. Exit code 1 when --goal is not reached.

An evaluator is a Python file with a function evaluate(run, samples) that
returns a number: samples is a sequence of inputs, run(inputs) gives outputs,
both as dictionaries of arrays. HIGHER_IS_BETTER = False turns it around.
"""

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from roundoff.cli.options import add_data_options, add_limits, add_subject_options, rows, subject_words, take_model
from roundoff.cli.results import Results, add_result_options, check_results, show_results
from roundoff.cli.terminal import Terminal

if TYPE_CHECKING:
    from roundoff.api.outcome import Outcome
    from roundoff.studies.partial.result import PartialQuantization

_DEFAULT_TOP = 20
_CSV_START = "count,subject,op_type,"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's options."""
    add_subject_options(parser)
    change = parser.add_argument_group("what to change")
    change.add_argument(
        "--kind",
        choices=("node", "weight", "activation"),
        default="node",
        help="nodes with all their inputs, or single quantizers (default: node)",
    )
    change.add_argument(
        "--to", choices=("float", "s16", "u16"), default="float", help="what it becomes (default: float)"
    )
    change.add_argument(
        "--top", type=rows, default=_DEFAULT_TOP, metavar="K|all", help="try up to so many (default: 20)"
    )
    order = change.add_mutually_exclusive_group()
    order.add_argument(
        "--ranking",
        type=Path,
        metavar="FILE",
        help="take the order from a file: run.json, CSV, or a name per line",
    )
    order.add_argument("--nodes", nargs="+", metavar="NAME", help="take these, in this order")
    score = parser.add_argument_group("score")
    score.add_argument(
        "--score",
        metavar="NAME",
        help="a metric, same_top1 or accuracy (default: cosine)",
    )
    judge = score.add_mutually_exclusive_group()
    judge.add_argument(
        "--labels", type=Path, metavar="FILE", help="right classes as .npy or CSV: measure accuracy"
    )
    judge.add_argument("--evaluator", type=Path, metavar="FILE", help="a Python file with evaluate(run, samples)")
    score.add_argument("--goal", metavar="SHARE|SCORE", help="99%% of the float score (the default), or a score")
    score.add_argument(
        "--stop-at-goal", action="store_true", help="with --evaluator: try no more once the goal is reached"
    )
    add_result_options(parser, table="partial.csv", pictures=True)
    add_limits(parser)
    add_data_options(parser)


def run(args: argparse.Namespace, terminal: Terminal) -> int:
    """Quantize or read, rank, sweep, print, write."""
    from roundoff.api.studies import partial

    take_model(args, (args.nodes or [],))
    check_results(args, csv_start=_CSV_START)
    outcome = partial(
        args.model,
        kind=args.kind,
        to=args.to,
        top=args.top,
        ranking=args.ranking,
        nodes=args.nodes,
        score=args.score,
        labels=args.labels,
        evaluator=args.evaluator,
        goal=args.goal,
        stop_at_goal=args.stop_at_goal,
        **subject_words(args, terminal),
    )
    show_results(args, terminal, _results(args, outcome))
    return outcome.exit_code


def _results(args: argparse.Namespace, outcome: "Outcome[PartialQuantization]") -> Results:
    from roundoff.report.plots.curves import partial_picture
    from roundoff.studies.partial.page import partial_page

    found = outcome.result
    return Results(
        document=outcome.document,
        table="partial.csv",
        picture={"partial": lambda form: partial_picture(found, form=form)},
        page=partial_page(outcome.document),
    )
