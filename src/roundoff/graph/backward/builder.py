"""The backward graph: gradients of a network's outputs by any of its tensors, as an ONNX model."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import roundoff.graph.backward.rules  # noqa: F401  (registers the rules)
from roundoff.core.quantizer import Consumer
from roundoff.errors import BadInput, nearest
from roundoff.graph.assembly import STANDARD_DOMAINS
from roundoff.graph.backward.facts import Facts
from roundoff.graph.backward.registry import BLIND, CODING, STEPWISE, find_rule
from roundoff.graph.backward.step import NoRule, Step
from roundoff.graph.backward.tape import Tape
from roundoff.graph.interface import outputs
from roundoff.graph.load import Model
from roundoff.graph.wiring import reads, subgraphs

__all__ = ["BackwardGraph", "Gradients", "Place", "backward_graph", "sweep_back"]

Place: TypeAlias = str | Consumer
"""Where a gradient is asked for: at a tensor as a whole, or at what one input of one node sees of it."""

_NO_PATH = "no path leads from it to the outputs"


@dataclass(frozen=True, slots=True)
class Gradients:
    """Where the gradients of ``sum(v_y . y)`` over some outputs y are on a tape; see `BackwardGraph`.

    Attributes:
        seeds: The tensor that holds v_y, for each output y.
        tensors: The tensor that holds the gradient at each place.
        zero: Places where it is zero, and why.
        without_rule: Places where it is not known, and why.
        stepwise: Places from which a path leads through an operation that works in steps, and through which.
    """

    seeds: Mapping[str, str]
    tensors: Mapping[Place, str]
    zero: Mapping[Place, str]
    without_rule: Mapping[Place, str]
    stepwise: Mapping[Place, str]


@dataclass(frozen=True, slots=True)
class BackwardGraph:
    """A network that also computes gradients of ``sum(v_y . y)`` over its outputs y, for vectors v_y that are fed.

    Every place asked for is in exactly one of `gradients`, `zero` and `without_rule`. With several samples in a
    batch the gradients of activations are those of each sample, if the network treats samples apart; those of
    constants are sums over the batch.

    Attributes:
        model: Computes the network's outputs and the gradients; batch size and shapes are fixed.
        seeds: The additional input that takes v_y, for each output y.
        gradients: The output that holds the gradient at each place; places with the same gradient share one.
        zero: Places where it is zero, and why: nothing leads to the outputs, or only what works in steps does.
        without_rule: Places where it is not known, and why: a path to an output leads through an operation that
            has no rule.
        stepwise: Places from which some path leads through an operation that works in steps (comparison, rounding,
            choice of the largest), and through which. The gradient takes no note of that path.
    """

    model: Model
    seeds: Mapping[str, str]
    gradients: Mapping[Place, str]
    zero: Mapping[Place, str]
    without_rule: Mapping[Place, str]
    stepwise: Mapping[Place, str]


def backward_graph(
    model: Model,
    tensors: Iterable[str] = (),
    *,
    edges: Iterable[Consumer] = (),
    seeds: Sequence[str] | None = None,
    shapes: Mapping[str, tuple[int, ...]] | None = None,
) -> BackwardGraph:
    """Build the backward graph of a float model.

    Args:
        model: The model; it is not changed. Weights outside its file stay there.
        tensors: Tensors to give the gradient of, over all their uses; inputs and constants too.
        edges: Node inputs to give the gradient of what they see; constants too.
        seeds: Tensors to take as outputs; all float outputs of the model by default.
        shapes: Actual shapes of the inputs, needed where the model leaves them open; those of other tensors may be
            given where they cannot be told from these.

    Raises:
        BadInput: A tensor, node or input asked for is not there.
    """
    facts = Facts(model, shapes)
    places: dict[Place, None] = dict.fromkeys([*tensors, *edges])
    _check_places(places, facts)
    tape = Tape(model)
    found = sweep_back(facts, tape, places=places, seeds=_checked_seeds(facts, seeds))
    wanted: dict[str, str] = {}
    for place, tensor in found.tensors.items():
        wanted.setdefault(tensor, _output_name(place))
    finished, names = tape.finish(wanted)
    gradients = {place: names[tensor] for place, tensor in found.tensors.items()}
    return BackwardGraph(
        finished, found.seeds, gradients, zero=found.zero, without_rule=found.without_rule, stepwise=found.stepwise
    )


def sweep_back(
    facts: Facts, tape: Tape, *, places: Iterable[Place], seeds: Iterable[str], themselves: bool = False
) -> Gradients:
    """Add to a tape what computes gradients; what an earlier sweep added to it is used again.

    Args:
        facts: What is known of the model.
        tape: Of the same model.
        places: Where gradients are asked for.
        seeds: The outputs; each gets an input of its own that takes its vector.
        themselves: The vector of each output is the output itself; there are no inputs.
    """
    return _Sweep(facts, dict.fromkeys(places), seeds, tape, themselves=themselves).finish()


@dataclass(slots=True)
class _Flow:
    """What comes back to one place.

    Attributes:
        influences: Whether the outputs depend on it at all.
        parts: Gradients to be added up.
        blocked: Why the gradient is not known.
        step: What works in steps on the way.
    """

    influences: bool = False
    parts: list[str] = field(default_factory=list)
    blocked: str = ""
    step: str = ""

    def join(self, other: "_Flow") -> None:
        self.influences |= other.influences
        self.parts += other.parts
        self.blocked = self.blocked or other.blocked
        self.step = self.step or other.step


class _Sweep:
    """One walk over the network from its outputs to its inputs."""

    def __init__(
        self, facts: Facts, places: Mapping[Place, None], seeds: Iterable[str], tape: Tape, *, themselves: bool
    ) -> None:
        self._facts = facts
        self._places = places
        self._tape = tape
        self._flows: dict[Place, _Flow] = {}
        self._nodes = [node for node in facts.model.proto.graph.node if node.op_type != "Constant"]
        self._needed = self._find_needed()
        self._seeds = {tensor: tensor if themselves else self._add_seed(tensor) for tensor in seeds}
        for tensor, seed in self._seeds.items():
            self._flow(tensor).join(_Flow(influences=True, parts=[seed]))
        for node in reversed(self._nodes):
            self._visit(node)

    def _find_needed(self) -> set[str]:
        """Tensors whose gradient is asked for, or leads to one that is."""
        needed = {place for place in self._places if isinstance(place, str)}
        nodes = {place.node for place in self._places if isinstance(place, Consumer)}
        for node in self._nodes:
            if node.name in nodes or not needed.isdisjoint(reads(node)):
                needed.update(name for name in node.output if name)
        return needed

    def _add_seed(self, tensor: str) -> str:
        element = self._facts.element(tensor)
        number = element.number if element is not None else 1
        shape = self._facts.shape(tensor)
        return self._tape.add_input(f"{tensor}//seed", like=tensor, element=number, shape=shape)

    def _flow(self, place: Place) -> _Flow:
        return self._flows.setdefault(place, _Flow())

    def _total(self, place: Place) -> str | None:
        """The gradient at a place; None when it is zero or not known."""
        flow = self._flow(place)
        if flow.blocked or not flow.parts:
            return None
        if len(flow.parts) > 1:
            flow.parts = [self._tape.op("Add" if len(flow.parts) == 2 else "Sum", *flow.parts)]
        return flow.parts[0]

    def _visit(self, node: Any) -> None:
        blind = node.op_type in BLIND and node.domain in STANDARD_DOMAINS
        behind = [self._flow(name) for name in node.output if name]
        if blind or not any(flow.influences for flow in behind):
            return
        step = Step(
            node, [self._total(name) if name else None for name in node.output], facts=self._facts, tape=self._tape
        )
        for index, name in enumerate(node.input):
            place = Consumer(node.name, index)
            if name and (name in self._needed or place in self._places):
                flow = self._through(step, index, behind)
                self._flow(name).join(flow)
                self._flow(place).join(flow)
        captured = set(reads(node)).difference(node.input)
        for name in captured & self._needed:
            self._flow(name).join(self._captured(node, name))

    def _through(self, step: Step, index: int, behind: Sequence[_Flow]) -> _Flow:
        """What comes back through one input of a node."""
        node, facts = step.node, self._facts
        flow = _Flow(influences=True, step=next((other.step for other in behind if other.step), ""))
        if not facts.is_float(node.input[index]):
            return flow
        stepwise = node.op_type in STEPWISE and node.domain in STANDARD_DOMAINS
        whole = [name for name in node.output if name and self._flow(name).influences and not facts.is_float(name)]
        if whole and node.op_type in CODING:
            return _Flow(influences=True, blocked=f"{node.op_type} {node.name!r}: it rounds values to codes")
        if stepwise or whole:
            flow.step = f"{node.op_type} {node.name!r}"
        flow.blocked = next((other.blocked for other in behind if other.blocked), "")
        if stepwise or flow.blocked or all(gradient is None for gradient in step.gradients):
            return flow if not stepwise else _Flow(influences=True, step=flow.step)
        try:
            gradient = _apply_rule(step, index)
        except NoRule as reason:
            flow.blocked = f"{node.op_type} {node.name!r}: {reason}"
            return flow
        if gradient is not None:
            flow.parts = [gradient]
        return flow

    def _captured(self, node: Any, name: str) -> _Flow:
        """What comes back to a tensor that a subgraph takes from outside."""
        if not self._facts.is_float(name):
            return _Flow(influences=True)
        return _Flow(influences=True, blocked=f"{node.op_type} {node.name!r}: it is read inside of its subgraphs")

    def finish(self) -> Gradients:
        zero: dict[Place, str] = {}
        without_rule: dict[Place, str] = {}
        stepwise: dict[Place, str] = {}
        found: dict[Place, str] = {}
        for place in self._places:
            flow, gradient = self._flow(place), self._total(place)
            if flow.step:
                stepwise[place] = flow.step
            if self._whole(place):
                without_rule[place] = self._whole(place)
            elif flow.blocked:
                without_rule[place] = flow.blocked
            elif gradient is None:
                zero[place] = f"only by steps of {flow.step}" if flow.step else _NO_PATH
            else:
                found[place] = gradient
        return Gradients(self._seeds, found, zero, without_rule, stepwise)

    def _whole(self, place: Place) -> str:
        """Why there can be no gradient at a place; empty when there can."""
        name = place if isinstance(place, str) else self._input(place)
        element = self._facts.element(name)
        if self._facts.is_float(name) or element is None:
            return ""
        return f"it holds {element.dtype}, and only floats have gradients"

    def _input(self, place: Consumer) -> str:
        node = next(node for node in self._nodes if node.name == place.node)
        return str(node.input[place.input])


def _apply_rule(step: Step, index: int) -> str | None:
    node = step.node
    if any(subgraphs(node)):
        raise NoRule("its subgraphs have no rule")
    entry = find_rule(node)
    if entry is None:
        where = f" of {node.domain}" if node.domain not in STANDARD_DOMAINS else ""
        raise NoRule(f"this operation{where} has no rule")
    others = [name for name, gradient in zip(step.outputs[1:], step.gradients[1:], strict=True) if gradient]
    if others and not entry.every_output:
        raise NoRule(f"its output {others[0]!r} has no rule")
    return entry.gradient(step, index)


def _output_name(place: Place) -> str:
    return f"{place}//gradient" if isinstance(place, str) else f"{place.node}:{place.input}//gradient"


def _check_places(places: Mapping[Place, None], facts: Facts) -> None:
    model = facts.model
    tensors = {value.name for value in (*model.proto.graph.input, *model.proto.graph.initializer)} | {
        *facts.producers
    }
    nodes = {node.name: node for node in model.proto.graph.node}
    for place in places:
        if isinstance(place, str):
            _check_tensor(place, tensors, model)
        elif place.node not in nodes:
            raise BadInput(f"{model.path} has no node {place.node!r}.", fix=nearest(place.node, nodes))
        elif not 0 <= place.input < len(nodes[place.node].input) or not nodes[place.node].input[place.input]:
            raise BadInput(
                f"Node {place.node!r} has no input {place.input}.",
                fix=f"it has {len(nodes[place.node].input)}, counted from 0",
            )


def _check_tensor(tensor: str, known: set[str], model: Model) -> None:
    if tensor not in known:
        raise BadInput(f"{model.path} has no tensor {tensor!r}.", fix=nearest(tensor, sorted(known)))


def _checked_seeds(facts: Facts, seeds: Sequence[str] | None) -> list[str]:
    model = facts.model
    if seeds is None:
        return [name for name in outputs(model) if facts.is_float(name) and facts.is_tensor(name)]
    known = {value.name for value in model.proto.graph.input} | {*facts.producers}
    for tensor in seeds:
        _check_tensor(tensor, known, model)
        element = facts.element(tensor)
        if not facts.is_float(tensor) and element is not None:
            what = f"{tensor!r} holds {element.dtype}; only floats have gradients."
            raise BadInput(what, fix="take a float tensor before it as the output")
    return list(dict.fromkeys(seeds))
