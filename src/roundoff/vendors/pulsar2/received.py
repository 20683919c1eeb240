"""The steps of an input's processing as ONNX nodes, so that a model can be fed what the chip is fed."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from roundoff.core.tensors import Array
from roundoff.data.processing import InputProcessing
from roundoff.data.processing.csc import conversion_rows

__all__ = ["Steps", "processing_steps"]

_PADS_AS_INPUT = 11
_HIGHEST = 255.0
_GATHERED = {"YUYV422": ((0, 2), (1, 3)), "UYVY422": ((1, 3), (0, 2))}


@dataclass(slots=True)
class Steps:
    """A chain of nodes under way.

    Attributes:
        prefix: What the names of its tensors and nodes begin with.
        opset: Version of the standard operators.
        last: The tensor that the chain has come to.
        nodes: Its nodes.
        constants: The nodes that hold its constants.
    """

    prefix: str
    opset: int
    last: str
    nodes: list[Any] = field(default_factory=list)
    constants: list[Any] = field(default_factory=list)

    def add(self, op_type: str, *operands: Array, start: Sequence[str] = (), **attributes: Any) -> str:
        """Add a node that reads the last tensor (or those of `start`) and constants, and becomes the last."""
        from onnx.helper import make_node

        name = f"{self.prefix}/{op_type}_{len(self.nodes)}"
        read = [*(start or (self.last,)), *(self._constant(operand) for operand in operands)]
        self.nodes.append(make_node(op_type, read, [f"{name}_output"], name=name, **attributes))
        self.last = f"{name}_output"
        return self.last

    def _constant(self, values: Array) -> str:
        from onnx.helper import make_node
        from onnx.numpy_helper import from_array

        # Nodes, as in old models initializers would have to be inputs too.
        name = f"{self.prefix}/constant_{len(self.constants)}"
        self.constants.append(make_node("Constant", [], [name], name=name, value=from_array(values)))
        return name


def processing_steps(processing: InputProcessing, shape: Sequence[int], steps: Steps) -> None:
    """Add what `InputProcessing.apply` does, in the same order, in float32.

    Args:
        processing: The processing.
        shape: Shape of what is received; only axes behind the first matter.
        steps: Takes the nodes.
    """
    if processing.source_dtype != "FP32":
        steps.add("Cast", to=_float_number())
    if processing.zero_point:
        steps.add("Sub", _floats(processing.zero_point))
    if processing.scale != 1.0:
        steps.add("Mul", _floats(processing.scale))
    last = processing.source_layout == "NHWC" or processing.packed_format is not None
    if processing.packed_format is not None:
        _unpack(processing.packed_format, shape, steps)
        _convert_colours(processing, steps)
    _cut_and_pad(processing, shape, steps)
    _normalize(processing, steps, last=last and len(shape) == 4, rank=len(shape))
    if len(shape) == 4 and last != (processing.model_layout == "NHWC"):
        steps.add("Transpose", perm=[0, 3, 1, 2] if last else [0, 2, 3, 1])


def _unpack(color: str, shape: Sequence[int], steps: Steps) -> None:
    """Packed YUV as [N, height, width, 3]; each chroma value is repeated for the pixels that share it."""
    source = steps.last
    _, rows, width, _ = shape
    if color in _GATHERED:
        height, high = rows, 1
        lumas, chromas = _GATHERED[color]
        quads = steps.add("Reshape", _sizes(0, height, width // 2, 4))
        steps.add("Gather", _sizes(*lumas), axis=3)
        luma = steps.add("Reshape", _sizes(0, height, width, 1))
        steps.add("Gather", _sizes(*chromas), start=(quads,), axis=3)
    else:
        height, high = rows * 2 // 3, 2
        luma = steps.add("Gather", np.arange(height), axis=1)
        steps.add("Gather", np.arange(height, rows), start=(source,), axis=1)
        steps.add("Reshape", _sizes(0, height // 2, width // 2, 2))
        if color == "YVU420SP":
            steps.add("Gather", _sizes(1, 0), axis=3)
    steps.add("Reshape", _sizes(0, height // high, 1, width // 2, 1, 2))
    steps.add("Tile", _sizes(1, 1, high, 1, 2, 1))
    chroma = steps.add("Reshape", _sizes(0, height, width, 2))
    steps.add("Concat", start=(luma, chroma), axis=3)


def _convert_colours(processing: InputProcessing, steps: Steps) -> None:
    rows = conversion_rows(processing.csc, reverse=processing.model_format == "BGR")
    steps.add("MatMul", _floats(rows[:, :3].T))
    steps.add("Add", _floats(rows[:, 3]))
    steps.add("Max", _floats(0.0))
    steps.add("Min", _floats(_HIGHEST))


def _cut_and_pad(processing: InputProcessing, shape: Sequence[int], steps: Steps) -> None:
    sizes = list(shape)
    if processing.packed_format is not None:
        height = shape[1] if processing.packed_format in _GATHERED else shape[1] * 2 // 3
        sizes = [shape[0], height, shape[2], 3]
    for axis, (begin, end) in enumerate(_pairs(processing.slicing)):
        if begin or end:
            steps.add("Gather", np.arange(begin, sizes[axis] - end), axis=axis)
    pads = _pairs(processing.padding)
    if any(map(any, pads)):
        ends = [begin for begin, _ in pads] + [end for _, end in pads]
        value = float(processing.padding_value)
        if steps.opset < _PADS_AS_INPUT:
            steps.add("Pad", mode="constant", pads=ends, value=value)
        else:
            steps.add("Pad", _sizes(*ends), _floats(value), mode="constant")


def _pairs(numbers: Sequence[int]) -> list[tuple[int, int]]:
    return list(zip(numbers[::2], numbers[1::2], strict=True))


def _normalize(processing: InputProcessing, steps: Steps, *, last: bool, rank: int) -> None:
    for operation, numbers, neutral in (("Sub", processing.mean, 0.0), ("Div", processing.std, 1.0)):
        if all(number == neutral for number in numbers):
            continue
        values = _floats(numbers if len(numbers) > 1 else numbers[0])
        # Channels stand in front of height and width unless they come last.
        steps.add(operation, values.reshape(-1, 1, 1) if values.ndim and rank == 4 and not last else values)


def _sizes(*sizes: int) -> Array:
    return np.array(sizes, np.int64)


def _floats(values: Any) -> Array:
    return np.asarray(values, np.float32)


def _float_number() -> int:
    from onnx import TensorProto

    return int(TensorProto.FLOAT)
