"""Changes of the codes of a quantized model; its float model and its scales stay as they are."""

from roundoff.quantize.corrections import bias_correct, round_weights
from roundoff.quantize.corrections.registry import Corrected, all_corrections, apply_correction, correction_names
from roundoff.quantize.step_report import Participation

__all__ = [
    "Corrected",
    "Participation",
    "all_corrections",
    "apply_correction",
    "bias_correct",
    "correction_names",
    "round_weights",
]
