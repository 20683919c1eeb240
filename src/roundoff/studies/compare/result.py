"""The result of comparing two sets of tensors, as data."""

from dataclasses import dataclass
from typing import Literal

from roundoff.align.pairing import MatchedBy
from roundoff.core.coverage import Judgement, OutputCoverage
from roundoff.measure.metrics import TensorScore
from roundoff.measure.verdicts import ThresholdSet
from roundoff.messages.message import NOTHING, Message

DifferenceKind = Literal[
    "", "nonfinite", "zeroed", "gain", "offset", "gain and offset", "saturation", "few outliers",
    "one channel", "permutation", "layout", "codes", "indices", "part", "noise", "swapped", "range",
]  # fmt: skip
# introduces: the error starts here; victim: an input was wrong already; "": passes, or nothing is known.
Role = Literal["", "introduces", "victim"]
# incomplete: no tensor fails, and not every output of the network was judged.
# no_evidence: what was fed, or the reference gave, is no ground for a good verdict.
State = Literal["pass", "fail", "incomplete", "no_evidence"]


@dataclass(frozen=True, slots=True)
class TensorComparison:
    """One tensor of the reference and its partner.

    Attributes:
        order: Its place among the tensors of the reference, compared or not: execution order where that is known.
        reference: Name in the reference.
        candidate: Name in the candidate.
        node: Node of the model that computes it; empty when unknown.
        op_type: That node's operation; empty when unknown.
        dtypes: dtype of the reference and of the candidate.
        shapes: Shape of the reference and of the candidate, in their own layouts.
        how: What the match rests on.
        confidence: How sure the match is, 0 to 1.
        layout: Change of layout that was undone before scoring; empty when none.
        samples: How many samples were scored.
        score: The scores over all samples.
        passed: Whether the thresholds hold; None when this tensor is not judged.
        kind: What the difference looks like; empty when it passes or has no score.
        difference: The same in words, with numbers; also where a tensor passes and stands out from its neighbours.
        role: Whether the error starts here or comes from above.
        sample_sqnr_db: SQNR of each of the first samples, NaN where there is none; empty in documents of older
            versions and where a sample could not be read.
    """

    order: int
    reference: str
    candidate: str
    node: str
    op_type: str
    dtypes: tuple[str, str]
    shapes: tuple[tuple[int, ...], tuple[int, ...]]
    how: MatchedBy
    confidence: float
    layout: str
    samples: int
    score: TensorScore
    passed: bool | None
    kind: DifferenceKind = ""
    difference: Message = NOTHING
    role: Role = ""
    sample_sqnr_db: tuple[float, ...] = ()


def was_not_read(row: TensorComparison) -> bool:
    """Whether a tensor is missing, or could not be read: nothing is known of it."""
    return row.score.status in ("missing", "unreadable")


@dataclass(frozen=True, slots=True)
class Verdict:
    """The answer in a few numbers and names; names are those of the reference.

    Attributes:
        compared: Tensors with a score.
        passed: Of those judged, how many keep the thresholds.
        failed: Of those judged, how many do not, including those that could not be scored.
        first_divergence: First failing tensor in execution order, of those that were read; None when none fails or
            the order is unknown.
        worst: Up to five failing tensors, worst first.
        introduces: Failing tensors whose inputs are all right.
        victims: Failing tensors with an input that fails already.
        missing_outputs: Outputs of the network that the candidate does not have.
        gated: Whether missing the thresholds was asked to be an error.
    """

    compared: int
    passed: int
    failed: int
    first_divergence: str | None
    worst: tuple[str, ...]
    introduces: tuple[str, ...]
    victims: tuple[str, ...]
    missing_outputs: tuple[str, ...]
    gated: bool


@dataclass(frozen=True, slots=True)
class Comparison:
    """Everything a comparison found.

    Attributes:
        reference: Where the reference came from.
        candidate: Where the candidate came from.
        samples: Names of the samples that were compared.
        ordered: Whether the rows are known to be in execution order.
        thresholds: What the rows were judged by.
        rows: One entry per matched tensor.
        unmatched_reference: Tensors of the reference without a partner.
        unmatched_candidate: Tensors of the candidate without a partner.
        verdict: The answer.
        notes: What the reader should know of how the result came about.
        outputs: Which outputs of the network were judged; None in documents of older versions.
        judgement: The grade with all that it rests on; None in documents of older versions.
    """

    reference: str
    candidate: str
    samples: tuple[str, ...]
    ordered: bool
    thresholds: ThresholdSet
    rows: tuple[TensorComparison, ...]
    unmatched_reference: tuple[str, ...]
    unmatched_candidate: tuple[str, ...]
    verdict: Verdict
    notes: tuple[Message, ...] = ()
    outputs: OutputCoverage | None = None
    judgement: Judgement | None = None

    @property
    def state(self) -> State:
        """The verdict in a word: it passes only when every output was judged, on samples that can show a fault."""
        if self.verdict.failed:
            return "fail"
        if self.judgement is not None and self.judgement.grade == "no_evidence":
            return "no_evidence"
        return "pass" if self.outputs is None or self.outputs.complete else "incomplete"
