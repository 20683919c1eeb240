"""The sub-command ``run`` of ``roundoff pulsar2``."""

import argparse
import json
from enum import Enum
from pathlib import Path
from typing import TypeVar

from roundoff.cli.terminal import Terminal
from roundoff.errors import EXIT_OK, BadInput, nearest

__all__ = ["add_run_flags", "run_files"]

_Member = TypeVar("_Member", bound=Enum)
_CHIPS = "AX650, AX620E, M76H, M57 ..."


def add_run_flags(parser: argparse.ArgumentParser) -> None:
    """Declare the vendor's flags."""
    parser.add_argument("--model", type=Path, required=True, metavar="FILE", help="float or quantized .onnx")
    parser.add_argument("--input_dir", type=Path, required=True, metavar="DIR", help="where <input>.bin are")
    parser.add_argument("--output_dir", type=Path, required=True, metavar="DIR", help="where <output>.bin go")
    parser.add_argument("--list", type=Path, metavar="FILE", help="names a sub-folder of both DIRs per line")
    parser.add_argument("--random_input", action="store_true", help="make up inputs that are missing")
    parser.add_argument(
        "--batch_size", type=int, default=0, metavar="N", help="samples that stand in each file (default: one)"
    )
    parser.add_argument("--enable_perlayer_output", action="store_true", help="write every layer's output too")
    parser.add_argument(
        "--mode", default="Reference", metavar="MODE", help="Reference, or NPUBackend: exact integers"
    )
    parser.add_argument("--target_hardware", default="AX650", metavar="CHIP", help=_CHIPS)
    parser.add_argument("--group_index", type=int, default=0, metavar="N", help="taken for Pulsar2's sake")
    parser.add_argument("--json", action="store_true", help="print which file holds which tensor as JSON")


def run_files(args: argparse.Namespace, terminal: Terminal) -> int:
    """Feed files to a model and write what comes out, under Pulsar2's file names."""
    from roundoff.vendors.pulsar2.config.schema import PrecisionAnalysisMode, TargetHardware
    from roundoff.vendors.pulsar2.run import RunSettings, run_model

    settings = RunSettings(
        model=args.model,
        input_dir=args.input_dir,
        output_dir=args.output_dir,
        list_file=args.list,
        random_input=args.random_input,
        batch_size=args.batch_size,
        per_layer=args.enable_perlayer_output,
        mode=_member(PrecisionAnalysisMode, args.mode, "mode"),
        target_hardware=_member(TargetHardware, args.target_hardware, "target hardware"),
        group_index=args.group_index,
    )
    outcome = run_model(settings, terminal.note if args.json else terminal.text)
    if args.json:
        result = {"cases": list(outcome.cases), "files": dict(outcome.files), "notes": list(outcome.notes)}
        terminal.text(json.dumps(result, indent=1, ensure_ascii=False))
    return EXIT_OK


def _member(kind: type[_Member], name: str, what: str) -> _Member:
    if name not in kind.__members__:
        raise BadInput(f"There is no {what} {name!r}.", fix=nearest(name, kind.__members__))
    return kind[name]
