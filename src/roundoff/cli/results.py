"""Where results go, shared by all commands that find some: the terminal, JSON, CSV, a picture, a run directory.

Loaded for every --help, so it imports the standard library alone until results are written.
"""

import argparse
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from roundoff.cli.options import add_html_option, check_html, write_html
from roundoff.core.files import begins
from roundoff.errors import BadInput
from roundoff.messages.catalogue import translate
from roundoff.messages.message import english

if TYPE_CHECKING:
    from rich.console import RenderableType

    from roundoff.cli.terminal import Terminal
    from roundoff.core.document import RunDocument
    from roundoff.pages.blocks import Page
    from roundoff.report.plots.canvas import PictureForm

__all__ = [
    "Painter",
    "Results",
    "add_result_options",
    "check_csv",
    "check_results",
    "picture_form",
    "show_results",
]

Painter = Callable[["PictureForm"], bytes]
"""Draws a picture."""

# A picture's first bytes, by which an earlier one is known.
_PICTURE_STARTS = (b"\x89PNG", b"<?xml")
# Only the first two can be drawn; whoever writes another one means a file all the same.
_PICTURE_ENDINGS = (".png", ".svg", ".pdf", ".jpg", ".jpeg", ".webp", ".gif", ".bmp", ".tif", ".tiff", ".eps")
# Of more files that were written the first ones are named.
_MOST_NAMED = 6
# Drawing takes a third of a second; more pictures are drawn where they are asked for with --plot.
_MOST_UNASKED = 20


class Results(NamedTuple):
    """What a command found, in every form it can be given out.

    Attributes:
        document: The run document.
        table: The CSV file of a run directory that --csv asks for.
        picture: Draws it; where there may be several pictures, what draws each, by the name of what it shows.
        page: What the terminal shows.
    """

    document: "RunDocument"
    table: str
    picture: "Painter | Mapping[str, Painter]"
    page: "Page | tuple[RenderableType, ...] | None"


def add_result_options(
    parser: argparse.ArgumentParser, *, table: str, pictures: bool = False
) -> argparse._ArgumentGroup:
    """Declare where results go.

    Args:
        parser: Of the command.
        table: Name of the CSV file in a run directory.
        pictures: Whether there may be several pictures.

    Returns:
        The group of options, for more of them.
    """
    group = parser.add_argument_group("output")
    group.add_argument("--json", action="store_true", help="print the run document instead of the table")
    group.add_argument("--csv", type=Path, metavar="FILE", help="also write everything as CSV")
    group.add_argument(
        "--plot",
        type=Path,
        metavar="FILE|DIR" if pictures else "FILE",
        help="also draw it, as .png or .svg" + (", or each in a folder" if pictures else ""),
    )
    add_html_option(group)
    drawn = " and pictures" if pictures else ""
    group.add_argument("-o", "--output", type=Path, metavar="DIR", help=f"write run.json, {table}{drawn} to DIR")
    parser.set_defaults(several_pictures=pictures)
    group.add_argument("--force", action="store_true", help="replace what an earlier run wrote")
    return group


def check_results(args: argparse.Namespace, *, csv_start: str) -> None:
    """Refuse before the work what could not be written after it.

    Args:
        args: Parsed options.
        csv_start: By this an earlier table of the same kind is known.

    Raises:
        BadInput: A file exists, cannot be written, or is of a kind that cannot be drawn.
    """
    from roundoff.core.document import DOCUMENT_NAME
    from roundoff.core.files import check_output_directory, check_output_file

    if args.output is not None:
        check_output_directory(args.output, marker=DOCUMENT_NAME, force=args.force)
    check_html(args)
    folder = args.plot is not None and _is_folder(args)
    for option, path, starts in (
        ("--csv", args.csv, (csv_start.encode(),)),
        ("--plot", None if folder else args.plot, _PICTURE_STARTS),
    ):
        if path is not None and not (args.force and begins(path, *starts)):
            check_output_file(path, force=args.force, option=option)
    if args.plot is not None:
        from roundoff.report.plots.canvas import require_matplotlib

        if folder:
            _check_folder(args)
        else:
            picture_form(args.plot)
        require_matplotlib()


def check_csv(path: Path, *, force: bool, start: str) -> None:
    """Refuse a table that could not be written.

    Args:
        path: The file to be written.
        force: Replace an earlier table.
        start: By this one of the same kind is known.

    Raises:
        BadInput: It exists, or cannot be written.
    """
    from roundoff.core.files import check_output_file

    if not (force and path.is_file()):
        check_output_file(path, force=False, option="--csv")
    elif not begins(path, start.encode()):
        what = english("{path} exists and does not look like a table that this command wrote.", path=path)
        raise BadInput(what, fix=english("choose another file with --csv; --force replaces only earlier results"))


