"""Constants in one place: nodes that hold one, and what is computed from constants alone."""

import math
from collections import Counter
from typing import Any

import numpy as np

from roundoff.core.tensors import Array
from roundoff.graph.assembly import STANDARD_DOMAINS
from roundoff.graph.evaluation import CannotEvaluate, evaluate
from roundoff.graph.interface import inputs
from roundoff.graph.load import Model
from roundoff.graph.preparation.changes import attribute
from roundoff.graph.preparation.draft import Draft, named
from roundoff.graph.randomness import RANDOM_OPS
from roundoff.graph.shapes import Value, values
from roundoff.graph.wiring import subgraphs

__all__ = ["fold_constants", "hold_constants"]

# Every call gives something else, or may.
_RANDOM = RANDOM_OPS | {"Dropout"}
# A result may be larger than what it is made of by this much; tables of positions and masks are.
_MOST_GROWTH_BYTES = 1 << 20
# What is made of so little is small enough even when its size cannot be foretold ...
_TINY_BYTES = 4096
# ... unless the operation makes any size of it.
_EXPLOSIVE = frozenset(
    {"ConstantOfShape", "Expand", "EyeLike", "GridSample", "OneHot", "Pad", "Range", "Resize", "Tile", "Upsample"}
)


def hold_constants(draft: Draft) -> None:
    """Turn Constant nodes into initializers of the same name."""
    from onnx import TensorProto

    for node in draft.of_type("Constant"):
        tensor = node.output[0]
        held = attribute(node, "value")
        if tensor in draft.outputs:
            continue
        if isinstance(held, TensorProto):
            copy = TensorProto()
            copy.CopyFrom(held)
            copy.name = tensor
            draft.hold(copy)
        elif (plain := _plain_value(node)) is not None:
            draft.set_constant(tensor, plain)
        else:
            continue
        draft.remove(node, into="")


def _plain_value(node: Any) -> Array | None:
    kinds = {"value_int": np.int64, "value_ints": np.int64, "value_float": np.float32, "value_floats": np.float32}
    for name, dtype in kinds.items():
        held = attribute(node, name)
        if held is not None:
            return np.asarray(held, dtype=dtype)
    return None


def fold_constants(draft: Draft) -> None:
    """Compute once what depends on constants alone, and shapes that are fixed."""
    fixed = _fixed_inputs(draft.model)
    known = {value.name: value for value in values(draft.model, fixed)}
    if fixed:
        # Without, shapes would be those that the file declares for tensors between, which may not be so.
        _fold_shapes(draft, known)
    folder = _Folder(draft, known)
    for node in list(draft.nodes.values()):
        folder.consider(node)
    folder.finish()


def _fixed_inputs(model: Model) -> dict[str, tuple[int, ...]]:
    return {
        spec.name: tuple(size for size in spec.shape if isinstance(size, int))
        for spec in inputs(model)
        if spec.shape is not None and all(isinstance(size, int) for size in spec.shape)
    }


def _fold_shapes(draft: Draft, known: dict[str, Value]) -> None:
    folded = []
    for node in draft.of_type("Shape", "Size"):
        value = known.get(node.input[0])
        if value is None or value.shape is None or node.output[0] in draft.outputs:
            continue
        if node.op_type == "Size":
            result = np.asarray(math.prod(value.shape), np.int64)
        else:
            part = slice(attribute(node, "start", 0), attribute(node, "end"))
            result = np.asarray(value.shape[part], np.int64)
        draft.set_constant(node.output[0], result)
        draft.remove(node, into="")
        folded.append(node.name)
    if folded:
        draft.notes.append(f"shapes that are fixed computed once: {named(folded)}")


class _Folder:
    """Nodes of constants, gathered to be computed together."""

    def __init__(self, draft: Draft, known: dict[str, Value]) -> None:
        self._draft = draft
        self._known = known
        self._nodes: dict[str, Any] = {}
        self._sizes: dict[str, int] = {}
        self._left: dict[str, list[str]] = {}

    def consider(self, node: Any) -> None:
        """Take a node if all it reads is constant, or is computed by nodes that were taken."""
        if not node.input or node.domain not in STANDARD_DOMAINS or any(subgraphs(node)):
            return
        names = [name for name in node.input if name]
        if not all(self._draft.is_constant(name) or name in self._sizes for name in names):
            return
        if not self._draft.outputs.isdisjoint(node.output) or node.op_type in _RANDOM:
            return
        reason, size = self._judge(node, names)
        if reason:
            self._left.setdefault(reason, []).append(node.name)
            return
        self._nodes[node.name] = node
        for name in node.output:
            self._sizes[name] = size

    def _judge(self, node: Any, names: list[str]) -> tuple[str, int]:
        """Why not to compute a node, or how large its results are."""
        used = sum(
            self._sizes[name] if name in self._sizes else self._draft.constant_bytes(name) for name in names
        )
        known = [self._known[name] for name in node.output if name in self._known]
        sizes = [value.size_bytes for value in known if value.shape is not None and value.element is not None]
        if len(sizes) < sum(map(bool, node.output)):
            if used > _TINY_BYTES or node.op_type in _EXPLOSIVE:
                return "the size of their results is not known beforehand", 0
            return "", _MOST_GROWTH_BYTES
        grown = sum(sizes)
        if grown > used + _MOST_GROWTH_BYTES:
            return "their results are much larger than what they are made of", 0
        return ("", grown) if self._draft.has_room(grown) else ("the model would exceed one file", 0)

    def finish(self) -> None:
        """Compute all nodes taken, and put their results in their place."""
        nodes = list(self._nodes.values())
        folded = self._compute(nodes)
        if not folded:
            # One of them fails. Alone, the others do not.
            folded = [node for each in nodes for node in self._compute([each])]
        if folded:
            counted = Counter(node.op_type for node in folded)
            listed = ", ".join(f"{count} {op_type}" for op_type, count in counted.most_common())
            self._draft.notes.append(f"nodes of constants computed once: {listed}")
        for reason, names in self._left.items():
            self._draft.notes.append(f"nodes of constants left as they are, because {reason}: {named(names)}")

    def _compute(self, nodes: list[Any]) -> list[Any]:
        """Give the nodes that were computed: all of them, or none."""
        draft = self._draft
        names = {name for node in nodes for name in node.input if name}
        computed = {name for node in nodes for name in node.output if name}
        if not all(draft.is_constant(name) for name in names - computed):
            return []
        inside = {node.name for node in nodes}
        wanted = [name for name in sorted(computed) if not inside.issuperset(draft.readers(name))]
        feeds = {name: draft.constant(name) for name in names - computed}
        try:
            results = evaluate(nodes, feeds, wanted, model=draft.model)
        except CannotEvaluate as error:
            if len(nodes) == 1:
                self._left.setdefault(str(error), []).append(nodes[0].name)
            return []
        for name, result in zip(wanted, results, strict=True):
            draft.set_constant(name, result)
        for node in nodes:
            draft.remove(node, into="")
        return nodes
