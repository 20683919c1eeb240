"""The run directory: the document, its tables, and what the terminal said."""

from collections.abc import Callable, Mapping
from pathlib import Path

from roundoff.core.document import DOCUMENT_NAME, RunDocument, to_json
from roundoff.core.files import output_directory, write_bytes, write_text
from roundoff.pages.csv import run_tables
from roundoff.report.pages import all_pages

__all__ = ["run_files", "write_run"]


def write_run(
    document: RunDocument,
    directory: Path,
    *,
    force: bool,
    pictures: Mapping[str, bytes] | None = None,
    more: Mapping[str, Callable[[Path], None]] | None = None,
) -> tuple[Path, ...]:
    """Write a run directory, whole or not at all; return its files.

    Args:
        document: The run.
        directory: Where it goes.
        force: Replace an earlier run.
        pictures: More files, by name.
        more: What writes further files, by their names.
    """
    files = run_files(document)
    with output_directory(directory, marker=DOCUMENT_NAME, force=force) as staged:
        for name, text in files.items():
            write_text(staged / name, text)
        for name, data in (pictures or {}).items():
            write_bytes(staged / name, data)
        for name, write in (more or {}).items():
            write(staged / name)
    return tuple(directory / name for name in (*files, *(pictures or {}), *(more or {})))


def run_files(document: RunDocument) -> dict[str, str]:
    """What a run directory holds, by file name."""
    return {DOCUMENT_NAME: to_json(document), **run_tables(all_pages(document))}
