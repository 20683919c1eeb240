"""Pictures of curves and rankings: error along a network, sweeps, sensitivities, samples, calibration ranges."""

import contextlib
import io
import math
import warnings
from collections.abc import Callable, Iterator, Sequence
from functools import cache
from typing import TYPE_CHECKING, Any, Literal

from roundoff.errors import MissingExtra
from roundoff.messages.message import english
from roundoff.messages.numbers import score_text
from roundoff.studies.accumulate.result import Accumulation, CurveNode
from roundoff.studies.check_calibration.result import CalibrationCheck
from roundoff.studies.partial.result import PartialQuantization
from roundoff.studies.samples.result import WorstSamples
from roundoff.studies.sensitivity.result import SensitivityReport, SensitivityRow

if TYPE_CHECKING:
    from matplotlib.axes import Axes
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


# Up to so many nodes each has its name on the axis; of more only the outputs and what the verdict names.
_MOST_NAMED = 40
# More are beside the picture, and of more than fit there the first ones and the last.
_MOST_IN_PICTURE, _MOST_IN_LEGEND = 12, 24
_BASE_COLOR = "#222222"
_PALETTE = (
    "#4477aa", "#ee6677", "#228833", "#ccbb44", "#66ccee", "#aa3377", "#ee7733", "#777777",
    "#004488", "#44aa99", "#997700", "#cc99bb",
)  # fmt: skip
# More curves than colours are a sweep, whose colours run from its first to its last; neighbours, whose colours are
# close, differ in their lines and marks.
_SWEEP_COLORS = "viridis"
_SWEEP_LINES, _SWEEP_MARKS = ("-", "--", "-.", ":"), ("o", "s", "^", "D", "v")


def accumulation_picture(found: Accumulation, *, form: PictureForm = "png") -> bytes:
    """Draw all curves, nodes from the inputs on the left to the outputs on the right; the base line is thick.

    Infinite values, as signal to noise without any noise, are left out.

    Raises:
        MissingExtra: matplotlib is not installed.
    """
    names = len(found.nodes) <= _MOST_NAMED

    def paint(figure: "Figure") -> None:
        axes = figure.subplots()
        colors = (_BASE_COLOR, *_colors(len(found.curves) - 1))
        sweep = len(found.curves) - 1 > len(_PALETTE)
        for number, curve in enumerate(found.curves):
            values = [_finite(value) for value in found.shown(curve)]
            base = number == 0
            look = number - 1 if sweep and not base else 0
            axes.plot(
                range(len(values)),
                values,
                color=colors[number],
                linewidth=2.2 if base else 1.3,
                linestyle=_SWEEP_LINES[look % len(_SWEEP_LINES)],
                marker=_SWEEP_MARKS[look % len(_SWEEP_MARKS)] if names else None,
                markersize=3,
                zorder=3 if base else 2,
                label=drawable(shortened(f"{curve.name} (everything quantized)" if base else curve.name, 40)),
            )
        average = ", mean of all nodes up to here" if found.average else ""
        axes.set_title(f"Accumulated error: {found.metric}{average}, {len(found.samples)} samples", loc="left")
        better = "higher" if found.higher_is_better else "lower"
        axes.set_ylabel(f"{found.metric} ({better} is better)")
        axes.margins(x=0.01)
        _name_nodes(axes, found)
        _add_legend(axes, len(found.curves))

    return draw((9.0 if names else 13.0, 5.4), paint, form=form)


def _colors(count: int) -> list[str]:
    """A colour for each curve beside the base line."""
    from matplotlib import colormaps
    from matplotlib.colors import to_hex

    if count <= len(_PALETTE):
        return list(_PALETTE[:count])
    sweep = colormaps[_SWEEP_COLORS]
    return [to_hex(sweep(0.95 * number / (count - 1))) for number in range(count)]


def _finite(value: float | None) -> float:
    return value if value is not None and math.isfinite(value) else math.nan


def _name_nodes(axes: "Axes", found: Accumulation) -> None:
    if len(found.nodes) <= _MOST_NAMED:
        labels = [drawable(shortened(node.node, 30)) for node in found.nodes]
        axes.set_xticks(range(len(labels)), labels, rotation=90, fontsize=7)
        return
    axes.set_xlabel(f"{len(found.nodes)} quantized nodes in execution order")
    verdict = found.verdict
    places = [jump.order for jump in verdict.jumps] + ([] if verdict.falls_at is None else [verdict.falls_at])
    _annotate(axes, found, [found.nodes[place] for place in sorted(set(places))])


