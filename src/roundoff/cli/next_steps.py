"""Commands that lead on from a diagnosis, with what was given to it.

Loaded for every --help, so it imports the standard library alone.
"""

import argparse
import shlex
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from roundoff.cli.data_options import given_options
from roundoff.cli.device_options import device_next_steps
from roundoff.cli.quantize_options import given_quantize_options

if TYPE_CHECKING:
    from roundoff.core.findings import Diagnosis

__all__ = ["next_steps"]


def next_steps(args: argparse.Namespace, found: "Diagnosis") -> list[str]:
    """What to type next; nothing where there is nothing to do."""
    if args.dumps is not None:
        return device_next_steps(args, found)
    data = _said(args, given_options(args))
    model = [] if args.model is None else [str(args.model)]
    if args.target is None:
        given = ["--quantized", str(args.quantized)]
    else:
        given = ["--target", args.target, *_said(args, given_quantize_options(args))]
    if found.repair is not None and found.repair.reached:
        words = ["layers", *data, "--quantized", str(args.output)]
    elif found.kind == "distributed":
        words = ["tune", *model, *data, "--target", args.target or "TARGET", *_judge(args), "-o", "tuned"]
    elif found.kind == "not_enough_evidence" and found.not_looked_at:
        repair = ["--fix", "-o", str(args.output), "--force"] if args.fix else []
        words = ["diagnose", *model, *data, *given, *_judge(args), *repair]
    elif found.kind == "culprits" and not args.fix:
        words = ["diagnose", *model, *data, *given, *_judge(args), "--fix", "-o", "repaired"]
    elif found.kind == "culprits":
        tensors = [name for each in found.accused for name in each.tensors[:1]]
        words = ["distribution", *model, *tensors[:1], *data, *given]
    elif found.kind == "not_enough_evidence":
        words = ["layers", *model, *data, *given]
    else:
        return []
    return [shlex.join(["roundoff", *words])]


def _judge(args: argparse.Namespace) -> list[str]:
    """The user's metric."""
    given = (("--evaluator", args.evaluator), ("--labels", args.labels))
    return [word for option, path in given if path is not None for word in (option, str(path))]


def _said(args: argparse.Namespace, options: Iterable[str]) -> list[str]:
    """These options with their values, as they were typed; each of them has one value."""
    return [word for option, value in _typed(args.words) if _is_one(option, options) for word in (option, value)]


def _typed(words: list[str]) -> Iterator[tuple[str, str]]:
    """Options that may have a value, each with what stands behind it."""
    for word, follower in zip(words, [*words[1:], ""], strict=True):
        if word.startswith("--") and word != "--":
            option, joined, value = word.partition("=")
            yield option, value if joined else follower


def _is_one(option: str, options: Iterable[str]) -> bool:
    """Whether it is one of these; argparse takes the beginning of a name for it."""
    return any(each == option or each.startswith(option) for each in options)
