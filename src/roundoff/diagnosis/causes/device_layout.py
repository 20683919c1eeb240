"""The right values in the wrong order."""

from collections.abc import Callable, Sequence

import numpy as np

from roundoff.align.layout import find_layout
from roundoff.core.tensors import Array
from roundoff.diagnosis.devices.kernels.fit import is_known_kernel
from roundoff.diagnosis.devices.proof import MOST_LEFT, called, only_dumped, residual_energy, tried, where
from roundoff.diagnosis.devices.replay import DeviceReplay
from roundoff.diagnosis.devices.suspects import DeviceSuspect
from roundoff.diagnosis.registry import Intervention, Signal, cause
from roundoff.diagnosis.result import Remedy, RemedyChange
from roundoff.measure.pairs import channel_axis_of
from roundoff.messages.message import Argument, as_message, message

# Sorted, both sides differ by less than this part of what they do in their order.
_SORTED = 0.2
# Of more channels it would take long to say which is which.
_MOST_CHANNELS = 2048
_NAMED = 4


@cause("layout", of="device", order=40)
class DeviceLayout:
    """The values are right and in the wrong order: axes, or channels, are exchanged."""

    def signal(self, case: DeviceReplay, suspect: DeviceSuspect) -> Signal | None:
        """How much of the difference goes away by sorting both sides."""
        as_is = sorted_ = 0.0
        for pair in suspect.pairs:
            x, y = (np.nan_to_num(side.astype(np.float64)).ravel() for side in (pair.exact, pair.found))
            as_is += float(np.square(x - y).sum())
            sorted_ += float(np.square(np.sort(x) - np.sort(y)).sum())
        left = sorted_ / as_is if as_is else 1.0
        if left < _SORTED and is_known_kernel(case, suspect):
            return None
        return Signal(1 - left, {"left_when_sorted": left}) if left < _SORTED else None

    def intervene(self, case: DeviceReplay, suspect: DeviceSuspect) -> Intervention | None:
        """The reference in another order."""
        by_axes, by_channels = _by_axes(suspect), _by_channels(suspect)
        found = [each for each in (by_axes, by_channels) if each is not None]
        return max(found, key=lambda each: each.recovered, default=None)

    def remedy(self, case: DeviceReplay, suspect: DeviceSuspect, proof: Intervention) -> Remedy:
        """Read, or have it written, in the right order."""
        if suspect.flow == "dump only":
            return Remedy(only_dumped(message("diagnosis.layout_remedy_dump", tensor=called(suspect))), "outside")
        return Remedy(message("diagnosis.layout_remedy", tensor=called(suspect)), "outside", proof.changes)


def _by_axes(suspect: DeviceSuspect) -> Intervention | None:
    first = suspect.pairs[0]
    layout = find_layout(first.exact, first.found)
    if layout is None:
        return None
    # The layout leads from the device's order to the right one; the right one is taken the other way.
    explained = [_inverse(layout.apply, pair.exact) for pair in suspect.pairs]
    if residual_energy(suspect, explained) > MOST_LEFT:
        return None
    what, turn = called(suspect), as_message(layout.name)
    return tried(
        suspect,
        explained,
        changed=message("diagnosis.layout_changed", tensor=what, layout=turn),
        summary=where(suspect, message("diagnosis.layout_summary", tensor=what, layout=turn)),
        changes=(RemedyChange("report", nodes=suspect.nodes, tensors=(suspect.tensor,), value=layout.name),),
    )


def _inverse(apply: Callable[[Array], Array], exact: Array) -> Array:
    places = np.arange(exact.size).reshape(exact.shape)
    order = apply(places).ravel()
    laid_out = np.empty(exact.size, exact.dtype)
    laid_out[order] = exact.ravel()
    return laid_out.reshape(exact.shape)


def slice_order(exact: Sequence[Array], found: Sequence[Array], axis: int) -> Array | None:
    """Which slice of the reference each slice of the device holds; None when each is in its place."""
    if not 2 <= exact[0].shape[axis] <= _MOST_CHANNELS:
        return None
    x, y = (
        np.concatenate([np.moveaxis(each, axis, 0).reshape(each.shape[axis], -1) for each in side], axis=1)
        for side in (exact, found)
    )
    x, y = x.astype(np.float64), y.astype(np.float64)
    distance = np.square(x).sum(1)[None] + np.square(y).sum(1)[:, None] - 2 * y @ x.T
    order = _assigned(distance)
    return None if np.array_equal(order, np.arange(len(order))) else order


def _assigned(distance: Array) -> Array:
    """Each channel once, the nearest pairs first; of pairs that are equally near the one that stays in place."""
    count = len(distance)
    order, taken = np.full(count, -1), np.zeros(count, bool)
    in_place = np.eye(count, dtype=bool).ravel()
    for pair in np.lexsort((~in_place, distance.ravel())):
        ours, theirs = divmod(int(pair), count)
        if order[ours] < 0 and not taken[theirs]:
            order[ours], taken[theirs] = theirs, True
    return order


def _by_channels(suspect: DeviceSuspect) -> Intervention | None:
    """Slices along one axis in another order; the axis that explains most."""
    exact, found = zip(*((pair.exact, pair.found) for pair in suspect.pairs), strict=True)
    if any(each.shape != exact[0].shape for each in exact):
        return None
    best: Intervention | None = None
    for axis in range(exact[0].ndim):
        order = slice_order(exact, found, axis)
        if order is None:
            continue
        moved = np.flatnonzero(order != np.arange(len(order)))
        explained = [np.take(each, order, axis=axis) for each in exact]
        # Channels that are nearest to others and are not those have something else wrong.
        if residual_energy(suspect, explained) > MOST_LEFT:
            continue
        which = _which([(index, int(order[index])) for index in moved.tolist()])
        what, channels = called(suspect), axis == channel_axis_of(exact[0].shape)
        kind = "channels" if channels else "slices"
        place: dict[str, Argument] = {"tensor": what} | ({} if channels else {"axis": axis})
        proof = tried(
            suspect,
            explained,
            changed=message(f"diagnosis.layout_{kind}_changed", **place),
            summary=where(
                suspect,
                message(f"diagnosis.layout_{kind}", **place, count=len(moved), all=len(order), which=which),
            ),
            changes=(
                RemedyChange(
                    "report",
                    nodes=suspect.nodes,
                    tensors=(suspect.tensor,),
                    value="channels" if channels else f"slices of axis {axis}",
                ),
            ),
        )
        if best is None or proof.recovered > best.recovered:
            best = proof
    return best


def _which(moved: Sequence[tuple[int, int]]) -> Argument:
    """The first slices that hold others."""
    told = tuple(message("diagnosis.layout_holds", place=own, other=other) for own, other in moved[:_NAMED])
    return told if len(moved) <= _NAMED else message("diagnosis.layout_holds_more", which=told)
