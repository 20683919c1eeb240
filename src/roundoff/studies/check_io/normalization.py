"""What a gain and an offset per channel mean."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from roundoff.core.tensors import Array
from roundoff.messages.message import NOTHING, Argument, Message, message
from roundoff.preprocessing.conventions import BYTE, Convention, MeanStd, conventions
from roundoff.studies.check_io.result import Correction, IoChange

# A name fits when it predicts the same values as the fit, up to this part of what the fit leaves.
_SAME = 0.2
# Rounding to codes is no noise: the same values are always off by the same, which a fit does not even out.
_SAME_CODES = 0.5
_UNDER_NOISE = 4.0
FLOAT_ROUNDING = 4e-7
"""Float32 values are no more exact than this part of their size."""
# Pixels cannot be outside 0..255; resizing with a bicubic filter overshoots by this part of their range at most.
_OVERSHOOT = 0.2
# A picture whose darkest and brightest pixel are no further apart is hardly a picture.
_FAINT = 12
# How much more unlikely it is that training made the slip.
_TRAINING_SLIPS = 2.5
_FEWEST_CODES = 8
_IMPOSSIBLE = 10.0
_NEARLY_WHOLE = 0.1
# Where video has black and white.
_BLACK, _WHITE = 16.0, 235.0


@dataclass(frozen=True, slots=True)
class Values:
    """What is known of the values of both sides, channel by channel in training's order.

    Attributes:
        gain: Training is ``gain * deployed + offset``.
        offset: See `gain`.
        low: Smallest value of the deployed side.
        high: Largest one.
        mean: Mean of the deployed side.
        spread: Standard deviation of the deployed side.
        rms: What the fit leaves, root mean square.
        whole: Whether the deployed side has whole numbers only.
        levels: How many different values the deployed side has at least.
        training_whole: Whether training has whole numbers only.
    """

    gain: Array
    offset: Array
    low: Array
    high: Array
    mean: Array
    spread: Array
    rms: Array
    whole: bool
    levels: int
    training_whole: bool


@dataclass(frozen=True, slots=True)
class ValueChange:
    """A change of values with a name, and its exact numbers.

    Attributes:
        change: What it is; None when values are the same.
        gain: float64 [channels].
        offset: float64 [channels].
        plain: Whether it is only a gain and an offset without a meaning.
        fitted: Whether its numbers are those of the fit, and not known beforehand.
        training: How training makes numbers of pixels; empty when not known.
        note: What is worth knowing of it.
    """

    change: IoChange | None
    gain: Array
    offset: Array
    plain: bool = False
    fitted: bool = False
    training: Message = NOTHING
    note: Message = NOTHING


def name_values(
    values: Values, order: Sequence[int], *, tolerance: float, known: Iterable[MeanStd] = ()
) -> list[ValueChange]:
    """All meanings of a gain and an offset, the likeliest first; the last one is no more than the numbers.

    Args:
        values: The fit.
        order: For each channel of training, the channel of the deployed side.
        tolerance: Differences up to this do not count.
        known: Means and stds of the user's own.
    """
    size = np.abs(values.gain * np.maximum(np.abs(values.low), np.abs(values.high))) + np.abs(values.offset)
    slack = np.maximum(0.3 * tolerance, _SAME * values.rms) + FLOAT_ROUNDING * float(size.max(initial=0))
    same = _predicts(values, np.ones_like(values.gain), np.zeros_like(values.offset), slack)
    if same:
        return [ValueChange(None, np.ones_like(values.gain), np.zeros_like(values.offset))]
    found = _by_convention(values, slack, tuple(order), known=tuple(known))
    if not found and values.whole and not values.training_whole:
        found = _cut_off(values, slack, tuple(order), known=tuple(known))
    if not found:
        named = _limited_range(values, slack, tuple(order), known=tuple(known))
        found = named or _codes(values) or _inferred(values)
        # Noise, JPEG above all, changes gains a little: names that leave hardly more than the fit does.
        found += _by_convention(values, _UNDER_NOISE * slack, tuple(order), known=tuple(known))
    offset = np.where(np.abs(values.offset) > FLOAT_ROUNDING * size, values.offset, 0.0)
    text = message("check_io.gain_plus_offset", gain=channel_numbers(values.gain), offset=channel_numbers(offset))
    plain = IoChange("affine", text, mean_std_correction(values.gain, values.offset))
    return [*found, ValueChange(plain, values.gain, values.offset, plain=True, fitted=True)]


def _predicts(values: Values, gain: Array, offset: Array, slack: Array) -> bool:
    """Whether numbers predict the same as the fit."""
    # Gain and offset of a fit are uncertain together, what they predict is not: compared are predictions at the
    # mean of the values, and one standard deviation beside it.
    slope = np.abs(gain - values.gain)
    moved = np.abs((gain - values.gain) * values.mean + offset - values.offset)
    return bool(np.all(slope * values.spread + moved <= slack))


def _by_convention(
    values: Values, slack: Array, order: tuple[int, ...], *, known: tuple[MeanStd, ...]
) -> list[ValueChange]:
    table = conventions(len(values.gain), known)
    gains, offsets = np.stack([each.gain for each in table]), np.stack([each.offset for each in table])
    # On the deployed side means and stds belong to places, whichever colours lie there.
    places = [place if place < gains.shape[1] else 0 for place in order]
    # Training makes t = g1 p + o1 of a pixel p, the deployed side d = g2 p + o2. Without p: t = g1 / g2 d + o1 -
    # g1 / g2 o2. All pairs of ways are compared with the fit at once, [training, deployed, channels].
    gain = gains[:, None] / gains[None][..., places]
    offset = offsets[:, None] - gain * offsets[None][..., places]
    slope = np.abs(gain - values.gain)
    moved = np.abs((gain - values.gain) * values.mean + offset - values.offset)
    fits = np.all(slope * values.spread + moved <= slack, axis=-1)
    ranked: list[tuple[float, ValueChange]] = []
    for first, second in np.argwhere(fits):
        training, deployed = table[first], table[second]
        cost = _cost(training, deployed) + _implausibility(values, deployed, places)
        if cost >= _IMPOSSIBLE:
            continue
        numbers = gain[first, second], offset[first, second]
        if first == second:
            ranked.append((cost, ValueChange(None, *numbers, note=message("check_io.behind_swap"))))
        else:
            change = _change(training, deployed, *numbers)
            words = training.text if training.form == "plain" else _what(training)
            ranked.append((cost, ValueChange(change, *numbers, training=words)))
    ranked.sort(key=lambda pair: pair[0])
    return [named for cost, named in ranked if cost <= ranked[0][0] + 0.15]


def _cut_off(
    values: Values, slack: Array, order: tuple[int, ...], *, known: tuple[MeanStd, ...]
) -> list[ValueChange]:
    """Whole numbers that were cut off instead of rounded are half too small."""
    middle = replace(
        values,
        offset=values.offset - 0.5 * values.gain,
        low=values.low + 0.5,
        high=values.high + 0.5,
        mean=values.mean + 0.5,
    )
    note = message("check_io.pixels_cut")
    return [
        replace(named, offset=named.offset + 0.5 * named.gain, note=note)
        for named in _by_convention(middle, slack, order, known=known)
    ]


def _cost(training: Convention, deployed: Convention) -> float:
    slips = _TRAINING_SLIPS if training.form not in ("plain", "right") else 0.0
    cost = training.cost + deployed.cost + slips
    both = training.source is not None and deployed.source is not None
    if both and training.source != deployed.source:
        alike = training.source is not None and deployed.source == training.source.reversed()
        # Another set and a slip at once is a coincidence of numbers.
        cost += 0.6 if alike else 1.0
        cost += 0 if {training.form, deployed.form} == {"right"} else 3.0
    return cost


def _implausibility(values: Values, deployed: Convention, places: list[int]) -> float:
    """How badly the deployed values, read so, are pixels from 0 to 255."""
    gain, offset = deployed.gain[places], deployed.offset[places]
    ends = np.stack([(end - offset) / gain for end in (values.low, values.high)])
    low, high = ends.min(), ends.max()
    outside = max(0.0, -low, high - BYTE) / max(_OVERSHOOT * (high - low), 1e-9)
    if outside > 1 and max(-low, high - BYTE) > 1:
        return _IMPOSSIBLE
    # Most pictures have something nearly black.
    return float(min(outside, 1.0) + (1.0 if high - low < _FAINT else 0.0) + 0.5 * max(low, 0.0) / BYTE)


def _change(training: Convention, deployed: Convention, gain: Array, offset: Array) -> IoChange:
    correction = _on_pixels(mean_std_correction(gain, offset), training, deployed)
    both = {"training": training.text, "deployed": deployed.text}
    if training.source is None and deployed.source is None:
        return IoChange("range", message("check_io.values_differ", **both), correction)
    if training.source is None:
        text = message("check_io.values_applied", training=training.text, deployed=_what(deployed))
    elif deployed.source is None:
        text = message("check_io.applied_not", training=_what(training), deployed=deployed.text)
    elif training.form == "right" and deployed.form == "right":
        text = message("check_io.applied_both", **both)
        if deployed.source == training.source.reversed() or training.source == deployed.source.reversed():
            text = message("check_io.mean_order", name=training.source.name)
    elif training.form == "right":
        text = message("check_io.deployed_slip", what=deployed.text, name=deployed.source.called)
    elif deployed.form == "right":
        text = message("check_io.training_slip", what=training.text, name=training.source.called)
    else:
        text = message("check_io.both_slip", **both, name=deployed.source.called)
    return IoChange("normalization", text, correction)


def _on_pixels(correction: Correction, training: Convention, deployed: Convention) -> Correction:
    """The same with what to do to pixels in place of all that the deployed side does to them."""
    if not np.all(training.gain > 0):
        return correction
    mean, std = _mean_std(training.gain, training.offset)
    facts = (("mean of pixels", _listed(mean)), ("std of pixels", _listed(std)))
    value = correction.value
    if not (np.all(deployed.gain == 1) and np.all(deployed.offset == 0)):
        value = message(
            "check_io.set_mean_pixels", mean=channel_numbers(mean), std=channel_numbers(std), other=value
        )
    return replace(correction, value=value, facts=(*correction.facts, *facts))


def _what(convention: Convention) -> Message:
    assert convention.source is not None  # noqa: S101 - the callers know
    if convention.name.startswith("Caffe"):
        return convention.text  # which has the numbers in it
    if convention.form == "right":
        source = convention.source
        return _with_mean("check_io.with_numbers", source.mean, source.std, what=convention.text)
    return message("check_io.mean_but", name=convention.source.called, what=convention.text)


def _inferred(values: Values) -> list[ValueChange]:
    """A mean and std of nobody's that make the difference."""
    text = None if _one_number(values) else _inferred_words(values)
    if text is None:
        return []
    correction = mean_std_correction(values.gain, values.offset)
    return [ValueChange(IoChange("normalization", text, correction), values.gain, values.offset, fitted=True)]


