"""The check of a calibration set: what is wrong, how ranges converge, who sets them."""

from roundoff.core.document import RunDocument
from roundoff.messages.catalogue import say
from roundoff.messages.sentences import known
from roundoff.pages.blocks import Chart, Column, Headline, Page, Series, Table, notes

__all__ = ["calibration_page"]

_FINDINGS = (
    Column("severity", say("check_calibration.severity"), "text"),
    Column("text", say("check_calibration.text"), "text"),
    Column("fix", say("check_calibration.text_fix"), "text"),
)
_POINTS = (
    Column("samples", say("check_calibration.samples"), "count"),
    Column("typical", say("check_calibration.typical"), "share"),
    Column("low", say("check_calibration.low"), "share"),
)
_RANGES = (
    Column("tensor", say("common.tensor"), "text"),
    Column("low", say("distribution.minimum"), "number"),
    Column("high", say("distribution.maximum"), "number"),
    Column("lone_sample", say("check_calibration.lone_sample"), "text"),
    Column("lone_factor", say("check_calibration.lone_factor"), "number", higher_is_better=False),
    Column("outside", say("check_calibration.outside"), "share", higher_is_better=False),
)


def calibration_page(document: RunDocument) -> Page | None:
    """The page on a calibration set; None when none was checked."""
    found = document.calibration_check
    if found is None:
        return None
    text = say("check_calibration.passes", samples=found.samples)
    if not found.passed:
        text = say("check_calibration.fails", count=len(found.faults), samples=found.samples)
    points = tuple((each.samples, each.typical, each.low) for each in found.curve)
    series = tuple(Series((column.id,), column.label) for column in _POINTS[1:])
    ranges = tuple(
        (each.tensor, each.low, each.high, each.lone_sample, each.lone_factor, each.outside)
        for each in found.ranges
    )
    blocks = (
        Headline("good" if found.passed else "bad", text),
        Table(
            "calibration",
            say("check_calibration.findings"),
            _FINDINGS,
            tuple((each.severity, known(each.text), known(each.fix)) for each in found.findings),
        ),
        Chart(
            "convergence-chart",
            say("check_calibration.curve"),
            "convergence",
            "samples",
            series,
            say("check_calibration.samples"),
            say("check_calibration.share"),
        ),
        Table("convergence", say("check_calibration.points"), _POINTS, points, folded=True),
        Table("ranges", say("check_calibration.text_ranges"), _RANGES, ranges, sort="-lone_factor", folded=True),
    )
    return Page("calibration", say("check_calibration.title"), (*blocks, *notes(found.notes)))
