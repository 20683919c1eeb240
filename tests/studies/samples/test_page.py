"""A ranking of samples for people and programs: one page for terminal and files."""

import csv
import io
from dataclasses import replace

import pytest

from roundoff.messages.catalogue import Language
from roundoff.pages.blocks import View
from roundoff.report.pages import run_files
from roundoff.studies.samples.page import WORST_SAMPLES_CSV_START, samples_page
from roundoff.studies.samples.result import WorstSamples
from tests import inspections
from tests.inspections import HOSTILE
from tests.pages.shown import shown
from tests.report.documents import empty_document


def text_of(worst: WorstSamples, width: int = 80, *, most: int | None = None, language: Language = "en") -> str:
    return shown(samples_page(empty_document(worst_samples=worst), View(most)), width, language=language)


def test_the_worst_is_named_and_shown_first() -> None:
    text = " ".join(text_of(inspections.worst_samples("x.jpg", "y.jpg", "z.jpg"), most=2).split())
    assert text.startswith("The worst of 3 samples is x.jpg: no score, median 15.0 dB; top-1 changes in 1 of 3")
    assert "1 sample without a score" in text
    assert "2 y.jpg 12.0 0.90000 1 of 1" in text
    assert "z.jpg" not in text
    assert "1 row that matters less is left out" in text


def test_of_several_outputs_the_worst_is_shown() -> None:
    worst = inspections.worst_samples("a", "b", outputs=3)
    worse = replace(worst.samples[1].outputs[2], values={"sqnr_db": 1.5, "cosine": 0.25}, rows=0, moved_top=0)
    sample = replace(worst.samples[1], outputs=(*worst.samples[1].outputs[:2], worse))
    rows = {
        line[:1]: line.split() for line in text_of(replace(worst, samples=(worst.samples[0], sample))).splitlines()
    }
    assert rows["#"] == ["#", "sample", "worst", "output", "SQNR", "dB", "cosine", "moved"]
    assert rows["2"] == ["2", "b", "out2", "1.5", "0.25000", "2", "of", "2"]
    maps = [replace(each, outputs=tuple(replace(one, rows=0) for one in each.outputs)) for each in worst.samples]
    text = text_of(replace(worst, samples=tuple(maps), moved_top=None))
    assert "top-1" not in text


def test_a_cosine_below_one_is_never_shown_as_one() -> None:
    worst = inspections.worst_samples("a", "b")
    near = replace(worst.samples[1].outputs[0], values={"sqnr_db": 60.0, "cosine": 0.9999999})
    text = text_of(replace(worst, samples=(worst.samples[0], replace(worst.samples[1], outputs=(near,)))))
    assert "60.0 0.99999" in text


def test_everything_as_csv() -> None:
    worst = inspections.worst_samples(HOSTILE, "b", outputs=2)
    text = run_files(empty_document(worst_samples=worst))["samples.csv"]
    assert text.startswith(WORST_SAMPLES_CSV_START)
    first, second = csv.DictReader(io.StringIO(text))
    assert (first["score"], first["out0 status"], second["out1 sqnr_db"]) == ("", "nonfinite", "12.0")
    assert first["sample"].startswith("'=cmd")


@pytest.mark.parametrize("language", ["en", "zh"])
def test_hostile_names_are_shown_as_they_are(language: Language) -> None:
    for width in (80, 160):
        text = text_of(inspections.worst_samples(HOSTILE, outputs=2), width, language=language)
        assert "[red]" in text.replace("\n", "")
