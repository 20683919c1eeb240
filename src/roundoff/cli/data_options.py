"""Options that say where samples are and how to read them, shared by all commands that run a model.

Loaded for every --help, so it imports the standard library alone until samples are opened.
"""

import argparse
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from roundoff.cli.values import number, numbers, shape

if TYPE_CHECKING:
    from roundoff.core.tensors import InputSpec
    from roundoff.samples.sample_set import SampleSet

__all__ = ["add_data_options", "data_words", "given_options", "samples_from"]


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
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of samples; write 1 or more")
    return number


def _size(text: str) -> tuple[int, int]:
    sizes = text.lower().split("x")
    try:
        height, width = (int(size) for size in sizes)
    except ValueError:
        height = width = 0
    if min(height, width) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not a size; write height x width, as in 224x224")
    return height, width
