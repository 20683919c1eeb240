"""A case that is handed on to whoever can mend it, as data."""

from dataclasses import dataclass
from typing import Literal

from roundoff.core.document import Environment
from roundoff.diagnosis.result import Finding
from roundoff.studies.layers.result import VerdictKind

__all__ = ["CaseNumbers", "Confidence", "DumpFault", "NodeRank", "Ticket"]


@dataclass(frozen=True, slots=True)
class NodeRank:
    """One node of those that add most to the error at the outputs.

    Attributes:
        node: Its name.
        op_type: Its operation.
        share: Estimated share of the error at the outputs that it adds.
        sqnr_db: Signal to noise at the tensor it writes, its inputs being exact.
        cause: What makes most of that.
    """

    node: str
    op_type: str
    share: float
    sqnr_db: float
    cause: str


@dataclass(frozen=True, slots=True)
class CaseNumbers:
    """The numbers that show a fault.

    Attributes:
        verdict: Whether few nodes make it (``local``) or many (``distributed``), or there is none (``fine``).
        output: The worst output.
        sqnr_db: Its signal to noise in the worst sample; None without a score.
        cosine: The same as a cosine.
        nodes: Nodes that add most to the error, the worst first.
        culprits: Nodes that were proven to make most of it, each with the signal to noise of what it writes, its
            inputs being exact.
    """

    verdict: VerdictKind
    output: str
    sqnr_db: float | None
    cosine: float | None
    nodes: tuple[NodeRank, ...]
    culprits: dict[str, float]


@dataclass(frozen=True, slots=True)
class Confidence:
    """What was done to keep secrets, and whether the fault is still there.

    Attributes:
        weights: How weights were replaced, in words.
        data: What became of samples, in words.
        before: What the original shows.
        names: New name of every node that `before` speaks of.
        close_db: By how much errors may differ.
        where: Where they differ by no more.
        reasons: Why it does not show the same fault; empty when it does.
        tries: How many disguises were tried.
    """

    weights: str
    data: str
    before: CaseNumbers
    names: dict[str, str]
    close_db: float
    where: str
    reasons: tuple[str, ...]
    tries: int


@dataclass(frozen=True, slots=True)
class DumpFault:
    """What a comparison of two sets of tensors shows.

    Attributes:
        tensor: The tensor at which the error starts, or the worst.
        op_type: What computes it; empty when unknown.
        role: Whether the error starts there.
        kind: What the difference looks like.
        sqnr_db: Signal to noise of the candidate in the sample chosen; None without a score.
        cosine: The same as a cosine.
    """

    tensor: str
    op_type: str
    role: Literal["introduces", "victim", ""]
    kind: str
    sqnr_db: float | None
    cosine: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Ticket:
    """Everything that the text of a ticket says.

    Attributes:
        kind: The command whose run it is.
        model: The float model, as it is called in the bundle's text.
        subject: What is wrong, in words: quantized how, or compared with what.
        numbers: What the samples in the bundle show; None for a comparison.
        fault: What a comparison shows; None otherwise.
        whole: What many samples show; None when not measured.
        samples: Names of the samples in the bundle.
        total: How many samples the run had.
        recalibrated: What calibrating on these samples alone gives, in words; empty when not tried.
        target: For which chip; empty when unknown.
        original: The command of the run, word by word; empty where it is confidential.
        reproduce: Commands that show the fault again, in the folder of the bundle.
        environment: Where the run was made.
        confidence: What was done to keep secrets; None when nothing was to be kept.
        findings: Causes that a diagnosis proved; of a confidential ticket, no more than their kind is told.
        disguise: What was done to keep the secrets of a comparison, a sentence each; empty when nothing was.
        files: What each file of the bundle is.
        verdict: What a diagnosis said of the whole run, in words; empty without one.
        faulty: Whether the run found anything wrong.
    """

    kind: str
    model: str
    subject: str
    numbers: CaseNumbers | None
    fault: DumpFault | None
    whole: CaseNumbers | None
    samples: tuple[str, ...]
    total: int
    recalibrated: str
    target: str
    original: tuple[str, ...]
    reproduce: tuple[str, ...]
    environment: Environment
    confidence: Confidence | None
    findings: tuple[Finding, ...] = ()
    disguise: tuple[str, ...] = ()
    files: dict[str, str]
    verdict: str = ""
    faulty: bool = True
