"""What contradicts itself in a configuration, or cannot be, whatever the model is."""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol, TypeVar

import numpy as np

from roundoff.core.tensors import InputSpec
from roundoff.errors import BadInput, nearest
from roundoff.messages.message import english
from roundoff.preprocessing.colours import Csc
from roundoff.vendors.pulsar2.config.document import (
    ConfigProblem,
    Document,
    Place,
    parse_input_shapes,
    refuse,
    spelled,
    to_document,
)
from roundoff.vendors.pulsar2.config.schema import (
    EVERY,
    BuildConfig,
    ColorSpace,
    CompilerConfig,
    CscMode,
    InputProcessor,
    InputQuantConfig,
    LayerConfig,
    NpuMode,
    OutputProcessor,
    QuantConfig,
    TargetHardware,
    message_fields,
)

# What contradicts itself in the processing of inputs and outputs, whatever the model is.

YUV = (ColorSpace.YUV420SP, ColorSpace.YVU420SP, ColorSpace.YUYV422, ColorSpace.UYVY422)
"""What has to be converted into the model's colours."""

_MATRIX = 12


def input_processor_problems(processors: Sequence[InputProcessor]) -> Iterator[ConfigProblem]:
    """Everything that is wrong with the processing of inputs."""
    for index, each in enumerate(processors):
        place: Place = ("input_processors", index)
        yield from _colors(each, place)
        yield from _normalization(each, place)
        yield from _edges(each, place)
    groups = {len(each.src_extra_shapes) for each in processors}
    if len(groups) > 1:
        what = english(
            "must have equally many entries for every input, not {names}",
            names=" and ".join(map(str, sorted(groups))),
        )
        yield ConfigProblem(("input_processors", "src_extra_shapes"), what)


def output_processor_problems(processors: Sequence[OutputProcessor]) -> Iterator[ConfigProblem]:
    """Everything that is wrong with the processing of outputs."""
    for index, each in enumerate(processors):
        perm = each.dst_perm
        if sorted(perm) != list(range(len(perm))):
            what = english("{axes} is no order of {count} axes", axes=list(perm), count=len(perm))
            yield ConfigProblem(("output_processors", index, "dst_perm"), what)


def _colors(processor: InputProcessor, place: Place) -> Iterator[ConfigProblem]:
    matrix = processor.csc_mat
    if processor.src_format in YUV and processor.csc_mode is CscMode.NoCSC:
        what = english(
            "cannot be NoCSC for {name}: choose FullRange, LimitedRange or Matrix", name=processor.src_format.name
        )
        yield ConfigProblem((*place, "csc_mode"), what)
    if processor.src_format in YUV and processor.tensor_format is ColorSpace.GRAY:
        what = english("{name} has three colours, a gray model takes one", name=processor.src_format.name)
        yield ConfigProblem((*place, "src_format"), what)
    if processor.csc_mode is CscMode.Matrix:
        try:
            Csc("matrix", matrix)
        except BadInput as error:
            yield ConfigProblem(
                (*place, "csc_mat"), english("{what}; {fix}", what=error.what.rstrip("."), fix=error.fix)
            )
    elif matrix and len(matrix) != _MATRIX:
        yield ConfigProblem(
            (*place, "csc_mat"), english("must have 12 numbers (3 rows of 4), not {count}", count=len(matrix))
        )


def _normalization(processor: InputProcessor, place: Place) -> Iterator[ConfigProblem]:
    if processor.mean and processor.std and len(processor.mean) != len(processor.std):
        what = english(
            "has {count} numbers, mean has {count2}", count=len(processor.std), count2=len(processor.mean)
        )
        yield ConfigProblem((*place, "std"), what)
    if 0 in processor.std:
        yield ConfigProblem((*place, "std"), english("holds a 0, by which nothing can be divided"))
    if processor.scale < 0:
        yield ConfigProblem(
            (*place, "scale"), english("must not be negative, is {scale:g}", scale=processor.scale)
        )


