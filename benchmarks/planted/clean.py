"""Networks and devices with nothing wrong, which nobody may accuse."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from functools import partial

import numpy as np

from benchmarks.planted.case import CLEAN, Dumps, PlantedCase
from benchmarks.planted.device import Device, Tensors, few_samples, simulator_dump
from benchmarks.planted.subject import Subject, subject
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


def clean_cases(family: str, seed: int) -> Iterator[tuple[str, Callable[[], PlantedCase]]]:
    """Every clean case of a network by the name of what it is, each made when it is called."""
    for number, target in enumerate(_TARGETS):
        yield f"clean-{target}", partial(_quantized, family, seed, target, as_file=(number + seed) % 2 == 1)
    for number, name in enumerate(_DEVICES):
        yield f"clean-dump-{name}", partial(_named, family, seed, name, number)


def _named(family: str, seed: int, name: str, number: int) -> PlantedCase:
    case = _DEVICES[name](subject(family, seed), name)
    return styled(case, np.random.default_rng([case.seed, number]), number)


def _wide(network: Subject) -> Device:
    """Weights of 8 bits, activations of 16."""
    chip = load_target("axera-ax650")
    wide = {"u16": chip.activations["u16"], **chip.activations}
    chip = replace(chip, activations=wide, live_operand=chip.activations["s16"])
    made = quantize_model(network.model, ArraySamples(network.built.samples), QuantizeSettings(chip))
    return Device(network, made.quantized, _LONG_SUMS)


def _quantized(family: str, seed: int, target: str, *, as_file: bool) -> PlantedCase:
    name, network = f"clean-{target}", subject(family, seed)
    if not as_file:
        return network.case(name, CLEAN, target=target)
    return network.case(name, CLEAN, quantized=network.quantization(target))


def _integer(network: Subject) -> Device:
    return Device(network, network.healthy)


def _dumped(device: Device, name: str, *, with_quantized: bool = True) -> PlantedCase:
    known = with_quantized and device.quantized is not None
    dumps = device.run(few_samples(device.subject))
    return _case(device.subject, name, dumps, with_quantized=known, quantized=device.quantized)


def _case(
    network: Subject,
    name: str,
    tensors: list[Tensors],
    *,
    with_quantized: bool = True,
    quantized: QuantizedModel | None = None,
) -> PlantedCase:
    dumps = Dumps(tuple(tensors), with_quantized=with_quantized)
    parts = {"samples": few_samples(network), "labels": None, "dumps": dumps}
    return network.case(f"clean-dump-{name}", CLEAN, quantized=quantized or network.healthy, **parts)


# Boards and simulators that do what they should, by name.
_DEVICES: Mapping[str, Callable[[Subject, str], PlantedCase]] = {
    "float": lambda network, name: _dumped(Device(network), name),
    "half": lambda network, name: _dumped(Device(network, half=True), name),
    "integer": lambda network, name: _dumped(_integer(network), name),
    "integer-alone": lambda network, name: _dumped(_integer(network), name, with_quantized=False),
    "fixed-point": lambda network, name: _dumped(Device(network, network.healthy, _FIXED_POINT), name),
    "simulator": lambda network, name: _case(network, name, simulator_dump(network, network.healthy)),
    "some-tensors": lambda network, name: some_tensors(_dumped(_integer(network), name), network.rng("clean")),
    "channels-last": lambda network, name: channels_last(_dumped(_integer(network), name)),
    "half-channels-last": lambda network, name: channels_last(_dumped(Device(network, half=True), name)),
    "w8a16": lambda network, name: _dumped(_wide(network), name),
    "w8a16-alone": lambda network, name: _dumped(_wide(network), name, with_quantized=False),
    "outputs-only": lambda network, name: only_outputs(_dumped(_integer(network), name)),
    "float-outputs-only": lambda network, name: only_outputs(_dumped(Device(network), name)),
}
