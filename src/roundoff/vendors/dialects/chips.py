"""The settings of chips' toolchains that quantize by themselves: AMCT, Horizon, Pulsar2, and AIMET."""

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from roundoff.core.plan import FLOAT
from roundoff.core.quantizers import Consumer, Kind, Quantizer, QuantParams, QuantSpec, representable_range
from roundoff.core.untrusted import read_json
from roundoff.errors import BadInput
from roundoff.graph.load import Model
from roundoff.graph.quantized_model import QuantizedModel
from roundoff.graph.units import LAYERS
from roundoff.graph.weights import Weights
from roundoff.messages.message import Message, as_message, english
from roundoff.vendors.amct.config import IFMR_DEFAULTS, default_document, dump, layer_entry
from roundoff.vendors.amct.layers import LAYER_TYPES, AmctLayer, find_layers
from roundoff.vendors.dialects.settings import (
    COMMON_BITS,
    Decisions,
    Dialect,
    NodeDecision,
    Written,
    decision_summary,
    scaled,
    unsupported,
    unsupported_codes,
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
            "activation_bitwidth": _aimet_bits(decisions.common_dtype("activation")),
            "dtype": "int",
            "is_symmetric": str(decisions.mostly_symmetric("weight")),
            "param_bitwidth": _aimet_bits(decisions.common_dtype("weight")),
            "per_channel_quantization": str(decisions.mostly_per_channel),
        },
    }
    missing = (
        *unsupported_of("several scales for the readers of a tensor: {names}", twice),
        *unsupported_of("rounding otherwise than half to even: {names}", rounded),
        *unsupported_of(
            "tensors that some nodes read in float and others quantized: {names}", _read_in_float(decisions)
        ),
    )
    name = f"{decisions.made.stem}.encodings"
    said = scaled(decisions, len(activations) + len(parameters))
    use = english(
        "load_encodings of AIMET with {model}, or qairt-converter --input_network {model} "
        "--quantization_overrides {name} --float_fallback: what is not in it stays in float",
        model=decisions.model,
        name=name,
    )
    text = json.dumps(content, indent=1, ensure_ascii=False) + "\n"
    return Written({name: text}, said, (*missing, *unsupported_codes(decisions)), use)


def _aimet_bits(dtype: str) -> int:
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


AIMET = Dialect("aimet", "encodings of AIMET and of Qualcomm's converters", _write)


# Reading AIMET's encodings: quantizers of a float model, from a file of scales by tensor.

SUFFIX = ".encodings"
"""How the names of such files end."""

_SECTIONS: dict[str, Kind] = {"activation_encodings": "activation", "param_encodings": "weight"}
_WIDEST_CODES = 16
_WIDTHS = range(2, 33)
# Axis of the output channels of a weight; AIMET does not write it down.
_CHANNEL_AXES = {"Conv": 0, "ConvTranspose": 1}
_NEWER_KEYS = {"bw": "bitwidth", "is_sym": "is_symmetric"}
_AGAIN = english("export the encodings again for this model")


def read_encodings(path: Path, model: Model) -> QuantizedModel:
    """A float model with the quantizers that a file of encodings says.

    Both layouts are read: tables by tensor (0.6.1), and lists of entries with names (1.0.0).

    Args:
        path: The file.
        model: The float model whose tensors it names.

    Raises:
        BadInput: It is no such file, or does not fit the model.
    """
    content = read_json(path, what=english("The file of encodings"), fix=english("give a file that AIMET wrote"))
    if not isinstance(content, dict) or not any(section in content for section in _SECTIONS):
        what = english("{path} has neither {sections}.", path=path, sections=" nor ".join(_SECTIONS))
        raise BadInput(what, fix=english("give a file of encodings that AIMET wrote"))
    reader = _EncodingReader(path, model)
    quantizers = []
    for section, kind in _SECTIONS.items():
        for tensor, entry in _listed(content.get(section, {}), path):
            quantizer = reader.quantizer(tensor, entry, kind)
            if quantizer is not None:
                quantizers.append(quantizer)
    return QuantizedModel(model, tuple(quantizers), notes=tuple(reader.notes))


Entry = dict[str, Any]


def _listed(section: Any, path: Path) -> Iterator[tuple[str, Entry]]:
    """Every tensor with one entry that holds its numbers as lists, whatever the layout."""
    try:
        if isinstance(section, Mapping):
            for tensor, entries in section.items():
                known = dict.fromkeys(str(key) for each in entries for key in each)
                yield str(tensor), {key: [each[key] for each in entries if key in each] for key in known}
        else:
            for each in section:
                entry = {_NEWER_KEYS.get(key, key): value for key, value in each.items()}
                lists = {key: value if isinstance(value, list) else [value] for key, value in entry.items()}
                yield str(each["name"]), lists
    except (AttributeError, KeyError, TypeError) as error:
        raise BadInput(
            english("{path} is not laid out as encodings are: {error}.", path=path, error=error), fix=_AGAIN
        ) from error


