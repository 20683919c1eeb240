"""What can be wrong with a device; loading this package registers all of it."""

from roundoff.diagnosis.devices.causes import (
    fp16_range,
    integer_implementation,
    kernel_fault,
    layout,
    not_finite,
    overflow,
    preprocessing,
    stale_tensor,
    wrong_dequantization,
    wrong_dump,
)

__all__ = [
    "fp16_range",
    "integer_implementation",
    "kernel_fault",
    "layout",
    "not_finite",
    "overflow",
    "preprocessing",
    "stale_tensor",
    "wrong_dequantization",
    "wrong_dump",
]
