"""The tables of a report's pages as CSV, with the numbers behind their cells."""

import csv
import io
import re
from collections.abc import Collection, Iterator, Sequence

from roundoff.messages.catalogue import Language, Phrase
from roundoff.messages.sanitize import safe_cell
from roundoff.pages.blocks import Cell, Page, Table, cell_value

__all__ = ["page_tables"]

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
            found[name] = _csv(table, language)
    return found


def _tables(pages: Sequence[Page]) -> Iterator[Table]:
    for page in pages:
        yield from (block for block in page.blocks if isinstance(block, Table))
        yield from _tables(page.sections)


def _csv(table: Table, language: Language) -> str:
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow([column.id for column in table.columns])
    writer.writerows([_cell(value, language) for value in row] for row in table.rows)
    return text.getvalue()


def _cell(value: Cell, language: Language) -> str:
    if value is None:
        return ""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int | float):
        return cell_value(value)
    return safe_cell(value.within(language) if isinstance(value, Phrase) else value)
