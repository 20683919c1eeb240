"""Accuracy-based auto-calibration: the classes that users derive from, those AMCT brings along, and the driver."""

import json
import math
import time
from collections import OrderedDict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np

from roundoff.core.files import read_small, write_text
from roundoff.core.progress import Deadline
from roundoff.core.tensors import Array
from roundoff.core.untrusted import parse_json_sequence
from roundoff.errors import BadInput
from roundoff.measure.metrics import ratio_db
from roundoff.messages.message import NOTHING, Message, english
from roundoff.run.evaluators import finite_number, verdict
from roundoff.search.strategies.ranked import next_count
from roundoff.search.strategies.roll_back import RollBack, RollBackStatus, RollBackTrial, roll_back
from roundoff.search.strategies.strategy import TrialBudget, run_trials
from roundoff.studies.sensitivity.ranking import worst_names
from roundoff.vendors.amct.config import dump, parse_json, write_json
from roundoff.vendors.facade import AMCT_LOGGER, CannotRun, WrongType, WrongValue

Trial = RollBackTrial
"""What AMCT's scripts know a tried model by."""

_MOST_DB = 200.0
"""What two equal outputs get instead of an infinite ratio, which JSON cannot hold."""


class AutoCalibrationEvaluatorBase:
    """Runs models for calibration, measures them, and says whether a measure is good enough.

    Models are given by their files: one for ONNX; definition and weights for Caffe.
    """

    def calibration(self, *model_files: Any, **named: Any) -> None:
        """Run the modified model on at least ``batch_num`` batches."""
        raise NotImplementedError("an evaluator needs a method calibration()")

    def evaluate(self, *model_files: Any, **named: Any) -> Any:
        """Measure a model; the result is only handed to `metric_eval`."""
        raise NotImplementedError("an evaluator needs a method evaluate()")

    def metric_eval(self, original_metric: Any, new_metric: Any) -> tuple[bool, float]:
        """Whether a measure is good enough, and what was lost.

        Args:
            original_metric: Of the float model.
            new_metric: Of a quantized one.
        """
        raise NotImplementedError("an evaluator needs a method metric_eval()")


# How much quantization hurts a layer.


class SensitivityBase:
    """Compares what a layer computes in float with what it computes quantized.

    Attributes:
        higher_is_better: Whether a higher number means that the layer suffers less. Rankings are made accordingly;
            a class that says nothing is taken to mean it, as AMCT does.
    """

    higher_is_better: bool = True

    def compare(self, data: Any, other: Any) -> float:
        """One number for two outputs.

        Args:
            data: What the float layer computes, flat.
            other: What the quantized layer computes, flat.
        """
        raise NotImplementedError("a sensitivity needs a method compare()")

    @staticmethod
    def normalize_data(data: Any) -> Array:
        """Values moved and scaled into the range from 0 to 1."""
        values = np.asarray(data, np.float32)
        low, high = values.min(initial=np.inf), values.max(initial=-np.inf)
        return np.asarray((values - low) / (high - low + np.finfo(np.float32).eps))


class CosineSimilaritySensitivity(SensitivityBase):
    """Cosine of both outputs, brought into the range from 0 to 1; blind for a gain that all elements share."""

    def compare(self, data: Any, other: Any) -> float:
        """1 for outputs of the same direction."""
        left, right = (np.asarray(each, np.float64).ravel() for each in (data, other))
        if not left.any():
            return 1.0
        if not right.any():
            return 0.0
        cosine = float(left @ right) / math.sqrt(float(left @ left) * float(right @ right))
        return 0.5 + 0.5 * cosine


class MseSensitivity(SensitivityBase):
    """Length of the difference over the number of elements, as AMCT has it; lower is better, and ranked so.

    Args:
        do_normalization: Bring both outputs into the range from 0 to 1 first.
    """

    higher_is_better = False

    def __init__(self, do_normalization: bool = False) -> None:
        self._normalized = do_normalization

    def compare(self, data: Any, other: Any) -> float:
        """0 for equal outputs."""
        left, right = (
            self.normalize_data(each).astype(np.float64) if self._normalized else np.asarray(each, np.float64)
            for each in (data, other)
        )
        return float(np.linalg.norm(left - right)) / max(1, len(left))


