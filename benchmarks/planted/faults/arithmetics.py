"""Chips whose numbers end too early, or are rounded in another way than they should."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
from onnx import helper, numpy_helper

from benchmarks.planted.case import CLEAN, Dumps, PlantedCase, truth
from benchmarks.planted.device import Device, few_samples
from benchmarks.planted.faults.channels import rescaled_pairs
from benchmarks.planted.faults.kernels import device_case, hurts, places
from benchmarks.planted.faults.registry import fault
from benchmarks.planted.subject import Subject, with_weights
from roundoff.core.target import Arithmetic
from roundoff.core.tensors import Array
from roundoff.graph.load import model_from_proto

__all__: list[str] = []

# Of values that are cut off instead of rounded a half are other codes; behind a Relu fewer.
_CUT = 0.1
# The square of more is beyond half precision.
_LARGEST_SQUARED = 65504**0.5


@fault("truncated-at-one-node")
def truncated_at_one_node(subject: Subject, rng: np.random.Generator) -> PlantedCase | None:
    """One requantization cuts off instead of rounding."""
    chip = Device(subject, subject.healthy)
    cut = Arithmetic(accumulator_bits=32, rounding="floor")
    model = subject.healthy.float_model
    healthy = chip.run(few_samples(subject))
    for tensor in places(subject, chip, rng):
        broken = Device(subject, subject.healthy, kernels={tensor: (model, cut)})
        dumps = broken.run(few_samples(subject))
        # Where a table follows the sum, as behind a fused activation, nothing is cut off.
        changed = [bad[tensor] != good[tensor] for bad, good in zip(dumps, healthy, strict=True)]
        if np.mean(changed) > _CUT:
            nodes = subject.unit(tensor, subject.healthy)
            return device_case(broken, "truncated-at-one-node", truth(nodes, "integer-implementation"), dumps)
    return None


@fault("truncated-everywhere")
def truncated_everywhere(subject: Subject, rng: np.random.Generator) -> PlantedCase | None:
    """Every requantization cuts off instead of rounding."""
    del rng
    broken = Device(subject, subject.healthy, Arithmetic(accumulator_bits=32, rounding="floor"))
    dumps = broken.run(few_samples(subject))
    return device_case(broken, "truncated-everywhere", truth((), "integer-implementation"), dumps)


@fault("rounds-half-up")
def rounds_half_up(subject: Subject, rng: np.random.Generator) -> PlantedCase | None:
    """Halves are rounded up instead of to even, with a fixed-point multiplier: a step here and there, no fault."""
    del rng
    other = Arithmetic(rounding="half_up", requantization="fixed_point", multiplier_bits=15)
    chip = Device(subject, subject.healthy, other)
    dumps = Dumps(tuple(chip.run(few_samples(subject))))
    parts = {"samples": few_samples(subject), "labels": None, "quantized": subject.healthy, "dumps": dumps}
    return subject.case("rounds-half-up", CLEAN, **parts)


@fault("short-accumulator")
def short_accumulator(subject: Subject, rng: np.random.Generator) -> PlantedCase | None:
    """The sums of one layer wrap around in a register that is too short."""
    chip = Device(subject, subject.healthy)
    healthy = chip.run(few_samples(subject))
    model = subject.healthy.float_model
    for tensor in places(subject, chip, rng):
        for bits in (18, 17, 16, 15):
            broken = Device(
                subject,
                subject.healthy,
                kernels={tensor: (model, Arithmetic(accumulator_bits=bits, overflow="wrap"))},
            )
            dumps = broken.run(few_samples(subject))
            if hurts(subject, dumps, healthy):
                nodes = subject.unit(tensor, subject.healthy)
                return device_case(broken, "short-accumulator", truth(nodes, "overflow", "kernel-fault"), dumps)
    return None


def _blown_up(subject: Subject, rng: np.random.Generator, factor: float) -> tuple[Subject, frozenset[str]] | None:
    """The network with all channels of one result scaled, and what reads them scaled back."""
    pairs = [p for p in rescaled_pairs(subject) if _is_free(subject, p)]
    if not pairs:
        return None
    first, second = (subject.nodes[name] for name in pairs[int(rng.integers(len(pairs)))])
    changes: dict[str, Array] = {name: subject.weights[name] * np.float32(factor) for name in first.input[1:3]}
    changes[second.input[1]] = subject.weights[second.input[1]] / np.float32(factor)
    model = with_weights(subject.model, changes)
    planted = Subject(subject.family, subject.seed, replace(subject.built, model=model))
    nodes, tensor = {first.name}, first.output[0]
    while tensor != second.input[0]:
        nodes.add(tensor)
        after = subject.nodes[subject.readers(tensor)[0]]
        nodes.add(after.name)
        tensor = after.output[0]
    return planted, frozenset(nodes | {tensor})


def _is_free(subject: Subject, pair: tuple[str, str]) -> bool:
    """Whether nothing with a limit of its own stands between two layers."""
    tensor, last = subject.nodes[pair[0]].output[0], subject.nodes[pair[1]].input[0]
    while tensor != last:
        node = subject.nodes[subject.readers(tensor)[0]]
        if node.op_type == "Clip":
            return False
        tensor = node.output[0]
    return True


@fault("fp16-saturated")
def fp16_saturated(subject: Subject, rng: np.random.Generator) -> PlantedCase | None:
    """A result of one node is too large for half precision."""
    found = _blown_up(subject, rng, 40000.0)
    return None if found is None else _in_half(found, "fp16-saturated")


@fault("fp16-flushed")
def fp16_flushed(subject: Subject, rng: np.random.Generator) -> PlantedCase | None:
    """A result of one node is so small that half precision flushes it to zero."""
    found = _blown_up(subject, rng, 2e-5)
    return None if found is None else _in_half(found, "fp16-flushed")


@fault("fp16-inside")
def fp16_inside(subject: Subject, rng: np.random.Generator) -> PlantedCase | None:
    """Squares inside of a normalization are too large for half precision, though what goes in and out is not."""
    norms = [n for n in subject.nodes.values() if n.op_type == "LayerNormalization" and "norm2" in n.name]
    if not norms:
        return None
    norm = norms[int(rng.integers(len(norms)))]
    planted = _raised_before(subject, norm, 300.0)
    node = planted.nodes[norm.name]

    def overflowing(array: Array, _index: int, held: Mapping[str, Array]) -> Array:
        """Rows with a square beyond half precision are divided by an infinite deviation."""
        x = held[node.input[0]]
        beyond = np.abs(x - x.mean(axis=-1, keepdims=True)).max(axis=-1, keepdims=True) > _LARGEST_SQUARED
        return np.where(beyond, planted.weights[node.input[2]], array)

    chip = Device(planted, half=True, patches={node.output[0]: overflowing})
    dumps = chip.run(few_samples(planted))
    if not hurts(planted, dumps, Device(planted).run(few_samples(planted))):
        return None
    return device_case(chip, "fp16-inside", truth((node.name, node.output[0]), "fp16-range"), dumps)


def _raised_before(subject: Subject, norm: Any, factor: float) -> Subject:
    """The network with what one normalization reads multiplied, which changes nothing behind it."""
    proto = type(subject.model.proto)()
    proto.CopyFrom(subject.model.proto)
    at = next(index for index, node in enumerate(proto.graph.node) if node.name == norm.name)
    proto.graph.initializer.append(numpy_helper.from_array(np.float32(factor), "raising"))
    raised = f"{norm.name}/raised_out"
    raising = helper.make_node("Mul", [norm.input[0], "raising"], [raised], name=f"{norm.name}/raised")
    proto.graph.node.insert(at, raising)
    proto.graph.node[at + 1].input[0] = raised
    model = model_from_proto(proto, path=subject.model.path)
    return Subject(subject.family, subject.seed, replace(subject.built, model=model))


def _in_half(found: tuple[Subject, frozenset[str]], name: str) -> PlantedCase | None:
    planted, nodes = found
    chip = Device(planted, half=True, flush=True)
    dumps = chip.run(few_samples(planted))
    exact = Device(planted).run(few_samples(planted))
    if not hurts(planted, dumps, exact):
        return None
    return device_case(chip, name, truth(nodes, "fp16-range"), dumps)
