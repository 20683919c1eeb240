"""--html of every command that finds something: the run as a report, beside whatever else it gives out.

Loaded for every --help, so it imports the standard library alone until a report is written.
"""

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from roundoff.core.document import RunDocument

__all__ = ["HTML_START", "add_html_option", "begins", "check_html", "report_title", "write_html"]

HTML_START = b"<!doctype html>"
"""By this an earlier report is known, and may be replaced with --force."""


def add_html_option(group: argparse._ActionsContainer) -> None:
    """Declare the option."""
    group.add_argument("--html", type=Path, metavar="FILE", help="also write a report that opens in any browser")


def check_html(args: argparse.Namespace) -> None:
    """Refuse before the work what could not be written after it.

    Raises:
        BadInput: The file exists, or cannot be written.
    """
    from roundoff.core.files import check_output_file

    if args.html is not None and not (args.force and begins(args.html, HTML_START)):
        check_output_file(args.html, force=False, option="--html")


def begins(path: Path, *starts: bytes) -> bool:
    """Whether a file is there and begins with one of these."""
    from roundoff.core.files import reading

    if not path.is_file():
        return False
    with reading(path, what="The file"), path.open("rb") as file:
        return file.read(max(map(len, starts))).startswith(starts)


def write_html(args: argparse.Namespace, document: "RunDocument") -> list[Path]:
    """Write the report that was asked for, if any; the files written."""
    from roundoff.core.files import write_text
    from roundoff.messages.catalogue import spoken
    from roundoff.pages.html.render import html_report
    from roundoff.report.pages import all_pages

    if args.html is None:
        return []
    page = html_report(all_pages(document), title=report_title(document), language=spoken())
    write_text(args.html, page)
    return [args.html]


def report_title(document: "RunDocument") -> str:
    """What a report is called: the command, and the model or the sides it was about."""
    command = " ".join(document.command[:2])
    about = [Path(each.path).name for each in document.inputs if each.role in ("model", "reference", "candidate")]
    return f"{command}: {' and '.join(about)}" if about else command
