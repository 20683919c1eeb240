"""A tool gave a tensor a range that is far wider than its values: most of its codes are never used."""

import math
import statistics
from collections.abc import Iterator

import numpy as np

from roundoff.core.tensors import Array
from roundoff.diagnosis.devices.proof import called
from roundoff.diagnosis.devices.replay import DeviceReplay, Pair
from roundoff.diagnosis.devices.suspects import DeviceSuspect, Survey
from roundoff.diagnosis.registry import Intervention, Signal, ask, cause, find_cause
from roundoff.diagnosis.result import Finding, Measure, Remedy, RemedyChange
from roundoff.graph.nodes import attribute
from roundoff.graph.weights import Weights
from roundoff.measure.metrics import ratio_db
from roundoff.messages.message import message
from roundoff.tensors.stored import ToolScale, scales_of

WIDE = 5.0
"""Tools that calibrate on data leave ranges of 1 to 2.2 times the values of a sample (150 tensors of RKNN,
TPU-MLIR and HTP); what is this many times as wide costs more than two bits."""
_OBSERVED = 3.0
"""What the tool itself saw needs no margin for samples that it did not see."""
_FEWEST = 64
"""Of fewer values one sample does not show the range of a tensor."""
_ON_GRID, _MOSTLY = 0.02, 0.99
_SAME_STEP = 1e-3
_WITHIN_STEPS, _EXPLAINED = 2.0, 0.999
_CAUSE = "wide-range"
_HELD = 4
_BOUNDED = {
    "Sigmoid": 1.0,
    "HardSigmoid": 1.0,
    "Softmax": 1.0,
    "LogSoftmax": math.inf,
    "Tanh": 1.0,
    "Softsign": 1.0,
}
_ROOM = 1.1


@cause(_CAUSE, of="device", order=25)
class WideRange:
    """A range that is many times as wide as the values it is for; the tool's other ranges are not."""

    def signal(self, case: DeviceReplay, suspect: DeviceSuspect) -> Signal | None:
        """How many times as wide."""
        if suspect.flow == "dump only" or suspect.tensor not in case.tensors:
            return None
        excess = _excess(case, suspect.tensor)
        return None if excess is None else Signal(1.0, {"times_too_wide": excess})

    def intervene(self, case: DeviceReplay, suspect: DeviceSuspect) -> Intervention | None:
        """The same values rounded in a range that just holds them; how the tool's other ranges are."""
        scale, peak = scale_of(case, suspect.tensor), _peak(case, suspect.tensor)
        excess = _excess(case, suspect.tensor)
        if scale is None or excess is None:
            return None
        others = [
            found.reach / size
            for name in case.tensors
            if name != suspect.tensor and (found := scale_of(case, name)) and (size := _peak(case, name)) > 0
        ]
        usual = statistics.median(others) if others else 1.0
        signal = sum(float(np.square(pair.free.astype(np.float64)).sum()) for pair in suspect.pairs)
        count = sum(pair.free.size for pair in suspect.pairs)
        # Rounding to steps of this size costs a twelfth of their square.
        costs = [count * np.square(step) / 12 for step in (scale.scale, scale.scale / excess)]
        levels = max(1, round(peak / scale.scale))
        measure = Measure(
            message("diagnosis.measure_device_rounding", tensor=called(suspect)),
            "dB",
            ratio_db(signal, costs[0]),
            ratio_db(signal, costs[1]),
            samples=len(suspect.pairs),
        )
        summary = message(
            "diagnosis.wide_range_summary",
            tensor=called(suspect), low=scale.low, high=scale.high, peak=peak, times=excess, levels=levels,
        )  # fmt: skip
        # What the tool saw in all of its data, where that is no wider than what is wrong.
        low, high = scale.low / excess, scale.high / excess
        if scale.observed is not None and max(map(abs, scale.observed)) * _OBSERVED <= scale.reach:
            low, high = min(0.0, scale.observed[0]), max(0.0, scale.observed[1])
        changes = (RemedyChange("range", nodes=suspect.nodes, tensors=(suspect.tensor,), low=low, high=high),)
        changed = message("diagnosis.wide_range_changed", count=len(others), usual=usual)
        # Where all ranges are like that, it is how the tool works and no place in particular.
        recovered = 1 - 1 / excess**2 if usual < WIDE / 2 else 0.0
        return Intervention(changed, (measure,), recovered, summary, changes)

    def remedy(self, case: DeviceReplay, suspect: DeviceSuspect, proof: Intervention) -> Remedy:
        """Give it the range of its values, in the settings of the tool."""
        change = proof.changes[0]
        return Remedy(
            message("diagnosis.wide_range_remedy", tensor=called(suspect), low=change.low, high=change.high),
            "free",
            proof.changes,
        )


