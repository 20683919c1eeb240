"""What people and programs read: verdict, table, CSV, JUnit, JSON."""

import csv
import io
import math
import xml.etree.ElementTree as ET
from dataclasses import replace
from pathlib import Path

import pytest
from rich.console import Console, RenderableType

from roundoff.core.coverage import OutputCoverage, Unjudged
from roundoff.core.document import SCHEMA, Environment, InputFile, RunDocument, load_document, to_json
from roundoff.errors import BadInput
from roundoff.measure.metrics import TensorScore
from roundoff.measure.verdicts import Threshold, ThresholdSet
from roundoff.messages.catalogue import use_language
from roundoff.messages.message import verbatim
from roundoff.pages.blocks import Facts, View
from roundoff.pages.terminal import terminal_page
from roundoff.report.junit import comparison_junit
from roundoff.report.pages import run_files, write_run
from roundoff.studies.compare.page import comparison_page
from roundoff.studies.compare.result import Comparison, TensorComparison, Verdict

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
        missing_outputs=(),
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


BAD = make_row(1, "conv2", 0.7, kind="gain", difference=verbatim("gain 0.5"), role="introduces")
VICTIM = make_row(
    2, "relu2", 0.8, kind="noise", difference=verbatim("noise, 4.0 dB below the signal"), role="victim"
)
FOUND = make_comparison(make_row(0, "conv1", 1.0), BAD, VICTIM)
DOCUMENT = RunDocument(
    schema=SCHEMA,
    command=("roundoff", "compare", "a", "b"),
    inputs=(InputFile("reference", "a", 3, "00", "content"),),
    comparison=FOUND,
    environment=Environment("0.1.0", "3.11", {"numpy": "2"}, "host", verbatim("float64"), 0.5),
)


def shown(renderable: RenderableType, width: int = 80) -> str:
    console = Console(width=width, file=io.StringIO(), color_system=None)
    console.print(renderable)
    return console.file.getvalue()  # type: ignore[attr-defined, no-any-return]


def page(found: Comparison, *, sort: str = "", most: int | None = None) -> RenderableType:
    made = comparison_page(replace(DOCUMENT, comparison=found), View(most, sort))
    assert made is not None
    return terminal_page(made)


def verdict(found: Comparison, width: int = 120) -> str:
    """What stands above the table."""
    return shown(page(found), width).partition("\n\n")[0]


def table(found: Comparison, width: int = 80, *, sort: str = "", most: int | None = None) -> str:
    """The table and what stands below it."""
    return shown(page(found, sort=sort, most=most), width).partition("\n\n")[2]


def comparison_csv(found: Comparison) -> str:
    return run_files(replace(DOCUMENT, comparison=found))["tensors.csv"]


def test_the_verdict_says_it_in_a_few_lines() -> None:
    text = verdict(FOUND, 100)
    lines = text.splitlines()
    assert [line.rstrip() for line in lines] == [
        "FAIL: 1 of 3 tensors passes (2 samples)",
        "  starts at  conv2 (Conv): 2.2 dB, cosine 0.70000, gain 0.5",
        "  map        .XX?  (X differs, ? not compared)",
        "  victims    1 tensor, relu2 first: inherited from inputs",
        "  unmatched  1 only in the reference: lost",
        "  judged by  cosine >= 0.99",
    ]


def verdict_lines(*rows: TensorComparison, **changes: object) -> list[str]:
    text = verdict(make_comparison(*rows, unmatched_reference=(), **changes))
    return [line.strip() for line in text.splitlines()]


def test_a_good_comparison_is_two_lines() -> None:
    limits = ThresholdSet("rknn", (Threshold("cosine", 0.98, higher_is_better=True),))
    assert verdict_lines(make_row(0, "conv1", 1.0), thresholds=limits) == [
        "PASS: 1 of 1 tensor passes (2 samples)",
        "judged by  cosine >= 0.98 (profile rknn)",
    ]


def test_a_single_failing_tensor_is_named_once() -> None:
    lines = verdict_lines(make_row(0, "conv1", 1.0), make_row(1, "conv2", 0.7, difference=verbatim("gain 0.5")))
    [said] = [line for line in lines if "conv2" in line]
    assert said == "starts at  conv2 (Conv): 2.2 dB, cosine 0.70000, gain 0.5"


