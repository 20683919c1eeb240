"""The picture of a ranking of samples: the score of each, the worst first."""

import math
from typing import TYPE_CHECKING

from roundoff.messages.numbers import score_text
from roundoff.report.plots.canvas import COLORS, PictureForm, draw, drawable, shortened
from roundoff.studies.samples.result import WorstSamples

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["worst_samples_picture"]

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
