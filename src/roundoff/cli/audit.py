"""Say for every node which precision was asked for and which it really has.

Takes a folder that 'roundoff quantize' wrote, and compares its plan with both
of its models; or any quantized ONNX model: QuantizeLinear/DequantizeLinear or
operators on integers as onnxruntime, NNCF, AIMET, PPQ, PyTorch and others write
them, Horizon's calibrated models, AMCT's fake-quant and deploy models.
Exits with 1 when anything differs that nothing accounts for.
"""

import argparse
import fnmatch
import time
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from roundoff.cli.html_option import add_html_option, check_html, write_html
from roundoff.cli.results import check_csv
from roundoff.cli.terminal import Terminal
from roundoff.errors import EXIT_OK, EXIT_THRESHOLD_MISSED, BadInput, nearest

if TYPE_CHECKING:
    from roundoff.core.document import RunDocument
    from roundoff.studies.audit.result import Audit

SUMMARY = "requested and effective precision of every node of a quantized model"

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
    from roundoff.core.files import write_text
    from roundoff.pages.blocks import Table, View
    from roundoff.pages.csv import table_csv
    from roundoff.pages.terminal import terminal_page
    from roundoff.studies.audit.page import EVERYTHING, audit_page
    from roundoff.studies.audit.result import audit_json

    started = time.monotonic()
    if args.csv is not None:
        check_csv(args.csv, force=args.force, start=_CSV_START)
    check_html(args)
    found = _chosen(_audit(args), args.nodes)
    document = _document(args, found, time.monotonic() - started)
    page = audit_page(document, View(sort=EVERYTHING if args.all else ""))
    written: list[Path] = []
    if args.csv is not None and page is not None:
        write_text(args.csv, next(table_csv(each) for each in page.blocks if isinstance(each, Table)))
        written.append(args.csv)
    if args.html is not None:
        written += write_html(args, document)
    if args.json:
        terminal.text(audit_json(found))
    elif page is not None:
        terminal.print(terminal_page(page))
    if written:
        terminal.written(written)
    return EXIT_OK if found.passed else EXIT_THRESHOLD_MISSED


def _document(args: argparse.Namespace, found: "Audit", elapsed_s: float) -> "RunDocument":
    from roundoff.cli.provenance import environment, input_file
    from roundoff.core.document import SCHEMA, RunDocument

    target = Path(args.target) if args.target and Path(args.target).is_file() else None
    read = [("model", args.subject), ("float", args.float_model), ("target", target)]
    return RunDocument(
        schema=SCHEMA,
        command=("roundoff", *args.words),
        inputs=tuple(input_file(role, path) for role, path in read if path is not None),
        audit=found,
        environment=environment(elapsed_s),
    )


def _audit(args: argparse.Namespace) -> "Audit":
    if args.subject.is_dir() or args.subject.suffix.lower() == ".json":
        given = [flag for flag, value in (("--float", args.float_model), ("--target", args.target)) if value]
        if given:
            what = f"{given[0]} was given, but {args.subject} is a run, which has its own plan."
            raise BadInput(what, fix=f"leave {given[0]} out, or give one of the run's models")
        return _audit_run(args.subject, notes=args.all or args.json)
    return _audit_model(args)


def _audit_run(path: Path, *, notes: bool) -> "Audit":
    """The audit of a run; what its user was told when it was made is told again on request."""
    from roundoff.graph.load import load_model
    from roundoff.graph.reading.read import read_quantized
    from roundoff.quantize.plan_file import CORRECTED, PLAN_NAME, load_plan
    from roundoff.studies.audit.study import audit_run

    folder = path if path.is_dir() else path.parent
    if path.is_dir() and not (path / PLAN_NAME).is_file():
        what = f"{path} has no {PLAN_NAME}, so it is no run of 'roundoff quantize'."
        raise BadInput(what, fix="give the folder that 'roundoff quantize -o' wrote, or an .onnx model")
    saved = load_plan(path)
    names = {"fake_quant": "fake-quant model", "deploy": "deploy model"}
    models = {
        name: read_quantized(load_model(folder / saved.files[kind]))
        for kind, name in names.items()
        if kind in saved.files
    }
    if not models:
        raise BadInput(f"{path} names no models.", fix="write the run again with 'roundoff quantize'")
    corrected = CORRECTED in saved.files
    found = audit_run(saved.plan, saved.quantizers(), models, subject=str(path), corrected=corrected)
    return replace(found, notes=(*found.notes, *saved.notes)) if notes else found


def _audit_model(args: argparse.Namespace) -> "Audit":
    from roundoff.graph.load import load_model
    from roundoff.graph.reading.read import read_quantized
    from roundoff.quantize.planning.planner import plan_quantization
    from roundoff.quantize.targets.loading import load_target
    from roundoff.studies.audit.study import audit_against, audit_model

    target = None if args.target is None else load_target(args.target)
    source = None if args.float_model is None else load_model(args.float_model)
    model = read_quantized(load_model(args.subject), float_model=source)
    if not model.quantizers and not model.oddities:
        raise BadInput(
            f"{args.subject} is not quantized: no quantizer of a known kind was found in it.",
            fix="give a model with QuantizeLinear and DequantizeLinear nodes, or of another dialect listed in "
            "docs/formats/quantized-models.md",
        )
    if target is None:
        return audit_model(model, subject=str(args.subject))
    plan = plan_quantization(model.float_model, target)
    return audit_against(model, plan, subject=str(args.subject))


def _chosen(audit: "Audit", globs: list[str] | None) -> "Audit":
    """Only the rows that were asked for."""
    if globs is None:
        return audit
    names = [row.node for row in audit.rows]
    for pattern in globs:
        if not any(_matches(name, pattern) for name in names):
            raise BadInput(f"--nodes {pattern!r} matches no node of {audit.subject}.", fix=nearest(pattern, names))
    rows = tuple(row for row in audit.rows if any(_matches(row.node, pattern) for pattern in globs))
    return replace(audit, rows=rows, findings=())


def _matches(name: str, pattern: str) -> bool:
    # Names may hold brackets, which a pattern would read as choices.
    return name == pattern or fnmatch.fnmatchcase(name, pattern)
