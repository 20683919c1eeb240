"""The graph behind the vendor's frontend: its units, and what its nodes are called by the user and by the vendor.

Operators that the vendor's frontend made have names like ``op_173:onnx.Softmax_0``: a running number, the type, in
attention a role and the number of the head. No documentation says how the number comes about, and published
tables show that it need not follow the order of the network. What such a name means is read from the
``optimized.onnx`` of the vendor's tool, where the user has it; else it is told by type and order, only where all
operators of the type are named, and said.
"""

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

from roundoff.core.target import Target
from roundoff.graph.load import Model, load_model
from roundoff.graph.preparation.steps import Prepared
from roundoff.graph.transformers import Attention, find_parts
from roundoff.quantize.planning.rules import Names
from roundoff.quantize.planning.view import FusedUnit, GraphView, find_units
from roundoff.vendors.pulsar2.config.schema import BuildConfig, LayerConfig
from roundoff.vendors.pulsar2.tables import frontend_type


@dataclass(frozen=True, eq=False)
class Frontend:
    """The graph that is quantized, with the names it has in the user's model.

    Attributes:
        original: The user's model.
        prepared: The graph behind the frontend.
        target: For which chip.
    """

    original: Model
    prepared: Prepared
    target: Target

    @cached_property
    def view(self) -> GraphView:
        """The graph that is quantized."""
        return GraphView(self.prepared.model)

    @cached_property
    def names(self) -> Names:
        """Names of nodes in both graphs."""
        return Names(self.view, self.prepared.origins)

    @cached_property
    def units(self) -> tuple[FusedUnit, ...]:
        """What is computed as one."""
        return find_units(self.view, self.target)

    @cached_property
    def unit_of(self) -> Mapping[str, FusedUnit]:
        """The unit of each node of the graph."""
        return {node.name: unit for unit in self.units for node in unit.nodes}

    def moves(self, unit: FusedUnit) -> bool:
        """Whether a unit only passes values on."""
        single = len(unit.nodes) == 1 and not unit.is_pattern and not unit.obstacle
        return single and unit.first.operation in self.target.pass_through

    def type_of(self, unit: FusedUnit) -> str:
        """The type a unit has behind the frontend."""
        return frontend_type(unit, self.view)

    def owners(self, unit: FusedUnit) -> tuple[str, ...]:
        """The nodes of a unit that read what it works on: a precision is asked for these."""
        found = [
            node.name
            for node in unit.nodes
            if any(
                name not in unit.inner and not self.view.is_constant(name) for _, name in self.view.operands(node)
            )
        ]
        return tuple(found) or (unit.first.name,)


# Names that the vendor's frontend made up.

_MADE = re.compile(r"op_(\d+):onnx\.(?:Ax)?([A-Za-z0-9]+?)(?:_(qkv|qk|q|k|v))?(?:_(\d+))?")
_OTHER_TYPES = {"Silu": "Swish"}
_SCALES = ("Mul", "Div")
_LONGEST_WAY = 12
"""Nodes between a projection and the product that reads it: reshapes, transposes, a bias, a scale."""


@dataclass(frozen=True, slots=True)
class MadeName:
    """A name that the vendor's frontend made up.

    Attributes:
        text: All of it: ``op_173:onnx.FullyConnected_q_0``.
        number: The running number.
        kind: The type of the operator.
        role: What it is in an attention: q, k, v, qk, qkv; empty for what says none.
        head: The head it is for, or None.
    """

    text: str
    number: int
    kind: str
    role: str
    head: int | None

    @classmethod
    def parse(cls, text: str) -> "MadeName | None":
        """The parts of a name; None for one that has another form."""
        found = _MADE.fullmatch(text)
        if found is None:
            return None
        number, kind, role, head = found.groups()
        return cls(
            text, int(number), _OTHER_TYPES.get(kind, kind), role or "", None if head is None else int(head)
        )

    @property
    def of_head(self) -> bool:
        """Whether it is one head's part of an attention: all parts of one have the same number."""
        return self.head is not None and (bool(self.role) or self.kind in ("Softmax", "Mul", "MatMul"))


