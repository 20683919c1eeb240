"""What the tensors of the float network hold, and what their quantizers do to that: one pass over samples."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from roundoff.core.progress import SILENT, Progress
from roundoff.core.quantizers import Quantizer, dequantize, fake_quantize, representable_range
from roundoff.core.tensors import Array
from roundoff.graph.load import Model
from roundoff.measure.inference import safe_end
from roundoff.run.capture import LiveSource, Samples

CLIP_WEIGHT = 8.0
"""How far samples reach that nobody has seen is extrapolated: clipping counts so many times as much as rounding.

On 54 quantizations of the planted suite, seeds 801 and 802, made of 20 samples, 400 others have 0.3 dB less than
with 2, and claims are off by 0.6 dB (root mean square), not 1.2, and by 1.6 at most, not 5.1; with 32 they have
0.3 dB less again, and nothing is surer.
"""

# Values of one tensor in one sample that are looked at; of larger ones every so manieth position.
_MOST_VALUES = 1 << 16


@dataclass(frozen=True, slots=True, eq=False)
class Damage:
    """What a quantizer does to the values of a tensor, channel by channel.

    Attributes:
        energy: Energy of the values.
        noise: Energy of the error.
        clipped: The part of it that values outside the range have.
        shift: Sum of the errors.
        saturated: How many values are outside the range by more than half a step.
        count: How many values there are.
    """

    energy: Array
    noise: Array
    clipped: Array
    shift: Array
    saturated: int
    count: int

    def merge(self, other: "Damage") -> "Damage":
        """Both together."""
        sums = (
            getattr(self, name) + getattr(other, name)
            for name in ("energy", "noise", "clipped", "shift", "saturated", "count")
        )
        return Damage(*sums)

    @property
    def ratio(self) -> float:
        """Energy of the error over that of the values."""
        energy = float(self.energy.sum())
        return float(self.noise.sum()) / energy if energy else float(self.noise.any())

    @property
    def clipped_share(self) -> float:
        """Share of the error's energy that saturated values have."""
        noise = float(self.noise.sum())
        return float(self.clipped.sum()) / noise if noise else 0.0

    @property
    def channel_loss(self) -> float:
        """What channels lose on average, on the scale on which losses add up; silent ones do not count."""
        return channel_loss(self.energy, self.noise)


def channel_loss(energy: Array, noise: Array) -> float:
    """The mean over channels of the logarithm of 1 and the error's share; silent channels do not count."""
    loud = energy > 1e-6 * energy.mean() if energy.size else energy.astype(bool)
    if not loud.any():
        return 0.0
    return float(np.log1p(noise[loud] / energy[loud]).mean())


# A token that reaches so many times as far as any other, in so many samples and all there are, is a sink.
_SINK, _FEWEST_SINKS = 10.0, 2


@dataclass(frozen=True, slots=True)
class SinkToken:
    """One position that holds all maxima of a tensor.

    Attributes:
        token: Its position.
        channel: Where its largest value is.
        reach: The magnitude of that.
        others: The largest magnitude of any other token.
    """

    token: int
    channel: int
    reach: float
    others: float


