"""Where results go, shared by all commands that find some: the terminal, JSON, CSV, a picture, a run directory.

Loaded for every --help, so it imports the standard library alone until results are written.
"""

import argparse
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from roundoff.cli.options import Alternatives, Option, OptionGroup, group, opt
from roundoff.core.files import begins
from roundoff.errors import BadInput
from roundoff.messages.catalogue import current_language, translate
from roundoff.messages.message import english

if TYPE_CHECKING:
    from rich.console import RenderableType

    from roundoff.cli.terminal import Terminal
    from roundoff.core.document import RunDocument
    from roundoff.pages.blocks import Page
    from roundoff.report.plots.curves import PictureForm
    from roundoff.vendors.dialects.settings import ToolSettings

    Shown = Page | RenderableType | None

Painter = Callable[["PictureForm"], bytes]
"""Draws a picture."""

DIALECT_HELP = (
    "write settings for other tools: roundoff, onnxruntime, pulsar2, horizon, amct, rknn, tpu-mlir, nncf, aimet, "
    "or all"
)
HTML = opt("--html FILE", "also write a report that opens in any browser")
JSON = opt("--json", "print the run document instead of the table")
FORCE = opt("--force", "replace what an earlier run wrote")
SORT = opt("--sort", "order of the table", choices=("worst", "order"), default="worst")

# A picture's first bytes, by which an earlier one is known.
_PICTURE_STARTS = (b"\x89PNG", b"<?xml")
# Only the first two can be drawn; whoever writes another one means a file all the same.
_PICTURE_ENDINGS = (".png", ".svg", ".pdf", ".jpg", ".jpeg", ".webp", ".gif", ".bmp", ".tif", ".tiff", ".eps")
# Of more files that were written the first ones are named.
_MOST_NAMED = 6
# Drawing takes a third of a second; more pictures are drawn where they are asked for with --plot.
_MOST_UNASKED = 20


def top(rows: int, what: str = "rows shown") -> Option:
    """How many rows are shown."""
    return opt("--top N|all", f"{what} (default: {rows})", default=rows)


def results(
    table: str,
    start: str,
    *more: Option | Alternatives,
    pictures: Literal["", "FILE", "FILE|DIR"] = "",
) -> OptionGroup:
    """Where results go.

    Args:
        table: Name of the CSV file in a run directory that --csv asks for.
        start: By this beginning an earlier table of the same kind is known.
        more: Further options of the kind.
        pictures: What --plot names: nothing, a picture, or a folder of several.
    """
    several = pictures == "FILE|DIR"
    rows, comma = ("everything", ",") if pictures else ("all rows and columns", " and")
    drawn = f"also draw it, as .png or .svg{', or each in a folder' if several else ''}"
    return group(
        "output",
        JSON,
        opt("--csv FILE", f"also write {rows} as CSV"),
        *((opt(f"--plot {pictures}", drawn),) if pictures else ()),
        HTML,
        opt("-o --output DIR", f"write run.json{comma} {table}{' and pictures' if several else ''} to DIR"),
        FORCE,
        *more,
        table=table,
        csv_start=start,
        several_pictures=several,
    )


def check_results(args: argparse.Namespace) -> None:
    """Refuse before the work what could not be written after it.

    Raises:
        BadInput: A file exists, cannot be written, or is of a kind that cannot be drawn.
    """
    from roundoff.api.runs import HTML_START
    from roundoff.core.document import DOCUMENT_NAME
    from roundoff.core.files import check_output_directory, check_output_file

    told: Mapping[str, Any] = vars(args)
    if told.get("output") is not None:
        check_output_directory(args.output, marker=told.get("marker", DOCUMENT_NAME), force=args.force)
    plot = told.get("plot")
    folder = plot is not None and _is_folder(args)
    # By these beginnings an earlier result of the same kind is known.
    for option, path, starts in (
        ("--html", told.get("html"), (HTML_START,)),
        ("--csv", told.get("csv"), (told.get("csv_start", "").encode(),)),
        ("--plot", None if folder else plot, _PICTURE_STARTS),
        ("--junit", told.get("junit"), ()),
    ):
        # Of `compare` --csv is a switch.
        if isinstance(path, Path):
            check_output_file(path, force=args.force, option=option, starts=starts)
    if plot is not None:
        from roundoff.report.plots.curves import require_matplotlib

        if folder:
            _check_folder(args)
        else:
            picture_form(plot)
        require_matplotlib()


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
        "--plot {path} is neither .png nor .svg.", fix=english("give the file one of these endings"), path=path
    )


Pictures = Painter | Mapping[str, Painter]
"""What draws a picture; where there may be several, what draws each, by the name of what it shows."""


