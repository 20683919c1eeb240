"""What a table of results says as a whole, and the records of overflow that a device writes."""

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from roundoff.core.array_files import Unreadable
from roundoff.core.files import read_small
from roundoff.core.tensors import Array
from roundoff.core.untrusted import csv_records, whole_number
from roundoff.messages.message import english, shown
from roundoff.tensors.ascend_dump.header import read_dump
from roundoff.tensors.ascend_dump.names import DumpName, overflowed_unit, read_record
from roundoff.tensors.ascend_dump.source import DumpFile, list_dumps, map_tensor
from roundoff.vendors.ascend.algorithms import BUILTIN
from roundoff.vendors.ascend.culprits import number
from roundoff.vendors.ascend.errors import Code, Refused, least_cosine
from roundoff.vendors.ascend.layouts import Conversion, convert_dumps
from roundoff.vendors.ascend.rows import Columns, Row, stamp, write_private

# What a table of results says as a whole: overflow, unequal inputs, or how the network agrees.

_OVERFLOW = english(
    "A float16 tensor reached the largest number of its type. Keep that operator in float32, or scale what it "
    "reads, and compare again before looking at anything behind it."
)
_INPUT = english(
    "Both sides were not fed the same data. Give them the same input file, and check the preprocessing (AIPP, "
    "colours, mean and scale) on the device."
)
_ALL_GOOD = english(
    "Every tensor agrees with its golden counterpart. If the application is still not accurate enough, look at "
    "what it does with the outputs."
)
_REACHES_OUTPUT = english(
    "Some tensors differ, and so does the last one. Quantization is the likely cause: calibrate again with "
    "representative data, or keep the first operator that differs in float."
)
_RECOVERS = english(
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

    @property
    def shown_lines(self) -> list[str]:
        """The same for a reader: what to do in the language of the terminal."""
        return [*self.lines[:2], f"Expert Advice: {shown(self.text)}"]


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
    scores = [(row, number(row.values[place]) if row.values else math.nan) for row in rows]
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


# Reading a table of results again.


def read_table(path: Path) -> tuple[list[Row], Columns]:
    """Read what the advisor looks at: numbers, names, overflow and the algorithms.

    Raises:
        Refused: It is no such table.
    """
    names, records = csv_records(read_small(path, what=english("The table")), path)
    for needed in ("Index", "NPUDump"):
        if needed not in names:
            what = english("{path} has no column {needed!r}.", path=path, needed=needed)
            raise Refused(
                what, code=Code.PARAMETER, fix=english("give a result_*.csv of 'roundoff ascend compare'")
            )
    algorithms = tuple(name for name in BUILTIN if name in names)
    rows = []
    for place, line in records:
        index = whole_number(line["Index"].strip())
        if index is None:
            what = english(
                "{path}, line {line_num}: {index!r} is no number of an operator.",
                path=path,
                line_num=place,
                index=line["Index"][:80],
            )
            raise Refused(what, code=Code.PARAMETER, fix=english("write the table again"))
        values = tuple(line.get(name) or "NaN" for name in algorithms)
        kind, name, tensor = (line.get(column) or "" for column in ("OpType", "NPUDump", "TensorIndex"))
        overflow = line.get("OverFlow") or "NaN"
        rows.append(Row(index, 0, kind, name, tensor=tensor, overflow=overflow, values=values))
    return rows, Columns(algorithms, overflow="OverFlow" in names)


_NO_ID = 65535
_BAR = "=" * 49
_PLAIN = (1e-4, 1e16)
"""Numbers that are written without an exponent."""


@dataclass(frozen=True, slots=True)
class OperatorOverflow:
    """One record of an overflow.

    Attributes:
        record: Its file.
        unit: The unit that overflowed.
        task: Its task.
        stream: Its stream.
        status: The status word or words.
        time: When it was written.
        dump: The dump of the operator; None when there is none.
        op: The operator's name.
    """

    record: Path
    unit: str
    task: int
    stream: int
    status: object
    time: int
    dump: DumpFile | None = None
    op: str = ""


def find_overflows(folder: Path, *, count: int, warn: Callable[[str], None]) -> tuple[list[OperatorOverflow], int]:
    """The first overflows of a run, and how many there are.

    Args:
        folder: Where dumps and records are.
        count: How many to look at.
        warn: Told of records that cannot be read, or say nothing.
    """
    if not folder.is_dir():
        raise Refused(
            english('The path "{folder}" is not a folder.', folder=folder),
            code=Code.PATH,
            fix=english("give the folder of the dumps"),
        )
    files = [dump for dump in list_dumps(folder) if not dump.outside]
    records = [dump for dump in files if dump.name.overflow]
    dumps = [dump for dump in files if not dump.name.overflow and not dump.name.statistics]
    found = []
    for record in records[:count]:
        try:
            output = read_dump(record.path).outputs[0]
            parsed = read_record(map_tensor(record.path, output).tobytes())
        except (Unreadable, OSError, IndexError) as error:
            reason = error.problem if isinstance(error, Unreadable) else "it holds no record"
            warn(f"{record.path} cannot be read: {reason}.")
            continue
        hit = overflowed_unit(parsed)
        if hit is None:
            what = english("The record {name} exists, but its status is zero.", name=record.path.name)
            raise Refused(what, code=Code.OVERFLOW_STATUS, fix=english("take it out of the folder"))
        found.append(_matched(record, *hit, dumps=dumps, warn=warn))
    return found, len(records)


def write_overflows(
    overflows: list[OperatorOverflow], out: Path, *, warn: Callable[[str], None]
) -> tuple[Path, str]:
    """Write the tensors concerned and a summary of them; tell the summary's file and text."""
    parts = []
    for place, overflow in enumerate(overflows, 1):
        lines = [f"{_BAR}[{place}]{_BAR}="]
        if overflow.dump is not None:
            lines.append(f"[{overflow.dump.name.op_type}] {overflow.op}")
        lines.append(
            f" [{overflow.unit}][TaskId:{overflow.task}][StreamId:{overflow.stream}][Status:{overflow.status}]"
        )
        lines.append(f" [timestamp:{overflow.time}]")
        convert_dumps([overflow.record], Conversion(out), warn=warn)
        if overflow.dump is not None:
            convert_dumps([overflow.dump.path], Conversion(out), warn=warn)
            lines += _ranges(overflow.dump.path, warn=warn)
        parts.append("\n".join(lines) + "\n")
    text = "".join(parts)
    path = out / f"overflow_summary_{stamp()}.txt"
    write_private(path, text)
    return path, text


def _matched(
    record: DumpFile, unit: str, fields: dict[str, int], *, dumps: list[DumpFile], warn: Callable[[str], None]
) -> OperatorOverflow:
    task, stream = fields["task_id"], fields["stream_id"]
    context, thread = (fields.get(name, _NO_ID) for name in ("context_id", "thread_id"))
    here = [
        dump
        for dump in dumps
        if dump.home == record.home and _same_task(dump.name, task, stream, context=context, thread=thread)
    ]
    overflow = OperatorOverflow(record.path, unit, task, stream, fields["status"], record.name.time)
    if not here:
        warn(f"There is no dump of the operator that the record {record.path.name} is about.")
        return overflow
    dump = here[0]
    try:
        op = read_dump(dump.path).op_name or dump.name.op
    except (Unreadable, OSError):
        op = dump.name.op
    return OperatorOverflow(record.path, unit, task, stream, fields["status"], record.name.time, dump, op)


def _same_task(name: DumpName, task: int, stream: int, *, context: int, thread: int) -> bool:
    if (name.task, name.stream) != (task, stream):
        return False
    if context not in (0, _NO_ID) and name.context != context:
        return False
    return thread in (0, _NO_ID) or name.thread == thread


def _ranges(path: Path, *, warn: Callable[[str], None]) -> list[str]:
    lines = []
    try:
        tensors = read_dump(path).tensors
    except (Unreadable, OSError):
        return []
    for tensor in tensors:
        name = f"{path.name}.{tensor.role}.{tensor.index}.npy"
        try:
            values = map_tensor(path, tensor)
        except (Unreadable, OSError) as error:
            warn(f"{name} cannot be read: {error}.")
            continue
        lines += [f" {name}", f" -[Format: {tensor.format}] {_range(values)}"]
    return lines


def _range(values: Array) -> str:
    about = f"[Shape: {values.shape}] [Dtype: {values.dtype}]"
    if not values.size:
        return f"{about} [empty]"
    with np.errstate(all="ignore"):
        return f"{about} [Max: {_told(values.max())}] [Min: {_told(values.min())}] [Mean: {_told(values.mean())}]"


def _told(value: np.generic) -> str:
    """A number in the fewest digits of its own type: 65504 is 65500.0 in float16."""
    if isinstance(value, np.floating) and (value == 0 or _PLAIN[0] <= abs(value) < _PLAIN[1]):
        return np.format_float_positional(value, unique=True, trim="0")
    return str(value)