def test_a_layout_of_few_tensors_names_them() -> None:
    many = [make_row(i, f"t{i}", 1.0, layout="NHWC -> NCHW") for i in range(4)]
    few = [make_row(i, f"t{i}", 1.0, layout="axes 2,3 swapped") for i in (4, 5)]
    assert "layouts    undone: NHWC -> NCHW (4 tensors), axes 2,3 swapped (t4, t5)" in verdict_lines(*many, *few)


NAN = make_row(
    1, "nan", 1.0, passed=False, kind="nonfinite", difference=verbatim("3 elements are NaN in the candidate only"),
    score=TensorScore("nonfinite", {"cosine": 1.0, "sqnr_db": math.inf, "relative_euclidean": 0.0}, "3 left out"),
)  # fmt: skip


def test_a_tensor_with_nan_never_looks_perfect() -> None:
    both = comparison_page(replace(DOCUMENT, comparison=make_comparison(make_row(0, "conv1", 0.5), NAN)))
    assert both is not None
    told = [text.en for block in both.blocks if isinstance(block, Facts) for _, text in block.rows]
    assert "nan (Conv): 3 elements are NaN in the candidate only" in told
    line = table(make_comparison(NAN), 120).splitlines()[1]
    assert "(1.00000)" in line
    assert "(exact)" in line
    assert "(0)" in line


def test_the_table_fits_eighty_columns_and_keeps_whole_names() -> None:
    name = "/backbone/stage4/block_17/depthwise/conv2d/BiasAdd_output_0"
    text = table(make_comparison(make_row(0, name, 0.5, kind="noise", difference=verbatim("noise, 0.0 dB"))))
    assert max(len(line) for line in text.splitlines()) <= 80
    assert name in "".join(line[2:22].strip() for line in text.splitlines()) or name[:10] in text
    assert "0.50000" in text


def table_names(found: Comparison, *, sort: str = "order", most: int | None = None) -> tuple[list[str], str]:
    """The tensors of the table in its order, and the line below it."""
    lines = [
        line.split()
        for line in table(found, 160, sort=sort, most=most).splitlines()
        if not line.lstrip().startswith("#")
    ]
    last = " ".join(lines.pop()) if lines and "--rows" in lines[-1] else ""
    return [words[1] for words in lines], last


LOST = make_row(3, "lost", 1.0, passed=False, score=TensorScore("shape", {}, "shapes differ"))


def test_failing_rows_come_first_when_sorted() -> None:
    # Worse by its error than any other, and yet it passes: the thresholds look at something else.
    lenient = make_row(4, "lenient", 0.1, passed=True)
    found = make_comparison(make_row(0, "conv1", 1.0), NAN, BAD, LOST, lenient)
    assert table_names(found, sort="worst") == (["nan", "lost", "conv2", "lenient", "conv1"], "")
    found = make_comparison(*(replace(row, order=order) for order, row in enumerate(found.rows)))
    names, last = table_names(found, sort="worst", most=2)
    assert names == ["nan", "lost"]
    assert last == "3 rows, of which 1 fails, are left out; --rows all shows them"


def in_order(count: int, *failing: int) -> Comparison:
    return make_comparison(*(make_row(i, f"t{i}", 0.5 if i in failing else 1.0) for i in range(count)))


@pytest.mark.parametrize(
    ("found", "most", "names", "last"),
    [
        (in_order(9, 7), 3, ["t6", "t7", "t8"], "6 rows that pass are left out; --rows all shows them"),
        (in_order(9, 4, 8), 2, ["t4", "t8"], "7 rows that pass are left out; --rows all shows them"),
        (in_order(4, 3), 3, ["t1", "t2", "t3"], "1 row that passes is left out; --rows all shows it"),
        (in_order(4), 2, ["t0", "t1"], "2 rows that pass are left out; --rows all shows them"),
        (in_order(4, 1, 2, 3), 2, ["t1", "t2"], "2 rows, of which 1 fails, are left out; --rows all shows them"),
        (in_order(3, 2), 0, [], ""),
        (in_order(3, 2), 3, ["t0", "t1", "t2"], ""),
        (
            make_comparison(BAD, make_row(2, "softmax", 0.5, passed=None)), 1, ["conv2"],
            "1 row that does not fail is left out; --rows all shows it",
        ),
    ],
)  # fmt: skip
def test_what_fails_is_always_shown(found: Comparison, most: int, names: list[str], last: str) -> None:
    assert table_names(found, most=most) == (names, last)


