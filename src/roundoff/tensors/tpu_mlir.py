"""Sets of .npz files that TPU-MLIR writes: the float graph (top), the lowered one (tpu), the chip's model (model).

Keys are names of ONNX tensors and the operation that made them: ``stem/relu_Relu``. Casts are called after what
they read, what reads them and the type: ``imagestem/relu_Relu_ui8``. bfloat16 may lie there as the upper halves of
float32 in uint16.
"""

import functools
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from roundoff.core.array_files import Unreadable, list_members
from roundoff.core.files import read_small
from roundoff.core.names import natural_key, shown
from roundoff.core.tensors import Array, TensorInfo, TensorSource
from roundoff.errors import BadInput, nearest
from roundoff.messages.message import Message, english, message
from roundoff.tensors import npy
from roundoff.tensors.folders import CERTAIN, TensorPlace, files_with, unreadable_unit
from roundoff.tensors.manifest import find_manifest
from roundoff.tensors.sources import ANY_RUN, RunSelection
from roundoff.tensors.stored import Content, StoredSource, TensorFile, ToolScale

_ARCHIVES = (".npz",)
_JUDGED = ("tpu", "model", "top")
_GOLDEN = "top"
_TARGET = "sophgo-bm1684x"
_RUNGS = ("top", "tpu", "model")
_FILE = re.compile(
    r"^(?P<stem>.*?)(?:_(?P<chip>(?:bm|cv|sg|mars|athena)\w*?)_(?P<mode>\w+?))?"
    r"_(?P<run>in|in_f32|in_ori|top|tpu|model)(?:_outputs?|_uint16|_bf16)?$"
)
_CAST = re.compile(r"^(?P<name>.+)_(?P<type>[su]?i\d+|u8|bf16|f16|f32|f8\w*)$")
_OPERATION = re.compile(r"^(?P<name>.+)_(?P<op>[A-Z][A-Za-z0-9]*)$")
_FOLDING = frozenset({"Conv", "ConvTranspose", "MatMul", "Gemm"})
_MOSTLY = 0.5
_UPPER_HALVES = "uint16"


def sniff(path: Path) -> int:
    """Score how well a path fits: .npz files most of whose keys end in an operation, one set of runs."""
    if path.is_file():
        return CERTAIN if path.suffix.lower() in _ARCHIVES and _has_operations(path) else 0
    if not path.is_dir() or find_manifest(path) is not None:
        return 0
    found = [(file, named) for file in files_with(path, _ARCHIVES) if (named := _FILE.match(_stem(file)))]
    runs = [file for file, named in found if named["run"] in _JUDGED]
    return CERTAIN if any(_has_operations(path / file) for file in runs[:3]) else 0


def _has_operations(path: Path) -> bool:
    try:
        names = [member.name.removesuffix(".npy") for member in list_members(path)]
    except (Unreadable, OSError):
        return False
    return sum(bool(_OPERATION.match(_without_type(name))) for name in names) > _MOSTLY * len(names)


def open(  # noqa: A001 - every format has an `open`
    path: Path, shapes: Sequence[TensorInfo] | None = None, run: RunSelection = ANY_RUN
) -> TensorSource:
    """Open one .npz file, or a folder of runs, of one or several samples.

    Args:
        path: The file or folder.
        shapes: Not needed.
        run: Which run of a folder is wanted: the lowered graph's where it is there.
    """
    if path.is_file():
        run.found((), path)
        stored = list(_tensors(path, path.name, ""))
        return StoredSource(
            stored,
            label=shown(path),
            ordered=True,
            scales=_scales(path.parent, path.parent.parent),
            target=_TARGET,
        )
    archives = list(_archives(path))
    known = [name for name in _JUDGED if any(each.run == name for each in archives)]
    chosen = _chosen(run, known, path)
    taken = [each for each in archives if each.run == chosen]
    homes = sorted({each.home for each in taken})
    if len(homes) > 1:
        what = english("{path} holds several quantizations: {names}.", path=path, names=", ".join(homes))
        raise BadInput(what, fix=english("give the folder of one: {folder}", folder=path / homes[0]))
    parts = _without_own(taken, path / homes[0] if homes else path)
    alone = len(parts) == 1
    parts = sorted(parts, key=lambda each: natural_key(each.sample))
    stored = [
        place for each in parts for place in _tensors(path / each.file, each.file, "" if alone else each.sample)
    ]
    return StoredSource(
        stored,
        label=shown(path),
        samples=[""] if alone else [each.sample for each in parts],
        ordered=True,
        runs=(chosen, *(name for name in known if name != chosen)) if len(known) > 1 else (),
        scales=_scales(path / homes[0], path, path.parent),
        target=_TARGET,
        rungs={name: functools.partial(open, path, run=RunSelection(name)) for name in _RUNGS if name in known},
        remarks=lambda: list(_remarks(path)),
    )


