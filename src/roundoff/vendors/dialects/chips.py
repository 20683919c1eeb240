"""The settings of chips' toolchains that quantize by themselves: AMCT, Horizon and Pulsar2."""

import json
from collections.abc import Mapping
from typing import Any

from roundoff.core.plan import FLOAT
from roundoff.messages.message import english
from roundoff.vendors.amct.config import IFMR_DEFAULTS, default_document, dump, layer_entry
from roundoff.vendors.amct.layers import LAYER_TYPES, AmctLayer, find_layers
from roundoff.vendors.dialects.settings import (
    COMMON_BITS,
    Decisions,
    Dialect,
    NodeDecision,
    Written,
    decision_summary,
    unsupported,
    unsupported_of,
)
from roundoff.vendors.pulsar2.config.document import to_json
from roundoff.vendors.pulsar2.config.schema import (
    BuildConfig,
    CalibrationMethod,
    DataType,
    LayerConfig,
    QuantConfig,
)

# AMCT's configuration, in full as JSON and simplified as text.

_AMCT_METHODS = {"ifmr": "ifmr", "hfmg": "hfmg"}
_OTHER_WIDTH = 16


def _write_amct(decisions: Decisions) -> Written:
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
            activation=_amct_input(decisions, wide=name in wide),
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
    return Written(files, said, tuple(_amct_missing(decisions, layers)), use)


def _amct_missing(decisions: Decisions, layers: Mapping[str, AmctLayer]) -> list[str]:
    """What AMCT quantizes otherwise."""
    others = [node.name for node in decisions.computing if not node.in_float and node.op_type not in LAYER_TYPES]
    odd = [node.name for node in decisions.wide if node.name in layers and node.bits != _OTHER_WIDTH]
    kinds = ", ".join(LAYER_TYPES)
    return [
        *unsupported_of("integers at operations other than {kinds}: {names}", others, kinds=kinds),
        *unsupported_of("widths other than 8 and 16 bits: {names}", odd),
        *unsupported(decisions, _AMCT_METHODS, "ifmr"),
    ]


def _amct_input(decisions: Decisions, *, wide: bool) -> dict[str, Any] | None:
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


AMCT = Dialect("amct", "AMCT's configuration as JSON and as simplified text", _write_amct)


# Horizon's node_info (YAML of hb_mapper) and quant_config (JSON of hb_compile and hmct).

_HORIZON_METHODS = {"minmax": "max", "percentile": "max", "entropy": "kl"}
_WIDE, _NARROW, _FLOAT = "int16", "int8", "float32"


def _write_horizon(decisions: Decisions) -> Written:
    yaml_name, json_name = f"{decisions.made.stem}_node_info.yaml", f"{decisions.made.stem}_quant_config.json"
    odd = [node.name for node in decisions.wide if node.bits != _OTHER_WIDTH]
    missing = unsupported_of("widths other than 8 and 16 bits (int16 instead): {names}", odd)
    if decisions.made.method == "percentile":
        missing.append(english("which percentile: add max_percentile beside calibration_type"))
    missing += unsupported(decisions, _HORIZON_METHODS, english("its own search"))
    files = {yaml_name: _yaml(decisions), json_name: _json(decisions)}
    use = english(
        "{yaml}: into the YAML file of hb_mapper makertbin; {json}: as quant_config of hb_compile. Names of nodes "
        "are those of {model}; compare them with *_optimized_float_model.onnx",
        yaml=yaml_name,
        json=json_name,
        model=decisions.model,
    )
    return Written(files, decision_summary(decisions), tuple(missing), use)


def _yaml(decisions: Decisions) -> str:
    """Keys and texts of YAML are quoted as in JSON, which YAML includes."""
    entries = {node.name: _info(node) for node in decisions.computing if node.in_float or node.wide}
    lines = ["model_parameters:"]
    if entries:
        lines.append("  node_info:")
        lines += [f"    {_quoted(name)}: {_quoted(info)}" for name, info in entries.items()]
    else:
        lines[0] += " {}"
    method = _HORIZON_METHODS.get(decisions.made.method)
    if method:
        lines += ["calibration_parameters:", f"  calibration_type: {_quoted(method)}"]
    return "\n".join(lines) + "\n"


def _quoted(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)


def _info(node: NodeDecision) -> dict[str, str]:
    if node.in_float:
        return {"ON": "CPU"}
    inputs = {at: _WIDE if _bits(dtype) > COMMON_BITS else _NARROW for at, dtype in node.inputs.items()}
    info = {"ON": "BPU"}
    if set(inputs.values()) == {_WIDE} or not inputs:
        info["InputType"] = _WIDE
    else:
        info |= {f"InputType{at}": _WIDE for at, dtype in inputs.items() if dtype == _WIDE}
    if node.output_bits > COMMON_BITS and FLOAT not in node.precision.output:
        info["OutputType"] = _WIDE
    return info


