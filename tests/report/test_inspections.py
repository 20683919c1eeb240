"""What looking at tensors finds is written and read again."""

import math
from pathlib import Path

from roundoff.core.document import SCHEMA, Environment, RunDocument, load_document
from roundoff.messages.message import verbatim
from roundoff.messages.numbers import decibels, number, percentage
from roundoff.report.pages import write_run
from tests import inspections
from tests.inspections import HOSTILE


def test_documents_can_be_read_again(tmp_path: Path) -> None:
    document = RunDocument(
        schema=SCHEMA,
        command=("roundoff",),
        inputs=(),
        distributions=inspections.distribution_report("conv1", HOSTILE),
        channels=inspections.channel_report("conv1"),
        outliers=inspections.outlier_report("a"),
        worst_samples=inspections.worst_samples("a", "b"),
        environment=Environment("0", "3", {}, "here", verbatim("float64"), 1.0),
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
