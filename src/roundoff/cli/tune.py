"""Search for the cheapest quantized model that meets an accuracy goal.

Plain quantization is tried first; if it is good enough, nothing is changed.
Then come levers that cost nothing on the chip (other ranges, bias correction,
equalization, smoothing, ...), then 16-bit activations, then float for the
nodes that matter most; what is not needed is given back. Ranges are observed
once. Kill it at any time: --resume goes on, and DIR/best holds the best model
so far. Exit code 1 when the goal is not met; the best found is delivered.

An evaluator is a Python file with evaluate(run, samples), which returns a
number, or one per sample (fewer samples then decide a trial); or with
evaluate(model) of a path, and perhaps metric_eval(original, new), which
returns whether that is good enough and the loss. Without --data its
calibration(model) is called, and what that feeds the model is taken instead.
Without an evaluator and --labels, outputs are compared with those in float.
"""

import argparse
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from roundoff.cli.export_settings import DIALECT_HELP, print_settings
from roundoff.cli.options import (
    add_data_options,
    add_html_option,
    add_limits,
    add_quantize_options,
    check_html,
    data_words,
    positive,
    quantize_words,
    seconds,
    write_html,
)
from roundoff.cli.terminal import Terminal
from roundoff.messages.catalogue import translate
from roundoff.messages.message import english

if TYPE_CHECKING:
    from roundoff.api.tuning import TuneOutcome
    from roundoff.search.result import Trial


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's options."""
    what = "the float model: .onnx, or .prototxt[,.caffemodel] of Caffe"
    parser.add_argument("model", type=Path, metavar="MODEL", help=what)
    parser.add_argument("-o", "--output", type=Path, required=True, metavar="DIR", help="where the results go")
    parser.add_argument(
        "--target",
        required=True,
        metavar="NAME|FILE",
        help="the chip, as listed by 'roundoff targets', or a .toml file",
    )
    goal = parser.add_argument_group("goal")
    judge = goal.add_mutually_exclusive_group()
    judge.add_argument("--evaluator", type=Path, metavar="FILE", help="a Python file that measures a model")
    judge.add_argument(
        "--labels", type=Path, metavar="FILE", help="right classes as .npy or CSV: measure accuracy"
    )
    much = goal.add_mutually_exclusive_group()
    much.add_argument(
        "--max-drop",
        metavar="1%|X",
        help="what may be lost: a share of the float metric, or X of it (default: 1%%)",
    )
    much.add_argument("--min-metric", type=_finite, metavar="X", help="the metric to reach, instead")
    goal.add_argument("--max-cost", type=_cost, metavar="R", help="most that it may cost, plain int8 being 1")
    goal.add_argument("--cost", type=Path, metavar="FILE", help="what work costs, as a target's [cost] in .toml")
    effort = parser.add_argument_group("search")
    effort.add_argument(
        "--strategy",
        default="greedy",
        metavar="NAME|FILE",
        help="greedy (default), bisect, pareto, pulsar2, or a Python file",
    )
    effort.add_argument(
        "--sensitivity",
        default="sqnr_db",
        metavar="NAME|FILE",
        help="what nodes are ranked by: sqnr_db (default), cosine, mse, or a Python file with compare(a, b)",
    )
    effort.add_argument(
        "--local",
        action="store_true",
        help="rank nodes by their own results, as vendors' tools do, not the model's",
    )
    effort.add_argument("--time", type=seconds, metavar="TIME", help="begin no trial after it, as 90s, 30m or 2h")
    effort.add_argument("--max-trials", type=positive, metavar="N", help="try at most so many recipes")
    effort.add_argument("--resume", action="store_true", help="go on with the search in DIR")
    effort.add_argument("--force", action="store_true", help="remove an earlier search in DIR and begin anew")
    effort.add_argument("--dialect", metavar="NAME,...", help=DIALECT_HELP)
    effort.add_argument("--json", action="store_true", help="print the run document instead of the table")
    add_html_option(effort)
    more = parser.add_argument_group("more samples", "Read like those of --data.")
    more.add_argument(
        "--eval-data", action="append", metavar="PATH|INPUT=PATH", help="to measure on (default: --data)"
    )
    more.add_argument("--eval-samples", type=positive, metavar="N", help="measure on the first N of them")
    unseen = more.add_mutually_exclusive_group()
    unseen.add_argument(
        "--holdout", type=_share, metavar="20%", help="keep so many of them from the search; a third by default"
    )
    unseen.add_argument("--test-data", action="append", metavar="PATH|INPUT=PATH", help="to test the answer on")
    more.add_argument("--test-labels", type=Path, metavar="FILE", help="right classes of --test-data")
    add_quantize_options(parser, title="Where the search begins.")
    add_limits(parser)
    add_data_options(parser)


