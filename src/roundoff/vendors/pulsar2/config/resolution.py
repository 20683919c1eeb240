"""Which entry of a configuration counts for which input and output of the model, and what fills the gaps."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Protocol, TypeVar

from roundoff.core.tensors import InputSpec
from roundoff.errors import nearest
from roundoff.vendors.pulsar2.config.decoding import ConfigProblem, Document, Place, refuse
from roundoff.vendors.pulsar2.config.schema import (
    EVERY,
    BuildConfig,
    InputProcessor,
    InputQuantConfig,
    OutputProcessor,
)

__all__ = ["InputSettings", "Settled", "arrange", "settle", "strangers"]


class _Named(Protocol):
    @property
    def tensor_name(self) -> str: ...


_Entry = TypeVar("_Entry", bound=_Named)


@dataclass(frozen=True, slots=True)
class InputSettings:
    """What counts for one input.

    Attributes:
        spec: The input.
        calibration: Its calibration data; None when the configuration names none.
        processor: How it is fed when deployed; mean and std are those of the calibration where none are given.
    """

    spec: InputSpec
    calibration: InputQuantConfig | None
    processor: InputProcessor


@dataclass(frozen=True, slots=True)
class Settled:
    """A configuration brought together with a model.

    Attributes:
        inputs: By name, in the order of the model.
        outputs: By name, in the order of the model.
        notes: Which gaps were filled, a sentence each.
    """

    inputs: Mapping[str, InputSettings]
    outputs: Mapping[str, OutputProcessor]
    notes: tuple[str, ...]


def settle(config: BuildConfig, inputs: Sequence[InputSpec], outputs: Sequence[str]) -> Settled:
    """Find what counts for each input and output: an entry of its own, else ``DEFAULT``, else the defaults.

    Args:
        config: The configuration.
        inputs: The model's inputs.
        outputs: The names of its outputs.

    Raises:
        BadInput: An entry names an input or output that the model does not have; all such are listed.
    """
    refuse(Document("The configuration", {}), strangers(config, inputs, outputs))
    return arrange(config, inputs, outputs)


def strangers(config: BuildConfig, inputs: Sequence[InputSpec], outputs: Sequence[str]) -> list[ConfigProblem]:
    """Entries that name inputs or outputs which the model does not have."""
    names = [spec.name for spec in inputs]
    return [
        *_strangers(config.quant.input_configs, names, ("quant", "input_configs"), "input"),
        *_strangers(config.input_processors, names, ("input_processors",), "input"),
        *_strangers(config.output_processors, outputs, ("output_processors",), "output"),
    ]


def arrange(config: BuildConfig, inputs: Sequence[InputSpec], outputs: Sequence[str]) -> Settled:
    """The same as `settle`, with entries left alone that name nothing."""
    names = [spec.name for spec in inputs]
    calibrations = {name: _entry(config.quant.input_configs, name) for name in names}
    processors = {name: _entry(config.input_processors, name) for name in names}
    results = {name: _entry(config.output_processors, name) for name in outputs}
    settings = {
        spec.name: InputSettings(
            spec,
            calibrations[spec.name],
            _filled(processors[spec.name] or InputProcessor(tensor_name=spec.name), calibrations[spec.name]),
        )
        for spec in inputs
    }
    notes = (
        *_gap("calibration data", calibrations, "none; quantizing needs some"),
        *_gap(
            "input processing", processors, "deployed as the model is: FP32, NCHW, the calibration's mean and std"
        ),
        *_gap("output processing", results, "FP32, axes as they are"),
    )
    return Settled(settings, {name: each or OutputProcessor(name) for name, each in results.items()}, notes)


def _entry(entries: Iterable[_Entry], name: str) -> _Entry | None:
    """The entry of this name, renamed from ``DEFAULT`` where it has none of its own."""
    found = {each.tensor_name: each for each in entries}
    entry = found.get(name) or found.get(EVERY)
    return None if entry is None else replace(entry, tensor_name=name)  # type: ignore[type-var]


def _filled(processor: InputProcessor, calibration: InputQuantConfig | None) -> InputProcessor:
    """Mean and std default to those of the calibration."""
    if calibration is None:
        return processor
    return replace(
        processor,
        mean=processor.mean or calibration.calibration_mean,
        std=processor.std or calibration.calibration_std,
    )


def _strangers(entries: Sequence[_Named], names: Sequence[str], place: Place, what: str) -> list[ConfigProblem]:
    return [
        ConfigProblem((*place, index, "tensor_name"), f"the model has no {what} {name!r}; {nearest(name, names)}")
        for index, name in enumerate(each.tensor_name for each in entries)
        if name not in (*names, EVERY)
    ]


def _gap(what: str, found: Mapping[str, object | None], filled: str) -> list[str]:
    missing = [name for name, entry in found.items() if entry is None]
    if not missing:
        return []
    return [f"no {what} is configured for {', '.join(missing)}; default: {filled}"]
