"""Turn a run into a report: one HTML file that opens anywhere, or another format.

RUN is a folder that a command wrote with -o, or its run.json. The HTML file
needs no server and no network, holds both languages, and can be sent by e-mail.

netron writes an .onnx file to be opened in Netron: the network without weights,
with what the run knows of a node among its properties. model-explorer writes
node data that Model Explorer lays over the model.
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

_FORMATS = ("html", "md", "csv", "json", "junit", "netron", "model-explorer")
# What an ending stands for: the first when no --format is given, the others only with it.
_ENDINGS = {
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


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's options."""
    parser.add_argument("run_path", type=Path, metavar="RUN", help="a run directory, or its run.json")
    parser.add_argument(
        "-o", "--output", type=Path, required=True, metavar="FILE", help="where it goes; a folder for csv"
    )
    parser.add_argument(
        "--format",
        choices=_FORMATS,
        help="form of the report (default: by the ending of FILE)",
    )
    parser.add_argument("--title", help="heading of the report (default: the command and the model)")
    parser.add_argument("--force", action="store_true", help="replace an earlier report")


def run(args: argparse.Namespace, terminal: Terminal) -> int:
    """Read, render, write."""
    from roundoff.core.document import load_document

    chosen = _chosen_format(args.output, args.format)
    _check_output(args, chosen)
    _check_run(args.run_path)
    document = load_document(args.run_path)
    written = _write(args, chosen, document)
    terminal.written(written)
    return EXIT_OK


def _chosen_format(path: Path, asked: str | None) -> str:
    """The format that was asked for, or that the ending of the file stands for.

    Raises:
        BadInput: Nothing is written with such an ending, or it stands for another format than was asked for.
    """
    # Folders may have dots in their names: what is no known ending says nothing.
    known = _ENDINGS.get(path.suffix.lower())
    if asked is None:
        if known is None:
            fix = f"end it in {', '.join(filter(None, _ENDINGS))}, or say --format"
            raise BadInput(f"-o {path}: no report ends in {path.suffix}.", fix=fix)
        return known[0]
    if known is not None and path.suffix and asked not in known:
        fix = f"leave out --format, or end the file in {_usual_ending(asked)}"
        raise BadInput(f"-o {path} ends as {known[0]} does, and --format is {asked}.", fix=fix)
    return asked


def _usual_ending(chosen: str) -> str:
    found = next(ending for ending, formats in _ENDINGS.items() if chosen in formats)
    return found or "nothing: it is a folder"


def _check_run(path: Path) -> None:
    """Say of a folder that holds a model and no findings what to do with it."""
    from roundoff.core.document import DOCUMENT_NAME, RECORD_NAME

    if (path / RECORD_NAME).is_file() and not (path / DOCUMENT_NAME).is_file():
        fix = f"'roundoff audit {path} --html FILE' reports its precisions, 'roundoff layers' its errors"
        raise BadInput(f"{path} holds a quantized model, and nothing that was found out about it.", fix=fix)


def _check_output(args: argparse.Namespace, chosen: str) -> None:
    """Refuse before the work what could not be written after it."""
    from roundoff.core.document import DOCUMENT_NAME
    from roundoff.core.files import check_output_directory, check_output_file
    from roundoff.graph.overlay import OVERLAY_START

    if chosen == "csv":
        check_output_directory(args.output, marker=DOCUMENT_NAME, force=args.force)
        return
    start = OVERLAY_START if chosen == "netron" else _STARTS[chosen]
    ours = args.force and begins(args.output, start)
    if not ours:
        check_output_file(args.output, force=False, option="-o")


def _write(args: argparse.Namespace, chosen: str, document: "RunDocument") -> tuple[Path, ...]:
    from roundoff.core.files import write_bytes, write_text
    from roundoff.report.run_directory import write_run

    if chosen == "csv":
        return write_run(document, args.output, force=args.force, pictures=_more_tables(document))
    if chosen == "netron":
        write_bytes(args.output, _annotated(args, document))
        return (args.output,)
    write_text(args.output, _text(args, chosen, document))
    return (args.output,)


def _more_tables(document: "RunDocument") -> dict[str, bytes]:
    """The tables of the report that no command writes by itself."""
    from roundoff.messages.catalogue import spoken
    from roundoff.pages.csv import page_tables
    from roundoff.report.pages import all_pages
    from roundoff.report.run_directory import run_files

    found = page_tables(all_pages(document), run_files(document), language=spoken())
    return {name: text.encode("utf-8", "surrogatepass") for name, text in found.items()}


def _annotated(args: argparse.Namespace, document: "RunDocument") -> bytes:
    from roundoff.graph.overlay import annotated_model
    from roundoff.messages.catalogue import spoken
    from roundoff.report.overlay import node_facts
    from roundoff.report.pages import all_pages

    if document.network is None:
        what = f"{args.run_path} knows no network, so there is nothing for Netron to draw."
        raise BadInput(what, fix="choose another --format, or give a run that read a float model")
    return annotated_model(document.network, node_facts(all_pages(document), language=spoken()))


def _text(args: argparse.Namespace, chosen: str, document: "RunDocument") -> str:
    from roundoff.core.document import to_json
    from roundoff.messages.catalogue import spoken
    from roundoff.pages.html.render import html_report
    from roundoff.pages.markdown import markdown_report
    from roundoff.report.junit import document_junit
    from roundoff.report.overlay import model_explorer_overlay
    from roundoff.report.pages import all_pages

    if chosen == "json":
        return to_json(document)
    if chosen == "junit":
        return _found(document_junit(document), f"{args.run_path} has nothing that passes or fails.")
    if chosen == "model-explorer":
        return _found(model_explorer_overlay(document), f"{args.run_path} has no number for each node.")
    render = html_report if chosen == "html" else markdown_report
    title = args.title or report_title(document)
    return render(all_pages(document), title=title, language=spoken())


def _found(text: str | None, missing: str) -> str:
    if text is None:
        raise BadInput(missing, fix="choose another --format, or give a run of 'layers', 'compare' or 'diagnose'")
    return text
