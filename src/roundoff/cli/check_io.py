"""Compare what a deployed model is fed and gives with what it was in training.

For each stage give training's files, then the deployed side's: single files or
folders whose files are named alike; .npy, .npz, raw .bin or pictures. A dash
stands for a side that is not there. Where a stage differs, the transformation
between the two is searched for and named: RGB/BGR, range, mean and std, layout,
resizing, crop, letterbox, int8/uint8, YUV, quantized codes, padded rows.

  roundoff check-io --preprocessed train.npy board.bin
  roundoff check-io --original photos/ --preprocessed train/ board/
"""

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from roundoff.cli.options import add_html_option, check_html, number, numbers, shape, write_html
from roundoff.cli.terminal import Terminal
from roundoff.errors import BadInput
from roundoff.messages.message import english

if TYPE_CHECKING:
    from roundoff.studies.check_io.result import Stage

_STAGES: "dict[Stage, str]" = {
    "original": "the original inputs; one path serves both sides",
    "preprocessed": "what the model is fed",
    "output": "what the model gives",
    "result": "what post-processing makes of it",
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's options."""
    stages = parser.add_argument_group("stages", "Training's files first, the deployed side's second.")
    for stage, words in _STAGES.items():
        stages.add_argument(f"--{stage}", nargs="+", metavar="PATH", help=words)
    files = parser.add_argument_group("raw files")
    files.add_argument(
        "--shape", action="append", default=[], metavar="[STAGE=]AxBxC", help="shape of a sample in raw files"
    )
    files.add_argument(
        "--dtype", action="append", default=[], metavar="[STAGE=]TYPE", help="type of raw files, as float32"
    )
    files.add_argument("--model", type=Path, metavar="FILE", help="the float model; says the shapes of raw files")
    search = parser.add_argument_group(
        "search", "What training does, where it is known: (x * scale - mean) / std."
    )
    search.add_argument("--scale", type=number, metavar="X", help="factor on pixels, as 1/255 (default: 1)")
    search.add_argument("--mean", type=numbers, metavar="X,Y,Z", help="one number or one per channel")
    search.add_argument("--std", type=numbers, metavar="X,Y,Z", help="one number or one per channel")
    limits = parser.add_argument_group("limits", "Largest absolute difference that passes.")
    limits.add_argument(
        "--input-tolerance", type=number, default=1e-4, metavar="X", help="original, preprocessed (default: 1e-4)"
    )
    limits.add_argument(
        "--result-tolerance", type=number, default=1e-3, metavar="X", help="output and result (default: 1e-3)"
    )
    output = parser.add_argument_group("output")
    output.add_argument("--json", action="store_true", help="print the run document instead of the page")
    add_html_option(output)
    output.add_argument("-o", "--output-dir", type=Path, metavar="DIR", help="write run.json to DIR")
    output.add_argument("--force", action="store_true", help="replace what an earlier run wrote")


def run(args: argparse.Namespace, terminal: Terminal) -> int:
    """Read, compare, explain, print; 1 when a stage differs."""
    from roundoff.api.checks import check_io
    from roundoff.core.document import DOCUMENT_NAME, to_json
    from roundoff.core.files import check_output_directory
    from roundoff.pages.terminal import terminal_page
    from roundoff.report.pages import write_run
    from roundoff.studies.check_io.page import io_check_page

    if args.output_dir is not None:
        check_output_directory(args.output_dir, marker=DOCUMENT_NAME, force=args.force)
    elif args.force and args.html is None:
        raise BadInput(
            english("--force has no effect without -o or --html."), fix=english("add -o DIR, or leave it out")
        )
    check_html(args)
    outcome = check_io(
        original=args.original,
        preprocessed=args.preprocessed,
        output=args.output,
        result=args.result,
        shape=_shapes(args.shape),
        dtype=_by_stage("--dtype", args.dtype),
        model=args.model,
        scale=args.scale,
        mean=args.mean,
        std=args.std,
        input_tolerance=args.input_tolerance,
        result_tolerance=args.result_tolerance,
    )
    document = outcome.document
    written = [] if args.output_dir is None else list(write_run(document, args.output_dir, force=args.force))
    written += write_html(args, document)
    if args.json:
        terminal.text(to_json(document))
    elif (page := io_check_page(document)) is not None:
        terminal.print(terminal_page(page))
    if written:
        terminal.written(written)
    return outcome.exit_code


def _shapes(given: list[str]) -> "dict[Stage, tuple[int, ...]]":
    """The shape of each stage that was named."""
    try:
        return {stage: shape(text) for stage, text in _by_stage("--shape", given).items()}
    except argparse.ArgumentTypeError as error:
        raise BadInput(
            english("--shape: {error}.", error=error), fix=english("write it as 1x3x224x224")
        ) from error


def _by_stage(option: str, given: list[str]) -> "dict[Stage, str]":
    """One value for all stages, or one each."""
    found: dict[Stage, str] = {}
    for text in given:
        name, separator, value = text.partition("=")
        chosen = [stage for stage in _STAGES if stage == name] if separator else list(_STAGES)
        if not chosen:
            from roundoff.errors import nearest

            raise BadInput(
                english("There is no stage {name!r} ({option} {text}).", name=name, option=option, text=text),
                fix=nearest(name, _STAGES),
            )
        for stage in chosen:
            found[stage] = value if separator else text
    return found
