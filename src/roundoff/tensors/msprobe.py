"""Folders of msprobe (MindStudio's PrecisionDebugger): ``stepN/rankN/dump.json``, with or without the tensors.

A dump of task ``statistics`` has the largest, smallest and mean value and the norm of each tensor and nothing
else: a tensor then stands for these four numbers. Files of task ``tensor`` are read without torch.
"""

import functools
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from roundoff.core.array_files import Unreadable
from roundoff.core.files import read_small
from roundoff.core.names import natural_key, shown
from roundoff.core.tensors import Array, TensorInfo, TensorSource
from roundoff.core.untrusted import parse_json
from roundoff.errors import BadInput
from roundoff.messages.message import english
from roundoff.tensors import npy, torch_file
from roundoff.tensors.folders import CERTAIN, walk_files
from roundoff.tensors.sources import ANY_RUN, RunSelection
from roundoff.tensors.stored import Content, StoredSource, TensorFile, holds_statistics

_DUMP = "dump.json"
_TENSORS = "dump_tensor_data"
_STEP = re.compile(r"^step\d+$")
_PLACE = re.compile(r"^(rank|proc)\d+$")
STATISTICS = ("Max", "Min", "Mean", "Norm")
_FINISHED = english("wait for stop(): the file is complete only then; or dump again")


def sniff(path: Path) -> int:
    """Score how well a path fits: dump.json in folders of steps."""
    if not path.is_dir():
        return 0
    return CERTAIN if any(_dumps(path)) else 0


def _dumps(path: Path) -> Iterator[tuple[str, Path]]:
    """Each step and its dump; of several processes the place is part of the step's name."""
    found: list[tuple[str, str, Path]] = []
    for file in walk_files(path):
        parts = ("/".join(path.parts[-2:]) + "/" + file).split("/")
        if parts[-1] != _DUMP:
            continue
        step = next((part for part in reversed(parts) if _STEP.match(part)), "")
        place = next((part for part in reversed(parts) if _PLACE.match(part)), "")
        if step or place:
            found.append((step, place, path / file))
    places = {place for _, place, _ in found}
    steps = {step for step, _, _ in found}
    # The number of a process means nothing; that of a rank among several does.
    several = len(found) > len(steps)
    for step, place, dump in sorted(found, key=lambda each: natural_key(f"{each[0]}/{each[1]}")):
        yield (f"{step}/{place}" if several and len(places) > 1 else step), dump


def open(  # noqa: A001 - every format has an `open`
    path: Path, shapes: Sequence[TensorInfo] | None = None, run: RunSelection = ANY_RUN
) -> TensorSource:
    """Open a folder of dumps; steps are samples."""
    run.found((), path)
    dumps = list(_dumps(path))
    if not dumps:
        what = english("{path} holds no dump.json of msprobe.", path=path)
        raise BadInput(what, fix=english("give the folder with step0 in it"))
    stored: list[TensorFile] = []
    statistics = True
    alone = len(dumps) == 1
    for step, file in dumps:
        entries = list(_entries(file))
        folder = file.parent / _TENSORS
        statistics = statistics and not any(entry.file for entry in entries)
        for entry in entries:
            probe = (
                functools.partial(_probe_file, folder, entry.file)
                if entry.file
                else functools.partial(_probe_statistics, entry)
            )
            sample = "" if alone else step
            stored.append(TensorFile(entry.name, sample, shown(file), probe, op_type=entry.kind))
    if not stored:
        raise BadInput(english("{path} describes no tensors.", path=path), fix=_FINISHED)
    return StoredSource(
        stored,
        label=shown(path),
        samples=[""] if alone else [step for step, _ in dumps],
        ordered=True,
        statistics=statistics,
    )


@dataclass(frozen=True, slots=True)
class _Entry:
    """A tensor in a dump: its name, the module or function, its file, and its statistics."""

    name: str
    kind: str
    file: str
    numbers: tuple[float, ...]


def _entries(path: Path) -> Iterator[_Entry]:
    content = parse_json(read_small(path, what=english("The dump")), path, fix=_FINISHED)
    data = content.get("data") if isinstance(content, dict) else None
    if not isinstance(data, dict):
        raise BadInput(english("{path} is no dump of msprobe: it has no data.", path=path), fix=_FINISHED)
    for name, call in data.items():
        if not isinstance(call, dict):
            continue
        kind = name.split(".")[-3] if name.startswith("Module.") and name.count(".") >= 3 else name.split(".")[1:2]
        own = kind if isinstance(kind, str) else "".join(kind)
        for part, said in (("input_args", "input"), ("output", "output")):
            for number, given in enumerate(call.get(part) or ()):
                yield from _tensor(f"{name}.{said}.{number}", own, given)


def _tensor(name: str, kind: str, given: Any) -> Iterator[_Entry]:
    if isinstance(given, list):
        for number, each in enumerate(given):
            yield from _tensor(f"{name}.{number}", kind, each)
    if not isinstance(given, Mapping) or not str(given.get("type", "")).endswith("Tensor"):
        return
    file = given.get("data_name")
    numbers = tuple(_number(given.get(key)) for key in STATISTICS)
    yield _Entry(name, kind, file if isinstance(file, str) else "", numbers)


def _number(value: Any) -> float:
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else math.nan


def _probe_file(folder: Path, file: str) -> Content:
    if "/" in file or "\\" in file or file.startswith("."):
        raise Unreadable(english("names a file outside its folder"))
    path = folder / file
    return npy.probe(path, None) if path.suffix.lower() == ".npy" else torch_file.probe(path)


def _probe_statistics(entry: _Entry) -> Content:
    if any(map(math.isnan, entry.numbers)):
        raise Unreadable(english("has no statistics that are numbers"))
    values = np.array(entry.numbers, np.float64)
    return Content("float64", values.shape, lambda: values)


class StatisticsSource:
    """A `TensorSource` of the statistics of another's tensors, to compare with one that has nothing else."""

    statistics = True

    def __init__(self, source: TensorSource) -> None:
        self._source = source
        self.label, self.samples, self.ordered = source.label, source.samples, source.ordered
        self.tensors = tuple(
            TensorInfo(
                info.name, "float64", (len(STATISTICS),), info.problem, info.node, info.op_type, info.origin
            )
            for info in source.tensors
        )

    def read(self, name: str, sample: str) -> Array:
        """Largest, smallest and mean value, and norm."""
        values = np.asarray(self._source.read(name, sample), np.float64).ravel()
        if not values.size:
            return np.zeros(len(STATISTICS))
        return np.array([values.max(), values.min(), values.mean(), np.linalg.norm(values)])


def as_alike(one: TensorSource, other: TensorSource) -> tuple[TensorSource, TensorSource]:
    """Both sides; where one has statistics only, those of the other."""
    kinds = holds_statistics(one), holds_statistics(other)
    if kinds[0] == kinds[1]:
        return one, other
    return (one, StatisticsSource(other)) if kinds[0] else (StatisticsSource(one), other)
