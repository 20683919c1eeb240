"""Measuring by functions of the user's: ``evaluate(run, samples)``, or the vendors' ``evaluate(model)``."""

import functools
import hashlib
import inspect
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np

from roundoff.core.claims import ScratchFolder
from roundoff.core.tensors import Array
from roundoff.errors import BadInput
from roundoff.graph.load import Model
from roundoff.graph.save import save_model
from roundoff.measure.classes import class_places, class_predictions
from roundoff.measure.inference import mean_interval
from roundoff.measure.verdicts import repeat_doubts
from roundoff.messages.message import Message, english, message
from roundoff.run.bench import Bench, spread
from roundoff.run.block_chain import TensorStore
from roundoff.run.budget import memory_limit
from roundoff.run.capture import Samples
from roundoff.run.evaluators import (
    CountedRun,
    EvaluationSamples,
    Evaluator,
    Run,
    brief,
    call_user_code,
    evaluator_in,
    higher_is_better,
    load_user_module,
    make_run,
    objects_with,
    remembering,
)
from roundoff.run.session import add_session_observer, remove_session_observer
from roundoff.search.judges import ClassJudge, SignalJudge, TrialJudge

# A metric with one number is asked without each of so many groups of samples: that shows the chance in it.
_GROUPS = 8
# Enough to notice whose labels go by position; a handful might agree by chance.
_CHECKED_SAMPLES = 24
_WHAT = english("The evaluator")


