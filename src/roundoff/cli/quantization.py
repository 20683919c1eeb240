"""The commands that make quantized models, or settings for the tools that make them."""

import argparse
import shlex
from collections.abc import Callable
from typing import TYPE_CHECKING

from roundoff.cli.options import (
    DASK,
    DATA,
    EVALUATOR,
    FLOAT_MODEL,
    LABELS,
    LIMITS,
    QUANTIZATION,
    RESULT_DIR,
    THREADS,
    a_number,
    command,
    given,
    group,
    how_to_quantize,
    one_of,
    opt,
    positive,
    refused,
    said_options,
    target,
)
from roundoff.cli.results import (
    DIALECT_HELP,
    HTML,
    JSON,
    check_results,
    next_commands,
    print_page,
    print_settings,
    write_html,
)
from roundoff.cli.terminal import Terminal
from roundoff.core.files import model_files
from roundoff.errors import EXIT_OK
from roundoff.messages.catalogue import translate
from roundoff.messages.message import english

if TYPE_CHECKING:
    from roundoff.api.search import TuneOutcome
    from roundoff.quantize.pipeline import Quantization
    from roundoff.search.result import Trial
    from roundoff.vendors.dialects.settings import ToolSettings

_REPLACE = opt("--force", "replace what an earlier run wrote to DIR")


@command(
    FLOAT_MODEL,
    RESULT_DIR,
    target(),
    QUANTIZATION,
    opt("--prefix NAME", "start of the models' names (default: that of MODEL)"),
    opt(
        "--statistics FILE",
        "take what an earlier run observed (its calibration.npz); --data then only serves to compare outputs",
    ),
    _REPLACE,
    opt("--json", "print the plan and the figures as JSON"),
    opt("--max-memory SIZE", "memory to stay within, e.g. 2GiB"),
    THREADS,
    DASK,
    DATA,
)
def quantize(args: argparse.Namespace, terminal: Terminal) -> int:
    """Quantize a float model the way a chip's toolchain would.

    Batch normalization is folded, every tensor gets a place in the target's
    number formats, ranges are observed on --data, and DIR receives a model with
    quantize-dequantize pairs that runs in onnxruntime, a model with integer
    weights, plan.json with all decisions and scales, and the statistics, from
    which another plan can be made without running the model again.
    """
    from roundoff.api.quantization import file_prefix, quantize
    from roundoff.core.files import check_output_directory
    from roundoff.measure.verdicts import usual_limits
    from roundoff.messages.catalogue import plain
    from roundoff.quantize.page import quantization_page
    from roundoff.quantize.plan_file import PLAN_NAME

    file_prefix(args.model, args.prefix)
    check_output_directory(args.output, marker=PLAN_NAME, force=args.force)
    outcome = quantize(**given(args, terminal))
    outcome.save(args.output, prefix=args.prefix, force=args.force)
    if args.json:
        terminal.text(_quantization_json(outcome.result))
    else:
        words = ["layers", str(args.model), "--quantized", str(args.output), *said_options(args, DATA)]
        advice = plain(shlex.join(["roundoff", *words]))
        name = model_files(args.model)[0].name
        print_page(terminal, quantization_page(outcome.result, usual_limits(), model=name, advice=advice))
    terminal.written([args.output])
    return outcome.exit_code


def _quantization_json(result: "Quantization") -> str:
    from roundoff.core.document import json_text

    best = result.best
    content = {
        "target": result.target.name,
        "method": best.method,
        "samples": result.calibration.samples,
        "judgement": None if best.judged is None else best.judged.judgement,
        "outputs": {trial.method: trial.agreement for trial in result.trials},
        "nodes": best.plan.nodes,
        "rules": best.plan.resolutions,
        "notes": result.notes,
    }
    return json_text(content)


