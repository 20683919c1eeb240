"""Following a manifest: which of the places in a folder holds which tensor."""

import functools
import os
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path, PurePosixPath

from roundoff.core.names import FileNames, shown
from roundoff.core.unreadable import Unreadable
from roundoff.formats.folders import without_suffix
from roundoff.formats.manifest import TensorEntry, TensorMap
from roundoff.formats.stored import Content, Declared, Stored
from roundoff.formats.units import Arranged, Unit, arrange_archives, arrange_files

__all__ = ["arrange_mapped"]


def arrange_mapped(manifest: TensorMap, units: Sequence[Unit], *, folder: Path, source: str) -> Arranged:
    """Name tensors as a manifest says; files it does not mention are listed after those it does.

    Args:
        manifest: The manifest.
        units: Everything of the format that lies in the folder.
        folder: The folder; links that lead out of it are refused.
        source: The manifest's file name, for messages.
    """
    manifest = _for_every_sample(manifest, units)
    finder = _Finder(units, folder)
    stored: list[Stored] = []
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


def _for_every_sample(manifest: TensorMap, units: Sequence[Unit]) -> TensorMap:
    """Let a manifest that names neither files nor samples describe the tensors of every sample there is."""
    if any(entry.file or entry.sample for entry in manifest.tensors):
        return manifest
    arrange = arrange_archives if any(unit.archive for unit in units) else arrange_files
    samples = list(arrange(units).samples) or [""]
    tensors = [entry.model_copy(update={"sample": name}) for name in samples for entry in manifest.tensors]
    return manifest.model_copy(update={"samples": samples, "tensors": tensors})


def _belongs_to(unit: Unit, homes: dict[str, set[str]]) -> tuple[str, str] | None:
    """Sample and name of a file the manifest does not mention: it belongs to the files that lie beside it."""
    home = unit.home
    while len(samples := homes.get(home, set())) != 1:
        if not home:
            return None
        home = home.rpartition("/")[0]
    return next(iter(samples)), unit.name if unit.archive else unit.name.removeprefix(f"{home}/")


class _Finder:
    """Finds the unit a manifest entry means, and knows which were never meant."""

    def __init__(self, units: Iterable[Unit], folder: Path) -> None:
        self._by_file = {unit.file: unit for unit in units}
        self._by_name: dict[str, Unit] = {}
        for unit in self._by_file.values():
            self._by_name.setdefault(unit.name, unit)
            if unit.archive:
                self._by_name.setdefault(f"{shown(without_suffix(unit.archive))}/{unit.name}", unit)
        self._names = FileNames()
        self._used: set[str] = set()
        self._folder = folder
        self._root = os.path.realpath(folder)
        self._leads_out = functools.cache(self._is_outside)

    def find(self, entry: TensorEntry) -> Unit:
        unit = self._listed(entry) if entry.file else self._guessed(entry)
        if unit is None:
            return self._missing(entry)
        self._used.add(unit.file)
        # Folders are shared by many files, so that links among them are looked up once.
        if self._leads_out(unit.path.parent) or (unit.path.is_symlink() and self._leads_out(unit.path)):
            return replace(unit, probe=_refuse_link)
        return unit

    def unused(self) -> list[Unit]:
        return [unit for file, unit in self._by_file.items() if file not in self._used]

    def _listed(self, entry: TensorEntry) -> Unit | None:
        if entry.file in self._by_file:
            return self._by_file[entry.file]
        tidy = PurePosixPath(entry.file.replace("\\", "/"))
        # The last resort is an archive that could not be opened, and so has no members to be found.
        return next(
            (self._by_file[str(path)] for path in (tidy, *tidy.parents) if str(path) in self._by_file), None
        )

    def _guessed(self, entry: TensorEntry) -> Unit | None:
        stems = (entry.name, entry.name.lstrip("/"), self._names.stem(entry.name))
        for folder in dict.fromkeys((f"{entry.sample}/" if entry.sample else "", "")):
            for stem in stems:
                if unit := self._by_name.get(f"{folder}{stem}") or self._by_file.get(f"{folder}{stem}"):
                    return unit
        return None

    def _missing(self, entry: TensorEntry) -> Unit:
        def probe(declared: Declared | None) -> Content:
            if entry.file:
                raise Unreadable("is missing, or not of the format being read", fix='check the manifest\'s "file"')
            raise Unreadable("no file of this name is there", fix='say which file it is: add "file" to its entry')

        return Unit(entry.file, entry.name, self._folder / entry.file, probe)

    def _is_outside(self, path: Path) -> bool:
        return os.path.commonpath([self._root, os.path.realpath(path)]) != self._root


def _refuse_link(declared: Declared | None) -> Content:
    raise Unreadable("is a link that leaves the folder", fix="copy the file into the folder")
