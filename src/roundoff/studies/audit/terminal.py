"""An audit for people, for spreadsheets and for programs."""

import csv
import io
import json
import math
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from typing import Any

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from roundoff.core.plan import FLOAT, Precision
from roundoff.messages.catalogue import told
from roundoff.messages.phrases import commas, count_of, semicolons
from roundoff.messages.sanitize import safe_cell, short_name
from roundoff.messages.sentences import sentence
from roundoff.studies.audit.result import Audit, AuditRow, QuantizedPart, Severity

__all__ = ["AUDIT_SCHEMA", "audit_csv", "audit_json", "audit_table", "audit_verdict", "scale_text"]

AUDIT_SCHEMA = 1
_ORDER: tuple[Severity | None, ...] = ("silent", "explained", "info", None)
_STYLES = {"silent": "bold red", "explained": "yellow", "info": "dim"}
_LISTED = 3
_MOST_SORTS = 6
_MOST_ROWS = 20
_WIDEST_NAME = 24
# Three types side by side; more of them fold.
_WIDEST_TYPES = 11
_PHRASED = frozenset({
    "float_island", "partial_inputs", "disagreement", "granularity", "bias_scale", "two_scales",
    "degenerate_scale", "scale_count", "zero_point_range", "bias_overflow", "request",
})  # fmt: skip
"""Kinds of silent findings for which there are words."""
_COLUMNS = (
    "node", "op_type", "severity",
    *(f"{side}_{part}" for side in ("requested", "effective") for part in ("activation", "weight", "output")),
    "granularity", "scale_min", "scale_max", "zero_point", "reason", "findings",
)  # fmt: skip


def audit_verdict(audit: Audit) -> RenderableType:
    """What a busy person reads: silent differences or none, and what the model is made of."""
    silent = audit.count("silent")
    text = Text()
    if silent:
        text.append(told("audit_text.word_silent"), style="bold red")
        text.append(told("audit_text.headline_silent", count=silent, nodes=len(audit.rows), subject=audit.subject))
    else:
        text.append(told("audit_text.word_ok"), style="bold green")
        text.append(told("audit_text.headline_ok", nodes=len(audit.rows), subject=audit.subject))
    grid = Table.grid(padding=(0, 2, 0, 0))
    grid.add_column(style="dim", no_wrap=True)
    grid.add_column(overflow="fold")
    for label, line in _lines(audit):
        grid.add_row(f"  {label}", Text(line))
    return Group(text, grid)


def _lines(audit: Audit) -> Iterator[tuple[str, str]]:
    yield told("audit_text.asked_by"), audit.request or told("audit_text.nobody")
    yield from _sorts(audit)
    yield from _computed(audit)
    yield from _kinds(audit)
    explained, remarks = audit.count("explained"), audit.count("info")
    if explained:
        yield told("audit_text.explained"), told("audit_text.said_explained", count=explained)
    if remarks:
        more = told("audit_text.all_shows") if audit.of_a_run else ""
        yield told("audit_text.remarks"), semicolons(told("audit_text.said_remarks", count=remarks), more)
    for finding in audit.findings:
        yield told(f"audit_text.{finding.severity}"), finding.text
    for note in audit.notes:
        yield told("terminal.note_label"), sentence(note)


def _sorts(audit: Audit) -> Iterator[tuple[str, str]]:
    """How many silent differences of each sort there are, when there are several."""
    silent = [each for row in audit.rows for each in row.findings if each.severity == "silent"]
    if len(silent) < 2:
        return
    sorts = Counter((each.what or "node", each.how or _how(each.kind)) for each in silent)
    for at, ((what, how), count) in enumerate(sorts.most_common(_MOST_SORTS)):
        label = "" if at else told("audit_text.silent")
        yield label, told("audit_text.sort", nodes=count_of(count, what), how=how)
    if len(sorts) > _MOST_SORTS:
        yield "", told("audit_text.more_sorts", count=len(sorts) - _MOST_SORTS)


