"""Networks and devices with nothing wrong, which nobody may accuse."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from functools import partial

import numpy as np

from benchmarks.planted.case import CLEAN, Dumps, PlantedCase
from benchmarks.planted.device import Device, Tensors, few_samples, simulator_dump
from benchmarks.planted.subject import Subject
from benchmarks.planted.variants import channels_last, only_outputs, some_tensors, styled
from roundoff.core.target import Arithmetic
from roundoff.graph.quantized_model import QuantizedModel
from roundoff.quantize.pipeline import QuantizeSettings, quantize_model
from roundoff.quantize.targets.files import load_target
from roundoff.samples.sample_set import ArraySamples

_TARGETS = ("generic-int8", "generic-int8-per-tensor", "onnxruntime", "axera-ax650")
_FIXED_POINT = Arithmetic(rounding="half_away", requantization="fixed_point")
# Sums of products of 16 bits do not fit 32; chips that have such products have wider sums.
_LONG_SUMS = Arithmetic(accumulator_bits=64)


def clean_cases(subject: Subject) -> Iterator[tuple[str, Callable[[], PlantedCase]]]:
    """Every clean case of a network by the name of what it is, each made when it is called."""
    for number, target in enumerate(_TARGETS):
        yield f"clean-{target}", partial(_quantized, subject, target, as_file=(number + subject.seed) % 2 == 1)
    for number, (name, make) in enumerate(_devices(subject).items()):
        yield f"clean-dump-{name}", partial(_named, make, name, number)


def _named(make: Callable[[str], PlantedCase], name: str, number: int) -> PlantedCase:
    case = make(name)
    return styled(case, np.random.default_rng([case.seed, number]), number)


def _devices(subject: Subject) -> Mapping[str, Callable[[str], PlantedCase]]:
    """Boards and simulators that do what they should, by name."""
    quantized, wide = subject.healthy, _wide(subject)
    in_float, in_half, integer = Device(subject), Device(subject, half=True), Device(subject, quantized)
    return {
        "float": partial(_dumped, in_float),
        "half": partial(_dumped, in_half),
        "integer": partial(_dumped, integer),
        "integer-alone": partial(_dumped, integer, with_quantized=False),
        "fixed-point": partial(_dumped, Device(subject, quantized, _FIXED_POINT)),
        "simulator": lambda name: _case(subject, name, simulator_dump(subject, quantized)),
        "some-tensors": lambda name: some_tensors(_dumped(integer, name), subject.rng("clean")),
        "channels-last": lambda name: channels_last(_dumped(integer, name)),
        "half-channels-last": lambda name: channels_last(_dumped(in_half, name)),
        "w8a16": partial(_dumped, Device(subject, wide, _LONG_SUMS)),
        "w8a16-alone": partial(_dumped, Device(subject, wide, _LONG_SUMS), with_quantized=False),
        "outputs-only": lambda name: only_outputs(_dumped(integer, name)),
        "float-outputs-only": lambda name: only_outputs(_dumped(in_float, name)),
    }


def _wide(subject: Subject) -> QuantizedModel:
    """Weights of 8 bits, activations of 16."""
    chip = load_target("axera-ax650")
    wide = {"u16": chip.activations["u16"], **chip.activations}
    chip = replace(chip, activations=wide, live_operand=chip.activations["s16"])
    return quantize_model(subject.model, ArraySamples(subject.built.samples), QuantizeSettings(chip)).quantized


def _quantized(subject: Subject, target: str, *, as_file: bool) -> PlantedCase:
    name = f"clean-{target}"
    if not as_file:
        return subject.case(name, CLEAN, target=target)
    return subject.case(name, CLEAN, quantized=subject.quantization(target))


def _dumped(device: Device, name: str, *, with_quantized: bool = True) -> PlantedCase:
    known = with_quantized and device.quantized is not None
    dumps = device.run(few_samples(device.subject))
    return _case(device.subject, name, dumps, with_quantized=known, quantized=device.quantized)


def _case(
    subject: Subject,
    name: str,
    tensors: list[Tensors],
    *,
    with_quantized: bool = True,
    quantized: QuantizedModel | None = None,
) -> PlantedCase:
    dumps = Dumps(tuple(tensors), with_quantized=with_quantized)
    parts = {"samples": few_samples(subject), "labels": None, "dumps": dumps}
    return subject.case(f"clean-dump-{name}", CLEAN, quantized=quantized or subject.healthy, **parts)
