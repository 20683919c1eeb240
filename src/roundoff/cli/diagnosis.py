"""The commands that find out what is wrong: diagnose and compare, and the commands that lead on from them."""

import argparse
import shlex
from pathlib import Path
from typing import TYPE_CHECKING

from roundoff.cli.options import (
    DATA,
    DEVICE,
    EVALUATOR,
    LIMITS,
    QUANTIZATION,
    command,
    given,
    group,
    is_option,
    one_of,
    opt,
    said_options,
    subject,
    threads,
    whole_number,
)
from roundoff.cli.results import (
    DIALECT_HELP,
    FORCE,
    HTML,
    JSON,
    check_results,
    next_commands,
    print_page,
    print_settings,
    show,
    write_html,
)
from roundoff.cli.terminal import Terminal
from roundoff.core.files import is_model, model_stem
from roundoff.errors import BadInput, RoundoffError
from roundoff.messages.catalogue import translate
from roundoff.messages.message import english, message

if TYPE_CHECKING:
    from roundoff.api.diagnosis import DiagnosisOutcome
    from roundoff.diagnosis.result import Diagnosis
    from roundoff.search.result import Trial

# So many of the files written are named below a verdict.
_NAMED = 2
_OF_REPAIR = ("fix", "dialect", "test_data", "test_labels")


@command(
    subject(required=False),
    DEVICE,
    one_of(EVALUATOR, opt("--labels FILE", "right classes as .npy or CSV")),
    opt("--fix", "try remedies, cheapest first, and write the repaired model to -o DIR"),
    opt(
        "--test-data PATH",
        "with --fix: judge the repair on these samples, not on some of --data that are held out",
        action="append",
        type=str,
    ),
    opt("--test-labels FILE", "right classes of --test-data"),
    opt("--dialect NAME,...", f"with --fix: {DIALECT_HELP}"),
    opt("--time TIME", "be done by then, as 90s or 10m"),
    group(
        "output",
        opt("--json", "print the run document instead of the verdict"),
        HTML,
        opt("-o --output DIR", "write run.json and findings.csv to DIR"),
        FORCE,
    ),
    LIMITS,
    DATA,
)
def diagnose(args: argparse.Namespace, terminal: Terminal) -> int:
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
    from roundoff.api.diagnosis import diagnose
    from roundoff.diagnosis.page import check_line

    _check_repair(args)
    check_results(args)
    said = {name: value for name, value in given(args, terminal).items() if name not in _OF_REPAIR}
    outcome = diagnose(**said, explore=args.fix, tell=lambda check: terminal.passing(check_line(check)))
    if args.fix:
        outcome = _repaired(args, outcome, terminal)
    outcome = outcome.telling(next_steps=tuple(_next_steps(args, outcome.result)))
    saved = [] if args.output is None else outcome.save(args.output, force=args.force)
    written = [*write_html(args, outcome.document), *saved]
    _print(args, terminal, outcome)
    if args.fix and outcome.helpful is None:
        key = "diagnosis.not_repaired_nothing" if args.dialect is None else "diagnosis.not_repaired_settings"
        terminal.remark(message(key))
    if outcome.tool_settings is not None and not args.json:
        print_settings(terminal, outcome.tool_settings, args.output)
    if written:
        terminal.written(written, _NAMED)
    return outcome.exit_code


def _check_repair(args: argparse.Namespace) -> None:
    """Refuse options that contradict each other, before the work."""
    if args.dumps is not None and args.fix:
        what = english("--fix repairs quantized models; what is wrong on a device is not in the model.")
        raise BadInput(what, fix=english("leave --fix out; or leave --dumps out to repair the quantization"))
    if args.dialect is not None:
        from roundoff.vendors.dialects import find_dialects

        find_dialects(args.dialect)
    for option, value in (("--dialect", args.dialect), ("--test-data", args.test_data)):
        if value is not None and not args.fix:
            what = english("{option} has no effect without --fix.", option=option)
            raise BadInput(what, fix=english("add --fix -o DIR, or leave it out"))
    if args.output is None and args.fix:
        raise BadInput(
            english("--fix writes a repaired model, but no folder was given."), fix=english("add -o DIR")
        )
    if args.output is None and args.force and args.html is None:
        raise BadInput(
            english("--force has no effect without -o or --html."), fix=english("add -o DIR, or leave it out")
        )


