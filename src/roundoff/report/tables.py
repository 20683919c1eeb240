"""The comparison as CSV."""

import csv
import io
from collections.abc import Iterable

from roundoff.core.comparison import Comparison, TensorComparison
from roundoff.report.cells import safe_cell

__all__ = ["comparison_csv"]

_COLUMNS = (
    "order", "reference", "candidate", "node", "op_type", "reference_dtype", "candidate_dtype", "reference_shape",
    "candidate_shape", "matched_by", "confidence", "layout", "samples", "status", "passed", "kind", "difference",
    "role", "detail",
)  # fmt: skip


def comparison_csv(comparison: Comparison) -> str:
    """All rows, scored or not, and the unmatched tensors of both sides as rows with status missing."""
    metrics = list(dict.fromkeys(name for row in comparison.rows for name in row.score.values))
    out = io.StringIO()
    writer = csv.writer(out)
    writer.writerow((*_COLUMNS, *metrics))
    for row in comparison.rows:
        writer.writerow((*_cells(row), *(_number(row.score.values.get(name)) for name in metrics)))
    for side, names in (
        ("reference", comparison.unmatched_reference),
        ("candidate", comparison.unmatched_candidate),
    ):
        for name in names:
            cells = {side: safe_cell(name), "status": "missing", "detail": f"only in the {side}"}
            writer.writerow([cells.get(column, "") for column in (*_COLUMNS, *metrics)])
    return out.getvalue()


def _cells(row: TensorComparison) -> tuple[object, ...]:
    return (
        row.order,
        safe_cell(row.reference),
        safe_cell(row.candidate),
        safe_cell(row.node),
        safe_cell(row.op_type),
        *row.dtypes,
        *(_shape(shape) for shape in row.shapes),
        row.how,
        f"{row.confidence:.3f}",
        row.layout,
        row.samples,
        row.score.status,
        "" if row.passed is None else ("yes" if row.passed else "no"),
        row.kind,
        safe_cell(row.difference),
        row.role,
        safe_cell(row.score.detail),
    )


def _shape(shape: Iterable[int]) -> str:
    return "x".join(str(size) for size in shape)


def _number(value: float | None) -> str:
    return "" if value is None else repr(float(value))
