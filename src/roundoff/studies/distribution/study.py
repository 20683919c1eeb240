"""Distributions of whatever is asked for, from one pass over the samples."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from roundoff.core.names import shown
from roundoff.core.progress import SILENT, Progress
from roundoff.core.quantizers import Quantizer, QuantParams, QuantSpec, dequantize, quantize, representable_range
from roundoff.core.tensors import Array
from roundoff.errors import BadInput
from roundoff.graph.fake_constants import chain_of, fake_quantized
from roundoff.graph.insertion import switch_on
from roundoff.graph.quantized_model import QuantizedModel
from roundoff.graph.shapes import values
from roundoff.graph.weights import Weights
from roundoff.measure.metrics import ratio_db
from roundoff.messages.message import Message, joined, message
from roundoff.quantize.calibration.watch import UNLIMITED, RunLimits, watch
from roundoff.run.capture import Samples
from roundoff.studies.distribution.result import (
    Distribution,
    DistributionReport,
    InspectedKind,
    QuantizerFacts,
    ValueSummary,
)
from roundoff.studies.distribution.selection import Inspected, find_inspected
from roundoff.studies.distribution.values import ValueRecord, automatic_bins, lay_out

__all__ = [
    "CodeRecord",
    "DistributionSettings",
    "advise",
    "describe_distributions",
]


# What to make of a distribution, in one sentence.

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


def advise(
    before: ValueSummary, quantizer: QuantizerFacts | None, peaks: tuple[float, ...]
) -> tuple[bool, Message]:
    """Whether all is well, and that in words; or what stands out, most serious first, and what can be done."""
    findings = list(_findings(before, quantizer, peaks))
    remarks = [] if quantizer is None else list(_remarks(quantizer))
    return not findings, joined([*(findings or [_praise(quantizer)]), *remarks])


def _findings(
    before: ValueSummary, quantizer: QuantizerFacts | None, peaks: tuple[float, ...]
) -> Iterator[Message]:
    if before.nonfinite:
        yield message("distribution.advice_nonfinite", count=before.nonfinite, all=before.count)
    if before.minimum is None or before.maximum is None:
        return
    if before.minimum == before.maximum:
        zero, value = before.minimum == 0, f"{before.minimum:.4g}"
        yield message("distribution.advice_zero") if zero else message("distribution.advice_equal", value=value)
        return
    if quantizer is not None and quantizer.bits <= _MOST_BITS:
        yield from _range_findings(before, quantizer)
    if len(peaks) > 1:
        near = ", ".join(f"{peak:.3g}" for peak in peaks[:_NAMED_PEAKS])
        more = " ..." if len(peaks) > _NAMED_PEAKS else ""
        yield message("distribution.advice_peaks", count=len(peaks), places=f"{near}{more}")


def _range_findings(before: ValueSummary, quantizer: QuantizerFacts) -> Iterator[Message]:
    levels = {"used": quantizer.levels_used, "all": quantizer.levels}
    if quantizer.clipped > _MUCH_CLIPPED:
        yield message("distribution.advice_clipped", share=f"{100 * quantizer.clipped:.2g}")
    wasted = _wasted_side(before, quantizer)
    if wasted:
        yield message(f"distribution.advice_no_{wasted}", **levels)
    middle = _middle_share(before, quantizer)
    if middle is not None and middle < _NARROW_MIDDLE:
        yield _narrow(before, quantizer, middle)
    elif (
        not wasted
        and quantizer.levels_used < _FEW_LEVELS * quantizer.levels
        and _could_use_more(before, quantizer)
    ):
        yield message("distribution.advice_levels", **levels)
    elif quantizer.bits >= _FEWEST_BITS and quantizer.zeroed > _MUCH_ZEROED:
        yield message("distribution.advice_zeroed", share=f"{100 * quantizer.zeroed:.2g}")


def _wasted_side(before: ValueSummary, quantizer: QuantizerFacts) -> Literal["negative", "positive", ""]:
    """The sign that no value has, though half of the codes have it."""
    span = quantizer.high - quantizer.low
    if before.minimum is not None and before.minimum >= 0 and -quantizer.low > _WASTED_SIDE * span:
        return "negative"
    if before.maximum is not None and before.maximum <= 0 and quantizer.high > _WASTED_SIDE * span:
        return "positive"
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


def _narrow(before: ValueSummary, quantizer: QuantizerFacts, middle: float) -> Message:
    """Why nearly all values take few of the codes."""
    share = f"{100 * middle:.2g}"
    reach = max(abs(before.minimum or 0.0), abs(before.maximum or 0.0))
    widest = max(-quantizer.low, quantizer.high)
    if reach < widest / 2:
        return message("distribution.advice_wide_range", share=share, times=f"{widest / reach:.2g}")
    return message("distribution.advice_outliers", share=share)


def _could_use_more(before: ValueSummary, quantizer: QuantizerFacts) -> bool:
    return before.count - before.nonfinite >= quantizer.levels


def _remarks(quantizer: QuantizerFacts) -> Iterator[Message]:
    """What is no fault of the distribution, but worth a look."""
    if quantizer.bits <= _MOST_BITS and quantizer.scale_ratio > _UNEVEN_SCALES:
        yield message("distribution.advice_uneven", ratio=f"{quantizer.scale_ratio:.2g}")


def _praise(quantizer: QuantizerFacts | None) -> Message:
    if quantizer is None or quantizer.bits > _MOST_BITS:
        return message("distribution.advice_one_peak")
    clipped = "unclipped" if quantizer.clipped == 0 else "hardly_clipped"
    return message(f"distribution.advice_{clipped}", used=quantizer.levels_used, all=quantizer.levels)


# Recording what a quantizer makes of the values it is fed with: codes, clipping, error.

# Values of one step: with all that is computed between, they stay in the cache.
_BLOCK_CODES = 1 << 16
# Codes of more bits are too many to have a counter each.
_MOST_COUNTED_BITS = 16


@dataclass(frozen=True, slots=True, eq=False)
class _Part:
    """Values that share one scale.

    Attributes:
        values: float32, flat.
        codes: Theirs, where they are given.
        params: Of shape [].
        low: Below this a value is clipped.
        high: Above this.
    """

    values: Array
    codes: Array | None
    params: QuantParams
    low: float
    high: float


class CodeRecord:
    """What was seen of one quantizer; values that are not finite are left out."""

    def __init__(self, quantizer: Quantizer) -> None:
        self._quantizer = quantizer
        spec = quantizer.spec
        # Codes of one scale, whatever the quantizer has.
        self._spec = spec.along(None)
        self._counts = np.zeros(0 if spec.bits > _MOST_COUNTED_BITS else _levels(spec), np.int64)
        self._rare: dict[int, int] = {}
        self._count = self._below = self._above = self._nonzero = self._zeroed = 0
        self._signal = self._noise = 0.0

    def add(self, values: Array) -> None:
        """See values that the quantizer is fed with."""
        for part in self._parts(values):
            self._take(part)

    def facts(self) -> QuantizerFacts:
        """All of it in numbers."""
        quantizer, total = self._quantizer, max(1, self._count)
        low, high = representable_range(quantizer.params, quantizer.spec)
        points = np.unique(quantizer.params.zero_point)
        counts = self._counts[self._counts > 0] if self._counts.size else np.array(list(self._rare.values()))
        widest = int(np.argmax(high - low))
        return QuantizerFacts(
            name=quantizer.name,
            dtype=quantizer.spec.dtype,
            axis=quantizer.spec.axis if quantizer.params.scale.size > 1 else None,
            scales=(float(quantizer.params.scale.min()), float(quantizer.params.scale.max())),
            scale_ratio=float(quantizer.params.scale.max() / np.median(quantizer.params.scale)),
            zero_point=int(points[0]) if points.size == 1 else None,
            low=float(low.max()),
            high=float(high.min()),
            widest=(float(low.reshape(-1)[widest]), float(high.reshape(-1)[widest])),
            clipped_low=self._below / total,
            clipped_high=self._above / total,
            zeroed=self._zeroed / max(1, self._nonzero),
            levels_used=int(counts.size),
            levels=_levels(quantizer.spec),
            entropy_bits=_entropy_bits(counts),
            sqnr_db=self._sqnr_db(),
        )

    def _sqnr_db(self) -> float | None:
        return ratio_db(self._signal, self._noise) if self._count else None

    def _parts(self, values: Array) -> Iterator[_Part]:
        quantizer = self._quantizer
        params, axis, codes = quantizer.params, quantizer.spec.axis, quantizer.codes
        low, high = representable_range(params, quantizer.spec)
        half = params.scale.astype(np.float64) / 2
        # Within half a step of a code it is rounding, not clipping.
        limits = np.stack([low - half, high + half]).reshape(2, -1)
        if params.scale.size == 1:
            whole = QuantParams(params.scale.reshape(()), params.zero_point.reshape(()))
            yield from _blocks(
                values.reshape(-1), None if codes is None else codes.reshape(-1), whole, limits[:, 0]
            )
            return
        rows = np.moveaxis(values, axis or 0, 0)
        code_rows = None if codes is None else np.moveaxis(codes, axis or 0, 0)
        for row in range(len(rows)):
            own = QuantParams(params.scale[row], params.zero_point[row])
            some = None if code_rows is None else code_rows[row].reshape(-1)
            yield from _blocks(rows[row].reshape(-1), some, own, limits[:, row])

    def _take(self, part: _Part) -> None:
        values, codes = part.values, part.codes
        finite = np.isfinite(values)
        if not finite.all():
            values, codes = values[finite], None if codes is None else codes[finite]
        if not values.size:
            return
        if codes is None:
            codes = quantize(values, part.params, self._spec)
        self._count += values.size
        exact = values.astype(np.float64)
        self._below += int(np.count_nonzero(exact < part.low))
        self._above += int(np.count_nonzero(exact > part.high))
        restored = dequantize(codes, part.params)
        error = exact - restored
        self._nonzero += int(np.count_nonzero(exact))
        self._zeroed += int(np.count_nonzero((restored == 0) & (exact != 0)))
        self._signal += float(np.add.reduce(exact * exact))
        self._noise += float(np.add.reduce(error * error))
        if self._counts.size:
            places = codes.astype(np.intp) - self._spec.code_min
            self._counts += np.bincount(places, minlength=self._counts.size)
        else:
            for code, times in zip(*np.unique(codes, return_counts=True), strict=True):
                self._rare[int(code)] = self._rare.get(int(code), 0) + int(times)


def _blocks(values: Array, codes: Array | None, params: QuantParams, limits: Array) -> Iterator[_Part]:
    for start in range(0, values.size, _BLOCK_CODES):
        part = slice(start, start + _BLOCK_CODES)
        some = values[part].astype(np.float32, copy=False)
        yield _Part(some, None if codes is None else codes[part], params, float(limits[0]), float(limits[1]))


def _levels(spec: QuantSpec) -> int:
    return spec.code_max - spec.code_min + 1


def _entropy_bits(counts: Array) -> float:
    """Shannon's entropy of a code that occurs so often."""
    if not counts.size:
        return 0.0
    shares = counts / counts.sum()
    return float(max(0.0, -np.add.reduce(shares * np.log2(shares))))


