"""What a public function gives back: the result as data, and every form in which people look at it."""

import html
import io
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from roundoff.api.call import public
from roundoff.api.inputs import PathLike, as_path
from roundoff.errors import EXIT_OK, MissingExtra
from roundoff.messages.catalogue import Phrase, current_language
from roundoff.messages.message import english

if TYPE_CHECKING:
    from roundoff.core.document import RunDocument
    from roundoff.pages.blocks import Page, TableBlock

T = TypeVar("T")

_COLUMNS = 80
# A report is a page of its own: it gets a window of this height in a notebook.
_FRAME_PIXELS = 620


@dataclass(frozen=True, slots=True, repr=False)
class Outcome(Generic[T]):
    """What was found.

    Attributes:
        result: The result itself: a frozen dataclass.
        document: The run: the result, what was read, versions; what ``run.json`` holds.
        exit_code: What the command would leave with: 0 when all is well.
    """

    result: T
    document: "RunDocument"
    exit_code: int = EXIT_OK

    @property
    def good(self) -> bool:
        """Whether all is well: what exit code 0 says on the command line."""
        return self.exit_code == EXIT_OK

    def __bool__(self) -> bool:
        """The same as `good`, so that ``assert roundoff.compare(...)`` means what it says."""
        return self.good

    @property
    def page(self) -> "Page":
        """What is shown: verdict, tables and charts as blocks that any renderer takes."""
        from roundoff.report.pages import about_page, section_pages

        return next(section_pages(self.document), about_page(self.document))

    @property
    def pages(self) -> "tuple[Page, ...]":
        """All pages of its report: this one, an overview, a glossary, and what the run was."""
        from roundoff.report.pages import all_pages

        return all_pages(self.document)

    @property
    def verdict(self) -> str:
        """The answer in one sentence, in the language that is spoken."""
        from roundoff.pages.blocks import Headline, headline_text

        found = next((block for block in self.page.blocks if isinstance(block, Headline)), None)
        if found is None:
            return ""
        text = _text(found.text)
        return text if found.word is None else headline_text(_text(found.word), text)

    def rows(self) -> list[dict[str, Any]]:
        """The rows of its main table, as plain values by column."""
        tables = [each for page in (self.page, *self.pages) for each in _tables(page)]
        # The one that a run directory keeps, where there is such; it may stand behind the first screen.
        found = next((each for each in tables if each.file), tables[0] if tables else None)
        if found is None:
            return []
        table = found.shown_on("csv")
        return [
            {column.id: _text(cell) if isinstance(cell, Phrase) else cell
             for column, cell in zip(table.columns, row, strict=True)}
            for row in table.rows
        ]  # fmt: skip

    def to_frame(self) -> Any:
        """The same rows as a ``pandas.DataFrame``.

        Raises:
            MissingExtra: pandas is not installed.
        """
        try:
            from pandas import DataFrame  # type: ignore[import-untyped,unused-ignore]
        except ImportError as error:
            raise MissingExtra(english("A data frame"), package="pandas", extra="pandas") from error
        return DataFrame(self.rows())

    @public
    def save(self, directory: PathLike, *, force: bool = False) -> tuple[Path, ...]:
        """Write the run directory that the command writes with ``-o``: run.json and its tables.

        Args:
            directory: The folder; it appears whole or not at all.
            force: Replace an earlier run.

        Returns:
            The files.

        Raises:
            BadInput: Something else is there, or it cannot be written.
        """
        from roundoff.report.pages import write_run

        return write_run(self.document, as_path(directory, option="The folder"), force=force)

    @public
    def report(
        self, file: PathLike, *, format: str | None = None, title: str = "", force: bool = False
    ) -> tuple[Path, ...]:
        """Write it as a report: HTML, Markdown, CSV, JSON, JUnit, or for Netron or Model Explorer.

        Args:
            file: Where it goes; its ending says the format.
            format: The format, where the ending does not say it.
            title: Heading of the report.
            force: Replace an earlier report.

        Returns:
            The files.

        Raises:
            BadInput: It cannot be written, or nothing can be shown in that format.
        """
        from roundoff.api.runs import ReportFile

        return ReportFile(as_path(file, option="The report"), format, title=title, force=force).write(
            self.document, self.pages
        )

    def __str__(self) -> str:
        """What the command prints, for 80 columns and without colours."""
        from rich.console import Console

        from roundoff.messages.message import escape_control
        from roundoff.pages.terminal import terminal_page

        console = Console(
            file=io.StringIO(), width=_COLUMNS, color_system=None, highlight=False, legacy_windows=False
        )
        console.print(terminal_page(self.page))
        lines = console.file.getvalue().splitlines()  # type: ignore[attr-defined]
        return escape_control("\n".join(line.rstrip() for line in lines).rstrip(), newlines=True)

    def __repr__(self) -> str:
        return f"<{type(self).__name__}: {self.verdict}>"

    def _repr_html_(self) -> str:
        """The same page as the report, for notebooks; in a frame, as it has scripts and styles of its own."""
        from roundoff.api.runs import report_html

        page = html.escape(report_html(self.document, self.pages), quote=True)
        style = f"width:100%;height:{_FRAME_PIXELS}px;border:0"
        return f'<iframe srcdoc="{page}" style="{style}" sandbox="allow-scripts allow-popups"></iframe>'


@dataclass(frozen=True, slots=True, repr=False)
class PageOutcome(Outcome[T]):
    """What has a page of its own, and no section in a run document.

    Attributes:
        shown: The page.
    """

    shown: Any = None

    @property
    def page(self) -> "Page":
        """What is shown."""
        found: Page = self.shown
        return found

    @property
    def pages(self) -> "tuple[Page, ...]":
        """All pages of its report: this one, and what the run was."""
        from roundoff.report.pages import about_page

        return (self.page, about_page(self.document))


def _tables(page: "Page") -> "Iterator[TableBlock]":
    """The tables of a page and of those below it, the most important one first."""
    from roundoff.pages.blocks import TableBlock

    yield from (block for block in page.blocks if isinstance(block, TableBlock))
    for section in page.sections:
        yield from _tables(section)


def _text(phrase: Phrase) -> str:
    return phrase.within(current_language())