class SqnrSensitivity(SensitivityBase):
    """Signal over quantization noise in decibels: sees a gain too, which the cosine does not."""

    def compare(self, data: Any, other: Any) -> float:
        """The higher, the smaller the difference is against the output."""
        left, right = (np.asarray(each, np.float64).ravel() for each in (data, other))
        noise, signal = float(np.sum((left - right) ** 2)), float(np.sum(left**2))
        return max(-_MOST_DB, min(_MOST_DB, ratio_db(signal, noise)))


# Which layers go back to float next.


class AutoCalibrationStrategyBase:
    """Proposes layers that go back to float, and is told how it went.

    Attributes:
        result: For those who derive from it, to keep the last answer in.
    """

    def __init__(self) -> None:
        self.result: dict[str, Any] = {}

    def initialize(self, ranking_info: Mapping[str, float]) -> None:
        """Begin a search.

        Args:
            ranking_info: The layers that are quantized, each with a number; the higher, the less sensitive.
        """
        raise NotImplementedError("a strategy needs a method initialize()")

    def update_quant_config(self, metric_eval: tuple[bool, float]) -> dict[str, Any]:
        """Propose what to try next.

        Args:
            metric_eval: What the evaluator said of the last proposal; at first of the model in which all layers
                are quantized.

        Returns:
            ``stop_flag``: whether the search has ended, ``roll_back_config``: for every layer whether it stays
            quantized (False: back to float); with the flag set, the answer.
        """
        raise NotImplementedError("a strategy needs a method update_quant_config()")


class BinarySearchStrategy(AutoCalibrationStrategyBase):
    """Bisects the number of most sensitive layers that go back to float."""

    def __init__(self) -> None:
        super().__init__()
        self._ranking: list[str] = []
        self._counts: list[int] = []
        self._outcomes: list[bool] = []

    def initialize(self, ranking_info: Mapping[str, float]) -> None:
        """Begin a search: layers with the lowest numbers go back first."""
        self._ranking = sorted(ranking_info, key=lambda name: ranking_info[name])
        self._counts, self._outcomes = [], []

    def update_quant_config(self, metric_eval: tuple[bool, float]) -> dict[str, Any]:
        """Propose the next number of layers."""
        met = bool(metric_eval[0])
        if self._counts:
            self._outcomes.append(met)
        elif met:
            return self._answer(0, stop=True)
        count = next_count(len(self._ranking), self._outcomes)
        if count is not None:
            self._counts.append(count)
            return self._answer(count, stop=False)
        enough = [tried for tried, good in zip(self._counts, self._outcomes, strict=True) if good]
        return self._answer(min(enough, default=len(self._ranking)), stop=True)

    def _answer(self, count: int, *, stop: bool) -> dict[str, Any]:
        config = OrderedDict((name, place >= count) for place, name in enumerate(self._ranking))
        self.result = {"stop_flag": stop, "roll_back_config": config}
        return self.result


# The files of a search: ranking, history and final configuration.

_STEM = "accuracy_based_auto_calibration"
RANKING = f"{_STEM}_ranking_information.json"
HISTORY = f"{_STEM}_record.json"
FINAL_CONFIG = f"{_STEM}_final_config.json"
BEST_EFFORT_CONFIG = f"{_STEM}_best_effort_config.json"
"""Ours: the configuration of a model that was delivered although it is not good enough."""

HistoryForm = Literal["json", "amct"]
"""A list; or objects one behind the other, as AMCT writes them, which is not JSON."""


def write_ranking(path: Path, ranking: Sequence[tuple[str, float]]) -> None:
    """Write the layers, most sensitive first, with their numbers."""
    write_json(path, [[name, value] for name, value in ranking])


def read_ranking(path: Path) -> list[tuple[str, float]]:
    """The layers of a ranking file.

    Raises:
        BadInput: It is none.
    """
    found = parse_json(read_small(path, what=english("The ranking")).decode(errors="replace"), name=str(path))
    if not isinstance(found, list) or not all(map(_is_ranked, found)):
        raise BadInput(
            "{path} is no ranking: it is not a list of pairs.", fix=english("give the file of a search"), path=path
        )
    return [(str(name), float(value)) for name, value in found]


def _is_ranked(entry: Any) -> bool:
    return isinstance(entry, list) and len(entry) == 2 and isinstance(entry[1], int | float)


def write_history(path: Path, trials: Sequence[RollBackTrial], *, form: HistoryForm) -> None:
    """Write all trials so far, replacing an earlier file when it is complete."""
    entries = [_entry(trial) for trial in trials]
    write_text(path, dump(entries) if form == "json" else "".join(map(dump, entries)))


