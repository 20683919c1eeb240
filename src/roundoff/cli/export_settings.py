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

if TYPE_CHECKING:
    from roundoff.vendors.dialects.settings import ToolSettings

__all__ = [
    "DIALECT_HELP",
    "print_settings",
]

DIALECT_HELP = (
    "write settings for other tools: roundoff, onnxruntime, pulsar2, horizon, amct, rknn, tpu-mlir, nncf, aimet, "
    "or all"
)

# So many lines beside another result; all of them are in the file.
_MOST_LOST = 6


def print_settings(terminal: "Terminal", settings: "ToolSettings", folder: Path) -> None:
    """Tell of settings beside another result: where they are, for which graph, and what they could not say."""
    from rich.text import Text

    from roundoff.messages.sanitize import for_people
    from roundoff.pages.terminal import verdict_page
    from roundoff.vendors.dialects.settings import SETTINGS_NAME

    lost = list(settings.lost())
    lines = [("", each) for each in lost[:_MOST_LOST]]
    if len(lost) > _MOST_LOST:
        lines.append(("", f"and {len(lost) - _MOST_LOST} more in {folder / SETTINGS_NAME}"))
    if settings.graph:
        lines.insert(0, ("model", f"{settings.graph}: give the tools this one, settings belong to it"))
    headline = Text("SETTINGS", style="bold green")
    headline.append(f": {settings.count}; how to use them is in {folder / SETTINGS_NAME}", style="default")
    terminal.text("")
    terminal.print(verdict_page(headline, for_people(tuple(lines))))


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's options."""
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
    from roundoff.api.quantization import export_settings
    from roundoff.core.files import check_output_directory
    from roundoff.vendors.dialects import find_dialects
    from roundoff.vendors.dialects.settings import SETTINGS_NAME

    find_dialects(args.dialect)
    check_output_directory(args.output, marker=SETTINGS_NAME, force=args.force)
    outcome = export_settings(args.source, dialect=args.dialect, model=args.model, tell=terminal.note)
    outcome.save(args.output, force=args.force)
    _print(args, terminal, outcome.result, model_name=outcome.model_name)
    terminal.written([args.output])
    return outcome.exit_code


def _print(args: argparse.Namespace, terminal: Terminal, settings: "ToolSettings", *, model_name: str) -> None:
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
