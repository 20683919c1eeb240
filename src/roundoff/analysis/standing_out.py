"""Tensors that keep the thresholds and still agree far less than those around them."""

from collections.abc import Sequence

from roundoff.core.comparison import TensorComparison

__all__ = ["standing_out", "surroundings_db"]

# So much less than its neighbours ...
_FAR_DB = 40.0
# and less than this: what agrees better differs by rounding.
_ROUNDING_DB = 60.0
_FEWEST_NEIGHBOURS = 2


def standing_out(rows: Sequence[TensorComparison], *, ordered: bool) -> list[int]:
    """Places of the rows that pass, or are not judged, and stand out from their neighbours.

    Where an error goes on, those behind it are no better: what stands out is wrong by itself, as a dump that was
    written or read wrongly is.

    Args:
        rows: All rows.
        ordered: Whether they are in execution order; if not, all other rows are neighbours.
    """
    return [
        place
        for place, row in enumerate(rows)
        if row.passed is not False
        and (own := _db(row)) is not None
        and own < _ROUNDING_DB
        and (around := surroundings_db(rows, place, ordered=ordered)) is not None
        and around - own > _FAR_DB
    ]


def surroundings_db(rows: Sequence[TensorComparison], place: int, *, ordered: bool) -> float | None:
    """SQNR of the worst neighbour; None with too few of them.

    Neighbours are the one before and the one behind, at the ends the two next to it; without an order all others.
    """
    before = [db for row in reversed(rows[:place]) if (db := _db(row)) is not None]
    behind = [db for row in rows[place + 1 :] if (db := _db(row)) is not None]
    if not ordered:
        near = [*before, *behind]
    elif before and behind:
        near = [before[0], behind[0]]
    else:
        near = (before or behind)[:_FEWEST_NEIGHBOURS]
    return min(near) if len(near) >= _FEWEST_NEIGHBOURS else None


def _db(row: TensorComparison) -> float | None:
    return row.score.values.get("sqnr_db")
