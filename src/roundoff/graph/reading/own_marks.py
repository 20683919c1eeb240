"""What `roundoff.graph.qdq` writes around a QuantizeLinear that the operator alone cannot do, read back."""

from dataclasses import replace
from typing import Any

import numpy as np

from roundoff.core.quantizer import Rounding
from roundoff.graph.element_types import by_number
from roundoff.graph.reading.constants import attribute
from roundoff.graph.reading.draft import Draft
from roundoff.graph.reading.points import QUANTIZE, Point, limited
from roundoff.graph.reading.stages import Codes, Wire

__all__ = ["absorbed", "cast_back", "is_cast_back"]

_ENDING = f"_{QUANTIZE}"
_CAST = "to_float32"


def absorbed(draft: Draft, node: Any, point: Point) -> tuple[str, Point]:
    """What a QuantizeLinear and the nodes written in front of it for its sake quantize, and how.

    Args:
        draft: The model.
        node: The QuantizeLinear.
        point: What it says alone.
    """
    tensor = node.input[0]
    if not node.name.endswith(_ENDING):
        return tensor, point
    prefix = node.name.removesuffix(_ENDING) + "_"
    seen: dict[str, Any] = {}
    producer = draft.producer(tensor)
    while producer is not None and producer.name.startswith(prefix) and _is_ours(producer.name, prefix):
        seen[producer.name.removeprefix(prefix)] = producer
        tensor = producer.input[0]
        producer = draft.producer(tensor)
    if not seen:
        return tensor, point
    found = _limited(draft, seen, replace(point, spec=replace(point.spec, rounding=_rounding(seen))))
    return (node.input[0], point) if found is None else (tensor, found)


def is_cast_back(node: Any, source: Wire | Codes | None) -> bool:
    """Whether a node only brings the result of a quantizer back to the type of its tensor."""
    stage = source.stage if isinstance(source, Wire) else None
    return stage is not None and node.op_type == "Cast" and node.name == f"{stage.name}_Cast_back"


def cast_back(node: Any, source: Wire | Codes) -> Wire | Codes:
    """What such a node gives; a constant of which only the codes are there gets the type of its tensor by it."""
    stage = source.stage
    stored = by_number(attribute(node, "to", 0))
    if stage is not None and stage.codes and stored is not None:
        stage.point = replace(stage.point, values=stored.dtype)
    return source


def _is_ours(name: str, prefix: str) -> bool:
    return name.removeprefix(prefix).startswith(("Clip", "Round_", _CAST))


def _rounding(seen: dict[str, Any]) -> Rounding:
    if "Round_signed" in seen:
        return "half_away"
    if "Round_whole" in seen:
        return "half_up"
    return "floor" if "Round_floor" in seen else "half_even"


def _limited(draft: Draft, seen: dict[str, Any], point: Point) -> Point | None:
    """What a Clip in front leaves of the codes; None when its limits are those of no codes."""
    low, high = _bounds(draft, seen)
    if low is None or high is None:
        return point
    scale, zero = float(point.params.scale.ravel()[0]), int(point.params.zero_point.ravel()[0])
    codes = [round(bound / scale) + zero for bound in (low, high)]
    bounds = zip(codes, (low, high), strict=True)
    exact = all(np.float32((code - zero) * scale) == np.float32(bound) for code, bound in bounds)
    return limited(point, *codes) if exact else None


def _bounds(draft: Draft, seen: dict[str, Any]) -> tuple[float | None, float | None]:
    clip, lower, upper = seen.get("Clip"), seen.get("Clip_Max"), seen.get("Clip_Min")
    if clip is not None and len(clip.input) > 2:
        return _first(draft, clip.input[1]), _first(draft, clip.input[2])
    if clip is not None:
        return attribute(clip, "min"), attribute(clip, "max")
    if lower is not None and upper is not None:
        return _first(draft, lower.input[1]), _first(draft, upper.input[1])
    return None, None


def _first(draft: Draft, name: str) -> float | None:
    return float(draft.constants.value(name).ravel()[0]) if name in draft.constants else None
