"""Comparing two sets of tensors: which differ, how, and where it started."""

import contextlib
import math
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from roundoff.align.layout import find_layout
from roundoff.align.pairing import Pairing, TensorPair
from roundoff.align.swapped import swapped_names, swapped_values
from roundoff.align.usual_layout import of_their_own
from roundoff.core.coverage import (
    Coverage,
    CoverageGap,
    Doubt,
    Grade,
    Judgement,
    LeftOut,
    OutputCoverage,
    Share,
    Unjudged,
)
from roundoff.core.progress import SILENT, Progress
from roundoff.core.tensors import Array, TensorInfo, TensorSource, Topology
from roundoff.errors import BadInput
from roundoff.measure.inference import keep_samples
from roundoff.measure.metrics import TensorScore, score
from roundoff.measure.pairs import NOTHING as NO_SUMS
from roundoff.measure.pairs import PairSums, measure_pair
from roundoff.measure.verdicts import (
    PROFILE,
    SampleSanity,
    ThresholdSet,
    ValueTally,
    beside_tensors,
    index_doubts,
    load_profile,
)
from roundoff.messages.message import NOTHING, Message, as_message, english, message
from roundoff.messages.numbers import EXACT_DB, score_text
from roundoff.studies.compare.coverage import (
    compared_outputs,
    files_share,
    left_out,
    output_coverage,
    roles,
    unplaced_files,
)
from roundoff.studies.compare.difference import (
    Difference,
    describe,
    describe_codes,
    describe_from_moments,
    local_outliers,
    neighbour_sqnr_db,
)
from roundoff.studies.compare.pairs import PairMeasurement, SamplePairs, find_samples, measure_pairs, read_pair
from roundoff.studies.compare.result import Comparison, TensorComparison, Verdict, was_not_read
from roundoff.tensors.ranges import BOUNDED, FILLED, excess_range, shares_scale
from roundoff.tensors.stored import BatchSource, holds_statistics, remarks_of, runs_of, scales_of

if TYPE_CHECKING:
    from roundoff.graph.interface import OutputPart


# Of so many channels each is looked at by itself, of tensors of more axes than samples and classes.
_MOST_CHANNELS, _ROWS_RANK = 512, 2
# How many failing tensors are looked at a second time to say what their difference looks like.
_SECOND_LOOKS = 48
# Equal shapes are tried in another layout when the cosine is below this.
_SUSPICIOUS_COSINE = 0.9
_WORST = 5
# Fewer numbers than these may well be all the same.
_FEWEST_NUMBERS = 16


@dataclass(frozen=True, slots=True)
class CompareSettings:
    """How to judge a comparison.

    Attributes:
        thresholds: What a tensor must keep; the default profile when None, and then nothing is gated.
        topology: The reference network, to tell culprits from victims; None when unknown.
        channel_axis: Axis of the channels; None for the usual one of each shape.
        parts: The outputs, or slices of them that own branches of the network compute, each of which must keep the
            thresholds and its values.
    """

    thresholds: ThresholdSet | None = None
    topology: Topology | None = None
    channel_axis: int | None = None
    parts: "tuple[OutputPart, ...]" = ()


_DEFAULT_SETTINGS = CompareSettings()


