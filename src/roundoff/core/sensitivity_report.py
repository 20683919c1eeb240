"""Rankings of what hurts a network, in plain numbers for documents, tables and pictures."""

from dataclasses import dataclass
from typing import Literal

from roundoff.core.sensitivity import Effort, Interval, Mode, SubjectKind

__all__ = ["KindVerdict", "SensitivityReport", "SensitivityRow", "Standing"]

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
        scores: Each metric, mean over samples and outputs.
        intervals: For each metric where the mean over many more samples lies, with a confidence of 95 %; None when
            that is not known.
        per_output: For each metric its mean over samples, by output.
        samples: How many samples it was measured on.
        per_sample: The first metric, a row for each sample with a value for each output.
        worst_sample: The sample in which the first metric is worst; empty without any score.
        differs_from_next: Probability of a difference like that to the next row by chance; None when not known.
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
    notes: tuple[str, ...] = ()
    preparation: tuple[str, ...] = ()
