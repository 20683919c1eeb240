"""Writing a configuration for a model: every layer with the settings it will have."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from roundoff.errors import nearest
from roundoff.vendors.amct.configuration.settings import DEFAULT_BITS, LayerSettings
from roundoff.vendors.amct.layers import Layer
from roundoff.vendors.errors import WrongValue

__all__ = [
    "IFMR_DEFAULTS",
    "default_document",
    "fitted",
    "layer_entry",
]


# What a layer can have of what was asked for: AMCT's rules of which types take which widths.

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


IFMR_DEFAULTS: Mapping[str, Any] = {
    "max_percentile": 0.999999,
    "min_percentile": 0.999999,
    "search_range": [0.7, 1.3],
    "search_step": 0.01,
}


def default_document(
    layers: Mapping[str, Layer], skip_layers: Sequence[str], *, batch_num: int, activation_offset: bool
) -> dict[str, Any]:
    """The configuration in which every layer has the defaults.

    Args:
        layers: The layers of the model.
        skip_layers: Those that stay in float.
        batch_num: Batches of calibration.
        activation_offset: Whether zero may have any code.

    Raises:
        WrongValue: There is no such layer.
    """
    for name in skip_layers:
        if name not in layers:
            raise WrongValue(
                f"skip_layers names {name!r}, no layer that can be quantized.", fix=nearest(name, layers)
            )
    return {
        "version": 1,
        "batch_num": batch_num,
        "activation_offset": activation_offset,
        "do_fusion": True,
        "skip_fusion_layers": [],
        **{
            name: layer_entry(layer, enabled=name not in skip_layers, offset=activation_offset)
            for name, layer in sorted(layers.items())
        },
    }


def layer_entry(
    layer: Layer,
    *,
    enabled: bool,
    offset: bool,
    activation: Mapping[str, Any] | None = None,
    weight: Mapping[str, Any] | None = None,
    balance: float | None = None,
) -> dict[str, Any]:
    """The entry of one layer.

    Args:
        layer: The layer.
        enabled: Whether it is quantized.
        offset: Whether zero may have any code where nothing else is said.
        activation: Settings of its input; the defaults when None.
        weight: Settings of its weight; those of its type when None.
        balance: Strength of balancing, if any.
    """
    inputs = dict(IFMR_DEFAULTS if activation is None else activation)
    if must_be_symmetric(layer) and inputs.get("asymmetric", offset):
        inputs["asymmetric"] = False
    balanced = {} if balance is None else {"dmq_balancer_param": balance}
    return {
        "quant_enable": enabled,
        **balanced,
        "activation_quant_params": inputs,
        "weight_quant_params": {"channel_wise": layer.can_be_channel_wise} if weight is None else dict(weight),
    }
