"""AIMET's encodings, which Qualcomm's converters take as well (version 0.6.1)."""

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from roundoff.core.quantizers import Consumer, Kind, Quantizer, QuantParams, QuantSpec, representable_range
from roundoff.core.untrusted import read_json
from roundoff.errors import BadInput
from roundoff.graph.load import Model
from roundoff.graph.quantized_model import QuantizedModel
from roundoff.graph.units import LAYERS
from roundoff.graph.weights import Weights
from roundoff.messages.message import Message, as_message, english
from roundoff.vendors.dialects.settings import (
    Decisions,
    Dialect,
    Written,
    scaled,
    unsupported_codes,
    unsupported_of,
)

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
