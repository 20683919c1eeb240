"""onnxruntime's quantize_static: nodes to leave out, and the scale of every tensor."""

import inspect
import json
from typing import Any

import numpy as np

from roundoff.core.plan import FLOAT
from roundoff.core.quantizers import Quantizer
from roundoff.graph.nodes import opset_of
from roundoff.graph.weights import constant_value
from roundoff.vendors.dialects.settings import (
    COMMON_BITS,
    Decisions,
    Dialect,
    NodeDecision,
    Written,
    graph_digest,
    names_of,
    scaled,
    unsupported_codes,
    unsupported_of,
)

_TYPES = {"u8": "QUInt8", "s8": "QInt8", "u16": "QUInt16", "s16": "QInt16", "u4": "QUInt4", "s4": "QInt4"}
_FIRST_16_BITS = 21
"""From this opset on ONNX itself has QuantizeLinear for 16 bits."""

_SCRIPT = '''\
"""Quantizes with the settings beside this file: python {script} {model} OUT.onnx SAMPLES.npz

The archive holds one array for each input of the model, its first axis counting samples.
"""

import hashlib
import json
import os
import sys
from pathlib import Path

import numpy as np
import onnx

# onnxruntime must not send anything; it reads this when it is imported.
os.environ["ORT_DISABLE_TELEMETRY"] = "1"
from onnxruntime.quantization import CalibrationDataReader, QuantFormat, QuantType, quantize_static

SETTINGS = json.loads(Path(__file__).with_name("{settings}").read_text(encoding="utf-8"))


def _override(entry):
    made = dict(entry, quant_type=QuantType[entry["quant_type"]])
    if "scale" in made:
        made["scale"] = np.array(made["scale"], dtype=np.float32)
        made["zero_point"] = np.array(made["zero_point"], dtype=entry["quant_type"].lower().lstrip("q"))
    if "convert" in made:
        made["convert"] = dict(_override(entry["convert"]), recv_nodes=set(entry["convert"]["recv_nodes"]))
    return made


def arguments():
    """What quantize_static takes, besides the models and the data."""
    options = dict(SETTINGS["extra_options"])
    options["TensorQuantOverrides"] = {{
        tensor: [_override(entry) for entry in entries]
        for tensor, entries in options["TensorQuantOverrides"].items()
    }}
    return {{
        "quant_format": QuantFormat.QDQ,
        "activation_type": QuantType[SETTINGS["activation_type"]],
        "weight_type": QuantType[SETTINGS["weight_type"]],
        "per_channel": SETTINGS["per_channel"],
        "nodes_to_exclude": SETTINGS["nodes_to_exclude"],
        "extra_options": options,
    }}


{digest}

def check(path):
    """Ends with a message where settings are those of another graph: its scales would be wrong, silently."""
    graph = onnx.load(path).graph
    known = {{node.name for node in graph.node}}
    same = graph_digest(graph, onnx.numpy_helper.to_array) == SETTINGS["graph"]
    if not same or not known.issuperset(SETTINGS["nodes_to_exclude"]):
        ours = {given}
        sys.exit(
            f"{{path}} is not the model that these settings are for, which was {why}\\n"
            f"fix: python {{sys.argv[0]}} {{ours}} {{sys.argv[2]}} {{sys.argv[3]}}"
        )


class Reader(CalibrationDataReader):
    """The samples of an archive, one at a time."""

    def __init__(self, archive):
        arrays = {{name: archive[name] for name in archive.files}}
        count = min(len(values) for values in arrays.values())
        self._feeds = ({{name: values[i : i + 1] for name, values in arrays.items()}} for i in range(count))

    def get_next(self):
        return next(self._feeds, None)


if __name__ == "__main__":
    if len(sys.argv) != 4:
        sys.exit(__doc__)
    check(sys.argv[1])
    with np.load(sys.argv[3]) as data:
        quantize_static(sys.argv[1], sys.argv[2], Reader(data), **arguments())
'''


