"""Searching for the cheapest quantized model that meets a goal, as a function."""

import contextlib
import inspect
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any, Unpack

from roundoff.api.call import Call, DataOptions, Limits, TargetOptions, one_of, public, words_in
from roundoff.api.inputs import (
    DataLike,
    EvaluatorLike,
    GivenModel,
    LabelsLike,
    ModelLike,
    PathLike,
    as_path,
    check_files,
    data_inputs,
    describe_value,
    file_inputs,
    is_path,
    known_evaluator,
    open_data,
    open_labels,
    open_model,
)
from roundoff.api.outcome import Outcome
from roundoff.api.subject import check_target, check_weights, notes_on_samples, quantize_settings
from roundoff.core.document import array_input
from roundoff.core.files import model_stem
from roundoff.core.progress import Deadline
from roundoff.errors import EXIT_OK, EXIT_THRESHOLD_MISSED, BadInput, RoundoffError, nearest
from roundoff.graph.interface import topology
from roundoff.messages.catalogue import translate
from roundoff.messages.message import english, shown
from roundoff.search.result import Tuning

if TYPE_CHECKING:
    from roundoff.core.coverage import Coverage, Doubt, Judgement
    from roundoff.core.document import InputFile
    from roundoff.core.tensors import Array
    from roundoff.graph.load import Model
    from roundoff.graph.quantized_model import QuantizedModel
    from roundoff.quantize.recipes import BuiltModel
    from roundoff.run.capture import Samples
    from roundoff.search.result import Trial
    from roundoff.search.strategies.strategy import Strategy
    from roundoff.search.tune import TuneData, TuneSettings
    from roundoff.vendors.dialects.settings import ToolSettings


@dataclass(frozen=True, slots=True, repr=False)
class TuneOutcome(Outcome[Tuning]):
    """What a search found.

    Attributes:
        built: The answer: the quantized model, its plan and its recipe.
        given: The float model.
        target: The chip.
        tool_settings: The answer in the words of other tools; None when none were asked for.
        written: Files in the folder of the search, if it has one.
    """

    built: Any = None
    given: Any = None
    target: Any = None
    tool_settings: "ToolSettings | None" = None
    written: tuple[Path, ...] = ()

    @property
    def quantized(self) -> "QuantizedModel":
        """The quantized model that was found."""
        found: QuantizedModel = self.built.quantized
        return found

    @public
    def save(self, directory: PathLike, *, force: bool = False) -> tuple[Path, ...]:
        """Write the models, the plan and the run document, as a search with a folder does."""
        from roundoff.search.store import open_folder

        folder = as_path(directory, option="-o")
        with open_folder(folder, resume=False, force=force):
            return self.deliver(folder)

    def deliver(self, folder: Path) -> tuple[Path, ...]:
        """Write what was found to the open folder of a search."""
        from roundoff.graph.save import save_model
        from roundoff.report.pages import run_files

        built, more = self.built, self.tool_settings
        files = {**run_files(self.document), **({} if more is None else more.files())}
        delivery = _delivery(folder, self.given, self.target, self.document.inputs[0].sha256)
        written = [*delivery.final(built, files)]
        # The float model that settings belong to, where it is another than the user's and is not there already.
        if more is not None and more.graph and not built.recipe.transforms:
            save_model(built.quantized.float_model, folder / more.graph, replace=True)
            written.append(folder / more.graph)
        return tuple(written)


def _delivery(folder: Path, given: GivenModel, target: Any, sha256: str) -> Any:
    from roundoff import __version__
    from roundoff.search.store import Delivery

    return Delivery(folder, model_stem(given.path), str(given.path), sha256, target, __version__)


@dataclass(frozen=True, slots=True)
class _Asked:
    """The arguments of a search that are not shared with other functions."""

    evaluator: Any
    labels: LabelsLike
    max_drop: str | float | None
    min_metric: float | None
    max_cost: float | None
    cost: Any
    strategy: Any
    sensitivity: Any
    local: bool
    time: float | None
    max_trials: int | None
    eval_data: DataLike
    eval_samples: int | None
    holdout: float | None
    test_data: DataLike
    test_labels: LabelsLike


