"""Where quantizers of a model sit in the Caffe net it was made from: before which bottoms, at which numbers."""

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from roundoff.core.quantizers import Quantizer
from roundoff.errors import BadInput
from roundoff.graph.caffe.convert import import_net, layer_tops, runs_of
from roundoff.graph.caffe.net import CaffeLayer, Net
from roundoff.graph.load import Model
from roundoff.graph.quantized_model import QuantizedModel
from roundoff.graph.weights import Weights
from roundoff.messages.message import english

__all__ = ["CaffePlacement", "Entrance", "Owners", "Product", "place_quantizers"]

# Operations with stored matrices.
_PRODUCTS = ("Conv", "ConvTranspose", "Gemm", "MatMul")
# Layers that are no more when a model is prepared: their numbers went into others, or they do nothing. Others that
# are no more, because they compute the same for all inputs, are needed in a net.
_FOLDABLE = ("BatchNorm", "Scale", "Bias", "Power", "Dropout")
_BITS = 8


@dataclass(frozen=True, slots=True)
class Entrance:
    """One quantized way into layers.

    Attributes:
        quantizer: How values are quantized.
        readers: The layers that read the quantized values, by name, each with the numbers of its bottoms.
    """

    quantizer: Quantizer
    readers: tuple[tuple[str, int], ...]


@dataclass(frozen=True, slots=True)
class Product:
    """The node that multiplies with a layer's stored numbers.

    Attributes:
        node: The `onnx.NodeProto`.
        weight: Quantizer of the weights; None when they are not quantized.
        bias: Quantizer of the bias, likewise.
        entrance: Quantizer of what is multiplied, likewise.
    """

    node: Any
    weight: Quantizer | None = None
    bias: Quantizer | None = None
    entrance: Quantizer | None = None


@dataclass(frozen=True, slots=True)
class CaffePlacement:
    """A net and the quantizers in it.

    Attributes:
        layers: The layers that run, in order.
        folded: Names of layers whose numbers went into another one; they are no more.
        entrances: In the order of their first readers.
        products: By the name of the layer.
        weights: The numbers of the model.
    """

    layers: tuple[CaffeLayer, ...]
    folded: frozenset[str]
    entrances: tuple[Entrance, ...]
    products: Mapping[str, Product]
    weights: Weights = field(repr=False)


def place_quantizers(net: Net, quantized: QuantizedModel) -> CaffePlacement:
    """Find the place of every quantizer.

    Args:
        net: The net that the model was made from.
        quantized: The model; layers may have been folded into others.

    Raises:
        BadInput: The model is not of this net, or a quantizer has no form in Caffe.
    """
    layers = runs_of(net)
    if len({layer.name for layer in layers}) < len(layers):
        what = english(
            "Several layers of {path} have the same name, so that quantizers cannot be told apart.", path=net.path
        )
        raise BadInput(what, fix=english("rename them"))
    nodes = {node.name: node for node in quantized.float_model.proto.graph.node}
    owners = Owners(layers)
    if not any(layer.name in nodes for layer in layers):
        raise BadInput(
            english("The quantized model has no layer of {path}.", path=net.path),
            fix=english("give the net it was made from"),
        )
    folded = _folded(net, layers, quantized.float_model)
    tops = layer_tops(quantized.float_model) or _unknown(net)
    finder = _PlacementFinder(layers, quantized.float_model, tops=tops)
    weights = Weights(quantized.float_model)
    entrances = []
    known = {
        owner: Product(node)
        for node in nodes.values()
        if node.op_type in _PRODUCTS and (owner := owners.of(node.name)) and node.input[1] in weights
    }
    for quantizer in quantized.quantizers:
        if quantizer.kind == "activation":
            _check_activation(quantizer)
            readers = finder.readers(quantizer)
            entrances.append(Entrance(quantizer, readers))
        for owner, product in known.items():
            known[owner] = _with(product, quantizer)
    ordered = sorted(entrances, key=lambda entrance: finder.place(entrance.readers[0][0]))
    return CaffePlacement(layers, folded, tuple(ordered), known, weights)


def _unknown(net: Net) -> dict[str, tuple[str, int]]:
    what = english("The quantized model does not say that it was made from the net {path}.", path=net.path)
    raise BadInput(what, fix=english("quantize the model that was read from the net"))


def _folded(net: Net, layers: tuple[CaffeLayer, ...], model: Model) -> frozenset[str]:
    """Layers of which the model has no node any more, because their numbers went into another layer."""
    owners = Owners(layers)
    left = {node.name for node in model.proto.graph.node}
    own: dict[str, list[str]] = defaultdict(list)
    for node in import_net(net).model.proto.graph.node:
        own[owners.of(node.name)].append(node.name)
    found = set()
    for layer in layers:
        missing = [name for name in own[layer.name] if name not in left]
        if layer.type not in _FOLDABLE or not missing:
            continue
        if len(missing) < len(own[layer.name]):
            what = english(
                "Layer {name!r} went into another one by half, which no net of Caffe can say.", name=layer.name
            )
            raise BadInput(what, fix=english("prepare the model without folding"))
        found.add(layer.name)
    return frozenset(found)


