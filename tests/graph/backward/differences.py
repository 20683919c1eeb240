"""Gradients inside of networks, compared with what happens when something is added at the place."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from onnx import ModelProto, helper
from onnx.helper import np_dtype_to_tensor_dtype

from roundoff.core.quantizer import Consumer
from roundoff.core.tensors import Array
from roundoff.graph.backward.builder import BackwardGraph, Place
from roundoff.graph.load import Model
from tests.contracts.backward_rule import open_raw

__all__ = ["Differences", "gradients_of", "random_seeds"]


def random_seeds(backward: BackwardGraph, outputs: Mapping[str, Array], seed: int = 0) -> dict[str, Array]:
    """A vector for each output, by the name of the input that takes it."""
    rng = np.random.default_rng(seed)
    return {
        name: rng.standard_normal(outputs[tensor].shape).astype(outputs[tensor].dtype)
        for tensor, name in backward.seeds.items()
    }


def gradients_of(backward: BackwardGraph, feed: Mapping[str, Array]) -> dict[Place, Array]:
    """All gradients that a backward graph gives."""
    names = list(dict.fromkeys(backward.gradients.values()))
    values = dict(zip(names, open_raw(backward.model.proto).run(names, dict(feed)), strict=True))
    return {place: values[name] for place, name in backward.gradients.items()}


class Differences:
    """A model with something to add at some of its places, zero unless asked otherwise."""

    def __init__(self, model: Model, places: Mapping[Place, Array], outputs: Sequence[str]) -> None:
        proto = ModelProto()
        proto.CopyFrom(model.proto)
        nodes = list(proto.graph.node)
        for field in ("node", "value_info"):
            proto.graph.ClearField(field)
        self._names = {place: f"added_{index}" for index, place in enumerate(places)}
        self._still = {self._names[place]: np.zeros_like(gradient) for place, gradient in places.items()}
        for name, array in self._still.items():
            number = np_dtype_to_tensor_dtype(array.dtype)
            proto.graph.input.append(helper.make_tensor_value_info(name, number, array.shape))
        self._edit(proto, nodes)
        self._outputs = list(outputs)
        self._session = open_raw(proto)

    def _edit(self, proto: Any, nodes: list[Any]) -> None:
        moved = {}
        for place, name in self._names.items():
            if isinstance(place, str):
                moved[place] = f"{name}_sum"
        ready = {value.name for value in (*proto.graph.input, *proto.graph.initializer)}
        for tensor in ready & moved.keys():
            proto.graph.node.append(helper.make_node("Add", [tensor, self._names[tensor]], [moved[tensor]]))
        for node in nodes:
            for position, tensor in enumerate(node.input):
                node.input[position] = moved.get(tensor, tensor)
                added = self._names.get(Consumer(node.name, position))
                if added is not None:
                    proto.graph.node.append(
                        helper.make_node("Add", [node.input[position], added], [f"{added}_sum"])
                    )
                    node.input[position] = f"{added}_sum"
            proto.graph.node.append(node)
            for tensor in node.output:
                if tensor in moved:
                    proto.graph.node.append(
                        helper.make_node("Add", [tensor, self._names[tensor]], [moved[tensor]])
                    )
        for output in proto.graph.output:
            output.name = moved.get(output.name, output.name)
        self._moved = moved

    def slope(
        self, place: Place, direction: Array, *, feed: Mapping[str, Array], seeds: Mapping[str, Array], step: float
    ) -> float:
        """How fast ``sum(v . y)`` grows along a direction."""
        ends = []
        for sign in (1, -1):
            moved = np.asarray(direction * (sign * step), direction.dtype)
            results = self._session.run(
                [self._moved.get(name, name) for name in self._outputs],
                {**feed, **self._still, self._names[place]: moved},
            )
            total = sum(
                (y.astype(np.float64) * seeds[name]).sum() for name, y in zip(self._outputs, results, strict=True)
            )
            ends.append(float(total))
        return (ends[0] - ends[1]) / (2 * step)
