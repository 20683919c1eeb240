"""Show what roundoff does, on data that comes with it.

repair: a network that reads digits, on a chip with too few bits; it is
diagnosed, repaired, and counted on images that nobody has seen. board: the
tensors that a broken board wrote, and the layer that is wrong. ocr: a text
recogniser of 11 MB from the package rapidocr-onnxruntime, which misreads words
in 8 bits: 'ocr --target generic-int8-per-tensor' all of them. Takes minutes.
"""

import argparse
from pathlib import Path

from roundoff.cli.terminal import Terminal
from roundoff.errors import EXIT_OK, EXIT_THRESHOLD_MISSED
from roundoff.messages.message import english

# Known without importing the stories, so that --help stays quick.
_STORIES = ("repair", "board", "ocr")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's options."""
    parser.add_argument("story", nargs="?", choices=_STORIES, default="repair", help="which (default: repair)")
    parser.add_argument("--target", metavar="NAME|FILE", help="of ocr: for this chip (default: generic-int8)")
    parser.add_argument(
        "-o",
        "--output",
        type=Path,
        default=Path("roundoff-demo"),
        metavar="DIR",
        help="where the inputs and the results go (default: %(default)s)",
    )
    parser.add_argument("--force", action="store_true", help="replace the result of an earlier demo")


def run(args: argparse.Namespace, terminal: Terminal) -> int:
    """Put the inputs down, run the command of the story, and say what to look at."""
    import shlex

    # The package imports its commands, so a command can import it only once it runs.
    from roundoff.cli import main
    from roundoff.core.files import output_directory
    from roundoff.demo.scenarios.scenario import scenario

    story = scenario(args.story, target=args.target)
    inputs, results = args.output / "inputs", args.output / "results"
    with output_directory(inputs, marker=story.marker, force=args.force) as staged:
        story.prepare(staged)
    lines = story.command(inputs, results)
    lines[-1] += ["--force"] * args.force
    shown = " \\\n    ".join(shlex.join(line) for line in lines)
    terminal.note(english("{introduction}\n\n  roundoff {shown}\n", introduction=story.introduction, shown=shown))
    code = main([word for line in lines for word in line])
    if code not in (EXIT_OK, EXIT_THRESHOLD_MISSED):
        return code
    terminal.note(story.conclusion(inputs, results))
    return EXIT_OK