def _edges(processor: InputProcessor, place: Place) -> Iterator[ConfigProblem]:
    for name in ("padding", "slicing"):
        values = getattr(processor, name)
        if len(values) % 2:
            what = english("has {count} numbers; it takes a start and an end for every axis", count=len(values))
            yield ConfigProblem((*place, name), what)
        if any(value < 0 for value in values):
            yield ConfigProblem(
                (*place, name), english("must not hold negative numbers: {numbers}", numbers=list(values))
            )
    if processor.padding_mode not in ("", "constant"):
        what = english("can be constant only, not {padding_mode!r:.60}", padding_mode=processor.padding_mode)
        yield ConfigProblem((*place, "padding_mode"), what)


_SELECTORS = ("layer_name", "layer_names", "op_type", "op_types", "start_tensor_names", "end_tensor_names")
_PAIR = frozenset(("start_tensor_names", "end_tensor_names"))
_TUNING = ("enable_brecq", "enable_lsq", "enable_adaround")
_POSITIVE = ("finetune_epochs", "finetune_block_size", "finetune_batch_size", "finetune_lr")
_HIGHEST_REFINE = 1e-4
_DISABLED = -1.0
_DEVICE = re.compile(r"cpu|cuda(?::[0-7])?")
_HIGHEST_TRANSFORMER_LEVEL, _HIGHEST_CHECK = 2, 1
_COMPILER_CHECKS = range(4)
# What the manual says; of other chips it says nothing.
_MODES = {
    TargetHardware.AX650: (NpuMode.NPU1, NpuMode.NPU2, NpuMode.NPU3),
    TargetHardware.AX620E: (NpuMode.NPU1, NpuMode.NPU2),
    TargetHardware.AX615: (NpuMode.NPU1, NpuMode.NPU2),
    TargetHardware.AX8860: (NpuMode.NPU1, NpuMode.NPU2, NpuMode.NPU4),
}


def contradictions(config: BuildConfig) -> list[ConfigProblem]:
    """Everything that is wrong with a configuration without looking at the model."""
    return [
        *_top(config),
        *_quant(config.quant),
        *_twice(config.quant.input_configs, ("quant", "input_configs"), lambda each: each.tensor_name),
        *_calibration(config.quant),
        *(p for index, each in enumerate(config.quant.layer_configs) for p in _layer(each, index)),
        *_twice(config.input_processors, ("input_processors",), lambda each: each.tensor_name),
        *input_processor_problems(config.input_processors),
        *_twice(config.output_processors, ("output_processors",), lambda each: each.tensor_name),
        *output_processor_problems(config.output_processors),
        *_twice(config.const_processors, ("const_processors",), lambda each: each.name),
        *_constants(config),
        *_twice(config.op_processors, ("op_processors",), lambda each: each.op_name),
        *_twice(config.quant_op_processors, ("quant_op_processors",), lambda each: each.op_name),
        *_compiler(config.compiler, ("compiler",), inner=False),
    ]


def _top(config: BuildConfig) -> Iterator[ConfigProblem]:
    for why in parse_input_shapes(config.input_shapes)[1]:
        yield ConfigProblem(("input_shapes",), why)
    modes = _MODES.get(config.target_hardware)
    if modes is not None and config.npu_mode not in modes:
        offered = ", ".join(mode.name for mode in modes)
        yield ConfigProblem(
            ("npu_mode",),
            english(
                "{chip} has {offered}, not {mode}",
                chip=config.target_hardware.name,
                offered=offered,
                mode=config.npu_mode.name,
            ),
        )


