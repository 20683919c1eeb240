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
import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from roundoff.cli.inspection_options import add_limits, limits_from
from roundoff.cli.terminal import Terminal
from roundoff.cli.values import positive
from roundoff.errors import EXIT_OK, EXIT_THRESHOLD_MISSED, BadInput

if TYPE_CHECKING:
    from roundoff.case.reproducer import Reproducer, Verified
    from roundoff.cli.subject import Subject
    from roundoff.core.document import RunDocument
    from roundoff.diagnosis.result import Finding

SUMMARY = "cut the smallest case that shows a fault out of the model"

_SUPPORTED = ("diagnose", "layers", "compare")
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
    """Read the run, shrink, write, verify."""
    from roundoff.case.anonymous import without_names
    from roundoff.case.reproducer import CASE_NAME, verify, write_reproducer
    from roundoff.cli.earlier_runs import check_inputs, options_of, read_run
    from roundoff.core.files import check_output_directory, output_directory

    check_output_directory(args.output, marker=CASE_NAME, force=args.force)
    file, document = read_run(args.run_folder, _SUPPORTED, what="reproducer")
    again = options_of(document, file)
    check_inputs(document)
    limits = limits_from(args)
    again.threads, again.max_memory = limits.threads, limits.max_memory
    again.command = document.command[1]
    finding = _finding(args, document)
    found = _reproduced(args, again, finding, terminal)
    if found is None:
        return EXIT_THRESHOLD_MISSED
    told = without_names(found) if args.anonymous else found
    with output_directory(args.output, marker=CASE_NAME, force=args.force) as staged:
        files = write_reproducer(staged, told, finding)
        checked = verify(staged)
    _print(args, terminal, found, finding, checked=checked, files=files)
    terminal.written([args.output])
    return EXIT_OK if checked.shows and checked.passes else EXIT_THRESHOLD_MISSED


def _reproduced(
    args: argparse.Namespace, again: argparse.Namespace, finding: "Finding", terminal: Terminal
) -> "Reproducer | None":
    """The reproducer; None, with a word why, where no part of the network shows the fault by itself."""
    from rich.text import Text

    from roundoff.case.minimal import NotLocal
    from roundoff.messages.sanitize import for_people
    from roundoff.pages.terminal import verdict_page

    try:
        if again.command == "compare" or getattr(again, "dumps", None) is not None:
            return _of_device(args, again, finding, terminal)
        return _of_quantized(args, again, finding, terminal)
    except NotLocal as error:
        headline = Text("NOT REPRODUCED", style="bold yellow")
        headline.append(": the fault is in no small part of the network", style="default")
        terminal.print(verdict_page(headline, [("why", for_people(error.what)), ("next", for_people(error.fix))]))
        return None


def _finding(args: argparse.Namespace, document: "RunDocument") -> "Finding":
    """What is to be shown."""
    found = tuple(_findings(document))
    if not found:
        raise BadInput(
            "The run found no fault, so that there is nothing to show.", fix="give a run that found one"
        )
    if args.finding > len(found):
        what = f"The run has no finding {args.finding}; it has {len(found)}."
        raise BadInput(what, fix=f"give --finding a number from 1 to {len(found)}")
    chosen: Finding = found[args.finding - 1]
    return chosen


def _findings(document: "RunDocument") -> "Iterator[Finding]":
    """The faults of a run, worst first; rows of tables become findings without a cause."""
    from roundoff.diagnosis.result import Finding
    from roundoff.messages.message import verbatim

    if document.diagnosis is not None:
        yield from document.diagnosis.findings
        return
    if document.layers is not None and document.layers.verdict.kind != "fine":
        causes = {row.tensor: row for row in document.layers.rows if row.introduced is not None}
        shares = {name: row.introduced.output_share for name, row in causes.items() if row.introduced is not None}
        culprits = [each.tensor for each in document.layers.verdict.culprits]
        rest = sorted(shares, key=lambda name: -shares[name])
        for number, name in enumerate(dict.fromkeys((*(each for each in culprits if each in causes), *rest)), 1):
            row = causes[name]
            cause = "" if row.introduced is None else row.introduced.cause
            summary = verbatim(f"{name} adds much of the error")
            yield Finding(number, cause, (row.node,), (name,), summary)
    if document.comparison is not None:
        verdict = document.comparison.verdict
        nodes = {row.reference: row.node for row in document.comparison.rows}
        for number, name in enumerate(dict.fromkeys((*verdict.introduces, *verdict.worst)), 1):
            yield Finding(number, "difference", (nodes.get(name, ""),), (name,), verbatim(f"{name} differs"))


