"""Which layers can be converted, and by what; users add their own."""

from collections.abc import Callable

from roundoff.core.table import Table
from roundoff.graph.caffe.conversion import Converter

__all__ = ["NOT_RUN", "converter_of", "converts", "layer_types", "register_layer"]


def _declare_layers() -> None:
    import roundoff.graph.caffe.layers  # noqa: F401 - declares the converters


_CONVERTERS: Table[Converter] = Table("layer type", load=_declare_layers)
_OWN: Table[Converter] = Table("layer type")

NOT_RUN = frozenset({
    "Accuracy", "CenterLoss", "ContrastiveLoss", "DetectionEvaluate", "EuclideanLoss", "HDF5Output", "HingeLoss",
    "IFMR", "InfogainLoss", "MultiBoxLoss", "MultinomialLogisticLoss", "SearchN", "SigmoidCrossEntropyLoss",
    "Silence", "SmoothL1Loss", "SoftmaxWithLoss",
})  # fmt: skip
"""Layers that serve training, scoring or calibration; a deployed net does without them."""


def converts(*types: str) -> Callable[[Converter], Converter]:
    """Declare a function that converts layers of these types."""
    return _CONVERTERS.register(*types)


def register_layer(type_name: str, convert: Converter) -> None:
    """Teach roundoff a layer type of one's own, or replace one it knows.

    Args:
        type_name: The type, as the .prototxt has it.
        convert: Adds the nodes of such a layer through its `LayerJob`; ``job.layer.message`` has all its fields.
    """
    _OWN[type_name] = convert


def converter_of(type_name: str) -> Converter | None:
    """What converts layers of a type; None when nothing does."""
    return _OWN.get(type_name) or _CONVERTERS.get(type_name)


def layer_types() -> tuple[str, ...]:
    """All layer types that can be converted."""
    return tuple(sorted({*_CONVERTERS, *_OWN}))
