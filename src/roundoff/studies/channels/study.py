"""Channels of whatever is asked for, from one pass over the samples."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from roundoff.core.names import shown
from roundoff.core.progress import SILENT, Progress
from roundoff.core.quantizers import Quantizer, QuantParams, QuantSpec, parameters_from_range
from roundoff.core.tensors import Array
from roundoff.errors import BadInput
from roundoff.graph.fake_constants import chain_of, fake_quantized
from roundoff.graph.load import Model
from roundoff.graph.quantized_model import QuantizedModel
from roundoff.graph.shapes import channel_axes, values, weight_axis
from roundoff.graph.weights import Weights
from roundoff.measure.metrics import ratio_db
from roundoff.messages.message import Message, message
from roundoff.messages.numbers import nonfinite_note
from roundoff.quantize.calibration.observer import Observation, Observer
from roundoff.quantize.calibration.watch import UNLIMITED, RunLimits, watch
from roundoff.run.capture import read_feed
from roundoff.run.feeds import Samples, complete_values
from roundoff.studies.channels.result import LEVEL_BOUNDS, ChannelBox, ChannelReport, ChannelSpread, Risk
from roundoff.studies.distribution.result import InspectedKind
from roundoff.studies.distribution.selection import Inspected, find_inspected
from roundoff.studies.distribution.values import resolution, spreads

__all__ = [
    "QUANTILES",
    "ChannelRecord",
    "ChannelSettings",
    "describe_channels",
    "judge_channels",
]


# Recording the channels of one tensor.

QUANTILES = (0.01, 0.25, 0.5, 0.75, 0.99)


class ChannelRecord:
    """All that is remembered of the channels of a tensor; its size does not depend on the number of samples.

    Args:
        axis: Along which channels are told apart.
    """

    def __init__(self, axis: int) -> None:
        self._axis = axis
        self._observer = Observer(axis)
        self._sums: Array | None = None
        self._counts: Array | None = None

    def add(self, values: Array) -> None:
        """See values of any real type.

        Raises:
            ChannelMismatch: They do not have the same channels as those before.
        """
        self._observer.add(values)
        axis = self._axis % values.ndim
        shape = math.prod(values.shape[:axis]), values.shape[axis], math.prod(values.shape[axis + 1 :])
        rows = values.reshape(shape)
        with np.errstate(invalid="ignore", over="ignore"):
            sums = np.add.reduce(rows, axis=(0, 2), dtype=np.float64)
        counts = np.full(shape[1], shape[0] * shape[2], np.int64)
        for row in np.flatnonzero(~np.isfinite(sums)):
            finite = rows[:, row][np.isfinite(rows[:, row])]
            sums[row], counts[row] = np.add.reduce(finite, dtype=np.float64), finite.size
        self._sums = sums if self._sums is None else self._sums + sums
        self._counts = counts if self._counts is None else self._counts + counts

    def observation(self) -> Observation:
        """What is known of the values."""
        return self._observer.observation()

    def means(self) -> Array:
        """Mean of each channel; 0 where there are no finite values."""
        if self._sums is None or self._counts is None:
            return np.zeros(0)
        return np.asarray(self._sums / np.maximum(self._counts, 1))

    def quantiles(self) -> Array:
        """Quantiles of each channel, of shape [channels, quantiles]; 0 where there are no finite values."""
        shares = np.array(QUANTILES)
        return np.array([each.quantiles(shares) for each in spreads(self.observation())])

    @property
    def resolution(self) -> float:
        """Width of the bins quantiles are read from, as a share of the value; 0 when all values are known."""
        return resolution(self.observation())


# What the channels' ranges mean for a scale that serves all of them.

# What tensors that are not quantized are judged by: the most usual codes.
_CONSTANT_SPEC = QuantSpec(bits=8, signed=True, symmetric=True)
_ACTIVATION_SPEC = QuantSpec(bits=8, signed=False, symmetric=False)
# Shares of the channels from which the risk is high, by the levels they have fewer of.
_HIGH_RISK = {16: 0.10, 4: 0.01}


def judge_channels(
    record: ChannelRecord, inspected: Inspected, *, shape: tuple[int, ...], axis: int
) -> ChannelSpread:
    """Judge one tensor.

    Args:
        record: What was seen of it.
        inspected: What it is.
        shape: Its shape.
        axis: The axis its channels are on.
    """
    quantizer = inspected.quantizer
    spec = quantizer.spec if quantizer is not None else _assumed(inspected)
    seen = record.observation()
    empty = seen.low > seen.high
    low, high = np.where(empty, 0.0, seen.low), np.where(empty, 0.0, seen.high)
    reach = np.maximum(high, 0.0) - np.minimum(low, 0.0)
    own_scales = quantizer is not None and quantizer.params.scale.size > 1 and _same_axis(quantizer, axis, shape)
    shared = _shared_codes(quantizer, spec, low, high)
    own = _own_codes(quantizer if own_scales else None, spec, low, high)
    levels, own_levels = shared.levels(low, high), own.levels(low, high)
    alive = reach > 0
    below = {str(bound): int(np.count_nonzero(alive & (levels < bound))) for bound in LEVEL_BOUNDS}
    live = int(np.count_nonzero(alive))
    ratio = float(reach.max() / np.median(reach[alive])) if live else None
    gain = _gain_db(float(shared.step), own.step[alive])
    risk = _risk(below, live, own_scales=own_scales)
    finite = not empty.all()
    middle, means = record.quantiles(), record.means()
    return ChannelSpread(
        name=inspected.name,
        kind=inspected.kind,
        tensor=inspected.tensor,
        node=inspected.node,
        op_type=inspected.op_type,
        shape=shape,
        axis=axis,
        dtype=spec.dtype,
        assumed=quantizer is None,
        own_scales=own_scales,
        step=float(shared.step),
        boxes=tuple(
            ChannelBox(index, *map(float, (low[index], *middle[index], high[index], means[index], here, there)))
            for index, (here, there) in enumerate(zip(levels, own_levels, strict=True))
        ),
        live=live,
        range_ratio=ratio,
        below=below,
        gain_db=gain,
        risk=risk,
        resolution=record.resolution,
        advice=_advice(below, live, ratio, gain, risk) if finite else message("channels.advice_nonfinite"),
    )


def _assumed(inspected: Inspected) -> QuantSpec:
    return _CONSTANT_SPEC if inspected.is_constant else _ACTIVATION_SPEC


def _same_axis(quantizer: Quantizer, axis: int, shape: tuple[int, ...]) -> bool:
    return quantizer.spec.axis is not None and quantizer.spec.axis % max(1, len(shape)) == axis


@dataclass(frozen=True, slots=True, eq=False)
class _Codes:
    """The steps of one scale, or of one for each channel, and how many of them there are on both sides of zero."""

    step: Array
    below_zero: Array
    above_zero: Array

    @classmethod
    def of(cls, params: QuantParams, spec: QuantSpec) -> "_Codes":
        below, above = params.zero_point - spec.code_min, spec.code_max - params.zero_point
        return cls(params.scale.astype(np.float64), below, above)

    def levels(self, low: Array, high: Array) -> Array:
        """Steps that ranges, zero included, span within the codes."""
        above = np.minimum(np.maximum(high, 0.0) / self.step, self.above_zero)
        below = np.minimum(np.maximum(-low, 0.0) / self.step, self.below_zero)
        return np.asarray(above + below)


def _shared_codes(quantizer: Quantizer | None, spec: QuantSpec, low: Array, high: Array) -> _Codes:
    """The one scale there is, or the one there would be."""
    if quantizer is not None and quantizer.params.scale.size == 1:
        params = quantizer.params
        return _Codes.of(QuantParams(params.scale.reshape(()), params.zero_point.reshape(())), spec)
    whole = parameters_from_range(low.min(initial=0.0), high.max(initial=0.0), spec.along(None))
    return _Codes.of(whole, spec)


def _own_codes(quantizer: Quantizer | None, spec: QuantSpec, low: Array, high: Array) -> _Codes:
    """The scales that channels have, or could have."""
    if quantizer is not None:
        return _Codes.of(quantizer.params, spec)
    return _Codes.of(parameters_from_range(low, high, spec.along(0)), spec)


def _gain_db(step: float, own: Array) -> float:
    """How much less noise there is when rounding errors are spread evenly over the channels' own steps."""
    if not own.size:
        return 0.0
    return ratio_db(step * step, float(np.mean(own * own)))


