"""The commands on runs that are there already: compare, gate, report, explain and browse them."""

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from roundoff.cli.options import LIMITS, command, given, group, opt, positive, refused, whole_number
from roundoff.cli.results import SORT, check_results, print_page, results, show, top
from roundoff.cli.terminal import Terminal
from roundoff.errors import EXIT_OK, EXIT_THRESHOLD_MISSED
from roundoff.messages.catalogue import commas, translate
from roundoff.messages.message import english

if TYPE_CHECKING:
    from roundoff.case.reproduce import Reproduction
    from roundoff.core.document import RunDocument


_CSV_START = "order,node,op_type,tensor,renamed_from,"
_FORMATS = ("html", "md", "csv", "json", "junit", "netron", "model-explorer")
_LAST_PORT = 65535
_RUN = opt("run_path RUN", "a run directory or its run.json")


def _decibels(text: str) -> float:
    """Decibels from 0 on, like ``1`` or ``0.5dB``."""
    from roundoff.studies.run_diff.gate import decibels

    try:
        found = decibels(text)
    except ValueError:
        found = -1.0
    if found < 0:
        raise refused("{text!r} are no decibels; write them as 1 or 0.5dB", text=text)
    return found


_JUDGING = group(
    "judging",
    opt("--floor DB", "smaller changes are none (default: 0.5dB)", type=_decibels),
    opt("--paired", "samples of one name are the same ones, although their files differ"),
)


@command(
    opt("before RUN_A", "the run before: a run directory or its run.json"),
    opt("after RUN_B", "the run after"),
    _JUDGING,
    results("diff.csv", _CSV_START, top(8), SORT),
)
def diff(args: argparse.Namespace, terminal: Terminal) -> int:
    """Compare two runs: which nodes got better or worse, and can it be chance?

    RUN_A and RUN_B are folders that one command (compare, layers, sensitivity,
    accumulate or diagnose) wrote with -o, or their run.json: before and after
    another version, chip, calibration or option. Nodes are matched by name, renamed
    ones by operation, shape and place. A change counts when it is at least --floor
    large and chance is excluded over all nodes together.
    """
    from roundoff.api.runs import diff
    from roundoff.pages.blocks import View
    from roundoff.studies.run_diff.page import diff_page

    check_results(args)
    outcome = diff(**given(args))
    show(args, terminal, outcome.document, diff_page(outcome.document, View(args.top, args.sort)))
    return outcome.exit_code


@command(
    _RUN,
    opt("--baseline RUN", "the run it is held against", required=True),
    opt("--max-regression DB", "loss that is allowed (default: 1dB)", type=_decibels),
    opt("--budget FILE", "TOML or JSON: what nodes may lose, or must reach, by pattern"),
    opt(
        "--metric BUDGET",
        "what a metric may lose, as 'top-1 accuracy: -0.5%%' (default: 1%%); may be given several times",
        action="append",
        default=[],
    ),
    opt("--scores CSV", "scores from elsewhere, such as a board: a column 'sample', then one for each metric"),
    opt("--baseline-scores CSV", "the same of the baseline"),
    opt("--strict", "losses over budget fail even where chance is not excluded"),
    _JUDGING,
    results(
        "diff.csv",
        _CSV_START,
        top(8),
        opt("--junit FILE", "also write JUnit XML"),
        opt("--annotate", "also print a line per failure as GitHub reads it"),
    ),
)
def gate(args: argparse.Namespace, terminal: Terminal) -> int:
    """Let a run pass, or not: has any node lost more against a baseline than it may?

    RUN and the baseline are folders that one command (compare, layers, sensitivity,
    accumulate or diagnose) wrote with -o, or their run.json; any run can be a
    baseline. A loss counts when it is above its budget and chance is excluded over
    all nodes together. The accuracy in a run (labels or evaluator) is judged by
    the same samples in both, and scores from elsewhere by a CSV. Leaves with 0 when
    RUN passes, 1 when it does not, 2 when it cannot be judged.
    """
    from roundoff.api.runs import gate
    from roundoff.pages.blocks import View
    from roundoff.report.junit import gate_junit
    from roundoff.studies.run_diff.page import diff_page

    check_results(args)
    said = given(args)
    outcome = gate(said.pop("run_path"), **said)
    document, found = outcome.document, outcome.result
    junit = {} if args.junit is None or found.gate is None else {args.junit: gate_junit(found, found.gate)}
    page = diff_page(document, View(args.top))
    show(args, terminal, document, (page, _annotations(args, document)), also=junit)
    return outcome.exit_code


def _annotations(args: argparse.Namespace, document: "RunDocument") -> str:
    """A line per failure, where they are asked for."""
    from roundoff.messages.message import sanitize_for_display
    from roundoff.studies.run_diff.page import annotations

    diff = sanitize_for_display(document.diff)
    if not args.annotate or diff is None or diff.gate is None or diff.gate.passed:
        return ""
    return annotations(diff, diff.gate)