def _chosen(run: RunSelection, known: Sequence[str], path: Path) -> str:
    if not known:
        what = english("{path} holds no run of TPU-MLIR.", path=path)
        raise BadInput(what, fix=english("give files as model_runner.py --dump_all_tensors writes them"))
    if run.name is None:
        return _GOLDEN if run.golden and _GOLDEN in known else known[0]
    if run.name.casefold() not in known:
        what = english("{where} holds no run {name!r}.", where=path, name=run.name)
        raise BadInput(what, fix=nearest(run.name, known))
    return run.name.casefold()


@dataclass(frozen=True, slots=True)
class _Archive:
    """One .npz file: its path below the folder, the folder it is in, the sample, and the run."""

    file: str
    home: str
    sample: str
    run: str


def _stem(file: str) -> str:
    return file.rpartition("/")[2].rpartition(".")[0]


def _archives(folder: Path) -> Iterator[_Archive]:
    for file in files_with(folder, _ARCHIVES):
        if (found := _FILE.match(_stem(file))) and found["run"] in _JUDGED:
            yield _Archive(file, file.rpartition("/")[0], found["stem"], found["run"])


def _without_own(archives: Sequence[_Archive], folder: Path) -> Sequence[_Archive]:
    """Without the files of model_deploy itself, which are a sample again that has a file of its own."""
    models = {file.name.partition("_bm")[0].removesuffix(".mlir") for file in folder.glob("*.mlir")}
    models |= {file.stem for file in folder.parent.glob("*.mlir")}
    others = [each for each in archives if each.sample not in models]
    return others or archives


def _tensors(path: Path, file: str, sample: str) -> Iterator[TensorFile]:
    try:
        units = npy.list_archive(path, file)
    except (Unreadable, OSError) as error:
        unit = unreadable_unit(file, path, error)
        yield unit.stored(unit.name, sample)
        return
    names = {unit.name for unit in units}
    for unit in units:
        read = _cast_from(unit.name, names)
        found = _OPERATION.match(unit.name)
        operation = found["op"] if found else ""
        # What follows a sum of products is folded into it under its name: values have to say which tensor that is.
        origin = found["name"] if found and operation not in _FOLDING else ""
        place = replace(_of_halves(unit), origin="" if read else origin).stored(unit.name, sample)
        yield replace(place, op_type="Cast" if read else operation, copy_of=read)


def _of_halves(unit: TensorPlace) -> TensorPlace:
    """The place; 16 bits without sign are the upper halves of float32, as no tensor of the chip has such codes."""
    return replace(unit, probe=functools.partial(_probe_halves, unit))


def _probe_halves(unit: TensorPlace, declared: object) -> Content:
    content = unit.probe(None)
    if content.dtype != _UPPER_HALVES:
        return content

    def load() -> Array:
        return (np.asarray(content.load(), np.uint32) << 16).view(np.float32)

    return Content("bfloat16", content.shape, load)


def _without_type(name: str) -> str:
    found = _CAST.match(name)
    return found["name"] if found else name


