"""What a diagnosis found: nodes, causes, the experiments that proved them, and what to do, as data."""

from dataclasses import dataclass, field
from typing import Literal

from roundoff.core.coverage import Judgement, MetricScores, OutputCoverage
from roundoff.core.plan import Rule, Step
from roundoff.core.tensors import Topology
from roundoff.messages.message import Message, verbatim

DiagnosisKind = Literal["healthy", "culprits", "distributed", "elsewhere", "not_enough_evidence"]
DiagnosedSide = Literal["quantization", "device"]
NetworkName = Literal["float", "quantized", "repaired"]
CostClass = Literal["free", "nodes", "16 bit", "float", "outside"]

COSTS: tuple[CostClass, ...] = ("free", "nodes", "16 bit", "float", "outside")
"""What remedies cost, from cheapest to dearest: nothing on the chip, more nodes or quantizers, wider integers,
float, work by others."""

ChangeKind = Literal[
    "range", "codes", "per_channel", "per_slice", "bits", "float", "bias", "recalibrate", "accumulator", "input",
    "rule", "variation", "transform", "correction", "method", "weight_method", "tensor_method", "report", "search",
]  # fmt: skip


# What it is in documents of schema 1, which hold sentences.
_OLD_TOP1 = verbatim("same top-1")


@dataclass(frozen=True, slots=True)
class Measure:
    """One number before an intervention and after it.

    Attributes:
        what: What was measured: ``SQNR of the outputs``.
        unit: Its unit, e.g. ``dB``; empty without one.
        before: Without the intervention.
        after: With it.
        higher_is_better: Which way it is better.
        samples: On how many samples.
    """

    what: Message
    unit: str
    before: float
    after: float
    higher_is_better: bool = True
    samples: int = 0

    @property
    def improved(self) -> bool:
        """Whether it is better after than before."""
        return self.after > self.before if self.higher_is_better else self.after < self.before

    @property
    def of_task(self) -> bool:
        """Whether it is the user's metric, which a float network has, too; not a distance from that network."""
        return self.unit != "dB" and not self.of_top1 and not str(self.what).startswith("cosine")

    @property
    def of_top1(self) -> bool:
        """Whether it is the share of samples whose class stays the same."""
        return self.what.key == "diagnosis.measure_top" or self.what == _OLD_TOP1


@dataclass(frozen=True, slots=True)
class RemedyChange:
    """One change that a remedy makes, as data that a program can carry out.

    Attributes:
        kind: What is changed. Of quantizers: ``range`` (`low` and `high`), ``codes`` (rounded again from the float
            values), ``per_channel`` (`axis`), ``per_slice`` (`axis`, `sizes`), ``bits`` (`value` is the dtype),
            ``float``, ``bias`` (the mean error is taken away). Of a whole quantization: ``recalibrate``,
            ``accumulator`` (`value` is its width), ``input`` (`value` says how inputs are processed), and pieces
            of a recipe: ``rule``, ``variation``, ``transform``, ``correction``, ``method``, ``weight_method``,
            ``tensor_method``. Of neither: ``report`` (to the vendor), ``search`` (`value` is the command).
        tensors: Tensors of the float model it concerns.
        nodes: Nodes it concerns.
        value: The new value, where it is a word.
        low: Lower end of a range.
        high: Upper end of a range.
        axis: Axis along which scales differ.
        sizes: Sizes of the slices along that axis.
        rule: For ``rule``.
        step: For ``transform`` and ``correction``.
    """

    kind: ChangeKind
    tensors: tuple[str, ...] = ()
    nodes: tuple[str, ...] = ()
    value: str = ""
    low: float | None = None
    high: float | None = None
    axis: int | None = None
    sizes: tuple[int, ...] = ()
    rule: Rule | None = None
    step: Step | None = None


@dataclass(frozen=True, slots=True)
class Remedy:
    """What to do about a cause.

    Attributes:
        title: As an order: ``widen the range of 'x' to -3.1 .. 6.2``.
        cost: What that costs on the chip.
        changes: The same as data.
        verified: What was measured with the remedy in place, not only the intervention; empty when not tried.
    """

    title: Message
    cost: CostClass
    changes: tuple[RemedyChange, ...] = ()
    verified: tuple[Measure, ...] = ()


@dataclass(frozen=True, slots=True)
class Control:
    """What stands beside a proof, so that chance does not pass for one.

    Attributes:
        elsewhere: The same number before and after the best of some changes of the same kind at other places; None
            where there are no others.
        others: At how many other places.
        other_half: The same number on samples that the change was not fitted to; None with a single sample.
        better: Samples that are better with the change; a difference far below what matters is none.
        samples: Of how many.
        probability: Of a mean difference between samples at least as large by chance; None with a single sample.
        holds: Whether the proof stands: others do not do as much, or all samples confirm it.
    """

    elsewhere: Measure | None = None
    others: int = 0
    other_half: Measure | None = None
    better: int = 0
    samples: int = 0
    probability: float | None = None
    holds: bool = True


