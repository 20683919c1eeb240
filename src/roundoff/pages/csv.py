"""The tables of a report's pages as CSV, with the numbers behind their cells."""

import csv
import io
import re
from collections.abc import Collection, Iterator, Sequence

from roundoff.messages.catalogue import Language, Phrase
from roundoff.messages.sanitize import safe_cell
from roundoff.pages.blocks import NUMBERS, Cell, Page, TableBlock

# Tables whose rows are in a file of another name.
_ELSEWHERE = {
    "distributions": "distribution.csv",
    "histogram": "histograms.csv",
    "suspected": "findings.csv",
    "transforms": "transform.csv",
}
_NOT_IN_NAMES = re.compile(r"[^\w.-]+")


def page_tables(pages: Sequence[Page], taken: Collection[str], *, language: Language = "en") -> dict[str, str]:
    """The tables that have no file yet, by file name.

    Args:
        pages: The pages.
        taken: Files that are there: of tables whose name, or whose rows, they have.
        language: Of sentences in cells.
    """
    found: dict[str, str] = {}
    for table in _tables(pages):
        name = f"{_NOT_IN_NAMES.sub('_', table.id)}.csv"
        # Parts of a table have its name, and a number or a word behind it.
        whole = table.id.partition("-")[0]
        if name not in taken and _ELSEWHERE.get(whole, f"{whole}.csv") not in taken:
            found[name] = table_csv(table, language)
    return found


def _tables(pages: Sequence[Page]) -> Iterator[TableBlock]:
    for page in pages:
        yield from (block for block in page.blocks if isinstance(block, TableBlock))
        yield from _tables(page.sections)


def table_csv(table: TableBlock, language: Language = "en") -> str:
    """A table with everything it holds; what does not exist is an empty cell, and no cell is run as a formula.

    Args:
        table: Its columns for CSV files are written, by their ids.
        language: Of sentences in cells.
    """
    whole = table.shown_on("csv")
    text = io.StringIO()
    writer = csv.writer(text)
    writer.writerow([safe_cell(column.id) for column in whole.columns])
    for row in whole.rows:
        cells = zip(row, whole.columns, strict=True)
        # What is said in the place of a number is for people.
        kept = (None if isinstance(value, Phrase) and each.kind in NUMBERS else value for value, each in cells)
        writer.writerow([_cell(value, language) for value in kept])
    return text.getvalue()


def run_tables(pages: Sequence[Page]) -> dict[str, str]:
    """The files of a run directory that tables of its pages name, by their names."""
    return {table.file: table_csv(table) for table in _tables(pages) if table.file}


def _cell(value: Cell, language: Language) -> str:
    if value is None:
        return ""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return repr(value)
    if isinstance(value, int):
        return str(value)
    if isinstance(value, tuple):
        return " ".join(map(repr, value))
    return safe_cell(value.within(language) if isinstance(value, Phrase) else value)