def scale_of(case: DeviceReplay, tensor: str) -> ToolScale | None:
    """How the tool says that it codes a tensor of the float model; None where it does not."""
    pair = case.readout.pairs.get(tensor)
    return None if pair is None else scales_of(case.readout.device).get(pair.candidate)


def range_findings(case: DeviceReplay, found: Survey, accused: frozenset[str]) -> list[Finding]:
    """Ranges that are far too wide, of tensors that follow from what they read all the same."""
    findings = []
    for name in case.tensors:
        if name in accused or _excess(case, name) is None:
            continue
        places = case.indices[:_HELD]
        pairs = tuple(case.pair(name, sample) for sample in places)
        nodes = case.spans[name].nodes
        suspect = DeviceSuspect(name, nodes, found.local[name], "flows on", pairs, places)
        asked = ask(find_cause(_CAUSE, "device"), case, suspect, nodes=nodes, tensors=(name,))
        if asked is not None and asked[0].proven:
            findings.append(asked[0])
    return findings


def follows_scale(case: DeviceReplay, suspect: DeviceSuspect) -> bool:
    """Whether a tensor is what the tool's own scale makes of it: rounded to steps, cut off where codes end."""
    scale = scale_of(case, suspect.tensor)
    return scale is not None and all(_is_coded(pair, scale) for pair in suspect.pairs)


def _is_coded(pair: Pair, scale: ToolScale) -> bool:
    exact, found = pair.free.astype(np.float64), pair.found.astype(np.float64)
    if not np.isfinite(found).all() or not _on_grid(found, scale.scale):
        return False
    difference = np.abs(np.clip(exact, scale.low, scale.high) - found)
    return float(np.mean(difference <= _WITHIN_STEPS * scale.scale)) >= _EXPLAINED


def _on_grid(values: Array, step: float) -> bool:
    places = np.asarray(values, np.float64).ravel() / step
    return float(np.mean(np.abs(places - np.rint(places)) <= _ON_GRID)) >= _MOSTLY


def _peak(case: DeviceReplay, tensor: str) -> float:
    """The largest magnitude of a tensor, in the float model and on the device."""
    sizes = [
        float(np.abs(values[np.isfinite(values)]).max(initial=0.0))
        for sample in case.indices
        for values in (case.readout.exact(tensor, sample), case.readout.read(tensor, sample))
    ]
    return max(sizes, default=0.0)


def _excess(case: DeviceReplay, tensor: str) -> float | None:
    """How many times as wide as its values a range is; None where it is not far too wide, or others need it."""
    scale, peak = scale_of(case, tensor), _peak(case, tensor)
    if scale is None or peak <= 0 or scale.reach <= _bound(case, tensor) * _ROOM:
        return None
    excess = scale.reach / peak
    seen = 0.0 if scale.observed is None else max(map(abs, scale.observed))
    by_tool = seen > 0 and scale.reach / seen >= _OBSERVED
    values = [case.readout.read(tensor, sample) for sample in case.indices]
    few = sum(each.size for each in values) < _FEWEST
    if not (by_tool and excess >= _OBSERVED) and (excess < WIDE or few):
        return None
    # In front of a fused activation a tensor is written that the chip never rounds.
    if not all(_on_grid(each, scale.scale) for each in values):
        return None
    return None if any(_fills(case, name, scale) for name in _neighbours(case, tensor)) else excess


def _fills(case: DeviceReplay, tensor: str, scale: ToolScale) -> bool:
    """Whether another tensor shares a scale and needs it: then the scale is not too wide for both."""
    other = scale_of(case, tensor)
    if other is None or abs(other.scale / scale.scale - 1) > _SAME_STEP:
        return False
    return other.reach < WIDE / 2 * _peak(case, tensor)


def _neighbours(case: DeviceReplay, tensor: str) -> Iterator[str]:
    """Tensors that share a node with a tensor, and those beside them; also through what was not dumped."""
    graph = case.model.proto.graph
    near = {tensor}
    for _ in range(4):
        near |= {name for node in graph.node if not near.isdisjoint((*node.input, *node.output))
                 for name in (*node.input, *node.output)}  # fmt: skip
    yield from (name for name in near if name != tensor and name in case.readout.pairs)


def _bound(case: DeviceReplay, tensor: str) -> float:
    """What the operation in front of a tensor can give at most; 0 where it has no such end."""
    node = next((each for each in case.model.proto.graph.node if tensor in each.output), None)
    if node is None:
        return 0.0
    if node.op_type != "Clip":
        return _BOUNDED.get(node.op_type, 0.0)
    weights = Weights(case.model)
    ends = [float(weights[name]) for name in node.input[1:] if name in weights]
    ends += [float(attribute(node, key, 0.0)) for key in ("min", "max")]
    return max(map(abs, ends), default=0.0)
