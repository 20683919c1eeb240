"""Audits on the screen, in spreadsheets and as JSON."""

import csv
import io
import json
import math

import pytest
from rich.console import Console

from roundoff.core.document import SCHEMA, Environment, RunDocument
from roundoff.core.plan import Precision
from roundoff.messages.message import verbatim
from roundoff.pages.blocks import Page, TableBlock, View
from roundoff.pages.terminal import terminal_page
from roundoff.pages.text_files import table_csv
from roundoff.studies.audit.page import EVERYTHING, audit_page
from roundoff.studies.audit.result import RUN_PLAN, Audit, AuditFinding, AuditRow, QuantizedPart, audit_json

PART = QuantizedPart("weight", "w1", "s8", 0, 32, 0.001, 0.5, 0, 0)
WHOLE = QuantizedPart("activation", "x", "u8", None, 1, 0.25, 0.25, 7, 7)
CLEAN = AuditRow("stem", "Conv", Precision("u8", "s8", "u8"), Precision("u8", "s8", "u8"), parts=(WHOLE, PART))
REMARK = AuditRow(
    "pool",
    "MaxPool",
    Precision("u8", "", "u8"),
    Precision("u8", "", "u8"),
    findings=(AuditFinding("unused_codes", "info", "uses 3 % of its codes"),),
)
BAD = AuditRow(
    "=cmd('x')",
    "GlobalAveragePool",
    Precision("u16", "", "u16"),
    Precision("u8", "", "float"),
    reason="",
    findings=(
        AuditFinding("dtype", "silent", "input 0 (x) is u8; target t makes it u16"),
        AuditFinding("note", "info", "and [bold]another[/bold] remark"),
    ),
)
KNOWN = AuditRow(
    "last",
    "Gemm",
    Precision("s8", "s4", "s8"),
    Precision("s8", "s8", "s8"),
    reason="no s4",
    findings=(AuditFinding("request", "explained", "asked for s4: no s4"),),
)
AUDIT = Audit("model.onnx", "target t", (CLEAN, REMARK, BAD, KNOWN), notes=("read as QDQ",))


ENVIRONMENT = Environment("0.1.0", "3.11", {}, "host", verbatim("float64"), 0.5)


def page(audit: Audit, *, everything: bool = False) -> Page:
    document = RunDocument(schema=SCHEMA, command=(), inputs=(), audit=audit, environment=ENVIRONMENT)
    found = audit_page(document, View(sort=EVERYTHING if everything else ""))
    assert found is not None
    return found


def shown(audit: Audit, width: int = 80, *, everything: bool = False) -> str:
    console = Console(width=width, file=io.StringIO(), color_system=None)
    console.print(terminal_page(page(audit, everything=everything)))
    text: str = console.file.getvalue()  # type: ignore[attr-defined]
    return "".join(f"{line.rstrip()}\n" for line in text.splitlines())


def table(audit: Audit, width: int = 80, *, everything: bool = False) -> str:
    """What stands below the verdict."""
    return shown(audit, width, everything=everything).partition("\n\n")[2]


def test_the_verdict_comes_first() -> None:
    text = shown(AUDIT)
    assert text.startswith("SILENT DIFFERENCES: 1 difference in 4 nodes of model.onnx\n")
    assert "asked by     target t" in text
    assert "quantized    4 of 4 nodes" in text
    assert "weights      1 s8 per channel" in text
    assert "explained    1 node not as asked for, with the reason on record" in text
    assert text.endswith("note: read as QDQ\n")


def test_a_sound_model_is_ok() -> None:
    text = shown(Audit("m.onnx", "", (CLEAN,)))
    assert text.startswith("OK: no silent difference in 1 node of m.onnx\n")
    assert "nobody: only what can be seen in the model itself is judged" in text


def test_what_stayed_in_float_is_counted() -> None:
    rows = [AuditRow(f"n{at}", "Softmax", Precision(), Precision("float", "", "float")) for at in range(3)]
    text = shown(Audit("m", "", (CLEAN, *rows)))
    assert "quantized    1 of 4 nodes; in float: 3 Softmax" in text


def test_findings_without_a_node_are_in_the_verdict() -> None:
    rule = AuditFinding("rule", "silent", "the rule for 'a*' matches no node")
    audit = Audit("m", "the plan of the run", (CLEAN,), (rule,))
    assert not audit.passed
    assert "silent       the rule for 'a*' matches no node" in shown(audit)


@pytest.mark.parametrize("everything", [False, True])
def test_the_table_fits_80_columns(everything: bool) -> None:
    text = table(AUDIT, everything=everything)
    assert max(len(line.rstrip()) for line in text.splitlines()) <= 80
    # Names and sentences come from strangers' files and are no markup.
    assert "[bold]another[/bold]" in " ".join(text.split())


def test_the_worst_rows_come_first_and_clean_ones_only_on_request() -> None:
    text = table(AUDIT, 200)
    places = [text.index(name) for name in ("=cmd('x')", "last", "pool")]
    assert places == sorted(places)
    assert "stem" not in text
    assert "u16 - u16" in text
    whole = table(AUDIT, 200, everything=True)
    places = [whole.index(name) for name in ("stem", "pool", "=cmd('x')", "last")]
    assert places == sorted(places)
    assert "weight: s8 per channel (axis 0, 32 scales), scale 0.001..0.5, zero point 0" in whole


def test_without_a_request_there_is_no_column_for_it() -> None:
    row = AuditRow("n", "Conv", Precision(), Precision("u8"), findings=(AuditFinding("k", "info", "t"),))
    assert "asked" not in table(Audit("m", "", (row,)))


def test_an_audit_without_findings_has_no_table() -> None:
    assert table(Audit("m", "", (CLEAN,))) == ""


