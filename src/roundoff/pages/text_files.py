"""Pages as text files: their tables as CSV, and whole pages as Markdown."""

import re
from collections.abc import Collection, Iterator, Sequence

from roundoff.messages.catalogue import Language, Phrase
from roundoff.messages.message import sanitize_for_display
from roundoff.messages.numbers import csv_text
from roundoff.pages.blocks import (
    NUMBERS,
    Block,
    Cell,
    Column,
    Commands,
    Contents,
    Entry,
    Facts,
    Headline,
    NetworkBlock,
    Page,
    Paragraph,
    TableBlock,
    cell_text,
    is_hidden,
)

# The tables of a report's pages as CSV, with the numbers behind their cells.

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

    def kept(value: Cell, column: Column) -> Cell:
        if not isinstance(value, Phrase):
            return value
        # What is said in the place of a number is for people.
        return None if column.kind in NUMBERS else value.within(language)

    rows = ([kept(*each) for each in zip(row, whole.columns, strict=True)] for row in whole.rows)
    return csv_text([column.id for column in whole.columns], rows)


def run_tables(pages: Sequence[Page]) -> dict[str, str]:
    """The files of a run directory that tables of its pages name, by their names."""
    return {table.file: table_csv(table) for table in _tables(pages) if table.file}


# Pages as Markdown, for tickets and merge requests; charts are left out, their tables are not.


def markdown_report(pages: Sequence[Page], *, title: str, language: Language = "en") -> str:
    """A report as Markdown, as most places that show it understand."""
    lines = [f"# {_escaped(title)}", ""]
    for page in pages:
        lines += _page(sanitize_for_display(page), 2, language)
    return "\n".join(lines).rstrip() + "\n"


def _page(page: Page, level: int, language: Language) -> list[str]:
    """A page under its title; nothing where all of it is drawn."""
    lines: list[str] = []
    for block in page.blocks:
        if is_hidden(block, "html"):
            continue
        written = list(_block(block, language))
        if written:
            lines += [*written, ""]
    for below in page.sections:
        lines += _page(below, level + 1, language)
    return [f"{'#' * level} {_escaped(page.title.within(language))}", "", *lines] if lines else []


def _block(block: Block, language: Language) -> Iterator[str]:
    if isinstance(block, Headline):
        yield f"**{_escaped(block.whole.within(language))}**"
    elif isinstance(block, Paragraph):
        yield _escaped(block.text.within(language))
    elif isinstance(block, Facts):
        yield from (
            f"- {_escaped(word.within(language))}: {_escaped(text.within(language))}" for word, text in block.rows
        )
    elif isinstance(block, Commands):
        yield from ("```", *(line.replace("```", "'''") for line in block.lines), "```")
    elif isinstance(block, Contents):
        yield from (f"- {_escaped(_entry(each, language))}" for each in block.entries)
    elif isinstance(block, TableBlock):
        yield from _table(block.shown_on("html"), language)
    elif isinstance(block, NetworkBlock):
        # A drawing only; what colours it stands in a table of another page.
        return


def _entry(entry: Entry, language: Language) -> str:
    title, text = entry.title.within(language), entry.text.within(language)
    return f"{title}: {text}" if text else title


def _table(table: TableBlock, language: Language) -> Iterator[str]:
    yield _escaped(table.caption.within(language)) + ":"
    yield ""
    yield _line(column.label.within(language) for column in table.columns)
    yield "|" + "|".join("---:" if column.kind in NUMBERS else "---" for column in table.columns) + "|"
    for row in table.rows:
        cells = zip(row, table.columns, strict=True)
        yield _line(cell_text(value, column).within(language) for value, column in cells)


def _line(cells: Iterator[str]) -> str:
    return "| " + " | ".join(_escaped(cell) for cell in cells) + " |"


def _escaped(text: str) -> str:
    """Text in which nothing is taken for markup."""
    for special in ("\\", "`", "*", "_", "[", "]", "<", ">", "|", "#"):
        text = text.replace(special, f"\\{special}")
    return text
