"""A quantized model while its dialect is rewritten to QuantizeLinear and DequantizeLinear."""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain, count
from typing import Any

from roundoff.core.tensors import Array
from roundoff.graph.build import all_names, opset_of
from roundoff.graph.load import Model
from roundoff.graph.quantized_model import Oddity, OddityKind
from roundoff.graph.reading.constants import Constants
from roundoff.graph.wiring import OnnxType, reads, subgraphs

__all__ = ["Draft"]


class Draft:
    """The nodes of a model, to be replaced step by step; the model itself stays as it is.

    Attributes:
        model: Where it all comes from.
        opset: Version of the standard operators.
        nodes: In execution order. Treat each as read-only; `replace` puts others in their place.
        outputs: For each output of the network the tensor that carries it now.
        constants: Stored, added and derived constants.
        oddities: What the float model and its quantizers will not say.
    """

    def __init__(self, model: Model) -> None:
        graph = model.proto.graph
        self.model = model
        self.opset = opset_of(model.proto)
        self.nodes: list[Any] = list(graph.node)
        self.outputs = {value.name: value.name for value in graph.output}
        self.constants = Constants(model)
        self.oddities: list[Oddity] = []
        self._taken = set(_names(graph))
        self._taken_nodes = {node.name for node in graph.node}
        self._index()

    def _index(self) -> None:
        self._producers = {name: node for node in self.nodes for name in node.output if name}
        self._readers: dict[str, list[Any]] = defaultdict(list)
        for node in self.nodes:
            for name in reads(node):
                self._readers[name].append(node)

    def replace(self, nodes: Iterable[Any]) -> None:
        """Put other nodes in the place of all there are, in execution order."""
        self.nodes = list(nodes)
        self._index()

    def producer(self, tensor: str) -> Any:
        """The node that computes a tensor; None for inputs and constants."""
        return self._producers.get(tensor)

    def readers(self, tensor: str) -> Sequence[Any]:
        """The nodes that read a tensor, each once, in execution order."""
        return self._readers.get(tensor, ())

    def only_reader(self, tensor: str) -> Any:
        """The node that reads a tensor when nobody else does and it is no output; None otherwise."""
        found = self.readers(tensor)
        return found[0] if len(found) == 1 and tensor not in self.outputs.values() else None

    def is_taken(self, name: str) -> bool:
        """Whether a tensor is called so, or was."""
        return name in self._taken

    def free(self, wanted: str) -> str:
        """A name for a tensor like the wanted one that no other has; it is taken from now on."""
        return _free(wanted, self._taken)

    def free_node(self, wanted: str) -> str:
        """A name for a node like the wanted one that no other has; it is taken from now on."""
        return _free(wanted, self._taken_nodes)

    def add_constant(self, values: Array, wanted: str, element: OnnxType | None = None) -> str:
        """Keep values as a constant; gives the name they got."""
        name = self.free(wanted)
        self.constants.add(name, values, element)
        return name

    def odd(self, kind: OddityKind, node: str, text: str) -> None:
        """Write down what the float model and its quantizers will not say."""
        oddity = Oddity(kind, node, text)
        if oddity not in self.oddities:
            self.oddities.append(oddity)


def _names(graph: Any) -> Iterator[str]:
    """Every tensor name in use; that a file still declares the type of a tensor it has no more does not count."""
    yield from (value.name for value in (*graph.input, *graph.output, *graph.initializer))
    for node in graph.node:
        yield from (*node.input, *node.output)
        for inner in subgraphs(node):
            yield from all_names(inner)


def _free(wanted: str, taken: set[str]) -> str:
    others = (f"{wanted}_{number}" for number in count(2))
    name = next(name for name in chain([wanted], others) if name not in taken)
    taken.add(name)
    return name
