"""What a check of a deployment's inputs and outputs found: which stages agree, and how the others differ."""

from dataclasses import dataclass
from typing import Literal

from roundoff.messages.message import NOTHING, Message

Stage = Literal["original", "preprocessed", "output", "result"]
STAGES: tuple[Stage, ...] = ("original", "preprocessed", "output", "result")
"""The stages of a pipeline, in its order."""

ChangeKind = Literal[
    "channel-order", "channels", "layout", "reshaped", "transposed", "mirrored", "upside-down", "shifted",
    "range", "normalization", "affine", "codes", "signedness", "byte-order", "element-type", "row-padding",
    "padding", "placement", "resize", "colour-matrix", "gamma", "activation", "row-order", "axes",
]  # fmt: skip


@dataclass(frozen=True, slots=True)
class Correction:
    """What to set so that the deployed side does as training did.

    Attributes:
        setting: What people call it, e.g. ``order of channels``.
        value: What it has to be.
        facts: The same for programs: names of facts and their values, all texts.
        fields: Fields of a compiler's configuration that say so; may be empty.
    """

    setting: Message
    value: Message
    facts: tuple[tuple[str, str], ...] = ()
    fields: Message = NOTHING


@dataclass(frozen=True, slots=True)
class IoChange:
    """One way in which the deployed side differs from training.

    Attributes:
        kind: A word for programs.
        text: What differs, as a sentence without its full stop.
        correction: What to set; None where only the code can be changed.
    """

    kind: ChangeKind
    text: Message
    correction: Correction | None = None


@dataclass(frozen=True, slots=True)
class Explanation:
    """The transformation that maps the deployed side onto training's.

    Attributes:
        changes: What differs, in the order in which it is undone.
        exact: Whether nothing beyond the tolerance is left; else next to nothing.
        before: Largest absolute difference as it was; infinite where shapes differ.
        residual: Largest absolute difference once everything is undone.
        residual_rms: Root of the mean squared difference that is left.
        samples: On how many samples it was verified: all there are.
        alternatives: Other transformations that explain the values equally well.
        notes: What cannot be told from these values, and what is left.
    """

    changes: tuple[IoChange, ...]
    exact: bool
    before: float
    residual: float
    residual_rms: float
    samples: int
    alternatives: tuple[Message, ...] = ()
    notes: tuple[Message, ...] = ()

    @property
    def kinds(self) -> tuple[str, ...]:
        """What kinds of changes there are."""
        return tuple(change.kind for change in self.changes)


@dataclass(frozen=True, slots=True)
class SidePicture:
    """What one side has, made visible.

    Attributes:
        side: Whose it is.
        png: A small PNG, in base64.
    """

    side: Literal["training", "deployed"]
    png: str


@dataclass(frozen=True, slots=True)
class StageCheck:
    """What was found at one stage.

    Attributes:
        stage: Which one.
        tolerance: Largest absolute difference allowed.
        samples: How many were compared; 0 where one side was not given.
        passed: Whether all are within the tolerance; None where one side was not given, or agreement tells
            nothing: samples without a partner, without a finite value, or the same number all over.
        max_abs_error: Largest absolute difference; infinite where shapes differ or one side alone is not finite,
            None without both sides.
        mean_abs_error: Mean of the absolute differences; infinite where shapes differ, NaN where values are not
            finite, None without both sides.
        worst_sample: Name of the sample with the largest difference.
        shapes: Types and shapes of training and of the deployed side.
        explanation: How the deployed side differs; None when it passed or when nothing explains it.
        training_from_original: How training's values came from the original, by steps; empty when not known.
        deployed_from_original: The same for the deployed side.
        excluded: What was tried and does not explain the difference.
        notes: What is worth knowing, such as what looks alike without being proven.
        pictures: The worst sample on both sides, where it failed and looks like a picture.
    """

    stage: Stage
    tolerance: float
    samples: int
    passed: bool | None
    max_abs_error: float | None
    mean_abs_error: float | None
    worst_sample: str = ""
    shapes: Message = NOTHING
    explanation: Explanation | None = None
    training_from_original: tuple[Message, ...] = ()
    deployed_from_original: tuple[Message, ...] = ()
    excluded: tuple[Message, ...] = ()
    notes: tuple[Message, ...] = ()
    pictures: tuple[SidePicture, ...] = ()


@dataclass(frozen=True, slots=True)
class IoCheck:
    """The result of a check.

    Attributes:
        stages: What was found, in the order of the pipeline.
        notes: What concerns no single stage.
    """

    stages: tuple[StageCheck, ...]
    notes: tuple[Message, ...] = ()

    @property
    def passed(self) -> bool:
        """Whether a stage agrees, and none of those with both sides fails or leaves it open."""
        both = [stage for stage in self.stages if stage.samples]
        return bool(both) and all(stage.passed for stage in both)

    @property
    def first_failure(self) -> StageCheck | None:
        """The first stage of the pipeline that failed."""
        return next((stage for stage in self.stages if stage.passed is False), None)
