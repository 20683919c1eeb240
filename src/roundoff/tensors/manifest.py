"""Folders and archives opened by what says which tensor lies where: `tensors.json`, or a file of the user."""

import csv
import functools
import io
import json
import os
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path, PurePosixPath
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, ValidationError

from roundoff.core.array_files import Unreadable
from roundoff.core.files import read_small
from roundoff.core.names import FileNames, natural_key, shown
from roundoff.core.tensors import parse_dtype
from roundoff.errors import BadInput, nearest
from roundoff.tensors.folders import (
    Arranged,
    TensorPlace,
    arrange_archives,
    arrange_files,
    files_with,
    is_sample_folder,
    is_tensor_file,
    locate,
    unreadable_unit,
    walk_files,
    without_suffix,
)
from roundoff.tensors.stored import Content, Declared, StoredSource, StoredTensor

__all__ = [
    "MANIFEST_NAMES",
    "MAP_NAME",
    "TensorEntry",
    "TensorMap",
    "arrange_mapped",
    "as_source",
    "find_manifest",
    "open_archives",
    "open_folder",
    "parse_csv",
    "read_manifest",
]

# Manifests written as a table: ``name,dtype,shape`` and optionally ``file,sample`` in a CSV file.

_DELIMITERS = (",", ";", "\t")


def parse_csv(content: bytes, path: Path) -> tuple[dict[str, Any], list[str]]:
    """Read the rows as raw manifest entries, with a label for each to be used in messages.

    Args:
        content: The file's bytes; UTF-8, with or without byte order mark.
        path: The file, for messages.
    """
    try:
        text = content.decode("utf-8-sig")
        delimiter = max(_DELIMITERS, key=text.partition("\n")[0].count)
        table = csv.reader(io.StringIO(text, newline=""), delimiter=delimiter, strict=True)
        header = [column.strip().lower() for column in next(table, [])]
        rows = [(table.line_num, row) for row in table if any(cell.strip() for cell in row)]
    except (UnicodeDecodeError, csv.Error) as error:
        raise BadInput(f"{path} is not a readable CSV file: {error}.", fix="save it as UTF-8 CSV") from error
    if "name" not in header:
        what = f"{path} has no header: its first line is {','.join(header)!r:.80}."
        raise BadInput(what, fix="begin the file with the line: name,dtype,shape")
    entries = [_entry(header, row, where=f"{path} line {line}") for line, row in rows]
    return {"tensors": entries}, [f"line {line}" for line, _ in rows]


def _entry(header: list[str], row: list[str], *, where: str) -> dict[str, str]:
    if header[-1] == "shape":  # then a shape with commas needs no quotes
        row = [*row[: len(header) - 1], ",".join(row[len(header) - 1 :])]
    if len(row) != len(header):
        what = f"{where} has {len(row)} values for {len(header)} columns."
        raise BadInput(what, fix='put a shape with commas in quotes ("1,3,8,8"), or write it as 1x3x8x8')
    # A name may begin or end with spaces on purpose; nothing else may.
    return {column: cell if column == "name" else cell.strip() for column, cell in zip(header, row, strict=True)}


MAP_NAME = "tensors.json"
MANIFEST_NAMES = (MAP_NAME, "manifest.json", "manifest.csv", "tensors.csv")

_MAX_AXIS = 2**63 - 1
_SHOWN_ERRORS = 20
# An absolute path or a drive, on any system, or a step upwards.
_OUTSIDE = re.compile(r"^[/\\]|^[A-Za-z]:|(?:^|[/\\])\.\.(?:[/\\]|$)")
_PLAINER = {
    "model_type": "Input should be an object with name, dtype and shape",
    "tuple_type": "Input should be a list of sizes",
}
# Sizes with one separator between them, as in 1x3x8x8 or 1, 3, 8; commas may follow, as in (8,) and in tables
# whose rows were padded to one length.
_SHAPE = re.compile(r"(?:[0-9]{1,19}(?:(?:\s*[,;xX*\u00d7]\s*|\s+)[0-9]{1,19})*[\s,]*)?")
_SIZE = re.compile(r"[0-9]+")