def _json(decisions: Decisions) -> str:
    nodes: dict[str, dict[str, str]] = {}
    for node in decisions.computing:
        if node.in_float:
            nodes[node.name] = {"qtype": _FLOAT}
        elif node.wide:
            wide = [_bits(dtype) > COMMON_BITS for dtype in node.inputs.values()]
            nodes[node.name] = {"qtype": _WIDE}
            if not all(wide):
                nodes[node.name] = {
                    f"input{at}": _WIDE if _bits(dtype) > COMMON_BITS else _NARROW
                    for at, dtype in node.inputs.items()
                }
    config: dict[str, Any] = {}
    method = _HORIZON_METHODS.get(decisions.made.method)
    if method:
        config["model_config"] = {"activation": {"calibration_type": method}}
    config["node_config"] = nodes
    return json.dumps(config, indent=2, ensure_ascii=False) + "\n"


def _bits(dtype: str) -> int:
    return 0 if dtype == FLOAT else int(dtype[1:])


HORIZON = Dialect("horizon", "node_info as YAML, quant_config as JSON", _write_horizon)


# Pulsar2's layer_configs.

_PULSAR2_METHODS = {
    "minmax": CalibrationMethod.MinMax.name,
    "percentile": CalibrationMethod.Percentile.name,
    "mse": CalibrationMethod.MSE.name,
    "entropy": CalibrationMethod.KL.name,
}
# The operations for which the manual says that float was verified; for others the tool accepts the wish and
# quantizes to 8 bits all the same.
_FLOAT_WORKS = ("LeakyRelu", "Sigmoid", "Relu", "Add", "Mul", "Div", "Sub", "Concat", "Softmax")
_DEFAULT = DataType.DefaultDataType
# The widest integers that every operation takes.
_NEAREST = DataType.U16


def _write_pulsar2(decisions: Decisions) -> Written:
    entries: dict[tuple[DataType, DataType, DataType], list[str]] = {}
    refused: list[str] = []
    mixed: list[str] = []
    for node in decisions.computing:
        wish = _wish(node, decisions)
        if node.in_float and wish[0] is not DataType.FP32:
            refused.append(node.name)
        if "/" in node.precision.activation and not node.in_float:
            mixed.append(node.name)
        if any(part is not _DEFAULT for part in wish):
            entries.setdefault(wish, []).append(node.name)
    layers = tuple(
        LayerConfig(layer_names=tuple(names), data_type=data, weight_data_type=weight, output_data_type=output)
        for (data, weight, output), names in entries.items()
    )
    method = CalibrationMethod[_PULSAR2_METHODS.get(decisions.made.method, CalibrationMethod.MinMax.name)]
    config = BuildConfig(quant=QuantConfig(layer_configs=layers, calibration_method=method))
    name = f"{decisions.made.stem}_pulsar2.json"
    missing = (
        *unsupported_of("float for operations it has only integers for (U16 instead): {names}", refused),
        *unsupported_of("inputs of different widths at one node (the widest instead): {names}", mixed),
        *unsupported(decisions, _PULSAR2_METHODS, "MinMax"),
    )
    text, said, model = to_json(config), decision_summary(decisions), decisions.model
    if not json.loads(text):
        said = english("{said}; no file: nothing that it can be told differs from its default", said=said)
        use = english("pulsar2 build --input {model}, as without settings", model=model)
        return Written({}, said, missing, use)
    use = english(
        "pulsar2 build --input {model} (or roundoff pulsar2 build), with the quant section of {name} in its "
        "configuration",
        model=model,
        name=name,
    )
    return Written({name: text}, said, missing, use)


def _wish(node: NodeDecision, decisions: Decisions) -> tuple[DataType, DataType, DataType]:
    """Types of data, weight and output of a node; the default where it is what the tool would do anyway."""
    weight = DataType.FP32 if node.op_type == "Conv" and node.precision.weight == FLOAT else _DEFAULT
    if node.in_float:
        if node.op_type in _FLOAT_WORKS:
            return DataType.FP32, _DEFAULT, _DEFAULT
        output = DataType.FP32 if node.op_type == "Conv" and node.precision.output == FLOAT else _DEFAULT
        return _NEAREST, weight, output
    widest = max(node.precision.activation.split("/"), key=lambda dtype: (int(dtype[1:]), dtype), default="")
    common = decisions.common_dtype("activation")
    data = (
        DataType[widest.upper()]
        if widest and node.bits in (8, 16) and (node.wide or widest != common)
        else _DEFAULT
    )
    output = _DEFAULT
    if node.op_type == "Conv" and node.precision.output == FLOAT:
        output = DataType.FP32
    return data, weight, output


PULSAR2 = Dialect("pulsar2", "layer_configs of a Pulsar2 configuration", _write_pulsar2)
