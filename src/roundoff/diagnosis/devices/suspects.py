"""Who on a device is to blame: parts that are wrong by themselves, whatever came from above."""

import math
import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

import numpy as np

from roundoff.core.coverage import OutputCoverage, Unjudged
from roundoff.core.progress import SILENT, Progress
from roundoff.core.quantizers import Quantizer, fake_quantize
from roundoff.core.tensors import Array
from roundoff.diagnosis.devices.expectation import Expected, grid_step
from roundoff.diagnosis.devices.readout import DeviceView
from roundoff.diagnosis.devices.replay import DeviceReplay, NotFinite, Pair
from roundoff.diagnosis.loss import Loss, LossMeter, output_parts
from roundoff.graph.interface import topology
from roundoff.measure.metrics import ratio_db
from roundoff.studies.compare.coverage import compared_outputs, why_unmatched

# Errors are sorted by how many tolerances they are, in powers of two from this exponent on.
_LOWEST, _BINS = 0, 24
# A tensor is suspect when errors beyond its tolerance have this part of the energy that rounding alone has.
_MATTERS, _MATTERS_GUESSED = 0.1, 1.0
# Errors of so many times the energy that is expected, though none by itself is too large, are worth a look.
_LOUD = 2.5
# So are errors of no less than what is expected that are so many times those of the other tensors.
_APART = 10.0
# Of so few tensors, one with no more than these decibels by itself does not say how coarse the device is.
_FEW, _GROSS_DB = 2, 20.0


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
        impossible: Elements that the operation cannot give.
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
    impossible: int = 0
    largest: float = 0.0

    @property
    def excess(self) -> float:
        """Root of the error's energy over what is expected."""
        return math.sqrt(self.error / self.noise) if self.noise > 0 else (math.inf if self.error else 0.0)

    def share_beyond(self, floor: float = 1.0) -> float:
        """Share of the elements that differ by more than so many tolerances."""
        wrong = max(int(self.many[_bin(floor)]), self.impossible) + self.nonfinite
        return wrong / self.count if self.count else 0.0

    def is_suspect(self, floor: float = 1.0, *, guessed: bool = False) -> bool:
        """Whether arithmetic that is so many times as coarse as expected does not explain the difference.

        Args:
            floor: How many times.
            guessed: Whether what is expected is a guess, because it is not known how the device codes tensors.
        """
        limit = (_MATTERS_GUESSED if guessed else _MATTERS) * self.noise * max(1.0, floor) ** 2
        return self.nonfinite + self.impossible > 0 or float(self.beyond[_bin(floor)]) > limit

    def is_loud(self, floor: float = 1.0, usual: float = 1.0) -> bool:
        """Whether errors have far more energy than is expected, although no single one is too large.

        Args:
            floor: How many times as coarse as expected the device is.
            usual: The root of the energy of its errors over what is expected, in the middle of its tensors.
        """
        return self.excess > min(_LOUD * max(1.0, floor), max(1.0, _APART * usual))

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
        low, high = expected.limits
        self.impossible += int(np.count_nonzero(sound & ((found < low) | (found > high))))
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
        seen = compared_outputs(topology(replay.model), replay.readout.pairs)
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

    def of_quantizers(self, quantizers: Sequence[Quantizer]) -> Loss:
        """What the network loses with these quantizers, from the samples to the outputs."""
        network = self._replay.golden.with_quantizers(quantizers)
        return self._loss(lambda sample: network.compute_all(self._names, self._replay.feed(sample)))

    def of_half(self) -> Loss:
        """What a device loses that stores each tensor in half precision, or in the shorter kind that it has."""
        kind = self._replay.numbers.kind
        return self._loss(
            lambda sample: self._replay.golden.rounded(self._names, self._replay.feed(sample), kind),
        )

    def of_eight_bits(self) -> Loss:
        """What plain 8 bits lose, one scale for each tensor."""
        return self._loss(
            lambda sample: self._replay.eight_bits.compute_all(self._names, self._replay.feed(sample)),
        )

    def with_right(self, tensor: str) -> Loss:
        """What is lost when one tensor, and all behind it, is computed as it should be."""
        return self.behind(tensor, lambda right, _: right)

    def behind(self, tensor: str, value: Callable[[Array, Array], Array]) -> Loss:
        """What is lost when all behind a tensor is computed as it should be from one value of it.

        Args:
            tensor: The tensor.
            value: Its value, of what it should be and of what the device wrote.
        """
        behind = self._replay.golden.behind(tensor)

        def made(sample: int) -> Mapping[str, Array]:
            view = self._replay.view(sample)
            computed = tensor in self._replay.tensors
            right = self._replay.golden.compute(tensor, view) if computed else self._replay.feed(sample)[tensor]
            taken = value(right, view[tensor])
            return self._seen(view.but({tensor: taken}, without=behind))

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
    for name, stand_in in compared_outputs(topology(replay.model), readout.pairs).items():
        if name in readout.indices:
            judged.append(name)
        elif stand_in is None:
            not_judged.append(left_out.get(name) or why_unmatched(name, ours.get(name), spare))
        elif stand_in in unknown:
            not_judged.append(Unjudged(name, "nonfinite"))
        else:
            judged.append(name)
    equal = tuple(name for name in judged if name in readout.indices)
    return OutputCoverage(tuple(judged), tuple(not_judged), indices=equal)


