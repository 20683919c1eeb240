"""Other forms of layers: a bias of zeros, matrices as rows of blocks, what toolchains make of sums and means."""

from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import numpy as np

from roundoff.core.target import Target
from roundoff.core.tensors import Array
from roundoff.graph.block_weights import split_weights
from roundoff.graph.draft import Assembly, CannotFold, Draft, change_constants
from roundoff.graph.load import Model, inside_bytes
from roundoff.graph.nodes import attribute
from roundoff.graph.preparation.affine import linear_layer
from roundoff.graph.save import drop_unused
from roundoff.graph.shapes import values
from roundoff.graph.weights import tensor_dtype
from roundoff.messages.message import message
from roundoff.quantize.step_report import Participation
from roundoff.quantize.steps import StepOption, StepOutcome, Transformed, TransformJob, transform

_WEIGHT, _BIAS = 1, 2


@transform("explicit_bias")
def explicit_bias(job: TransformJob) -> Transformed:
    """Give layers without a bias one of zeros, where bias correction can put its numbers."""
    draft = Draft(job.model)
    taken = []
    for node, channels in _bare_layers(draft):
        if not job.nodes or node.name in job.nodes:
            bias = draft.free_tensor(f"{node.name}_bias")
            draft.set_constant(bias, np.zeros(channels, draft.constants.value(node.input[_WEIGHT]).dtype))
            draft.set_input(node, _BIAS, bias)
            taken.append(Participation(node.name, "layer", message("quantize.bias_zeros", count=channels)))
    products = [
        node.name for node in _bare_products(draft, job.context.target) if not job.nodes or node.name in job.nodes
    ]
    taken += [Participation(name, "layer", message("quantize.bias_added")) for name in products]
    model = draft.finish()
    return StepOutcome(_with_additions(model, frozenset(products)) if products else model, tuple(taken), ())


def _bare_layers(draft: Draft) -> Iterator[tuple[Any, int]]:
    """Layers that could have a bias and have none, with the number of their channels."""
    for node in draft.of_type("Conv", "ConvTranspose", "Gemm"):
        if len(node.input) > _BIAS and node.input[_BIAS]:
            continue
        try:
            yield node, linear_layer(draft, node.output[0]).channels
        except CannotFold:
            continue


def _bare_products(draft: Draft, target: Target) -> Iterator[Any]:
    """Products with a constant matrix behind which nothing constant is added, if the target adds at no cost."""
    if not any(steps[:2] == ("MatMul", "Add") for steps in target.fusions):
        return
    for node in draft.of_type("MatMul"):
        matrix = node.input[_WEIGHT]
        if matrix in draft.constants and len(draft.constants.shape(matrix)) == 2 and not _is_added_to(draft, node):
            yield node


def _is_added_to(draft: Draft, node: Any) -> bool:
    readers = draft.readers(node.output[0])
    return any(each.op_type == "Add" and any(name in draft.constants for name in each.input) for each in readers)


def _with_additions(model: Model, products: frozenset[str]) -> Model:
    """The model with an Add of zeros behind some products; the sums have the names that the products had."""
    graph = Assembly(model)
    shapes = {}
    for tensor in model.proto.graph.initializer:
        graph.add_tensor(tensor)
        shapes[tensor.name] = tensor
    for node in model.proto.graph.node:
        copy = graph.copy_node(node)
        if node.name in products:
            matrix = shapes[node.input[_WEIGHT]]
            result = node.output[0]
            copy.output[0] = graph.free_tensor(f"{result}_product")
            zeros = graph.add_constant(np.zeros(matrix.dims[1], tensor_dtype(matrix)), f"{node.name}_bias")
            graph.add_node("Add", [copy.output[0], zeros], result, name=f"{node.name}_add")
    graph.proto.graph.value_info.extend(model.proto.graph.value_info)
    return Model(graph.proto, model.path, inside_bytes(graph.proto))