def _entry(trial: RollBackTrial) -> dict[str, Any]:
    entry: dict[str, Any] = {
        "roll_back_config": dict(trial.roll_back_config),
        # JSON has no infinity.
        "metric_eval": [trial.satisfied, trial.loss if math.isfinite(trial.loss) else None],
    }
    return entry | ({"act_algo": trial.algorithm} if trial.algorithm else {})


def read_history(path: Path) -> list[RollBackTrial]:
    """The trials of a history file of either form.

    Raises:
        BadInput: It is none.
    """
    data = read_small(path, what=english("The history"))
    entries: list[Any] = []
    for found in parse_json_sequence(data, path, fix=english("give the file of a search")):
        entries += found if isinstance(found, list) else [found]
    return [_trial(entry, path) for entry in entries]


def _trial(entry: Any, path: Path) -> RollBackTrial:
    config = entry.get("roll_back_config") if isinstance(entry, Mapping) else None
    verdict = entry.get("metric_eval") if isinstance(entry, Mapping) else None
    lost: Any = verdict[-1] if isinstance(verdict, list) and len(verdict) == 2 else ""
    flags = (
        (lost is None or isinstance(lost, int | float))
        and isinstance(config, Mapping)
        and all(isinstance(stays, bool) for stays in config.values())
    )
    if not flags or not isinstance(verdict, list) or config is None:
        what = english("{path} holds an entry that is no trial: {entry}.", path=path, entry=json.dumps(entry)[:60])
        raise WrongValue(what, fix=english("give the file of a search"))
    loss = math.inf if lost is None or math.isnan(lost) else float(lost)
    return RollBackTrial(dict(config), bool(verdict[0]), loss, str(entry.get("act_algo", "")))


_DEFAULTS: Mapping[str, type] = {
    "BinarySearch": BinarySearchStrategy,
    "CosineSimilarity": CosineSimilaritySensitivity,
}


@dataclass(frozen=True, slots=True)
class SearchOptions:
    """What can be asked for beyond AMCT's parameters.

    Attributes:
        history_form: How the history is written.
        log_dir: Where the history goes; the folder of the results when None.
        max_trials: Models to try at most, the fully quantized one included.
        time_limit: Seconds after which no further model is tried.
        alternatives: Calibration algorithms that all layers are tried with before any goes back to float.
        resume: Take what an earlier history says of models instead of evaluating them again.
    """

    history_form: HistoryForm = "json"
    log_dir: Path | None = None
    max_trials: int | None = None
    time_limit: float | None = None
    alternatives: Sequence[str] = ()
    resume: bool = False


@dataclass(frozen=True, slots=True, eq=False)
class AutoCalibrationResult:
    """What a search came to.

    Attributes:
        status: How it ended.
        best: The trial whose models were delivered.
        trials: All trials, in order.
        ranking: The layers, most sensitive first, with their numbers.
        files: What was delivered.
        history: Where the trials are written.
    """

    status: RollBackStatus
    best: RollBackTrial
    trials: tuple[RollBackTrial, ...]
    ranking: tuple[tuple[str, float], ...]
    files: tuple[Path, ...]
    history: Path

    @property
    def met(self) -> bool:
        """Whether the delivered model is good enough."""
        return self.best.satisfied


