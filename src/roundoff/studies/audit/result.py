"""What an audit found: for every node what was asked for, what a model really has, and where the two part ways."""

import json
import math
from dataclasses import asdict, dataclass
from typing import Any, Literal

from roundoff.core.plan import Precision
from roundoff.messages.message import english

RUN_PLAN = english("the plan of the run")
"""The request where a run is audited."""

Severity = Literal["silent", "explained", "info"]
Part = Literal["activation", "weight", "bias", "output"]


@dataclass(frozen=True, slots=True)
class AuditFinding:
    """One thing worth knowing.

    Attributes:
        kind: A word for programs, e.g. ``dtype``, ``scale``, ``float_island``.
        severity: ``silent``: the model is not what was asked for, or not sound, and nothing says so.
            ``explained``: it is not what was asked for, and the reason is on record. ``info``: a remark.
        text: What it is, as a sentence without its full stop.
        what: What part of a node it is about, to count findings of one sort: ``input``, ``weight``; may be empty.
        how: How that is, in a few words that do not depend on the node: ``u8 instead of s8``.
    """

    kind: str
    severity: Severity
    text: str
    what: str = ""
    how: str = ""


@dataclass(frozen=True, slots=True)
class QuantizedPart:
    """How one input or output of a node is quantized in the model.

    Attributes:
        part: Which part of the node it is.
        tensor: The tensor.
        dtype: Type of its codes, e.g. ``u8``.
        axis: Axis along which each slice has its own scale; None for one scale.
        scales: How many scales there are.
        scale_min: The smallest.
        scale_max: The largest.
        zero_point_min: The smallest zero point.
        zero_point_max: The largest.
    """

    part: Part
    tensor: str
    dtype: str
    axis: int | None
    scales: int
    scale_min: float
    scale_max: float
    zero_point_min: int
    zero_point_max: int

    @property
    def granularity(self) -> str:
        """In words: ``per tensor``, or ``per channel (axis 0, 32 scales)``."""
        if self.axis is None:
            return english("per tensor")
        return english(
            "per channel (axis {axis}, {scales} {scales:scale|scales})", axis=self.axis, scales=self.scales
        )


@dataclass(frozen=True, slots=True)
class AuditRow:
    """One node.

    Attributes:
        node: Its name.
        op_type: Its operation.
        requested: What was asked for; empty where nothing is known of a request.
        effective: What the model has.
        reason: Why they differ, as recorded with the plan.
        parts: How its inputs and its output are quantized.
        findings: What is worth knowing of it.
        float_between_integers: The plan computes it in float, although all it reads is quantized.
        block: Values of its weight that share a scale; 0 where it has none with a scale per block.
    """

    node: str
    op_type: str
    requested: Precision
    effective: Precision
    reason: str = ""
    parts: tuple[QuantizedPart, ...] = ()
    findings: tuple[AuditFinding, ...] = ()
    float_between_integers: bool = False
    block: int = 0

    @property
    def severity(self) -> Severity | None:
        """The worst of its findings; None without any."""
        found = {finding.severity for finding in self.findings}
        order: tuple[Severity, ...] = ("silent", "explained", "info")
        return next((severity for severity in order if severity in found), None)


@dataclass(frozen=True, slots=True)
class Audit:
    """The result of an audit.

    Attributes:
        subject: What was audited, as the user named it.
        request: Where the request comes from: `RUN_PLAN`, ``target ascend``; empty without one.
        rows: All nodes, in execution order.
        findings: What concerns no single node.
        notes: How the model was read, and the like.
    """

    subject: str
    request: str
    rows: tuple[AuditRow, ...]
    findings: tuple[AuditFinding, ...] = ()
    notes: tuple[str, ...] = ()

    def count(self, severity: Severity) -> int:
        """How many nodes, and findings of no node, have this as their worst."""
        rows = sum(row.severity == severity for row in self.rows)
        return rows + sum(finding.severity == severity for finding in self.findings)

    @property
    def of_a_run(self) -> bool:
        """Whether it is of a run of roundoff, and not of a model alone."""
        return self.request == RUN_PLAN

    @property
    def passed(self) -> bool:
        """Whether nothing differs silently."""
        return self.count("silent") == 0


AUDIT_SCHEMA = 1


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
