"""Options that commands share, and what they mean to public functions.

Loaded for every --help, so it imports the standard library alone until something is opened.
"""

import argparse
import math
import re
import shlex
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from roundoff.core.files import is_model, model_files
from roundoff.errors import BadInput
from roundoff.messages.message import english
from roundoff.messages.numbers import parse_size

if TYPE_CHECKING:
    from roundoff.api.subject import Subject
    from roundoff.cli.terminal import Terminal
    from roundoff.core.document import RunDocument
    from roundoff.core.tensors import InputSpec, TensorSource
    from roundoff.diagnosis.devices.readout import KnownNames
    from roundoff.diagnosis.result import Diagnosis
    from roundoff.quantize.pipeline import QuantizeSettings
    from roundoff.samples.sample_set import SampleSet

__all__ = [
    "KINDS",
    "add_data_options",
    "add_device_options",
    "add_html_option",
    "add_inspection_options",
    "add_limits",
    "add_quantize_options",
    "add_subject_options",
    "check_html",
    "data_words",
    "device_next_steps",
    "given_options",
    "given_quantize_options",
    "names_from",
    "number",
    "numbers",
    "open_dumps",
    "open_subject",
    "positive",
    "quantize_words",
    "rows",
    "samples_from",
    "seconds",
    "settings_from",
    "shape",
    "size",
    "subject_words",
    "take_model",
    "threads",
    "write_html",
]

_SECONDS = {"": 1.0, "s": 1.0, "m": 60.0, "min": 60.0, "h": 3600.0}
_MAX_THREADS = 1024
"""More than the cores of any machine this runs on; far more exhaust the system before any work is done."""


def size(text: str) -> int:
    """A number of bytes, like ``500MB`` or ``2GiB``."""
    try:
        return parse_size(text)
    except BadInput as error:
        raise argparse.ArgumentTypeError(english("{what} {fix}", what=error.what, fix=error.fix)) from error


def positive(text: str) -> int:
    """A whole number from 1 on."""
    if not text.isascii() or not text.isdigit() or int(text) < 1:
        raise argparse.ArgumentTypeError(english("{text!r} is not a whole number from 1 on", text=text))
    return int(text)


def seconds(text: str) -> float:
    """A time, like ``90s``, ``5m`` or ``1h``."""
    found = re.fullmatch(r"(\d+(?:\.\d+)?)\s*(s|m|min|h|)", text.strip().lower())
    number = float(found[1]) * _SECONDS[found[2]] if found else 0.0
    if number <= 0:
        raise argparse.ArgumentTypeError(english("{text!r} is not a time; write it as 90s, 5m or 1h", text=text))
    return number


def threads(text: str) -> int:
    """A number of threads that a machine can have."""
    number = positive(text)
    if number > _MAX_THREADS:
        raise argparse.ArgumentTypeError(
            english(
                "{text} is more than the {max_threads} threads that make sense anywhere",
                text=text,
                max_threads=_MAX_THREADS,
            )
        )
    return number


def shape(text: str) -> tuple[int, ...]:
    """Sizes of axes, like ``1x3x224x224``."""
    try:
        sizes = tuple(int(part) for part in text.lower().replace(",", "x").split("x"))
    except ValueError:
        sizes = ()
    if not sizes or min(sizes) < 1:
        raise argparse.ArgumentTypeError(
            english("{text!r} is not a shape; write sizes from 1 on, as in 1x3x224x224", text=text)
        )
    return sizes


def number(text: str) -> float:
    """A number or a quotient of two, such as 1/127.5."""
    numerator, slash, denominator = text.partition("/")
    try:
        above, below = float(numerator), float(denominator) if slash else 1.0
        # An infinite denominator would make a harmless zero of a slip.
        number = above / below if math.isfinite(below) else math.nan
    except (ValueError, ZeroDivisionError):
        number = math.nan
    if not math.isfinite(number):
        raise argparse.ArgumentTypeError(
            english("{text!r} is not a number; write one as in 0.5, 1/255 or 1/127.5", text=text)
        )
    return number


