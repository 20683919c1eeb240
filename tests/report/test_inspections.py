"""What people and programs read of distributions, channels, outliers and samples."""

import csv
import io
import math
from dataclasses import replace
from pathlib import Path

import pytest
from rich.cells import cell_len
from rich.console import Console, RenderableType

from roundoff.core.document import SCHEMA, Environment, RunDocument, load_document
from roundoff.messages.numbers import decibels, exactness, number, percentage
from roundoff.report.run_directory import write_run
from roundoff.studies.channels.terminal import CHANNELS_CSV_START, channels_csv, channels_page
from roundoff.studies.distribution.terminal import (
    DISTRIBUTION_CSV_START,
    distribution_csv,
    distribution_page,
    histogram_csv,
)
from roundoff.studies.outliers.terminal import OUTLIERS_CSV_START, outliers_csv, outliers_page
from roundoff.studies.samples.terminal import WORST_SAMPLES_CSV_START, worst_samples_csv, worst_samples_page
from tests import inspections
from tests.inspections import HOSTILE


def shown(page: RenderableType, width: int = 80) -> str:
    console = Console(width=width, file=io.StringIO(), highlight=False)
    console.print(page)
    text = console.file.getvalue()  # type: ignore[attr-defined]
    assert max(map(cell_len, text.splitlines())) <= width
    return str(text)


def table(text: str) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(text)))


def test_few_distributions_are_cards() -> None:
    text = " ".join(shown(distribution_page(inspections.distribution_report("conv1", "conv2"))).split())
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
    text = shown(distribution_page(report))
    assert "1 of 14 distributions suits quantization" in text
    (row,) = [line.split() for line in text.splitlines() if line.startswith("conv3 ") and "do" not in line]
    assert row == ["conv3", "s8", "-3", "2.5", "0.7", "0.2", "%", "200/256", "6.5", "38.2", "1"]
    assert "conv3: 0.2 % of the values are clipped" in text
    assert "5 more do not suit: conv7, conv8, conv9, conv10, conv11; CSV says why" in text


def test_a_distribution_without_values_or_noise() -> None:
    one = inspections.distribution()
    assert one.quantizer is not None
    empty = replace(one.before, minimum=None, maximum=None, bins=None)
    exact = replace(one, before=empty, peaks=(), quantizer=replace(one.quantizer, sqnr_db=math.inf, axis=0))
    text = shown(distribution_page(replace(inspections.distribution_report(), distributions=(exact,))))
    assert "no finite values" in text
    assert "nothing lost" in text
    assert "(narrowest channel)" in " ".join(text.split())


def test_distributions_as_csv() -> None:
    report = inspections.distribution_report("conv1", HOSTILE)
    text = distribution_csv(report)
    assert text.startswith(DISTRIBUTION_CSV_START)
    first, second = table(text)
    assert (first["before_minimum"], first["quantizer_levels_used"], first["unimodal"]) == ("-3.0", "200", "yes")
    assert second["name"] == f"'{HOSTILE}"
    bins = table(histogram_csv(report))
    assert {row["values"] for row in bins} == {"before", "after", "difference"}
    counts = [float(row["count"]) for row in bins if row["values"] == "before" and row["name"] == "conv1"]
    before = report.distributions[0].before.bins
    assert before is not None
    assert counts == list(before.counts)


def test_channels() -> None:
    text = shown(channels_page(inspections.channel_report("conv1")))
    assert text.startswith("1 of 1 tensor has channels with few levels (1 sample)")
    (row,) = [line.split() for line in text.splitlines() if line.startswith("conv1 ")]
    assert row == ["conv1", "1", "8", "1", "(u8)", "2", "2", "2", "0", "5.2", "high"]
    assert "conv1: many channels have fewer than 16 levels" in text
    assert "note: quantiles are read off bins up to 12.5 % of the value wide" in text
    lines = [line.split() for line in text.splitlines()]
    poorest = next(place for place, line in enumerate(lines) if line[:2] == ["channel", "levels"]) + 1
    assert lines[poorest][:3] == ["3", "3.5", "255"]


def test_of_many_tensors_the_worst_are_spoken_of() -> None:
    report = inspections.channel_report(*(f"conv{index}" for index in range(9)))
    spreads = [
        replace(each, below={"16": index, "4": index % 5, "1": 0}) for index, each in enumerate(report.spreads)
    ]
    text = shown(channels_page(replace(report, spreads=tuple(spreads))))
    told = [line.split(":")[0] for line in text.splitlines() if ": many channels" in line]
    assert told == ["conv4", "conv8", "conv3", "conv7", "conv2", "conv6"]
    assert "3 more with few levels stand in the table" in text


def test_channels_as_csv() -> None:
    report = inspections.channel_report("conv1", HOSTILE)
    text = channels_csv(report)
    assert text.startswith(CHANNELS_CSV_START)
    rows = table(text)
    assert len(rows) == 16
    assert [float(row["levels"]) for row in rows[:8]] == [box.levels for box in report.spreads[0].boxes]
    shown(channels_page(report))


def test_a_tensor_that_nothing_quantizes_says_so() -> None:
    for each, words in ((inspections.distribution(), True), (inspections.distribution(quantized=False), False)):
        page = distribution_page(
            replace(inspections.distribution_report(), distributions=(replace(each, quantizer=None),))
        )
        assert ("quantizer  none: computed as one with what follows it" in shown(page)) is words


