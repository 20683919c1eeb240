"""How Ascend's tools name a golden tensor: ``{op_name}.{output_index}.{timestamp}.npy``."""

import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from roundoff.core.files import read_small

__all__ = ["MAPPING_NAME", "MAX_NAME_BYTES", "NOT_IN_OP_NAME", "GoldenName", "fits", "parse_name", "read_mapping"]

MAPPING_NAME = "mapping.csv"
"""Lines of ``file,original_file_name`` for files whose true name is too long for the disk."""

MAX_NAME_BYTES = 254
"""From 255 bytes on the tools take a number for the name and note the true one in the mapping."""

NOT_IN_OP_NAME = re.compile(r"[^A-Za-z0-9_-]")
"""Characters that become ``_``; a dot would end the op name for the tools."""

_NAME = re.compile(r"(?P<op>.+)\.(?P<index>[0-9]{1,9})\.(?P<time>[0-9]{1,255})\.npy", re.DOTALL)
_NUMBERED = re.compile(r"([0-9]+)(?:\.npy)?")
# Seconds since 1970 have ten digits; the tools write microseconds. Less is an index, not a time.
_TIME_DIGITS = 10


@dataclass(frozen=True, slots=True)
class GoldenName:
    """The three fields of a golden file's name."""

    op: str
    index: int
    timestamp: int


def parse_name(file_name: str) -> GoldenName | None:
    """Split a file name into its fields; None when it is not of this kind."""
    match = _NAME.fullmatch(file_name)
    return GoldenName(match["op"], int(match["index"]), int(match["time"])) if match else None


def fits(files: Iterable[str]) -> bool:
    """Whether most .npy files among these paths are named in this way, with a time in the last field."""
    names = [file.rpartition("/")[2] for file in files if file.lower().endswith(".npy")]
    golden = [name for name in names if (match := _NAME.fullmatch(name)) and len(match["time"]) >= _TIME_DIGITS]
    return len(golden) * 2 > len(names)


def read_mapping(folder: Path) -> dict[str, str]:
    """Read which numbered files of a folder stand for which over-long names; nothing when there is no mapping."""
    path = folder / MAPPING_NAME
    if not path.is_file():
        return {}
    lines = read_small(path, what="The mapping").decode(errors="replace").splitlines()
    pairs = (line.split(",", 1) for line in lines if "," in line)
    return {
        f"{number[1]}.npy": original.strip().strip('"')
        for file, original in pairs
        if (number := _NUMBERED.fullmatch(file.strip().strip('"')))
    }
