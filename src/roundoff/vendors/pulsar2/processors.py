"""Changes that a configuration makes to the float model before it is quantized: shapes, constants, attributes."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from roundoff.core.wording import counted
from roundoff.errors import BadInput, nearest
from roundoff.graph.interface import inputs
from roundoff.graph.load import Model, model_from_proto
from roundoff.vendors.pulsar2.attribute_patches import patched_attribute
from roundoff.vendors.pulsar2.config.documents import Document, Problem, problem_of, refuse
from roundoff.vendors.pulsar2.config.input_shapes import parse_input_shapes
from roundoff.vendors.pulsar2.config.schema import BuildConfig
from roundoff.vendors.pulsar2.constant_patches import new_constant

__all__ = ["edit_problems", "edited_model"]


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
    _forget_shapes(proto)
    return model_from_proto(proto, path=model.path), tuple(notes)


def edit_problems(model: Model, config: BuildConfig, *, base: Path | None = None) -> list[Problem]:
    """What of ``input_shapes``, ``const_processors`` and ``op_processors`` does not fit the model."""
    return [
        *_shape_problems(model, parse_input_shapes(config.input_shapes)[0]),
        *_constant_problems(model, config, base),
        *_node_problems(model, config),
    ]


def _shape_problems(model: Model, shapes: dict[str, tuple[int, ...]]) -> Iterator[Problem]:
    specs = {spec.name: spec for spec in inputs(model)}
    for name, shape in shapes.items():
        if name not in specs:
            yield Problem(("input_shapes",), f"the model has no input {name!r}; {nearest(name, specs)}")
            continue
        had = specs[name].shape
        if had is not None and len(had) != len(shape):
            what = f"{name!r} takes {specs[name].describe()}, of {len(had)} axes, not {len(shape)}"
            yield Problem(("input_shapes",), f"{what}; give a size for every axis, as in 1x3x224x224")


def _constant_problems(model: Model, config: BuildConfig, base: Path | None) -> Iterator[Problem]:
    graph = model.proto.graph
    known = [tensor.name for tensor in graph.initializer]
    known += [node.output[0] for node in graph.node if node.op_type == "Constant"]
    for index, processor in enumerate(config.const_processors):
        place = ("const_processors", index)
        if processor.name not in known:
            what = f"the model has no constant {processor.name!r}; {nearest(processor.name, known)}"
            yield Problem((*place, "name"), what)
        elif processor.data or processor.data_path:
            try:
                new_constant(processor, model, base=base)
            except BadInput as error:
                yield problem_of(place, error, called="const_processors:")


def _node_problems(model: Model, config: BuildConfig) -> Iterator[Problem]:
    nodes = {node.name: node for node in model.proto.graph.node}
    for index, processor in enumerate(config.op_processors):
        place = ("op_processors", index)
        if processor.op_name not in nodes:
            what = f"the model has no operation {processor.op_name!r}; {nearest(processor.op_name, nodes)}"
            yield Problem((*place, "op_name"), what)
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
        _set_shape(next(each for each in graph.input if each.name == name), shape)
    return [f"input {name}: {specs[name].describe()} becomes {list(shape)}" for name, shape in shapes.items()]


def _set_shape(value: Any, shape: tuple[int, ...]) -> None:
    axes = value.type.tensor_type.shape
    del axes.dim[:]
    for size in shape:
        axes.dim.add().dim_value = size
    # An input without axes is a scalar, not one of unknown shape.
    axes.SetInParent()


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
        notes.append(f"constant {name}: {counted(array.size, 'value')} replaced")
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
            notes.append(f"operation {node.name} ({node.op_type}): {name} becomes {value}")
    return notes


def _forget_shapes(proto: Any) -> None:
    """Shapes that the file declares may not be true any more; those of outputs are found anew where possible."""
    del proto.graph.value_info[:]
    for value in proto.graph.output:
        if value.type.HasField("tensor_type"):
            value.type.tensor_type.ClearField("shape")
