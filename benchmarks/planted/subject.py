"""A network of one family and seed, with what faults are planted by: its quantizations and what they cost."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache, cached_property
from typing import Any

import numpy as np

from benchmarks.planted.case import PlantedCase, Truth
from benchmarks.planted.families import FAMILIES
from benchmarks.planted.families.kit import Built
from roundoff.core.quantizers import Quantizer
from roundoff.core.tensors import Array
from roundoff.graph.insertion import switch_on
from roundoff.graph.interface import outputs
from roundoff.graph.load import Model, model_from_proto
from roundoff.graph.quantized_model import QuantizedModel
from roundoff.graph.subgraph import tap
from roundoff.graph.units import units
from roundoff.graph.weights import Weights
from roundoff.quantize.pipeline import QuantizeSettings, quantize_model
from roundoff.quantize.targets.files import load_target
from roundoff.run.session import open_session
from roundoff.samples.sample_set import ArraySamples

TARGETS = ("generic-int8", "onnxruntime", "axera-ax650")
"""Chips that networks are quantized for; which one, the seed decides."""


def sqnr(reference: Array, other: Array) -> float:
    """Signal to noise in decibels, both of any shape."""
    error = float(np.square(reference.astype(np.float64) - other).sum())
    return (
        float("inf") if error == 0 else 10 * float(np.log10(np.square(reference.astype(np.float64)).sum() / error))
    )


def replaced(quantized: QuantizedModel, changes: Mapping[str, Quantizer]) -> QuantizedModel:
    """The same with other quantizers, by name."""
    return replace(quantized, quantizers=tuple(changes.get(each.name, each) for each in quantized.quantizers))


def with_weights(model: Model, changes: Mapping[str, Array]) -> Model:
    """The same network with other values of constants."""
    from onnx import numpy_helper

    proto = type(model.proto)()
    proto.CopyFrom(model.proto)
    for tensor in proto.graph.initializer:
        if tensor.name in changes:
            tensor.CopyFrom(numpy_helper.from_array(changes[tensor.name].astype(np.float32), tensor.name))
    for node in proto.graph.node:
        if node.op_type == "Constant" and node.output[0] in changes:
            value = numpy_helper.from_array(changes[node.output[0]].astype(np.float32))
            node.attribute[0].t.CopyFrom(value)
    return model_from_proto(proto, path=model.path)


@dataclass(frozen=True, eq=False)
class Subject:
    """One network.

    Attributes:
        family: Its family.
        seed: Which of it.
        built: The network and its samples.
    """

    family: str
    seed: int
    built: Built

    @property
    def model(self) -> Model:
        return self.built.model

    @cached_property
    def weights(self) -> Weights:
        return Weights(self.model)

    @cached_property
    def nodes(self) -> dict[str, Any]:
        return {node.name: node for node in self.model.proto.graph.node}

    @cached_property
    def producer(self) -> dict[str, str]:
        return {name: node.name for node in self.model.proto.graph.node for name in node.output}

    def readers(self, tensor: str) -> list[str]:
        return [node.name for node in self.model.proto.graph.node if tensor in node.input]

    @cached_property
    def layers(self) -> list[str]:
        """Convolutions, fully connected layers and projections: nodes with a constant weight."""
        kinds = ("Conv", "Gemm", "MatMul")
        return [n.name for n in self.nodes.values() if n.op_type in kinds and n.input[1] in self.weights]

    @cached_property
    def values(self) -> dict[str, Array]:
        """What the float network computes on the user's samples, by tensor, samples along the first axis."""
        return {**self.built.samples, **run(self.model, self.built.samples, computed(self.model))}

    @property
    def target(self) -> str:
        return TARGETS[self.seed % len(TARGETS)]

    def quantization(self, target: str = "", *, narrow: bool = False) -> QuantizedModel:
        """Quantized as a chip's tool would, on good samples or on narrow ones."""
        samples = ArraySamples(self.built.narrow if narrow else self.built.samples)
        chip = load_target(target or self.target)
        return quantize_model(self.model, samples, QuantizeSettings(chip)).quantized

    @cached_property
    def healthy(self) -> QuantizedModel:
        return self.quantization()

    @cached_property
    def prepared(self) -> "Subject":
        """The network as it is before quantizers are put in, e.g. with its batch normalizations folded."""
        return Subject(self.family, self.seed, replace(self.built, model=self.healthy.float_model))

    @cached_property
    def healthy_db(self) -> float:
        return self.loss_db(self.healthy)

    def loss_db(self, quantized: QuantizedModel) -> float:
        """Signal to noise at the output that is worst off."""
        names = outputs(self.model)
        made = run(switch_on(quantized.float_model, quantized.quantizers), self.built.samples, names)
        return min(sqnr(self.values[name], made[name]) for name in names)

    def costs(self, quantized: QuantizedModel, *, least_db: float = 8.0, most_db: float = 17.0) -> bool:
        """Whether a fault is worth a diagnosis: it takes so many decibels, and so few remain."""
        db = self.loss_db(quantized)
        return db <= min(self.healthy_db - least_db, most_db)

    def unit(self, tensor: str, quantized: QuantizedModel) -> frozenset[str]:
        """A tensor and the nodes that compute it in one go."""
        node = self.producer.get(tensor)
        if node is None:
            return frozenset({tensor, *self.readers(tensor)})
        found = units(quantized.float_model, quantized.quantizers)
        members = found.members.get(found.unit_of.get(node, node), (node,))
        return frozenset({tensor, *members})

    def activations(self, quantized: QuantizedModel) -> list[Quantizer]:
        """Quantizers of what nodes compute, without the outputs and what is passed on unchanged."""
        passed = ("Reshape", "Transpose", "Flatten", "MaxPool", "Identity")
        found = [q for q in quantized.quantizers if q.kind == "activation" and not q.output and not q.after]
        inside = [q for q in found if q.tensor in self.producer]
        return [q for q in inside if self.nodes[self.producer[q.tensor]].op_type not in passed]

    def weight_quantizers(self, quantized: QuantizedModel, layers: Iterable[str] | None = None) -> list[Quantizer]:
        wanted = set(self.layers if layers is None else layers)
        return [q for q in quantized.quantizers if q.kind == "weight" and q.consumers[0].node in wanted]

    def case(self, fault: str, truths: Sequence[Truth] | Truth, **parts: Any) -> PlantedCase:
        """A case of this network; what is not said is as in the healthy one."""
        built = {"model": self.model, "samples": self.built.samples, "labels": self.built.labels, **parts}
        told = (truths,) if isinstance(truths, Truth) else tuple(truths)
        return PlantedCase(family=self.family, fault=fault, seed=self.seed, truths=told, **built)

    def rng(self, *words: object) -> np.random.Generator:
        """Chance that depends on the network and on what it is for, and on nothing else."""
        letters = "/".join(map(str, (self.family, self.seed, *words))).encode()
        return np.random.default_rng(list(letters))


@cache
def subject(family: str, seed: int) -> Subject:
    """The network of a family and seed."""
    rng = np.random.default_rng([seed, list(FAMILIES).index(family)])
    return Subject(family, seed, FAMILIES[family](rng))


def computed(model: Model) -> list[str]:
    """What a network computes from its inputs, in order: no constants, and no shapes with what is made of them."""
    graph = model.proto.graph
    known, found = {value.name for value in graph.input}, []
    for node in graph.node:
        if node.op_type != "Shape" and known.intersection(node.input):
            known.update(node.output)
            found += node.output
    return found


def run(model: Model, samples: Mapping[str, Array], names: Sequence[str]) -> dict[str, Array]:
    """Tensors of a model for all samples, along the first axis."""
    session = open_session(model, outputs=tap(model, names), threads=1, optimize=True)
    rows = [session.run(dict(ArraySamples(samples).feed(i))) for i in range(len(next(iter(samples.values()))))]
    return {name: np.concatenate(values) for name, values in zip(names, zip(*rows, strict=True), strict=True)}
