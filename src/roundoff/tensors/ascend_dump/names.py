"""How the device names a dump: ``{op_type}.{op_name}.{task}.{stream}.{timestamp}``; and their statistics."""

import math
import re
import struct
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

from roundoff.core.array_files import Unreadable
from roundoff.core.files import read_small
from roundoff.core.untrusted import csv_records
from roundoff.errors import BadInput
from roundoff.messages.message import english
from roundoff.tensors.ascend_npy import MAPPING_NAME, read_mapping

_NAME = re.compile(
    r"(?P<type>[^.]+)\.(?P<op>[^.]+)\.(?P<task>[0-9]{1,20})(?:\.(?P<stream>[0-9]{1,20}))?\.(?P<time>[0-9]{1,20})"
    r"(?P<slice>\.(?P<kind>[0-9]{1,9})\.(?P<context>[0-9]{1,20})\.(?P<thread>[0-9]{1,20})(?:\.[0-9]{1,20})?)?"
    r"(?:(?<=\.[0-9]{16})\.[0-9])?"  # a task type alone
    r"(?P<statistics>\.csv)?"
)
_SLICE = re.compile(r"_lxslice(?P<number>[0-9]+)")
_GRAPH = re.compile(r"^.*sgt_graph_[0-9]+_(?=.)")
_NUMBERED = re.compile(r"[0-9]+")
_FFTS = "4"
_NOT_DUMPS = (MAPPING_NAME, "convert_failed_file_list.txt")


@dataclass(frozen=True, slots=True)
class DumpName:
    """The fields of a dump's name.

    Attributes:
        op_type: The operator's type.
        op: The operator's name, as the file spells it.
        task: Task on the device.
        stream: Stream on the device; -1 in names of the old kind.
        time: When it was written, in microseconds.
        context: Context of a sliced operator; -1 for others.
        thread: Thread of an automatically sliced operator; -1 for others.
        piece: Which slice of a manually sliced operator; -1 for others.
        statistics: Whether the file holds statistics instead of values.
    """

    op_type: str
    op: str
    task: int
    stream: int
    time: int
    context: int = -1
    thread: int = -1
    piece: int = -1
    statistics: bool = False

    @property
    def sliced(self) -> bool:
        """Whether it is one slice of an operator that ran in several."""
        return self.thread >= 0

    @property
    def overflow(self) -> bool:
        """Whether it is a record of an overflow and not a tensor."""
        return self.op_type == "Opdebug"


def parse_dump_name(file_name: str) -> DumpName | None:
    """Split a file name into its fields; None when it is not of this kind."""
    match = _NAME.fullmatch(file_name)
    if match is None:
        return None
    piece = _SLICE.search(match["op"])
    sliced = match["slice"] is not None and match["kind"] == _FFTS
    return DumpName(
        match["type"],
        match["op"],
        int(match["task"]),
        -1 if match["stream"] is None else int(match["stream"]),
        int(match["time"]),
        int(match["context"]) if sliced else -1,
        int(match["thread"]) if sliced else -1,
        int(piece["number"]) if piece and sliced else -1,
        match["statistics"] is not None,
    )


def logical_op(op: str) -> str:
    """The operator that a slice belongs to: its name without the number of the slice and of the sub-graph."""
    return _GRAPH.sub("", _SLICE.sub("", op))


def fits(files: Iterable[str]) -> bool:
    """Whether most of these paths are named like dumps."""
    found = [file.rpartition("/")[2] for file in files]
    names = [name for name in found if name not in _NOT_DUMPS]
    dumps = sum(parse_dump_name(name) is not None for name in names)
    # Numbers are names only where a mapping says what they stand for.
    numbers = sum(_NUMBERED.fullmatch(name) is not None for name in names) if MAPPING_NAME in found else 0
    return (dumps + numbers) * 2 > len(names)


def true_name(path: Path, mappings: dict[Path, dict[str, str]] | None = None) -> str:
    """The name of a file, or the over-long one that it stands for by the mapping of its folder.

    Args:
        path: The file.
        mappings: By folder, those that were read already; the folder's own is added.
    """
    if not _NUMBERED.fullmatch(path.name):
        return path.name
    mappings = {} if mappings is None else mappings
    if path.parent not in mappings:
        mappings[path.parent] = read_mapping(path.parent)
    return mappings[path.parent].get(f"{path.name}.npy", path.name)


# Records of overflow that the device writes (``Opdebug`` files): which unit overflowed, in which task.

Record: TypeAlias = dict[str, Any]
"""The record as its JSON has it."""

UNITS = ("AIC", "AIV", "AICPU", "SDMA")
"""Units that can overflow, by their number in a record."""

_MAGIC = 0x5A5A5A5A
_OLD_BYTES = 2048
_AGAIN = english("copy the record from the device again")
_TASK = ("model_id", "stream_id", "task_id", "task_type", "context_id")
_CORE = (*_TASK, "thread_id", "pc_start", "para_base", "core_id", "block_id", "status")
_FIELDS = {
    "AIC": _CORE,
    "AIV": _CORE,
    "SDMA": (*_TASK, "thread_id", "src_addr", "dst_addr", "channel_id", "status"),
    "AICPU": (*_TASK, "cpu_id", "thread_id", "status"),
}
_HEXADECIMAL = ("pc_start", "para_base", "src_addr", "dst_addr", "kernel_code")
_STATUS_WORDS = 4
_OLD_FIELDS = ("model_id", "stream_id", "task_id", "task_type", "pc_start", "para_base")
# Where the old layout keeps the two parts of each unit: the task, and the status behind some more words.
_OLD_PARTS = {
    "DHA Atomic Add": (0, 512, ("status",)),
    "L2 Atomic Add": (128, 768, ("status",)),
    "AI Core": (256, 1024, ("kernel_code", "block_idx", "status")),
}


