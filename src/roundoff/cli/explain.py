"""Explain in one paragraph a node, finding, metric, verdict, cause or column.

With RUN, a folder that a command wrote with -o or its run.json, nodes and
findings are explained with the numbers of that run. NAME is a node or tensor,
the number of a finding, a metric (cosine), a verdict (DISTRIBUTED), a cause
(clipping) or a column (adds).
"""

import argparse
from pathlib import Path

from roundoff.cli.terminal import Terminal
from roundoff.errors import EXIT_OK


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's options."""
    parser.add_argument("name", metavar="NAME", help="what to explain")
    parser.add_argument("run_path", type=Path, nargs="?", metavar="RUN", help="a run directory or its run.json")


def run(args: argparse.Namespace, terminal: Terminal) -> int:
    """Look it up and print it."""
    from rich.text import Text

    from roundoff.api.runs import explain

    terminal.print(Text(explain(args.name, args.run_path)))
    return EXIT_OK
