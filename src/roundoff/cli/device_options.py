"""Options of commands that look into the dumps of a device.

Loaded for every --help, so it imports the standard library alone until dumps are opened.
"""

import argparse
import shlex
from pathlib import Path
from typing import TYPE_CHECKING

from roundoff.errors import BadInput

if TYPE_CHECKING:
    from roundoff.api.subject import Subject
    from roundoff.core.tensors import TensorSource
    from roundoff.diagnosis.devices.readout import KnownNames
    from roundoff.diagnosis.investigation import DiagnoseSettings
    from roundoff.diagnosis.result import Diagnosis

__all__ = ["add_device_options", "check_device_options", "device_next_steps", "diagnose_dumps", "open_dumps"]

_QUANTIZING_ONLY = {"evaluator": "--evaluator", "labels": "--labels", "target": "--target"}


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


def check_device_options(args: argparse.Namespace) -> None:
    """Refuse options that would have no effect, and commands with nothing to look at."""
    if args.dumps is None:
        for name, option in (("dump_format", "--dump-format"), ("aliases", "--aliases")):
            if getattr(args, name) is not None:
                raise BadInput(f"{option} has no effect without --dumps.", fix="add --dumps DIR, or leave it out")
        if args.quantized is None and args.target is None:
            raise BadInput(
                "There is nothing to diagnose: neither a quantized model nor dumps were given.",
                fix="add --quantized FILE, --target NAME or --dumps DIR",
            )
        return
    if args.model is None and args.quantized is None:
        raise BadInput("--dumps are compared with a model, and none was given.", fix="name the float model")
    if args.fix:
        what = "--fix repairs quantized models; what is wrong on a device is not in the model."
        raise BadInput(what, fix="leave --fix out; or leave --dumps out to repair the quantization")
    for name, option in _QUANTIZING_ONLY.items():
        if getattr(args, name) is not None:
            raise BadInput(
                f"{option} has no effect with --dumps, where each node is judged by its own inputs.",
                fix=f"leave {option} out; or leave --dumps out to diagnose the quantization",
            )


def diagnose_dumps(args: argparse.Namespace, subject: "Subject", settings: "DiagnoseSettings") -> "Diagnosis":
    """Diagnose the device that wrote --dumps.

    Raises:
        BadInput: The dumps cannot be read.
        CannotAlign: They do not belong to the model.
    """
    from roundoff.diagnosis.devices.study import diagnose_device

    if args.quantized is not None and not subject.quantized.quantizers:
        what = f"{args.quantized} has no quantizers, so it says nothing of what the device computes."
        raise BadInput(what, fix="give the quantized model that the device was given, or leave --quantized out")
    dumps, names = open_dumps(args, subject)
    return diagnose_device(subject.quantized, subject.samples, dumps, settings=settings, names=names)


def open_dumps(args: argparse.Namespace, subject: "Subject") -> "tuple[TensorSource, KnownNames]":
    """The tensors that a device wrote, and what is known of their names.

    Raises:
        BadInput: The dumps cannot be read.
    """
    from roundoff.align.names import read_aliases
    from roundoff.diagnosis.devices.readout import KnownNames
    from roundoff.graph.shapes import tensor_infos
    from roundoff.tensors import open_source

    model = subject.quantized.float_model
    dumps = open_source(args.dumps, format=args.dump_format, shapes=tensor_infos(model))
    aliases = {} if args.aliases is None else read_aliases(args.aliases)
    return dumps, KnownNames(aliases=aliases, origins=_names_in(args.quantized))


def _names_in(quantized: Path | None) -> dict[str, str]:
    """What the quantized model calls the tensors of the float model."""
    from roundoff.graph.load import load_model
    from roundoff.graph.quantized_model import dequantized_tensors

    return {} if quantized is None or quantized.is_dir() else dequantized_tensors(load_model(quantized))


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
