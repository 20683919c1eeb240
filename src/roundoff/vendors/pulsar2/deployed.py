"""A model as it is deployed: it receives what the chip is fed, and gives what the chip gives back."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from roundoff.core.tensors import Array, InputSpec
from roundoff.errors import BadInput
from roundoff.graph.load import Model, model_from_proto
from roundoff.graph.nodes import by_dtype, opset_of, rename_captured
from roundoff.messages.message import english
from roundoff.preprocessing.colours import NO_CSC, ColorFormat, Csc, CscMode, conversion_rows
from roundoff.preprocessing.steps import InputProcessing, doubts
from roundoff.samples.arrays import input_error
from roundoff.vendors.pulsar2.config import schema as enums
from roundoff.vendors.pulsar2.config.checks import YUV, InputSettings, ResolvedConfig
from roundoff.vendors.pulsar2.config.schema import DataType, InputProcessor, OutputProcessor

# The steps of an input's processing as ONNX nodes, so that a model can be fed what the chip is fed.

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
        rows = conversion_rows(processing.csc, reverse=processing.model_format == "BGR")
        steps.add("MatMul", _floats(rows[:, :3].T))
        steps.add("Add", _floats(rows[:, 3]))
        steps.add("Max", _floats(0.0))
        steps.add("Min", _floats(_HIGHEST))
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


# An input processor of a configuration as the steps that it stands for.

_CSC: dict[enums.CscMode, CscMode] = {
    enums.CscMode.Matrix: "matrix",
    enums.CscMode.FullRange: "full-range",
    enums.CscMode.LimitedRange: "limited-range",
}
_FORMATS: dict[enums.ColorSpace, ColorFormat] = {
    enums.ColorSpace.GRAY: "GRAY",
    enums.ColorSpace.BGR: "BGR",
    enums.ColorSpace.RGB: "RGB",
    enums.ColorSpace.YUV420SP: "YUV420SP",
    enums.ColorSpace.YVU420SP: "YVU420SP",
    enums.ColorSpace.YUYV422: "YUYV422",
    enums.ColorSpace.UYVY422: "UYVY422",
}


def input_processing(processor: InputProcessor) -> InputProcessing:
    """The steps from what the deployed model receives to what the float model takes.

    RGB and BGR are never exchanged, whatever the two formats say: that is the vendor's rule. A model whose format
    is not given gets BGR from YUV, the order of the vendor's own pictures.

    Raises:
        BadInput: The parts contradict each other.
    """
    yuv = processor.src_format in YUV
    model = _FORMATS.get(processor.tensor_format)
    mode = _CSC.get(processor.csc_mode) if yuv else None
    return InputProcessing(
        source_format=_FORMATS.get(processor.src_format),
        source_layout="NHWC" if yuv or processor.src_layout is enums.PictureLayout.NHWC else "NCHW",
        source_dtype=processor.src_dtype.name,
        model_format="BGR" if yuv and model is None else model,
        model_layout="NHWC" if processor.tensor_layout is enums.PictureLayout.NHWC else "NCHW",
        csc=NO_CSC if mode is None else Csc(mode, processor.csc_mat if mode == "matrix" else ()),
        scale=processor.scale or 1.0,
        # Without a scale the zero point does not count.
        zero_point=processor.zeropoint if processor.scale else 0,
        slicing=processor.slicing,
        padding=processor.padding,
        padding_value=processor.padding_constant_value,
        mean=processor.mean,
        std=processor.std,
    )


_INSIDE = "processed"
_AXES = 4


def deployed_model(model: Model, settled: ResolvedConfig) -> tuple[Model, tuple[str, ...]]:
    """Put the processing of inputs and outputs into a model, float or quantized.

    Inputs and outputs keep their names; what the model itself reads and computes there gets other names.

    Args:
        model: The model; it is not changed.
        settled: What the configuration says about its inputs and outputs.

    Returns:
        The model, the same one when nothing is to be put in; and what was done and what looks wrong.

    Raises:
        BadInput: An input or output cannot be processed so.
    """
    proto = type(model.proto)()
    proto.CopyFrom(model.proto)
    notes: list[str] = []
    changed = False
    for settings in settled.inputs.values():
        changed |= _receive(proto, settings, notes)
    for name, processor in settled.outputs.items():
        changed |= _give_back(proto, name, processor, notes)
    return (model_from_proto(proto, path=model.path) if changed else model), tuple(notes)


def _receive(proto: Any, settings: InputSettings, notes: list[str]) -> bool:
    spec = settings.spec
    processing = input_processing(settings.processor)
    notes += [english("WARNING: {name}: {note}", name=spec.name, note=doubt) for doubt in doubts(processing)]
    if np.dtype(spec.dtype).kind != "f":
        if _differs(processing):
            notes.append(
                english(
                    "{name}: takes {values}; its processing is left out, as it is no picture",
                    name=spec.name,
                    values=spec.describe(),
                )
            )
        return False
    if len(spec.shape or ()) != _AXES and processing.source_layout != processing.model_layout:
        notes.append(
            english(
                "{name}: takes {values}, which has no layout; src_layout is left out",
                name=spec.name,
                values=spec.describe(),
            )
        )
        processing = replace(processing, source_layout=processing.model_layout)
    axes = _source_axes(processing, spec)
    steps = Steps(_free(proto.graph, f"{spec.name}/{_INSIDE}"), opset_of(proto), spec.name)
    processing_steps(processing, [axis if isinstance(axis, int) else 0 for axis in axes], steps)
    if processing.dtype == spec.dtype and not steps.nodes:
        return False
    if spec.dtype != "float32":
        steps.add("Cast", to=_number(spec.dtype))
    _insert_front(proto.graph, spec.name, steps)
    _retype(proto.graph, spec.name, processing.dtype, axes)
    taken = f"{processing.dtype} [{', '.join('?' if axis is None else str(axis) for axis in axes)}]"
    made = ", ".join(node.op_type for node in steps.nodes)
    notes.append(english("{name}: receives {taken}; put in front: {made}", name=spec.name, taken=taken, made=made))
    return True


def _differs(processing: InputProcessing) -> bool:
    return processing != replace(InputProcessing(), model_format=processing.model_format)


def _source_axes(processing: InputProcessing, spec: InputSpec) -> tuple[int | str | None, ...]:
    """Shape of what is received, as far as the input's own is known."""
    if spec.shape is None:
        if _differs(processing):
            what = english(
                "The input {name!r} is of any shape, so its processing cannot be put into the model.",
                name=spec.name,
            )
            raise BadInput(what, fix=english('fix it with "input_shapes": "{name}:1x3x224x224"', name=spec.name))
        return ()
    axes = spec.shape
    if len(axes) != _AXES:
        # Only what does not depend on axes is left; this says so where that is not true.
        processing.apply(np.zeros([axis if isinstance(axis, int) else 1 for axis in axes], np.float32))
        return axes
    if processing.packed_format or processing.slicing or processing.padding:
        sizes = [axis if isinstance(axis, int) else 0 for axis in axes]
        if 0 in sizes[1:]:
            raise input_error(
                spec,
                "The input {name!r} takes {describe}; what it is fed cannot be of free size.",
                fix=english('fix it with "input_shapes": "{name}:1x3x224x224"', name=spec.name),
            )
        found = processing.source_shape((1, *sizes[1:]))
        if min(found) < 1:
            raise BadInput(
                "padding and slicing leave the input {name!r} nothing to receive: {found}.",
                fix=english("give less padding than it takes, {describe}", describe=spec.describe()),
                name=spec.name,
                found=list(found),
            )
        return found if axes[0] == 1 else (axes[0], *found[1:])
    order: tuple[int, ...] = (0, 1, 2, 3)
    if processing.source_layout != processing.model_layout:
        order = (0, 2, 3, 1) if processing.source_layout == "NHWC" else (0, 3, 1, 2)
    return tuple(axes[place] for place in order)


