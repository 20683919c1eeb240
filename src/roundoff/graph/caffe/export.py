"""Quantized nets as the two files of Caffe: one that simulates in floats, one that is deployed as integers."""

from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from roundoff.core.files import write_bytes, write_text
from roundoff.core.quantizers import Quantizer
from roundoff.core.tensors import Array
from roundoff.core.text_proto import TextEntry, TextMessage, text_proto_text
from roundoff.errors import BadInput
from roundoff.graph.caffe.convert import brings_data, import_net, input_shapes, layer_tops, runs_of
from roundoff.graph.caffe.net import CaffeLayer, Net, blob_message
from roundoff.graph.caffe.wire import encode, text_table
from roundoff.graph.load import Model
from roundoff.graph.nodes import input_at
from roundoff.graph.quantized_model import QuantizedModel, fake_quantized
from roundoff.graph.weights import Weights, codes_of
from roundoff.messages.message import english

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


# The two files.


# The numbers of a layer as they are written: as they were, folded, rounded as the chip does, or as integers.

_PARAMETERS = {
    "Convolution": "convolution_param",
    "ConvolutionDepthwise": "convolution_param",
    "DepthwiseConvolution": "convolution_param",
    "Deconvolution": "convolution_param",
    "InnerProduct": "inner_product_param",
}
_INT32 = np.iinfo(np.int32)


@dataclass(frozen=True, slots=True)
class LayerNumbers:
    """What is written for one layer.

    Attributes:
        blobs: Its numbers.
        parameters: Messages of parameters that replace those it had.
        factors: What one unit of its integers is worth, for each output or for all; None when it is in float.
    """

    blobs: tuple[Array, ...]
    parameters: tuple[TextEntry, ...] = ()
    factors: Array | None = None


def layer_numbers(layer: CaffeLayer, product: Product | None, weights: Weights, *, deploy: bool) -> LayerNumbers:
    """The numbers of a layer.

    Args:
        layer: The layer of the net.
        product: The node that multiplies with its numbers, if one does.
        weights: The numbers of the model.
        deploy: Whether integers are written.

    Raises:
        BadInput: Its quantizers have no form in Caffe.
    """
    if product is None or layer.type not in _PARAMETERS:
        return LayerNumbers(layer.blobs)
    matrix, bias = product.node.input[1], input_at(product.node, 2)
    values, added = weights[matrix], weights[bias] if bias else _added(layer, product, weights)
    entrance, quantizer = product.entrance, product.weight
    factors = None
    if quantizer is not None and entrance is not None:
        steps = np.asarray(quantizer.params.scale * np.float32(entrance.params.scale), np.float32).reshape(-1)
        factors = _per_output(steps, layer)
    if quantizer is not None:
        integers = deploy and factors is not None
        values = _codes(values, quantizer, layer) if integers else fake_quantized(values, quantizer)
    if added is not None:
        added = _bias(added, product.bias, factors, layer, deploy=deploy)
    blobs = (_as_stored(values, layer, product.node), *([] if added is None else [added]))
    parameters = _parameters(layer, has_bias=added is not None)
    return LayerNumbers(blobs, parameters, factors)


def _added(layer: CaffeLayer, product: Product, weights: Weights) -> Array | None:
    """The bias of a product that has none itself, but a node behind it; it stays what it was."""
    behind = product.node.op_type == "MatMul" and len(layer.blobs) > 1
    return layer.blobs[1].reshape(-1) if behind else None


def _codes(values: Array, quantizer: Quantizer, layer: CaffeLayer) -> Array:
    spec = quantizer.spec
    codes = codes_of(values, quantizer.params, spec) if quantizer.codes is None else quantizer.codes
    shift = 0 if spec.signed else _SIGN
    if spec.bits > 8 or (np.asarray(quantizer.params.zero_point) != shift).any():
        what = english(
            "The weights of layer {name!r} are quantized to {dtype}, with an offset or too wide.",
            name=layer.name,
            dtype=spec.dtype,
        )
        raise BadInput(what, fix=english("quantize them to 8 bits, symmetrically"))
    return (codes.astype(np.int16) - shift).astype(np.int8)


