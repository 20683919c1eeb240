"""Options as data: a line each, shared ones in named groups, and what they mean to public functions.

An option is written as it is typed: ``opt("-o --output DIR", "where the results go")``. Loaded for every --help,
so it imports the standard library alone until something is opened.
"""

import argparse
import inspect
import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from roundoff.core.files import is_model, model_files
from roundoff.errors import BadInput, nearest
from roundoff.messages.message import english
from roundoff.messages.numbers import parse_number, parse_size, parse_sizes

if TYPE_CHECKING:
    from roundoff.cli.terminal import Terminal

_SECONDS = {"": 1.0, "s": 1.0, "m": 60.0, "min": 60.0, "h": 3600.0}
PROJECT_NAME, LEAVE_OUT = "roundoff.toml", "--no-project"
"""The file of a folder that options are taken from, and the word that leaves it aside."""

_MAX_THREADS = 1024
"""More than the cores of any machine this runs on; far more exhaust the system before any work is done."""


# How values are read ---------------------------------------------------------------------------------------------


def refused(otherwise: str, /, **gaps: Any) -> argparse.ArgumentTypeError:
    """What argparse says of a value that cannot be read."""
    return argparse.ArgumentTypeError(english(otherwise, **gaps))


def size(text: str) -> int:
    """A number of bytes, like ``500MB`` or ``2GiB``."""
    try:
        return parse_size(text)
    except BadInput as error:
        raise refused("{what} {fix}", what=error.what, fix=error.fix) from error


def whole_number(text: str, otherwise: str, *, least: int = 1, most: float = math.inf, **gaps: Any) -> int:
    """A whole number within bounds.

    Args:
        text: As it was typed.
        otherwise: What is said of any other text; its gap ``text`` is filled.
        least: The smallest.
        most: The largest.
        gaps: Of `otherwise`.
    """
    if not text.isascii() or not text.isdigit() or not least <= int(text) <= most:
        raise refused(otherwise, text=text, **gaps)
    return int(text)


def positive(text: str) -> int:
    """A whole number from 1 on."""
    return whole_number(text, "{text!r} is not a whole number from 1 on")


def _rows(text: str) -> int | None:
    """A number of rows to show, or all."""
    return None if text == "all" else positive(text)


def a_number(text: str, otherwise: str, within: Callable[[float], bool] = math.isfinite) -> float:
    """A number that something holds of.

    Args:
        text: As it was typed.
        otherwise: What is said of any other text; its gap ``text`` is filled.
        within: What must hold.
    """
    try:
        found = float(text)
    except ValueError:
        found = math.nan
    if not within(found):
        raise refused(otherwise, text=text)
    return found


def _time(text: str) -> float:
    """A time, like ``90s``, ``5m`` or ``1h``."""
    found = re.fullmatch(r"(\d+(?:\.\d+)?)\s*(s|m|min|h|)", text.strip().lower())
    number = float(found[1]) * _SECONDS[found[2]] if found else 0.0
    if not 0 < number < math.inf:
        raise refused("{text!r} is not a time; write it as 90s, 5m or 1h", text=text)
    return number


def threads(text: str) -> int:
    """A number of threads that a machine can have."""
    if (number := positive(text)) > _MAX_THREADS:
        raise refused(
            "{text} is more than the {max_threads} threads that make sense anywhere",
            text=text,
            max_threads=_MAX_THREADS,
        )
    return number


def shape(text: str) -> tuple[int, ...]:
    """Sizes of axes, like ``1x3x224x224``."""
    return _sizes(text.replace(",", "x"), "{text!r} is not a shape; write sizes from 1 on, as in 1x3x224x224")


def _picture_size(text: str) -> tuple[int, ...]:
    return _sizes(text, "{text!r} is not a size; write height x width, as in 224x224", rank=2)


def _sizes(text: str, otherwise: str, rank: int = 0) -> tuple[int, ...]:
    try:
        sizes = parse_sizes(text)
    except ValueError:
        sizes = ()
    if not sizes or len(sizes) != (rank or len(sizes)):
        raise refused(otherwise, text=text)
    return sizes


def number(text: str) -> float:
    """A number or a quotient of two, such as 1/127.5."""
    try:
        return parse_number(text)
    except ValueError as error:
        raise refused("{text!r} is not a number; write one as in 0.5, 1/255 or 1/127.5", text=text) from error


def numbers(text: str) -> tuple[float, ...]:
    """Numbers with commas between them."""
    return tuple(number(part) for part in text.split(","))