def _insert_front(graph: Any, name: str, steps: Steps) -> None:
    """Let everything that read an input read the end of the chain instead."""
    for node in graph.node:
        _rename_reads(node, {name: steps.last})
    for value in graph.output:
        if value.name == name:
            what = english(
                "The input {name!r} is an output of the model as well; it cannot be processed.", name=name
            )
            raise BadInput(what, fix=english("put an Identity between the two"))
    nodes = [type(node).FromString(node.SerializeToString()) for node in graph.node]
    del graph.node[:]
    graph.node.extend([*steps.constants, *steps.nodes, *nodes])


def _rename_reads(node: Any, names: dict[str, str]) -> None:
    for position, read in enumerate(node.input):
        node.input[position] = names.get(read, read)
    rename_captured(node, names)


def _retype(graph: Any, name: str, dtype: str, axes: Sequence[int | str | None]) -> None:
    value = next(each for each in graph.input if each.name == name)
    value.type.tensor_type.elem_type = _number(dtype)
    shape = value.type.tensor_type.shape
    del shape.dim[:]
    for axis in axes:
        dim = shape.dim.add()
        if isinstance(axis, int):
            dim.dim_value = axis
        elif axis:
            dim.dim_param = axis


def _give_back(proto: Any, name: str, processor: OutputProcessor, notes: list[str]) -> bool:
    value = next(each for each in proto.graph.output if each.name == name)
    rank = len(value.type.tensor_type.shape.dim) if value.type.tensor_type.HasField("shape") else None
    perm = processor.dst_perm
    if rank is not None and perm and len(perm) != rank:
        what = english(
            "output_processors: dst_perm {perm} does not fit the output {name!r}, which has {rank} axes.",
            perm=list(perm),
            name=name,
            rank=rank,
        )
        raise BadInput(what, fix=english("give the order of all {rank} axes", rank=rank))
    inner = _free(proto.graph, f"{name}/{_INSIDE}")
    codes = _codes(proto.graph, name) if processor.output_dtype is DataType.U8 else None
    if processor.output_dtype is DataType.U8 and codes is None:
        notes.append(
            english("{name}: output_dtype U8 is left out: this output has no 8-bit codes here", name=name)
        )
    steps = Steps(_free(proto.graph, f"{name}/given"), opset_of(proto), codes or inner)
    if perm and perm != tuple(range(len(perm))):
        steps.add("Transpose", perm=list(perm))
    elif codes is not None:
        steps.add("Identity")
    if not steps.nodes:
        return False
    _insert_back(proto.graph, name, inner, steps)
    if perm and rank is not None:
        dims = [type(dim).FromString(dim.SerializeToString()) for dim in value.type.tensor_type.shape.dim]
        del value.type.tensor_type.shape.dim[:]
        value.type.tensor_type.shape.dim.extend(dims[axis] for axis in perm)
    if codes is not None:
        value.type.tensor_type.elem_type = _number("uint8")
    made = ", ".join(node.op_type for node in steps.nodes)
    notes.append(english("{name}: put behind: {made}", name=name, made=made))
    return True


