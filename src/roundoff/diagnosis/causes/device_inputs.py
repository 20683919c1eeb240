"""The device is fed something else than the samples."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial

import numpy as np

from roundoff.core.tensors import Array
from roundoff.diagnosis.causes.device_tensors import (
    nearest_samples,
    references_of,
    robust_line,
    sample_places,
)
from roundoff.diagnosis.devices.proof import MOST_LEFT, called, residual_energy, tried
from roundoff.diagnosis.devices.replay import DeviceReplay
from roundoff.diagnosis.devices.suspects import DeviceSuspect, fitted_input
from roundoff.diagnosis.ideal import alternatives
from roundoff.diagnosis.registry import ENOUGH, Intervention, Signal, cause
from roundoff.diagnosis.result import Remedy, RemedyChange
from roundoff.graph.shapes import input_channel_axis
from roundoff.messages.message import Argument, Message, joined, message, short_name
from roundoff.messages.numbers import first_of
from roundoff.preprocessing.conventions import Hypothesis, InputObservation, alike, plausible, preparations
from roundoff.studies.check_io.explanation import explain_difference

_Way = Callable[[Array], Array]
_SIDES = ("exact", "found")
_PICTURE_RANK, _COLOURS = 4, 3
# Samples of another order that are named.
_NAMED = 4
# An input with a gain explains more than a result with one when it leaves less than this part of the error.
_CLEARLY = 0.5
# Ways that leave at most so many times as much of the error as the best one are all told.
_EQUALLY = 1.1
# What samples are and what a device makes of them, whatever their values look like.
_ALWAYS = ("x", "x / 255", "x / 127.5 - 1", "x - 128", "ImageNet")
# Ways no further apart, in parts of what they span, are tried as one; a step of 8 bits is 0.004.
_ALIKE = 0.01


# Ends of an input that nobody dumped, in parts of its values: these are tried, then those between the best two.
_ENDS, _FINER = np.linspace(0.15, 0.95, 17), np.linspace(-0.05, 0.05, 11)


@cause("clipping", of="device", order=5)
class InputCutOff:
    """The range of an input that was not dumped ends before its values do."""

    def signal(self, case: DeviceReplay, suspect: DeviceSuspect) -> Signal | None:
        """Whether it is computed from an input that was not dumped, by a device that codes it nobody knows how."""
        coded = not case.quantizers and case.numbers.kind == "integer"
        return Signal(1.0, {}) if coded and _hidden_inputs(case, suspect) else None

    def intervene(self, case: DeviceReplay, suspect: DeviceSuspect) -> Intervention | None:
        """Samples cut off where that explains most."""
        best: tuple[float, Intervention] | None = None
        for name in _hidden_inputs(case, suspect):
            values = np.concatenate([np.ravel(case.feed(sample)[name]) for sample in suspect.places])
            if values.dtype.kind != "f" or not np.isfinite(values).all():
                continue
            ends = float(values.min()), float(values.max())

            def cut(part: float, ends: tuple[float, float] = ends, name: str = name) -> list[Array]:
                return _made(case, suspect, name, lambda each: np.clip(each, part * ends[0], part * ends[1]))

            part = float(min(_ENDS, key=lambda each: residual_energy(suspect, cut(each))))
            part = float(min(part + _FINER, key=lambda each: residual_energy(suspect, cut(each))))
            made, (low, high) = cut(part), (part * ends[0], part * ends[1])
            what = message("diagnosis.called_input", tensor=name)
            told: dict[str, Argument] = {
                "what": what, "low": low, "high": high, "wide_low": ends[0], "wide_high": ends[1],
            }  # fmt: skip
            proof = tried(
                suspect,
                made,
                changed=message("diagnosis.clipping_input_changed", what=what, low=low, high=high),
                summary=message(
                    "diagnosis.clipping_summary", **told, share=float(np.mean((values < low) | (values > high)))
                ),
                changes=(RemedyChange("range", tensors=(name,), low=ends[0], high=ends[1]),),
            )  # fmt: skip
            if best is None or residual_energy(suspect, made) < best[0]:
                best = residual_energy(suspect, made), proof
        return None if best is None else best[1]

    def remedy(self, case: DeviceReplay, suspect: DeviceSuspect, proof: Intervention) -> Remedy:
        """Give it the range of its values, in the settings of the tool."""
        change = proof.changes[0]
        title = message("diagnosis.wide_range_remedy", tensor=change.tensors[0], low=change.low, high=change.high)
        return Remedy(title, "free", proof.changes)


@cause("sample-order", of="device", order=8)
class SampleOrder:
    """The device was fed the samples in another order, or another sample than it was to be."""

    def signal(self, case: DeviceReplay, suspect: DeviceSuspect) -> Signal | None:
        """How many samples of an input, or of what is computed of one that was not dumped, are others'."""
        at_input = suspect.tensor in case.inputs
        if len(suspect.pairs) < 2 or not (at_input or _hidden_inputs(case, suspect)):
            return None
        held, nearest = _held_by(case, suspect)
        moved = sum(one != other for one, other in zip(suspect.places, held, strict=True))
        # A result that is some sample's twice is one that was not written.
        if not moved or not (at_input or len(set(nearest)) == len(nearest)) or suspect.flow == "dump only":
            return None
        return Signal(moved / len(held), {"moved_samples": float(moved)})

    def intervene(self, case: DeviceReplay, suspect: DeviceSuspect) -> Intervention | None:
        """The samples in the device's order."""
        references = references_of(case, suspect)
        held, nearest = _held_by(case, suspect)
        explained = [references[place] for place in nearest]
        if residual_energy(suspect, explained) > MOST_LEFT:
            return None
        named = "', '".join(short_name(name) for name in _hidden_inputs(case, suspect)) or called(suspect)
        moved = [(one, other) for one, other in zip(suspect.places, held, strict=True) if one != other]
        names = case.readout.samples
        order = message("diagnosis.device_input_order")
        return tried(
            suspect,
            explained,
            changed=message("diagnosis.device_input_order_changed", tensor=named),
            summary=message(
                "diagnosis.device_input_order_summary",
                tensor=named,
                pairs=first_of(
                    [f"{names[one][1] or one} -> {names[other][0] or other}" for one, other in moved], _NAMED
                ),
            ),
            changes=(RemedyChange("input", tensors=(suspect.tensor,), value=str(order)),),
            detail=order,
        )

    def remedy(self, case: DeviceReplay, suspect: DeviceSuspect, proof: Intervention) -> Remedy:
        """Give both in one order."""
        return Remedy(message("diagnosis.device_input_order_remedy"), "outside", proof.changes)


