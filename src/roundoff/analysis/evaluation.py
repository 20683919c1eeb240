"""How good a network is at its task: a function of the user's, or the classes it predicts.

An evaluator is a Python file with a function ``evaluate(run, samples)`` that gives a number, or one per sample.
``run(feed)`` runs the network on a dictionary of inputs and gives a dictionary of outputs; ``samples`` is a
sequence of such inputs.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any, overload

import numpy as np

from roundoff.analysis.user_code import brief, call_user_code, load_user_module
from roundoff.core.tensors import Array
from roundoff.core.wording import counted
from roundoff.errors import BadInput
from roundoff.graph.interface import inputs, outputs
from roundoff.graph.load import Model
from roundoff.runtime.feeds import Samples
from roundoff.runtime.runner import read_feed
from roundoff.runtime.session import open_session

__all__ = [
    "EvaluationSamples",
    "Evaluator",
    "Run",
    "class_count",
    "class_predictions",
    "evaluator_in",
    "load_evaluator",
    "make_run",
]

Run = Callable[[Mapping[str, Array]], dict[str, Array]]
"""Runs a network: inputs by name, outputs by name."""

_EXAMPLE = """write it like

def evaluate(run, samples):
    right = sum(run(feed)["logits"].argmax() == label for feed, label in zip(samples, LABELS))
    return right / len(samples)"""


_WHAT = "The evaluator"
# Rows, places (such as the words of a text) and classes; nobody knows where the classes are among more.
_MOST_AXES = 3


class EvaluationSamples(Sequence[Mapping[str, Array]]):
    """Samples as evaluators see them: a sequence of inputs, each read when it is asked for.

    Attributes:
        names: What the samples are called.
        indices: Their places among all samples; for lists that go with them, as of labels.
    """

    names: tuple[str, ...]
    indices: tuple[int, ...]

    def __init__(self, model: Model, samples: Samples, indices: Sequence[int] | None = None) -> None:
        self._model, self._samples = model, samples
        self.indices = tuple(range(len(samples.names)) if indices is None else indices)
        self.names = tuple(samples.names[index] for index in self.indices)

    def __len__(self) -> int:
        return len(self.indices)

    @overload
    def __getitem__(self, index: int) -> Mapping[str, Array]: ...
    @overload
    def __getitem__(self, index: slice) -> "EvaluationSamples": ...
    def __getitem__(self, index: int | slice) -> "Mapping[str, Array] | EvaluationSamples":
        if isinstance(index, slice):
            return EvaluationSamples(self._model, self._samples, self.indices[index])
        return read_feed(self._model, self._samples, self.indices[index])

    def __iter__(self) -> Iterator[Mapping[str, Array]]:
        return (self[index] for index in range(len(self)))


@dataclass(frozen=True, slots=True)
class Evaluator:
    """Measures a network with a function of the user's.

    Attributes:
        name: What the score is called: the file's ``NAME``, else its own name.
        higher_is_better: Which way it is better: the file's ``HIGHER_IS_BETTER``, else yes.
        path: The file.
        function: Its ``evaluate``.
    """

    name: str
    higher_is_better: bool
    path: Path
    function: Callable[[Run, EvaluationSamples], Any]

    def __call__(self, run: Run, samples: EvaluationSamples) -> float:
        """The score of a network; the mean where the function gives a value for each sample.

        Raises:
            BadInput: The function failed, or gave no number.
            ModelFailed: The network failed on what the function fed it.
        """
        return float(np.mean(self.measure(run, samples)))

    def measure(self, run: Run, samples: EvaluationSamples) -> Array:
        """What the function gives: a score, of shape (), or one for each sample, of shape (samples,).

        Raises:
            BadInput: The function failed, or gave neither.
            ModelFailed: The network failed on what the function fed it.
        """
        value = call_user_code(self.function, run, samples, path=self.path, what=_WHAT)
        if isinstance(value, Iterator):
            value = call_user_code(list, value, path=self.path, what=_WHAT)
        found = _numbers(value)
        wrong = ""
        if found is None:
            wrong = "is no number"
        elif found.size not in (1, len(samples)):
            wrong = f"has {counted(found.size, 'value')} for {counted(len(samples), 'sample')}"
        elif not np.isfinite(found).all():
            at = int(np.flatnonzero(~np.isfinite(found))[0])
            wrong = "is not finite" if found.size == 1 else f"is not finite for sample {samples.names[at]!r}"
        if found is None or wrong:
            raise BadInput(
                f"evaluate() in {self.path} gave {brief(value)}, which {wrong}.",
                fix="let it return one number, e.g. the share of right answers, or one per sample",
            )
        # A single sample has a single value either way; columns and rows of values mean the same.
        return found.reshape(() if found.size == 1 else -1)


def _numbers(value: Any) -> Array | None:
    """Numbers as float64, whatever of Python's or numpy's types they have; None when they are none."""
    try:
        found = np.asarray(value)
        return found.astype(np.float64) if found.dtype.kind in "fiub" else None
    except (TypeError, ValueError):
        return None


def load_evaluator(path: Path | str) -> Evaluator:
    """Read a Python file with a function ``evaluate(run, samples)``.

    Raises:
        BadInput: The file cannot be read or run, or has no such function.
    """
    return evaluator_in(load_user_module(Path(path), what=_WHAT), Path(path))


def evaluator_in(module: ModuleType, path: Path) -> Evaluator:
    """The evaluator that a Python file defines.

    Raises:
        BadInput: It has no function ``evaluate(run, samples)``, or says nothing clear of which way is better.
    """
    function = getattr(module, "evaluate", None)
    if not callable(function):
        raise BadInput(f"{path} has no function evaluate(run, samples).", fix=_EXAMPLE)
    name, higher = getattr(module, "NAME", path.stem), getattr(module, "HIGHER_IS_BETTER", True)
    # A word such as "no" would count as yes.
    if higher not in (True, False):
        what = f"HIGHER_IS_BETTER in {path} is {higher!r}, which is neither True nor False."
        raise BadInput(what, fix="write HIGHER_IS_BETTER = False where less is better")
    return Evaluator(str(name), bool(higher), path, function)


def make_run(model: Model, *, threads: int | None = None) -> Run:
    """A network as evaluators run it.

    Raises:
        ModelFailed: onnxruntime does not accept it.
    """
    session = open_session(model, threads=threads, optimize=True)
    names, needed = outputs(model), {spec.name for spec in inputs(model)}

    def run(feed: Mapping[str, Array]) -> dict[str, Array]:
        if set(feed) != needed:
            listed = [", ".join(map(repr, sorted(map(str, each)))) for each in (feed, needed)]
            what = f"run() was fed {listed[0] or 'nothing'}; the inputs are {listed[1]}."
            raise BadInput(what, fix="feed it what is in samples, or a dictionary with these keys")
        return dict(zip(names, session.run(feed), strict=True))

    return run


def class_predictions(output: Array) -> Array | None:
    """The class with the highest score in each row of an output; None when it has no rows of several scores.

    Args:
        output: Of shape (rows, classes), (rows, places, classes), or one of these with axes of size 1 behind it.

    Returns:
        int64 of shape (rows,).
    """
    classes = class_count(output)
    return None if classes is None else np.asarray(output.reshape(-1, classes).argmax(axis=-1))


def class_count(output: Array) -> int | None:
    """How many classes an output scores, see `class_predictions`; None when it has no rows of several scores."""
    if not isinstance(output, np.ndarray) or output.dtype.kind not in "fiu":
        return None
    shape = output.shape
    while len(shape) > 2 and shape[-1] == 1:
        shape = shape[:-1]
    return None if not 1 <= len(shape) <= _MOST_AXES or shape[-1] < 2 else int(shape[-1])