def _risk(below: Mapping[str, int], live: int, *, own_scales: bool) -> Risk:
    if own_scales:
        return "own scales"
    if any(live and below[str(bound)] >= share * live for bound, share in _HIGH_RISK.items()):
        return "high"
    return "some" if below["16"] else "none"


def _advice(below: Mapping[str, int], live: int, ratio: float | None, gain: float, risk: Risk) -> Message:
    few, fewer = below["16"], below["4"]
    if ratio is None:
        return message("channels.advice_zero")
    if risk == "own scales":
        return message("channels.advice_own_scales", few=few, all=live)
    if live == 1:
        return message("channels.advice_single")
    if risk == "none":
        return message("channels.advice_enough", ratio=f"{ratio:.2g}")
    if not fewer:
        return message("channels.advice_few", few=few, all=live, gain=f"{gain:.1f}")
    return message("channels.advice_fewer", few=few, all=live, fewer=fewer, gain=f"{gain:.1f}")


_MOST_LISTED = 5


@dataclass(frozen=True, slots=True)
class ChannelSettings:
    """What to look at, and how.

    Attributes:
        names: Names or globs of nodes, tensors and quantizers.
        kinds: Look only among these kinds; among all when empty.
        axis: The axis along which channels are told apart; by default that of the quantizer's scales, else where
            the operation has its channels.
        limits: What the run may take.
    """

    names: tuple[str, ...]
    kinds: tuple[InspectedKind, ...] = ()
    axis: int | None = None
    limits: RunLimits = UNLIMITED


