"""Changes of a float model that keep its function and make it easier to quantize."""

from roundoff.quantize.step_report import Participation
from roundoff.quantize.steps import StepContext, Transformed, all_transforms, apply_transform, transform_names
from roundoff.quantize.transforms import clamp_mask, equalize, layer_forms, smooth

__all__ = [
    "Participation",
    "StepContext",
    "Transformed",
    "all_transforms",
    "apply_transform",
    "clamp_mask",
    "equalize",
    "layer_forms",
    "smooth",
    "transform_names",
]
