"""What is checked, and how strictly."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from roundoff.analysis.watching import UNLIMITED, RunLimits
from roundoff.core.target import Target

__all__ = ["CheckSettings"]


@dataclass(frozen=True, slots=True)
class CheckSettings:
    """How to check a calibration set.

    Attributes:
        target: For which chip tensors will be quantized; says which tensors, and by which method.
        method: Calibration method; the target's own when empty.
        options: Options of the method.
        share: Share of the samples that is held out where no others are given; 0 for none.
        seed: Of what is chosen at random.
        limits: What the run may take.
    """

    target: Target
    method: str = ""
    options: Mapping[str, float] = field(default_factory=dict)
    share: float = 0.2
    seed: int = 0
    limits: RunLimits = UNLIMITED