def compare(
    reference: TensorSource,
    candidate: TensorSource,
    pairing: Pairing,
    *,
    settings: CompareSettings = _DEFAULT_SETTINGS,
    progress: Progress = SILENT,
) -> Comparison:
    """Score every pair over all samples, judge it, and say where the difference starts."""
    common = find_samples(reference, candidate)
    job = _ComparisonRun((reference, candidate), common, settings, progress)
    sanity = _ReferenceSanity(reference, settings.topology)
    pairs, measured = job.measure(pairing.pairs, sanity.add)
    job, pairs, measured = _on_finite_samples(job, pairs, measured, sanity.nonfinite_inputs)
    samples = job.samples
    _check_axis(settings.channel_axis, measured)
    thresholds = settings.thresholds or load_profile(PROFILE)
    scored = _with_lost_parts(job, _rows(job, pairs, measured, thresholds=thresholds), pairs)
    scored = _with_wide_ranges(job, _with_swapped(job, scored, pairs), pairs, measured)
    judged = _with_odd_layouts(scored, _alone(scored, pairs, reference, settings.topology))
    rows = _with_roles(judged, settings.topology)
    rows, remarks = _remarked(job, rows, pairs, measured)
    outputs = output_coverage(rows, (reference, candidate), pairing, settings.topology)
    if not samples.pairs:
        outputs = replace(
            outputs, not_judged=tuple(Unjudged(each.name, "nonfinite") for each in outputs.not_judged)
        )
    lacking = [each.name for each in outputs.not_judged if each.why in ("missing", "unmatched")]
    notes = (
        *_run_notes((reference, candidate)),
        *batch_note(candidate),
        samples.note,
        *dict.fromkeys((*remarks_of(reference), *remarks_of(candidate))),
        _note_on_scope(thresholds, settings.topology),
        *_moved_names(rows, reference),
        *remarks,
    )
    verdict = _verdict(
        rows,
        ordered=reference.ordered,
        missing_outputs=tuple(lacking) if settings.topology else (),
        gated=settings.thresholds is not None,
    )
    lost = len(common.pairs) - len(samples.pairs)
    judgement = _judgement(rows, (reference, candidate), pairing, verdict, outputs, lost)
    indices = {pair.reference: each.indices for pair, each in zip(pairs, measured, strict=True) if each.indices}
    doubts = (*sanity.doubts(measured), *index_doubts(indices))
    if holds_statistics(reference):
        doubts = (*doubts, Doubt("statistics"))
    # A network was fed what the user gave; of two dumps one may hold more.
    if settings.topology is not None and (missing := len(reference.samples) - len(common.pairs)) > 0:
        doubts = (*doubts, Doubt("lacking", missing, len(reference.samples)))
    return Comparison(
        reference=reference.label,
        candidate=candidate.label,
        samples=tuple(left for left, _ in samples.pairs),
        ordered=reference.ordered,
        thresholds=thresholds,
        rows=rows,
        unmatched_reference=pairing.unmatched_reference,
        unmatched_candidate=pairing.unmatched_candidate,
        verdict=verdict,
        notes=tuple(filter(None, notes)),
        outputs=outputs,
        judgement=replace(
            judgement,
            grade=_doubted(judgement.grade, doubts),
            doubts=doubts,
            limits=thresholds.describe(),
        ),
    )


def _judgement(
    rows: Sequence[TensorComparison],
    sources: tuple[TensorSource, TensorSource],
    pairing: Pairing,
    verdict: Verdict,
    outputs: OutputCoverage,
    lost: int,
) -> Judgement:
    """The grade, with what was judged of both sides; a tensor that fails is a loss even where it is no output.

    Of the samples that both sides have, so many were `lost`, for they hold NaN.
    """
    ours, theirs = (each.tensors for each in sources)
    unread = [row.reference for row in rows if was_not_read(row)]
    unasked = [row.reference for row in rows if row.passed is None]
    unfed = [] if rows else [pair.reference for pair in pairing.pairs]
    lonely, spare = pairing.unmatched_reference, pairing.unmatched_candidate
    tensors = Share(
        len(ours),
        sum(row.passed is not None and not was_not_read(row) for row in rows),
        left_out(("unmatched", lonely), ("unreadable", unread), ("profile", unasked), ("nonfinite", unfed)),
    )
    unplaced = [info for info in theirs if info.name in set(spare)]
    paired = len(find_samples(*sources).pairs)
    all_samples = max(len(each.samples) for each in sources)
    apart = LeftOut("unmatched", all_samples - paired), LeftOut("nonfinite", lost)
    samples = Share(all_samples, paired - lost, tuple(each for each in apart if each.count))
    gap = None if verdict.first_divergence is None else _gap(verdict.first_divergence, rows, ours)
    coverage = Coverage(
        outputs,
        tensors=tensors,
        samples=samples,
        files=files_share(theirs, unplaced, pairing.copies),
        gap=gap,
        unplaced=unplaced_files(unplaced, [info for info in ours if info.name in set(lonely)], pairing.copies),
    )
    grade: Grade = "lossy" if verdict.failed else "fine" if outputs.complete else "incomplete"
    if not rows:
        grade = "no_evidence"
    return Judgement(grade, coverage)


