"""Reading both sides sample by sample and summing each pair, with one sample in memory at a time."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from roundoff.align.alignment import pairs_by_inputs
from roundoff.align.layout import only_padding
from roundoff.align.pairing import TensorPair, pair_samples
from roundoff.core.progress import Progress
from roundoff.core.tensors import Array, TensorSource
from roundoff.errors import BadInput, CannotAlign
from roundoff.measure.classes import IndexCounts, index_pair, is_index
from roundoff.measure.inference import MOST_KEPT
from roundoff.measure.metrics import Status, sample_sqnr_db
from roundoff.measure.pairs import NOTHING as NO_SUMS
from roundoff.measure.pairs import PairSums, channel_axis_of, measure_pair
from roundoff.messages.message import NOTHING, Message, english, message


@dataclass(frozen=True, slots=True)
class SamplePairs:
    """Which sample of the candidate belongs to which of the reference, and what was assumed."""

    pairs: tuple[tuple[str, str], ...]
    note: Message = NOTHING


@dataclass(frozen=True, slots=True)
class PairMeasurement:
    """What was measured of one pair over all samples.

    Attributes:
        moments: Sums over the samples that could be read.
        samples: How many those are.
        worst_sample: The one with the largest error energy.
        worst_energy: That energy.
        dtypes: dtypes of both sides.
        shapes: Shapes of both sides in their own layouts, in the first sample.
        failure: Status and reason when some sample could not be measured.
        sample_sqnr_db: SQNR of each of the first samples.
        indices: Of tensors of indices, how many are equal; None of all others.
    """

    moments: PairSums = NO_SUMS
    samples: int = 0
    worst_sample: tuple[str, str] = ("", "")
    worst_energy: float = -1.0
    dtypes: tuple[str, str] = ("", "")
    shapes: tuple[tuple[int, ...], tuple[int, ...]] = ((), ())
    failure: tuple[Status, str] | None = None
    sample_sqnr_db: tuple[float, ...] = ()
    indices: IndexCounts | None = None

    def add(self, moments: PairSums, sample: tuple[str, str]) -> "PairMeasurement":
        """This and one more sample."""
        together = self.moments.merge(moments) if self.samples else moments
        worse = moments.error_energy > self.worst_energy
        return replace(
            self,
            moments=together,
            samples=self.samples + 1,
            worst_sample=sample if worse else self.worst_sample,
            worst_energy=max(moments.error_energy, self.worst_energy),
            sample_sqnr_db=self.sample_sqnr_db
            if self.samples >= MOST_KEPT
            else (*self.sample_sqnr_db, sample_sqnr_db(moments)),
        )


def find_samples(reference: TensorSource, candidate: TensorSource) -> SamplePairs:
    """Match the samples of both sides, and say so when that took more than equal names."""
    left, right = reference.samples, candidate.samples
    pairs = pair_samples(left, right)
    if not pairs and (found := pairs_by_inputs(reference, candidate)):
        lonely = len(left) + len(right) - 2 * len(found)
        return SamplePairs(found, message("compare.paired_by_inputs", both=len(found), lonely=lonely))
    if not pairs:
        raise no_sample_in_common(reference, candidate)
    lonely = len(left) + len(right) - 2 * len(pairs)
    if lonely:
        return SamplePairs(pairs, message("compare.lonely_samples", both=len(pairs), lonely=lonely))
    if len(pairs) > 1 and any(ours != theirs for ours, theirs in pairs):
        return SamplePairs(pairs, message("compare.paired_by_position", count=len(pairs)))
    return SamplePairs(pairs)


def no_sample_in_common(reference: TensorSource, candidate: TensorSource, *, fed: bool = False) -> CannotAlign:
    """Why samples cannot be compared.

    Args:
        reference: The one side.
        candidate: The other.
        fed: Whether the reference is a model that was given more samples than the other side has.
    """
    left, right = reference.samples, candidate.samples
    where = english(
        "{left} in {label}, {right} in {label2}",
        left=_few(left), label=reference.label, right=_few(right), label2=candidate.label,
    )  # fmt: skip
    fix = english("give both sides the same samples: {count} {count:was|were} dumped", count=len(right))
    if fed:
        fix = english("add --samples {count} if these are the first ones, else {fix}", count=len(right), fix=fix)
    return CannotAlign(english("No sample name is on both sides: {where}.", where=where), fix=fix)


def measure_pairs(
    sources: tuple[TensorSource, TensorSource],
    pairs: Sequence[TensorPair],
    samples: SamplePairs,
    *,
    channel_axis: int | None = None,
    watch: Callable[[str], None] | None = None,
    progress: Progress,
) -> list[PairMeasurement]:
    """Measure every pair over all samples.

    Args:
        sources: Reference and candidate.
        pairs: What to measure.
        samples: Which samples belong together.
        channel_axis: Axis of the channels; None to take the usual one of each shape.
        watch: Told of each sample of the reference while a source that runs a model still holds it.
        progress: Told of every pair of every sample.
    """
    measured = [PairMeasurement() for _ in pairs]
    progress.start("comparing", len(pairs) * len(samples.pairs))
    try:
        for sample in samples.pairs:
            for index, pair in enumerate(pairs):
                measured[index] = _measure_one(sources, pair, sample, measured[index], channel_axis)
                progress.advance()
            if watch is not None:
                watch(sample[0])
    finally:
        progress.finish()
    return measured


def read_pair(
    sources: tuple[TensorSource, TensorSource], pair: TensorPair, sample: tuple[str, str]
) -> tuple[Array, Array]:
    """Both sides of a pair in one sample, the candidate in the reference's layout."""
    reference = sources[0].read(pair.reference, sample[0])
    return reference, laid_out(pair, sources[1].read(pair.candidate, sample[1]))


