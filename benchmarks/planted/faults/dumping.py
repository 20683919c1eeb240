"""Devices that compute what they should and were read, or fed, wrongly."""

from collections.abc import Callable, Mapping, Sequence

import numpy as np

from benchmarks.planted.case import PlantedCase, truth
from benchmarks.planted.device import Device, few_samples
from benchmarks.planted.faults.kernels import device_case, hurts, places
from benchmarks.planted.faults.registry import fault
from benchmarks.planted.subject import Subject
from roundoff.core.tensors import Array

__all__: list[str] = []

Edit = Callable[[Array], Array]


def _misread(
    subject: Subject, rng: np.random.Generator, name: str, edit: Edit, *, causes: Sequence[str], rank: int = 2
) -> PlantedCase | None:
    """One tensor is wrong in the dump alone; the device went on with the right one."""
    chip = Device(subject, subject.healthy)
    healthy = chip.run(few_samples(subject))
    choices = [t for t in places(subject, chip, rng) if subject.values[t].ndim >= rank and subject.readers(t)]
    # Another layout of one pixel is the same layout.
    choices = [t for t in choices if not np.array_equal(edit(healthy[0][t]), healthy[0][t])]
    if not choices:
        return None
    chosen = choices[0]
    dumps = [
        {key: edit(array) if key == chosen else array for key, array in tensors.items()} for tensors in healthy
    ]
    nodes = subject.unit(chosen, subject.healthy)
    return device_case(chip, name, truth(nodes, *causes), dumps)


@fault("wrong-gain-in-dump")
def wrong_gain(subject: Subject, rng: np.random.Generator) -> PlantedCase | None:
    """One tensor was dequantized with the scale of another."""
    gain = np.float32(rng.choice([0.5, 2.0, 1.3, 0.78]))
    return _misread(subject, rng, "wrong-gain-in-dump", lambda x: x * gain, causes=("wrong-dequantization",))


@fault("wrong-offset-in-dump")
def wrong_offset(subject: Subject, rng: np.random.Generator) -> PlantedCase | None:
    """One tensor was dequantized with the zero point of another."""
    offset = np.float32(rng.choice([-0.8, 0.6, 1.2]))
    return _misread(subject, rng, "wrong-offset-in-dump", lambda x: x + offset, causes=("wrong-dequantization",))


@fault("layout-in-dump")
def layout_in_dump(subject: Subject, rng: np.random.Generator) -> PlantedCase | None:
    """One tensor lies channels last in the dump and is declared channels first."""
    return _misread(
        subject,
        rng,
        "layout-in-dump",
        lambda x: np.ascontiguousarray(np.moveaxis(x, 1, -1)).reshape(x.shape),
        causes=("layout",),
        rank=4,
    )


def _swapped(image: Array) -> Array:
    return image[:, ::-1]


def _shifted(image: Array) -> Array:
    return image * np.float32(0.5) + np.float32(0.4)


def _twice(image: Array) -> Array:
    """Normalized twice, with a mean and deviation for each channel."""
    mean = np.array([0.485, 0.456, 0.406], np.float32).reshape(1, 3, 1, 1)
    deviation = np.array([0.229, 0.224, 0.225], np.float32).reshape(1, 3, 1, 1)
    return (image - mean) / deviation


@fault("preprocessing-unseen")
def preprocessing_unseen(subject: Subject, rng: np.random.Generator) -> PlantedCase | None:
    """Red and blue are exchanged on the device, and its input was not dumped."""
    chip = Device(subject, subject.healthy)
    samples = few_samples(subject)
    wrong = {key: _swapped(array) if key == "image" else array for key, array in samples.items()}
    dumps = [{key: x for key, x in tensors.items() if key != "image"} for tensors in chip.run(wrong)]
    del rng
    if not hurts(subject, dumps, chip.run(samples)):
        return None
    first = subject.readers("image")
    nodes = {"image", *first, *(name for node in first for name in _after(subject, node))}
    return device_case(chip, "preprocessing-unseen", truth(frozenset(nodes), "preprocessing"), dumps)


def _after(subject: Subject, node: str) -> list[str]:
    """What a node computes, and the node and tensor behind that."""
    tensor = subject.nodes[node].output[0]
    readers = subject.readers(tensor)
    return [tensor, *readers, *(subject.nodes[reader].output[0] for reader in readers)]


@fault("samples-in-another-order")
def samples_in_another_order(subject: Subject, rng: np.random.Generator) -> PlantedCase | None:
    """The device was fed the same samples in another order."""
    del rng
    chip = Device(subject, subject.healthy)
    samples = few_samples(subject)
    dumps = chip.run({key: np.roll(array, 1, axis=0) for key, array in samples.items()})
    nodes = frozenset({*samples, *(reader for name in samples for reader in subject.readers(name))})
    told = truth(nodes, "preprocessing", "stale-tensor")
    return device_case(chip, "samples-in-another-order", told, dumps)


_MISTAKES: Mapping[str, Edit] = {"colours": _swapped, "scale": _shifted, "twice": _twice}


@fault("preprocessing-on-device")
def preprocessing(subject: Subject, rng: np.random.Generator) -> PlantedCase | None:
    """The device is fed pictures that were prepared in another way than the samples."""
    chip = Device(subject, subject.healthy)
    samples = few_samples(subject)
    healthy = chip.run(samples)
    for name in rng.permutation(list(_MISTAKES)):
        wrong = {key: _MISTAKES[name](array) if key == "image" else array for key, array in samples.items()}
        dumps = chip.run(wrong)
        if hurts(subject, dumps, healthy):
            nodes = frozenset({"image", *subject.readers("image")})
            return device_case(chip, "preprocessing-on-device", truth(nodes, "preprocessing"), dumps)
    return None