class AccuracyBasedAutoCalibrationBase:
    """Drives a search; a flavour says how models are made and run.

    Args:
        evaluator: Measures models and judges the measure.
        strategy: Proposes layers that go back to float.
        sensitivity: Ranks layers.
        folder: Where results go.
        options: What else was asked for.

    Raises:
        CannotRun: Strategy or sensitivity is neither its default's name nor of the class to derive from.
        WrongType: The evaluator lacks a method.
    """

    def __init__(
        self,
        evaluator: Any,
        strategy: Any = "BinarySearch",
        sensitivity: Any = "CosineSimilarity",
        *,
        folder: Path,
        options: SearchOptions | None = None,
    ) -> None:
        for method in ("calibration", "evaluate", "metric_eval"):
            if not callable(getattr(evaluator, method, None)):
                what = english(
                    "The evaluator ({name}) has no method {method}().",
                    name=type(evaluator).__name__,
                    method=method,
                )
                raise WrongType(what, fix=english("derive it from AutoCalibrationEvaluatorBase"))
        self.evaluator = evaluator
        self.strategy = _chosen(strategy, "BinarySearch", AutoCalibrationStrategyBase)
        self.sensitivity = _chosen(sensitivity, "CosineSimilarity", SensitivityBase)
        self.folder = folder
        self.options = options or SearchOptions()
        _check_options(self.options)
        self.trials: list[RollBackTrial] = []
        self._known: dict[tuple[str, frozenset[str]], RollBackTrial] = {}
        self._earlier: dict[tuple[str, frozenset[str]], RollBackTrial] = {}
        self._best: RollBackTrial | None = None
        self._delivered: tuple[Path, ...] = ()
        self._original: Any = None
        self._started = time.monotonic()

    # What a flavour says --------------------------------------------------------------------------------------

    def layers(self) -> Iterable[str]:
        """The layers that are quantized, in the order of the configuration."""
        raise NotImplementedError

    def evaluate_original(self) -> Any:
        """The measure of the float model."""
        raise NotImplementedError

    def calibrate(self) -> None:
        """Calibrate all layers, once."""
        raise NotImplementedError

    def rank(self, sensitivity: SensitivityBase) -> Mapping[str, float]:
        """One number for every layer."""
        raise NotImplementedError

    def build(self, enabled: Mapping[str, bool], algorithm: str) -> None:
        """Make the models in which these layers are quantized; an algorithm replaces the layers' own if given."""
        raise NotImplementedError

    def evaluate_built(self) -> Any:
        """The measure of the model that was made last."""
        raise NotImplementedError

    def deliver(self) -> tuple[Path, ...]:
        """Put the models that were made last where results go; gives their history."""
        raise NotImplementedError

    def configuration(self, trial: RollBackTrial) -> Mapping[str, Any]:
        """The configuration of a trial."""
        raise NotImplementedError

    # The search -----------------------------------------------------------------------------------------------

    @property
    def history_path(self) -> Path:
        """Where trials are written."""
        return (self.options.log_dir or self.folder) / HISTORY

    def run(self) -> AutoCalibrationResult:
        """Search, and deliver the best model found.

        Raises:
            WrongValue: The float model itself is not good enough, or the evaluator answers something else than
                a truth value and a number.
        """
        self._started = time.monotonic()
        if self.options.resume and self.history_path.is_file():
            self._known = {trial.key: trial for trial in read_history(self.history_path)}
            self._earlier = dict(self._known)
        self._original = self.evaluate_original()
        first, second = self._judge(self._original), self._judge(self._original)
        if first != second:
            what = english(
                "metric_eval(original, original) says {first}, and asked again {second}.",
                first=first,
                second=second,
            )
            raise WrongValue(what, fix=english("let its answer depend on the two measures alone"))
        if not first[0]:
            what = english("The float model itself is not good enough by metric_eval(original, original).")
            raise WrongValue(what, fix=english("let metric_eval accept a loss of 0"))
        self.calibrate()
        ranking: list[tuple[str, float]] = []

        def rank() -> list[tuple[str, float]]:
            ranking.extend(self._ranking())
            # The higher, the less sensitive: that is what strategies are told.
            return [(name, self._sign * value) for name, value in ranking]

        steps = roll_back(
            tuple(self.layers()),
            rank,
            self.strategy,
            alternatives=self.options.alternatives,
            look_again=_warn_uneven if isinstance(self.strategy, BinarySearchStrategy) else None,
        )
        status, _ = run_trials(steps, self.attempt, refusal=self._refusal)
        if self._best is None or status is None:
            raise RuntimeError("a search without a trial")
        self._conclude(status)
        return AutoCalibrationResult(
            status, self._best, tuple(self.trials), tuple(ranking), self._delivered, self.history_path
        )

    @property
    def _sign(self) -> float:
        return 1.0 if getattr(self.sensitivity, "higher_is_better", True) else -1.0

    def _ranking(self) -> list[tuple[str, float]]:
        of = english("compare() of {kind}", kind=type(self.sensitivity).__name__)
        found = self.rank(self.sensitivity).items()
        values = {name: finite_number(value, of=of, infinite=True, error=WrongValue) for name, value in found}
        worst = worst_names(values, higher_is_better=self._sign > 0)
        ranking = [(name, values[name]) for name in worst]
        write_ranking(self.folder / RANKING, ranking)
        return ranking

    def _refusal(self, candidate: RollBack) -> Message:
        """Why a model may not be tried; the fully quantized one always may, and the float model costs nothing."""
        if candidate.original or not self.trials:
            return NOTHING
        deadline = Deadline.after(self.options.time_limit, start=self._started)
        return TrialBudget(self.options.max_trials, deadline).exhausted(len(self.trials))

    def attempt(self, candidate: RollBack) -> RollBackTrial:
        """Make and measure a model; one that was measured before is not measured again."""
        enabled, algorithm = dict(candidate.config), candidate.algorithm
        if candidate.original:
            trial = RollBackTrial(enabled, *self._judge(self._original))
            self._note(trial)
            return trial
        key = RollBackTrial(enabled, False, 0.0, algorithm).key
        known = self._known.get(key)
        if known is not None:
            trial = RollBackTrial(enabled, known.satisfied, known.loss, algorithm)
        else:
            self.build(enabled, algorithm)
            trial = RollBackTrial(enabled, *self._judge(self.evaluate_built()), algorithm)
            self._known[key] = trial
        self._note(trial)
        if trial.better_than(self._best):
            if known is not None:
                self.build(enabled, algorithm)
            self._best, self._delivered = trial, self.deliver()
        return trial

    def _note(self, trial: RollBackTrial) -> None:
        self.trials.append(trial)
        # What an earlier run has measured stays known if this one is interrupted too.
        self._earlier.pop(trial.key, None)
        self._write_history([*self.trials, *self._earlier.values()])
        AMCT_LOGGER.info(
            english(
                "trial {number}: {floats} of {count} layers in float, loss {loss:g}, {verdict}",
                number=len(self.trials),
                floats=trial.floats,
                count=len(trial.roll_back_config),
                loss=trial.loss,
                verdict=english("good enough") if trial.satisfied else english("not good enough"),
            )
        )

    def _write_history(self, trials: Sequence[RollBackTrial]) -> None:
        write_history(self.history_path, trials, form=self.options.history_form)

    def _judge(self, metric: Any) -> tuple[bool, float]:
        """The evaluator's verdict in plain types, whatever numbers it computes with."""
        return verdict(self.evaluator.metric_eval(self._original, metric), of="metric_eval", error=WrongValue)

    def _conclude(self, status: RollBackStatus) -> None:
        best = self._best
        if best is None:
            return
        self._write_history(self.trials)
        config = self.configuration(best)
        write_json(self.folder / (FINAL_CONFIG if best.satisfied else BEST_EFFORT_CONFIG), config)
        total = len(best.roll_back_config)
        if best.satisfied:
            AMCT_LOGGER.info(
                english(
                    "good enough with {floats} of {total} layers in float, loss {loss:g}",
                    floats=best.floats,
                    total=total,
                    loss=best.loss,
                )
            )
        else:
            stopped = status == "STOPPED"
            why = (
                english("the budget ended first")
                if stopped
                else english("only with all layers in float it would be")
            )
            AMCT_LOGGER.warning(
                english(
                    "not good enough: {why}; delivered is the best found, {floats} of {total} layers in float, "
                    "loss {loss:g}",
                    why=why,
                    floats=best.floats,
                    total=total,
                    loss=best.loss,
                )
            )