def _repaired(args: argparse.Namespace, outcome: "DiagnosisOutcome", terminal: Terminal) -> "DiagnosisOutcome":
    """Tell and write what was found, so that nothing is lost whatever becomes of the repair; then repair it."""
    from roundoff.diagnosis.page import verdict_line

    def trial_ended(trial: "Trial", best: "Trial", name: str) -> None:
        from roundoff.search.page import trial_line

        terminal.passing(trial_line(trial, best, name))

    unrepaired = argparse.Namespace(**{**vars(args), "fix": False})
    first = outcome.telling(next_steps=tuple(_next_steps(unrepaired, outcome.result)))
    first.save(args.output, force=args.force)
    # From here on what is replaced is our own.
    args.force = True
    write_html(args, first.document)
    terminal.passing(verdict_line(outcome.result))
    try:
        return outcome.fix(
            dialect=args.dialect,
            test_data=args.test_data,
            test_labels=args.test_labels,
            on_trial=trial_ended,
            tell=terminal.passing,
        )
    except (RoundoffError, KeyboardInterrupt):
        _print(args, terminal, first)
        raise


def _print(args: argparse.Namespace, terminal: Terminal, outcome: "DiagnosisOutcome") -> None:
    from roundoff.core.document import to_json
    from roundoff.diagnosis.page import diagnosis_page

    if args.json:
        terminal.text(to_json(outcome.document))
    else:
        print_page(terminal, diagnosis_page(outcome.document))


_SORTED_ROWS = 8


def _rows(text: str) -> int | None:
    return None if text == "all" else whole_number(text, "{text!r} is neither a number nor 'all'", least=0)