Flow = Literal["dump only", "flows on", "not known"]

ONE_KERNEL = 7
"""More nodes than one kernel computes: an activation in pieces has about as many."""

# The device went on with one value rather than the other when what reads it fits so many times better.
_CLEARLY = 4.0
# Samples that suspects are held in memory for.
_HELD = 4
# How far a dump is followed: behind so many readers of readers, and not behind a tensor that more read.
_HOPS, _MOST_READERS = 3, 6


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
        others: How many tensors of the device follow from what they read.
        others_off: Share of their elements that are off by more than arithmetic explains.
    """

    tensor: str
    nodes: tuple[str, ...]
    error: LocalError
    flow: Flow
    pairs: tuple[Pair, ...]
    places: tuple[int, ...]
    floor: float = 1.0
    others: int = 0
    others_off: float = 0.0

    @property
    def wide(self) -> bool:
        """Whether so few tensors were dumped that it cannot be told which node it is."""
        return len(self.nodes) > ONE_KERNEL

    @property
    def whole(self) -> bool:
        """Whether it is all that was seen of the device: nothing else there follows from what it reads."""
        return self.wide and not self.others


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
        # Of so few that one of them is the middle, one that is grossly wrong says nothing of the whole device.
        usual = [error for error in local.values() if len(local) > _FEW or error.sqnr_db > _GROSS_DB]
        floor = max([1.0, *([statistics.median_low(min(each.excess, 1e6) for each in usual)] if usual else [])])
    return Survey(local, total, floor)


def find_suspects(
    replay: DeviceReplay, found: Survey, progress: Progress = SILENT
) -> tuple[list[DeviceSuspect], list[DeviceSuspect]]:
    """Go through suspect tensors in execution order; a wrong dump is set right before those that read it.

    Returns:
        Tensors with errors beyond what each value may be off; and those that are only off by more as a whole.
    """
    suspects: list[DeviceSuspect] = []
    faint: list[DeviceSuspect] = []
    guessed = {name for name in found.local if replay.is_guessed(name)}
    doubtful = {
        name for name, error in found.local.items() if error.is_suspect(found.floor, guessed=name in guessed)
    }
    middle = statistics.median_low([0.0, *(each.excess for each in found.local.values() if each.excess > 0)])
    usual = middle if len(found.local) > _FEW else 1.0
    loud = {
        name
        for name, error in found.local.items()
        if name in guessed and name not in doubtful and error.is_loud(found.floor, usual)
    }
    fine = [name for name in found.local if name not in doubtful and name not in loud]
    computed_rightly = {node for name in fine for node in replay.spans[name].nodes}
    count = sum(found.local[name].count for name in fine)
    off = sum(found.local[name].share_beyond(found.floor) * found.local[name].count for name in fine) / max(
        1, count
    )
    progress.start("checking suspects", len(found.local))
    try:
        for name, error in found.local.items():
            progress.advance()
            # What followed from a dump that is wrong need not follow from the right values.
            misled = not replay.believed.isdisjoint(replay.spans[name].reads)
            if name not in doubtful and name not in loud and not misled:
                continue
            own = _again(replay, name) if replay.believed else error
            if not own.is_suspect(found.floor, guessed=name in guessed) and name not in loud:
                continue
            flow = _flow(replay, name, found.floor)
            places, nodes = _telling(replay, name, found.floor), replay.spans[name].nodes
            # Nodes that something else comes out of rightly are not to blame, unless all are such.
            nodes = tuple(node for node in nodes if node not in computed_rightly) or nodes
            pairs = tuple(replay.pair(name, sample) for sample in places)
            strong = own.is_suspect(found.floor, guessed=name in guessed)
            (suspects if strong else faint).append(
                DeviceSuspect(name, nodes, own, flow, pairs, places, found.floor, others=len(fine), others_off=off)
            )
            if strong and flow == "dump only":
                replay.believed.add(name)
    finally:
        progress.finish()
    return suspects, faint


def _again(replay: DeviceReplay, name: str) -> LocalError:
    error = LocalError()
    for sample in replay.indices:
        pair = replay.pair(name, sample)
        error.add(pair.exact, pair.found, pair.expected)
    return error


def _telling(replay: DeviceReplay, name: str, floor: float) -> tuple[int, ...]:
    """The first samples; where a tensor is right in all of these, some in which it is not instead of the last."""
    errors = {sample: LocalError() for sample in replay.indices}
    for sample, error in errors.items():
        pair = replay.pair(name, sample)
        error.add(pair.exact, pair.found, pair.expected)
    wrong = [at for at, error in errors.items() if error.is_suspect(floor, guessed=not replay.quantizers)]
    first = replay.indices[:_HELD]
    if not wrong or not set(wrong).isdisjoint(first):
        return first
    wrong = wrong[: _HELD // 2]
    return tuple(sorted((*first[: _HELD - len(wrong)], *wrong)))


def _flow(replay: DeviceReplay, name: str, floor: float) -> Flow:
    """Whether what reads a tensor fits its dump, or what it should have been.

    A reader may be dumped wrongly in the same way (half of everything stays half behind a Relu): one that follows
    from the dump is asked itself whether its own readers follow from it, or from what is right.
    """
    followers: tuple[str, ...] = (name,)
    told: Flow = "not known"
    for hop in range(_HOPS):
        readers = tuple(
            dict.fromkeys(
                each for one in followers for each in replay.consumers.get(one, ()) if each not in followers
            )
        )
        if not readers:
            break
        found = _fits(replay, followers, readers, floor)
        if found == "dump only":
            return "dump only"
        if found == "not known":
            break
        told = "flows on"
        followers = (*followers, *readers)
        if hop == 0 and len(readers) > _MOST_READERS:
            break
    return told


def _fits(replay: DeviceReplay, wrong: tuple[str, ...], readers: tuple[str, ...], floor: float) -> Flow:
    """Whether readers fit the dumps of some tensors, or what these should have been one after the other."""
    as_dumped = as_computed = 0.0
    lost, fits = False, bool(readers)
    for sample in replay.indices[:_HELD]:
        view = replay.view(sample)
        right = view
        for name in wrong:
            lost = lost or not np.isfinite(view[name]).all()
            right = right.but({name: replay.golden.compute(name, right)})
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


_HELD_INPUTS = 6
# Inputs that are not coded may differ by the rounding of half precision.
_ROUNDED = 2.0**-10
# Where more than this part of an input is beyond the ends, it is another input.
_FEW_OUTSIDE = 0.5
_ONE_STEP = 1.02


def input_suspects(replay: DeviceReplay) -> list[DeviceSuspect]:
    """Inputs that the device wrote and that are not the user's samples."""
    found = []
    for name in replay.inputs:
        expected = _expected(replay, name)
        error, pairs = LocalError(), []
        for sample in replay.indices:
            had = replay.readout.read(name, sample)
            pair = Pair(had, _coded(replay, name, sample, had), expected)
            error.add(pair.exact, pair.found, expected)
            pairs.append(pair)
        if error.is_suspect() and not _is_cut_off(pairs):
            nodes = tuple(node.name for node in replay.model.proto.graph.node if name in node.input)
            # Those that are wrong first: few may be.
            right = [not compare_local(each.exact, each.found, expected).is_suspect() for each in pairs]
            held = sorted(sorted(range(len(pairs)), key=right.__getitem__)[:_HELD_INPUTS])
            told, places = tuple(pairs[at] for at in held), tuple(replay.indices[at] for at in held)
            found.append(DeviceSuspect(name, nodes, error, "flows on", told, places))
    return found


