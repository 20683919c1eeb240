"""What candidates are measured by: right answers, answers as in float, or signal to noise of the outputs."""

from collections.abc import Callable, Iterator, Sequence
from typing import Protocol

import numpy as np

from roundoff.core.coverage import Doubt
from roundoff.core.tensors import Array
from roundoff.errors import BadInput
from roundoff.graph.interface import outputs, parts_of_rows
from roundoff.graph.load import Model
from roundoff.measure.classes import class_count, class_places, class_predictions, is_index
from roundoff.measure.metrics import get_metric
from roundoff.measure.rows import RowMeter, sample_scores
from roundoff.measure.verdicts import ValueTally, guess_doubts, label_doubts, one_class
from roundoff.messages.message import Message, english, message
from roundoff.messages.numbers import counted
from roundoff.run.bench import Bench

Measure = Callable[[Model, Sequence[int]], Array]
"""What a network scores on some samples."""


class TrialJudge(Protocol):
    """Measures networks on a fixed set of samples."""

    @property
    def name(self) -> str:
        """What the metric is called."""
        ...

    @property
    def higher_is_better(self) -> bool:
        """Which way it is better."""
        ...

    @property
    def total(self) -> int:
        """How many samples there are; 0 when only the user knows."""
        ...

    @property
    def by_sample(self) -> bool:
        """Whether the metric is a mean over samples, and any of them can be measured alone."""
        ...

    @property
    def limits(self) -> tuple[float, float] | None:
        """Smallest and largest value that a sample can have; None when that is not known."""
        ...

    @property
    def notes(self) -> tuple[Message, ...]:
        """What the reader should know of how it measures."""
        ...

    @property
    def doubts(self) -> tuple[Doubt, ...]:
        """What speaks against a good verdict by it."""
        ...

    def float_values(self) -> Array:
        """What the float network scores: of shape (samples,), or of shape () where samples have no values."""
        ...

    def measure(self, model: Model, indices: Sequence[int]) -> Array:
        """What a network scores on some samples: a value for each, or one for all where samples have none.

        Args:
            model: The network, quantizers among its nodes.
            indices: Which samples; all of them where samples have no values.

        Raises:
            BadInput: The user's function failed.
            ModelFailed: The network cannot be run.
        """
        ...

    def satisfied(self, float_score: float, score: float) -> tuple[bool, float] | None:
        """What the user's own rule says of a score, and the loss; None when there is no such rule."""
        ...


def predicted_classes(bench: Bench, model: Model, indices: Sequence[int], *, output: int) -> Array:
    """The best class in each row of an output, of shape (samples, rows of each).

    Raises:
        BadInput: Samples do not have the same number of rows, or no classes.
    """
    found = []
    for chunk, arrays in bench.run_together(model, indices):
        classes = class_predictions(arrays[output])
        if classes is None or classes.size % len(chunk):
            what = english(
                "The output of {path} has no row of class scores for each of the samples.", path=model.path
            )
            raise BadInput(what, fix=english("give a function that measures accuracy with --evaluator"))
        found.append(classes.reshape(len(chunk), -1))
    if len({each.shape[1] for each in found}) > 1:
        what = english("The samples give different numbers of rows of class scores in {path}.", path=model.path)
        raise BadInput(what, fix=english("give a function that measures accuracy with --evaluator"))
    return np.concatenate(found)


class ClassJudge:
    """Accuracy where labels are known, else the share of answers that are the same as in float.

    Args:
        bench: Runs networks on the samples.
        labels: The right class of each row of the samples, in their order; None when nobody knows.

    Raises:
        BadInput: No output has a row of class scores for each label, or any.
    """

    higher_is_better, by_sample, limits = True, True, (0.0, 1.0)
    notes: tuple[Message, ...] = ()

    def __init__(self, bench: Bench, labels: Array | None) -> None:
        self.bench = bench
        self.name = "same_top1" if labels is None else "accuracy"
        self.total = len(bench.samples.names)
        self.output, rows = self._find_output(labels)
        everything = predicted_classes(bench, bench.model, range(self.total), output=self.output)
        self._truth = everything if labels is None else labels.reshape(self.total, rows)
        (_, first), *_ = bench.run_together(bench.model, [0])
        classes = class_count(first[self.output]) or 0
        self.doubts = (
            *(() if labels is None else label_doubts(labels, classes)),
            *(() if labels is None else guess_doubts(everything == self._truth, self._truth)),
            *one_class(everything, classes),
        )
        self._float = (everything == self._truth).mean(axis=1)

    def float_values(self) -> Array:
        """Share of right rows of each sample in float."""
        return np.asarray(self._float, dtype=np.float64)

    def measure(self, model: Model, indices: Sequence[int]) -> Array:
        """Share of right rows of some samples."""
        return self.compared(predicted_classes(self.bench, model, indices, output=self.output), indices)

    def compared(self, found: Array, indices: Sequence[int]) -> Array:
        """Share of right rows, by the classes that were found."""
        return np.asarray((found == self._truth[list(indices)]).mean(axis=1), dtype=np.float64)

    def satisfied(self, float_score: float, score: float) -> None:
        """Nothing: a threshold decides."""
        return

    def _find_output(self, labels: Array | None) -> tuple[int, int]:
        """The first output with a row of scores for each label, or with any; and how many rows each sample has."""
        (chunk, arrays), *_ = self.bench.run_together(self.bench.model, [0])
        sizes = [0 if (found := class_predictions(array)) is None else found.size for array in arrays]
        for place in class_places(arrays):
            if labels is None or sizes[place] * self.total == labels.size:
                return place, sizes[place]
        rows = max(sizes, default=0) * self.total // len(chunk)
        if labels is None or not rows:
            what = english(
                "No output of the model has a row of scores for several classes, so that labels mean nothing."
            )
            raise BadInput(what, fix=english("give a function that measures accuracy with --evaluator"))
        have = counted(labels.size, "label")
        what = english(
            "There are {have} for {rows} {rows:row|rows} of {total} {total:sample|samples}.",
            have=have,
            rows=rows,
            total=self.total,
        )
        raise BadInput(what, fix=english("give one label for each, in their order"))