def _inferred_words(values: Values) -> Message | None:
    gain, offset = values.gain, values.offset
    if not np.all(gain > 0):
        return None
    deployed = _pixel_range(values.low, values.high, whole=values.whole)
    mean, std = -offset / gain, 1 / gain
    if deployed and np.all(mean > -1e-3) and np.all(mean <= deployed):
        return _with_mean("check_io.applies_mean", mean, std)
    low, high = gain * values.low + offset, gain * values.high + offset
    training = _pixel_range(low, high, whole=values.training_whole)
    if training and np.all(offset > -1e-3) and np.all(offset <= training):
        return _with_mean("check_io.applies_mean_deployed", offset, gain)
    # Values from 0 to 1, normalized once, lie within these limits.
    once = np.all((gain > 0.01) & (gain < 1.2) & (offset > 0) & (offset < 1))
    if once and np.all(low >= -offset / gain - 0.02) and np.all(high <= (1 - offset) / gain + 0.02):
        return _with_mean("check_io.mean_twice", offset, gain)
    return None


def _pixel_range(low: Array, high: Array, *, whole: bool) -> float:
    """255 or 1 when values look like pixels of that range; else 0."""
    if low.min() >= -1e-6 and high.max() <= 1 + 1e-6:
        return 1.0
    if low.min() >= -1e-6 and high.max() <= BYTE + 1e-3 and (whole or high.max() > 60):
        return BYTE
    return 0.0


