"""What quantization costs each layer of a network, as data."""

from dataclasses import dataclass, field
from typing import Literal

from roundoff.core.coverage import Judgement
from roundoff.measure.metrics import Status
from roundoff.messages.message import NOTHING, Message, message

Method = Literal["local", "accumulated", "both"]
Mode = Literal["reference", "integer"]
VerdictKind = Literal["fine", "local", "distributed", "open"]
Cause = Literal["clipping", "rounding", "weights", "integer arithmetic"]

WEIGHTS_UNKNOWN = message("layers.unjudged_weights")
"""Of what is not judged: all weights, because quantizing changes none of them any more."""


@dataclass(frozen=True, slots=True)
class LayerScore:
    """How one tensor of the quantized network agrees with the float one, over all samples.

    What does not exist is None: the scores of a tensor that could not be compared, steps and levels of one that is
    not quantized.

    Attributes:
        status: As for any compared tensor.
        detail: Why there is no score, or what was left out; empty when all is well.
        cosine: Cosine of the angle between both.
        mse: Mean of the squared errors.
        sqnr_db: Energy of the float tensor over energy of the error.
        rms_steps: Root of the mean squared error, in steps of the tensor's quantizer.
        max_steps: Largest error, in steps.
        used_levels: Distinct codes that occur.
        worst_channel: Channel with the lowest SQNR; None without channels or without error.
        worst_channel_sqnr_db: Its SQNR.
        worst_sample: Sample with the lowest SQNR; empty without error.
        worst_sample_sqnr_db: Its SQNR.
        sample_sqnr_db: SQNR of each of the first samples, NaN where the float tensor is silent; empty in documents
            of older versions.
    """

    status: Status
    detail: Message = NOTHING
    cosine: float | None = None
    mse: float | None = None
    sqnr_db: float | None = None
    rms_steps: float | None = None
    max_steps: float | None = None
    used_levels: int | None = None
    worst_channel: int | None = None
    worst_channel_sqnr_db: float | None = None
    worst_sample: str = ""
    worst_sample_sqnr_db: float | None = None
    sample_sqnr_db: tuple[float, ...] = ()


@dataclass(frozen=True, slots=True)
class Introduced:
    """The error a unit adds itself, its inputs being exact, and what becomes of it.

    Attributes:
        sqnr_db: At the tensor it writes.
        channel_sqnr_db: The same in the median channel: an outlier in one channel hides what all others lose.
        output_share: Estimated share of the error at the network's outputs that comes from here, 0 to 1. It says
            in which order to try units; what they really cost is measured, see `Experiment`.
        cause: What makes most of it at this tensor.
    """

    sqnr_db: float
    channel_sqnr_db: float
    output_share: float
    cause: Cause


@dataclass(frozen=True, slots=True)
class LayerRow:
    """One tensor that a node computes.

    Attributes:
        order: Position in execution order.
        node: The node.
        op_type: Its operation.
        unit: First node of the unit it is computed in; its own name when it stands alone.
        tensor: The tensor.
        shape: Its shape in the first sample.
        dtype: Its type in the float network.
        quantized: Type of its codes (``u8``, ``s16``); ``float`` when it is not quantized, ``fused`` when it never
            leaves its unit.
        output: Whether it is an output of the network.
        samples: How many samples were measured.
        levels: Codes its quantizer has.
        clipped: Share of the float values that are more than half a step outside what its quantizer can represent.
        local: The node fed with the float network's tensors, quantized on entry; None when not measured.
        accumulated: The quantized network running through; None when not measured.
        introduced: What its unit adds; None for tensors inside a unit and when not measured.
        differing_codes: Share of elements whose codes differ between exact-integer arithmetic and the reference,
            both fed alike; None when not measured.
        distant_codes: Share of those that differ by more than one step.
    """

    order: int
    node: str
    op_type: str
    unit: str
    tensor: str
    shape: tuple[int, ...]
    dtype: str
    quantized: str
    output: bool
    samples: int
    levels: int | None = None
    clipped: float | None = None
    local: LayerScore | None = None
    accumulated: LayerScore | None = None
    introduced: Introduced | None = None
    differing_codes: float | None = None
    distant_codes: float | None = None


@dataclass(frozen=True, slots=True)
class Experiment:
    """What the outputs of the quantized network are when some of it is in float, measured.

    Attributes:
        switched_off: Names of the quantizers that were off.
        sqnr_db: Of the worst output.
        cosine: Of that output.
        agrees: Whether all outputs keep the thresholds.
    """

    switched_off: tuple[str, ...]
    sqnr_db: float
    cosine: float
    agrees: bool