@public
def tune(
    model: ModelLike,
    output: PathLike | None = None,
    *,
    evaluator: EvaluatorLike | None = None,
    labels: LabelsLike = None,
    max_drop: str | float | None = None,
    min_metric: float | None = None,
    max_cost: float | None = None,
    cost: PathLike | None = None,
    strategy: Any = "greedy",
    sensitivity: Any = "sqnr_db",
    local: bool = False,
    time: float | None = None,
    max_trials: int | None = None,
    resume: bool = False,
    force: bool = False,
    dialect: Any = None,
    eval_data: DataLike = None,
    eval_samples: int | None = None,
    holdout: float | None = None,
    test_data: DataLike = None,
    test_labels: LabelsLike = None,
    dask: str | None = None,
    on_trial: "Callable[[Trial, Trial, str], None] | None" = None,
    tell: Callable[[str], None] | None = None,
    **options: Unpack[TargetOptions],
) -> TuneOutcome:
    """Search for the cheapest quantized model that meets an accuracy goal.

    Args:
        model: The float model.
        output: The folder of the search, from which a later one goes on; None to keep all in memory.
        evaluator: What measures a model: a Python file, a function, or an object with ``evaluate(model)``.
        labels: Right classes: measure accuracy.
        max_drop: What may be lost: ``1%`` of the float metric, or a difference.
        min_metric: The metric to reach, instead.
        max_cost: Most that it may cost, plain int8 being 1.
        cost: What work costs, as a target's ``[cost]`` in a .toml file.
        strategy: ``greedy``, ``bisect``, ``pareto``, ``pulsar2``, a Python file, or a strategy.
        sensitivity: What nodes are ranked by: a metric, or a Python file with ``compare(a, b)``.
        local: Rank nodes by their own results, not the model's.
        time: Begin no trial after so many seconds.
        max_trials: Try at most so many recipes.
        resume: Go on with the search in the folder.
        force: Remove an earlier search in the folder.
        dialect: Also give the answer in the words of other tools.
        eval_data: To measure on; the data when None.
        eval_samples: Measure on the first so many of them.
        holdout: Share of them that is kept from the search, 0 for none; about a third by default.
        test_data: To test the answer on.
        test_labels: Right classes of these.
        dask: Address of a Dask scheduler, whose workers calibrate and measure; ``local`` to start a cluster here.
        on_trial: Told of each trial, the best so far, and the name of the metric.
        tell: Told what the reader should know.
        options: The chip, where the search begins, and what the model is fed.
    """
    from roundoff.quantize.agreement import judge_outputs
    from roundoff.search.store import discard_folder, open_folder
    from roundoff.search.tune import TuneStore
    from roundoff.search.tune import tune as search_recipe

    asked = _Asked(
        known_evaluator(evaluator), labels, max_drop, min_metric, max_cost, cost, strategy, sensitivity, local,
        time, max_trials,
        eval_data, eval_samples, holdout, test_data, test_labels,
    )  # fmt: skip
    call = Call("tune", options, TargetOptions)
    _check(call, asked, dialect, output, resume=resume, force=force)
    settings = _settings(call, asked)
    given = open_model(model)
    check_weights(call, given, kind="study")
    settings, data = _with_data(call, asked, settings, given.model)
    read = tuple(_read(call, asked, given, data))
    folder, again = None if output is None else as_path(output, option="-o"), False
    with contextlib.ExitStack() as held:
        store = TuneStore(on_trial=on_trial)
        if folder is not None:
            facts = dict(_facts(call, asked, settings, read, data))
            again = held.enter_context(open_folder(folder, resume=resume, force=force))
            if resume and not again and tell is not None:
                tell(translate("search.begins", folder=folder))
            delivery = _delivery(folder, given, settings.target, read[0][1].sha256)
            store = TuneStore(folder, facts, delivery.best_so_far, on_trial)
        if dask is not None:
            store = replace(store, **held.enter_context(_elsewhere(dask, call, asked)))
        right = settings.judge.labels if data.evaluation is data.calibration else None
        notes = notes_on_samples(call, given.model, data.calibration, labels=right)
        try:
            found = search_recipe(given.model, data, settings, keeping=store, progress=call.progress)
        except RoundoffError:
            if folder is not None and not again:
                discard_folder(folder)
            # Samples that the network was not made for are the likeliest reason.
            if tell is not None:
                list(map(tell, map(shown, notes)))
            raise
        evidence = judge_outputs(given.model, None, data.calibration, threads=call.threads).judgement
        tuning = replace(
            found.tuning,
            notes=(*notes, *found.tuning.notes),
            doubts=tuple(_doubts(found.tuning, evidence, settings)),
            coverage=_coverage(evidence.coverage, found.tuning, len(data.calibration.names)),
        )
        found = replace(found, tuning=tuning)
        inputs = tuple(replace(each, role=option.removeprefix("the ").strip("-")) for option, each in read)
        outcome = TuneOutcome(
            found.tuning,
            call.document(inputs, topology(given.model), tuning=found.tuning),
            EXIT_OK if found.tuning.good else EXIT_THRESHOLD_MISSED,
            built=found.built,
            given=given,
            target=settings.target,
            tool_settings=None if dialect is None else _in_dialects(dialect, given, found.built),
        )
        return outcome if folder is None else replace(outcome, written=outcome.deliver(folder))


