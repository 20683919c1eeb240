"""The walk over a model that follows channels: what rules for single operations see and say."""

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from roundoff.core.tensors import Array
from roundoff.graph.assembly import STANDARD_DOMAINS
from roundoff.graph.preparation.changes import attribute
from roundoff.graph.preparation.draft import Draft
from roundoff.graph.shapes import Value
from roundoff.graph.wiring import reads, subgraphs
from roundoff.quantize.transforms.channel_ids import ChannelIds
from roundoff.quantize.transforms.layouts import compact
from roundoff.quantize.transforms.scaling_map import Adjustment, Layer, Limit, ScalingMap

__all__ = ["Minds", "Rule", "Walk", "rule"]


class Minds(Exception):
    """An operation, as it is used here, cannot be fed scaled channels."""


Rule = Callable[["Walk", Any], None]
_RULES: dict[str, Rule] = {}
# What exporters put where it is not defined.
_ANY_DOMAIN = ("SimplifiedLayerNormalization",)
_FLOATS = ("float16", "bfloat16", "float32", "float64")


def rule(*op_types: str) -> Callable[[Rule], Rule]:
    """Register what operations do to channels; one that raises `Minds` fixes them all."""

    def register(function: Rule) -> Rule:
        for op_type in op_types:
            if op_type in _RULES:
                raise ValueError(f"two rules for {op_type}")
            _RULES[op_type] = function
        return function

    return register


class Walk:
    """Follows channels from node to node.

    Attributes:
        draft: The model.
        ids: Which channels stand for the same.
        through_limits: Whether channels are followed through Clip, to be scaled as far as no limit is reached.

    Args:
        draft: The model.
        values: Types and shapes of its tensors.
        fixed: Tensors that an earlier walk found to be fixed; where there is a choice, the others stay free.
        through_limits: See above.
    """

    def __init__(
        self, draft: Draft, values: Sequence[Value], *, fixed: frozenset[str], through_limits: bool
    ) -> None:
        self.draft, self.through_limits = draft, through_limits
        self.ids = ChannelIds()
        self._values = {value.name: value for value in values}
        self._fixed_before = fixed
        self._channels: dict[str, Array] = {}
        self._adjustments: list[Adjustment] = []
        self._layers: list[Layer] = []
        self._limits: list[Limit] = []
        self._blocked: dict[str, str] = {}

    def run(self) -> ScalingMap:
        """Follow all channels."""
        for node in self.draft.nodes.values():
            standard = node.domain in STANDARD_DOMAINS or node.op_type in _ANY_DOMAIN
            known = _RULES.get(node.op_type) if standard else None
            marks = len(self._adjustments), len(self._layers), len(self._limits)
            if self._is_plumbing(node):
                continue
            try:
                if known is None or any(subgraphs(node)):
                    raise Minds
                known(self, node)
            except Minds:
                del self._adjustments[marks[0] :], self._layers[marks[1] :], self._limits[marks[2] :]
                self._block(node)
        for name in self.draft.outputs:
            if name in self._channels:
                self._fix(name, "it is an output of the network")
        return ScalingMap(
            self.ids,
            self._channels,
            tuple(self._adjustments),
            tuple(self._layers),
            tuple(self._limits),
            self._blocked,
        )

    def _is_plumbing(self, node: Any) -> bool:
        """Whether a node works on shapes and indices: no channels come in, and no result could have any."""
        results = [self._values.get(name) for name in node.output if name]
        known = all(value is not None and value.element is not None for value in results)
        integers = known and not any(self.is_float(name) for name in node.output)
        return integers and not any(name in self._channels for name in reads(node))

    def _block(self, node: Any) -> None:
        for name in reads(node):
            if name in self._channels:
                self._fix(name, f"{node.op_type} {node.name!r} reads it")
        for name in node.output:
            self._channels.pop(name, None)

    def _fix(self, tensor: str, why: str) -> None:
        if not self.ids.is_fixed(self._channels[tensor]):
            self._blocked.setdefault(tensor, why)
            self.ids.fix(self._channels[tensor])

    def shape(self, tensor: str) -> tuple[int, ...]:
        """Shape of a tensor, constant or not.

        Raises:
            Minds: It is not known.
        """
        if self.draft.is_constant(tensor):
            return self.draft.constant_shape(tensor)
        value = self._values.get(tensor)
        if value is None or value.shape is None:
            raise Minds
        return value.shape

    def dtype(self, tensor: str) -> str:
        """Type of a computed tensor.

        Raises:
            Minds: It is not known.
        """
        value = self._values.get(tensor)
        if value is None or value.element is None:
            raise Minds
        return value.element.dtype

    def channels(self, tensor: str) -> Array:
        """Channels of a tensor, an array with as many axes; fixed ones where it has none."""
        found = self._channels.get(tensor)
        return np.zeros((1,) * len(self.shape(tensor)), np.int64) if found is None else self.ids.roots(found)

    def is_fixed(self, tensor: str) -> bool:
        """Whether no channel of a tensor can be scaled, as far as is known."""
        found = self._channels.get(tensor)
        return tensor in self._fixed_before or found is None or self.ids.is_fixed(found)

    def hold(self, tensor: str) -> None:
        """Say that no channel of a tensor can be scaled; to be said wherever a rule relies on it."""
        if tensor in self._channels:
            self._fix(tensor, "it is multiplied with another tensor, or normalized")

    def is_float(self, tensor: str) -> bool:
        """Whether a computed tensor is known to hold float numbers; others have no channels."""
        value = self._values.get(tensor)
        return value is not None and value.element is not None and value.element.dtype in _FLOATS

    def give(self, node: Any, channels: Array, *, output: int = 0) -> None:
        """Say which channels a result of a node has."""
        if self.is_float(node.output[output]) and channels.any():
            self._channels[node.output[output]] = compact(channels)

    def live(self, node: Any) -> Iterator[tuple[int, str]]:
        """Inputs of a node that are not constant, with their positions."""
        return ((at, name) for at, name in enumerate(node.input) if name and not self.draft.is_constant(name))

    def constant_input(self, node: Any, position: int) -> Array | None:
        """Values of a constant input; None when there is no such input.

        Raises:
            Minds: It is computed.
        """
        name = node.input[position] if len(node.input) > position else ""
        if not name:
            return None
        if not self.draft.is_constant(name):
            raise Minds
        return self.draft.constant(name)

    def axes(self, node: Any, *, name: str = "axes", position: int = 1) -> list[int] | None:
        """Axes that a node names by an attribute or by a constant input; None when it names none.

        Raises:
            Minds: They are computed.
        """
        given = attribute(node, name)
        if given is None:
            held = self.constant_input(node, position)
            given = None if held is None else held.ravel().tolist()
        return None if given is None else [int(axis) for axis in given]

    def adjust(self, node: Any, position: int, *, times: Array | None = None, over: Array | None = None) -> None:
        """Say that a constant takes up factors; one that is not there takes up none.

        Raises:
            Minds: It is computed.
        """
        if len(node.input) <= position or not node.input[position]:
            return
        if not self.draft.is_constant(node.input[position]):
            raise Minds
        self._adjustments.append(Adjustment(node.name, position, times, over))

    def add_layer(self, layer: Layer) -> None:
        """Say that a node is a layer."""
        self._layers.append(layer)

    def add_limit(self, limit: Limit) -> None:
        """Say that a node limits values."""
        self._limits.append(limit)