# Elements whose differences are held at a time.
_BLOCK = 1 << 18


@dataclass(frozen=True, slots=True)
class DistributionSettings:
    """What to look at, and how.

    Attributes:
        names: Names or globs of nodes, tensors and quantizers.
        kinds: Look only among these kinds; among all when empty.
        bins: Bins of a histogram; by default as many as there are values for, at most 200.
        limits: What the run may take.
    """

    names: tuple[str, ...]
    kinds: tuple[InspectedKind, ...] = ()
    bins: int | None = None
    limits: RunLimits = UNLIMITED


def describe_distributions(
    quantized: QuantizedModel,
    samples: Samples | None,
    settings: DistributionSettings,
    *,
    progress: Progress = SILENT,
) -> DistributionReport:
    """Describe how values are distributed.

    Constants need no samples. Activations are those of the float network. Memory does not depend on the number of
    samples: up to 65,536 values of a tensor are kept, of more a histogram with 256 bins to a doubling.

    Args:
        quantized: The float network and its quantizers, perhaps none.
        samples: What it is fed; None when only constants are asked for.
        settings: What to look at.
        progress: Told of every sample.

    Raises:
        BadInput: A name matches nothing, or the samples do not fit the model.
        ModelFailed: The model cannot be run.
    """
    inspected, without = _readable(quantized, settings)
    records = [_Record(each, quantized) for each in inspected]
    running = [record for record in records if not record.inspected.is_constant]
    seen: tuple[str, ...] = ()
    if running:
        if samples is None:
            what = f"The values of {running[0].inspected.name!r} are computed, and no samples were given."
            raise BadInput(what, fix="add --data PATH")
        model, other = quantized.float_model, None
        compared = [record for record in running if record.inspected.kind == "node"]
        if quantized.quantizers and compared:
            other = switch_on(model, quantized.quantizers)
            for record in compared:
                record.compare()
        seen = watch(model, samples, running, other=other, limits=settings.limits, progress=progress)
    weights = Weights(quantized.float_model)
    for record in records:
        if record.inspected.is_constant:
            record.take([weights[record.inspected.tensor]])
    return DistributionReport(
        reference=shown(quantized.float_model.path),
        samples=seen,
        distributions=tuple(record.result(settings.bins) for record in records),
        notes=(*without, *quantized.notes),
        preparation=quantized.preparation,
    )


