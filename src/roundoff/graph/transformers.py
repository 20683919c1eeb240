"""The parts of a transformer, recognised by structure and not by names: attention, norms, residual stream, rotary.

Exporters spell the same network in many ways. In common they have: attention is a Softmax between two products of
activations, a norm divides by the root of a mean square, the residual stream is a chain of additions of two
activations. Whoever plans, transforms, accuses or reports asks here what a node is for.
"""

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Literal

import numpy as np

from roundoff.core.tensors import Topology
from roundoff.graph.interface import topology
from roundoff.graph.load import Model
from roundoff.graph.nodes import attribute, captured, producers, readers, reads
from roundoff.graph.patterns import NORMALIZATIONS, Pattern, find_patterns
from roundoff.graph.shapes import values
from roundoff.graph.units import derived_constants
from roundoff.graph.weights import Weights

MASK_LEVEL = -1e3
"""What is added to attention scores and reaches this low is a mask; a learned bias never does."""

_SIZES = frozenset({"Shape", "Size"})
_UNBOUNDED = frozenset({"Log", "Div", "Reciprocal"})
"""What makes large values of small ones."""

_MOVERS = frozenset({"Reshape", "Transpose", "Cast", "Identity", "Squeeze", "Unsqueeze", "Dropout", "Flatten",
                     "Expand"})  # fmt: skip
_PRODUCTS = frozenset({"MatMul", "Einsum", "Gemm"})
_FUSED_ATTENTIONS = frozenset({"Attention", "MultiHeadAttention", "GroupQueryAttention", "QAttention",
                               "PackedAttention", "PackedMultiHeadAttention",
                               "DecoderMaskedMultiHeadAttention"})  # fmt: skip
_FUSED_NORMS = {
    "LayerNormalization": "layernorm",
    "SkipLayerNormalization": "layernorm",
    "EmbedLayerNormalization": "layernorm",
    "RMSNormalization": "rmsnorm",
    "SimplifiedLayerNormalization": "rmsnorm",
    "SkipSimplifiedLayerNormalization": "rmsnorm",
}
_ACTIVATIONS = frozenset({"gelu", "quick_gelu", "swish", "mish"})
_FUSED_ACTIVATIONS = frozenset({"FastGelu", "BiasGelu", "QuickGelu"})
_FLOATS = ("float", "bfloat")
# Rows and features: a bias has one axis, a scale per channel too.
_TABLE_AXES = 2
# A path from the Softmax to its products has far fewer nodes.
_LONGEST_PATH = 16

MaskKind = Literal["mask", "bias", "unknown", "nothing"]


@dataclass(frozen=True, slots=True)
class ScoreOperand:
    """What is added to attention scores, or selected instead of them.

    Attributes:
        node: The Add or Where.
        place: Which of its inputs.
        tensor: What it reads there.
        selected: Whether it stands in the place of scores (Where) instead of being added to them.
        kind: ``mask`` when constants on its path reach `MASK_LEVEL`, ``bias`` when they do not, ``unknown`` when
            only its values can tell: it is fed from outside, or made of a logarithm of a mask, or of large
            constants that may have either sign; ``nothing`` for a constant of zeros.
        subtracted: Whether it is subtracted from scores, so that a mask is a large positive value.
    """

    node: str
    place: int
    tensor: str
    selected: bool
    kind: MaskKind
    subtracted: bool = False

    @property
    def score_place(self) -> int:
        """Where its node reads the scores themselves."""
        return (3 if self.selected else 1) - self.place


@dataclass(frozen=True, slots=True)
class Attention:
    """One attention.

    Attributes:
        scores: The tensor that the product of queries and keys gives; empty when it is one fused node.
        masked: The tensor that the Softmax reads; empty when it is one fused node.
        softmax: The Softmax; the fused node itself when it is one.
        query_key: The product of queries and keys; empty when it is one fused node.
        context: The product of probabilities and values; likewise.
        operands: What is added to scores or selected instead of them, from the product on.
        nodes: All of these and those between them, in execution order.
        axis: The axis of the keys.
    """

    scores: str
    masked: str
    softmax: str
    query_key: str
    context: str
    operands: tuple[ScoreOperand, ...]
    nodes: tuple[str, ...]
    axis: int = -1

    @property
    def is_fused(self) -> bool:
        """Whether one node does it all."""
        return not self.query_key


