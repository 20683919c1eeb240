"""Say for every node which precision was asked for and which it really has.

Takes a folder that 'roundoff quantize' wrote, and compares its plan with both
of its models; or any quantized ONNX model: QuantizeLinear/DequantizeLinear or
operators on integers as onnxruntime, NNCF, AIMET, PPQ, PyTorch and others write
them, Horizon's calibrated models, AMCT's fake-quant and deploy models.
Exits with 1 when anything differs that nothing accounts for.
"""

import argparse
from pathlib import Path

from roundoff.cli.options import add_html_option, check_html, write_html
from roundoff.cli.results import check_csv
from roundoff.cli.terminal import Terminal

# By this an earlier table of ours is known.
_CSV_START = "node,op_type,severity,"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's options."""
    parser.add_argument(
        "subject",
        type=Path,
        metavar="RUN|MODEL",
        help="a folder of 'roundoff quantize', or a quantized .onnx model",
    )
    parser.add_argument(
        "--float",
        type=Path,
        dest="float_model",
        metavar="FILE",
        help="the float model that MODEL was made from; nodes get its names",
    )
    parser.add_argument(
        "--target", metavar="NAME|FILE", help="judge MODEL by what this target would make of its float model"
    )
    parser.add_argument(
        "--nodes", nargs="+", metavar="GLOB", help="only nodes whose names match, e.g. 'layer4/*' (quote it)"
    )
    output = parser.add_argument_group("output")
    output.add_argument("--all", action="store_true", help="show every node with its scales, not only findings")
    output.add_argument("--json", action="store_true", help="print the audit as JSON instead of the table")
    output.add_argument("--csv", type=Path, metavar="FILE", help="also write every node to a CSV file")
    add_html_option(output)
    output.add_argument("--force", action="store_true", help="replace the files of an earlier audit")


def run(args: argparse.Namespace, terminal: Terminal) -> int:
    """Audit, print, write; 1 when there are silent differences."""
    from roundoff.api.quantization import audit
    from roundoff.core.files import write_text
    from roundoff.pages.blocks import TableBlock, View
    from roundoff.pages.csv import table_csv
    from roundoff.pages.terminal import terminal_page
    from roundoff.studies.audit.page import EVERYTHING, audit_page
    from roundoff.studies.audit.result import audit_json

    if args.csv is not None:
        check_csv(args.csv, force=args.force, start=_CSV_START)
    check_html(args)
    outcome = audit(
        args.subject,
        float_model=args.float_model,
        target=args.target,
        nodes=args.nodes,
        notes=args.all or args.json,
    )
    found = outcome.result
    page = audit_page(outcome.document, View(sort=EVERYTHING if args.all else ""))
    written: list[Path] = []
    if args.csv is not None and page is not None:
        write_text(args.csv, next(table_csv(each) for each in page.blocks if isinstance(each, TableBlock)))
        written.append(args.csv)
    written += write_html(args, outcome.document)
    if args.json:
        terminal.text(audit_json(found))
    elif page is not None:
        terminal.print(terminal_page(page))
    if written:
        terminal.written(written)
    return outcome.exit_code