@pytest.mark.parametrize("everything", [False, True])
@pytest.mark.parametrize("width", [60, 80, 132])
def test_nothing_is_cut_off(everything: bool, width: int) -> None:
    """Every letter that was given is on the screen, whatever its column."""
    name, op, mixed = "n" * 61 + "N", "O" * 30 + "P", Precision("u16/float", "s16/float", "s16/float")
    finding = AuditFinding("dtype", "silent", "Z" * 150 + " " + "Y" * 20)
    part = QuantizedPart("weight", "w", "s8", 0, 123456, 0.00123, 0.004567, -128, 127)
    audit = Audit("m", "target t", (AuditRow(name, op, mixed, mixed, "V" * 40, (part,), (finding,)),))
    text = table(audit, width, everything=everything)
    body = text[text.index("nnn") :]
    assert [body.count(letter) for letter in "NZY"] == [1, 150, 20]
    assert body.count("V") == (40 if everything else 0)
    squeezed = "".join(body.split())
    assert squeezed.count("6") >= (5 if everything else 4)
    assert max(map(len, text.splitlines())) <= width


def silent_rows(count: int) -> list[AuditRow]:
    found = [
        AuditFinding("dtype", "silent", "input 0 (x) is u8; target t makes it s8", "input", "u8 instead of s8"),
        AuditFinding("granularity", "silent", "sliced", "weight", "per tensor instead of per channel"),
    ]
    return [AuditRow(f"n{at}", "Conv", Precision(), Precision("u8"), findings=tuple(found)) for at in range(count)]


def test_differences_are_counted_by_what_they_are() -> None:
    island = AuditFinding("float_island", "silent", "left in float between quantized nodes")
    odd = AuditRow("odd", "Conv", Precision(), Precision("float"), findings=(island,))
    text = " ".join(shown(Audit("m", "target t", (*silent_rows(30), odd))).split())
    sorts = ["30 inputs u8 instead of s8", "30 weights per tensor instead of per channel"]
    assert f" silent {' '.join(sorts)} 1 node left in float between quantized ones quantized" in text


def test_not_more_rows_than_somebody_reads() -> None:
    audit = Audit("m", "target t", tuple(silent_rows(30)))
    text = table(audit)
    assert text.count("input 0 (x)") == 20
    assert text.endswith("and 10 more nodes with findings; --all shows them, --csv FILE writes them\n")
    assert table(audit, everything=True).count("input 0 (x)") == 30
    assert "more node" not in table(Audit("m", "", tuple(silent_rows(20))))


def test_remarks_on_a_run_of_ours_are_shown_on_request() -> None:
    audit = Audit("run", RUN_PLAN, (REMARK, KNOWN))
    assert "pool" not in table(audit)
    assert "remarks    on 1 node; --all shows them\n" in shown(audit)
    assert "uses 3 % of its codes" in " ".join(table(audit, everything=True).split())
    assert table(Audit("run", RUN_PLAN, (REMARK,))) == ""


@pytest.mark.parametrize(
    ("precision", "arithmetic"),
    [
        (Precision("u8", "s8", "u8"), "integer"),
        (Precision("s8", "s8", "float"), "integer"),
        (Precision("u8", "float", "u8"), "float"),
        (Precision("u8/float", "", "u8"), "float"),
        (Precision("float", "s8", "u8"), "float"),
        (Precision("", "", "u8"), "integer"),
        (Precision("", "", "float"), "float"),
        (Precision(), "none"),
    ],
)
def test_a_node_is_in_float_when_anything_it_reads_is(precision: Precision, arithmetic: str) -> None:
    assert precision.arithmetic == arithmetic
    row = AuditRow("n", "Conv", Precision(), precision)
    text = shown(Audit("m", "", (CLEAN, row)))
    assert {
        "integer": "quantized    2 of 2 nodes\n",
        "float": "quantized    1 of 2 nodes; in float: 1 Conv",
        "none": f"quantized    1 of 1 node\n{' ' * 15}1 more node without values",
    }[arithmetic] in text


def test_csv_has_every_node() -> None:
    text = next(table_csv(each) for each in page(AUDIT).blocks if isinstance(each, TableBlock))
    rows = list(csv.DictReader(io.StringIO(text)))
    assert [row["node"] for row in rows] == ["stem", "pool", "'=cmd('x')", "last"]
    assert rows[0]["granularity"] == "activation x: per tensor; weight w1: per channel (axis 0, 32 scales)"
    assert (rows[0]["scale_min"], rows[0]["zero_point"]) == ("0.25; 0.001", "7; 0")
    assert (rows[2]["severity"], rows[2]["requested_activation"], rows[2]["effective_output"]) == (
        "silent",
        "u16",
        "float",
    )
    assert (rows[3]["reason"], rows[3]["findings"]) == ("no s4", "explained: asked for s4: no s4")


def test_json_has_everything() -> None:
    content = json.loads(audit_json(AUDIT))
    assert (content["schema"], content["passed"]) == (1, False)
    assert content["counts"] == {"silent": 1, "explained": 1, "info": 1}
    row = content["rows"][2]
    assert (row["node"], row["severity"], row["requested"]["activation"]) == ("=cmd('x')", "silent", "u16")
    assert content["rows"][0]["parts"][1]["granularity"] == "per channel (axis 0, 32 scales)"
    assert content["notes"] == ["read as QDQ"]


def test_json_survives_broken_scales() -> None:
    part = QuantizedPart("weight", "w", "s8", None, 1, math.nan, math.inf, 0, 0)
    row = AuditRow("n", "Conv", Precision(), Precision(), parts=(part,))
    (found,) = json.loads(audit_json(Audit("m", "", (row,))))["rows"][0]["parts"]
    assert (found["scale_min"], found["scale_max"]) == ("nan", "inf")
