"""Options that say how to quantize, shared by all commands that make a quantized model.

Loaded for every --help, so it imports the standard library alone until they are read.
"""

import argparse
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from roundoff.quantize.pipeline import QuantizeSettings

__all__ = ["add_quantize_options", "given_quantize_options", "quantize_words", "settings_from"]

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