def _is_cut_off(pairs: Sequence[Pair]) -> bool:
    """Whether inputs are as they should be but for some beyond the ends of codes: a range, no other input."""
    ends = min(float(each.found.min()) for each in pairs), max(float(each.found.max()) for each in pairs)
    error, outside, count = LocalError(), 0, 0
    for pair in pairs:
        error.add(np.clip(pair.exact, *ends), pair.found, pair.expected)
        outside += int(np.count_nonzero((pair.exact < ends[0]) | (pair.exact > ends[1])))
        count += pair.exact.size
    return not error.is_suspect() and 0 < outside <= _FEW_OUTSIDE * count


def _coded(replay: DeviceReplay, name: str, sample: int, had: Array) -> Array:
    """The user's input as the device should hold it: in its codes, or written as it was given."""
    wanted = np.asarray(replay.feed(sample)[name]).astype(np.float32)
    quantizer = replay.golden.coded.get(name)
    as_given = quantizer is None or np.array_equal(had.ravel(), wanted.ravel())
    return wanted if quantizer is None or as_given else fake_quantize(wanted, quantizer.params, quantizer.spec)


def _expected(replay: DeviceReplay, name: str) -> Expected:
    quantizer = replay.golden.coded.get(name)
    if quantizer is not None:
        scale = float(quantizer.params.scale.max())
        return Expected(np.asarray(_ONE_STEP * scale), scale**2 / 12)
    wanted = np.concatenate([np.ravel(replay.feed(sample)[name]) for sample in replay.indices])
    had = np.concatenate([replay.readout.read(name, sample).ravel() for sample in replay.indices])
    # A device that computes with integers has its inputs in 8 bits, whether their grid can be seen or not.
    step = max(grid_step(had) or 0.0, 2 * float(np.ptp(wanted)) / 255)
    tolerance = max(_ONE_STEP * step, _ROUNDED * float(np.abs(wanted).max(initial=0.0)))
    return Expected(np.asarray(tolerance), max(tolerance**2 / 12, float(np.finfo(np.float32).tiny)))


