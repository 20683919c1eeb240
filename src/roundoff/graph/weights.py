"""Reading the constants of a model, wherever they are kept, one at a time."""

from collections.abc import Iterator, Mapping
from functools import cached_property
from typing import Any

import numpy as np

from roundoff.core.tensors import Array
from roundoff.errors import BadInput, nearest
from roundoff.graph.load import Model

__all__ = ["Weights", "constant_value"]


class Weights(Mapping[str, Array]):
    """The constants of a model's main graph by name: initializers and the outputs of Constant nodes.

    Values are read when asked for and not kept; types that numpy does not have come as those of ml_dtypes.
    """

    def __init__(self, model: Model) -> None:
        self._model = model

    @cached_property
    def protos(self) -> dict[str, Any]:
        """The `onnx.TensorProto` or the Constant node that holds each value."""
        graph = self._model.proto.graph
        found: dict[str, Any] = {node.output[0]: node for node in graph.node if node.op_type == "Constant"}
        return found | {tensor.name: tensor for tensor in graph.initializer}

    def __getitem__(self, name: str) -> Array:
        """Values of one constant.

        Raises:
            KeyError: There is none of that name.
            BadInput: Its data cannot be read.
        """
        return constant_value(self.protos[name], self._model)

    def __iter__(self) -> Iterator[str]:
        return iter(self.protos)

    def __len__(self) -> int:
        return len(self.protos)

    def require(self, name: str) -> Array:
        """Values of one constant.

        Raises:
            BadInput: There is none of that name, or its data cannot be read.
        """
        if name not in self.protos:
            raise BadInput(f"{self._model.path} has no constant {name!r}.", fix=nearest(name, self.protos))
        return self[name]


def constant_value(holder: Any, model: Model) -> Array:
    """The value of an `onnx.TensorProto` or of a Constant node.

    Raises:
        BadInput: Its data cannot be read.
    """
    from onnx.helper import get_attribute_value
    from onnx.numpy_helper import to_array

    name = holder.output[0] if hasattr(holder, "op_type") else holder.name
    try:
        if not hasattr(holder, "op_type"):
            return np.asarray(to_array(holder, base_dir=str(model.folder)))
        attribute = holder.attribute[0]
        if attribute.HasField("t"):
            return np.asarray(to_array(attribute.t, base_dir=str(model.folder)))
        kinds = {
            "value_int": np.int64,
            "value_ints": np.int64,
            "value_float": np.float32,
            "value_floats": np.float32,
        }
        return np.asarray(get_attribute_value(attribute), dtype=kinds.get(attribute.name))
    except (ValueError, TypeError, OSError, IndexError, RuntimeError) as error:
        what = f"The values of {name!r} in {model.path} cannot be read: {error}."
        raise BadInput(what, fix="check the model with onnx.checker.check_model, and export it again") from error
