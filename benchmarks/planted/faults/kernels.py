"""Kernels of a chip that compute something else than they should; what reads their results goes on with them."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from benchmarks.planted.case import Dumps, PlantedCase, Truth, truth
from benchmarks.planted.device import Device, Patch, Tensors, few_samples
from benchmarks.planted.faults.registry import fault
from benchmarks.planted.subject import Subject, sqnr, with_weights
from roundoff.core.target import Arithmetic
from roundoff.core.tensors import Array
from roundoff.graph.interface import outputs
from roundoff.graph.load import Model, model_from_proto

EXACT = Arithmetic(accumulator_bits=32)
# A fault on a device must show at an output: at most so many decibels remain.
_MOST_DB = 20.0


def device_case(
    device: Device, name: str, told: Truth | Sequence[Truth], dumps: Sequence[Mapping[str, Array]]
) -> PlantedCase:
    """A case of dumps; the quantized model is the one that the device was to compute."""
    subject = device.subject
    return subject.case(
        name,
        told,
        samples=few_samples(subject),
        labels=None,
        quantized=device.quantized,
        dumps=Dumps(tuple(dumps), with_quantized=device.quantized is not None),
    )


def hurts(
    subject: Subject, dumps: Sequence[Tensors], healthy: Sequence[Tensors], *, most_db: float = _MOST_DB
) -> bool:
    """Whether an output is worse than on a healthy device, and bad."""
    for name in outputs(subject.model):
        exact = subject.values[name][: len(dumps)]
        bad, good = (sqnr(exact, np.concatenate([each[name] for each in side])) for side in (dumps, healthy))
        if bad <= min(good - 6, most_db):
            return True
    return False


def places(subject: Subject, device: Device, rng: np.random.Generator, kinds: Sequence[str] = ()) -> list[str]:
    """Tensors of the device that a layer (or another kind of node) computes, in an order of chance."""
    found = []
    for tensor in device.dumped:
        node = _head(subject, device, tensor)
        if node is not None and (node.op_type in kinds if kinds else node.name in subject.layers):
            found.append(tensor)
    return [found[index] for index in rng.permutation(len(found))]


def _head(subject: Subject, device: Device, tensor: str) -> Any | None:
    """The first node of the unit that computes a tensor."""
    node = subject.producer.get(tensor)
    while node is not None:
        entering = next((name for name in subject.nodes[node].input if name in subject.values), None)
        if entering is None or entering in device.dumped or entering not in subject.producer:
            return subject.nodes[node]
        node = subject.producer[entering]
    return None


Change = Callable[[Subject, Any, np.random.Generator], Model | None]


class WrongKernel(NamedTuple):
    """A tensor, the node that begins to compute it, and the model that is computed instead."""

    tensor: str
    node: Any
    model: Model


def find_wrong_kernel(
    subject: Subject, rng: np.random.Generator, change: Change, kinds: Sequence[str] = ("Conv",)
) -> WrongKernel | None:
    """A layer that another function does harm to."""
    chip = Device(subject, subject.healthy)
    healthy = chip.run(few_samples(subject))
    for tensor in places(subject, chip, rng, kinds):
        node = _head(subject, chip, tensor)
        if node is None or node.name not in subject.prepared.nodes:
            continue
        model = change(subject.prepared, subject.prepared.nodes[node.name], rng)
        if model is None:
            continue
        broken = Device(subject, subject.healthy, kernels={tensor: (model, EXACT)})
        if hurts(subject, broken.run(few_samples(subject)), healthy):
            return WrongKernel(tensor, node, model)
    return None


def _wrong_kernel(
    subject: Subject, rng: np.random.Generator, name: str, change: Change, kinds: Sequence[str] = ("Conv",)
) -> PlantedCase | None:
    """One layer runs another function."""
    found = find_wrong_kernel(subject, rng, change, kinds)
    if found is None:
        return None
    broken = Device(subject, subject.healthy, kernels={found.tensor: (found.model, EXACT)})
    dumps = broken.run(few_samples(subject))
    nodes = frozenset({found.node.name, *subject.unit(found.tensor, subject.healthy)})
    return device_case(broken, name, truth(nodes, "kernel-fault"), dumps)


def moved_taps(subject: Subject, node: Any, rng: np.random.Generator) -> Model | None:
    weight = subject.weights[node.input[1]]
    if weight.ndim < 4 or weight.shape[-1] < 3:
        return None
    return with_weights(subject.model, {node.input[1]: np.roll(weight, int(rng.integers(1, 3)), axis=-1)})


def _moved_padding(subject: Subject, node: Any, rng: np.random.Generator) -> Model | None:
    del rng
    pads = next((each for each in node.attribute if each.name == "pads"), None)
    if pads is None or not any(pads.ints):
        return None
    proto = type(subject.model.proto)()
    proto.CopyFrom(subject.model.proto)
    copy = next(each for each in proto.graph.node if each.name == node.name)
    moved = next(each for each in copy.attribute if each.name == "pads")
    count = len(moved.ints) // 2
    moved.ints[:] = [*(moved.ints[axis] + moved.ints[axis + count] for axis in range(count)), *[0] * count]
    return model_from_proto(proto, path=subject.model.path)


def wrong_channel_weights(subject: Subject, node: Any, rng: np.random.Generator) -> Model | None:
    """Some channels have the weights of their neighbours."""
    changes = {}
    count = subject.weights[node.input[1]].shape[0]
    hit = rng.permutation(count)[: max(1, count // 6)]
    for name in node.input[1:3]:
        changes[name] = np.array(subject.weights[name])
        changes[name][hit] = changes[name][(hit + 1) % count]
    return with_weights(subject.model, changes)


def _double_bias(subject: Subject, node: Any, rng: np.random.Generator) -> Model | None:
    del rng
    if len(node.input) < 3:
        return None
    bias = subject.weights[node.input[2]]
    # Of one channel it is an offset of the whole tensor, which a wrong zero point is as well.
    if bias.size == 1:
        return None
    return with_weights(subject.model, {node.input[2]: bias * 2 + 0.5 * np.sign(bias)})


@fault("kernel-wrong-tap")
def wrong_tap(subject: Subject, rng: np.random.Generator) -> PlantedCase | None:
    """A convolution takes its taps from the wrong columns."""
    return _wrong_kernel(subject, rng, "kernel-wrong-tap", moved_taps)


@fault("kernel-wrong-padding")
def wrong_padding(subject: Subject, rng: np.random.Generator) -> PlantedCase | None:
    """A convolution has all its padding on one side."""
    return _wrong_kernel(subject, rng, "kernel-wrong-padding", _moved_padding)


@fault("kernel-wrong-channels")
def wrong_channels(subject: Subject, rng: np.random.Generator) -> PlantedCase | None:
    """Some channels of a layer are computed with the weights of others."""
    return _wrong_kernel(subject, rng, "kernel-wrong-channels", wrong_channel_weights, ("Conv", "Gemm"))


@fault("fused-bias-twice")
def fused_bias_twice(subject: Subject, rng: np.random.Generator) -> PlantedCase | None:
    """A layer fused with its activation adds its bias twice."""
    return _wrong_kernel(subject, rng, "fused-bias-twice", _double_bias, ("Conv", "Gemm"))


def _patched(
    subject: Subject,
    rng: np.random.Generator,
    name: str,
    make: Callable[[str, Array], Patch | None],
    *,
    causes: Sequence[str],
    kinds: Sequence[str] = (),
) -> PlantedCase | None:
    """What one node hands on is changed."""
    chip = Device(subject, subject.healthy)
    healthy = chip.run(few_samples(subject))
    for tensor in places(subject, chip, rng, kinds):
        patch = make(tensor, subject.values[tensor])
        if patch is None:
            continue
        broken = Device(subject, subject.healthy, patches={tensor: patch})
        dumps = broken.run(few_samples(subject))
        if hurts(subject, dumps, healthy):
            nodes = subject.unit(tensor, subject.healthy)
            return device_case(broken, name, truth(nodes, *causes), dumps)
    return None


@fault("kernel-saturates")
def saturates(subject: Subject, rng: np.random.Generator) -> PlantedCase | None:
    """Sums stop at the end of a register that is too short."""

    def make(_tensor: str, values: Array) -> Patch:
        limit = 0.3 * float(np.abs(values).max())
        return lambda array, _index, _held: np.clip(array, -limit, limit)

    return _patched(subject, rng, "kernel-saturates", make, causes=("kernel-fault", "overflow", "clipping"))


@fault("swapped-channels")
def swapped_channels(subject: Subject, rng: np.random.Generator) -> PlantedCase | None:
    """Channels of one result are in another order, and what reads it goes on with that."""

    def make(_tensor: str, values: Array) -> Patch | None:
        if values.ndim < 3:
            return None
        order = np.roll(np.arange(values.shape[1]), 1)
        return lambda array, _index, _held: array[:, order]

    return _patched(subject, rng, "swapped-channels", make, causes=("layout", "kernel-fault"), kinds=("Conv",))


@fault("stale-tensor")
def stale_tensor(subject: Subject, rng: np.random.Generator) -> PlantedCase | None:
    """A buffer still holds what the sample before left there."""

    def make(_tensor: str, _values: Array) -> Patch:
        before: dict[int, Array] = {}

        def patch(array: Array, index: int, _held: Mapping[str, Array]) -> Array:
            before[index] = array
            return before.get(index - 1, array)

        return patch

    return _patched(subject, rng, "stale-tensor", make, causes=("stale-tensor", "kernel-fault"))


@fault("requantized-wrong")
def requantized_wrong(subject: Subject, rng: np.random.Generator) -> PlantedCase | None:
    """The shift of one requantization is one bit too far: all that follows reads half of the value."""

    def make(_tensor: str, _values: Array) -> Patch:
        return lambda array, _index, _held: array * np.float32(0.5)

    return _patched(subject, rng, "requantized-wrong", make, causes=("wrong-dequantization", "kernel-fault"))


@fault("layout-computed")
def layout_computed(subject: Subject, rng: np.random.Generator) -> PlantedCase | None:
    """One result is written channels first and read channels last, and flows on so."""

    def make(_tensor: str, values: Array) -> Patch | None:
        if values.ndim < 4 or values.shape[1] == values.shape[2]:
            return None
        return lambda array, _index, _held: np.moveaxis(array, 1, -1).reshape(array.shape)

    return _patched(subject, rng, "layout-computed", make, causes=("layout", "kernel-fault"), kinds=("Conv",))
