"""Running single nodes of a model in onnxruntime, on arrays of any type the node takes."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from roundoff.errors import BadInput, ModelFailed
from roundoff.graph.load import Model
from roundoff.graph.subgraph import tap
from roundoff.graph.wiring import subgraphs
from roundoff.run.integer.call import (
    NonTensor,
    declare,
    is_tensor,
    narrow_element,
    narrowed,
    plain_value,
    type_name,
)
from roundoff.run.session import Session, open_session

__all__ = ["SingleNodes"]

# Every session has threads of its own, so only operations that are worth it get more than one.
_HEAVY = frozenset({"Attention", "Conv", "ConvTranspose", "Einsum", "GRU", "Gemm", "LSTM", "MatMul", "RNN"})
_FIX = "use --mode reference, which runs the model as a whole"


class _Opened(NamedTuple):
    """A session for one node, and the types of the node's outputs, which it may give widened."""

    session: Session
    types: tuple[str, ...]


class SingleNodes:
    """Runs nodes of a model one at a time; a session is opened once for each node and types of inputs.

    Args:
        model: The model.
        threads: Threads of nodes with much to compute; all cores by default.
    """

    def __init__(self, model: Model, threads: int | None) -> None:
        self._model, self._threads = model, threads
        self._opened: dict[tuple[str, tuple[str, ...]], _Opened] = {}

    def run(self, node: Any, inputs: Sequence[Any], captured: Mapping[str, Any] | None = None) -> list[Any]:
        """Outputs of a node, those without a name left out.

        Tensors are arrays, also of types that numpy does not have; everything else is a `NonTensor`.

        Args:
            node: The `onnx.NodeProto`.
            inputs: A value for each of its inputs; None for an absent one.
            captured: Values that its subgraphs take from outside.

        Raises:
            BadInput: It takes or gives values that cannot leave a session.
            ModelFailed: onnxruntime cannot compute it.
        """
        given = {f"input {index}": value for index, value in enumerate(inputs) if value is not None}
        given |= captured or {}
        types = {name: type_name(value) for name, value in given.items()}
        key = node.name, tuple(f"{name}:{kind}" for name, kind in types.items())
        try:
            if key not in self._opened:
                self._opened[key] = self._open(node, types)
            opened = self._opened[key]
            results = opened.session.run({_fed(name, types[name]): plain_value(given[name]) for name in given})
        except ModelFailed as error:
            raise ModelFailed(f"Node {node.name!r} ({node.op_type}): {error.what}", fix=error.fix) from error
        return [_typed(result, kind) for result, kind in zip(results, opened.types, strict=True)]

    def _open(self, node: Any, types: Mapping[str, str]) -> _Opened:
        outputs = [name for name in node.output if name]
        model = Model(_alone(self._model.proto, node, types), self._model.path, 0)
        threads = self._threads if node.op_type in _HEAVY or next(subgraphs(node), None) is not None else 1
        session = open_session(model, outputs=tap(model, outputs), threads=threads, keep_memory=False)
        widen = {}
        for name, kind in zip(outputs, session.types, strict=True):
            element = narrow_element(kind)
            if element is not None and not is_tensor(kind):
                raise _cannot_pass(node, kind)
            if element is not None:
                widen[name] = element.widened
        types_given = session.types
        if widen:
            taps = tap(model, outputs, widen=widen)
            session = open_session(model, outputs=taps, threads=threads, keep_memory=False)
        return _Opened(session, types_given)


def _alone(source: Any, node: Any, types: Mapping[str, str]) -> Any:
    """A model of one node; what numpy has no type for enters it widened and is narrowed there."""
    from onnx import ModelProto, ValueInfoProto
    from onnx.helper import make_node

    proto = ModelProto(ir_version=source.ir_version, opset_import=source.opset_import)
    proto.functions.extend(source.functions)
    for name, kind in types.items():
        element, fed = narrow_element(kind), _fed(name, kind)
        wide = kind if element is None else type_name(np.empty(0, element.widened))
        if not declare(proto.graph.input.add(name=fed).type, wide):
            raise _cannot_pass(node, kind)
        if element is not None:
            proto.graph.node.append(make_node("Cast", [fed], [name], to=element.number))
    alone = proto.graph.node.add()
    alone.CopyFrom(node)
    for index in range(len(alone.input)):
        name = f"input {index}"
        alone.input[index] = name if name in types else ""
    proto.graph.output.extend([ValueInfoProto(name=name) for name in node.output if name])
    return proto


def _fed(name: str, kind: str) -> str:
    """What the input is called through which a value enters the model of one node."""
    return name if narrow_element(kind) is None else f"{name}//wide"


def _typed(result: Any, kind: str) -> Any:
    if not is_tensor(kind):
        return NonTensor(result, kind)
    element = narrow_element(kind)
    return result if element is None else narrowed(result, element.dtype)


def _cannot_pass(node: Any, kind: str) -> BadInput:
    what = f"Node {node.name!r} ({node.op_type}) handles a value of type {kind}, which cannot leave a session."
    return BadInput(what, fix=_FIX)
