"""The check of a calibration set: what is wrong, how ranges converge, who sets them."""

from collections.abc import Iterator

from roundoff import pages
from roundoff.core.document import RunDocument
from roundoff.messages.catalogue import bilingual, commas, count_of, in_all_languages, plain, semicolons, translate
from roundoff.messages.message import shown
from roundoff.messages.numbers import number, percentage
from roundoff.studies.check_calibration.result import CalibrationCheck, ConvergencePoint, InputFacts, RangeRow

_MOST_CHANNELS = 4
# A range that a single sample widens by less is not set by it alone.
_SHOWN_FACTOR = 1.005
_POINTS: list[pages.ColumnOf[ConvergencePoint]] = [
    pages.column("samples", "check_calibration.samples", "count", on="html csv"),
    pages.column("typical", "check_calibration.typical", "share", on="html csv"),
    pages.column("low", "check_calibration.low", "share", on="html csv"),
]
_RANGES: list[pages.ColumnOf[RangeRow]] = [
    pages.column("tensor", "common.tensor", "node"),
    pages.column("low", "distribution.minimum", "number", short="check_calibration.column_low"),
    pages.column("high", "distribution.maximum", "number", short="check_calibration.column_high"),
    pages.column("half", "check_calibration.half", "share", short="check_calibration.column_half"),
    pages.column(
        "outside", "check_calibration.outside", "share", higher_is_better=False, short="check_calibration.held_out"
    ),
    pages.column(
        "times",
        "check_calibration.column_lone",
        "number",
        lambda row: plain(f"x{row.lone_factor:.3g}" if row.lone_factor > _SHOWN_FACTOR else ""),
        on="terminal",
    ),
    pages.column(
        "by",
        "check_calibration.column_by",
        cell=lambda row: row.lone_sample if row.lone_factor > _SHOWN_FACTOR else "",
        on="terminal",
    ),
    pages.column("lone_sample", "check_calibration.lone_sample", on="html csv"),
    pages.column("lone_factor", "check_calibration.lone_factor", "number", higher_is_better=False, on="html csv"),
    *(pages.column(name, name, "number", on="csv") for name in ("outside_before", "overshoot", "exceeding")),
]
_FILE = (
    "tensor", "low", "high", "half", "lone_sample", "lone_factor", "outside", "outside_before", "overshoot",
    "exceeding",
)  # fmt: skip
_Line = tuple[str, str]


def calibration_page(document: RunDocument, view: pages.View = pages.View()) -> pages.Page | None:  # noqa: B008 - frozen
    """The page on a calibration set; None when none was checked.

    Args:
        document: The run.
        view: Rows of ranges in a terminal, those first that matter most.
    """
    found = document.calibration_check
    if found is None:
        return None
    series = tuple(pages.Series((each.column.id,), each.column.label) for each in _POINTS[1:])
    axes = (bilingual("check_calibration.samples"), bilingual("check_calibration.share"))
    caption = bilingual("check_calibration.curve")
    blocks = (
        _headline(found),
        pages.bilingual_facts(lambda: _lines(found)),
        pages.Chart("convergence-chart", caption, "convergence", "samples", series, *axes),
        pages.table("convergence", "check_calibration.points", _POINTS, found.curve, folded=True),
        _ranges(found, view),
    )
    return pages.Page("calibration", bilingual("check_calibration.title"), (*blocks, *pages.notes(found.notes)))


def _headline(check: CalibrationCheck) -> pages.Headline:
    faults, remarks = len(check.faults), len(check.findings) - len(check.faults)

    def text() -> str:
        seen = {"samples": count_of(check.samples, "sample"), "data": check.data}
        said = translate("check_calibration.not_fit", count=faults, **seen) if faults else ""
        said = said or translate("check_calibration.ok", **seen)
        remarked = translate("check_calibration.remarks", count=remarks) if remarks else ""
        return commas(
            said, remarked, translate("check_calibration.target", target=check.target, method=check.method)
        )

    if faults:
        return pages.Headline("bad", in_all_languages(text), word=bilingual("check_calibration.word_not_fit"))
    return pages.Headline("good", in_all_languages(text), word=bilingual("check_calibration.word_ok"))


def _lines(check: CalibrationCheck) -> Iterator[_Line]:
    for finding in check.findings:
        word = translate(f"check_calibration.kind_{finding.kind}")
        if finding.severity != "fault":
            word = translate("check_calibration.remark", word=word)
        yield word, shown(finding.text)
        yield "", translate("check_calibration.fix", text=shown(finding.fix))
    yield from _converged(check)
    if check.held_out:
        held_out = commas(count_of(check.held_out_samples, "sample"), shown(check.held_out))
        yield translate("check_calibration.held_out"), held_out
    for facts in check.inputs:
        yield translate("check_calibration.input"), _input(facts)


def _converged(check: CalibrationCheck) -> Iterator[_Line]:
    if check.growth is None:
        return
    curve = ", ".join(f"{point.samples}: {percentage(point.typical)}" for point in check.curve[-5:])
    yield translate("check_calibration.ranges"), translate("check_calibration.width", curve=curve)
    # How many of the wrong samples would do is no advice.
    if check.enough is None or check.faults:
        return
    if check.enough < check.samples:
        yield "", translate("check_calibration.enough", samples=count_of(check.enough, "sample"))
    elif check.enough > check.samples:
        yield "", translate("check_calibration.about_enough", samples=count_of(check.enough, "sample"))


def _input(facts: InputFacts) -> str:
    low, high = number(facts.low, 3), number(facts.high, 3)
    text = translate("check_calibration.facts", name=facts.name, low=low, high=high)
    if 0 < len(facts.means) <= _MOST_CHANNELS:
        means = " ".join(number(each, 3) for each in facts.means)
        stds = " ".join(number(each, 3) for each in facts.stds)
        text = commas(text, translate("check_calibration.means", means=means, stds=stds))
    like = translate("check_calibration.looks_like", what=shown(facts.looks_like)) if facts.looks_like else ""
    return semicolons(text, like)


def _ranges(check: CalibrationCheck, view: pages.View) -> pages.TableBlock:
    def rank(place: int) -> tuple[float, float, float]:
        row = check.ranges[place]
        return -(row.outside or 0.0), -row.lone_factor, row.half

    return pages.table(
        "ranges",
        "check_calibration.table",
        _RANGES,
        check.ranges,
        sort="-lone_factor",
        folded=True,
        file="calibration.csv",
        most=view.most,
        order=tuple(sorted(range(len(check.ranges)), key=rank)),
        csv_order=_FILE,
    )