def test_long_remarks_are_cut_and_unusual_layouts_are_said() -> None:
    long = make_row(0, "t0", 0.5, difference=verbatim("the file " + "x" * 100), layout="axes 2,3 swapped")
    usual = [make_row(i, f"t{i}", 1.0, layout="NHWC -> NCHW") for i in (1, 2)]
    text = table(make_comparison(long, *usual), 200)
    assert f"the file {'x' * 48}...; layout: axes 2,3 swapped" in text
    assert "NHWC" not in text


def test_a_cosine_is_never_rounded_up_to_one() -> None:
    assert "0.99999" in table(make_comparison(make_row(0, "t", 0.99999996)))
    assert "1.00000" in table(make_comparison(make_row(0, "t", 1.0)))


def test_hostile_names_are_text_everywhere() -> None:
    found = make_comparison(make_row(0, HOSTILE, 0.5), unmatched_reference=(HOSTILE,))
    rows = list(csv.reader(io.StringIO(comparison_csv(found))))
    harmless = "'" + HOSTILE.replace("\0", r"\x00")
    assert [row[1] for row in rows[1:3]] == [harmless, harmless]
    suite = ET.fromstring(comparison_junit(found))  # noqa: S314 - our own text
    case = next(suite.iter("testcase"))
    assert case.get("name", "").startswith("=cmd|'/c calc'!A1 <b>&\"\\x00[red]")
    assert "[red]" in table(found, 200)


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


def test_a_missing_output_is_a_failure() -> None:
    found = make_comparison(make_row(0, "conv1", 1.0), unmatched_reference=("inner", "logits"))
    outputs = OutputCoverage(("boxes",), (Unjudged("logits", "missing"),))
    found = replace(found, verdict=replace(found.verdict, missing_outputs=("logits",)), outputs=outputs)
    suites = ET.fromstring(comparison_junit(found))  # noqa: S314 - our own text
    assert [suites.get(key) for key in ("tests", "failures", "skipped")] == ["3", "1", "1"]
    messages = [failure.get("message") for failure in suites.iter("failure")]
    assert messages == ["not judged: not in the candidate"]
    lines = [line.strip() for line in verdict(found).splitlines()]
    assert lines[0] == "INCOMPLETE: 1 of 1 tensor passes (2 samples), but not every output was judged"
    assert "outputs    1 of 2 outputs judged; not judged: logits (not in the candidate)" in lines
    with use_language("zh"):
        chinese = verdict(found)
    assert "不完整" in chinese
    assert "2 个输出中已判定 1 个" in chinese
    assert "待比对侧没有" in chinese
    assert not any(line.startswith("starts at") for line in lines)


def test_a_document_survives_the_round_trip(tmp_path: Path) -> None:
    files = write_run(DOCUMENT, tmp_path / "run", force=False)
    assert [file.name for file in files] == ["run.json", "tensors.csv"]
    assert load_document(tmp_path / "run") == DOCUMENT
    comparison = load_document(tmp_path / "run" / "run.json").comparison
    assert comparison is not None
    assert comparison.rows[0].score.values["sqnr_db"] == math.inf


def test_the_same_run_gives_the_same_text() -> None:
    assert to_json(DOCUMENT) == to_json(DOCUMENT)
    assert '"sqnr_db": "inf"' in to_json(DOCUMENT)


@pytest.mark.parametrize(
    ("text", "message"),
    [("{", "is not JSON"), ('{"schema": 99}', "has schema 99"), ("[]", "has schema None"),
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


def test_a_cell_of_the_map_is_open_only_where_nothing_in_it_was_judged() -> None:
    rows = [make_row(at, f"t{at}", 0.9 if at == 120 else 1.0) for at in range(0, 132, 3) if at >= 12]
    lonely = tuple(f"u{at}" for at in range(132 - len(rows)))
    found = make_comparison(*rows, unmatched_reference=lonely)
    drawn = next(line for line in verdict(found).splitlines() if line.startswith("  map"))
    assert drawn.split()[1] == "???" + "." * 27 + "X" + ".."
