"""Who on a device is to blame: parts that are wrong by themselves, whatever came from above."""

import statistics
from dataclasses import dataclass
from typing import Literal

import numpy as np

from roundoff.core.progress import SILENT, Progress
from roundoff.diagnosis.devices.local_errors import LocalError, compare_local
from roundoff.diagnosis.devices.replay import DeviceReplay, Pair

__all__ = ["DeviceSuspect", "Survey", "find_suspects", "survey"]

Flow = Literal["dump only", "flows on", "not known"]

# The device went on with one value rather than the other when what reads it fits so many times better.
_CLEARLY = 4.0
# Samples that suspects are held in memory for.
_HELD = 4


@dataclass(frozen=True, slots=True, eq=False)
class DeviceSuspect:
    """A tensor that its own inputs do not explain.

    Attributes:
        tensor: The tensor.
        nodes: What computes it, last node first.
        error: Its error by itself.
        flow: Whether what reads it on the device had the same values as the dump.
        pairs: The tensor and what it should be, in a few samples.
        places: Which samples those are.
        floor: By how much the device is coarser than expected in the middle of its tensors; at least 1.
    """

    tensor: str
    nodes: tuple[str, ...]
    error: LocalError
    flow: Flow
    pairs: tuple[Pair, ...]
    places: tuple[int, ...]
    floor: float = 1.0


@dataclass(frozen=True, slots=True)
class Survey:
    """Errors of all tensors.

    Attributes:
        local: Of each tensor by itself.
        total: Of each tensor against the float model, relative to its energy.
        floor: By how much the device is coarser than expected in the middle of its tensors; at least 1.
    """

    local: dict[str, LocalError]
    total: dict[str, float]
    floor: float


def survey(replay: DeviceReplay, progress: Progress = SILENT) -> Survey:
    """Measure every tensor that the device wrote, sample by sample."""
    local = {name: LocalError() for name in replay.tensors}
    sums = {name: [0.0, 0.0] for name in replay.tensors}
    progress.start("looking at tensors", len(local) * len(replay.indices))
    try:
        for sample in replay.indices:
            view = replay.view(sample)
            for name, error in local.items():
                pair = replay.pair(name, sample, view)
                error.add(pair.exact, pair.found, pair.expected)
                reference = replay.readout.exact(name, sample).astype(np.float64)
                with np.errstate(invalid="ignore", over="ignore"):
                    difference = np.nan_to_num(pair.found - reference, posinf=np.inf, neginf=-np.inf)
                    sums[name][0] += float(np.square(difference).sum())
                sums[name][1] += float(np.square(np.nan_to_num(reference)).sum())
                progress.advance()
    finally:
        progress.finish()
    total = {name: error / signal if signal else float(error > 0) for name, (error, signal) in sums.items()}
    floor = 1.0
    if not replay.quantizers and local:
        # Of two in the middle the better one: the mean of a right and a wrong tensor would excuse the wrong one.
        floor = max(1.0, statistics.median_low(min(error.excess, 1e6) for error in local.values()))
    return Survey(local, total, floor)


def find_suspects(replay: DeviceReplay, found: Survey, progress: Progress = SILENT) -> list[DeviceSuspect]:
    """Go through suspect tensors in execution order; a wrong dump is set right before those that read it."""
    suspects = []
    guessed = not replay.quantizers
    doubtful = [name for name, error in found.local.items() if error.is_suspect(found.floor, guessed=guessed)]
    progress.start("checking suspects", len(doubtful))
    try:
        for name in doubtful:
            error = _again(replay, name) if replay.believed else found.local[name]
            progress.advance()
            if not error.is_suspect(found.floor, guessed=guessed):
                continue
            flow = _flow(replay, name, found.floor)
            places, nodes = replay.indices[:_HELD], replay.spans[name].nodes
            pairs = tuple(replay.pair(name, sample) for sample in places)
            suspects.append(DeviceSuspect(name, nodes, error, flow, pairs, places, found.floor))
            if flow == "dump only":
                replay.believed.add(name)
    finally:
        progress.finish()
    return suspects


def _again(replay: DeviceReplay, name: str) -> LocalError:
    error = LocalError()
    for sample in replay.indices:
        pair = replay.pair(name, sample)
        error.add(pair.exact, pair.found, pair.expected)
    return error


def _flow(replay: DeviceReplay, name: str, floor: float) -> Flow:
    """Whether what reads a tensor fits its dump, or what it should have been."""
    as_dumped = as_computed = 0.0
    readers = replay.consumers.get(name, ())
    lost, fits = False, bool(readers)
    for sample in replay.indices[:_HELD]:
        view = replay.view(sample)
        right = view.but({name: replay.golden.compute(name, view)})
        lost = lost or not np.isfinite(view[name]).all()
        for reader in readers:
            for given in (view, right):
                pair = replay.pair(reader, sample, given)
                error = compare_local(pair.exact, pair.found, pair.expected)
                weighed = (error.error + error.noise) / max(error.noise, np.finfo(float).tiny)
                if given is view:
                    as_dumped += weighed
                else:
                    as_computed += weighed
                    fits = fits and not error.is_suspect(floor, guessed=not replay.quantizers)
    # NaN has no energy, and codes have no NaN: who follows from the right values did not read it.
    if as_dumped > _CLEARLY * as_computed or (lost and fits):
        return "dump only"
    return "flows on" if as_computed > _CLEARLY * as_dumped else "not known"
