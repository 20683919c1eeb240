"""Probe graphs: what small changes of many nodes do to the outputs, all in one run.

A changed copy of a node stands beside it; the difference of their results is the change exactly as it begins. Its
product with the gradient of ``v . y`` by the node's result is, to first order, the change of ``v . y``. Only these
products leave the graph, one number for each sample, change and vector v.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

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

_FLOAT32 = 1
# Since when axes are an input, no attribute.
_AXES_AS_INPUT = {"ReduceSum": 13, "ReduceSumSquare": 18}


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
    """A network that also computes what variants change in probes.

    Attributes:
        model: Computes it; batch size and shapes are fixed.
        seeds: For each probe the input that takes its vector; empty if that is the output itself.
        outputs: The tensor that holds each output.
        products: The tensor that holds all products: column by column, each with a number for each sample.
        columns: The column with what a variant (by its place) changes in a probe; none where that is zero.
        errors: For each variant the column with the energy of the change where it begins; -1 where there is none.
        sizes: For each variant the column with the energy of what is changed there.
        unknown: Variants that nothing can be said of, and why.
        guessed: Whether which rows are whose was concluded from sizes alone.
    """

    model: Model
    seeds: tuple[str, ...]
    outputs: Mapping[str, str]
    products: str
    columns: Mapping[tuple[int, int], int]
    errors: tuple[int, ...]
    sizes: tuple[int, ...]
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
        self._columns: list[str] = []
        self._places: dict[str, int] = {}
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
        columns: dict[tuple[int, int], int] = {}
        local = [(-1, -1)] * len(variants)
        for place, each in enumerate(variants):
            if place not in unknown:
                unknown |= {place: reason} if (reason := self._reason(each, sweeps)) else {}
            changed = {} if place in unknown else self._changes(each)
            if not changed:
                continue
            local[place] = self._local(changed)
            for number, sweep in enumerate(sweeps):
                parts = [
                    self._product(change, sweep.tensors[name], name)
                    for name, change in changed.items()
                    if name in sweep.tensors
                ]
                if parts:
                    columns[place, number] = self._column(parts)
        return self._finish(probes, sweeps, columns, local, unknown)

    def _finish(
        self,
        probes: Sequence[Probe],
        sweeps: Sequence[Gradients],
        columns: Mapping[tuple[int, int], int],
        local: Sequence[tuple[int, int]],
        unknown: Mapping[int, str],
    ) -> ProbeGraph:
        outputs = dict.fromkeys(probe.output for probe in probes)
        given = {value.name for value in self._tape.frame.proto.graph.output}
        wanted = {name: f"{name}//value" for name in outputs if name not in given}
        products = ""
        if self._columns:
            products = self._tape.op("Concat", *self._columns, axis=0)
            wanted[products] = "//products"
        model, names = self._tape.finish(wanted)
        return ProbeGraph(
            model,
            seeds=tuple(
                "" if probe.itself else sweep.seeds[probe.output]
                for probe, sweep in zip(probes, sweeps, strict=True)
            ),
            outputs={name: names.get(name, name) for name in outputs},
            products=names.get(products, ""),
            columns=columns,
            errors=tuple(error for error, _ in local),
            sizes=tuple(size for _, size in local),
            unknown=unknown,
            guessed=self._guessed,
        )

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
        for value in graph.output:
            value.ClearField("type")

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

    def _changes(self, variant: Variant) -> dict[str, str]:
        """The difference that a variant makes to each result of its node."""
        node, frame = self._nodes[variant.node], self._tape.frame
        copy = self._copies.add(node, variant.readings)
        copy.name = frame.free_tensor(f"{node.name}//variant")
        found = {}
        for position, name in enumerate(node.output):
            if name:
                copy.output[position] = frame.free_tensor(f"{name}//variant")
                shape = self._facts.shape(name)
                if shape is None or 0 not in shape:
                    found[name] = self._tape.op("Sub", copy.output[position], name)
        return found

    def _local(self, changed: Mapping[str, str]) -> tuple[int, int]:
        """Columns with the energy of changes, and of what is changed."""
        sums = (
            [self._summed("ReduceSumSquare", tensor, name) for name, tensor in tensors]
            for tensors in (changed.items(), [(name, name) for name in changed])
        )
        error, size = (self._column(each) for each in sums)
        return error, size

    def _product(self, change: str, gradient: str, like: str) -> str:
        """For each sample the sum of a change times a gradient."""
        return self._summed("ReduceSum", self._tape.op("Mul", change, gradient), like)

    def _column(self, parts: Sequence[str]) -> int:
        """The place of a sum of numbers for each sample."""
        total = parts[0] if len(parts) == 1 else self._tape.op("Sum", *parts)
        if total not in self._places:
            self._places[total] = len(self._columns)
            self._columns.append(total)
        return self._places[total]

    def _summed(self, reduction: str, tensor: str, like: str) -> str:
        """A tensor with the shape of a result, summed up for each sample in float32."""
        if self._facts.dtype(like) != np.float32:
            tensor = self._tape.op("Cast", tensor, to=_FLOAT32)
        axis, rank, size = self._sample_axis(like)
        if rank == 0:
            return self._reshaped(self._reduced(reduction, tensor, None), 1)
        summed = self._reduced(reduction, tensor, [other for other in range(rank) if other != axis])
        if size == self._samples:
            return summed
        # Several rows belong to each sample; they are squared already.
        return self._reduced("ReduceSum", self._reshaped(summed, self._samples, -1), [1])

    def _reduced(self, reduction: str, tensor: str, axes: Sequence[int] | None) -> str:
        if axes is not None and not axes:
            return tensor if reduction == "ReduceSum" else self._tape.op("Mul", tensor, tensor)
        if axes is None:
            return self._tape.op(reduction, tensor, keepdims=0)
        if self._tape.opset >= _AXES_AS_INPUT[reduction]:
            return self._tape.op(reduction, tensor, self._tape.constant(np.array(axes, np.int64)), keepdims=0)
        return self._tape.op(reduction, tensor, axes=list(axes), keepdims=0)

    def _reshaped(self, tensor: str, *shape: int) -> str:
        return self._tape.op("Reshape", tensor, self._tape.constant(np.array(shape, np.int64)))

    def _sample_axis(self, tensor: str) -> tuple[int, int, int]:
        """The axis along which samples lie, how many axes there are, and the size of that one.

        For a single sample all axes are its own, and zeros are given.
        """
        if self._samples == 1:
            return 0, 0, 0
        value, shape = self._single.get(tensor), self._facts.shape(tensor)
        single = None if value is None else value.shape
        if single is None or shape is None or len(single) != len(shape):
            raise NotApart(tensor)
        grown = [at for at, (one, all_) in enumerate(zip(single, shape, strict=True)) if one != all_]
        if len(grown) != 1 or shape[grown[0]] != single[grown[0]] * self._samples:
            raise NotApart(tensor)
        axis = grown[0]
        self._guessed |= single[axis] != 1
        return axis, len(shape), shape[axis]
