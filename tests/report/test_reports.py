"""What people and programs read: verdict, table, CSV, JUnit, JSON."""

import csv
import io
import math
import xml.etree.ElementTree as ET
from dataclasses import replace
from pathlib import Path

import pytest
from rich.console import Console, RenderableType

from roundoff.core.comparison import Comparison, TensorComparison, Verdict
from roundoff.core.document import SCHEMA, Environment, InputFile, RunDocument
from roundoff.core.scores import TensorScore
from roundoff.core.thresholds import Threshold, ThresholdSet
from roundoff.errors import BadInput
from roundoff.report.documents import load_document, to_json
from roundoff.report.junit import comparison_junit
from roundoff.report.run_directory import write_run
from roundoff.report.tables import comparison_csv
from roundoff.report.terminal import comparison_table, comparison_verdict

HOSTILE = "=cmd|'/c calc'!A1 <b>&\"\x00[red]\n名前"


def make_row(order: int, name: str, cosine: float, **changes: object) -> TensorComparison:
    noise = math.sqrt(max(0.0, 2 - 2 * cosine))
    values = {
        "cosine": cosine,
        "sqnr_db": -20 * math.log10(noise) if noise else math.inf,
        "relative_euclidean": noise,
    }
    row = TensorComparison(
        order=order,
        reference=name,
        candidate=f"cand {name}",
        node=f"n{order}",
        op_type="Conv",
        dtypes=("float32", "int8"),
        shapes=((1, 3), (1, 3)),
        how="name",
        confidence=1.0,
        layout="",
        samples=2,
        score=TensorScore("ok", values),
        passed=cosine >= 0.99,
    )
    return replace(row, **changes)  # type: ignore[arg-type]


def make_comparison(*rows: TensorComparison, **changes: object) -> Comparison:
    failing = [row for row in rows if row.passed is False]
    verdict = Verdict(
        compared=len(rows),
        passed=sum(row.passed is True for row in rows),
        failed=len(failing),
        first_divergence=failing[0].reference if failing else None,
        worst=tuple(row.reference for row in failing[:5]),
        introduces=tuple(row.reference for row in rows if row.role == "introduces"),
        victims=tuple(row.reference for row in rows if row.role == "victim"),
        gated=True,
    )
    base = Comparison(
        reference="ref",
        candidate="cand",
        samples=("0", "1"),
        ordered=True,
        thresholds=ThresholdSet("given", (Threshold("cosine", 0.99, higher_is_better=True),)),
        rows=rows,
        unmatched_reference=("lost",),
        unmatched_candidate=(),
        verdict=verdict,
    )
    return replace(base, **changes)  # type: ignore[arg-type]


BAD = make_row(1, "conv2", 0.7, kind="gain", difference="gain 0.5", role="introduces")
VICTIM = make_row(2, "relu2", 0.8, kind="noise", difference="noise, 4.0 dB below the signal", role="victim")
FOUND = make_comparison(make_row(0, "conv1", 1.0), BAD, VICTIM)
DOCUMENT = RunDocument(
    schema=SCHEMA,
    command=("roundoff", "compare", "a", "b"),
    inputs=(InputFile("reference", "a", 3, "00", "content"),),
    comparison=FOUND,
    environment=Environment("0.1.0", "3.11", {"numpy": "2"}, "host", "float64", 0.5),
)


def shown(renderable: RenderableType, width: int = 80) -> str:
    console = Console(width=width, file=io.StringIO(), color_system=None)
    console.print(renderable)
    return console.file.getvalue()  # type: ignore[attr-defined, no-any-return]


def test_the_verdict_says_it_in_a_few_lines() -> None:
    text = shown(comparison_verdict(FOUND), 100)
    lines = text.splitlines()
    assert [line.rstrip() for line in lines] == [
        "FAIL: 1 of 3 tensors pass (2 samples; cosine >= 0.99)",
        "  starts at      conv2 (Conv): gain 0.5",
        "  worst          conv2 (Conv): cosine 0.700000, 2.2 dB, gain 0.5",
        "                 relu2 (Conv): cosine 0.800000, 4.0 dB, noise, 4.0 dB below the signal",
        "  introduced by  conv2",
        "  victims        relu2 (their inputs were wrong already)",
        "  unmatched      1 only in the reference: lost",
    ]


def test_a_good_comparison_is_one_line() -> None:
    good = make_comparison(make_row(0, "conv1", 1.0), unmatched_reference=())
    assert shown(comparison_verdict(good)).startswith("PASS: 1 of 1 tensors pass (2 samples; cosine >= 0.99)")
    assert len(shown(comparison_verdict(good), 120).splitlines()) == 1


