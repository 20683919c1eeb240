"""Other forms of layers: a bias of zeros where a correction can go, and matrices as rows of blocks."""

from collections.abc import Iterator
from typing import Any

import numpy as np

from roundoff.core.target import Target
from roundoff.graph.block_weights import split_weights
from roundoff.graph.draft import Assembly, CannotFold, Draft
from roundoff.graph.load import Model, inside_bytes
from roundoff.graph.preparation.affine import linear_layer
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
