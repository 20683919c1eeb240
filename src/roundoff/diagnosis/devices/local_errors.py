"""The error that each part of a device makes by itself, fed with its own inputs."""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import numpy as np

from roundoff.core.coverage import OutputCoverage, Unjudged
from roundoff.core.tensors import Array
from roundoff.diagnosis.devices.expectation import Expected
from roundoff.diagnosis.devices.not_finite import NotFinite
from roundoff.diagnosis.devices.readout import DeviceView
from roundoff.diagnosis.devices.replay import DeviceReplay
from roundoff.diagnosis.loss import Loss, LossMeter, output_parts
from roundoff.graph.interface import topology
from roundoff.measure.metrics import ratio_db
from roundoff.studies.compare.coverage import absent
from roundoff.studies.compare.culprits import stand_ins

__all__ = [
    "LocalError",
    "OutputLoss",
    "compare_local",
    "judged_outputs",
]


# Errors are sorted by how many tolerances they are, in powers of two from this exponent on.
_LOWEST, _BINS = 0, 24
# A tensor is suspect when errors beyond its tolerance have this part of the energy that rounding alone has.
_MATTERS, _MATTERS_GUESSED = 0.1, 1.0


@dataclass(slots=True)
class LocalError:
    """Sums over the samples of one tensor.

    Attributes:
        count: Elements.
        signal: Energy of what it should be.
        error: Energy of the difference.
        noise: Energy of the difference that is expected.
        beyond: Energy of errors of more than 2^k tolerances, for k = 0, 1, ...
        many: How many such errors there are.
        shift: Sum of the differences, in steps where there are some, else in tolerances.
        same: Elements that are equal, to a tenth of a step.
        nonfinite: Elements that are NaN or infinite on one side only.
        largest: Largest difference, in the same unit as the shift.
    """

    count: int = 0
    signal: float = 0.0
    error: float = 0.0
    noise: float = 0.0
    beyond: Array = field(default_factory=lambda: np.zeros(_BINS))
    many: Array = field(default_factory=lambda: np.zeros(_BINS, np.int64))
    shift: float = 0.0
    same: int = 0
    nonfinite: int = 0
    largest: float = 0.0

    @property
    def excess(self) -> float:
        """Root of the error's energy over what is expected."""
        return math.sqrt(self.error / self.noise) if self.noise > 0 else (math.inf if self.error else 0.0)

    def share_beyond(self, floor: float = 1.0) -> float:
        """Share of the elements that differ by more than so many tolerances."""
        wrong = int(self.many[_bin(floor)]) + self.nonfinite
        return wrong / self.count if self.count else 0.0

    def is_suspect(self, floor: float = 1.0, *, guessed: bool = False) -> bool:
        """Whether arithmetic that is so many times as coarse as expected does not explain the difference.

        Args:
            floor: How many times.
            guessed: Whether what is expected is a guess, because it is not known how the device codes tensors.
        """
        limit = (_MATTERS_GUESSED if guessed else _MATTERS) * self.noise * max(1.0, floor) ** 2
        return self.nonfinite > 0 or float(self.beyond[_bin(floor)]) > limit

    @property
    def sqnr_db(self) -> float:
        """Signal to noise of the part by itself."""
        return -math.inf if self.nonfinite else ratio_db(self.signal, self.error)

    @property
    def mean_shift(self) -> float:
        """Mean difference, in steps."""
        return self.shift / self.count if self.count else 0.0

    def add(self, exact: Array, found: Array, expected: Expected) -> None:
        """Take in one sample."""
        sound = np.isfinite(exact) & np.isfinite(found)
        # What is not finite on both sides in the same way is right.
        alike = (np.isnan(exact) & np.isnan(found)) | (exact == found)
        self.nonfinite += int(np.count_nonzero(~sound & ~alike))
        reference = np.where(sound, exact, 0).astype(np.float64)
        difference = np.where(sound, found, 0).astype(np.float64) - reference
        energy = np.square(difference)
        unit = np.broadcast_to(expected.tolerance if expected.step is None else expected.step, exact.shape)
        with np.errstate(divide="ignore", invalid="ignore"):
            ratio = np.abs(difference) / np.maximum(expected.tolerance, np.finfo(np.float32).tiny)
            steps = difference / np.maximum(unit, np.finfo(np.float32).tiny)
        self.count += exact.size
        self.signal += float(np.square(reference).sum())
        self.error += float(energy.sum())
        self.noise += expected.noise * exact.size
        for place in range(_BINS):
            wrong = ratio > 2.0 ** (_LOWEST + place)
            if not wrong.any():
                break
            self.beyond[place] += float(energy[wrong].sum())
            self.many[place] += int(np.count_nonzero(wrong))
        self.shift += float(steps.sum())
        self.same += int(np.count_nonzero(np.abs(steps) < 0.1))
        self.largest = max(self.largest, float(np.abs(steps).max(initial=0.0)))


