"""Which judge it is: a user's file, labels, or how outputs agree with float."""

import inspect
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

from roundoff.analysis.evaluation import class_predictions, evaluator_in
from roundoff.analysis.user_code import brief, load_user_module, objects_with
from roundoff.core.tensors import Array
from roundoff.errors import BadInput
from roundoff.graph.load import Model
from roundoff.runtime.feeds import Samples
from roundoff.search.judges.classes import ClassJudge
from roundoff.search.judges.functions import FunctionJudge, VendorJudge
from roundoff.search.judges.judge import Judge
from roundoff.search.judges.running import OutputRunner
from roundoff.search.judges.signals import SignalJudge

__all__ = ["JudgeOptions", "make_judge"]

_WHAT = "The evaluator"


@dataclass(frozen=True, slots=True)
class JudgeOptions:
    """What candidates are measured by; how outputs agree with those in float when nothing is given.

    Attributes:
        evaluator: A Python file.
        instance: An object with ``evaluate(model)``, and perhaps ``metric_eval(original, new)``.
        labels: The right class of each row of the outputs.
        threads: Threads to use; all cores by default.
    """

    evaluator: Path | None = None
    instance: Any = None
    labels: Array | None = None
    threads: int | None = None


def make_judge(model: Model, samples: Samples, options: JudgeOptions) -> Judge:
    """Make what candidates for a network are measured by, and measure the float network.

    Raises:
        BadInput: The evaluator or the labels do not fit.
        ModelFailed: The model cannot be run.
    """
    if options.instance is not None:
        return _vendor(options.instance, model, path=Path(type(options.instance).__name__))
    if options.evaluator is not None:
        return _from_file(options.evaluator, model, samples, threads=options.threads)
    runner = OutputRunner(model, samples, threads=options.threads)
    if options.labels is not None:
        return ClassJudge(runner, options.labels)
    (_, first), *_ = runner.run(model, [0])
    scores = [class_predictions(array) for array in first if getattr(array, "ndim", 0) == 2]
    return ClassJudge(runner, None) if any(found is not None for found in scores) else SignalJudge(runner)


def _from_file(path: Path, model: Model, samples: Samples, *, threads: int | None) -> Judge:
    module = load_user_module(path, what=_WHAT)
    vendor = _vendor_object(module, path)
    if vendor is not None:
        return _vendor(vendor, model, path=path)
    evaluator = evaluator_in(module, path)
    return FunctionJudge(evaluator, model, samples, limits=_limits(module, path), threads=threads)


def _vendor(instance: Any, model: Model, *, path: Path) -> Judge:
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
