"""Which nodes a set of factors changes, and how."""

from collections.abc import Mapping

import numpy as np

from roundoff.core.tensors import Array
from roundoff.quantize.transforms.rescaling import factors_of
from roundoff.quantize.transforms.scaling_map import ScalingMap
from roundoff.quantize.work_context import Participation

__all__ = ["participants", "range_text"]


def participants(found: ScalingMap, factors: Mapping[int, float]) -> tuple[Participation, ...]:
    """Nodes whose constants change, in execution order.

    Args:
        found: The map.
        factors: Factors of the numbers that stand for channels.
    """
    read: dict[str, Array] = {}
    written: dict[str, Array] = {}
    for each in found.adjustments:
        for channels, side in ((each.times, read), (each.over, written)):
            values = np.ones(1) if channels is None else factors_of(found, channels, factors).ravel()
            side[each.node] = np.concatenate([side.get(each.node, np.ones(0)), values])
    taken = []
    for node, inputs in read.items():
        outputs = written.get(node, np.ones(1))
        scaled = [(inputs != 1).any(), (outputs != 1).any()]
        if any(scaled):
            parts = [f"input channels x {range_text(inputs)}"] if scaled[0] else []
            parts += [f"output channels x {range_text(1 / outputs)}"] if scaled[1] else []
            role = "both" if all(scaled) else "reader" if scaled[0] else "writer"
            taken.append(Participation(node, role, ", ".join(parts)))
    return tuple(taken)


def range_text(factors: Array) -> str:
    """The smallest and the largest of some factors: ``0.125 .. 30``."""
    return f"{factors.min():.3g} .. {factors.max():.3g}"
