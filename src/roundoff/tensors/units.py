"""From places that can hold a tensor (files, members of archives) to named tensors of samples."""

import functools
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from roundoff.core.array_files import Unreadable
from roundoff.core.names import natural_key, shown
from roundoff.tensors.folders import without_suffix
from roundoff.tensors.stored import Content, Declared, StoredTensor

__all__ = [
    "Arranged",
    "TensorPlace",
    "arrange_archives",
    "arrange_files",
    "is_sample_folder",
    "unreadable_unit",
]

_SAMPLE_FOLDER = re.compile(r"[0-9]+|sample.*", re.IGNORECASE)
_MOSTLY = 0.5
"""Share of all tensors that each sub-folder must hold for the sub-folders to be samples of one model."""


@dataclass(frozen=True, slots=True)
class TensorPlace:
    """One place that can hold a tensor.

    Attributes:
        file: Path below the folder, with ``/``; a member continues the path of its archive.
        name: What the place itself calls the tensor: the path without suffix, or the member's name.
        path: The file on disk.
        probe: Reads the header, given what a manifest declares; raises `Unreadable` or `OSError`.
        archive: Path of the archive below the folder; empty for a file of its own.
        node: The node that computes the tensor, when the place says so.
        origin: What it was in the original model, when the place says so.
    """

    file: str
    name: str
    path: Path
    probe: Callable[[Declared | None], Content]
    archive: str = ""
    node: str = ""
    origin: str = ""

    @property
    def home(self) -> str:
        """The archive or folder it lies in, below the folder; empty for the folder itself."""
        return self.archive or self.file.rpartition("/")[0]

    @property
    def where(self) -> str:
        """The place as the user would name it."""
        inside = self.file[len(self.archive) :] if self.archive else ""
        return shown(f"{self.path}{inside}")

    def stored(self, name: str, sample: str = "", *, declared: Declared | None = None) -> StoredTensor:
        """Use the place as the given tensor of the given sample."""
        probe = functools.partial(self.probe, declared)
        return StoredTensor(name, sample, self.where, probe, self.node, origin=self.origin)


@dataclass(frozen=True, slots=True)
class Arranged:
    """Tensors by name and sample, in the order in which they are to be listed.

    Attributes:
        stored: The tensors.
        samples: All samples in order.
        ordered: Whether the order is that of execution.
        broken: Samples of which nothing can be read, with the reason.
    """

    stored: Sequence[StoredTensor]
    samples: Sequence[str] = ("",)
    ordered: bool = False
    broken: dict[str, str] = field(default_factory=dict)


def is_sample_folder(name: str) -> bool:
    """Whether a sub-folder's name says that it holds one sample: all digits, or ``sample`` and anything."""
    return _SAMPLE_FOLDER.fullmatch(name) is not None


def arrange_files(units: Sequence[TensorPlace]) -> Arranged:
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


def arrange_archives(units: Sequence[TensorPlace]) -> Arranged:
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


def _problem_of(unit: TensorPlace) -> str:
    try:
        unit.probe(None)
    except Unreadable as error:
        return error.problem
    except OSError as error:
        return error.strerror or str(error)
    raise AssertionError(unit)  # an archive that can be read has members


def unreadable_unit(file: str, path: Path, error: Unreadable | OSError) -> TensorPlace:
    """Stand in for an archive that cannot be opened and so has no members to be listed."""

    def probe(declared: Declared | None) -> Content:
        raise error

    return TensorPlace(file, shown(without_suffix(file)), path, probe)