def _warn_uneven() -> None:
    AMCT_LOGGER.warning(
        english("the loss does not shrink evenly as layers go back to float: looking at more of them")
    )


def _check_options(options: SearchOptions) -> None:
    for algorithm in options.alternatives:
        if algorithm not in ("ifmr", "hfmg"):
            raise WrongValue(
                english("There is no calibration algorithm {algorithm!r}.", algorithm=algorithm),
                fix=english("choose from ifmr and hfmg"),
            )
    if options.max_trials is not None and options.max_trials < 1:
        raise WrongValue(
            "max_trials is {max_trials}.", fix=english("give 1 or more, or None"), max_trials=options.max_trials
        )
    if options.time_limit is not None and not options.time_limit > 0:
        raise WrongValue(
            english("time_limit is {time_limit}.", time_limit=options.time_limit),
            fix=english("give seconds above 0, or None"),
        )


def _chosen(given: Any, default: str, base: type) -> Any:
    if isinstance(given, base):
        return given
    if isinstance(given, str) and given == default:
        return _DEFAULTS[default]()
    what = english(
        "{given!r} is neither {default!r} nor an instance of a class derived from {name}.",
        given=given,
        default=default,
        name=base.__name__,
    )
    raise CannotRun(what, fix=english("give {default!r}, or an instance", default=default))