def numbers(text: str) -> tuple[float, ...]:
    """Numbers with commas between them."""
    return tuple(number(part) for part in text.split(","))


def add_data_options(parser: argparse.ArgumentParser) -> None:
    """Add the options for samples to a command, as a group of their own."""
    group = parser.add_argument_group("samples", "What the model is fed, and how its files are read.")
    group.add_argument(
        "--data",
        action="append",
        metavar="PATH|INPUT=PATH",
        help="file, folder or list of samples; repeat as INPUT=PATH to give each input its own",
    )
    group.add_argument("--samples", type=_count, metavar="N", help="read at most N samples")
    group.add_argument(
        "--data-format",
        choices=("auto", "npy", "npz", "bin", "images", "list"),
        default="auto",
        help="what the files are (default: by their names)",
    )
    group.add_argument("--raw-dtype", metavar="TYPE", help="type of raw files (default: the input's)")
    group.add_argument(
        "--raw-shape", type=shape, metavar="AxBxC", help="shape of a sample in raw files (default: the input's)"
    )
    _add_image_options(group)


def given_options(args: argparse.Namespace) -> tuple[str, ...]:
    """The options of `add_data_options` that the user gave, as written on the command line."""
    parser = argparse.ArgumentParser(add_help=False)
    add_data_options(parser)
    untouched = vars(parser.parse_args([]))
    given = [name for name, default in untouched.items() if getattr(args, name) != default]
    return tuple("--" + name.replace("_", "-") for name in given)


def samples_from(args: argparse.Namespace, inputs: "Sequence[InputSpec]") -> "SampleSet":
    """Open the samples that the options name.

    Args:
        args: Parsed options of `add_data_options`.
        inputs: What the model expects.

    Raises:
        BadInput: The options contradict each other, the files or the model.
    """
    from roundoff.api.call import Call, DataOptions
    from roundoff.api.inputs import open_data

    options = Call("samples", data_words(args), DataOptions).sample_options(limit=args.samples)
    return open_data(args.data or [], inputs, options)  # type: ignore[return-value]


def data_words(args: argparse.Namespace) -> dict[str, Any]:
    """The options of `add_data_options` as public functions take them."""
    parser = argparse.ArgumentParser(add_help=False)
    add_data_options(parser)
    return {name: getattr(args, name) for name in vars(parser.parse_args([]))}


def _add_image_options(group: argparse._ArgumentGroup) -> None:
    group.add_argument(
        "--image-color",
        choices=("rgb", "bgr", "gray"),
        help="channels of pictures and their order (default: rgb, gray for one channel)",
    )
    group.add_argument(
        "--image-layout", choices=("nchw", "nhwc"), help="where the channels are (default: by the input's shape)"
    )
    group.add_argument(
        "--image-size", type=_size, metavar="HxW", help="size to resize pictures to (default: the input's)"
    )
    group.add_argument(
        "--image-resize",
        choices=("none", "stretch", "crop", "letterbox"),
        help="how to bring pictures to that size (default: none, they must have it)",
    )
    group.add_argument(
        "--image-filter",
        choices=("nearest", "bilinear", "bicubic", "area"),
        help="how pixels are mixed when resizing (default: bilinear)",
    )
    group.add_argument(
        "--image-resizer",
        choices=("pillow", "opencv"),
        help="whose resizing: Pillow's and torchvision's, or cv2.resize (default: pillow)",
    )
    group.add_argument(
        "--image-pad", type=int, metavar="VALUE", help="pixel value around letterboxed pictures (default: 114)"
    )
    group.add_argument(
        "--scale", type=number, metavar="X", help="factor on pixel values, as 1/255; comes before --mean"
    )
    group.add_argument(
        "--mean",
        type=numbers,
        metavar="X,Y,Z",
        help="subtracted from scaled pixels, one number or one per channel",
    )
    group.add_argument(
        "--std", type=numbers, metavar="X,Y,Z", help="divides what --mean left, one number or one per channel"
    )


