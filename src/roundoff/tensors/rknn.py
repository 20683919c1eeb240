"""Folders that RKNN-Toolkit2 writes with `accuracy_analysis`: golden, simulator and, from a board, runtime.

Three runs of one sample lie side by side. ``map_name_to_file.txt`` gives the layers in execution order and their
files, ``<model>.quantization.cfg`` the range of every tensor, ``error_analysis.txt`` the tool's own comparison.
"""

import functools
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from roundoff.core.array_files import Unreadable
from roundoff.core.files import read_small
from roundoff.core.names import natural_key, shown
from roundoff.core.tensors import Array, TensorInfo, TensorSource
from roundoff.errors import BadInput, nearest
from roundoff.messages.message import Message, english, message
from roundoff.tensors import npy
from roundoff.tensors.folders import CERTAIN, suffix_of, walk_files, without_suffix
from roundoff.tensors.sources import ANY_RUN, NAME_LIST, RunSelection
from roundoff.tensors.stored import Content, StoredSource, TensorFile, ToolScale, resolve_content

ANALYSIS = "error_analysis.txt"
_ROLES = {
    **dict.fromkeys(("golden", "fp32"), "golden"),
    **dict.fromkeys(("simulator", "entire_qnt"), "simulator"),
    "runtime": "runtime",
}
"""What the tool calls its folders, by versions, and the run in each."""
_JUDGED = ("runtime", "simulator", "golden")
_SCALES = ".quantization.cfg"
_GOLDEN = "golden"
_TARGET = "rknn"
_RUNGS = ("golden", "simulator", "runtime")


def sniff(path: Path) -> int:
    """Score how well a path fits: a folder with runs of the tool beside its list of layers or its analysis."""
    return CERTAIN if path.is_dir() and any(_snapshots(path)) else 0


def open(  # noqa: A001 - every format has an `open`
    path: Path, shapes: Sequence[TensorInfo] | None = None, run: RunSelection = ANY_RUN
) -> TensorSource:
    """Open the folder of one analysis, or one with a folder for each sample.

    Args:
        path: The folder, or one of the runs in it.
        shapes: Not needed.
        run: Which of the runs is wanted; the board's where it is there, else the simulator's.
    """
    snapshots = sorted(_snapshots(path), key=lambda each: natural_key(each.sample))
    if not snapshots:
        what = english("{path} holds no folder of accuracy_analysis.", path=path)
        raise BadInput(what, fix=english("give the folder that has {name} in it", name=NAME_LIST))
    inside = {role for each in snapshots for role in each.runs}
    known = [role for role in _JUDGED if role in inside]
    chosen = _chosen(run, known, path)
    samples = [each.sample for each in snapshots]
    stored = [place for each in snapshots if chosen in each.runs for place in each.tensors(chosen)]
    if not stored:
        what = english("{path} holds no tensors of the run {run}.", path=path, run=chosen)
        raise BadInput(what, fix=english("run accuracy_analysis again, or give another run: {known}", known=known))
    return StoredSource(
        stored,
        label=shown(path),
        samples=samples,
        ordered=all(each.complete(chosen) for each in snapshots),
        broken={
            each.sample: english("it has no folder {run}", run=chosen)
            for each in snapshots
            if chosen not in each.runs
        },
        runs=(chosen, *(role for role in known if role != chosen)) if len(known) > 1 else (),
        scales=_scales(path),
        target=_TARGET,
        rungs={name: functools.partial(open, path, run=RunSelection(name)) for name in _RUNGS if name in known},
        remarks=lambda: [remark for each in snapshots for remark in each.remarks()],
    )


