"""Writing a configuration for a model: every layer with the settings it will have."""

from collections.abc import Mapping, Sequence
from typing import Any

from roundoff.errors import nearest
from roundoff.vendors.amct.configuration.fitting import must_be_symmetric
from roundoff.vendors.amct.layers import Layer
from roundoff.vendors.errors import WrongValue

__all__ = ["IFMR_DEFAULTS", "default_document", "layer_entry"]

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