def _annotate(axes: "Axes", found: Accumulation, nodes: Sequence[CurveNode]) -> None:
    values = found.shown(found.base_line)
    for number, node in enumerate(nodes):
        value = _finite(values[node.order])
        if math.isnan(value):
            continue
        to_left = node.order > len(found.nodes) / 2
        axes.annotate(
            drawable(shortened(node.node, 34)), (node.order, value),
            xytext=(-14 if to_left else 14, 8 + 12 * number),
            textcoords="offset points", ha="right" if to_left else "left", fontsize=7,
            bbox={"facecolor": "white", "alpha": 0.8, "linewidth": 0, "pad": 1},
            arrowprops={"arrowstyle": "-", "color": COLORS["quiet"], "linewidth": 0.6},
        )  # fmt: skip


def _add_legend(axes: "Axes", curves: int) -> None:
    handles, labels = axes.get_legend_handles_labels()
    if curves <= _MOST_IN_PICTURE:
        axes.legend(loc="best")
        return
    if curves > _MOST_IN_LEGEND:
        shown = slice(0, _MOST_IN_LEGEND - 1)
        handles, labels = [*handles[shown], handles[-1]], [*labels[shown], f"... {labels[-1]}"]
    axes.legend(handles, labels, loc="upper left", bbox_to_anchor=(1.0, 1.0))


def partial_picture(found: PartialQuantization, *, form: PictureForm = "png") -> bytes:
    """Draw the score against the number of subjects that are changed, with float, the goal and the knee.

    Raises:
        MissingExtra: matplotlib is not installed.
    """

    def paint(figure: "Figure") -> None:
        axes = figure.subplots()
        counts = [step.count for step in found.steps]
        scores = [_finite(step.score) for step in found.steps]
        named = len(found.steps) <= _MOST_NAMED
        axes.plot(counts, scores, color=COLORS["before"], marker="o", markersize=4 if named else 2)
        if math.isfinite(found.float_score):
            axes.axhline(found.float_score, color=COLORS["difference"], linewidth=1, label="float")
        goal = f"goal {drawable(found.goal.text)}"
        axes.axhline(found.goal.value, color=COLORS["threshold"], linestyle="--", linewidth=1, label=goal)
        if found.knee is not None:
            label = f"reached with {found.knee}"
            axes.axvline(found.knee, color=COLORS["threshold"], linestyle=":", linewidth=1, label=label)
        # At the last count nothing is known of what more would bring.
        if found.levels_off not in (None, found.knee, counts[-1]):
            label = f"levels off at {found.levels_off}"
            axes.axvline(found.levels_off, color=COLORS["quiet"], linestyle=":", linewidth=1, label=label)
        if named:
            labels = [drawable(shortened(step.subject or "all quantized", 28)) for step in found.steps]
            ticks = [f"{count}  {label}" for count, label in zip(counts, labels, strict=True)]
            axes.set_xticks(counts, ticks, rotation=90, fontsize=7)
        changed = "left in float" if found.to == "float" else f"raised to {found.to}"
        if not named:
            axes.set_xlabel(f"how many of {len(found.subjects)} are {changed}, in the order of the ranking")
        axes.set_title(f"The first so many {changed}, {found.samples} samples", loc="left")
        better = "higher" if found.higher_is_better else "lower"
        axes.set_ylabel(f"{drawable(shortened(found.score, 30))} ({better} is better)")
        axes.legend(loc="best")

    return draw((9.0, 5.4), paint, form=form)


# Bars with names; all others are in the second panel.
_MOST_BARS = 30
_ROW, _HEADER, _ALL = 0.22, 1.4, 2.2


def sensitivity_picture(report: SensitivityReport, kind: str, *, form: PictureForm = "png") -> bytes:
    """Draw one ranking: a bar for each of the worst, and below the scores of all by rank.

    Args:
        report: The rankings.
        kind: Which one.
        form: What to make of it.

    Raises:
        MissingExtra: matplotlib is not installed.
    """
    rows: Sequence[SensitivityRow] = next(rows for name, rows in report.rankings.items() if name == kind)
    named = rows[:_MOST_BARS]
    metric = report.metrics[0]
    done = "quantized alone" if report.mode == "alone" else "left in float alone"

    def paint(figure: "Figure") -> None:
        ratios = (_ROW * max(3, len(named)), _ALL)
        top, bottom = figure.subplots(2, 1, height_ratios=ratios)
        _paint_bars(top, named, metric)
        title = f"{metric} of the outputs with each {kind} {done}, {len(report.samples)} samples"
        top.set_title(f"{title}; lines: 95 % interval", loc="left")
        values = [_finite(row.scores[metric]) for row in rows]
        bottom.plot(range(1, len(values) + 1), values, color=COLORS["before"], marker=".", markersize=4)
        bottom.set_xlabel(f"rank of all {len(rows)}")
        bottom.set_ylabel(metric)

    return draw((9.0, _HEADER + _ROW * max(3, len(named)) + _ALL), paint, form=form)


