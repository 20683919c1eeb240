"""Trials of a search and what became of it."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

__all__ = ["AutoCalibrationResult", "Status", "Trial"]

Status = Literal["ALL_QUANTIZED", "PARTIAL_ROLL_BACK", "ALL_ROLL_BACK", "STOPPED"]
"""All layers stay quantized; some went back to float; only all in float would do; the budget ended first."""


@dataclass(frozen=True, slots=True)
class Trial:
    """One model that was tried.

    Attributes:
        roll_back_config: For every layer whether it stayed quantized.
        satisfied: Whether it was good enough.
        loss: What was lost, as the evaluator says.
        algorithm: The calibration algorithm that all layers had instead of their own; empty for that.
    """

    roll_back_config: Mapping[str, bool]
    satisfied: bool
    loss: float
    algorithm: str = ""

    @property
    def floats(self) -> int:
        """How many layers went back to float."""
        return sum(not stays for stays in self.roll_back_config.values())

    @property
    def key(self) -> tuple[str, frozenset[str]]:
        """What tells it from other models."""
        return self.algorithm, frozenset(name for name, stays in self.roll_back_config.items() if not stays)

    def document(self) -> dict[str, Any]:
        """Its entry in the history."""
        entry: dict[str, Any] = {
            "roll_back_config": dict(self.roll_back_config),
            # JSON has no infinity.
            "metric_eval": [self.satisfied, self.loss if math.isfinite(self.loss) else None],
        }
        return entry | ({"act_algo": self.algorithm} if self.algorithm else {})

    def better_than(self, other: "Trial | None") -> bool:
        """Whether to deliver this one rather than the other: good enough, then fewer in float, then less lost."""
        if other is None:
            return True
        if self.satisfied != other.satisfied:
            return self.satisfied
        if self.satisfied:
            return (self.floats, self.loss) < (other.floats, other.loss)
        return self.loss < other.loss


@dataclass(frozen=True, slots=True, eq=False)
class AutoCalibrationResult:
    """What a search came to.

    Attributes:
        status: How it ended.
        best: The trial whose models were delivered.
        trials: All trials, in order.
        ranking: The layers, most sensitive first, with their numbers.
        files: What was delivered.
        history: Where the trials are written.
    """

    status: Status
    best: Trial
    trials: tuple[Trial, ...]
    ranking: tuple[tuple[str, float], ...]
    files: tuple[Path, ...]
    history: Path

    @property
    def met(self) -> bool:
        """Whether the delivered model is good enough."""
        return self.best.satisfied
