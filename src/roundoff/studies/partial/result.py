"""What it brings to leave more and more of a network in float, or to raise it to 16 bits, as data."""

from dataclasses import dataclass, field
from typing import Literal

from roundoff.messages.message import Remark

__all__ = ["Goal", "PartialQuantization", "PartialStep", "Raise"]

Raise = Literal["float", "s16", "u16"]


@dataclass(frozen=True, slots=True)
class Goal:
    """What a score has to reach.

    Attributes:
        text: As the user wrote it: ``99%`` of the float score, or a score.
        value: The score to reach.
    """

    text: str
    value: float


@dataclass(frozen=True, slots=True)
class PartialStep:
    """The network with the first so many subjects changed.

    Attributes:
        count: How many.
        subject: The one that was added last; empty for the fully quantized network.
        op_type: The operation of the node it is on; empty when that is not known.
        quantizers: Names of the quantizers changed in this step, which earlier ones left as they were.
        score: The score.
        share: Score over that of the float network; None where that says nothing.
        scores: Other scores that were measured, by name.
    """

    count: int
    subject: str
    op_type: str
    quantizers: tuple[str, ...]
    score: float
    share: float | None = None
    scores: dict[str, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class PartialQuantization:
    """Scores with more and more subjects changed.

    Attributes:
        reference: Where the float network came from.
        samples: How many samples were used.
        score: What is measured: ``cosine``, ``sqnr_db``, ``same_top1``, ``accuracy``, or the evaluator's.
        higher_is_better: Which way it is better.
        float_score: The score of the float network.
        to: What subjects are changed to.
        ranking: Where their order comes from, in words.
        subjects: All subjects in that order, also those that were not tried.
        steps: In order of their counts, from 0.
        goal: What is to be reached.
        knee: The smallest count whose score reaches the goal; None when none does.
        levels_off: The smallest count with 95 % of what any count gains over none; None when nothing is gained.
        drops: Counts whose score is worse than that of the count before; empty when it rises all the way.
        complete: Whether all counts that were asked for were tried.
        exact_weights: Whether the float weights are the values of their codes already, so that the float network
            is not the one before quantization.
        notes: What the reader should know.
        preparation: What was noted when the model was prepared and quantized.
    """

    reference: str
    samples: int
    score: str
    higher_is_better: bool
    float_score: float
    to: Raise
    ranking: Remark
    subjects: tuple[str, ...]
    steps: tuple[PartialStep, ...]
    goal: Goal
    knee: int | None
    levels_off: int | None
    drops: tuple[int, ...]
    complete: bool
    exact_weights: bool = False
    notes: tuple[Remark, ...] = ()
    preparation: tuple[Remark, ...] = ()

    @property
    def chosen(self) -> tuple[str, ...]:
        """The subjects to change: up to the knee, else up to where the score levels off."""
        count = self.knee if self.knee is not None else self.levels_off
        return tuple(step.subject for step in self.steps[1 : (count or 0) + 1])