def _readable(
    quantized: QuantizedModel, settings: DistributionSettings
) -> tuple[tuple[Inspected, ...], tuple[Message, ...]]:
    """What can be looked at, and a note on what only a glob names and holds no numbers."""
    found = find_inspected(quantized, settings.names, kinds=settings.kinds)
    other = {value.name for value in values(quantized.float_model) if value.obstacle()}
    named = frozenset(settings.names)
    left = [each for each in found if each.tensor in other and not named & {each.name, each.tensor, each.node}]
    kept = tuple(each for each in found if each not in left)
    if not left or not kept:
        return found, ()
    return kept, (message("distribution.note_no_numbers", names=tuple(each.name for each in left)),)


class _Record:
    """What is seen of one tensor at one place; a `roundoff.quantize.calibration.watch.Watcher`."""

    def __init__(self, inspected: Inspected, quantized: QuantizedModel) -> None:
        self.inspected = inspected
        self.tensors: tuple[str, ...] = (inspected.tensor,)
        self.others: tuple[str, ...] = ()
        by_name: Mapping[str, Quantizer] = {each.name: each for each in quantized.quantizers}
        chain = [] if inspected.quantizer is None else chain_of(inspected.quantizer, by_name)
        # What it is fed with has been through those before it.
        self._earlier = chain[:-1]
        self._codes = None if inspected.quantizer is None else CodeRecord(inspected.quantizer)
        self._before = ValueRecord()
        self._after: ValueRecord | None = None
        self._difference: ValueRecord | None = None
        self._shape: tuple[int, ...] = ()
        self._samples = 0
        if inspected.kind in ("weight", "bias"):
            self._after, self._difference = ValueRecord(), ValueRecord()

    def compare(self) -> None:
        """Look at what a node computes in the quantized network, too."""
        self._after, self._difference = ValueRecord(), ValueRecord()
        if self.inspected.node:
            self.others = (self.inspected.tensor,)

    def take(self, arrays: Sequence[Array]) -> None:
        """See the float values and, where there are two, those of the quantized network."""
        before = np.asarray(arrays[0])
        for each in self._earlier:
            before = fake_quantized(before, each)
        if not self._samples:
            self._shape = before.shape
        self._samples += 1
        self._before.add(before)
        if self._codes is not None:
            self._codes.add(before)
        if self._after is not None and self._difference is not None:
            # In the quantized network, too, it is quantized by who reads it.
            after = self._quantized(np.asarray(arrays[-1]) if self.others else before)
            self._after.add(after)
            if after.shape == before.shape:
                _add_difference(self._difference, after.reshape(-1), before.reshape(-1))

    def _quantized(self, values: Array) -> Array:
        quantizer = self.inspected.quantizer
        return values if quantizer is None else fake_quantized(values, quantizer)

    def result(self, bins: int | None) -> Distribution:
        """All of it in numbers."""
        each = self.inspected
        facts = None if self._codes is None else self._codes.facts()
        step = facts.scales[0] if facts is not None and facts.scales[0] == facts.scales[1] else None
        sides = [self._before] if self._after is None else [self._before, self._after]
        bins = automatic_bins(self._before.spread.count) if bins is None else bins
        layout = lay_out([side.spread for side in sides], bins, step=step)
        before, peaks = self._before.summary(layout), self._before.peaks()
        suits, advice = advise(before, facts, peaks)
        difference = self._difference
        return Distribution(
            name=each.name,
            kind=each.kind,
            tensor=each.tensor,
            node=each.node,
            op_type=each.op_type,
            shape=self._shape,
            before=before,
            after=None if self._after is None else self._after.summary(layout),
            difference=None if difference is None else difference.summary(lay_out([difference.spread], bins)),
            quantizer=facts,
            peaks=peaks,
            resolution=max(side.resolution for side in sides),
            suits=suits,
            advice=advice,
        )


def _add_difference(record: ValueRecord, after: Array, before: Array) -> None:
    """See what two flat arrays differ by, a part at a time: all of it would take twice their memory."""
    with np.errstate(invalid="ignore", over="ignore"):
        for start in range(0, after.size, _BLOCK):
            part = slice(start, start + _BLOCK)
            record.add(np.subtract(after[part], before[part], dtype=np.float64))
