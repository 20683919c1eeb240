"""Show what quantization costs each layer of a model, and where the loss begins.

Two errors stand side by side. Local: the unit of the node alone, fed with the
float model's tensors, quantized on entry. Accumulated: the whole quantized
model. The verdict says whether few units cause the loss at the outputs, proven
by putting them into float, or whether it adds up over many.

Columns: q, type of the codes; dB, energy of the float tensor over that of the
error (SQNR); steps, root mean square of the error in quantization steps (0.29
is rounding alone); clip, values cut off; levels, codes that occur of those
there are; adds, estimated share of the error at the outputs, by which rows are
sorted and units are tried.
"""

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from roundoff.cli.options import (
    add_data_options,
    add_html_option,
    add_subject_options,
    check_html,
    positive,
    size,
    subject_words,
    threads,
    write_html,
)
from roundoff.cli.terminal import Terminal

if TYPE_CHECKING:
    from roundoff.core.document import RunDocument

_DEFAULT_ROWS = 20
# By this an earlier table of ours is known.
_CSV_START = "order,node,op_type,"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's options."""
    add_subject_options(parser)
    parser.add_argument(
        "--method", choices=("local", "accumulated", "both"), default="both", help="which error (default: both)"
    )
    parser.add_argument(
        "--mode",
        choices=("reference", "integer"),
        default="reference",
        help="fake quantization in onnxruntime, or exact integer arithmetic (default: reference)",
    )
    parser.add_argument(
        "--arithmetic",
        metavar="NAME|FILE",
        help="for --mode integer: compute like this target (default: the one quantized for, else the widest)",
    )
    output = parser.add_argument_group("output")
    output.add_argument("--sort", choices=("worst", "order"), default="worst", help="order of the table")
    output.add_argument(
        "--top", type=_rows, default=_DEFAULT_ROWS, metavar="N|all", help="rows shown (default: 20)"
    )
    output.add_argument("--json", action="store_true", help="print the run document instead of the table")
    output.add_argument("--csv", type=Path, metavar="FILE", help="also write all rows and columns as CSV")
    add_html_option(output)
    output.add_argument("-o", "--output", type=Path, metavar="DIR", help="write run.json and layers.csv to DIR")
    output.add_argument("--force", action="store_true", help="replace what an earlier run wrote")
    limits = parser.add_argument_group("limits")
    limits.add_argument(
        "--max-memory", type=size, metavar="SIZE", help="memory to stay within, in several passes if need be"
    )
    limits.add_argument("--threads", type=threads, metavar="N", help="threads to use (default: all cores)")
    add_data_options(parser)


def _rows(text: str) -> int | None:
    return None if text == "all" else positive(text)


def run(args: argparse.Namespace, terminal: Terminal) -> int:
    """Quantize or read, measure, print, write."""
    from roundoff.api.studies import layers

    _check_outputs(args)
    outcome = layers(
        args.model,
        method=args.method,
        mode=args.mode,
        arithmetic=args.arithmetic,
        **subject_words(args, terminal),
    )
    document = outcome.document
    written = _write(args, document)
    _print(args, terminal, document)
    if written:
        terminal.written(written)
    return outcome.exit_code


def _check_outputs(args: argparse.Namespace) -> None:
    """Refuse before the work what could not be written after it."""
    from roundoff.core.document import DOCUMENT_NAME
    from roundoff.core.files import begins, check_output_directory, check_output_file

    if args.output is not None:
        check_output_directory(args.output, marker=DOCUMENT_NAME, force=args.force)
    check_html(args)
    if args.csv is not None and not (args.force and begins(args.csv, _CSV_START.encode())):
        check_output_file(args.csv, force=False, option="--csv")


def _write(args: argparse.Namespace, document: "RunDocument") -> list[Path]:
    from roundoff.core.files import write_text
    from roundoff.report.pages import run_files, write_run

    written = [] if args.output is None else list(write_run(document, args.output, force=args.force))
    if args.csv is not None:
        write_text(args.csv, run_files(document)["layers.csv"])
        written.append(args.csv)
    return written + write_html(args, document)


def _print(args: argparse.Namespace, terminal: Terminal, document: "RunDocument") -> None:
    from roundoff.core.document import to_json
    from roundoff.pages.blocks import View
    from roundoff.pages.terminal import terminal_page
    from roundoff.studies.layers.page import layers_page

    if args.json:
        terminal.text(to_json(document))
    elif (page := layers_page(document, View(args.top, args.sort))) is not None:
        terminal.print(terminal_page(page))
