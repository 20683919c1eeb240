"""How good a network is at its task: a function of the user's, or the classes it predicts.

An evaluator is a Python file with a function ``evaluate(run, samples)`` that gives a number. ``run(feed)`` runs
the network on a dictionary of inputs and gives a dictionary of outputs; ``samples`` is a sequence of such inputs.
"""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from numbers import Real
from pathlib import Path
from typing import Any, overload

import numpy as np

from roundoff.analysis.labels import load_labels
from roundoff.analysis.user_code import load_user_module, user_code_failed
from roundoff.core.tensors import Array
from roundoff.errors import BadInput, RoundoffError
from roundoff.graph.load import Model
from roundoff.runtime.feeds import Samples
from roundoff.runtime.runner import read_feed

__all__ = [
    "EvaluationSamples",
    "Evaluator",
    "Run",
    "class_predictions",
    "load_evaluator",
    "load_labels",
]

Run = Callable[[Mapping[str, Array]], dict[str, Array]]
"""Runs a network: inputs by name, outputs by name."""

_EXAMPLE = """write it like

def evaluate(run, samples):
    right = sum(run(feed)["logits"].argmax() == label for feed, label in zip(samples, LABELS))
    return right / len(samples)"""


# Rows, places (such as the words of a text) and classes; nobody knows where the classes are among more.
_MOST_AXES = 3


class EvaluationSamples(Sequence[Mapping[str, Array]]):
    """Samples as evaluators see them: a sequence of inputs, each read when it is asked for.

    Attributes:
        names: What the samples are called.
    """

    names: tuple[str, ...]

    def __init__(self, model: Model, samples: Samples, indices: Sequence[int] | None = None) -> None:
        self._model, self._samples = model, samples
        self._indices = tuple(range(len(samples.names)) if indices is None else indices)
        self.names = tuple(samples.names[index] for index in self._indices)

    def __len__(self) -> int:
        return len(self._indices)

    @overload
    def __getitem__(self, index: int) -> Mapping[str, Array]: ...
    @overload
    def __getitem__(self, index: slice) -> "EvaluationSamples": ...
    def __getitem__(self, index: int | slice) -> "Mapping[str, Array] | EvaluationSamples":
        if isinstance(index, slice):
            return EvaluationSamples(self._model, self._samples, self._indices[index])
        return read_feed(self._model, self._samples, self._indices[index])

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
        """The score of a network.

        Raises:
            BadInput: The function failed, or gave no number.
            ModelFailed: The network failed on what the function fed it.
        """
        try:
            value = self.function(run, samples)
        except RoundoffError:
            raise
        except Exception as error:
            raise user_code_failed(self.path, error, what="The evaluator") from error
        # numpy's numbers and arrays of one number have item(); Python's own have not.
        plain = value.item() if isinstance(value, np.ndarray | np.generic) and np.size(value) == 1 else value
        if not isinstance(plain, Real) or not math.isfinite(plain):
            what = f"evaluate() in {self.path} gave {value!r}, which is not a finite number."
            raise BadInput(what, fix="let it return one number, e.g. the share of right answers")
        return float(plain)


def load_evaluator(path: Path | str) -> Evaluator:
    """Read a Python file with a function ``evaluate(run, samples)``.

    Raises:
        BadInput: The file cannot be read or run, or has no such function.
    """
    path = Path(path)
    module = load_user_module(path, what="The evaluator")
    function = getattr(module, "evaluate", None)
    if not callable(function):
        raise BadInput(f"{path} has no function evaluate(run, samples).", fix=_EXAMPLE)
    name, higher = getattr(module, "NAME", path.stem), getattr(module, "HIGHER_IS_BETTER", True)
    return Evaluator(str(name), bool(higher), path, function)


def class_predictions(output: Array) -> Array | None:
    """The class with the highest score in each row of an output; None when it has no rows of several scores.

    Args:
        output: Of shape (rows, classes), (rows, places, classes), or one of these with axes of size 1 behind it.

    Returns:
        int64 of shape (rows,).
    """
    if not isinstance(output, np.ndarray) or output.dtype.kind not in "fiu":
        return None
    shape = output.shape
    while len(shape) > 2 and shape[-1] == 1:
        shape = shape[:-1]
    if not 1 <= len(shape) <= _MOST_AXES or shape[-1] < 2:
        return None
    return np.asarray(output.reshape(-1, shape[-1]).argmax(axis=-1))
