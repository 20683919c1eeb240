"""Options of commands that look into the dumps of a device.

Loaded for every --help, so it imports the standard library alone until dumps are opened.
"""

import argparse
import shlex
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from roundoff.api.subject import Subject
    from roundoff.core.tensors import TensorSource
    from roundoff.diagnosis.devices.readout import KnownNames
    from roundoff.diagnosis.result import Diagnosis

__all__ = ["add_device_options", "device_next_steps", "open_dumps"]


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


def open_dumps(args: argparse.Namespace, subject: "Subject") -> "tuple[TensorSource, KnownNames]":
    """The tensors that a device wrote, and what is known of their names.

    Raises:
        BadInput: The dumps cannot be read.
    """
    from roundoff.api.diagnosis import open_dumps

    return open_dumps(subject, args.dumps, form=args.dump_format, aliases=args.aliases)


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
