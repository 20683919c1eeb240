"""A bias of zeros for layers that have none, so that a correction has a place to go to."""

from typing import Any

import numpy as np

from roundoff.graph.preparation.draft import Draft
from roundoff.graph.preparation.layers import CannotFold, linear_layer
from roundoff.quantize.transforms.registry import Job, Transformed, transform
from roundoff.quantize.work_context import Participation

__all__ = ["explicit_bias"]

_BIAS = 2


@transform("explicit_bias")
def explicit_bias(job: Job) -> Transformed:
    """Give layers without a bias one of zeros, where bias correction can put its numbers."""
    draft = Draft(job.model)
    taken = []
    for node in draft.of_type("Conv", "ConvTranspose", "Gemm"):
        if (job.nodes and node.name not in job.nodes) or (len(node.input) > _BIAS and node.input[_BIAS]):
            continue
        try:
            channels = linear_layer(draft, node.output[0]).channels
        except CannotFold:
            continue
        bias = draft.free_tensor(f"{node.name}_bias")
        draft.set_constant(bias, np.zeros(channels, draft.constant(node.input[1]).dtype))
        draft.set_input(node, _BIAS, bias)
        taken.append(Participation(node.name, "layer", f"bias of {channels} zeros"))
    model = draft.finish()
    return Transformed(model, tuple(taken), ())