def _how(kind: str) -> str:
    """How nodes are that have a silent finding of a kind."""
    return told(f"audit_text.kind_{kind}") if kind in _PHRASED else kind


def _computed(audit: Audit) -> Iterator[tuple[str, str]]:
    """How many nodes compute with integers, and what the others are."""
    rows = [row for row in audit.rows if row.effective.arithmetic != "none"]
    at_run_time = [row for row in rows if any(each.kind == "dynamic" for each in row.findings)]
    floats = [row for row in rows if row.effective.arithmetic == FLOAT and row not in at_run_time]
    text = told("audit_text.of_nodes", count=len(rows) - len(floats), all=len(rows))
    text = semicolons(text, told("audit_text.in_float", types=_by_type(floats)) if floats else "")
    weights = sum(bool(row.effective.weight) and FLOAT not in row.effective.weight.split("/") for row in floats)
    text = told("audit_text.quantized_weights", text=text, count=weights) if weights else text
    yield told("audit_text.quantized"), text
    if at_run_time:
        yield "", told("audit_text.run_time", count=len(at_run_time))
    if len(rows) < len(audit.rows):
        yield "", told("audit_text.without_values", count=len(audit.rows) - len(rows))
    meant = [row for row in rows if row.float_between_integers]
    if meant:
        whole = len(rows) - len(floats)
        yield "", told("audit_text.meant", count=len(meant), whole=whole, types=_by_type(meant))


def _by_type(rows: Sequence[AuditRow]) -> str:
    types = Counter(row.op_type for row in rows)
    left = ", ".join(f"{count} {op_type}" for op_type, count in types.most_common(_LISTED))
    return left + (" ..." if len(types) > _LISTED else "")


def _kinds(audit: Audit) -> Iterator[tuple[str, str]]:
    """The types in use, most common first."""
    for part, label in (("activation", "audit_text.activations"), ("weight", "audit_text.weights")):
        seen = {(each.tensor, each.dtype, each.axis is not None) for row in audit.rows for each in row.parts
                if each.part == part or (part == "activation" and each.part == "output")}  # fmt: skip
        kinds = Counter((dtype, sliced) for _, dtype, sliced in seen)
        if kinds:
            texts = [
                told("audit_text.per_channel" if sliced else "audit_text.per_tensor", count=count, dtype=dtype)
                for (dtype, sliced), count in kinds.most_common()
            ]
            yield told(label), commas(*texts)


def audit_table(audit: Audit, *, everything: bool = False) -> RenderableType | None:
    """Nodes with findings, the worst first and not too many, None without any; or all nodes in execution order.

    What is remarkable about a run of ours was decided by us, and told then: it is shown on request only.

    Args:
        audit: What to show.
        everything: Show every node, and all that is known of it.
    """
    found = list(audit.rows) if everything else _with_findings(audit)
    rows = found if everything else found[:_MOST_ROWS]
    if not rows:
        return None
    asked = any(row.requested != Precision() for row in audit.rows)
    # Columns that fold lose nothing when they get narrow; one with a least width would be cut off.
    table = Table(box=None, pad_edge=False, padding=(0, 1, 0, 0), header_style="bold")
    table.add_column(told("common.node"), overflow="fold", max_width=_WIDEST_NAME)
    table.add_column(told("terminal.operation"), overflow="fold", max_width=10)
    if asked:
        table.add_column(told("audit_text.column_asked"), overflow="fold", max_width=_WIDEST_TYPES)
    table.add_column(told("audit_text.column_types"), overflow="fold", max_width=_WIDEST_TYPES)
    last = told("audit_text.column_scales") if everything else told("audit_text.column_finding")
    table.add_column(last, overflow="fold")
    for row in rows:
        cells: list[RenderableType] = [Text(short_name(row.node)), Text(row.op_type)]
        cells += [_short(row.requested)] if asked else []
        remarks = _remarks(row, everything=everything, info=everything or not audit.of_a_run)
        table.add_row(*cells, _short(row.effective), remarks)
    left = len(found) - len(rows)
    return Group(table, Text(told("audit_text.more", count=left))) if left else table


