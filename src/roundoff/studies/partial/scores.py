"""Scores of networks between quantized and float: by their outputs, or by a function of the user's."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from roundoff.core.progress import SILENT, Progress
from roundoff.core.quantizers import Quantizer
from roundoff.core.tensors import Array
from roundoff.errors import BadInput
from roundoff.graph.insertion import switch_on
from roundoff.graph.interface import outputs
from roundoff.graph.load import Model
from roundoff.graph.shapes import Value, values
from roundoff.measure.classes import class_count, class_places, class_predictions, same_classes
from roundoff.measure.metrics import Metric
from roundoff.measure.rows import RowMeter, SampleTally, mean_of_scores, sums_of_row
from roundoff.messages.message import english
from roundoff.messages.numbers import counted
from roundoff.run.bench import Bench, samples_together
from roundoff.run.budget import RunBudget
from roundoff.run.capture import Samples, complete_values
from roundoff.run.evaluators import EvaluationSamples, Evaluator, make_run
from roundoff.run.variants import KnownConstants, build_candidates
from roundoff.studies.partial.result import (
    ACCURACY,
    SAME_TOP1,
    SHOWN_METRICS,
    PartialSettings,
    ScoreGoal,
    default_goal,
    float_side,
    parse_goal,
    reaches,
    score_metrics,
)

# What is counted of one candidate while samples go by.


@dataclass(frozen=True, slots=True, eq=False)
class ChunkScores:
    """What samples that ran together tell of some candidates.

    Attributes:
        names: The samples.
        tables: The fields that metrics need of each candidate, sample and output.
        rows: Rows of scores of each candidate and output, where it has such.
        agreeing: How many of them have the class that they have in float.
        classes: Where labels are known, the classes of their output: in float, then of each candidate.
    """

    names: tuple[str, ...]
    tables: tuple[Array, ...]
    rows: Array
    agreeing: Array
    classes: tuple[Array, ...] = ()


def measure_chunk(
    meter: RowMeter,
    references: Sequence[Array],
    candidates: Sequence[Sequence[Array]],
    names: Sequence[str],
    *,
    labelled: int | None = None,
) -> ChunkScores:
    """Compare the outputs of samples that ran together.

    Args:
        meter: Gathers what metrics need.
        references: Each output in float.
        candidates: Each output of each candidate.
        names: The samples.
        labelled: The output that labels are of, where there are any.
    """
    same = [[same_classes(*pair) for pair in zip(references, each, strict=True)] for each in candidates]
    counts = np.array(same, np.int64).reshape(len(candidates), len(references), 2)
    predictions = () if labelled is None else (references[labelled], *(each[labelled] for each in candidates))
    none = np.zeros(0, np.int64)
    classes = (none if (found := class_predictions(each)) is None else found for each in predictions)
    tables = tuple(meter.measure(references, each, len(names)) for each in candidates)
    return ChunkScores(tuple(names), tables, counts[..., 1], counts[..., 0], tuple(classes))


class OutputTally:
    """How the outputs of a candidate agree with those in float.

    Args:
        outputs: How many outputs there are.
        metrics: What was measured.
    """

    def __init__(self, outputs: int, metrics: Sequence[Metric]) -> None:
        self._metrics = metrics
        self._tallies = [[SampleTally(metric) for metric in metrics] for _ in range(outputs)]
        self._rows, self._agreeing = np.zeros(outputs, np.int64), np.zeros(outputs, np.int64)

    def add(self, chunk: ChunkScores, candidate: int) -> None:
        """Take in samples that ran together."""
        for row, name in enumerate(chunk.names):
            for tallies, numbers in zip(self._tallies, chunk.tables[candidate][row], strict=True):
                sums = sums_of_row(numbers)
                if sums is not None:
                    for tally in tallies:
                        tally.add(sums, name)
        self._rows += chunk.rows[candidate]
        self._agreeing += chunk.agreeing[candidate]

    def scores(self) -> dict[str, float]:
        """Means over outputs of what each has over all samples; what no output has is not there."""
        found = {}
        for place, metric in enumerate(self._metrics):
            values = [tallies[place].value for tallies in self._tallies]
            mean = mean_of_scores([value for value in values if value is not None], metric.perfect)
            if mean is not None:
                found[metric.name] = mean
        if self._rows.any():
            compared = self._rows > 0
            found[SAME_TOP1] = float((self._agreeing[compared] / self._rows[compared]).mean())
        return found


class Truth:
    """Counts right answers.

    Args:
        labels: The right class of each row.
        candidates: How many candidates, beside the float network.
    """

    def __init__(self, labels: Array, *, candidates: int) -> None:
        self._labels = labels
        self._right = np.zeros(candidates + 1, np.int64)
        self._rows = 0

    def add(self, chunk: ChunkScores) -> None:
        """Take in samples that ran together."""
        truth = self._labels[self._rows : self._rows + chunk.classes[0].size]
        self._rows += chunk.classes[0].size
        for number, predicted in enumerate(chunk.classes):
            if predicted.size == truth.size:
                self._right[number] += np.count_nonzero(predicted == truth)

    def share(self, candidate: int | None = None) -> float:
        """Share of right answers of a candidate; of the float network by default."""
        number = 0 if candidate is None else candidate + 1
        return float(self._right[number] / max(1, self._rows))


def labelled_output(references: Sequence[Array], labels: Array, *, count: int, samples: int) -> int:
    """The first output with a row of scores for each label.

    Args:
        references: The outputs of some samples in float.
        labels: The right class of each row.
        count: How many samples those are.
        samples: How many samples there are.

    Raises:
        BadInput: There are not as many labels as rows, or one is no class.
    """
    sizes = [0 if (found := class_predictions(output)) is None else found.size for output in references]
    expected = [size * samples // count for size in sizes]
    for place in class_places(references):
        if expected[place] == labels.size:
            _check_range(labels, class_count(references[place]))
            return place
    rows = next((number for number in expected if number), 0)
    if not rows:
        what = english(
            "No output of the model has a row of scores for several classes, so that labels mean nothing."
        )
        raise BadInput(what, fix=english("give a function that measures accuracy with --evaluator"))
    what = english(
        "There {verb} {have} for {rows} {rows:row|rows} of {samples} {samples:sample|samples}.",
        verb="is" if labels.size == 1 else "are",
        have=counted(labels.size, "label"),
        rows=rows,
        samples=samples,
    )
    raise BadInput(what, fix=english("give one label for each, in their order"))


def _check_range(labels: Array, classes: int | None) -> None:
    """Refuse classes that no answer can have: all would count as wrong."""
    outside = labels[(labels < 0) | (labels >= classes)] if classes is not None else labels[:0]
    if outside.size:
        what = english(
            "The label {outside} is no class of the model: its output has {classes} scores in a row.",
            outside=outside[0],
            classes=classes,
        )
        raise BadInput(what, fix=english("number the classes from 0 to {number}", number=(classes or 0) - 1))


# Scores of several candidates for one network, all from one pass over the samples.

# A candidate holds what its largest nodes read and write, and what it shares until the others have it too.
_LIVE_TENSORS = 4
# Weights in float and quantized, each as built, as serialized, as read, and as the session's own.
_WEIGHT_COPIES = 8


@dataclass(frozen=True, slots=True)
class CandidateScoring:
    """What candidates are tried on.

    Attributes:
        model: The float model.
        samples: The samples.
        indices: Which of them.
        metrics: What outputs are compared by.
        labels: The right class of each row of the outputs; None when it is not known.
        max_memory: Bytes the process may take; most of the free memory by default.
        threads: Threads to use; all cores by default.
    """

    model: Model
    samples: Samples
    indices: Sequence[int]
    metrics: Sequence[Metric]
    labels: Array | None = None
    max_memory: int | None = None
    threads: int | None = None


Chunks = Callable[[CandidateScoring, Sequence[Sequence[Quantizer]], int], Iterator[ChunkScores]]
"""Given what candidates are tried on, the quantizers that are on in each, and how many samples may run together,
what all samples tell of them, in their order."""


def score_candidates(
    trial: CandidateScoring,
    choices: Sequence[Sequence[Quantizer]],
    *,
    progress: Progress = SILENT,
    elsewhere: Chunks | None = None,
) -> tuple[list[dict[str, float]], float | None]:
    """Score a network with several choices of quantizers on.

    What choices have in common runs once. Samples run together where that is shown to give the same bits.

    Args:
        trial: The network and the samples.
        choices: For each candidate the quantizers that are on.
        progress: Told of every sample.
        elsewhere: What runs them in other processes; None for nobody.

    Returns:
        The scores of each candidate by name, those that exist, and the accuracy of the float network where labels
        are known.

    Raises:
        BadInput: Labels or samples do not fit.
        ModelFailed: The model cannot be run.
    """
    runner = CandidateRunner(trial)
    together, at_once = runner.room(len(choices))
    starts = range(0, len(choices), at_once)
    found: list[dict[str, float]] = []
    accuracy, labels = None, trial.labels
    progress.start("scoring", len(starts) * len(trial.indices))
    try:
        for start in starts:
            group = choices[start : start + at_once]
            tallies = [OutputTally(runner.outputs, trial.metrics) for _ in group]
            truth = None if labels is None else Truth(labels, candidates=len(group))
            run = runner.chunks(group, together) if elsewhere is None else elsewhere(trial, group, together)
            for chunk in run:
                for at, tally in enumerate(tallies):
                    tally.add(chunk, at)
                if truth is not None:
                    truth.add(chunk)
                progress.advance(len(chunk.names))
            right = [{} if truth is None else {ACCURACY: truth.share(at)} for at in range(len(group))]
            found += [tally.scores() | more for tally, more in zip(tallies, right, strict=True)]
            accuracy = None if truth is None else truth.share()
    finally:
        progress.finish()
    return found, accuracy


class CandidateRunner:
    """Runs candidates on samples.

    Args:
        trial: The network and the samples.
    """

    def __init__(self, trial: CandidateScoring) -> None:
        self._trial = trial
        model = trial.model
        self._bench = Bench(model, trial.samples, threads=trial.threads)
        feed = self._bench.feed(trial.indices[0])
        shapes = {name: array.shape for name, array in feed.items()}
        everything = complete_values(model, values(model, shapes), feed, threads=trial.threads)
        self._largest = max((value.size_bytes for value in everything), default=0) or 1
        self._outputs = _comparable(model, everything)
        self._known, self._meter = KnownConstants(), RowMeter(trial.metrics)

    @property
    def outputs(self) -> int:
        """How many outputs are compared."""
        return len(self._outputs)

    def room(self, choices: int) -> tuple[int, int]:
        """Samples that may run together, and candidates that run in one session."""
        budget = RunBudget(self._trial.threads, self._trial.max_memory).settled()
        room = max(1, budget.room(_WEIGHT_COPIES * self._trial.model.weight_bytes))
        together = samples_together(self._largest)
        while together > 1 and _LIVE_TENSORS * self._largest * together * (1 + choices) > room:
            together //= 2
        at_once = room // (_LIVE_TENSORS * self._largest * together) - 1
        return together, max(1, min(choices, at_once))

    def chunks(
        self, group: Sequence[Sequence[Quantizer]], together: int, indices: Sequence[int] | None = None
    ) -> Iterator[ChunkScores]:
        """What samples tell of candidates, some samples at a time; all of the trial by default."""
        trial = self._trial
        chosen = trial.indices if indices is None else indices
        copies = build_candidates(trial.model, group, known=self._known)
        network = self._bench.open_copies(copies, self._outputs)
        # Only where several samples at a time give, bit for bit, what each gives alone.
        most = together if together > 1 and self._bench.runs_together(network, chosen) else 1
        names = [value.name for value in self._outputs]
        places = [[copies.tap(name, at).name for name in names] for at in range(len(group))]
        labelled = None
        for chunk, arrays in self._bench.stream(network, chosen, together=most):
            references = [arrays[name] for name in names]
            if trial.labels is not None and labelled is None:
                about = {"count": len(chunk.samples), "samples": len(trial.indices)}
                labelled = labelled_output(references, trial.labels, **about)
            candidates = [[arrays[name] for name in own] for own in places]
            yield measure_chunk(self._meter, references, candidates, chunk.names, labelled=labelled)


def _comparable(model: Model, everything: Sequence[Value]) -> list[Value]:
    """The outputs that hold numbers."""
    leaving = frozenset(outputs(model))
    found = [value for value in everything if value.name in leaving and not value.obstacle()]
    if not found:
        raise BadInput(
            "{path} has no output of numbers to compare.", fix=english("give --evaluator instead"), path=model.path
        )
    return found


Choices = Sequence[Sequence[Quantizer]]


@dataclass(frozen=True, slots=True)
class PartialScores:
    """What was measured.

    Attributes:
        name: Of the score.
        higher_is_better: Which way it is better.
        float_score: That of the float network.
        goal: What is to be reached.
        scores: The score of each network, as far as they were measured.
        others: Other scores of each network.
        interrupted: Whether Ctrl-C ended it.
    """

    name: str
    higher_is_better: bool
    float_score: float
    goal: ScoreGoal
    scores: tuple[float, ...]
    others: tuple[dict[str, float], ...]
    interrupted: bool = False


def by_outputs(
    model: Model,
    samples: Samples,
    choices: Choices,
    settings: PartialSettings,
    *,
    progress: Progress,
    elsewhere: Chunks | None = None,
) -> PartialScores:
    """Score networks by how their outputs agree with those in float, and with labels where there are any.

    Args:
        model: The float model.
        samples: What to run it on.
        choices: For each network the quantizers that are on.
        settings: What to measure.
        progress: Told of every sample.
        elsewhere: What runs them in other processes; None for nobody.

    Raises:
        BadInput: No output has such a score, or the goal cannot be read.
        ModelFailed: The model cannot be run.
    """
    name = settings.score or (SHOWN_METRICS[0] if settings.labels is None else ACCURACY)
    metrics = score_metrics(settings.score)
    indices = range(len(samples.names))[: settings.samples]
    trial = CandidateScoring(
        model, samples, indices, metrics, settings.labels, settings.max_memory, settings.threads
    )
    found, accuracy = score_candidates(trial, choices, progress=progress, elsewhere=elsewhere)
    if any(name not in scores for scores in found):
        able = list(dict.fromkeys(each for scores in found for each in scores))
        fix = (
            english("choose another score: {able}", able=", ".join(able))
            if able
            else english("measure it with --evaluator")
        )
        raise BadInput("{path} has no output for which {name} can be said.", fix=fix, path=model.path, name=name)
    # What the float network scores against itself.
    perfect, higher = float_side(name)
    whole = perfect if perfect is not None else accuracy or 0.0
    text = settings.goal or default_goal(whole)
    return PartialScores(
        name=name,
        higher_is_better=higher,
        float_score=whole,
        goal=parse_goal(text, score=name, float_score=whole, higher_is_better=higher),
        scores=tuple(scores[name] for scores in found),
        others=tuple({key: value for key, value in scores.items() if key != name} for scores in found),
    )


def by_evaluator(
    model: Model,
    samples: Samples,
    choices: Choices,
    settings: PartialSettings,
    *,
    evaluator: Evaluator,
    progress: Progress,
) -> PartialScores:
    """Score networks one after the other with a function of the user's. Ctrl-C keeps what is done.

    Args:
        model: The float model.
        samples: What the function is given.
        choices: For each network the quantizers that are on.
        settings: What to reach.
        evaluator: The function.
        progress: Told of every network.

    Raises:
        BadInput: The function failed, or the goal cannot be read.
        ModelFailed: The model cannot be run.
        KeyboardInterrupt: Ctrl-C came before any network was measured.
    """
    name, higher = evaluator.name, evaluator.higher_is_better
    seen = EvaluationSamples(model, samples, range(len(samples.names))[: settings.samples])
    scores: list[float] = []
    interrupted = False
    progress.start("evaluating", len(choices) + 1)
    try:
        whole = evaluator(make_run(model, threads=settings.threads), seen)
        goal = parse_goal(
            settings.goal or default_goal(whole), score=name, float_score=whole, higher_is_better=higher
        )
        progress.advance()
        for at, quantizers in enumerate(choices):
            if at and _same(quantizers, choices[at - 1]):
                scores.append(scores[-1])
            else:
                scores.append(evaluator(make_run(switch_on(model, quantizers), threads=settings.threads), seen))
            progress.advance()
            if settings.stop_at_goal and reaches(scores[-1], goal, higher_is_better=higher):
                break
    except KeyboardInterrupt:
        if not scores:
            raise
        interrupted = True
    finally:
        progress.finish()
    return PartialScores(name, higher, whole, goal, tuple(scores), tuple({} for _ in scores), interrupted)


def _same(left: Sequence[Quantizer], right: Sequence[Quantizer]) -> bool:
    return list(map(id, left)) == list(map(id, right))