@dataclass(frozen=True, slots=True)
class Culprit:
    """A unit that, with few others, was proven to make most of the error at the outputs.

    Attributes:
        node: The node to look at: the one whose weights or whose result is to blame; empty for an input.
        op_type: Its operation.
        weighted: The node of the unit that has weights; `node` itself where there is none.
        tensor: The tensor the unit writes, or the input of the network.
        introduced: How much it adds at that tensor.
        clipped: Share of the tensor's float values that are cut off.
        used_levels: Distinct codes of the tensor that occur when its inputs are exact.
        levels: Codes it has.
        remedy: What to give to ``--set`` for what was in float of it.
        quantized_again: The outputs with this unit quantized and the other culprits in float; None where it is the
            only one.
        weights_again: The same with its weights quantized, and what it writes in float; None when not tried.
        result_again: The same with what it writes quantized, and its weights in float; None when not tried.
        worst_channel: Channel of the tensor that loses most; None without channels.
        worst_channel_sqnr_db: Its SQNR, the unit's inputs being exact.
        lost_channels: Channels of which nothing is left: below 3 dB.
        channels: All channels that are not silent.
    """

    node: str
    op_type: str
    weighted: str
    tensor: str
    introduced: Introduced
    clipped: float | None
    used_levels: int | None
    levels: int | None
    remedy: tuple[str, ...] = ()
    quantized_again: Experiment | None = None
    weights_again: Experiment | None = None
    result_again: Experiment | None = None
    worst_channel: int | None = None
    worst_channel_sqnr_db: float | None = None
    lost_channels: int = 0
    channels: int = 0


@dataclass(frozen=True, slots=True)
class LayerOverflow:
    """A node whose sums or biases did not fit the integers they are computed in.

    Attributes:
        node: The node.
        op_type: Its operation.
        text: What overflowed, and how often.
    """

    node: str
    op_type: str
    text: Message


@dataclass(frozen=True, slots=True)
class LayerVerdict:
    """Whether the loss is local or accumulates.

    Attributes:
        kind: ``fine``: the outputs agree and nothing stands out; ``local``: few units in float were measured to
            take most of the loss away; ``distributed``: those tried do not; ``open``: not everything that decides
            it was measured.
        outputs: The network's outputs, worst first; their scores are in the rows.
        agrees: Whether all outputs keep the thresholds.
        thresholds: Those, in words.
        culprits: The units that take the loss away when they are in float, those first that look worst.
        masked: Tensors of other units that are bad on their own, but hardly show at the outputs as things are.
        contributors: How many units add an error.
        tried: Tensors of the units that were in float in `after`.
        samples: On how many samples units were put into float; 0 when none was.
        before: The outputs of the quantized network on these samples.
        after: Those with the culprits in float, where the loss is local; else with the units in float that helped
            most of all sets tried.
        float_weights: Those with all weights in float; measured where the loss is distributed.
        float_activations: Those with all activations in float, likewise.
        not_judged: What no score here tells anything of, and why.
    """

    kind: VerdictKind
    outputs: tuple[str, ...]
    agrees: bool | None
    thresholds: str
    culprits: tuple[Culprit, ...] = ()
    masked: tuple[str, ...] = ()
    contributors: int = 0
    tried: tuple[str, ...] = ()
    samples: int = 0
    before: Experiment | None = None
    after: Experiment | None = None
    float_weights: Experiment | None = None
    float_activations: Experiment | None = None
    not_judged: tuple[Message, ...] = ()


@dataclass(frozen=True, slots=True)
class LayerReport:
    """Everything a layer-by-layer run found.

    Attributes:
        reference: Where the float network came from.
        samples: Names of the samples.
        method: Which errors were measured.
        mode: How the quantized network was computed.
        arithmetic: The same in words.
        rows: In execution order.
        verdict: The answer.
        overflows: Where integers were too small.
        float_nodes: Nodes that ran in float although the run was to be in integers, with the reason.
        notes: What the reader should know of how the result came about.
        quantized: What was analyzed, in words: its file, or for which target and how it was quantized.
        preparation: What was noted when the model was prepared, quantized or read.
        judgement: What the one judge says of the outputs; None in documents of older versions.
    """

    reference: str
    samples: tuple[str, ...]
    method: Method
    mode: Mode
    arithmetic: Message
    rows: tuple[LayerRow, ...]
    verdict: LayerVerdict
    overflows: tuple[LayerOverflow, ...] = ()
    float_nodes: dict[str, Message] = field(default_factory=dict)
    notes: tuple[Message, ...] = ()
    quantized: Message = NOTHING
    preparation: tuple[Message, ...] = ()
    judgement: Judgement | None = None

    @property
    def exit_good(self) -> bool:
        """Whether a command ends with 0: the verdict is good, or none was asked for and the outputs are fine."""
        fine = self.judgement is None or self.judgement.good
        return fine and (self.verdict.kind == "fine" or self.method != "both")
