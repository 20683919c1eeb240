"""Search for the cheapest quantized model that meets an accuracy goal.

Plain quantization is tried first; if it is good enough, nothing is changed.
Then come options that cost nothing on the chip (other ranges, bias correction,
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

import argparse
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from roundoff.cli.data_options import add_data_options
from roundoff.cli.html_option import add_html_option, check_html, write_html
from roundoff.cli.inspection_options import add_limits
from roundoff.cli.quantize_options import add_quantize_options, settings_from
from roundoff.cli.settings_files import DIALECT_HELP, print_settings
from roundoff.cli.terminal import Terminal
from roundoff.cli.tune_data import with_data
from roundoff.cli.values import positive, seconds
from roundoff.core.files import model_stem
from roundoff.errors import EXIT_OK, EXIT_THRESHOLD_MISSED, BadInput, RoundoffError
from roundoff.messages.catalogue import told

if TYPE_CHECKING:
    from roundoff.cli.settings_files import Settings
    from roundoff.core.document import RunDocument
    from roundoff.graph.load import Model
    from roundoff.quantize.recipes import Built
    from roundoff.search.result import Trial, Tuning
    from roundoff.search.settings import TuneSettings
    from roundoff.search.strategies.strategy import Strategy

SUMMARY = "search for the cheapest quantized model that meets a goal"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's options."""
    what = "the float model: .onnx, or .prototxt[,.caffemodel] of Caffe"
    parser.add_argument("model", type=Path, metavar="MODEL", help=what)
    parser.add_argument("-o", "--output", type=Path, required=True, metavar="DIR", help="where the results go")
    parser.add_argument(
        "--target",
        required=True,
        metavar="NAME|FILE",
        help="the chip, as listed by 'roundoff targets', or a .toml file",
    )
    goal = parser.add_argument_group("goal")
    judge = goal.add_mutually_exclusive_group()
    judge.add_argument("--evaluator", type=Path, metavar="FILE", help="a Python file that measures a model")
    judge.add_argument(
        "--labels", type=Path, metavar="FILE", help="right classes as .npy or CSV: measure accuracy"
    )
    much = goal.add_mutually_exclusive_group()
    much.add_argument(
        "--max-drop",
        metavar="1%|X",
        help="what may be lost: a share of the float metric, or X of it (default: 1%%)",
    )
    much.add_argument("--min-metric", type=_finite, metavar="X", help="the metric to reach, instead")
    goal.add_argument("--max-cost", type=_cost, metavar="R", help="most that it may cost, plain int8 being 1")
    goal.add_argument("--cost", type=Path, metavar="FILE", help="what work costs, as a target's [cost] in .toml")
    effort = parser.add_argument_group("search")
    effort.add_argument(
        "--strategy",
        default="greedy",
        metavar="NAME|FILE",
        help="greedy (default), bisect, pareto, pulsar2, or a Python file",
    )
    effort.add_argument(
        "--sensitivity",
        default="sqnr_db",
        metavar="NAME|FILE",
        help="what nodes are ranked by: sqnr_db (default), cosine, mse, or a Python file with compare(a, b)",
    )
    effort.add_argument(
        "--local",
        action="store_true",
        help="rank nodes by their own results, as vendors' tools do, not the model's",
    )
    effort.add_argument("--time", type=seconds, metavar="TIME", help="begin no trial after it, as 90s, 30m or 2h")
    effort.add_argument("--max-trials", type=positive, metavar="N", help="try at most so many recipes")
    effort.add_argument("--resume", action="store_true", help="go on with the search in DIR")
    effort.add_argument("--force", action="store_true", help="remove an earlier search in DIR and begin anew")
    effort.add_argument("--dialect", metavar="NAME,...", help=DIALECT_HELP)
    effort.add_argument("--json", action="store_true", help="print the run document instead of the table")
    add_html_option(effort)
    more = parser.add_argument_group("more samples", "Read like those of --data.")
    more.add_argument(
        "--eval-data", action="append", metavar="PATH|INPUT=PATH", help="to measure on (default: --data)"
    )
    more.add_argument("--eval-samples", type=positive, metavar="N", help="measure on the first N of them")
    unseen = more.add_mutually_exclusive_group()
    unseen.add_argument(
        "--holdout", type=_share, default=0.0, metavar="20%", help="keep so many of them from the search"
    )
    unseen.add_argument("--test-data", action="append", metavar="PATH|INPUT=PATH", help="to test the answer on")
    more.add_argument("--test-labels", type=Path, metavar="FILE", help="right classes of --test-data")
    add_quantize_options(parser, title="Where the search begins.")
    add_limits(parser)
    add_data_options(parser)


