"""The device is fed something else than the samples."""

from collections.abc import Callable, Iterator, Sequence

import numpy as np

from roundoff.analysis.io_check.explaining import explain_difference
from roundoff.core.findings import Change, Remedy
from roundoff.core.tensors import Array
from roundoff.diagnosis.devices.bench import Bench
from roundoff.diagnosis.devices.causes.wrong_dequantization import robust_line
from roundoff.diagnosis.devices.input_fit import fitted_input
from roundoff.diagnosis.devices.proof import called, left_over, tried
from roundoff.diagnosis.devices.suspects import DeviceSuspect
from roundoff.diagnosis.registry import ENOUGH, Intervention, Signal, cause

__all__ = ["Preprocessing"]

_Way = Callable[[Array], Array]
_SIDES = ("exact", "found")
# An input with a gain explains more than a result with one when it leaves less than this part of the error.
_CLEARLY = 0.5
# The usual means and deviations of ImageNet.
_MEAN, _STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)


@cause("preprocessing", side="device", order=10)
class Preprocessing:
    """The device's input is not what the float model is fed: it was prepared in another way."""

    def signal(self, case: Bench, suspect: DeviceSuspect) -> Signal | None:
        """Whether it is an input, or computed from an input that was not dumped."""
        return Signal(1.0, {}) if suspect.tensor in case.inputs or _hidden_inputs(case, suspect) else None

    def intervene(self, case: Bench, suspect: DeviceSuspect) -> Intervention | None:
        """Samples prepared in the way that explains the difference."""
        return _at_input(suspect) if suspect.tensor in case.inputs else _behind_input(case, suspect)

    def remedy(self, case: Bench, suspect: DeviceSuspect, proof: Intervention) -> Remedy:
        """Prepare it as the float model's."""
        how = f" ({proof.changes[0].value})" if proof.changes and proof.changes[0].value else ""
        return Remedy(f"prepare the device's input as the float model's{how}", "outside", proof.changes)


def _at_input(suspect: DeviceSuspect) -> Intervention:
    wanted, had = [pair.exact for pair in suspect.pairs], [pair.found for pair in suspect.pairs]
    tolerance = float(np.max([np.max(pair.expected.tolerance) for pair in suspect.pairs]))
    found = explain_difference(wanted, had, tolerance=max(tolerance, 1e-4))
    what = called(suspect)
    other = _other_samples(wanted, had, tolerance)
    if other:
        return tried(
            suspect,
            [wanted[place] for place in other],
            changed=f"the samples of {what} in the device's order",
            summary=f"the device was fed the samples of {what} in another order ({_order_text(other)})",
            changes=(Change("input", tensors=(suspect.tensor,), value="order of samples"),),
        )
    changes = () if found is None else found.changes
    words = "; ".join(change.text for change in changes) or "no usual mistake explains how they differ"
    settings = [each.correction for each in changes if each.correction is not None]
    said = ", ".join(f"{each.setting} {each.value}" for each in settings)
    # The difference is a fact; what is left open without an explanation is only its name.
    return tried(
        suspect,
        had,
        changed=f"the float model was fed the device's own {what}",
        summary=f"the device's input {what} is not that of the float model: {words}",
        changes=(Change("input", tensors=(suspect.tensor,), value=said),),
    )


def _other_samples(wanted: Sequence[Array], had: Sequence[Array], tolerance: float) -> list[int]:
    """For each of the device's samples the one of the user that it is; empty when they are none, or the same."""
    found = []
    for own in had:
        fits = [
            place
            for place, other in enumerate(wanted)
            if other.shape == own.shape and float(np.abs(other - own).max(initial=0.0)) <= tolerance
        ]
        if not fits:
            return []
        found.append(fits[0])
    return [] if found == list(range(len(had))) else found


def _order_text(other: Sequence[int]) -> str:
    first = next(place for place, source in enumerate(other) if place != source)
    return f"its sample {first} is sample {other[first]} of --data"


def _hidden_inputs(case: Bench, suspect: DeviceSuspect) -> tuple[str, ...]:
    if suspect.tensor not in case.spans:
        return ()
    reads = case.spans[suspect.tensor].reads
    return tuple(name for name in reads if name not in case.readout.pairs and name in case.feed(suspect.places[0]))


