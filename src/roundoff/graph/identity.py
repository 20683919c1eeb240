"""By what equal models and equal quantizers are known: hashes of their content."""

import hashlib
import os
from collections.abc import Iterable, Sequence
from importlib import metadata

import numpy as np

from roundoff.core.quantizers import Quantizer
from roundoff.core.tensors import Array
from roundoff.graph.load import Model, weight_tensors

__all__ = ["ModelHashes", "combined_hash", "model_hash", "quantizer_hash"]


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
