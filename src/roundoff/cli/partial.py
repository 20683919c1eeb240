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
import time
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from roundoff.cli.data_options import add_data_options
from roundoff.cli.inspection_options import add_limits, document_of, rows
from roundoff.cli.name_options import take_model
from roundoff.cli.results import Results, add_result_options, check_results, show_results
from roundoff.cli.subject import Subject, add_subject_options, check_subject, open_subject
from roundoff.cli.terminal import Terminal
from roundoff.errors import EXIT_INTERRUPTED, EXIT_OK, EXIT_THRESHOLD_MISSED, BadInput

if TYPE_CHECKING:
    from roundoff.core.tensors import Array
    from roundoff.graph.load import Model
    from roundoff.messages.message import Message
    from roundoff.studies.partial.result import PartialQuantization
    from roundoff.studies.sensitivity.result import Subject as SwitchedSubject

SUMMARY = "find how few nodes must stay in float or need 16 bits"

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
        choices=("cosine", "sqnr_db", "same_top1", "accuracy"),
        help="how outputs agree (default: cosine)",
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
    from roundoff.run.evaluators import load_evaluator
    from roundoff.studies.partial.ranking_file import read_ranking
    from roundoff.studies.partial.settings import PartialSettings, check_settings
    from roundoff.studies.partial.study import sweep

    started = time.monotonic()
    take_model(args, (args.nodes or [],))
    check_subject(args)
    check_results(args, csv_start=_CSV_START)
    _check_options(args)
    # What cannot be read should not be told after minutes of work.
    evaluator = None if args.evaluator is None else load_evaluator(args.evaluator)
    names = args.nodes if args.ranking is None else read_ranking(args.ranking, args.kind)
    settings = PartialSettings(
        to=args.to,
        top=args.top,
        score=args.score or "",
        goal=args.goal or "",
        stop_at_goal=args.stop_at_goal,
        evaluator=evaluator,
        max_memory=args.max_memory,
        threads=args.threads,
    )
    check_settings(settings, labelled=args.labels is not None)
    subject = open_subject(args, terminal)
    labels = _labels(args, subject)
    subjects, ranking = _subjects(args, terminal, subject, names)
    settings = replace(settings, labels=labels, ranking=ranking)
    found = sweep(subject.quantized, subject.samples, subjects, settings, progress=terminal)
    show_results(args, terminal, _results(args, subject.quantized.float_model, found, time.monotonic() - started))
    if not found.complete:
        return EXIT_INTERRUPTED
    return EXIT_THRESHOLD_MISSED if args.goal and found.knee is None else EXIT_OK


def _check_options(args: argparse.Namespace) -> None:
    """Refuse options that would have no effect, and files that are not there."""
    from roundoff.core.files import regular_file

    if args.labels is not None:
        regular_file(args.labels, what="The labels")
    if args.nodes is not None and args.kind != "node":
        what = f"--kind {args.kind} has no effect on the names of --nodes: each means what it means."
        raise BadInput(what, fix="leave --kind out")


def _labels(args: argparse.Namespace, subject: Subject) -> "Array | None":
    from roundoff.samples.labels import load_labels

    if args.labels is None:
        return None
    names = subject.samples.names
    found = load_labels(args.labels, names)
    # Whoever takes the first samples only means the first labels too.
    return found[: len(names)] if args.samples is not None and found.size > len(names) else found


def _subjects(
    args: argparse.Namespace, terminal: Terminal, subject: Subject, names: "list[str] | tuple[str, ...] | None"
) -> "tuple[tuple[SwitchedSubject, ...], Message]":
    """What to change in which order, and where that comes from."""
    from roundoff.messages.message import message
    from roundoff.studies.partial.study import named_subjects, ranked_subjects

    if names is not None:
        given = args.ranking is None
        origin = message("partial.as_given") if given else message("partial.as_in", file=str(args.ranking))
        return named_subjects(subject.quantized, names), origin
    subjects, found = ranked_subjects(
        subject.quantized,
        subject.samples,
        args.kind,
        max_memory=args.max_memory,
        threads=args.threads,
        progress=terminal,
    )
    rows = found.rankings[args.kind]
    most = max(len(row.score.samples) for row in rows)
    return subjects, message("partial.ranked_by", metric=found.metrics[0], count=most)


def _results(args: argparse.Namespace, model: "Model", found: "PartialQuantization", elapsed_s: float) -> Results:
    from roundoff.cli.provenance import input_file
    from roundoff.report.plots.curves import partial_picture
    from roundoff.studies.partial.page import partial_page

    given = (("ranking", args.ranking), ("labels", args.labels), ("evaluator", args.evaluator))
    more = tuple(input_file(role, path) for role, path in given if path is not None)
    document = document_of(args, model, elapsed_s, partial=found)
    return Results(
        document=replace(document, inputs=(*document.inputs, *more)),
        table="partial.csv",
        picture={"partial": lambda form: partial_picture(found, form=form)},
        page=partial_page(document),
    )
