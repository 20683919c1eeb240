"""The two tables of what was asked for: data sets of inputs, and precisions of layers."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from roundoff.vendors.pulsar2.tables.rendering import NATURAL, Column, render_table

__all__ = ["LayerConfigRow", "QuantConfigRow", "layer_config_table", "quant_config_table"]

_QUANT_COLUMNS: tuple[Column, ...] = (
    ("Input", "left"), ("Shape", "left"), ("Dataset Directory", "left"), ("Data Format", "left"),
    ("Tensor Format", "left"), ("Mean", "left"), ("Std", "left"),
)  # fmt: skip
_LAYER_COLUMNS: tuple[Column, ...] = (("Op Type / Layer name", "left"), ("Precision", "left"))


@dataclass(frozen=True, slots=True)
class QuantConfigRow:
    """What one input is calibrated with.

    Attributes:
        input: Its name.
        shape: Its shape.
        directory: Where its samples are.
        data_format: Image, Numpy, Binary or NumpyObject.
        tensor_format: Order of colours.
        mean: What is subtracted.
        std: What it is divided by then.
    """

    input: str
    shape: Sequence[int]
    directory: str
    data_format: str
    tensor_format: str
    mean: Sequence[float] = ()
    std: Sequence[float] = ()


@dataclass(frozen=True, slots=True)
class LayerConfigRow:
    """One entry of layer_configs: a layer, an op type or a sub-graph, and the precision asked for."""

    name: str
    precision: str


def quant_config_table(rows: Iterable[QuantConfigRow], *, width: int = NATURAL) -> str:
    """The Quant Config Table; numbers are those of float32, in full."""
    cells = (
        (
            row.input, str(list(row.shape)), row.directory, row.data_format, row.tensor_format, _numbers(row.mean),
            _numbers(row.std),
        )
        for row in rows
    )  # fmt: skip
    return render_table("Quant Config Table", _QUANT_COLUMNS, cells, width=width)


def layer_config_table(rows: Iterable[LayerConfigRow], *, width: int = NATURAL) -> str:
    """The Layer Config Table."""
    cells = ((row.name, row.precision) for row in rows)
    return render_table("Layer Config Table", _LAYER_COLUMNS, cells, width=width)


def _numbers(values: Sequence[float]) -> str:
    return str([float(np.float32(value)) for value in values])