def test_outliers() -> None:
    report = inspections.outlier_report("a", "b", "c")
    text = " ".join(shown(outliers_page(report), 100).split())
    assert text.startswith("2 of 3 tensors have channels of level 3 or more (2 samples); worst is c with 5.5 %")
    assert "level = log2(largest of the tensor / largest of the channel)" in text
    lines = [line.split() for line in shown(outliers_page(report), 100).splitlines()]
    order = [line[1] for line in lines if line and line[0] in "012" and "Conv" in line]
    assert order == ["c", "b", "a"]
    assert "1 tensor without a row: ids (its values are of the type int64)" in text
    cut = shown(outliers_page(report, sort="order", most=2), 100)
    assert "1 row that matters less is left out; --top all shows them" in cut
    assert cut.index("1 b ") < cut.index("2 c ")
    fused = replace(report, rows=(*report.rows[:2], replace(report.rows[2], quantized="fused")))
    text = " ".join(shown(outliers_page(fused), 100).split())
    assert text.startswith("1 of 2 tensors has channels of level 3 or more (2 samples); worst is b with 2 %")
    assert "; not counted: 1 fused tensor, never stored" in text
    assert text.index(" b Conv") < text.index(" a Conv") < text.index(" c Conv")
    quiet = replace(report, rows=report.rows[:1], skipped={})
    assert shown(outliers_page(quiet)).startswith("No channel is of level 3 or more in 1 tensor (2 samples)")


def test_outliers_as_csv() -> None:
    text = outliers_csv(inspections.outlier_report("a", HOSTILE))
    assert text.startswith(OUTLIERS_CSV_START)
    rows = table(text)
    assert (rows[1]["level_3"], rows[1]["level_3_ratio"], rows[1]["sparse_ratio"]) == ("4", "0.02", "0.005")


def test_worst_samples() -> None:
    text = " ".join(
        shown(worst_samples_page(inspections.worst_samples("x.jpg", "y.jpg", "z.jpg"), most=2)).split()
    )
    assert text.startswith(
        "The worst of 3 samples is x.jpg: no score, median 15.0; the largest output moves in 1 of 3"
    )
    assert "1 sample without a score" in text
    assert "2 y.jpg 12.0 0.90000 1 of 1" in text
    assert "z.jpg" not in text


def test_of_several_outputs_the_worst_is_shown() -> None:
    worst = inspections.worst_samples("a", "b", outputs=3)
    worse = replace(worst.samples[1].outputs[2], values={"sqnr_db": 1.5, "cosine": 0.25}, rows=0, moved_top=0)
    sample = replace(worst.samples[1], outputs=(*worst.samples[1].outputs[:2], worse))
    page = worst_samples_page(replace(worst, samples=(worst.samples[0], sample)))
    rows = {line[:1]: line.split() for line in shown(page).splitlines()}
    assert rows["#"] == ["#", "sample", "worst", "output", "sqnr_db", "cosine", "top", "moved"]
    assert rows["2"] == ["2", "b", "out2", "1.5", "0.25000", "2", "of", "2"]
    maps = [replace(each, outputs=tuple(replace(one, rows=0) for one in each.outputs)) for each in worst.samples]
    text = shown(worst_samples_page(replace(worst, samples=tuple(maps), moved_top=None)))
    assert "top moved" not in text
    assert "largest output" not in text


def test_worst_samples_as_csv() -> None:
    text = worst_samples_csv(inspections.worst_samples(HOSTILE, "b", outputs=2))
    assert text.startswith(WORST_SAMPLES_CSV_START)
    first, second = table(text)
    assert (first["score"], first["out0 status"], second["out1 sqnr_db"]) == ("", "nonfinite", "12.0")


@pytest.mark.parametrize("width", [80, 160])
def test_hostile_names_are_shown_as_they_are(width: int) -> None:
    for page in (
        distribution_page(inspections.distribution_report(HOSTILE)),
        channels_page(inspections.channel_report(HOSTILE)),
        outliers_page(inspections.outlier_report(HOSTILE)),
        worst_samples_page(inspections.worst_samples(HOSTILE, outputs=2)),
    ):
        assert "[red]" in shown(page, width).replace("\n", "")


def test_documents_can_be_read_again(tmp_path: Path) -> None:
    document = RunDocument(
        schema=SCHEMA,
        command=("roundoff",),
        inputs=(),
        distributions=inspections.distribution_report("conv1", HOSTILE),
        channels=inspections.channel_report("conv1"),
        outliers=inspections.outlier_report("a"),
        worst_samples=inspections.worst_samples("a", "b"),
        environment=Environment("0", "3", {}, "here", "float64", 1.0),
    )
    files = write_run(document, tmp_path / "run", force=False, pictures={"a.png": b"\x89PNG"})
    assert [path.name for path in files] == [
        "run.json", "distribution.csv", "histograms.csv", "channels.csv", "outliers.csv", "samples.csv", "a.png",
    ]  # fmt: skip
    assert load_document(tmp_path / "run") == document


def test_numbers_say_what_they_are() -> None:
    assert [number(value) for value in (None, 0.123456, 1e-12)] == ["", "0.1235", "1e-12"]
    assert [percentage(share) for share in (None, 0, 1, 0.9999, 1e-7, 0.123)] == [
        "", "0 %", "100 %", ">99.9 %", "<0.001 %", "12.3 %",
    ]  # fmt: skip
    assert [decibels(value) for value in (None, math.inf, 38.25)] == ["", "exact", "38.2"]
    assert exactness(0) == "every value is known"
