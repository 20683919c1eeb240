"""Running single nodes of a model in onnxruntime, on arrays of any type the node takes."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from roundoff.core.tensors import Array
from roundoff.errors import ModelFailed
from roundoff.graph.element_types import by_dtype
from roundoff.graph.load import Model
from roundoff.graph.tap import tap
from roundoff.graph.wiring import subgraphs
from roundoff.runtime.session import Session, open_session

__all__ = ["SingleNodes"]

# Every session has threads of its own, so only operations that are worth it get more than one.
_HEAVY = frozenset({"Attention", "Conv", "ConvTranspose", "Einsum", "GRU", "Gemm", "LSTM", "MatMul", "RNN"})


class SingleNodes:
    """Runs nodes of a model one at a time; a session is opened once for each node and types of inputs.

    Args:
        model: The model.
        threads: Threads of nodes with much to compute; all cores by default.
    """

    def __init__(self, model: Model, threads: int | None) -> None:
        self._model, self._threads = model, threads
        self._sessions: dict[tuple[str, tuple[str, ...]], Session] = {}

    def run(self, node: Any, inputs: Sequence[Any], captured: Mapping[str, Any] | None = None) -> list[Any]:
        """Outputs of a node, those without a name left out.

        Args:
            node: The `onnx.NodeProto`.
            inputs: A value for each of its inputs; None for an absent one.
            captured: Values that its subgraphs take from outside.

        Raises:
            ModelFailed: onnxruntime cannot compute it.
        """
        feed = {f"input {index}": value for index, value in enumerate(inputs) if value is not None}
        feed |= captured or {}
        key = node.name, tuple(f"{name}:{_kind(value)}" for name, value in feed.items())
        try:
            if key not in self._sessions:
                self._sessions[key] = self._open(node, feed)
            return list(self._sessions[key].run(feed))
        except ModelFailed as error:
            raise ModelFailed(f"Node {node.name!r} ({node.op_type}): {error.what}", fix=error.fix) from error

    def _open(self, node: Any, feed: Mapping[str, Any]) -> Session:
        from onnx import ModelProto

        source = self._model.proto
        proto = ModelProto(ir_version=source.ir_version, opset_import=source.opset_import)
        proto.functions.extend(source.functions)
        alone = proto.graph.node.add()
        alone.CopyFrom(node)
        for index in range(len(alone.input)):
            name = f"input {index}"
            alone.input[index] = name if name in feed else ""
        for name, value in feed.items():
            _declare(proto.graph.input.add(name=name), value)
        outputs = [name for name in node.output if name]
        for name in outputs:
            proto.graph.output.add(name=name)
        model = Model(proto, self._model.path, 0)
        threads = self._threads if node.op_type in _HEAVY or next(subgraphs(node), None) is not None else 1
        return open_session(model, outputs=tap(model, outputs), threads=threads, keep_memory=False)


def _kind(value: Any) -> str:
    if isinstance(value, list):
        return f"[{_kind(value[0])}]" if value else "[float32]"
    return str(np.asarray(value).dtype)


def _declare(info: Any, value: Any) -> None:
    """Give an input the type of a value: a tensor, or a list of tensors."""
    declared = info.type
    while isinstance(value, list):
        declared = declared.sequence_type.elem_type
        value = value[0] if value else np.zeros((), dtype=np.float32)
    array: Array = np.asarray(value)
    kind = by_dtype("string" if array.dtype.kind in "OUS" else array.dtype.name)
    declared.tensor_type.elem_type = kind.number if kind else 0
