"""The precision audit: what was asked for each node, what it has, and where the two part ways."""

from roundoff.core.document import RunDocument
from roundoff.core.plan import PRECISION_PARTS, Precision
from roundoff.messages.catalogue import Phrase, plain, say
from roundoff.pages.blocks import NODE_COLUMNS, Block, Cell, Column, Headline, Page, Paragraph, Table, notes
from roundoff.studies.audit.result import Audit, AuditRow, Severity
from roundoff.studies.audit.terminal import scale_text

__all__ = ["audit_page"]

_FOUND = (
    Column("severity", say("audit.severity"), "text"),
    Column("finding", say("audit.finding"), "text"),
)
_SIDES = ("requested", "effective")
_SEVERITIES: tuple[Severity, ...] = ("silent", "explained", "info")


def audit_page(document: RunDocument) -> Page | None:
    """The page on an audit; None when none was made."""
    found = document.audit
    if found is None:
        return None
    asked = any(row.requested != Precision() for row in found.rows)
    columns = (
        *NODE_COLUMNS,
        *(_precision(side, part) for side in _SIDES[not asked :] for part in PRECISION_PARTS),
        *_FOUND,
        Column("scales", say("audit.scales"), "text"),
    )
    rows = tuple(_row(row, asked=asked) for row in found.rows)
    blocks: list[Block] = [_headline(found), Paragraph(_request(found))]
    if found.findings:
        general = tuple((_severity(each.severity), each.text) for each in found.findings)
        blocks.append(Table("audit-general", say("audit.general"), _FOUND, general))
    blocks.append(Table("audit", say("audit.table"), columns, rows, sort="severity"))
    return Page("audit", say("audit.title"), (*blocks, *notes(found.notes)))


def _headline(found: Audit) -> Headline:
    counts = {severity: found.count(severity) for severity in _SEVERITIES}
    key = "audit.passes" if found.passed else "audit.fails"
    return Headline("good" if found.passed else "bad", say(key, nodes=len(found.rows), **counts))


def _request(found: Audit) -> Phrase:
    return say("audit.asked", request=found.request) if found.request else say("audit.nobody")


def _precision(side: str, part: str) -> Column:
    label = say("audit.column", side=say(f"audit.{side}"), part=say(f"audit.{part}"))
    return Column(f"{side}_{part}", label, "text")


def _severity(severity: Severity | None) -> Cell:
    """The word for it; a digit before it puts the worst first in every language."""
    return None if severity is None else say(f"audit.{severity}")


def _row(row: AuditRow, *, asked: bool) -> tuple[Cell, ...]:
    sides = (row.requested, row.effective) if asked else (row.effective,)
    said = [each.text for each in row.findings]
    if row.reason and not any(row.reason in text for text in said):
        said.append(row.reason)
    return (
        row.node,
        row.op_type,
        *(getattr(side, part) for side in sides for part in PRECISION_PARTS),
        _severity(row.severity),
        plain("; ".join(said)),
        plain("; ".join(f"{part.part} {scale_text(part)}" for part in row.parts)),
    )