@command(
    opt("reference REFERENCE", "tensors, or a model to run on --data", type=Path),
    opt("candidate CANDIDATE", "tensors, or a model to run on --data", type=Path),
    DATA,
    group(
        "matching",
        opt("--reference-format NAME", "format of REFERENCE (default: recognised)"),
        opt("--candidate-format NAME", "format of CANDIDATE (default: recognised)"),
        opt("--format NAME", "format of both: npy, npz, bin, safetensors, ... (default: recognised)"),
        opt(
            "--model FILE",
            "the reference's model, when REFERENCE is a dump: gives order, shapes, culprits and victims",
        ),
        opt("--aliases FILE", "JSON or CSV: reference name, candidate name"),
        opt("--no-value-matching", "match by names only"),
        opt("--run NAME", "of several runs in CANDIDATE (default: one that is not the golden copy)"),
        opt("--reference-run NAME", "of several runs in REFERENCE (default: the golden copy)"),
        about="Which tensor is which.",
    ),
    group(
        "judging",
        one_of(
            opt("--threshold METRIC=LIMIT,...", "what every tensor must keep, e.g. cosine=0.99,rmse=1"),
            opt("--profile NAME", "named thresholds (ascend, axera, horizon, rknn, ...)"),
        ),
        opt("--channel-axis N", "axis of the channels (default: 1; last of 3)", type=int),
    ),
    group(
        "output",
        opt("--sort", "order of the table", choices=("order", "worst"), default="order"),
        opt("--rows N|all", "rows of the table shown, failing ones first (default: none)", type=_rows, default=0),
        one_of(JSON, opt("--csv", "print CSV instead of the table")),
        HTML,
        opt("--junit FILE", "also write JUnit XML"),
        opt("-o --output DIR", "write run.json and tensors.csv to DIR"),
        FORCE,
    ),
    group(
        "running models",
        opt("--max-memory SIZE", "memory the tensors may take, e.g. 2GB"),
        opt("--threads N", "threads per node (default: all cores; 1 where nodes compute little)", type=threads),
    ),
)
def compare(args: argparse.Namespace, terminal: Terminal) -> int:
    """Compare two sets of tensors: say which differ, how, and where it started.

    Each side is a folder of .npy files, an .npz, raw .bin with a manifest, a
    safetensors file, or a model (.onnx, .prototxt), which is then run on --data
    with graph optimization off. The reference comes first; its names are used
    throughout.

    Verdicts: PASS, FAIL, INCOMPLETE (nothing that was judged fails, but not every
    output of the network was judged), NOT ENOUGH EVIDENCE (samples that can show
    no fault). Exit code 0 when it passes, 1 otherwise.
    """
    from roundoff.api.comparison import compare
    from roundoff.pages.blocks import View
    from roundoff.report.junit import comparison_junit
    from roundoff.report.pages import run_files
    from roundoff.studies.compare.page import comparison_page

    check_results(args)
    outcome = compare(**given(args, terminal))
    document, found = outcome.document, outcome.result
    table = run_files(document)["tensors.csv"] if args.csv else None
    # A tensor fails or was not judged, or passes with a remark.
    is_open = found.state != "pass" or any(row.difference for row in found.rows)
    steps = _after_comparison(args) if is_open and table is None else []
    # Who asks for an order wants to see a table.
    rows = _SORTED_ROWS if args.sort == "worst" and args.rows == 0 else args.rows
    if is_open and table is None and rows == 0:
        again = ["--force"] if (args.output or args.html or args.junit) and not args.force else []
        steps.append(shlex.join(["roundoff", *args.words, "--rows", "all", *again]))
    page = comparison_page(document, View(rows, args.sort)) if table is None else table
    then = next_commands(page, translate("compare.next"), steps)
    junit = {} if args.junit is None else {args.junit: comparison_junit(found)}
    show(args, terminal, document, (page, then), also=junit)
    return int(outcome.exit_code)


# Commands that lead on ----------------------------------------------------------------------------------------

# Where a run goes that has no folder yet.
_REPAIRED, _RUN = "repaired", "run"
# What only the user has: samples that neither calibrated the model nor chose its remedies.
_HELD_OUT, _HELD_OUT_LABELS = "HELD_OUT", "HELD_OUT_LABELS"


def _next_steps(args: argparse.Namespace, found: "Diagnosis") -> list[str]:
    """What to type next; nothing where there is nothing to do."""
    from roundoff.diagnosis.result import is_unexplained

    if args.dumps is not None:
        folder = str(args.output or _RUN)
        # Of dumps there is no bundle.
        told = _passing_on(found, folder)[:1]
        again = ["--force"] if args.html is not None and not args.force else []
        first = [["diagnose", *args.words[1:], "-o", folder, *again]] if told and args.output is None else []
        return [*_device_next_steps(args, found), *(shlex.join(["roundoff", *words]) for words in (*first, *told))]
    data = said_options(args, DATA)
    model = [] if args.model is None else [str(args.model)]
    if args.target is None:
        given = ["--quantized", str(args.quantized)]
    else:
        given = ["--target", args.target, *said_options(args, QUANTIZATION)]
    again = ["diagnose", *model, *data, *given, *_judge(args)]
    found_in = str(args.output or _REPAIRED)
    steps: list[list[str]] = []
    if found.repair is not None and any(step.kept for step in found.repair.steps):
        steps = _after_repair(args, found_in, data)[1 if found.repair.reached else 0 :]
    elif found.kind == "not_enough_evidence" and found.not_looked_at:
        steps = [[*again, *(["--fix", "-o", found_in, "--force"] if args.fix else [])]]
    elif (found.kind in ("culprits", "distributed") or is_unexplained(found)) and not args.fix:
        steps = [
            [*again, "--fix", "-o", found_in, *(["--force"] if args.output else [])],
            ["layers", *model, *data, *given],
        ]
    elif found.kind == "distributed" or (found.kind == "elsewhere" and args.target and _judge(args)):
        steps = [["tune", *model, *data, "--target", args.target or "TARGET", *_judge(args), "-o", "tuned"]]
    elif found.kind == "culprits":
        tensors = [name for each in found.accused for name in each.tensors[:1]]
        steps = [["distribution", *model, *tensors[:1], *data, *given]]
    elif found.kind == "not_enough_evidence":
        steps = [["layers", *model, *data, *given]]
    # A ticket holds the case, too.
    passing = _passing_on(found, found_in)[1 if found.repair is not None else 0 :]
    return [shlex.join(["roundoff", *words]) for words in (*steps, *passing)]