class MadeNames:
    """What such names mean, by the type and the order of their numbers.

    Args:
        names: All names that are asked for; those of another form are left out.
        frontend: The graph.
    """

    def __init__(self, names: Iterable[str], frontend: Frontend) -> None:
        self._frontend = frontend
        self._names = [made for made in map(MadeName.parse, names) if made is not None]

    def node(self, name: MadeName) -> str:
        """The node of the graph that a name stands for; empty where that cannot be told."""
        count = len(self._attentions if name.of_head else self._units(name.kind))
        numbers = self._numbers(name)
        # All are named; or, of one chain of attentions, the first and the last of numbers without a gap.
        whole = len(numbers) == count or (name.of_head and numbers[-1] - numbers[0] + 1 == count)
        if not whole:
            return ""
        place = numbers.index(name.number) if len(numbers) == count else name.number - numbers[0]
        return self._part(self._attentions[place], name) if name.of_head else self._units(name.kind)[place]

    def why_not(self, name: MadeName) -> str:
        """Why a name cannot be told."""
        named = len(self._numbers(name))
        there = len(self._attentions if name.of_head else self._units(name.kind))
        counts = f"{named} of {there} {'attention' if name.of_head else name.kind} operators are named so"
        return (
            f"the vendor's frontend made this name, and {counts}; use the name in the ONNX model, or give the "
            "vendor's optimized.onnx with --frontend"
        )

    def _numbers(self, name: MadeName) -> list[int]:
        alike = [each for each in self._names if each.of_head == name.of_head]
        return sorted({each.number for each in alike if name.of_head or each.kind == name.kind})

    def _units(self, kind: str) -> list[str]:
        frontend = self._frontend
        return [unit.first.name for unit in frontend.units if frontend.type_of(unit) == kind]

    @cached_property
    def _attentions(self) -> tuple[Attention, ...]:
        parts = find_parts(self._frontend.prepared.model).attentions
        return tuple(each for each in parts if not each.is_fused)

    def _part(self, attention: Attention, name: MadeName) -> str:
        """The node that does for all heads what a name says for one."""
        view = self._frontend.view
        if name.kind == "Softmax":
            return attention.softmax
        if name.kind == "MatMul":
            return attention.context if name.role == "qkv" else attention.query_key
        if name.kind == "Mul":
            scales = (each for each in attention.nodes if view.by_name[each].operation in _SCALES)
            return next(scales, attention.query_key)
        product, place = (
            (attention.context, 1) if name.role == "v" else (attention.query_key, "qk".index(name.role))
        )
        return self._projection(view.by_name[product].inputs[place], name.kind)

    def _projection(self, tensor: str, kind: str) -> str:
        """The operator of a type that a tensor comes from."""
        frontend = self._frontend
        for _ in range(_LONGEST_WAY):
            node = frontend.view.producers.get(tensor)
            if node is None or node.name not in frontend.unit_of:
                return ""
            unit = frontend.unit_of[node.name]
            if frontend.type_of(unit) == kind:
                return unit.first.name
            tensor = next((each for each in unit.first.inputs if not frontend.view.is_constant(each)), "")
        return ""


def with_vendor_names(config: BuildConfig, optimized: Path | None) -> BuildConfig:
    """A configuration whose layers are named by the tensors they write, as the vendor's optimized model says.

    Args:
        config: The configuration.
        optimized: The ``optimized.onnx`` of the vendor's tool; None where it is not known.

    Raises:
        BadInput: The model cannot be read.
    """
    if optimized is None:
        return config
    written = dict(_written(optimized))

    def renamed(layer: LayerConfig) -> LayerConfig:
        names = tuple(written.get(name, name) for name in layer.layer_names)
        return replace(layer, layer_name=written.get(layer.layer_name, layer.layer_name), layer_names=names)

    layers = tuple(map(renamed, config.quant.layer_configs))
    return replace(config, quant=replace(config.quant, layer_configs=layers))


def _written(optimized: Path) -> Iterator[tuple[str, str]]:
    """Names of the vendor's, each with the tensor of the user's model that is written under it."""
    for node in load_model(optimized).proto.graph.node:
        made = MadeName.parse(node.name)
        if made is not None and node.output and not node.output[0].startswith("op_"):
            yield node.name, node.output[0]
