"""A tensor was brought to values with the scale or the zero point of another."""

from collections.abc import Sequence

import numpy as np

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
    residual_energy,
    tried,
    where,
    with_lines,
)
from roundoff.diagnosis.devices.replay import DeviceReplay
from roundoff.diagnosis.devices.suspects import DeviceSuspect
from roundoff.diagnosis.registry import Intervention, Signal, cause
from roundoff.diagnosis.result import Remedy, RemedyChange
from roundoff.messages.message import message

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
        if is_known_kernel(case, suspect):
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