def run(args: argparse.Namespace, terminal: Terminal) -> int:
    """Search, write, print."""
    from roundoff import __version__
    from roundoff.cli.provenance import input_file
    from roundoff.graph.load import load_model
    from roundoff.report.run_directory import run_files
    from roundoff.search.delivery import Delivery, discard_folder, open_folder
    from roundoff.search.evaluators import FedSamples
    from roundoff.search.settings import TuneStore
    from roundoff.search.tune import tune

    started = time.monotonic()
    _check(args)
    settings = _settings(args)
    model = load_model(args.model)
    settings, data = with_data(args, settings, model)
    origin = input_file("model", args.model)
    facts = dict(_facts(args, settings, __version__))
    if isinstance(data.calibration, FedSamples):
        facts["what calibration() feeds"] = data.calibration.digest
    again = open_folder(args.output, resume=args.resume, force=args.force)
    if args.resume and not again:
        terminal.remark(told("tuning_text.begins", folder=args.output))
    delivery = Delivery(
        args.output, model_stem(args.model), str(args.model), origin.sha256, settings.target, __version__
    )
    try:
        keeping = TuneStore(args.output, facts, delivery.best_so_far, _teller(args, terminal))
        found = tune(model, data, settings, keeping=keeping, progress=terminal)
    except RoundoffError:
        if not again:
            discard_folder(args.output)
        raise
    except KeyboardInterrupt:
        terminal.finish()
        terminal.remark(told("tuning_text.resume", folder=args.output))
        raise
    document = _document(args, model, found.tuning, elapsed_s=time.monotonic() - started)
    files = run_files(document)
    dialects = _dialects(args, model, found.built)
    written = [
        *delivery.final(found.built, {**files, **({} if dialects is None else dialects.files())}),
        *_write_graph(args, dialects, found.built),
        *write_html(args, document),
    ]
    _print(args, terminal, found.tuning, files, settings=dialects)
    terminal.written(written)
    return EXIT_THRESHOLD_MISSED if found.tuning.verdict == "best_effort" else EXIT_OK


def _dialects(args: argparse.Namespace, model: "Model", built: "Built") -> "Settings | None":
    """The answer in the words of other tools."""
    from roundoff.cli.settings_files import float_model_name, settings_for
    from roundoff.vendors.dialects.decisions import Made, decisions_of
    from roundoff.vendors.dialects.registry import find_dialects

    if args.dialect is None:
        return None
    stem = model_stem(args.model)
    made = Made.by_plan(
        built.plan,
        stem=stem,
        method=built.recipe.method,
        samples=built.calibration.samples,
        graph=float_model_name(stem, model, built.quantized.float_model),
    )
    return settings_for(decisions_of(built.quantized, made), find_dialects(args.dialect), given=model)


def _write_graph(args: argparse.Namespace, settings: "Settings | None", built: "Built") -> "tuple[Path, ...]":
    """The float model that settings belong to, where it is another than the user's and is not there already."""
    from roundoff.graph.save import save_model

    if settings is None or not settings.graph or built.recipe.transforms:
        return ()
    save_model(built.quantized.float_model, args.output / settings.graph, replace=True)
    return (args.output / settings.graph,)


