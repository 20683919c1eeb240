"""Options that say how to quantize, shared by all commands that make a quantized model.

Loaded for every --help, so it imports the standard library alone until they are read.
"""

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from roundoff.errors import BadInput

if TYPE_CHECKING:
    from roundoff.quantize.pipeline import QuantizeSettings

__all__ = ["add_quantize_options", "given_quantize_options", "settings_from"]

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
    from roundoff.quantize.pipeline import QuantizeSettings
    from roundoff.quantize.planning.rules import load_rules, parse_rule
    from roundoff.quantize.targets.loading import load_target

    for name in ("calibration", "weight_method"):
        if getattr(args, name) == "":
            option = "--" + name.replace("_", "-")
            raise BadInput(f"{option} is empty.", fix="name a calibration method, or leave it out")
    rules = [] if args.rules is None else list(load_rules(args.rules))
    return QuantizeSettings(
        target=load_target(args.target),
        rules=(*rules, *map(parse_rule, args.set)),
        methods=tuple(name.strip() for name in args.calibration.split(",")) if args.calibration else (),
        weight_method=args.weight_method or "",
        options=dict(map(_option, args.calibration_option)),
        threads=args.threads,
        max_memory=args.max_memory,
    )


def _option(text: str) -> tuple[str, float]:
    key, _, value = text.partition("=")
    try:
        return key.strip(), float(value)
    except ValueError as error:
        what = f"--calibration-option {text!r} is not of the form KEY=NUMBER."
        raise BadInput(what, fix="write it as in --calibration-option percentile=0.9999") from error