@contextlib.contextmanager
def _elsewhere(dask: str, call: Call, asked: _Asked) -> Iterator[Any]:
    """What measures candidates, and what observes activations, in the workers of a cluster."""
    from roundoff.api import remote
    from roundoff.run.executors import open_workers

    own = not _absent(asked.eval_data)
    limit = asked.eval_samples if own or asked.eval_samples is not None else call.get("samples")
    files = remote.SampleFiles.of(call, asked.eval_data if own else call.get("data"), limit=limit)
    evaluator = Path(asked.evaluator) if is_path(asked.evaluator) else None
    with open_workers(dask=dask) as workers:
        observed = remote.SampleFiles.of(call, call.get("data"), limit=call.get("samples")) if own else files
        yield {
            "elsewhere": remote.evaluated_elsewhere(workers, files, limits=call.limits, evaluator=evaluator),
            "observe": remote.observed_elsewhere(
                workers, observed, threads=call.threads, max_memory=call.max_memory
            ),
        }


def _doubts(found: Tuning, evidence: "Judgement", settings: "TuneSettings") -> "Iterator[Doubt]":
    """What speaks against a good word: found in the search, then in what the float network gives."""
    yield from found.doubts
    known = {each.kind for each in found.doubts}
    # In which place an output of features is largest is nothing that a metric of the user's asks.
    known |= set() if settings.judge.evaluator is None else {"one_class"}
    yield from (each for each in evidence.doubts if each.kind not in known)


def _coverage(found: "Coverage", tuning: "Tuning", total: int) -> "Coverage":
    """What a search rests on: the samples that it measured on, and those that were held out from it."""
    from roundoff.core.coverage import LeftOut, Share

    held = 0 if tuning.holdout is None else tuning.holdout.samples
    judged = tuning.samples + held
    unusable = [each for each in (found.samples or Share(0, 0)).left_out if each.why == "nonfinite"]
    # Where only the evaluator knows what it measures on, nothing is said of samples.
    there = max(total, judged)
    left = (*unusable, *((LeftOut("not_asked", there - judged),) if there > judged else ()))
    good = max(0, judged - sum(each.count for each in unusable))
    return replace(found, samples=Share(there, good, left) if judged else None)


def _check(call: Call, asked: _Asked, dialect: Any, output: PathLike | None, *, resume: bool, force: bool) -> None:
    """Refuse arguments that contradict each other, or would have no effect."""
    from roundoff.vendors.dialects import find_dialects

    check_target(call)
    if dialect is not None:
        find_dialects(",".join(words_in(dialect, option="--dialect")))
    check_files(("The labels", asked.labels), ("The labels", asked.test_labels))
    if resume and force:
        raise BadInput(
            english("--resume goes on with a search, --force removes it."), fix=english("leave one of them out")
        )
    if (resume or force) and output is None:
        raise BadInput(
            english("--resume and --force need the folder of a search."),
            fix=english("give output=, or leave them out"),
        )
    _check_measure(asked)
    _check_goal(call, asked)