class _EncodingReader:
    def __init__(self, path: Path, model: Model) -> None:
        self._path, self._model = path, model
        self.notes: list[Message] = []
        graph = model.proto.graph
        self._weights = Weights(model)
        self._readers: dict[str, list[tuple[Any, int]]] = {}
        for node in graph.node:
            for at, name in enumerate(node.input):
                self._readers.setdefault(name, []).append((node, at))
        self._outputs = {value.name for value in graph.output}
        self._known = {*self._readers, *self._outputs}

    def quantizer(self, tensor: str, entry: Entry, kind: Kind) -> Quantizer | None:
        if [str(each).lower() for each in entry.get("dtype", ())[:1]] == ["float"]:
            return None
        if tensor not in self._known:
            text = english(
                "{path} has a scale for {tensor!r}, which nothing in the model reads",
                path=self._path.name,
                tensor=tensor,
            )
            self.notes.append(as_message(text))
            return None
        spec, params = self._numbers(tensor, entry)
        readers = self._readers.get(tensor, [])
        if params.scale.ndim:
            spec = spec.along(self._axis(tensor, readers, len(params.scale)))
        if kind == "weight" and spec.bits > _WIDEST_CODES:
            kind = "bias"
        return Quantizer(
            name=tensor,
            tensor=tensor,
            kind=kind,
            spec=spec,
            params=params,
            consumers=tuple(Consumer(node.name, at) for node, at in readers),
            output=tensor in self._outputs and kind == "activation" and self._is_computed(tensor),
        )

    def _is_computed(self, tensor: str) -> bool:
        return any(tensor in node.output for node in self._model.proto.graph.node)

    def _numbers(self, tensor: str, entry: Entry) -> tuple[QuantSpec, QuantParams]:
        """Codes count from 0 in the file; those of symmetric quantizers are signed here."""
        try:
            bits = entry["bitwidth"][0]
            if bits not in _WIDTHS:
                raise ValueError(f"a bitwidth of {bits!r} is not from {_WIDTHS.start} to {_WIDTHS.stop - 1}")
            bits = int(bits)
            scale = np.array(entry["scale"], dtype=np.float32)
            offset = np.array(entry["offset"], dtype=np.int64)
            symmetric = str(entry.get("is_symmetric", ["False"])[0]).lower() == "true"
            if scale.ndim != 1 or scale.shape != offset.shape or not np.all(np.isfinite(scale) & (scale > 0)):
                raise ValueError("scale and offset are not numbers of the same count, or a scale is not positive")
        except (ArithmeticError, LookupError, TypeError, ValueError) as error:
            what = english(
                "{path} has no usable numbers for {tensor!r}: {error}.",
                path=self._path,
                tensor=tensor,
                error=error,
            )
            raise BadInput(what, fix=_AGAIN) from error
        half = 1 << (bits - 1)
        signed = symmetric and bool(np.all((offset == -half) | (offset == -half + 1)))
        narrow = signed and bool(np.all(offset == -half + 1))
        spec = QuantSpec(bits=bits, signed=signed, symmetric=symmetric, narrow=narrow)
        zero_point = spec.code_min - offset
        if np.any((zero_point < spec.code_min) | (zero_point > spec.code_max)):
            what = english(
                "{path} has an offset for {tensor!r} at which zero has no code.", path=self._path, tensor=tensor
            )
            raise BadInput(what, fix=_AGAIN)
        whole = len(scale) == 1
        params = QuantParams(
            scale.reshape(()) if whole else scale, zero_point.reshape(()) if whole else zero_point
        )
        return spec, params

    def _axis(self, tensor: str, readers: Sequence[tuple[Any, int]], count: int) -> int:
        shape = self._weights.shape(tensor) if tensor in self._weights.protos else ()
        for node, at in readers:
            axis = self._channel_axis(node, at, len(shape))
            if axis is not None and len(shape) > axis and shape[axis] == count:
                return axis
        raise BadInput(
            "{path} has {count} scales for {tensor!r} of shape {shape}: no axis of channels fits.",
            fix=_AGAIN,
            path=self._path,
            count=count,
            tensor=tensor,
            shape=list(shape),
        )

    def _channel_axis(self, node: Any, at: int, rank: int) -> int | None:
        if rank == 1:
            return 0
        if node.op_type == "Gemm" and at == 1:
            transposed = any(each.name == "transB" and each.i for each in node.attribute)
            return 0 if transposed else 1
        if node.op_type in _CHANNEL_AXES:
            return _CHANNEL_AXES[node.op_type]
        return rank - 1 if node.op_type in LAYERS else None
