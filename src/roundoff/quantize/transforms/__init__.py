"""Changes of a float model that keep its function and make it easier to quantize."""

from roundoff.quantize.step_report import Participation
from roundoff.quantize.step_table import WorkContext
from roundoff.quantize.transforms import equalize, explicit_bias, smooth
from roundoff.quantize.transforms.registry import Transformed, all_transforms, apply_transform, transform_names

__all__ = [
    "Participation",
    "Transformed",
    "WorkContext",
    "all_transforms",
    "apply_transform",
    "equalize",
    "explicit_bias",
    "smooth",
    "transform_names",
]