def _bias(
    values: Array, quantizer: Quantizer | None, factors: Array | None, layer: CaffeLayer, *, deploy: bool
) -> Array:
    if deploy and factors is not None:
        whole = np.rint(values.astype(np.float64) / factors)
        if whole.min(initial=0) < _INT32.min or whole.max(initial=0) > _INT32.max:
            what = english(
                "The bias of layer {name!r} exceeds 32 bits in units of its weights and input.", name=layer.name
            )
            raise BadInput(what, fix=english("keep that layer in float"))
        return whole.astype(np.int32)
    return fake_quantized(values, quantizer) if quantizer is not None else values


def _as_stored(values: Array, layer: CaffeLayer, node: Any) -> Array:
    """The matrix as Caffe stores it: rows are outputs, unless the layer says otherwise."""
    if node.op_type not in ("Gemm", "MatMul"):
        return values
    by_row = node.op_type == "Gemm" and any(each.name == "transB" and each.i for each in node.attribute)
    params = layer.message.message("inner_product_param") or TextMessage()
    wanted = not params.get("transpose", False)
    return values if by_row == wanted else np.ascontiguousarray(values.T)


def _parameters(layer: CaffeLayer, *, has_bias: bool) -> tuple[TextEntry, ...]:
    """The layer's parameters, with a bias where folding brought one."""
    name = _PARAMETERS[layer.type]
    given = layer.message.message(name) or TextMessage()
    training = ("weight_filler", "bias_filler", "bias_term")
    kept = tuple(entry for entry in given.entries if entry.name not in training)
    said = () if has_bias else (TextEntry("bias_term", value=False),)
    return (TextEntry(name, TextMessage((*kept, *said))),)


def _per_output(factors: Array, layer: CaffeLayer) -> Array:
    """Factors of a transposed convolution are those of one group, and serve all."""
    params = layer.message.message("convolution_param") or TextMessage()
    groups = params.get("group", 1)
    if layer.type == "Deconvolution" and factors.size > 1 and isinstance(groups, int):
        return np.tile(factors, groups)
    return factors


# What only training reads, and what the numbers are written elsewhere for.
_LEFT_OUT = ("blobs", "param", "include", "exclude", "loss_weight", "propagate_down", "phase", "input",
             "bottom", "top", "name", "type")  # fmt: skip
_SIGN = 128


@dataclass(frozen=True, slots=True)
class CaffeFiles:
    """A net ready to be written.

    Attributes:
        prototxt: Its text.
        caffemodel: The bytes of its numbers, in pieces.
    """

    prototxt: str
    caffemodel: tuple[bytes, ...]


Ending = Callable[[str, Array], tuple[Array, Array]]
"""What the DeQuant layer of a layer holds, given its name and what one unit of its sums is worth: factors, and the
bits by which the chip shifts sums, as many."""


def unshifted(_: str, factors: Array) -> tuple[Array, Array]:
    """The usual ending: factors as they are, sums as they are."""
    return factors, np.zeros_like(factors)


def quantized_net(
    net: Net, quantized: QuantizedModel, *, deploy: bool = False, ending: Ending = unshifted
) -> CaffeFiles:
    """A net with quantizers.

    Args:
        net: The net.
        quantized: The model that was made from it, with quantizers.
        deploy: For the chip's compiler: int8 weights, int32 biases, packed factors in DeQuant layers; else the
            net that simulates: weights are floats as the chip sees them, Quant layers round what is fed.
        ending: What DeQuant layers hold.

    Raises:
        BadInput: The model is not of this net, or its quantizers have no form in Caffe.
    """
    return _CaffeWriter(net, place_quantizers(net, quantized), ending, deploy=deploy).files()