def _check_dtype(text: str) -> str:
    parse_dtype(text)
    return text


def _parse_shape(value: Any) -> Any:
    """Accept a shape as people write it: a list, or text like ``1x3x8x8``; empty text is a scalar."""
    if isinstance(value, list):
        return tuple(value)
    if not isinstance(value, str):
        return value
    text = value.strip(" ()[]\t")
    if not _SHAPE.fullmatch(text):
        raise ValueError(f"{value!r} is not a shape; write it like 1x3x8x8, with every size known")
    return tuple(map(int, _SIZE.findall(text)))


def _stay_inside(file: str) -> str:
    if _OUTSIDE.search(file):
        raise ValueError(f"{file!r} leaves the folder of the manifest; only files below it are read")
    if "\0" in file:
        raise ValueError(f"{file!r} is not a file name")
    return file


class TensorEntry(BaseModel):
    """One tensor of one sample; `file` lies below the manifest and may go on into an archive: ``a.npz/b.npy``."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)

    name: str
    dtype: Annotated[str, AfterValidator(_check_dtype)]
    shape: Annotated[tuple[Annotated[int, Field(ge=0, le=_MAX_AXIS)], ...], BeforeValidator(_parse_shape)]
    file: Annotated[str, AfterValidator(_stay_inside)] = ""
    sample: str = ""
    node: str = ""
    op_type: str = ""


class TensorMap(BaseModel):
    """All tensors of a folder, in order."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)

    format: Literal["roundoff-tensors"] = "roundoff-tensors"
    version: Literal[1] = 1
    ordered: bool = False
    samples: list[str] = Field(default_factory=list)
    tensors: list[TensorEntry]


def find_manifest(folder: Path) -> Path | None:
    """Find the manifest of a folder, if there is one; more than one is an error."""
    found = [folder / name for name in MANIFEST_NAMES if (folder / name).is_file()]
    if len(found) > 1:
        names = " and ".join(path.name for path in found)
        raise BadInput(f"{folder} holds more than one manifest: {names}.", fix=f"give the one to use: {found[0]}")
    return found[0] if found else None


def read_manifest(path: Path) -> TensorMap:
    """Read a manifest of any accepted kind; all its errors are reported at once."""
    content = read_small(path, what="The manifest")
    raw, labels = parse_csv(content, path) if path.suffix.lower() == ".csv" else _parse_json(content, path)
    try:
        manifest = TensorMap.model_validate(raw)
    except ValidationError as error:
        raise _complain(path, [_explain(item, labels) for item in error.errors()]) from error
    _check_whole(path, manifest, labels)
    samples = manifest.samples or list(dict.fromkeys(entry.sample for entry in manifest.tensors))
    return manifest.model_copy(update={"samples": samples})


def _parse_json(content: bytes, path: Path) -> tuple[Any, list[str]]:
    try:
        raw = json.loads(content, object_pairs_hook=_unique_keys)
    except (ValueError, RecursionError) as error:
        raise BadInput(f"{path} is not valid JSON: {error}.", fix="correct it, or write it again") from error
    if isinstance(raw, list):
        return {"tensors": raw}, [f"entry {place}" for place in range(1, len(raw) + 1)]
    if isinstance(raw, dict) and raw and all(isinstance(value, dict) for value in raw.values()):
        return {"tensors": [{"name": name, **entry} for name, entry in raw.items()]}, [repr(name) for name in raw]
    if not isinstance(raw, dict):
        raise BadInput(f"{path} is no manifest.", fix="write a list of objects with name, dtype and shape")
    tensors = raw.get("tensors")
    return raw, [f"tensors[{place}]" for place in range(len(tensors) if isinstance(tensors, list) else 0)]


