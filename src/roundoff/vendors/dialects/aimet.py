"""AIMET's encodings, which Qualcomm's converters take as well (version 0.6.1)."""

import json
from typing import Any

import numpy as np

from roundoff.core.quantization import representable_range
from roundoff.core.quantizer import Quantizer
from roundoff.vendors.dialects.decisions import Decisions
from roundoff.vendors.dialects.written import Dialect, Written, named, said_of, unsaid_codes

__all__ = ["DIALECT", "VERSION"]

VERSION = "0.6.1"


def _write(decisions: Decisions) -> Written:
    activations: dict[str, list[dict[str, Any]]] = {}
    parameters: dict[str, list[dict[str, Any]]] = {}
    twice: list[str] = []
    rounded: list[str] = []
    for each in decisions.quantized.quantizers:
        if not each.consumers and not each.output:
            continue  # another quantizer takes its result again, and that one is read
        entries = _entries(each)
        place = activations if each.kind == "activation" else parameters
        if place.get(each.tensor, entries) != entries:
            twice.append(each.tensor)
            continue
        if each.spec.rounding != "half_even":
            rounded.append(each.tensor)
        place[each.tensor] = entries
    content = {
        "version": VERSION,
        "activation_encodings": activations,
        "param_encodings": parameters,
        "quantizer_args": {
            "activation_bitwidth": _bits(decisions.common_dtype("activation")),
            "dtype": "int",
            "is_symmetric": str(decisions.mostly_symmetric("weight")),
            "param_bitwidth": _bits(decisions.common_dtype("weight")),
            "per_channel_quantization": str(decisions.mostly_per_channel),
        },
    }
    missing = [
        f"{what}: {named(tensors)}"
        for what, tensors in (
            ("several scales for the readers of a tensor", twice),
            ("rounding otherwise than half to even", rounded),
        )
        if tensors
    ]
    float_readers = _read_in_float(decisions)
    if float_readers:
        missing.append(f"tensors that some nodes read in float and others quantized: {named(float_readers)}")
    name = f"{decisions.made.stem}.encodings"
    said = f"{said_of(decisions, weights=True)}, scales of {len(activations) + len(parameters)} tensors"
    use = (
        f"load_encodings of AIMET with {decisions.model}, or qairt-converter --input_network {decisions.model} "
        f"--quantization_overrides {name} --float_fallback: "
        "what is not in it stays in float"
    )
    text = json.dumps(content, indent=1, ensure_ascii=False) + "\n"
    return Written({name: text}, said, (*missing, *unsaid_codes(decisions)), use)


def _bits(dtype: str) -> int:
    return int(dtype[1:]) if dtype else 8


def _entries(quantizer: Quantizer) -> list[dict[str, Any]]:
    """One entry for each scale; AIMET counts codes from 0 and adds the offset."""
    spec, params = quantizer.spec, quantizer.params
    low, high = (np.atleast_1d(end) for end in representable_range(params, spec))
    return [
        {
            "bitwidth": spec.bits,
            "dtype": "int",
            "is_symmetric": str(spec.symmetric),
            "max": float(top),
            "min": float(bottom),
            "offset": spec.code_min - int(point),
            "scale": float(scale),
        }
        for bottom, top, scale, point in zip(
            low, high, np.atleast_1d(params.scale), np.atleast_1d(params.zero_point), strict=True
        )
    ]


def _read_in_float(decisions: Decisions) -> list[str]:
    """Quantized tensors that some nodes read as they are."""
    seen = {
        (each.tensor, consumer.node, consumer.input)
        for each in decisions.quantized.quantizers
        for consumer in each.consumers
    }
    tensors = {each.tensor for each in decisions.quantized.quantizers}
    return [
        name
        for node in decisions.quantized.float_model.proto.graph.node
        for at, name in enumerate(node.input)
        if name in tensors and (name, node.name, at) not in seen
    ]


DIALECT = Dialect("aimet", "encodings of AIMET and of Qualcomm's converters", _write)
