"""--html of every command that finds something: the run as a report, beside whatever else it gives out.

Loaded for every --help, so it imports the standard library alone until a report is written.
"""

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from roundoff.core.document import RunDocument

__all__ = ["add_html_option", "check_html", "write_html"]


def add_html_option(group: argparse._ActionsContainer) -> None:
    """Declare the option."""
    group.add_argument("--html", type=Path, metavar="FILE", help="also write a report that opens in any browser")


def check_html(args: argparse.Namespace) -> None:
    """Refuse before the work what could not be written after it.

    Raises:
        BadInput: The file exists, or cannot be written.
    """
    from roundoff.api.report_file import HTML_START
    from roundoff.core.files import begins, check_output_file

    if args.html is not None and not (args.force and begins(args.html, HTML_START)):
        check_output_file(args.html, force=False, option="--html")


def write_html(args: argparse.Namespace, document: "RunDocument") -> list[Path]:
    """Write the report that was asked for, if any; the files written."""
    from roundoff.api.report_file import report_html
    from roundoff.core.files import write_text

    if args.html is None:
        return []
    write_text(args.html, report_html(document))
    return [args.html]
