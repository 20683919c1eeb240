"""The picture of a ranking: the worst with their intervals, and all of them in order."""

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

from roundoff.report.plots.canvas import COLORS, PictureForm, draw, drawable, shortened
from roundoff.studies.sensitivity.result import SensitivityReport, SensitivityRow

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

__all__ = ["sensitivity_picture"]

# Bars with names; all others are in the second panel.
_MOST_NAMED = 30
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
    named = rows[:_MOST_NAMED]
    metric = report.metrics[0]
    done = "quantized alone" if report.mode == "alone" else "left in float alone"

    def paint(figure: "Figure") -> None:
        ratios = (_ROW * max(3, len(named)), _ALL)
        top, bottom = figure.subplots(2, 1, height_ratios=ratios)
        _paint_bars(top, named, metric)
        title = f"{metric} of the outputs with each {kind} {done}, {len(report.samples)} samples"
        top.set_title(f"{title}; lines: 95 % interval of the mean over samples", loc="left")
        values = [_finite(row.scores[metric]) for row in rows]
        bottom.plot(range(1, len(values) + 1), values, color=COLORS["before"], marker=".", markersize=4)
        bottom.set_xlabel(f"rank of all {len(rows)}")
        bottom.set_ylabel(metric)

    return draw((9.0, _HEADER + _ROW * max(3, len(named)) + _ALL), paint, form=form)


def _paint_bars(axes: "Axes", rows: Sequence[SensitivityRow], metric: str) -> None:
    places = range(len(rows))
    axes.plot([_finite(row.scores[metric]) for row in rows], places, "o", color=COLORS["before"], markersize=4)
    for place, row in zip(places, rows, strict=True):
        interval = row.intervals[metric]
        if interval is not None:
            axes.plot(interval, (place, place), color=COLORS["before"], linewidth=1.6, alpha=0.6)
    names = [drawable(shortened(row.name, 44)) for row in rows]
    axes.set_yticks(places, names, fontsize=7)
    axes.set_ylim(len(rows) - 0.5, -0.5)


def _finite(value: float) -> float:
    return value if math.isfinite(value) else math.nan