def _samples(text: str) -> int:
    return int(
        a_number(text, "{text!r} is not a number of samples; write 1 or more", lambda n: n >= 1 and n == n // 1)
    )


_PATHS = (
    "FILE",
    "DIR",
    "PATH",
    "MODEL",
    "FLOAT",
    "RUN",
    "RUN_A",
    "RUN_B",
    "FILE|DIR",
    "DIR|FILE",
    "CSV",
    "SOURCE",
)
_READERS: dict[str, Callable[[str], Any]] = {
    **dict.fromkeys(_PATHS, Path), "SIZE": size, "TIME": _time, "N|all": _rows, "K|all": _rows,
}  # fmt: skip
"""How a value is read, by what stands for it in the help; all else is text."""


# How options are declared ----------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Option:
    """One option, or one word without a name before it.

    Attributes:
        flags: Its spellings.
        settings: How argparse reads and shows it.
        name: By which it is known to public functions.
    """

    flags: tuple[str, ...]
    settings: dict[str, Any]
    name: str


@dataclass(frozen=True, slots=True)
class Alternatives:
    """Options that exclude each other."""

    options: "Options"
    required: bool = False


@dataclass(frozen=True, slots=True)
class OptionGroup:
    """Options under a heading of the help.

    Attributes:
        title: The heading.
        options: What stands below it.
        about: What is said of them all.
        defaults: Further values that come with them.
    """

    title: str
    options: "Options"
    about: str | None = None
    defaults: dict[str, Any] = field(default_factory=dict)


Options = tuple[Option | Alternatives | OptionGroup, ...]
_REPEATED = {"...": "+", "*": "*", "?": "?"}


def opt(spelled: str, what: str, **settings: Any) -> Option:
    """An option as it is typed.

    Args:
        spelled: Its spellings, then what stands for its value: ``--csv FILE``. A value that may be repeated ends
            in three dots; without a value, and without choices, it is a switch. A word that has no name before it
            is written as its name and what stands for it, ``model MODEL``, with ``?`` or ``*`` if it may miss.
        what: What it is for, as the help says it.
        settings: What else argparse is told, as type, default, choices and action.
    """
    words = spelled.split()
    flags = tuple(word for word in words if word.startswith("-")) or tuple(words[:1])
    shown = words[-1] if len(words) > len(flags) else ""
    for mark, nargs in _REPEATED.items():
        # Commas say that one word holds several.
        if shown.endswith(mark) and not shown.endswith(f",{mark}"):
            shown, settings = shown.removesuffix(mark), {"nargs": nargs, **settings}
    if shown:
        settings = {"metavar": shown, **settings}
        if shown in _READERS:
            settings = {"type": _READERS[shown], **settings}
    elif settings.keys().isdisjoint(("choices", "action", "nargs")):
        settings["action"] = "store_true"
    longest = next((flag for flag in flags if flag.startswith("--")), flags[0])
    name = settings.get("dest", longest.lstrip("-").replace("-", "_"))
    return Option(flags, {"help": what, **settings}, name)


def group(title: str, *options: Option | Alternatives, about: str | None = None, **defaults: Any) -> OptionGroup:
    """Options under a heading."""
    return OptionGroup(title, options, about, defaults)


def one_of(*options: Option, required: bool = False) -> Alternatives:
    """Options that exclude each other."""
    return Alternatives(options, required)


def declare(parser: argparse._ActionsContainer, options: Options) -> None:
    """Declare options, in their order."""
    for each in options:
        if isinstance(each, Option):
            parser.add_argument(*each.flags, **each.settings)
        elif isinstance(each, Alternatives):
            declare(parser.add_mutually_exclusive_group(required=each.required), each.options)
        else:
            parser.set_defaults(**each.defaults)
            declare(parser.add_argument_group(each.title, each.about), each.options)


def flat_options(options: Options) -> Iterator[Option]:
    """All options, without their groups."""
    for each in options:
        yield from (each,) if isinstance(each, Option) else flat_options(each.options)


@dataclass(frozen=True, slots=True)
class Command:
    """A command: its options, and what it does.

    Attributes:
        about: What the help says of it.
        options: What it takes.
        run: Does it, and returns the exit code.
        usage: Instead of a list of all options, which may be wider than a terminal.
        defaults: Further values for `run`.
    """

    about: str
    options: Options
    run: "Callable[[argparse.Namespace, Terminal], int]"
    usage: str | None = None
    defaults: dict[str, Any] = field(default_factory=dict)

    def declare(self, parser: argparse.ArgumentParser) -> None:
        """Teach a parser all of it."""
        parser.description, parser.usage = self.about, self.usage
        declare(parser, self.options)
        parser.set_defaults(execute=self.run, parser=parser, **self.defaults)


def command(
    *options: Option | Alternatives | OptionGroup | Options, usage: str | None = None, **defaults: Any
) -> "Callable[[Callable[[argparse.Namespace, Terminal], int]], Command]":
    """Make a command of a function that reads its options, does the work and prints; its docstring is the help."""
    flat: list[Option | Alternatives | OptionGroup] = []
    for each in options:
        flat += each if isinstance(each, tuple) else [each]

    def made(run: "Callable[[argparse.Namespace, Terminal], int]") -> Command:
        about = inspect.cleandoc(run.__doc__ or "")
        return Command(about + "\n" * ("\n" in about), tuple(flat), run, usage, defaults)

    return made


ONE_OF = "one of: "


def vendor_options(subcommands: Iterable[str], rest: str = "its flags") -> Options:
    """The sub-command of a vendor's tool and what follows it, which is read in the vendor's way.

    Args:
        subcommands: Their names.
        rest: What follows.
    """
    return (
        opt("sub SUB", f"{ONE_OF}{', '.join(subcommands)}"),
        opt("rest", rest, nargs=argparse.REMAINDER, metavar="..."),
    )


def subcommand(name: str, known: "Mapping[str, Command]") -> Command:
    """The sub-command of this name.

    Raises:
        BadInput: There is none.
    """
    if name not in known:
        raise BadInput(english("There is no sub-command {sub!r}.", sub=name), fix=nearest(name, known))
    return known[name]


# Options that commands share -------------------------------------------------------------------------------------

FLOAT_MODEL = opt("model MODEL", "the float model: .onnx, or .prototxt[,.caffemodel] of Caffe")
RESULT_DIR = opt("-o --output DIR", "where the results go", required=True)
LABELS = opt("--labels FILE", "right classes as .npy or CSV: measure accuracy")


EVALUATOR = opt(
    "--evaluator FILE",
    "a Python file with evaluate(run, samples), or for language models: nll, kl, token_top1, first_divergence",
)
DASK = opt(
    "--dask ADDRESS?", "workers of a Dask scheduler; without an address a cluster is started here", const="local"
)
MEMORY = opt("--max-memory SIZE", "memory to stay within, in several passes if need be")
THREADS = opt("--threads N", "threads to use (default: all cores; 1 where nodes compute little)", type=threads)
LIMITS = group("limits", MEMORY, THREADS)
DATA = group(
    "samples",
    opt(
        "--data PATH|INPUT=PATH",
        "file, folder or list of samples; repeat as INPUT=PATH to give each input its own",
        action="append",
    ),
    opt("--samples N", "read at most N samples", type=_samples),
    opt(
        "--data-format",
        "what the files are (default: by their names)",
        choices=("auto", "npy", "npz", "bin", "images", "list"),
        default="auto",
    ),
    opt("--raw-dtype TYPE", "type of raw files (default: the input's)"),
    opt("--raw-shape AxBxC", "shape of a sample in raw files (default: the input's)", type=shape),
    opt(
        "--image-color",
        "channels of pictures and their order (default: rgb, gray for one channel)",
        choices=("rgb", "bgr", "gray"),
    ),
    opt("--image-layout", "where the channels are (default: by the input's shape)", choices=("nchw", "nhwc")),
    opt("--image-size HxW", "size to resize pictures to (default: the input's)", type=_picture_size),
    opt(
        "--image-resize",
        "how to bring pictures to that size (default: none, they must have it)",
        choices=("none", "stretch", "crop", "letterbox"),
    ),
    opt(
        "--image-filter",
        "how pixels are mixed when resizing (default: bilinear)",
        choices=("nearest", "bilinear", "bicubic", "area"),
    ),
    opt(
        "--image-resizer",
        "whose resizing: Pillow's and torchvision's, or cv2.resize (default: pillow)",
        choices=("pillow", "opencv"),
    ),
    opt("--image-pad VALUE", "pixel value around letterboxed pictures (default: 114)", type=int),
    opt("--scale X", "factor on pixel values, as 1/255; comes before --mean", type=number),
    opt("--mean X,Y,Z", "subtracted from scaled pixels, one number or one per channel", type=numbers),
    opt("--std X,Y,Z", "divides what --mean left, one number or one per channel", type=numbers),
    about="What the model is fed, and how its files are read.",
)


def target(what: str = "the chip, as listed by 'roundoff targets', or a .toml file of one's own") -> Option:
    """The chip, which must be named."""
    return opt("--target NAME|FILE", what, required=True)


def how_to_quantize(about: str = "") -> OptionGroup:
    """How to quantize, once it is clear for which chip."""
    return group(
        "quantization",
        opt(
            "--calibration NAME,...",
            "minmax, percentile, mse, entropy, ifmr or hfmg; several are tried on the same data and the best is "
            "taken (default: the target's)",
        ),
        opt("--weight-method NAME", "the same for weights (default: the target's)"),
        opt(
            "--calibration-option KEY=VALUE",
            "option of a calibration method, e.g. percentile=0.9999; may be repeated",
            action="append",
            default=[],
        ),
        opt(
            "--set SELECTOR=PRECISION",
            "other precision for some nodes, e.g. 'conv1=u16', 'op:Softmax=float', 'between:a..b=s16'",
            action="append",
            default=[],
        ),
        opt("--rules FILE", "such rules from a .toml file"),
        about=about,
    )


QUANTIZATION = how_to_quantize()


def subject(*, required: bool = True) -> Options:
    """What is quantized, and how.

    Args:
        required: Whether there must be something quantized; otherwise a float model will do.
    """
    return (
        opt(
            "model FLOAT?",
            "the float model: .onnx, or .prototxt[,.caffemodel] of Caffe; without it, what remains of the "
            "quantized one when nothing is quantized",
        ),
        one_of(
            opt(
                "--quantized FILE|DIR",
                "the same model quantized by any tool, a folder that roundoff quantize wrote, or AIMET's "
                ".encodings",
            ),
            opt("--target NAME|FILE", "quantize it for this chip first, on --data"),
            required=required,
        ),
        how_to_quantize("How to quantize, with --target."),
    )


SUBJECT = subject()
INSPECTION: Options = (
    *subject(required=False),
    opt("nodes NODE*", "names or globs of nodes, tensors, weights and quantizers"),
    opt(
        "--kind",
        "look only at these: quantized weights or biases, other constants, inputs of activation quantizers, "
        "outputs of nodes; may be repeated",
        action="append",
        choices=("weight", "bias", "constant", "activation", "node"),
        default=[],
    ),
    DATA,
)
DEVICE = group(
    "device",
    opt(
        "--dumps DIR|FILE",
        "tensors that the device wrote for --data: each node is fed the device's own inputs and compared "
        "with the float model, or with exact integers of --quantized",
    ),
    opt("--dump-format NAME", "format of the dumps (default: recognised)"),
    opt("--aliases FILE", "JSON or CSV: name in the model, in the dumps"),
    opt("--run NAME", "of several runs in the folder (default: one that is not the golden copy)"),
    about="What a device computed, instead of what its quantization costs.",
)


# What options mean to public functions ---------------------------------------------------------------------------

# Where results go and how they are shown is the command line's own; so is what the parser leaves behind.
_SHOWN = frozenset(
    {
        "json", "csv", "plot", "html", "output", "output_dir", "force", "sort", "top", "rows", "junit", "annotate",
        "prefix", "copy_to", "all", "execute", "parser", "words", "lang", "more_words", "table", "csv_start",
        "several_pictures",
    }
)  # fmt: skip


def given(args: argparse.Namespace, terminal: "Terminal | None" = None, *more: str) -> dict[str, Any]:
    """The options of a command as the function of its name takes them.

    Args:
        args: Parsed options.
        terminal: Told of progress, where the function tells of it.
        more: Options on results that the function takes, too.
    """
    found = {name: value for name, value in vars(args).items() if name not in _SHOWN or name in more}
    return found if terminal is None else {**found, "progress": terminal}


def values(args: argparse.Namespace, options: Options) -> dict[str, Any]:
    """The values of these options, by the names that public functions know."""
    return {each.name: getattr(args, each.name) for each in flat_options(options)}


def typed_options(args: argparse.Namespace, options: OptionGroup) -> tuple[str, ...]:
    """Those of a group that the user gave, as written on the command line."""
    return tuple(
        each.flags[0]
        for each in flat_options(options.options)
        if getattr(args, each.name) != each.settings.get("default")
    )


def said_options(args: argparse.Namespace, options: OptionGroup) -> list[str]:
    """Those of a group that were typed, with their values, as they were; each of them has one value."""
    wanted = typed_options(args, options)
    return [word for option, value in _typed(args.words) if is_option(option, wanted) for word in (option, value)]


def _typed(words: list[str]) -> Iterator[tuple[str, str]]:
    """Options that may have a value, each with what stands behind it."""
    for word, follower in zip(words, [*words[1:], ""], strict=True):
        if word.startswith("--") and word != "--":
            option, joined, value = word.partition("=")
            yield option, value if joined else follower


def is_option(option: str, options: Iterable[str]) -> bool:
    """Whether it is one of these; argparse takes the beginning of a name for it."""
    return option.startswith("--") and any(each.startswith(option) for each in options)


def names_from(args: argparse.Namespace) -> None:
    """See that names are given; a first word that is no file is one where the model is named by --quantized.

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
