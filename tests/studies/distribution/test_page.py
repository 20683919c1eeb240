"""Distributions for people and programs: one page for terminal and files."""

import csv
import io
import math
from dataclasses import replace

from roundoff.messages.catalogue import Language
from roundoff.pages.blocks import Headline
from roundoff.report.pages import run_files
from roundoff.studies.distribution.page import DISTRIBUTION_CSV_START, distribution_page
from roundoff.studies.distribution.result import DistributionReport
from tests import inspections
from tests.inspections import HOSTILE
from tests.pages.shown import shown
from tests.report.documents import empty_document


def text_of(report: DistributionReport, width: int = 80, *, language: Language = "en") -> str:
    return shown(distribution_page(empty_document(distributions=report)), width, language=language)


def rows_of(report: DistributionReport, name: str) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(run_files(empty_document(distributions=report))[name])))


def test_few_distributions_are_cards() -> None:
    text = " ".join(text_of(inspections.distribution_report("conv1", "conv2")).split())
    assert text.startswith("0 of 2 distributions suit quantization (2 samples)")
    assert "conv1 node, Conv, 1x8x4x4" in text
    assert "peaks 1, near 0.01" in text
    assert "q: s8, step 0.02, 0.2 % clipped beyond -2.56 and 2.54" in text
    assert "200 of 256 used, 6.50 of 8 bits of information, 38.2 dB" in text
    assert "so 0.2 % of the values are clipped: do something" in text
    assert "exactness quantiles, peaks and histograms are read off bins 0.391 % of the value wide" in text
    assert "note: [a] note" in text


def test_many_distributions_are_a_table() -> None:
    report = inspections.distribution_report(*(f"conv{index}" for index in range(12)))
    first = report.distributions[0]
    report = replace(
        report, distributions=(inspections.distribution("x", quantized=False), first, *report.distributions)
    )
    text = text_of(report)
    assert "1 of 14 distributions suits quantization" in text
    (row,) = [line.split() for line in text.splitlines() if line.startswith("conv3 ") and "do" not in line]
    assert row == ["conv3", "s8", "-3", "2.5", "0.7", "0.2", "%", "200/256", "6.5", "38.2", "1"]
    assert "conv3: 0.2 % of the values are clipped" in text
    assert "5 more do not suit: conv7, conv8, conv9, conv10, conv11; CSV says why" in text
    page = distribution_page(empty_document(distributions=report))
    assert page is not None
    assert len(page.sections) == 14
    assert not any(isinstance(block, Headline) for each in page.sections for block in each.blocks)


def test_a_distribution_without_values_or_noise() -> None:
    one = inspections.distribution()
    assert one.quantizer is not None
    empty = replace(one.before, minimum=None, maximum=None, bins=None)
    exact = replace(one, before=empty, peaks=(), quantizer=replace(one.quantizer, sqnr_db=math.inf, axis=0))
    text = text_of(replace(inspections.distribution_report(), distributions=(exact,)))
    assert "no finite values" in text
    assert "bits of information, exact" in text
    assert "(narrowest channel)" in " ".join(text.split())


def test_a_tensor_that_nothing_quantizes_says_so() -> None:
    for each, words in ((inspections.distribution(), True), (inspections.distribution(quantized=False), False)):
        report = replace(inspections.distribution_report(), distributions=(replace(each, quantizer=None),))
        assert ("quantizer  none: computed as one with what follows it" in text_of(report)) is words


def test_everything_as_csv() -> None:
    report = inspections.distribution_report("conv1", HOSTILE)
    assert run_files(empty_document(distributions=report))["distribution.csv"].startswith(DISTRIBUTION_CSV_START)
    first, second = rows_of(report, "distribution.csv")
    assert (first["before_minimum"], first["quantizer_levels_used"], first["unimodal"]) == ("-3.0", "200", "yes")
    assert (first["peaks"], first["advice"]) == ("0.01", "0.2 % of the values are clipped: do something")
    assert second["name"] == "'" + HOSTILE.replace("\0", r"\x00")
    bins = rows_of(report, "histograms.csv")
    assert {row["values"] for row in bins} == {"before", "after", "difference"}
    counts = [float(row["count"]) for row in bins if row["values"] == "before" and row["name"] == "conv1"]
    before = report.distributions[0].before.bins
    assert before is not None
    assert counts == list(before.counts)


def test_several_peaks_that_begin_below_zero_stay_numbers() -> None:
    each = replace(inspections.distribution(), peaks=(-1.5, 2.0))
    report = replace(inspections.distribution_report(), distributions=(each,))
    assert rows_of(report, "distribution.csv")[0]["peaks"] == "-1.5 2.0"


def test_hostile_names_are_shown_as_they_are() -> None:
    for width in (80, 160):
        assert "[red]" in text_of(inspections.distribution_report(HOSTILE), width).replace("\n", "")
