"""Rows of a result as the vendor's table has them, and the table as a file."""

import csv
import io
import os
import re
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from roundoff.core.files import writing
from roundoff.messages.message import english, escape_control
from roundoff.vendors.ascend.causes import FaultCause
from roundoff.vendors.ascend.errors import Code, Refused
from roundoff.vendors.ascend.rules import FusionRule, Warn

_DANGEROUS = re.compile(r"^[＝＋－+\-=%@]|;[＝＋－+\-=%@]")  # noqa: RUF001 - the full-width signs, too, begin formulas
_NONE = "NaN"


NEVER_DUMPED = (
    "Data",
    "Const",
    "Constant",
    "NetOutput",
    "Variable",
    "RefData",
    "AnnData",
    "Input",
    "ConstPlaceHolder",
)
"""Types of operators that the device never dumps."""

NOTHING_RUN = (
    *NEVER_DUMPED, "Reshape", "Flatten", "FlattenV2", "Squeeze", "SqueezeV2", "SqueezeV3", "Unsqueeze",
    "UnsqueezeV2", "UnsqueezeV3", "ExpandDims", "Identity", "Dropout",
)  # fmt: skip
"""Types of operators that need no dump: the device has nothing to run for them but to pass on what is there."""


@dataclass(frozen=True, slots=True)
class Row:
    """One tensor, or one operator of which there is nothing to compare.

    Attributes:
        index: Number of its group of operators.
        sequence: Its place in execution.
        op_type: The operator's type.
        mine: Names of the operators under test.
        mine_type: Element type of the tensor under test.
        mine_address: Its address.
        golden: Names of the golden operators.
        golden_type: Element type of the golden tensor.
        golden_address: Its address.
        tensor: Which tensor, as ``op:output:0``.
        shape: Its shape.
        overflow: Whether it overflows.
        values: What the algorithms print; empty for none computed.
        reason: Why something was not compared.
        dead: Channels that hold one value while their golden ones do not; no column shows them.
        cause: Why it is wrong, where that can be told; no column shows it.
        unscaled: The operator that wrote codes or sums of unknown scale, compared by a fitted line or not at all.
    """

    index: int
    sequence: int
    op_type: str
    mine: str
    mine_type: str = _NONE
    mine_address: str = _NONE
    golden: str = _NONE
    golden_type: str = _NONE
    golden_address: str = _NONE
    tensor: str = _NONE
    shape: str = _NONE
    overflow: str = _NONE
    values: tuple[str, ...] = ()
    reason: str = ""
    dead: tuple[int, ...] = ()
    cause: FaultCause | None = None
    unscaled: str = ""


@dataclass(frozen=True, slots=True)
class Columns:
    """Which columns a table has.

    Attributes:
        algorithms: Names of the algorithms.
        sequence: Whether to show the place in execution.
        mine_address: Whether to show addresses of tensors under test.
        golden_address: Whether to show addresses of golden tensors.
        overflow: Whether to show overflow.
    """

    algorithms: tuple[str, ...]
    sequence: bool = False
    mine_address: bool = True
    golden_address: bool = True
    overflow: bool = False

    @property
    def header(self) -> list[str]:
        """The first line."""
        return [
            "Index", *(["OpSequence"] if self.sequence else []), "OpType", "NPUDump", "DataType",
            *(["Address"] if self.mine_address else []), "GroundTruth", "DataType",
            *(["Address"] if self.golden_address else []), "TensorIndex", "Shape",
            *(["OverFlow"] if self.overflow else []), *self.algorithms, "CompareFailReason",
        ]  # fmt: skip

    def cells(self, row: Row) -> list[str]:
        """One line."""
        return [
            str(row.index), *([str(row.sequence)] if self.sequence else []), row.op_type, row.mine, row.mine_type,
            *([row.mine_address] if self.mine_address else []), row.golden, row.golden_type,
            *([row.golden_address] if self.golden_address else []), row.tensor, row.shape,
            *([row.overflow] if self.overflow else []),
            *(row.values or (_NONE,) * len(self.algorithms)), row.reason,
        ]  # fmt: skip


def stamp() -> str:
    """The local time as file names carry it."""
    return time.strftime("%Y%m%d%H%M%S", time.localtime())


