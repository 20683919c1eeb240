"""Changes that a configuration makes to the float model before it is quantized: shapes, constants, attributes."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from roundoff.core.array_files import Unreadable, map_npy
from roundoff.core.files import read_small, reading
from roundoff.core.names import shown
from roundoff.core.tensors import Array, DType
from roundoff.errors import BadInput, nearest
from roundoff.graph.interface import inputs
from roundoff.graph.load import Model, model_from_proto
from roundoff.graph.weights import Weights
from roundoff.messages.message import english
from roundoff.vendors.pulsar2.config.document import (
    ConfigProblem,
    Document,
    located,
    parse_input_shapes,
    problem_of,
    refuse,
)
from roundoff.vendors.pulsar2.config.schema import BuildConfig, ConstProcessor

# New attributes for an operation of a model, of the types that its definition demands.

_INT64, _FLOAT32 = 2**63, float.fromhex("0x1.fffffep+127")


def patched_attribute(node: Any, name: str, value: Any, *, opset: int, where: str) -> Any:
    """An attribute with a new value.

    Args:
        node: The operation.
        name: The attribute.
        value: Its new value: a number, a text, or a list of them.
        opset: Version of the operators in the node's domain.
        where: What to call it in messages.

    Returns:
        An `onnx.AttributeProto`.

    Raises:
        BadInput: The operation has no such attribute, or it takes another type.
    """
    from onnx import AttributeProto

    # The type of an attribute: that of the definition, or what the node has where there is none.
    from onnx.defs import SchemaError, get_schema
    from onnx.helper import make_attribute

    has = {attribute.name: attribute.type for attribute in node.attribute}
    try:
        schema = get_schema(node.op_type, opset, node.domain)
        known = {key: each.type.value for key, each in schema.attributes.items()}
    except SchemaError:
        known = has
    if name not in known:
        fix = nearest(name, known) if known else english("{op_type} has no attributes", op_type=node.op_type)
        raise BadInput(english("{where}: there is no attribute {name!r}.", where=where, name=name), fix=fix)
    kind = int(known[name])
    expected = {
        AttributeProto.INT: ("a whole number of 64 bits", _whole),
        AttributeProto.FLOAT: ("a number of 32 bits", _number),
        AttributeProto.STRING: ("a text", _text),
        AttributeProto.INTS: ("a list of whole numbers of 64 bits", _list_of(_whole)),
        AttributeProto.FLOATS: ("a list of numbers of 32 bits", _list_of(_number)),
        AttributeProto.STRINGS: ("a list of texts", _list_of(_text)),
    }
    if kind not in expected:
        what = english(
            "{where}: {name!r} is a tensor or a graph, which cannot be given here.", where=where, name=name
        )
        raise BadInput(what, fix=english("replace constants with const_processors"))
    words, read = expected[kind]
    content = read(value)
    if content is None:
        raise BadInput(
            "{where}: {name!r} takes {words}, not {value!r:.60}.",
            fix=english("give {words}", words=words),
            where=where,
            name=name,
            words=words,
            value=value,
        )
    return make_attribute(name, content, attr_type=kind)


def _whole(value: Any) -> int | None:
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    return int(value) if isinstance(value, int) and abs(value) < _INT64 else None


def _number(value: Any) -> float | None:
    plain = isinstance(value, int | float) and not isinstance(value, bool)
    return float(value) if plain and abs(value) <= _FLOAT32 else None


def _text(value: Any) -> str | None:
    return value if isinstance(value, str) else None


def _list_of(read: Any) -> Any:
    def values(value: Any) -> list[Any] | None:
        found = [read(each) for each in value] if isinstance(value, list) else [None]
        return None if None in found else found

    return values


# New values for a constant of a model, from the configuration or from a file.

_SUFFIXES = (".bin", ".npy", ".txt")


def new_constant(processor: ConstProcessor, model: Model, *, base: Path | None) -> Array:
    """The values that a constant gets; type and shape stay.

    Args:
        processor: What the configuration says.
        model: The model that has the constant.
        base: Where relative paths are looked for besides the current folder.

    Raises:
        BadInput: There are more or fewer values, or one that the type cannot hold.
    """
    name = processor.name
    had = Weights(model)[name]
    if processor.data and processor.data_path:
        what = english(
            "const_processors: {name!r} has both data and data_path ({data_path}).",
            name=name,
            data_path=processor.data_path,
        )
        raise BadInput(what, fix=english("keep one of them"))
    given = (
        _from_file(processor.data_path, had.dtype, base, name=name)
        if processor.data_path
        else np.asarray(processor.data, np.float64)
    )
    where = processor.data_path or "data"
    if given.size != had.size:
        what = english(
            "const_processors: {name!r} holds {name2} {shape}, {size} values in all",
            name=name,
            name2=had.dtype.name,
            shape=list(had.shape),
            size=had.size,
        )
        raise BadInput(
            english("{what}, but {where} has {size}.", what=what, where=where, size=given.size),
            fix=english("give {size} values", size=had.size),
        )
    return _converted(given, had.dtype, english("const_processors: {name!r}", name=name)).reshape(had.shape)


def _converted(given: Array, dtype: DType, where: str) -> Array:
    """Values in another type: whole numbers exactly, floats rounded."""
    if dtype.kind not in "iufb":
        raise BadInput(
            english("{where} holds {name}, which cannot be replaced by numbers.", where=where, name=dtype.name),
            fix=english("leave it out"),
        )
    with np.errstate(over="ignore", invalid="ignore"):
        result = given.astype(dtype)
        lost = result != given if dtype.kind in "iub" else np.isinf(result) != np.isinf(given)
    if np.any(lost):
        what = english(
            "{where} is of {name}, which cannot hold {flat}.",
            where=where,
            name=dtype.name,
            flat=given[np.asarray(lost)].flat[0],
        )
        raise BadInput(what, fix=english("give values of that type"))
    return result


def _from_file(given: str, dtype: DType, base: Path | None, *, name: str) -> Array:
    path = located(given, base, what=english("The file of a constant"))
    if path.suffix.lower() not in _SUFFIXES:
        what = english(
            "const_processors: {name!r} is to come from {path}, which is of no known kind.",
            name=name,
            path=shown(path),
        )
        raise BadInput(what, fix=english("give a file that ends in {suffixes}", suffixes=", ".join(_SUFFIXES)))
    if path.suffix.lower() == ".npy":
        return _npy(path)
    content = read_small(path, what=english("The file of a constant"))
    if path.suffix.lower() == ".txt":
        words = content.decode("utf-8", "replace").replace(",", " ").split()
        try:
            return np.array([float(word) for word in words], np.float64)
        except ValueError as error:
            raise BadInput(
                english("{path} holds something that is no number: {error}.", path=shown(path), error=error),
                fix=english("write numbers"),
            ) from error
    if len(content) % dtype.itemsize:
        what = english(
            "{path} has {count} bytes, which are no whole number of {name}.",
            path=shown(path),
            count=len(content),
            name=dtype.name,
        )
        raise BadInput(what, fix=english("write it as raw little-endian values of that type"))
    return np.frombuffer(content, dtype.newbyteorder("<"))


def _npy(path: Path) -> Array:
    try:
        with reading(path, what=english("The file of a constant")):
            return map_npy(path)
    except Unreadable as error:
        raise BadInput("{path} {problem}.", fix=error.fix, path=shown(path), problem=error.problem) from error


def edited_model(model: Model, config: BuildConfig, *, base: Path | None = None) -> tuple[Model, tuple[str, ...]]:
    """Apply ``input_shapes``, ``const_processors`` and ``op_processors``.

    Args:
        model: The float model; it is not changed.
        config: The configuration.
        base: Where relative paths are looked for besides the current folder: that of the configuration.

    Returns:
        The changed model, the same one when there is nothing to change; and what was done, a sentence each.

    Raises:
        BadInput: The model has no such input, constant or operation, or the new value does not fit.
    """
    shapes, _ = parse_input_shapes(config.input_shapes)
    if not (shapes or config.const_processors or config.op_processors):
        return model, ()
    refuse(Document("The configuration", {}), edit_problems(model, config, base=base))
    proto = type(model.proto)()
    proto.CopyFrom(model.proto)
    notes = [
        *_reshape_inputs(proto.graph, model, shapes),
        *_replace_constants(proto.graph, model, config, base),
        *_patch_nodes(proto, config),
    ]
    # Shapes that the file declares may not be true any more; those of outputs are found anew where possible.
    del proto.graph.value_info[:]
    for value in proto.graph.output:
        if value.type.HasField("tensor_type"):
            value.type.tensor_type.ClearField("shape")
    return model_from_proto(proto, path=model.path), tuple(notes)


def edit_problems(model: Model, config: BuildConfig, *, base: Path | None = None) -> list[ConfigProblem]:
    """What of ``input_shapes``, ``const_processors`` and ``op_processors`` does not fit the model."""
    return [
        *_shape_problems(model, parse_input_shapes(config.input_shapes)[0]),
        *_constant_problems(model, config, base),
        *_node_problems(model, config),
    ]


def _shape_problems(model: Model, shapes: dict[str, tuple[int, ...]]) -> Iterator[ConfigProblem]:
    specs = {spec.name: spec for spec in inputs(model)}
    for name, shape in shapes.items():
        if name not in specs:
            yield ConfigProblem(("input_shapes",), f"the model has no input {name!r}; {nearest(name, specs)}")
            continue
        had = specs[name].shape
        if had is not None and len(had) != len(shape):
            what = f"{name!r} takes {specs[name].describe()}, of {len(had)} axes, not {len(shape)}"
            yield ConfigProblem(("input_shapes",), f"{what}; give a size for every axis, as in 1x3x224x224")


def _constant_problems(model: Model, config: BuildConfig, base: Path | None) -> Iterator[ConfigProblem]:
    graph = model.proto.graph
    known = [tensor.name for tensor in graph.initializer]
    known += [node.output[0] for node in graph.node if node.op_type == "Constant"]
    for index, processor in enumerate(config.const_processors):
        place = ("const_processors", index)
        if processor.name not in known:
            what = f"the model has no constant {processor.name!r}; {nearest(processor.name, known)}"
            yield ConfigProblem((*place, "name"), what)
        elif processor.data or processor.data_path:
            try:
                new_constant(processor, model, base=base)
            except BadInput as error:
                yield problem_of(place, error, called="const_processors:")


def _node_problems(model: Model, config: BuildConfig) -> Iterator[ConfigProblem]:
    nodes = {node.name: node for node in model.proto.graph.node}
    for index, processor in enumerate(config.op_processors):
        place = ("op_processors", index)
        if processor.op_name not in nodes:
            what = f"the model has no operation {processor.op_name!r}; {nearest(processor.op_name, nodes)}"
            yield ConfigProblem((*place, "op_name"), what)
            continue
        node = nodes[processor.op_name]
        for name, value in processor.attrs.items():
            where = f"{node.name} ({node.op_type})"
            try:
                patched_attribute(node, name, value, opset=_opset(model.proto, node), where=where)
            except BadInput as error:
                yield problem_of((*place, "attrs"), error)


def _opset(proto: Any, node: Any) -> int:
    return next((int(entry.version) for entry in proto.opset_import if entry.domain == node.domain), 1)


def _reshape_inputs(graph: Any, model: Model, shapes: dict[str, tuple[int, ...]]) -> list[str]:
    specs = {spec.name: spec for spec in inputs(model)}
    for name, shape in shapes.items():
        value = next(each for each in graph.input if each.name == name)
        axes = value.type.tensor_type.shape
        del axes.dim[:]
        for size in shape:
            axes.dim.add().dim_value = size
        # An input without axes is a scalar, not one of unknown shape.
        axes.SetInParent()
    return [f"input {name}: {specs[name].describe()} becomes {list(shape)}" for name, shape in shapes.items()]


def _replace_constants(graph: Any, model: Model, config: BuildConfig, base: Path | None) -> list[str]:
    from onnx.numpy_helper import from_array

    held = {tensor.name: tensor for tensor in graph.initializer}
    nodes = {node.output[0]: node for node in graph.node if node.op_type == "Constant"}
    notes = []
    for processor in config.const_processors:
        name = processor.name
        array = new_constant(processor, model, base=base)
        if name in held:
            held[name].CopyFrom(from_array(array, name))
        else:
            del nodes[name].attribute[:]
            nodes[name].attribute.add(name="value", type=_tensor_type()).t.CopyFrom(from_array(array, name))
        notes.append(
            english("constant {name}: {count} {count:value|values} replaced", name=name, count=array.size)
        )
    return notes


def _tensor_type() -> Any:
    from onnx import AttributeProto

    return AttributeProto.TENSOR


def _patch_nodes(proto: Any, config: BuildConfig) -> list[str]:
    nodes = {node.name: node for node in proto.graph.node}
    notes = []
    for processor in config.op_processors:
        node = nodes[processor.op_name]
        for name, value in processor.attrs.items():
            where = f"{node.name} ({node.op_type})"
            fresh = patched_attribute(node, name, value, opset=_opset(proto, node), where=where)
            kept = [attribute for attribute in node.attribute if attribute.name != name]
            copies = [type(fresh).FromString(each.SerializeToString()) for each in kept]
            del node.attribute[:]
            node.attribute.extend([*copies, fresh])
            notes.append(english("operation {where}: {name} becomes {value}", where=where, name=name, value=value))
    return notes