def _quant(quant: QuantConfig) -> Iterator[ConfigProblem]:
    refine = quant.refine_weight_threshold
    # The vendor keeps it in 32 bits, where 1e-4 is a little less than 0.0001 and so allowed.
    if refine != _DISABLED and not 0 <= float(np.float32(refine)) < _HIGHEST_REFINE:
        yield ConfigProblem(
            ("quant", "refine_weight_threshold"),
            english("must be 0, less than 0.0001, or -1, not {refine:g}", refine=refine),
        )
    for name in ("smooth_quant_threshold", "smooth_quant_strength"):
        value = getattr(quant, name)
        if not 0 <= value <= 1:
            yield ConfigProblem(("quant", name), english("must be from 0 to 1, not {value:g}", value=value))
    for name, highest in (("transformer_opt_level", _HIGHEST_TRANSFORMER_LEVEL), ("check", _HIGHEST_CHECK)):
        if not 0 <= getattr(quant, name) <= highest:
            yield ConfigProblem(
                ("quant", name),
                english("must be from 0 to {highest}, not {value}", highest=highest, value=getattr(quant, name)),
            )
    tuned = [name for name in _TUNING if getattr(quant, name)]
    if len(tuned) > 1:
        yield ConfigProblem(
            ("quant", tuned[1]),
            english(
                "excludes {other}: at most one of {names} can be on", other=tuned[0], names=", ".join(_TUNING)
            ),
        )
    for name in _POSITIVE:
        if getattr(quant, name) <= 0:
            yield ConfigProblem(
                ("quant", name), english("must be more than 0, not {value:g}", value=getattr(quant, name))
            )
    if not _DEVICE.fullmatch(quant.device):
        yield ConfigProblem(
            ("quant", "device"),
            english("must be cpu or cuda:0 to cuda:7, not {device!r:.60}", device=quant.device),
        )


def _calibration(quant: QuantConfig) -> Iterator[ConfigProblem]:
    for index, each in enumerate(quant.input_configs):
        place: Place = ("quant", "input_configs", index)
        if each.calibration_size < 1 and each.calibration_size != -1:
            what = english(
                "must be at least 1, or -1 for all, not {calibration_size}", calibration_size=each.calibration_size
            )
            yield ConfigProblem((*place, "calibration_size"), what)
        mean, std = each.calibration_mean, each.calibration_std
        if mean and std and len(mean) != len(std):
            what = english("has {count} numbers, calibration_mean has {count2}", count=len(std), count2=len(mean))
            yield ConfigProblem((*place, "calibration_std"), what)
        if 0 in std:
            yield ConfigProblem((*place, "calibration_std"), english("holds a 0, by which nothing can be divided"))


def _layer(layer: LayerConfig, index: int) -> Iterator[ConfigProblem]:
    place: Place = ("quant", "layer_configs", index)
    given = [name for name in _SELECTORS if getattr(layer, name)]
    kinds = [name for name in given if name not in _PAIR] + (["start_tensor_names"] if _PAIR & set(given) else [])
    if not kinds:
        what = english(
            "selects nothing: give layer_name(s), op_type(s), or start_tensor_names and end_tensor_names"
        )
        yield ConfigProblem(place, what)
    elif len(kinds) > 1:
        yield ConfigProblem(
            (*place, kinds[1]),
            english("and {other} select in two ways; make two entries of this one", other=kinds[0]),
        )
    missing = _PAIR - set(given)
    if len(missing) == 1:
        yield ConfigProblem((*place, *missing), english("must be given too: the two ends go together"))
    for name in given:
        names = getattr(layer, name)
        if isinstance(names, tuple) and "" in names:
            yield ConfigProblem((*place, name), english("holds an empty name"))


def _constants(config: BuildConfig) -> Iterator[ConfigProblem]:
    for index, each in enumerate(config.const_processors):
        if not each.data and not each.data_path:
            yield ConfigProblem(("const_processors", index), english("has neither data nor data_path"))