def _count(text: str) -> int:
    try:
        number = int(text)
    except ValueError:
        number = 0
    if number < 1:
        raise argparse.ArgumentTypeError(
            english("{text!r} is not a number of samples; write 1 or more", text=text)
        )
    return number


def _size(text: str) -> tuple[int, int]:
    sizes = text.lower().split("x")
    try:
        height, width = (int(size) for size in sizes)
    except ValueError:
        height = width = 0
    if min(height, width) < 1:
        raise argparse.ArgumentTypeError(
            english("{text!r} is not a size; write height x width, as in 224x224", text=text)
        )
    return height, width


# Options that say how, once it is clear for which chip; by their names in the namespace.
_HOW = ("calibration", "weight_method", "calibration_option", "set", "rules")


def add_quantize_options(parser: argparse.ArgumentParser, *, title: str = "") -> None:
    """Add the options that say how to quantize, as a group of their own; --target is the command's to declare."""
    group = parser.add_argument_group("quantization", title)
    group.add_argument(
        "--calibration",
        metavar="NAME,...",
        help="minmax, percentile, mse, entropy, ifmr or hfmg; several are tried on the same data and the best is "
        "taken (default: the target's)",
    )
    group.add_argument("--weight-method", metavar="NAME", help="the same for weights (default: the target's)")
    group.add_argument(
        "--calibration-option",
        action="append",
        default=[],
        metavar="KEY=VALUE",
        help="option of a calibration method, e.g. percentile=0.9999; may be repeated",
    )
    group.add_argument(
        "--set",
        action="append",
        default=[],
        metavar="SELECTOR=PRECISION",
        help="other precision for some nodes, e.g. 'conv1=u16', 'op:Softmax=float', 'between:a..b=s16'",
    )
    group.add_argument("--rules", type=Path, metavar="FILE", help="such rules from a .toml file")


def given_quantize_options(args: argparse.Namespace) -> tuple[str, ...]:
    """Those of them that the user gave, as written on the command line."""
    return tuple("--" + name.replace("_", "-") for name in _HOW if getattr(args, name))


def settings_from(args: argparse.Namespace) -> "QuantizeSettings":
    """What the options say.

    Raises:
        BadInput: A name is unknown or a value cannot be read.
    """
    from roundoff.api.call import Call
    from roundoff.api.subject import SubjectOptions, quantize_settings

    given = {**quantize_words(args), "target": args.target, "threads": args.threads, "max_memory": args.max_memory}
    return quantize_settings(Call("quantize", given, SubjectOptions))


def quantize_words(args: argparse.Namespace) -> dict[str, Any]:
    """The options of `add_quantize_options` as public functions take them."""
    return {name: getattr(args, name) for name in _HOW}


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


KINDS = ("weight", "bias", "constant", "activation", "node")


def add_inspection_options(parser: argparse.ArgumentParser, *, names: str) -> None:
    """Declare what is looked at and what it is fed; where results go is the command's.

    Args:
        parser: Of the command.
        names: What the names say, for the help.
    """
    add_subject_options(parser, required=False)
    parser.add_argument("nodes", nargs="*", metavar="NODE", help=names)
    parser.set_defaults(more_words="nodes")
    parser.add_argument(
        "--kind",
        action="append",
        choices=KINDS,
        default=[],
        help="look only at these: quantized weights or biases, other constants, inputs of activation quantizers, "
        "outputs of nodes; may be repeated",
    )
    add_data_options(parser)


def add_limits(parser: argparse.ArgumentParser) -> None:
    """Declare memory and threads."""
    group = parser.add_argument_group("limits")
    group.add_argument(
        "--max-memory", type=size, metavar="SIZE", help="memory to stay within, in several passes if need be"
    )
    group.add_argument("--threads", type=threads, metavar="N", help="threads to use (default: all cores)")