def laid_out(pair: TensorPair, candidate: Array) -> Array:
    """The candidate of a pair in the reference's layout.

    Raises:
        BadInput: Its shape does not fit the layout that was found.
    """
    if pair.layout is None:
        return candidate
    try:
        return pair.layout.apply(candidate)
    except ValueError as error:
        what = english(
            "{candidate} has shape {shape}, which does not fit the layout {name}.",
            candidate=pair.candidate,
            shape=candidate.shape,
            name=pair.layout.name,
        )
        raise BadInput(what, fix=english("compare samples of one shape at a time")) from error


def _measure_one(
    sources: tuple[TensorSource, TensorSource],
    pair: TensorPair,
    sample: tuple[str, str],
    so_far: PairMeasurement,
    channel_axis: int | None,
) -> PairMeasurement:
    try:
        reference, candidate = read_pair(sources, pair, sample)
        if not so_far.samples:
            own = candidate.shape if pair.layout is None else sources[1].read(pair.candidate, sample[1]).shape
            dtypes = (str(reference.dtype), str(candidate.dtype))
            so_far = replace(so_far, dtypes=dtypes, shapes=(reference.shape, own))
        if np.iscomplexobj(reference) != np.iscomplexobj(candidate):
            return _failed(so_far, "unreadable", f"{reference.dtype} against {candidate.dtype}", sample)
        if pair.layout is not None and pair.layout.crop is not None:
            stored = sources[1].read(pair.candidate, sample[1])
            if not only_padding(pair.layout, reference, stored):
                reason = english(
                    "{shape} against {shape2}, and what is left over is no padding",
                    shape=_show(reference.shape),
                    shape2=_show(stored.shape),
                )
                return _failed(so_far, "shape", reason, sample)
        if reference.shape != candidate.shape:
            return _failed(so_far, "shape", f"{_show(reference.shape)} against {_show(candidate.shape)}", sample)
        if is_index(reference.dtype) and candidate.dtype.kind in "biuf":
            so_far = replace(so_far, indices=(so_far.indices or IndexCounts()).add(reference, candidate))
        axis = channel_axis_of(reference.shape) if channel_axis is None else channel_axis
        with np.errstate(all="ignore"):
            return so_far.add(measure_pair(*index_pair(reference, candidate), channel_axis=axis), sample)
    except BadInput as error:
        return _failed(so_far, "unreadable", error.what, sample)


def _failed(so_far: PairMeasurement, status: Status, reason: str, sample: tuple[str, str]) -> PairMeasurement:
    if so_far.failure is not None:
        return so_far
    where = f" (sample {sample[0]})" if sample[0] else ""
    return replace(so_far, failure=(status, reason + where))


def _show(shape: Iterable[int]) -> str:
    return "x".join(str(size) for size in shape) or "scalar"


def _few(names: Sequence[str]) -> str:
    shown = ", ".join(repr(name) for name in names[:3])
    return english("{shown}, ... ({count} in all)", shown=shown, count=len(names)) if len(names) > 3 else shown
