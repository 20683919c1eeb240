"""Pictures of values: histograms before and after quantization, channels, and the outlier table."""

import math
import textwrap
from collections.abc import Sequence
from itertools import pairwise
from typing import TYPE_CHECKING

from roundoff.messages.numbers import decibels_text
from roundoff.report.plots.curves import COLORS, PictureForm, draw, drawable, shortened
from roundoff.studies.distribution.result import (
    LEVEL_BOUNDS,
    OUTLIER_LEVELS,
    Bins,
    ChannelBox,
    ChannelSpread,
    OutlierReport,
    OutlierRow,
    QuantizerFacts,
    TensorDistribution,
    ValueSummary,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_WIDTH, _PANEL, _HEADER = 9.0, 2.3, 1.0
# Characters that fit in a line of the heading.
_LINE = 125
# A bin this many times as high as the next one is cut off, so that the others can be seen.
_SPIKE = 4.0


def distribution_picture(distribution: TensorDistribution, *, form: PictureForm = "png") -> bytes:
    """Draw a distribution: in equal steps, logarithmically, and the difference where there is one.

    The blue triangle is the largest magnitude, red dashed lines are where values are clipped (the narrowest range
    where there are several).

    Raises:
        MissingExtra: matplotlib is not installed.
    """
    panels = 2 if distribution.difference is None else 3

    def paint(figure: "Figure") -> None:
        figure.suptitle(_distribution_title(distribution), fontsize=9, x=0.01, ha="left")
        axes = figure.subplots(panels, 1, squeeze=False)[:, 0]
        _paint_values(axes[0], distribution, logarithmic=False)
        _paint_values(axes[1], distribution, logarithmic=True)
        if distribution.difference is not None:
            _paint_difference(axes[2], distribution)

    return draw((_WIDTH, _HEADER + _PANEL * panels), paint, form=form)


def _distribution_title(distribution: TensorDistribution) -> str:
    name = drawable(shortened(distribution.name, 90))
    shape = "x".join(map(str, distribution.shape)) or "scalar"
    where = f"{distribution.kind}, {distribution.op_type}" if distribution.op_type else distribution.kind
    lines = [f"{name}   ({drawable(where)}, {shape})", _numbers(distribution.before)]
    if distribution.quantizer is not None:
        lines.append(_facts(distribution.quantizer))
    lines += textwrap.wrap(str(distribution.advice), _LINE)
    return "\n".join(lines)


def _numbers(values: ValueSummary) -> str:
    if values.minimum is None or values.maximum is None:
        return "no finite values"
    text = f"{values.minimum:.4g} to {values.maximum:.4g}, mean {values.mean:.4g}, std {values.std:.4g}"
    if values.skewness is not None and values.excess_kurtosis is not None:
        text += f", skewness {values.skewness:.2f}, excess kurtosis {values.excess_kurtosis:.2f}"
    return text


def _facts(facts: QuantizerFacts) -> str:
    scales = "a scale per channel" if facts.axis is not None else f"step {facts.scales[0]:.4g}"
    levels = f"{facts.levels_used} of {facts.levels} levels" if facts.levels <= 1 << 16 else ""
    clipped = f"clipped {100 * facts.clipped:.3g} %"
    entropy = f"{facts.entropy_bits:.2f} bits of information"
    sqnr = "" if facts.sqnr_db is None else decibels_text(facts.sqnr_db)
    return ", ".join(filter(None, [facts.dtype, scales, levels, clipped, entropy, sqnr]))


def _paint_values(axes: "Axes", distribution: TensorDistribution, *, logarithmic: bool) -> None:
    sides = [("before", "float", distribution.before)]
    if distribution.after is not None:
        sides.append(("after", "quantized", distribution.after))
    highest: list[float] = []
    for key, label, values in sides:
        if values.bins is None:
            continue
        shares = _shares(values.bins, values)
        highest += shares
        filled = key == "before"
        axes.stairs(
            shares,
            values.bins.edges,
            fill=filled,
            color=COLORS[key],
            alpha=0.45 if filled else 1.0,
            linewidth=0 if filled else 1.0,
            label=label,
        )
    if not highest:
        axes.text(0.5, 0.5, "no finite values", transform=axes.transAxes, ha="center")
        return
    if logarithmic:
        axes.set_yscale("log")
        axes.set_ylim(bottom=max(min(share for share in highest if share > 0) * 0.5, 1e-7))
        axes.yaxis.set_major_formatter(lambda value, _: f"{value:g}")
        axes.yaxis.set_minor_formatter(lambda value, _: "")
    elif distribution.before.bins is not None:
        _cut_spike(axes, distribution.before.bins, highest)
    axes.set_ylabel("% of values" + (", log" if logarithmic else ""))
    _paint_marks(axes, distribution)
    if logarithmic:
        axes.set_xlabel("value")
    else:
        _legend(axes)


def _legend(axes: "Axes") -> None:
    """Above the axes, where it hides nothing."""
    axes.legend(loc="lower left", bbox_to_anchor=(0, 1), borderaxespad=0.2, ncols=4)


def _shares(bins: Bins, values: ValueSummary) -> list[float]:
    total = max(1, values.count - values.nonfinite)
    return [100 * count / total for count in bins.counts]


def _cut_spike(axes: "Axes", bins: Bins, shares: list[float]) -> None:
    """Leave the top of a single high bin out of the picture, and write its height there."""
    own = shares[: len(bins.counts)]
    peak = max(range(len(own)), key=lambda index: own[index])
    others = max((share for index, share in enumerate(own) if abs(index - peak) > 1), default=0.0)
    if others <= 0 or own[peak] < _SPIKE * others:
        axes.set_ylim(0, 1.08 * max(shares))
        return
    axes.set_ylim(0, 1.5 * others)
    middle = bins.start + (peak + 0.5) * bins.width
    where = 0.0 if abs(middle) < bins.width else middle
    axes.annotate(
        f"{own[peak]:.1f} % near {where:.3g}",
        (middle, 1.5 * others),
        xytext=(8, -4),
        textcoords="offset points",
        va="top",
        fontsize=8,
        color=COLORS["quiet"],
        bbox={"facecolor": "white", "edgecolor": "none", "pad": 1.5},
    )


def _paint_marks(axes: "Axes", distribution: TensorDistribution) -> None:
    values, facts = distribution.before, distribution.quantizer
    if values.minimum is not None and values.maximum is not None:
        largest = values.maximum if abs(values.maximum) >= abs(values.minimum) else values.minimum
        place = axes.get_xaxis_transform()
        axes.plot(
            [largest], [0.0], "^", color="#0000dd", markersize=9, clip_on=False, transform=place,
            label=f"largest magnitude {abs(largest):.4g}", zorder=5,
        )  # fmt: skip
    if facts is None or facts.bits > 16:
        return
    whose = "" if facts.axis is None else " (narrowest channel)"
    label = f"clipped beyond {facts.low:.4g} and {facts.high:.4g}{whose}"
    for border in (facts.low, facts.high):
        axes.axvline(border, color=COLORS["threshold"], linestyle="--", linewidth=1.2, label=label)
        label = "_nolegend_"


def _paint_difference(axes: "Axes", distribution: TensorDistribution) -> None:
    values = distribution.difference
    if values is None or values.bins is None or values.minimum is None:
        axes.text(0.5, 0.5, "no difference to show", transform=axes.transAxes, ha="center")
        return
    shares = _shares(values.bins, values)
    label = f"quantized less float: mean {values.mean:.3g}, std {values.std:.3g}"
    axes.stairs(shares, values.bins.edges, fill=True, color=COLORS["difference"], alpha=0.6, label=label)
    axes.set_ylabel("% of values")
    axes.set_xlabel("difference")
    _cut_spike(axes, values.bins, shares)
    _legend(axes)


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
        figure.suptitle(_channels_title(spread), fontsize=10, x=0.01, ha="left")
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


def _channels_title(spread: ChannelSpread) -> str:
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


# Up to so many tensors each has its name on the axis; beyond that the worst are listed beside the picture.
_MOST_TENSORS, _WORST_LISTED = 40, 12
_SHADES = ("#f3d9a4", "#eeb05c", "#dd7722", "#a83200")


def outliers_picture(report: OutlierReport, *, form: PictureForm = "png") -> bytes:
    """Draw the shares of channels at each level, tensors in execution order.

    Raises:
        MissingExtra: matplotlib is not installed.
    """
    many = len(report.rows) > _MOST_TENSORS

    def paint(figure: "Figure") -> None:
        axes = figure.subplots(1, 2, width_ratios=(4, 1))[0] if many else figure.subplots()
        base = f"{report.log_base:.4g}"
        title = f"Channels whose level, log{base}(largest of the tensor / largest of the channel), is at least ..."
        axes.set_title(title, loc="left", pad=22)
        if not report.rows:
            axes.text(0.5, 0.5, "no tensor has channels", transform=axes.transAxes, ha="center")
            return
        _paint_level_shares(axes, report.rows)
        if many:
            _list_worst(figure.axes[1], report.rows)
            axes.set_xlabel(f"{len(report.rows)} tensors in execution order")
        else:
            names = [drawable(shortened(row.tensor, 34)) for row in report.rows]
            axes.set_xticks(range(len(names)), names, rotation=90, fontsize=7)

    return draw((13.0 if many else 9.0, 5.0), paint, form=form)


def _paint_level_shares(axes: "Axes", rows: Sequence[OutlierRow]) -> None:
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