def _chosen(run: RunSelection, known: Sequence[str], path: Path) -> str:
    if run.name is None:
        if known == [_GOLDEN] and not run.golden:
            what = english(
                "{path} holds only the golden run: nothing there is of a simulator or a board.", path=path
            )
            raise BadInput(what, fix=english("run accuracy_analysis again, or say --run golden to judge that one"))
        return _GOLDEN if run.golden and _GOLDEN in known else known[0]
    role = _ROLES.get(run.name.casefold(), run.name.casefold())
    if role not in known:
        what = english("{where} holds no run {name!r}.", where=path, name=run.name)
        raise BadInput(what, fix=nearest(run.name, known))
    return role


@dataclass(frozen=True, slots=True)
class _Snapshot:
    """One analysis of one sample.

    Attributes:
        folder: Its folder.
        sample: Its name among others; empty where it is the only one.
        runs: The folder of each run.
    """

    folder: Path
    sample: str
    runs: Mapping[str, str]

    @property
    def listed(self) -> bool:
        """Whether the list of layers is there."""
        return (self.folder / NAME_LIST).is_file()

    def complete(self, role: str) -> bool:
        """Whether the list names every file of a run, and so tells the order of all."""
        known = set(_layers(self.folder / NAME_LIST).values())
        return role not in self.runs or _files(self.folder / self.runs[role]).keys() <= known

    def tensors(self, role: str) -> Iterator[TensorFile]:
        """The tensors of a run: those of the list in its order, then files that it does not name."""
        folder = self.folder / self.runs[role]
        files = _files(folder)
        listed = _layers(self.folder / NAME_LIST)
        firsts = {layer: layer for layer, file in listed.items() if file in files and _original(layer)[0] == layer}
        operations = dict(_operations(self.folder / ANALYSIS))
        for layer, file in listed.items():
            path = files.pop(file, None)
            if path is not None:
                place = TensorFile(layer, self.sample, shown(path), _probe_of(path))
                stem, operation = _original(layer)
                first = firsts.setdefault(stem, layer)
                part = _PART.match(layer)
                if part and part["name"] in listed:
                    # A step of the tool's own; of no tensor of the model, unless one is called so.
                    place = replace(place, copy_of=part["name"], op_type="Conv")
                elif first != layer and operations.get(layer, "") not in _MOVING:
                    # Another operation, which is called after what it reads.
                    place = replace(place, op_type=operations[layer])
                elif first != layer:
                    place = replace(place, copy_of=first)
                elif stem != layer:
                    place = replace(place, origin=stem, op_type=operation)
                yield place
            elif role != "runtime":  # a board runs fused layers as one and has nothing of those inside
                yield TensorFile(layer, self.sample, shown(folder / file), _missing)
        for file, path in sorted(files.items(), key=lambda each: natural_key(each[0])):
            yield TensorFile(file, self.sample, shown(path), _probe_of(path))

    def remarks(self) -> Iterator[Message]:
        """What is missing or does not fit: the list, the inputs of two runs, the tool's own figures."""
        where = self.sample or self.folder.name
        if not self.listed:
            yield message("tensors.rknn_no_list", where=where, file=NAME_LIST)
        if not {_GOLDEN, "simulator"} <= self.runs.keys():
            yield message("tensors.rknn_half", where=where, runs=", ".join(sorted(self.runs)))
            return
        runs = [{each.name: each for each in self.tensors(role)} for role in (_GOLDEN, "simulator")]
        for kind, layer, cosine in _figures(self.folder / ANALYSIS):
            pair = [_values(run[layer]) for run in runs if layer in run]
            if len(pair) < 2 or pair[0] is None or pair[1] is None or pair[0].size != pair[1].size:
                continue
            found = _cosine(pair[0], pair[1])
            if kind == "Input" and not np.array_equal(pair[0].ravel(), pair[1].ravel()):
                yield message("tensors.rknn_other_sample", where=where, name=layer)
            elif abs(found - cosine) > _DEVIATES:
                yield message("tensors.rknn_figures", where=where, name=layer, said=cosine, found=found)


_MOVED = re.compile(r"^(?P<name>.+?)(?P<product>_mm)?(?:-rs|_rs|_tp|_sw|#\d+|_sdpa)*$")
"""What the tool puts behind a name: it moves a tensor, computes attention in one kernel, or a product as Conv."""


