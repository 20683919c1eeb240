"""How good a network is at its task: a function of the user's, or labels.

An evaluator is a Python file with a function ``evaluate(run, samples)`` that gives a number. ``run(feed)`` runs
the network on a dictionary of inputs and gives a dictionary of outputs; ``samples`` is a sequence of such inputs.
"""

import math
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from numbers import Real
from pathlib import Path
from typing import Any, overload

import numpy as np

from roundoff.analysis.user_code import load_user_module, running_user_code
from roundoff.core.csv_rows import csv_rows
from roundoff.core.files import read_small, reading
from roundoff.core.tensors import Array
from roundoff.errors import BadInput
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

_WHAT = "The evaluator"

Run = Callable[[Mapping[str, Array]], dict[str, Array]]
"""Runs a network: inputs by name, outputs by name."""

_EXAMPLE = """write it like

def evaluate(run, samples):
    right = sum(run(feed)["logits"].argmax() == label for feed, label in zip(samples, LABELS))
    return right / len(samples)"""


# No class has a number of more digits.
_WHOLE = re.compile(r"[+-]?[0-9]{1,18}")
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
        with running_user_code(self.path, what=_WHAT):
            value = self.function(run, samples)
        # numpy's numbers and arrays of one number have item(); Python's own have not.
        plain = value.item() if isinstance(value, np.ndarray | np.generic) and np.size(value) == 1 else value
        if not isinstance(plain, Real) or not math.isfinite(plain):
            what = f"evaluate() in {self.path} gave {value!r}, which is not a finite number."
            raise BadInput(what, fix="let it return one number, e.g. the share of right answers")
        return float(plain)


def load_evaluator(path: Path) -> Evaluator:
    """Read a Python file with a function ``evaluate(run, samples)``.

    Raises:
        BadInput: The file cannot be read or run, has no such function, or says nothing clear of which way is
            better.
    """
    module = load_user_module(path, what=_WHAT)
    function = getattr(module, "evaluate", None)
    if not callable(function):
        raise BadInput(f"{path} has no function evaluate(run, samples).", fix=_EXAMPLE)
    name, higher = getattr(module, "NAME", path.stem), getattr(module, "HIGHER_IS_BETTER", True)
    # A word such as "no" would count as yes.
    if higher not in (True, False):
        what = f"HIGHER_IS_BETTER in {path} is {higher!r}, which is neither True nor False."
        raise BadInput(what, fix="write HIGHER_IS_BETTER = False where less is better")
    return Evaluator(str(name), bool(higher), path, function)


def load_labels(path: Path, names: Sequence[str]) -> Array:
    """The right class of each sample.

    A ``.npy`` file holds whole numbers in the order of the samples. A text or CSV file holds one per line, or the
    name of a sample and its class; a line without any number is a heading.

    Args:
        path: The file.
        names: What the samples are called, in their order.

    Returns:
        int64 of shape (n,), not fewer than there are samples unless these hold several rows each.

    Raises:
        BadInput: It cannot be read, holds other things, or lacks a sample.
    """
    if path.suffix.lower() == ".npy":
        return _stored_labels(path)
    text = read_small(path, what="The labels").decode("utf-8", errors="replace")
    rows = [[cell.strip() for cell in row] for row in csv_rows(text, path) if any(map(str.strip, row))]
    if rows and not any(_is_whole(cell) for cell in rows[0]):
        rows = rows[1:]
    if not rows:
        raise BadInput(f"{path} holds no labels.", fix="write one class number per line")
    if all(len(row) == 1 for row in rows):
        return np.array([_class_number(row[0], path) for row in rows], dtype=np.int64)
    return _by_name({row[0]: row[-1] for row in rows}, path, names)


def _stored_labels(path: Path) -> Array:
    with reading(path, what="The labels"):
        try:
            found = np.load(path, allow_pickle=False)
        except (ValueError, EOFError) as error:
            raise BadInput(
                f"{path} cannot be read as a .npy file: {error}.", fix="save it with numpy.save"
            ) from error
    found = np.asarray(found)
    if found.dtype.kind not in "iu":
        what = f"{path} holds {found.dtype} of shape {list(found.shape)}; labels are whole numbers."
        raise BadInput(what, fix="save the class numbers as int64")
    return found.reshape(-1).astype(np.int64)


def _by_name(classes: Mapping[str, str], path: Path, names: Sequence[str]) -> Array:
    # Samples are called after their files without the ending; lists of labels often keep it.
    by_stem = {Path(name).stem: label for name, label in classes.items()}
    found = []
    for name in names:
        label = classes.get(name, by_stem.get(name))
        if label is None:
            raise BadInput(
                f"{path} has no label for sample {name!r}.",
                fix=f"its lines must begin with the names of the samples, such as {', '.join(names[:3])}",
            )
        found.append(_class_number(label, path))
    return np.array(found, dtype=np.int64)


def _class_number(text: str, path: Path) -> int:
    if not _is_whole(text):
        raise BadInput(f"{path} holds {text!r}, which is not a class number.", fix="write whole numbers from 0 on")
    return int(text)


def _is_whole(text: str) -> bool:
    return _WHOLE.fullmatch(text) is not None


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
