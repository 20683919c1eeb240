"""Show what roundoff does, on data that comes with it.

A small network reads handwritten digits. On a (simulated) board it reads
fewer of them right. The demo compares the float model with the tensors that
the board wrote and finds the layer that is broken.
"""

import argparse
from pathlib import Path
from typing import Any

from roundoff.cli.terminal import Terminal
from roundoff.errors import EXIT_OK, EXIT_THRESHOLD_MISSED

SUMMARY = "a small model against a broken board's tensors, all shipped"

_MODEL = "digits.onnx"
_SAMPLES = "samples.npy"
_DUMP = "board_dump"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's options."""
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
    """Copy the inputs, compare them, and say what to look at."""
    # The package imports its commands, so a command can import it only once it runs.
    from roundoff.cli import main

    inputs, results = args.output / "inputs", args.output / "comparison"
    truth = _copy_inputs(inputs, force=args.force)
    # Line by line, as it is shown.
    command = [
        ["compare"],
        [str(inputs / _MODEL), str(inputs / _DUMP)],
        ["--data", str(inputs / _SAMPLES), "-o", str(results), *["--force"] * args.force],
    ]
    terminal.note(_introduction(truth, command))
    code = main([word for line in command for word in line])
    if code not in (EXIT_OK, EXIT_THRESHOLD_MISSED):
        return code
    terminal.note(_conclusion(truth, results))
    return EXIT_OK


def _copy_inputs(folder: Path, *, force: bool) -> dict[str, Any]:
    """Put the inputs where the user can compare them again by hand; return what is true of them."""
    import json
    import shutil
    from importlib import resources

    from roundoff.core.files import output_directory

    shipped = Path(str(resources.files("roundoff.demo")))
    dumps = sorted(f"{_DUMP}/{path.name}" for path in (shipped / _DUMP).iterdir())
    with output_directory(folder, marker=_MODEL, force=force) as staged:
        (staged / _DUMP).mkdir()
        for name in (_MODEL, _SAMPLES, *dumps):
            shutil.copyfile(shipped / name, staged / name)
    truth: dict[str, Any] = json.loads((shipped / "truth.json").read_text(encoding="utf-8"))
    return truth


def _introduction(truth: dict[str, Any], command: list[list[str]]) -> str:
    import shlex

    accuracy, images = truth["accuracy"], len(truth["samples"]["labels"])
    shown = " \\\n    ".join(shlex.join(line) for line in command)
    return f"""\
A network reads {accuracy["float"]:.1%} of the handwritten digits of its test set right;
on a board, {accuracy["broken_board"]:.1%}. The board wrote its tensors for {images} of the images:
under its own names, channels last, with batch norms and activations fused
away. Which layer is broken?

  roundoff {shown}
"""


def _conclusion(truth: dict[str, Any], results: Path) -> str:
    fault = truth["fault"]
    return f"""
Look first at the verdict above: it names the first tensor that diverges.
What is planted: the board multiplies the output of {fault["node"]}
({fault["tensor"]}) by {fault["gain"]:g}. The cosine there stays almost perfect; a table of
cosines would accuse the layer behind it.
The command above can be run again by hand, into another folder, for example
with --sort worst.

The results:
  {results / "run.json"}
  {results / "tensors.csv"}"""
