"""Dumps of Ascend processors: one file per operator, a header and the memory of its inputs and outputs."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from roundoff.core.array_files import Unreadable
from roundoff.core.names import shown
from roundoff.core.tensors import TensorInfo, TensorSource
from roundoff.errors import BadInput
from roundoff.messages.message import english
from roundoff.tensors.ascend_dump.header import read_dump
from roundoff.tensors.ascend_dump.names import DumpName, fits, parse_dump_name, true_name
from roundoff.tensors.ascend_dump.source import DumpFile, arrange_dumps, list_dumps
from roundoff.tensors.folders import CERTAIN, LIKELY, is_tensor_file, walk_files
from roundoff.tensors.manifest import find_manifest
from roundoff.tensors.sources import ANY_RUN, RunSelection, as_source

__all__ = ["open", "sniff"]


def sniff(path: Path) -> int:
    """Score how well a path fits: a dump file, or a folder without manifest most of whose files are named so."""
    if path.is_dir():
        return LIKELY if find_manifest(path) is None and fits(walk_files(path)) else 0
    if not is_tensor_file(path) or path.suffix.lower() in (".npy", ".npz", ".safetensors"):
        return 0
    try:
        read_dump(path)
    except (Unreadable, OSError):
        return LIKELY if parse_dump_name(true_name(path)) else 0
    return CERTAIN if parse_dump_name(true_name(path)) else LIKELY


def open(  # noqa: A001 - every format has an `open`
    path: Path, shapes: Sequence[TensorInfo] | None = None, run: RunSelection = ANY_RUN
) -> TensorSource:
    """Open a dump file or a folder of them.

    Outputs are called ``op.0``, as in folders of golden data, and inputs ``op.input.0``.
    """
    runs: tuple[str, ...] = ()
    if path.is_dir():
        dumps = list_dumps(path)
        routes = [f"{dump.home}/{dump.name.op}".removeprefix("/") for dump in dumps]
        kept, runs = run.choose(routes, path)
        dumps = [
            replace(dump, file=f"{kept[route].rpartition('/')[0]}/{dump.path.name}".removeprefix("/"))
            for dump, route in zip(dumps, routes, strict=True)
            if route in kept
        ]
    elif is_tensor_file(path):
        run.found((), path)
        name = parse_dump_name(true_name(path)) or DumpName("", path.name, -1, -1, 0)
        dumps = [DumpFile(path, path.name, name)]
    else:
        raise BadInput(
            english("{path} is not an Ascend dump.", path=path),
            fix=english("give a dump file, or the folder of one inference"),
        )
    return as_source(replace(arrange_dumps(dumps), runs=runs), label=shown(path), kind=english("dump files"))
