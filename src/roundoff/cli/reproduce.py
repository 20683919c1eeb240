"""Cut a fault out of the model: the smallest case that shows what a run found.

RUN is the folder that diagnose, layers or compare wrote with -o. Sets of nodes
are left out as long as the rest, fed with what the float model computes (for
dumps: with the device's own inputs), still shows the fault. DIR receives the
nodes that are left as a small model in float and quantized, their inputs, what
they should give and what they give, and run.py, which needs numpy and
onnxruntime only and ends with exit code 1 while the fault is there.

Before it is handed out, run.py is run, and the whole model with everything but
these quantizers on. Exit code 1 when nothing so small shows the fault.
"""

import argparse
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from roundoff.cli.options import add_limits, positive
from roundoff.cli.terminal import Terminal
from roundoff.errors import EXIT_OK, EXIT_THRESHOLD_MISSED

if TYPE_CHECKING:
    from roundoff.case.minimal import NotLocal
    from roundoff.case.reproduce import Reproduction

_DEFAULT_SAMPLES = 4
_NAMED = 6


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's options."""
    parser.add_argument("run_folder", type=Path, metavar="RUN", help="the folder a run wrote, or its run.json")
    parser.add_argument(
        "--finding", type=positive, default=1, metavar="N", help="which fault, counted from 1 (default: the worst)"
    )
    parser.add_argument("-o", "--output", type=Path, required=True, metavar="DIR", help="where the files go")
    parser.add_argument(
        "--keep-samples",
        type=positive,
        default=_DEFAULT_SAMPLES,
        metavar="N",
        help="samples that come along (default: 4)",
    )
    parser.add_argument(
        "--anonymous", action="store_true", help="replace the names of nodes and tensors by numbers"
    )
    parser.add_argument("--json", action="store_true", help="print what was found as JSON")
    parser.add_argument("--force", action="store_true", help="replace an earlier reproducer")
    add_limits(parser)


def run(args: argparse.Namespace, terminal: Terminal) -> int:
    """Reproduce and print; 1 when no small part shows the fault, or its script does not behave."""
    from roundoff.case.minimal import NotLocal
    from roundoff.case.reproduce import reproduce

    try:
        made = reproduce(
            args.run_folder,
            output=args.output,
            finding=args.finding,
            keep_samples=args.keep_samples,
            anonymous=args.anonymous,
            force=args.force,
            threads=args.threads,
            max_memory=args.max_memory,
            progress=terminal,
        )
    except NotLocal as error:
        _print_nowhere(error, terminal)
        return EXIT_THRESHOLD_MISSED
    _print(args, terminal, made)
    terminal.written([args.output])
    return EXIT_OK if made.good else EXIT_THRESHOLD_MISSED


def _print_nowhere(error: "NotLocal", terminal: Terminal) -> None:
    """Say why no part of the network shows the fault by itself."""
    from rich.text import Text

    from roundoff.messages.sanitize import for_people
    from roundoff.pages.terminal import verdict_page

    headline = Text("NOT REPRODUCED", style="bold yellow")
    headline.append(": the fault is in no small part of the network", style="default")
    terminal.print(verdict_page(headline, [("why", for_people(error.what)), ("next", for_people(error.fix))]))


def _print(args: argparse.Namespace, terminal: Terminal, made: "Reproduction") -> None:
    from rich.text import Text

    from roundoff.core.document import json_text
    from roundoff.messages.numbers import counted
    from roundoff.messages.sanitize import for_people
    from roundoff.pages.terminal import verdict_page

    if args.json:
        terminal.text(json_text(_record(made)))
        return
    found, finding = made.reproducer, made.finding
    good = made.good
    headline = Text("REPRODUCED" if good else "NOT VERIFIED", style="bold green" if good else "bold red")
    alone = counted(len(found.nodes), "node")
    cause = f" ({finding.cause})" if finding.cause else ""
    shows = "show" if len(found.nodes) != 1 else "shows"
    headline.append(f": {alone} alone {shows} finding {finding.number}{cause}", style="default")
    lines = [*_lines(made), ("files", f"{', '.join(made.files)}, in {args.output}")]
    lines.append(("next", f"python {args.output}/run.py"))
    terminal.print(verdict_page(headline, list(for_people(tuple(lines)))))


def _lines(made: "Reproduction") -> "Iterator[tuple[str, str]]":
    from roundoff.messages.numbers import decibels_text

    found, checked = made.reproducer, made.verified
    more = len(found.nodes) - _NAMED
    names = ", ".join(f"{name} ({kind})" for name, kind in found.nodes[:_NAMED])
    yield "nodes", names + (f" and {more} more" if more > 0 else "")
    yield "where", found.spot.text
    faulty, mended = decibels_text(found.faulty_db), decibels_text(found.mended_db)
    yield "alone", f"{faulty}, {mended} {found.mending}; fed with {found.fed_with}"
    result = "exit code 1 on what is observed" if checked.shows else "does NOT show the fault"
    passed = "0 on what is expected" if checked.passes else "and does NOT pass on what is expected"
    yield "run.py", f"{result}, {passed}"
    if found.complement is not None:
        usual = "with this tensor right" if found.stored else "with all other quantizers on and these off"
        told = found.right or usual
        verdict = "passes" if found.passes else "does not pass: more is wrong than this"
        if found.unnoticed:
            verdict = "both are right, the fault does not reach the outputs"
        after, before = found.complement.after, found.complement.before
        yield (
            "complement",
            f"output SQNR {decibels_text(after)} {told}, {decibels_text(before)} as it is: {verdict}",
        )
    if found.alone is not None:
        yield "", f"{decibels_text(found.alone)} with only these on"


def _record(made: "Reproduction") -> dict[str, object]:
    found, finding, checked = made.reproducer, made.finding, made.verified
    return {
        "finding": finding.number,
        "cause": finding.cause,
        "nodes": [{"name": name, "op_type": kind} for name, kind in found.nodes],
        "tensor": found.spot.tensor,
        "axis": found.spot.axis,
        "index": found.spot.index,
        "samples": [sample.name for sample in found.samples],
        "sqnr_db": found.faulty_db,
        "mended_sqnr_db": found.mended_db,
        "mending": found.mending,
        "threshold_db": found.threshold_db,
        "shows_alone": checked.shows,
        "passes_on_expected": checked.passes,
        "outputs_as_they_are_db": None if found.complement is None else found.complement.before,
        "outputs_of_complement_db": None if found.complement is None else found.complement.after,
        "outputs_with_these_alone_db": found.alone,
        "complement_passes": found.passes,
    }
