"""What a diagnosis is asked, how long it may take, and what it has looked at so far."""

import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial

import numpy as np

from roundoff.core.coverage import Doubt, Judgement
from roundoff.core.plan import QuantPlan
from roundoff.core.progress import NO_DEADLINE, SILENT, Deadline, Progress
from roundoff.core.target import WIDEST, Arithmetic
from roundoff.core.tensors import Array
from roundoff.diagnosis.result import Check
from roundoff.errors import BadInput
from roundoff.graph.interface import outputs
from roundoff.graph.load import Model
from roundoff.measure.classes import class_count, class_places, class_predictions
from roundoff.measure.verdicts import PairedChange, label_doubts, paired_change, repeat_doubts
from roundoff.messages.message import Message, english, message, verbatim
from roundoff.run.capture import Samples, read_feed
from roundoff.run.evaluators import CountedRun, EvaluationSamples, Evaluator, Run, make_run, remembering


def _no_doubts(_model: Model, _values: Array) -> tuple[Doubt, ...]:
    return ()


@dataclass(frozen=True, slots=True)
class TaskMetric:
    """Measures how good a network is at its task.

    Attributes:
        name: What is measured.
        higher_is_better: Which way it is better.
        values: Gives the scores of a network: one for each sample, or one for all where it has no others.
        chance: What guessing scores; None where that is not known.
        samples: Samples it is measured on.
        doubts: What speaks against it, given the float network and its scores.
        some: Gives what a network scores on some samples, by their places: a value for each, of shape (n,), or one
            for all of them, of shape (); None where it can be measured on all samples only.
    """

    name: Message
    higher_is_better: bool
    values: Callable[[Model], Array]
    chance: float | None = None
    samples: int = 0
    doubts: Callable[[Model, Array], tuple[Doubt, ...]] = _no_doubts
    some: Callable[[Model, Sequence[int]], Array] | None = None

    def on(self, indices: Sequence[int]) -> "TaskMetric":
        """The same on some of the samples; what speaks against it was said of all of them.

        Raises:
            ValueError: It can be measured on all samples only.
        """
        some = self.some
        if some is None:
            raise ValueError("the metric cannot be measured on some of its samples")
        return replace(
            self,
            values=lambda model: np.atleast_1d(some(model, indices)),
            samples=len(indices),
            doubts=_no_doubts,
            some=lambda model, places: some(model, [indices[place] for place in places]),
        )

    def splits(self, model: Model) -> bool:
        """Whether samples can be measured apart: a function whose labels go by position says other things then."""
        if self.some is None:
            return False
        places = list(range(self.samples))
        try:
            ahead, back = self.some(model, places), self.some(model, places[::-1])
        except BadInput:
            return False
        return ahead.shape == back.shape and np.allclose(
            ahead, back[::-1] if back.ndim else back, rtol=_SAME_VALUE, atol=_SAME_VALUE
        )

    def measure(self, model: Model) -> float:
        """The score of a network."""
        return float(self.values(model).mean())

    def change(self, before: Model, after: Model, known: tuple[Array, Array]) -> PairedChange:
        """What is lost from one network to another, with its chance; by the jackknife where it is one number.

        Args:
            before: One network.
            after: The other.
            known: The scores of both.
        """
        plain = paired_change(*known, higher_is_better=self.higher_is_better)
        if known[0].size > 1 or not self.splits(before):
            return plain
        ours, theirs = (
            self.pseudo_values(model, float(whole.mean()))
            for model, whole in zip((before, after), known, strict=True)
        )
        if ours is None or theirs is None:
            return plain
        found = paired_change(ours, theirs, higher_is_better=self.higher_is_better)
        return replace(found, loss=plain.loss, samples=self.samples)

    def pseudo_values(self, model: Model, whole: float) -> Array | None:
        """What each of a few groups of samples adds to one number for all, by the jackknife; None for too few.

        Each group is left out in turn, so that never fewer than half of the samples are asked for: groups by
        themselves would be too small for ranks.
        """
        count, some = min(_GROUPS, self.samples // 2), self.some
        if count < 2 or some is None:
            return None
        left = [[at for at in range(self.samples) if at % count != group] for group in range(count)]
        return count * whole - (count - 1) * np.array([float(some(model, places).mean()) for places in left])

    def drop(self, before: float, after: float) -> float:
        """How much worse the second score is."""
        return before - after if self.higher_is_better else after - before


# Sums in another order differ by less.
_SAME_VALUE = 1e-5
# A metric with one number is asked for so many samples one by one, and without each of so many groups of them.
_MOST_ONE_BY_ONE, _GROUPS = 512, 8


@dataclass(slots=True)
class _LastRun:
    """The network that was asked about last: samples are computed once, whichever group of them is left out."""

    threads: int | None
    max_memory: int | None
    model: Model | None = None
    run: Run | None = None

    def __call__(self, model: Model) -> Run:
        if self.run is None or self.model is not model:
            self.model = self.run = None
            self.run = remembering(make_run(model, threads=self.threads), max_memory=self.max_memory)
            self.model = model
        return self.run


def evaluator_metric(
    evaluator: Evaluator, samples: Samples, *, threads: int | None = None, max_memory: int | None = None
) -> TaskMetric:
    """What a function of the user's measures.

    One number for all samples is a value for each where it is the mean of what it says of them one by one.
    """
    by_sample: list[bool] = []
    asked: list[int] = []
    run_of = _LastRun(threads, max_memory)

    def values(model: Model) -> Array:
        run, count = CountedRun(run_of(model)), len(samples.names)

        def score(places: Sequence[int] | None = None) -> Array:
            return evaluator.measure(run, EvaluationSamples(model, samples, places))

        def is_mean_of(parts: Array, sizes: Sequence[int] | None = None) -> bool:
            mean = np.average(parts, weights=sizes)
            return bool(np.isclose(mean, whole.mean(), rtol=_SAME_VALUE, atol=_SAME_VALUE))

        whole = np.atleast_1d(score())
        asked.append(run.calls)
        if whole.size > 1 or not 1 < count <= _MOST_ONE_BY_ONE or by_sample == [False]:
            return whole
        halves = [range(at, count, 2) for at in (0, 1)]
        with warnings.catch_warnings():
            # That ranks of one sample are none is known. What is no mean of two halves is not asked for them.
            warnings.simplefilter("ignore")
            try:
                fits = bool(by_sample) or is_mean_of(
                    np.array([score(part).mean() for part in halves]), [*map(len, halves)]
                )
                each = np.array([score([at]).mean() for at in range(count)]) if fits else whole
            except BadInput:
                fits, each = False, whole
        # Ranks of a network that is right may be 1 for each sample, too: the next network shows what they are.
        by_sample[:] = [fits and is_mean_of(each)]
        return each if by_sample[0] else whole

    def some(model: Model, indices: Sequence[int]) -> Array:
        return evaluator.measure(run_of(model), EvaluationSamples(model, samples, indices))

    def doubts(model: Model, known: Array) -> tuple[Doubt, ...]:
        again = values(model)
        # Another network was asked about meanwhile: who alternates is known only when asked twice in a row.
        return repeat_doubts(known, again) or repeat_doubts(again, values(model), asked=any(asked))

    name, higher = verbatim(evaluator.name), evaluator.higher_is_better
    return TaskMetric(name, higher, values, samples=len(samples.names), doubts=doubts, some=some)


def accuracy_metric(
    labels: Array, samples: Samples, *, threads: int | None = None, cut: bool = False
) -> TaskMetric:
    """The share of samples whose largest output is the right class.

    Args:
        labels: The right class of each row.
        samples: What the network is fed.
        threads: Threads to use.
        cut: Whether samples are the first ones of those that labels are of.

    Raises:
        BadInput: When it is measured: the network has no output of classes, or labels are not as many as rows.
    """

    def values(model: Model) -> Array:
        return np.concatenate(right(model, range(len(samples.names))))

    def some(model: Model, indices: Sequence[int]) -> Array:
        return np.array([float(each.mean()) for each in right(model, indices)])

    def doubts(model: Model, _known: Array) -> tuple[Doubt, ...]:
        _, classes = _classes(make_run(model, threads=threads)(read_feed(model, samples, 0)), model)
        return label_doubts(labels, classes)

    right = partial(_right_rows, labels, samples, threads=threads, cut=cut)
    _, counts = np.unique(labels[: len(samples.names)], return_counts=True)
    chance = float(counts.max() / counts.sum()) if counts.size else None
    name = message("diagnosis.measure_accuracy")
    return TaskMetric(name, True, values, chance=chance, samples=len(samples.names), doubts=doubts, some=some)


def _right_rows(
    labels: Array, samples: Samples, model: Model, indices: Sequence[int], *, threads: int | None, cut: bool
) -> list[Array]:
    """Whether each row of some samples gets its right class, sample by sample."""
    run, found = make_run(model, threads=threads), []
    for index in indices:
        rows = _classes(run(read_feed(model, samples, index)), model)[0]
        # Samples have as many rows as each other, so that labels can go with them.
        right = labels[index * rows.size : (index + 1) * rows.size]
        needed = rows.size * len(samples.names)
        if labels.size < needed or (labels.size > needed and not cut):
            what = english(
                "There are {count} {count:label|labels} for {count2} {count2:row|rows} of samples.",
                count=len(labels),
                count2=needed,
            )
            raise BadInput(what, fix=english("give one class per sample, in their order"))
        found.append(np.asarray(rows == right, dtype=np.float64))
    return found


def _classes(found: dict[str, Array], model: Model) -> tuple[Array, int]:
    """The class of each row, and how many classes there are."""
    given = [found[name] for name in outputs(model)]
    for at in class_places(given):
        classes = class_predictions(given[at])
        if classes is not None:
            return classes, class_count(given[at]) or 0
    what = english("{path} has no output of one score per class, so labels say nothing of it.", path=model.path)
    raise BadInput(what, fix=english("write an evaluator and give it with --evaluator"))


def _tell_nobody(check: Check) -> None:
    """Nobody listens."""


@dataclass(frozen=True, slots=True)
class DiagnoseSettings:
    """How to diagnose.

    Attributes:
        arithmetic: How the hardware computes with integers.
        metric: How good the network is at its task, by the user's measure; None without one.
        deadline: When it has to be done.
        threads: Threads to use; all cores by default.
        max_memory: Bytes the process may take.
        progress: Told how far it is.
        tell: Told of every check as soon as it is done.
        subject: What is diagnosed; None where its name is all that is known.
        given: The file of the quantized model, as it was given; None where it is made here.
        plan: What was asked for each node, and what it got; None where that is not known.
        opened_s: Seconds it took to read or make the quantized model.
        target: The chip it was quantized for; empty where that is not known.
        pictures: Whether to keep what pictures are drawn from.
        judged: What the judge said of this network and these samples when it was made; None where nobody asked.
        skipped: What there was no time for when it was made.
        few_ranges: Whether there was time for so few samples then that their ranges accuse nobody.
    """

    arithmetic: Arithmetic = WIDEST
    metric: TaskMetric | None = None
    deadline: Deadline = NO_DEADLINE
    threads: int | None = None
    max_memory: int | None = None
    progress: Progress = SILENT
    tell: Callable[[Check], None] = _tell_nobody
    subject: Message | None = None
    given: Model | None = None
    plan: QuantPlan | None = None
    opened_s: float = 0.0
    target: str = ""
    pictures: bool = True
    judged: Judgement | None = None
    skipped: tuple[Message, ...] = ()
    few_ranges: bool = False


@dataclass(slots=True)
class Investigation:
    """The notebook of a diagnosis.

    Attributes:
        settings: What was asked.
        checks: What was looked at.
        skipped: What was not, with the reason.
        notes: What the reader should know.
        reserve: Seconds that the end of it takes, once that is known.
    """

    settings: DiagnoseSettings
    checks: list[Check] = field(default_factory=list)
    skipped: list[Message] = field(default_factory=list)
    notes: list[Message] = field(default_factory=list)
    reserve: float = 0.0

    def out_of_time(self, seconds: float = 0.0) -> bool:
        """Whether nothing more may be begun, or nothing that takes so long."""
        return not self.settings.deadline.allows(self.reserve + seconds)

    def skip(self, what: Message) -> None:
        """Note that there was no time for something."""
        given = self.settings.deadline.given
        self.skipped.append(message("diagnosis.no_time_for", what=what, given=given))

    @contextmanager
    def check(self, name: Message) -> "Iterator[CheckOutcome]":
        """Look at something; what came of it is told at the end."""
        clock = self.settings.deadline.clock
        outcome, began = CheckOutcome(), clock()
        yield outcome
        if outcome.result is not None:
            found = Check(name, outcome.result, clock() - began, outcome.ok)
            self.checks.append(found)
            self.settings.tell(found)


@dataclass(slots=True)
class CheckOutcome:
    """What came of a check, to be filled in.

    Attributes:
        result: In a sentence without its full stop; None when it is not worth telling.
        ok: Whether nothing is wrong.
    """

    result: Message | None = None
    ok: bool = True
