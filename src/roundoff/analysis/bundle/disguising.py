"""Trying disguises until one shows the fault of the original."""

from dataclasses import dataclass

from roundoff.analysis.bundle.case import AT_OUTPUTS, FACTOR_DB, Case, measure, same_fault
from roundoff.analysis.bundle.confidential import Disguise, Disguised, disguised
from roundoff.analysis.watching import RunLimits
from roundoff.core.bundle import CaseNumbers, Confidence
from roundoff.core.progress import Progress

__all__ = ["Found", "find_disguise"]

# In this order: the more of the original stays, the later.
_TRIES: tuple[tuple[Disguise, int], ...] = (
    ("random", 0), ("settled", 0), ("random", 1), ("settled", 1), ("shuffled", 0), ("settled", 2), ("shuffled", 1),
)  # fmt: skip
_WEIGHTS = {
    "random": "random values; each channel has the mean, spread and extremes it had, to three digits",
    "settled": "random values; each channel has the mean, spread and extremes it had, to three digits, times one "
    "factor per layer; biases are shifted so that results have the means they had",
    "shuffled": "those of each channel in another order, times one factor per layer; biases are shifted so that "
    "results have the means they had",
}
_KEPT = "as they are (--keep-data)"
_SYNTHETIC = "synthetic, with the distribution and the spatial spectrum of each channel, and nothing else of it"


@dataclass(frozen=True, slots=True, eq=False)
class Found:
    """A disguise.

    Attributes:
        disguised: The case and its names.
        numbers: What it shows.
        confidence: Whether that is the fault of the original.
    """

    disguised: Disguised
    numbers: CaseNumbers
    confidence: Confidence


def find_disguise(
    case: Case, before: CaseNumbers, *, keep_data: bool, seed: int, limits: RunLimits, progress: Progress
) -> Found:
    """The first disguise that shows the same fault, also at the outputs; else the one that lacks least.

    Args:
        case: The original.
        before: What it shows.
        keep_data: Whether samples stay as they are.
        seed: Of what is chosen at random.
        limits: What runs may take.
        progress: Told of runs.

    Raises:
        BadInput: The model has operations whose names would tell.
        ModelFailed: A model cannot be run.
    """
    best: Found | None = None
    for number, (how, offset) in enumerate(_TRIES, start=1):
        tried = disguised(case, how, keep_data=keep_data, seed=seed + offset)
        numbers = measure(tried.case, limits=limits, progress=progress)
        shown = same_fault(before, numbers, tried.names, close_db=FACTOR_DB)
        confidence = Confidence(
            weights=_WEIGHTS[how],
            data=_KEPT if keep_data else _SYNTHETIC,
            before=before,
            names={name: tried.names[name] for name in before.culprits if name in tried.names},
            close_db=FACTOR_DB,
            where=shown.where,
            reasons=shown.reasons,
            tries=number,
        )
        if best is None or _lack(confidence) < _lack(best.confidence):
            best = Found(tried, numbers, confidence)
        if _lack(confidence) == (0, False):
            break
    assert best is not None  # noqa: S101 - there is at least one to try
    return best


def _lack(confidence: Confidence) -> tuple[int, bool]:
    return len(confidence.reasons), confidence.where != AT_OUTPUTS