BLOCK_WEIGHTS = "block_weights"
"""The step's name."""

_SIZES = (16, 256)


@transform(BLOCK_WEIGHTS, size=StepOption(32, "how many values have one scale", *_SIZES))
def block_weights(job: TransformJob) -> Transformed:
    """Write the matrices of products as rows of blocks, so that each block can have a scale of its own."""
    size = int(job.options["size"])
    model, taken = split_weights(job.model, size, job.nodes)
    text = message("quantize.blocks_of", size=size)
    return StepOutcome(model, tuple(Participation(name, "layer", text) for name in taken), ())


@transform("fold_skip")
def fold_skip(job: TransformJob) -> Transformed:
    """Take a sum of a convolution and its own input into the weights, as some toolchains do."""
    draft = Draft(job.model)
    taken = []
    for node in draft.of_type("Conv"):
        if job.nodes and node.name not in job.nodes:
            continue
        total = draft.only_reader(node.output[0])
        if total is None or total.op_type != "Add" or set(total.input) != {node.output[0], node.input[0]}:
            continue
        with suppress(CannotFold):
            values = _with_identity(draft, node)
            change_constants(draft, [(node, _WEIGHT, values)], dtype_of=node.input[_WEIGHT])
            result = total.output[0]
            draft.remove(total, into=node.name)
            draft.rename_output(node, 0, result)
            taken.append(Participation(node.name, "layer", message("quantize.skip_folded", node=total.name)))
    return StepOutcome(draft.finish() if taken else job.model, tuple(taken), ())


