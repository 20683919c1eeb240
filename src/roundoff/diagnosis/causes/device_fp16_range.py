"""Half precision ends before the values do."""

from collections.abc import Callable
from typing import Any

import numpy as np

from roundoff.core.tensors import Array
from roundoff.diagnosis.devices.expectation import in_half, is_emulated
from roundoff.diagnosis.devices.proof import called, energy, only_dumped, tried, where
from roundoff.diagnosis.devices.replay import DeviceReplay
from roundoff.diagnosis.devices.suspects import DeviceSuspect
from roundoff.diagnosis.registry import Intervention, Signal, cause
from roundoff.diagnosis.result import Remedy, RemedyChange
from roundoff.graph.weights import Weights
from roundoff.messages.message import Message, message

LARGEST, SMALLEST_NORMAL, SMALLEST = 65504.0, 2.0**-14, 2.0**-24
# Signals: this share of the values is beyond half precision.
_SEEN = 1e-4
# Values of which half precision would change more than this part of the error are not in half precision.
_STAYS = 1e-3


def _saturated(exact: Array) -> Array:
    return np.clip(exact, -LARGEST, LARGEST)


def _infinite(exact: Array) -> Array:
    with np.errstate(over="ignore"):
        return exact.astype(np.float16).astype(np.float32)


def _flushed(exact: Array) -> Array:
    return np.where(np.abs(exact) < SMALLEST_NORMAL, 0, exact)


def _gradual(exact: Array) -> Array:
    return np.where(np.abs(exact) < SMALLEST_NORMAL, np.rint(exact / SMALLEST) * SMALLEST, exact)


def _all_nan(exact: Array) -> Array:
    return np.where(np.abs(exact) > LARGEST, np.nan, exact)


_WAYS: tuple[tuple[Message, Callable[[Array], Array]], ...] = (
    (message("diagnosis.half_saturated"), _saturated),
    (message("diagnosis.half_infinite"), _infinite),
    (message("diagnosis.half_nan"), _all_nan),
    (message("diagnosis.half_zero"), _flushed),
    (message("diagnosis.half_multiples"), _gradual),
)


@cause("fp16-range", of="device", order=30)
class Fp16Range:
    """Values do not fit half precision: they saturate, become infinite, or are flushed to zero."""

    def signal(self, case: DeviceReplay, suspect: DeviceSuspect) -> Signal | None:
        """How many values of the reference are beyond half precision."""
        size = np.concatenate([np.abs(pair.exact[np.isfinite(pair.exact)]).ravel() for pair in suspect.pairs])
        if not size.size:
            return None
        large, small = float(np.mean(size > LARGEST)), float(np.mean((size < SMALLEST_NORMAL) & (size > 0)))
        inside = _emulated_node(case, suspect) is not None and case.numbers.kind == "float16"
        seen = inside or max(large, small) > _SEEN
        return Signal(1.0, {"too_large": large, "too_small": small}) if seen else None

    def intervene(self, case: DeviceReplay, suspect: DeviceSuspect) -> Intervention | None:
        """The reference in half precision."""
        best = _inside(case, suspect)
        largest = max(
            float(np.abs(pair.exact[np.isfinite(pair.exact)]).max(initial=0.0)) for pair in suspect.pairs
        )
        what = called(suspect)
        for how, way in _WAYS:
            if not _ends_so(suspect, way):
                continue
            proof = tried(
                suspect,
                [way(pair.exact) for pair in suspect.pairs],
                changed=message("diagnosis.half_changed", tensor=what, how=how),
                summary=where(suspect, message("diagnosis.half_summary", tensor=what, most=largest, how=how)),
                changes=(RemedyChange("float", nodes=suspect.nodes, tensors=(suspect.tensor,), value="float32"),),
            )
            if best is None or proof.recovered > best.recovered:
                best = proof
        return best

    def remedy(self, case: DeviceReplay, suspect: DeviceSuspect, proof: Intervention) -> Remedy:
        """More range, or smaller values."""
        if suspect.flow == "dump only":
            title = only_dumped(message("diagnosis.half_remedy_dump", tensor=called(suspect)))
            return Remedy(title, "outside", proof.changes)
        return Remedy(message("diagnosis.half_remedy", node=suspect.nodes[0]), "float", proof.changes)


def _ends_so(suspect: DeviceSuspect, way: Callable[[Array], Array]) -> bool:
    """Whether the device's own values end where half precision does: brought to it once more, they stay."""
    moved = error = 0.0
    for pair in suspect.pairs:
        largest = float(np.abs(pair.exact[np.isfinite(pair.exact)]).max(initial=0.0))
        moved += energy(way(pair.found), pair.found, largest)
        error += energy(pair.found, pair.exact, largest)
    return moved <= _STAYS * error


def _emulated_node(case: DeviceReplay, suspect: DeviceSuspect) -> Any | None:
    """The node of a suspect that is one operation alone, if that can be computed in half precision here."""
    node = next((each for each in case.model.proto.graph.node if each.name == suspect.nodes[0]), None)
    return node if node is not None and len(suspect.nodes) == 1 and is_emulated(node.op_type) else None


def _inside(case: DeviceReplay, suspect: DeviceSuspect) -> Intervention | None:
    """Sums and squares inside of an operation in half precision."""
    from onnx.helper import get_attribute_value

    node = _emulated_node(case, suspect)
    if node is None:
        return None
    attributes = {each.name: get_attribute_value(each) for each in node.attribute}
    weights = Weights(case.model)
    made = []
    for sample in suspect.places:
        view = case.view(sample)
        inputs = [weights[name] if name in weights else view[name] for name in node.input if name]
        result = in_half(node.op_type, attributes, inputs)
        if result is None:
            return None
        made.append(result)
    what = called(suspect)
    return tried(
        suspect,
        made,
        changed=message("diagnosis.half_inside_changed", op=node.op_type),
        summary=message("diagnosis.half_inside_summary", op=node.op_type, tensor=what),
        changes=(RemedyChange("float", nodes=suspect.nodes, tensors=(suspect.tensor,), value="float32"),),
    )
