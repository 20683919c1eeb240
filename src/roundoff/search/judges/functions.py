"""Measuring by functions of the user's: ``evaluate(run, samples)``, or the vendors' ``evaluate(model)``."""

import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from roundoff.analysis.evaluation import EvaluationSamples, Evaluator, make_run
from roundoff.analysis.user_code import brief, call_user_code
from roundoff.core.tensors import Array
from roundoff.errors import BadInput
from roundoff.graph.load import Model
from roundoff.graph.saving import save_model
from roundoff.quantize.agreement import spread
from roundoff.runtime.feeds import Samples

__all__ = ["FunctionJudge", "VendorJudge"]

# Enough to notice whose labels go by position; a handful might agree by chance.
_CHECKED_SAMPLES = 24
_WHAT = "The evaluator"


class FunctionJudge:
    """Measures by a function ``evaluate(run, samples)``.

    Args:
        evaluator: The function.
        model: The float network.
        samples: What the function is given.
        limits: Smallest and largest value of a sample, as the user's file says.
        indices: Which of the samples are measured on; all of them by default.
        threads: Threads to use; all cores by default.

    Raises:
        BadInput: The function fails on the float network.
    """

    def __init__(
        self,
        evaluator: Evaluator,
        model: Model,
        samples: Samples,
        *,
        limits: tuple[float, float] | None = None,
        indices: Sequence[int] | None = None,
        threads: int | None = None,
    ) -> None:
        self.name, self.higher_is_better = evaluator.name, evaluator.higher_is_better
        self._evaluator, self._model, self._samples = evaluator, model, samples
        self._threads, self.limits = threads, limits
        self._indices = tuple(range(len(samples.names)) if indices is None else indices)
        self.total = len(self._indices)
        self.notes: tuple[str, ...] = ()
        run = make_run(model, threads=threads)
        self._float = evaluator.measure(run, self._chosen(range(self.total)))
        self._check_limits(self._float)
        self.by_sample = self._float.shape == (self.total,) and self._takes_any(run)

    def float_values(self) -> Array:
        """What the float network scores."""
        return self._float if self.by_sample else np.asarray(self._float.mean())

    def measure(self, model: Model, indices: Sequence[int]) -> Array:
        """What a network scores on some samples."""
        chosen = indices if self.by_sample else range(self.total)
        found = self._evaluator.measure(make_run(model, threads=self._threads), self._chosen(chosen))
        if not self.by_sample:
            return np.asarray(found.mean())
        if found.size != len(chosen):
            what = f"evaluate() in {self._evaluator.path} gave one value for {len(chosen)} samples."
            raise BadInput(what, fix="let it return one number per sample each time, or a single one each time")
        self._check_limits(found)
        return found.reshape(len(chosen))

    def satisfied(self, float_score: float, score: float) -> None:
        """Nothing: a threshold decides."""
        return

    def _check_limits(self, values: Array) -> None:
        if self.limits is not None and not (values.min() >= self.limits[0] and values.max() <= self.limits[1]):
            what = f"evaluate() in {self._evaluator.path} gives values outside its RANGE {self.limits}."
            raise BadInput(what, fix="correct RANGE, or leave it out")

    def _chosen(self, indices: Sequence[int]) -> EvaluationSamples:
        return EvaluationSamples(self._model, self._samples, [self._indices[index] for index in indices])

    def _takes_any(self, run: Any) -> bool:
        """Whether a few samples in another order have the values they had among all."""
        order = spread(self.total, _CHECKED_SAMPLES)[::-1]
        again = self._evaluator.measure(run, self._chosen(order))
        if again.size == len(order) and np.allclose(
            again.reshape(-1), self._float[list(order)], rtol=1e-5, atol=1e-8
        ):
            return True
        note = "evaluate() gives a sample another value among other samples, so that all are run every time"
        self.notes = (f"{note}; samples.indices says which labels belong to the samples it is given",)
        return False


class VendorJudge:
    """Measures by ``evaluate(model)`` of the path of an ONNX file, and judges by ``metric_eval(original, new)``.

    Args:
        evaluator: Has these methods, or functions.
        model: The float network.
        path: The user's file.
        name: What the metric is called.
        higher_is_better: Which way it is better.

    Raises:
        BadInput: They fail on the float network, or refuse it.
    """

    # What it runs is its own affair: nobody knows how many samples these are.
    by_sample, limits, total = False, None, 0

    def __init__(self, evaluator: Any, model: Model, *, path: Path, name: str, higher_is_better: bool) -> None:
        self._evaluator, self._path = evaluator, path
        self.name, self.higher_is_better = name, higher_is_better
        self.notes: tuple[str, ...] = ()
        self._float = self.measure(model, ())
        rule = self.satisfied(float(self._float), float(self._float))
        if rule is not None and not rule[0]:
            what = (
                f"metric_eval() in {path} is not satisfied with the float model itself ({float(self._float):g})."
            )
            raise BadInput(what, fix="let metric_eval(original, new) give True, 0 when both are the same")

    def float_values(self) -> Array:
        """What the float network scores."""
        return self._float

    def measure(self, model: Model, indices: Sequence[int]) -> Array:
        """What a network scores, as a file that stock onnxruntime runs."""
        with tempfile.TemporaryDirectory(prefix="roundoff-") as folder:
            file = Path(folder) / "model.onnx"
            save_model(model, file)
            value = self._call(self._evaluator.evaluate, str(file))
        found = np.asarray(value)
        if found.size != 1 or found.dtype.kind not in "fiub" or not np.isfinite(found).all():
            what = f"evaluate() in {self._path} gave {brief(value)}, which is not a finite number."
            raise BadInput(what, fix="let it return one number, e.g. the share of right answers")
        return found.astype(np.float64).reshape(())

    def satisfied(self, float_score: float, score: float) -> tuple[bool, float] | None:
        """What the user's rule says."""
        rule = getattr(self._evaluator, "metric_eval", None)
        if rule is None:
            return None
        answer = self._call(rule, float_score, score)
        try:
            met, loss = (np.asarray(each) for each in answer)
            usable = met.dtype.kind in "biuf" and loss.dtype.kind in "biuf" and met.size == loss.size == 1
        except (TypeError, ValueError):
            usable = False
        if not usable or np.isnan(loss).any():
            what = f"metric_eval() in {self._path} gave {brief(answer)}, not whether it is satisfied and the loss."
            raise BadInput(what, fix="let it return a pair such as (loss < 0.01, loss)")
        return bool(met.item()), float(loss.item())

    def _call(self, function: Any, *values: Any) -> Any:
        return call_user_code(function, *values, path=self._path, what=_WHAT)
