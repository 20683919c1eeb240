"""The scores of one tensor, as data."""

from dataclasses import dataclass, field
from typing import Literal

__all__ = ["OutputAgreement", "Status", "TensorScore"]

Status = Literal["ok", "nonfinite", "degenerate", "shape", "missing", "unreadable"]


@dataclass(frozen=True, slots=True)
class TensorScore:
    """How one tensor of the candidate agrees with the reference.

    Attributes:
        status: ``ok``; ``nonfinite``: some elements were NaN or infinite and left out; ``degenerate``: one side or
            both are all zero, or the tensor is empty; ``shape``, ``missing``, ``unreadable``: there is no score.
        values: Metric name to value; empty when there is no score.
        detail: Why there is no score, or what was left out; empty when all is well.
    """

    status: Status
    values: dict[str, float] = field(default_factory=dict)
    detail: str = ""


@dataclass(frozen=True, slots=True)
class OutputAgreement:
    """How one output of two models agrees over the samples both were fed.

    Attributes:
        output: Its name.
        samples: How many samples that is.
        score: All metrics; without values when the shapes differ or nothing is a number.
        same_top1: Share of rows whose largest element is at the same place; None for outputs that are
            no vector of scores.
    """

    output: str
    samples: int
    score: TensorScore
    same_top1: float | None
