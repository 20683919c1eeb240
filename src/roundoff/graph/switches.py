"""What names mean: from nodes, tensors, quantizers, kinds and globs to the quantizers that are switched.

Everything that runs a network with some of its quantizers on asks here which ones are meant.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from fnmatch import fnmatchcase

from roundoff.core.quantizers import Kind, Quantizer
from roundoff.errors import BadInput, nearest
from roundoff.graph.quantized_model import QuantizedModel
from roundoff.graph.readers.points import quantizer_names, tensor_named_by
from roundoff.messages.message import english, some

KIND_WORDS: Mapping[str, tuple[Kind, ...]] = {
    "weight": ("weight", "bias"),
    "activation": ("activation",),
    "all": ("weight", "bias", "activation"),
}
"""Words that stand for all quantizers of a kind; biases are constants like weights, and are switched with them."""

MOST_NAMED = 5
"""So many names are told as examples."""

_PLURALS = {"weights": "weight", "activations": "activation"}


class Switches:
    """The quantizers of a model by every name that people use for them.

    A name is looked up in this order, and only the first that fits counts: ``weight``, ``activation``, ``all``; a
    node, which means the quantizers on its inputs; a quantizer; a tensor; what other tools call the quantizer of a
    tensor. Then the same with the name as a glob (``*`` any characters, ``?`` one). ``node:``, ``quantizer:``,
    ``tensor:`` and ``op:`` in front say what is meant; ``op:`` goes by operation.

    Args:
        quantized: The model.

    Attributes:
        names: All quantizers, in execution order.
        op_types: The operation of every node.
    """

    names: tuple[str, ...]
    op_types: Mapping[str, str]

    def __init__(self, quantized: QuantizedModel) -> None:
        self._quantized = quantized
        self.names = tuple(each.name for each in quantized.quantizers)
        self._order = {name: place for place, name in enumerate(self.names)}
        self.op_types = {node.name: node.op_type for node in quantized.float_model.proto.graph.node}
        self._of_node: dict[str, list[str]] = {}
        self._of_tensor: dict[str, list[str]] = {}
        self._of_op: dict[str, list[str]] = {}
        for quantizer in quantized.quantizers:
            self._of_tensor.setdefault(quantizer.tensor, []).append(quantizer.name)
            for node in dict.fromkeys(consumer.node for consumer in quantizer.consumers):
                self._of_node.setdefault(node, []).append(quantizer.name)
                self._of_op.setdefault(self.op_types.get(node, ""), []).append(quantizer.name)
        self._own = {name: [name] for name in self.names}

    @property
    def nodes(self) -> tuple[str, ...]:
        """Nodes with quantizers on their inputs, in execution order."""
        return tuple(name for name in self.op_types if name in self._of_node)

    def on_inputs(self, node: str) -> tuple[str, ...]:
        """The quantizers on the inputs of a node."""
        return tuple(self._of_node.get(node, ()))

    @staticmethod
    def labels_of(quantizer: Quantizer) -> frozenset[str]:
        """Every name that leads to a quantizer: its own, its tensor, the nodes that read it."""
        return frozenset({quantizer.name, quantizer.tensor, *(each.node for each in quantizer.consumers)})

    def matching(self, patterns: Iterable[str]) -> frozenset[str]:
        """All labels that patterns are, or else match as globs, whatever they are the names of.

        Raises:
            BadInput: A pattern matches nothing that is quantized.
        """
        known = dict.fromkeys((*self._of_node, *self.names, *self._of_tensor))
        found: set[str] = set()
        for pattern in patterns:
            own = {pattern} if pattern in known else {name for name in known if fnmatchcase(name, pattern)}
            if not own:
                raise self._unknown(pattern, pattern, known)
            found |= own
        return frozenset(found)

    def of_kind(self, word: str) -> tuple[str, ...]:
        """All quantizers that one of `KIND_WORDS` stands for."""
        kinds = KIND_WORDS[_PLURALS.get(word, word)]
        return tuple(each.name for each in self._quantized.quantizers if each.kind in kinds)

    def find(self, *names: str) -> tuple[str, ...]:
        """The quantizers that any of these names mean, in execution order.

        Raises:
            BadInput: A name means nothing that is quantized.
        """
        found = {quantizer for name in names for quantizer in self._find(name)}
        return tuple(sorted(found, key=self._order.__getitem__))

    def without(self, *names: str) -> tuple[str, ...]:
        """All quantizers but those that these names mean."""
        return self.complement(self.find(*names))

    def complement(self, quantizers: Iterable[str]) -> tuple[str, ...]:
        """All quantizers but these."""
        left_out = frozenset(quantizers)
        return tuple(name for name in self.names if name not in left_out)

    def select(self, quantizers: Iterable[str]) -> tuple[Quantizer, ...]:
        """The quantizers of these names, in execution order."""
        wanted = frozenset(quantizers)
        return tuple(each for each in self._quantized.quantizers if each.name in wanted)

    def _find(self, name: str) -> Sequence[str]:
        if _PLURALS.get(name, name) in KIND_WORDS:
            return self.of_kind(name)
        prefix, colon, rest = name.partition(":")
        tables = {"node": self._of_node, "tensor": self._of_tensor, "op": self._of_op, "quantizer": self._own}
        if colon and prefix in tables and name not in self.op_types and name not in self._of_tensor:
            found = _look_up(rest, [tables[prefix]])
            known: Iterable[str] = tables[prefix]
        else:
            found = _look_up(name, [self._of_node, self._own, self._of_tensor, self._aliases])
            known = (*self._of_node, *self.names, *self._of_tensor, *KIND_WORDS)
        if found:
            return found
        raise self._unknown(name, rest if colon and prefix in tables else name, dict.fromkeys(known))

    @property
    def _aliases(self) -> Mapping[str, list[str]]:
        return {alias: names for tensor, names in self._of_tensor.items() for alias in quantizer_names(tensor)}

    def _unknown(self, name: str, meant: str, known: Iterable[str]) -> BadInput:
        path = self._quantized.float_model.path
        if not self.names:
            what = english("{path} has no quantizers, so that {name!r} means none.", path=path, name=name)
            return BadInput(
                what, fix=english("give a quantized model, or quantize it first with 'roundoff quantize'")
            )
        if meant in self.op_types:
            what = english(
                "Node {meant!r} ({op_types}) has no quantizer on its inputs.",
                meant=meant,
                op_types=self.op_types[meant],
            )
            return BadInput(
                what, fix=english("choose nodes that are quantized: {nodes}", nodes=some(self.nodes, MOST_NAMED))
            )
        what = english("{name!r} is no quantized node, tensor or quantizer of {path}.", name=name, path=path)
        return BadInput(what, fix=nearest((tensor_named_by(meant) or meant).strip("*?"), known))


def _look_up(name: str, tables: Sequence[Mapping[str, list[str]]]) -> list[str]:
    """What a name means in the first table that has it, else in the first that has names it matches as a glob."""

    def equal(known: str) -> bool:
        return known == name

    def like(known: str) -> bool:
        return fnmatchcase(known, name)

    tests: tuple[Callable[[str], bool], ...] = (equal, like)
    for test in tests:
        for table in tables:
            found = [quantizer for known, members in table.items() if test(known) for quantizer in members]
            if found:
                return found
    return []
