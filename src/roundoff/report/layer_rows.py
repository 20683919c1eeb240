"""Rows of a layer-by-layer report: their order, and as CSV."""

import csv
import io
import math
from collections.abc import Sequence
from dataclasses import fields
from typing import Literal

from roundoff.core.layer_scores import LayerReport, LayerRow, LayerScore
from roundoff.report.cells import safe_cell

__all__ = ["LayerSort", "layers_csv", "sorted_rows"]

LayerSort = Literal["order", "worst"]

_COLUMNS = (
    "order", "node", "op_type", "unit", "tensor", "shape", "dtype", "quantized", "output", "samples", "levels",
    "clipped",
)  # fmt: skip
_SCORES = tuple(field.name for field in fields(LayerScore) if field.name != "sample_sqnr_db")
_LAST = (
    "introduced_sqnr_db", "introduced_channel_sqnr_db", "output_share", "cause", "differing_codes",
    "distant_codes",
)  # fmt: skip


def sorted_rows(rows: Sequence[LayerRow], sort: LayerSort) -> list[LayerRow]:
    """The rows in execution order, or those first that matter most.

    That is what cannot be scored, then what adds most to the outputs' error, then what has the largest error.
    """
    return list(rows) if sort == "order" else sorted(rows, key=_badness)


def _badness(row: LayerRow) -> tuple[bool, float, float]:
    """Smaller is worse."""
    scores = [score for score in (row.local, row.accumulated) if score is not None]
    scored = all(score.sqnr_db is not None and score.status != "nonfinite" for score in scores)
    share = 0.0 if row.introduced is None else row.introduced.output_share
    levels = [math.inf if score.sqnr_db is None else score.sqnr_db for score in scores]
    return scored, -share, min(levels, default=math.inf)


def layers_csv(report: LayerReport) -> str:
    """All rows in execution order with everything that is known of them; what does not exist is an empty cell."""
    out = io.StringIO()
    writer = csv.writer(out)
    scores = [f"{method}_{name}" for method in ("local", "accumulated") for name in _SCORES]
    writer.writerow((*_COLUMNS, *scores, *_LAST))
    for row in report.rows:
        values = [getattr(row, name) for name in _COLUMNS]
        for score in (row.local, row.accumulated):
            values += [None if score is None else getattr(score, name) for name in _SCORES]
        added = row.introduced
        values += [None] * 4 if added is None else [
            added.sqnr_db, added.channel_sqnr_db, added.output_share, added.cause,
        ]  # fmt: skip
        writer.writerow([_cell(value) for value in (*values, row.differing_codes, row.distant_codes)])
    return out.getvalue()


def _cell(value: object) -> object:
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, str):
        return safe_cell(value)
    if isinstance(value, float):
        return repr(value)
    if isinstance(value, tuple):
        return "x".join(map(str, value))
    return "" if value is None else value