def _is_folder(args: argparse.Namespace) -> bool:
    """Whether --plot names a folder of pictures: whatever has no ending of one, where several may be."""
    return bool(args.several_pictures) and args.plot.suffix.lower() not in _PICTURE_ENDINGS


def _check_folder(args: argparse.Namespace) -> None:
    from roundoff.core.files import check_output_file, reading

    if not args.plot.is_dir():
        check_output_file(args.plot, force=False, option="--plot")
        return
    with reading(args.plot, what=english("The folder")):
        filled = any(args.plot.iterdir())
    if filled and not args.force:
        fix = english("add --force to replace pictures in it, or choose another folder with --plot")
        raise BadInput(english("{plot} is not empty.", plot=args.plot), fix=fix)


def picture_form(path: Path) -> "PictureForm":
    """What kind of picture a file name asks for.

    Raises:
        BadInput: None that can be drawn.
    """
    suffix = path.suffix.lower()
    if suffix == ".png":
        return "png"
    if suffix == ".svg":
        return "svg"
    raise BadInput(
        english("--plot {path} is neither .png nor .svg.", path=path),
        fix=english("give the file one of these endings"),
    )


def show_results(args: argparse.Namespace, terminal: "Terminal", results: Results) -> None:
    """Write the files that were asked for, and print."""
    from roundoff.core.document import to_json
    from roundoff.core.files import write_bytes, write_text
    from roundoff.report.pages import run_files, write_run

    written: list[Path] = []
    if args.output is not None:
        pictures = _unasked_pictures(results.picture, terminal)
        written += write_run(results.document, args.output, force=args.force, pictures=pictures)
    if args.csv is not None:
        write_text(args.csv, run_files(results.document)[results.table])
        written.append(args.csv)
    for path, painter in _picture_files(args, results.picture):
        if path.exists() and not (args.force and begins(path, *_PICTURE_STARTS)):
            terminal.remark(translate("terminal.not_replaced", path=path))
            continue
        write_bytes(path, painter(picture_form(path)))
        written.append(path)
    written += write_html(args, results.document)
    if args.json:
        terminal.text(to_json(results.document))
    else:
        _print(terminal, results.page)
    if written:
        terminal.written(written, _MOST_NAMED)


def _print(terminal: "Terminal", page: "Page | tuple[RenderableType, ...] | None") -> None:
    from roundoff.pages.terminal import terminal_page

    parts = page if isinstance(page, tuple) else () if page is None else (terminal_page(page),)
    for number, part in enumerate(parts):
        if number:
            terminal.text("")
        terminal.print(part)


def _picture_files(
    args: argparse.Namespace, picture: "Painter | Mapping[str, Painter]"
) -> "list[tuple[Path, Painter]]":
    """The files that --plot asks for, and what draws each."""
    if args.plot is None:
        return []
    if not isinstance(picture, Mapping):
        return [(args.plot, picture)]
    if _is_folder(args):
        return [(args.plot / f"{stem}.png", painter) for stem, painter in _stems(picture).items()]
    if len(picture) == 1:
        return [(args.plot, painter) for painter in picture.values()]
    # One file has no room for several; they get its name and their own.
    return [
        (args.plot.with_name(f"{args.plot.stem}_{stem}{args.plot.suffix}"), painter)
        for stem, painter in _stems(picture).items()
    ]


def _stems(pictures: "Mapping[str, Painter]") -> "dict[str, Painter]":
    from roundoff.core.names import FileNames

    names = FileNames()
    return {names.stem(name): painter for name, painter in pictures.items()}


def _unasked_pictures(picture: "Painter | Mapping[str, Painter]", terminal: "Terminal") -> dict[str, bytes]:
    """The pictures that go into a run directory; none where nothing can be drawn, which is said."""
    from roundoff.errors import MissingExtra
    from roundoff.report.plots.canvas import require_matplotlib

    if not isinstance(picture, Mapping):
        return {}
    try:
        require_matplotlib()
    except MissingExtra as error:
        terminal.remark(translate("terminal.no_pictures", fix=error.fix))
        return {}
    if len(picture) > _MOST_UNASKED:
        terminal.remark(translate("terminal.some_pictures", some=_MOST_UNASKED, all=len(picture)))
    return {f"{stem}.png": painter("png") for stem, painter in list(_stems(picture).items())[:_MOST_UNASKED]}