@command(
    opt("steps STEPS", "what to do, e.g. equalize,bias-correct"),
    FLOAT_MODEL,
    RESULT_DIR,
    target(),
    opt(
        "--option KEY=VALUE",
        "option of a step, e.g. alpha=0.7; STEP.KEY=VALUE for one step alone; may be repeated",
        action="append",
        default=[],
    ),
    opt("--nodes NAME...", "limit the steps to these nodes", default=[]),
    _REPLACE,
    JSON,
    HTML,
    opt("--rows N|all", "nodes to show of each step (default: 10)", default=10),
    group(
        "judging",
        opt("--test PATH", "other samples to judge on, read like --data (default: a third of those)", type=str),
        one_of(opt("--labels FILE", "right classes of these samples: .npy or CSV"), EVALUATOR),
    ),
    QUANTIZATION,
    LIMITS,
    DATA,
)
def transform(args: argparse.Namespace, terminal: Terminal) -> int:
    """Change a model so that it quantizes better, and prove that it does.

    STEPS is one or several of these, with commas between, in this order:

      smooth         move outliers of activations into weights (SmoothQuant)
      equalize       share out ranges of channels between neighbouring layers
      explicit-bias  give layers without a bias one of zeros
      round          round weights up or down by what their layers compute
      bias-correct   put into biases by how much rounding moves means

    The first three change the float model, not what it computes: its outputs are
    compared, and a change that shows is undone. The others change codes alone.
    The model is quantized before and after, with the same settings; if it gets
    worse, all is undone and the exit code is 1. DIR receives the float model, the
    quantized ones and a run document.
    """
    from roundoff.api.quantization import transform
    from roundoff.core.document import to_json
    from roundoff.pages.blocks import View
    from roundoff.studies.transform.page import transform_page

    check_results(args)
    outcome = transform(**given(args, terminal))
    outcome.save(args.output, force=args.force)
    if args.json:
        terminal.text(to_json(outcome.document))
    elif (page := transform_page(outcome.document, View(args.rows))) is not None:
        print_page(terminal, page)
        file = str(args.output / outcome.fake_quant_name)
        step = shlex.join(["roundoff", "layers", "--quantized", file, *said_options(args, DATA)])
        print_page(terminal, next_commands(page, translate("transform.next"), [step]))
    terminal.written([args.output, *write_html(args, outcome.document)])
    return outcome.exit_code


def _finite(text: str) -> float:
    return a_number(text, "{text!r} is not a number")


def _cost(text: str) -> float:
    if (number := _finite(text)) < 1:
        raise refused("{text} is less than plain int8 costs, which is 1", text=text)
    return number


def _share(text: str) -> float:
    number = _finite(text.strip().removesuffix("%")) / (100 if text.strip().endswith("%") else 1)
    if not 0 <= number < 1:
        raise refused("{text!r} is not a share between 0 and 1; write it as in 0.2", text=text)
    return number


@command(
    FLOAT_MODEL,
    RESULT_DIR,
    target("the chip, as listed by 'roundoff targets', or a .toml file"),
    group(
        "goal",
        one_of(opt("--evaluator FILE", "a Python file that measures a model"), LABELS),
        one_of(
            opt("--max-drop 1%|X", "what may be lost: a share of the float metric, or X of it (default: 1%%)"),
            opt("--min-metric X", "the metric to reach, instead", type=_finite),
        ),
        opt("--max-cost R", "most that it may cost, plain int8 being 1", type=_cost),
        opt("--cost FILE", "what work costs, as a target's [cost] in .toml"),
    ),
    group(
        "search",
        opt(
            "--strategy NAME|FILE", "greedy (default), bisect, pareto, pulsar2, or a Python file", default="greedy"
        ),
        opt(
            "--sensitivity NAME|FILE",
            "what nodes are ranked by: sqnr_db (default), cosine, mse, or a Python file with compare(a, b)",
            default="sqnr_db",
        ),
        opt("--local", "rank nodes by their own results, as vendors' tools do, not the model's"),
        opt("--time TIME", "begin no trial after it, as 90s, 30m or 2h"),
        opt("--max-trials N", "try at most so many recipes", type=positive),
        DASK,
        opt("--resume", "go on with the search in DIR"),
        opt("--force", "remove an earlier search in DIR and begin anew"),
        opt("--dialect NAME,...", DIALECT_HELP),
        JSON,
        HTML,
    ),
    group(
        "more samples",
        opt("--eval-data PATH|INPUT=PATH", "to measure on (default: --data)", action="append"),
        opt("--eval-samples N", "measure on the first N of them", type=positive),
        one_of(
            opt("--holdout 20%", "keep so many of them from the search; a third by default", type=_share),
            opt("--test-data PATH|INPUT=PATH", "to test the answer on", action="append"),
        ),
        opt("--test-labels FILE", "right classes of --test-data"),
        about="Read like those of --data.",
    ),
    how_to_quantize("Where the search begins."),
    LIMITS,
    DATA,
)
def tune(args: argparse.Namespace, terminal: Terminal) -> int:
    """Search for the cheapest quantized model that meets an accuracy goal.

    Plain quantization is tried first; if it is good enough, nothing is changed.
    Then come levers that cost nothing on the chip (other ranges, bias correction,
    equalization, smoothing, ...), then 16-bit activations, then float for the
    nodes that matter most; what is not needed is given back. Ranges are observed
    once. Kill it at any time: --resume goes on, and DIR/best holds the best model
    so far. Exit code 1 when the goal is not met; the best found is delivered.

    An evaluator is a Python file with evaluate(run, samples), which returns a
    number, or one per sample (fewer samples then decide a trial); or with
    evaluate(model) of a path, and perhaps metric_eval(original, new), which
    returns whether that is good enough and the loss. Without --data its
    calibration(model) is called, and what that feeds the model is taken instead.
    Without an evaluator and --labels, outputs are compared with those in float.
    """
    from roundoff.api.search import tune

    # What is in DIR already is the search's to judge.
    check_results(argparse.Namespace(**{**vars(args), "output": None}))
    said = given(args, terminal, "output", "force")
    try:
        outcome = tune(**said, on_trial=_teller(args, terminal), tell=terminal.remark)
    except KeyboardInterrupt:
        terminal.finish()
        if args.output.is_dir():
            terminal.remark(translate("search.resume", folder=args.output))
        raise
    written = [*outcome.written, *write_html(args, outcome.document)]
    _print_search(args, terminal, outcome)
    terminal.written(written)
    return outcome.exit_code