def _limited_range(
    values: Values, slack: Array, order: tuple[int, ...], *, known: tuple[MeanStd, ...]
) -> list[ValueChange]:
    """Pixels of which one side has black at 16 and white at 235, as video has, however both go on with them."""
    span = (_WHITE - _BLACK) / BYTE
    table = [each for each in conventions(len(values.gain), known) if each.form in ("plain", "right")]
    places = [place if place < len(values.gain) else 0 for place in order]
    for way in sorted(table, key=lambda each: each.cost):
        ours, theirs = (way.gain, way.offset), (way.gain[places], way.offset[places])
        for key, slope, black in (("deployed", 1 / span, -_BLACK / span), ("training", span, _BLACK)):
            # Training's pixel is slope * p + black of the deployed side's pixel p.
            gain = ours[0] * slope / theirs[0]
            made = gain, ours[0] * black + ours[1] - gain * theirs[1]
            if _predicts(values, *made, slack):
                text = message(f"check_io.limited_{key}")
                return [ValueChange(IoChange("range", text, mean_std_correction(*made)), *made)]
    return []


def _codes(values: Values) -> list[ValueChange]:
    """Whole numbers that stand for something else."""
    if not (values.whole or values.training_whole) or values.levels < _FEWEST_CODES:
        return []
    # Where both sides have whole numbers, those of the deployed one are codes if they are the coarser ones.
    finer = values.whole and values.training_whole and not np.all(values.gain > 1)
    if finer or not _one_number(values, _SAME_CODES):
        return []
    if not values.whole:
        # Training's numbers are whole: the deployed side was dequantized.
        scale, zero = float(1 / values.gain.mean()), float(values.offset.mean())
        key = "check_io.training_codes"
        gain, offset = values.gain, values.offset
        if abs(zero - round(zero)) > _NEARLY_WHOLE:
            return []
    else:
        # Rounding is in the deployed values, which makes a fit that predicts training's a little too flat.
        steep = values.gain * (1 + values.rms**2 / np.maximum((values.gain * values.spread) ** 2, 1e-300))
        scale = float(steep.mean())
        zero = -float((values.gain * values.mean + values.offset - steep * values.mean).mean()) / scale
        key = "check_io.not_dequantized"
        whole = round(zero) if abs(zero - round(zero)) < _NEARLY_WHOLE else zero
        gain, offset = np.full_like(steep, scale), np.full_like(steep, -whole * scale)
    numbers = {"scale": f"{scale:.6g}", "zero": f"{zero:.4g}"}
    facts = (("scale", numbers["scale"]), ("zero point", f"{round(zero)}"))
    setting, value = message("check_io.set_dequantization"), message("check_io.set_scale", **numbers)
    change = IoChange("codes", message(key, **numbers), Correction(setting, value, facts))
    return [ValueChange(change, gain, offset)]


