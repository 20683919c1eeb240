"""Pack what a run found into a ticket that someone else can reproduce.

RUN is the folder that a command wrote with -o, or pulsar2 build or tune. The
archive holds the float model, the fewest samples that show the fault, a test
script that needs numpy and onnxruntime only, configuration and target, the
environment, the command, and a form that is filled in as far as is known.

With --confidential weights become random ones of the same statistics, names
become numbers, samples become synthetic, and it is verified that the fault is
still there. What was called how is written beside the archive, not into it.
"""

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from roundoff.cli.options import add_limits
from roundoff.cli.terminal import Terminal
from roundoff.errors import EXIT_OK, EXIT_THRESHOLD_MISSED

if TYPE_CHECKING:
    from roundoff.case.bundle import Bundle


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's options."""
    parser.add_argument("run_folder", type=Path, metavar="RUN", help="the folder a run wrote, or its run.json")
    parser.add_argument(
        "-o", "--output", type=Path, required=True, metavar="FILE.zip", help="the archive to be written"
    )
    parser.add_argument(
        "--confidential",
        action="store_true",
        help="replace weights, names and samples, and verify that the fault is still there",
    )
    parser.add_argument(
        "--keep-data", action="store_true", help="with --confidential: keep the samples as they are"
    )
    parser.add_argument(
        "--seed", type=int, default=0, metavar="N", help="of what is chosen at random (default: 0)"
    )
    parser.add_argument("--force", action="store_true", help="replace an earlier bundle")
    add_limits(parser)


def run(args: argparse.Namespace, terminal: Terminal) -> int:
    """Pack and print; 1 when the fault is not shown."""
    from roundoff.case.bundle import bundle

    packed = bundle(
        args.run_folder,
        output=args.output,
        confidential=args.confidential,
        keep_data=args.keep_data,
        seed=args.seed,
        force=args.force,
        threads=args.threads,
        max_memory=args.max_memory,
        progress=terminal,
    )
    _print(packed, terminal)
    return EXIT_OK if packed.shown else EXIT_THRESHOLD_MISSED


def _print(packed: "Bundle", terminal: Terminal) -> None:
    from rich.text import Text

    from roundoff.messages.catalogue import translate
    from roundoff.messages.message import shown
    from roundoff.messages.numbers import format_size
    from roundoff.messages.sanitize import for_people
    from roundoff.pages.terminal import verdict_page

    headline = Text()
    if packed.shown:
        headline.append(translate("case.word_packed"), style="bold green")
        headline.append(translate("case.packed", file=packed.archive))
    else:
        headline.append(translate("case.word_not_packed"), style="bold red")
        headline.append(translate("case.not_packed"))
    lines = [(_label(label), shown(text)) for label, text in for_people(packed.lines)]
    if packed.shown:
        files = sorted(packed.members.items())
        for place, (name, content) in enumerate(files):
            lines.append(("" if place else _label("files"), f"{name}, {format_size(len(content))}"))
    terminal.print(verdict_page(headline, lines))
    if packed.names_file is not None:
        terminal.note(translate("case.keep", file=packed.archive, names=packed.names_file))
    elif packed.shown:
        terminal.written([packed.archive])


def _label(word: str) -> str:
    """The word before a line, in the language of the terminal."""
    from roundoff.messages.catalogue import current_language, named

    found = named(f"case.label_{word.replace(' ', '_')}")
    return word if found is None else found.within(current_language())