@dataclass(frozen=True, slots=True, eq=False)
class Observed:
    """What one tensor holds.

    Attributes:
        low: Smallest value of each channel.
        high: Largest value of each channel.
        axis: The channel axis; None where there are no channels.
        energy: Energy of each channel.
        nonzero: Values of each channel that are not zero; those that are have no error.
        count: How many values there are.
        nonfinite: Values that are NaN or infinite, and left out.
        damage: By quantizer.
        ends: Smallest and largest value of each sample, of shape (samples, 2).
        rows: Of each sample of a tensor of tokens and channels where its largest magnitude is (token, channel),
            that, the largest of all other tokens, and the rms of the row in the middle, of shape (samples, 5).
    """

    low: Array
    high: Array
    axis: int | None
    energy: Array
    nonzero: Array
    count: int
    nonfinite: int = 0
    damage: Mapping[str, Damage] = field(default_factory=dict)
    ends: Array = field(default_factory=lambda: np.zeros((0, 2)))
    rows: Array = field(default_factory=lambda: np.zeros((0, 5)))

    @property
    def row_rms(self) -> float:
        """Root of the mean square of a usual row; 0 where there are no rows."""
        return float(np.median(self.rows[:, 4])) if len(self.rows) else 0.0

    @property
    def sink(self) -> "SinkToken | None":
        """The token that holds the maxima of all samples, far above all others; None where there is none."""
        if len(self.rows) < _FEWEST_SINKS or len(set(self.rows[:, 0])) != 1:
            return None
        ratio = float((self.rows[:, 2] / np.maximum(self.rows[:, 3], np.finfo(np.float64).tiny)).min())
        if ratio < _SINK:
            return None
        best = self.rows[self.rows[:, 2].argmax()]
        return SinkToken(int(best[0]), int(best[1]), float(best[2]), float(self.rows[:, 3].max()))

    def range_of(self, places: Sequence[int]) -> tuple[float, float]:
        """Smallest and largest value in some of the samples, by their places, zero included."""
        ends = self.ends[[place for place in places if place < len(self.ends)]]
        return float(ends[:, 0].min(initial=0.0)), float(ends[:, 1].max(initial=0.0))

    @property
    def range(self) -> tuple[float, float]:
        """Smallest and largest value, zero included."""
        return min(0.0, float(self.low.min(initial=0.0))), max(0.0, float(self.high.max(initial=0.0)))

    @property
    def rms(self) -> float:
        """Root of the mean square."""
        return float(np.sqrt(self.energy.sum() / self.count)) if self.count else 0.0

    @property
    def usual_rms(self) -> float:
        """The rms of the channel in the middle: that of all is made by a few channels that are far larger."""
        loud = self.energy[self.energy > 0]
        return float(np.sqrt(np.median(loud) * self.energy.size / self.count)) if loud.size else 0.0


def safe_range(seen: Sequence[Observed], bits: int) -> tuple[float, float]:
    """Where a range has to end for samples like those that were seen of some tensors, which they do not hold."""
    rounding = rounding_energy(seen, bits)
    far = [np.max([np.maximum(sign * each.ends[:, side], 0.0) for each in seen], axis=0) for side, sign in _SIDES]
    low, high = (
        safe_end(mine, other=float(other.max(initial=0.0)), rounding=rounding, weight=CLIP_WEIGHT)
        for mine, other in (far, far[::-1])
    )
    return -low, high


_SIDES = ((0, -1), (1, 1))


def rounding_energy(seen: Sequence[Observed], bits: int) -> float:
    """Energy of the rounding errors of one sample of some tensors, in a range of width 1."""
    values = max(each.count / max(1, len(each.ends)) for each in seen)
    return float(values / (12 * (2**bits - 1) ** 2))


def channel_sums(values: Array, axis: int | None) -> Array:
    """Sums over all but the channel axis, of shape [C]; C is 1 without channels."""
    if axis is None or values.ndim == 0:
        return np.asarray([values.sum(dtype=np.float64)])
    axes = tuple(at for at in range(values.ndim) if at != axis)
    return np.asarray(values.sum(axis=axes, dtype=np.float64))


def quantize_values(
    values: Array, quantizer: Quantizer, axis: int | None, *, energy: Array | None = None
) -> Damage:
    """What a quantizer does to finite values.

    Args:
        values: Of the tensor, float32.
        quantizer: The quantizer.
        axis: The channel axis by which damage is told.
        energy: That of each channel, where it is known.
    """
    if values.size > _PIECE and (halves := _halves(values, quantizer, axis)) is not None:
        found = halves[0].merge(halves[1])
        return found if energy is None else replace(found, energy=energy)
    spec, params = quantizer.spec, quantizer.params
    with np.errstate(all="ignore"):
        if quantizer.codes is None:
            error = fake_quantize(values, params, spec) - values
        else:
            error = dequantize(quantizer.codes, params, spec.axis) - values
        if not np.isfinite(error).all():
            error = np.nan_to_num(error)
    low, high = representable_range(params, spec)
    step = params.scale.astype(np.float64)
    if params.scale.ndim and spec.axis is not None:
        shape = [1] * values.ndim
        shape[spec.axis] = -1
        low, high, step = (each.reshape(shape) for each in (low, high, step))
    low, high = low - step / 2, high + step / 2
    squared = np.square(error, dtype=np.float64)
    noise = channel_sums(squared, axis)
    clipped, saturated = np.zeros(noise.shape), 0
    if low.size > 1 or (values.size and (values.min() < low or values.max() > high)):
        outside = (values < low) | (values > high)
        clipped, saturated = channel_sums(squared * outside, axis), int(np.count_nonzero(outside))
    return Damage(
        energy=channel_sums(np.square(values, dtype=np.float64), axis) if energy is None else energy,
        noise=noise,
        clipped=clipped,
        shift=channel_sums(error, axis),
        saturated=saturated,
        count=values.size,
    )