def save_net(files: CaffeFiles, prototxt: Path, caffemodel: Path, *, heading: str = "") -> None:
    """Write both files, the numbers first: the net is never there without them.

    Args:
        files: What to write.
        prototxt: Where the text goes.
        caffemodel: Where the numbers go.
        heading: A comment in front of the text.

    Raises:
        BadInput: They cannot be written.
    """
    write_bytes(caffemodel, b"".join(files.caffemodel))
    write_text(prototxt, heading + files.prototxt)


class _CaffeWriter:
    """One net on its way to its files."""

    def __init__(self, net: Net, placement: CaffePlacement, ending: Ending, *, deploy: bool) -> None:
        self._net, self._placement, self._ending, self._deploy = net, placement, ending, deploy
        # What is read instead of a blob: behind a folded layer what it read itself.
        self._instead: dict[str, str] = {}
        self._renamed = _renamed(placement)
        self._entered: dict[tuple[str, str], str] = {}
        self._taken = {blob for layer in placement.layers for blob in layer.tops}

    def files(self) -> CaffeFiles:
        layers = [layer for each in self._placement.layers for layer in self._written(each)]
        name = (TextEntry("name", self._net.name),) if self._net.name else ()
        text = TextMessage((*name, *(TextEntry("layer", message) for message, _ in layers)))
        stored = TextMessage((*name, *(TextEntry("layer", _stored(message, blobs)) for message, blobs in layers)))
        written = text_proto_text(text, text_table("NetParameter"))
        return CaffeFiles(written, tuple(encode(stored, "NetParameter")))

    def _written(self, layer: CaffeLayer) -> Iterator[tuple[TextMessage, tuple[Array, ...]]]:
        """A layer with the Quant layers in front of it and the DeQuant layer behind."""
        if brings_data(layer):
            yield from self._input(layer)
            return
        tops = [self._renamed.get(top, top) for top in layer.tops]
        named = [self._renamed.get(bottom, bottom) for bottom in layer.bottoms]
        bottoms = [self._instead.get(bottom, bottom) for bottom in named]
        if layer.name in self._placement.folded:
            self._instead |= dict.fromkeys(set(tops) - set(bottoms), bottoms[0])
            return
        for top in tops:
            self._instead.pop(top, None)
        layer = replace(layer, bottoms=tuple(bottoms), tops=tuple(tops))
        factors = None
        for entrance in self._placement.entrances:
            for name, index in entrance.readers:
                if name == layer.name:
                    yield from self._entrance(entrance, layer, index)
                    bottoms[index] = self._entered[entrance.quantizer.name, self._reader(layer, index)]
                    # A mean of integers has the unit of the integers.
                    factors = entrance.quantizer.params.scale.reshape(1) if layer.type == "Pooling" else None
        product = self._placement.products.get(layer.name)
        numbers = layer_numbers(layer, product, self._placement.weights, deploy=self._deploy)
        yield _message(layer, bottoms, numbers.parameters), numbers.blobs
        factors = factors if numbers.factors is None else numbers.factors
        if factors is not None:
            yield self._exit(layer, factors)

    def _input(self, layer: CaffeLayer) -> Iterator[tuple[TextMessage, tuple[Array, ...]]]:
        """Whatever brought the data, a deployed net is fed."""
        read = {bottom for other in self._placement.layers for bottom in other.bottoms}
        needed = [index for index, top in enumerate(layer.tops) if top in read]
        shapes = input_shapes(layer, self._net, needed=needed)
        if not shapes:
            return
        dims = [TextMessage(tuple(TextEntry("dim", size) for size in shape)) for shape in shapes.values()]
        given = TextMessage(tuple(TextEntry("shape", shape) for shape in dims))
        tops = [layer.tops[index] for index in shapes]
        fresh = replace(layer, type="Input", tops=tuple(tops), message=TextMessage())
        yield _message(fresh, [], (TextEntry("input_param", given),)), ()

    def _reader(self, layer: CaffeLayer, index: int) -> str:
        """Who reads a Quant layer: all that take integers, all that take rounded floats, or one layer in place."""
        if index < len(layer.tops) and layer.tops[index] == layer.bottoms[index]:
            return layer.name
        product = self._placement.products.get(layer.name)
        return "integers" if self._deploy and product is not None and product.weight is not None else "floats"

    def _entrance(
        self, entrance: Entrance, layer: CaffeLayer, index: int
    ) -> Iterator[tuple[TextMessage, tuple[Array, ...]]]:
        key, source = (entrance.quantizer.name, self._reader(layer, index)), layer.bottoms[index]
        if key in self._entered:
            return
        name = self._free(f"{layer.name}_{index}_quant_layer")
        # What a layer overwrites anyway is quantized in place; Caffe allows no other way to write it.
        top = source if key[1] == layer.name else name
        self._entered[key] = top
        fields = (TextEntry("quant_param", _quant_parameters(entrance.quantizer)),)
        yield _message(CaffeLayer(name, "Quant", (source,), (top,), TextMessage()), [source], fields), ()

    def _exit(self, layer: CaffeLayer, factors: Array) -> tuple[TextMessage, tuple[Array, ...]]:
        """A DeQuant layer that works in place."""
        top = layer.tops[0]
        name = self._free(f"{layer.name}_dequant_layer")
        made = CaffeLayer(name, "DeQuant", (top,), (top,), TextMessage())
        factors, shifts = self._ending(layer.name, factors)
        wide = factors.size > 1
        given = (TextEntry("channel_wise", wide), TextEntry("layer_type", layer.type))
        blobs: tuple[Array, ...]
        if self._deploy:
            low = factors.astype(np.float32).view(np.uint32).astype(np.uint64)
            blobs = (low | shifts.astype(np.uint64) << np.uint64(32),)
        else:
            blobs = (factors, shifts, np.zeros_like(factors))
        return _message(made, [top], (TextEntry("dequant_param", TextMessage(given)),)), blobs

    def _free(self, wanted: str) -> str:
        name = wanted
        while name in self._taken:
            name += "_"
        self._taken.add(name)
        return name