def _codes(graph: Any, name: str) -> str | None:
    """The 8-bit codes from which an output is made; None when it is not made from such."""
    node = next((each for each in graph.node if name in each.output), None)
    if node is None or node.op_type != "DequantizeLinear" or len(node.input) < 3:
        return None
    types = {tensor.name: tensor.data_type for tensor in graph.initializer}
    return str(node.input[0]) if types.get(node.input[2]) == _number("uint8") else None


def _number(dtype: str) -> int:
    kind = by_dtype(dtype)
    return kind.number if kind is not None else 1


def _insert_back(graph: Any, name: str, inner: str, steps: Steps) -> None:
    """Let the model compute its output under another name, from which the chain makes the output."""
    for node in graph.node:
        _rename_reads(node, {name: inner})
        for position, made in enumerate(node.output):
            node.output[position] = inner if made == name else made
    if all(inner not in node.output for node in graph.node):
        what = english("The output {name!r} is an input or a constant; it cannot be processed.", name=name)
        raise BadInput(what, fix=english("put an Identity before it"))
    steps.nodes[-1].output[0] = name
    graph.node.extend([*steps.constants, *steps.nodes])


def _free(graph: Any, wanted: str) -> str:
    """A name that nothing in the graph begins with."""
    taken = {name for node in graph.node for name in (node.name, *node.input, *node.output)}
    while any(name.startswith(wanted) for name in taken):
        wanted += "_"
    return wanted
