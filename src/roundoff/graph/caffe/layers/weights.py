"""The weights of layers that multiply: as floats, or as codes where a quantization tool rounded them."""

import numpy as np

from roundoff.core.tensors import Array
from roundoff.graph.caffe.job import LayerJob
from roundoff.graph.caffe.stored_codes import find_codes, weight_steps

__all__ = ["add_weights"]


def add_weights(job: LayerJob, weights: Array, bias: Array | None, *, axis: int) -> list[str]:
    """Add the weights and the bias of a layer; gives their names.

    In a net that a quantization tool wrote they are rounded already. Stored as codes they are the same numbers,
    and can be told from weights in float.

    Args:
        job: The layer.
        weights: Its weights.
        bias: Its bias, if it has one.
        axis: The axis of the outputs.
    """
    steps = weight_steps(job.layer, job.net)
    of_weights, of_bias = (None, None) if steps is None else steps
    if of_weights is not None and of_weights.size > weights.shape[axis]:
        of_weights = of_weights[: weights.shape[axis]]  # of a transposed convolution: all groups have the same
    names = [_add(job, weights, of_weights, name="weight", axis=axis, dtype="int8")]
    if bias is not None:
        names.append(_add(job, bias, of_bias, name="bias", axis=0, dtype="int32"))
    return names


def _add(job: LayerJob, values: Array, steps: Array | None, *, name: str, axis: int, dtype: str) -> str:
    codes = None if steps is None else find_codes(values, steps, axis=axis, dtype=dtype)
    if codes is None:
        return job.floats(values, name)
    zero = np.zeros(codes.scale.shape, codes.values.dtype)
    stored = [job.constant(codes.values, f"{name}_codes"), job.floats(codes.scale, f"{name}_scale")]
    attributes = {"axis": axis} if codes.scale.ndim else {}
    return job.step("DequantizeLinear", [*stored, job.constant(zero, f"{name}_zero")], name, **attributes)
