"""What is wrong with a calibration set, as data."""

from dataclasses import dataclass
from typing import Literal

from roundoff.messages.message import NOTHING, Message

FindingKind = Literal[
    "nonfinite", "blank", "scaling", "too_few", "influence", "saturation", "coverage", "duplicates"
]
Severity = Literal["fault", "remark"]


@dataclass(frozen=True, slots=True)
class CheckFinding:
    """One thing that is wrong, or worth knowing.

    Attributes:
        kind: A word for programs.
        severity: ``fault``: ranges found on this set are not to be trusted. ``remark``: look at it.
        text: What it is, as a sentence without its full stop.
        fix: What to do.
        weight: How much it matters among findings of its kind and severity; the larger comes first.
        samples: Samples it is about, by name.
        tensors: Tensors it is about.
    """

    kind: FindingKind
    severity: Severity
    text: Message
    fix: Message
    weight: float = 0.0
    samples: tuple[str, ...] = ()
    tensors: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class ConvergencePoint:
    """How far ranges have come with so many samples, over random orders of them.

    Attributes:
        samples: How many.
        typical: Width of the range over that of all samples, of the median tensor.
        low: The same of the tensor at the lower quarter.
    """

    samples: int
    typical: float
    low: float


@dataclass(frozen=True, slots=True)
class RangeRow:
    """The range of one tensor.

    Attributes:
        tensor: Its name.
        low: Smallest value that codes should cover, by the calibration method; at most 0.
        high: Largest; at least 0.
        half: Width of the range that half of the samples give over that of all; the mean over random orders.
        lone_sample: The sample without which the range from the smallest to the largest value shrinks most.
        lone_factor: The width of that range over the width without this sample.
        outside: Share of the values of held-out samples beyond the range; None without such samples.
        outside_before: The same of the samples the range was found on.
        overshoot: How far held-out values go beyond the range, over its width.
        exceeding: Held-out samples that go beyond the smallest and largest value of the others.
    """

    tensor: str
    low: float
    high: float
    half: float
    lone_sample: str
    lone_factor: float
    outside: float | None = None
    outside_before: float = 0.0
    overshoot: float = 0.0
    exceeding: int = 0


@dataclass(frozen=True, slots=True)
class InputFacts:
    """The values of one input of the model, over all samples.

    Attributes:
        name: The input.
        dtype: Its type.
        low: Smallest value.
        high: Largest value.
        means: Mean of each channel; one number where there are no channels.
        stds: Standard deviation of each channel.
        looks_like: What such values usually are; empty when nothing is known.
    """

    name: str
    dtype: str
    low: float
    high: float
    means: tuple[float, ...]
    stds: tuple[float, ...]
    looks_like: Message = NOTHING


@dataclass(frozen=True, slots=True, kw_only=True)
class CalibrationCheck:
    """Everything that was found out about a calibration set.

    Attributes:
        model: The model.
        data: Where the samples came from.
        samples: How many there are.
        held_out: Where held-out samples came from; empty without any.
        held_out_samples: How many there are.
        target: For which target tensors are quantized.
        method: Calibration method.
        findings: The worst first.
        curve: How ranges converge; empty with a single sample.
        growth: By how much ranges grow at the last doubling, of the median tensor; None when unknown.
        enough: How many samples would do; None when that cannot be told.
        ranges: Each tensor, in execution order.
        inputs: What the model is fed.
        duplicates: Groups of samples that are alike, exactly or nearly.
        classes: How many samples each class has, by its number; empty without labels.
        notes: What the reader should know of how the result came about.
    """

    model: str
    data: str
    samples: int
    held_out: Message
    held_out_samples: int
    target: str
    method: str
    findings: tuple[CheckFinding, ...]
    curve: tuple[ConvergencePoint, ...]
    growth: float | None
    enough: int | None
    ranges: tuple[RangeRow, ...]
    inputs: tuple[InputFacts, ...]
    duplicates: tuple[tuple[str, ...], ...] = ()
    classes: dict[str, int] | None = None
    notes: tuple[Message, ...] = ()

    @property
    def faults(self) -> tuple[CheckFinding, ...]:
        """What makes ranges untrustworthy."""
        return tuple(finding for finding in self.findings if finding.severity == "fault")

    @property
    def passed(self) -> bool:
        """Whether there is no fault."""
        return not self.faults
