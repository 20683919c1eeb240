"""A quantized model, whoever made it: a float model and the quantizers that can be switched on in it."""

import hashlib
import os
from collections import OrderedDict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from importlib import metadata
from threading import Lock
from typing import Literal

import numpy as np

from roundoff.core.quantizers import Quantizer, dequantize, fake_quantize
from roundoff.core.tensors import Array
from roundoff.graph.load import Model, weight_tensors
from roundoff.graph.nodes import constants
from roundoff.graph.weights import Weights
from roundoff.messages.message import Message

OddityKind = Literal["disagreement", "not_represented", "dynamic", "interface", "restored"]
UNREAD: tuple[OddityKind, ...] = ("not_represented", "disagreement")
"""What is in the file and not in the quantizers that are run."""


@dataclass(frozen=True, slots=True)
class Oddity:
    """Something in the file of a quantized model that a float model and its quantizers do not say.

    Attributes:
        kind: ``disagreement``: what was quantized with one scale is dequantized with another.
            ``not_represented``: it has no quantizer, and was left as it is.
            ``dynamic``: its scale is computed while the model runs, so that it has no quantizer here.
            ``interface``: an input or output is integers in the file, and float here.
            ``restored``: an activation that only the limits of the codes still computed was put back.
        node: The node or tensor it is about, by its name in the float model where it has one there.
        text: What it is, without a full stop.
    """

    kind: OddityKind
    node: str
    text: Message


@dataclass(frozen=True, slots=True)
class QuantizedModel:
    """A float model with its quantizers.

    Attributes:
        float_model: What is computed with all quantizers off.
        quantizers: In execution order of their tensors.
        notes: What the reader of the model should know: what was assumed or left out.
        oddities: The same for single nodes, for programs.
        preparation: How it was made: what was folded, checked and decided before.
    """

    float_model: Model
    quantizers: tuple[Quantizer, ...]
    notes: tuple[Message, ...] = ()
    oddities: tuple[Oddity, ...] = ()
    preparation: tuple[Message, ...] = ()


# What a quantized model says of its own tensors.


def dequantized_tensors(model: Model) -> dict[str, str]:
    """For each tensor that is quantized and dequantized again, the tensor that comes out and is used in its place.

    Quantizers absorb the activation before them: the tensor that keeps the activation's name is then the one
    without it, and only behind the pair does it have the values that the name promises.
    """
    graph = model.proto.graph
    fixed = constants(graph)
    quantized = {
        node.output[0]: node.input[0]
        for node in graph.node
        if node.op_type == "QuantizeLinear" and node.input[0] not in fixed
    }
    found: dict[str, str] = {}
    for node in graph.node:
        if node.op_type == "DequantizeLinear" and node.input[0] in quantized:
            found.setdefault(quantized[node.input[0]], node.output[0])
    return found


def combined_hash(parts: Iterable[object]) -> str:
    """A hash of some values that print the same when they are the same."""
    return hashlib.sha256("\n".join(map(str, parts)).encode("utf-8", "surrogatepass")).hexdigest()


def model_hash(model: Model) -> str:
    """A hash of a model; weights outside its file count by place, size and time of change."""
    outside = set()
    for tensor in weight_tensors(model.proto):
        if tensor.data_location == tensor.EXTERNAL:
            outside.add(next((entry.value for entry in tensor.external_data if entry.key == "location"), ""))
    stats: list[tuple[str, os.stat_result]] = [(name, (model.folder / name).stat()) for name in sorted(outside)]
    return combined_hash(
        [
            *((package, metadata.version(package)) for package in ("roundoff", "onnxruntime", "numpy")),
            hashlib.sha256(model.proto.SerializeToString(deterministic=True)).hexdigest(),
            *((name, status.st_size, status.st_mtime_ns) for name, status in stats),
        ]
    )


class ModelHashes:
    """Hashes of a few models that live as long as this: each is computed once."""

    def __init__(self) -> None:
        self._known: dict[int, tuple[Model, str]] = {}

    def of(self, model: Model) -> str:
        """The hash of a model."""
        if id(model) not in self._known:
            self._known[id(model)] = model, model_hash(model)
        return self._known[id(model)][1]


def quantizer_hash(quantizers: Sequence[Quantizer]) -> str:
    """A hash of quantizers, their numbers included."""
    return combined_hash(
        (
            each.name, each.tensor, each.kind, each.spec, each.consumers, each.output, each.after,
            _array_hash(each.params.scale), _array_hash(each.params.zero_point),
            "" if each.codes is None else _array_hash(each.codes),
        )
        for each in sorted(quantizers, key=lambda quantizer: quantizer.name)
    )  # fmt: skip


def _array_hash(array: Array) -> str:
    data = np.asarray(array, order="C")
    return hashlib.sha256(f"{data.dtype} {data.shape} ".encode() + data.tobytes()).hexdigest()


