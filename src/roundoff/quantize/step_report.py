"""What transforms and corrections of a network did, and what the quantized network gained."""

from dataclasses import dataclass
from typing import Literal

from roundoff.core.coverage import Coverage, Doubt
from roundoff.measure.metrics import OutputAgreement
from roundoff.messages.message import Message


@dataclass(frozen=True, slots=True)
class Participation:
    """A node that took part in a step.

    Attributes:
        node: Its name.
        role: As what.
        text: What was done to it.
    """

    node: str
    role: str
    text: Message


@dataclass(frozen=True, slots=True)
class StepReport:
    """One step.

    Attributes:
        name: Of the transform or correction.
        kind: Which of the two it is.
        options: Options that were given, as text by name.
        taken: The nodes that took part.
        notes: What was left as it was and why, and how float outputs compare.
    """

    name: str
    kind: Literal["transform", "correction"]
    options: dict[str, str]
    taken: tuple[Participation, ...]
    notes: tuple[Message, ...]


@dataclass(frozen=True, slots=True)
class TransformScore:
    """A score of the task: by labels, or by a function of the user's.

    Attributes:
        name: What it is called.
        higher_is_better: Which way it is better.
        reference: Of the float network.
        before: Of the quantized network without the steps.
        after: With them.
    """

    name: str
    higher_is_better: bool
    reference: float
    before: float
    after: float


@dataclass(frozen=True, slots=True)
class TransformReport:
    """Steps, and the quantized network before and after them.

    Attributes:
        target: Name of the target.
        method: Calibration method.
        steps: In their order.
        samples: How many samples both were judged on.
        unseen: Whether these were others than those that the steps used.
        before: How outputs agree with those in float, without the steps.
        after: With them.
        score: The score of the task; None when nothing measures it.
        kept: Whether the steps were kept; they are undone where the quantized network gets worse.
        notes: Of the quantization.
        added: What the steps add to the quantized model; None where that is nothing.
        doubts: What speaks against the samples, or the float network, as a ground for a verdict.
        coverage: What was judged; None in older documents.
        gain: Where the gain in decibels lies for other samples (95 %); None where nobody knows.
    """

    target: str
    method: str
    steps: tuple[StepReport, ...]
    samples: int
    unseen: bool
    before: tuple[OutputAgreement, ...]
    after: tuple[OutputAgreement, ...]
    score: TransformScore | None
    kept: bool
    notes: tuple[Message, ...] = ()
    added: Message | None = None
    doubts: tuple[Doubt, ...] = ()
    coverage: Coverage | None = None
    gain: tuple[float, float] | None = None

    @property
    def good(self) -> bool:
        """Whether steps are shown to do no harm, or changed nothing."""
        return (not self.changed or (self.kept and not self.chance)) and not self.doubts

    @property
    def chance(self) -> bool:
        """Whether the samples leave open if steps help or harm; outputs that are the same do not."""
        return self.gain is not None and self.gain[0] < self.gain[1] and self.gain[0] <= 0 <= self.gain[1]

    @property
    def changed(self) -> bool:
        """Whether any node took part."""
        return any(step.taken for step in self.steps)

    @property
    def sqnr_db(self) -> tuple[float, float]:
        """Signal to noise at the output that is worst off, before and after."""
        return _worst(self.before), _worst(self.after)


def _worst(agreements: tuple[OutputAgreement, ...]) -> float:
    found = [each.score.values["sqnr_db"] for each in agreements if "sqnr_db" in each.score.values]
    return min(found, default=float("-inf"))