def _original(layer: str) -> tuple[str, str]:
    """The tensor of the model that a layer holds in another shape, and what computes it where the name tells."""
    found = _MOVED.match(layer)
    name = found["name"] if found else layer
    # The mean over an axis is a product of what was moved before: it has that tensor's name with the marks.
    product = bool(found and found["product"])
    return (layer, "") if product and _MOVES.search(name) else (name, "MatMul" * product)


_PART = re.compile(r"^(?P<name>.+)_conv$")
"""Of a convolution that the tool splits, the part that reads a layer: it is called after that."""
_MOVES = re.compile(r"(?:-rs|_rs|_tp|_sw|#\d+)$")
_DEVIATES = 2e-3
"""The tool writes five decimals of cosines that it takes in float32; files of other runs differ by far more."""
_MOST_VALUES = 16_000_000


def _values(place: TensorFile) -> Array | None:
    try:
        content = place.probe()
        if np.prod(content.shape, dtype=np.int64) > _MOST_VALUES:
            return None
        values = np.asarray(content.load(), np.float64)
    except (Unreadable, OSError):
        return None
    return values if np.isfinite(values).all() else None


def _cosine(one: Array, other: Array) -> float:
    sizes = float(np.linalg.norm(one) * np.linalg.norm(other))
    return float(one.ravel() @ other.ravel()) / sizes if sizes else float(np.array_equal(one, other))


def _snapshots(path: Path) -> Iterator[_Snapshot]:
    """Every analysis below a folder; or the one that a folder of a run belongs to."""
    folders: dict[str, set[str]] = {}
    marked: set[str] = set()
    for file in walk_files(path):
        parts = file.split("/")
        if parts[-1] in (NAME_LIST, ANALYSIS):
            marked.add("/".join(parts[:-1]))
        for depth, part in enumerate(parts[:-1]):
            if part in _ROLES and suffix_of(file) in (".npy", ".txt"):
                folders.setdefault("/".join(parts[:depth]), set()).add(part)
                break
    found = [home for home in folders if home in marked]
    for home in found:
        alone = len(found) == 1
        yield _Snapshot(path / home, "" if alone else home, {_ROLES[name]: name for name in sorted(folders[home])})


def _files(folder: Path) -> dict[str, Path]:
    """The tensors of a run by the names of their files without suffix; arrays before the same values as text."""
    found: dict[str, Path] = {}
    for suffix in (".txt", ".npy"):
        for file in walk_files(folder):
            if suffix_of(file) == suffix:
                found[without_suffix(file).removeprefix("npy/")] = folder / file
    return found


def _layers(path: Path) -> dict[str, str]:
    """Layers in execution order, and their files without suffix."""
    if not path.is_file():
        return {}
    found: dict[str, str] = {}
    for line in _lines(path):
        layer, _, file = line.strip().rpartition(" ")
        if layer.strip() and suffix_of(file):
            found.setdefault(layer.strip(), without_suffix(file))
    return found


_MOVING = ("", "Reshape", "Transpose", "exDataConvert")
"""Operations of the tool that leave values as they are; and where it says nothing."""
_OPERATION = re.compile(r"^\[(\w+)\]\s+(\S+)")


def _operations(path: Path) -> Iterator[tuple[str, str]]:
    """Layers, and what computes them as the tool calls it."""
    if path.is_file():
        yield from ((row[2], row[1]) for line in _lines(path) if (row := _OPERATION.match(line)))


_ROW = re.compile(r"^\[(\w+)\]\s+(\S.*?)\s+(-?\d\.\d+)\s*\|\s*\S+")


def _figures(path: Path) -> Iterator[tuple[str, str, float]]:
    """Operation, layer and the cosine of all that the simulator lost up to it; fused layers have none."""
    if path.is_file():
        for line in _lines(path):
            if row := _ROW.match(line):
                yield row[1], row[2], float(row[3])


