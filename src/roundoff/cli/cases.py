"""The commands that hand a fault to someone else: reproduce and bundle."""

import argparse
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, cast

from roundoff.cli.options import LIMITS, command, given, opt, positive
from roundoff.cli.terminal import Terminal
from roundoff.errors import EXIT_OK, EXIT_THRESHOLD_MISSED
from roundoff.messages.catalogue import current_language, named, translate
from roundoff.messages.message import english

if TYPE_CHECKING:
    from roundoff.case.bundle import Bundle
    from roundoff.case.minimal import NotLocal
    from roundoff.case.reproduce import Reproduction
    from roundoff.pages.blocks import Tone

_NAMED = 6
_RUN = opt("run_folder RUN", "the folder a run wrote, or its run.json")


@command(
    _RUN,
    opt("--finding N", "which fault, counted from 1 (default: the worst)", type=positive, default=1),
    opt("-o --output DIR", "where the files go", required=True),
    opt("--keep-samples N", "samples that come along (default: 4)", type=positive, default=4),
    opt("--anonymous", "replace the names of nodes and tensors by numbers"),
    opt("--json", "print what was found as JSON"),
    opt("--force", "replace an earlier reproducer"),
    LIMITS,
)
def reproduce(args: argparse.Namespace, terminal: Terminal) -> int:
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
    from roundoff.case.minimal import NotLocal
    from roundoff.case.reproduce import reproduce

    said = given(args, terminal, "output", "force")
    try:
        made = reproduce(said.pop("run_folder"), **said)
    except NotLocal as error:
        _print_nowhere(error, terminal)
        return EXIT_THRESHOLD_MISSED
    _print_case(args, terminal, made)
    terminal.written([args.output])
    return EXIT_OK if made.good else EXIT_THRESHOLD_MISSED


def _print_nowhere(error: "NotLocal", terminal: Terminal) -> None:
    """Say why no part of the network shows the fault by itself."""
    from roundoff.messages.message import sanitize_for_display
    from roundoff.pages.terminal import verdict_page

    lines = [
        (english("why"), sanitize_for_display(error.what)),
        (english("next"), sanitize_for_display(error.fix)),
    ]
    text = english(": the fault is in no small part of the network")
    terminal.print(verdict_page(english("NOT REPRODUCED"), text, lines, tone="open"))


def _print_case(args: argparse.Namespace, terminal: Terminal, made: "Reproduction") -> None:
    from roundoff.core.document import json_text
    from roundoff.messages.message import sanitize_for_display
    from roundoff.pages.terminal import verdict_page

    if args.json:
        terminal.text(json_text(_record(made)))
        return
    finding = made.finding
    text = english(
        ": {nodes} {nodes:node|nodes} alone {nodes:shows|show} finding {number}{cause}",
        nodes=len(made.reproducer.nodes),
        number=finding.number,
        cause=f" ({finding.cause})" if finding.cause else "",
    )
    files = english("{files}, in {folder}", files=", ".join(made.files), folder=args.output)
    following = (english("next"), f"python {args.output}/run.py")
    lines = sanitize_for_display((*_lines(made), (english("files"), files), following))
    word, tone = (english("REPRODUCED"), "good") if made.good else (english("NOT VERIFIED"), "bad")
    terminal.print(verdict_page(word, text, lines, tone=cast("Tone", tone)))


def _lines(made: "Reproduction") -> "Iterator[tuple[str, str]]":
    from roundoff.messages.message import some
    from roundoff.messages.numbers import decibels_text

    found, checked = made.reproducer, made.verified
    names = some([f"{name} ({kind})" for name, kind in found.nodes], _NAMED)
    yield english("nodes"), english("{names}", names=names)
    yield english("where"), found.spot.text
    faulty, mended = decibels_text(found.faulty_db), decibels_text(found.mended_db)
    yield (
        english("alone"),
        english(
            "{faulty}, {mended} {mending}; fed with {fed_with}",
            faulty=faulty,
            mended=mended,
            mending=found.mending,
            fed_with=found.fed_with,
        ),
    )
    yield (
        "run.py",
        english(
            "{shows}, {passes}",
            shows=english("exit code 1 on what is observed")
            if checked.shows
            else english("does NOT show the fault"),
            passes=english("0 on what is expected")
            if checked.passes
            else english("and does NOT pass on what is expected"),
        ),
    )
    if found.complement is not None:
        usual = english("with all other quantizers on and these off")
        if found.stored:
            usual = english("with this tensor right")
        verdict = english("passes") if found.passes else english("does not pass: more is wrong than this")
        if found.unnoticed:
            verdict = english("both are right, the fault does not reach the outputs")
        yield (
            english("complement"),
            english(
                "output SQNR {after} {right}, {before} as it is: {verdict}",
                after=decibels_text(found.complement.after),
                right=found.right or usual,
                before=decibels_text(found.complement.before),
                verdict=verdict,
            ),
        )
    if found.alone is not None:
        yield "", english("{alone} with only these on", alone=decibels_text(found.alone))


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


@command(
    _RUN,
    opt("-o --output FILE.zip", "the archive to be written", required=True, type=Path),
    opt("--confidential", "replace weights, names and samples, and verify that the fault is still there"),
    opt("--keep-data", "with --confidential: keep the samples as they are"),
    opt("--seed N", "of what is chosen at random (default: 0)", type=int, default=0),
    opt("--force", "replace an earlier bundle"),
    LIMITS,
)
def bundle(args: argparse.Namespace, terminal: Terminal) -> int:
    """Pack what a run found into a ticket that someone else can reproduce.

    RUN is the folder that a command wrote with -o, or pulsar2 build or tune. The
    archive holds the float model, the fewest samples that show the fault, a test
    script that needs numpy and onnxruntime only, configuration and target, the
    environment, the command, and a form that is filled in as far as is known.

    With --confidential weights become random ones of the same statistics, names
    become numbers, samples become synthetic, and it is verified that the fault is
    still there. What was called how is written beside the archive, not into it.
    """
    from roundoff.case.bundle import bundle

    said = given(args, terminal, "output", "force")
    packed = bundle(said.pop("run_folder"), **said)
    _print_bundle(packed, terminal)
    return EXIT_OK if packed.shown else EXIT_THRESHOLD_MISSED


def _print_bundle(packed: "Bundle", terminal: Terminal) -> None:
    from roundoff.messages.message import sanitize_for_display
    from roundoff.messages.numbers import format_size
    from roundoff.pages.terminal import verdict_page

    lines = [(_label(label), text) for label, text in sanitize_for_display(packed.lines)]
    if packed.shown:
        for place, (name, content) in enumerate(sorted(packed.members.items())):
            lines.append(("" if place else _label("files"), f"{name}, {format_size(len(content))}"))
        word, text = translate("case.word_packed"), translate("case.packed", file=packed.archive)
    else:
        word, text = translate("case.word_not_packed"), translate("case.not_packed")
    terminal.print(verdict_page(word, text, lines, tone="good" if packed.shown else "bad"))
    if packed.names_file is not None:
        terminal.note(translate("case.keep", file=packed.archive, names=packed.names_file))
    elif packed.shown:
        terminal.written([packed.archive])


def _label(word: str) -> str:
    """The word before a line, in the language of the terminal."""
    found = named(f"case.label_{word.replace(' ', '_')}")
    return word if found is None else found.within(current_language())