def describe_channels(
    quantized: QuantizedModel,
    samples: Samples | None,
    settings: ChannelSettings,
    *,
    progress: Progress = SILENT,
) -> ChannelReport:
    """Describe how channels differ, by the float values of the network.

    Constants need no samples. Memory does not depend on the number of samples: up to 65,536 values of a tensor are
    kept, of more a histogram for each channel, finer where there are fewer channels.

    Args:
        quantized: The float network and its quantizers, perhaps none.
        samples: What it is fed; None when only constants are asked for.
        settings: What to look at.
        progress: Told of every sample.

    Raises:
        BadInput: A name matches nothing, there is no such axis, or the samples do not fit the model.
        ModelFailed: The model cannot be run.
    """
    model = quantized.float_model
    inspected = find_inspected(quantized, settings.names, kinds=settings.kinds)
    computed = [each for each in inspected if not each.is_constant]
    if computed and samples is None:
        what = f"The values of {computed[0].name!r} are computed, and no samples were given."
        raise BadInput(what, fix="add --data PATH")
    axes = _Axes(model, samples if computed else None, settings)
    records, without = _records(inspected, quantized, axes, names=settings.names)
    running = [record for record in records if not record.inspected.is_constant]
    seen = () if samples is None else watch(model, samples, running, limits=settings.limits, progress=progress)
    weights = Weights(model)
    for record in records:
        if record.inspected.is_constant:
            record.take([weights[record.inspected.tensor]])
    nonfinite = [record.inspected.name for record in records if record.has_nonfinite]
    return ChannelReport(
        reference=shown(model.path),
        samples=seen,
        spreads=tuple(record.result() for record in records),
        notes=(*without, *nonfinite_note("tensor", nonfinite), *quantized.notes),
        preparation=quantized.preparation,
    )