def _check_measure(asked: _Asked) -> None:
    """Refuse measures that contradict each other, or would have no effect."""
    one_of(labels=asked.labels, evaluator=asked.evaluator)
    if asked.test_labels is not None and asked.test_data is None:
        raise BadInput(
            english("--test-labels has no effect without --test-data."),
            fix=english("add --test-data, or leave it out"),
        )
    if asked.test_labels is not None and asked.evaluator is not None:
        what = english("--test-labels has no effect with --evaluator, which measures on --test-data, too.")
        raise BadInput(what, fix=english("leave it out"))
    if asked.test_data is not None and (asked.labels is None) != (asked.test_labels is None):
        raise BadInput(
            english("Only one of --labels and --test-labels was given."), fix=english("give both, or none")
        )


def _check_goal(call: Call, asked: _Asked) -> None:
    """Refuse goals that cannot be meant, and methods that would not be tried."""
    calibration = call.get("calibration")
    if calibration and len(words_in(calibration, option="--calibration")) > 1:
        what = english(
            "--calibration {calibration} names several methods; the search tries the others by itself.",
            calibration=calibration,
        )
        raise BadInput(what, fix=english("name the one to begin with, or leave it out"))
    if asked.min_metric is not None and not math.isfinite(asked.min_metric):
        raise BadInput(
            english("--min-metric {min_metric} is not a number.", min_metric=asked.min_metric),
            fix=english("give the metric to reach"),
        )
    if asked.max_cost is not None and not asked.max_cost >= 1:
        what = english("--max-cost {max_cost} is less than plain int8 costs, which is 1.", max_cost=asked.max_cost)
        raise BadInput(what, fix=english("give 1 or more"))
    if asked.holdout is not None and not 0 <= asked.holdout < 1:
        raise BadInput(
            english("--holdout {holdout} is not a share between 0 and 1.", holdout=asked.holdout),
            fix=english("write it as in 0.2"),
        )


def _settings(call: Call, asked: _Asked) -> "TuneSettings":
    from roundoff.core.plan import Recipe
    from roundoff.search.cost import load_costs
    from roundoff.search.tune import TuneSettings

    quantize = quantize_settings(call)
    method = quantize.methods[0] if quantize.methods else ""
    return TuneSettings(
        target=quantize.target,
        base=Recipe(method=method, weight_method=quantize.weight_method, rules=quantize.rules),
        options=quantize.options,
        strategy=_strategy(asked.strategy),
        judge=judge_options(asked.evaluator, threads=call.threads, max_memory=call.max_memory),
        max_drop="" if asked.max_drop is None else str(asked.max_drop),
        min_metric=asked.min_metric,
        max_cost=asked.max_cost,
        costs=None if asked.cost is None else load_costs(as_path(asked.cost, option="--cost")),
        max_trials=asked.max_trials,
        deadline=Deadline.after(asked.time, start=call.started),
        holdout=asked.holdout,
        sensitivity=_sensitivity(asked.sensitivity),
        local=asked.local,
        threads=call.threads,
        max_memory=call.max_memory,
    )


def judge_options(
    evaluator: Any,
    *,
    labels: "Array | None" = None,
    decibels: bool = False,
    threads: int | None = None,
    max_memory: int | None = None,
) -> Any:
    """What candidates are measured by.

    Args:
        evaluator: A Python file, a function ``evaluate(run, samples)`` or ``evaluate(model)``, or an object that
            has the latter; None for none.
        labels: The right classes.
        decibels: Without all of these, measure signal to noise even where outputs are classes.
        threads: Threads to use.
        max_memory: Bytes the process may take.

    Raises:
        BadInput: It is nothing of that kind.
    """
    from roundoff.search.evaluators import JudgeOptions

    how: dict[str, Any] = {"labels": labels, "decibels": decibels, "threads": threads, "max_memory": max_memory}

    if evaluator is None or is_path(evaluator):
        path = None if evaluator is None else Path(evaluator)
        return JudgeOptions(path, **how)
    if callable(getattr(evaluator, "evaluate", None)):
        return JudgeOptions(instance=evaluator, **how)
    if not callable(evaluator):
        fix = english("give a Python file, a function evaluate(run, samples), or an object with evaluate(model)")
        raise BadInput(english("The evaluator is {said_of}.", said_of=describe_value(evaluator)), fix=fix)
    # A function is taken as the only one of a file.
    module = ModuleType(getattr(evaluator, "__name__", "evaluate"))
    module.evaluate = evaluator  # type: ignore[attr-defined]
    for name in ("NAME", "HIGHER_IS_BETTER", "RANGE"):
        if hasattr(evaluator, name):
            setattr(module, name, getattr(evaluator, name))
    single = len(inspect.signature(evaluator).parameters) == 1
    return JudgeOptions(Path(module.__name__), instance=module if single else None, module=module, **how)