def _doubted(grade: Grade, doubts: tuple[Doubt, ...]) -> Grade:
    return "no_evidence" if doubts and grade != "lossy" else grade


def _gap(first: str, rows: Sequence[TensorComparison], tensors: Sequence[TensorInfo]) -> CoverageGap | None:
    """Where it starts when tensors between the first wrong one and the last right one were not compared."""
    known = {row.reference: row for row in rows if not was_not_read(row)}
    missing = 0
    before = [info.name for info in tensors]
    for name in reversed(before[: before.index(first)] if first in before else []):
        if name not in known:
            missing += 1
        else:
            return CoverageGap(name, first, missing) if missing else None
    return CoverageGap("", first, missing) if missing else None


class _ReferenceSanity:
    """Whether what the reference was fed, and gave, is any ground for a good verdict."""

    def __init__(self, reference: TensorSource, topology: Topology | None) -> None:
        known = {info.name for info in reference.tensors}
        self._reference = reference
        self._inputs = [] if topology is None else [name for name in topology.inputs if name in known]
        self._outputs = [] if topology is None else [name for name in topology.outputs if name in known]
        self._seen = SampleSanity()

    def add(self, sample: str) -> None:
        """Take in a sample."""
        self._seen.add(sample, self._read(self._inputs, sample), self._read(self._outputs, sample))

    @property
    def nonfinite_inputs(self) -> tuple[str, ...]:
        """Samples of which nothing can be told, since they hold NaN or infinite values themselves."""
        return self._seen.nonfinite_inputs

    def doubts(self, measured: Sequence[PairMeasurement]) -> tuple[Doubt, ...]:
        """What speaks against a good verdict; where inputs are unknown, that no tensor of the reference varies."""
        # What was compared was fed to both sides: one sample is enough to see that they agree on it.
        # Tensors between inputs and outputs tell more than outputs that never change.
        inner = len(measured) > len(self._inputs) + len(self._outputs)
        # An output with NaN on both sides is not judged, which is said of it.
        left = ("single", "nan", *(("flat",) if inner else ()))
        found = tuple(each for each in self._seen.doubts() if each.kind not in left)
        found = beside_tensors(found) if inner else found
        large = [each for each in measured if each.moments.count >= _FEWEST_NUMBERS]
        sides = [each.moments.reference for each in large]
        if not self._inputs and sides and all(side.low == side.high for side in sides):
            samples = max(each.samples for each in large)
            return (*found, Doubt("constant", samples, samples))
        return found

    def _read(self, names: Sequence[str], sample: str) -> dict[str, Array]:
        values = {}
        for name in names:
            # What cannot be read is said of its row.
            with contextlib.suppress(BadInput):
                values[name] = self._reference.read(name, sample)
        return values


def _check_axis(axis: int | None, measured: Sequence[PairMeasurement]) -> None:
    ranks = {len(result.shapes[0]) for result in measured}
    if axis is not None and not any(-rank <= axis < rank for rank in ranks):
        ranks_seen = ", ".join(str(rank) for rank in sorted(ranks))
        raise BadInput(
            english("The channel axis is to be {axis}, but no tensor has an axis {axis}.", axis=axis),
            fix=english("choose one that fits tensors of rank {ranks_seen}", ranks_seen=ranks_seen),
        )


@dataclass(frozen=True, slots=True)
class _ComparisonRun:
    sources: tuple[TensorSource, TensorSource]
    samples: SamplePairs
    settings: CompareSettings
    progress: Progress

    def measure(
        self, pairs: Sequence[TensorPair], watch: Callable[[str], None]
    ) -> tuple[list[TensorPair], list[PairMeasurement]]:
        """Measure all pairs; those of equal shape that disagree badly also in the layout that restores them."""
        pairs = list(pairs)
        measured = self._measure(pairs, watch)
        restored = {i: layout for i, m in enumerate(measured) if (layout := self._restoring(pairs[i], m))}
        if restored:
            again = self._measure(list(restored.values()))
            for index, better in zip(restored, again, strict=True):
                pairs[index], measured[index] = restored[index], better
        return pairs, measured

    def look_again(self, pair: TensorPair, measured: PairMeasurement) -> Difference:
        """Say what the difference of a failing pair looks like, from its worst sample."""
        try:
            return describe(measured.moments, *read_pair(self.sources, pair, measured.worst_sample))
        except BadInput:
            return describe_from_moments(measured.moments)

    def _measure(
        self, pairs: list[TensorPair], watch: Callable[[str], None] | None = None
    ) -> list[PairMeasurement]:
        axis, progress = self.settings.channel_axis, self.progress
        return measure_pairs(self.sources, pairs, self.samples, channel_axis=axis, watch=watch, progress=progress)

    def _restoring(self, pair: TensorPair, measured: PairMeasurement) -> TensorPair | None:
        suspicious = score(measured.moments).values.get("cosine", 1.0) < _SUSPICIOUS_COSINE
        if not suspicious or pair.layout is not None or measured.failure is not None:
            return None
        layout = find_layout(*read_pair(self.sources, pair, measured.worst_sample))
        return None if layout is None else replace(pair, layout=layout)