def _one_number(values: Values, same: float = _SAME) -> bool:
    """Whether gain and offset are the same for all channels, as far as the fit can tell."""
    gain, offset = values.gain.mean(), values.offset.mean()
    slack = same * values.rms + 1e-5 * float(np.abs(values.gain * values.spread).max())
    return _predicts(values, np.full_like(values.gain, gain), np.full_like(values.offset, offset), slack)


def mean_std_correction(gain: Array, offset: Array) -> Correction:
    """What to subtract from the deployed values, and what to divide them by."""
    mean, std = _mean_std(gain, offset)
    value = _with_mean("check_io.set_mean_now", mean, std)
    return Correction(message("check_io.set_mean"), value, (("mean", _listed(mean)), ("std", _listed(std))))


def _mean_std(gain: Array, offset: Array) -> tuple[Array, Array]:
    """What is subtracted, and what the rest is divided by."""
    with np.errstate(divide="ignore", invalid="ignore"):
        mean, std = -offset / gain, 1 / gain
    return np.where(np.abs(mean) < 1e-6 * np.abs(std), 0.0, mean), std


def _listed(values: Array) -> str:
    return f"[{', '.join(f'{float(value):.6g}' for value in values)}]"


def _with_mean(key: str, mean: Array | Sequence[float], std: Array | Sequence[float], **more: Argument) -> Message:
    """A text about a mean and a std."""
    return message(key, mean=channel_numbers(mean), std=channel_numbers(std), **more)


def channel_numbers(values: Array | Sequence[float]) -> str:
    """Numbers of channels, as one where they are the same."""
    numbers = [f"{float(value) + 0.0:.5g}" for value in values]
    numbers = ["0" if float(number) == 0 else number for number in numbers]
    return numbers[0] if len(set(numbers)) == 1 else f"[{', '.join(numbers)}]"
