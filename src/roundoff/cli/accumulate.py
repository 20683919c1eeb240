"""Show how error grows along a network, with some of its quantizers on.

Each curve is a model between float and fully quantized, compared with the
float model at every quantized node. The fully quantized model is always the
base line. Without --only, --except or --nested the curves are weights alone
and activations alone, and the verdict says which of them make the error.

A NAME is a node (the quantizers on its inputs), a quantizer, a tensor, a glob,
or one of the words weight, activation and all; op:Conv goes by operation.
"""

import argparse
import time
from typing import TYPE_CHECKING

from roundoff.cli.data_options import add_data_options
from roundoff.cli.inspection_options import add_limits, document_of, rows
from roundoff.cli.name_options import take_model
from roundoff.cli.results import Results, add_result_options, check_results, show_results
from roundoff.cli.subject import add_subject_options, check_subject, open_subject
from roundoff.cli.terminal import Terminal
from roundoff.errors import EXIT_OK, BadInput

if TYPE_CHECKING:
    from roundoff.core.names import NameList
    from roundoff.graph.load import Model
    from roundoff.graph.quantized_model import QuantizedModel
    from roundoff.studies.accumulate.result import Accumulation, Curve

SUMMARY = "show how error grows along a network, and whose it is"

_DEFAULT_ROWS = 20
_CSV_START = "order,node,op_type,tensor,output,metric,"
_MOST_NAMED = 2


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
    from roundoff.measure.metrics import get_metric
    from roundoff.studies.accumulate.study import AccumulationSettings, accumulate

    started = time.monotonic()
    take_model(args, (args.only, *args.leave_out))
    check_subject(args)
    check_results(args, csv_start=_CSV_START)
    # What is misspelt should not be told after minutes of work.
    get_metric(args.metric)
    lists = _lists(args)
    subject = open_subject(args, terminal)
    settings = AccumulationSettings(
        metric=args.metric, average=args.average, max_memory=args.max_memory, threads=args.threads
    )
    curves = _curves(args, subject.quantized, lists)
    found = accumulate(subject.quantized, subject.samples, curves, settings, progress=terminal)
    show_results(args, terminal, _results(args, subject.quantized.float_model, found, time.monotonic() - started))
    return EXIT_OK


def _lists(args: argparse.Namespace) -> "tuple[NameList, NameList]":
    from roundoff.core.names import parse_name_list

    nested, nested_except = ("" if text is None else text for text in (args.nested, args.nested_except))
    found = parse_name_list(nested), parse_name_list(nested_except)
    for option, given, names in zip(
        ("--nested", "--nested-except"), (args.nested, args.nested_except), found, strict=True
    ):
        if given is not None and not names:
            raise BadInput(f"{option} {given!r} names nothing.", fix=f"leave {option} out, or write [[a],[a,b]]")
    return found


def _curves(
    args: argparse.Namespace, quantized: "QuantizedModel", lists: "tuple[NameList, NameList]"
) -> "tuple[Curve, ...] | None":
    """What was asked for; None when nothing was."""
    from roundoff.core.names import parse_name_list
    from roundoff.studies.accumulate.result import Curve
    from roundoff.studies.switches import Switches

    switches = Switches(quantized)
    only: list[str | NameList] = [
        parse_name_list(word) if word.startswith("[") else word for word in dict.fromkeys(args.only)
    ]
    found = [*switches.curves((*only, *lists[0]))]
    for names in args.leave_out:
        members = [each for word in names for each in (parse_name_list(word) if word.startswith("[") else (word,))]
        nested = switches.curves((tuple(members),), leave_out=True)[0]
        found.append(Curve(_but(names), nested.quantizers))
    numbered = sum(not isinstance(each, str) for each in (*only, *lists[0]))
    found += switches.curves(lists[1], leave_out=True, first=numbered)
    return tuple(found) or None


def _but(names: list[str]) -> str:
    more = len(names) - _MOST_NAMED
    return f"all but {', '.join(names[:_MOST_NAMED])}" + (f" and {more} more" if more > 0 else "")


def _results(args: argparse.Namespace, model: "Model", found: "Accumulation", elapsed_s: float) -> Results:
    from roundoff.pages.blocks import View
    from roundoff.report.plots.curves import accumulation_picture
    from roundoff.studies.accumulate.page import accumulation_page

    document = document_of(args, model, elapsed_s, accumulation=found)
    return Results(
        document=document,
        table="curves.csv",
        picture={"curves": lambda form: accumulation_picture(found, form=form)},
        page=accumulation_page(document, View(args.top)),
    )