@dataclass(frozen=True, slots=True)
class ValueProfile:
    """What one tensor to blame holds against what its quantizer can hold, small enough for a document.

    Attributes:
        node: The node to blame.
        tensor: The tensor.
        weight: Whether it is a constant; of an activation a few samples were looked at.
        dtype: Type of its codes: ``s8``.
        scales: How many scales it has.
        scale: Its scale; the largest where it has several.
        low: Smallest value that has a code.
        high: Largest value that has a code.
        channels: How many channels it has; 0 without any.
        inner: Whether they are the channels that a weight reads, not those that it writes.
        reaches: Largest magnitude of each channel; of more than 512 evenly spaced quantiles, largest first.
        counts: Values in each of 60 bins of equal width from `start` to `end`.
        start: Where the first bin begins.
        end: Where the last bin ends.
        zeros: Share of the values that are not zero and get the code of zero.
        clipped: Share of the values beyond `low` and `high` by more than half a step.
        shared: The tensor whose scale it must do with, where it has none of its own.
    """

    node: str
    tensor: str
    weight: bool
    dtype: str
    scales: int
    scale: float
    low: float
    high: float
    channels: int = 0
    inner: bool = field(default=False, metadata={"rare": True}, kw_only=True)
    reaches: tuple[float, ...] = ()
    counts: tuple[int, ...] = ()
    start: float = 0.0
    end: float = 0.0
    zeros: float = 0.0
    clipped: float = 0.0
    shared: str = field(default="", metadata={"rare": True})


@dataclass(frozen=True, slots=True)
class ValuePairs:
    """What a device wrote of one tensor to blame against what its own inputs give, in some values.

    Attributes:
        node: The node to blame.
        tensor: The tensor.
        expected: What its inputs give, in rising order.
        found: What the device wrote in these places.
        gain: Of the straight line through all values, by least squares.
        offset: Where that line crosses zero.
        correlation: Between all values of the two; 0 where one of them is constant.
    """

    node: str
    tensor: str
    expected: tuple[float, ...]
    found: tuple[float, ...]
    gain: float
    offset: float
    correlation: float


@dataclass(frozen=True, slots=True)
class LayerErrors:
    """What every tensor that leaves a unit loses, in columns: one entry for each, in execution order.

    Attributes:
        samples: Names of the samples that were measured.
        nodes: The node that computes it.
        units: First node of its unit.
        tensors: The tensor.
        shapes: Its shape in the first sample.
        dtypes: Type of its codes; ``float`` where it is not quantized.
        outputs: Whether it is an output of the network.
        local_db: Signal to noise of its unit alone, fed by the float network; None where it has no score. Of a
            device, of the tensor against what the device's own inputs give.
        accumulated_db: Signal to noise while all of the quantized network, or the device, runs; likewise.
        cosine: Of the accumulated error.
        rms_steps: Root of the mean square of the local error, in steps of its quantizer.
        clipped: Share of the float values beyond its range.
        worst_channel: Channel with the least signal to noise by the local error.
        worst_channel_db: Its signal to noise.
        profiles: What the weights of the worst hold that no finding accuses.
    """

    samples: tuple[str, ...]
    nodes: tuple[str, ...]
    units: tuple[str, ...]
    tensors: tuple[str, ...]
    shapes: tuple[str, ...]
    dtypes: tuple[str, ...]
    outputs: tuple[bool, ...]
    local_db: tuple[float | None, ...]
    accumulated_db: tuple[float | None, ...]
    cosine: tuple[float | None, ...]
    rms_steps: tuple[float | None, ...]
    clipped: tuple[float | None, ...]
    worst_channel: tuple[int | None, ...]
    worst_channel_db: tuple[float | None, ...]
    profiles: tuple[ValueProfile, ...] = ()

    def rows_of(self, network: Topology) -> dict[str, int]:
        """The row of each node: its own, or that of the tensor it is computed into without leaving its unit."""
        found = {name: at for at, name in enumerate(self.nodes)}
        readers: dict[str, list[str]] = {}
        for node in network.nodes:
            for tensor in node.inputs:
                readers.setdefault(tensor, []).append(node.name)
        for node in reversed(network.nodes):
            reading = {name for tensor in node.outputs for name in readers.get(tensor, ())}
            if node.name not in found and len(reading) == 1 and (only := reading.pop()) in found:
                found[node.name] = found[only]
        return found

    @property
    def judged(self) -> int:
        """How many of them have a score."""
        return sum(each is not None for each in self.accumulated_db)


