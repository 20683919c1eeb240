"""The precision table, as tools since 3.2 print it and as those before did."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from roundoff.vendors.pulsar2.tables.rendering import NATURAL, Column, render_table

__all__ = ["PrecisionRow", "figure", "precision_table"]

_COLUMNS: tuple[Column, ...] = (
    ("Operator", "left"), ("Type", "center"), ("Output Tensor", "left"), ("Shape", "center"), ("DType", "left"),
    ("QDType", "center"), ("Cosin", "left"), ("MSE", "left"),
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class PrecisionRow:
    """How one tensor that a layer writes agrees with that of the float model.

    Attributes:
        operator: The layer.
        type: Its operation in the quantized graph.
        tensor: What it writes.
        shape: Its shape.
        dtype: Its type in the float model.
        qdtype: Its type in the quantized model.
        cosine: Cosine of the angle between both; None where there is none.
        mse: Mean of the squared errors; None where there is none.
    """

    operator: str
    type: str
    tensor: str
    shape: Sequence[int]
    dtype: str
    qdtype: str
    cosine: float | None
    mse: float | None


def figure(value: float | None) -> str:
    """A number as the table has it."""
    return "None" if value is None else f"{value:.5f}"


def precision_table(
    rows: Iterable[PrecisionRow], *, method: str, mode: str, width: int = NATURAL, fold: bool = False
) -> str:
    """The table of eight columns.

    Args:
        rows: In execution order.
        method: PerLayer or EndToEnd.
        mode: Reference or NPUBackend.
        width: Columns of the terminal.
        fold: In a narrow terminal go on with long names in the next line, instead of cutting them.
    """
    cells = (
        (
            row.operator, row.type, row.tensor, str(tuple(row.shape)), row.dtype, row.qdtype, figure(row.cosine),
            figure(row.mse),
        )
        for row in rows
    )  # fmt: skip
    return render_table(f"Quant Precision Table【{method} {mode}】", _COLUMNS, cells, width=width, fold=fold)
