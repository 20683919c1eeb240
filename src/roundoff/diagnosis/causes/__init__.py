"""The causes there are; loading this package registers them all."""

from roundoff.diagnosis.causes import (
    accumulated_error,
    bias_shift,
    calibration_coverage,
    clipping,
    corrupted_weights,
    ignored_precision,
    input_processing,
    metric_artefact,
    mixed_range,
    outlier_channel,
    overflow,
    resolution,
)

__all__ = [
    "accumulated_error",
    "bias_shift",
    "calibration_coverage",
    "clipping",
    "corrupted_weights",
    "ignored_precision",
    "input_processing",
    "metric_artefact",
    "mixed_range",
    "outlier_channel",
    "overflow",
    "resolution",
]