@dataclass(frozen=True, slots=True)
class CachedKeys:
    """Keys or values of earlier tokens that are fed in and handed out again.

    Attributes:
        node: The Concat.
        past: The input of the network.
        present: What it gives.
    """

    node: str
    past: str
    present: str


@dataclass(frozen=True, slots=True)
class TransformerParts:
    """What the nodes of a network are for.

    Attributes:
        attentions: In execution order.
        norms: Layer and RMS normalizations, fused or spelled out.
        activations: GELU and its relatives, fused or spelled out.
        residual_adds: Additions of two activations that are none of the other parts.
        embedding_adds: Additions of nothing but embeddings.
        embeddings: Gathers from a table of floats.
        rotary: Additions of products with cosines and sines of positions.
        caches: Keys and values of earlier tokens.
        plumbing: Nodes whose results are whole numbers or conditions: shapes, indices, positions.
        norm_readers: Layers with weights that read a norm, moved at most.
    """

    attentions: tuple[Attention, ...]
    norms: tuple[Pattern, ...]
    activations: tuple[Pattern, ...]
    residual_adds: tuple[str, ...]
    embedding_adds: tuple[str, ...]
    embeddings: tuple[str, ...]
    rotary: tuple[str, ...]
    caches: tuple[CachedKeys, ...]
    plumbing: frozenset[str]
    norm_readers: tuple[str, ...] = ()

    @property
    def is_transformer(self) -> bool:
        """Whether there is a residual stream with norms, or attention: a CNN with shortcuts is none."""
        return bool(self.attentions or self.norms)

    @property
    def masks(self) -> tuple[ScoreOperand, ...]:
        """Masks of all attentions, each place once."""
        found = {(each.node, each.place): each for part in self.attentions for each in part.operands}
        return tuple(each for each in found.values() if each.kind in ("mask", "unknown"))

    @property
    def stream(self) -> tuple[str, ...]:
        """The nodes that carry the residual stream: its additions, those of embeddings, the norms that read it."""
        if not self.is_transformer:
            return ()
        norms = (name for norm in self.norms for name in norm.nodes)
        return tuple(dict.fromkeys((*self.embedding_adds, *self.residual_adds, *norms)))


_IDIOMS = {
    "layernorm": "LayerNorm", "rmsnorm": "RMSNorm", "gelu": "GELU", "quick_gelu": "GELU", "swish": "Swish",
    "mish": "Mish",
}  # fmt: skip


def drawn_topology(model: Model) -> Topology:
    """The topology of a model with what its nodes compute together, by which a drawing folds it."""
    found = find_parts(model)
    parts = [(_IDIOMS.get(each.name, each.name), each.nodes) for each in (*found.norms, *found.activations)]
    parts += [("Attention", each.nodes) for each in found.attentions]
    return replace(topology(model), idioms=tuple((name, nodes) for name, nodes in parts if len(nodes) > 1))


def find_parts(model: Model) -> TransformerParts:
    """Recognise the parts of a model's main graph."""
    return _Recogniser(model).parts()


