"""Pages as Markdown, for tickets and merge requests; charts are left out, their tables are not."""

from collections.abc import Iterator, Sequence

from roundoff.messages.catalogue import Language
from roundoff.messages.sanitize import sanitize_for_display
from roundoff.pages.blocks import (
    NUMBERS,
    Block,
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
