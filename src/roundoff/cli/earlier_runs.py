"""Runs of earlier commands, from which others go on: what they found, with which options, on which files."""

import argparse
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from roundoff.errors import BadInput

if TYPE_CHECKING:
    from roundoff.core.document import InputFile, RunDocument

__all__ = ["check_inputs", "options_of", "read_run", "refuse_changed"]


def read_run(path: Path, supported: Sequence[str], *, what: str) -> "tuple[Path, RunDocument]":
    """The document of a run, and its file.

    Args:
        path: The folder of the run, or its file.
        supported: Commands whose runs will do.
        what: What is to be made of it, for messages.

    Raises:
        BadInput: It is no run, or one of another command.
    """
    from roundoff.core.document import DOCUMENT_NAME, RECORD_NAME, load_document

    file = path
    if path.is_dir():
        found = [path / name for name in (DOCUMENT_NAME, RECORD_NAME) if (path / name).is_file()]
        if not found:
            missing = f"{path} holds no run: it has neither {DOCUMENT_NAME} nor {RECORD_NAME}."
            raise BadInput(missing, fix="give a folder that a command of roundoff wrote with -o")
        file = found[0]
    document = load_document(file)
    name = document.command[1] if len(document.command) > 1 else ""
    if name not in supported:
        raise BadInput(
            f"{file} is a run of {name or 'nothing'!r}, of which no {what} can be made.",
            fix=f"give a run of {', '.join(supported[:-1])} or {supported[-1]}",
        )
    return file, document


def options_of(document: "RunDocument", file: Path) -> argparse.Namespace:
    """The options of the run's command, as its own parser reads them.

    Raises:
        BadInput: This version does not take them.
    """
    from roundoff.cli import parse_words

    words = list(document.command[1:])
    try:
        found = parse_words(words)
    except SystemExit:
        found = None
    if found is None:
        what = f"The command of {file} is not one that this version takes: {' '.join(document.command)}."
        raise BadInput(what, fix="run it again with this version of roundoff")
    found.words = words
    return found


def check_inputs(document: "RunDocument") -> None:
    """Refuse inputs that are gone or have changed: what is made of them would show something else.

    Raises:
        BadInput: One of them has.
    """
    refuse_changed(document.inputs)


def refuse_changed(inputs: "Iterable[InputFile]") -> None:
    """Refuse files that are gone or are not what a run read.

    Raises:
        BadInput: One of them is.
    """
    from roundoff.cli.provenance import input_file
    from roundoff.core.files import model_files

    wrong = []
    for each in inputs:
        path = Path(each.path)
        if not path.is_dir() and not all(file.exists() for file in model_files(path)):
            wrong.append(f"the {each.role} {each.path} is missing")
        elif input_file(each.role, path).sha256 != each.sha256:
            wrong.append(f"the {each.role} {each.path} has changed since the run")
    if wrong:
        raise BadInput(
            f"The run cannot be made again: {'; '.join(wrong)}.",
            fix="work in the folder where the command was run, put the files back, or run it again",
        )
