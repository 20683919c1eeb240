"""Turn a run into a report: one HTML file that opens anywhere, or another format.

RUN is a folder that a command wrote with -o, or its run.json. The HTML file
needs no server and no network, holds both languages, and can be sent by e-mail.

netron writes an .onnx file to be opened in Netron: the network without weights,
with what the run knows of a node among its properties. model-explorer writes
node data that Model Explorer lays over the model.
"""

import argparse
from pathlib import Path

from roundoff.cli.terminal import Terminal
from roundoff.errors import EXIT_OK

_FORMATS = ("html", "md", "csv", "json", "junit", "netron", "model-explorer")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's options."""
    parser.add_argument("run_path", type=Path, metavar="RUN", help="a run directory, or its run.json")
    parser.add_argument(
        "-o", "--output", type=Path, required=True, metavar="FILE", help="where it goes; a folder for csv"
    )
    parser.add_argument(
        "--format",
        choices=_FORMATS,
        help="form of the report (default: by the ending of FILE)",
    )
    parser.add_argument("--title", help="heading of the report (default: the command and the model)")
    parser.add_argument("--force", action="store_true", help="replace an earlier report")


def run(args: argparse.Namespace, terminal: Terminal) -> int:
    """Read, render, write."""
    from roundoff.api.runs import report

    written = report(args.run_path, args.output, format=args.format, title=args.title or "", force=args.force)
    terminal.written(written)
    return EXIT_OK
