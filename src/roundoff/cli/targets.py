"""List the targets, or show everything about one.

A target says what a chip can do: bit widths, scales, rounding, what it
computes as one and what it cannot compute in integers. Each is a TOML file;
--target takes the name of a shipped one or the path of your own.
"""

import argparse

from roundoff.cli.terminal import Terminal
from roundoff.errors import EXIT_OK


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's options."""
    parser.add_argument(
        "target", nargs="?", metavar="TARGET", help="name of a target, or path of a TOML file, to show whole"
    )
    parser.add_argument("--json", action="store_true", help="print the targets as JSON")


def run(args: argparse.Namespace, terminal: Terminal) -> int:
    """Print the targets."""
    from roundoff.api.quantization import targets as find_targets
    from roundoff.pages.terminal import terminal_page
    from roundoff.quantize.targets.page import target_page, targets_json, targets_page

    targets = find_targets(args.target).result
    if args.json:
        terminal.text(targets_json(targets))
    else:
        page = targets_page(targets) if args.target is None else target_page(targets[0])
        terminal.print(terminal_page(page))
    return EXIT_OK
