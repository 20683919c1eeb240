"""What quantization costs each layer of a network, as data."""

from dataclasses import dataclass, field
from typing import Literal

from roundoff.core.scores import Status

__all__ = [
    "Cause",
    "Culprit",
    "Introduced",
    "LayerReport",
    "LayerRow",
    "LayerScore",
    "LayerVerdict",
    "Method",
    "Mode",
    "Overflow",
    "VerdictKind",
]

Method = Literal["local", "accumulated", "both"]
Mode = Literal["reference", "integer"]
VerdictKind = Literal["fine", "local", "distributed", "open"]
Cause = Literal["clipping", "rounding", "weights", "integer arithmetic"]


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
    """

    status: Status
    detail: str = ""
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


@dataclass(frozen=True, slots=True)
class Introduced:
    """The error a unit adds itself, its inputs being exact, and what becomes of it.

    Attributes:
        sqnr_db: At the tensor it writes.
        channel_sqnr_db: The same in the median channel: an outlier in one channel hides what all others lose.
        output_share: Estimated share of the error at the network's outputs that comes from here, 0 to 1.
        cause: What makes most of it.
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
class Culprit:
    """A unit that introduces an error that matters at the outputs.

    Attributes:
        node: The node to look at: the one whose weights or whose result is to blame; empty for an input.
        op_type: Its operation.
        tensor: The tensor the unit writes, or the input of the network.
        introduced: How much, and what of it arrives.
        clipped: Share of the tensor's float values that are cut off.
        used_levels: Distinct codes of the tensor that occur when its inputs are exact.
        levels: Codes it has.
    """

    node: str
    op_type: str
    tensor: str
    introduced: Introduced
    clipped: float | None
    used_levels: int | None
    levels: int | None


@dataclass(frozen=True, slots=True)
class Overflow:
    """A node whose sums or biases did not fit the integers they are computed in.

    Attributes:
        node: The node.
        op_type: Its operation.
        text: What overflowed, and how often.
    """

    node: str
    op_type: str
    text: str


@dataclass(frozen=True, slots=True)
class LayerVerdict:
    """Whether the loss is local or accumulates.

    Attributes:
        kind: ``fine``: the outputs agree and nothing stands out; ``local``: few units introduce most of the loss;
            ``distributed``: it adds up over many; ``open``: not everything that decides it was measured.
        outputs: The network's outputs, worst first; their scores are in the rows.
        agrees: Whether all outputs keep the thresholds.
        thresholds: Those, in words.
        culprits: Units that introduce the loss, largest share first; what stands out when nothing accumulated was
            measured.
        masked: Tensors of other units that are bad on their own, but hardly show at the outputs as things are.
        share: Share of the outputs' error that the culprits explain.
        contributors: How many units add an error.
        half: How many of them, the largest first, make half of the error.
    """

    kind: VerdictKind
    outputs: tuple[str, ...]
    agrees: bool | None
    thresholds: str
    culprits: tuple[Culprit, ...] = ()
    masked: tuple[str, ...] = ()
    share: float | None = None
    contributors: int = 0
    half: int = 0


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
    """

    reference: str
    samples: tuple[str, ...]
    method: Method
    mode: Mode
    arithmetic: str
    rows: tuple[LayerRow, ...]
    verdict: LayerVerdict
    overflows: tuple[Overflow, ...] = ()
    float_nodes: dict[str, str] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
