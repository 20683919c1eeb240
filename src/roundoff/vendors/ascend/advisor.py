"""What a table of results says as a whole: overflow, unequal inputs, or how the network agrees."""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from roundoff.vendors.ascend.limits import least_cosine
from roundoff.vendors.ascend.rows import Columns, Row, write_private

__all__ = ["Advice", "advise", "write_advice"]

_OVERFLOW = (
    "A float16 tensor reached the largest number of its type. Keep that operator in float32, or scale what it "
    "reads, and compare again before looking at anything behind it."
)
_INPUT = (
    "Both sides were not fed the same data. Give them the same input file, and check the preprocessing (AIPP, "
    "colours, mean and scale) on the device."
)
_ALL_GOOD = (
    "Every tensor agrees with its golden counterpart. If the application is still not accurate enough, look at "
    "what it does with the outputs."
)
_REACHES_OUTPUT = (
    "Some tensors differ, and so does the last one. Quantization is the likely cause: calibrate again with "
    "representative data, or keep the first operator that differs in float."
)
_RECOVERS = (
    "Some tensors differ, but the last one agrees. The compiler computes these differently; as long as the "
    "outputs are right this can be left as it is."
)


@dataclass(frozen=True, slots=True)
class Advice:
    """What was found first.

    Attributes:
        kind: ``FP16 Overflow``, ``Input Inconsistent`` or ``Global Consistency``.
        index: The first row concerned; ``NA`` for none.
        text: What to do.
    """

    kind: str
    index: str
    text: str

    @property
    def lines(self) -> list[str]:
        """The three lines of the summary."""
        return [
            f"Detection Type: {self.kind}",
            f"Operator Index: {self.index}",
            f"Expert Advice: {self.text}",
        ]


def advise(rows: Sequence[Row], *, columns: Columns, inputs: Iterable[str]) -> Advice | None:
    """Look for the first of three kinds of trouble.

    Args:
        rows: The table, in its order.
        columns: Its columns.
        inputs: Names of the model's inputs.

    Returns:
        What was found; None when there is no cosine similarity to judge by.
    """
    for row in rows:
        if columns.overflow and row.overflow == "YES":
            return Advice("FP16 Overflow", str(row.index), _OVERFLOW)
    if "CosineSimilarity" not in columns.algorithms:
        return None
    place = columns.algorithms.index("CosineSimilarity")
    scores = [(row, _number(row.values[place]) if row.values else math.nan) for row in rows]
    known = [(row, score) for row, score in scores if not math.isnan(score)]
    names, limit = set(inputs), least_cosine()
    for row, score in known:
        if row.mine in names and score < limit:
            return Advice("Input Inconsistent", str(row.index), _INPUT)
    if not known:
        return None
    bad = [row for row, score in known if score < limit]
    if not bad:
        return Advice("Global Consistency", "NA", _ALL_GOOD)
    text = _REACHES_OUTPUT if known[-1][1] < limit else _RECOVERS
    return Advice("Global Consistency", str(bad[0].index), text)


def write_advice(folder: Path, advice: Advice | None) -> None:
    """Write the summary, when there is something to say."""
    if advice is not None:
        write_private(folder / "advisor_summary.txt", "\n".join(advice.lines) + "\n")


def _number(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        return math.nan