def _held_by(case: DeviceReplay, suspect: DeviceSuspect) -> tuple[list[int], list[int]]:
    """Which sample each of the suspect's holds, by their place in the readout and among the references."""
    nearest = nearest_samples(suspect, references_of(case, suspect))
    order = sample_places(case, suspect)
    return [order[place] for place in nearest], nearest


@cause("preprocessing", of="device", order=10)
class DevicePreprocessing:
    """The device's input is not what the float model is fed: it was prepared in another way."""

    def signal(self, case: DeviceReplay, suspect: DeviceSuspect) -> Signal | None:
        """Whether it is an input, or computed from an input that was not dumped."""
        return Signal(1.0, {}) if suspect.tensor in case.inputs or _hidden_inputs(case, suspect) else None

    def intervene(self, case: DeviceReplay, suspect: DeviceSuspect) -> Intervention | None:
        """Samples prepared in the way that explains the difference."""
        return _at_input(suspect) if suspect.tensor in case.inputs else _behind_input(case, suspect)

    def remedy(self, case: DeviceReplay, suspect: DeviceSuspect, proof: Intervention) -> Remedy:
        """Prepare it as the float model's."""
        if not proof.detail:
            return Remedy(message("diagnosis.device_input_remedy"), "outside", proof.changes)
        title = message("diagnosis.device_input_remedy_how", how=proof.detail)
        return Remedy(title, "outside", proof.changes)


