"""What contradicts itself in a configuration, or cannot be, whatever the model is."""

import re
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from roundoff.vendors.pulsar2.config.documents import Place, Problem
from roundoff.vendors.pulsar2.config.enums import NpuMode, TargetHardware
from roundoff.vendors.pulsar2.config.input_shapes import parse_input_shapes
from roundoff.vendors.pulsar2.config.processor_checks import input_processor_problems, output_processor_problems
from roundoff.vendors.pulsar2.config.schema import BuildConfig, CompilerConfig, LayerConfig, QuantConfig

__all__ = ["contradictions"]

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


def contradictions(config: BuildConfig) -> list[Problem]:
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


def _top(config: BuildConfig) -> Iterator[Problem]:
    for why in parse_input_shapes(config.input_shapes)[1]:
        yield Problem(("input_shapes",), why)
    modes = _MODES.get(config.target_hardware)
    if modes is not None and config.npu_mode not in modes:
        offered = ", ".join(mode.name for mode in modes)
        yield Problem(("npu_mode",), f"{config.target_hardware.name} has {offered}, not {config.npu_mode.name}")


def _quant(quant: QuantConfig) -> Iterator[Problem]:
    refine = quant.refine_weight_threshold
    # The vendor keeps it in 32 bits, where 1e-4 is a little less than 0.0001 and so allowed.
    if refine != _DISABLED and not 0 <= float(np.float32(refine)) < _HIGHEST_REFINE:
        yield Problem(("quant", "refine_weight_threshold"), f"must be 0, less than 0.0001, or -1, not {refine:g}")
    for name in ("smooth_quant_threshold", "smooth_quant_strength"):
        value = getattr(quant, name)
        if not 0 <= value <= 1:
            yield Problem(("quant", name), f"must be from 0 to 1, not {value:g}")
    for name, highest in (("transformer_opt_level", _HIGHEST_TRANSFORMER_LEVEL), ("check", _HIGHEST_CHECK)):
        if not 0 <= getattr(quant, name) <= highest:
            yield Problem(("quant", name), f"must be from 0 to {highest}, not {getattr(quant, name)}")
    tuned = [name for name in _TUNING if getattr(quant, name)]
    if len(tuned) > 1:
        yield Problem(("quant", tuned[1]), f"excludes {tuned[0]}: at most one of {', '.join(_TUNING)} can be on")
    for name in _POSITIVE:
        if getattr(quant, name) <= 0:
            yield Problem(("quant", name), f"must be more than 0, not {getattr(quant, name):g}")
    if not _DEVICE.fullmatch(quant.device):
        yield Problem(("quant", "device"), f"must be cpu or cuda:0 to cuda:7, not {quant.device!r:.60}")


def _calibration(quant: QuantConfig) -> Iterator[Problem]:
    for index, each in enumerate(quant.input_configs):
        place: Place = ("quant", "input_configs", index)
        if each.calibration_size < 1 and each.calibration_size != -1:
            what = f"must be at least 1, or -1 for all, not {each.calibration_size}"
            yield Problem((*place, "calibration_size"), what)
        mean, std = each.calibration_mean, each.calibration_std
        if mean and std and len(mean) != len(std):
            what = f"has {len(std)} numbers, calibration_mean has {len(mean)}"
            yield Problem((*place, "calibration_std"), what)
        if 0 in std:
            yield Problem((*place, "calibration_std"), "holds a 0, by which nothing can be divided")


def _layer(layer: LayerConfig, index: int) -> Iterator[Problem]:
    place: Place = ("quant", "layer_configs", index)
    given = [name for name in _SELECTORS if getattr(layer, name)]
    kinds = [name for name in given if name not in _PAIR] + (["start_tensor_names"] if _PAIR & set(given) else [])
    if not kinds:
        what = "selects nothing: give layer_name(s), op_type(s), or start_tensor_names and end_tensor_names"
        yield Problem(place, what)
    elif len(kinds) > 1:
        yield Problem((*place, kinds[1]), f"and {kinds[0]} select in two ways; make two entries of this one")
    missing = _PAIR - set(given)
    if len(missing) == 1:
        yield Problem((*place, *missing), "must be given too: the two ends go together")
    for name in given:
        names = getattr(layer, name)
        if isinstance(names, tuple) and "" in names:
            yield Problem((*place, name), "holds an empty name")


def _constants(config: BuildConfig) -> Iterator[Problem]:
    for index, each in enumerate(config.const_processors):
        if not each.data and not each.data_path:
            yield Problem(("const_processors", index), "has neither data nor data_path")


def _compiler(compiler: CompilerConfig, place: Place, *, inner: bool) -> Iterator[Problem]:
    if compiler.check not in _COMPILER_CHECKS:
        yield Problem((*place, "check"), f"must be from 0 to {_COMPILER_CHECKS[-1]}, not {compiler.check}")
    for name in ("start_tensor_names", "end_tensor_names"):
        if getattr(compiler, name) and not inner:
            yield Problem((*place, name), "belongs into an entry of sub_configs")
    for index, each in enumerate(compiler.sub_configs):
        yield from _compiler(each, (*place, "sub_configs", index), inner=True)


def _twice(entries: Sequence[Any], place: Place, name: Callable[[Any], str]) -> Iterator[Problem]:
    """Entries of the same name: nobody could say which one counts."""
    seen: dict[str, int] = {}
    for index, each in enumerate(entries):
        first = seen.setdefault(name(each), index)
        if first != index and name(each):
            yield Problem((*place, index), f"{name(each)!r} has an entry already, number {first}; join the two")
