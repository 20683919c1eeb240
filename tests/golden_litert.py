"""An int8 ResNet-8 that a runtime with integer kernels computed, as a float model with quantizers."""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from onnx import helper, numpy_helper

from roundoff.core.quantizers import Consumer, Kind, Quantizer, QuantParams, QuantSpec
from roundoff.core.tensors import Array
from roundoff.graph.load import Model
from tests.models import loaded, value, wrapped

_FOLDER = Path(__file__).resolve().parents[2] / "shared" / "data" / "golden_litert"


@dataclass(frozen=True)
class Golden:
    """The network and its tensors.

    Attributes:
        model: The float model, channels first; tensors are called ``t<index>``.
        quantizers: With the scales, zero points and codes of the int8 model.
        codes: What the runtime computed, channels first.
        feed: Its input as float values.
    """

    model: Model
    quantizers: tuple[Quantizer, ...]
    codes: dict[str, Array]
    feed: dict[str, Array]


def golden_litert(folder: Path) -> Golden:
    """Build the network; skips the test when the recorded tensors are not there."""
    if not _FOLDER.exists():
        pytest.skip("no recorded integer run beside this checkout")
    facts = json.loads((_FOLDER / "pretrainedResnet_quant.json").read_text())
    with np.load(_FOLDER / "pretrainedResnet_quant.npz") as archive:
        return _Builder(facts, dict(archive)).build(folder)


class _Builder:
    def __init__(self, facts: dict[str, Any], arrays: dict[str, Array]) -> None:
        self._facts = facts
        self._tensors = {tensor["index"]: tensor for tensor in facts["tensors"]}
        self._arrays = {index: _channels_first(arrays[f"t{index}"]) for index in self._tensors}
        self._nodes: list[Any] = []
        self._weights: list[Any] = []
        self._consumers: dict[int, list[Consumer]] = {}
        self._kinds: dict[int, Kind] = {}

    def build(self, folder: Path) -> Golden:
        for number, op in enumerate(self._facts["ops"]):
            getattr(self, f"_{op['op'].lower()}")(f"n{number}", op["inputs"], op["outputs"][0])
        first, last = self._facts["ops"][0]["inputs"][0], self._facts["ops"][-1]["outputs"][0]
        shape = self._arrays[first].shape
        graph = wrapped(self._nodes, [value(f"t{first}", shape)], [value(f"t{last}")], self._weights)
        quantizers = tuple(self._quantizers(last))
        live = {f"t{index}": self._arrays[index] for index in self._tensors if index not in self._kinds}
        live = {name: array for name, array in live.items() if array.dtype == np.int8}
        feed = {f"t{first}": self._dequantized(first)}
        return Golden(loaded(graph, folder), quantizers, live, feed)

    def _quantizers(self, last: int) -> Iterator[Quantizer]:
        for index, tensor in self._tensors.items():
            if not tensor["scales"]:
                continue
            kind = self._kinds.get(index, "activation")
            bits = 32 if tensor["dtype"] == "int32" else 8
            per_channel = len(tensor["scales"]) > 1
            spec = QuantSpec(bits, signed=True, symmetric=kind != "activation", axis=0 if per_channel else None)
            yield Quantizer(
                f"q{index}",
                f"t{index}",
                kind,
                spec,
                self._params(index),
                tuple(self._consumers.get(index, ())),
                output=index == last,
                codes=self._arrays[index] if index in self._kinds else None,
            )

    def _params(self, index: int) -> QuantParams:
        scales, zero_points = (self._tensors[index][key] for key in ("scales", "zero_points"))
        shape = (-1,) if len(scales) > 1 else ()
        return QuantParams(
            np.array(scales, np.float32).reshape(shape), np.array(zero_points, np.int64).reshape(shape)
        )

    def _dequantized(self, index: int) -> Array:
        params, codes = self._params(index), self._arrays[index].astype(np.int64)
        shape = (-1, *[1] * (codes.ndim - 1)) if params.scale.ndim else ()
        return ((codes - params.zero_point.reshape(shape)) * params.scale.reshape(shape)).astype(np.float32)

    def _add_node(self, op_type: str, name: str, sources: list[int], output: str, **attributes: Any) -> None:
        for place, index in enumerate(sources):
            self._consumers.setdefault(index, []).append(Consumer(name, place))
        self._nodes.append(
            helper.make_node(op_type, [f"t{index}" for index in sources], [output], name, **attributes)
        )

    def _add_weights(self, weight: int, bias: int) -> None:
        for index, kind in ((weight, "weight"), (bias, "bias")):
            self._kinds[index] = kind  # type: ignore[assignment]
            self._weights.append(numpy_helper.from_array(self._dequantized(index), f"t{index}"))

    def _fused_relu(self, op_type: str, name: str, sources: list[int], output: int, **attributes: Any) -> None:
        """An operation and the Relu that the int8 model computes with it, where the name of its tensor says so."""
        if "Relu" in self._tensors[output]["name"].split(";")[0]:
            self._add_node(op_type, name, sources, f"t{output}_sum", **attributes)
            self._nodes.append(helper.make_node("Relu", [f"t{output}_sum"], [f"t{output}"], f"{name}_relu"))
        else:
            self._add_node(op_type, name, sources, f"t{output}", **attributes)

    def _conv_2d(self, name: str, sources: list[int], output: int) -> None:
        self._add_weights(*sources[1:])
        stride = self._arrays[sources[0]].shape[2] // self._arrays[output].shape[2]
        self._fused_relu("Conv", name, sources, output, strides=[stride] * 2, auto_pad="SAME_UPPER")

    def _add(self, name: str, sources: list[int], output: int) -> None:
        self._fused_relu("Add", name, sources, output)

    def _average_pool_2d(self, name: str, sources: list[int], output: int) -> None:
        window = self._arrays[sources[0]].shape[2:]
        self._add_node("AveragePool", name, sources, f"t{output}", kernel_shape=window)

    def _reshape(self, name: str, sources: list[int], output: int) -> None:
        self._add_node("Flatten", name, sources[:1], f"t{output}")

    def _fully_connected(self, name: str, sources: list[int], output: int) -> None:
        self._add_weights(*sources[1:])
        self._add_node("Gemm", name, sources, f"t{output}", transB=1)

    def _softmax(self, name: str, sources: list[int], output: int) -> None:
        self._add_node("Softmax", name, sources, f"t{output}", axis=-1)


def _channels_first(array: Array) -> Array:
    return array.transpose(0, 3, 1, 2) if array.ndim == 4 else array