def _at_input(suspect: DeviceSuspect) -> Intervention:
    wanted, had = [pair.exact for pair in suspect.pairs], [pair.found for pair in suspect.pairs]
    tolerance = float(np.max([np.max(pair.expected.tolerance) for pair in suspect.pairs]))
    found = explain_difference(wanted, had, tolerance=max(tolerance, 1e-4))
    what = called(suspect)
    changes = () if found is None else found.changes
    how = message("diagnosis.device_input_unexplained")
    if changes:
        how = joined(change.text for change in changes)
    settings = [each.correction for each in changes if each.correction is not None]
    said = tuple(
        message("diagnosis.device_input_setting", setting=each.setting, value=each.value) for each in settings
    )
    # The difference is a fact; what is left open without an explanation is only its name.
    return tried(
        suspect,
        had,
        changed=message("diagnosis.device_input_own", tensor=what),
        summary=message("diagnosis.device_input_differs", tensor=what, how=how),
        changes=(RemedyChange("input", tensors=(suspect.tensor,), value=", ".join(map(str, said))),),
        detail=said,
    )


def _hidden_inputs(case: DeviceReplay, suspect: DeviceSuspect) -> tuple[str, ...]:
    if suspect.tensor not in case.spans:
        return ()
    reads = case.spans[suspect.tensor].reads
    return tuple(name for name in reads if name not in case.readout.pairs and name in case.feed(suspect.places[0]))


@dataclass(frozen=True, slots=True)
class _Try:
    """One way in which an input may have been made.

    Attributes:
        way: The way.
        scales: Whether it changes the size of values, and not only their places.
        proof: What follows from it.
        left: How much of the error it leaves.
    """

    way: Message
    scales: bool
    proof: Intervention
    left: float


def _behind_input(case: DeviceReplay, suspect: DeviceSuspect) -> Intervention | None:
    found = [each for name in _hidden_inputs(case, suspect) for each in _explanations(case, suspect, name)]
    if not found:
        return None
    best = min(found, key=lambda each: (-each.proof.recovered, each.left))
    equal = [each.way for each in found if each is not best and each.left <= _EQUALLY * best.left]
    if not equal or best.proof.recovered < ENOUGH:
        return best.proof
    summary = message("diagnosis.device_input_not_told_apart", whole=best.proof.summary, ways=alternatives(equal))
    return replace(best.proof, summary=summary)


def _explanations(case: DeviceReplay, suspect: DeviceSuspect, name: str) -> list[_Try]:
    """What explains a result by its input; a usual way only when no other gain and offset do far better."""
    usual = [_fed(case, suspect, name, each) for each in _usual_mistakes(case.feed(suspect.places[0])[name])]
    fitted = _fitted(case, suspect, name)
    limits = [_CLEARLY * each for each in (_left_by_line_behind(suspect),) if each is not None]
    found = [each for each in usual if not each.scales or all(each.left <= limit for limit in limits)]
    if fitted is None or any(fitted.left > limit for limit in limits):
        return found
    # Among many usual ways one is near to any gain; it is meant when it explains as much as the nearest gain.
    nearest = min((each.left for each in found), default=np.inf)
    return [fitted] if fitted.left < _CLEARLY * nearest and fitted.proof.recovered >= ENOUGH else found


def _fed(case: DeviceReplay, suspect: DeviceSuspect, name: str, mistake: "_Mistake") -> _Try:
    """What follows when an input was prepared in one way."""
    made, how = _made(case, suspect, name, mistake.way), mistake.how
    now = message("diagnosis.device_input_now", how=how)
    proof = tried(
        suspect,
        made,
        changed=message("diagnosis.device_input_fed", tensor=name, how=how),
        summary=message("diagnosis.device_input_but", tensor=name, how=how),
        changes=(RemedyChange("input", tensors=(name,), value=str(now)),),
        detail=now,
    )
    return _Try(how, mistake.scales, proof, residual_energy(suspect, made))


def _made(case: DeviceReplay, suspect: DeviceSuspect, name: str, way: _Way) -> list[Array]:
    made = []
    for sample in suspect.places:
        view = case.view(sample)
        changed = way(view[name].astype(np.float64)).astype(view[name].dtype)
        made.append(case.golden.compute(suspect.tensor, view.but({name: changed})))
    return made


