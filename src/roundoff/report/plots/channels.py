"""The picture of channels: a box for each, or bands where there are too many, and the levels each one has."""

import math
from collections.abc import Sequence
from itertools import pairwise
from typing import TYPE_CHECKING

from roundoff.report.plots.canvas import COLORS, PictureForm, draw, drawable, shortened
from roundoff.studies.channels.result import LEVEL_BOUNDS, ChannelBox, ChannelSpread

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

__all__ = ["channels_picture"]

# More boxes than this cannot be told apart.
_MOST_BOXES = 100
# More columns than this are not in the picture.
_MOST_COLUMNS = 1000
# Where the widest channel is this many times as wide as the median one, an even scale would not show the others.
_UNEVEN = 20.0
# The lowest line of the panel of levels.
_FEWEST_LEVELS = 0.25


def channels_picture(spread: ChannelSpread, *, form: PictureForm = "png") -> bytes:
    """Draw the channels of a tensor.

    The box is the middle half of a channel's values, its whiskers all but two per cent, dots are the smallest and
    the largest; the red line is the median, the blue dashed one the mean.

    Raises:
        MissingExtra: matplotlib is not installed.
    """

    def paint(figure: "Figure") -> None:
        figure.suptitle(_title(spread), fontsize=10, x=0.01, ha="left")
        if not spread.boxes:
            # A tensor with an axis of size 0; its title says so.
            return
        top, bottom = figure.subplots(2, 1, sharex=True, height_ratios=(2, 1))
        if len(spread.boxes) <= _MOST_BOXES:
            _paint_boxes(top, spread.boxes)
        else:
            _paint_bands(top, spread.boxes)
        _choose_scale(top, spread)
        _paint_levels(bottom, spread)

    width = 9.0 if len(spread.boxes) <= 48 else 12.0
    return draw((width, 6.2), paint, form=form)


def _title(spread: ChannelSpread) -> str:
    name = drawable(shortened(spread.name, 90))
    shape = "x".join(map(str, spread.shape)) or "scalar"
    where = f"{spread.kind}, {spread.op_type}" if spread.op_type else spread.kind
    ratio = "" if spread.range_ratio is None else f", widest range {spread.range_ratio:.3g} times the median one"
    scales = "a scale per channel" if spread.own_scales else "one scale for all"
    first = f"{name}   ({drawable(where)}, {shape}, axis {spread.axis})"
    dtype = f"{spread.dtype} assumed" if spread.assumed else spread.dtype
    return f"{first}\n{len(spread.boxes)} channels{ratio}; {dtype}, {scales}"


def _paint_boxes(axes: "Axes", boxes: Sequence[ChannelBox]) -> None:
    # Drawn by hand: matplotlib's own boxes look through all settings, and choose a window system by that.
    places = [box.channel for box in boxes]
    half = 0.33
    left, right = [place - half for place in places], [place + half for place in places]
    axes.vlines(
        places, [box.p01 for box in boxes], [box.p99 for box in boxes], color=COLORS["before"], linewidth=0.8
    )
    axes.bar(
        places,
        [box.p75 - box.p25 for box in boxes],
        2 * half,
        [box.p25 for box in boxes],
        color="#c9d8e8",
        edgecolor=COLORS["before"],
        linewidth=0.8,
        label="middle half, 1 % to 99 %",
    )
    medians, means = [box.median for box in boxes], [box.mean for box in boxes]
    axes.hlines(medians, left, right, color=COLORS["median"], linewidth=1.4, label="median")
    axes.hlines(means, left, right, color=COLORS["mean"], linestyle="--", linewidth=1.2, label="mean")
    ends = [box.low for box in boxes] + [box.high for box in boxes]
    axes.plot(places * 2, ends, ".", color="#333333", markersize=3, label="smallest, largest")
    axes.legend(loc="lower left", bbox_to_anchor=(0, 1), ncols=4)
    axes.margins(x=0.01)


