"""Pictures of curves: accumulated error along a network, and scores of a sweep."""

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

from roundoff.report.plots.canvas import COLORS, PictureForm, draw, drawable, shortened
from roundoff.studies.accumulate.result import Accumulation, CurveNode
from roundoff.studies.partial.result import PartialQuantization

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

__all__ = ["accumulation_picture", "partial_picture"]

# Up to so many nodes each has its name on the axis; of more only the outputs and what the verdict names.
_MOST_NAMED = 40
# More are beside the picture, and of more than fit there the first ones and the last.
_MOST_IN_PICTURE, _MOST_IN_LEGEND = 12, 24
_BASE_COLOR = "#222222"
_PALETTE = ("#4477aa", "#ee6677", "#228833", "#ccbb44", "#66ccee", "#aa3377", "#ee7733", "#777777")
# More curves than colours are a sweep, whose colours run from its first to its last.
_SWEEP_COLORS = "viridis"


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
        for number, curve in enumerate(found.curves):
            values = [_finite(value) for value in found.shown(curve)]
            base = number == 0
            axes.plot(
                range(len(values)),
                values,
                color=colors[number],
                linewidth=2.2 if base else 1.3,
                marker="o" if names else None,
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