# Values of one step: with all that is computed between, they stay in the cache.
_BLOCK_ELEMENTS = 1 << 16
# What is kept for the next to ask; most models have less.
_KEPT_BYTES = 64 << 20
# Values compared before all of them.
_PREFIX = 256


def fake_quantized(values: Array, quantizer: Quantizer) -> Array:
    """Values as one quantizer leaves them, in the type they had; what is computed between stays small."""
    spec, params = quantizer.spec, quantizer.params
    result = np.empty(values.shape, values.dtype)
    if values.ndim == 0:
        result[...] = _fake(values, quantizer)
        return result
    rows = max(1, _BLOCK_ELEMENTS // max(1, values[:1].size))
    by_row = params.scale.ndim > 0 and spec.axis is not None and spec.axis % values.ndim == 0
    for start in range(0, values.shape[0], rows):
        part = slice(start, start + rows)
        own = quantizer
        if by_row:
            own = replace(
                quantizer, params=replace(params, scale=params.scale[part], zero_point=params.zero_point[part])
            )
        if quantizer.codes is not None:
            own = replace(own, codes=quantizer.codes[part])
        result[part] = _fake(values[part], own)
    return result


def after_quantizers(values: Array, chain: Sequence[Quantizer]) -> Array:
    """Values as quantizers leave them that follow one another, in the type they had."""
    for quantizer in chain:
        values = fake_quantized(values, quantizer)
    return values


def _fake(values: Array, quantizer: Quantizer) -> Array:
    spec, params = quantizer.spec, quantizer.params
    if quantizer.codes is not None:
        return dequantize(quantizer.codes, params, spec.axis)
    # As the operators do: they compute in float32, whatever the type of the model.
    return fake_quantize(values.astype(np.float32, copy=False), params, spec)


class FakeConstants:
    """The constants of a model as quantizers leave them; those asked for last are kept.

    Safe to use from threads.
    """

    def __init__(self, model: Model) -> None:
        self._weights = Weights(model)
        # By identity, since two quantizers of one name may have other numbers; they are held, so that no other has
        # the identity of one of them.
        self._kept: OrderedDict[tuple[int, ...], tuple[Sequence[Quantizer], Array]] = OrderedDict()
        self._idle: dict[int, tuple[Quantizer, bool]] = {}
        self._bytes = 0
        self._lock = Lock()

    def __contains__(self, tensor: str) -> bool:
        """Whether a tensor is a constant."""
        return tensor in self._weights.protos

    def values(self, quantizer: Quantizer, earlier: Mapping[str, Quantizer]) -> Array:
        """What a quantizer makes of its constant.

        Args:
            quantizer: The quantizer.
            earlier: Quantizers by name; those it follows (`Quantizer.after`) come before it if they are here.
        """
        chain = chain_of(quantizer, earlier)
        key = tuple(map(id, chain))
        with self._lock:
            if key in self._kept:
                self._kept.move_to_end(key)
                return self._kept[key][1]
        values = after_quantizers(self._weights[quantizer.tensor], chain)
        with self._lock:
            self._keep(key, chain, values)
        return values

    def is_idle(self, quantizer: Quantizer) -> bool:
        """Whether a quantizer leaves its constant as it is, bit for bit."""
        if quantizer.tensor not in self:
            return False
        if id(quantizer) not in self._idle:
            left, given = self.values(quantizer, {}), self._weights[quantizer.tensor]
            # What is changed at all mostly is from the beginning.
            same = np.array_equal(left.flat[:_PREFIX], given.flat[:_PREFIX]) and np.array_equal(left, given)
            self._idle[id(quantizer)] = quantizer, same
        return self._idle[id(quantizer)][1]

    def _keep(self, key: tuple[int, ...], chain: Sequence[Quantizer], values: Array) -> None:
        if key in self._kept or values.nbytes > _KEPT_BYTES:
            return
        self._kept[key] = chain, values
        self._bytes += values.nbytes
        while self._bytes > _KEPT_BYTES:
            _, (_, dropped) = self._kept.popitem(last=False)
            self._bytes -= dropped.nbytes


def chain_of(quantizer: Quantizer, others: Mapping[str, Quantizer]) -> list[Quantizer]:
    """A quantizer and those of the others that come before it, the first first."""
    chain = [quantizer]
    while chain[-1].after in others:
        chain.append(others[chain[-1].after])
    return chain[::-1]


def has_exact_weights(quantized: QuantizedModel) -> bool:
    """Whether the float weights are the values of their codes already, so that no weight is changed any more."""
    weights = [each for each in quantized.quantizers if each.kind == "weight"]
    constants = FakeConstants(quantized.float_model)
    return bool(weights) and all(constants.is_idle(each) for each in weights)
