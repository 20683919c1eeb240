"""Commands that lead on from a diagnosis, with what was given to it.

Loaded for every --help, so it imports the standard library alone.
"""

import argparse
import shlex
from typing import TYPE_CHECKING

from roundoff.cli.device_options import device_next_steps

if TYPE_CHECKING:
    from roundoff.core.findings import Diagnosis

__all__ = ["next_steps"]


def next_steps(args: argparse.Namespace, found: "Diagnosis") -> list[str]:
    """What to type next; nothing where there is nothing to do."""
    if args.dumps is not None:
        return device_next_steps(args, found)
    data = " ".join(f"--data {shlex.quote(text)}" for text in args.data or ())
    model = "" if args.model is None else shlex.quote(str(args.model))
    given = (
        f"--quantized {shlex.quote(str(args.quantized))}"
        if args.target is None
        else f"--target {shlex.quote(args.target)}"
    )
    if found.repair is not None and found.repair.reached:
        words = ["layers", data, f"--quantized {shlex.quote(str(args.output))}"]
    elif found.kind == "distributed":
        words = ["tune", model, data, f"--target {shlex.quote(args.target or 'TARGET')}", "-o tuned"]
    elif found.kind == "culprits":
        words = _after_culprits(args, found, model=model, data=data, given=given)
    elif found.kind == "not_enough_evidence":
        words = ["layers", model, data, given]
    else:
        return []
    return [" ".join(["roundoff", *filter(None, words)])]


def _after_culprits(
    args: argparse.Namespace, found: "Diagnosis", *, model: str, data: str, given: str
) -> list[str]:
    if not args.fix:
        return ["diagnose", model, data, given, "--fix -o repaired"]
    tensors = [name for each in found.accused for name in each.tensors[:1]]
    return ["distribution", model, *map(shlex.quote, tensors[:1]), data, given]
