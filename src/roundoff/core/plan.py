"""The plan of a quantization: what was asked for each node, what it gets, which quantizers follow from that."""

from dataclasses import dataclass, field
from typing import Literal

from roundoff.core.quantizers import Consumer, Kind, QuantSpec
from roundoff.messages.message import NOTHING, Message

FLOAT = "float"
"""The precision of what is not quantized."""

PRECISION_PARTS = ("activation", "weight", "output")
"""Parts of a node that have a precision of their own."""

NumberKind = Literal["integer", "float", "none"]
"""What a node computes with; none for shapes, indices and the like."""

SelectorKind = Literal["node", "tensor", "op", "between", "any"]


@dataclass(frozen=True, slots=True)
class Precision:
    """Dtypes of a node's parts, e.g. ``u8``, ``s16`` or ``float``; empty where nothing is said, or nothing exists.

    Attributes:
        activation: Its activation inputs.
        weight: Its weight.
        output: Its output.
    """

    activation: str = ""
    weight: str = ""
    output: str = ""

    @property
    def arithmetic(self) -> NumberKind:
        """What a node computes with that has these: float as soon as something is float that it reads.

        What reads nothing is what it hands on; without any of it there are no values to compute.
        """
        read = {*self.activation.split("/"), *self.weight.split("/")} - {""}
        dtypes = read or set(self.output.split("/")) - {""}
        return "float" if FLOAT in dtypes else "integer" if dtypes else "none"


@dataclass(frozen=True, slots=True)
class Rule:
    """A wish of the user: these nodes in this precision.

    Attributes:
        kind: What the selector names; ``any`` tries node names, then tensor names, then op types.
        selector: A name, or a glob. For ``between`` the start tensors.
        end: For ``between`` the end tensors.
        precision: What is wished.
    """

    kind: SelectorKind
    selector: tuple[str, ...]
    precision: Precision
    end: tuple[str, ...] = ()


def precision_text(precision: Precision) -> str:
    """A precision as it is written on the command line."""
    whole = Precision(precision.activation, FLOAT if precision.activation == FLOAT else "", precision.activation)
    if precision.activation and precision == whole:
        return precision.activation
    return ",".join(f"{part}={dtype}" for part in PRECISION_PARTS if (dtype := getattr(precision, part)))


def inputs_text(precision: Precision) -> str:
    """The precision of what a node reads, in a word where one will do: ``u16``, ``float``, ``u8,weight=s16``."""
    both = precision.activation == precision.weight == FLOAT
    weight = f",weight={precision.weight}" if precision.weight and not both else ""
    return f"{precision.activation}{weight}" if precision.activation else precision_text(precision)


def rule_text(rule: Rule) -> str:
    """A rule as it is written on the command line."""
    selector = ",".join(rule.selector) + (f"..{','.join(rule.end)}" if rule.kind == "between" else "")
    kind = "" if rule.kind == "any" else f"{rule.kind}:"
    return f"{kind}{selector}={precision_text(rule.precision)}"


@dataclass(frozen=True, slots=True)
class Resolution:
    """What became of a rule.

    Attributes:
        rule: The rule.
        matched: Nodes it names, by their names in the user's model.
        applied: Those of them that have the precision asked for, as far as no other rule asks for something else.
        reasons: Why the others have not, by node.
        remarks: What is worth knowing of those that have: which part another rule decides, what is without effect.
    """

    rule: Rule
    matched: tuple[str, ...]
    applied: tuple[str, ...]
    reasons: dict[str, Message]
    remarks: dict[str, Message] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class NodePlan:
    """What one node was meant to be and what it becomes.

    Attributes:
        node: Its name in the user's model.
        op_type: Its operation.
        unit: The first node of the fused group it is computed in; its own name when it stands alone.
        requested: By the most specific rule that names it, or by the target.
        effective: What it gets, of the parts that are its own: a node inside a unit has none.
        reason: Why that differs from the request, or from the target's default; empty when it does not.
        seen: What it reads, its weight and what it hands on in the model that is written, as
            `roundoff.graph.units` sees it there; a node inside a unit has the inputs and the output of that.
    """

    node: str
    op_type: str
    unit: str
    requested: Precision
    effective: Precision
    reason: Message = NOTHING
    seen: Precision = Precision()

    @property
    def in_float(self) -> bool:
        """Whether it reads something that is not quantized, and so computes in float."""
        return self.seen.arithmetic == "float"

    @property
    def float_between_integers(self) -> bool:
        """Whether it is meant to compute in float although all it reads is quantized."""
        return self.seen.arithmetic == "integer" and FLOAT in (self.effective.activation, self.effective.weight)


@dataclass(frozen=True, slots=True)
class PlannedQuantizer:
    """A quantizer without its scale; see `roundoff.core.quantizers.Quantizer`.

    Attributes:
        name: Unique in the plan.
        tensor: What it quantizes.
        kind: What that is.
        spec: How.
        consumers: Which node inputs see it.
        output: Whether the tensor leaves the network quantized.
        after: The quantizer whose result it quantizes again.
        group: Quantizers of one group share scale and zero point.
        method: Calibration method that finds its range; empty for biases and fixed ranges.
        fixed_range: The range it gets whatever is observed.
        range_limit: The range it is cut to where it was observed to be wider.
        scale_of: For a bias, the names of the input's and the weight's quantizer, whose scales it multiplies.
    """

    name: str
    tensor: str
    kind: Kind
    spec: QuantSpec
    consumers: tuple[Consumer, ...]
    output: bool = False
    after: str = ""
    group: str = ""
    method: str = ""
    fixed_range: tuple[float, float] | None = None
    range_limit: tuple[float, float] | None = None
    scale_of: tuple[str, str] | None = None


@dataclass(frozen=True, slots=True)
class QuantPlan:
    """Everything that decides a quantization except the numbers found by calibration.

    Attributes:
        target: Name of the target.
        quantizers: In execution order of their tensors.
        nodes: In execution order.
        resolutions: One for each rule, in the order given.
    """

    target: str
    quantizers: tuple[PlannedQuantizer, ...]
    nodes: tuple[NodePlan, ...]
    resolutions: tuple[Resolution, ...] = ()


# A recipe: everything that decides a quantized model besides the float model, the target and the samples.

OptionValue = float | int | str | bool


@dataclass(frozen=True, slots=True)
class Step:
    """One transform of the float model, or one correction of the quantized one.

    Attributes:
        name: Under which it is registered.
        options: Its options by name, sorted; what is not here has its default.
        nodes: The nodes it is limited to, by their names in the user's model; all that can take part when empty.
    """

    name: str
    options: tuple[tuple[str, OptionValue], ...] = ()
    nodes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Recipe:
    """How a float model is quantized, as data: two equal recipes give the same model, bit for bit.

    Attributes:
        method: Calibration method of activations; the target's own when empty.
        weight_method: Calibration method of weights; the target's own when empty.
        tensor_methods: Tensors whose range another method finds, each with its name, sorted.
        variations: What is done otherwise than by the target's default but within what the target allows, sorted.
        transforms: Changes of the float model that keep its function, in their order.
        rules: Nodes in another precision.
        corrections: Changes of the quantized numbers, in their order.
    """

    method: str = ""
    weight_method: str = ""
    tensor_methods: tuple[tuple[str, str], ...] = ()
    variations: tuple[str, ...] = ()
    transforms: tuple[Step, ...] = ()
    rules: tuple[Rule, ...] = ()
    corrections: tuple[Step, ...] = ()
