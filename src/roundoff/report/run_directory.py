"""The run directory: the document, its tables, and what the terminal said."""

from pathlib import Path

from roundoff.core.document import RunDocument
from roundoff.core.files import output_directory, write_text
from roundoff.report.documents import DOCUMENT_NAME, to_json
from roundoff.report.tables import comparison_csv

__all__ = ["write_run"]


def write_run(document: RunDocument, directory: Path, *, force: bool) -> tuple[Path, ...]:
    """Write a run directory, whole or not at all; return its files."""
    files = {DOCUMENT_NAME: to_json(document), "tensors.csv": comparison_csv(document.comparison)}
    with output_directory(directory, marker=DOCUMENT_NAME, force=force) as staged:
        for name, text in files.items():
            write_text(staged / name, text)
    return tuple(directory / name for name in files)