def _unique_keys(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    result = dict(pairs)
    if len(result) < len(pairs):
        keys = [key for key, _ in pairs]
        repeated = next(key for key in keys if keys.count(key) > 1)
        raise ValueError(f"the key {repeated!r} occurs twice in one object")
    return result


@dataclass(frozen=True, slots=True)
class _ManifestPlace:
    """Where in the manifest an error is, in its reader's words."""

    text: str
    keys: tuple[str, ...]


def _place(location: tuple[int | str, ...], labels: list[str]) -> _ManifestPlace:
    match location:
        case ("tensors", int(index), *rest):
            return _ManifestPlace(" ".join([labels[index], *map(str, rest[:1])]), tuple(TensorEntry.model_fields))
        case _:
            return _ManifestPlace(".".join(map(str, location)) or "the file", tuple(TensorMap.model_fields))


def _explain(error: Any, labels: list[str]) -> str:
    place = _place(error["loc"], labels)
    if error["type"] == "extra_forbidden":
        return f"{place.text}: unknown key; {nearest(str(error['loc'][-1]), place.keys)}"
    if error["type"] == "missing":
        return f"{place.text}: missing"
    message = _PLAINER.get(error["type"]) or str(error["msg"]).removeprefix("Value error, ")
    return f"{place.text}: {message}" + ("" if error["type"] == "value_error" else f", got {error['input']!r:.60}")


def _check_whole(path: Path, manifest: TensorMap, labels: list[str]) -> None:
    """Check what no entry can tell by itself."""
    if not manifest.tensors:
        raise BadInput(f"{path} lists no tensors.", fix="add an entry with name, dtype and shape per tensor")
    problems: list[str] = []
    first: dict[tuple[str, str], str] = {}
    known = set(manifest.samples)
    for label, entry in zip(labels, manifest.tensors, strict=True):
        earlier = first.setdefault((entry.name, entry.sample), label)
        if earlier is not label:
            problems.append(f"{label}: the tensor {entry.name!r} is already listed at {earlier}")
        if known and entry.sample not in known:
            problems.append(f"{label}: unknown sample {entry.sample!r}; {nearest(entry.sample, manifest.samples)}")
    if len(known) < len(manifest.samples):
        problems.append("samples: a sample is listed twice")
    if problems:
        raise _complain(path, problems)


def _complain(path: Path, problems: Iterable[str]) -> BadInput:
    lines = list(problems)
    shown = [f"  {line}" for line in lines[:_SHOWN_ERRORS]]
    if len(lines) > _SHOWN_ERRORS:
        shown.append(f"  and {len(lines) - _SHOWN_ERRORS} more")
    count = "an error" if len(lines) == 1 else f"{len(lines)} errors"
    fix = "correct it, or rename it if it does not describe these tensors"
    return BadInput("\n".join([f"The manifest {path} has {count}:", *shown]), fix=fix)


# Following a manifest: which of the places in a folder holds which tensor.


def arrange_mapped(manifest: TensorMap, units: Sequence[TensorPlace], *, folder: Path, source: str) -> Arranged:
    """Name tensors as a manifest says; files it does not mention are listed after those it does.

    Args:
        manifest: The manifest.
        units: Everything of the format that lies in the folder.
        folder: The folder; links that lead out of it are refused.
        source: The manifest's file name, for messages.
    """
    manifest = _for_every_sample(manifest, units)
    finder = _EntryFinder(units, folder)
    stored: list[StoredTensor] = []
    homes: dict[str, set[str]] = {}
    for entry in manifest.tensors:
        unit = finder.find(entry)
        homes.setdefault(unit.home, set()).add(entry.sample)
        place = unit.stored(entry.name, entry.sample, declared=Declared(entry.dtype, entry.shape, source))
        stored.append(replace(place, node=entry.node, op_type=entry.op_type))
    listed = {entry.name for entry in manifest.tensors}
    for unit in finder.unused():
        sample, name = _belongs_to(unit, homes) or (manifest.samples[0], unit.name)
        stored.append(unit.stored(unit.file if name in listed else name, sample))
    return Arranged(stored, manifest.samples, manifest.ordered)


def _for_every_sample(manifest: TensorMap, units: Sequence[TensorPlace]) -> TensorMap:
    """Let a manifest that names neither files nor samples describe the tensors of every sample there is."""
    if any(entry.file or entry.sample for entry in manifest.tensors):
        return manifest
    arrange = arrange_archives if any(unit.archive for unit in units) else arrange_files
    samples = list(arrange(units).samples) or [""]
    tensors = [entry.model_copy(update={"sample": name}) for name in samples for entry in manifest.tensors]
    return manifest.model_copy(update={"samples": samples, "tensors": tensors})


def _belongs_to(unit: TensorPlace, homes: dict[str, set[str]]) -> tuple[str, str] | None:
    """Sample and name of a file the manifest does not mention: it belongs to the files that lie beside it."""
    home = unit.home
    while len(samples := homes.get(home, set())) != 1:
        if not home:
            return None
        home = home.rpartition("/")[0]
    return next(iter(samples)), unit.name if unit.archive else unit.name.removeprefix(f"{home}/")


class _EntryFinder:
    """Finds the unit a manifest entry means, and knows which were never meant."""

    def __init__(self, units: Iterable[TensorPlace], folder: Path) -> None:
        self._by_file = {unit.file: unit for unit in units}
        self._by_name: dict[str, TensorPlace] = {}
        for unit in self._by_file.values():
            self._by_name.setdefault(unit.name, unit)
            if unit.archive:
                self._by_name.setdefault(f"{shown(without_suffix(unit.archive))}/{unit.name}", unit)
        self._names = FileNames()
        self._used: set[str] = set()
        self._folder = folder
        self._root = os.path.realpath(folder)
        self._leads_out = functools.cache(self._is_outside)

    def find(self, entry: TensorEntry) -> TensorPlace:
        unit = self._listed(entry) if entry.file else self._guessed(entry)
        if unit is None:
            return self._missing(entry)
        self._used.add(unit.file)
        # Folders are shared by many files, so that links among them are looked up once.
        if self._leads_out(unit.path.parent) or (unit.path.is_symlink() and self._leads_out(unit.path)):
            return replace(unit, probe=_refuse_link)
        return unit

    def unused(self) -> list[TensorPlace]:
        return [unit for file, unit in self._by_file.items() if file not in self._used]

    def _listed(self, entry: TensorEntry) -> TensorPlace | None:
        if entry.file in self._by_file:
            return self._by_file[entry.file]
        tidy = PurePosixPath(entry.file.replace("\\", "/"))
        # The last resort is an archive that could not be opened, and so has no members to be found.
        return next(
            (self._by_file[str(path)] for path in (tidy, *tidy.parents) if str(path) in self._by_file), None
        )

    def _guessed(self, entry: TensorEntry) -> TensorPlace | None:
        stems = (entry.name, entry.name.lstrip("/"), self._names.stem(entry.name))
        for folder in dict.fromkeys((f"{entry.sample}/" if entry.sample else "", "")):
            for stem in stems:
                if unit := self._by_name.get(f"{folder}{stem}") or self._by_file.get(f"{folder}{stem}"):
                    return unit
        return None

    def _missing(self, entry: TensorEntry) -> TensorPlace:
        def probe(declared: Declared | None) -> Content:
            if entry.file:
                raise Unreadable("is missing, or not of the format being read", fix='check the manifest\'s "file"')
            raise Unreadable("no file of this name is there", fix='say which file it is: add "file" to its entry')

        return TensorPlace(entry.file, entry.name, self._folder / entry.file, probe)

    def _is_outside(self, path: Path) -> bool:
        return os.path.commonpath([self._root, os.path.realpath(path)]) != self._root


def _refuse_link(declared: Declared | None) -> Content:
    raise Unreadable("is a link that leaves the folder", fix="copy the file into the folder")


ListUnits = Callable[[Path], Sequence[TensorPlace]]
Arrange = Callable[[Sequence[TensorPlace]], Arranged]
ListMembers = Callable[[Path, str], Sequence[TensorPlace]]


def open_folder(path: Path, *, list_units: ListUnits, arrange: Arrange, kind: str) -> StoredSource:
    """Open a folder, or the manifest of one, as a source of tensors.

    Args:
        path: The folder or its manifest.
        list_units: Lists what the format finds in a folder.
        arrange: Names what was listed, when there is no manifest.
        kind: The files the format reads, for messages (".npy files").
    """
    folder, manifest = locate(path)
    units = list_units(folder)
    if manifest is not None:
        arranged = _arrange_by(manifest, units, folder)
    elif dumps := {file.rpartition("/")[0] for file in walk_files(folder) if file.endswith(f"/{MAP_NAME}")}:
        arranged = _arrange_dumps(folder, dumps, units=units, list_units=list_units)
    else:
        arranged = arrange(units)
    return as_source(arranged, label=shown(path), kind=kind)


def open_archives(path: Path, *, suffixes: tuple[str, ...], members: ListMembers) -> StoredSource:
    """Open one archive, or a folder of them.

    Args:
        path: The archive, the folder or its manifest.
        suffixes: The suffixes of such archives.
        members: Lists what an archive holds, given its file and its path below the folder.
    """

    def list_members(folder: Path, archive: str) -> Sequence[TensorPlace]:
        try:
            return members(folder / archive, archive)
        except (Unreadable, OSError) as error:
            return [unreadable_unit(archive, folder / archive, error)]

    def list_units(folder: Path) -> Sequence[TensorPlace]:
        return [unit for archive in files_with(folder, suffixes) for unit in list_members(folder, archive)]

    if is_tensor_file(path):
        arranged = arrange_archives(list_members(path.parent, path.name))
        return as_source(arranged, label=shown(path), kind="tensors")
    kind = f"{' and '.join(suffixes)} files"
    return open_folder(path, list_units=list_units, arrange=arrange_archives, kind=kind)


def as_source(arranged: Arranged, *, label: str, kind: str) -> StoredSource:
    """Make the source; a place without a single tensor is an error."""
    if not arranged.stored:
        reasons = "".join(f" {sample}: {problem}." for sample, problem in arranged.broken.items())
        what = f"{label} holds no readable {kind}.{reasons}"
        damaged = "copy or write it again: it is damaged or cut short"
        raise BadInput(what, fix=damaged if reasons else "check the path, or name the format with --format")
    return StoredSource(
        arranged.stored,
        label=label,
        samples=arranged.samples,
        ordered=arranged.ordered,
        broken=arranged.broken,
    )


def _arrange_by(manifest: Path, units: Sequence[TensorPlace], folder: Path) -> Arranged:
    return arrange_mapped(read_manifest(manifest), units, folder=folder, source=manifest.name)


def _arrange_dumps(
    folder: Path, dumps: set[str], *, units: Sequence[TensorPlace], list_units: ListUnits
) -> Arranged:
    """Take sub-folders that are dumps of their own as samples of one, when that is what their names say."""
    names = sorted(dumps, key=natural_key)
    outside = [unit for unit in units if unit.file.partition("/")[0] not in dumps]
    if outside or not all(map(is_sample_folder, names)):
        what = f"{folder} is not a dump itself, but holds some: {', '.join(names)}."
        raise BadInput(what, fix=f"give one of them, as in {folder / names[0]}")
    parts = {
        name: _arrange_by(folder / name / MAP_NAME, list_units(folder / name), folder / name) for name in names
    }
    stored = [
        replace(place, sample=_sample(name, place.sample, part))
        for name, part in parts.items()
        for place in part.stored
    ]
    samples = [_sample(name, sample, part) for name, part in parts.items() for sample in part.samples]
    return Arranged(stored, samples, all(part.ordered for part in parts.values()))


def _sample(dump: str, sample: str, part: Arranged) -> str:
    return dump if len(part.samples) == 1 else f"{dump}/{sample}"
