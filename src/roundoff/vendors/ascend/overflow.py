"""The operators that overflowed first, with the ranges of what they read and wrote."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from roundoff.core.array_files import Unreadable
from roundoff.core.tensors import Array
from roundoff.tensors.ascend_dump.header import read_dump
from roundoff.tensors.ascend_dump.names import DumpName, overflowed_unit, read_record
from roundoff.tensors.ascend_dump.source import DumpFile, list_dumps, map_tensor
from roundoff.vendors.ascend.conversion import Conversion, convert_dumps
from roundoff.vendors.ascend.errors import Code, Refused
from roundoff.vendors.ascend.rows import stamp, write_private

__all__ = ["OperatorOverflow", "find_overflows", "write_overflows"]

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
        raise Refused(f'The path "{folder}" is not a folder.', code=Code.PATH, fix="give the folder of the dumps")
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
            what = f"The record {record.path.name} exists, but its status is zero."
            raise Refused(what, code=Code.OVERFLOW_STATUS, fix="take it out of the folder")
        found.append(_matched(record, *hit, dumps=dumps, warn=warn))
    return found, len(records)


def write_overflows(
    overflows: list[OperatorOverflow], out: Path, *, warn: Callable[[str], None]
) -> tuple[Path, str]:
    """Write the tensors concerned and a summary of them; tell the summary's file and text."""
    parts = []
    for number, overflow in enumerate(overflows, 1):
        lines = [f"{_BAR}[{number}]{_BAR}="]
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