def _records(
    inspected: Sequence[Inspected], quantized: QuantizedModel, axes: "_Axes", *, names: Sequence[str]
) -> tuple[list["_Record"], tuple[Message, ...]]:
    """What can be looked at, and a note on what cannot; that is an error only for what was named."""
    records, errors = [], {}
    for each in inspected:
        try:
            records.append(_Record(each, quantized, axes.of(each)))
        except BadInput as error:
            if {each.name, each.tensor, each.node}.intersection(names):
                raise
            errors[each.name] = error
    left_out = list(errors)
    if not left_out:
        return records, ()
    if not records:
        raise errors[left_out[0]]
    names = ", ".join(left_out[:_MOST_LISTED]) + (" ..." if len(left_out) > _MOST_LISTED else "")
    return records, (message("channels.note_without", names=names),)


class _Axes:
    """Along which axis each tensor has its channels."""

    def __init__(self, model: Model, samples: Samples | None, settings: ChannelSettings) -> None:
        self._model, self._wanted = model, settings.axis
        self._weights = Weights(model)
        self._shapes: dict[str, tuple[int, ...]] = {}
        self._axes: dict[str, int] = {}
        if samples is not None:
            feed = read_feed(model, samples, 0)
            inferred = values(model, {name: array.shape for name, array in feed.items()})
            known = complete_values(model, inferred, feed, threads=settings.limits.threads)
            self._shapes = {value.name: value.shape for value in known if value.shape is not None}
            self._axes = channel_axes(model, known)

    def of(self, inspected: Inspected) -> int:
        """Counted from the first."""
        tensor = inspected.tensor
        shape = self._weights.shape(tensor) if inspected.is_constant else self._shapes.get(tensor, ())
        rank = len(shape)
        if not rank:
            raise BadInput(f"{tensor!r} is a single number and has no channels.", fix="leave it out")
        if self._wanted is not None:
            if not -rank <= self._wanted < rank:
                what = f"{tensor!r} has the shape {list(shape)}, so there is no axis {self._wanted}."
                raise BadInput(what, fix=f"give --axis from 0 to {rank - 1}")
            return self._wanted % rank
        quantizer = inspected.quantizer
        if quantizer is not None and quantizer.spec.axis is not None and quantizer.params.scale.size > 1:
            return quantizer.spec.axis % rank
        if inspected.is_constant:
            return weight_axis(inspected.op_type, rank, transposed=self._is_transposed(inspected.node))
        return self._axes.get(tensor, 0)

    def _is_transposed(self, node: str) -> bool:
        found = next((each for each in self._model.proto.graph.node if each.name == node), None)
        return found is not None and any(each.name == "transB" and each.i for each in found.attribute)


class _Record:
    """What is seen of one tensor; a `roundoff.quantize.calibration.watch.Watcher`."""

    def __init__(self, inspected: Inspected, quantized: QuantizedModel, axis: int) -> None:
        self.inspected = inspected
        self.tensors: tuple[str, ...] = (inspected.tensor,)
        self.others: tuple[str, ...] = ()
        by_name: Mapping[str, Quantizer] = {each.name: each for each in quantized.quantizers}
        self._earlier = [] if inspected.quantizer is None else chain_of(inspected.quantizer, by_name)[:-1]
        self._axis = axis
        self._record = ChannelRecord(axis)
        self._shape: tuple[int, ...] = ()

    def take(self, arrays: Sequence[Array]) -> None:
        """See the float values."""
        array = np.asarray(arrays[0])
        for each in self._earlier:
            array = fake_quantized(array, each)
        self._shape = self._shape or array.shape
        self._record.add(array)

    @property
    def has_nonfinite(self) -> bool:
        """Whether values were left out because they are NaN or infinite."""
        seen = self._record.observation()
        return seen.nans + seen.infs > 0

    def result(self) -> ChannelSpread:
        """All of it in numbers."""
        return judge_channels(self._record, self.inspected, shape=self._shape, axis=self._axis)
