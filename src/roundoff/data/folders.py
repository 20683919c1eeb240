"""The layout with one folder per input, named like the input."""

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from roundoff.core.files import reading
from roundoff.core.names import FileNames, shown
from roundoff.core.tensors import InputSpec
from roundoff.data.files import is_metadata
from roundoff.data.naming import find_named
from roundoff.errors import BadInput

__all__ = ["InputFolders", "input_folders"]


@dataclass(frozen=True, slots=True)
class InputFolders:
    """The folder of each input, and what lies beside the folders and is left alone."""

    of: dict[str, Path]
    skipped: tuple[str, ...]


def input_folders(source: Path, inputs: Sequence[InputSpec]) -> InputFolders | None:
    """Find the folders named like inputs; None when there is not one.

    Raises:
        BadInput: Some inputs have a folder and others not, or there is something that belongs to no input.
    """
    with reading(source, what="The folder"), os.scandir(source) as entries:
        folders = sorted(entry.name for entry in entries if entry.is_dir() and not entry.name.startswith("."))
    owners = find_named([spec.name for spec in inputs], folders)
    if not any(owners.values()):
        return None
    of: dict[str, Path] = {}
    for spec in inputs:
        folder = owners[spec.name]
        if folder is None:
            wanted = FileNames().stem(spec.name)
            raise BadInput(
                f"{shown(source)} has no folder for the input {spec.name!r}: expected {wanted}/ with "
                f"{spec.describe()}, found {', '.join(map(shown, folders))}.",
                fix=f"name its folder {wanted}, or give every input with --data NAME=PATH",
            )
        of[spec.name] = source / folder
    with reading(source, what="The folder"):
        others = sorted(set(source.iterdir()) - set(of.values()))
    skipped = [other for other in others if other.name.startswith(".") or _is_note(other)]
    _check_rest(source, [other for other in others if other not in skipped], of)
    return InputFolders(of, tuple(shown(other) for other in skipped))


def _check_rest(source: Path, others: Sequence[Path], of: dict[str, Path]) -> None:
    named = " ".join(f"--data {name}=PATH" for name in of)
    expected = ", ".join(map(repr, of))
    if len(set(of.values())) < len(of):
        raise BadInput(
            f"Inputs share a folder in {shown(source)}, because their names differ only in odd characters: "
            f"{expected}.",
            fix=f"say which is which: {named}",
        )
    if others:
        raise BadInput(
            f"{shown(others[0])} belongs to none of the inputs ({expected}).", fix=f"remove it, or use {named}"
        )


def _is_note(path: Path) -> bool:
    return path.is_file() and is_metadata(path.name)
