"""The layers of a model that AMCT quantizes: where their codes come from, and what is added to their sums."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from roundoff.core.plan import PlannedQuantizer
from roundoff.graph.load import Model
from roundoff.graph.nodes import attribute
from roundoff.graph.weights import Weights
from roundoff.quantize.planning.planner import plan_quantization
from roundoff.quantize.targets.files import load_target

LAYER_TYPES = ("Conv", "Gemm", "MatMul", "ConvTranspose", "AveragePool")
"""Operations that are quantized; a model need not have any of them."""

TENSOR_TYPES = ("MaxPool", "Add")
"""Operations of which single inputs can be quantized."""

_CONVOLUTIONS = ("Conv", "ConvTranspose")
_INPUT_AXES = {"Conv": 1, "ConvTranspose": 0}


@dataclass(frozen=True, slots=True)
class LayerBias:
    """What is added to the sums of a layer: the constant, and the node input that reads it."""

    tensor: str
    node: str
    input: int


@dataclass(frozen=True, slots=True)
class AmctLayer:
    """A layer that can be quantized.

    Attributes:
        name: Its name in the model.
        op_type: Its operation.
        inputs: Its inputs that are computed, each with its place; two where it has no constant weight.
        weight: Its constant weight; empty when it has none.
        weight_input: Where it reads that.
        weight_shape: Of the weight.
        channel_axis: Axis of the output channels of its weight; None where it has none.
        group: Into how many groups its channels are divided.
        transposed: Whether a product reads its weight transposed.
        bias: What is added to its sums, if that is constant.
        output: What it hands on, behind the bias.
        originals: Nodes of the user's model that it computes: itself and what was folded into it.
    """

    name: str
    op_type: str
    inputs: tuple[tuple[str, int], ...]
    weight: str = ""
    weight_input: int = 1
    weight_shape: tuple[int, ...] = ()
    channel_axis: int | None = None
    group: int = 1
    transposed: bool = False
    bias: LayerBias | None = None
    output: str = ""
    originals: tuple[str, ...] = ()

    @property
    def channels(self) -> int | None:
        """How many scales its weight can have at most; None without a weight."""
        if not self.inputs or (not self.weight and len(self.inputs) < 2):
            return None
        return 1 if self.channel_axis is None else self.weight_shape[self.channel_axis] * self.shared_by

    @property
    def shared_by(self) -> int:
        """How many output channels one place along the channel axis of its weight stands for."""
        return self.group if self.op_type == "ConvTranspose" else 1

    @property
    def can_be_channel_wise(self) -> bool:
        """Whether AMCT gives each output channel a scale of its own; other tools do for products too."""
        return self.op_type in _CONVOLUTIONS and bool(self.weight)

    @property
    def input_axis(self) -> int:
        """Axis of the weight along which input channels lie."""
        if self.op_type in _INPUT_AXES:
            return _INPUT_AXES[self.op_type]
        if self.op_type == "Gemm":
            return 1 if self.transposed else 0
        return len(self.weight_shape) - (2 if self.weight_input == 1 else 1)

    @property
    def can_be_balanced(self) -> bool:
        """Whether factors can move from its input to its weight."""
        return bool(self.weight) and self.weight_input == 1


def find_layers(model: Model, origins: Mapping[str, str]) -> dict[str, AmctLayer]:
    """The layers that can be quantized, sorted by name.

    Args:
        model: The float model, prepared.
        origins: For each node of the user's model the one that computes its result.
    """
    plan = plan_quantization(model, load_target("ascend"), origins=origins)
    nodes = {node.name: node for node in model.proto.graph.node}
    weights = Weights(model)
    by_node: dict[str, dict[str, Any]] = {}
    owners: dict[str, list[str]] = {}
    for planned in plan.quantizers:
        if planned.kind != "bias":
            for consumer in planned.consumers:
                parts = by_node.setdefault(consumer.node, {"inputs": []})
                if planned.kind == "activation":
                    parts["inputs"].append((planned.tensor, consumer.input))
                else:
                    parts["weight"] = (planned.tensor, consumer.input)
                    owners.setdefault(planned.name, []).append(consumer.node)
    biases = dict(_biases([each for each in plan.quantizers if each.kind == "bias"], owners))
    folded: dict[str, list[str]] = {}
    for original, now in origins.items():
        folded.setdefault(now, []).append(original)
    found = {
        name: _layer(nodes[name], parts, weights, bias=biases.get(name), nodes=nodes, folded=folded)
        for name, parts in by_node.items()
        if parts["inputs"]
    }
    return dict(sorted(found.items()))


def _biases(planned: list[PlannedQuantizer], owners: Mapping[str, list[str]]) -> Any:
    """The bias of each layer; that of a product is read by the addition behind it."""
    for each in planned:
        of_weight = owners.get(each.scale_of[1], []) if each.scale_of else []
        for consumer in each.consumers:
            owner = consumer.node if consumer.node in of_weight else of_weight[0] if len(of_weight) == 1 else None
            if owner is not None:
                yield owner, LayerBias(each.tensor, consumer.node, consumer.input)


def _layer(
    node: Any,
    parts: Mapping[str, Any],
    weights: Weights,
    *,
    bias: LayerBias | None,
    nodes: Mapping[str, Any],
    folded: Mapping[str, list[str]],
) -> AmctLayer:
    weight, place = parts.get("weight", ("", 1))
    behind = nodes[bias.node] if bias is not None else node
    return AmctLayer(
        name=node.name,
        op_type=node.op_type,
        inputs=tuple(sorted(parts["inputs"], key=lambda each: each[1])),
        weight=weight,
        weight_input=place,
        weight_shape=weights.shape(weight) if weight else (),
        channel_axis=_channel_axis(node, weights.shape(weight), place) if weight else None,
        group=int(attribute(node, "group", 1)) if node.op_type in _CONVOLUTIONS else 1,
        transposed=bool(attribute(node, "transB", 0)) if node.op_type == "Gemm" else False,
        bias=bias,
        output=behind.output[0],
        originals=tuple(folded.get(node.name, (node.name,))),
    )


def _channel_axis(node: Any, shape: tuple[int, ...], place: int) -> int | None:
    if node.op_type in _CONVOLUTIONS:
        return _CONVOLUTIONS.index(node.op_type)
    if node.op_type == "Gemm":
        return 0 if attribute(node, "transB", 0) else 1
    return len(shape) - 1 if place == 1 and len(shape) > 1 else None
