"""Operators of a chip other than layers that do something else than they should, and outputs that do."""

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np

from benchmarks.planted.case import PlantedCase, truth
from benchmarks.planted.device import Device, Patch, few_samples
from benchmarks.planted.faults.kernels import device_case, hurts, places
from benchmarks.planted.faults.registry import fault
from benchmarks.planted.subject import Subject
from roundoff.core.tensors import Array
from roundoff.graph.interface import outputs

__all__: list[str] = []


def _planted(
    subject: Subject, device: Device, tensor: str, name: str, patch: Patch, *, causes: tuple[str, ...]
) -> PlantedCase | None:
    """The device with one tensor changed, when that does harm."""
    broken = Device(subject, device.quantized, half=device.half, patches={tensor: patch})
    dumps = broken.run(few_samples(subject))
    if not hurts(subject, dumps, device.run(few_samples(subject))):
        return None
    nodes = frozenset({subject.producer[tensor], tensor})
    if device.quantized is not None:
        nodes |= subject.unit(tensor, device.quantized)
    return device_case(broken, name, truth(nodes, *causes), dumps)


def _passed_on(
    subject: Subject, device: Device, nodes: Sequence[Any], rng: np.random.Generator, name: str
) -> PlantedCase | None:
    """One of some nodes, by chance, hands on its first input as it is."""
    for index in rng.permutation(len(nodes)):
        first = nodes[index].input[0]
        patch = partial(_held, first)
        found = _planted(subject, device, nodes[index].output[0], name, patch, causes=("kernel-fault",))
        if found is not None:
            return found
    return None


def _held(tensor: str, _array: Array, _index: int, held: Mapping[str, Array]) -> Array:
    return held[tensor]


@fault("operator-add-skips")
def add_skips(subject: Subject, rng: np.random.Generator) -> PlantedCase | None:
    """An Add in float hands on its first input alone."""
    device = Device(subject, half=bool(rng.integers(2)))
    sums = [n for n in subject.nodes.values() if n.op_type == "Add" and not set(n.input) & set(subject.weights)]
    return _passed_on(subject, device, sums, rng, "operator-add-skips")


@fault("operator-mul-skips")
def mul_skips(subject: Subject, rng: np.random.Generator) -> PlantedCase | None:
    """A Mul of two results, as at a gate, hands on its first input alone."""
    device = Device(subject, subject.healthy)
    products = [
        node
        for node in subject.nodes.values()
        if node.op_type == "Mul" and all(x in device.dumped for x in (*node.input, *node.output))
    ]
    return _passed_on(subject, device, products, rng, "operator-mul-skips")


@fault("operator-no-activation")
def no_activation(subject: Subject, rng: np.random.Generator) -> PlantedCase | None:
    """A Relu in float hands on negative values, too."""
    relus = [n for n in subject.nodes.values() if n.op_type == "Relu"]
    return _passed_on(subject, Device(subject), relus, rng, "operator-no-activation")


@fault("operator-output-sign")
def output_sign(subject: Subject, rng: np.random.Generator) -> PlantedCase | None:
    """One output, of several the last, has its sign flipped."""
    device = Device(subject, half=bool(rng.integers(2)))
    causes = ("kernel-fault", "wrong-dequantization")
    return _planted(
        subject, device, outputs(subject.model)[-1], "operator-output-sign", lambda x, _i, _h: -x, causes=causes
    )


@fault("operator-tile-zero")
def tile_zero(subject: Subject, rng: np.random.Generator) -> PlantedCase | None:
    """The last rows of one result were never computed."""
    device = Device(subject, subject.healthy)
    for tensor in places(subject, device, rng):
        values = subject.values[tensor]
        if values.ndim < 3 or values.shape[-2] < 4:
            continue
        first = values.shape[-2] - values.shape[-2] // 3

        def patch(array: Array, _index: int, _held: Mapping[str, Array], first: int = first) -> Array:
            rows = np.arange(array.shape[-2])[:, None]
            return np.where(rows < first, array, np.float32(0))

        found = _planted(subject, device, tensor, "operator-tile-zero", patch, causes=("kernel-fault",))
        if found is not None:
            return found
    return None
