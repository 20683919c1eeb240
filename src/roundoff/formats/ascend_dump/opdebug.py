"""Records of overflow that the device writes (``Opdebug`` files): which unit overflowed, in which task."""

import struct
from typing import Any, TypeAlias

from roundoff.core.unreadable import Unreadable

__all__ = ["UNITS", "Record", "overflowed_unit", "read_record"]

Record: TypeAlias = dict[str, Any]
"""The record as its JSON has it."""

UNITS = ("AIC", "AIV", "AICPU", "SDMA")
"""Units that can overflow, by their number in a record."""

_MAGIC = 0x5A5A5A5A
_OLD_BYTES = 2048
_AGAIN = "copy the record from the device again"
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
    raise Unreadable(f"is no record of an overflow: it has {len(data)} bytes and no magic number", fix=_AGAIN)


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
        raise Unreadable(f"is cut short: a record has more than {len(data)} bytes", fix=_AGAIN)
    magic, version, valid, unit, reserved, length = struct.unpack_from("<6I", data)
    if unit >= len(UNITS):
        raise Unreadable(f"speaks of the unknown unit {unit}", fix=_AGAIN)
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
        raise Unreadable(f"is cut short: {len(data)} bytes, {place + 8 * len(names)} are needed", fix=_AGAIN)
    values = struct.unpack_from(f"<{len(names)}Q", data, place)
    return {name: hex(value) if name in _HEXADECIMAL else value for name, value in zip(names, values, strict=True)}