def _bin(floor: float) -> int:
    return min(_BINS - 1, max(0, math.ceil(math.log2(max(floor, 1.0)) - _LOWEST - 1e-9)))


def compare_local(exact: Array, found: Array, expected: Expected) -> LocalError:
    """The error of one tensor in one sample."""
    error = LocalError()
    error.add(exact, found, expected)
    return error


# What a device loses at the outputs of a network, as it is and with one tensor put right.


class OutputLoss:
    """Compares outputs with those of the float model.

    Args:
        replay: The device.
    """

    def __init__(self, replay: DeviceReplay) -> None:
        self._replay = replay
        infos = {info.name: info.shape for info in replay.readout.reference.tensors if not info.problem}
        seen = stand_ins(topology(replay.model), replay.readout.pairs)
        named = {name: infos[name] for name, stand_in in seen.items() if stand_in is not None and name in infos}
        self._names = tuple(named)
        self._parts = output_parts(replay.model, named, infos)

    @property
    def can_tell(self) -> bool:
        """Whether an output, or what it only forwards, was dumped at all."""
        return bool(self._names)

    def of_device(self) -> Loss:
        """What the device loses."""
        return self._loss(lambda sample: self._seen(self._replay.readout.view(sample, self._replay.feed(sample))))

    def of_arithmetic(self) -> Loss:
        """What its arithmetic loses, from the samples to the outputs."""
        return self._loss(
            lambda sample: self._replay.golden.compute_all(self._names, self._replay.feed(sample)),
        )

    def with_right(self, tensor: str) -> Loss:
        """What is lost when one tensor, and all behind it, is computed as it should be."""
        behind = self._replay.golden.behind(tensor)

        def made(sample: int) -> Mapping[str, Array]:
            view = self._replay.view(sample)
            right = self._replay.golden.compute(tensor, view) if tensor in self._replay.tensors else None
            given = view.but({} if right is None else {tensor: right}, without=behind)
            if right is None:
                given = given.but({tensor: self._replay.feed(sample)[tensor]})
            return self._seen(given)

        return self._loss(made)

    def _seen(self, given: DeviceView) -> Mapping[str, Array]:
        """The outputs: as they are given, or computed from what is."""
        known = {name: given[name] for name in self._names if name in given}
        asked = [name for name in self._names if name not in known]
        return {**known, **self._replay.golden.compute_all(asked, given)} if asked else known

    def _loss(self, made: Callable[[int], Mapping[str, Array]]) -> Loss:
        meter = LossMeter(self._parts)
        for sample in self._replay.indices:
            exact = {name: self._replay.readout.exact(name, sample) for name in self._names}
            meter.add(exact, made(sample))
        return meter.loss()


def judged_outputs(replay: DeviceReplay, not_finite: NotFinite) -> OutputCoverage:
    """Which outputs of the network were judged on a device, and why others were not.

    Args:
        replay: The device.
        not_finite: Its tensors that are not all numbers, and those that read them.
    """
    readout = replay.readout
    ours = {info.name: info for info in readout.reference.tensors}
    taken = {pair.candidate for pair in readout.pairs.values()}
    spare = [info for info in readout.device.tensors if info.name not in taken]
    left_out = {each.name: each for each in readout.left_out}
    unknown = {*not_finite.tensors, *not_finite.readers}
    judged, not_judged = [], []
    for name, stand_in in stand_ins(topology(replay.model), readout.pairs).items():
        if stand_in is None:
            not_judged.append(left_out.get(name) or absent(name, ours.get(name), spare))
        elif stand_in in unknown:
            not_judged.append(Unjudged(name, "nonfinite"))
        else:
            judged.append(name)
    return OutputCoverage(tuple(judged), tuple(not_judged))
