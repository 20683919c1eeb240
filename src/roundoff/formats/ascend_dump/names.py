"""How the device names a dump: ``{op_type}.{op_name}.{task}.{stream}.{timestamp}``, and more for slices."""

import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from roundoff.formats.ascend_names import MAPPING_NAME, read_mapping

__all__ = ["DumpName", "fits", "logical_op", "parse_dump_name", "true_name"]

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
