"""The picture of a calibration set: how ranges grow with the number of samples."""

from typing import TYPE_CHECKING

from roundoff.report.plots.canvas import COLORS, PictureForm, draw
from roundoff.studies.check_calibration.result import CalibrationCheck

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["calibration_picture"]


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
