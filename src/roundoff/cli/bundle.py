"""Pack what a run found into a ticket that someone else can reproduce.

RUN is the folder that a command wrote with -o, or pulsar2 build or tune. The
archive holds the float model, the fewest samples that show the fault, a test
script that needs numpy and onnxruntime only, configuration and target, the
environment, the command, and a form that is filled in as far as is known.

With --confidential weights become random ones of the same statistics, names
become numbers, samples become synthetic, and it is verified that the fault is
still there. What was called how is written beside the archive, not into it.
"""

import argparse
import contextlib
from pathlib import Path
from typing import NamedTuple

from roundoff.cli.earlier_runs import check_inputs, options_of, read_run
from roundoff.cli.inspection_options import add_limits, limits_from
from roundoff.cli.terminal import Terminal
from roundoff.errors import EXIT_OK, EXIT_THRESHOLD_MISSED, BadInput

SUMMARY = "pack the fault that a run found into a ticket for others"

# Commands that look into a quantized model; what they share says what is analyzed.
_OF_SUBJECTS = (
    "diagnose", "layers", "sensitivity", "accumulate", "partial", "distribution", "channels", "outliers",
    "samples",
)  # fmt: skip
SUPPORTED = ("quantize", "tune", "compare", *_OF_SUBJECTS)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's options."""
    parser.add_argument("run_folder", type=Path, metavar="RUN", help="the folder a run wrote, or its run.json")
    parser.add_argument(
        "-o", "--output", type=Path, required=True, metavar="FILE.zip", help="the archive to be written"
    )
    parser.add_argument(
        "--confidential",
        action="store_true",
        help="replace weights, names and samples, and verify that the fault is still there",
    )
    parser.add_argument(
        "--keep-data", action="store_true", help="with --confidential: keep the samples as they are"
    )
    parser.add_argument(
        "--seed", type=int, default=0, metavar="N", help="of what is chosen at random (default: 0)"
    )
    parser.add_argument("--force", action="store_true", help="replace an earlier bundle")
    add_limits(parser)


class Packed(NamedTuple):
    """A bundle that is ready to be written.

    Attributes:
        members: Its files.
        names: What everything was called; None where nothing was renamed.
        lines: What to say of it.
        shown: Whether it shows the fault.
    """

    members: dict[str, bytes]
    names: dict[str, dict[str, str]] | None
    lines: tuple[tuple[str, str], ...]
    shown: bool


def run(args: argparse.Namespace, terminal: Terminal) -> int:
    """Read the run, choose, verify, write; 1 when the fault is not shown."""
    from roundoff.case.archive import zip_bytes
    from roundoff.core.document import json_text
    from roundoff.core.files import write_bytes, write_text

    if args.keep_data and not args.confidential:
        raise BadInput("--keep-data has no effect without --confidential.", fix="leave it out, samples are kept")
    if args.seed < 0:
        raise BadInput(f"--seed {args.seed} is negative.", fix="give a number from 0 on")
    names_file = args.output.with_suffix(".names.json")
    _check_free(args.output, args)
    if args.confidential:
        _check_free(names_file, args)
    packed = _packed(args, terminal)
    if packed.shown:
        write_bytes(args.output, zip_bytes(packed.members))
        if packed.names is not None:
            write_text(names_file, json_text(packed.names))
    _print(args, terminal, packed, names_file)
    return EXIT_OK if packed.shown else EXIT_THRESHOLD_MISSED


def _packed(args: argparse.Namespace, terminal: Terminal) -> Packed:
    """Pack what the folder holds: a build, a comparison, or something quantized."""
    from roundoff.cli.bundle_case import pack_case
    from roundoff.cli.bundle_dump import pack_device, pack_dump
    from roundoff.cli.bundle_pulsar2 import is_build, open_build
    from roundoff.cli.bundle_runs import RunExtras, source_of

    if is_build(args.run_folder):
        with open_build(args, terminal) as (source, extras):
            return pack_case(args, terminal, source, extras)
    file, document = read_run(args.run_folder, SUPPORTED, what="bundle")
    again = options_of(document, file)
    check_inputs(document)
    limits = limits_from(args)
    again.threads, again.max_memory = limits.threads, limits.max_memory
    if getattr(again, "dumps", None) is not None:
        return pack_device(args, terminal, document, again)
    if document.command[1] == "compare":
        return pack_dump(args, terminal, document, again)
    source = source_of(document, again, terminal, folder=file.parent)
    return pack_case(args, terminal, source, RunExtras(document, again, file.parent))


def _check_free(path: Path, args: argparse.Namespace) -> None:
    """Refuse to replace anything but an earlier bundle or its list of names."""
    import zipfile

    from roundoff.core.files import check_output_file

    if args.force and path.is_file():
        ours = path.suffix == ".json"
        # What only ends like an archive is none.
        with contextlib.suppress(zipfile.BadZipFile), zipfile.ZipFile(path) as archive:
            ours = {"TICKET.txt", "MANIFEST.json"} <= set(archive.namelist())
        if ours:
            return
        what = f"{path} exists and does not look like a bundle that roundoff wrote."
        raise BadInput(what, fix="choose another file with -o; --force replaces only earlier bundles")
    check_output_file(path, force=False, option="-o")


def _print(args: argparse.Namespace, terminal: Terminal, packed: Packed, names_file: Path) -> None:
    from rich.text import Text

    from roundoff.messages.catalogue import told
    from roundoff.messages.numbers import format_size
    from roundoff.messages.sanitize import for_people
    from roundoff.messages.sentences import sentence
    from roundoff.pages.terminal import verdict_page

    headline = Text()
    if packed.shown:
        headline.append(told("bundle_text.word_packed"), style="bold green")
        headline.append(told("bundle_text.packed", file=args.output))
    else:
        headline.append(told("bundle_text.word_not_packed"), style="bold red")
        headline.append(told("bundle_text.not_packed"))
    lines = [(_label(label), sentence(text)) for label, text in for_people(packed.lines)]
    if packed.shown:
        files = sorted(packed.members.items())
        for place, (name, content) in enumerate(files):
            lines.append(("" if place else _label("files"), f"{name}, {format_size(len(content))}"))
    terminal.print(verdict_page(headline, lines))
    if packed.shown and packed.names is not None:
        terminal.note(told("bundle_text.keep", file=args.output, names=names_file))
    elif packed.shown:
        terminal.written([args.output])


def _label(word: str) -> str:
    """The word before a line, in the language of the terminal."""
    from roundoff.messages.catalogue import named, spoken

    found = named(f"bundle_text.label_{word.replace(' ', '_')}")
    return word if found is None else found.within(spoken())
