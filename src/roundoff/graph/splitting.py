"""Splitting a model by when its inputs are known: what does not depend on the late ones is computed once."""

from collections.abc import Collection, Mapping, Sequence
from typing import Any

from roundoff.graph.beside import add_declared
from roundoff.graph.element_types import by_session_name
from roundoff.graph.load import Model
from roundoff.graph.units import derived_constants
from roundoff.graph.wiring import reads

__all__ = ["SplitModel"]


class SplitModel:
    """A model in two parts; nodes that only compute constants are in both where both read these.

    Args:
        model: The model.
        late: The inputs that come late.

    Attributes:
        passed: What the late part reads that is no late input: inputs of the model, and results of the early part.
        early_outputs: Outputs of the model that do not depend on late inputs.
        late_outputs: Those that do.
    """

    passed: tuple[str, ...]
    early_outputs: tuple[str, ...]
    late_outputs: tuple[str, ...]

    def __init__(self, model: Model, late: Collection[str]) -> None:
        graph = model.proto.graph
        self._model, self._late = model, tuple(late)
        self._constant = derived_constants(graph)
        self._inputs = {value.name: value for value in graph.input if value.name not in self._constant}
        self._computing: list[Any] = []
        self._nodes: tuple[list[Any], list[Any]] = [], []
        behind = set(late)
        for node in graph.node:
            if node.output and self._constant.issuperset(name for name in node.output if name):
                self._computing.append(node)
                continue
            depends = not behind.isdisjoint(reads(node))
            self._nodes[depends].append(node)
            if depends:
                behind.update(node.output)
        wanted = [value.name for value in graph.output]
        self.early_outputs, self.late_outputs = (
            tuple(name for name in wanted if (name in behind) == depends) for depends in (False, True)
        )
        read = dict.fromkeys(name for node in self._nodes[True] for name in reads(node))
        self.passed = tuple(name for name in read if name not in behind and name not in self._constant)

    def early(self) -> Model:
        """What does not depend on late inputs; its outputs are those of the model, and what is passed."""
        names = dict.fromkeys((*self.early_outputs, *(name for name in self.passed if name not in self._inputs)))
        inputs = [value for name, value in self._inputs.items() if name not in self._late]
        return self._part(self._nodes[False], inputs, list(names))

    def late(self, described: Mapping[str, tuple[str, Sequence[int | None]]]) -> Model:
        """The rest.

        Args:
            described: Type, as onnxruntime writes it, and shape of what is passed and no input of the model.
        """
        inputs = [self._inputs[name] for name in self._late]
        inputs += [self._inputs.get(name) or _value_info(name, *described[name]) for name in self.passed]
        return self._part(self._nodes[True], inputs, self.late_outputs)

    def _part(self, nodes: Sequence[Any], inputs: Sequence[Any], outputs: Sequence[str]) -> Model:
        from onnx import ModelProto

        source = self._model.proto
        proto = ModelProto(
            ir_version=source.ir_version, opset_import=source.opset_import, functions=source.functions
        )
        graph = proto.graph
        graph.name = source.graph.name or "part"
        needed = {name for node in nodes for name in reads(node)} | {*outputs}
        kept = []
        for node in reversed(self._computing):
            if not needed.isdisjoint(node.output):
                kept.append(node)
                needed.update(reads(node))
        graph.node.extend([*reversed(kept), *nodes])
        beside = add_declared(graph, (tensor for tensor in source.graph.initializer if tensor.name in needed))
        graph.sparse_initializer.extend(
            tensor for tensor in source.graph.sparse_initializer if tensor.values.name in needed
        )
        graph.input.extend(inputs)
        for name in outputs:
            graph.output.add(name=name)
        return Model(proto, self._model.path, self._model.file_bytes, beside=beside)


def _value_info(name: str, kind: str, shape: Sequence[int | None]) -> Any:
    from onnx.helper import make_tensor_value_info

    element = by_session_name(kind.removeprefix("tensor(").removesuffix(")"))
    # No sizes at all may also mean that their number is not known.
    return make_tensor_value_info(name, element.number if element is not None else 0, list(shape) or None)
