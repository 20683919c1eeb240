"""What to make of a distribution, in one sentence."""

from collections.abc import Iterator

from roundoff.core.distributions import QuantizerFacts, ValueSummary
from roundoff.core.wording import counted

__all__ = ["advise"]

# Clipping that costs more than a rare outlier is worth.
_MUCH_CLIPPED = 0.001
# A normal distribution loses about one in a hundred of its values to zero at 8 bits.
_MUCH_ZEROED = 0.25
# With fewer bits so many are lost to zero as a rule.
_FEWEST_BITS = 8
# With fewer of its levels in use a code could as well have two bits less.
_FEW_LEVELS = 0.25
# Where all but two in a thousand values take less of the codes than this, the range serves the others.
_NARROW_MIDDLE = 0.25
# A range with this share on the side of zero where no values are.
_WASTED_SIDE = 0.4
# Codes of more bits are not short of levels.
_MOST_BITS = 16
# Channels this different in size are often what hurts the layer behind.
_UNEVEN_SCALES = 20.0
_NAMED_PEAKS = 3


def advise(before: ValueSummary, quantizer: QuantizerFacts | None, peaks: tuple[float, ...]) -> tuple[bool, str]:
    """Whether all is well, and that in words; or what stands out, most serious first, and what can be done."""
    findings = list(_findings(before, quantizer, peaks))
    remarks = [] if quantizer is None else list(_remarks(quantizer))
    return not findings, "; ".join([*(findings or [_praise(quantizer)]), *remarks])


def _findings(before: ValueSummary, quantizer: QuantizerFacts | None, peaks: tuple[float, ...]) -> Iterator[str]:
    if before.nonfinite:
        bad = counted(before.nonfinite, "value")
        yield f"{bad} of {before.count} NaN or infinite: find where they begin before anything else"
    if before.minimum is None or before.maximum is None:
        return
    if before.minimum == before.maximum:
        yield "all values are zero" if before.minimum == 0 else f"all values are {before.minimum:.4g}"
        return
    if quantizer is not None and quantizer.bits <= _MOST_BITS:
        yield from _range_findings(before, quantizer)
    if len(peaks) > 1:
        near = ", ".join(f"{peak:.3g}" for peak in peaks[:_NAMED_PEAKS])
        more = " ..." if len(peaks) > _NAMED_PEAKS else ""
        yield f"{len(peaks)} peaks (near {near}{more}) instead of one: equal steps suit it less"


def _range_findings(before: ValueSummary, quantizer: QuantizerFacts) -> Iterator[str]:
    levels = f"{quantizer.levels_used} of {quantizer.levels} levels used"
    if quantizer.clipped > _MUCH_CLIPPED:
        share = f"{100 * quantizer.clipped:.2g} % of the values are clipped"
        yield f"{share}: calibrate on data like this, with minmax or a higher percentile"
    wasted = _wasted_side(before, quantizer)
    if wasted:
        yield f"{wasted} ({levels}): unsigned or asymmetric codes would have twice as many"
    middle = _middle_share(before, quantizer)
    if middle is not None and middle < _NARROW_MIDDLE:
        yield f"99.8 % of the values take {100 * middle:.2g} % of the codes: {_why(before, quantizer)}"
    elif (
        not wasted
        and quantizer.levels_used < _FEW_LEVELS * quantizer.levels
        and _could_use_more(before, quantizer)
    ):
        yield f"only {levels}"
    elif quantizer.bits >= _FEWEST_BITS and quantizer.zeroed > _MUCH_ZEROED:
        share = f"{100 * quantizer.zeroed:.2g} % of the values other than zero become zero"
        yield f"{share}: large ones set the step; see 'roundoff channels' whether these are single channels"


def _wasted_side(before: ValueSummary, quantizer: QuantizerFacts) -> str:
    span = quantizer.high - quantizer.low
    if before.minimum is not None and before.minimum >= 0 and -quantizer.low > _WASTED_SIDE * span:
        return "no value is negative, yet half of the codes are"
    if before.maximum is not None and before.maximum <= 0 and quantizer.high > _WASTED_SIDE * span:
        return "no value is positive, yet half of the codes are"
    return ""


def _middle_share(before: ValueSummary, quantizer: QuantizerFacts) -> float | None:
    """Share of the codes, zero included, that nearly all values take; None with a range per slice."""
    if quantizer.axis is not None:
        return None
    first = max(min(before.quantiles["0.001"], 0.0), quantizer.low)
    last = min(max(before.quantiles["0.999"], 0.0), quantizer.high)
    one_sided = bool(_wasted_side(before, quantizer))
    span = max(-quantizer.low, quantizer.high) if one_sided else quantizer.high - quantizer.low
    return (last - first) / span


def _why(before: ValueSummary, quantizer: QuantizerFacts) -> str:
    reach = max(abs(before.minimum or 0.0), abs(before.maximum or 0.0))
    widest = max(-quantizer.low, quantizer.high)
    if reach < widest / 2:
        return f"its range is {widest / reach:.2g} times that of the values; calibrate on data like this"
    return "a few outliers stretch its range; clip them (percentile, mse), smooth them away, or take 16 bits"


def _could_use_more(before: ValueSummary, quantizer: QuantizerFacts) -> bool:
    return before.count - before.nonfinite >= quantizer.levels


def _remarks(quantizer: QuantizerFacts) -> Iterator[str]:
    """What is no fault of the distribution, but worth a look."""
    if quantizer.bits <= _MOST_BITS and quantizer.scale_ratio > _UNEVEN_SCALES:
        ratio = f"{quantizer.scale_ratio:.2g}"
        yield f"its widest channel has {ratio} times the range of the median one: see 'roundoff channels'"


def _praise(quantizer: QuantizerFacts | None) -> str:
    if quantizer is None or quantizer.bits > _MOST_BITS:
        return "one peak"
    levels = f"{quantizer.levels_used} of {quantizer.levels} levels used"
    clipped = "nothing" if quantizer.clipped == 0 else "hardly anything"
    return f"one peak, {clipped} clipped, {levels}: suits quantization"
