"""Audits on the screen, in spreadsheets and as JSON."""

import csv
import io
import json
import math

import pytest
from rich.console import Console, RenderableType

from roundoff.core.audit import Audit, AuditFinding, AuditRow, QuantizedPart
from roundoff.core.quant_plan import Precision
from roundoff.report.audit import audit_csv, audit_json, audit_table, audit_verdict

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


def shown(renderable: RenderableType, width: int = 80) -> str:
    console = Console(width=width, file=io.StringIO(), color_system=None)
    console.print(renderable)
    return console.file.getvalue()  # type: ignore[attr-defined,no-any-return]


def test_the_verdict_comes_first() -> None:
    text = shown(audit_verdict(AUDIT))
    assert text.startswith("SILENT DIFFERENCES: 1 in 4 nodes of model.onnx\n")
    assert "asked by     target t" in text
    assert "quantized    4 of 4 nodes" in text
    assert "weights      1 s8 per channel" in text
    assert "explained    1 node not as asked for, with the reason on record" in text
    assert "note         read as QDQ" in text


def test_a_sound_model_is_ok() -> None:
    text = shown(audit_verdict(Audit("m.onnx", "", (CLEAN,))))
    assert text.startswith("OK: no silent difference in 1 node of m.onnx\n")
    assert "nobody: only what can be seen in the model itself is judged" in text


def test_what_stayed_in_float_is_counted() -> None:
    rows = [AuditRow(f"n{at}", "Softmax", Precision(), Precision("float", "", "float")) for at in range(3)]
    text = shown(audit_verdict(Audit("m", "", (CLEAN, *rows))))
    assert "quantized    1 of 4 nodes; in float: 3 Softmax" in text


def test_findings_without_a_node_are_in_the_verdict() -> None:
    rule = AuditFinding("rule", "silent", "the rule for 'a*' matches no node")
    audit = Audit("m", "the plan of the run", (CLEAN,), (rule,))
    assert not audit.passed
    assert "silent       the rule for 'a*' matches no node" in shown(audit_verdict(audit))


@pytest.mark.parametrize("everything", [False, True])
def test_the_table_fits_80_columns(everything: bool) -> None:
    text = shown(audit_table(AUDIT, everything=everything))
    assert max(len(line.rstrip()) for line in text.splitlines()) <= 80
    # Names and sentences come from strangers' files and are no markup.
    assert "[bold]another[/bold]" in " ".join(text.split())


def test_the_worst_rows_come_first_and_clean_ones_only_on_request() -> None:
    text = shown(audit_table(AUDIT), 200)
    places = [text.index(name) for name in ("=cmd('x')", "last", "pool")]
    assert places == sorted(places)
    assert "stem" not in text
    assert "u16 - u16" in text
    whole = shown(audit_table(AUDIT, everything=True), 200)
    places = [whole.index(name) for name in ("stem", "pool", "=cmd('x')", "last")]
    assert places == sorted(places)
    assert "weight: s8 per channel (axis 0, 32 scales), scale 0.001..0.5, zero point 0" in whole


def test_without_a_request_there_is_no_column_for_it() -> None:
    row = AuditRow("n", "Conv", Precision(), Precision("u8"), findings=(AuditFinding("k", "info", "t"),))
    assert "asked" not in shown(audit_table(Audit("m", "", (row,))))


def test_an_audit_without_findings_has_an_empty_table() -> None:
    assert shown(audit_table(Audit("m", "", (CLEAN,)))).strip() == ""


def test_csv_has_every_node() -> None:
    rows = list(csv.DictReader(io.StringIO(audit_csv(AUDIT))))
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
