"""Options that say how to quantize, shared by all commands that make a quantized model.

Loaded for every --help, so it imports the standard library alone until they are read.
"""

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from roundoff.errors import BadInput

if TYPE_CHECKING:
    from roundoff.quantize.pipeline import QuantizeSettings

__all__ = ["QUANTIZE_FLAGS", "add_quantize_options", "settings_from"]

QUANTIZE_FLAGS = ("--target", "--method", "--weight-method", "--method-option", "--set", "--rules")


def add_quantize_options(parser: argparse.ArgumentParser, *, required: bool) -> None:
    """Add the options to a command, as a group of their own."""
    group = parser.add_argument_group("quantization")
    group.add_argument(
        "--target",
        required=required,
        metavar="NAME|FILE",
        help="the chip, as listed by 'roundoff targets', or a .toml file of one's own",
    )
    group.add_argument(
        "--method",
        metavar="NAME,...",
        help="calibration: minmax, percentile, mse, entropy, ifmr, hfmg; several are tried on the same data and "
        "the best is taken (default: the target's)",
    )
    group.add_argument("--weight-method", metavar="NAME", help="the same for weights (default: the target's)")
    group.add_argument(
        "--method-option",
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


def settings_from(args: argparse.Namespace) -> "QuantizeSettings":
    """What the options say.

    Raises:
        BadInput: A name is unknown or a value cannot be read.
    """
    from roundoff.quantize.pipeline import QuantizeSettings
    from roundoff.quantize.planning import load_rules, parse_rule
    from roundoff.quantize.targets import load_target

    rules = [] if args.rules is None else list(load_rules(args.rules))
    return QuantizeSettings(
        target=load_target(args.target),
        rules=(*rules, *map(parse_rule, args.set)),
        methods=tuple(name.strip() for name in args.method.split(",")) if args.method else (),
        weight_method=args.weight_method or "",
        options=dict(map(_option, args.method_option)),
        threads=args.threads,
        max_memory=args.max_memory,
    )


def _option(text: str) -> tuple[str, float]:
    key, _, value = text.partition("=")
    try:
        return key.strip(), float(value)
    except ValueError as error:
        what = f"--method-option {text!r} is not of the form KEY=NUMBER."
        raise BadInput(what, fix="write it as in --method-option percentile=0.9999") from error
