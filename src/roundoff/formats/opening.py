"""Opening folders, by their manifest, as sets of mapped samples or by what the paths say; and opening archives."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

from roundoff.core.names import natural_key, shown
from roundoff.core.unreadable import Unreadable
from roundoff.errors import BadInput
from roundoff.formats.folders import files_with, is_tensor_file, locate, walk_files
from roundoff.formats.following import arrange_mapped
from roundoff.formats.manifest import MAP_NAME, read_manifest
from roundoff.formats.stored import StoredSource
from roundoff.formats.units import Arranged, Unit, arrange_archives, is_sample_folder, unreadable_unit

__all__ = ["as_source", "open_archives", "open_folder"]

ListUnits = Callable[[Path], Sequence[Unit]]
Arrange = Callable[[Sequence[Unit]], Arranged]
ListMembers = Callable[[Path, str], Sequence[Unit]]


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

    def list_members(folder: Path, archive: str) -> Sequence[Unit]:
        try:
            return members(folder / archive, archive)
        except (Unreadable, OSError) as error:
            return [unreadable_unit(archive, folder / archive, error)]

    def list_units(folder: Path) -> Sequence[Unit]:
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


def _arrange_by(manifest: Path, units: Sequence[Unit], folder: Path) -> Arranged:
    return arrange_mapped(read_manifest(manifest), units, folder=folder, source=manifest.name)


def _arrange_dumps(folder: Path, dumps: set[str], *, units: Sequence[Unit], list_units: ListUnits) -> Arranged:
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