# Larger tensors are looked at in halves: errors and their squares take five times as much as the values.
_PIECE = 1 << 22


def _halves(values: Array, quantizer: Quantizer, axis: int | None) -> tuple[Damage, Damage] | None:
    """What it does to both halves along an axis that has neither channels nor scales; None without one."""
    scaled = quantizer.spec.axis
    taken = {at % values.ndim for at in (axis, scaled) if at is not None}
    free = [at for at in range(values.ndim) if at not in taken and values.shape[at] > 1]
    if not free:
        return None
    longest = max(free, key=lambda at: values.shape[at])
    half = values.shape[longest] // 2
    parts = [(slice(None),) * longest + (part,) for part in (slice(half), slice(half, None))]
    codes = quantizer.codes
    first, second = (
        quantize_values(values[part], replace(quantizer, codes=None if codes is None else codes[part]), axis)
        for part in parts
    )
    return first, second


def observe(  # noqa: PLR0913 - what to run, what to look at, and how much it may take
    model: Model,
    samples: Samples,
    quantizers: Sequence[Quantizer],
    *,
    axes: Mapping[str, int],
    threads: int | None = None,
    max_memory: int | None = None,
    progress: Progress = SILENT,
    ranges_only: bool = False,
) -> dict[str, Observed]:
    """Look at every tensor that quantizers are on, constants left out.

    Args:
        model: The float model.
        samples: What it is fed.
        quantizers: Of activations.
        axes: The channel axis of each tensor that has one.
        threads: Threads to use.
        max_memory: Bytes the process may take.
        progress: Told of every sample.
        ranges_only: Leave out energies, and what quantizers do.

    Raises:
        BadInput: The samples do not fit the model.
        ModelFailed: The model cannot be run.
    """
    of_tensor: dict[str, list[Quantizer]] = {}
    for quantizer in quantizers:
        of_tensor.setdefault(quantizer.tensor, []).append(quantizer)
    source = LiveSource(model, samples, tensors=list(of_tensor), threads=threads, max_memory=max_memory)
    readable = [info.name for info in source.tensors if not info.problem and info.name in of_tensor]
    found: dict[str, Observed] = {}
    progress.start("observing", len(source.samples))
    try:
        for sample in source.samples:
            for name in readable:
                asked = of_tensor[name]
                seen = _look(source.read(name, sample), asked, axes.get(name), () if ranges_only else asked)
                found[name] = _merged(found[name], seen) if name in found else seen
            progress.advance()
    finally:
        progress.finish()
        source.close()
    return found