def show(
    args: argparse.Namespace,
    terminal: "Terminal",
    document: "RunDocument",
    page: "Shown | tuple[Shown, ...]",
    *,
    pictures: Pictures | None = None,
    also: Mapping[Path, str] | None = None,
) -> None:
    """Write the files that were asked for, and print.

    Args:
        args: Parsed options.
        terminal: Where results are printed.
        document: The run document.
        page: What is shown of it.
        pictures: What draws it.
        also: Further texts to be written, by their files.
    """
    from roundoff.core.document import to_json
    from roundoff.core.files import write_bytes, write_text
    from roundoff.report.pages import run_files, write_run

    written: list[Path] = []
    told: Mapping[str, Any] = vars(args)
    if told.get("output") is not None:
        drawn = _unasked_pictures(pictures, terminal)
        written += write_run(document, args.output, force=args.force, pictures=drawn)
    texts = dict(also or {})
    if isinstance(told.get("csv"), Path):
        texts = {args.csv: run_files(document)[args.table], **texts}
    for path, text in texts.items():
        write_text(path, text)
        written.append(path)
    for path, painter in _picture_files(args, pictures):
        if path.exists() and not (args.force and begins(path, *_PICTURE_STARTS)):
            terminal.remark(translate("terminal.not_replaced", path=path))
            continue
        write_bytes(path, painter(picture_form(path)))
        written.append(path)
    written += write_html(args, document)
    if args.json:
        terminal.text(to_json(document))
    else:
        for each in page if isinstance(page, tuple) else (page,):
            print_page(terminal, each)
    if written:
        terminal.written(written, _MOST_NAMED)


def write_html(args: argparse.Namespace, document: "RunDocument") -> list[Path]:
    """Write the report that was asked for, if any; the files written."""
    from roundoff.api.runs import report_html
    from roundoff.core.files import write_text

    if args.html is None:
        return []
    write_text(args.html, report_html(document))
    return [args.html]


def print_page(terminal: "Terminal", page: "Shown") -> None:
    """Print a page, if there is one; a text as it is."""
    from roundoff.pages.blocks import Page
    from roundoff.pages.terminal import terminal_page

    if isinstance(page, str):
        if page:
            terminal.text(page)
    elif page is not None:
        terminal.print(terminal_page(page) if isinstance(page, Page) else page)


def next_commands(page: "Shown", label: str, commands: Sequence[str]) -> "RenderableType | None":
    """What to type next, in line with what the page says above it; None where there is nothing."""
    from rich.cells import cell_len, set_cell_size

    from roundoff.pages.blocks import Facts, Page
    from roundoff.pages.terminal import verdict_lines

    if not commands:
        return None
    blocks = page.blocks if isinstance(page, Page) else ()
    facts = [each for each in blocks if isinstance(each, Facts) and "terminal" in each.on]
    told = [label.within(current_language()) for each in facts for label, _ in each.rows]
    first = set_cell_size(label, max(map(cell_len, (label, *told))))
    return verdict_lines(zip((first, *("" for _ in commands[1:])), commands, strict=True))


def _picture_files(args: argparse.Namespace, picture: Pictures | None) -> "list[tuple[Path, Painter]]":
    """The files that --plot asks for, and what draws each."""
    if picture is None or args.plot is None:
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


def _unasked_pictures(picture: Pictures | None, terminal: "Terminal") -> dict[str, bytes]:
    """The pictures that go into a run directory; none where nothing can be drawn, which is said."""
    from roundoff.errors import MissingExtra
    from roundoff.report.plots.curves import require_matplotlib

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


# So many lines beside another result; all of them are in the file.
_MOST_LOST = 6


def print_settings(terminal: "Terminal", settings: "ToolSettings", folder: Path) -> None:
    """Tell of settings beside another result: where they are, for which graph, and what they could not say."""
    from roundoff.messages.message import sanitize_for_display
    from roundoff.pages.terminal import verdict_page
    from roundoff.vendors.dialects.settings import SETTINGS_NAME

    lost, file = list(settings.lost()), folder / SETTINGS_NAME
    lines = [("", each) for each in lost[:_MOST_LOST]]
    if len(lost) > _MOST_LOST:
        lines.append(("", english("and {count} more in {file}", count=len(lost) - _MOST_LOST, file=file)))
    if settings.graph:
        whose = english("{model}: give the tools this one, settings belong to it", model=settings.graph)
        lines.insert(0, (english("model"), whose))
    terminal.text("")
    text = english(": {count}; how to use them is in {file}", count=settings.count, file=file)
    terminal.print(verdict_page(english("SETTINGS"), text, sanitize_for_display(tuple(lines))))
