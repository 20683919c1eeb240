"""Which layers can be converted, and by what; users add their own."""

from collections.abc import Callable

from roundoff.graph.caffe.conversion import Converter

__all__ = ["NOT_RUN", "converter_of", "converts", "layer_types", "register_layer"]

_CONVERTERS: dict[str, Converter] = {}
_OWN: dict[str, Converter] = {}

NOT_RUN = frozenset({
    "Accuracy", "CenterLoss", "ContrastiveLoss", "DetectionEvaluate", "EuclideanLoss", "HDF5Output", "HingeLoss",
    "IFMR", "InfogainLoss", "MultiBoxLoss", "MultinomialLogisticLoss", "SearchN", "SigmoidCrossEntropyLoss",
    "Silence", "SmoothL1Loss", "SoftmaxWithLoss",
})  # fmt: skip
"""Layers that serve training, scoring or calibration; a deployed net does without them."""


def converts(*types: str) -> Callable[[Converter], Converter]:
    """Declare a function that converts layers of these types."""

    def declare(convert: Converter) -> Converter:
        for kind in types:
            _CONVERTERS[kind] = convert
        return convert

    return declare


def register_layer(type_name: str, convert: Converter) -> None:
    """Teach roundoff a layer type of one's own, or replace one it knows.

    Args:
        type_name: The type, as the .prototxt has it.
        convert: Adds the nodes of such a layer through its `LayerJob`; ``job.layer.message`` has all its fields.
    """
    _OWN[type_name] = convert


def converter_of(type_name: str) -> Converter | None:
    """What converts layers of a type; None when nothing does."""
    _load()
    return _OWN.get(type_name) or _CONVERTERS.get(type_name)


def layer_types() -> tuple[str, ...]:
    """All layer types that can be converted."""
    _load()
    return tuple(sorted({*_CONVERTERS, *_OWN}))


def _load() -> None:
    import roundoff.graph.caffe.layers  # noqa: F401 - declares the converters