# Measuring by signal to noise: how the outputs agree with those of the float network.

# A perfect sample has endless decibels, which no mean bears; float32 holds no more than these.
_MOST_DB = 150.0


class SignalJudge:
    """Signal to noise in decibels, mean over samples, each at the part of the outputs that is worst off.

    A part is an output, or a slice of one that an own branch computes: what is lost of scores between 0 and 1 does
    not show beside boxes in hundreds of pixels.

    Args:
        bench: Runs networks on the samples.

    Raises:
        BadInput: No output holds numbers.
    """

    name, higher_is_better, by_sample, limits = "mean_sqnr_db", True, True, None
    notes = (message("search.note_exact_db", db=f"{_MOST_DB:g}"),)
    doubts: tuple[Doubt, ...] = ()

    def __init__(self, bench: Bench) -> None:
        self.bench, self._meter = bench, RowMeter([get_metric(self.name)])
        self._known: dict[tuple[int, ...], list[tuple[tuple[int, ...], list[Array]]]] = {}
        self._room = bench.room  # every network is compared with the outputs in float
        self.total = len(bench.samples.names)
        (_, first), *_ = bench.run_together(bench.model, [0])
        self._places = [
            at
            for at, array in enumerate(first)
            if isinstance(array, np.ndarray) and (array.dtype.kind == "f" or is_index(array.dtype))
        ]
        if not self._places:
            what = english("No output of {path} holds float numbers to compare.", path=bench.model.path)
            raise BadInput(what, fix=english("give a function that measures accuracy with --evaluator"))
        feed = {key: array.shape for key, array in bench.feed(0).items()}
        named = {outputs(bench.model)[at]: first[at].shape for at in self._places}
        told = parts_of_rows(bench.model, named, feed)
        self._parts = [(at, part) for at, parts in zip(self._places, told, strict=True) for part in parts]

    def float_values(self) -> Array:
        """As many decibels as count."""
        return np.full(self.total, _MOST_DB)

    def measure(self, model: Model, indices: Sequence[int]) -> Array:
        """Decibels of some samples."""
        found = []
        pairs = zip(self._in_float(indices), self.bench.run_together(model, indices), strict=True)
        for (chunk, ours), (_, theirs) in pairs:
            mine, other = ([part.of(each[at]) for at, part in self._parts] for each in (ours, theirs))
            table = self._meter.measure(mine, other, len(chunk))
            scores = sample_scores(table, [get_metric(self.name)])[:, :, 0]
            scores = np.fmin(scores, _variation_db(mine, other, len(chunk)))
            found.append(np.clip(np.nan_to_num(scores, nan=_MOST_DB), -_MOST_DB, _MOST_DB).min(axis=1))
        return np.concatenate(found)

    def _in_float(self, indices: Sequence[int]) -> Iterator[tuple[tuple[int, ...], list[Array]]]:
        """What the float network gives, run only where that is not known."""
        key = tuple(indices)
        if key in self._known:
            yield from self._known[key]
            return
        size, kept = 0, []
        for chunk, arrays in self.bench.run_together(self.bench.model, indices):
            size += sum(arrays[at].nbytes for at in self._places)
            if size <= self._room:
                kept.append((chunk, arrays))
            yield chunk, arrays
        if size <= self._room:
            self._known[key] = kept
            self._room -= size

    def satisfied(self, float_score: float, score: float) -> None:
        """Nothing: a threshold decides."""
        return


def _variation_db(ours: Sequence[Array], theirs: Sequence[Array], count: int) -> Array:
    """Decibels of what varies in each sample and part that is left only a few of its values; NaN elsewhere."""
    found = np.full((count, len(ours)), np.nan)
    for at, pair in enumerate(zip(ours, theirs, strict=True)):
        if pair[0].shape != pair[1].shape:
            continue
        for row, sides in enumerate(zip(*(each.reshape(count, -1) for each in pair), strict=True)):
            tally = ValueTally()
            tally.add(*sides)
            if tally.lost is not None:
                found[row, at] = tally.variation_db
    return found