def _compiler(compiler: CompilerConfig, place: Place, *, inner: bool) -> Iterator[ConfigProblem]:
    if compiler.check not in _COMPILER_CHECKS:
        yield ConfigProblem(
            (*place, "check"),
            english("must be from 0 to {most}, not {check}", most=_COMPILER_CHECKS[-1], check=compiler.check),
        )
    for name in ("start_tensor_names", "end_tensor_names"):
        if getattr(compiler, name) and not inner:
            yield ConfigProblem((*place, name), english("belongs into an entry of sub_configs"))
    for index, each in enumerate(compiler.sub_configs):
        yield from _compiler(each, (*place, "sub_configs", index), inner=True)


def _twice(entries: Sequence[Any], place: Place, name: Callable[[Any], str]) -> Iterator[ConfigProblem]:
    """Entries of the same name: nobody could say which one counts."""
    seen: dict[str, int] = {}
    for index, each in enumerate(entries):
        first = seen.setdefault(name(each), index)
        if first != index and name(each):
            yield ConfigProblem(
                (*place, index),
                english(
                    "{name!r} has an entry already, number {first}; join the two", name=name(each), first=first
                ),
            )


# What a configuration asks for that has no meaning here, or cannot be done; said, never passed over.

_COMPILER = english("concerns the compiler of the chip, which is not part of roundoff")
_TRAINING = english("this fine-tuning is not offered; enable_adaround is")

_WHY: dict[str, str] = {
    "npu_mode": english("concerns the compiler of the chip; quantization does not depend on it"),
    "output_name": english("no compiled model is written; quant/quant_axmodel.onnx is the result"),
    "work_dir": english("intermediate files are kept in output_dir"),
    "onnx_opt.enable_onnxsim": english(
        "the model is prepared by roundoff's own steps, and no simplifier is called"
    ),
    "onnx_opt.disable_transformation_check": english("every transformation of the model is checked"),
    "onnx_opt.save_tensors_data": english("memory is bounded anyway: tensors are read one at a time"),
    "quant.refine_weight_threshold": english("what it does is not published, so weights are not refined"),
    "quant.disable_auto_refine_scale": english(
        "scales are never adjusted afterwards, so there is nothing to turn off"
    ),
    "quant.transformer_opt_level": english("rewrites of transformers for the chip are not published and not done"),
    "quant.ln_scale_data_type": english("scales of LayerNormalization stay in float"),
    "quant.enable_easy_quant": english(
        "the search of scales by EasyQuant is not offered; try calibration_method MSE"
    ),
    "quant.enable_brecq": _TRAINING,
    "quant.enable_lsq": _TRAINING,
    "quant.finetune_epochs": english("rounding is solved for, not trained, so it has no epochs"),
    "quant.finetune_block_size": english("rounding is solved for layer by layer"),
    "quant.finetune_batch_size": english("rounding is solved for over all calibration data at once"),
    "quant.finetune_lr": english("rounding is solved for, not trained, so it has no learning rate"),
    "quant.device": english("everything runs on the CPU"),
}
_HARDWARE = english("the numeric rules here are those of AX650, the only ones that were ever measured in public")


@dataclass(frozen=True, slots=True)
class NotApplicable:
    """One setting that changes nothing here.

    Attributes:
        field: Its name, with dots and numbers.
        value: What was asked for.
        why: Why it changes nothing.
    """

    field: str
    value: object
    why: str


def not_applicable(config: BuildConfig) -> tuple[NotApplicable, ...]:
    """Every setting that differs from its default and changes nothing here, in the order of the format."""
    return tuple(_all(config))


