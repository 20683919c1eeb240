"""The search for a configuration that is good enough: calibrate once, rank, put layers back to float."""

import math
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from roundoff.vendors.amct.common.auto_calibration import files
from roundoff.vendors.amct.common.auto_calibration.outcome import AutoCalibrationResult, Status, Trial
from roundoff.vendors.amct.common.auto_calibration.searching import search
from roundoff.vendors.amct.common.auto_calibration.sensitivity import CosineSimilaritySensitivity, SensitivityBase
from roundoff.vendors.amct.common.auto_calibration.strategy import (
    AutoCalibrationStrategyBase,
    BinarySearchStrategy,
)
from roundoff.vendors.amct.configuration.parsing import write_json
from roundoff.vendors.amct.listening import LOGGER
from roundoff.vendors.errors import CannotRun, WrongType, WrongValue

__all__ = ["AccuracyBasedAutoCalibrationBase", "SearchOptions"]

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

    history_form: files.HistoryForm = "json"
    log_dir: Path | None = None
    max_trials: int | None = None
    time_limit: float | None = None
    alternatives: Sequence[str] = ()
    resume: bool = False


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
                what = f"The evaluator ({type(evaluator).__name__}) has no method {method}()."
                raise WrongType(what, fix="derive it from AutoCalibrationEvaluatorBase")
        self.evaluator = evaluator
        self.strategy = _chosen(strategy, "BinarySearch", AutoCalibrationStrategyBase)
        self.sensitivity = _chosen(sensitivity, "CosineSimilarity", SensitivityBase)
        self.folder = folder
        self.options = options or SearchOptions()
        _check_options(self.options)
        self.trials: list[Trial] = []
        self._known: dict[tuple[str, frozenset[str]], Trial] = {}
        self._earlier: dict[tuple[str, frozenset[str]], Trial] = {}
        self._best: Trial | None = None
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
        """Put the models that were made last where results go; gives their files."""
        raise NotImplementedError

    def configuration(self, trial: Trial) -> Mapping[str, Any]:
        """The configuration of a trial."""
        raise NotImplementedError

    # The search -----------------------------------------------------------------------------------------------

    @property
    def history_path(self) -> Path:
        """Where trials are written."""
        return (self.options.log_dir or self.folder) / files.HISTORY

    def run(self) -> AutoCalibrationResult:
        """Search, and deliver the best model found.

        Raises:
            WrongValue: The float model itself is not good enough, or the evaluator answers something else than
                a truth value and a number.
        """
        self._started = time.monotonic()
        if self.options.resume and self.history_path.is_file():
            self._known = {trial.key: trial for trial in files.read_history(self.history_path)}
            self._earlier = dict(self._known)
        self._original = self.evaluate_original()
        if not self._judge(self._original)[0]:
            what = "The float model itself is not good enough by metric_eval(original, original)."
            raise WrongValue(what, fix="let metric_eval accept a loss of 0")
        self.calibrate()
        enabled = dict.fromkeys(self.layers(), True)
        first = self.attempt(enabled)
        ranking = self._ranking()
        # The higher, the less sensitive: that is what strategies are told.
        sign = self._sign
        told = [(name, sign * value) for name, value in ranking]
        status = search(self, self.strategy, told, first=first, alternatives=self.options.alternatives)
        if self._best is None:
            raise RuntimeError("a search without a trial")
        self._conclude(status)
        return AutoCalibrationResult(
            status, self._best, tuple(self.trials), tuple(ranking), self._delivered, self.history_path
        )

    @property
    def _sign(self) -> float:
        return 1.0 if getattr(self.sensitivity, "higher_is_better", True) else -1.0

    def _ranking(self) -> list[tuple[str, float]]:
        values = {name: float(value) for name, value in self.rank(self.sensitivity).items()}
        ranking = sorted(values.items(), key=lambda each: self._sign * each[1])
        files.write_ranking(self.folder / files.RANKING, ranking)
        return ranking

    def exhausted(self) -> bool:
        """Whether the budget is spent."""
        most, seconds = self.options.max_trials, self.options.time_limit
        spent = time.monotonic() - self._started
        return (most is not None and len(self.trials) >= most) or (seconds is not None and spent >= seconds)

    def attempt(self, enabled: Mapping[str, bool], algorithm: str = "") -> Trial:
        """Make and measure a model; one that was measured before is not measured again."""
        key = Trial(enabled, False, 0.0, algorithm).key
        known = self._known.get(key)
        if known is not None:
            trial = Trial(dict(enabled), known.satisfied, known.loss, algorithm)
        else:
            self.build(enabled, algorithm)
            trial = Trial(dict(enabled), *self._judge(self.evaluate_built()), algorithm)
            self._known[key] = trial
        self._note(trial)
        if trial.better_than(self._best):
            if known is not None:
                self.build(enabled, algorithm)
            self._best, self._delivered = trial, self.deliver()
        return trial

    def all_float(self, layers: Mapping[str, bool]) -> None:
        """Note what needs no trial: with all layers in float, the model is the original."""
        self._note(Trial(dict.fromkeys(layers, False), *self._judge(self._original)))

    def _note(self, trial: Trial) -> None:
        self.trials.append(trial)
        # What an earlier run has measured stays known if this one is interrupted too.
        self._earlier.pop(trial.key, None)
        self._write_history([*self.trials, *self._earlier.values()])
        LOGGER.info(
            "trial %d: %d of %d layers in float, loss %g, %s",
            len(self.trials), trial.floats, len(trial.roll_back_config), trial.loss,
            "good enough" if trial.satisfied else "not good enough",
        )  # fmt: skip

    def _write_history(self, trials: Sequence[Trial]) -> None:
        files.write_history(self.history_path, trials, form=self.options.history_form)

    def _judge(self, metric: Any) -> tuple[bool, float]:
        """The evaluator's verdict in plain types, whatever numbers it computes with."""
        answer = self.evaluator.metric_eval(self._original, metric)
        try:
            satisfied, loss = answer
            lost = float(loss)
            return bool(satisfied), math.inf if math.isnan(lost) else lost
        except (TypeError, ValueError) as error:
            what = f"metric_eval returned {answer!r}, not whether it is good enough and what was lost."
            raise WrongValue(what, fix="return a pair such as (True, 0.002)") from error

    def _conclude(self, status: Status) -> None:
        best = self._best
        if best is None:
            return
        self._write_history(self.trials)
        config = self.configuration(best)
        write_json(self.folder / (files.FINAL_CONFIG if best.satisfied else files.BEST_EFFORT_CONFIG), config)
        total = len(best.roll_back_config)
        if best.satisfied:
            LOGGER.info("good enough with %d of %d layers in float, loss %g", best.floats, total, best.loss)
        else:
            why = "the budget ended first" if status == "STOPPED" else "only with all layers in float it would be"
            LOGGER.warning(
                "not good enough: %s; delivered is the best found, %d of %d layers in float, loss %g",
                why, best.floats, total, best.loss,
            )  # fmt: skip


def _check_options(options: SearchOptions) -> None:
    for algorithm in options.alternatives:
        if algorithm not in ("ifmr", "hfmg"):
            raise WrongValue(f"There is no calibration algorithm {algorithm!r}.", fix="choose from ifmr and hfmg")
    if options.max_trials is not None and options.max_trials < 1:
        raise WrongValue(f"max_trials is {options.max_trials}.", fix="give 1 or more, or None")
    if options.time_limit is not None and not options.time_limit > 0:
        raise WrongValue(f"time_limit is {options.time_limit}.", fix="give seconds above 0, or None")


def _chosen(given: Any, default: str, base: type) -> Any:
    if isinstance(given, base):
        return given
    if isinstance(given, str) and given == default:
        return _DEFAULTS[default]()
    what = f"{given!r} is neither {default!r} nor an instance of a class derived from {base.__name__}."
    raise CannotRun(what, fix=f"give {default!r}, or an instance")
