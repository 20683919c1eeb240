"""A case: a quantized model and the few samples that show what is wrong with it, and the numbers that show it."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from roundoff.core.progress import Progress
from roundoff.core.tensors import Array
from roundoff.errors import BadInput
from roundoff.graph.quantized_model import QuantizedModel
from roundoff.messages.message import Message, english, message
from roundoff.messages.numbers import decibels_text
from roundoff.run.budget import RunBudget
from roundoff.run.capture import Samples
from roundoff.studies.layers.result import LayerReport, VerdictKind
from roundoff.studies.layers.study import LayerSettings, analyze_layers
from roundoff.studies.samples.result import WorstSamples
from roundoff.studies.samples.study import WorstSampleSettings, find_worst_samples

FACTOR_DB = 6.0
"""Two cases show the same fault only when their errors differ by no more than this, a factor of two: those at the
outputs, or those of a node that makes the fault."""
AT_OUTPUTS = english("the outputs")
_AT_FAULT = english("what makes the fault")
Tell = Callable[[Message], object]
"""Is told of each step of a long job when it is over."""


def untold(step: Message) -> None:
    """Tells nobody of a step."""


# Nodes whose ranks are kept; of two cases the first node of one must be among so many of the other.
_RANKED, _AMONG = 10, 3
# The fault of the whole set is measured on so many of its worst samples.
_MOST_SAMPLES = 8
# A smaller set of samples shows the fault when its error is at most this much smaller.
_CLOSE_DB = 3.0


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


@dataclass(frozen=True, slots=True, eq=False)
class CaseSamples:
    """Samples in memory, of any shapes; `roundoff.run.capture.Samples`.

    Attributes:
        label: Where they come from.
        names: What they are called.
        feeds: The value of every input, for each.
    """

    label: str
    names: tuple[str, ...]
    feeds: tuple[Mapping[str, Array], ...]

    def feed(self, index: int) -> Mapping[str, Array]:
        """The value of every input in one sample."""
        return self.feeds[index]


@dataclass(frozen=True, slots=True, eq=False)
class QuantizedCase:
    """What is handed on.

    Attributes:
        quantized: The float model and its quantizers.
        samples: Those that show the fault.
    """

    quantized: QuantizedModel
    samples: CaseSamples


def measure(case: QuantizedCase, *, limits: RunBudget, progress: Progress) -> CaseNumbers:
    """Measure what a case shows.

    Raises:
        BadInput: Nothing in it is quantized.
        ModelFailed: A model cannot be run.
    """
    worst = find_worst_samples(case.quantized, case.samples, WorstSampleSettings(limits=limits), progress=progress)
    settings = LayerSettings(max_memory=limits.max_memory, threads=limits.threads)
    report = analyze_layers(case.quantized, case.samples, settings, progress=progress)
    return _numbers(worst, report)


def _numbers(worst: WorstSamples, report: LayerReport) -> CaseNumbers:
    first = worst.samples[0]
    output = min(first.outputs, key=lambda each: each.values.get("sqnr_db", float("-inf")))
    return CaseNumbers(
        verdict=report.verdict.kind,
        output=output.output,
        sqnr_db=output.values.get("sqnr_db"),
        cosine=output.values.get("cosine"),
        nodes=_ranked(report),
        culprits={each.node or each.tensor: each.introduced.sqnr_db for each in report.verdict.culprits},
    )


def _ranked(report: LayerReport) -> tuple[NodeRank, ...]:
    rows = [(row, row.introduced) for row in report.rows if row.introduced is not None]
    rows.sort(key=lambda pair: -pair[1].output_share)
    return tuple(
        NodeRank(row.node or row.tensor, row.op_type, added.output_share, added.sqnr_db, added.cause)
        for row, added in rows[:_RANKED]
    )


@dataclass(frozen=True, slots=True)
class FaultMatch:
    """Whether one case shows what another does.

    Attributes:
        same: Whether it does.
        reasons: Why not.
        where: Where its error is that of the other: ``the outputs``, or ``what makes the fault``.
    """

    same: bool
    reasons: tuple[str, ...]
    where: str


def same_fault(
    before: CaseNumbers, after: CaseNumbers, names: Mapping[str, str], *, close_db: float
) -> FaultMatch:
    """Compare two cases.

    Args:
        before: The original.
        after: What is to show the same.
        names: What nodes and tensors of the original are called in the other one; the same where missing.
        close_db: By how much errors may differ.
    """
    reasons = []
    if before.verdict != after.verdict:
        text = english("the loss is {after} instead of {before}", after=after.verdict, before=before.verdict)
        reasons.append(text)
    ours = [names.get(name, name) for name in before.culprits]
    if before.culprits and not set(ours) & {*after.culprits, *(node.node for node in after.nodes[:_AMONG])}:
        reasons.append(english("{name} is not among the nodes that make it", name=ours[0]))
    elif not before.culprits and before.nodes and before.verdict == "distributed":
        first = names.get(before.nodes[0].node, before.nodes[0].node)
        if first not in [node.node for node in after.nodes]:
            text = english(
                "{name}, which adds most, is not among the first {count} nodes", name=first, count=len(after.nodes)
            )
            reasons.append(text)
    at_culprit = [
        (value, after.culprits[names.get(name, name)])
        for name, value in before.culprits.items()
        if names.get(name, name) in after.culprits
    ]
    where = AT_OUTPUTS if _close(before.sqnr_db, after.sqnr_db, close_db) else _AT_FAULT
    if where != AT_OUTPUTS and not any(_close(*pair, close_db) for pair in at_culprit):
        text = english(
            "the error at the outputs is {after} instead of {before}",
            after=_db(after.sqnr_db),
            before=_db(before.sqnr_db),
        )
        reasons.append(text)
    return FaultMatch(not reasons, tuple(reasons), where)


def _close(one: float | None, two: float | None, most: float) -> bool:
    if one is None or two is None:
        return one is two
    return one == two or abs(one - two) <= most


def _db(value: float | None) -> str:
    return "without a score" if value is None else decibels_text(value)


@dataclass(frozen=True, slots=True, eq=False)
class ChosenSamples:
    """Samples that show the fault.

    Attributes:
        samples: The fewest that do.
        numbers: What they show.
        whole: What many samples show.
        indices: Their places among all samples.
        total: How many samples there are.
    """

    samples: CaseSamples
    numbers: CaseNumbers
    whole: CaseNumbers
    indices: tuple[int, ...]
    total: int


def choose_samples(
    quantized: QuantizedModel, samples: Samples, *, limits: RunBudget, progress: Progress, tell: Tell = untold
) -> ChosenSamples:
    """The fewest samples that show what all show, the worst first.

    Args:
        quantized: The float model and its quantizers.
        samples: All of them.
        limits: What runs may take.
        progress: Told of runs.
        tell: Told of each step when it is over.

    Raises:
        BadInput: Nothing is quantized.
        ModelFailed: A model cannot be run.
    """
    worst = find_worst_samples(quantized, samples, WorstSampleSettings(limits=limits), progress=progress)
    ranked = [each.index for each in worst.samples]
    if not ranked:
        raise BadInput(english("There are no samples."), fix=english("give the run samples with --data"))

    def case(indices: Sequence[int]) -> QuantizedCase:
        names = tuple(samples.names[index] for index in indices)
        return QuantizedCase(
            quantized, CaseSamples(samples.label, names, tuple(samples.feed(index) for index in indices))
        )

    many = ranked[:_MOST_SAMPLES]
    whole = measure(case(many), limits=limits, progress=progress)
    tell(message("case.step_measured", count=len(many), db=_db(whole.sqnr_db)))
    count = 1
    while count < len(many):
        tried = case(many[:count])
        numbers = measure(tried, limits=limits, progress=progress)
        tell(message("case.step_measured", count=count, db=_db(numbers.sqnr_db)))
        if same_fault(whole, numbers, {}, close_db=_CLOSE_DB).same:
            return ChosenSamples(tried.samples, numbers, whole, tuple(many[:count]), len(ranked))
        count *= 2
    return ChosenSamples(case(many).samples, whole, whole, tuple(many), len(ranked))
