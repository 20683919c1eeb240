"""Horizon's node_info (YAML of hb_mapper) and quant_config (JSON of hb_compile and hmct)."""

import json
from typing import Any

from roundoff.core.plan import FLOAT
from roundoff.messages.message import english
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

_METHODS = {"minmax": "max", "percentile": "max", "entropy": "kl"}
_WIDE, _NARROW, _FLOAT = "int16", "int8", "float32"
_OTHER_WIDTH = 16


def _write(decisions: Decisions) -> Written:
    yaml_name, json_name = f"{decisions.made.stem}_node_info.yaml", f"{decisions.made.stem}_quant_config.json"
    odd = [node.name for node in decisions.wide if node.bits != _OTHER_WIDTH]
    missing = unsupported_of("widths other than 8 and 16 bits (int16 instead): {names}", odd)
    if decisions.made.method == "percentile":
        missing.append(english("which percentile: add max_percentile beside calibration_type"))
    missing += unsupported(decisions, _METHODS, english("its own search"))
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
    method = _METHODS.get(decisions.made.method)
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
    method = _METHODS.get(decisions.made.method)
    if method:
        config["model_config"] = {"activation": {"calibration_type": method}}
    config["node_config"] = nodes
    return json.dumps(config, indent=2, ensure_ascii=False) + "\n"


def _bits(dtype: str) -> int:
    return 0 if dtype == FLOAT else int(dtype[1:])


DIALECT = Dialect("horizon", "node_info as YAML, quant_config as JSON", _write)
