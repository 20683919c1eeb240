"""Compare two sets of tensors: say which differ, how, and where it started.

Each side is a folder of .npy files, an .npz, raw .bin with a manifest, a
safetensors file, or a model (.onnx, .prototxt), which is then run on --data
with graph optimization off. The reference comes first; its names are used
throughout.

Verdicts: PASS, FAIL, INCOMPLETE (nothing that was judged fails, but not every
output of the network was judged), NOT ENOUGH EVIDENCE (samples that can show
no fault). Exit code 0 when it passes, 1 otherwise.
"""

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from roundoff.cli.options import (
    add_data_options,
    add_html_option,
    check_html,
    data_words,
    size,
    threads,
    write_html,
)
from roundoff.cli.terminal import Terminal
from roundoff.messages.message import english

if TYPE_CHECKING:
    from contextlib import AbstractContextManager

    from roundoff.api.call import Call
    from roundoff.api.comparison import ComparedSides as Sides
    from roundoff.api.comparison import SidesAsked
    from roundoff.core.document import RunDocument
    from roundoff.core.tensors import Topology
    from roundoff.measure.thresholds import ThresholdSet
    from roundoff.studies.compare.result import Comparison

__all__ = ["add_arguments", "compare_sides", "open_sides", "run"]

_DEFAULT_ROWS = 40


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's options."""
    parser.add_argument("reference", type=Path, metavar="REFERENCE", help="tensors, or a model to run on --data")
    parser.add_argument("candidate", type=Path, metavar="CANDIDATE", help="tensors, or a model to run on --data")
    add_data_options(parser)
    matching = parser.add_argument_group("matching", "Which tensor is which.")
    matching.add_argument("--reference-format", metavar="NAME", help="format of REFERENCE (default: recognised)")
    matching.add_argument("--candidate-format", metavar="NAME", help="format of CANDIDATE (default: recognised)")
    matching.add_argument(
        "--format", metavar="NAME", help="format of both: npy, npz, bin, safetensors, ... (default: recognised)"
    )
    matching.add_argument(
        "--model",
        type=Path,
        metavar="FILE",
        help="the reference's model, when REFERENCE is a dump: gives order, shapes, culprits and victims",
    )
    matching.add_argument(
        "--aliases", type=Path, metavar="FILE", help="JSON or CSV: reference name, candidate name"
    )
    matching.add_argument(
        "--run",
        dest="dump_run",
        metavar="NAME",
        help="of several runs in CANDIDATE (default: one that is not the golden copy)",
    )
    matching.add_argument(
        "--reference-run", metavar="NAME", help="of several runs in REFERENCE (default: the golden copy)"
    )
    matching.add_argument("--no-value-matching", action="store_true", help="match by names only")
    judging = parser.add_argument_group("judging")
    limits = judging.add_mutually_exclusive_group()
    limits.add_argument(
        "--threshold", metavar="METRIC=LIMIT,...", help="what every tensor must keep, e.g. cosine=0.99,rmse=1"
    )
    limits.add_argument("--profile", metavar="NAME", help="named thresholds (ascend, axera, horizon, rknn, ...)")
    judging.add_argument(
        "--channel-axis", type=int, metavar="N", help="axis of the channels (default: 1; last of 3)"
    )
    output = parser.add_argument_group("output")
    output.add_argument("--sort", choices=("order", "worst"), default="order", help="order of the table")
    output.add_argument(
        "--rows", type=_rows, default=_DEFAULT_ROWS, metavar="N|all", help="rows shown (default: 40)"
    )
    printed = output.add_mutually_exclusive_group()
    printed.add_argument("--json", action="store_true", help="print the run document instead of the table")
    printed.add_argument("--csv", action="store_true", help="print CSV instead of the table")
    add_html_option(output)
    output.add_argument("--junit", type=Path, metavar="FILE", help="also write JUnit XML")
    output.add_argument("-o", "--output", type=Path, metavar="DIR", help="write run.json and tensors.csv to DIR")
    output.add_argument("--force", action="store_true", help="replace what an earlier run wrote")
    running = parser.add_argument_group("running models")
    running.add_argument("--max-memory", type=size, metavar="SIZE", help="memory the tensors may take, e.g. 2GB")
    running.add_argument("--threads", type=threads, metavar="N", help="threads per node (default: all cores)")


