"""Probe graphs: what small changes of many nodes do to the outputs, all in one run.

A changed copy of a node stands beside it; the difference of their results is the change exactly as it begins. Its
product with the gradient of ``v . y`` by the node's result is, to first order, the change of ``v . y``.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from roundoff.core.quantizer import Consumer
from roundoff.graph.assembly import all_names
from roundoff.graph.backward.builder import Gradients, sweep_back
from roundoff.graph.backward.facts import Facts
from roundoff.graph.backward.registry import BLIND
from roundoff.graph.backward.tape import Tape
from roundoff.graph.blocks import NodeCopies, Reading, free_prefix
from roundoff.graph.load import Model
from roundoff.graph.shapes import Value
from roundoff.graph.wiring import subgraphs

__all__ = ["NotApart", "Probe", "ProbeGraph", "Variant", "probe_graph", "sample_facts"]


class NotApart(Exception):
    """What belongs to which of several samples cannot be told from the shapes."""


@dataclass(frozen=True, slots=True, eq=False)
class Variant:
    """A node that reads something else than in the model.

    Attributes:
        node: The node.
        readings: What its inputs read.
    """

    node: str
    readings: Mapping[Consumer, Reading]


@dataclass(frozen=True, slots=True)
class Probe:
    """A combination of the elements of one output.

    Attributes:
        output: The output.
        itself: Its elements count as much as they are; otherwise as a vector says that is fed.
    """

    output: str
    itself: bool = False


@dataclass(frozen=True, slots=True, eq=False)
class ProbeGraph:
    """A network that also computes changed results of nodes, and gradients of probes by results.

    Attributes:
        model: Computes all of it; batch size and shapes are fixed.
        seeds: For each probe the input that takes its vector; empty if that is the output itself.
        outputs: The tensor that holds each output.
        changed: For each variant the results of its node, each with the tensor that holds it with the change.
        gradients: For each probe the tensor that holds its gradient by each result; none where that is zero.
        axes: The axis of each result along which samples lie.
        unknown: Variants that nothing can be said of, and why.
        guessed: Whether which rows are whose was concluded from sizes alone.
    """

    model: Model
    seeds: tuple[str, ...]
    outputs: Mapping[str, str]
    changed: tuple[Mapping[str, str], ...]
    gradients: tuple[Mapping[str, str], ...]
    axes: Mapping[str, int]
    unknown: Mapping[int, str]
    guessed: bool


def sample_facts(
    model: Model, values: Sequence[Value], feed: Mapping[str, tuple[int, ...]], *, samples: int
) -> Facts:
    """What is known of a model that is fed samples.

    Args:
        model: The model.
        values: Its tensors, with types and their shapes in one sample that was run.
        feed: Shapes of the inputs, for all samples together.
        samples: How many samples these are.
    """
    facts = Facts(model, feed)
    measured = {value.name: value.shape for value in values if value.shape is not None}
    if samples > 1 or any(measured.get(name) != shape for name, shape in feed.items()):
        return facts
    # What only a run can tell is known of the sample that was run.
    open_ = {name: measured[name] for name in facts.producers if name in measured and facts.shape(name) is None}
    return Facts(model, {**open_, **feed}) if open_ else facts


def probe_graph(
    facts: Facts, values: Sequence[Value], *, variants: Sequence[Variant], probes: Sequence[Probe], samples: int
) -> ProbeGraph:
    """Build the probe graph of a float model.

    Args:
        facts: From `sample_facts`.
        values: The model's tensors, with types and their shapes in one sample.
        variants: The changes, each of one node.
        probes: The combinations of outputs, which are float tensors.
        samples: How many samples it is fed together.

    Raises:
        NotApart: A result of a node that is changed has no axis for samples.
        BadInput: ONNX has no operators for one of the quantizers.
    """
    return _Build(facts, values, samples).build(variants, probes)


class _Build:
    """A probe graph under construction."""

    def __init__(self, facts: Facts, values: Sequence[Value], samples: int) -> None:
        self._facts, self._samples = facts, samples
        self._single = {value.name: value for value in values}
        self._tape = Tape(facts.model)
        self._fix_shapes()
        graph = facts.model.proto.graph
        self._copies = NodeCopies(self._tape.frame, self._single, free_prefix(frozenset(all_names(graph))))
        self._nodes = {node.name: node for node in graph.node}
        self._guessed = False

    def build(self, variants: Sequence[Variant], probes: Sequence[Probe]) -> ProbeGraph:
        unknown = {place: reason for place, each in enumerate(variants) if (reason := self._obstacle(each))}
        results = {
            name: None
            for place, each in enumerate(variants)
            if place not in unknown
            for name in self._results(each)
        }
        sweeps = [
            sweep_back(self._facts, self._tape, places=results, seeds=[each.output], themselves=each.itself)
            for each in probes
        ]
        changed: list[Mapping[str, str]] = []
        for place, each in enumerate(variants):
            if place not in unknown:
                unknown |= {place: reason} if (reason := self._reason(each, sweeps)) else {}
            changed.append({} if place in unknown else self._changed(each))
        needed = dict.fromkeys(name for each in changed for name in each)
        axes = {name: self._sample_axis(name) for name in needed}
        # What the network computes is given out as it is, the rest under names of its own.
        given = dict.fromkeys([*needed, *(name for each in changed for name in each.values())])
        given |= dict.fromkeys(probe.output for probe in probes)
        self._give([*given])
        wanted = {
            sweep.tensors[name]: f"{name}//gradient"
            for sweep in sweeps
            for name in needed
            if name in sweep.tensors
        }
        model, names = self._tape.finish(wanted)
        return ProbeGraph(
            model,
            seeds=tuple(
                "" if probe.itself else sweep.seeds[probe.output]
                for probe, sweep in zip(probes, sweeps, strict=True)
            ),
            outputs={probe.output: probe.output for probe in probes},
            changed=tuple(changed),
            gradients=tuple(
                {name: names[sweep.tensors[name]] for name in needed if name in sweep.tensors} for sweep in sweeps
            ),
            axes=axes,
            unknown=unknown,
            guessed=self._guessed,
        )

    def _give(self, tensors: Sequence[str]) -> None:
        """Let the model give out these tensors, and no others."""
        graph = self._tape.frame.proto.graph
        del graph.output[:]
        inputs = {value.name for value in graph.input}
        for name in tensors:
            if name not in inputs:
                graph.output.add(name=name)

    def _fix_shapes(self) -> None:
        """Inputs as they will be fed, which may be more than one sample of a model for one."""
        graph = self._tape.frame.proto.graph
        for value in graph.input:
            shape = self._facts.shape(value.name)
            if shape is not None:
                value.type.tensor_type.ClearField("shape")
                value.type.tensor_type.shape.SetInParent()
                for size in shape:
                    value.type.tensor_type.shape.dim.add(dim_value=size)

    def _results(self, variant: Variant) -> list[str]:
        """What a node computes that depends on the values it reads."""
        node = self._nodes[variant.node]
        return [] if node.op_type in BLIND else [name for name in node.output if name]

    def _obstacle(self, variant: Variant) -> str:
        node = self._nodes[variant.node]
        if any(subgraphs(node)):
            return f"{node.op_type} {node.name!r} has subgraphs"
        whole = [name for name in self._results(variant) if not self._facts.is_float(name)]
        return f"{node.op_type} {node.name!r} computes {whole[0]!r}, which holds no floats" if whole else ""

    def _reason(self, variant: Variant, sweeps: Sequence[Gradients]) -> str:
        """Why the gradient of a result is not known, or does not tell all."""
        for sweep in sweeps:
            for name in self._results(variant):
                if name in sweep.without_rule:
                    return sweep.without_rule[name]
                if name in sweep.stepwise:
                    return f"{sweep.stepwise[name]} works in steps"
        return ""

    def _changed(self, variant: Variant) -> dict[str, str]:
        """The results of a node that a variant changes, each with the tensor that holds it then."""
        if not self._results(variant):
            return {}
        node, frame = self._nodes[variant.node], self._tape.frame
        copy = self._copies.add(node, variant.readings)
        copy.name = frame.free_tensor(f"{node.name}//variant")
        for position, name in enumerate(node.output):
            if name:
                copy.output[position] = frame.free_tensor(f"{name}//variant")
        return {name: str(other) for name, other in zip(node.output, copy.output, strict=True) if name}

    def _sample_axis(self, tensor: str) -> int:
        """The axis along which samples lie; of a single sample all is its own."""
        if self._samples == 1:
            return 0
        value, shape = self._single.get(tensor), self._facts.shape(tensor)
        single = None if value is None else value.shape
        if single is None or shape is None or len(single) != len(shape):
            raise NotApart(tensor)
        grown = [at for at, (one, all_) in enumerate(zip(single, shape, strict=True)) if one != all_]
        if len(grown) != 1 or shape[grown[0]] != single[grown[0]] * self._samples:
            raise NotApart(tensor)
        self._guessed |= single[grown[0]] != 1
        return grown[0]
