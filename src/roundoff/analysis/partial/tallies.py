"""What is counted of one candidate while samples go by."""

import math
from collections.abc import Sequence

import numpy as np

from roundoff.analysis.accumulation.tally import SampleMean
from roundoff.analysis.evaluation import class_predictions
from roundoff.analysis.partial.settings import OUTPUT_SCORES
from roundoff.analysis.sensitivity.scoring import Scorer
from roundoff.core.tensors import Array
from roundoff.core.wording import counted
from roundoff.errors import BadInput
from roundoff.metrics.registry import Metric, get_metric

__all__ = ["OutputTally", "Truth"]

*_METRICS, _SAME_TOP1 = OUTPUT_SCORES


class OutputTally:
    """How the outputs of a candidate agree with those in float.

    Args:
        outputs: How many outputs there are.
    """

    def __init__(self, outputs: int) -> None:
        self._scorer = Scorer(_METRICS)
        self._means = [[SampleMean(metric) for metric in self._scorer.metrics] for _ in range(outputs)]
        self._rows, self._agreeing = np.zeros(outputs, np.int64), np.zeros(outputs, np.int64)

    def add(self, references: Sequence[Array], candidates: Sequence[Array], names: Sequence[str]) -> None:
        """Take in samples that ran together.

        Args:
            references: Each output in float.
            candidates: Each output of the candidate.
            names: The samples.
        """
        values = self._scorer.score(references, candidates, len(names))
        for row, name in enumerate(names):
            for means, scores in zip(self._means, values[row], strict=True):
                for mean, score in zip(means, scores.tolist(), strict=True):
                    mean.add(score, name)
        for place, (reference, candidate) in enumerate(zip(references, candidates, strict=True)):
            left, right = class_predictions(reference), class_predictions(candidate)
            if left is not None and right is not None and left.shape == right.shape:
                self._rows[place] += left.size
                self._agreeing[place] += np.count_nonzero(left == right)

    def scores(self) -> dict[str, float]:
        """Means over samples, then over outputs; what no output has is not there."""
        found = {}
        for place, metric in enumerate(self._scorer.metrics):
            values = [mean.value for means in self._means if (mean := means[place]).value is not None]
            if values:
                found[metric.name] = _mean([value for value in values if value is not None], metric)
        if self._rows.any():
            compared = self._rows > 0
            found[_SAME_TOP1] = float((self._agreeing[compared] / self._rows[compared]).mean())
        return found


def _mean(values: Sequence[float], metric: Metric) -> float:
    imperfect = [value for value in values if not (math.isinf(value) and value == get_metric(metric.name).perfect)]
    return math.fsum(imperfect) / len(imperfect) if imperfect else values[0]


class Truth:
    """Counts right answers.

    Args:
        labels: The right class of each row.
        samples: How many samples there will be.
        candidates: How many candidates, beside the float network.

    Raises:
        BadInput: There are not as many labels as rows, or one is no class.
    """

    def __init__(self, labels: Array, *, samples: int, candidates: int) -> None:
        self._labels, self._samples = labels, samples
        self._right = np.zeros(candidates + 1, np.int64)
        self._rows = 0
        self._output: int | None = None

    def add(self, references: Sequence[Array], candidates: Sequence[Sequence[Array]], count: int) -> None:
        """Take in the outputs of samples that ran together, in float and of each candidate."""
        if self._output is None:
            self._output = self._find_output(references, count)
        predictions = [class_predictions(outputs[self._output]) for outputs in (references, *candidates)]
        rows = 0 if predictions[0] is None else predictions[0].size
        truth = self._labels[self._rows : self._rows + rows]
        self._rows += rows
        for number, predicted in enumerate(predictions):
            if predicted is not None and predicted.size == truth.size:
                self._right[number] += np.count_nonzero(predicted == truth)

    def share(self, candidate: int | None = None) -> float:
        """Share of right answers of a candidate; of the float network by default."""
        number = 0 if candidate is None else candidate + 1
        return float(self._right[number] / max(1, self._rows))

    def _find_output(self, references: Sequence[Array], count: int) -> int:
        """The first output with a row of scores for each label."""
        sizes = [0 if (found := class_predictions(output)) is None else found.size for output in references]
        expected = [size * self._samples // count for size in sizes]
        if self._labels.size in expected:
            place = expected.index(self._labels.size)
            self._check_range(references[place].size // sizes[place])
            return place
        rows = next((number for number in expected if number), 0)
        if not rows:
            what = "No output of the model has a row of scores for several classes, so that labels mean nothing."
            raise BadInput(what, fix="give a function that measures accuracy with --evaluator")
        have = counted(self._labels.size, "label")
        verb = "is" if self._labels.size == 1 else "are"
        what = f"There {verb} {have} for {counted(rows, 'row')} of {counted(self._samples, 'sample')}."
        raise BadInput(what, fix="give one label for each, in their order")

    def _check_range(self, classes: int) -> None:
        """Refuse classes that no answer can have: all would count as wrong."""
        outside = self._labels[(self._labels < 0) | (self._labels >= classes)]
        if outside.size:
            what = f"The label {outside[0]} is no class of the model: its output has {classes} scores in a row."
            raise BadInput(what, fix=f"number the classes from 0 to {classes - 1}")
