"""A page to draw on: fixed style, fixed metadata, no state shared with others; the same picture everywhere.

pyplot is never imported: it keeps figures of its own and chooses a window system.
"""

import contextlib
import io
import warnings
from collections.abc import Callable, Iterator
from functools import cache
from typing import TYPE_CHECKING, Any, Literal

from roundoff.errors import MissingExtra
from roundoff.messages.message import english

if TYPE_CHECKING:
    from matplotlib.figure import Figure

PictureForm = Literal["png", "svg"]

COLORS = {
    "before": "#4477aa",
    "after": "#ee7733",
    "difference": "#228833",
    "threshold": "#cc0000",
    "median": "#cc0000",
    "mean": "#1f5fbf",
    "quiet": "#777777",
}
"""Told apart by people who do not see all colours."""

_PIXELS_PER_INCH = 120
# For names in scripts that the first font does not have; those that are installed are taken.
_FONTS = (
    "DejaVu Sans", "Noto Sans CJK SC", "Noto Sans CJK JP", "Noto Sans SC", "Source Han Sans SC",
    "WenQuanYi Micro Hei", "WenQuanYi Zen Hei", "Microsoft YaHei", "PingFang SC", "Hiragino Sans GB", "SimHei",
    "Arial Unicode MS",
)  # fmt: skip
_STYLE: dict[str, Any] = {
    "axes.spines.right": False,
    "axes.spines.top": False,
    "axes.titlesize": 9,
    "axes.labelsize": 9,
    "axes.grid": True,
    "axes.axisbelow": True,
    "axes.formatter.useoffset": False,
    "grid.color": "#e4e4e4",
    "grid.linewidth": 0.6,
    "font.size": 9,
    "legend.fontsize": 8,
    "legend.frameon": False,
    "xtick.labelsize": 8,
    "ytick.labelsize": 8,
    "svg.hashsalt": "roundoff",
    "text.usetex": False,
}


def require_matplotlib() -> None:
    """Say how to install it when it is missing.

    Raises:
        MissingExtra: It is.
    """
    try:
        import matplotlib as mpl  # noqa: F401
    except ImportError as error:
        raise MissingExtra(english("Drawing pictures"), package="matplotlib", extra="plots") from error


def draw(size: tuple[float, float], paint: "Callable[[Figure], None]", *, form: PictureForm) -> bytes:
    """Draw a picture.

    Args:
        size: Width and height in inches.
        paint: Draws on the figure it is given.
        form: What to make of it.

    Returns:
        The content of the file; the same for the same picture, with the same version of matplotlib and fonts.

    Raises:
        MissingExtra: matplotlib is not installed.
    """
    require_matplotlib()
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    with _fixed_style():
        figure = Figure(figsize=size, dpi=_PIXELS_PER_INCH, layout="constrained")
        FigureCanvasAgg(figure)
        paint(figure)
        page = io.BytesIO()
        # Neither the time nor the program's version belongs into a file that is compared with another.
        metadata = {"Software": None} if form == "png" else {"Date": None, "Creator": "roundoff"}
        figure.savefig(page, format=form, metadata=metadata)
    return page.getvalue()


@contextlib.contextmanager
def _fixed_style() -> Iterator[None]:
    """The defaults of matplotlib and ours, whatever the user has set; its warnings are not for our users."""
    from matplotlib import style

    with (
        style.context(["default", {**_STYLE, "font.family": list(_installed_fonts())}]),
        warnings.catch_warnings(),
    ):
        warnings.simplefilter("ignore")
        yield


@cache
def _installed_fonts() -> tuple[str, ...]:
    from matplotlib.font_manager import fontManager

    known = {font.name for font in fontManager.ttflist}
    return tuple(name for name in _FONTS if name in known) or ("DejaVu Sans",)


@cache
def _known_characters() -> frozenset[int]:
    from matplotlib.font_manager import findfont, get_font

    return frozenset(code for name in _installed_fonts() for code in get_font(findfont(name)).get_charmap())


def drawable(text: str) -> str:
    """Text as it can be drawn: no formulas, and characters that no installed font has spelled as their numbers."""
    known = _known_characters()
    parts = []
    for character in text:
        code = ord(character)
        if code < 32 or code not in known:
            parts.append(f"\\u{code:04x}")
        else:
            parts.append(r"\$" if character == "$" else character)
    return "".join(parts)


def shortened(text: str, most: int = 72) -> str:
    """Text of at most so many characters, with its beginning and its end."""
    if len(text) <= most:
        return text
    head = (most - 1) // 2
    return f"{text[:head]}…{text[len(text) - (most - 1 - head) :]}"
