"""What is analyzed: a model that is quantized here, or was before; shared by all commands that look into one.

Loaded for every --help, so it imports the standard library alone until models are opened.
"""

import argparse
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from roundoff.cli.data_options import samples_from
from roundoff.cli.quantize_options import add_quantize_options, given_quantize_options, settings_from
from roundoff.errors import BadInput

if TYPE_CHECKING:
    from roundoff.cli.terminal import Terminal
    from roundoff.core.document import InputFile
    from roundoff.core.target import Arithmetic
    from roundoff.graph.load import Model
    from roundoff.graph.quantized_model import QuantizedModel
    from roundoff.quantize.plan_file import SavedPlan
    from roundoff.run.feeds import Samples

__all__ = [
    "Subject",
    "add_subject_options",
    "check_subject",
    "given_file",
    "open_stored",
    "open_subject",
    "subject_inputs",
]

# AIMET's files of scales end so.
_ENCODINGS = ".encodings"


class Subject(NamedTuple):
    """What is analyzed: the quantized model, what it is fed, the arithmetic it is made for, and words for it."""

    quantized: "QuantizedModel"
    samples: "Samples"
    arithmetic: "Arithmetic"
    words: str = ""


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


def check_subject(args: argparse.Namespace) -> None:
    """Refuse options that would have no effect."""
    if args.target is None:
        given = given_quantize_options(args)
        if given:
            already = (
                "nothing is quantized" if args.quantized is None else f"{args.quantized} is quantized already"
            )
            say = "says" if len(given) == 1 else "say"
            what = f"{' and '.join(given)} {say} how to quantize, but {already}."
            raise BadInput(what, fix="leave them out, or give --target instead of --quantized")
        if args.model is None and args.quantized is None:
            raise BadInput("No model was given.", fix="name a float model, or a quantized one with --quantized")
    elif args.model is None:
        what = "--target quantizes a float model, but none was given."
        raise BadInput(what, fix="name the model before --target")


def open_subject(args: argparse.Namespace, terminal: "Terminal", *, needs_samples: bool = True) -> Subject:
    """Quantize for --target, or read --quantized; without both it is the float model.

    Args:
        args: Parsed options.
        terminal: Told of progress.
        needs_samples: Whether samples must be given even where nothing has to be calibrated.

    Raises:
        BadInput: The options contradict each other, or what they name cannot be used.
        ModelFailed: The model cannot be run.
    """
    check_subject(args)
    if args.target is not None:
        return _quantized_here(args, terminal)
    return _quantized_before(args, needs_samples=needs_samples)


def given_file(args: argparse.Namespace) -> "Model | None":
    """The file of the quantized model, where one was given."""
    from roundoff.graph.load import load_model

    return load_model(args.quantized) if args.quantized is not None and args.quantized.is_file() else None


def subject_inputs(args: argparse.Namespace) -> "tuple[InputFile, ...]":
    """The files that were read, for the run document."""
    from roundoff.cli.provenance import data_paths, input_file

    given = (("model", args.model), ("quantized", args.quantized), ("rules", args.rules))
    read = [(role, path) for role, path in given if path is not None]
    if args.target and Path(args.target).is_file():
        read.append(("target", Path(args.target)))
    read += [("data", path) for path in data_paths(args.data)]
    return tuple(input_file(role, path) for role, path in read)


def _samples(args: argparse.Namespace, model: "Model", *, needed: bool = True) -> "Samples":
    from roundoff.graph.interface import inputs
    from roundoff.run.feeds import NO_INPUTS

    specs = inputs(model)
    return samples_from(args, specs) if args.data or (specs and needed) else NO_INPUTS


def _quantized_here(args: argparse.Namespace, terminal: "Terminal") -> Subject:
    from roundoff.graph.load import load_model
    from roundoff.quantize.pipeline import quantize_model

    settings = settings_from(args)
    model = load_model(args.model)
    samples = _samples(args, model)
    result = quantize_model(model, samples, settings, progress=terminal)
    words = f"quantized for {settings.target.name}, calibrated by {result.best.method}"
    return Subject(result.quantized, samples, settings.target.arithmetic, words)


def _quantized_before(args: argparse.Namespace, *, needs_samples: bool) -> Subject:
    from roundoff.core.target import WIDEST
    from roundoff.graph.load import load_model
    from roundoff.graph.preparation.steps import check_float
    from roundoff.graph.quantized_model import QuantizedModel
    from roundoff.graph.reading.read import read_quantized

    words = "" if args.quantized is None else str(args.quantized)
    if args.quantized is None:
        quantized, arithmetic = QuantizedModel(load_model(args.model), ()), WIDEST
    elif args.quantized.is_dir():
        quantized, arithmetic, words = open_stored(args.quantized, args.model)
    elif args.quantized.suffix == _ENCODINGS:
        quantized, arithmetic = _encoded(args), WIDEST
    else:
        model = None if args.model is None else load_model(args.model)
        if model is not None:
            check_float(model)
        quantized, arithmetic = read_quantized(load_model(args.quantized), float_model=model), WIDEST
    return Subject(quantized, _samples(args, quantized.float_model, needed=needs_samples), arithmetic, words)


def _encoded(args: argparse.Namespace) -> "QuantizedModel":
    """The float model with the scales of a file of AIMET's."""
    from roundoff.graph.load import load_model
    from roundoff.graph.preparation.steps import check_float
    from roundoff.vendors.dialects.aimet import read_encodings

    if args.model is None:
        what = f"{args.quantized} holds scales only, and no float model was given."
        raise BadInput(what, fix="name the float model they belong to before --quantized")
    model = load_model(args.model)
    check_float(model)
    return read_encodings(args.quantized, model)


def _right_float_model(folder: Path, saved: "SavedPlan") -> str:
    """Where the float model of a stored quantization is; alone, the folder says it all."""
    from roundoff.cli.provenance import input_file

    alone = f"leave the model out: '--quantized {folder}' has its own"
    places = (Path(saved.model), folder / saved.model, folder / Path(saved.model).name)
    for place in places:
        if place.is_file() and input_file("model", place).sha256 == saved.model_sha256:
            return f"give {place}, or {alone}"
    return alone


def open_stored(folder: Path, model: Path | None) -> "tuple[QuantizedModel, Arithmetic, str]":
    """What an earlier run of quantize stored in a folder: the model, its arithmetic, and words for it.

    Raises:
        BadInput: It holds no such thing, or was made from another float model.
    """
    from roundoff.cli.provenance import input_file
    from roundoff.graph.load import load_model
    from roundoff.graph.preparation.steps import prepare
    from roundoff.graph.quantized_model import QuantizedModel
    from roundoff.graph.reading.read import read_quantized
    from roundoff.quantize.plan_file import CORRECTED, load_plan

    saved = load_plan(folder)
    words = f"{folder}, quantized for {saved.plan.target}, calibrated by {saved.method}"
    if model is None:
        return read_quantized(load_model(folder / saved.files["fake_quant"])), saved.arithmetic, words
    if input_file("model", model).sha256 != saved.model_sha256:
        what = f"{folder} was made from {saved.model}, whose content differs from that of {model}."
        raise BadInput(what, fix=_right_float_model(folder, saved))
    if CORRECTED in saved.files:
        corrected = load_model(folder / saved.files[CORRECTED])
        return read_quantized(corrected, float_model=load_model(model)), saved.arithmetic, words
    prepared = prepare(load_model(model))
    found = QuantizedModel(prepared.model, saved.quantizers(), preparation=saved.notes)
    return found, saved.arithmetic, words