def _teller(args: argparse.Namespace, terminal: Terminal) -> "Callable[[Trial, Trial, str], None]":
    """Tells of each trial in a line, so that a long search can be watched, and how long it may still take."""
    from roundoff.messages.catalogue import semicolons
    from roundoff.messages.numbers import TimeLeft, duration_text
    from roundoff.search.page import trial_line

    left = TimeLeft(args.max_trials, args.time)

    def tell(trial: "Trial", best: "Trial", metric: str) -> None:
        seconds = left.step(trial.number)
        most = "" if seconds is None else translate("search.time_left", time=duration_text(seconds))
        terminal.note(semicolons(trial_line(trial, best, metric), most))

    return tell


def _print_search(args: argparse.Namespace, terminal: Terminal, outcome: "TuneOutcome") -> None:
    from roundoff.core.document import to_json
    from roundoff.search.page import tuning_page

    if args.json:
        terminal.text(to_json(outcome.document))
    elif (page := tuning_page(outcome.document)) is not None:
        print_page(terminal, page)
        if outcome.tool_settings is not None:
            print_settings(terminal, outcome.tool_settings, args.output)


@command(
    opt("target TARGET?", "name of a target, or path of a TOML file, to show whole"),
    opt("--json", "print the targets as JSON"),
)
def targets(args: argparse.Namespace, terminal: Terminal) -> int:
    """List the targets, or show everything about one.

    A target says what a chip can do: bit widths, scales, rounding, what it
    computes as one and what it cannot compute in integers. Each is a TOML file;
    --target takes the name of a shipped one or the path of your own.
    """
    from roundoff.api.quantization import targets
    from roundoff.quantize.page import targets_json

    outcome = targets(args.target)
    if args.json:
        terminal.text(targets_json(outcome.result))
    else:
        print_page(terminal, outcome.page)
    return EXIT_OK


@command(
    opt("source RUN", "a folder that quantize, tune or diagnose --fix wrote, or a quantized .onnx"),
    opt("--model FLOAT", "the float model it was made from (default: where plan.json says)"),
    opt("--dialect NAME,...", DIALECT_HELP, required=True),
    opt("-o --output DIR", "where the files go", required=True),
    _REPLACE,
    opt("--json", "print what was written, as JSON"),
)
def export_settings(args: argparse.Namespace, terminal: Terminal) -> int:
    """Write what a quantization decided as settings of other tools.

    RUN is a folder that quantize, tune or diagnose --fix wrote, or a quantized
    model of any tool. Each dialect gets the files its tool reads: which nodes stay
    in float, which get 16 bits and, where the tool takes them, the scale of every
    tensor. What a tool cannot be told is listed, never left out silently.
    """
    from roundoff.api.quantization import export_settings
    from roundoff.core.document import json_text
    from roundoff.core.files import check_output_directory
    from roundoff.vendors.dialects import find_dialects
    from roundoff.vendors.dialects.settings import SETTINGS_NAME

    find_dialects(args.dialect)
    check_output_directory(args.output, marker=SETTINGS_NAME, force=args.force)
    outcome = export_settings(**given(args), tell=terminal.note)
    outcome.save(args.output, force=args.force)
    if args.json:
        terminal.text(json_text(outcome.result.record))
    else:
        _print_export(args, terminal, outcome.result, model_name=outcome.model_name)
    terminal.written([args.output])
    return outcome.exit_code


def _print_export(
    args: argparse.Namespace, terminal: Terminal, settings: "ToolSettings", *, model_name: str
) -> None:
    from roundoff.messages.message import sanitize_for_display
    from roundoff.pages.terminal import verdict_page

    lines = list(sanitize_for_display(tuple(settings.lines())))
    if model_name:
        whose = english("{model}: the float model that names and scales belong to", model=model_name)
        lines.append((english("model"), whose))
    if settings.texts:
        text = english(": settings {count} in {folder}", count=settings.count, folder=args.output)
        page = verdict_page(english("WRITTEN"), text, lines)
    else:
        text = english(": nothing that can be told differs from defaults")
        page = verdict_page(english("NO SETTINGS"), text, lines, tone="open")
    terminal.print(page)