def names_from(args: argparse.Namespace) -> tuple[str, ...]:
    """The names; a first word that is no file is one of them where the model is named by --quantized.

    Raises:
        BadInput: There are none.
    """
    model: Path | None = args.model
    if model is not None and args.quantized is not None and not model.exists() and not is_model(model):
        args.nodes.insert(0, str(model))
        args.model = None
    if not args.nodes:
        raise BadInput(
            english("No node, tensor or quantizer was named."),
            fix=english("name some behind the model; '*' for all nodes"),
        )
    return tuple(args.nodes)


def rows(text: str) -> int | None:
    """A number of rows to show, or all."""
    return None if text == "all" else positive(text)


def add_device_options(parser: argparse.ArgumentParser) -> None:
    """Declare --dumps and what goes with it."""
    group = parser.add_argument_group("device", "What a device computed, instead of what its quantization costs.")
    group.add_argument(
        "--dumps",
        type=Path,
        metavar="DIR|FILE",
        help="tensors that the device wrote for --data: each node is fed the device's own inputs and compared "
        "with the float model, or with exact integers of --quantized",
    )
    group.add_argument("--dump-format", metavar="NAME", help="format of the dumps (default: recognised)")
    group.add_argument("--aliases", type=Path, metavar="FILE", help="JSON or CSV: name in the model, in the dumps")
    group.add_argument(
        "--run",
        dest="dump_run",
        metavar="NAME",
        help="of several runs in the folder (default: one that is not the golden copy)",
    )


def open_dumps(args: argparse.Namespace, subject: "Subject") -> "tuple[TensorSource, KnownNames]":
    """The tensors that a device wrote, and what is known of their names.

    Raises:
        BadInput: The dumps cannot be read.
    """
    from roundoff.api.diagnosis import open_dumps

    return open_dumps(subject, args.dumps, form=args.dump_format, aliases=args.aliases, run=args.dump_run)


def device_next_steps(args: argparse.Namespace, found: "Diagnosis") -> list[str]:
    """Commands that lead on from what was found on a device."""
    data = " ".join(f"--data {shlex.quote(text)}" for text in args.data or ())
    model = "" if args.model is None else f"{shlex.quote(str(args.model))} "
    if found.kind == "elsewhere":
        given = "TARGET" if args.quantized is None else shlex.quote(str(args.quantized))
        option = "--target" if args.quantized is None else "--quantized"
        return [f"roundoff diagnose {model}{data} {option} {given}"]
    if any(each.cause == "preprocessing" for each in found.accused):
        return ["roundoff check-io --preprocessed TRAINING DEPLOYED"]
    if found.kind == "not_enough_evidence":
        return [f"roundoff compare {model}{shlex.quote(str(args.dumps))} {data}"]
    return []


def take_model(args: argparse.Namespace, lists: Iterable[list[str]]) -> None:
    """Give FLOAT back what an option with several values took: ``--only conv1 conv2 float.onnx``.

    Args:
        args: Parsed options; `model` is filled in where it is missing.
        lists: The values of such options; a last one that is a model is removed.
    """
    for names in lists:
        last = Path(names[-1]) if names else Path()
        if args.model is None and is_model(last) and all(file.is_file() for file in model_files(last)):
            args.model = Path(names.pop())


def add_html_option(group: argparse._ActionsContainer) -> None:
    """Declare the option."""
    group.add_argument("--html", type=Path, metavar="FILE", help="also write a report that opens in any browser")


def check_html(args: argparse.Namespace) -> None:
    """Refuse before the work what could not be written after it.

    Raises:
        BadInput: The file exists, or cannot be written.
    """
    from roundoff.api.report_file import HTML_START
    from roundoff.core.files import begins, check_output_file

    if args.html is not None and not (args.force and begins(args.html, HTML_START)):
        check_output_file(args.html, force=False, option="--html")


def write_html(args: argparse.Namespace, document: "RunDocument") -> list[Path]:
    """Write the report that was asked for, if any; the files written."""
    from roundoff.api.report_file import report_html
    from roundoff.core.files import write_text

    if args.html is None:
        return []
    write_text(args.html, report_html(document))
    return [args.html]
