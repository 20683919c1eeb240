"""The table of outliers: shares of channels that are small against the largest value of their tensor."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from roundoff.vendors.pulsar2.tables.rendering import NATURAL, Column, render_table

__all__ = ["TABLE_LEVELS", "OutlierTableRow", "outlier_table"]

TABLE_LEVELS = (3, 4, 5, 6)
"""The levels that have a column."""

_TITLE = "Ratio of outliers in tensor【 level=Log(Max_Pertensor/Max_Perchannel) 】"
_COLUMNS: tuple[Column, ...] = (
    ("Op outputs", "left"),
    ("Sparse channel ratio", "left"),
    *((f"level>={level} ratio", "left") for level in TABLE_LEVELS),
)


@dataclass(frozen=True, slots=True)
class OutlierTableRow:
    """The channels of one tensor.

    Attributes:
        tensor: Its name.
        sparse: Share of channels that are zero everywhere.
        shares: Share of channels of at least each of `TABLE_LEVELS`.
    """

    tensor: str
    sparse: float
    shares: Sequence[float]


def outlier_table(rows: Iterable[OutlierTableRow], *, width: int = NATURAL, fold: bool = False) -> str:
    """The table, with shares in float32 and in full; in a narrow terminal cut, or folded."""
    cells = ((row.tensor, *(str(float(np.float32(value))) for value in (row.sparse, *row.shares))) for row in rows)
    return render_table(_TITLE, _COLUMNS, cells, width=width, fold=fold)