@dataclass(frozen=True, slots=True)
class NetworkScore:
    """The user's metric of one network.

    Attributes:
        of: Which network.
        value: The metric.
        samples: On how many samples, or rows of them.
        right: How many of these are right; None where the metric is no share of right answers.
        interval: Where the metric lies for many more samples like these, with a confidence of 95 %; Wilson's for a
            share of right answers; None where it has one value for all samples.
        held_out: Whether nothing was chosen on these samples.
    """

    of: NetworkName
    value: float
    samples: int
    right: int | None = None
    interval: tuple[float, float] | None = None
    held_out: bool = False


@dataclass(frozen=True, slots=True)
class Finding:
    """One cause of a loss, at one place.

    Attributes:
        number: From 1, worst first.
        cause: Name of a registered cause.
        nodes: Nodes of the float model to blame, the first one most.
        tensors: Their tensors to blame.
        summary: One plain sentence with numbers, without its full stop.
        evidence: What made it suspect: cheap numbers by name.
        intervention: What was changed to prove it, exactly; None where nothing was.
        measures: What that did; the first decides.
        share: Share of the loss that goes away with it, 0 to 1.
        remedy: What to do about it; None where nothing is to be done.
        proven: Whether the intervention took the loss away; otherwise it is suspected only, and no verdict.
        places: At how many places it is the same; those are told together where they are many.
        control: What the same kind of change does elsewhere and on other samples; None where that was not tried.
        profiles: What the first tensors to blame hold, and what their quantizers can.
        pairs: Of a device, what it wrote of the first tensors to blame, beside what it should have.
    """

    number: int
    cause: str
    nodes: tuple[str, ...]
    tensors: tuple[str, ...]
    summary: Message
    evidence: dict[str, float] = field(default_factory=dict)
    intervention: Message | None = None
    measures: tuple[Measure, ...] = ()
    share: float = 0.0
    remedy: Remedy | None = None
    proven: bool = False
    places: int = 1
    control: Control | None = None
    profiles: tuple[ValueProfile, ...] = field(default=(), metadata={"rare": True})
    pairs: tuple[ValuePairs, ...] = field(default=(), metadata={"rare": True})

    @property
    def of_task(self) -> tuple[Measure, ...]:
        """What the intervention did to the user's metric; none where that does not drop."""
        return tuple(each for each in self.measures[1:] if each.of_task)

    @property
    def accused_nodes(self) -> tuple[str, ...]:
        """The node of each place, the worst first, without the others that share its quantizers."""
        return self.nodes[: self.places]


@dataclass(frozen=True, slots=True)
class Check:
    """One thing that was looked at.

    Attributes:
        name: What.
        result: What came of it, in a sentence without its full stop.
        seconds: How long it took; not the same in another run.
        ok: Whether nothing is wrong there.
    """

    name: Message
    result: Message
    seconds: float = 0.0
    ok: bool = True


@dataclass(frozen=True, slots=True)
class RepairStep:
    """One remedy that was tried.

    Attributes:
        title: What was done.
        cost: What it costs on the chip.
        finding: Number of the finding it is for; 0 when it is for none.
        measure: The metric before and after it.
        kept: Whether it helped and is part of the repaired model.
        why: Why not; None when it was kept.
        added: What it adds to the model, counted there; None where that is nothing, or no model was made.
    """

    title: Message
    cost: CostClass
    finding: int
    measure: Measure
    kept: bool
    why: Message | None = None
    added: Message | None = None


CERTAIN_DB = 1.0
"""A figure in decibels is told as that of other samples where these are within so many of it, else a bound is."""

_BOUND_DB = 2.5
"""What is repaired has at most so many decibels less on other samples."""


