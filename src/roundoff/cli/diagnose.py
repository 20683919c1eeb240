"""Find out why a quantized model loses accuracy: which nodes, why, what to do.

Cheap checks come first. What the arithmetic should cost is compared with what
it costs; what is lost beyond that is traced to quantizers by putting others in
their place: the same bits over another range, a scale per channel or slice,
16 bits, codes rounded again, float. The intervention that takes the loss away
names the cause, and its numbers before and after are in the verdict. Nodes that
only inherit an error from their inputs are listed apart.

With --dumps a device is looked at instead: each part is fed what the device fed
it, so that a part is to blame only for what it does wrong by itself.

Verdicts: HEALTHY, CULPRITS, DISTRIBUTED (the loss adds up over many places),
NOT A QUANTIZATION PROBLEM (of dumps: NOT A DEVICE PROBLEM), NOT ENOUGH
EVIDENCE. Exit code 0 when healthy, or repaired by --fix; 1 otherwise. Where no
place is to blame, or its remedies do not suffice, --fix searches for a better
recipe as tune does; bound that with --time.
"""

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from roundoff.cli.export_settings import DIALECT_HELP, print_settings
from roundoff.cli.next_steps import next_steps
from roundoff.cli.options import (
    add_data_options,
    add_device_options,
    add_html_option,
    add_limits,
    add_subject_options,
    check_html,
    seconds,
    subject_words,
    write_html,
)
from roundoff.cli.terminal import Terminal
from roundoff.errors import BadInput
from roundoff.messages.message import english, message

if TYPE_CHECKING:
    from roundoff.api.diagnosis import DiagnosisOutcome
    from roundoff.diagnosis.page import DiagnosisPart


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's options."""
    add_subject_options(parser, required=False)
    add_device_options(parser)
    judge = parser.add_mutually_exclusive_group()
    judge.add_argument("--evaluator", type=Path, metavar="FILE", help="a Python file with evaluate(run, samples)")
    judge.add_argument("--labels", type=Path, metavar="FILE", help="right classes as .npy or CSV")
    parser.add_argument(
        "--fix", action="store_true", help="try remedies, cheapest first, and write the repaired model to -o DIR"
    )
    parser.add_argument(
        "--test-data",
        action="append",
        metavar="PATH",
        help="with --fix: judge the repair on these samples, not on some of --data that are held out",
    )
    parser.add_argument("--test-labels", type=Path, metavar="FILE", help="right classes of --test-data")
    parser.add_argument("--dialect", metavar="NAME,...", help=f"with --fix: {DIALECT_HELP}")
    parser.add_argument("--time", type=seconds, metavar="TIME", help="be done by then, as 90s or 10m")
    output = parser.add_argument_group("output")
    output.add_argument("--json", action="store_true", help="print the run document instead of the verdict")
    add_html_option(output)
    output.add_argument("-o", "--output", type=Path, metavar="DIR", help="write run.json and findings.csv to DIR")
    output.add_argument("--force", action="store_true", help="replace what an earlier run wrote")
    add_limits(parser)
    add_data_options(parser)


def run(args: argparse.Namespace, terminal: Terminal) -> int:
    """Quantize or read, diagnose, repair, write, print."""
    from roundoff.api.diagnosis import diagnose
    from roundoff.diagnosis.page import check_line

    _check_output(args)
    check_html(args)
    outcome = diagnose(
        args.model,
        dumps=args.dumps,
        dump_format=args.dump_format,
        aliases=args.aliases,
        run=args.dump_run,
        evaluator=args.evaluator,
        labels=args.labels,
        time=args.time,
        explore=args.fix,
        tell=lambda check: terminal.wrapped(check_line(check)),
        **subject_words(args, terminal),
    )
    if args.fix:
        outcome = _repaired(args, outcome, terminal)
    outcome = outcome.telling(next_steps=tuple(next_steps(args, outcome.result)))
    written = [] if args.output is None else list(outcome.save(args.output, force=args.force))
    written += write_html(args, outcome.document)
    _print(args, terminal, outcome)
    if args.fix and outcome.helpful is None:
        key = "diagnosis.not_repaired_nothing" if args.dialect is None else "diagnosis.not_repaired_settings"
        terminal.remark(message(key))
    if outcome.tool_settings is not None and not args.json:
        print_settings(terminal, outcome.tool_settings, args.output)
    if written:
        terminal.written(written)
    return outcome.exit_code


def _repaired(args: argparse.Namespace, outcome: "DiagnosisOutcome", terminal: Terminal) -> "DiagnosisOutcome":
    """Tell and write what was found, so that nothing is lost whatever becomes of the repair; then repair it."""
    from roundoff.search.page import trial_line

    unrepaired = argparse.Namespace(**{**vars(args), "fix": False})
    first = outcome.telling(next_steps=tuple(next_steps(unrepaired, outcome.result)))
    first.save(args.output, force=args.force)
    # From here on what is replaced is our own.
    args.force = True
    write_html(args, first.document)
    if not args.json:
        _show(terminal, outcome, "verdict")
    return outcome.fix(
        dialect=args.dialect,
        test_data=args.test_data,
        test_labels=args.test_labels,
        on_trial=lambda trial, best, name: terminal.wrapped(trial_line(trial, best, name)),
        tell=terminal.wrapped,
    )


def _check_output(args: argparse.Namespace) -> None:
    """Refuse before the work what could not be written after it."""
    if args.dumps is not None and args.fix:
        what = english("--fix repairs quantized models; what is wrong on a device is not in the model.")
        raise BadInput(what, fix=english("leave --fix out; or leave --dumps out to repair the quantization"))
    from roundoff.core.document import DOCUMENT_NAME
    from roundoff.core.files import check_output_directory

    if args.dialect is not None:
        from roundoff.vendors.dialects import find_dialects

        find_dialects(args.dialect)
        if not args.fix:
            raise BadInput(
                english("--dialect has no effect without --fix."), fix=english("add --fix -o DIR, or leave it out")
            )
    if args.test_data is not None and not args.fix:
        raise BadInput(
            english("--test-data has no effect without --fix."), fix=english("add --fix -o DIR, or leave it out")
        )
    if args.output is not None:
        check_output_directory(args.output, marker=DOCUMENT_NAME, force=args.force)
    elif args.fix:
        raise BadInput(
            english("--fix writes a repaired model, but no folder was given."), fix=english("add -o DIR")
        )
    elif args.force and args.html is None:
        raise BadInput(
            english("--force has no effect without -o or --html."), fix=english("add -o DIR, or leave it out")
        )


def _print(args: argparse.Namespace, terminal: Terminal, outcome: "DiagnosisOutcome") -> None:
    from roundoff.core.document import to_json

    if args.json:
        terminal.text(to_json(outcome.document))
        return
    if outcome.result.repair is not None:
        terminal.text("")
    _show(terminal, outcome, "repair" if args.fix else "whole")


def _show(terminal: Terminal, outcome: "DiagnosisOutcome", part: "DiagnosisPart") -> None:
    from roundoff.diagnosis.page import diagnosis_page
    from roundoff.pages.terminal import terminal_page

    page = diagnosis_page(outcome.document, part)
    if page is not None and page.blocks:
        terminal.print(terminal_page(page))
