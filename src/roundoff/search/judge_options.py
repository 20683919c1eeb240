"""Which judge it is: a user's file, labels, or how outputs agree with float."""

import inspect
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from types import ModuleType
from typing import Any

from roundoff.core.tensors import Array
from roundoff.errors import BadInput
from roundoff.graph.load import Model
from roundoff.run.bench import Bench
from roundoff.run.capture import Samples
from roundoff.run.evaluators import brief, class_predictions, evaluator_in, load_user_module, objects_with
from roundoff.search.evaluators import FunctionJudge, VendorJudge
from roundoff.search.judges import ClassJudge, SignalJudge, TrialJudge

__all__ = ["JudgeOptions", "calibration_in", "make_judge", "with_evaluator"]

_WHAT = "The evaluator"


@dataclass(frozen=True, slots=True)
class JudgeOptions:
    """What candidates are measured by; how outputs agree with those in float when nothing is given.

    Attributes:
        evaluator: A Python file.
        instance: An object with ``evaluate(model)``, and perhaps ``metric_eval(original, new)``.
        module: The file of the evaluator, if it was read already.
        labels: The right class of each row of the outputs.
        decibels: Without all of these, measure signal to noise even where outputs are classes.
        threads: Threads to use; all cores by default.
    """

    evaluator: Path | None = None
    instance: Any = None
    module: ModuleType | None = None
    labels: Array | None = None
    decibels: bool = False
    threads: int | None = None

    @property
    def origin(self) -> Path:
        """Where the evaluator comes from: a file, or a class."""
        return self.evaluator or Path(type(self.instance).__name__)


def with_evaluator(options: JudgeOptions) -> JudgeOptions:
    """Read the file of the evaluator, once for all that is asked of it.

    Raises:
        BadInput: It cannot be read or run, or holds several evaluators.
    """
    if options.evaluator is None or options.module is not None or options.instance is not None:
        return options
    module = load_user_module(options.evaluator, what=_WHAT)
    return replace(options, module=module, instance=_vendor_object(module, options.evaluator))


def calibration_in(options: JudgeOptions) -> Callable[[str], Any] | None:
    """What runs a model on calibration data, of an evaluator that was read; None when it has no such function."""
    found = getattr(options.module if options.instance is None else options.instance, "calibration", None)
    return found if callable(found) else None


def make_judge(
    model: Model, samples: Samples, options: JudgeOptions, *, indices: Sequence[int] | None = None
) -> TrialJudge:
    """Make what candidates for a network are measured by, and measure the float network.

    Args:
        model: The float network.
        samples: What is measured on.
        options: What by.
        indices: With a function of the user's, which of the samples are measured on; all of them by default.

    Raises:
        BadInput: The evaluator or the labels do not fit.
        ModelFailed: The model cannot be run.
    """
    options = with_evaluator(options)
    if options.instance is not None:
        return _vendor(options.instance, model, path=options.origin)
    if options.evaluator is not None and options.module is not None:
        evaluator = evaluator_in(options.module, options.evaluator)
        limits = _limits(options.module, options.evaluator)
        return FunctionJudge(evaluator, model, samples, limits=limits, indices=indices, threads=options.threads)
    bench = Bench(model, samples, threads=options.threads)
    if options.labels is not None:
        return ClassJudge(bench, options.labels)
    if options.decibels:
        return SignalJudge(bench)
    (_, first), *_ = bench.run_together(model, [0])
    scores = [class_predictions(array) for array in first if getattr(array, "ndim", 0) == 2]
    return ClassJudge(bench, None) if any(found is not None for found in scores) else SignalJudge(bench)


def _vendor(instance: Any, model: Model, *, path: Path) -> TrialJudge:
    name, higher = getattr(instance, "NAME", path.stem), getattr(instance, "HIGHER_IS_BETTER", True)
    return VendorJudge(instance, model, path=path, name=str(name), higher_is_better=bool(higher))


def _vendor_object(module: ModuleType, path: Path) -> Any:
    """What has ``evaluate(model)`` in a file: the file itself, or an object or class; None when nothing has."""
    function = getattr(module, "evaluate", None)
    if callable(function):
        return module if _takes_one(function) else None
    found = objects_with(["evaluate"], module, path, what=_WHAT)
    if len(found) > 1:
        names = ", ".join(sorted(type(each).__name__ for each in found))
        raise BadInput(f"{path} holds {len(found)} evaluators: {names}.", fix="leave one of them in the file")
    return found[0] if found else None


def _takes_one(function: Any) -> bool:
    if not callable(function):
        return False
    by_place = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    parameters = inspect.signature(function).parameters.values()
    needed = [each for each in parameters if each.default is each.empty and each.kind in by_place]
    return len(needed) == 1


def _limits(module: ModuleType, path: Path) -> tuple[float, float] | None:
    given = getattr(module, "RANGE", None)
    if given is None:
        return None
    try:
        low, high = map(float, given)
    except (TypeError, ValueError) as error:
        raise _bad_range(given, path) from error
    if not low <= high:
        raise _bad_range(given, path)
    return low, high


def _bad_range(given: Any, path: Path) -> BadInput:
    what = f"RANGE in {path} is {brief(given)}, not the smallest and the largest value of a sample."
    return BadInput(what, fix="write it as in RANGE = (0, 1), or leave it out")
