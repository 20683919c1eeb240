"""Causes in how a device keeps a tensor: another order, sample or scale, or a dump of something else."""

from collections.abc import Callable, Sequence

import numpy as np

from roundoff.align.layout import find_layout
from roundoff.core.quantizers import representable_range
from roundoff.core.tensors import Array
from roundoff.diagnosis.devices.kernels.fit import is_known_kernel
from roundoff.diagnosis.devices.proof import (
    MOST_LEFT,
    ChannelLine,
    called,
    channel_lines,
    line_text,
    lines_text,
    only_dumped,
    pattern,
    residual_energy,
    tried,
    where,
    with_lines,
)
from roundoff.diagnosis.devices.replay import DeviceReplay
from roundoff.diagnosis.devices.suspects import DeviceSuspect, LocalError
from roundoff.diagnosis.registry import Intervention, Signal, cause
from roundoff.diagnosis.result import Measure, Remedy, RemedyChange
from roundoff.measure.metrics import ratio_db
from roundoff.measure.pairs import channel_axis_of
from roundoff.messages.message import Argument, as_message, message

# The right values in the wrong order.

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


# A tensor belongs to another sample.

# So much nearer to another sample than to its own, a tensor is that one's.
_NEARER = 0.1
# So many samples of a dump are looked through for the one that a tensor belongs to.
_MOST_ORDERED = 256


@cause("stale-tensor", of="device", order=20)
class StaleTensor:
    """A tensor belongs to another sample: its buffer was not written, or written too late."""

    def signal(self, case: DeviceReplay, suspect: DeviceSuspect) -> Signal | None:
        """How many samples hold what another one should."""
        if len(suspect.pairs) < 2:
            return None
        stale = [
            other
            for own, other in enumerate(nearest_samples(suspect, references_of(case, suspect)))
            if other != own
        ]
        return Signal(len(stale) / len(suspect.pairs), {"stale_samples": float(len(stale))}) if stale else None

    def intervene(self, case: DeviceReplay, suspect: DeviceSuspect) -> Intervention | None:
        """The reference of the other sample."""
        references = references_of(case, suspect)
        nearest = nearest_samples(suspect, references)
        explained = [references[other] for other in nearest]
        # What is merely nearer to another sample, as few values that are cut off may be, is no copy of it.
        if residual_energy(suspect, explained) > MOST_LEFT:
            return None
        names = [case.readout.samples[place][0] for place in sample_places(case, suspect)]
        own = next(index for index, other in enumerate(nearest) if other != index)
        what = called(suspect)
        samples: dict[str, Argument] = {"own": names[own] or own, "other": names[nearest[own]] or nearest[own]}
        return tried(
            suspect,
            explained,
            changed=message("diagnosis.stale_tensor_changed", tensor=what),
            summary=where(suspect, message("diagnosis.stale_tensor_summary", tensor=what, **samples)),
            changes=(RemedyChange("report", nodes=suspect.nodes, tensors=(suspect.tensor,), value="stale"),),
        )

    def remedy(self, case: DeviceReplay, suspect: DeviceSuspect, proof: Intervention) -> Remedy:
        """Synchronize."""
        if suspect.flow == "dump only":
            title = only_dumped(message("diagnosis.stale_tensor_remedy_dump", tensor=called(suspect)))
            return Remedy(title, "outside", proof.changes)
        return Remedy(message("diagnosis.stale_tensor_remedy"), "outside", proof.changes)


def references_of(case: DeviceReplay, suspect: DeviceSuspect) -> list[Array]:
    """What the tensor should be in all samples, those of the suspect first."""
    held = [pair.exact for pair in suspect.pairs]
    others = sample_places(case, suspect)[len(held) :]
    if suspect.tensor in case.inputs:
        return held + [np.asarray(case.feed(place)[suspect.tensor]).astype(np.float32) for place in others]
    return held + [case.golden.compute(suspect.tensor, case.view(place)) for place in others]


def sample_places(case: DeviceReplay, suspect: DeviceSuspect) -> tuple[int, ...]:
    """The samples of the dump, those of the suspect first, then those that are used."""
    every = range(min(len(case.readout.samples), _MOST_ORDERED))
    return tuple(dict.fromkeys((*suspect.places, *case.indices, *every)))


def nearest_samples(suspect: DeviceSuspect, references: Sequence[Array]) -> list[int]:
    """For each sample the one whose reference its tensor is nearest to; itself when it is not clear."""
    found = []
    for own, pair in enumerate(suspect.pairs):
        distance = [
            float(np.square(np.nan_to_num(pair.found - other).astype(np.float64)).sum())
            if other.shape == pair.found.shape
            else np.inf
            for other in references
        ]
        best = int(np.argmin(distance))
        found.append(best if distance[best] < _NEARER * distance[own] else own)
    return found