def read_record(data: bytes) -> Record:
    """Read a record of either layout.

    Raises:
        Unreadable: The bytes are neither.
    """
    if len(data) >= 8 and struct.unpack_from("<I", data)[0] == _MAGIC:
        return _read_new(data)
    if len(data) == _OLD_BYTES:
        return {
            unit: {**_named(data, task, names=_OLD_FIELDS), **_named(data, status, names=names)}
            for unit, (task, status, names) in _OLD_PARTS.items()
        }
    raise Unreadable(
        english("is no record of an overflow: it has {count} bytes and no magic number", count=len(data)),
        fix=_AGAIN,
    )


def overflowed_unit(record: Record) -> tuple[str, Record] | None:
    """The unit whose status tells of an overflow, with its fields; None when no status does."""
    if "acc_list" in record:
        fields = record["acc_list"]["data"]
        status = fields.get("status")
        hit = any(status) if isinstance(status, list) else bool(status)
        return (record["acc_list"]["acc_type"], fields) if hit else None
    found = [(unit, fields) for unit, fields in record.items() if fields["status"]]
    return found[-1] if found else None


def _read_new(data: bytes) -> Record:
    if len(data) < 24:
        raise Unreadable(
            english("is cut short: a record has more than {count} bytes", count=len(data)), fix=_AGAIN
        )
    magic, version, valid, unit, reserved, length = struct.unpack_from("<6I", data)
    if unit >= len(UNITS):
        raise Unreadable(english("speaks of the unknown unit {unit}", unit=unit), fix=_AGAIN)
    names = _FIELDS[UNITS[unit]]
    fields = _named(data, 24, names=names)
    if version == 1 and names is _CORE:
        place = 24 + 8 * (len(names) - 1)
        words = min(_STATUS_WORDS, (len(data) - place) // 8)
        fields["status"] = list(struct.unpack_from(f"<{words}Q", data, place))
    about = {"valid": valid, "acc_type": UNITS[unit], "rsv": reserved, "data_len": length, "data": fields}
    return {"magic": hex(magic), "version": version, "acc_list": about}


def _named(data: bytes, place: int, *, names: tuple[str, ...]) -> Record:
    if len(data) < place + 8 * len(names):
        raise Unreadable(
            english(
                "is cut short: {count} bytes, {place} are needed", count=len(data), place=place + 8 * len(names)
            ),
            fix=_AGAIN,
        )
    values = struct.unpack_from(f"<{len(names)}Q", data, place)
    return {name: hex(value) if name in _HEXADECIMAL else value for name, value in zip(names, values, strict=True)}


_COLUMNS = ("Input/Output", "Index", "Data Type", "Format", "Shape", "Max Value", "Min Value", "Avg Value")
_FIX = english("dump the statistics again")


@dataclass(frozen=True, slots=True)
class TensorStatistics:
    """What a line says about a tensor.

    Attributes:
        role: ``input`` or ``output``.
        index: Its place among them.
        element_type: Its type, as written.
        format: Its memory format, as written.
        shape: Its shape; None when the device did not know it.
        maximum: The largest value.
        minimum: The smallest value.
        mean: The mean.
        not_numbers: How many values are NaN.
        infinities: How many are infinite.
    """

    role: str
    index: int
    element_type: str
    format: str
    shape: tuple[int, ...] | None
    maximum: float
    minimum: float
    mean: float
    not_numbers: int = 0
    infinities: int = 0


def read_statistics(path: Path) -> list[TensorStatistics]:
    """Read one file of statistics.

    Raises:
        Unreadable: It has other columns, or a line that cannot be read.
    """
    try:
        names, lines = csv_records(read_small(path, what=english("The statistics")), path)
    except BadInput as error:
        raise Unreadable(english("has a line that cannot be read: {error}", error=error.what), fix=_FIX) from error
    missing = [name for name in _COLUMNS if name not in names]
    if missing:
        raise Unreadable(
            english("is no file of statistics: it has no column {missing!r}", missing=missing[0]), fix=_FIX
        )
    try:
        return [_parse(line) for _, line in lines]
    except (ValueError, OverflowError) as error:
        raise Unreadable(english("has a line that cannot be read: {error}", error=error), fix=_FIX) from error


def _parse(line: dict[str, str]) -> TensorStatistics:
    return TensorStatistics(
        line["Input/Output"].strip().lower(),
        int(line["Index"]),
        line["Data Type"].strip(),
        line["Format"].strip(),
        _shape(line["Shape"]),
        _number(line["Max Value"]),
        _number(line["Min Value"]),
        _number(line["Avg Value"]),
        _count(line, "Nan Count"),
        _count(line, "Negative Inf Count") + _count(line, "Positive Inf Count"),
    )


def _shape(text: str) -> tuple[int, ...] | None:
    return None if text.strip() in ("-", "") else tuple(int(size) for size in text.strip().split("x"))


def _number(text: str) -> float:
    return math.nan if text.strip() in ("-", "") else float(text)


def _count(line: dict[str, str], name: str) -> int:
    text = (line.get(name) or "").strip()
    return int(text) if text and text != "-" else 0
