"""Networks as converters write them: other names, constants as nodes, shapes that are computed, axes left open."""

import re
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import numpy as np
from onnx import GraphProto, NodeProto, helper, numpy_helper

from benchmarks.planted.families.kit import Built
from roundoff.graph.load import Model, model_from_proto

Build = Callable[[np.random.Generator], Built]


def as_pytorch(build: Build) -> Build:
    """A family as PyTorch exports it: Shape, Gather of a scalar and Concat before each Reshape, a batch axis."""
    return lambda rng: _rewritten(build(rng), _pytorch)


def as_paddle(build: Build) -> Build:
    """A family as Paddle exports it: every constant a node, names of Paddle, axes called ``?``."""
    return lambda rng: _rewritten(build(rng), _paddle)


def _rewritten(built: Built, change: Callable[[GraphProto], None]) -> Built:
    proto = type(built.model.proto)()
    proto.CopyFrom(built.model.proto)
    change(proto.graph)
    model: Model = model_from_proto(proto, path=built.model.path)
    return replace(built, model=model)


def _constant(name: str, values: Any) -> NodeProto:
    value = numpy_helper.from_array(np.asarray(values))
    return helper.make_node("Constant", [], [name], name=f"{name}/Constant", value=value)


def _pytorch(graph: GraphProto) -> None:
    held = {each.name: numpy_helper.to_array(each) for each in graph.initializer}
    nodes = list(graph.node)
    graph.ClearField("node")
    for node in nodes:
        if node.op_type in ("Flatten", "Reshape"):
            rest = [-1] if node.op_type == "Flatten" else held[node.input[1]].tolist()[1:]
            graph.node.extend(_computed_reshape(node, rest))
            continue
        for index, name in enumerate(node.input):
            if name in held and held[name].size <= 1:
                graph.node.append(_constant(f"{node.name}/const{index}", held[name]))
                node.input[index] = graph.node[-1].output[0]
        graph.node.append(node)
    _rename(graph, lambda node: f"/{node.name.replace('.', '_')}/{node.op_type}", "{}_output_{}")
    _drop_unread(graph)
    for value in (*graph.input, *graph.output):
        value.type.tensor_type.shape.dim[0].dim_param = "batch_size"


def _computed_reshape(node: NodeProto, rest: list[int]) -> Iterator[NodeProto]:
    """The batch is asked of the tensor at run time; what does not change is written down."""
    name, x = node.name, node.input[0]
    yield helper.make_node("Shape", [x], [f"{name}/shape"], name=f"{name}/shape")
    yield _constant(f"{name}/zero", np.int64(0))
    yield helper.make_node(
        "Gather", [f"{name}/shape", f"{name}/zero"], [f"{name}/batch"], name=f"{name}/batch", axis=0
    )
    parts = []
    for index, size in enumerate([None, *rest]):
        scalar = f"{name}/batch" if size is None else f"{name}/size{index}"
        if size is not None:
            if size == 0:
                yield _constant(f"{scalar}/at", np.int64(index))
                yield helper.make_node("Gather", [f"{name}/shape", f"{scalar}/at"], [scalar], name=scalar, axis=0)
            else:
                yield _constant(scalar, np.int64(size))
        yield _constant(f"{name}/axis{index}", np.array([0], np.int64))
        parts.append(f"{name}/part{index}")
        yield helper.make_node("Unsqueeze", [scalar, f"{name}/axis{index}"], [parts[-1]], name=parts[-1])
    yield helper.make_node("Concat", parts, [f"{name}/sizes"], name=f"{name}/sizes", axis=0)
    yield helper.make_node("Reshape", [x, f"{name}/sizes"], list(node.output), name=name)


def _paddle(graph: GraphProto) -> None:
    constants = [_constant(each.name, numpy_helper.to_array(each)) for each in graph.initializer]
    nodes = [*constants, *graph.node]
    graph.ClearField("node")
    graph.ClearField("initializer")
    graph.node.extend(nodes)
    numbers: dict[str, int] = {}

    def named(node: NodeProto) -> str:
        numbers[node.op_type] = numbers.get(node.op_type, -1) + 1
        return f"p2o.{node.op_type}.{numbers[node.op_type]}"

    _rename(graph, named, "{}.tmp_{}", keep=frozenset(node.output[0] for node in constants))
    for value in (*graph.input, *graph.output):
        for at, axis in enumerate(value.type.tensor_type.shape.dim):
            if at == 0:
                axis.dim_value = -1
            elif at >= 2:
                axis.dim_param = "?"


def _rename(
    graph: GraphProto, named: Callable[[NodeProto], str], result: str, *, keep: frozenset[str] = frozenset()
) -> None:
    """Give nodes and what they compute the names of a converter; inputs of the network keep theirs."""
    tensors: dict[str, str] = {}
    for node in graph.node:
        node.name = named(node)
        for index, name in enumerate(node.output):
            if name not in keep:
                tensors[name] = result.format(re.sub(r"\s", "_", node.name), index)
    for node in graph.node:
        node.input[:] = [tensors.get(name, name) for name in node.input]
        node.output[:] = [tensors.get(name, name) for name in node.output]
    for value in graph.output:
        value.name = tensors.get(value.name, value.name)


def _drop_unread(graph: GraphProto) -> None:
    read = {name for node in graph.node for name in node.input}
    kept = [each for each in graph.initializer if each.name in read]
    graph.ClearField("initializer")
    graph.initializer.extend(kept)