def _behind_input(case: Bench, suspect: DeviceSuspect) -> Intervention | None:
    best: Intervention | None = None
    for name in _hidden_inputs(case, suspect):
        for words, way in _usual_mistakes(case.feed(suspect.places[0])[name]):
            proof = _fed(case, suspect, name, words, way)
            if best is None or proof.recovered > best.recovered:
                best = proof
        if best is None or best.recovered < ENOUGH:
            fitted = _scaled(case, suspect, name)
            best = fitted if fitted is not None and fitted.recovered >= ENOUGH else best
    return best


def _fed(case: Bench, suspect: DeviceSuspect, name: str, words: str, way: _Way) -> Intervention:
    """What follows when an input was prepared in one way."""
    return tried(
        suspect,
        _made(case, suspect, name, way),
        changed=f"the reference was fed {name!r} {words}",
        summary=f"the device's input {name!r} is not that of the float model, but {words}",
        changes=(Change("input", tensors=(name,), value=f"now {words}"),),
    )


def _made(case: Bench, suspect: DeviceSuspect, name: str, way: _Way) -> list[Array]:
    made = []
    for sample in suspect.places:
        view = case.view(sample)
        changed = way(view[name].astype(np.float64)).astype(view[name].dtype)
        made.append(case.golden.compute(suspect.tensor, view.but({name: changed})))
    return made


def _scaled(case: Bench, suspect: DeviceSuspect, name: str) -> Intervention | None:
    """The gain and offset that explain it best, unless the result itself has a gain and an offset."""
    view, first = case.view(suspect.places[0]), suspect.pairs[0]
    if view[name].dtype.kind != "f":
        return None
    line = fitted_input(
        lambda values: case.golden.compute(suspect.tensor, view.but({name: values})), view[name], first.found
    )
    if line is None:
        return None
    gain, offset = line

    def way(values: Array) -> Array:
        return values * gain + offset

    behind = robust_line(*(np.concatenate([getattr(p, side).ravel() for p in suspect.pairs]) for side in _SIDES))
    if behind is not None:
        explained = [pair.exact * behind[0] + behind[1] for pair in suspect.pairs]
        if left_over(suspect, _made(case, suspect, name, way)) > _CLEARLY * left_over(suspect, explained):
            return None
    return _fed(case, suspect, name, f"{gain:.3g} times that {offset:+.3g}", way)


def _usual_mistakes(example: Array) -> Iterator[tuple[str, _Way]]:
    """What inputs that nobody dumped may have been turned into."""
    axis = next((place for place in (1, 3) if example.ndim == 4 and example.shape[place] == 3), None)
    scales: list[tuple[str, _Way]] = [
        ("", lambda x: x),
        ("times 255", lambda x: x * 255),
        ("divided by 255", lambda x: x / 255),
        ("halved and shifted by 0.5", lambda x: x / 2 + 0.5),
        ("doubled and shifted by -1", lambda x: x * 2 - 1),
        ("divided by 127.5 and shifted by -1", lambda x: x / 127.5 - 1),
        ("less 128", lambda x: x - 128),
    ]
    if axis is not None:
        shape = [1] * example.ndim
        shape[axis] = 3
        mean, std = np.reshape(_MEAN, shape), np.reshape(_STD, shape)
        scales += [
            ("normalized once more by ImageNet's mean and std", lambda x: (x - mean) / std),
            ("without normalization by ImageNet's mean and std", lambda x: x * std + mean),
            ("without normalization by ImageNet's mean and std, times 255", lambda x: 255 * (x * std + mean)),
        ]
    for words, way in scales:
        if words:
            yield words, way
        if axis is not None:
            yield ", ".join(filter(None, (words, "with red and blue exchanged"))), _flipped(way, axis)
    if example.ndim == 4:
        yield "mirrored", _flipped(scales[0][1], -1)
        yield "upside down", _flipped(scales[0][1], -2)
        if example.shape[-1] == example.shape[-2]:
            yield "with rows and columns exchanged", lambda values: np.swapaxes(values, -1, -2)


def _flipped(way: _Way, axis: int) -> _Way:
    return lambda values: np.flip(way(values), axis)
