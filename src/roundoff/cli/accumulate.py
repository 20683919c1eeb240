"""Show how error grows along a network, with some of its quantizers on.

Each curve is a model between float and fully quantized, compared with the
float model at every quantized node. The fully quantized model is always the
base line. Without --only, --except or --nested the curves are weights alone
and activations alone, and the verdict says which of them make the error.

A NAME is a node (the quantizers on its inputs), a quantizer, a tensor, a glob,
or one of the words weight, activation and all; op:Conv goes by operation.
"""

import argparse
from typing import TYPE_CHECKING

from roundoff.cli.options import add_data_options, add_limits, add_subject_options, rows, subject_words, take_model
from roundoff.cli.results import Results, add_result_options, check_results, show_results
from roundoff.cli.terminal import Terminal

if TYPE_CHECKING:
    from roundoff.api.outcome import Outcome
    from roundoff.studies.accumulate.result import Accumulation

_DEFAULT_ROWS = 20
_CSV_START = "order,node,op_type,tensor,output,metric,"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's options."""
    add_subject_options(parser)
    curves = parser.add_argument_group("curves")
    curves.add_argument(
        "--only",
        nargs="+",
        action="extend",
        default=[],
        metavar="NAME",
        help="for each NAME a curve with only that quantized; '[A,B]' for both of them in one curve",
    )
    curves.add_argument(
        "--except",
        dest="leave_out",
        nargs="+",
        action="append",
        default=[],
        metavar="NAME",
        help="a curve with everything quantized but these; may be repeated",
    )
    curves.add_argument(
        "--nested",
        metavar="LISTS",
        help="for each inner list of '[[A],[A,B]]' a curve with only these quantized: partial_qmodel_0, ...",
    )
    curves.add_argument("--nested-except", metavar="LISTS", help="the same with everything quantized but these")
    curves.add_argument("--metric", default="cosine", metavar="NAME", help="what to compare by (default: cosine)")
    curves.add_argument("--average", action="store_true", help="show at each node the mean of all nodes up to it")
    output = add_result_options(parser, table="curves.csv", pictures=True)
    output.add_argument(
        "--top", type=rows, default=_DEFAULT_ROWS, metavar="N|all", help="nodes shown (default: 20)"
    )
    add_limits(parser)
    add_data_options(parser)


def run(args: argparse.Namespace, terminal: Terminal) -> int:
    """Quantize or read, measure, print, write."""
    from roundoff.api.studies import accumulate

    take_model(args, (args.only, *args.leave_out))
    check_results(args, csv_start=_CSV_START)
    outcome = accumulate(
        args.model,
        only=args.only,
        leave_out=args.leave_out,
        nested=args.nested,
        nested_except=args.nested_except,
        metric=args.metric,
        average=args.average,
        **subject_words(args, terminal),
    )
    show_results(args, terminal, _results(args, outcome))
    return outcome.exit_code


def _results(args: argparse.Namespace, outcome: "Outcome[Accumulation]") -> Results:
    from roundoff.pages.blocks import View
    from roundoff.report.plots.curves import accumulation_picture
    from roundoff.studies.accumulate.page import accumulation_page

    found = outcome.result
    return Results(
        document=outcome.document,
        table="curves.csv",
        picture={"curves": lambda form: accumulation_picture(found, form=form)},
        page=accumulation_page(outcome.document, View(args.top)),
    )
