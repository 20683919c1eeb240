"""Opening folders, by their manifest, as sets of mapped samples or by what the paths say; and opening archives."""

import functools
import math
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path, PurePosixPath

from roundoff.core.array_files import Unreadable, stat_file
from roundoff.core.files import read_small
from roundoff.core.names import FileNames, natural_key, shown
from roundoff.errors import BadInput, nearest
from roundoff.messages.message import english
from roundoff.tensors.folders import (
    Arranged,
    TensorPlace,
    arrange_archives,
    arrange_files,
    choose_run,
    files_with,
    is_sample_folder,
    is_tensor_file,
    locate,
    suffix_of,
    unknown_runs,
    unreadable_unit,
    walk_files,
    without_suffix,
)
from roundoff.tensors.manifest import MAP_NAME, TensorEntry, TensorMap, read_manifest
from roundoff.tensors.side_scales import decoded, find_scales
from roundoff.tensors.stored import Content, Declared, StoredSource, TensorFile

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
    stored: list[TensorFile] = []
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
                raise Unreadable(
                    english("is missing, or not of the format being read"),
                    fix=english('check the manifest\'s "file"'),
                )
            raise Unreadable(
                english("no file of this name is there"),
                fix=english('say which file it is: add "file" to its entry'),
            )

        return TensorPlace(entry.file, entry.name, self._folder / entry.file, probe)

    def _is_outside(self, path: Path) -> bool:
        return os.path.commonpath([self._root, os.path.realpath(path)]) != self._root


def _refuse_link(declared: Declared | None) -> Content:
    raise Unreadable(english("is a link that leaves the folder"), fix=english("copy the file into the folder"))


@dataclass(frozen=True, slots=True)
class RunSelection:
    """Which of several runs that lie side by side in a folder is wanted.

    Attributes:
        name: Its name; None for the golden copy or one that is to be judged by it.
        golden: Which of these.
        every: Take all of them; their names are then part of the tensors' names.
    """

    name: str | None = None
    golden: bool = False
    every: bool = False

    def choose(self, paths: Sequence[str], folder: Path) -> tuple[dict[str, str], tuple[str, ...]]:
        """The paths of that run without the part that names it, and all runs, that one first.

        Raises:
            BadInput: There is none of that name.
        """
        if self.every:
            return {path: path for path in paths}, ()
        kept, runs = choose_run(paths, self.name, golden=self.golden)
        known = (
            runs
            or choose_run(paths)[1]
            or tuple(sorted({path.partition("/")[0] for path in paths if "/" in path}))
        )
        self.found(runs, folder, known)
        return kept, runs

    def found(self, runs: Sequence[str], where: Path, known: Sequence[str] = ()) -> None:
        """Refuse a name that no run has.

        Raises:
            BadInput: It was asked for, and there is none of that name.
        """
        if self.name is None or runs:
            return
        what = english("{where} holds no run {name!r}.", where=where, name=self.name)
        raise BadInput(what, fix=nearest(self.name, known) if known else english("leave --run out"))


ANY_RUN = RunSelection()

ListUnits = Callable[[Path], Sequence[TensorPlace]]
Arrange = Callable[[Sequence[TensorPlace]], Arranged]
ListMembers = Callable[[Path, str], Sequence[TensorPlace]]


def open_folder(
    path: Path, *, list_units: ListUnits, arrange: Arrange, kind: str, run: RunSelection = ANY_RUN
) -> StoredSource:
    """Open a folder, or the manifest of one, as a source of tensors.

    Args:
        path: The folder or its manifest.
        list_units: Lists what the format finds in a folder.
        arrange: Names what was listed, when there is no manifest.
        kind: The files the format reads, for messages (".npy files").
        run: Which of several runs in the folder is wanted.
    """
    folder, manifest = locate(path)
    units = list_units(folder)
    if manifest is not None:
        run.found((), path)
        arranged = _arrange_by(manifest, units, folder)
    elif dumps := {file.rpartition("/")[0] for file in walk_files(folder) if file.endswith(f"/{MAP_NAME}")}:
        arranged = _arrange_dumps(folder, dumps, units=units, list_units=list_units, run=run)
    else:
        kept, runs = run.choose([unit.route for unit in units], folder)
        if not runs and not run.every:
            _refuse_unknown_runs(folder, {unit.route: unit for unit in units if not unit.archive})
        chosen = [
            unit if unit.archive else replace(unit, name=kept[unit.route]) for unit in units if unit.route in kept
        ]
        arranged = _by_name_list(replace(arrange(chosen), runs=runs), folder)
    return as_source(_with_scales(arranged, folder), label=shown(path), kind=kind)


def _with_scales(arranged: Arranged, folder: Path) -> Arranged:
    scales = find_scales(folder)
    return replace(arranged, stored=[decoded(place, scales) for place in arranged.stored]) if scales else arranged


def _refuse_unknown_runs(folder: Path, units: Mapping[str, TensorPlace]) -> None:
    """Nothing says which of several runs is the golden copy: nothing must be paired with it."""

    def size(route: str) -> int:
        try:
            return math.prod(units[route].probe(None).shape)
        except (Unreadable, OSError):
            return stat_file(units[route].path)

    if found := unknown_runs(list(units), size):
        what = english(
            "{folder} holds the same tensors {count} times: {names}.",
            folder=folder,
            count=len(found),
            names=", ".join(found),
        )
        raise BadInput(
            what,
            fix=english(
                "say which run is meant: --run {first}; or call them {names}, if these are samples",
                first=found[-1],
                names=", ".join(f"sample_{name}" for name in found[:2]),
            ),
        )