class _Recogniser:
    def __init__(self, model: Model) -> None:
        graph = model.proto.graph
        self._nodes = [node for node in graph.node if node.op_type != "Constant"]
        self._order = {node.name: at for at, node in enumerate(self._nodes)}
        self._producers, self._readers = producers(self._nodes), readers(self._nodes)
        self._weights, self._constants = Weights(model), derived_constants(graph)
        self._inputs = {value.name for value in graph.input} - set(self._constants)
        self._model = model
        self._patterns = find_patterns(model)

    def parts(self) -> TransformerParts:
        attentions = tuple(self._attentions())
        norms = tuple(self._norms())
        spelled = [each for each in self._patterns if each.name in _ACTIVATIONS]
        fused = [_fused(node, "gelu") for node in self._nodes if node.op_type in _FUSED_ACTIVATIONS]
        rotary = tuple(node.name for node in self._nodes if self._is_rotary(node))
        embeddings = tuple(node.name for node in self._nodes if self._is_embedding(node))
        tables = self._embedded(embeddings)
        others = {name for part in attentions for name in part.nodes} | set(rotary) | self._mask_nodes(attentions)
        others |= {name for each in self._patterns for name in each.nodes}
        free = [node for node in self._nodes if node.name not in others]
        adds = [node for node in free if self._adds_activations(node)]
        stream = {norm.entry for norm in norms} | {name for node in adds for name in node.input}
        summed = {node.name for node in adds if node.output[0] in tables}
        for node in reversed(free):
            if self._adds_positions(node) and self._moves_into(node.output[0], stream):
                summed.add(node.name)
                stream.update(node.input)
        return TransformerParts(
            attentions,
            norms,
            tuple(sorted((*spelled, *fused), key=lambda each: self._order[each.nodes[-1]])),
            tuple(node.name for node in adds if node.name not in summed),
            tuple(sorted(summed, key=self._order.__getitem__)),
            embeddings,
            rotary,
            tuple(self._caches(attentions)),
            frozenset(node.name for node in self._nodes if self._is_plumbing(node)),
            tuple(self._readers_of(norms)),
        )

    def _readers_of(self, norms: Iterable[Pattern]) -> Iterator[str]:
        """Layers that read what norms give, moved at most."""
        given = {norm.exit for norm in norms}
        for node in self._nodes:
            if self._is_layer(node) and node.input[0] in given:
                yield node.name
            elif node.op_type in _MOVERS and node.input[0] in given:
                given.update(node.output)

    # What tensors hold

    @cached_property
    def _elements(self) -> dict[str, str]:
        return {each.name: each.element.dtype for each in values(self._model) if each.element is not None}

    def _is_float(self, tensor: str) -> bool:
        return self._elements.get(tensor, "float32").startswith(_FLOATS)

    def _is_live(self, tensor: str) -> bool:
        """Whether a tensor is an activation: float, and not the same in every run or of every input."""
        return bool(tensor) and tensor not in self._constants and tensor not in self._of_shapes

    @cached_property
    def _of_shapes(self) -> frozenset[str]:
        """Tensors that depend on no more than shapes: scales such as ``1 / sqrt(size)``, positions, full masks."""
        found: set[str] = set()
        for node in self._nodes:
            if node.op_type in _SIZES or (
                reads(node) and all(name in found or name in self._constants for name in reads(node))
            ):
                found.update(name for name in node.output if name)
        return frozenset(found)

    def _is_scalar(self, tensor: str) -> bool:
        """Whether a tensor is one factor for all elements, known or computed from shapes."""
        if tensor in self._weights.protos:
            return math.prod(self._weights.shape(tensor)) == 1
        return tensor in self._of_shapes or tensor in self._constants

    def _is_plumbing(self, node: Any) -> bool:
        return all(not self._is_float(name) for name in node.output if name)

    # Attention

    def _attentions(self) -> Iterator[Attention]:
        for node in self._nodes:
            if node.op_type in _FUSED_ATTENTIONS:
                yield Attention("", "", node.name, "", "", (), (node.name,))
                continue
            entry, own, axis = self._softmax(node)
            if entry:
                up, down = self._up(entry, 0), self._down(node.output[0], 0)
                if up is not None and down is not None:
                    product, path, operands = up
                    names = {node.name, product.name, *own, *path, *down}
                    ordered = tuple(sorted(names, key=self._order.__getitem__))
                    yield Attention(
                        product.output[0],
                        entry,
                        node.name,
                        product.name,
                        down[-1],
                        operands,
                        ordered,
                        axis,
                    )

    def _softmax(self, node: Any) -> tuple[str, set[str], int]:
        """What a Softmax reads, the other nodes of one that is spelled out, its axis; nothing of other nodes."""
        if node.op_type == "Softmax":
            return node.input[0], set(), attribute(node, "axis", -1)
        # exp(x - max(x)) over its sum, as JAX has it; some of it may be masked by a factor or a Where.
        total, moved = self._behind(node.input[1]) if node.op_type == "Div" else (None, set())
        if total is None or total.op_type != "ReduceSum" or total.input[0] != node.input[0]:
            return "", set(), -1
        kept = self._producers.get(node.input[0])
        read = [self._producers.get(name) for name in kept.input] if kept is not None else []
        powers = [kept] if kept is not None and kept.op_type == "Exp" else read
        power = next((each for each in powers if each is not None and each.op_type == "Exp"), None)
        if kept is None or power is None or kept.op_type not in ("Exp", "Mul", "Where"):
            return "", set(), -1
        own = {total.name, kept.name, power.name, *moved}
        shifted = self._producers.get(power.input[0])
        peak, others = self._behind(shifted.input[1]) if shifted is not None else (None, set())
        axis = self._reduced(total)
        if shifted is None or shifted.op_type != "Sub" or peak is None or peak.op_type != "ReduceMax":
            return power.input[0], own, axis
        return shifted.input[0], own | others | {shifted.name, peak.name}, axis

    def _behind(self, tensor: str) -> tuple[Any, set[str]]:
        """The node that computes what a tensor holds, moved, or kept above a constant; the nodes that do that."""
        node, names = self._producers.get(tensor), set[str]()
        while node is not None and node.op_type in (*_MOVERS, "Add", "Max", "Clip"):
            live = [name for name in node.input if name and self._is_live(name)]
            if not live or len(live) > 1:
                break
            names.add(node.name)
            node = self._producers.get(live[0])
        return node, names

    def _reduced(self, node: Any) -> int:
        """The axis that a node reduces; the last one where it is not known."""
        axes = attribute(node, "axes", None)
        if axes is None and len(node.input) > 1 and node.input[1] in self._weights.protos:
            axes = self._weights[node.input[1]].ravel()
        return int(axes[0]) if axes is not None and len(axes) == 1 else -1

    def _up(self, tensor: str, depth: int) -> tuple[Any, tuple[str, ...], tuple[ScoreOperand, ...]] | None:
        """From what a Softmax reads up to a product of two activations: that, the nodes between, what is added."""
        node = self._producers.get(tensor)
        if node is None or depth > _LONGEST_PATH:
            return None
        if node.op_type in _PRODUCTS:
            return (node, (), ()) if all(map(self._is_live, node.input[:2])) else None
        for place, extra in self._score_inputs(node):
            found = self._up(node.input[place], depth + 1)
            if found is not None:
                product, path, operands = found
                added = tuple(self._operand(node, at) for at in extra)
                return product, (*path, node.name), (*operands, *added)
        return None

    def _score_inputs(self, node: Any) -> Iterator[tuple[int, tuple[int, ...]]]:
        """Inputs of a node through which scores may come, each with the inputs that are masks or biases then."""
        if node.op_type in _MOVERS or node.op_type in ("Clip", "Tanh"):
            yield 0, ()
        elif node.op_type in ("Mul", "Div"):
            yield from ((at, ()) for at in (0, 1) if self._is_factor(node.input[1 - at]))
        elif node.op_type == "Add":
            yield from ((at, (1 - at,)) for at in (0, 1))
        elif node.op_type == "Sub":
            yield 0, (1,)
        elif node.op_type == "Where":
            yield from ((at, (3 - at,)) for at in (1, 2))

    def _is_factor(self, tensor: str) -> bool:
        """Whether scores times it are scores: a scale, one per head, or ones and zeros that inputs alone make."""
        return self._is_scalar(tensor) or not self._is_live(tensor) or self._is_of_inputs(self._cone(tensor))

    def _is_of_inputs(self, cone: Iterable[Any]) -> bool:
        """Whether nodes compute from inputs and constants without any layer or embedding."""
        return not any(self._is_layer(node) or self._is_embedding(node) for node in cone)

    def _down(self, tensor: str, depth: int) -> tuple[str, ...] | None:
        """The nodes from a tensor down to the next product of two activations, that last."""
        for node in self._readers[tensor] if depth <= _LONGEST_PATH else ():
            if node.op_type in _PRODUCTS and all(map(self._is_live, node.input[:2])):
                return (node.name,)
            guard = node.op_type == "Where" and tensor in node.input[1:]
            moved = node.op_type in _MOVERS and node.input[0] == tensor
            if guard or moved or (node.op_type in ("Mul", "Div") and self._scales(node, tensor)):
                further = self._down(node.output[0], depth + 1)
                if further is not None:
                    return (node.name, *further)
        return None

    def _scales(self, node: Any, tensor: str) -> bool:
        return all(name == tensor or self._is_scalar(name) for name in node.input)

    def _operand(self, node: Any, place: int) -> ScoreOperand:
        tensor, subtracted = node.input[place], node.op_type == "Sub"
        kind = self._mask_kind(tensor, -1.0 if subtracted else 1.0)
        return ScoreOperand(node.name, place, tensor, node.op_type == "Where", kind, subtracted)

    def _mask_kind(self, tensor: str, sign: float) -> MaskKind:
        cone = self._cone(tensor)
        # Earlier attentions have masks, too: behind a product nothing is as low for that.
        near = self._cone(tensor, until=(*_PRODUCTS, "Conv", "Softmax"))
        read = {tensor, *(name for node in near for name in node.input)}
        held = [self._weights[name] for name in read if name in self._weights.protos]
        held += [_of_tensor(each) for each in self._made(near)]
        floats = [sign * each.astype(np.float64) for each in held if each.dtype.kind == "f"]
        if any(_lowest(each) <= MASK_LEVEL for each in floats):
            return "mask"
        # ``(mask - 1) * 1e9`` and ``log(mask)`` are as low as masks, which no constant says.
        large = any(_lowest(-each) <= MASK_LEVEL for each in floats)
        fed = any(name in self._inputs and self._is_float(name) for name in read)
        made = any(node.op_type in _UNBOUNDED for node in cone) and self._is_of_inputs(cone)
        if large or fed or made:
            return "unknown"
        return "nothing" if tensor in self._weights.protos and not self._weights[tensor].any() else "bias"

    @staticmethod
    def _made(cone: Iterable[Any]) -> Iterator[Any]:
        made = (attribute(node, "value") for node in cone if node.op_type == "ConstantOfShape")
        return (each for each in made if each is not None)

    def _cone(self, tensor: str, until: Iterable[str] = ()) -> list[Any]:
        """All nodes that a tensor's values are computed from, up to some types, without what gives its shape."""
        found: dict[str, Any] = {}
        waiting = [tensor]
        while waiting:
            node = self._producers.get(waiting.pop())
            if node is not None and node.name not in found and node.op_type not in (*_SIZES, *until):
                found[node.name] = node
                waiting += reads(node)
        return list(found.values())

    def _mask_nodes(self, attentions: Iterable[Attention]) -> set[str]:
        """Nodes that only make masks and biases: none of them is a part of the residual stream."""
        operands = [each for part in attentions for each in part.operands]
        cut = {(each.node, each.place) for each in operands}
        cones = {node.name: node for each in operands for node in self._cone(each.tensor)}
        # Whatever reaches an output by another way than through an operand does more than that.
        wanted = {value.name for value in self._model.proto.graph.output}
        for node in reversed(self._nodes):
            if wanted.intersection(node.output):
                wanted.update(name for at, name in enumerate(node.input) if (node.name, at) not in cut)
                wanted.update(captured(node))
        return {name for name, node in cones.items() if not wanted.intersection(node.output)}

    def _is_layer(self, node: Any) -> bool:
        return node.op_type in (*_PRODUCTS, "Conv") and any(
            name in self._weights.protos for name in node.input[:2]
        )

    # Norms, rotary, embeddings, caches

    def _norms(self) -> Iterator[Pattern]:
        spelled = [each for each in self._patterns if each.name in NORMALIZATIONS]
        fused = [_fused(node, _FUSED_NORMS[node.op_type]) for node in self._nodes if node.op_type in _FUSED_NORMS]
        yield from sorted((*spelled, *fused), key=lambda each: self._order[each.nodes[-1]])

    def _is_rotary(self, node: Any) -> bool:
        if node.op_type not in ("Add", "Sub") or len(node.input) != 2:
            return bool(node.op_type == "RotaryEmbedding")
        makers = [self._producers.get(name) for name in node.input]
        return all(each is not None and each.op_type == "Mul" and self._has_angle(each) for each in makers)

    def _has_angle(self, node: Any) -> bool:
        return any(self._is_angle(name) for name in node.input)

    def _is_angle(self, tensor: str) -> bool:
        """Whether a tensor is a table of cosines or sines: constant, or computed from positions alone."""
        if tensor in self._constants:
            return not self._is_scalar(tensor) or tensor not in self._weights.protos
        cone = self._cone(tensor)
        if not any(node.op_type in ("Cos", "Sin") for node in cone):
            return False
        # Activations of later layers have cosines above them, too.
        fed = any(name in self._inputs and self._is_float(name) for node in cone for name in node.input)
        return not fed and not any(self._is_embedding(node) for node in cone)

    def _is_embedding(self, node: Any) -> bool:
        if node.op_type != "Gather" or node.input[0] not in self._constants:
            return False
        return self._is_float(node.output[0]) and node.input[1] not in self._constants

    def _embedded(self, embeddings: Iterable[str]) -> set[str]:
        """Tensors made of nothing but embeddings and constants."""
        gathers, found = set(embeddings), set[str]()
        for node in self._nodes:
            live = [name for name in node.input if self._is_live(name)]
            kept = node.op_type in (*_MOVERS, "Slice", "Add") and live and all(name in found for name in live)
            if node.name in gathers or kept:
                found.update(node.output)
        return found

    def _adds_activations(self, node: Any) -> bool:
        if node.op_type not in ("Add", "Sum") or not self._is_float(node.output[0]):
            return False
        return len(node.input) > 1 and all(map(self._is_live, node.input))

    def _adds_positions(self, node: Any) -> bool:
        """Whether it adds a table with a row for each position to an activation."""
        if node.op_type != "Add" or not self._is_float(node.output[0]):
            return False
        return any(
            self._is_live(name) and self._is_table(other) for name, other in (node.input[:2], node.input[1::-1])
        )

    def _is_table(self, tensor: str) -> bool:
        """Whether a tensor has several rows and is constant, or taken from such a one by shapes: positions."""
        if tensor in self._weights.protos:
            return sum(size > 1 for size in self._weights.shape(tensor)) >= _TABLE_AXES
        maker = self._producers.get(tensor)
        if maker is None or self._is_live(tensor) or not self._is_float(tensor):
            return False
        taken = maker.op_type in ("Slice", "Gather", *_MOVERS)
        return taken and (maker.input[0] in self._constants or self._is_table(maker.input[0]))

    def _moves_into(self, tensor: str, wanted: set[str]) -> bool:
        """Whether a tensor, moved at most, is one of some."""
        if tensor in wanted:
            return True
        movers = [node for node in self._readers[tensor] if node.op_type in _MOVERS and node.input[0] == tensor]
        return any(self._moves_into(node.output[0], wanted) for node in movers)

    def _caches(self, attentions: Iterable[Attention]) -> Iterator[CachedKeys]:
        products = {name for part in attentions for name in (part.query_key, part.context) if name}
        for node in self._nodes:
            past = [name for name in node.input if name in self._inputs] if node.op_type == "Concat" else []
            if past and self._reaches(node.output[0], products):
                yield CachedKeys(node.name, past[0], node.output[0])

    def _reaches(self, tensor: str, products: set[str]) -> bool:
        """Whether a tensor is read by one of some products, moved at most."""
        waiting, seen = [tensor], set[str]()
        while waiting:
            for node in self._readers[waiting.pop()]:
                if node.name in products:
                    return True
                if node.name not in seen and node.op_type in (*_MOVERS, "Mul"):
                    seen.add(node.name)
                    waiting += node.output
        return False


def _fused(node: Any, name: str) -> Pattern:
    return Pattern(name, (node.name,), node.input[0], node.output[0])


def _of_tensor(tensor: Any) -> Any:
    from onnx.numpy_helper import to_array

    return to_array(tensor)


def _lowest(value: Any) -> float:
    """The smallest value of an array; minus infinity is one."""
    numbers = np.asarray(value, dtype=np.float64)
    return float(np.nanmin(numbers)) if numbers.size and not np.isnan(numbers).all() else 0.0
