"""Traces of TI's TIDL: ``tidl_trace_<graph>_<layer>_<batch>_..._<channel>_<width>x<height>_float.bin``.

Shapes stand in the names. ``layer_info.txt`` beside them gives the ONNX name of each layer that writes a tensor.
"""

import functools
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from roundoff.core.array_files import Unreadable, check_shape, map_array, size_bytes, stat_file
from roundoff.core.files import read_small
from roundoff.core.names import natural_key, shown
from roundoff.core.tensors import TensorInfo, TensorSource
from roundoff.errors import BadInput
from roundoff.messages.message import english
from roundoff.tensors.folders import CERTAIN, walk_files
from roundoff.tensors.manifest import find_manifest
from roundoff.tensors.sources import ANY_RUN, RunSelection
from roundoff.tensors.stored import Content, StoredSource, TensorFile

_NAME = re.compile(
    r"^(?:tidl_trace_)?(?P<graph>.*?)_?(?P<layer>\d{4})_(?P<axes>\d{1,7}(?:_\d{1,7})*)_(?P<width>\d{1,7})x(?P<height>\d{1,7})"
    r"(?P<kind>_float\.bin|\.y)$"
)
_FLOAT = "_float.bin"
_LAYERS = "layer_info.txt"


def sniff(path: Path) -> int:
    """Score how well a path fits: float traces named in this way."""
    if not path.is_dir() or find_manifest(path) is not None:
        return 0
    files = [file.rpartition("/")[2] for file in walk_files(path)]
    return CERTAIN if any(_NAME.match(file) and file.endswith(_FLOAT) for file in files) else 0


@dataclass(frozen=True, slots=True)
class _Trace:
    """One file: its path below the folder, graph, layer, and shape."""

    file: str
    graph: str
    layer: int
    shape: tuple[int, ...]
    is_float: bool


def open(  # noqa: A001 - every format has an `open`
    path: Path, shapes: Sequence[TensorInfo] | None = None, run: RunSelection = ANY_RUN
) -> TensorSource:
    """Open a folder of traces; those in fixed point are the same tensors again, without their scales."""
    run.found((), path)
    traces = [trace for file in walk_files(path) if (trace := _parse(file)) is not None]
    values = sorted(
        (each for each in traces if each.is_float), key=lambda each: (natural_key(each.graph), each.layer)
    )
    if not values:
        what = english("{path} holds no float traces of TIDL.", path=path)
        raise BadInput(what, fix=english("run with debug_level 4, which writes *_float.bin"))
    names = _layers(path)
    several = len({each.graph for each in values}) > 1
    stored = []
    for each in values:
        layer = names.get(each.layer, f"{each.layer:04d}")
        where = path / each.file
        name = f"{each.graph}/{layer}" if several and each.layer not in names else layer
        stored.append(TensorFile(name, "", shown(where), functools.partial(_probe, where, each.shape)))
    return StoredSource(stored, label=shown(path), ordered=not several)


def _parse(file: str) -> _Trace | None:
    found = _NAME.match(file.rpartition("/")[2])
    if found is None:
        return None
    axes = tuple(map(int, found["axes"].split("_")))
    shape = (*axes, int(found["height"]), int(found["width"]))
    # Axes in front of the channels that are 1 are written for every tensor; batch, channel, height, width stay.
    while len(shape) > 4 and shape[1] == 1:
        shape = (shape[0], *shape[2:])
    return _Trace(file, found["graph"], int(found["layer"]), shape, found["kind"] == _FLOAT)


def _layers(folder: Path) -> dict[int, str]:
    """ONNX names by the numbers of what they write: ``data layer name`` where both numbers are the same."""
    found: dict[int, str] = {}
    for path in sorted((*folder.glob(f"*{_LAYERS}"), *folder.parent.glob(f"*{_LAYERS}")))[:1]:
        for line in read_small(path, what=english("The list of layers")).decode("utf-8", "replace").splitlines():
            parts = line.split()
            if len(parts) >= 3 and parts[0] == parts[1] and parts[0].isdigit() and len(parts[0]) < 9:
                found.setdefault(int(parts[0]), parts[-1])
    return found


def _probe(path: Path, shape: tuple[int, ...]) -> Content:
    dtype = np.dtype("<f4")
    check_shape(dtype, shape)
    there, wanted = stat_file(path), size_bytes(dtype, shape)
    if there != wanted:
        raise Unreadable(
            english("has {there} bytes, its name says {wanted}", there=there, wanted=wanted),
            fix=english("write the traces again, into an empty folder"),
            dtype="float32",
            shape=shape,
        )
    return Content("float32", shape, functools.partial(map_array, path, offset=0, dtype=dtype, shape=shape))
