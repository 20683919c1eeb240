"""One graph that computes a network in float and, beside it, with several choices of quantizers on.

What the choices have in common is computed once: a node that reads the same tensors gives the same results.
Constants are quantized before anything runs, once for all choices.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from roundoff.core.quantizers import Quantizer
from roundoff.core.tensors import Array
from roundoff.graph.draft import Assembly
from roundoff.graph.fake_constants import chain_of, fake_quantized
from roundoff.graph.insertion import Edges
from roundoff.graph.load import Model, inside_bytes
from roundoff.graph.qdq import WIDEST_COMPUTED, add_quantizer
from roundoff.graph.save import LARGEST_MESSAGE_BYTES
from roundoff.graph.shapes import Value, ValueTypes
from roundoff.graph.subgraph import tap
from roundoff.graph.weights import Weights
from roundoff.graph.wiring import reads, rename_captured
from roundoff.run.session import open_session

__all__ = [
    "CandidateSession",
    "Candidates",
    "build_candidates",
]


# Quantized constants beyond this many bytes are computed in each run.
_MOST_BAKED_BYTES = 2**29
_FLOAT_BYTES = 4


@dataclass(frozen=True, slots=True)
class Candidates:
    """A graph with several candidates for one network.

    Attributes:
        model: The graph; its own names are those of the float network.
        places: For each candidate, where to read the tensors that may differ from the float network's.
    """

    model: Model
    places: tuple[Mapping[str, str], ...]

    def place(self, candidate: int, tensor: str) -> str:
        """Where to read a tensor of a candidate; the name itself when it is as in float."""
        return self.places[candidate].get(tensor, tensor)


def build_candidates(model: Model, choices: Sequence[Sequence[Quantizer]]) -> Candidates:
    """Put candidates beside a float model.

    Args:
        model: The float model.
        choices: For each candidate the quantizers that are on. One that follows another which is not among them
            quantizes the float values.

    Raises:
        BadInput: A quantizer does not fit the model, or ONNX cannot express it.
    """
    return _Builder(model, choices).build()


class _Choice:
    """One candidate under construction."""

    def __init__(self, model: Model, quantizers: Sequence[Quantizer]) -> None:
        self.edges = Edges(model, quantizers)
        self.by_name = {each.name: each for each in quantizers}
        self.places: dict[str, str] = {}


class _Builder:
    def __init__(self, model: Model, choices: Sequence[Sequence[Quantizer]]) -> None:
        self._model = model
        self._choices = [_Choice(model, quantizers) for quantizers in choices]
        self._types = ValueTypes(model)
        self._weights = Weights(model)
        self._graph = Assembly(model)
        self._nodes: dict[tuple[str, ...], Sequence[str]] = {}
        self._quantized: dict[tuple[int, str], str] = {}
        self._constants: dict[tuple[int, ...], str] = {}
        self._baked_bytes = 0
        self._most_baked = min(_MOST_BAKED_BYTES, LARGEST_MESSAGE_BYTES - inside_bytes(model.proto))

    def build(self) -> Candidates:
        graph = self._model.proto.graph
        self._graph.proto.graph.initializer.extend(graph.initializer)
        for node in graph.node:
            self._graph.copy_node(node)
            for choice in self._choices:
                written = self._copy(node, choice)
                changed = zip(node.output, written, strict=True)
                choice.places.update((old, new) for old, new in changed if old != new)
        for choice in self._choices:
            for tensor, quantizer in choice.edges.leaving.items():
                choice.places[tensor] = self._read(choice, quantizer)
        size = self._model.file_bytes + self._baked_bytes
        model = Model(self._graph.proto, self._model.path, size)
        return Candidates(model, tuple(choice.places for choice in self._choices))

    def _copy(self, node: Any, choice: _Choice) -> Sequence[str]:
        """Add a copy of a node unless it would compute what is there already; gives the names of its outputs."""
        wanted = []
        for position, tensor in enumerate(node.input):
            quantizer = choice.edges.read_by(node.name, position)
            place = choice.places.get(tensor, tensor)
            wanted.append(place if quantizer is None else self._read(choice, quantizer))
        captured = {
            name: choice.places[name] for name in reads(node) if name not in node.input and name in choice.places
        }
        if wanted == list(node.input) and not captured:
            return tuple(node.output)
        key = node.name, *wanted, "", *(f"{old}\0{new}" for old, new in captured.items())
        if key not in self._nodes:
            copy = self._graph.copy_node(node)
            copy.name = f"{node.name}//{len(self._nodes)}"
            for position, name in enumerate(wanted):
                copy.input[position] = name
            for position, name in enumerate(node.output):
                copy.output[position] = self._graph.free_tensor(f"{name}//quantized") if name else ""
            rename_captured(copy, captured)
            self._nodes[key] = tuple(copy.output)
        return self._nodes[key]

    def _read(self, choice: _Choice, quantizer: Quantizer) -> str:
        """The values that a quantizer, and those before it, make of its tensor."""
        chain = chain_of(quantizer, choice.by_name)
        if self._is_baked(chain):
            return self._constant(chain)
        place = choice.places.get(quantizer.tensor, quantizer.tensor)
        for each in chain:
            place = self._add(each, place)
        return place

    def _add(self, quantizer: Quantizer, source: str) -> str:
        key = id(quantizer), source
        if key not in self._quantized:
            target = self._graph.free_tensor(f"{source}//{quantizer.name}")
            element = self._types.element(quantizer.tensor)
            rank = self._types.rank(quantizer.tensor) if quantizer.spec.axis is not None else None
            add_quantizer(self._graph, quantizer, source, target=target, element=element, rank=rank)
            self._quantized[key] = target
        return self._quantized[key]

    def _is_baked(self, chain: Sequence[Quantizer]) -> bool:
        """Whether what a chain of quantizers makes of its tensor is computed beforehand."""
        if chain[0].tensor not in self._weights.protos:
            return False
        if any(each.codes is not None or each.spec.bits > WIDEST_COMPUTED for each in chain):
            return True
        known = tuple(map(id, chain)) in self._constants
        size = math.prod(self._weights.shape(chain[0].tensor)) * _FLOAT_BYTES
        return known or self._baked_bytes + size <= self._most_baked

    def _constant(self, chain: Sequence[Quantizer]) -> str:
        key = tuple(map(id, chain))
        if key not in self._constants:
            values = self._weights[chain[0].tensor]
            for each in chain:
                values = fake_quantized(values, each)
            self._baked_bytes += values.nbytes
            self._constants[key] = self._graph.add_constant(values, f"{chain[0].tensor}//{chain[-1].name}")
        return self._constants[key]


# Running candidates and reading the same tensors of all of them.


class CandidateSession:
    """A graph of candidates, ready to run.

    Args:
        candidates: The graph.
        tensors: What to read of the float network and of each candidate.
        threads: Threads per node; all cores by default.

    Raises:
        ModelFailed: onnxruntime does not accept the graph.
    """

    def __init__(self, candidates: Candidates, tensors: Sequence[Value], *, threads: int | None = None) -> None:
        self._places = {
            value.name: [candidates.place(number, value.name) for number in range(len(candidates.places))]
            for value in tensors
        }
        self._names = tuple(
            dict.fromkeys(name for tensor in self._places for name in (tensor, *self._places[tensor]))
        )
        # Types that numpy does not have are read as ones that it has.
        widen = {
            name: value.element.widened
            for value in tensors
            if value.element is not None and value.element.widened != value.element.dtype
            for name in (value.name, *self._places[value.name])
        }
        taps = tap(candidates.model, self._names, widen=widen)
        self._session = open_session(candidates.model, outputs=taps, threads=threads)

    def run(self, feed: Mapping[str, Array], *, sample: str = "") -> dict[str, tuple[Array, list[Array]]]:
        """Each tensor in float, and of every candidate; where they are the same they are the same array.

        Args:
            feed: A value for each input.
            sample: What the user calls this feed; for messages.

        Raises:
            ModelFailed: onnxruntime could not compute them.
        """
        arrays = dict(zip(self._names, self._session.run(feed, sample=sample), strict=True))
        return {
            tensor: (arrays[tensor], [arrays[name] for name in places]) for tensor, places in self._places.items()
        }

    def stop(self) -> None:
        """End the runs that are under way; they then fail."""
        self._session.stop()