def _with_findings(audit: Audit) -> list[AuditRow]:
    hidden = ("info", None) if audit.of_a_run else (None,)
    found = [row for row in audit.rows if row.severity not in hidden]
    return sorted(found, key=lambda row: _ORDER.index(row.severity))


def _short(precision: Precision) -> str:
    parts = (precision.activation, precision.weight, precision.output)
    return "-" if not any(parts) else " ".join(part or "-" for part in parts)


def _remarks(row: AuditRow, *, everything: bool, info: bool) -> Text:
    text = Text()
    for finding in row.findings:
        if info or finding.severity != "info":
            severity = told(f"audit_text.{finding.severity}")
            line = told("audit_text.severity", severity=severity, text=finding.text)
            text.append(line[: -len(finding.text)], style=_STYLES[finding.severity])
            text.append(f"{finding.text}\n")
    if everything:
        if row.reason and not any(row.reason in finding.text for finding in row.findings):
            text.append(f"{row.reason}\n", style="dim")
        for part in row.parts:
            text.append(f"{part.part}: {scale_text(part)}\n", style="dim")
    text.rstrip()
    return text


def scale_text(part: QuantizedPart) -> str:
    """How one part is quantized, in a line."""
    size = f"{part.scale_min:.4g}"
    if part.scale_max != part.scale_min:
        size += f"..{part.scale_max:.4g}"
    zero = f"{part.zero_point_min}" + (
        f"..{part.zero_point_max}" if part.zero_point_max != part.zero_point_min else ""
    )
    return f"{part.dtype} {part.granularity}, scale {size}, zero point {zero}"


def audit_csv(audit: Audit) -> str:
    """All nodes in execution order, one row each."""
    out = io.StringIO()
    writer = csv.writer(out)
    writer.writerow(_COLUMNS)
    for row in audit.rows:
        writer.writerow(_cells(row))
    return out.getvalue()


def _cells(row: AuditRow) -> list[object]:
    precisions = [
        getattr(side, part)
        for side in (row.requested, row.effective)
        for part in ("activation", "weight", "output")
    ]
    parts = row.parts
    numbers = (
        "; ".join(f"{part.part} {part.tensor}: {part.granularity}" for part in parts),
        "; ".join(f"{part.scale_min!r}" for part in parts),
        "; ".join(f"{part.scale_max!r}" for part in parts),
        "; ".join(_zero_points(part) for part in parts),
    )
    findings = "; ".join(f"{finding.severity}: {finding.text}" for finding in row.findings)
    words = (row.node, row.op_type, row.severity or "", *precisions, *numbers, row.reason, findings)
    return [safe_cell(word) for word in words]


def _zero_points(part: QuantizedPart) -> str:
    low, high = part.zero_point_min, part.zero_point_max
    return str(low) if low == high else f"{low}..{high}"


def audit_json(audit: Audit) -> str:
    """Everything, for programs."""
    content: dict[str, Any] = {
        "schema": AUDIT_SCHEMA,
        "passed": audit.passed,
        "counts": {severity: audit.count(severity) for severity in ("silent", "explained", "info")},
    }
    content |= asdict(audit)
    for row, record in zip(audit.rows, content["rows"], strict=True):
        record["severity"] = row.severity
        for part, facts in zip(row.parts, record["parts"], strict=True):
            facts["granularity"] = part.granularity
            for key in ("scale_min", "scale_max"):
                # JSON has no infinity and no NaN, and a broken model may have both.
                facts[key] = facts[key] if math.isfinite(facts[key]) else str(facts[key])
    return json.dumps(content, indent=1, ensure_ascii=False, allow_nan=False) + "\n"
