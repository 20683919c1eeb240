"""Which samples a quantized network does worst on, as data."""

from dataclasses import dataclass

from roundoff.core.coverage import Judgement
from roundoff.messages.message import Message


@dataclass(frozen=True, slots=True)
class OutputScore:
    """How one output agrees with that of the float network on one sample.

    Attributes:
        output: Its name.
        status: As for any compared tensor: ``ok``, ``nonfinite``, ``degenerate``, ``shape``, ``unreadable``.
        values: Metric name to value; empty when there is no score.
        rows: Rows of several elements it has.
        moved_top: Those whose largest element is at another place.
    """

    output: str
    status: str
    values: dict[str, float]
    rows: int = 0
    moved_top: int = 0


@dataclass(frozen=True, slots=True)
class SampleScore:
    """One sample.

    Attributes:
        rank: From 1, the worst.
        sample: Its name.
        index: Its place among all samples.
        score: By which it is ranked: the ranking metric at its worst output; None when that has no score.
        outputs: Each output.
    """

    rank: int
    sample: str
    index: int
    score: float | None
    outputs: tuple[OutputScore, ...]

    @property
    def moved_top(self) -> int:
        """Rows of all outputs whose largest element is at another place."""
        return sum(output.moved_top for output in self.outputs)


@dataclass(frozen=True, slots=True)
class WorstSamples:
    """A ranking of samples.

    Attributes:
        reference: Where the float network came from.
        data: Where the samples came from.
        metrics: Metric names; the first one ranks.
        higher_is_better: Of that metric.
        samples: All samples, the worst first.
        median: Median of the score.
        unscored: Samples without a score; they come first.
        moved_top: Samples with an output whose largest element is at another place; None when no output has rows.
        notes: What the reader should know.
        preparation: What was noted when the model was prepared and quantized.
        judgement: What it rests on, and whether that allows a verdict; None in documents of older versions.
    """

    reference: str
    data: str
    metrics: tuple[str, ...]
    higher_is_better: bool
    samples: tuple[SampleScore, ...]
    median: float | None
    unscored: int
    moved_top: int | None
    notes: tuple[Message, ...] = ()
    preparation: tuple[Message, ...] = ()
    judgement: Judgement | None = None
