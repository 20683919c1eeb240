"""The chip that a configuration names, as a target."""

from dataclasses import replace

from roundoff.core.quant_plan import FLOAT
from roundoff.core.target import Target
from roundoff.quantize.targets import load_target
from roundoff.vendors.pulsar2.config.enums import DataType, TargetHardware
from roundoff.vendors.pulsar2.config.schema import BuildConfig

__all__ = ["target_of"]

# The only chip whose numeric rules were measured in public; others are quantized by the same tool.
_MEASURED = "axera-ax650"
# Requests for float weights have no effect there, as users found.
_NO_FLOAT_WEIGHTS = frozenset({TargetHardware.AX620E})


def target_of(config: BuildConfig) -> Target:
    """The target of a configuration, with what the configuration changes of it."""
    target = load_target(_MEASURED)
    if config.target_hardware in _NO_FLOAT_WEIGHTS:
        target = replace(target, only={**target.only, f"weight.{FLOAT}": frozenset()})
    if config.quant.conv_bias_data_type is DataType.FP32:
        target = replace(target, bias="float")
    if config.quant.disable_quant_optimization:
        # Nothing is merged: every result is quantized, also those in front of an activation function.
        target = replace(target, fusions=())
    return target