# Gain and offset of an input that nobody dumped, from what was computed of it.

_STARTS = (1.0, 0.3, 3.0)
_ROUNDS = 6
# By so much gain and offset are changed to see what comes of it: more than a step of 8 bits.
_NUDGE = 0.05
# A round that takes away less than this part of what is left is the last one.
_WORTH = 0.01


def fitted_input(compute: Callable[[Array], Array], given: Array, found: Array) -> tuple[float, float] | None:
    """The gain and offset with which an input gives what was found, by least squares.

    Args:
        compute: What is computed of an input.
        given: The input as it should be.
        found: What was computed of the one that was there.

    Returns:
        None where the input has one value only, or something is not finite.
    """
    spread = float(given.std())
    if spread == 0 or not np.isfinite(found).all():
        return None

    def made(at: Array) -> Array:
        return compute((given * at[0] + at[1] * spread).astype(given.dtype)).astype(np.float64).ravel()

    wanted = found.astype(np.float64).ravel()
    best, place = np.inf, np.array([1.0, 0.0])
    for start in _STARTS:
        error, at = _descended(made, wanted, np.array([start, 0.0]))
        if error < best:
            best, place = error, at
    return (float(place[0]), float(place[1] * spread)) if np.isfinite(best) else None


def _descended(made: Callable[[Array], Array], wanted: Array, at: Array) -> tuple[float, Array]:
    """The nearest place at which the error is smallest, by Gauss's and Newton's way."""
    now = made(at)
    error = float(np.square(wanted - now).sum())
    for _ in range(_ROUNDS):
        slopes = np.stack([(made(at + step) - now) / _NUDGE for step in np.eye(2) * _NUDGE], axis=1)
        if not np.isfinite(slopes).all() or not np.isfinite(error):
            return np.inf, at
        there = at + np.linalg.lstsq(slopes, wanted - now, rcond=None)[0]
        then = made(there)
        rest = float(np.square(wanted - then).sum())
        if not rest < error * (1 - _WORTH):
            break
        at, now, error = there, then, rest
    return error, at