def _fitted(case: DeviceReplay, suspect: DeviceSuspect, name: str) -> _Try | None:
    """The gain and offset that explain it best."""
    view, first = case.view(suspect.places[0]), suspect.pairs[0]
    if view[name].dtype.kind != "f":
        return None
    line = fitted_input(
        lambda values: case.golden.compute(suspect.tensor, view.but({name: values})), view[name], first.found
    )
    if line is None:
        return None
    gain, offset = line
    how = message("diagnosis.input_line", gain=gain, offset=offset)
    return _fed(case, suspect, name, _Mistake(how, False, lambda values: values * gain + offset))


def _left_by_line_behind(suspect: DeviceSuspect) -> float | None:
    """How much of the error is left when the result itself has a gain and an offset, not the input."""
    behind = robust_line(*(np.concatenate([getattr(p, side).ravel() for p in suspect.pairs]) for side in _SIDES))
    if behind is None:
        return None
    return residual_energy(suspect, [pair.exact * behind[0] + behind[1] for pair in suspect.pairs])


@dataclass(frozen=True, slots=True)
class _Mistake:
    """What an input may have been turned into.

    Attributes:
        how: The way, for people.
        scales: Whether it is one way to make numbers of pixels in the place of another.
        way: What it does to values.
    """

    how: Message
    scales: bool
    way: _Way


def _usual_mistakes(example: Array) -> Iterator[_Mistake]:
    """What inputs that nobody dumped may have been turned into."""
    pictures = example.ndim == _PICTURE_RANK
    axis = input_channel_axis(example.shape) if pictures else 0
    colours = pictures and example.shape[axis] == _COLOURS
    if colours:
        yield _Mistake(message("diagnosis.input_colours"), False, _flipped(_same, axis))
    for each in _preparations(example, axis):
        made = message("diagnosis.input_way", wanted=each.wanted.formula, given=each.given.formula)
        way = partial(each.change, axis=axis)
        yield _Mistake(made, True, way)
        if colours:
            yield _Mistake(message("diagnosis.input_way_colours", way=made), True, _flipped(way, axis))
    if pictures:
        yield _Mistake(message("diagnosis.input_mirrored"), False, _flipped(_same, -1))
        yield _Mistake(message("diagnosis.input_upside_down"), False, _flipped(_same, -2))
        if example.shape[-1] == example.shape[-2]:
            how = message("diagnosis.input_transposed")
            yield _Mistake(how, False, lambda values: np.swapaxes(values, -1, -2))


def _same(values: Array) -> Array:
    return values


def _preparations(example: Array, axis: int) -> Iterator[Hypothesis]:
    """Every pair of what the samples may be and what the device may be fed, one of those that do the same."""
    if example.dtype.kind not in "fiu" or not example.size or not np.isfinite(example).all():
        return
    channels = example.shape[axis] if example.ndim == _PICTURE_RANK else 1
    known = [each for each in preparations(channels) if each.order != "BGR"]
    seen = InputObservation.of(example if example.ndim == _PICTURE_RANK else example.reshape(-1, 1), axis or 1)
    likely = [each for each, _ in plausible(seen) if each.order != "BGR"]
    kept: list[Hypothesis] = []
    for given in (*likely, *(each for each in known if each.name in _ALWAYS)):
        for wanted in known:
            # What samples surely are not is only taken for the most usual ways.
            if given not in likely and wanted.name not in _ALWAYS:
                continue
            found = Hypothesis(given, wanted, 0.0)
            if not alike(given, wanted, _ALIKE) and not any(_does_the_same(found, each, seen) for each in kept):
                kept.append(found)
                yield found


def _does_the_same(one: Hypothesis, other: Hypothesis, seen: InputObservation) -> bool:
    ends = [(each.change(seen.low, 0), each.change(seen.high, 0)) for each in (one, other)]
    width = float(np.abs(ends[0][1] - ends[0][0]).max())
    return all(float(np.abs(left - right).max()) <= _ALIKE * width for left, right in zip(*ends, strict=True))


def _flipped(way: _Way, axis: int) -> _Way:
    return lambda values: np.flip(way(values), axis)