def _all(config: BuildConfig) -> Iterator[NotApplicable]:
    if config.target_hardware is not TargetHardware.AX650:
        yield NotApplicable("target_hardware", config.target_hardware.name, _HARDWARE)
    for place, value in _given(config, ()):
        why = _WHY.get(spelled(place))
        if why is not None:
            yield NotApplicable(spelled(place), value, why)
    for index, processor in enumerate(config.input_processors):
        if processor.src_extra_shapes:
            shapes = [list(each.shape) for each in processor.src_extra_shapes]
            yield NotApplicable(f"input_processors[{index}].src_extra_shapes", shapes, _COMPILER)
        if processor.src_format is ColorSpace.RAW:
            why = english("demosaicing of raw sensor data is not done; the input is taken as it comes")
            yield NotApplicable(f"input_processors[{index}].src_format", "RAW", why)
    for index, each in enumerate(config.quant_op_processors):
        why = english("operators of the chip's own quantized graph are not part of roundoff; use op_processors")
        yield NotApplicable(f"quant_op_processors[{index}]", f"{each.op_name}: {each.attrs}", why)
    for place, value in _given(config.compiler, ("compiler",)):
        yield NotApplicable(spelled(place), value, _COMPILER)


def _given(message: object, place: Place) -> Iterator[tuple[Place, object]]:
    """The settings of a message, and of messages in it, that are not at their defaults; lists as a whole."""
    written = to_document(message)
    for name, field in message_fields(type(message)).items():
        if name not in written:
            continue
        if field.is_message and not field.repeated:
            if place or name != "compiler":
                yield from _given(getattr(message, name), (*place, name))
        else:
            yield (*place, name), written[name]


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
class ResolvedConfig:
    """A configuration brought together with a model.

    Attributes:
        inputs: By name, in the order of the model.
        outputs: By name, in the order of the model.
        notes: Which gaps were filled, a sentence each.
    """

    inputs: Mapping[str, InputSettings]
    outputs: Mapping[str, OutputProcessor]
    notes: tuple[str, ...]


def resolve_config(config: BuildConfig, inputs: Sequence[InputSpec], outputs: Sequence[str]) -> ResolvedConfig:
    """Find what counts for each input and output: an entry of its own, else ``DEFAULT``, else the defaults.

    Args:
        config: The configuration.
        inputs: The model's inputs.
        outputs: The names of its outputs.

    Raises:
        BadInput: An entry names an input or output that the model does not have; all such are listed.
    """
    refuse(Document(english("The configuration"), {}), unknown_entries(config, inputs, outputs))
    return arrange(config, inputs, outputs)


def unknown_entries(
    config: BuildConfig, inputs: Sequence[InputSpec], outputs: Sequence[str]
) -> list[ConfigProblem]:
    """Entries that name inputs or outputs which the model does not have."""
    names = [spec.name for spec in inputs]
    return [
        *_strangers(config.quant.input_configs, names, ("quant", "input_configs"), english("input")),
        *_strangers(config.input_processors, names, ("input_processors",), english("input")),
        *_strangers(config.output_processors, outputs, ("output_processors",), english("output")),
    ]


def arrange(config: BuildConfig, inputs: Sequence[InputSpec], outputs: Sequence[str]) -> ResolvedConfig:
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
        *_gap(english("calibration data"), calibrations, english("none; quantizing needs some")),
        *_gap(
            english("input processing"),
            processors,
            english("deployed as the model is: FP32, NCHW, the calibration's mean and std"),
        ),
        *_gap(english("output processing"), results, english("FP32, axes as they are")),
    )
    return ResolvedConfig(settings, {name: each or OutputProcessor(name) for name, each in results.items()}, notes)


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
        ConfigProblem(
            (*place, index, "tensor_name"),
            english(
                "the model has no {what} {name!r}; {nearest}", what=what, name=name, nearest=nearest(name, names)
            ),
        )
        for index, name in enumerate(each.tensor_name for each in entries)
        if name not in (*names, EVERY)
    ]


def _gap(what: str, found: Mapping[str, object | None], filled: str) -> list[str]:
    missing = [name for name, entry in found.items() if entry is None]
    if not missing:
        return []
    return [
        english(
            "no {what} is configured for {names}; default: {filled}",
            what=what,
            names=", ".join(missing),
            filled=filled,
        )
    ]