def _paint_bars(axes: "Axes", rows: Sequence[SensitivityRow], metric: str) -> None:
    places = range(len(rows))
    axes.plot([_finite(row.scores[metric]) for row in rows], places, "o", color=COLORS["before"], markersize=4)
    for place, row in zip(places, rows, strict=True):
        interval = row.reach_of(metric)
        if interval is not None:
            axes.plot(interval, (place, place), color=COLORS["before"], linewidth=1.6, alpha=0.6)
    names = [drawable(shortened(row.name, 44)) for row in rows]
    axes.set_yticks(places, names, fontsize=7)
    axes.set_ylim(len(rows) - 0.5, -0.5)


_NAMED = 10


def worst_samples_picture(worst: WorstSamples, *, form: PictureForm = "png") -> bytes:
    """Draw the scores of all samples, and name the worst ten.

    Raises:
        MissingExtra: matplotlib is not installed.
    """

    def paint(figure: "Figure") -> None:
        axes, names = figure.subplots(1, 2, width_ratios=(4, 1))
        scored = [each for each in worst.samples if each.score is not None and math.isfinite(each.score)]
        left_out = len(worst.samples) - len(scored)
        axes.plot([each.rank for each in scored], [each.score for each in scored], color=COLORS["before"])
        dots = [each for each in scored if not each.moved_top]
        size = 14 if len(scored) <= 200 else 3
        axes.scatter([e.rank for e in dots], [e.score or 0.0 for e in dots], s=size, color=COLORS["before"])
        moved = [each for each in scored if each.moved_top]
        if moved:
            ranks, scores = [each.rank for each in moved], [each.score or 0.0 for each in moved]
            axes.scatter(
                ranks, scores, s=2 * size, color=COLORS["threshold"], marker="x", label="largest output elsewhere"
            )
        if worst.median is not None and math.isfinite(worst.median):
            axes.axhline(
                worst.median,
                color=COLORS["quiet"],
                linestyle=":",
                label=f"median {score_text(worst.metrics[0], worst.median)}",
            )
        axes.set_xlabel("rank" + (f" ({left_out} without a finite score left out)" if left_out else ""))
        axes.set_ylabel(f"{worst.metrics[0]} ({'higher' if worst.higher_is_better else 'lower'} is better)")
        axes.set_title(f"{len(worst.samples)} samples, the worst first", loc="left", pad=20)
        axes.legend(loc="lower left", bbox_to_anchor=(0, 1), borderaxespad=0.2, ncols=2)
        names.axis("off")
        lines = [
            f"{each.rank}. {drawable(shortened(each.sample, 24))}   "
            + ("no score" if each.score is None else score_text(worst.metrics[0], each.score))
            for each in worst.samples[:_NAMED]
        ]
        names.text(
            0, 1, "\n".join(["worst:", *lines]), va="top", fontsize=8, linespacing=1.6, transform=names.transAxes
        )

    return draw((9.0, 4.2), paint, form=form)


def calibration_picture(check: CalibrationCheck, *, form: PictureForm = "png") -> bytes:
    """Draw the width of ranges over the number of samples.

    Raises:
        MissingExtra: matplotlib is not installed.
    """

    def paint(figure: "Figure") -> None:
        axes = figure.subplots()
        numbers = [point.samples for point in check.curve]
        axes.plot(
            numbers,
            [100 * point.typical for point in check.curve],
            color=COLORS["before"],
            marker="o",
            label="median tensor",
        )
        axes.plot(
            numbers,
            [100 * point.low for point in check.curve],
            color=COLORS["quiet"],
            marker=".",
            label="three tensors of four are above",
        )
        axes.axhline(95, color=COLORS["threshold"], linestyle=":", label="95 %")
        axes.set_xscale("log", base=2)
        axes.set_xticks(numbers, [str(each) for each in numbers])
        axes.set_xlabel("samples")
        axes.set_ylabel("width of the range, % of that of all samples")
        axes.set_title(f"How ranges grow: {check.samples} samples, {check.method}", loc="left")
        axes.legend()

    return draw((7.0, 4.2), paint, form=form)