# A tensor was brought to values with the scale or the zero point of another.

# A gain within this of one, and an offset within this part of the spread, are none.
_NO_GAIN, _NO_OFFSET = 0.02, 0.02
_FEWEST = 8
_ROUNDS = 6
_NO_LIMIT = (-np.inf, np.inf)
# Gain and offset together must explain this much more than one of them.
_CLEARLY_MORE = 0.02


def robust_line(exact: Array, found: Array) -> tuple[float, float] | None:
    """Gain and offset from one to the other by most of the elements; those cut off at the ends do not count."""
    x, y = exact.astype(np.float64).ravel(), found.astype(np.float64).ravel()
    sound = np.isfinite(x) & np.isfinite(y)
    x, y = x[sound], y[sound]
    if x.size < _FEWEST:
        return None
    between = (y > y.min()) & (y < y.max())
    x, y = x[between], y[between]
    keep = np.ones(x.size, bool)
    for _ in range(_ROUNDS):
        if np.count_nonzero(keep) < _FEWEST or x[keep].std() == 0:
            return None
        gain, offset = np.polyfit(x[keep], y[keep], 1)
        rest = np.abs(y - gain * x - offset)
        keep = rest <= 3 * np.median(rest)
    return float(gain), float(offset)


@cause("wrong-dequantization", of="device", order=50)
class WrongDequantization:
    """A tensor, or a channel of it, has a wrong gain or offset: the scale or zero point of another was used."""

    def signal(self, case: DeviceReplay, suspect: DeviceSuspect) -> Signal | None:
        """Gain and offset of the best line, or of the channels that have some of their own."""
        # Of codes nobody tells the scale of, no gain is wrong.
        if is_known_kernel(case, suspect) or suspect.tensor in case.readout.fits:
            return None
        line = _noticed(suspect)
        if line is not None:
            return Signal(1.0, {"gain": line[0], "offset": line[1]})
        single = _single_channels(case, suspect)
        if not single:
            return None
        numbers = {"channels": float(len(single)), "channel": float(single[0].channel)}
        return Signal(1.0, {**numbers, "gain": single[0].gain, "offset": single[0].offset})

    def intervene(self, case: DeviceReplay, suspect: DeviceSuspect) -> Intervention | None:
        """The reference with that gain and offset."""
        line = _noticed(suspect)
        whole = None if line is None else _of_all(case, suspect, line)
        return whole or _of_channels(case, suspect)

    def remedy(self, case: DeviceReplay, suspect: DeviceSuspect, proof: Intervention) -> Remedy:
        """Read it rightly, or have its requantization put right."""
        single = _noticed(suspect) is None
        which = "_channels" if single else ""
        if suspect.flow == "dump only":
            own = message(f"diagnosis.dequantization_remedy_dump{which}", tensor=called(suspect))
            return Remedy(only_dumped(own), "outside", proof.changes)
        title = message(f"diagnosis.dequantization_remedy{which}", tensor=called(suspect))
        return Remedy(title, "outside", proof.changes)


def _of_all(case: DeviceReplay, suspect: DeviceSuspect, line: tuple[float, float]) -> Intervention | None:
    gain, offset = line
    limit = _limits(case, suspect)
    best: Intervention | None = None
    # What is dumped in float after a wrong gain need not end where the codes do.
    ways = [(*line, ends) for ends in (limit, _NO_LIMIT) for line in ((1.0, offset), (gain, 0.0), (gain, offset))]
    for factor, summand, ends in ways:
        explained = [np.clip(pair.free.astype(np.float64) * factor + summand, *ends) for pair in suspect.pairs]
        if residual_energy(suspect, explained) > MOST_LEFT:
            continue
        proof = _tried(suspect, (factor, summand), explained)
        if best is None or proof.recovered > best.recovered + _CLEARLY_MORE:
            best = proof
    return best


def _of_channels(case: DeviceReplay, suspect: DeviceSuspect) -> Intervention | None:
    single = _single_channels(case, suspect)
    if not single:
        return None
    limit = _limits(case, suspect)
    explained = [np.clip(with_lines(pair.free, single), *limit) for pair in suspect.pairs]
    if residual_energy(suspect, explained) > MOST_LEFT:
        return None
    what = called(suspect)
    told = lines_text(single, what)
    return tried(
        suspect,
        explained,
        changed=lines_text(single, what, reference=True),
        summary=where(suspect, told),
        changes=(RemedyChange("report", nodes=suspect.nodes, tensors=(suspect.tensor,), value=str(told)),),
    )


