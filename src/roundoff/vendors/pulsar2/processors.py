"""Changes that a configuration makes to the float model before it is quantized: shapes, constants, attributes."""

from pathlib import Path
from typing import Any

from roundoff.core.wording import counted
from roundoff.errors import BadInput, nearest
from roundoff.graph.interface import inputs
from roundoff.graph.load import Model, model_from_proto
from roundoff.vendors.pulsar2.attribute_patches import patched_attribute
from roundoff.vendors.pulsar2.config.input_shapes import parse_input_shapes
from roundoff.vendors.pulsar2.config.schema import BuildConfig
from roundoff.vendors.pulsar2.constant_patches import new_constant

__all__ = ["edited_model"]


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
    proto = type(model.proto)()
    proto.CopyFrom(model.proto)
    notes = [
        *_reshape_inputs(proto.graph, model, shapes),
        *_replace_constants(proto.graph, model, config, base),
        *_patch_nodes(proto, model, config),
    ]
    _forget_shapes(proto)
    return model_from_proto(proto, path=model.path), tuple(notes)


def _reshape_inputs(graph: Any, model: Model, shapes: dict[str, tuple[int, ...]]) -> list[str]:
    specs = {spec.name: spec for spec in inputs(model)}
    notes = []
    for name, shape in shapes.items():
        if name not in specs:
            raise BadInput(f"input_shapes: the model has no input {name!r}.", fix=nearest(name, specs))
        had = specs[name].shape
        if had is not None and len(had) != len(shape):
            what = f"input_shapes: {name!r} takes {specs[name].describe()}, of {len(had)} axes, not {len(shape)}."
            raise BadInput(what, fix="give a size for every axis, as in 1x3x224x224")
        value = next(each for each in graph.input if each.name == name)
        _set_shape(value, shape)
        notes.append(f"input {name}: {specs[name].describe()} becomes {list(shape)}")
    return notes


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
    for index, processor in enumerate(config.const_processors):
        name = processor.name
        if name not in held and name not in nodes:
            what = f"const_processors[{index}]: the model has no constant {name!r}."
            raise BadInput(what, fix=nearest(name, [*held, *nodes]))
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


def _patch_nodes(proto: Any, model: Model, config: BuildConfig) -> list[str]:
    nodes = {node.name: node for node in proto.graph.node}
    versions = {entry.domain: entry.version for entry in proto.opset_import}
    notes = []
    for index, processor in enumerate(config.op_processors):
        node = nodes.get(processor.op_name)
        if node is None:
            what = f"op_processors[{index}]: {model.path} has no operation {processor.op_name!r}."
            raise BadInput(what, fix=nearest(processor.op_name, nodes))
        for name, value in processor.attrs.items():
            where = f"op_processors[{index}] ({node.name}, {node.op_type})"
            fresh = patched_attribute(node, name, value, opset=versions.get(node.domain, 1), where=where)
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