@dataclass(frozen=True, slots=True)
class Repair:
    """What came of applying remedies, from cheapest to dearest.

    Attributes:
        steps: All that were tried, in their order.
        measures: Before all of them and after; the first is the one that decided. Measured on samples that were
            held out, where some were.
        reached: Whether it is repaired: proven on other samples, and diagnosed again without a finding.
        used: Samples that steps were chosen on.
        held_out: Samples that the measures are of, and nothing was chosen on; 0 where there were too few.
        interval: Where the first measure lies, after the repair, for many more samples like these, with a
            confidence of 95 %; None where it has no value for each sample.
        gain: The same for what was gained.
        again: What the repaired model was diagnosed as, on the samples that were held out; None where it was not.
        doubts: Why it is not called repaired though it is better, and what to know of the figure.
        scores: The user's metric of the float, the quantized and the repaired network on the same samples: those
            that were held out, where some were.
        accumulated_db: Signal to noise of the tensors of the diagnosis' `layers` while all of the repaired network
            runs, on the same samples; None for a tensor that it does not have.
        operators: Nodes that the repaired float model has beyond the diagnosed one, by operation.
        precisions: How many tensors have which codes, as in the diagnosis.
    """

    steps: tuple[RepairStep, ...]
    measures: tuple[Measure, ...]
    reached: bool = False
    used: int = 0
    held_out: int = 0
    interval: tuple[float, float] | None = None
    gain: tuple[float, float] | None = None
    again: DiagnosisKind | None = None
    doubts: tuple[Message, ...] = ()
    scores: tuple[NetworkScore, ...] = field(default=(), metadata={"rare": True})
    accumulated_db: tuple[float | None, ...] = field(default=(), metadata={"rare": True})
    operators: dict[str, int] = field(default_factory=dict, metadata={"rare": True})
    precisions: dict[str, int] = field(default_factory=dict, metadata={"rare": True})

    @property
    def known(self) -> bool:
        """Whether a figure in decibels is known to hold for other samples, within one of them."""
        if self.interval is None or not self.measures:
            return False
        return max(abs(end - self.measures[0].after) for end in self.interval) <= CERTAIN_DB

    @property
    def bounded(self) -> bool:
        """Whether a bound for other samples is near the figure in decibels of these."""
        if self.interval is None or not self.measures:
            return False
        return self.interval[0] >= self.measures[0].after - _BOUND_DB

    @property
    def proven(self) -> bool:
        """Whether other samples show a gain that is no chance; documents of earlier versions do not say."""
        return self.held_out > 0 and self.gain is not None and self.gain[0] > 0


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """The whole answer.

    Attributes:
        reference: The float model.
        subject: What was diagnosed.
        side: Whether the quantization or a device was.
        kind: The verdict. ``healthy``: the loss is what the arithmetic costs. ``culprits``: few places make it.
            ``distributed``: it adds up over many. ``elsewhere``: what was looked at is in order, and what is wrong
            is not there. ``not_enough_evidence``: it could not be told.
        verdict: The same in a sentence or two.
        findings: Proven ones first, worst first; then suspected ones.
        measures: What the loss is, against what the arithmetic should cost: ``before`` is what was met, ``after``
            what was to be expected.
        victims: Tensors whose error is inherited from their inputs, worst first.
        checks: What was looked at, in order.
        not_looked_at: What was not, with the reason.
        notes: What the reader should know.
        samples: Samples that were used.
        next_steps: Commands to go on with.
        repair: What came of repairing it; None when that was not asked.
        sample_names: Samples of which the next are, where they are known.
        sample_sqnr_db: Signal to noise of each, at the part of the outputs that the first measure is of.
        outputs: Which outputs of the network were judged on a device; None where none was looked at.
        judgement: What the one judge says of the outputs, and what that rests on; None in older documents.
        metric: The user's metric of the quantized network; None without one.
        scores: The user's metric of the float and of the quantized network on all samples that it was measured on.
        layers: What every tensor that leaves a unit loses; None where there was no time for it.
        target: The chip it was quantized for; empty where that is not known.
        data: What the samples were read from.
        precisions: How many tensors have which codes: ``weight s8 per channel``.
    """

    reference: str
    subject: Message
    side: DiagnosedSide
    kind: DiagnosisKind
    verdict: Message
    findings: tuple[Finding, ...] = ()
    measures: tuple[Measure, ...] = ()
    victims: tuple[str, ...] = ()
    checks: tuple[Check, ...] = ()
    not_looked_at: tuple[Message, ...] = ()
    notes: tuple[Message, ...] = ()
    samples: int = 0
    next_steps: tuple[str, ...] = ()
    repair: Repair | None = None
    sample_names: tuple[str, ...] = ()
    sample_sqnr_db: tuple[float, ...] = ()
    outputs: OutputCoverage | None = None
    judgement: Judgement | None = None
    metric: MetricScores | None = None
    scores: tuple[NetworkScore, ...] = field(default=(), metadata={"rare": True})
    layers: LayerErrors | None = field(default=None, metadata={"rare": True})
    target: str = field(default="", metadata={"rare": True})
    data: str = field(default="", metadata={"rare": True})
    precisions: dict[str, int] = field(default_factory=dict, metadata={"rare": True})

    @property
    def accused(self) -> tuple[Finding, ...]:
        """Proven findings that do harm; an artefact of a metric does none."""
        return tuple(each for each in self.findings if each.proven and each.cause != "metric-artefact")


def is_unexplained(found: Diagnosis) -> bool:
    """Whether outputs lose too much, and neither a cause was found nor what speaks against the samples."""
    judged = found.judgement
    return (
        found.kind == "not_enough_evidence"
        and judged is not None
        and judged.grade == "lossy"
        and not judged.doubts
    )
