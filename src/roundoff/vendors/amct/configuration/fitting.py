"""What a layer can have of what was asked for: AMCT's rules of which types take which widths."""

from dataclasses import replace

from roundoff.vendors.amct.configuration.settings import DEFAULT_BITS, LayerSettings
from roundoff.vendors.amct.layers import Layer
from roundoff.vendors.errors import WrongValue

__all__ = ["fitted"]

_WIDE_ACTIVATIONS = ("Conv", "ConvTranspose", "Gemm", "MatMul")
_WINOGRAD_BITS = (6, 7)
_NARROW_BITS = 4
_FLAT_RANK, _DEEP_RANK = 4, 5


def fitted(layer: Layer, settings: LayerSettings, *, where: str) -> tuple[LayerSettings, list[str]]:
    """Settings that the layer can have, and what was changed for that.

    Args:
        layer: The layer.
        settings: What was asked for.
        where: What messages begin with.

    Raises:
        WrongValue: Something was asked for that the layer cannot have.
    """
    notes: list[str] = []
    activation, weight = settings.activation, settings.weight
    reason = _no_wide_activation(layer) if activation.bits > DEFAULT_BITS else ""
    if reason:
        notes.append(f"{layer.name}: inputs get 8 bits, not {activation.bits}: {reason}")
        activation = replace(activation, bits=DEFAULT_BITS)
    reason = _no_such_weight(layer, weight.bits)
    if reason:
        notes.append(f"{layer.name}: weights get 8 bits, not {weight.bits}: {reason}")
        weight = replace(weight, bits=DEFAULT_BITS)
    if activation.asymmetric and must_be_symmetric(layer):
        notes.append(f"{layer.name}: inputs are symmetric, {layer.op_type} of this kind knows no offset")
        activation = replace(activation, asymmetric=False)
    if weight.channel_wise and not layer.can_be_channel_wise:
        what = f"{where}: {layer.op_type} cannot have a scale for each channel."
        raise WrongValue(what, fix='set "channel_wise" to false')
    if settings.balance is not None and not layer.can_be_balanced:
        what = f"{where}: {layer.op_type} has no weight that its input could be balanced with."
        raise WrongValue(what, fix="remove dmq_balancer from this layer")
    return replace(settings, activation=activation, weight=weight), notes


def must_be_symmetric(layer: Layer) -> bool:
    """Whether zero must have the code 0: three-dimensional convolutions, products of two computed inputs."""
    return len(layer.weight_shape) == _DEEP_RANK or len(layer.inputs) > 1


def _no_wide_activation(layer: Layer) -> str:
    if layer.op_type not in _WIDE_ACTIVATIONS or len(layer.inputs) > 1:
        return "only convolutions and full connections take more"
    return ""


def _no_such_weight(layer: Layer, bits: int) -> str:
    if bits in _WINOGRAD_BITS and not (layer.op_type == "Conv" and len(layer.weight_shape) == _FLAT_RANK):
        return "only convolutions of images take 6 or 7"
    if bits == _NARROW_BITS and layer.weight:
        channels = layer.weight_shape[layer.input_axis]
        if layer.group > 1 or channels % 2:
            return "4 need an even number of input channels and no groups"
    return ""
