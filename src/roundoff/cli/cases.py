"""The commands that hand a fault to someone else: reproduce and bundle."""

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from roundoff.cli.options import LIMITS, command, given, opt, positive
from roundoff.cli.results import print_page
from roundoff.cli.terminal import Terminal
from roundoff.errors import EXIT_THRESHOLD_MISSED
from roundoff.messages.catalogue import translate

if TYPE_CHECKING:
    from roundoff.case.reproduce import Reproduction

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
    from roundoff.api.cases import reproduce
    from roundoff.case.minimal import NotLocal
    from roundoff.case.page import not_reproduced_page
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
    from roundoff.api.cases import bundle

    said = given(args, terminal, "output", "force")
    outcome = bundle(said.pop("run_folder"), **said)
    packed = outcome.result
    print_page(terminal, outcome.page)
    if packed.names_file is not None:
        terminal.note(translate("case.keep", file=packed.archive, names=packed.names_file))
    elif packed.shown:
        terminal.written([packed.archive])
    return outcome.exit_code