def _paint_bands(axes: "Axes", boxes: Sequence[ChannelBox]) -> None:
    columns = _columns(boxes)
    starts = [group[0].channel for group in columns]
    edges = [start - 0.5 for start in starts] + [boxes[-1].channel + 0.5]
    light, middle, dark = "#dbe6f0", "#a9c3dc", COLORS["before"]
    for low, high, color, label in (
        ("low", "high", light, "smallest to largest"),
        ("p01", "p99", middle, "1 % to 99 %"),
        ("p25", "p75", dark, "middle half"),
    ):
        bottoms = [min(getattr(box, low) for box in group) for group in columns]
        tops = [max(getattr(box, high) for box in group) for group in columns]
        axes.stairs(tops, edges, baseline=bottoms, fill=True, color=color, linewidth=0, label=label)
    medians = [sum(box.median for box in group) / len(group) for group in columns]
    means = [sum(box.mean for box in group) / len(group) for group in columns]
    middles = [(left + right) / 2 for left, right in pairwise(edges)]
    axes.plot(middles, medians, color=COLORS["median"], linewidth=0.9, label="median")
    axes.plot(middles, means, color=COLORS["mean"], linestyle="--", linewidth=0.9, label="mean")
    axes.legend(loc="lower left", bbox_to_anchor=(0, 1), ncols=5)
    axes.margins(x=0)


def _choose_scale(axes: "Axes", spread: ChannelSpread) -> None:
    """An even scale; beyond the range of the median channel a logarithmic one, where channels differ too much."""
    ranges = sorted(box.reach for box in spread.boxes if box.reach > 0)
    if spread.range_ratio is None or spread.range_ratio < _UNEVEN:
        axes.set_ylabel("value")
        return
    # At a power of ten, because ticks stand there: within the even part they would cover each other.
    even = 10.0 ** round(math.log10(ranges[len(ranges) // 2] / 2))
    axes.set_yscale("symlog", linthresh=even, linscale=1.0)
    axes.set_ylabel("value (even near 0, then log)")


def _columns(boxes: Sequence[ChannelBox]) -> list[Sequence[ChannelBox]]:
    """Neighbouring channels that share a column of the picture."""
    size = -(-len(boxes) // _MOST_COLUMNS)
    return [boxes[start : start + size] for start in range(0, len(boxes), size)]


def _paint_levels(axes: "Axes", spread: ChannelSpread) -> None:
    from matplotlib.ticker import MaxNLocator

    columns = _columns(spread.boxes)
    edges = [group[0].channel - 0.5 for group in columns] + [spread.boxes[-1].channel + 0.5]
    fewest = [min(max(box.levels, _FEWEST_LEVELS) for box in group) for group in columns]
    axes.set_yscale("log", base=2)
    axes.stairs(fewest, edges, fill=True, color=COLORS["before"], alpha=0.5, linewidth=0, baseline=_FEWEST_LEVELS)
    axes.set_ylim(_FEWEST_LEVELS, None)
    colors = ("#e0a000", "#dd6600", "#cc0000")
    for bound, color in zip(LEVEL_BOUNDS, colors, strict=True):
        count = spread.below[str(bound)]
        label = f"fewer than {bound}: {count} of {spread.live}"
        axes.axhline(bound, color=color, linewidth=1.0, label=label)
    axes.yaxis.set_major_formatter(lambda value, _: f"{value:g}")
    axes.set_ylabel("levels" + (" if one scale" if spread.own_scales else ""))
    shared = len(spread.boxes) > _MOST_COLUMNS
    axes.set_xlabel(f"channel ({-(-len(spread.boxes) // _MOST_COLUMNS)} to a column)" if shared else "channel")
    axes.legend(loc="lower left", bbox_to_anchor=(0, 1), ncols=3)
    axes.xaxis.set_major_locator(MaxNLocator(integer=True, min_n_ticks=1))
