"""The picture of the outlier table: the share of small channels along the network."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from roundoff.report.plots.canvas import COLORS, PictureForm, draw, drawable, shortened
from roundoff.studies.outliers.result import OUTLIER_LEVELS, OutlierReport, OutlierRow

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

__all__ = ["outliers_picture"]

# Up to so many tensors each has its name on the axis; beyond that the worst are listed beside the picture.
_MOST_NAMED, _WORST_LISTED = 40, 12
_SHADES = ("#f3d9a4", "#eeb05c", "#dd7722", "#a83200")


def outliers_picture(report: OutlierReport, *, form: PictureForm = "png") -> bytes:
    """Draw the shares of channels at each level, tensors in execution order.

    Raises:
        MissingExtra: matplotlib is not installed.
    """
    many = len(report.rows) > _MOST_NAMED

    def paint(figure: "Figure") -> None:
        axes = figure.subplots(1, 2, width_ratios=(4, 1))[0] if many else figure.subplots()
        base = f"{report.log_base:.4g}"
        title = f"Channels whose level, log{base}(largest of the tensor / largest of the channel), is at least ..."
        axes.set_title(title, loc="left", pad=22)
        if not report.rows:
            axes.text(0.5, 0.5, "no tensor has channels", transform=axes.transAxes, ha="center")
            return
        _paint_shares(axes, report.rows)
        if many:
            _list_worst(figure.axes[1], report.rows)
            axes.set_xlabel(f"{len(report.rows)} tensors in execution order")
        else:
            names = [drawable(shortened(row.tensor, 34)) for row in report.rows]
            axes.set_xticks(range(len(names)), names, rotation=90, fontsize=7)

    return draw((13.0 if many else 9.0, 5.0), paint, form=form)


def _paint_shares(axes: "Axes", rows: Sequence[OutlierRow]) -> None:
    edges = [place - 0.5 for place in range(len(rows) + 1)]
    for level, shade in zip(OUTLIER_LEVELS, _SHADES, strict=True):
        shares = [100 * row.share(level) for row in rows]
        axes.stairs(shares, edges, fill=True, color=shade, linewidth=0, label=f"{level}")
    if any(row.sparse for row in rows):
        sparse = [100 * row.sparse_share for row in rows]
        axes.stairs(sparse, edges, color=COLORS["quiet"], linewidth=1.2, label="all zero")
    highest = max(max(row.share(OUTLIER_LEVELS[0]), row.sparse_share) for row in rows)
    axes.set_ylim(0, min(100.0, max(5.0, 110 * highest)))
    if not highest:
        axes.text(0.5, 0.5, "no channel of level 3 or more", transform=axes.transAxes, ha="center")
    axes.set_ylabel("% of channels")
    axes.margins(x=0)
    axes.legend(loc="lower left", bbox_to_anchor=(0, 1), borderaxespad=0.2, ncols=5)


def _list_worst(axes: "Axes", rows: Sequence[OutlierRow]) -> None:
    axes.axis("off")
    level = OUTLIER_LEVELS[0]
    worst = sorted(range(len(rows)), key=lambda place: -rows[place].share(level))[:_WORST_LISTED]
    lines = [f"most of level {level}:", ""]
    for place in worst:
        name = drawable(shortened(rows[place].tensor, 34))
        lines.append(f"{place:4d}   {100 * rows[place].share(level):5.1f} %   {name}")
    axes.text(0, 1, "\n".join(lines), va="top", fontsize=7, linespacing=1.7, transform=axes.transAxes)