def _on_finite_samples(
    job: _ComparisonRun, pairs: list[TensorPair], measured: list[PairMeasurement], lost: Sequence[str]
) -> tuple[_ComparisonRun, list[TensorPair], list[PairMeasurement]]:
    """All of it on the samples that are finite: what was fed NaN gives NaN, and nobody is to blame for it."""
    kept = tuple(pair for pair in job.samples.pairs if pair[0] not in lost)
    if len(kept) == len(job.samples.pairs):
        return job, pairs, measured
    job = replace(job, samples=replace(job.samples, pairs=kept))
    if not kept:
        return job, [], []
    return job, *job.measure(pairs, lambda _: None)


def _rows(
    job: _ComparisonRun,
    pairs: Sequence[TensorPair],
    measured: Sequence[PairMeasurement],
    *,
    thresholds: ThresholdSet,
) -> list[TensorComparison]:
    infos = {info.name: info for info in job.sources[0].tensors}
    topology = job.settings.topology
    unjudged: set[str] = set()
    if topology and thresholds.scope == "outputs":
        # What an output only forwards is judged in its place.
        shown = compared_outputs(topology, {pair.reference for pair in pairs})
        unjudged = set(infos) - {name for name in shown.values() if name is not None}
    rows = []
    places = {name: place for place, name in enumerate(infos)}
    for pair, result in zip(pairs, measured, strict=True):
        scored = _score(result)
        row = TensorComparison(
            order=places.get(pair.reference, len(places)),
            reference=pair.reference,
            candidate=pair.candidate,
            node=infos.get(pair.reference, _UNKNOWN).node,
            op_type=infos.get(pair.reference, _UNKNOWN).op_type,
            dtypes=result.dtypes,
            shapes=result.shapes,
            how=pair.how,
            confidence=pair.confidence,
            layout="" if pair.layout is None else pair.layout.name,
            samples=result.samples,
            score=scored,
            passed=None if pair.reference in unjudged else _passes(result, scored, thresholds),
            sample_sqnr_db=() if result.failure else keep_samples(result.sample_sqnr_db),
        )
        rows.append(row)
    return _with_kinds(job, rows, pairs, measured, thresholds)


def _with_lost_parts(
    job: _ComparisonRun, rows: list[TensorComparison], pairs: Sequence[TensorPair]
) -> list[TensorComparison]:
    """Fail outputs that have lost what they vary by, or a slice: beside one that is far larger it hardly shows."""
    places = {pair.reference: at for at, pair in enumerate(pairs)}
    by_output: dict[str, list[OutputPart]] = {}
    for part in job.settings.parts or _likely_outputs(job):
        by_output.setdefault(part.output, []).append(part)
    for name, parts in by_output.items():
        at = places.get(name)
        if at is None or rows[at].passed is not True:
            continue
        measured = [(part, NO_SUMS, ValueTally()) for part in parts]
        for sample in job.samples.pairs:
            ours, theirs = read_pair(job.sources, pairs[at], sample)
            if ours.shape != theirs.shape:
                continue
            for place, (part, sums, values) in enumerate(measured):
                pair = part.of(ours), part.of(theirs)
                values.add(*pair)
                measured[place] = part, sums.merge(measure_pair(*pair)), values
        told = next(filter(None, (_lost(job, *each) for each in measured)), None)
        if told is not None:
            rows[at] = replace(rows[at], passed=False, kind="part", difference=told)
    return rows