def _lines(path: Path) -> list[str]:
    return read_small(path, what=english("The list")).decode("utf-8", "replace").splitlines()


def _probe_of(path: Path) -> Callable[[], Content]:
    if path.suffix.lower() == ".npy":
        return functools.partial(npy.probe, path, None)
    return functools.partial(_probe_text, path)


def _missing() -> Content:
    raise Unreadable(
        english("is listed in {name} and not there", name=NAME_LIST),
        fix=english("run accuracy_analysis again: the folder is incomplete"),
    )


def _probe_text(path: Path) -> Content:
    """Values as text, one on each line; their shape is not said."""
    try:
        with np.errstate(over="ignore"):  # what is beyond float32 is infinite
            values = np.array(path.read_text("ascii").split(), np.float32)
    except (ValueError, UnicodeDecodeError) as error:
        raise Unreadable(english("is no list of numbers")) from error
    if not values.size:
        raise Unreadable(english("is empty"))
    return resolve_content(values.dtype, values.shape, load=lambda: values, declared=None)


# The ranges of tensors, in the YAML that the tool writes.

_FIELD = re.compile(r"^\s+(min|max|ori_min|ori_max|scale|zero_point):\s*(.*)$")
_TYPE = re.compile(r"^\s+dtype:\s*u?int(\d+)\s*$")


def _scales(path: Path) -> dict[str, ToolScale]:
    """The ranges that a configuration in the folder or beside it gives, where there is just one."""
    for folder in (path, path.parent):
        found = sorted(file for file in folder.iterdir() if file.name.endswith(_SCALES) and file.is_file())
        if found:
            return read_ranges(found[0]) if len(found) == 1 else {}
    return {}


def read_ranges(path: Path) -> dict[str, ToolScale]:
    """Read the ranges of a ``.quantization.cfg``; tensors that stay in float or have several scales have none."""
    text = read_small(path, what=english("The configuration")).decode("utf-8", "replace")
    _, start, body = text.partition("quantize_parameters:")
    found: dict[str, ToolScale] = {}
    for name, fields in _entries(body) if start else ():
        bounds = [fields.get(key, []) for key in ("min", "max")]
        if not fields.get("scale") or not all(len(each) == 1 for each in bounds):
            continue
        low, high = min(bounds[0][0], 0.0), max(bounds[1][0], 0.0)
        steps = (1 << min(int(fields.get("bits", [8])[0]), 32)) - 1
        if not 0 < high - low < np.inf:
            continue
        seen = [fields.get(key, []) for key in ("ori_min", "ori_max")]
        observed = (seen[0][0], seen[1][0]) if all(len(each) == 1 for each in seen) else None
        # What is used is the range, also where it was edited and the scale beside it is the old one.
        found[name] = ToolScale((high - low) / steps, low, high, observed)
    return found


def _entries(body: str) -> Iterator[tuple[str, dict[str, list[float]]]]:
    """Each tensor with its fields; the width of its codes is one of them."""
    name, fields, numbers = "", dict[str, list[float]](), list[float]()
    for line in body.splitlines():
        if line and not line[0].isspace():
            break
        content = line.strip()
        if found := _TYPE.match(line):
            fields["bits"] = [float(found[1])]
        elif field := _FIELD.match(line):
            numbers = fields[field[1]] = []
            numbers += map(_number, re.findall(r"[^\s,\[\]]+", field[2]))
        elif content.startswith("- "):
            numbers.append(_number(content[2:]))
        elif content.endswith(":") and not re.match(r"^\s+q?\w*type:", line):
            if name:
                yield name, fields
            name, fields, numbers = content[:-1].strip("'\""), {}, []
    if name:
        yield name, fields


def _number(text: str) -> float:
    try:
        return float(text.strip("'\" "))
    except ValueError:
        return float("nan")
