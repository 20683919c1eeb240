"""The precision audit: silent differences or none, what was asked for each node, and what it has."""

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from operator import attrgetter

from roundoff import pages
from roundoff.core.document import RunDocument
from roundoff.core.plan import FLOAT, PRECISION_PARTS, Precision
from roundoff.messages.catalogue import (
    Phrase,
    bilingual,
    commas,
    count_of,
    in_all_languages,
    plain,
    semicolons,
    translate,
)
from roundoff.messages.message import shown
from roundoff.studies.audit.result import Audit, AuditRow, QuantizedPart, Severity

EVERYTHING = "all"
"""Order of a view in which a terminal shows every node, and all that is known of it."""

_ORDER: tuple[Severity | None, ...] = ("silent", "explained", "info", None)
_LISTED = 3
_MOST_SORTS = 6
_MOST_ROWS = 20
_PHRASED = frozenset({
    "float_island", "partial_inputs", "disagreement", "granularity", "bias_scale", "two_scales",
    "degenerate_scale", "scale_count", "zero_point_range", "bias_overflow", "request",
})  # fmt: skip
"""Kinds of silent findings for which there are words."""


def audit_page(
    document: RunDocument,
    view: pages.View = pages.View(),  # noqa: B008 - frozen
) -> pages.Page | None:
    """The page on an audit; None when none was made.

    What is remarkable about a run of ours was decided by us, and told then: a terminal shows it on request only.

    Args:
        document: The run.
        view: With the order `EVERYTHING` a terminal shows all nodes in execution order; otherwise those with
            findings, the worst first and not too many.
    """
    found = document.audit
    if found is None:
        return None
    silent, numbers = found.count("silent"), {"nodes": len(found.rows), "subject": found.subject}
    if silent:
        said = bilingual("audit.headline_silent", count=silent, **numbers)
        headline = pages.Headline("bad", said, word=bilingual("audit.word_silent"))
    else:
        said = bilingual("audit.headline_ok", **numbers)
        headline = pages.Headline("good", said, word=bilingual("audit.word_ok"))
    facts = pages.bilingual_facts(lambda: _lines(found))
    table, notes = _table(found, view), pages.notes(found.notes)
    return pages.Page("audit", bilingual("audit.title"), (headline, facts, table, *notes))


def _lines(audit: Audit) -> Iterator[tuple[str, str]]:
    yield translate("audit.asked_by"), shown(audit.request) if audit.request else translate("audit.nobody")
    yield from _sorts(audit)
    yield from _computed(audit)
    yield from _kinds(audit)
    explained, remarks = audit.count("explained"), audit.count("info")
    if explained:
        yield translate("audit.explained"), translate("audit.said_explained", count=explained)
    if remarks:
        more = translate("audit.all_shows") if audit.of_a_run else ""
        yield translate("audit.remarks"), semicolons(translate("audit.said_remarks", count=remarks), more)
    for finding in audit.findings:
        yield translate(f"audit.{finding.severity}"), shown(finding.text)


def _sorts(audit: Audit) -> Iterator[tuple[str, str]]:
    """How many silent differences of each sort there are, when there are several."""
    silent = [each for row in audit.rows for each in row.findings if each.severity == "silent"]
    if len(silent) < 2:
        return
    sorts = Counter((each.what or "node", each.how or _how(each.kind)) for each in silent)
    for at, ((what, how), count) in enumerate(sorts.most_common(_MOST_SORTS)):
        label = "" if at else translate("audit.silent")
        yield label, translate("audit.sort", nodes=count_of(count, what), how=shown(how))
    if len(sorts) > _MOST_SORTS:
        yield "", translate("audit.more_sorts", count=len(sorts) - _MOST_SORTS)


def _how(kind: str) -> str:
    """How nodes are that have a silent finding of a kind."""
    return translate(f"audit.kind_{kind}") if kind in _PHRASED else kind