def _lost(job: _ComparisonRun, part: "OutputPart", sums: PairSums, values: ValueTally) -> Message | None:
    """What an output, or a part of one, has lost; None where it has what it should."""
    thresholds = job.settings.thresholds or load_profile(PROFILE)
    scores, left, what = score(sums).values, values.lost, "output" if part.axis is None else "part"
    # Channels are no parts of their own: one may well be next to nothing beside the others.
    known = bool(job.settings.parts) or part.axis is None
    if left is not None:
        return message(f"compare.{what}_coarse", name=part.source, count=left[1], all=left[0])
    if known and values.drowned:
        return message(f"compare.{what}_drowned", name=part.source)
    if known and part.axis is not None and scores and not thresholds.holds(scores):
        gaps = {"cosine": score_text("cosine", scores["cosine"]), "db": f"{scores['sqnr_db']:.1f}"}
        return message("compare.part_lost", name=part.source, **gaps)
    return None


# Of a tensor beyond this size few rows can be all that an output answers.
_MOST_OF_OUTPUT = 1 << 16


def _likely_outputs(job: _ComparisonRun) -> "tuple[OutputPart, ...]":
    """What may be outputs where no network tells: the last tensor and its channels; in no order, any small one."""
    from roundoff.graph.interface import OutputPart

    if job.settings.topology is not None:
        return ()
    infos = job.sources[0].tensors
    if not job.sources[0].ordered:
        return tuple(OutputPart(info.name) for info in infos if info.size <= _MOST_OF_OUTPUT)
    found = [OutputPart(info.name) for info in infos[-1:]]
    for info in infos[-1:]:
        for axis in sorted({1, len(info.shape) - 1} if len(info.shape) > _ROWS_RANK else ()):
            size = info.shape[axis]
            channels = range(size) if 2 <= size <= _MOST_CHANNELS else ()
            texts = [":"] * axis
            found += [
                OutputPart(info.name, axis, at, at + 1, f"[{', '.join([*texts, str(at)])}]") for at in channels
            ]
    return tuple(found)


def _with_swapped(
    job: _ComparisonRun, rows: list[TensorComparison], pairs: Sequence[TensorPair]
) -> list[TensorComparison]:
    """Fail tensors that carry each other's names, also where they agree because values were believed more."""
    ours, theirs = job.sources
    partners = {pair.reference: pair for pair in pairs}
    found = swapped_names(ours.tensors, theirs.tensors, {pair.reference: pair.candidate for pair in pairs})
    failing = [row.reference for row in rows if row.passed is False and row.score.values]
    first = next(iter(job.samples.pairs), ("", ""))
    with contextlib.suppress(BadInput):
        found += swapped_values(
            failing,
            lambda name: read_pair(job.sources, partners[name], first)[0],
            lambda name: read_pair(job.sources, partners[name], first)[1],
        )
    others = {one: other for pair in found for one, other in (pair, pair[::-1])}
    return [
        replace(
            row, passed=False, kind="swapped", difference=message("compare.swapped", other=others[row.reference])
        )
        if row.reference in others
        else row
        for row in rows
    ]


def _with_wide_ranges(
    job: _ComparisonRun,
    rows: list[TensorComparison],
    pairs: Sequence[TensorPair],
    measured: Sequence[PairMeasurement],
) -> list[TensorComparison]:
    """Fail tensors whose range, as the tool's files say, is far too wide for them and for all that share it."""
    scales = scales_of(job.sources[1])
    if not scales:
        return rows
    known = [scales.get(pair.candidate) for pair in pairs]
    peaks = [
        max((abs(end) for side in (each.moments.reference, each.moments.candidate) for end in (side.low, side.high)
             if math.isfinite(end)), default=0.0)
        for each in measured
    ]  # fmt: skip
    found = list(rows)
    for at, scale in enumerate(known):
        if scale is None or rows[at].passed is not True or rows[at].kind:
            continue
        values = [job.sources[1].read(pairs[at].candidate, sample) for _, sample in job.samples.pairs]
        excess = excess_range(scale, peaks[at], values, BOUNDED.get(rows[at].op_type, 0.0))
        needed = any(
            other is not None
            and place != at
            and shares_scale(scale, other)
            and other.reach < FILLED * peaks[place]
            for place, other in enumerate(known)
        )
        if excess is not None and not needed:
            text = message("compare.wide_range", low=scale.low, high=scale.high, peak=peaks[at], times=excess)
            found[at] = replace(rows[at], passed=False, kind="range", difference=text)
    return found


