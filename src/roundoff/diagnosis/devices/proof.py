"""How an intervention on a device's tensor is judged: by what is left of its error."""

from collections.abc import Sequence

import numpy as np

from roundoff.core.tensors import Array
from roundoff.diagnosis.devices.replay import Pair
from roundoff.diagnosis.devices.suspects import DeviceSuspect
from roundoff.diagnosis.registry import Intervention
from roundoff.diagnosis.result import Measure, RemedyChange
from roundoff.measure.metrics import ratio_db
from roundoff.messages.message import Argument, Message, joined, message
from roundoff.messages.sanitize import short_name

__all__ = ["MOST_LEFT", "called", "energy", "left_over", "only_dumped", "recovered", "tried", "where"]

MOST_LEFT = 30.0
"""What explains all of a difference leaves no more than so many times what is expected anyway.

Something else, such as a bias that was added twice or weights that were exchanged, may be explained for the most
part by a line or by another order.
"""

# An explanation may leave this many times the error that is expected anyway.
_LEFT = 4.0
_MOST = 0.5


def called(suspect: DeviceSuspect) -> str:
    """What to call a tensor in a sentence."""
    return short_name(suspect.tensor)


def where(suspect: DeviceSuspect, whole: Message) -> Message:
    """A sentence that ends in whether the device itself is wrong or what it wrote."""
    return message(f"diagnosis.where_{suspect.flow.replace(' ', '_')}", whole=whole)


def only_dumped(remedy: Message) -> Message:
    """What to do about a dump, where that is all that is wrong."""
    return joined([remedy, message("diagnosis.device_itself_right")])


def _energies(pairs: Sequence[Pair], explained: Sequence[Array]) -> tuple[float, float, float, float]:
    """Energies of the signal, of the error as it is and as explained, and of what is expected."""
    signal = before = after = noise = 0.0
    for pair, other in zip(pairs, explained, strict=True):
        largest = float(np.abs(pair.exact[np.isfinite(pair.exact)]).max(initial=0.0))
        signal += float(np.square(np.nan_to_num(pair.exact, posinf=0, neginf=0).astype(np.float64)).sum())
        before += energy(pair.found, pair.exact, largest)
        after += energy(pair.found, other, largest)
        noise += pair.expected.noise * pair.exact.size
    return signal, before, after, noise


def energy(found: Array, exact: Array, largest: float) -> float:
    """Energy of a difference; an element that is not finite on one side only is off by the largest value."""
    with np.errstate(invalid="ignore", over="ignore"):
        difference = found.astype(np.float64) - exact
    same = (found == exact) | (np.isnan(found) & np.isnan(exact))
    difference = np.where(same, 0.0, np.where(np.isfinite(difference), difference, largest))
    return float(np.square(difference).sum())


def recovered(suspect: DeviceSuspect, explained: Sequence[Array]) -> float:
    """Part of the error beyond what is expected that an explanation takes away."""
    _, before, after, noise = _energies(suspect.pairs, explained)
    wrong = before - noise
    if wrong <= 0:
        return 0.0
    gone = max(0.0, 1 - after / before)
    # Near to what is expected anyway, an explanation must still take most of the error away.
    return min(1.0, 1 - max(0.0, after - _LEFT * noise) / wrong) if gone > _MOST else gone


def left_over(suspect: DeviceSuspect, explained: Sequence[Array]) -> float:
    """Energy of the error that an explanation leaves, over what is expected of this device anyway."""
    _, _, after, noise = _energies(suspect.pairs, explained)
    return after / max(noise * suspect.floor**2, np.finfo(float).tiny)


def tried(
    suspect: DeviceSuspect,
    explained: Sequence[Array],
    *,
    changed: Message,
    summary: Message,
    changes: Sequence[RemedyChange] = (),
    detail: Argument = None,
) -> Intervention:
    """An intervention: what the tensor would be if the explanation is right, next to what the device wrote.

    Args:
        suspect: The tensor.
        explained: Its values by the explanation, in the samples of the suspect.
        changed: What was changed in the reference.
        summary: The finding.
        changes: The remedy as data.
        detail: What the remedy goes on to say.
    """
    signal, before, after, _ = _energies(suspect.pairs, explained)
    measure = Measure(
        message("diagnosis.measure_device", tensor=called(suspect)),
        "dB",
        ratio_db(signal, before),
        ratio_db(signal, after),
        samples=len(suspect.pairs),
    )
    return Intervention(changed, (measure,), recovered(suspect, explained), summary, tuple(changes), detail=detail)
