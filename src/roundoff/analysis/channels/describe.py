"""Channels of whatever is asked for, from one pass over the samples."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from roundoff.analysis.channel_axes import channel_axes, weight_axis
from roundoff.analysis.channels.record import ChannelRecord
from roundoff.analysis.channels.risk import judge_channels
from roundoff.analysis.inspected import Inspected, find_inspected
from roundoff.analysis.watching import UNLIMITED, RunLimits, watch
from roundoff.core.channel_spread import ChannelReport, ChannelSpread
from roundoff.core.distributions import InspectedKind
from roundoff.core.names import shown
from roundoff.core.progress import SILENT, Progress
from roundoff.core.quantizer import Quantizer
from roundoff.core.tensors import Array
from roundoff.core.wording import nonfinite_note
from roundoff.errors import BadInput
from roundoff.graph.fake_constants import chain_of, fake_quantized
from roundoff.graph.load import Model
from roundoff.graph.quantized_model import QuantizedModel
from roundoff.graph.shapes import values
from roundoff.graph.weights import Weights
from roundoff.runtime.feeds import Samples
from roundoff.runtime.measure import complete_values
from roundoff.runtime.runner import read_feed

__all__ = ["ChannelSettings", "describe_channels"]

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
) -> tuple[list["_Record"], tuple[str, ...]]:
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
    more = " ..." if len(left_out) > _MOST_LISTED else ""
    return records, (f"without such channels, and left out: {', '.join(left_out[:_MOST_LISTED])}{more}",)


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
    """What is seen of one tensor; a `roundoff.analysis.watching.Watcher`."""

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