def _after_comparison(args: argparse.Namespace) -> list[str]:
    """How to find out what is wrong on a device whose tensors differ from those of a model; else nothing."""
    model = args.reference if is_model(args.reference) else args.model
    if model is None or is_model(args.candidate):
        return []
    data = said_options(args, DATA) or ["--data", "SAMPLES"]
    chosen = args.candidate_format or args.format
    known = ["--dump-format", chosen] if chosen else []
    known += [] if args.aliases is None else ["--aliases", str(args.aliases)]
    known += [] if args.run is None else ["--run", args.run]
    return [shlex.join(["roundoff", "diagnose", str(model), *data, "--dumps", str(args.candidate), *known])]


def _after_repair(args: argparse.Namespace, run: str, data: list[str]) -> list[list[str]]:
    """What is left to do with a repaired model: see it on other samples, then tell the tool that builds it."""
    # Scales belong to the float model that was written with them.
    written = Path(run) / f"{model_stem(args.model or args.quantized)}_float_model.onnx"
    others = [
        _held_out(word) if is_option(before, ["--data"]) else word
        for before, word in zip(["-", *data], data, strict=False)
    ]
    judge = ["--labels", _HELD_OUT_LABELS] if args.labels is not None else _judge(args)
    steps = [["diagnose", str(written), *others, "--quantized", run, *judge]]
    if args.dialect is None:
        steps.append(["export-settings", run, "--dialect", "all", "-o", "settings"])
    return steps


def _held_out(given: str) -> str:
    """Other samples in place of these, which may be those of one input."""
    name, equals, _ = given.partition("=")
    return f"{name}={_HELD_OUT}" if equals else _HELD_OUT


def _passing_on(found: "Diagnosis", run: str) -> list[list[str]]:
    """Commands that make something of a finding for others, once the run is in its folder.

    Args:
        found: The diagnosis.
        run: The folder.
    """
    number = next((each.number for each in found.accused if each.nodes or each.tensors), None)
    if found.kind != "culprits" or number is None:
        return []
    return [
        ["reproduce", run, "--finding", str(number), "-o", "case"],
        ["bundle", run, "-o", "ticket.zip"],
    ]


def _judge(args: argparse.Namespace) -> list[str]:
    """The user's metric."""
    given = (("--evaluator", args.evaluator), ("--labels", args.labels))
    return [word for option, path in given if path is not None for word in (option, str(path))]


def _device_next_steps(args: argparse.Namespace, found: "Diagnosis") -> list[str]:
    """Commands that lead on from what was found on a device."""
    data = " ".join(f"--data {shlex.quote(text)}" for text in args.data or ())
    model = "" if args.model is None else f"{shlex.quote(str(args.model))} "
    if found.kind == "elsewhere":
        given = "TARGET" if args.quantized is None else shlex.quote(str(args.quantized))
        option = "--target" if args.quantized is None else "--quantized"
        return [f"roundoff diagnose {model}{data} {option} {given}"]
    if any(each.cause == "preprocessing" for each in found.accused):
        return ["roundoff check-io --preprocessed TRAINING DEPLOYED"]
    if found.kind == "not_enough_evidence":
        return [f"roundoff compare {model}{shlex.quote(str(args.dumps))} {data}"]
    return []
