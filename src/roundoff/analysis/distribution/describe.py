"""Distributions of whatever is asked for, from one pass over the samples."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from roundoff.analysis.distribution.advice import advise
from roundoff.analysis.distribution.codes import CodeRecord
from roundoff.analysis.distribution.layout import automatic_bins, lay_out
from roundoff.analysis.distribution.values import ValueRecord
from roundoff.analysis.inspected import Inspected, find_inspected
from roundoff.analysis.watching import UNLIMITED, RunLimits, watch
from roundoff.core.distributions import Distribution, DistributionReport, InspectedKind
from roundoff.core.names import shown
from roundoff.core.progress import SILENT, Progress
from roundoff.core.quantizer import Quantizer
from roundoff.core.tensors import Array
from roundoff.errors import BadInput
from roundoff.graph.fake_constants import chain_of, fake_quantized
from roundoff.graph.insertion import switch_on
from roundoff.graph.quantized_model import QuantizedModel
from roundoff.graph.shapes import values
from roundoff.graph.weights import Weights
from roundoff.runtime.feeds import Samples

__all__ = ["DistributionSettings", "describe_distributions"]

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
) -> tuple[tuple[Inspected, ...], tuple[str, ...]]:
    """What can be looked at, and a note on what only a glob names and holds no numbers."""
    found = find_inspected(quantized, settings.names, kinds=settings.kinds)
    other = {value.name for value in values(quantized.float_model) if value.obstacle()}
    named = frozenset(settings.names)
    left = [each for each in found if each.tensor in other and not named & {each.name, each.tensor, each.node}]
    kept = tuple(each for each in found if each not in left)
    if not left or not kept:
        return found, ()
    return kept, (f"holding no numbers, and left out: {', '.join(each.name for each in left)}",)


class _Record:
    """What is seen of one tensor at one place; a `roundoff.analysis.watching.Watcher`."""

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