def _teller(args: argparse.Namespace, terminal: Terminal) -> "Callable[[Trial, Trial, str], None]":
    """Tells of each trial in a line, so that a long search can be watched, and how long it may still take."""
    from roundoff.messages.numbers import TimeLeft, duration_text
    from roundoff.messages.phrases import semicolons
    from roundoff.search.terminal import trial_line

    left = TimeLeft(args.max_trials, args.time)

    def tell(trial: "Trial", best: "Trial", metric: str) -> None:
        seconds = left.step(trial.number)
        most = "" if seconds is None else told("tuning_text.time_left", time=duration_text(seconds))
        terminal.note(semicolons(trial_line(trial, best, metric), most))

    return tell


def _check(args: argparse.Namespace) -> None:
    """Refuse options that contradict each other, or would have no effect."""
    from roundoff.core.files import regular_file

    check_html(args)
    if args.dialect is not None:
        from roundoff.vendors.dialects.registry import find_dialects

        find_dialects(args.dialect)
    for option, path in (("The labels", args.labels), ("The labels", args.test_labels)):
        if path is not None:
            regular_file(path, what=option)
    if args.resume and args.force:
        raise BadInput("--resume goes on with a search, --force removes it.", fix="leave one of them out")
    if args.test_labels is not None and not args.test_data:
        raise BadInput("--test-labels has no effect without --test-data.", fix="add --test-data, or leave it out")
    if args.test_labels is not None and args.evaluator is not None:
        what = "--test-labels has no effect with --evaluator, which measures on --test-data, too."
        raise BadInput(what, fix="leave it out")
    if args.test_data and (args.labels is None) != (args.test_labels is None):
        raise BadInput("Only one of --labels and --test-labels was given.", fix="give both, or none")
    if args.calibration and "," in args.calibration:
        what = f"--calibration {args.calibration} names several methods; the search tries the others by itself."
        raise BadInput(what, fix="name the one to begin with, or leave it out")


def _settings(args: argparse.Namespace) -> "TuneSettings":
    from roundoff.core.plan import Recipe
    from roundoff.search.cost import load_costs
    from roundoff.search.judge_options import JudgeOptions
    from roundoff.search.settings import TuneSettings

    quantize = settings_from(args)
    method = quantize.methods[0] if quantize.methods else ""
    return TuneSettings(
        target=quantize.target,
        base=Recipe(method=method, weight_method=quantize.weight_method, rules=quantize.rules),
        options=quantize.options,
        strategy=_strategy(args.strategy),
        judge=JudgeOptions(evaluator=args.evaluator, threads=args.threads),
        max_drop=args.max_drop or "",
        min_metric=args.min_metric,
        max_cost=args.max_cost,
        costs=None if args.cost is None else load_costs(args.cost),
        max_trials=args.max_trials,
        time_s=args.time,
        holdout=args.holdout,
        sensitivity=_sensitivity(args.sensitivity),
        local=args.local,
        threads=args.threads,
        max_memory=args.max_memory,
    )


def _strategy(text: str) -> "Strategy":
    from roundoff.errors import nearest
    from roundoff.search.strategies import STRATEGIES
    from roundoff.search.strategies.strategy import load_strategy

    if text in STRATEGIES:
        return STRATEGIES[text]
    if text.endswith(".py") or Path(text).is_file():
        return load_strategy(Path(text))
    raise BadInput(f"There is no strategy {text!r}.", fix=f"{nearest(text, STRATEGIES)}; or give a Python file")


def _sensitivity(text: str) -> Any:
    from roundoff.errors import nearest
    from roundoff.search.ranking import SENSITIVITIES
    from roundoff.studies.sensitivity.functions import load_sensitivity

    if text in SENSITIVITIES:
        return text
    if text.endswith(".py") or Path(text).is_file():
        return load_sensitivity(Path(text))
    raise BadInput(
        f"There is no sensitivity {text!r}.", fix=f"{nearest(text, SENSITIVITIES)}; or give a Python file"
    )


