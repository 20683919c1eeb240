"""A run as a file for people or for other programs: HTML, Markdown, CSV, JSON, JUnit, Netron, Model Explorer."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from roundoff.core.files import begins, check_output_directory, check_output_file, write_bytes, write_text
from roundoff.errors import BadInput, nearest
from roundoff.messages.message import english

if TYPE_CHECKING:
    from roundoff.core.document import RunDocument
    from roundoff.pages.blocks import Page

FORMATS = ("html", "md", "csv", "json", "junit", "netron", "model-explorer")

HTML_START = b"<!doctype html>"
"""By this an earlier report is known, and may be replaced."""

# What an ending stands for: the first when no format is given, the others only with it.
_ENDINGS: Mapping[str, tuple[str, ...]] = {
    ".html": ("html",),
    ".htm": ("html",),
    ".md": ("md",),
    ".markdown": ("md",),
    ".json": ("json", "model-explorer"),
    ".xml": ("junit",),
    ".onnx": ("netron",),
    "": ("csv",),
}
# By these an earlier report of ours is known, and may be replaced with --force.
_STARTS = {"html": HTML_START, "md": b"# ", "json": b"{", "junit": b"<?xml", "model-explorer": b"{"}


def report_title(document: "RunDocument") -> str:
    """What a report is called: the command, and the model or the sides it was about."""
    command = " ".join(document.command[: 2 if document.command[0] == "roundoff" else 1])
    about = [Path(each.path).name for each in document.inputs if each.role in ("model", "reference", "candidate")]
    return f"{command}: {' and '.join(about)}" if about else command


def report_html(document: "RunDocument", pages: "Sequence[Page] | None" = None, *, title: str = "") -> str:
    """A run as one file that opens in any browser.

    Args:
        document: The run.
        pages: What is shown; all pages of the document when None.
        title: Its heading; the command and what it was about when empty.
    """
    from roundoff.messages.catalogue import current_language
    from roundoff.pages.html.render import html_report
    from roundoff.report.pages import all_pages

    shown = all_pages(document) if pages is None else pages
    return html_report(shown, title=title or report_title(document), language=current_language())


def chosen_format(path: Path, asked: str | None) -> str:
    """The format that was asked for, or that the ending of the file stands for.

    Raises:
        BadInput: Nothing is written with such an ending, or it stands for another format than was asked for.
    """
    if asked is not None and asked not in FORMATS:
        raise BadInput(english("There is no report format {asked!r}.", asked=asked), fix=nearest(asked, FORMATS))
    # Folders may have dots in their names: what is no known ending says nothing.
    known = _ENDINGS.get(path.suffix.lower())
    if asked is None:
        if known is None:
            fix = english("end it in {filter}, or say --format", filter=", ".join(filter(None, _ENDINGS)))
            raise BadInput(
                english("-o {path}: no report ends in {suffix}.", path=path, suffix=path.suffix), fix=fix
            )
        return known[0]
    if known is not None and path.suffix and asked not in known:
        fix = english("leave out --format, or end the file in {usual_ending}", usual_ending=_usual_ending(asked))
        raise BadInput(
            english(
                "-o {path} ends as {known} does, and --format is {asked}.", path=path, known=known[0], asked=asked
            ),
            fix=fix,
        )
    return asked


def _usual_ending(chosen: str) -> str:
    found = next(ending for ending, formats in _ENDINGS.items() if chosen in formats)
    return found or english("nothing: it is a folder")


class ReportFile:
    """A report that is going to be written.

    Args:
        path: The file; a folder for CSV.
        form: Its format; by the ending when None.
        title: Its heading.
        force: Replace an earlier report.

    Raises:
        BadInput: Nothing can be written there.
    """

    def __init__(self, path: Path, form: str | None = None, *, title: str = "", force: bool = False) -> None:
        from roundoff.core.document import DOCUMENT_NAME
        from roundoff.graph.nodes import OVERLAY_START

        self.path, self.title, self.force = path, title, force
        self.form = chosen_format(path, form)
        if self.form == "csv":
            check_output_directory(path, marker=DOCUMENT_NAME, force=force)
            return
        start = OVERLAY_START if self.form == "netron" else _STARTS[self.form]
        if not (force and begins(path, start)):
            check_output_file(path, force=False, option="-o")

    def write(
        self, document: "RunDocument", pages: "Sequence[Page] | None" = None, *, origin: str = "The run"
    ) -> tuple[Path, ...]:
        """Write it; the files that were written.

        Args:
            document: The run.
            pages: What is shown; all pages of the document when None.
            origin: What it is called, for messages.

        Raises:
            BadInput: The run has nothing that such a report could show.
        """
        from roundoff.report.pages import all_pages, write_run

        shown = all_pages(document) if pages is None else pages
        if self.form == "csv":
            return write_run(document, self.path, force=self.force, pictures=_more_tables(document, shown))
        if self.form == "netron":
            write_bytes(self.path, _annotated(document, shown, origin))
        else:
            write_text(self.path, self._text(document, shown, origin))
        return (self.path,)

    def _text(self, document: "RunDocument", pages: "Sequence[Page]", origin: str) -> str:
        from roundoff.core.document import to_json
        from roundoff.messages.catalogue import current_language
        from roundoff.pages.markdown import markdown_report
        from roundoff.report.junit import document_junit
        from roundoff.report.network import model_explorer_overlay

        if self.form == "json":
            return to_json(document)
        if self.form == "junit":
            return _found(
                document_junit(document), english("{origin} has nothing that passes or fails.", origin=origin)
            )
        if self.form == "model-explorer":
            return _found(
                model_explorer_overlay(document), english("{origin} has no number for each node.", origin=origin)
            )
        if self.form == "html":
            return report_html(document, pages, title=self.title)
        title = self.title or report_title(document)
        return markdown_report(pages, title=title, language=current_language())


def _found(text: str | None, missing: str) -> str:
    if text is None:
        raise BadInput(missing, fix=english("choose another --format, or give a run of 'layers' or 'compare'"))
    return text


def _more_tables(document: "RunDocument", pages: "Sequence[Page]") -> dict[str, bytes]:
    """The tables of the report that no command writes by itself."""
    from roundoff.messages.catalogue import current_language
    from roundoff.pages.csv import page_tables
    from roundoff.report.pages import run_files

    found = page_tables(pages, run_files(document), language=current_language())
    return {name: text.encode("utf-8", "surrogatepass") for name, text in found.items()}


def _annotated(document: "RunDocument", pages: "Sequence[Page]", origin: str) -> bytes:
    from roundoff.graph.nodes import annotated_model
    from roundoff.messages.catalogue import current_language
    from roundoff.report.network import node_facts

    if document.network is None:
        what = english("{origin} knows no network, so there is nothing for Netron to draw.", origin=origin)
        raise BadInput(what, fix=english("choose another --format, or give a run that read a float model"))
    return annotated_model(document.network, node_facts(pages, language=current_language()))