def run(args: argparse.Namespace, terminal: Terminal) -> int:
    """Search, write, print."""
    from roundoff.api.tuning import tune

    check_html(args)
    try:
        outcome = tune(
            args.model,
            args.output,
            evaluator=args.evaluator,
            labels=args.labels,
            max_drop=args.max_drop,
            min_metric=args.min_metric,
            max_cost=args.max_cost,
            cost=args.cost,
            strategy=args.strategy,
            sensitivity=args.sensitivity,
            local=args.local,
            time=args.time,
            max_trials=args.max_trials,
            resume=args.resume,
            force=args.force,
            dialect=args.dialect,
            eval_data=args.eval_data,
            eval_samples=args.eval_samples,
            holdout=args.holdout,
            test_data=args.test_data,
            test_labels=args.test_labels,
            on_trial=_teller(args, terminal),
            tell=terminal.remark,
            target=args.target,
            threads=args.threads,
            max_memory=args.max_memory,
            progress=terminal,
            **data_words(args),
            **quantize_words(args),
        )
    except KeyboardInterrupt:
        terminal.finish()
        if args.output.is_dir():
            terminal.remark(translate("search.resume", folder=args.output))
        raise
    written = [*outcome.written, *write_html(args, outcome.document)]
    _print(args, terminal, outcome)
    terminal.written(written)
    return outcome.exit_code


def _teller(args: argparse.Namespace, terminal: Terminal) -> "Callable[[Trial, Trial, str], None]":
    """Tells of each trial in a line, so that a long search can be watched, and how long it may still take."""
    from roundoff.messages.numbers import TimeLeft, duration_text
    from roundoff.messages.phrases import semicolons
    from roundoff.search.page import trial_line

    left = TimeLeft(args.max_trials, args.time)

    def tell(trial: "Trial", best: "Trial", metric: str) -> None:
        seconds = left.step(trial.number)
        most = "" if seconds is None else translate("search.time_left", time=duration_text(seconds))
        terminal.note(semicolons(trial_line(trial, best, metric), most))

    return tell


def _print(args: argparse.Namespace, terminal: Terminal, outcome: "TuneOutcome") -> None:
    from roundoff.core.document import to_json
    from roundoff.pages.terminal import terminal_page
    from roundoff.search.page import tuning_page

    if args.json:
        terminal.text(to_json(outcome.document))
    elif (page := tuning_page(outcome.document)) is not None:
        terminal.print(terminal_page(page))
        if outcome.tool_settings is not None:
            print_settings(terminal, outcome.tool_settings, args.output)


def _finite(text: str) -> float:
    import math

    try:
        number = float(text)
    except ValueError:
        number = math.nan
    if not math.isfinite(number):
        raise argparse.ArgumentTypeError(english("{text!r} is not a number", text=text))
    return number


def _cost(text: str) -> float:
    number = _finite(text)
    if number < 1:
        raise argparse.ArgumentTypeError(english("{text} is less than plain int8 costs, which is 1", text=text))
    return number


def _share(text: str) -> float:
    number = _finite(text.strip().removesuffix("%")) / (100 if text.strip().endswith("%") else 1)
    if not 0 <= number < 1:
        raise argparse.ArgumentTypeError(
            english("{text!r} is not a share between 0 and 1; write it as in 0.2", text=text)
        )
    return number
