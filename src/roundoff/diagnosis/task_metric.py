"""The user's own measure of a network: an evaluator, or the classes of samples."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from roundoff.core.tensors import Array
from roundoff.errors import BadInput
from roundoff.graph.interface import outputs
from roundoff.graph.load import Model
from roundoff.messages.message import Message, message, verbatim
from roundoff.messages.numbers import counted
from roundoff.run.capture import read_feed
from roundoff.run.evaluators import EvaluationSamples, Evaluator, class_predictions, make_run
from roundoff.run.feeds import Samples

__all__ = ["TaskMetric", "accuracy_metric", "evaluator_metric"]


@dataclass(frozen=True, slots=True)
class TaskMetric:
    """Measures how good a network is at its task.

    Attributes:
        name: What is measured.
        higher_is_better: Which way it is better.
        measure: Gives the score of a network.
        chance: What guessing scores; None where that is not known.
        samples: Samples it is measured on.
    """

    name: Message
    higher_is_better: bool
    measure: Callable[[Model], float]
    chance: float | None = None
    samples: int = 0

    def drop(self, before: float, after: float) -> float:
        """How much worse the second score is."""
        return before - after if self.higher_is_better else after - before


def evaluator_metric(evaluator: Evaluator, samples: Samples, *, threads: int | None = None) -> TaskMetric:
    """What a function of the user's measures."""

    def measure(model: Model) -> float:
        return evaluator(make_run(model, threads=threads), EvaluationSamples(model, samples))

    return TaskMetric(verbatim(evaluator.name), evaluator.higher_is_better, measure, samples=len(samples.names))


def accuracy_metric(labels: Array, samples: Samples, *, threads: int | None = None) -> TaskMetric:
    """The share of samples whose largest output is the right class.

    Raises:
        BadInput: When it is measured: the network has no output of classes, or there are fewer labels than rows.
    """

    def measure(model: Model) -> float:
        return _accuracy(model, labels, samples, threads=threads)

    _, counts = np.unique(labels[: len(samples.names)], return_counts=True)
    chance = float(counts.max() / counts.sum()) if counts.size else None
    return TaskMetric(
        message("diagnosis.measure_accuracy"), True, measure, chance=chance, samples=len(samples.names)
    )


def _accuracy(model: Model, labels: Array, samples: Samples, *, threads: int | None) -> float:
    run, names = make_run(model, threads=threads), outputs(model)
    feeds = (read_feed(model, samples, index) for index in range(len(samples.names)))
    rows = np.concatenate([_classes(run(feed), names, model) for feed in feeds])
    if len(labels) < len(rows):
        what = f"There are {counted(len(labels), 'label')} for {counted(len(rows), 'row')} of samples."
        raise BadInput(what, fix="give one class per sample, in their order")
    return float(np.mean(rows == labels[: len(rows)]))


def _classes(found: dict[str, Array], names: Sequence[str], model: Model) -> Array:
    for name in names:
        classes = class_predictions(found[name])
        if classes is not None:
            return classes
    what = f"{model.path} has no output of one score per class, so labels say nothing of it."
    raise BadInput(what, fix="write an evaluator and give it with --evaluator")