def _of_quantized(
    args: argparse.Namespace, again: argparse.Namespace, finding: "Finding", terminal: Terminal
) -> "Reproducer":
    from roundoff.case.file_fault import is_accumulator, is_of_file, reproduce_accumulator, reproduce_file
    from roundoff.case.minimal import reproduce_quantized
    from roundoff.cli.subject import given_file, open_subject
    from roundoff.diagnosis.subject import open_case

    subject = open_subject(again, terminal)
    case = open_case(
        subject.quantized,
        subject.samples,
        arithmetic=subject.arithmetic,
        threads=again.threads,
        max_memory=again.max_memory,
        progress=terminal,
    )
    if is_accumulator(finding):
        return reproduce_accumulator(case, finding, most_samples=args.keep_samples)
    given = given_file(again)
    if given is not None and is_of_file(case, given, finding):
        return reproduce_file(case, given, finding, most_samples=args.keep_samples)
    return reproduce_quantized(case, finding, values=case.facts.everything, most_samples=args.keep_samples)


def _of_device(
    args: argparse.Namespace, again: argparse.Namespace, finding: "Finding", terminal: Terminal
) -> "Reproducer":
    from roundoff.case.device import reproduce_device
    from roundoff.cli.device_options import open_dumps
    from roundoff.diagnosis.devices.study import open_replay
    from roundoff.diagnosis.investigation import DiagnoseSettings
    from roundoff.graph.shapes import values
    from roundoff.run.capture import read_feed
    from roundoff.run.feeds import complete_values

    subject, options = _device_subject(again, terminal)
    model = subject.quantized.float_model
    feed = read_feed(model, subject.samples, 0)
    shapes = values(model, {name: array.shape for name, array in feed.items()})
    everything = complete_values(model, shapes, feed, threads=again.threads)
    with contextlib.ExitStack() as stack:
        dumps, names = open_dumps(options, subject)
        settings = DiagnoseSettings(arithmetic=subject.arithmetic, threads=again.threads, progress=terminal)
        replay = stack.enter_context(
            open_replay(subject.quantized, subject.samples, dumps, settings=settings, names=names)
        )
        return reproduce_device(replay, finding, values=everything, most_samples=args.keep_samples)


def _device_subject(again: argparse.Namespace, terminal: Terminal) -> "tuple[Subject, argparse.Namespace]":
    """The model that a device was given, and options that name its dumps; a comparison names both sides."""
    from roundoff.cli.subject import open_subject
    from roundoff.core.files import is_model

    if again.command != "compare":
        return open_subject(again, terminal), again
    if not is_model(again.reference) or is_model(again.candidate):
        raise BadInput(
            f"The run compared {again.reference} with {again.candidate}; what a device should compute is only "
            "known where the reference is a model, and the candidate a dump.",
            fix="run roundoff diagnose MODEL --data SAMPLES --dumps DIR -o RUN, and reproduce that",
        )
    given = argparse.Namespace(**vars(again))
    given.model, given.quantized, given.target = again.reference, None, None
    given.calibration = given.weight_method = given.rules = None
    given.calibration_option, given.set = [], []
    given.dumps, given.dump_format = again.candidate, again.candidate_format or again.format
    return open_subject(given, terminal), given


def _print(
    args: argparse.Namespace,
    terminal: Terminal,
    found: "Reproducer",
    finding: "Finding",
    *,
    checked: "Verified",
    files: tuple[str, ...],
) -> None:
    from rich.text import Text

    from roundoff.core.document import json_text
    from roundoff.messages.numbers import counted
    from roundoff.messages.sanitize import for_people
    from roundoff.pages.terminal import verdict_page

    if args.json:
        terminal.text(json_text(_record(found, finding, checked)))
        return
    good = checked.shows and checked.passes
    headline = Text("REPRODUCED" if good else "NOT VERIFIED", style="bold green" if good else "bold red")
    alone = counted(len(found.nodes), "node")
    cause = f" ({finding.cause})" if finding.cause else ""
    shows = "show" if len(found.nodes) != 1 else "shows"
    headline.append(f": {alone} alone {shows} finding {finding.number}{cause}", style="default")
    lines = [*_lines(found, checked), ("files", f"{', '.join(files)}, in {args.output}")]
    lines.append(("next", f"python {args.output}/run.py"))
    terminal.print(verdict_page(headline, list(for_people(tuple(lines)))))


def _lines(found: "Reproducer", checked: "Verified") -> "Iterator[tuple[str, str]]":
    more = len(found.nodes) - _NAMED
    names = ", ".join(f"{name} ({kind})" for name, kind in found.nodes[:_NAMED])
    yield "nodes", names + (f" and {more} more" if more > 0 else "")
    yield "where", found.spot.text
    yield "alone", f"{found.faulty_db:.1f} dB, {found.mended_db:.1f} dB {found.mending}; fed with {found.fed_with}"
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
        yield "complement", f"the whole model has {after:.1f} dB {told}, {before:.1f} dB as it is: {verdict}"
    if found.alone is not None:
        yield "", f"{found.alone:.1f} dB with only these on"


def _record(found: "Reproducer", finding: "Finding", checked: "Verified") -> dict[str, object]:
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