class FunctionJudge:
    """Measures by a function ``evaluate(run, samples)``.

    Args:
        evaluator: The function.
        model: The float network.
        samples: What the function is given.
        limits: Smallest and largest value of a sample, as the user's file says.
        indices: Which of the samples are measured on; all of them by default.
        threads: Threads to use; all cores by default.
        max_memory: Bytes the process may take; most of the free memory by default.

    Raises:
        BadInput: The function fails on the float network.
    """

    def __init__(  # noqa: PLR0913 - what to ask of which network, and how much it may take
        self,
        evaluator: Evaluator,
        model: Model,
        samples: Samples,
        *,
        limits: tuple[float, float] | None = None,
        indices: Sequence[int] | None = None,
        threads: int | None = None,
        max_memory: int | None = None,
    ) -> None:
        self.name, self.higher_is_better = evaluator.name, evaluator.higher_is_better
        self._evaluator, self._model, self._samples = evaluator, model, samples
        self._threads, self._max_memory, self.limits = threads, max_memory, limits
        self._indices = tuple(range(len(samples.names)) if indices is None else indices)
        self.total = len(self._indices)
        self.notes: tuple[Message, ...] = ()
        run = self._run = CountedRun(self._remembering(model))
        self._float = evaluator.measure(run, self._chosen(range(self.total)))
        self._check_limits(self._float)
        again = evaluator.measure(run, self._chosen(range(self.total)))
        self.doubts = repeat_doubts(self._float, again, asked=bool(run.calls))
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
            what = english(
                "evaluate() in {path} gave one value for {count} samples.",
                path=self._evaluator.path,
                count=len(chosen),
            )
            raise BadInput(
                what, fix=english("let it return one number per sample each time, or a single one each time")
            )
        self._check_limits(found)
        return found.reshape(len(chosen))

    def _remembering(self, model: Model) -> Run:
        return remembering(make_run(model, threads=self._threads), max_memory=self._max_memory)

    def splits(self) -> bool:
        """Whether one number for all samples is the same in another order: labels do not go by position then."""
        places = range(self.total)
        try:
            back = self._evaluator.measure(self._run, self._chosen(places[::-1]))
        except BadInput:
            return False
        return bool(np.isclose(float(back.mean()), float(self._float.mean()), rtol=1e-5, atol=1e-8))

    def with_interval(self, model: Model) -> tuple[float, tuple[float, float] | None]:
        """One number for all samples, and where the loss lies, by the jackknife; None where nothing tells.

        Each of a few groups of samples is left out in turn. Groups by themselves would be too small: ranks of ten
        samples do not change where those of a hundred do.
        """
        run = self._remembering(model)
        sign = 1 if self.higher_is_better else -1

        def scores(places: Sequence[int]) -> Array:
            found = [self._evaluator.measure(each, self._chosen(places)).mean() for each in (self._run, run)]
            return np.array(found)

        ours, theirs = scores(range(self.total))
        count = min(_GROUPS, self.total // 2)
        if count < 2:
            return float(theirs), None
        groups = [set(range(at, self.total, count)) for at in range(count)]
        less = [scores([at for at in range(self.total) if at not in group]) for group in groups]
        losses = [sign * float(left - right) for left, right in less]
        whole = sign * float(ours - theirs)
        # Where no score moves, chance is not seen, which is not to say that there is none.
        moves = len({whole, *losses}) > 1
        return float(theirs), mean_interval(count * whole - (count - 1) * np.array(losses)) if moves else None

    def satisfied(self, float_score: float, score: float) -> None:
        """Nothing: a threshold decides."""
        return

    def _check_limits(self, values: Array) -> None:
        if self.limits is not None and not (values.min() >= self.limits[0] and values.max() <= self.limits[1]):
            what = english(
                "evaluate() in {path} gives values outside its RANGE {limits}.",
                path=self._evaluator.path,
                limits=self.limits,
            )
            raise BadInput(what, fix=english("correct RANGE, or leave it out"))

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
        self.notes = (message("search.note_all_samples"),)
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
        self.notes: tuple[Message, ...] = ()
        self._float = self.measure(model, ())
        self.doubts = repeat_doubts(self._float, self.measure(model, ()))
        rule = self.satisfied(float(self._float), float(self._float))
        if rule is not None and not rule[0]:
            what = english(
                "metric_eval() in {path} is not satisfied with the float model itself ({float:g}).",
                path=path,
                float=float(self._float),
            )
            raise BadInput(what, fix=english("let metric_eval(original, new) give True, 0 when both are the same"))

    def float_values(self) -> Array:
        """What the float network scores."""
        return self._float

    def measure(self, model: Model, indices: Sequence[int]) -> Array:
        """What a network scores, as a file that stock onnxruntime runs."""
        from roundoff.run.evaluators import finite_number

        with ScratchFolder() as folder:
            file = folder / "model.onnx"
            save_model(model, file)
            value = self._call(self._evaluator.evaluate, str(file))
        return np.asarray(finite_number(value, of=english("evaluate() in {path}", path=self._path)))

    def satisfied(self, float_score: float, score: float) -> tuple[bool, float] | None:
        """What the user's rule says."""
        rule = getattr(self._evaluator, "metric_eval", None)
        if rule is None:
            return None
        from roundoff.run.evaluators import verdict

        return verdict(
            self._call(rule, float_score, score), of=english("metric_eval() in {path}", path=self._path)
        )

    def _call(self, function: Any, *values: Any) -> Any:
        return call_user_code(function, *values, path=self._path, what=_WHAT)


# Calibration samples from an evaluator: what its ``calibration(model)`` feeds the model is kept.

_KEY = "roundoff.feeding"


class FedSamples:
    """What a model was fed, run by run.

    Attributes:
        label: Who fed it.
        names: A name for each run.

    Args:
        label: Who feeds it.
        max_memory: Bytes to keep in memory; the rest goes to files.
        most: Runs that are kept; None for all.
    """

    label: str
    names: tuple[str, ...]

    def __init__(self, label: str, *, max_memory: int | None = None, most: int | None = None) -> None:
        self.label, self.names = label, ()
        self._most = most
        self._inputs: list[tuple[str, ...]] = []
        self._store = TensorStore(memory_limit(max_memory, share=0.25))
        self._hash = hashlib.sha256()

    def feed(self, index: int) -> Mapping[str, Array]:
        """What the model was fed in one run."""
        return {name: self._store.get(index, name) for name in self._inputs[index]}

    @property
    def digest(self) -> str:
        """A hash of all that it was fed."""
        return self._hash.hexdigest()

    def add(self, feed: Mapping[str, Any]) -> None:
        """Keep one more run, as it is now: whoever feeds it may use the arrays again."""
        index = len(self.names)
        if self._most is not None and index >= self._most:
            return
        for name in sorted(feed):
            value = feed[name]
            array = np.array(value.numpy() if hasattr(value, "numpy") else value, order="C")
            self._hash.update(f"{name} {array.dtype.str} {array.shape} ".encode())
            self._hash.update(array.tobytes())
            self._store.put(index, name, array)
        self._inputs.append(tuple(sorted(feed)))
        self.names = (*self.names, f"run {index + 1}")


def fed_samples(
    calibration: Callable[[str], Any],
    model: Model,
    *,
    path: Path,
    most: int | None = None,
    max_memory: int | None = None,
) -> FedSamples:
    """Let an evaluator run a model on its calibration data, and keep these.

    Args:
        calibration: Is called with the path of the model, opens it in onnxruntime and runs it.
        model: The float model.
        path: The file of the evaluator.
        most: Runs that are kept; None for all.
        max_memory: Bytes the process may take; most of the free memory by default.

    Raises:
        BadInput: It failed, or did not run the model.
    """
    found = FedSamples(f"calibration() in {path}", max_memory=max_memory, most=most)
    mark = uuid.uuid4().hex

    def opened(session: Any, _source: Any) -> None:
        if session.get_modelmeta().custom_metadata_map.get(_KEY) == mark:
            session.run = _watched(session.run, found)

    with ScratchFolder() as folder:
        file = folder / "model.onnx"
        save_model(_marked(model, mark), file)
        add_session_observer(mark, opened)
        try:
            call_user_code(calibration, str(file), path=path, what=english("The evaluator"))
        finally:
            remove_session_observer(mark)
    if not found.names:
        what = english("calibration() in {path} did not run the model that it was given.", path=path)
        fix = english(
            "let it call run() of an onnxruntime.InferenceSession(model), in this process; or give --data"
        )
        raise BadInput(what, fix=fix)
    return found


def _watched(original: Callable[..., list[Any]], found: FedSamples) -> Callable[..., list[Any]]:
    @functools.wraps(original)
    def run(
        output_names: Sequence[str] | None, input_feed: Mapping[str, Any], run_options: Any = None
    ) -> list[Any]:
        values = original(output_names, input_feed, run_options)
        found.add(input_feed)
        return values

    return run


def _marked(model: Model, mark: str) -> Model:
    proto = type(model.proto)()
    proto.CopyFrom(model.proto)
    proto.metadata_props.add(key=_KEY, value=mark)
    return Model(proto, model.path, model.file_bytes)


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
        max_memory: Bytes the process may take; most of the free memory by default.
    """

    evaluator: Path | None = None
    instance: Any = None
    module: ModuleType | None = None
    labels: Array | None = None
    decibels: bool = False
    threads: int | None = None
    max_memory: int | None = None

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
        return FunctionJudge(
            evaluator,
            model,
            samples,
            limits=limits,
            indices=indices,
            threads=options.threads,
            max_memory=options.max_memory,
        )
    return output_judge(Bench(model, samples, threads=options.threads, max_memory=options.max_memory), options)


def output_judge(bench: Bench, options: JudgeOptions) -> TrialJudge:
    """What looks at outputs alone: right answers, answers as in float, or signal to noise.

    Args:
        bench: Runs networks on the samples.
        options: What by; no evaluator.

    Raises:
        BadInput: The labels do not fit.
        ModelFailed: The model cannot be run.
    """
    if options.labels is not None:
        return ClassJudge(bench, options.labels)
    if options.decibels:
        return SignalJudge(bench)
    (_, first), *_ = bench.run_together(bench.model, [0])
    scores = [class_predictions(array) for array in first if getattr(array, "ndim", 0) == 2]
    numbers = all(isinstance(array, np.ndarray) and array.dtype.kind in "iu" for array in first)
    classes = any(found is not None for found in scores) or (numbers and bool(class_places(first)))
    return ClassJudge(bench, None) if classes else SignalJudge(bench)


def _vendor(instance: Any, model: Model, *, path: Path) -> TrialJudge:
    name = str(getattr(instance, "NAME", path.stem))
    return VendorJudge(instance, model, path=path, name=name, higher_is_better=higher_is_better(instance, path))


def _vendor_object(module: ModuleType, path: Path) -> Any:
    """What has ``evaluate(model)`` in a file: the file itself, or an object or class; None when nothing has."""
    function = getattr(module, "evaluate", None)
    if callable(function):
        return module if _takes_one(function) else None
    found = objects_with(["evaluate"], module, path, what=_WHAT)
    if len(found) > 1:
        names = ", ".join(sorted(type(each).__name__ for each in found))
        raise BadInput(
            english("{path} holds {count} evaluators: {names}.", path=path, count=len(found), names=names),
            fix=english("leave one of them in the file"),
        )
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
    what = english(
        "RANGE in {path} is {brief}, not the smallest and the largest value of a sample.",
        path=path,
        brief=brief(given),
    )
    return BadInput(what, fix=english("write it as in RANGE = (0, 1), or leave it out"))