def test_the_table_fits_eighty_columns_and_keeps_whole_names() -> None:
    name = "/backbone/stage4/block_17/depthwise/conv2d/BiasAdd_output_0"
    text = shown(
        comparison_table(make_comparison(make_row(0, name, 0.5, kind="noise", difference="noise, 0.0 dB")))
    )
    assert max(len(line) for line in text.splitlines()) <= 80
    assert name in "".join(line[2:22].strip() for line in text.splitlines()) or name[:10] in text
    assert "0.500000" in text


def test_sorting_and_cutting_the_table() -> None:
    text = shown(comparison_table(FOUND, sort="worst", most=2), 120)
    assert text.index("conv2") < text.index("relu2")
    assert "conv1" not in text
    assert "... and 1 more rows; --rows all shows them" in text


def test_a_cosine_is_never_rounded_up_to_one() -> None:
    assert "0.999999" in shown(comparison_table(make_comparison(make_row(0, "t", 0.99999996))))
    assert "1.000000" in shown(comparison_table(make_comparison(make_row(0, "t", 1.0))))


def test_hostile_names_are_text_everywhere() -> None:
    found = make_comparison(make_row(0, HOSTILE, 0.5), unmatched_reference=(HOSTILE,))
    rows = list(csv.reader(io.StringIO(comparison_csv(found))))
    assert rows[1][1] == "'" + HOSTILE
    assert rows[2][1] == "'" + HOSTILE
    suite = ET.fromstring(comparison_junit(found))  # noqa: S314 - our own text
    case = next(suite.iter("testcase"))
    assert case.get("name", "").startswith("=cmd|'/c calc'!A1 <b>&\"\ufffd[red]")
    assert "[red]" in shown(comparison_table(found), 200)


def test_csv_holds_every_row_and_every_metric() -> None:
    rows = list(csv.DictReader(io.StringIO(comparison_csv(FOUND))))
    assert [row["reference"] for row in rows] == ["conv1", "conv2", "relu2", "lost"]
    assert (rows[0]["sqnr_db"], rows[0]["passed"]) == ("inf", "yes")
    assert float(rows[1]["cosine"]) == 0.7
    assert (rows[3]["status"], rows[3]["detail"]) == ("missing", "only in the reference")


def test_junit_counts_and_explains() -> None:
    unjudged = make_row(3, "softmax", 0.5, passed=None)
    suites = ET.fromstring(comparison_junit(make_comparison(*FOUND.rows, unjudged)))  # noqa: S314 - our own text
    assert {key: suites.get(key) for key in ("tests", "failures", "errors", "skipped")} == {
        "tests": "5",
        "failures": "2",
        "errors": "0",
        "skipped": "2",
    }
    messages = [failure.get("message") for failure in suites.iter("failure")]
    assert messages[0] == "gain 0.5; cosine 0.7, needs cosine >= 0.99"


def test_a_document_survives_the_round_trip(tmp_path: Path) -> None:
    files = write_run(DOCUMENT, tmp_path / "run", force=False)
    assert [file.name for file in files] == ["run.json", "tensors.csv"]
    assert load_document(tmp_path / "run") == DOCUMENT
    assert load_document(tmp_path / "run" / "run.json").comparison.rows[0].score.values["sqnr_db"] == math.inf


def test_the_same_run_gives_the_same_text() -> None:
    assert to_json(DOCUMENT) == to_json(DOCUMENT)
    assert '"sqnr_db": "inf"' in to_json(DOCUMENT)


@pytest.mark.parametrize(
    ("text", "message"),
    [("{", "is not a run document"), ('{"schema": 99}', "has schema 99"), ("[]", "has schema None"),
     ('{"schema": 1}', "is not a run document")],
)  # fmt: skip
def test_other_files_are_refused(tmp_path: Path, text: str, message: str) -> None:
    file = tmp_path / "run.json"
    file.write_text(text, encoding="utf-8")
    with pytest.raises(BadInput, match=message):
        load_document(file)


def test_a_result_is_replaced_only_with_force(tmp_path: Path) -> None:
    write_run(DOCUMENT, tmp_path / "run", force=False)
    with pytest.raises(BadInput, match="already holds a result"):
        write_run(DOCUMENT, tmp_path / "run", force=False)
    (tmp_path / "run" / "tensors.csv").unlink()
    write_run(DOCUMENT, tmp_path / "run", force=True)
    assert (tmp_path / "run" / "tensors.csv").exists()
    assert [path.name for path in tmp_path.iterdir()] == ["run"]
