"""What the values of tensors look like: distributions, channels, outliers; one pass over the samples for each."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any

import numpy as np

from roundoff.core.names import shown
from roundoff.core.progress import SILENT, Progress
from roundoff.core.quantizers import Quantizer
from roundoff.core.tensors import Array
from roundoff.errors import BadInput, nearest
from roundoff.graph.insertion import switch_on
from roundoff.graph.load import Model
from roundoff.graph.quantized_model import QuantizedModel, chain_of, fake_quantized
from roundoff.graph.shapes import Value, channel_axes, values, weight_axis
from roundoff.graph.weights import Weights
from roundoff.messages.message import Message, as_message, english, message
from roundoff.messages.numbers import first_of, nonfinite_note
from roundoff.quantize.calibration.observer import ChannelMismatch, Observation, Observer
from roundoff.run.budget import UNLIMITED, RunBudget
from roundoff.run.capture import LiveSource, Samples, complete_values, each_sample, read_feed
from roundoff.run.variants import LayerTensor, layer_tensors
from roundoff.studies.distribution.advice import advise, judge_channels
from roundoff.studies.distribution.records import (
    ChannelRecord,
    CodeRecord,
    Inspected,
    TensorRecord,
    ValueRecord,
    find_inspected,
)
from roundoff.studies.distribution.result import (
    OUTLIER_LEVELS,
    ChannelReport,
    DistributionReport,
    InspectedKind,
    OutlierReport,
    OutlierRow,
    TensorDistribution,
)
from roundoff.studies.distribution.values import automatic_bins, lay_out


@dataclass(frozen=True, slots=True)
class InspectionSettings:
    """What to look at, and how.

    Attributes:
        names: Names or globs of nodes, tensors and quantizers; the table of outliers takes all when empty.
        kinds: Look only among these kinds; among all when empty.
        bins: Bins of a histogram; by default as many as there are values for, at most 200.
        axis: The axis along which channels are told apart; by default that of the quantizer's scales, else where
            the operation has its channels.
        log_base: Base of the logarithm that levels of outliers are.
        limits: What the run may take.
    """

    names: tuple[str, ...] = ()
    kinds: tuple[InspectedKind, ...] = ()
    bins: int | None = None
    axis: int | None = None
    log_base: float = 2.0
    limits: RunBudget = UNLIMITED


_DEFAULT_SETTINGS = InspectionSettings()

# The one pass: what is computed is seen sample by sample, constants as they stand in the model.

_Records = (
    Sequence[tuple[Inspected, TensorRecord[ChannelRecord]]] | Sequence[tuple[Inspected, TensorRecord["_Sides"]]]
)


def _need_samples(inspected: Sequence[Inspected], samples: Samples | None) -> None:
    computed = next((each for each in inspected if not each.is_constant), None)
    if computed is not None and samples is None:
        what = english("The values of {name!r} are computed, and no samples were given.", name=computed.name)
        raise BadInput(what, fix=english("add --data PATH"))


def _earlier(inspected: Inspected, quantized: QuantizedModel) -> list[Quantizer]:
    """The quantizers that the values a quantizer is fed with have been through."""
    by_name = {each.name: each for each in quantized.quantizers}
    return [] if inspected.quantizer is None else chain_of(inspected.quantizer, by_name)[:-1]


def _see(
    quantized: QuantizedModel,
    samples: Samples | None,
    records: _Records,
    *,
    other: Model | None = None,
    limits: RunBudget,
    progress: Progress,
) -> tuple[str, ...]:
    """Fill the records; gives the names of the samples that were run."""
    model = quantized.float_model
    running = [record for inspected, record in records if not inspected.is_constant]
    seen: tuple[str, ...] = ()
    if samples is not None:
        seen = _watch(model, samples, running, other=other, limits=limits, progress=progress)
    weights = Weights(model)
    for inspected, record in records:
        if inspected.is_constant:
            record.take([weights[inspected.tensor]])
    return seen


def _watch(
    model: Model,
    samples: Samples,
    records: Sequence[TensorRecord[Any]],
    *,
    other: Model | None = None,
    limits: RunBudget,
    progress: Progress,
) -> tuple[str, ...]:
    """Show every sample to every record; gives the names of the samples, none when there is nothing to look at."""
    asked = [(model, [record.tensors for record in records]), (other, [record.others for record in records])]
    sources = [
        LiveSource(
            network,
            samples,
            tensors=list(dict.fromkeys(name for names in each for name in names)),
            max_memory=limits.max_memory,
            threads=limits.threads,
        )
        for network, each in asked
        if network is not None and any(each)
    ]
    for sample in each_sample(sources, "looking at tensors", progress=progress) if sources else ():
        for record in records:
            named = zip(sources, (record.tensors, record.others), strict=False)
            try:
                record.take([source.read(name, sample) for source, names in named for name in names])
            except ChannelMismatch as error:
                raise BadInput(
                    "The channels of tensor {tensors!r} cannot be told apart: {error} (sample {sample!r}).",
                    fix=english("choose another --axis, or leave this tensor out"),
                    tensors=record.tensors[0],
                    error=error,
                    sample=sample,
                ) from error
    return samples.names if sources else ()


def _known_values(model: Model, samples: Samples, limits: RunBudget) -> tuple[Value, ...]:
    """Types and shapes of all tensors, as the first sample has them."""
    feed = read_feed(model, samples, 0)
    inferred = values(model, {name: array.shape for name, array in feed.items()})
    return complete_values(model, inferred, feed, threads=limits.threads)


# Distributions.

# Elements whose differences are held at a time.
_BLOCK = 1 << 18


def describe_distributions(
    quantized: QuantizedModel,
    samples: Samples | None,
    settings: InspectionSettings,
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
    records = [
        (each, TensorRecord(each.tensor, _Sides(each), earlier=_earlier(each, quantized))) for each in inspected
    ]
    _need_samples(inspected, samples)
    compared = [(each, record) for each, record in records if each.kind == "node" and quantized.quantizers]
    for each, record in compared:
        # Look at what a node computes in the quantized network, too.
        record.record.compare()
        record.others = (each.tensor,) if each.node else ()
    other = switch_on(quantized.float_model, quantized.quantizers) if compared else None
    seen = _see(quantized, samples, records, other=other, limits=settings.limits, progress=progress)
    return DistributionReport(
        reference=shown(quantized.float_model.path),
        samples=seen,
        distributions=tuple(record.record.result(record.shape, settings.bins) for _, record in records),
        notes=(*without, *quantized.notes),
        preparation=quantized.preparation,
    )


def _readable(
    quantized: QuantizedModel, settings: InspectionSettings
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


class _Sides:
    """Values of one tensor before and after quantization, what differs, and the codes between them."""

    def __init__(self, inspected: Inspected) -> None:
        self._inspected = inspected
        self._codes = None if inspected.quantizer is None else CodeRecord(inspected.quantizer)
        self._before = ValueRecord()
        self._after: ValueRecord | None = None
        self._difference = ValueRecord()
        if inspected.kind in ("weight", "bias"):
            self.compare()

    def compare(self) -> None:
        """Look at the quantized values, too."""
        self._after = ValueRecord()

    def add(self, before: Array, other: Array | None = None) -> None:
        """See the float values and, where there are two, those of the quantized network."""
        quantizer = self._inspected.quantizer
        self._before.add(before)
        if self._codes is not None:
            self._codes.add(before)
        if self._after is None:
            return
        # In the quantized network, too, it is quantized by who reads it.
        after = before if other is None else other
        after = after if quantizer is None else fake_quantized(after, quantizer)
        self._after.add(after)
        if after.shape == before.shape:
            _add_difference(self._difference, after.reshape(-1), before.reshape(-1))

    def result(self, shape: tuple[int, ...], bins: int | None) -> TensorDistribution:
        """All of it in numbers."""
        each = self._inspected
        facts = None if self._codes is None else self._codes.facts()
        step = facts.scales[0] if facts is not None and facts.scales[0] == facts.scales[1] else None
        sides = [self._before] if self._after is None else [self._before, self._after]
        bins = automatic_bins(self._before.spread.count) if bins is None else bins
        layout = lay_out([side.spread for side in sides], bins, step=step)
        before, peaks = self._before.summary(layout), self._before.peaks()
        suits, advice = advise(before, facts, peaks)
        difference = None if self._after is None else self._difference
        return TensorDistribution(
            name=each.name,
            kind=each.kind,
            tensor=each.tensor,
            node=each.node,
            op_type=each.op_type,
            shape=shape,
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


# Channels.

_MOST_LISTED = 5


def describe_channels(
    quantized: QuantizedModel,
    samples: Samples | None,
    settings: InspectionSettings,
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
    _need_samples(inspected, samples)
    runs = any(not each.is_constant for each in inspected)
    axes, without = _axes_of(inspected, _Axes(model, samples if runs else None, settings), settings.names)
    records = [
        (each, TensorRecord(each.tensor, ChannelRecord(axis), earlier=_earlier(each, quantized)))
        for each, axis in axes
    ]
    seen = _see(quantized, samples, records, limits=settings.limits, progress=progress)
    nonfinite = [each.name for each, record in records if _nonfinite(record.record.observation())]
    return ChannelReport(
        reference=shown(model.path),
        samples=seen,
        spreads=tuple(
            judge_channels(record.record, each, shape=record.shape, axis=axis)
            for (each, record), (_, axis) in zip(records, axes, strict=True)
        ),
        notes=(*without, *nonfinite_note("tensor", nonfinite), *quantized.notes),
        preparation=quantized.preparation,
    )


def _nonfinite(seen: Observation) -> int:
    return seen.nans + seen.infs


def _axes_of(
    inspected: Sequence[Inspected], axes: "_Axes", names: Sequence[str]
) -> tuple[list[tuple[Inspected, int]], tuple[Message, ...]]:
    """What has channels, and along which axis; a note on what has none, an error only for what was named."""
    found, errors = [], {}
    for each in inspected:
        try:
            found.append((each, axes.of(each)))
        except BadInput as error:
            if {each.name, each.tensor, each.node}.intersection(names):
                raise
            errors[each.name] = error
    left_out = list(errors)
    if not left_out:
        return found, ()
    if not found:
        raise errors[left_out[0]]
    listed = first_of(left_out, _MOST_LISTED)
    return found, (message("channels.note_without", names=listed),)


class _Axes:
    """Along which axis each tensor has its channels."""

    def __init__(self, model: Model, samples: Samples | None, settings: InspectionSettings) -> None:
        self._model, self._wanted = model, settings.axis
        self._weights = Weights(model)
        self._shapes: dict[str, tuple[int, ...]] = {}
        self._axes: dict[str, int] = {}
        if samples is not None:
            known = _known_values(model, samples, settings.limits)
            self._shapes = {value.name: value.shape for value in known if value.shape is not None}
            self._axes = channel_axes(model, known)

    def of(self, inspected: Inspected) -> int:
        """Counted from the first."""
        tensor = inspected.tensor
        shape = self._weights.shape(tensor) if inspected.is_constant else self._shapes.get(tensor, ())
        rank = len(shape)
        if not rank:
            raise BadInput(
                "{tensor!r} is a single number and has no channels.", fix=english("leave it out"), tensor=tensor
            )
        if self._wanted is not None:
            if not -rank <= self._wanted < rank:
                what = english(
                    "{tensor!r} has the shape {shape}, so there is no axis {wanted}.",
                    tensor=tensor,
                    shape=list(shape),
                    wanted=self._wanted,
                )
                raise BadInput(what, fix=english("give --axis from 0 to {number}", number=rank - 1))
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


# Outliers: how many channels of each tensor are small against its largest value.

_NOT_FINITE = "outliers.reason_nonfinite"


def find_outliers(
    quantized: QuantizedModel,
    samples: Samples,
    settings: InspectionSettings = _DEFAULT_SETTINGS,
    *,
    progress: Progress = SILENT,
) -> OutlierReport:
    """Look at the largest magnitude of each channel of each tensor, over all samples.

    Args:
        quantized: The float network, whose values are looked at, and its quantizers, perhaps none.
        samples: What it is fed.
        settings: What to look at.
        progress: Told of every sample.

    Raises:
        BadInput: A name matches nothing, or the samples do not fit the model.
        ModelFailed: The model cannot be run.
    """
    if not settings.log_base > 1 or not math.isfinite(settings.log_base):
        raise BadInput(
            english("A logarithm to the base {log_base} has no levels.", log_base=settings.log_base),
            fix=english("give a base above 1, as 2"),
        )
    model = quantized.float_model
    known = _known_values(model, samples, settings.limits)
    tensors = _chosen(layer_tensors(quantized, known), settings.names)
    axes = channel_axes(model, known)
    records: list[tuple[int, int, TensorRecord[Observer]]] = []
    skipped: dict[str, Message] = {}
    for order, tensor in enumerate(tensors):
        axis, obstacle = _axis(tensor, axes, settings.axis)
        if obstacle is not None:
            skipped[tensor.name] = obstacle
        else:
            # One tensor of changing shape must not cost the table.
            observer = Observer(axis, ranges_only=True)
            records.append((order, axis, TensorRecord(tensor.name, observer, tolerant=True)))
    watchers = [record for _, _, record in records]
    seen = _watch(model, samples, watchers, limits=settings.limits, progress=progress)
    skipped |= {each.tensors[0]: as_message(each.problem) for each in watchers if each.problem}
    for order, _, record in records:
        values = record.record.observation()
        if not record.problem and 0 < values.count == _nonfinite(values):
            skipped[tensors[order].name] = message(_NOT_FINITE)
    if skipped and len(skipped) == len(tensors):
        name, reason = next(iter(skipped.items()))
        others = (
            english(", and so on for {number} {number:other|others}", number=len(skipped) - 1)
            if len(skipped) > 1
            else ""
        )
        unusable = any(each.key == _NOT_FINITE for each in skipped.values())
        raise BadInput(
            "No tensor has channels that can be counted: {name!r}: {reason}{others}.",
            fix=english("check the samples, then the model with 'roundoff dump --stats-only'")
            if unusable
            else english("leave --axis out, or choose other tensors with --nodes"),
            name=name,
            reason=reason,
            others=others,
        )
    rows = tuple(
        _outlier_row(record.record.observation(), tensors[order], order=order, axis=axis, base=settings.log_base)
        for order, axis, record in records
        if tensors[order].name not in skipped
    )
    return OutlierReport(
        reference=shown(model.path),
        samples=seen,
        log_base=settings.log_base,
        rows=rows,
        skipped=skipped,
        notes=(*quantized.notes, *nonfinite_note("tensor", [row.tensor for row in rows if row.nonfinite])),
        preparation=quantized.preparation,
    )


def _chosen(tensors: Sequence[LayerTensor], patterns: Sequence[str]) -> list[LayerTensor]:
    """Those that a pattern names, by the tensor or by the node that computes it; all without patterns."""
    if not patterns:
        return list(tensors)
    taken: set[str] = set()
    for pattern in patterns:
        labels = [(label, each.name) for each in tensors for label in (each.name, each.value.node) if label]
        found = {name for label, name in labels if label == pattern}
        found = found or {name for label, name in labels if fnmatchcase(label, pattern)}
        if not found:
            what = english("{pattern!r} names no node and no computed tensor.", pattern=pattern)
            raise BadInput(what, fix=nearest(pattern.strip("*?"), dict.fromkeys(label for label, _ in labels)))
        taken |= found
    return [each for each in tensors if each.name in taken]


def _axis(tensor: LayerTensor, axes: dict[str, int], wanted: int | None) -> tuple[int, Message | None]:
    """The axis of a tensor's channels, or why it has no row."""
    value = tensor.value
    if value.kind != "tensor":
        return 0, message("outliers.reason_kind", kind=value.kind)
    dtype = "float" if value.element is None else value.element.dtype
    if not dtype.startswith(("float", "bfloat")):
        return 0, message("outliers.reason_strings" if dtype == "string" else "outliers.reason_type", dtype=dtype)
    rank = len(value.shape or ())
    if wanted is not None:
        has = -rank <= wanted < rank
        return (wanted % rank, None) if has else (0, message("outliers.reason_axis", axis=wanted))
    return (axes[value.name], None) if value.name in axes else (0, message("outliers.reason_channels"))


def _outlier_row(seen: Observation, tensor: LayerTensor, *, order: int, axis: int, base: float) -> OutlierRow:
    """Count the channels of each level."""
    largest = np.maximum(np.abs(seen.low), np.abs(seen.high))
    # A channel without finite values has no magnitude, and counts for nothing.
    largest = np.where(np.isfinite(largest), largest, np.nan)
    known = largest[~np.isnan(largest)]
    top = float(known.max(initial=0.0))
    live = known[known > 0]
    value = tensor.value
    return OutlierRow(
        order=order,
        tensor=value.name,
        node=value.node,
        op_type=value.op_type,
        shape=value.shape or (),
        axis=axis,
        quantized=tensor.quantized,
        channels=seen.rows,
        largest=top,
        largest_channel=int(np.nanargmax(largest)) if known.size else 0,
        median=float(np.median(known)) if known.size else 0.0,
        sparse=int(known.size - live.size),
        # Compared by products: a logarithm may end a hair below a whole number.
        at_least={str(level): int(np.count_nonzero(live * base**level <= top)) for level in OUTLIER_LEVELS},
        nonfinite=_nonfinite(seen),
    )
