"""Write what a quantization decided as settings of other tools.

RUN is a folder that quantize, tune or diagnose --fix wrote, or a quantized
model of any tool. Each dialect gets the files its tool reads: which nodes stay
in float, which get 16 bits and, where the tool takes them, the scale of every
tensor. What a tool cannot be told is listed, never left out silently.
"""

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from roundoff.cli.terminal import Terminal
from roundoff.errors import EXIT_OK, BadInput

if TYPE_CHECKING:
    from roundoff.cli.settings_files import Settings
    from roundoff.graph.load import Model
    from roundoff.vendors.dialects.decisions import Decisions

SUMMARY = "write a quantization as settings of onnxruntime, Pulsar2, Horizon, ..."


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's options."""
    from roundoff.cli.settings_files import DIALECT_HELP

    parser.add_argument(
        "source",
        type=Path,
        metavar="RUN",
        help="a folder that quantize, tune or diagnose --fix wrote, or a quantized .onnx",
    )
    parser.add_argument(
        "--model",
        type=Path,
        metavar="FLOAT",
        help="the float model it was made from (default: where plan.json says)",
    )
    parser.add_argument("--dialect", required=True, metavar="NAME,...", help=DIALECT_HELP)
    parser.add_argument("-o", "--output", type=Path, required=True, metavar="DIR", help="where the files go")
    parser.add_argument("--force", action="store_true", help="replace what an earlier run wrote to DIR")
    parser.add_argument("--json", action="store_true", help="print what was written, as JSON")


def run(args: argparse.Namespace, terminal: Terminal) -> int:
    """Read, translate, write."""
    from roundoff.cli.settings_files import SETTINGS_NAME, settings_for
    from roundoff.core.files import check_output_directory, output_directory, write_text
    from roundoff.graph.save import save_model
    from roundoff.vendors.dialects.registry import find_dialects

    dialects = find_dialects(args.dialect)
    check_output_directory(args.output, marker=SETTINGS_NAME, force=args.force)
    decisions, given = _read(args, terminal)
    settings = settings_for(decisions, dialects, given=given)
    model, name = decisions.quantized.float_model, decisions.made.graph
    with output_directory(args.output, marker=SETTINGS_NAME, force=args.force) as staged:
        for file, text in settings.files().items():
            write_text(staged / file, text)
        if name:
            save_model(model, staged / name)
    _print(args, terminal, settings, model_name=name)
    terminal.written([args.output])
    return EXIT_OK


def _read(args: argparse.Namespace, terminal: Terminal) -> "tuple[Decisions, Model | None]":
    """What was decided, and the float model as the user gave it, where that is known."""
    from roundoff.cli.settings_files import float_model_name
    from roundoff.core.files import model_stem
    from roundoff.graph.load import load_model
    from roundoff.graph.reading.read import read_quantized
    from roundoff.vendors.dialects.decisions import Made, decisions_of

    if args.source.is_dir():
        return _read_folder(args, terminal)
    given = None if args.model is None else load_model(args.model)
    quantized = read_quantized(load_model(args.source), float_model=given)
    if not quantized.quantizers:
        raise BadInput(
            f"Nothing in {args.source} is quantized.", fix="give a quantized model, or a folder with plan.json"
        )
    stem = model_stem(args.source)
    made = Made(stem, graph=float_model_name(stem, given, quantized.float_model))
    return decisions_of(quantized, made), given


def _read_folder(args: argparse.Namespace, terminal: Terminal) -> "tuple[Decisions, Model | None]":
    from roundoff.cli.settings_files import float_model_name
    from roundoff.cli.subject import open_stored
    from roundoff.core.files import model_stem
    from roundoff.quantize.plan_file import PLAN_NAME, load_plan
    from roundoff.vendors.dialects.decisions import Made, decisions_of

    if not (args.source / PLAN_NAME).is_file():
        what = f"{args.source} has no {PLAN_NAME}: nothing was quantized there."
        raise BadInput(what, fix="give a folder that quantize, tune or diagnose --fix wrote, or a quantized .onnx")
    saved = load_plan(args.source)
    own = args.source / saved.files["float"] if "float" in saved.files else Path(saved.model)
    path = args.model or (own if own.is_file() else None)
    if path is None:
        terminal.note(
            f"note: {saved.model} is not there; the float model is read from the quantized one (--model)"
        )
    stored = open_stored(args.source, path)
    quantized = stored.quantized
    # A float model in the folder is one that was made there: what the user had is another.
    given = None if "float" in saved.files else stored.model
    stem = model_stem(Path(saved.model)).removesuffix("_float_model")
    graph = float_model_name(stem, given, quantized.float_model)
    made = Made.by_plan(saved.plan, stem=stem, method=saved.method, samples=saved.samples, graph=graph)
    return decisions_of(quantized, made), given


def _print(args: argparse.Namespace, terminal: Terminal, settings: "Settings", *, model_name: str) -> None:
    from rich.text import Text

    from roundoff.core.document import json_text
    from roundoff.messages.sanitize import for_people
    from roundoff.pages.terminal import verdict_page

    if args.json:
        terminal.text(json_text(settings.record))
        return
    if settings.texts:
        headline = Text("WRITTEN", style="bold green")
        headline.append(f": settings {settings.count} in {args.output}", style="default")
    else:
        headline = Text("NO SETTINGS", style="bold yellow")
        headline.append(": nothing that can be told differs from defaults", style="default")
    lines = list(for_people(tuple(settings.lines())))
    if model_name:
        lines.append(("model", f"{model_name}: the float model that names and scales belong to"))
    terminal.print(verdict_page(headline, lines))
