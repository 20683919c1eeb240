"""What a quantization decided, as other tools can be told it: node by node, and tensor by tensor."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Literal

from roundoff.core.plan import FLOAT, Precision, QuantPlan, Rule
from roundoff.core.quantizers import Quantizer
from roundoff.graph.precisions import NodePrecisions
from roundoff.graph.quantized_model import QuantizedModel

__all__ = ["COMMON_BITS", "Decisions", "Made", "NodeDecision", "decisions_of"]

COMMON_BITS = 8
"""What every tool quantizes to unless it is told otherwise."""

# What plans say where they were read from a model, and nobody knows.
_AS_GIVEN = "as given"
# Operations that compute nothing: tools give them the type of what they read.
_MOVES = frozenset({
    "Identity", "Reshape", "Flatten", "Squeeze", "Unsqueeze", "Transpose", "Slice", "Split", "Gather", "Expand",
    "Tile", "DepthToSpace", "SpaceToDepth", "Dropout",
})  # fmt: skip


@dataclass(frozen=True, slots=True)
class NodeDecision:
    """What one node computes with.

    Attributes:
        name: Its name in the user's model.
        op_type: Its operation.
        outputs: The tensors it computes.
        precision: What it reads, its weight, and what it hands on.
        inputs: The dtype at each of its inputs that comes from outside of what it is fused with, by place.
        float_between: Whether it is meant to compute in float although all it reads is quantized.
    """

    name: str
    op_type: str
    outputs: tuple[str, ...]
    precision: Precision
    inputs: Mapping[int, str] = field(default_factory=dict)
    float_between: bool = False

    @property
    def in_float(self) -> bool:
        """Whether it computes in float: it is meant to, or reads something that is not quantized."""
        return self.float_between or self.precision.arithmetic == FLOAT

    @property
    def bits(self) -> int:
        """Width of the widest codes it reads; 0 when it reads none."""
        return _widest(self.precision.activation)

    @property
    def output_bits(self) -> int:
        """Width of the widest codes it hands on; 0 when it hands on none."""
        return _widest(self.precision.output)

    @property
    def wide(self) -> bool:
        """Whether it computes with integers of more than 8 bits."""
        return not self.in_float and self.bits > COMMON_BITS

    @property
    def moves(self) -> bool:
        """Whether it only passes elements on."""
        return self.op_type in _MOVES


@dataclass(frozen=True, slots=True)
class Made:
    """How a quantized model was made, as far as that is known.

    Attributes:
        stem: How names of files start.
        target: For which target; empty when that is not known.
        method: Calibration method of its ranges; empty when that is not known.
        samples: On how many samples they were observed; 0 when that is not known.
        rules: What the user asked for.
        float_between: Nodes meant to compute in float although all they read and hand on is quantized.
        graph: Name of the file with the float model that settings belong to; empty where it is the user's own.
    """

    stem: str = "model"
    target: str = ""
    method: str = ""
    samples: int = 0
    rules: tuple[Rule, ...] = ()
    float_between: frozenset[str] = frozenset()
    graph: str = ""

    @classmethod
    def by_plan(
        cls, plan: QuantPlan | None, *, stem: str, method: str, samples: int = 0, graph: str = ""
    ) -> "Made":
        """How a model was made for which a plan is known, or None is."""
        if plan is None:
            return cls(stem, method=method, samples=samples, graph=graph)
        return cls(
            stem,
            target="" if plan.target == _AS_GIVEN else plan.target,
            method="" if method == _AS_GIVEN else method,
            samples=samples,
            rules=tuple(each.rule for each in plan.resolutions),
            float_between=frozenset(node.node for node in plan.nodes if node.float_between_integers),
            graph=graph,
        )


@dataclass(frozen=True, eq=False)
class Decisions:
    """A quantization, as other tools can be told it.

    Attributes:
        quantized: The float model that settings are for, and its quantizers.
        nodes: Those that compute with values, in execution order.
        made: How it was made.
    """

    quantized: QuantizedModel
    nodes: tuple[NodeDecision, ...]
    made: Made = Made()

    @property
    def model(self) -> str:
        """What to give a tool: the file with the changed graph, or a word for the user's own model."""
        return self.made.graph or "MODEL.onnx"

    @cached_property
    def computing(self) -> tuple[NodeDecision, ...]:
        """The nodes that do not only pass elements on."""
        return tuple(node for node in self.nodes if not node.moves)

    @cached_property
    def floats(self) -> tuple[NodeDecision, ...]:
        """The nodes that compute in float."""
        return tuple(node for node in self.computing if node.in_float)

    @cached_property
    def wide(self) -> tuple[NodeDecision, ...]:
        """The nodes that compute with more than 8 bits."""
        return tuple(node for node in self.computing if node.wide)

    def of_kind(self, kind: Literal["activation", "weight"]) -> tuple[Quantizer, ...]:
        """The quantizers of activations, or of weights."""
        return tuple(each for each in self.quantized.quantizers if each.kind == kind)

    def common_dtype(self, kind: Literal["activation", "weight"]) -> str:
        """The dtype that most activations or weights have; empty when there are none."""
        found = Counter(each.spec.dtype for each in self.of_kind(kind))
        return max(found, key=lambda dtype: (found[dtype], dtype)) if found else ""

    def mostly_symmetric(self, kind: Literal["activation", "weight"]) -> bool:
        """Whether most of them have a fixed zero point."""
        found = Counter(each.spec.symmetric for each in self.of_kind(kind))
        return found[True] > found[False]

    @property
    def mostly_per_channel(self) -> bool:
        """Whether most weights have a scale for each channel."""
        found = Counter(each.params.scale.ndim > 0 for each in self.of_kind("weight"))
        return found[True] > found[False]


def decisions_of(
    quantized: QuantizedModel, made: Made | None = None, *, origins: Mapping[str, str] | None = None
) -> Decisions:
    """Look at a quantized model.

    Args:
        quantized: The model.
        made: How it was made.
        origins: Names of nodes in the user's model, each with that of the node that took it over. Not needed where
            the tool is given another graph than the user's: names are that graph's then.
    """
    made = made or Made()
    names = _original_names({} if made.graph else origins or {})
    precisions = NodePrecisions(quantized.float_model, quantized.quantizers)
    nodes = []
    for node in precisions.nodes:
        precision = precisions.effective(node)
        if precision.arithmetic == "none":
            continue
        inputs = {at: precisions.dtype(precisions.seen_at(node, at)) for at in precisions.outer_operands(node)}
        outputs = tuple(name for name in node.output if name)
        name = names.get(node.name, node.name)
        meant = bool({name, node.name} & made.float_between)
        nodes.append(NodeDecision(name, node.op_type, outputs, precision, inputs, meant))
    return Decisions(quantized, tuple(nodes), made)


def _original_names(origins: Mapping[str, str]) -> dict[str, str]:
    """Names of nodes in the user's model where they are others than in the graph that is quantized."""
    found: dict[str, str] = {}
    for original, current in origins.items():
        if current and current not in origins:
            found.setdefault(current, original)
    return found


def _widest(dtypes: str) -> int:
    return max((int(dtype[1:]) for dtype in dtypes.split("/") if dtype not in ("", FLOAT)), default=0)