def _computed(audit: Audit) -> Iterator[tuple[str, str]]:
    """How many nodes compute with integers, and what the others are."""
    rows = [row for row in audit.rows if row.effective.arithmetic != "none"]
    at_run_time = [row for row in rows if any(each.kind == "dynamic" for each in row.findings)]
    floats = [row for row in rows if row.effective.arithmetic == FLOAT and row not in at_run_time]
    yield from _blocks(audit)
    text = translate("audit.of_nodes", count=len(rows) - len(floats), all=len(rows))
    text = semicolons(text, translate("audit.in_float", types=_by_type(floats)) if floats else "")
    narrow = [row for row in floats if row.effective.weight and FLOAT not in row.effective.weight.split("/")]
    kinds = ", ".join(sorted({row.effective.weight for row in narrow}))
    text = translate("audit.quantized_weights", text=text, count=len(narrow), kinds=kinds) if narrow else text
    yield translate("audit.quantized"), text
    if at_run_time:
        yield "", translate("audit.run_time", count=len(at_run_time))
    if len(rows) < len(audit.rows):
        yield "", translate("audit.without_values", count=len(audit.rows) - len(rows))
    meant = [row for row in rows if row.float_between_integers]
    if meant:
        whole = len(rows) - len(floats)
        yield "", translate("audit.meant", count=len(meant), whole=whole, types=_by_type(meant))


def _blocks(audit: Audit) -> Iterator[tuple[str, str]]:
    """How many products have weights with a scale per block, which no count of integer nodes tells."""
    products = [row for row in audit.rows if row.op_type == "MatMul"]
    held = Counter((row.effective.weight, row.block) for row in products if row.block)
    for at, ((dtype, size), count) in enumerate(held.most_common()):
        label = "" if at else translate("audit.block_weights")
        yield label, translate("audit.in_blocks", count=count, all=len(products), dtype=dtype, size=size)


def _by_type(rows: Sequence[AuditRow]) -> str:
    types = Counter(row.op_type for row in rows)
    left = ", ".join(f"{count} {op_type}" for op_type, count in types.most_common(_LISTED))
    return left + (" ..." if len(types) > _LISTED else "")


def _kinds(audit: Audit) -> Iterator[tuple[str, str]]:
    """The types in use, most common first."""
    for part, label in (("activation", "audit.activations"), ("weight", "audit.weights")):
        seen = {(each.tensor, each.dtype, each.axis is not None) for row in audit.rows for each in row.parts
                if each.part == part or (part == "activation" and each.part == "output")}  # fmt: skip
        kinds = Counter((dtype, sliced) for _, dtype, sliced in seen)
        if kinds:
            texts = [
                translate("audit.per_channel" if sliced else "audit.per_tensor", count=count, dtype=dtype)
                for (dtype, sliced), count in kinds.most_common()
            ]
            yield translate(label), commas(*texts)


# The table: every node.

_FILE = (
    "node", "op_type", "severity",
    *(f"{side}_{part}" for side in ("requested", "effective") for part in PRECISION_PARTS),
    "granularity", "scale_min", "scale_max", "zero_point", "reason", "findings",
)  # fmt: skip


def _table(audit: Audit, view: pages.View) -> pages.TableBlock:
    everything = view.sort == EVERYTHING
    places = list(range(len(audit.rows)))
    if not everything:
        hidden = ("info", None) if audit.of_a_run else (None,)
        places = [place for place in places if audit.rows[place].severity not in hidden]
        places.sort(key=lambda place: _ORDER.index(audit.rows[place].severity))
    order = tuple(places if everything else places[:_MOST_ROWS])
    left = len(places) - len(order)
    return pages.table(
        "audit",
        "audit.table",
        _columns(audit, everything=everything),
        audit.rows,
        sort="how_bad",
        most=len(order),
        order=order,
        csv_order=_FILE,
        left_out=bilingual("audit.more", count=left) if left else plain(""),
    )


