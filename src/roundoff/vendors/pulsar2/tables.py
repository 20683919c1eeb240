"""What a build says while it works: lines, the vendor's tables, and its names of operations and types."""

import io
import re
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

import numpy as np

from roundoff.core.plan import FLOAT
from roundoff.core.progress import SILENT, Progress
from roundoff.core.target import Target
from roundoff.messages.message import english
from roundoff.quantize.planning.view import PRODUCTS, FusedUnit, GraphView
from roundoff.quantize.targets.files import load_target
from roundoff.vendors.pulsar2.config.schema import BuildConfig, DataType, TargetHardware

# What is said, in the vendor's order.


def _nowhere(text: str) -> None:
    del text


@dataclass(slots=True)
class Log:
    """Where a build prints.

    Attributes:
        say: Takes a line about what is done.
        show: Takes a table.
        width: Columns that a table may take; 0 for as many as it wants.
        progress: Told how far a step is.
        lines: Everything so far, for the record of the build.
    """

    say: Callable[[str], None] = _nowhere
    show: Callable[[str], None] = _nowhere
    width: int = 0
    progress: Progress = SILENT
    lines: list[str] = field(default_factory=list)

    def tell(self, text: str) -> None:
        """Say what was done."""
        self._out(text)

    def alert(self, text: str) -> None:
        """Say what the user should look at."""
        self._out(english("WARNING: {text}", text=text))

    def running(self, step: str) -> None:
        """Say which step begins."""
        self._out(f"[{time.strftime('%H:%M:%S')}] AX {step} Running ...")

    def table(self, text: str) -> None:
        """Show a table, or a block of figures."""
        self.lines.append(text)
        self.show(text)

    def _out(self, text: str) -> None:
        self.lines.append(text)
        self.say(text)


# How Pulsar2 draws a table: rich, with a heavy head and a line between rows.

Justify = Literal["left", "center"]
Column = tuple[str, Justify]
"""Heading, and where its cells stand."""

NATURAL = 0
"""As a width: as wide as the cells are, so that none is cut."""

# Wider than any table; rich lays a table out in a console of some width.
_WIDEST = 1_000_000


def render_table(
    title: str,
    columns: Sequence[Column],
    rows: Iterable[Sequence[str]],
    *,
    width: int = NATURAL,
    fold: bool = False,
) -> str:
    """Draw a table.

    Args:
        title: Stands above, in the middle.
        columns: Headings.
        rows: Cells.
        width: Columns of the terminal; a table that is wider is squeezed, its long cells cut or wrapped.
        fold: Go on in the next line with long words, instead of cutting them as the vendor does.

    Returns:
        Lines without trailing blanks.
    """
    from rich import box
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    # A title is no reason to be wider, and is cut into lines where it is longer than the table.
    table = Table(title=Text(title), box=box.HEAVY_HEAD, show_lines=True)
    for heading, justify in columns:
        table.add_column(Text(heading), justify=justify)
    for row in rows:
        table.add_row(*(Text(cell, overflow="fold" if fold else None) for cell in row))
    out = io.StringIO()
    console = Console(file=out, width=width or _WIDEST, color_system=None, highlight=False, legacy_windows=False)
    console.print(table)
    return "\n".join(line.rstrip() for line in out.getvalue().rstrip("\n").split("\n"))


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


def layer_config_table(rows: Iterable[tuple[str, str]], *, width: int = NATURAL) -> str:
    """The Layer Config Table: layers, op types and sub-graphs, each with the precision asked for."""
    return render_table("Layer Config Table", _LAYER_COLUMNS, rows, width=width)


def _numbers(values: Sequence[float]) -> str:
    return str([float(np.float32(value)) for value in values])


# The table of outliers: shares of channels that are small against the largest value of their tensor.

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


# The precision table, as tools since 3.2 print it and as those before did.

_COLUMNS_PRECISION: tuple[Column, ...] = (
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
    return render_table(
        f"Quant Precision Table【{method} {mode}】", _COLUMNS_PRECISION, cells, width=width, fold=fold
    )


# Patterns of several nodes that its frontend makes one operation of.
_PATTERN_TYPES = {
    "layernorm": "LayerNormalization",
    "rmsnorm": "RMSNormalization",
    "gelu": "Gelu",
    "quick_gelu": "Gelu",
    "swish": "Swish",
    "hardswish": "HardSwish",
    "hardsigmoid": "HardSigmoid",
    "mish": "Mish",
    "relu6": "Clip",
}
_FULLY_CONNECTED = "FullyConnected"
# Names in the published precision tables.
_SHORT_TYPES = {"GlobalAveragePool": "GlobAvgPool", "AveragePool": "AvgPool"}
_MOVED_TO_RESHAPE = frozenset({"Reshape", "Flatten", "Squeeze", "Unsqueeze"})
_TYPES = {
    "float16": "FP16", "float32": "FP32", "float64": "FP64", "bfloat16": "BF16", "bool": "BOOL", FLOAT: "FP32",
}  # fmt: skip
_NUMPY_INTEGER = re.compile(r"(u?)int(\d+)")
_CODE_WORD = re.compile(r"\b[us](?:4|8|16|32)\b")


def frontend_type(unit: FusedUnit, view: GraphView) -> str:
    """The type that nodes computed as one have behind the vendor's frontend."""
    if unit.is_pattern:
        return _PATTERN_TYPES.get(unit.steps[0], unit.steps[0])
    node = unit.first
    constant = any(view.is_constant(name) for name in node.inputs[:2])
    if node.operation == "Gemm" or (node.operation == "MatMul" and node.operation in PRODUCTS and constant):
        return _FULLY_CONNECTED
    return node.operation


def quantized_type(frontend: str, *, moves: bool, in_float: bool) -> str:
    """The type of an operation in the quantized graph.

    Args:
        frontend: Its type behind the frontend.
        moves: Whether it only passes values on.
        in_float: Whether it is computed in float.
    """
    if moves and frontend in _MOVED_TO_RESHAPE:
        return "AxReshape"
    return f"Ax{'' if moves or in_float else 'Quantized'}{_SHORT_TYPES.get(frontend, frontend)}"


def vendor_dtype(dtype: str) -> str:
    """The vendor's name of a type: ``U8`` for ``u8`` and ``uint8``, ``FP32`` for float; several with / between."""
    if "/" in dtype:
        return "/".join(vendor_dtype(each) for each in dtype.split("/"))
    match = _NUMPY_INTEGER.fullmatch(dtype)
    if match is not None:
        return f"{'U' if match[1] else 'S'}{match[2]}"
    return _TYPES.get(dtype, dtype.upper())


def in_vendor_words(text: str) -> str:
    """A sentence with the vendor's names of types."""
    return _CODE_WORD.sub(lambda match: match[0].upper(), text)


# The chip that a configuration names, as a target.

# The only chip whose numeric rules were measured in public; others are quantized by the same tool.
_MEASURED = "axera-ax650"
# Requests for float weights have no effect there, as users found.
_NO_FLOAT_WEIGHTS = frozenset({TargetHardware.AX620E})


def target_of(config: BuildConfig) -> Target:
    """The target of a configuration, with what the configuration changes of it."""
    target = load_target(_MEASURED)
    if config.target_hardware in _NO_FLOAT_WEIGHTS:
        target = replace(target, only={**target.only, f"weight.{FLOAT}": frozenset()})
    if config.quant.conv_bias_data_type is DataType.FP32:
        target = replace(target, bias="float")
    if config.quant.disable_quant_optimization:
        # Nothing is merged: every result is quantized, also those in front of an activation function.
        target = replace(target, fusions=())
    return target
