"""Channels for people and programs: one page for terminal and files."""

import csv
import io
from dataclasses import replace

from roundoff.messages.catalogue import Language
from roundoff.messages.message import message
from roundoff.report.pages import run_files
from roundoff.studies.distribution.page import CHANNELS_CSV_START, channels_page
from roundoff.studies.distribution.result import ChannelReport
from tests import inspections
from tests.inspections import HOSTILE
from tests.pages.shown import shown
from tests.report.documents import empty_document


def text_of(report: ChannelReport, width: int = 80, *, language: Language = "en") -> str:
    return shown(channels_page(empty_document(channels=report)), width, language=language)


def rows_of(report: ChannelReport, name: str) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(run_files(empty_document(channels=report))[name])))


def test_the_poorest_channels_of_few_tensors_are_listed() -> None:
    text = text_of(inspections.channel_report("conv1"))
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
    text = text_of(replace(report, spreads=tuple(spreads)))
    told = [line.split(":")[0] for line in text.splitlines() if ": many channels" in line]
    assert told == ["conv4", "conv8", "conv3"]
    assert "6 more with few levels stand in the table" in text
    assert "channels with the fewest levels" not in text


def test_advice_is_told_in_the_language_of_the_terminal() -> None:
    report = inspections.channel_report("conv1")
    advice = message("channels.advice_few", few=2, all=8, gain="5.2")
    text = text_of(replace(report, spreads=(replace(report.spreads[0], advice=advice),)), language="zh")
    assert "8 个通道中有 2 个不足 16 级" in text


def test_everything_as_csv() -> None:
    report = inspections.channel_report("conv1", HOSTILE)
    assert run_files(empty_document(channels=report))["channels.csv"].startswith(CHANNELS_CSV_START)
    rows = rows_of(report, "channels.csv")
    assert len(rows) == 16
    assert [float(row["levels"]) for row in rows[:8]] == [box.levels for box in report.spreads[0].boxes]


def test_hostile_names_are_shown_as_they_are() -> None:
    for width in (80, 160):
        assert "[red]" in text_of(inspections.channel_report(HOSTILE), width).replace("\n", "")