def _columns(audit: Audit, *, everything: bool) -> list[pages.ColumnOf[AuditRow]]:
    asked = any(row.requested != Precision() for row in audit.rows)
    last = bilingual("audit.column_scales" if everything else "audit.column_finding")
    told_all = everything or not audit.of_a_run
    return [
        pages.column("node", "common.node", "node"),
        pages.column("op_type", "common.operation", short="terminal.operation"),
        pages.column(
            "asked", "audit.column_asked", cell=lambda row: _short(row.requested), on="terminal" if asked else ""
        ),
        pages.column("types", "audit.column_types", cell=lambda row: _short(row.effective), on="terminal"),
        pages.column(
            "remarks",
            last,
            cell=lambda row: in_all_languages(lambda: _remarks(row, everything=everything, info=told_all)),
            on="terminal",
        ),
        *(
            _precision(side, part, "html csv" if asked or side == "effective" else "csv")
            for side in ("requested", "effective")
            for part in PRECISION_PARTS
        ),
        # A digit before the word puts the worst first in every language; two empty columns would only take room.
        pages.column(
            "how_bad",
            "audit.severity",
            cell=lambda row: None if row.severity is None else bilingual(f"audit.ranked_{row.severity}"),
            on="html" if any(row.severity for row in audit.rows) else "",
        ),
        pages.column("finding", "audit.finding", cell=_finding, on="html" if any(map(_finds, audit.rows)) else ""),
        pages.column(
            "scales",
            "audit.scales",
            cell=lambda row: in_all_languages(lambda: semicolons(*map(_said_part, row.parts))),
            on="html",
        ),
        *pages.csv_columns(_FILE_ALONE),
    ]


_FILE_ALONE: dict[str, Callable[[AuditRow], pages.Cell]] = {
    "severity": lambda row: row.severity or "",
    "granularity": lambda row: "; ".join(f"{part.part} {part.tensor}: {part.granularity}" for part in row.parts),
    "scale_min": lambda row: "; ".join(f"{part.scale_min!r}" for part in row.parts),
    "scale_max": lambda row: "; ".join(f"{part.scale_max!r}" for part in row.parts),
    "zero_point": lambda row: "; ".join(_zero_points(part) for part in row.parts),
    "reason": lambda row: row.reason,
    "findings": lambda row: "; ".join(f"{finding.severity}: {finding.text}" for finding in row.findings),
}


def _precision(side: str, part: str, on: str) -> pages.ColumnOf[AuditRow]:
    label = bilingual("audit.column", side=bilingual(f"audit.{side}"), part=bilingual(f"audit.{part}"))
    return pages.column(f"{side}_{part}", label, cell=attrgetter(f"{side}.{part}"), on=on)


def _finds(row: AuditRow) -> bool:
    return bool(row.findings or row.reason)


def _finding(row: AuditRow) -> Phrase:
    said = [each.text for each in row.findings]
    if row.reason and not any(row.reason in text for text in said):
        said.append(row.reason)
    return in_all_languages(lambda: semicolons(*map(shown, said)))


def _remarks(row: AuditRow, *, everything: bool, info: bool) -> str:
    said = [
        translate("audit.severe", severity=translate(f"audit.{each.severity}"), text=shown(each.text))
        for each in row.findings
        if info or each.severity != "info"
    ]
    if everything:
        if row.reason and not any(row.reason in finding.text for finding in row.findings):
            said.append(shown(row.reason))
        said += map(_said_part, row.parts)
    return semicolons(*said)


def _short(precision: Precision) -> str:
    parts = (precision.activation, precision.weight, precision.output)
    return "-" if not any(parts) else " ".join(part or "-" for part in parts)


def _said_part(part: QuantizedPart) -> str:
    return translate("audit.part", part=translate(f"audit.part_{part.part}"), text=_scale_text(part))


def _scale_text(part: QuantizedPart) -> str:
    """How one part is quantized, in a line."""
    size = f"{part.scale_min:.4g}"
    if part.scale_max != part.scale_min:
        size += f"..{part.scale_max:.4g}"
    zero = f"{part.zero_point_min}" + (
        f"..{part.zero_point_max}" if part.zero_point_max != part.zero_point_min else ""
    )
    return translate(
        "audit.scale_text", dtype=part.dtype, granularity=shown(part.granularity), scale=size, zero_point=zero
    )


def _zero_points(part: QuantizedPart) -> str:
    low, high = part.zero_point_min, part.zero_point_max
    return str(low) if low == high else f"{low}..{high}"