def _renamed(placement: CaffePlacement) -> dict[str, str]:
    """What a layer writes gets the name that the last layer folded into it wrote, if nobody else reads it."""
    written = {top for layer in placement.layers if not brings_data(layer) for top in layer.tops}
    read = Counter(bottom for layer in placement.layers for bottom in layer.bottoms if bottom not in layer.tops)
    names: dict[str, str] = {}
    for layer in reversed(placement.layers):
        if layer.name in placement.folded and len(layer.tops) == len(layer.bottoms) == 1:
            bottom, top = layer.bottoms[0], layer.tops[0]
            if bottom != top and bottom in written and read[bottom] == 1:
                names[bottom] = names.get(top, top)
    return names


def _message(layer: CaffeLayer, bottoms: list[str], more: tuple[TextEntry, ...]) -> TextMessage:
    changed = {entry.name for entry in more}
    kept = [entry for entry in layer.message.entries if entry.name not in (*_LEFT_OUT, *changed)]
    head = [TextEntry("name", layer.name), TextEntry("type", layer.type)]
    head += [TextEntry("bottom", bottom) for bottom in bottoms] + [TextEntry("top", top) for top in layer.tops]
    return TextMessage((*head, *kept, *more))


def _stored(message: TextMessage, blobs: tuple[Array, ...]) -> TextMessage:
    return TextMessage((*message.entries, *(TextEntry("blobs", blob_message(blob)) for blob in blobs)))


def _quant_parameters(quantizer: Quantizer) -> TextMessage:
    zero = int(quantizer.params.zero_point) - (0 if quantizer.spec.signed else _SIGN)
    offset = np.array(zero, np.int8).tobytes()
    # With all digits of a double: not every float32 number is the reciprocal of one, and the step must come back.
    return TextMessage((TextEntry("scale", repr(1 / float(quantizer.params.scale))), TextEntry("offset", offset)))