def _with_identity(draft: Draft, node: Any) -> Array:
    """The weights of a convolution that adds its own input to what it computes.

    Raises:
        CannotFold: Inputs and outputs are not in the same places.
    """
    if node.input[_WEIGHT] not in draft.constants:
        raise CannotFold
    weights = draft.constants.value(node.input[_WEIGHT]).astype(np.float64)
    kernel, rank = weights.shape[2:], weights.ndim - 2
    groups = int(attribute(node, "group", 1))
    dilations = attribute(node, "dilations", None) or [1] * rank
    same = [reach * (size - 1) // 2 for size, reach in zip(kernel, dilations, strict=True)]
    pads = list(attribute(node, "pads", None) or [0] * 2 * rank)
    centred = all(size % 2 for size in kernel) and pads == same * 2
    strides = attribute(node, "strides", None) or [1] * rank
    kept = attribute(node, "auto_pad", "NOTSET") == "NOTSET" and set(strides) <= {1}
    if not centred or not kept or weights.shape[0] != weights.shape[1] * groups:
        raise CannotFold
    own = np.arange(len(weights))
    weights[(own, own % weights.shape[1], *(size // 2 for size in kernel))] += 1.0
    return np.asarray(weights)


@transform("split_global_pool")
def split_global_pool(job: TransformJob) -> Transformed:
    """Write means of pictures as two convolutions, of windows and of their sums, as some toolchains do."""
    draft = Draft(job.model)
    sizes = {value.name: value.shape for value in values(job.model)}
    found = {}
    for node in draft.of_type("GlobalAveragePool"):
        shape = sizes.get(node.input[0]) or ()
        known = len(shape) == _PICTURE and all(isinstance(size, int) for size in shape[1:])
        if known and max(shape[2:]) > _WINDOW and (not job.nodes or node.name in job.nodes):
            found[node.name] = shape
    if not found:
        return StepOutcome(job.model, (), ())
    graph = Assembly(job.model)
    for tensor in job.model.proto.graph.initializer:
        graph.add_tensor(tensor)
    for node in job.model.proto.graph.node:
        if node.name not in found:
            graph.copy_node(node)
            continue
        _, channels, height, width = found[node.name]
        halves = graph.free_tensor(f"{node.name}_2conv0")
        counts = [-(-size // _WINDOW) for size in (height, width)]
        window = [-(-size // count) for size, count in zip((height, width), counts, strict=True)]
        missing = [count * size for count, size in zip(counts, window, strict=True)]
        ends = [0, 0, missing[0] - height, missing[1] - width]
        steps = ((node.input[0], halves, window, ends), (halves, node.output[0], counts, [0] * 4))
        for place, (read, written, kernel, pads) in enumerate(steps):
            part = np.full((channels, 1, *kernel), 1 / np.sqrt(height * width), np.float32)
            weight = graph.add_constant(part, f"{node.name}_2conv{place}_weight")
            form = {"group": channels, "kernel_shape": kernel, "strides": kernel, "pads": pads}
            # What reads the input keeps its name: that is where the input's codes are read.
            name = f"{node.name}_2conv1" if place else node.name
            graph.add_node("Conv", [read, weight], written, name=name, attributes=form)
            graph.proto.graph.node[-1].name = name
    graph.proto.graph.value_info.extend(job.model.proto.graph.value_info)
    text = message("quantize.pool_split")
    taken = tuple(Participation(name, "layer", text) for name in found)
    return StepOutcome(Model(graph.proto, job.model.path, inside_bytes(graph.proto)), taken, ())


@transform("split_concat")
def split_concat(job: TransformJob) -> Transformed:
    """Write a convolution of two joined tensors as a sum of two convolutions, as some toolchains do."""
    sizes = {value.name: value.shape or () for value in values(job.model)}
    draft, found = Draft(job.model), dict[str, Any]()
    for node in draft.of_type("Conv"):
        joined = draft.producer(node.input[0])
        if joined is None or joined.op_type != "Concat" or draft.only_reader(joined.output[0]) is not node:
            continue
        parts = [sizes.get(name, ()) for name in joined.input]
        known = all(len(each) == _PICTURE and isinstance(each[1], int) for each in parts)
        plain = attribute(joined, "axis") == 1 and attribute(node, "group", 1) == 1
        held = node.input[_WEIGHT] in draft.constants and (not job.nodes or node.name in job.nodes)
        if len(parts) == 2 and known and plain and held:
            found[node.name] = joined, int(parts[0][1])
    if not found:
        return StepOutcome(job.model, (), ())
    graph = Assembly(job.model)
    for tensor in job.model.proto.graph.initializer:
        graph.add_tensor(tensor)
    gone = {joined.name for joined, _ in found.values()}
    for node in job.model.proto.graph.node:
        if node.name in gone:
            continue
        if node.name in found:
            _split(graph, node, draft, found[node.name])
        else:
            graph.copy_node(node)
    graph.proto.graph.value_info.extend(
        each
        for each in job.model.proto.graph.value_info
        if each.name not in {n.output[0] for n, _ in found.values()}
    )
    drop_unused(graph.proto.graph)
    taken = tuple(Participation(name, "layer", message("quantize.concat_split")) for name in found)
    return StepOutcome(Model(graph.proto, job.model.path, inside_bytes(graph.proto)), taken, ())


def _split(graph: Assembly, node: Any, draft: Draft, joined: tuple[Any, int]) -> None:
    """Add a convolution of each part, the bias with the second, and their sum."""
    concat, first = joined
    weights, total = draft.constants.value(node.input[_WEIGHT]), node.output[0]
    parts = (weights[:, :first], weights[:, first:])
    names = [graph.add_constant(part, f"{node.name}_{at}_weight") for at, part in enumerate(parts)]
    results = [graph.free_tensor(f"{name}_conv") for name in concat.input]
    form = {each.name: attribute(node, each.name) for each in node.attribute}
    graph.add_node("Conv", [concat.input[0], names[0]], results[0], name=f"{node.name}_0", attributes=form)
    last = graph.copy_node(node)
    last.input[0], last.input[_WEIGHT], last.output[0] = concat.input[1], names[1], results[1]
    graph.add_node("Add", results, total, name=f"{node.name}_sum")


_PICTURE, _WINDOW = 4, 7
