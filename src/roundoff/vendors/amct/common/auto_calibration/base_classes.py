"""The classes that users derive from: evaluators, sensitivities, strategies; and those AMCT brings along."""

import math
from collections import OrderedDict
from collections.abc import Mapping
from typing import Any

import numpy as np

from roundoff.core.tensors import Array
from roundoff.measure.metrics import ratio_db
from roundoff.search.strategies.bisect import next_count

__all__ = [
    "AutoCalibrationEvaluatorBase",
    "AutoCalibrationStrategyBase",
    "BinarySearchStrategy",
    "CosineSimilaritySensitivity",
    "MseSensitivity",
    "SensitivityBase",
    "SqnrSensitivity",
]

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
