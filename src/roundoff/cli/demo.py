"""The command that shows what roundoff does, on data that comes with it."""

import argparse
from pathlib import Path

from roundoff.cli.options import command, opt
from roundoff.cli.terminal import Terminal
from roundoff.errors import EXIT_OK, EXIT_THRESHOLD_MISSED
from roundoff.messages.catalogue import current_language
from roundoff.messages.message import english

# Known without importing the stories, so that --help stays quick.
_STORIES = ("repair", "board", "ocr")


@command(
    opt("story", "which (default: repair)", nargs="?", choices=_STORIES, default=_STORIES[0]),
    opt("--target NAME|FILE", "of ocr: for this chip (default: generic-int8)"),
    opt("-o --output DIR", "where the inputs and the results go (default: roundoff-demo, board-demo, ocr-demo)"),
    opt("--force", "replace the result of an earlier demo"),
)
def demo(args: argparse.Namespace, terminal: Terminal) -> int:
    """Show what roundoff does, on data that comes with it.

    repair: a network that reads digits, on a chip with too few bits; it is
    diagnosed, repaired, and counted on images that nobody has seen. board: the
    tensors that a broken board wrote, and the layer that is wrong. ocr: a text
    recogniser of 11 MB from the package rapidocr-onnxruntime, which misreads words
    in 8 bits: 'ocr --target generic-int8-per-tensor' all of them. Takes minutes.
    """
    import shlex

    # The package imports its commands, so a command can import it only once it runs.
    from roundoff.cli import main
    from roundoff.core.files import output_directory
    from roundoff.demo.stories import story

    told = story(args.story, target=args.target)
    # A folder for each, so that one story can be told behind the other.
    folder = args.output or Path("roundoff-demo" if args.story == _STORIES[0] else f"{args.story}-demo")
    inputs, results = folder / "inputs", folder / "results"
    with output_directory(inputs, marker=told.marker, force=args.force) as staged:
        told.prepare(staged)
    lines = told.command(inputs, results)
    lines[-1] += ["--force"] * args.force
    shown = " \\\n    ".join(shlex.join(line) for line in lines)
    terminal.note(english("{introduction}\n\n  roundoff {shown}\n", introduction=told.introduction, shown=shown))
    code = main(["--lang", current_language(), *(word for line in lines for word in line)])
    if code not in (EXIT_OK, EXIT_THRESHOLD_MISSED):
        return code
    terminal.note(told.conclusion(inputs, results))
    return EXIT_OK
