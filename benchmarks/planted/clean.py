"""Networks and devices with nothing wrong, which nobody may accuse."""

from collections.abc import Callable, Iterator
from functools import partial

from benchmarks.planted.case import CLEAN, Dumps, PlantedCase
from benchmarks.planted.device import Device, Tensors, few_samples, simulator_dump
from benchmarks.planted.subject import Subject
from benchmarks.planted.variants import channels_last, some_tensors
from roundoff.core.target import Arithmetic

__all__ = ["clean_cases"]

_TARGETS = ("generic-int8", "generic-int8-per-tensor", "onnxruntime", "axera-ax650")
_FIXED_POINT = Arithmetic(rounding="half_away", requantization="fixed_point")


def clean_cases(subject: Subject) -> Iterator[Callable[[], PlantedCase]]:
    """Every clean case of a network, each made when it is called."""
    for number, target in enumerate(_TARGETS):
        yield partial(_quantized, subject, target, as_file=(number + subject.seed) % 2 == 1)
    quantized = subject.healthy
    in_float, integer = Device(subject), Device(subject, quantized)
    yield partial(_dumped, in_float, "float")
    yield partial(_dumped, Device(subject, half=True), "half")
    yield partial(_dumped, integer, "integer")
    yield partial(_dumped, integer, "integer-alone", with_quantized=False)
    yield partial(_dumped, Device(subject, quantized, _FIXED_POINT), "fixed-point")
    yield lambda: _case(subject, "simulator", simulator_dump(subject, quantized))
    yield lambda: some_tensors(_dumped(integer, "some-tensors"), subject.rng("clean"))
    yield lambda: channels_last(_dumped(integer, "channels-last"))


def _quantized(subject: Subject, target: str, *, as_file: bool) -> PlantedCase:
    name = f"clean-{target}"
    if not as_file:
        return subject.case(name, CLEAN, target=target)
    return subject.case(name, CLEAN, quantized=subject.quantization(target))


def _dumped(device: Device, name: str, *, with_quantized: bool = True) -> PlantedCase:
    known = with_quantized and device.quantized is not None
    return _case(device.subject, name, device.run(few_samples(device.subject)), with_quantized=known)


def _case(subject: Subject, name: str, tensors: list[Tensors], *, with_quantized: bool = True) -> PlantedCase:
    dumps = Dumps(tuple(tensors), with_quantized=with_quantized)
    parts = {"samples": few_samples(subject), "labels": None, "dumps": dumps}
    return subject.case(f"clean-dump-{name}", CLEAN, quantized=subject.healthy, **parts)
