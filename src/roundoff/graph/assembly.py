"""An ONNX graph that grows node by node, for doors into it: names that nobody has, constants, nodes."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from roundoff.core.tensors import Array
from roundoff.graph.nodes import make_model

_OPSET, _IR = 17, 8


class GraphAssembly:
    """Nodes and constants so far."""

    def __init__(self) -> None:
        self.nodes: list[Any] = []
        self.initializers: dict[str, Any] = {}
        self._used: set[str] = set()

    def free(self, name: str) -> str:
        """A name that nobody has: this one, or one like it."""
        found, number = name, 1
        while found in self._used:
            number += 1
            found = f"{name}_{number}"
        self._used.add(found)
        return found

    def constant(self, values: Array, name: str) -> str:
        """A constant; its name."""
        from onnx import numpy_helper

        found = self.free(name)
        self.initializers[found] = numpy_helper.from_array(np.ascontiguousarray(values), found)
        return found

    def add(self, op_type: str, inputs: Sequence[str], output: str, **attributes: Any) -> str:
        """A node, named after what it gives; that name, which must be free."""
        from onnx import helper

        self.nodes.append(helper.make_node(op_type, list(inputs), [output], name=output, **attributes))
        return output

    def finished(self, name: str, entering: Sequence[Any], leaving: Sequence[Any]) -> Any:
        """The model."""
        from onnx import helper

        graph = helper.make_graph(self.nodes, name, entering, leaving, list(self.initializers.values()))
        return make_model(graph, opset=_OPSET, ir_version=_IR)