def _note_on_scope(thresholds: ThresholdSet, topology: Topology | None) -> Message:
    if thresholds.scope == "all" or topology is not None:
        return NOTHING
    return message("compare.all_judged", name=thresholds.name)


def _run_notes(sources: tuple[TensorSource, TensorSource]) -> Iterator[Message]:
    """Say which of several runs in one folder was taken."""
    for source, key in zip(sources, ("compare.run_as_reference", "compare.run_taken"), strict=True):
        if runs := runs_of(source):
            run, *others = runs
            yield message(key, where=source.label, run=run, others=", ".join(others))


def batch_note(source: TensorSource) -> Iterator[Message]:
    """Say that samples were told apart in tensors that hold all of them."""
    if isinstance(source, BatchSource):
        yield message("compare.batch_split", where=source.label, count=source.split, samples=len(source.samples))


def _moved_names(rows: Sequence[TensorComparison], reference: TensorSource) -> Iterator[Message]:
    """Say where a name is on another tensor than in the reference."""
    names = {info.name for info in reference.tensors}
    moved = [
        row for row in rows if row.how == "value" and row.candidate != row.reference and row.candidate in names
    ]
    if moved:
        first = moved[0]
        yield message(
            "compare.moved_names", count=len(moved), candidate=first.candidate, reference=first.reference
        )


_UNKNOWN = TensorInfo("")


def _score(measured: PairMeasurement) -> TensorScore:
    if measured.failure is None:
        return score(measured.moments)
    status, reason = measured.failure
    return TensorScore(status, {}, reason)


def _passes(measured: PairMeasurement, scored: TensorScore, thresholds: ThresholdSet) -> bool:
    moments = measured.moments
    # NaN for NaN is agreement; NaN on one side only is not.
    same_nonfinite = moments.excluded == moments.reference.nonfinite == moments.candidate.nonfinite
    if moments.count == 0 and moments.excluded and measured.failure is None:
        return same_nonfinite
    if measured.indices is not None and measured.failure is None:
        # The distance of two indices is no size: their share that is equal is judged, whatever else is asked.
        usual = measured.indices.state != "different"
        if not usual or thresholds.name == PROFILE:
            return usual
    return same_nonfinite and thresholds.holds(scored.values)


