"""The hidden list of what roundoff wrote into a folder, so that replacing a result removes nothing else."""

import contextlib
import json
import os
from collections.abc import Iterable, Iterator
from itertools import islice
from pathlib import Path

from roundoff.core.names import shown

__all__ = ["LISTING_NAME", "add_to_list", "foreign_files", "list_folder", "remove_listed"]

LISTING_NAME = ".roundoff-files"


def list_folder(folder: Path) -> None:
    """Write down all files and folders below `folder`, in `folder`."""
    _write(folder, _walk(folder))


def add_to_list(file: Path) -> None:
    """Count a file that we wrote into an earlier result of ours as a part of it; elsewhere nothing happens."""
    if listed := _listed(file.parent):
        _write(file.parent, listed | {file.name})


def foreign_files(folder: Path, *, most: int) -> list[str]:
    """Name up to `most` files and folders that the list of `folder` does not have; without a list it has none."""
    listed = _listed(folder)
    return [shown(path) for path in islice((path for path in _walk(folder) if path not in listed), most)]


def remove_listed(folder: Path) -> None:
    """Remove a folder with what its list names; it stays, with everything else, when something was added to it."""
    listed = _listed(folder)
    # What lies in a folder comes after it.
    for path in reversed(list(_walk(folder))):
        if path in listed:
            _remove(folder / path)
    (folder / LISTING_NAME).unlink(missing_ok=True)
    _remove(folder)


def _remove(path: Path) -> None:
    with contextlib.suppress(OSError):  # a folder to which something was added is not empty
        if path.is_dir() and not path.is_symlink():
            path.rmdir()
        else:
            path.unlink()


def _write(folder: Path, paths: Iterable[str]) -> None:
    (folder / LISTING_NAME).write_text(json.dumps(sorted(paths), indent=0) + "\n", encoding="utf-8")


def _listed(folder: Path) -> frozenset[str]:
    try:
        listed = json.loads((folder / LISTING_NAME).read_text(encoding="utf-8"))
    except (FileNotFoundError, IsADirectoryError, ValueError, RecursionError):
        return frozenset()
    return frozenset(map(str, listed)) if isinstance(listed, list) else frozenset()


def _walk(folder: Path) -> Iterator[str]:
    """Everything below a folder but its own list, as paths with ``/``; links are not followed."""

    def fail(error: OSError) -> None:
        raise error

    for place, folders, files in os.walk(folder, onerror=fail):
        below = Path(place).relative_to(folder)
        for name in sorted(folders) + sorted(files):
            path = (below / name).as_posix()
            if path != LISTING_NAME:
                yield path
