"""The part of ``roundoff convert`` that turns tensor files of any kind into others."""

import argparse
import json
import re
from pathlib import Path
from typing import TYPE_CHECKING

from roundoff.cli.terminal import Terminal
from roundoff.core.files import check_output_directory, output_directory, write_text
from roundoff.errors import EXIT_OK, EXIT_THRESHOLD_MISSED, BadInput, nearest
from roundoff.messages.numbers import counted, format_size

if TYPE_CHECKING:
    from roundoff.core.tensors import TensorSource

__all__ = ["convert_tensors", "shape"]

_MAP = "tensors.json"
_CONVERTED = "conversion.json"
# By these an earlier conversion is known; either kind may replace the other.
_MARKERS = (_MAP, _CONVERTED)
_LISTED = 10


def convert_tensors(args: argparse.Namespace, terminal: Terminal) -> int:
    """Read, write and print; 1 where something could not be read."""
    if args.layout is not None:
        return _in_layout(args, terminal)
    if args.shape is not None:
        raise BadInput("--shape has no effect without --format.", fix="add --format, e.g. --format ND")
    from roundoff.tensors import open_source

    check_output_directory(args.output, marker=_MARKERS, force=args.force)
    source = open_source(args.source)
    problems = {info.name: info.problem for info in source.tensors if info.problem}
    written, size_bytes = _write(args, terminal, source, problems)
    form = args.to or "npy"
    if args.json:
        found = {
            "output": str(args.output),
            "format": form,
            "tensors": written,
            "samples": list(source.samples),
            "size_bytes": size_bytes,
            "failed": problems,
        }
        terminal.text(json.dumps(found, indent=1, ensure_ascii=False))
    else:
        many = f"{counted(written, 'array')} of {counted(len(source.tensors), 'tensor')}"
        terminal.text(f"{args.output}: {many}, {format_size(size_bytes)}, as {form}")
    for name, problem in list(problems.items())[:_LISTED]:
        terminal.note(f"left out: tensor {name!r}, because {problem}")
    if len(problems) > _LISTED:
        terminal.note(f"left out: {len(problems) - _LISTED} more; --json lists them all")
    terminal.note(f"written: {args.output / _MAP}, which lists all files")
    return EXIT_THRESHOLD_MISSED if problems else EXIT_OK


def _write(
    args: argparse.Namespace, terminal: Terminal, source: "TensorSource", problems: dict[str, str]
) -> tuple[int, int]:
    """Write what can be read; gives how many arrays that were, and their bytes."""
    from roundoff.tensors.writer import open_writer

    written = size_bytes = 0
    terminal.start("converting", len(source.samples))
    with (
        output_directory(args.output, marker=_MARKERS, force=args.force) as staged,
        open_writer(staged, args.to or "npy", samples=source.samples) as writer,
    ):
        for sample in source.samples:
            writer.begin_sample(sample)
            for info in source.tensors:
                if info.problem:
                    continue
                try:
                    array = source.read(info.name, sample)
                except BadInput as error:
                    problems[info.name] = error.what.rstrip(".")
                    continue
                writer.write(info, array)
                written, size_bytes = written + 1, size_bytes + array.nbytes
            terminal.advance()
        if not written:
            raise BadInput(
                f"Nothing in {args.source} can be read.", fix=next(iter(problems.values()), "look into it")
            )
    terminal.finish()
    return written, size_bytes


def _in_layout(args: argparse.Namespace, terminal: Terminal) -> int:
    """Tensors of device dumps in a memory format that was asked for."""
    from roundoff.tensors import ascend_dump
    from roundoff.tensors.ascend_dump.header import FORMAT_NUMBERS
    from roundoff.vendors.ascend.conversion import FAILED_NAME, Conversion, convert_dumps

    if args.to not in (None, "npy"):
        what = f"--format writes .npy files, not {args.to}."
        raise BadInput(what, fix=f"leave out --to, then: roundoff convert {args.output} --to {args.to} -o DIR")
    if args.layout not in FORMAT_NUMBERS:
        raise BadInput(f"The format {args.layout!r} is not known.", fix=nearest(args.layout, FORMAT_NUMBERS))
    if not ascend_dump.sniff(args.source):
        what = f"{args.source} holds no device dumps, and only these have memory formats to convert from."
        raise BadInput(what, fix="leave out --format")
    files = [args.source] if args.source.is_file() else sorted(p for p in args.source.rglob("*") if _is_dump(p))
    check_output_directory(args.output, marker=_MARKERS, force=args.force)
    told: list[str] = []
    with output_directory(args.output, marker=_MARKERS, force=args.force) as staged:
        conversion = Conversion(staged, "npy", args.layout, args.shape or ())
        written, failed = convert_dumps(files, conversion, warn=told.append)
        if not written:
            raise BadInput(f"Nothing in {args.source} can be converted: {told[0]}", fix="choose another --format")
        found = {"format": args.layout, "files": [path.name for path in written], "failed": list(map(str, failed))}
        listing = json.dumps(found, indent=1, ensure_ascii=False)
        write_text(staged / _CONVERTED, listing + "\n")
    terminal.text(listing if args.json else f"{args.output}: {counted(len(written), 'tensor')} in {args.layout}")
    for text in told[:_LISTED]:
        terminal.note(text)
    if failed:
        terminal.note(f"{counted(len(failed), 'file')} failed, listed in {args.output / FAILED_NAME}")
    return EXIT_THRESHOLD_MISSED if failed else EXIT_OK


def _is_dump(path: Path) -> bool:
    return path.is_file() and not path.name.startswith(".") and path.suffix not in (".csv", ".txt", ".json")


def shape(text: str) -> tuple[int, ...]:
    """Sizes with commas, as on the command line."""
    if not re.fullmatch(r"\d{1,18}(,\d{1,18})*", text):
        raise argparse.ArgumentTypeError(f"{text!r} is no shape; write it as 1,3,224,224")
    return tuple(map(int, text.split(",")))
