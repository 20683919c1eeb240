"""The part of ``roundoff convert`` that turns tensor files of any kind into others."""

import argparse
import json
import re
from typing import TYPE_CHECKING

from roundoff.cli.terminal import Terminal
from roundoff.messages.numbers import counted, format_size

if TYPE_CHECKING:
    from roundoff.api.tensors import TensorConversion

__all__ = ["print_conversion", "shape"]

MAP_NAME = "tensors.json"
_LISTED = 10


def print_conversion(args: argparse.Namespace, terminal: Terminal, found: "TensorConversion") -> None:
    """Tell what was written, and what could not be read."""
    if args.layout is not None:
        _print_layout(args, terminal, found)
        return
    if args.json:
        record = {
            "output": str(args.output),
            "format": found.format,
            "tensors": found.tensors,
            "samples": list(found.samples),
            "size_bytes": found.size_bytes,
            "failed": dict(found.failed),
        }
        terminal.text(json.dumps(record, indent=1, ensure_ascii=False))
    else:
        many = f"{counted(found.tensors, 'array')} of {counted(found.known, 'tensor')}"
        terminal.text(f"{args.output}: {many}, {format_size(found.size_bytes)}, as {found.format}")
    for name, problem in list(found.failed.items())[:_LISTED]:
        terminal.note(f"left out: tensor {name!r}, because {problem}")
    if len(found.failed) > _LISTED:
        terminal.note(f"left out: {len(found.failed) - _LISTED} more; --json lists them all")
    terminal.note(f"written: {args.output / MAP_NAME}, which lists all files")


def _print_layout(args: argparse.Namespace, terminal: Terminal, found: "TensorConversion") -> None:
    from roundoff.vendors.ascend.conversion import FAILED_NAME

    record = {"format": found.format, "files": list(found.files), "failed": list(found.failed)}
    listing = json.dumps(record, indent=1, ensure_ascii=False)
    terminal.text(listing if args.json else f"{args.output}: {counted(found.tensors, 'tensor')} in {found.format}")
    for text in found.notes[:_LISTED]:
        terminal.note(text)
    if found.failed:
        terminal.note(f"{counted(len(found.failed), 'file')} failed, listed in {args.output / FAILED_NAME}")


def shape(text: str) -> tuple[int, ...]:
    """Sizes with commas, as on the command line."""
    if not re.fullmatch(r"\d{1,18}(,\d{1,18})*", text):
        raise argparse.ArgumentTypeError(f"{text!r} is no shape; write it as 1,3,224,224")
    return tuple(map(int, text.split(",")))
