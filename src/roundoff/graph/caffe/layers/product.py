"""Products with stored matrices: fully connected layers and look-up tables."""

import math

from roundoff.graph.caffe.job import LayerJob
from roundoff.graph.caffe.layers.weights import add_weights
from roundoff.graph.caffe.registry import converts

__all__ = ["embed", "inner_product"]

_FLOAT, _INT64 = 1, 7


@converts("InnerProduct")
def inner_product(job: LayerJob) -> None:
    """Every output is a weighted sum of all values behind an axis."""
    job.check_counts((1,))
    params, shape = job.params("inner_product_param"), job.bottoms[0].shape
    axis = job.axis(params.integer("axis"), len(shape))
    count, out = math.prod(shape[axis:]), params.integer("num_output")
    transposed = params.flag("transpose")
    weights = job.blob(0, (count, out) if transposed else (out, count))
    bias = job.blob(1, (out,)) if params.flag("bias_term") else None
    source = job.bottoms[0].name
    top = (*shape[:axis], out)
    if axis == 1:
        if len(shape) != 2:
            source = job.step("Flatten", [source], "flat", axis=1)
        numbers = add_weights(job, weights, bias, axis=1 if transposed else 0)
        job.top("Gemm", [source, *numbers], top, transB=int(not transposed))
        return
    if axis == 0:
        job.fix_batch(f"layer {job.layer.name!r} sums over the samples")
    if len(shape) - axis != 1:
        rows = [0] * axis + [count]
        source = job.step("Reshape", [source, job.integers(rows, "rows")], "flat")
    matrix = job.floats(weights if transposed else weights.T, "weight")
    if bias is None:
        job.top("MatMul", [source, matrix], top)
        return
    product = job.step("MatMul", [source, matrix], "product")
    job.top("Add", [product, job.floats(bias, "bias")], top)


@converts("Embed")
def embed(job: LayerJob) -> None:
    """Rows of a table, chosen by number."""
    job.check_counts((1,))
    params = job.params("embed_param")
    rows, out = params.integer("input_dim"), params.integer("num_output")
    table = job.floats(job.blob(0, (rows, out)), "weight")
    numbers = job.step("Cast", [job.bottoms[0].name], "numbers", to=_INT64)
    top = (*job.bottoms[0].shape, out)
    if not params.flag("bias_term"):
        job.top("Gather", [table, numbers], top)
        return
    chosen = job.step("Gather", [table, numbers], "chosen")
    job.top("Add", [chosen, job.floats(job.blob(1, (out,)), "bias")], top)
