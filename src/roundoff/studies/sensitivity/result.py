"""What each part of a network does to its outputs when it alone is quantized, as data."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from roundoff.core.coverage import Judgement
from roundoff.core.quantizers import SubjectKind, SwitchedSubject
from roundoff.core.tensors import Array
from roundoff.messages.message import Message

Mode = Literal["alone", "left_out"]
"""alone: only the subject is quantized; left_out: everything but the subject is."""

Interval = tuple[float, float]


@dataclass(frozen=True, slots=True, eq=False)
class SubjectScore:
    """How the outputs agree with those of the float model when a subject is switched.

    Attributes:
        subject: What was switched.
        samples: Indices of the samples it was measured on.
        sums: What was gathered of each sample, of shape (samples, outputs, numbers); see `roundoff.measure.rows`.
        values: Each sample scored alone, of shape (samples, outputs, metrics); NaN where there is no score.
        scores: For each metric all samples as one tensor, mean over outputs; of a metric that is a mean over
            samples, that mean. This ranks.
        mean: For each metric the mean over samples, then over outputs; what is NaN is left out, and so are perfect
            samples of a metric whose perfect value is infinite, unless all are perfect.
        interval: For each metric where that mean over many more samples like these lies, with a confidence of 95 %
            (Student's t); None for fewer than two samples or values that are not finite.
        reach: For each metric the same of its score; None as well where that is not known of a pooled metric.
        per_output: For each metric the score, by output.
    """

    subject: SwitchedSubject
    samples: tuple[int, ...]
    sums: Array
    values: Array
    scores: Mapping[str, float]
    mean: Mapping[str, float]
    interval: Mapping[str, Interval | None]
    reach: Mapping[str, Interval | None]
    per_output: Mapping[str, tuple[float, ...]]


@dataclass(frozen=True, slots=True)
class RankedSubject:
    """One row of a ranking.

    Attributes:
        rank: From 1, the one that hurts most.
        score: What was measured.
        differs_from_next: How probable a difference like that to the next row is when there is none (paired t-test
            over the samples both were measured on); None when it cannot be said.
        differs_from_first: The same of the difference to the first row.
    """

    rank: int
    score: SubjectScore
    differs_from_next: float | None = None
    differs_from_first: float | None = None

    @property
    def told_apart(self) -> bool | None:
        """Whether this row and the next can be told apart; None when that is not known."""
        return None if self.differs_from_next is None else self.differs_from_next < 0.05


@dataclass(frozen=True, slots=True)
class Effort:
    """How the result was come by.

    Attributes:
        blocks: Blocks the model was cut into.
        batch: Samples run at a time.
        arithmetic: ``plain``: scores are those of the graph run node by node. ``precise``: quantizers round what
            they round there, but kernels below them are fused. ``fast``: all kernels are fused, and a few values
            may be rounded to the other side.
        agreement_db: How float outputs of the kernels used agree with those of the graph run node by node; +inf
            when equal.
        planned: Subjects to measure.
        measured: Subjects measured.
        resumed: Of these, how many came from an earlier run.
        first_samples: Samples that all subjects were measured on.
        how: ``exact``: all subjects on all samples. ``stages``: all on a few, the leading ones on all. ``fast``:
            all on very few, the leading ones on a few.
    """

    blocks: int
    batch: int
    arithmetic: Literal["fast", "precise", "plain"]
    agreement_db: float
    planned: int
    measured: int
    resumed: int
    first_samples: int
    how: Literal["exact", "stages", "fast"] = "stages"


@dataclass(frozen=True, slots=True)
class Sensitivity:
    """Rankings of what hurts.

    Attributes:
        mode: What was done with each subject.
        metrics: Metric names; the first one ranks.
        outputs: The tensors that were compared.
        samples: Names of the samples.
        rankings: For each kind of subject its rows, the one that hurts most first.
        quantized: The score with everything quantized; None where that was not measured.
        unreached: Subjects that no output depends on.
        complete: Whether everything planned was done.
        effort: How the result was come by.
        notes: What the reader should know.
    """

    mode: Mode
    metrics: tuple[str, ...]
    outputs: tuple[str, ...]
    samples: tuple[str, ...]
    rankings: Mapping[SubjectKind, tuple[RankedSubject, ...]]
    quantized: SubjectScore | None
    unreached: tuple[SwitchedSubject, ...]
    complete: bool
    effort: Effort
    notes: tuple[Message, ...] = field(default=())


# Rankings of what hurts a network, in plain numbers for documents, tables and pictures.

Standing = Literal["stand_out", "tied", "spread", "nothing_lost", "no_score"]
"""stand_out: a few hurt much more than the rest. tied: the first ones cannot be told apart. spread: the error is
spread over many. nothing_lost: none changes the outputs. no_score: there is nothing to compare."""


@dataclass(frozen=True, slots=True)
class SensitivityRow:
    """One subject of a ranking.

    Attributes:
        rank: From 1, the one that hurts most.
        name: The node, the quantizer or the group.
        node: The node, or the first one that reads what is quantized; empty for groups.
        op_type: That node's operation.
        tensor: What a single quantizer quantizes; empty otherwise.
        quantizers: What is switched.
        scores: Each metric over all samples as one tensor, mean over outputs; a metric that is a mean over samples
            is that.
        intervals: For each metric where its mean over many more samples lies, with a confidence of 95 %; None when
            that is not known.
        per_output: For each metric its score, by output.
        samples: How many samples it was measured on.
        per_sample: The first metric, a row for each sample with a value for each output.
        worst_sample: The sample in which the first metric is worst; empty without any score.
        differs_from_next: Probability of a difference like that to the next row by chance; None when not known.
        means: Each metric, mean over samples scored alone, then over outputs: what the intervals are of. Empty in
            documents of older versions, whose scores are these means.
        differs_from_first: Probability of a difference like that to the first row by chance; None when not known.
        reaches: For each metric where its score over many more samples lies, with a confidence of 95 %; None when
            that is not known. Empty in documents of older versions.
    """

    rank: int
    name: str
    node: str
    op_type: str
    tensor: str
    quantizers: tuple[str, ...]
    scores: dict[str, float]
    intervals: dict[str, Interval | None]
    per_output: dict[str, tuple[float, ...]]
    samples: int
    per_sample: tuple[tuple[float, ...], ...]
    worst_sample: str
    differs_from_next: float | None
    means: dict[str, float] = field(default_factory=dict)
    differs_from_first: float | None = None
    reaches: dict[str, Interval | None] = field(default_factory=dict)

    def reach_of(self, metric: str) -> Interval | None:
        """The interval of a score; documents of older versions have means for scores."""
        return (self.reaches if self.means else self.intervals).get(metric)

    @property
    def tied_with_first(self) -> bool:
        """Whether this row cannot be told apart from the first one."""
        return self.differs_from_first is not None and self.differs_from_first >= 0.05

    @property
    def told_apart(self) -> bool | None:
        """Whether this row and the next can be told apart; None when that is not known."""
        return None if self.differs_from_next is None else self.differs_from_next < 0.05


@dataclass(frozen=True, slots=True)
class KindVerdict:
    """What one ranking says.

    Attributes:
        kind: Of the ranking.
        standing: In a word.
        count: How many are in the ranking.
        names: Those that stand out, or that cannot be told apart from the first; empty otherwise.
        share: Share of these in the sum of what all do alone, as energy or distance from perfect; None where that
            says nothing.
        sure: Whether chance can be excluded; None when there are too few samples to know.
    """

    kind: SubjectKind
    standing: Standing
    count: int
    names: tuple[str, ...]
    share: float | None
    sure: bool | None


@dataclass(frozen=True, slots=True)
class SensitivityReport:
    """Rankings of what hurts.

    Attributes:
        reference: Where the float network came from.
        mode: What was done with each subject.
        metrics: Metric names; the first one ranks.
        outputs: The tensors that were compared.
        samples: Names of the samples.
        rankings: For each kind of subject its rows, the one that hurts most first.
        verdicts: What each ranking says.
        quantized: Scores with everything quantized; None where that was not measured.
        unreached: Subjects that no output depends on.
        complete: Whether everything planned was done.
        effort: How the result was come by.
        notes: What the reader should know.
        preparation: What was noted when the model was prepared and quantized.
        judgement: What it rests on, and whether that allows a verdict; None in documents of older versions.
    """

    reference: str
    mode: Mode
    metrics: tuple[str, ...]
    outputs: tuple[str, ...]
    samples: tuple[str, ...]
    rankings: dict[SubjectKind, tuple[SensitivityRow, ...]]
    verdicts: tuple[KindVerdict, ...]
    quantized: dict[str, float] | None
    unreached: tuple[str, ...]
    complete: bool
    effort: Effort
    notes: tuple[Message, ...] = ()
    preparation: tuple[Message, ...] = ()
    judgement: Judgement | None = None