def _strategy(given: Any) -> "Strategy":
    from roundoff.search.strategies import STRATEGIES
    from roundoff.search.strategies.strategy import load_strategy

    if not is_path(given):
        return given  # type: ignore[no-any-return]
    text = str(given)
    if text in STRATEGIES:
        return STRATEGIES[text]
    if text.endswith(".py") or Path(text).is_file():
        return load_strategy(Path(text))
    raise BadInput(
        english("There is no strategy {text!r}.", text=text),
        fix=english("{nearest}; or give a Python file", nearest=nearest(text, STRATEGIES)),
    )


def _sensitivity(given: Any) -> Any:
    from roundoff.search.problem import SENSITIVITIES
    from roundoff.studies.sensitivity.ranking import load_sensitivity

    if not is_path(given):
        return given
    text = str(given)
    if text in SENSITIVITIES:
        return text
    if text.endswith(".py") or Path(text).is_file():
        return load_sensitivity(Path(text))
    raise BadInput(
        english("There is no sensitivity {text!r}.", text=text),
        fix=english("{nearest}; or give a Python file", nearest=nearest(text, SENSITIVITIES)),
    )


# What a search runs on: samples that calibrate, samples that judge, a test set, and their labels.


def _absent(data: DataLike) -> bool:
    return data is None or (isinstance(data, list | tuple) and not data)


def _with_data(
    call: Call, asked: _Asked, settings: "TuneSettings", model: "Model"
) -> "tuple[TuneSettings, TuneData]":
    """Open all samples, and the labels that go with them."""
    from roundoff.run.evaluators import check_apart
    from roundoff.search.evaluators import calibration_in, fed_samples, with_evaluator
    from roundoff.search.tune import TestSet, TuneData

    judge = with_evaluator(settings.judge)
    data, most = call.get("data"), call.get("samples")
    feeds = calibration_in(judge) if _absent(data) else None
    calibration: Samples
    if feeds is None:
        calibration = _opened(call, model, data, most)
    else:
        _refuse_unread(call, asked)
        calibration = fed_samples(feeds, model, path=judge.origin, most=most, max_memory=call.max_memory)
    evaluation = calibration
    if not _absent(asked.eval_data) or asked.eval_samples is not None:
        others = data if _absent(asked.eval_data) else asked.eval_data
        evaluation = _opened(call, model, others, asked.eval_samples)
    cut = most if evaluation is calibration else asked.eval_samples
    judge = replace(judge, labels=open_labels(asked.labels, evaluation.names, cut=cut is not None))
    test = None
    if not _absent(asked.test_data):
        samples = _opened(call, model, asked.test_data, None)
        for used in (calibration, evaluation):
            check_apart(model, used, samples)
        test = TestSet(samples, open_labels(asked.test_labels, samples.names))
    return replace(settings, judge=judge), TuneData(calibration, evaluation, test)


def _read_options() -> list[str]:
    """The options on how files of samples are read."""
    return [name for name in DataOptions.__annotations__ if name not in ("data", *Limits.__annotations__)]


def _refuse_unread(call: Call, asked: _Asked) -> None:
    """Options for reading files mean nothing where the evaluator feeds the model and no files are read."""
    names = [name for name in _read_options() if name != "samples" and call.get(name) not in (None, "auto")]
    if names and _absent(asked.eval_data) and _absent(asked.test_data):
        given = "--" + names[0].replace("_", "-")
        what = english(
            "{given} has no effect without --data: calibration() of the evaluator feeds the model.", given=given
        )
        raise BadInput(what, fix=english("add --data, or leave {given} out", given=given))


