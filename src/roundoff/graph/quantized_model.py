"""A quantized model, whoever made it: a float model and the quantizers that can be switched on in it."""

import hashlib
import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from importlib import metadata
from typing import Literal

import numpy as np

from roundoff.core.quantizers import Quantizer
from roundoff.core.tensors import Array
from roundoff.graph.load import Model, weight_tensors
from roundoff.graph.wiring import constants
from roundoff.messages.message import Remark

__all__ = [
    "ModelHashes",
    "Oddity",
    "OddityKind",
    "QuantizedModel",
    "combined_hash",
    "dequantized_tensors",
    "model_hash",
    "quantizer_hash",
]

OddityKind = Literal["disagreement", "not_represented", "dynamic", "interface", "restored"]


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
        text: What it is, as a sentence without its full stop.
    """

    kind: OddityKind
    node: str
    text: str


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
    notes: tuple[Remark, ...] = ()
    oddities: tuple[Oddity, ...] = ()
    preparation: tuple[Remark, ...] = ()


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