def run(args: argparse.Namespace, terminal: Terminal) -> int:
    """Compare, print, write; 1 unless it passes."""
    from roundoff.api.comparison import compare

    _check_outputs(args)
    outcome = compare(
        args.reference,
        args.candidate,
        model=args.model,
        reference_format=args.reference_format,
        candidate_format=args.candidate_format,
        format=args.format,
        aliases=args.aliases,
        no_value_matching=args.no_value_matching,
        run=args.dump_run,
        reference_run=args.reference_run,
        threshold=args.threshold,
        profile=args.profile,
        channel_axis=args.channel_axis,
        **data_words(args),
        threads=args.threads,
        max_memory=args.max_memory,
        progress=terminal,
    )
    document = outcome.document
    written = _write(args, document, outcome.result)
    _print(args, terminal, document, outcome.result)
    if written:
        terminal.written(written)
    return outcome.exit_code


def _rows(text: str) -> int | None:
    if text == "all":
        return None
    if not text.isdigit():
        raise argparse.ArgumentTypeError(english("{text!r} is neither a number nor 'all'", text=text))
    return int(text)


def _check_outputs(args: argparse.Namespace) -> None:
    """Refuse before the work what could not be written after it."""
    from roundoff.core.document import DOCUMENT_NAME
    from roundoff.core.files import check_output_directory, check_output_file

    if args.output is not None:
        check_output_directory(args.output, marker=DOCUMENT_NAME, force=args.force)
    if args.junit is not None:
        check_output_file(args.junit, force=args.force, option="--junit")
    check_html(args)


def compare_sides(
    args: argparse.Namespace, terminal: Terminal, thresholds: "ThresholdSet | None"
) -> "tuple[Comparison, Topology | None]":
    """What differs, and the network that the names are of."""
    from roundoff.api.comparison import compare_sides

    found = compare_sides(_call(args, terminal), _asked(args), thresholds, channel_axis=args.channel_axis)
    return found[:2]


def open_sides(args: argparse.Namespace, terminal: Terminal) -> "AbstractContextManager[Sides]":
    """Open both sides and match their tensors.

    Raises:
        BadInput: The options contradict each other, or what they name cannot be used.
        CannotAlign: No tensor of one side could be paired with one of the other.
    """
    from roundoff.api.comparison import open_sides

    return open_sides(_call(args, terminal), _asked(args))


def _call(args: argparse.Namespace, terminal: Terminal) -> "Call":
    from roundoff.api.call import Call, DataOptions

    limits = {"threads": args.threads, "max_memory": args.max_memory, "progress": terminal}
    return Call("compare", {**data_words(args), **limits}, DataOptions)


def _asked(args: argparse.Namespace) -> "SidesAsked":
    from roundoff.api.comparison import SidesAsked

    formats = (args.reference_format, args.candidate_format, args.format)
    by_value = not args.no_value_matching
    runs = (args.dump_run, args.reference_run)
    return SidesAsked(args.reference, args.candidate, args.model, *formats, args.aliases, by_value, *runs)


def _write(args: argparse.Namespace, document: "RunDocument", comparison: "Comparison") -> list[Path]:
    from roundoff.core.files import write_text
    from roundoff.report.junit import comparison_junit
    from roundoff.report.pages import write_run

    written = [] if args.output is None else list(write_run(document, args.output, force=args.force))
    if args.junit is not None:
        write_text(args.junit, comparison_junit(comparison))
        written.append(args.junit)
    return written + write_html(args, document)


def _print(
    args: argparse.Namespace, terminal: Terminal, document: "RunDocument", comparison: "Comparison"
) -> None:
    from roundoff.cli.next_steps import after_comparison
    from roundoff.core.document import to_json
    from roundoff.messages.catalogue import translate
    from roundoff.pages.blocks import View
    from roundoff.pages.terminal import terminal_page, verdict_lines
    from roundoff.report.pages import run_files
    from roundoff.studies.compare.page import comparison_page

    if args.json:
        terminal.text(to_json(document))
    elif args.csv:
        terminal.text(run_files(document)["tensors.csv"])
    elif (page := comparison_page(document, View(args.rows, args.sort))) is not None:
        terminal.print(terminal_page(page))
        steps = after_comparison(args) if _calls_for_more(comparison) else []
        if steps:
            labels = [translate("compare.next"), *("" for _ in steps[1:])]
            terminal.print(verdict_lines(zip(labels, steps, strict=True)))


def _calls_for_more(comparison: "Comparison") -> bool:
    """Whether a tensor fails or was not judged, or passes with a remark."""
    return comparison.state != "pass" or any(row.difference for row in comparison.rows)
