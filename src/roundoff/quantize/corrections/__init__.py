"""Changes of the codes of a quantized model; its float model and its scales stay as they are."""

from roundoff.quantize.corrections import bias_correct, round_weights
from roundoff.quantize.step_report import Participation
from roundoff.quantize.steps import Corrected, all_corrections, apply_correction, correction_names

__all__ = [
    "Corrected",
    "Participation",
    "all_corrections",
    "apply_correction",
    "bias_correct",
    "correction_names",
    "round_weights",
]
