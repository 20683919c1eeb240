"""The picture of a distribution: values before and after quantization, clip thresholds, and what changed."""

import textwrap
from typing import TYPE_CHECKING

from roundoff.messages.numbers import decibels_text
from roundoff.report.plots.canvas import COLORS, PictureForm, draw, drawable, shortened
from roundoff.studies.distribution.result import Bins, Distribution, QuantizerFacts, ValueSummary

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

__all__ = ["distribution_picture"]

_WIDTH, _PANEL, _HEADER = 9.0, 2.3, 1.0
# Characters that fit in a line of the heading.
_LINE = 125
# A bin this many times as high as the next one is cut off, so that the others can be seen.
_SPIKE = 4.0


def distribution_picture(distribution: Distribution, *, form: PictureForm = "png") -> bytes:
    """Draw a distribution: in equal steps, logarithmically, and the difference where there is one.

    The blue triangle is the largest magnitude, red dashed lines are where values are clipped (the narrowest range
    where there are several).

    Raises:
        MissingExtra: matplotlib is not installed.
    """
    panels = 2 if distribution.difference is None else 3

    def paint(figure: "Figure") -> None:
        figure.suptitle(_title(distribution), fontsize=9, x=0.01, ha="left")
        axes = figure.subplots(panels, 1, squeeze=False)[:, 0]
        _paint_values(axes[0], distribution, logarithmic=False)
        _paint_values(axes[1], distribution, logarithmic=True)
        if distribution.difference is not None:
            _paint_difference(axes[2], distribution)

    return draw((_WIDTH, _HEADER + _PANEL * panels), paint, form=form)


def _title(distribution: Distribution) -> str:
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


def _paint_values(axes: "Axes", distribution: Distribution, *, logarithmic: bool) -> None:
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


def _paint_marks(axes: "Axes", distribution: Distribution) -> None:
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


def _paint_difference(axes: "Axes", distribution: Distribution) -> None:
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