def _opened(call: Call, model: "Model", data: DataLike, limit: int | None) -> "Samples":
    from roundoff.graph.interface import inputs
    from roundoff.run.capture import NO_INPUTS

    specs = inputs(model)
    return open_data(data, specs, call.sample_options(limit=limit)) if specs else NO_INPUTS


# What results depend on.


def _read(call: Call, asked: _Asked, given: GivenModel, data: "TuneData") -> "Iterator[tuple[str, InputFile]]":
    """What was read, by the option that names it; the model first."""
    yield "the model", given.origin("model")
    sets = (
        ("--data", call.get("data"), data.calibration),
        ("--eval-data", asked.eval_data, data.evaluation),
        ("--test-data", asked.test_data, None if data.test is None else data.test.samples),
    )
    for option, words, samples in sets:
        yield from ((option, each) for each in data_inputs(option, words, samples))
    single = {"evaluator": asked.evaluator, "labels": asked.labels, "test_labels": asked.test_labels}
    single |= {"cost": asked.cost, "rules": call.get("rules")}
    chosen = {"target": call.get("target"), "strategy": asked.strategy, "sensitivity": asked.sensitivity}
    single |= {name: each for name, each in chosen.items() if is_path(each) and Path(each).is_file()}
    for name, each in single.items():
        option = f"--{name.replace('_', '-')}"
        yield from ((option, file) for file in file_inputs((option, each)))


def _facts(
    call: Call,
    asked: _Asked,
    settings: "TuneSettings",
    read: "tuple[tuple[str, InputFile], ...]",
    data: "TuneData",
) -> Iterator[tuple[str, str]]:
    """Everything that results depend on, by the name under which a user knows it."""
    import json
    from dataclasses import asdict
    from importlib import metadata

    from roundoff import __version__
    from roundoff.search.evaluators import FedSamples
    from roundoff.search.store import recipe_json

    files: dict[str, str] = {}
    for option, each in read:
        files[option] = files.get(option, "") + each.sha256
    yield from files.items()
    for option, labels in (("--labels", asked.labels), ("--test-labels", asked.test_labels)):
        if labels is not None and not is_path(labels):
            right = open_labels(labels, ())
            yield option, "" if right is None else array_input(option, [{"": right}]).sha256
    if asked.evaluator is not None and not is_path(asked.evaluator):
        yield "--evaluator", _source_of(asked.evaluator)
    yield "the target", json.dumps(asdict(settings.target), default=sorted, sort_keys=True)
    yield "what the search begins with", recipe_json(settings.base) + repr(sorted(settings.options.items()))
    names = ("max_drop", "min_metric", "max_cost", "holdout", "eval_samples", "strategy", "sensitivity", "local")
    for name in names:
        value = getattr(asked, name)
        plain = value is None or isinstance(value, str | int | float | Path)
        yield f"--{name.replace('_', '-')}", str(value) if plain else _source_of(value)
    for name in _read_options():
        value = call.get(name, "auto" if name == "data_format" else None)
        yield f"--{name.replace('_', '-')}", str(tuple(value) if isinstance(value, list) else value)
    packages = {name: metadata.version(name) for name in ("numpy", "onnx", "onnxruntime")}
    yield "the version of roundoff or its packages", f"{__version__} {packages}"
    if isinstance(data.calibration, FedSamples):
        yield "what calibration() feeds", data.calibration.digest


def _source_of(given: Any) -> str:
    """What tells a function or an object of the user's from another one."""
    try:
        return inspect.getsource(given if inspect.isroutine(given) or inspect.isclass(given) else type(given))
    except (OSError, TypeError):
        return getattr(given, "__qualname__", type(given).__qualname__)


def _in_dialects(dialect: Any, given: GivenModel, built: "BuiltModel") -> "ToolSettings":
    """The answer in the words of other tools."""
    from roundoff.vendors.dialects import find_dialects
    from roundoff.vendors.dialects.settings import Made, decisions_of, float_model_name, settings_for

    stem = model_stem(given.path)
    made = Made.by_plan(
        built.plan,
        stem=stem,
        method=built.recipe.method,
        samples=built.calibration.samples,
        graph=float_model_name(stem, given.model, built.quantized.float_model),
    )
    dialects = find_dialects(",".join(words_in(dialect, option="--dialect")))
    return settings_for(decisions_of(built.quantized, made), dialects, given=given.model)