def _look(array: Array, quantizers: Sequence[Quantizer], axis: int | None, tried: Sequence[Quantizer]) -> Observed:
    axis = axis if axis is not None and axis < array.ndim else None
    if any(each.params.scale.ndim for each in quantizers) and quantizers[0].spec.axis is not None:
        axis = quantizers[0].spec.axis % max(1, array.ndim)
    values = _thinned(array.astype(np.float32, copy=False), axis)
    finite = np.isfinite(values)
    nonfinite = int(values.size - np.count_nonzero(finite))
    if nonfinite:
        values = np.where(finite, values, np.float32(0))
    axes = tuple(at for at in range(values.ndim) if at != axis)
    if values.size:
        low, high = np.atleast_1d(values.min(axis=axes)), np.atleast_1d(values.max(axis=axes))
        if values.size < array.size:  # ends are never left out
            ends = np.asarray([array.min(), array.max()])
            low, high = _stretched(low, high, ends if np.isfinite(ends).all() else array[np.isfinite(array)])
    else:
        low = high = np.zeros(1, np.float32)
    energy, nonzero = np.zeros(low.shape), np.zeros(low.shape)
    if tried:
        energy = channel_sums(np.square(values, dtype=np.float64), axis)
        nonzero = np.atleast_1d(np.count_nonzero(values, axis=axes)).astype(np.float64)
    return Observed(
        low=low.astype(np.float64),
        high=high.astype(np.float64),
        axis=axis,
        energy=energy,
        nonzero=nonzero,
        count=values.size,
        nonfinite=nonfinite,
        damage={each.name: quantize_values(values, each, axis, energy=energy) for each in tried},
        ends=np.asarray([[low.min(initial=0.0), high.max(initial=0.0)]], np.float64),
        rows=_rows(array),
    )


# Tokens and channels, of a batch.
_TOKEN_RANK = 3


def _rows(array: Array) -> Array:
    """Where the largest magnitude of tokens is, how far others reach, and how large a usual row is."""
    if array.ndim != _TOKEN_RANK or array.shape[1] < 2 or not array.size:
        return np.zeros((0, 5))
    sizes = np.abs(np.nan_to_num(array.astype(np.float64), posinf=0.0, neginf=0.0))
    by_token = sizes.max(axis=(0, 2))
    token = int(by_token.argmax())
    channel = int(sizes[:, token].max(axis=0).argmax())
    rms = float(np.median(np.sqrt(np.square(sizes).mean(axis=-1))))
    return np.asarray([[token, channel, by_token[token], np.delete(by_token, token).max(), rms]])


def _stretched(low: Array, high: Array, values: Array) -> tuple[Array, Array]:
    """Ranges of channels that reach the ends of the whole."""
    low, high = low.copy(), high.copy()
    low[low.argmin()] = min(low.min(), values.min(initial=0.0))
    high[high.argmax()] = max(high.max(), values.max(initial=0.0))
    return low, high


def _thinned(values: Array, axis: int | None) -> Array:
    """Every so manieth position along the longest axis that is not the channels', where there are too many."""
    while values.size > _MOST_VALUES:
        sizes = [0 if at == axis else size for at, size in enumerate(values.shape)]
        longest = int(np.argmax(sizes))
        if sizes[longest] < 2:
            break
        place = [slice(None)] * values.ndim
        place[longest] = slice(None, None, 2)
        values = values[tuple(place)]
    return values


def _merged(left: Observed, right: Observed) -> Observed:
    if left.energy.shape != right.energy.shape:  # channels whose number changes are none
        left, right = _whole(left), _whole(right)
    return Observed(
        low=np.minimum(left.low, right.low),
        high=np.maximum(left.high, right.high),
        axis=left.axis,
        energy=left.energy + right.energy,
        nonzero=left.nonzero + right.nonzero,
        count=left.count + right.count,
        nonfinite=left.nonfinite + right.nonfinite,
        damage={name: each.merge(right.damage[name]) for name, each in left.damage.items()},
        ends=np.concatenate([left.ends, right.ends]),
        rows=np.concatenate([left.rows, right.rows]),
    )


def _whole(seen: Observed) -> Observed:
    def joined(damage: Damage) -> Damage:
        energy, noise, clipped, shift = (
            np.asarray([each.sum()]) for each in (damage.energy, damage.noise, damage.clipped, damage.shift)
        )
        return Damage(energy, noise, clipped, shift, damage.saturated, damage.count)

    return Observed(
        low=np.asarray([seen.low.min()]),
        high=np.asarray([seen.high.max()]),
        axis=None,
        energy=np.asarray([seen.energy.sum()]),
        nonzero=np.asarray([seen.nonzero.sum()]),
        count=seen.count,
        nonfinite=seen.nonfinite,
        damage={name: joined(each) for name, each in seen.damage.items()},
        ends=seen.ends,
        rows=seen.rows,
    )