def _cast_from(name: str, names: set[str]) -> str:
    """The tensor that a cast reads, whose name stands in front of that of its reader; empty where it is none."""
    if "_to_" in name:
        # Codes brought to the scale of what joins them: called after both.
        ends = (name[:at] for at in range(len(name)) if name.startswith("_to_", at))
        return next((end for end in ends if end in names and name[len(end) + 4 :] in names), "")
    bare = _without_type(name)
    if bare == name:
        return ""
    return bare if bare in names else max((each for each in names if bare.startswith(each)), key=len, default="")


def _scales(*folders: Path) -> dict[str, ToolScale]:
    """The scales of the one lowered graph in the first of the folders that has one; else of calibration tables."""
    tables = [sorted(folder.glob("*_cali_table")) for folder in folders]
    seen = next((read_thresholds(found[0]) for found in tables if len(found) == 1), {})
    graphs = [sorted(folder.glob("*_tpu.mlir")) for folder in folders]
    found = next((read_lowered(found[0]) for found in graphs if len(found) == 1), None)
    if found is None:
        return seen
    return {
        name: replace(scale, observed=seen[name].observed if name in seen else None)
        for name, scale in found.items()
    }


_RESULT = re.compile(r"-> \(?tensor<[\dx]*!quant\.uniform<([iu])(\d{1,2}):\w+, ([-+.eE\d]+)(?::(-?\d{1,10}))?>>")
_PLACE = re.compile(r" loc\((#loc\d+)\)")
_LOCATION = re.compile(r'^(#loc\d+) = loc\("(.*)"\)$')


def read_lowered(path: Path) -> dict[str, ToolScale]:
    """Read the scales of tensors with codes out of the text of a lowered graph."""
    places: dict[str, tuple[str, str, str, str | None]] = {}
    names: dict[str, str] = {}
    for line in read_small(path, what=english("The graph")).decode("utf-8", "replace").splitlines():
        result = _RESULT.search(line)
        if result and (at := _PLACE.findall(line, result.end())):
            places[at[-1]] = result[1], result[2], result[3], result[4]
        elif location := _LOCATION.match(line):
            names[location[1]] = location[2]
    found: dict[str, ToolScale] = {}
    for place, (sign, width, text, offset) in places.items():
        try:
            scale, bits, zero = float(text), int(width), int(offset or 0)
        except ValueError:
            continue
        if place in names and 0 < scale < np.inf and bits in (4, 8, 16):
            first = -(1 << (bits - 1)) if sign == "i" else 0
            last = first + (1 << bits) - 1
            found[names[place]] = ToolScale(scale, scale * (first - zero), scale * (last - zero))
    return found


def read_thresholds(path: Path) -> dict[str, ToolScale]:
    """Read a calibration table: ``name threshold min max`` on each line; codes are symmetric, or begin with 0."""
    found: dict[str, ToolScale] = {}
    for line in read_small(path, what=english("The calibration table")).decode("utf-8", "replace").splitlines():
        parts = line.split()
        if line.startswith("#") or len(parts) != 4:
            continue
        try:
            threshold, low, high = map(float, parts[1:])
        except ValueError:
            continue
        if np.isfinite([threshold, low, high]).all() and threshold > 0:
            span = 255 if low >= 0 else 127
            found[parts[0]] = ToolScale(
                threshold / span, 0.0 if low >= 0 else -threshold, threshold, observed=(low, high)
            )
    return found


def read_precisions(path: Path) -> dict[str, str]:
    """Read a quantization table: ``name mode`` on each line, the layers that are not of the general precision."""
    found = {}
    for line in read_small(path, what=english("The quantization table")).decode("utf-8", "replace").splitlines():
        parts = line.split()
        if not line.startswith("#") and len(parts) == 2:
            found[parts[0]] = parts[1]
    return found


def _remarks(folder: Path) -> Iterator[Message]:
    """Layers of another precision are no fault, and what computes them is told."""
    for table in sorted(folder.glob("*_qtable")):
        kept = read_precisions(table)
        if kept:
            modes = ", ".join(sorted(set(kept.values())))
            yield message("tensors.tpu_precisions", count=len(kept), modes=modes, names=", ".join(list(kept)[:3]))