def _files(args: argparse.Namespace) -> Iterator[tuple[str, Path]]:
    """Files and folders that are read, by the option that names them."""
    yield "the model", args.model
    lists = {"--data": args.data, "--eval-data": args.eval_data, "--test-data": args.test_data}
    for option, texts in lists.items():
        for text in texts or ():
            path = Path(text)
            yield option, path if path.exists() else Path(text.partition("=")[2])
    single = {"evaluator": args.evaluator, "labels": args.labels, "test_labels": args.test_labels}
    single |= {"cost": args.cost, "rules": args.rules}
    named = {name: Path(getattr(args, name)) for name in ("target", "strategy", "sensitivity")}
    single |= {name: path for name, path in named.items() if path.is_file()}
    for name, path in single.items():
        if path is not None:
            yield f"--{name.replace('_', '-')}", path


def _facts(args: argparse.Namespace, settings: "TuneSettings", version: str) -> Iterator[tuple[str, str]]:
    """Everything that results depend on, by the name under which a user knows it."""
    import json
    from dataclasses import asdict
    from importlib import metadata

    from roundoff.cli.data_options import add_data_options
    from roundoff.cli.provenance import input_file
    from roundoff.search.journal import recipe_json

    files: dict[str, str] = {}
    for option, path in _files(args):
        files[option] = files.get(option, "") + input_file(option, path).sha256
    yield from files.items()
    yield "the target", json.dumps(asdict(settings.target), default=sorted, sort_keys=True)
    yield "what the search begins with", recipe_json(settings.base) + repr(sorted(settings.options.items()))
    for name in (
        "max_drop",
        "min_metric",
        "max_cost",
        "holdout",
        "eval_samples",
        "strategy",
        "sensitivity",
        "local",
    ):
        yield f"--{name.replace('_', '-')}", str(getattr(args, name))
    reader = argparse.ArgumentParser(add_help=False)
    add_data_options(reader)
    for name in vars(reader.parse_args([])):
        if name != "data":
            yield f"--{name.replace('_', '-')}", str(getattr(args, name))
    packages = {name: metadata.version(name) for name in ("numpy", "onnx", "onnxruntime")}
    yield "the version of roundoff or its packages", f"{version} {packages}"


def _document(args: argparse.Namespace, model: "Model", found: "Tuning", *, elapsed_s: float) -> "RunDocument":
    from roundoff.cli.provenance import environment, input_file
    from roundoff.core.document import SCHEMA, RunDocument
    from roundoff.graph.interface import topology

    read = tuple(input_file(option.removeprefix("the ").strip("-"), path) for option, path in _files(args))
    return RunDocument(
        schema=SCHEMA,
        command=("roundoff", *args.words),
        inputs=read,
        network=topology(model),
        environment=environment(elapsed_s),
        tuning=found,
    )


def _print(
    args: argparse.Namespace,
    terminal: Terminal,
    found: "Tuning",
    files: dict[str, str],
    *,
    settings: "Settings | None",
) -> None:
    from roundoff.core.document import DOCUMENT_NAME
    from roundoff.search.terminal import tuning_table, tuning_verdict

    if args.json:
        terminal.text(files[DOCUMENT_NAME])
        return
    terminal.print(tuning_verdict(found))
    terminal.text("")
    terminal.print(tuning_table(found))
    if settings is not None:
        print_settings(terminal, settings, args.output)
    for note in found.notes:
        terminal.remark(note)


def _finite(text: str) -> float:
    import math

    try:
        number = float(text)
    except ValueError:
        number = math.nan
    if not math.isfinite(number):
        raise argparse.ArgumentTypeError(f"{text!r} is not a number")
    return number


def _cost(text: str) -> float:
    number = _finite(text)
    if number < 1:
        raise argparse.ArgumentTypeError(f"{text} is less than plain int8 costs, which is 1")
    return number


def _share(text: str) -> float:
    number = _finite(text.strip().removesuffix("%")) / (100 if text.strip().endswith("%") else 1)
    if not 0 < number < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not a share between 0 and 1; write it as in 0.2")
    return number
