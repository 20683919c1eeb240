"""List files: one sample per line, by path."""

from collections.abc import Sequence
from pathlib import Path

from roundoff.core.files import reading
from roundoff.core.names import shown
from roundoff.core.tensors import InputSpec
from roundoff.data.options import SampleFormat
from roundoff.errors import BadInput

__all__ = ["is_list_file", "read_list"]

_SUFFIXES = (".txt", ".lst", ".list")
_COMMENT = "#"


def is_list_file(path: Path, wanted: SampleFormat) -> bool:
    """Whether a file is to be read as a list."""
    return wanted == "list" or (wanted == "auto" and path.suffix.lower() in _SUFFIXES)


def read_list(path: Path, inputs: Sequence[InputSpec]) -> tuple[tuple[str, ...], ...]:
    """Read the paths of each input, one per line and input.

    A line is ``name:path name:path ...`` or the paths alone in the order of the inputs, separated by blanks.
    With one input the whole line is its path, blanks included. Empty lines and lines that begin with ``#``
    are left out.

    Returns:
        Per input its files, relative to the list file's folder.

    Raises:
        BadInput: A line does not name one existing file per input.
    """
    with reading(path, what="The list file"):
        try:
            text = path.read_text(encoding="utf-8-sig")
        except UnicodeDecodeError as error:
            raise BadInput(
                f"{shown(path)} is not a list file: it is not UTF-8 text (byte {error.start}).",
                fix="save the list as UTF-8, one path per line",
            ) from error
    rows: list[tuple[str, ...]] = []
    for number, line in enumerate(text.split("\n"), start=1):
        words = line.strip()
        if words and not words.startswith(_COMMENT):
            where = f"{shown(path)}, line {number}"
            row = _row(words, inputs, where=where)
            _check_exist(path.parent, row, inputs, where=where)
            rows.append(row)
    if not rows:
        raise BadInput(
            f"{shown(path)} lists no samples.", fix="write one path per line, relative to the list file"
        )
    return tuple(zip(*rows, strict=True))


def _row(line: str, inputs: Sequence[InputSpec], *, where: str) -> tuple[str, ...]:
    words = [line] if len(inputs) == 1 else line.split()
    named = [_named(word, inputs) for word in words]
    if len(words) != len(inputs):
        expected = " ".join(f"{spec.name}:PATH" for spec in inputs)
        raise BadInput(
            f"{where} names {len(words)} file(s), expected {len(inputs)}: {expected}.",
            fix="write one path per input, separated by blanks",
        )
    owners = [owner for owner, _ in named]
    if not any(owners):
        return tuple(words)
    missing = next((spec for spec in inputs if spec.name not in owners), None)
    if missing is not None:
        raise BadInput(
            f"{where} has no file for the input {missing.name!r}: expected {missing.describe()}.",
            fix=f"name every file or none: {missing.name}:PATH",
        )
    files = dict(named)
    return tuple(files[spec.name] for spec in inputs)


def _named(word: str, inputs: Sequence[InputSpec]) -> tuple[str, str]:
    """The input a word names and its path; the longest name wins, since names may contain colons."""
    for name in sorted((spec.name for spec in inputs), key=len, reverse=True):
        if word.startswith(f"{name}:"):
            # Some runtimes' own lists write name:=path.
            return name, word[len(name) + 1 :].removeprefix("=").strip()
    return "", word


def _check_exist(base: Path, files: Sequence[str], inputs: Sequence[InputSpec], *, where: str) -> None:
    for file, spec in zip(files, inputs, strict=True):
        with reading(base / file, what=f"{where}: the file"):
            found = (base / file).is_file()
        if not found:
            raise BadInput(
                f"{where}: {shown(base / file)} is not a file; the input {spec.name!r} expects {spec.describe()}.",
                fix="write paths relative to the list file, without labels behind them",
            )