def _single_channels(case: DeviceReplay, suspect: DeviceSuspect) -> tuple[ChannelLine, ...]:
    return channel_lines(suspect.pairs, robust_line, limit=_limits(case, suspect))


def _noticed(suspect: DeviceSuspect) -> tuple[float, float] | None:
    """Gain and offset of the whole tensor, when they are some."""
    line = _line(suspect)
    if line is None:
        return None
    spread = float(np.concatenate([pair.free.ravel() for pair in suspect.pairs]).std())
    if abs(line[0] - 1) < _NO_GAIN and abs(line[1]) < _NO_OFFSET * spread:
        return None
    return line


def _line(suspect: DeviceSuspect) -> tuple[float, float] | None:
    exact, found = (
        np.concatenate([side.ravel() for side in sides])
        for sides in zip(*((pair.free, pair.found) for pair in suspect.pairs), strict=True)
    )
    return robust_line(exact, found)


def _limits(case: DeviceReplay, suspect: DeviceSuspect) -> tuple[float, float]:
    """Where codes end: a device that goes on with a wrong gain cuts off there."""
    quantizer = case.golden.coded.get(suspect.tensor)
    if not case.quantizers:
        return case.numbers.limits.get(suspect.tensor, (-np.inf, np.inf))
    if quantizer is None or suspect.flow == "dump only":
        return -np.inf, np.inf
    low, high = representable_range(quantizer.params, quantizer.spec)
    return float(low.min()), float(high.max())


def _tried(suspect: DeviceSuspect, line: tuple[float, float], explained: Sequence[Array]) -> Intervention:
    what, told = called(suspect), line_text(*line)
    reference = line_text(*line, of="line_reference")
    return tried(
        suspect,
        explained,
        changed=message("diagnosis.dequantization_as", tensor=what, line=reference),
        summary=where(suspect, message("diagnosis.dequantization_is", tensor=what, line=told)),
        changes=(RemedyChange("report", nodes=suspect.nodes, tensors=(suspect.tensor,), value=str(told)),),
    )


# What was written of a tensor is not what the device had of it.


@cause("wrong-dump", of="device", order=85, enough=0.5)
class WrongDump:
    """The dump of a tensor is wrong in a way of its own; what reads it on the device had the right values."""

    def signal(self, case: DeviceReplay, suspect: DeviceSuspect) -> Signal | None:
        """How many values are off by more than arithmetic explains."""
        if suspect.flow != "dump only":
            return None
        return Signal(1.0, {"share_off": suspect.error.share_beyond(), "largest_steps": suspect.error.largest})

    def intervene(self, case: DeviceReplay, suspect: DeviceSuspect) -> Intervention | None:
        """What reads it, computed from the reference instead of the dump."""
        as_dumped, as_computed = LocalError(), LocalError()
        for sample in suspect.places:
            right = case.view(sample)
            dumped = right.but({suspect.tensor: case.readout.read(suspect.tensor, sample)})
            for reader in case.consumers.get(suspect.tensor, ()):
                for error, given in ((as_dumped, dumped), (as_computed, right)):
                    pair = case.pair(reader, sample, given)
                    error.add(pair.exact, pair.found, pair.expected)
        before, after = (
            each.error + each.signal * each.nonfinite / max(1, each.count) for each in (as_dumped, as_computed)
        )
        if before <= 0:
            return None
        signal = as_computed.signal
        wrong = message(
            f"diagnosis.wrong_dump_{'step' if case.quantizers else 'arithmetic'}",
            tensor=called(suspect),
            pattern=pattern(suspect.pairs),
        )
        measure = Measure(
            message("diagnosis.measure_readers", tensor=called(suspect)),
            "dB",
            ratio_db(signal, before),
            ratio_db(signal, after),
            samples=len(suspect.pairs),
        )
        return Intervention(
            message("diagnosis.wrong_dump_changed", tensor=called(suspect)),
            (measure,),
            max(0.0, 1 - after / before),
            where(suspect, wrong),
            (RemedyChange("report", nodes=suspect.nodes, tensors=(suspect.tensor,)),),
        )

    def remedy(self, case: DeviceReplay, suspect: DeviceSuspect, proof: Intervention) -> Remedy:
        """Write it again."""
        return Remedy(only_dumped(message("diagnosis.dump_again", tensor=called(suspect))), "outside")
