"""Pack what a run found into a ticket that someone else can reproduce.

RUN is the folder that a command wrote with -o. The archive holds the float
model, the fewest samples that show the fault (verified), a test script that
needs numpy and onnxruntime only, plan and target, the environment, the command,
and a form that is filled in as far as the run knows.

With --confidential weights become random ones of the same statistics, names
become numbers, samples become synthetic, and it is verified that the fault is
still there. What was called how is written beside the archive, not into it.
"""

import argparse
import contextlib
import shlex
from pathlib import Path
from typing import NamedTuple, NoReturn

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
SUPPORTED = ("quantize", "compare", *_OF_SUBJECTS)


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
    from roundoff.cli.bundle_case import pack_case
    from roundoff.cli.bundle_dump import pack_dump
    from roundoff.core.files import write_bytes, write_text
    from roundoff.core.zip_writing import zip_bytes
    from roundoff.report.documents import json_text

    if args.keep_data and not args.confidential:
        raise BadInput("--keep-data has no effect without --confidential.", fix="leave it out, samples are kept")
    if args.seed < 0:
        raise BadInput(f"--seed {args.seed} is negative.", fix="give a number from 0 on")
    names_file = args.output.with_suffix(".names.json")
    _check_free(args.output, args)
    if args.confidential:
        _check_free(names_file, args)
    file, document = read_run(args.run_folder, SUPPORTED, what="bundle")
    again = options_of(document, file)
    check_inputs(document)
    limits = limits_from(args)
    again.threads, again.max_memory = limits.threads, limits.max_memory
    if getattr(again, "dumps", None) is not None:
        _refuse_dumps(args, again)
    if document.command[1] == "compare":
        packed = pack_dump(args, terminal, document, again)
    else:
        packed = pack_case(args, terminal, document, again, folder=file.parent)
    if packed.shown:
        write_bytes(args.output, zip_bytes(packed.members))
        if packed.names is not None:
            write_text(names_file, json_text(packed.names))
    _print(args, terminal, packed, names_file)
    return EXIT_OK if packed.shown else EXIT_THRESHOLD_MISSED


def _refuse_dumps(args: argparse.Namespace, again: argparse.Namespace) -> NoReturn:
    """Say what packs the fault of a device: its diagnosis is about parts, a ticket about a tensor."""
    words = ["roundoff", "compare", str(again.model or again.quantized), str(again.dumps)]
    words += [word for text in again.data or () for word in ("--data", text)]
    raise BadInput(
        f"{args.run_folder} is a diagnosis of --dumps, of which no bundle can be made.",
        fix=f"type '{shlex.join([*words, '-o', 'compared'])}' and bundle 'compared', or use 'roundoff reproduce'",
    )


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

    from roundoff.core.harmless import for_people
    from roundoff.core.sizes import format_size
    from roundoff.report.verdict import verdict_page

    headline = Text()
    if packed.shown:
        headline.append("PACKED", style="bold green")
        headline.append(f": {args.output} shows what the run found")
    else:
        headline.append("NOT PACKED", style="bold red")
        headline.append(": no disguise that was tried shows the fault; nothing was written")
    lines = list(for_people(packed.lines))
    if packed.shown:
        files = sorted(packed.members.items())
        for place, (name, content) in enumerate(files):
            lines.append(("" if place else "files", f"{name}, {format_size(len(content))}"))
    terminal.print(verdict_page(headline, lines))
    if packed.shown and packed.names is not None:
        terminal.note(f"written: {args.output}; keep {names_file} to yourself: it says what everything was called")
    elif packed.shown:
        terminal.note(f"written: {args.output}")
