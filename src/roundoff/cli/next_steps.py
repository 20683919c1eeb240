"""Commands that lead on from a diagnosis, with what was given to it.

Loaded for every --help, so it imports the standard library alone.
"""

import argparse
import shlex
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from roundoff.cli.options import device_next_steps, given_options, given_quantize_options
from roundoff.core.files import is_model, model_stem

if TYPE_CHECKING:
    from roundoff.diagnosis.result import Diagnosis

__all__ = ["after_comparison", "next_steps", "passing_on"]

# Where a run goes that has no folder yet.
_REPAIRED, _RUN = "repaired", "run"
# What only the user has: samples that neither calibrated the model nor chose its remedies.
_HELD_OUT, _HELD_OUT_LABELS = "HELD_OUT", "HELD_OUT_LABELS"


def next_steps(args: argparse.Namespace, found: "Diagnosis") -> list[str]:
    """What to type next; nothing where there is nothing to do."""
    if args.dumps is not None:
        folder = str(args.output or _RUN)
        # Of dumps there is no bundle.
        told = passing_on(found, folder)[:1]
        first = [["diagnose", *args.words[1:], "-o", folder]] if told and args.output is None else []
        return [*device_next_steps(args, found), *(shlex.join(["roundoff", *words]) for words in (*first, *told))]
    data = _said(args, given_options(args))
    model = [] if args.model is None else [str(args.model)]
    if args.target is None:
        given = ["--quantized", str(args.quantized)]
    else:
        given = ["--target", args.target, *_said(args, given_quantize_options(args))]
    again = ["diagnose", *model, *data, *given, *_judge(args)]
    found_in = str(args.output or _REPAIRED)
    steps: list[list[str]] = []
    if found.repair is not None and any(step.kept for step in found.repair.steps):
        steps = _after_repair(args, found_in, data)
    elif found.kind == "not_enough_evidence" and found.not_looked_at:
        steps = [[*again, *(["--fix", "-o", found_in, "--force"] if args.fix else [])]]
    elif found.kind in ("culprits", "distributed") and not args.fix:
        steps = [
            [*again, "--fix", "-o", found_in, *(["--force"] if args.output else [])],
            ["layers", *model, *data, *given],
        ]
    elif found.kind == "distributed" or (found.kind == "elsewhere" and args.target and _judge(args)):
        steps = [["tune", *model, *data, "--target", args.target or "TARGET", *_judge(args), "-o", "tuned"]]
    elif found.kind == "culprits":
        tensors = [name for each in found.accused for name in each.tensors[:1]]
        steps = [["distribution", *model, *tensors[:1], *data, *given]]
    elif found.kind == "not_enough_evidence":
        steps = [["layers", *model, *data, *given]]
    return [shlex.join(["roundoff", *words]) for words in (*steps, *passing_on(found, found_in))]


def after_comparison(args: argparse.Namespace) -> list[str]:
    """How to find out what is wrong on a device whose tensors differ from those of a model; else nothing."""
    model = args.reference if is_model(args.reference) else args.model
    if model is None or is_model(args.candidate):
        return []
    data = _said(args, given_options(args)) or ["--data", "SAMPLES"]
    chosen = args.candidate_format or args.format
    known = ["--dump-format", chosen] if chosen else []
    known += [] if args.aliases is None else ["--aliases", str(args.aliases)]
    known += [] if args.dump_run is None else ["--run", args.dump_run]
    return [shlex.join(["roundoff", "diagnose", str(model), *data, "--dumps", str(args.candidate), *known])]


def _after_repair(args: argparse.Namespace, run: str, data: list[str]) -> list[list[str]]:
    """What is left to do with a repaired model: see it on other samples, and tell the tool that builds it."""
    # Scales belong to the float model that was written with them.
    written = Path(run) / f"{model_stem(args.model or args.quantized)}_float_model.onnx"
    others = [
        _held_out(word) if _is_one(before, ["--data"]) else word
        for before, word in zip(["-", *data], data, strict=False)
    ]
    judge = ["--labels", _HELD_OUT_LABELS] if args.labels is not None else _judge(args)
    steps = [["diagnose", str(written), *others, "--quantized", run, *judge]]
    if args.dialect is None:
        steps.append(["export-settings", run, "--dialect", "all", "-o", "settings"])
    return steps


def _held_out(given: str) -> str:
    """Other samples in place of these, which may be those of one input."""
    name, equals, _ = given.partition("=")
    return f"{name}={_HELD_OUT}" if equals else _HELD_OUT


def passing_on(found: "Diagnosis", run: str) -> list[list[str]]:
    """Commands that make something of a finding for others, once the run is in its folder.

    Args:
        found: The diagnosis.
        run: The folder.
    """
    number = next((each.number for each in found.accused if each.nodes or each.tensors), None)
    if found.kind != "culprits" or number is None:
        return []
    return [
        ["reproduce", run, "--finding", str(number), "-o", "case"],
        ["bundle", run, "-o", "ticket.zip"],
    ]


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
    return option.startswith("--") and any(each.startswith(option) for each in options)
