"""From places that can hold a tensor (files, members of archives) to named tensors of samples."""

import functools
import os
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path, PurePosixPath

from roundoff.core.names import FileNames, natural_key
from roundoff.formats.folders import shown, without_suffix
from roundoff.formats.manifest import TensorEntry, TensorMap
from roundoff.formats.stored import Content, Declared, Stored, Unreadable

__all__ = [
    "Arranged",
    "Unit",
    "arrange_archives",
    "arrange_files",
    "arrange_mapped",
    "is_sample_folder",
    "unreadable_unit",
]

_SAMPLE_FOLDER = re.compile(r"[0-9]+|sample.*", re.IGNORECASE)
_MOSTLY = 0.5
"""Share of all tensors that each sub-folder must hold for the sub-folders to be samples of one model."""


@dataclass(frozen=True, slots=True)
class Unit:
    """One place that can hold a tensor.

    Attributes:
        file: Path below the folder, with ``/``; a member continues the path of its archive.
        name: What the place itself calls the tensor: the path without suffix, or the member's name.
        path: The file on disk.
        probe: Reads the header, given what a manifest declares; raises `Unreadable` or `OSError`.
        archive: Path of the archive below the folder; empty for a file of its own.
        node: The node that computes the tensor, when the place says so.
    """

    file: str
    name: str
    path: Path
    probe: Callable[[Declared | None], Content]
    archive: str = ""
    node: str = ""

    @property
    def home(self) -> str:
        """The archive or folder it lies in, below the folder; empty for the folder itself."""
        return self.archive or self.file.rpartition("/")[0]

    @property
    def where(self) -> str:
        """The place as the user would name it."""
        inside = self.file[len(self.archive) :] if self.archive else ""
        return shown(f"{self.path}{inside}")

    def stored(self, name: str, sample: str = "", *, declared: Declared | None = None) -> Stored:
        """Use the place as the given tensor of the given sample."""
        return Stored(name, sample, self.where, functools.partial(self.probe, declared), self.node)


@dataclass(frozen=True, slots=True)
class Arranged:
    """Tensors by name and sample, in the order in which they are to be listed.

    Attributes:
        stored: The tensors.
        samples: All samples in order.
        ordered: Whether the order is that of execution.
        broken: Samples of which nothing can be read, with the reason.
    """

    stored: Sequence[Stored]
    samples: Sequence[str] = ("",)
    ordered: bool = False
    broken: dict[str, str] = field(default_factory=dict)


def is_sample_folder(name: str) -> bool:
    """Whether a sub-folder's name says that it holds one sample: all digits, or ``sample`` and anything."""
    return _SAMPLE_FOLDER.fullmatch(name) is not None


def arrange_files(units: Sequence[Unit]) -> Arranged:
    """Name tensors by their paths; sub-folders called like samples that hold mostly the same files are samples."""
    tops: dict[str, set[str]] = {}
    for unit in units:
        top, _, rest = unit.name.partition("/")
        tops.setdefault(top if rest else "", set()).add(rest)
    union = set[str]().union(*tops.values())
    if all(is_sample_folder(top) and len(names) >= _MOSTLY * len(union) for top, names in tops.items()):
        stored = [unit.stored(name, top) for unit in units for top, _, name in [unit.name.partition("/")]]
        return Arranged(stored, sorted(tops, key=natural_key))
    return Arranged([unit.stored(unit.name) for unit in units])


def arrange_archives(units: Sequence[Unit]) -> Arranged:
    """Take each archive as one sample, unless no two archives share a name: then they are parts of one."""
    readable = sorted((unit for unit in units if unit.archive), key=lambda unit: natural_key(unit.name))
    broken = {_sample_of(unit.file): _problem_of(unit) for unit in units if not unit.archive}
    archives = {unit.archive for unit in readable}
    shared = len({unit.name for unit in readable}) < len(readable)
    if not broken and (len(archives) == 1 or not shared):
        return Arranged([unit.stored(unit.name) for unit in readable])
    samples = sorted([*map(_sample_of, archives), *broken], key=natural_key)
    stored = [unit.stored(unit.name, _sample_of(unit.archive)) for unit in readable]
    return Arranged(stored, samples, broken=broken)


def _sample_of(archive: str) -> str:
    return shown(without_suffix(archive))


def _problem_of(unit: Unit) -> str:
    try:
        unit.probe(None)
    except Unreadable as error:
        return error.problem
    except OSError as error:
        return error.strerror or str(error)
    raise AssertionError(unit)  # an archive that can be read has members


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
    archived = any(unit.archive for unit in units)
    samples = list((arrange_archives if archived else arrange_files)(units).samples)
    if samples in ([], [""]) or any(entry.file or entry.sample for entry in manifest.tensors):
        return manifest
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
                self._by_name.setdefault(f"{_sample_of(unit.archive)}/{unit.name}", unit)
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


def unreadable_unit(file: str, path: Path, error: Unreadable | OSError) -> Unit:
    """Stand in for an archive that cannot be opened and so has no members to be listed."""

    def probe(declared: Declared | None) -> Content:
        raise error

    return Unit(file, shown(without_suffix(file)), path, probe)


def _refuse_link(declared: Declared | None) -> Content:
    raise Unreadable("is a link that leaves the folder", fix="copy the file into the folder")