def _write(decisions: Decisions) -> Written:
    overrides, missing = _overrides(decisions)
    graph, model = decisions.made.graph, decisions.quantized.float_model
    settings_name, script = f"{decisions.made.stem}_onnxruntime.json", f"{decisions.made.stem}_onnxruntime.py"
    activation, weight = (decisions.common_dtype(kind) for kind in ("activation", "weight"))
    options: dict[str, Any] = {
        "ActivationSymmetric": decisions.mostly_symmetric("activation"),
        "WeightSymmetric": decisions.mostly_symmetric("weight"),
        "UseQDQContribOps": _needs_contrib(decisions),
        "TensorQuantOverrides": overrides,
    }
    settings = {
        "activation_type": _TYPES.get(activation, "QUInt8"),
        "weight_type": _TYPES.get(weight, "QInt8"),
        "per_channel": decisions.mostly_per_channel,
        "nodes_to_exclude": names_of(filter(_excluded, decisions.nodes)),
        "extra_options": options,
        "graph": graph_digest(model.proto.graph, lambda tensor: constant_value(tensor, model)),
    }
    files = {
        settings_name: json.dumps(settings, indent=1, ensure_ascii=False) + "\n",
        script: _SCRIPT.format(
            script=script,
            settings=settings_name,
            model=decisions.model,
            digest=inspect.getsource(graph_digest),
            given=f"Path(__file__).with_name({graph!r})" if graph else '"MODEL.onnx"',
            why="changed before it was quantized" if graph else "quantized as it was",
        ),
    }
    kept = [node.name for node in decisions.computing if not node.in_float and node.precision.output == FLOAT]
    missing += unsupported_of("results of quantized nodes that stay in float: {names}", kept)
    said = scaled(decisions, len(overrides))
    use = f"python {script} {decisions.model} OUT.onnx SAMPLES.npz"
    return Written(files, said, (*missing, *unsupported_codes(decisions)), use)


def _excluded(node: NodeDecision) -> bool:
    """Whether a node is to be left out; those that only pass values on would quantize what they pass to others."""
    return node.in_float or (node.moves and node.precision.output == FLOAT)


def _needs_contrib(decisions: Decisions) -> bool:
    wide = any(each.spec.bits != COMMON_BITS for each in decisions.quantized.quantizers if each.kind != "bias")
    return wide and opset_of(decisions.quantized.float_model.proto) < _FIRST_16_BITS


def _overrides(decisions: Decisions) -> tuple[dict[str, list[dict[str, Any]]], list[str]]:
    """The entry of each tensor, and what has none."""
    found: dict[str, list[dict[str, Any]]] = {}
    sliced: list[str] = []
    unknown: list[str] = []
    twice: list[str] = []
    rounded: list[str] = []
    initializers = {each.name for each in decisions.quantized.float_model.proto.graph.initializer}
    by_tensor: dict[str, list[Quantizer]] = {}
    for each in decisions.quantized.quantizers:
        if each.kind != "bias":
            by_tensor.setdefault(each.tensor, []).append(each)
    for tensor, members in by_tensor.items():
        first = min(members, key=lambda each: bool(each.after))
        others = [each for each in members if each is not first and not _same(each, first)]
        if any(each.spec.dtype not in _TYPES for each in members):
            unknown.append(tensor)
        elif first.params.scale.ndim and tensor not in initializers:
            sliced.append(tensor)
        else:
            found[tensor] = _entries(first)
            if len(others) == 1 and others[0].spec.dtype != first.spec.dtype and not others[0].params.scale.ndim:
                readers = sorted({consumer.node for consumer in others[0].consumers})
                found[tensor][0]["convert"] = {**_entries(others[0])[0], "recv_nodes": readers}
            elif others:
                twice.append(tensor)
        if first.spec.rounding != "half_even":
            rounded.append(tensor)
    missing = [
        *unsupported_of("one scale per slice of activations: {names}", sliced),
        *unsupported_of("codes of other widths than 4, 8 and 16 bits: {names}", unknown),
        *unsupported_of("several scales for the readers of a tensor: {names}", twice),
        *unsupported_of("rounding otherwise than half to even: {names}", rounded),
    ]
    return found, missing


def _same(one: Quantizer, other: Quantizer) -> bool:
    return (
        one.spec.dtype == other.spec.dtype
        and np.array_equal(one.params.scale, other.params.scale)
        and np.array_equal(one.params.zero_point, other.params.zero_point)
    )


def _entries(quantizer: Quantizer) -> list[dict[str, Any]]:
    scales, points = np.atleast_1d(quantizer.params.scale), np.atleast_1d(quantizer.params.zero_point)
    entries: list[dict[str, Any]] = [
        {"quant_type": _TYPES[quantizer.spec.dtype], "scale": float(scale), "zero_point": int(point)}
        for scale, point in zip(scales, points, strict=True)
    ]
    if quantizer.params.scale.ndim:
        for entry in entries:
            entry["axis"] = quantizer.spec.axis
    return entries


DIALECT = Dialect("onnxruntime", "nodes_to_exclude and TensorQuantOverrides of quantize_static", _write)
