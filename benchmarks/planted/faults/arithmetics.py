"""Chips whose numbers end too early, or are rounded in another way than they should."""

from dataclasses import replace

import numpy as np

from benchmarks.planted.case import CLEAN, Dumps, PlantedCase, truth
from benchmarks.planted.device import Device, few_samples
from benchmarks.planted.faults.channels import rescaled_pairs
from benchmarks.planted.faults.kernels import device_case, hurts, places
from benchmarks.planted.faults.registry import fault
from benchmarks.planted.subject import Subject, with_weights
from roundoff.core.target import Arithmetic
from roundoff.core.tensors import Array

__all__: list[str] = []


@fault("truncated-at-one-node")
def truncated_at_one_node(subject: Subject, rng: np.random.Generator) -> PlantedCase | None:
    """One requantization cuts off instead of rounding."""
    chip = Device(subject, subject.healthy)
    cut = Arithmetic(accumulator_bits=32, rounding="floor")
    tensors = places(subject, chip, rng)
    if not tensors:
        return None
    tensor = tensors[0]
    model = subject.healthy.float_model
    broken = Device(subject, subject.healthy, kernels={tensor: (model, cut)})
    nodes = subject.unit(tensor, subject.healthy)
    dumps = broken.run(few_samples(subject))
    return device_case(broken, "truncated-at-one-node", truth(nodes, "integer-implementation"), dumps)


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


def _in_half(found: tuple[Subject, frozenset[str]], name: str) -> PlantedCase | None:
    planted, nodes = found
    chip = Device(planted, half=True, flush=True)
    dumps = chip.run(few_samples(planted))
    exact = Device(planted).run(few_samples(planted))
    if not hurts(planted, dumps, exact):
        return None
    return device_case(chip, name, truth(nodes, "fp16-range"), dumps)
