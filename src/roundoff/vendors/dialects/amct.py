"""AMCT's configuration, in full as JSON and simplified as text."""

import json
from collections.abc import Mapping
from typing import Any

from roundoff.messages.message import english
from roundoff.vendors.amct.config import IFMR_DEFAULTS, default_document, dump, layer_entry
from roundoff.vendors.amct.layers import LAYER_TYPES, AmctLayer, find_layers
from roundoff.vendors.dialects.settings import Decisions, Dialect, Written, unsupported, unsupported_of

_METHODS = {"ifmr": "ifmr", "hfmg": "hfmg"}
_OTHER_WIDTH = 16


def _write(decisions: Decisions) -> Written:
    layers = find_layers(decisions.quantized.float_model, {})
    nodes = {node.name: node for node in decisions.computing}
    skipped = [name for name in layers if name not in nodes or nodes[name].in_float]
    wide = [name for name in layers if name in nodes and nodes[name].bits == _OTHER_WIDTH]
    channel_wise = _channel_wise(decisions, layers)
    offset = not decisions.mostly_symmetric("activation")
    document = default_document(
        layers, skipped, batch_num=max(1, decisions.made.samples), activation_offset=offset
    )
    for name, layer in layers.items():
        document[name] = layer_entry(
            layer,
            enabled=name not in skipped,
            offset=offset,
            activation=_activation(decisions, wide=name in wide),
            weight={"channel_wise": channel_wise[name]},
        )
    json_name, cfg_name = f"{decisions.made.stem}_amct.json", f"{decisions.made.stem}_amct.cfg"
    files = {
        json_name: dump(document) + "\n",
        cfg_name: _simplified(document, skipped, wide, channel_wise=channel_wise),
    }
    said = english(
        "{count} of {all} layers quantized, {wide} of them at 16 bits",
        count=len(layers) - len(skipped),
        all=len(layers),
        wide=len(wide),
    )
    use = english(
        "{model} with config_file={json} in quantize_model, or config_defination={cfg} in create_quant_config",
        model=decisions.model,
        json=json_name,
        cfg=cfg_name,
    )
    return Written(files, said, tuple(_missing(decisions, layers)), use)


def _missing(decisions: Decisions, layers: Mapping[str, AmctLayer]) -> list[str]:
    """What AMCT quantizes otherwise."""
    others = [node.name for node in decisions.computing if not node.in_float and node.op_type not in LAYER_TYPES]
    odd = [node.name for node in decisions.wide if node.name in layers and node.bits != _OTHER_WIDTH]
    kinds = ", ".join(LAYER_TYPES)
    return [
        *unsupported_of("integers at operations other than {kinds}: {names}", others, kinds=kinds),
        *unsupported_of("widths other than 8 and 16 bits: {names}", odd),
        *unsupported(decisions, _METHODS, "ifmr"),
    ]


def _activation(decisions: Decisions, *, wide: bool) -> dict[str, Any] | None:
    """Settings of an input; None for the defaults."""
    bits = {"num_bits": _OTHER_WIDTH} if wide else {}
    if decisions.made.method == "hfmg":
        return {**bits, "act_algo": "hfmg", "num_of_bins": 4096}
    return {**bits, **IFMR_DEFAULTS} if wide else None


def _channel_wise(decisions: Decisions, layers: Mapping[str, AmctLayer]) -> dict[str, bool]:
    """Whether each layer's weight has a scale for each channel; as AMCT would do where it is not quantized."""
    by_tensor = {each.tensor: each.params.scale.ndim > 0 for each in decisions.of_kind("weight")}
    return {
        name: layer.can_be_channel_wise and by_tensor.get(layer.weight, True) for name, layer in layers.items()
    }


def _simplified(
    document: Mapping[str, Any], skipped: list[str], wide: list[str], *, channel_wise: Mapping[str, bool]
) -> str:
    lines = [
        f"batch_num : {document['batch_num']}",
        f"activation_offset : {str(document['activation_offset']).lower()}",
        *(f"skip_layers : {json.dumps(name)}" for name in skipped),
    ]
    for name, each in channel_wise.items():
        entry = document[name]["activation_quant_params"]
        algorithm = f"{entry.get('act_algo', 'ifmr')}_quantize"
        bits = " dst_type : INT16 " if name in wide else " "
        if name in skipped:
            continue
        lines += [
            "override_layer_configs : {",
            f"    layer_name : {json.dumps(name)}",
            "    calibration_config : {",
            f"        arq_quantize : {{ channel_wise : {str(each).lower()} }}",
            f"        {algorithm} : {{{bits}}}",
            "    }",
            "}",
        ]
    return "\n".join(lines) + "\n"


DIALECT = Dialect("amct", "AMCT's configuration as JSON and as simplified text", _write)