def open_archives(
    path: Path, *, suffixes: tuple[str, ...], members: ListMembers, run: RunSelection = ANY_RUN
) -> StoredSource:
    """Open one archive, or a folder of them.

    Args:
        path: The archive, the folder or its manifest.
        suffixes: The suffixes of such archives.
        members: Lists what an archive holds, given its file and its path below the folder.
        run: Which of several runs in the folder is wanted.
    """

    def list_members(folder: Path, archive: str) -> Sequence[TensorPlace]:
        try:
            return members(folder / archive, archive)
        except (Unreadable, OSError) as error:
            return [unreadable_unit(archive, folder / archive, error)]

    def list_units(folder: Path) -> Sequence[TensorPlace]:
        return [unit for archive in files_with(folder, suffixes) for unit in list_members(folder, archive)]

    if is_tensor_file(path):
        run.found((), path)
        arranged = _with_scales(arrange_archives(list_members(path.parent, path.name)), path.parent)
        return as_source(arranged, label=shown(path), kind="tensors")
    kind = english("{suffixes} files", suffixes=" and ".join(suffixes))
    return open_folder(path, list_units=list_units, arrange=arrange_archives, kind=kind, run=run)


def as_source(arranged: Arranged, *, label: str, kind: str) -> StoredSource:
    """Make the source; a place without a single tensor is an error."""
    if not arranged.stored:
        reasons = "".join(f" {sample}: {problem}." for sample, problem in arranged.broken.items())
        what = english("{label} holds no readable {kind}.{reasons}", label=label, kind=kind, reasons=reasons)
        damaged = english("copy or write it again: it is damaged or cut short")
        raise BadInput(
            what, fix=damaged if reasons else english("check the path, or name the format with --format")
        )
    return StoredSource(
        arranged.stored,
        label=label,
        samples=arranged.samples,
        ordered=arranged.ordered,
        broken=arranged.broken,
        runs=arranged.runs,
    )


NAME_LIST = "map_name_to_file.txt"
"""The list of layers and their files, in the order of execution, that RKNN-Toolkit2 writes beside its runs."""


def _by_name_list(arranged: Arranged, folder: Path) -> Arranged:
    """Name tensors as a list of layers and files does that lies in the folder, below it or beside it.

    Files that it does not list come last under names of their own.
    """
    beside = [file for file in walk_files(folder) if file.rpartition("/")[2] == NAME_LIST]
    lists = [folder / file for file in beside] or [folder.parent / NAME_LIST]
    names: dict[str, str] = {}
    for path in lists:
        if not path.is_file():
            continue
        for line in read_small(path, what=english("The list")).decode("utf-8", "replace").splitlines():
            layer, _, file = line.strip().rpartition(" ")
            if layer.strip() and suffix_of(file):
                names.setdefault(without_suffix(file), layer.strip())
    known = [place for place in arranged.stored if place.name in names]
    if not known:
        return arranged
    order = {layer: at for at, layer in enumerate(names.values())}
    listed = sorted((replace(place, name=names[place.name]) for place in known), key=lambda each: order[each.name])
    rest = [place for place in arranged.stored if place.name not in names]
    return replace(arranged, stored=[*listed, *rest], ordered=not rest)


def _arrange_by(manifest: Path, units: Sequence[TensorPlace], folder: Path) -> Arranged:
    return arrange_mapped(read_manifest(manifest), units, folder=folder, source=manifest.name)


def _arrange_dumps(
    folder: Path, dumps: set[str], *, units: Sequence[TensorPlace], list_units: ListUnits, run: RunSelection
) -> Arranged:
    """Take sub-folders that are dumps of their own as runs or samples of one, when their names say so."""
    kept, runs = run.choose([f"{dump}/{MAP_NAME}" for dump in sorted(dumps, key=natural_key)], folder)
    places = {name.rpartition("/")[0]: dump.rpartition("/")[0] for dump, name in kept.items()}
    names = list(places)
    outside = [unit for unit in units if not any(unit.file.startswith(f"{dump}/") for dump in dumps)]
    if outside or not (names == [""] or all(map(is_sample_folder, names))):
        what = english(
            "{folder} is not a dump itself, but holds some: {names}.",
            folder=folder,
            names=", ".join(sorted(dumps, key=natural_key)),
        )
        raise BadInput(what, fix=english("give one of them, as in {folder}", folder=folder / min(dumps)))
    parts = {
        name: _arrange_by(folder / place / MAP_NAME, list_units(folder / place), folder / place)
        for name, place in places.items()
    }
    stored = [
        replace(place, sample=_sample(name, place.sample, part))
        for name, part in parts.items()
        for place in part.stored
    ]
    samples = [_sample(name, sample, part) for name, part in parts.items() for sample in part.samples]
    return Arranged(stored, samples, all(part.ordered for part in parts.values()), runs=runs)


def _sample(dump: str, sample: str, part: Arranged) -> str:
    if not dump:
        return sample
    return dump if len(part.samples) == 1 else f"{dump}/{sample}"