def _with_kinds(
    job: _ComparisonRun,
    rows: list[TensorComparison],
    pairs: Sequence[TensorPair],
    measured: Sequence[PairMeasurement],
    thresholds: ThresholdSet,
) -> list[TensorComparison]:
    """Add what the differences look like; the first and the worst failing tensors get a second look."""
    failing = [
        i for i, row in enumerate(rows) if row.score.values and not _passes(measured[i], row.score, thresholds)
    ]
    worst = sorted(failing, key=lambda i: _badness(rows[i]), reverse=True)
    chosen = {*failing[: _SECOND_LOOKS // 2], *worst[: _SECOND_LOOKS // 2]}
    # By sample, so that a live source runs each sample once.
    for index in sorted(failing, key=lambda i: (measured[i].worst_sample, i)):
        result = measured[index]
        found = describe_codes(result.moments) if _is_codes(rows[index]) else None
        if result.indices is not None:
            count, total = result.indices.differing, result.indices.total
            found = Difference("indices", message("compare.indices_differ", count=count, total=total))
        if found is None and index in chosen:
            found = job.look_again(pairs[index], result)
        found = found or describe_from_moments(result.moments)
        rows[index] = replace(rows[index], kind=found.kind, difference=found.text)
    return rows


def _is_codes(row: TensorComparison) -> bool:
    reference, candidate = row.dtypes
    return "float" in reference and "int" in candidate


def _alone(
    rows: Sequence[TensorComparison],
    pairs: Sequence[TensorPair],
    reference: TensorSource,
    topology: Topology | None,
) -> Collection[str]:
    """Tensors inside of the network with a layout of their own."""
    names = [info.name for info in reference.tensors]
    # Of tensors without their network the first and the last are its ends; in no order any may be one.
    ends = {*topology.inputs, *topology.outputs} if topology else {*(names[:1] + names[-1:])}
    shapes = ({row.reference: row.shapes[0] for row in rows}, {row.candidate: row.shapes[1] for row in rows})
    found = of_their_own(pairs, *shapes, ends) if topology or reference.ordered else []
    return {each.reference for each in found}


def _with_odd_layouts(rows: Sequence[TensorComparison], alone: Collection[str]) -> tuple[TensorComparison, ...]:
    """Fail tensors that agree only with their axes exchanged, although their shape or all others say otherwise.

    Where most tensors change layout it is the candidate's way of storing; in one tensor among many it is a fault.
    """
    changed = sum(bool(row.layout) for row in rows)
    if changed * 2 > len(rows):
        return tuple(rows)
    return tuple(
        replace(row, passed=False, kind="layout", difference=_odd_layout(row))
        if row.layout and row.passed and (row.shapes[0] == row.shapes[1] or row.reference in alone)
        else row
        for row in rows
    )


def _odd_layout(row: TensorComparison) -> Message:
    layout = as_message(row.layout)
    return layout if row.shapes[0] == row.shapes[1] else message("compare.layout_alone", layout=layout)


def _remarked(
    job: _ComparisonRun,
    rows: tuple[TensorComparison, ...],
    pairs: Sequence[TensorPair],
    measured: Sequence[PairMeasurement],
) -> tuple[tuple[TensorComparison, ...], list[Message]]:
    """The rows, with what differs in those that pass and stand out; and that in sentences."""
    ordered = job.sources[0].ordered
    told, remarks = list(rows), []
    for place in local_outliers(rows, ordered=ordered)[:_WORST]:
        text = job.look_again(pairs[place], measured[place]).text
        told[place] = replace(rows[place], difference=text)
        own, around = rows[place].score.values["sqnr_db"], neighbour_sqnr_db(rows, place, ordered=ordered)
        key = "compare.stands_out" if ordered else "compare.stands_out_of_all"
        name = rows[place].reference
        exact = around is not None and around >= EXACT_DB
        other = message("common.exact") if exact else f"{around:.1f} dB"
        remarks.append(message(key, name=name, db=f"{own:.1f}", other=other, what=text))
    return tuple(told), remarks


def _with_roles(rows: tuple[TensorComparison, ...], topology: Topology | None) -> tuple[TensorComparison, ...]:
    if topology is None:
        return rows
    failed = {row.reference: bool(row.kind) or row.passed is False for row in rows if not was_not_read(row)}
    errors = {
        row.reference: row.score.values["relative_euclidean"]
        for row in rows
        if row.score.status == "ok" and row.kind != "nonfinite" and "relative_euclidean" in row.score.values
    }
    known = roles(topology, failed, errors)
    return tuple(replace(row, role=known.get(row.reference, "")) for row in rows)


def _verdict(
    rows: Sequence[TensorComparison], *, ordered: bool, missing_outputs: tuple[str, ...], gated: bool
) -> Verdict:
    failing = [row for row in rows if row.passed is False]
    # What was not read may be as right as it should be: nothing starts there.
    wrong = [row for row in failing if not was_not_read(row)]
    worst = sorted(failing, key=_badness, reverse=True)[:_WORST]
    return Verdict(
        compared=sum(bool(row.score.values) or row.score.status == "nonfinite" for row in rows),
        passed=sum(row.passed is True for row in rows),
        failed=len(failing),
        first_divergence=wrong[0].reference if wrong and ordered else None,
        worst=tuple(row.reference for row in worst),
        introduces=tuple(row.reference for row in rows if row.role == "introduces"),
        victims=tuple(row.reference for row in rows if row.role == "victim"),
        missing_outputs=missing_outputs,
        gated=gated,
    )


def _badness(row: TensorComparison) -> float:
    """Larger is worse: most so without a score, or with NaN on one side only; what was not read comes last."""
    if was_not_read(row):
        return -1.0
    if row.kind == "nonfinite":
        return float("inf")
    return row.score.values.get("relative_euclidean", float("inf"))
