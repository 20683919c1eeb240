"""What is analyzed: a model that is quantized here, or was before; shared by all commands that look into one.

Loaded for every --help, so it imports the standard library alone until models are opened.
"""

import argparse
from pathlib import Path
from typing import TYPE_CHECKING, Any

from roundoff.cli.data_options import data_words
from roundoff.cli.quantize_options import add_quantize_options, quantize_words

if TYPE_CHECKING:
    from roundoff.api.subject import Subject
    from roundoff.cli.terminal import Terminal

__all__ = ["add_subject_options", "open_subject", "subject_words"]


def add_subject_options(parser: argparse.ArgumentParser, *, required: bool = True) -> None:
    """Declare FLOAT, --quantized, --target and how to quantize; threads and max_memory are the command's.

    Args:
        parser: Of the command.
        required: Whether there must be something quantized; otherwise a float model will do.
    """
    parser.add_argument(
        "model",
        type=Path,
        nargs="?",
        metavar="FLOAT",
        help="the float model: .onnx, or .prototxt[,.caffemodel] of Caffe; without it, what remains of the "
        "quantized one when nothing is quantized",
    )
    what = parser.add_mutually_exclusive_group(required=required)
    what.add_argument(
        "--quantized",
        type=Path,
        metavar="FILE|DIR",
        help="the same model quantized by any tool, a folder that roundoff quantize wrote, or AIMET's .encodings",
    )
    what.add_argument("--target", metavar="NAME|FILE", help="quantize it for this chip first, on --data")
    add_quantize_options(parser, title="How to quantize, with --target.")


def subject_words(args: argparse.Namespace, terminal: "Terminal") -> dict[str, Any]:
    """The options on what is quantized and what it is fed, as public functions take them."""
    return {
        **data_words(args),
        **quantize_words(args),
        "quantized": args.quantized,
        "target": args.target,
        "threads": args.threads,
        "max_memory": args.max_memory,
        "progress": terminal,
    }


def open_subject(args: argparse.Namespace, terminal: "Terminal", *, needs_samples: bool = True) -> "Subject":
    """Quantize for --target, or read --quantized; without both it is the float model.

    Args:
        args: Parsed options.
        terminal: Told of progress.
        needs_samples: Whether samples must be given even where nothing has to be calibrated.

    Raises:
        BadInput: The options contradict each other, or what they name cannot be used.
        ModelFailed: The model cannot be run.
    """
    from roundoff.api.call import Call
    from roundoff.api.subject import SubjectOptions, open_subject

    call = Call("subject", subject_words(args, terminal), SubjectOptions)
    return open_subject(call, args.model, required=False, needs_samples=needs_samples)