@command(
    opt("run_path RUN", "a run directory, or its run.json"),
    opt("-o --output FILE", "where it goes; a folder for csv", required=True),
    opt("--format", "form of the report (default: by the ending of FILE)", choices=_FORMATS),
    opt("--title TITLE", "heading of the report (default: the command and the model)", default=""),
    opt("--force", "replace an earlier report"),
)
def report(args: argparse.Namespace, terminal: Terminal) -> int:
    """Turn a run into a report: one HTML file that opens anywhere, or another format.

    RUN is a folder that a command wrote with -o, or its run.json. The HTML file
    needs no server and no network, holds both languages, and can be sent by e-mail.

    netron writes an .onnx file to be opened in Netron: the network without weights,
    with what the run knows of a node among its properties. model-explorer writes
    node data that Model Explorer lays over the model.
    """
    from roundoff.api.runs import report

    written = report(args.run_path, args.output, format=args.format, title=args.title, force=args.force)
    terminal.written(written)
    return EXIT_OK


@command(
    opt("name NAME?", "what to explain; all words without it"),
    opt("run_path RUN?", "a run directory or its run.json"),
)
def explain(args: argparse.Namespace, terminal: Terminal) -> int:
    """Explain in one paragraph a node, finding, metric, verdict, cause or column.

    With RUN, a folder that a command wrote with -o or its run.json, nodes and
    findings are explained with the numbers of that run. NAME is a node or tensor,
    the number of a finding, a metric (cosine), a verdict (DISTRIBUTED), a cause
    (clipping) or a column (adds). A page of the documentation (targets.md) is
    shown as it is.
    """
    from rich.text import Text

    from roundoff.api.runs import explain

    if args.name is None:
        from roundoff.report.explain import term_names

        terminal.print(Text(commas(*sorted(term_names()))))
        return EXIT_OK
    terminal.print(Text(explain(args.name, args.run_path)))
    return EXIT_OK


def _port(text: str) -> int:
    return whole_number(
        text,
        "{text!r} is not a port; give a number up to {last_port}, or 0 for any",
        least=0,
        most=_LAST_PORT,
        last_port=_LAST_PORT,
    )


@command(
    opt("folder DIR", "the folder with runs"),
    opt("--port N", "where to listen (default: any free one)", type=_port, default=0),
)
def serve(args: argparse.Namespace, terminal: Terminal) -> int:
    """Browse the runs of a folder, with the pages of 'roundoff report'.

    Lists every run at or below DIR, renders it on request, compares any two as
    'roundoff diff' does, and shows how far commands are that write into DIR with
    -o. It only reads. It listens on this machine alone and prints an address with a
    random part that nobody can guess; give that address to no one. Ctrl-C ends it.
    """
    from roundoff.api.runs import serve

    def announce(address: str) -> None:
        terminal.text(address)
        terminal.note(english("serving {folder}, read-only; Ctrl-C ends it", folder=args.folder))

    serve(args.folder, port=args.port, announce=announce)
    terminal.note(english("ended"))
    return EXIT_OK


@command(
    opt("folder DIR?", "only files below it are read (default: this folder)", default=Path()),
    opt("--write", "allow tools to write results below it"),
)
def mcp(args: argparse.Namespace, terminal: Terminal) -> int:
    """Offer compare, diagnose, explain, audit and export-settings to an assistant.

    Speaks the Model Context Protocol over standard input and output; an assistant
    starts it itself. It reads only below DIR, runs no Python file, writes nothing
    without --write, and answers in fewer than 2,000 tokens. For most assistants:

      {"mcpServers": {"roundoff": {"command": "roundoff", "args": ["mcp", "DIR"]}}}
    """
    from roundoff.api.mcp import mcp

    terminal.note(english("answering an assistant about {folder}; Ctrl-C ends it", folder=args.folder))
    mcp(args.folder, write=args.write)
    return EXIT_OK


# A fault handed to someone else: reproduce and bundle.

_FAULTY_RUN = opt("run_folder RUN", "the folder a run wrote, or its run.json")


@command(
    _FAULTY_RUN,
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
    from roundoff.api.runs import reproduce
    from roundoff.case.bundle import not_reproduced_page
    from roundoff.case.minimal import NotLocal
    from roundoff.core.document import json_text

    said = given(args, terminal, "output", "force")
    try:
        outcome = reproduce(said.pop("run_folder"), **said)
    except NotLocal as error:
        print_page(terminal, not_reproduced_page(error))
        return EXIT_THRESHOLD_MISSED
    print_page(terminal, json_text(_record(outcome.result)) if args.json else outcome.page)
    terminal.written([args.output])
    return outcome.exit_code


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
    _FAULTY_RUN,
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
    from roundoff.api.runs import bundle

    said = given(args, terminal, "output", "force")
    outcome = bundle(said.pop("run_folder"), **said, tell=terminal.passing)
    packed = outcome.result
    print_page(terminal, outcome.page)
    if packed.names_file is not None:
        terminal.note(translate("case.keep", file=packed.archive, names=packed.names_file))
    elif packed.shown:
        terminal.written([packed.archive])
    return outcome.exit_code
