"""The right values in the wrong order."""

from collections.abc import Sequence

import numpy as np

from roundoff.align import find_layout
from roundoff.core.findings import Change, Remedy
from roundoff.core.measure import channel_axis_of
from roundoff.core.tensors import Array
from roundoff.diagnosis.devices.bench import Bench
from roundoff.diagnosis.devices.proof import called, tried
from roundoff.diagnosis.devices.suspects import DeviceSuspect
from roundoff.diagnosis.registry import Intervention, Signal, cause

__all__ = ["Layout", "channel_order"]

# Sorted, both sides differ by less than this part of what they do in their order.
_SORTED = 0.2
# A channel is another one when it correlates with it so much, and with itself less.
_SAME_CHANNEL = 0.98


@cause("layout", side="device", order=40)
class Layout:
    """The values are right and in the wrong order: axes, or channels, are exchanged."""

    def signal(self, case: Bench, suspect: DeviceSuspect) -> Signal | None:
        """How much of the difference goes away by sorting both sides."""
        as_is = sorted_ = 0.0
        for pair in suspect.pairs:
            x, y = (np.nan_to_num(side.astype(np.float64)).ravel() for side in (pair.exact, pair.found))
            as_is += float(np.square(x - y).sum())
            sorted_ += float(np.square(np.sort(x) - np.sort(y)).sum())
        left = sorted_ / as_is if as_is else 1.0
        return Signal(1 - left, {"left_when_sorted": left}) if left < _SORTED else None

    def intervene(self, case: Bench, suspect: DeviceSuspect) -> Intervention | None:
        """The reference in another order."""
        return _by_axes(suspect) or _by_channels(suspect)

    def remedy(self, case: Bench, suspect: DeviceSuspect, proof: Intervention) -> Remedy:
        """Read, or have it written, in the right order."""
        if suspect.flow == "dump only":
            return Remedy(f"read {called(suspect)} in its own layout; the device itself is right", "outside")
        title = f"check the layout in which {called(suspect)} is handed on; report it with a reproducer"
        return Remedy(title, "outside", proof.changes)


def _by_axes(suspect: DeviceSuspect) -> Intervention | None:
    first = suspect.pairs[0]
    layout = find_layout(first.exact, first.found)
    if layout is None:
        return None
    # The layout leads from the device's order to the right one; the right one is taken the other way.
    explained = [_inverse(layout.apply, pair.exact) for pair in suspect.pairs]
    what = called(suspect)
    return tried(
        suspect,
        explained,
        changed=f"the reference's {what} laid out as {layout.name}",
        summary=f"{what} has the right values in the wrong layout ({layout.name}), {_where(suspect)}",
        changes=(Change("report", nodes=suspect.nodes, tensors=(suspect.tensor,), value=layout.name),),
    )


def _inverse(apply: "object", exact: Array) -> Array:
    places = np.arange(exact.size).reshape(exact.shape)
    order = np.asarray(apply(places)).ravel()  # type: ignore[operator]
    laid_out = np.empty(exact.size, exact.dtype)
    laid_out[order] = exact.ravel()
    return laid_out.reshape(exact.shape)


def channel_order(exact: Sequence[Array], found: Sequence[Array]) -> Array | None:
    """Which channel of the reference each channel of the device holds; None when they cannot be told."""
    axis = channel_axis_of(exact[0].shape)
    if axis is None or exact[0].shape[axis] < 2:
        return None
    x, y = (
        np.concatenate([np.moveaxis(each, axis, 0).reshape(each.shape[axis], -1) for each in side], axis=1)
        for side in (exact, found)
    )
    x, y = x.astype(np.float64), y.astype(np.float64)
    distance = np.square(x).sum(1)[None] + np.square(y).sum(1)[:, None] - 2 * y @ x.T
    order = distance.argmin(axis=1)
    # Channels of zeros are alike; each goes where it is.
    silent = np.square(y).sum(1) == 0
    order[silent] = np.flatnonzero(silent)
    return None if np.array_equal(order, np.arange(len(order))) else order


def _by_channels(suspect: DeviceSuspect) -> Intervention | None:
    exact, found = zip(*((pair.exact, pair.found) for pair in suspect.pairs), strict=True)
    order = channel_order(exact, found)
    if order is None or len(set(order.tolist())) < len(order):
        return None
    axis = channel_axis_of(exact[0].shape)
    moved = np.flatnonzero(order != np.arange(len(order)))
    shown = ", ".join(f"{index} holds {order[index]}" for index in moved[:4].tolist())
    what = called(suspect)
    return tried(
        suspect,
        [np.take(each, order, axis=axis) for each in exact],
        changed=f"channels of the reference's {what} in that order",
        summary=f"{len(moved)} of {len(order)} channels of {what} are exchanged ({shown} ...), {_where(suspect)}",
        changes=(Change("report", nodes=suspect.nodes, tensors=(suspect.tensor,), value="channels"),),
    )


def _where(suspect: DeviceSuspect) -> str:
    if suspect.flow == "dump only":
        return "in the dump only"
    return "and what reads it goes on with that" if suspect.flow == "flows on" else "as far as it was dumped"
