"""Turn a run into a report: one HTML file that opens anywhere, or another format.

RUN is a folder that a command wrote with -o, or its run.json. The HTML file
needs no server and no network, holds both languages, and can be sent by e-mail.
"""

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from roundoff.cli.html_option import HTML_START, begins, report_title
from roundoff.cli.terminal import Terminal
from roundoff.errors import EXIT_OK, BadInput

if TYPE_CHECKING:
    from roundoff.core.document import RunDocument

SUMMARY = "write a run as one HTML file, or as Markdown, CSV or JUnit"

_FORMATS = ("html", "md", "csv", "json", "junit")
# By these an earlier report of ours is known, and may be replaced with --force.
_STARTS = {"html": HTML_START, "md": b"# ", "json": b"{", "junit": b"<?xml"}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's options."""
    parser.add_argument("run_path", type=Path, metavar="RUN", help="a run directory, or its run.json")
    parser.add_argument(
        "-o", "--output", type=Path, required=True, metavar="FILE", help="where it goes; a folder for csv"
    )
    parser.add_argument(
        "--format",
        choices=_FORMATS,
        help="form of the report (default: by the ending of FILE, else html)",
    )
    parser.add_argument(
        "--lang", choices=("en", "zh"), default="en", help="language of Markdown, and in which HTML opens"
    )
    parser.add_argument("--title", help="heading of the report (default: the command and the model)")
    parser.add_argument("--force", action="store_true", help="replace an earlier report")


def run(args: argparse.Namespace, terminal: Terminal) -> int:
    """Read, render, write."""
    from roundoff.report.documents import load_document

    chosen = args.format or _by_ending(args.output)
    _check_output(args, chosen)
    document = load_document(args.run_path)
    written = _write(args, chosen, document)
    terminal.note("written: " + ", ".join(str(path) for path in written))
    return EXIT_OK


def _by_ending(path: Path) -> str:
    endings = {".html": "html", ".htm": "html", ".md": "md", ".json": "json", ".xml": "junit", "": "csv"}
    return endings.get(path.suffix.lower(), "html")


def _check_output(args: argparse.Namespace, chosen: str) -> None:
    """Refuse before the work what could not be written after it."""
    from roundoff.core.files import check_output_directory, check_output_file
    from roundoff.report.documents import DOCUMENT_NAME

    if chosen == "csv":
        check_output_directory(args.output, marker=DOCUMENT_NAME, force=args.force)
        return
    ours = args.force and begins(args.output, _STARTS[chosen])
    if not ours:
        check_output_file(args.output, force=False, option="-o")


def _write(args: argparse.Namespace, chosen: str, document: "RunDocument") -> tuple[Path, ...]:
    from roundoff.core.files import write_text
    from roundoff.report.run_directory import write_run

    if chosen == "csv":
        return write_run(document, args.output, force=args.force)
    write_text(args.output, _text(args, chosen, document))
    return (args.output,)


def _text(args: argparse.Namespace, chosen: str, document: "RunDocument") -> str:
    from roundoff.report.documents import to_json
    from roundoff.report.html import html_report
    from roundoff.report.junit import comparison_junit, gate_junit
    from roundoff.report.markdown import markdown_report
    from roundoff.report.pages import all_pages

    if chosen == "json":
        return to_json(document)
    if chosen == "junit":
        if document.diff is not None and document.diff.gate is not None:
            return gate_junit(document.diff, document.diff.gate)
        if document.comparison is None:
            what = f"{args.run_path} is no comparison and no gate, and only these can be written as JUnit."
            raise BadInput(what, fix="choose another --format, or give a run of 'roundoff compare'")
        return comparison_junit(document.comparison)
    render = html_report if chosen == "html" else markdown_report
    title = args.title or report_title(document)
    return render(all_pages(document), title=title, language=args.lang)
