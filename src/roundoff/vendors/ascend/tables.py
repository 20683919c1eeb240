"""Reading a table of results again."""

import csv
import io
from pathlib import Path

from roundoff.core.files import read_small
from roundoff.vendors.ascend.algorithms import BUILTIN
from roundoff.vendors.ascend.errors import Code, Refused
from roundoff.vendors.ascend.rows import Columns, Row

__all__ = ["read_table"]


def read_table(path: Path) -> tuple[list[Row], Columns]:
    """Read what the advisor looks at: numbers, names, overflow and the algorithms.

    Raises:
        Refused: It is no such table.
    """
    text = read_small(path, what="The table").decode(errors="replace")
    reader = csv.DictReader(io.StringIO(text, newline=""))
    names = list(reader.fieldnames or ())
    for needed in ("Index", "NPUDump"):
        if needed not in names:
            what = f"{path} has no column {needed!r}."
            raise Refused(what, code=Code.PARAMETER, fix="give a result_*.csv of 'roundoff ascend compare'")
    algorithms = tuple(name for name in BUILTIN if name in names)
    rows = []
    for line in reader:
        index = (line["Index"] or "").strip()
        if not index.isdigit():
            what = f"{path}, line {reader.line_num}: {index!r} is no number of an operator."
            raise Refused(what, code=Code.PARAMETER, fix="write the table again")
        values = tuple(line.get(name) or "NaN" for name in algorithms)
        kind, name, tensor = (line.get(column) or "" for column in ("OpType", "NPUDump", "TensorIndex"))
        overflow = line.get("OverFlow") or "NaN"
        rows.append(Row(int(index), 0, kind, name, tensor=tensor, overflow=overflow, values=values))
    return rows, Columns(algorithms, overflow="OverFlow" in names)