def write_table(path: Path, lines: Sequence[Sequence[str]], *, strict: bool) -> None:
    """Write a table with the line ends of the vendor, readable by its owner alone.

    Args:
        path: The file.
        lines: The header and the rows.
        strict: Refuse cells that a spreadsheet would run, as the vendor does, instead of disarming them.
    """
    buffer = io.StringIO(newline="")
    writer = csv.writer(buffer)
    for line in lines:
        writer.writerow([_harmless(cell, strict=strict) for cell in line])
    write_private(path, buffer.getvalue())


def write_private(path: Path, text: str) -> None:
    """Write a text file that only its owner can read, in a folder of which the same holds when it is new."""
    with writing(path, option="-out"):
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        # Names in JSON, or on the disk, need not be valid Unicode.
        with os.fdopen(handle, "w", encoding="utf-8", errors="backslashreplace", newline="") as file:
            file.write(text)


def _harmless(cell: str, *, strict: bool) -> str:
    try:
        float(cell)
    except ValueError:
        shown = cell if strict else escape_control(cell)
        if not _DANGEROUS.search(shown):
            return shown
        if strict:
            what = english("Malicious value is not allowed to be written to the csv: {cell}", cell=cell)
            raise Refused(
                what, code=Code.UNKNOWN, fix=english("leave out --strict-vendor, or rename the operator")
            ) from None
        return f" {shown}"
    return cell


# Parts of a network: operators from, to and in steps of their numbers (-r), or a list of numbers (-s).

_LAST = -1


def chosen_groups(rule: FusionRule, *, span: str | None, picked: str | None, warn: Warn) -> list[str]:
    """Keys of the groups to compare, all of them when nothing is chosen.

    Args:
        rule: The rule.
        span: ``start,end,step`` over numbers of operators, from 1; an end of -1 is the last.
        picked: Numbers of operators with commas.
        warn: Told of numbers that there are not.
    """
    if span is None and picked is None:
        return list(rule.groups)
    last = rule.in_order[-1].sequence if rule.in_order else 0
    if span is not None:
        start, end, step = _parse_span(span, last)
        wanted = {
            number for number in range(start, end + 1) if number in (start, end) or (number - start) % step == 0
        }
    else:
        wanted = _parse_picked(picked or "", last, warn=warn)
    chosen = (
        rule.group_of[found.name]
        for found in rule.in_order
        if found.sequence in wanted and found.name in rule.group_of
    )
    return list(dict.fromkeys(chosen))


def _parse_span(text: str, last: int) -> tuple[int, int, int]:
    parts = [part.strip() for part in text.split(",")]
    numbers = [1, _LAST, 1]
    valid = len(parts) == 3 and all(
        re.fullmatch(r"[0-9]*", part) or (place == 1 and part == "-1") for place, part in enumerate(parts)
    )
    if not valid:
        what = english('The range ({text}) is invalid, just supports "start,end,step".', text=text)
        raise Refused(what, code=Code.PARAMETER, fix=english("write for example -r 1,-1,1"))
    for place, part in enumerate(parts):
        if part not in ("", "-1"):
            numbers[place] = int(part)
    start, end, step = numbers
    end = last if end == _LAST else end
    _check("start", start, 1 <= start <= last, f"[1, {last}]")
    _check("end", end, start <= end <= last, f"[1, {last}]")
    _check("step", step, 1 <= step < max(last, 1), f"[1, {last})")
    return start, end, step


def _parse_picked(text: str, last: int, *, warn: Warn) -> set[int]:
    parts = [part.strip() for part in text.split(",") if part.strip()]
    if not all(re.fullmatch(r"[0-9]+", part) for part in parts):
        what = english('The index ({text}) is invalid, just supports "index_1, index_2, ...".', text=text)
        raise Refused(what, code=Code.PARAMETER, fix=english("write for example -s 1,4,7"))
    numbers = {int(part) for part in parts}
    beyond = sorted(number for number in numbers if number > last)
    if beyond:
        message = english("Index {beyond} out of range [1,{last}].", beyond=beyond, last=last)
        if len(beyond) == len(numbers):
            raise Refused(message, code=Code.PARAMETER, fix=english("choose numbers up to {last}", last=last))
        warn(message)
    return numbers - set(beyond)


def _check(what: str, value: int, valid: bool, allowed: str) -> None:
    if not valid:
        message = english(
            "The {what} index ({value}) is out of range {allowed}. Please check the index.",
            what=what,
            value=value,
            allowed=allowed,
        )
        raise Refused(message, code=Code.INDEX, fix=english("choose it from {allowed}", allowed=allowed))