def _check_activation(quantizer: Quantizer) -> None:
    spec = quantizer.spec
    if spec.bits != _BITS or spec.narrow or spec.axis is not None or quantizer.after or not quantizer.consumers:
        what = english("is quantized again") if quantizer.after else english("leaves the net quantized")
        if spec.bits != _BITS or spec.narrow or spec.axis is not None:
            what = english(
                "is quantized to {dtype}{which}",
                dtype=spec.dtype,
                which=english(", per channel") if spec.axis is not None else "",
            )
        raise BadInput(
            english(
                "Tensor {tensor!r} {what}; a Quant layer of Caffe rounds to all 256 codes of 8 bits, "
                "once, in front of a layer.",
                tensor=quantizer.tensor,
                what=what,
            ),
            fix=english("choose a target such as ascend, or keep that tensor in float"),
        )


def _with(product: Product, quantizer: Quantizer) -> Product:
    places = {each.input for each in quantizer.consumers if each.node == product.node.name}
    if quantizer.kind == "weight" and 1 in places:
        return replace(product, weight=quantizer)
    if quantizer.kind == "bias" and 2 in places:
        return replace(product, bias=quantizer)
    if quantizer.kind == "activation" and 0 in places:
        return replace(product, entrance=quantizer)
    return product


class Owners:
    """Which layer a node belongs to: it is called like it, or ``<layer>/<step>``."""

    def __init__(self, layers: tuple[CaffeLayer, ...]) -> None:
        self._names = {layer.name for layer in layers}

    def of(self, node: str) -> str:
        """The name of the layer; empty when there is none."""
        name = node
        while name not in self._names and "/" in name:
            name = name.rpartition("/")[0]
        return name if name in self._names else ""


class _PlacementFinder:
    """Which bottoms of which layers a quantizer stands in front of."""

    def __init__(
        self, layers: tuple[CaffeLayer, ...], model: Model, *, tops: Mapping[str, tuple[str, int]]
    ) -> None:
        self._owners = Owners(layers)
        # Layers flatten or pad what they read; quantizing minds neither the shape nor zeros.
        self._moved = {
            node.output[0]: node.input[0]
            for node in model.proto.graph.node
            if node.op_type in ("Flatten", "Reshape", "Pad") and node.output[0] not in tops
        }
        self._places = {layer.name: place for place, layer in enumerate(layers)}
        tensors = {top: tensor for tensor, top in tops.items()}
        nodes = {node.name for node in model.proto.graph.node}
        current: dict[str, str] = {}
        # The tensors behind layers that are no more are those in front of them.
        self._same: dict[str, str] = {}
        self._bottoms: dict[str, list[str]] = {}
        for layer in layers:
            self._bottoms[layer.name] = [self._first(current.get(bottom, bottom)) for bottom in layer.bottoms]
            for index, top in enumerate(layer.tops):
                current[top] = tensors.get((layer.name, index), top)
                if layer.bottoms and layer.name not in nodes:
                    self._same[current[top]] = self._bottoms[layer.name][0]

    def place(self, layer: str) -> int:
        """The number of a layer in the net."""
        return self._places[layer]

    def _first(self, tensor: str) -> str:
        return self._same.get(tensor, tensor)

    def readers(self, quantizer: Quantizer) -> tuple[tuple[str, int], ...]:
        """The layers, and the numbers of their bottoms, in the order of the net."""
        found: set[tuple[str, int]] = set()
        for consumer in quantizer.consumers:
            layer = self._owners.of(consumer.node)
            if not layer:
                what = english(
                    "Node {node!r} belongs to no layer of the net, but its input is quantized.", node=consumer.node
                )
                raise BadInput(what, fix=english("give the net that the quantized model was made from"))
            bottoms = self._bottoms[layer]
            source = self._first(self._moved.get(quantizer.tensor, quantizer.tensor))
            matching = [index for index, tensor in enumerate(bottoms) if tensor == source]
            if not matching:
                tensor = quantizer.tensor
                what = english(
                    "Tensor {tensor!r} is quantized inside layer {layer!r}, where no Quant layer can be.",
                    tensor=tensor,
                    layer=layer,
                )
                raise BadInput(what, fix=english("keep the nodes of that layer in float"))
            found.update((layer, index) for index in matching)
        return tuple(sorted(found, key=lambda reader: (self._places[reader[0]], reader[1])))
