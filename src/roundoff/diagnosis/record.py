"""What a diagnosis has found so far, and what share of the loss each finding has."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from roundoff.core.findings import Finding
from roundoff.diagnosis.case import Case

__all__ = ["Record"]


@dataclass(slots=True)
class Record:
    """Findings, stage by stage.

    Attributes:
        findings: In the order they were found.
    """

    findings: list[Finding] = field(default_factory=list)
    _drops: list[float] = field(default_factory=list)

    def add(self, findings: Sequence[Finding], before: Case, after: Case) -> None:
        """Take in the findings of a stage, whose shares are those of what the stage took away."""
        drop = max(0.0, before.loss().value - after.loss().value)
        self.findings += findings
        self._drops += [drop] * len(findings)

    def add_one(self, finding: Finding, drop: float) -> None:
        """Take in a finding that took so much away."""
        self.findings.append(finding)
        self._drops.append(drop)

    @property
    def tensors(self) -> set[str]:
        """All tensors that are to blame for something."""
        return {name for each in self.findings for name in each.tensors}

    def shared(self) -> tuple[Finding, ...]:
        """All findings with their shares of all that was taken away."""
        weights = [each.share * drop for each, drop in zip(self.findings, self._drops, strict=True)]
        total = sum(weights) or 1.0
        return tuple(
            replace(each, share=weight / total) for each, weight in zip(self.findings, weights, strict=True)
        )
