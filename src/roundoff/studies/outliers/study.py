"""The outlier table: how many channels of each tensor are small against its largest value."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase

import numpy as np

from roundoff.core.names import shown
from roundoff.core.progress import SILENT, Progress
from roundoff.core.tensors import Array
from roundoff.errors import BadInput, nearest
from roundoff.graph.quantized_model import QuantizedModel
from roundoff.graph.shapes import channel_axes, values
from roundoff.messages.message import Message, Remark, message
from roundoff.messages.numbers import counted, nonfinite_note
from roundoff.quantize.calibration.observer import ChannelMismatch, Observer
from roundoff.quantize.calibration.watch import UNLIMITED, RunLimits, watch
from roundoff.run.capture import read_feed
from roundoff.run.feeds import Samples, complete_values
from roundoff.studies.layers.tensors import LayerTensor, layer_tensors
from roundoff.studies.outliers.result import OUTLIER_LEVELS, OutlierReport, OutlierRow

__all__ = ["OutlierSettings", "find_outliers"]


@dataclass(frozen=True, slots=True)
class OutlierSettings:
    """What to look at, and how.

    Attributes:
        names: Names or globs of tensors and nodes; everything when empty.
        log_base: Base of the logarithm that levels are.
        axis: The axis along which channels are told apart; by default where the operation has its channels.
        limits: What the run may take.
    """

    names: tuple[str, ...] = ()
    log_base: float = 2.0
    axis: int | None = None
    limits: RunLimits = UNLIMITED


_DEFAULT_SETTINGS = OutlierSettings()


def find_outliers(
    quantized: QuantizedModel,
    samples: Samples,
    settings: OutlierSettings = _DEFAULT_SETTINGS,
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
            f"A logarithm to the base {settings.log_base} has no levels.", fix="give a base above 1, as 2"
        )
    model = quantized.float_model
    feed = read_feed(model, samples, 0)
    inferred = values(model, {name: array.shape for name, array in feed.items()})
    known = complete_values(model, inferred, feed, threads=settings.limits.threads)
    tensors = _chosen(layer_tensors(quantized, known), settings.names)
    axes = channel_axes(model, known)
    watchers: list[_Ranges] = []
    skipped: dict[str, Remark] = {}
    for order, tensor in enumerate(tensors):
        axis, obstacle = _axis(tensor, axes, settings.axis)
        if obstacle is not None:
            skipped[tensor.name] = obstacle
        else:
            watchers.append(_Ranges(order, tensor, axis))
    seen = watch(model, samples, watchers, limits=settings.limits, progress=progress)
    skipped |= {each.tensor.name: each.problem for each in watchers if each.problem}
    if skipped and len(skipped) == len(tensors):
        name, reason = next(iter(skipped.items()))
        others = f", and so on for {counted(len(skipped) - 1, 'other')}" if len(skipped) > 1 else ""
        raise BadInput(
            f"No tensor has channels that can be counted: {name!r}: {reason}{others}.",
            fix="leave --axis out, or choose other tensors with --nodes",
        )
    rows = tuple(each.row(settings.log_base) for each in watchers if not each.problem)
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
            what = f"{pattern!r} names no node and no computed tensor."
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


class _Ranges:
    """The ranges of the channels of one tensor; a `roundoff.quantize.calibration.watch.Watcher`."""

    def __init__(self, order: int, tensor: LayerTensor, axis: int) -> None:
        self.tensor, self.problem = tensor, ""
        self.tensors: tuple[str, ...] = (tensor.name,)
        self.others: tuple[str, ...] = ()
        self._order, self._axis = order, axis
        self._observer = Observer(axis, ranges_only=True)

    def take(self, arrays: Sequence[Array]) -> None:
        """See the values of one sample."""
        if self.problem:
            return
        try:
            self._observer.add(arrays[0])
        except ChannelMismatch as error:
            # One tensor of changing shape must not cost the table.
            self.problem = str(error)

    def row(self, base: float) -> OutlierRow:
        """Count the channels of each level."""
        seen = self._observer.observation()
        largest = np.maximum(np.abs(seen.low), np.abs(seen.high))
        # A channel without finite values has no magnitude, and counts for nothing.
        largest = np.where(np.isfinite(largest), largest, np.nan)
        known = largest[~np.isnan(largest)]
        top = float(known.max(initial=0.0))
        live = known[known > 0]
        value = self.tensor.value
        return OutlierRow(
            order=self._order,
            tensor=value.name,
            node=value.node,
            op_type=value.op_type,
            shape=value.shape or (),
            axis=self._axis,
            quantized=self.tensor.quantized,
            channels=seen.rows,
            largest=top,
            largest_channel=int(np.nanargmax(largest)) if known.size else 0,
            median=float(np.median(known)) if known.size else 0.0,
            sparse=int(known.size - live.size),
            # Compared by products: a logarithm may end a hair below a whole number.
            at_least={str(level): int(np.count_nonzero(live * base**level <= top)) for level in OUTLIER_LEVELS},
            nonfinite=seen.nans + seen.infs,
        )
