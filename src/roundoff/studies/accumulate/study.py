"""Curves of accumulated error: the whole way from a quantized model and samples to a verdict."""

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import count, groupby, islice

import numpy as np

from roundoff.core.names import NameList, shown
from roundoff.core.progress import SILENT, Progress
from roundoff.core.tensors import Array, Topology
from roundoff.errors import BadInput, nearest
from roundoff.graph.interface import check_repeatable, outputs, topology
from roundoff.graph.load import Model
from roundoff.graph.quantized_model import QuantizedModel
from roundoff.graph.shapes import Value, values
from roundoff.graph.switches import Switches
from roundoff.graph.units import derived_constants
from roundoff.measure.classes import index_pair
from roundoff.measure.inference import keep_samples
from roundoff.measure.light_pairs import LIGHT_FIELDS, ErrorTotals, LightMeter, MeterJob
from roundoff.measure.metrics import Metric, require, sample_sqnr_db, sqnr_db
from roundoff.measure.pairs import NOTHING, PairSums, channel_axis_of, measure_pair
from roundoff.measure.rows import SampleTally
from roundoff.messages.message import Message, english, message
from roundoff.messages.numbers import first_of
from roundoff.run.bench import Bench
from roundoff.run.budget import RunBudget, split_passes
from roundoff.run.capture import Samples, complete_values, read_feed
from roundoff.run.variants import Copies, KnownConstants, build_candidates
from roundoff.studies.accumulate.result import (
    BASE_LINE,
    Accumulation,
    AccumulationVerdict,
    Curve,
    CurveNode,
    Dominance,
    Jump,
    MeasuredCurve,
    Split,
    running_means,
)

Pair = tuple[Array, Array]
"""A reference and a candidate."""

# Blocks of so many candidates stay in the cache of a core.
_AT_A_TIME = 6


class PlaceTally:
    """What was seen at one place of one curve.

    Attributes:
        score: The metric, over all samples and of the worst of them.
        nonfinite: How many values are not finite in the candidate but in float.
        nonfinite_in_float: How many values are not finite in float.
        unlike: How many samples have another shape than in float.
        sample_sqnr_db: Signal to noise of each sample, NaN where there is none.
    """

    def __init__(self, metric: Metric) -> None:
        self.score = SampleTally(metric)
        self.nonfinite = self.nonfinite_in_float = self.unlike = 0
        self.sample_sqnr_db: list[float] = []
        self._seen = False

    def add(self, moments: PairSums | None, sample: str) -> None:
        """Take in one sample; None stands for shapes that differ."""
        if moments is None:
            self.unlike += 1
            self.sample_sqnr_db.append(math.nan)
            return
        more = max(0, moments.candidate.nonfinite - moments.reference.nonfinite)
        self.sample_sqnr_db.append(sample_sqnr_db(moments))
        # Where nothing is finite in float there is nothing to compare with.
        self._seen = self._seen or moments.count > 0 or more > 0 or not moments.excluded
        self.nonfinite += more
        self.nonfinite_in_float += moments.reference.nonfinite
        self.score.add(moments, sample)

    def add_equal(self, sample: str) -> None:
        """Take in one sample in which both are the same."""
        self._seen = True
        self.sample_sqnr_db.append(math.inf)
        self.score.add_equal(sample)

    @property
    def sqnr_db(self) -> float | None:
        """Signal to noise of all samples together."""
        if not self._seen:
            return None
        return -math.inf if self.nonfinite else sqnr_db(self.score.sums or NOTHING)


def compare(meter: LightMeter, metric: Metric, pairs: Sequence[Pair]) -> list[PairSums | None]:
    """Compare references with candidates; those of another shape give None.

    Args:
        meter: Measures where few sums are enough.
        metric: What the sums are for.
        pairs: References, each with a candidate; neighbours with the same reference are measured together.
    """
    found: list[PairSums | None] = [None] * len(pairs)
    alike = [at for at, (reference, candidate) in enumerate(pairs) if candidate.shape == reference.shape]
    if not metric.needs <= LIGHT_FIELDS:
        for at in alike:
            reference, candidate = pairs[at]
            axis = channel_axis_of(reference.shape)
            found[at] = measure_pair(*index_pair(reference, candidate), channel_axis=axis)
        return found
    totals = {at: ErrorTotals() for at in alike}
    with np.errstate(all="ignore"):
        meter.measure(list(_jobs(pairs, totals)))
    for at, sums in totals.items():
        found[at] = sums.sums()
    return found


def _jobs(pairs: Sequence[Pair], totals: Mapping[int, ErrorTotals]) -> Iterator[MeterJob]:
    for _, group in groupby(totals, key=lambda at: id(pairs[at][0])):
        for part in _batched(group, _AT_A_TIME):
            sides = [index_pair(*pairs[at]) for at in part]
            yield MeterJob(sides[0][0], [each for _, each in sides], [totals[at] for at in part])


def _batched(items: Iterable[int], size: int) -> Iterator[list[int]]:
    """Items in groups of at most so many."""
    rest = iter(items)
    while group := list(islice(rest, size)):
        yield group


FALL_DB = 20.0
"""The base line has fallen where the error is a tenth of the signal; a cosine of about 0.995."""

# One side dominates that makes four fifths of the error, 6 dB, unless the other alone spoils the outputs as well:
# an error of a third of the signal does, and errors do not grow much beyond the signal itself.
_DOMINATES_DB, _SPOILT_DB = 6.0, 10.0
# Above this nothing is lost that anyone could find.
_NOTHING_LOST_DB = 60.0
# A jump is an error four times what comes in; errors that were below this level before do not count as less.
_JUMP_DB, _USUAL_DB = 6.0, 40.0
# Places near the outputs: a tenth of them all, but not fewer than three.
_NEAR_SHARE, _LEAST_NEAR = 0.1, 3
# Weights and activations together lose so much more than the sum of both alone: their errors meet somewhere.
_TOGETHER_DB = 6.0
_MOST_JUMPS = 5
# Stands for the absence of any error where a finite number is needed.
_PERFECT_DB = 200.0


def judge(
    nodes: Sequence[CurveNode],
    curves: Sequence[MeasuredCurve],
    network: Topology,
    kinds: tuple[MeasuredCurve, MeasuredCurve] | None,
) -> AccumulationVerdict:
    """Judge curves.

    Args:
        nodes: The places.
        curves: All curves, the base line first.
        network: How nodes hang together.
        kinds: The curves of weights alone and of activations alone; None when they were not both measured.
    """
    base = curves[0].sqnr_db
    outputs = [node for node in nodes if node.output and base[node.order] is not None]
    worst = min(outputs, key=lambda node: _level(base[node.order]), default=None)
    near = _near(nodes, base)
    at_output = None if kinds is None or worst is None else _split(curves[0], kinds, [worst.order])
    near_output = None if kinds is None or not near else _split(curves[0], kinds, near)
    falls_at = next((node.order for node in nodes if _level(base[node.order]) < FALL_DB), None)
    exact = kinds is not None and all(_level(value) == math.inf for value in kinds[0].sqnr_db)
    return AccumulationVerdict(
        dominance=None if exact and _lost(at_output) else _dominance(at_output, near_output),
        exact_weights=exact,
        output="" if worst is None else worst.tensor,
        at_output=at_output,
        near_output=near_output,
        near_places=len(near),
        together=at_output is not None and _is_more_than_sum(at_output),
        falls_at=falls_at,
        fall_db=FALL_DB,
        recovers=falls_at is not None and all(_level(base[node.order]) >= FALL_DB for node in outputs),
        jumps=_jumps(nodes, base, network),
    )


def _level(value: float | None) -> float:
    return math.inf if value is None else value


def _near(nodes: Sequence[CurveNode], base: Sequence[float | None]) -> list[int]:
    """The last places that are no outputs; the outputs themselves when there are no others."""
    measured = [node.order for node in nodes if base[node.order] is not None and not node.output]
    measured = measured or [node.order for node in nodes if base[node.order] is not None]
    return measured[-max(_LEAST_NEAR, round(_NEAR_SHARE * len(nodes))) :]


def _split(base: MeasuredCurve, kinds: tuple[MeasuredCurve, MeasuredCurve], places: Sequence[int]) -> Split:
    levels = [_median([_level(curve.sqnr_db[at]) for at in places]) for curve in (*kinds, base)]
    return Split(*levels)


def _median(values: Sequence[float]) -> float:
    """The middle value, of two the lower: a mean with infinity would be infinity."""
    return sorted(values)[(len(values) - 1) // 2]


def _dominance(at_output: Split | None, near_output: Split | None) -> Dominance | None:
    if at_output is None:
        return None
    if not _lost(at_output):
        return "neither"
    at, near = _leads(at_output), _leads(near_output or at_output)
    # Where the places before the outputs say the opposite, neither of both can be called the culprit.
    contradiction = abs(near) >= _DOMINATES_DB and (near > 0) != (at > 0)
    spoilt = max(at_output.weights, at_output.activations) < _SPOILT_DB
    if abs(at) < _DOMINATES_DB or contradiction or spoilt:
        return "both"
    return "weights" if at > 0 else "activations"


def _lost(split: Split | None) -> bool:
    """Whether anything is lost at all."""
    return split is not None and split.everything < _NOTHING_LOST_DB


def _leads(split: Split) -> float:
    """By how many decibels weights lose more than activations do."""
    weights, activations = (min(value, _PERFECT_DB) for value in (split.weights, split.activations))
    return 0.0 if weights == activations else activations - weights


def _is_more_than_sum(split: Split) -> bool:
    alone = sum(_noise(value) for value in (split.weights, split.activations))
    return _lost(split) and _noise(split.everything) > alone * 10 ** (_TOGETHER_DB / 10)


def _noise(level: float) -> float:
    return 10 ** (-min(level, _PERFECT_DB) / 10) if level > -math.inf else math.inf


def _jumps(nodes: Sequence[CurveNode], base: Sequence[float | None], network: Topology) -> tuple[Jump, ...]:
    known = {node.tensor: _level(base[node.order]) for node in nodes if base[node.order] is not None}
    before = _levels_before(network, known)
    found = []
    for node in nodes:
        if node.tensor not in known:
            continue
        level, earlier = known[node.tensor], before.get(node.tensor)
        if level <= min(_USUAL_DB, _level(earlier)) - _JUMP_DB and level < FALL_DB + _JUMP_DB:
            found.append(Jump(node.order, earlier, level))
    found.sort(key=lambda jump: jump.after_db - min(_USUAL_DB, _level(jump.before_db)))
    return tuple(found[:_MOST_JUMPS])


def _levels_before(network: Topology, known: Mapping[str, float]) -> dict[str, float | None]:
    """The worst level among the places that each tensor is computed from, looking through nodes that are none."""
    passed: dict[str, float] = {}
    found: dict[str, float | None] = {}
    for node in network.nodes:
        levels = [passed[name] for name in node.inputs if name in passed]
        worst = min(levels, default=None)
        for tensor in node.outputs:
            found[tensor] = worst
            if tensor in known:
                passed[tensor] = known[tensor]
            elif worst is not None:
                passed[tensor] = worst
    return found


# The places of the curves: what quantized nodes compute, and what leaves the network.

Place = tuple[CurveNode, Value]


def find_places(
    quantized: QuantizedModel, feed: Mapping[str, Array], *, threads: int | None = None
) -> tuple[tuple[Place, ...], tuple[Message, ...]]:
    """Find out where curves are measured: at each quantized node, and at the outputs.

    Args:
        quantized: The network.
        feed: A sample.
        threads: Threads to use.

    Returns:
        The places in execution order, and what the reader should know.

    Raises:
        BadInput: There is none.
    """
    model = quantized.float_model
    shapes = {name: array.shape for name, array in feed.items()}
    everything = complete_values(model, values(model, shapes), feed, threads=threads)
    leaving, constant = frozenset(outputs(model)), derived_constants(model.proto.graph)
    nodes = frozenset(Switches(quantized).nodes)
    wanted = [
        value
        for value in everything
        if value.node and value.name not in constant and (value.node in nodes or value.name in leaving)
    ]
    readable = [
        value
        for value in wanted
        if not value.obstacle()
        and (value.element is None or "float" in value.element.dtype or value.name in leaving)
    ]
    if not readable:
        what = english("Nothing in {path} that quantized nodes compute can be compared.", path=model.path)
        raise BadInput(what, fix=english("check with 'roundoff audit' what is quantized"))
    places = tuple(
        (CurveNode(order, value.node, value.op_type, value.name, value.name in leaving), value)
        for order, value in enumerate(readable)
    )
    notes = tuple(
        message("accumulate.note_strings", tensor=value.name)
        if value.kind == "tensor"
        else message("accumulate.note_kind", tensor=value.name, kind=value.kind)
        for value in wanted
        if value.obstacle()
    )
    return places, notes


# How many curves, tensors and samples are worked on at a time, so that memory suffices.

_MOST_WORKERS = 2
# While a session opens, weights are in memory as built, as serialized, as read, and as the session's own.
_WEIGHT_COPIES = 4
# Of one curve and one tensor at a time: both, of the sample that is measured and of the one that runs.
_FEWEST_ALIVE = 4


@dataclass(frozen=True, slots=True)
class CurveSchedule:
    """What is done at a time.

    Attributes:
        together: Curves that share a run of the float model.
        passes: The tensors of each run.
        workers: Samples that run at a time.
        threads: Threads per sample.
    """

    together: int
    passes: tuple[tuple[str, ...], ...]
    workers: int
    threads: int


def plan_schedule(model: Model, sizes: Mapping[str, int], curves: int, *, budget: RunBudget) -> CurveSchedule:
    """Fit a measurement into memory: first fewer samples at a time, then fewer curves, then fewer tensors.

    Args:
        model: The float model.
        sizes: Bytes of each tensor to be compared.
        curves: How many models it is to be compared with.
        budget: What may be used.

    Raises:
        BadInput: One tensor alone is too large.
    """
    # Quantized weights lie beside the float ones, and what the largest nodes read and write is alive as they run.
    held = 2 * _WEIGHT_COPIES * model.weight_bytes + 2 * max(sizes.values(), default=0)
    budget.check_room(sizes, held, copies=_FEWEST_ALIVE, doing="Comparing")
    room, whole = budget.room(held), max(1, sum(sizes.values()))
    for workers in range(min(_MOST_WORKERS, budget.cores), 0, -1):
        # One sample more than there are workers is in memory.
        if (workers + 1) * whole * (1 + curves) <= room:
            return CurveSchedule(curves, (tuple(sizes),), workers, max(1, budget.cores // workers))
    together = max(1, room // (2 * whole) - 1)
    passes = split_passes(sizes, room // (2 * (1 + together)))
    return CurveSchedule(min(curves, together), passes, 1, budget.cores)


_MOST_NAMED = 3


@dataclass(frozen=True, slots=True)
class AccumulationSettings:
    """How to measure curves.

    Attributes:
        metric: What to measure.
        average: Whether averages are to be shown; both are in the result.
        samples: Use at most so many samples, the first ones; all when None.
        max_memory: Bytes the process may take; most of the free memory by default.
        threads: Threads to use; all cores by default.
    """

    metric: str = "cosine"
    average: bool = False
    samples: int | None = None
    max_memory: int | None = None
    threads: int | None = None


_DEFAULT_SETTINGS = AccumulationSettings()


def default_curves(quantized: QuantizedModel) -> tuple[Curve, ...]:
    """Weights only and activations only, as far as there are both."""
    switches = Switches(quantized)
    curves = (Curve(word, switches.of_kind(word)) for word in ("weight", "activation"))
    return tuple(curve for curve in curves if curve.quantizers)


def named_curves(
    switches: Switches, names: NameList, *, leave_out: bool = False, first: int = 0
) -> tuple[Curve, ...]:
    """What a list of names asks for: one curve for each entry.

    An entry that is a list itself is one set of names; such curves are called ``partial_qmodel_0``,
    ``partial_qmodel_1`` and so on. Others are called as they are written.

    Args:
        switches: What names mean.
        names: Names, or lists of names.
        leave_out: Everything is quantized but these, instead of these alone.
        first: Number of the first curve without a name of its own.

    Raises:
        BadInput: A name means nothing that is quantized.
    """
    found = []
    numbers = count(first)
    for entry in names:
        label = entry if isinstance(entry, str) else f"partial_qmodel_{next(numbers)}"
        chosen = switches.find(*_flat([entry]))
        found.append(Curve(label, switches.complement(chosen) if leave_out else chosen))
    return tuple(found)


def _flat(names: Iterable["str | NameList"]) -> Iterator[str]:
    for each in names:
        if isinstance(each, str):
            yield each
        else:
            yield from _flat(each)


def accumulate(
    quantized: QuantizedModel,
    samples: Samples,
    curves: Sequence[Curve] | None = None,
    settings: AccumulationSettings = _DEFAULT_SETTINGS,
    *,
    progress: Progress = SILENT,
) -> Accumulation:
    """Measure how far networks with some quantizers on are from the float network, node by node.

    Curves share the run of the float network, and whatever else they have in common. The fully quantized network
    is always the first curve. Memory does not depend on the number of samples.

    Args:
        quantized: The float model and its quantizers.
        samples: What to run it on.
        curves: Which quantizers are on in each curve, by name (`graph.switches.Switches` finds names);
            weights only and activations only by default.
        settings: What to measure.
        progress: Told of every sample.

    Raises:
        BadInput: Nothing is quantized, a quantizer does not exist, or the samples do not fit the model.
        ModelFailed: The model cannot be run.
    """
    (metric,) = require((settings.metric,), command="accumulate")
    check_repeatable(quantized.float_model)
    asked = _checked(quantized, default_curves(quantized) if curves is None else curves)
    indices = range(len(samples.names))[: settings.samples]
    feed = read_feed(quantized.float_model, samples, 0)
    places, notes = find_places(quantized, feed, threads=settings.threads)
    schedule = plan_schedule(
        quantized.float_model,
        {value.name: value.size_bytes for _, value in places},
        len(asked),
        budget=RunBudget(settings.threads, settings.max_memory).settled(),
    )
    bench = Bench(quantized.float_model, samples, threads=schedule.threads)
    tallies = _Measurement(quantized, bench, indices=indices, places=places, metric=metric).run(
        asked, schedule, progress
    )
    nodes = tuple(node for node, _ in places)
    measured = tuple(_curve(curve, tallies[at], places) for at, curve in enumerate(asked))
    return Accumulation(
        reference=shown(quantized.float_model.path),
        samples=tuple(samples.names[index] for index in indices),
        metric=metric.name,
        higher_is_better=metric.direction == "higher",
        average=settings.average,
        nodes=nodes,
        curves=measured,
        verdict=judge(nodes, measured, topology(quantized.float_model), _kind_curves(quantized, measured)),
        notes=(*quantized.notes, *notes, *_notes(asked, tallies)),
        preparation=quantized.preparation,
    )


def _checked(quantized: QuantizedModel, curves: Sequence[Curve]) -> list[Curve]:
    """The base line and the curves, each with a name of its own."""
    known = {each.name: each for each in quantized.quantizers}
    if not known:
        raise BadInput(
            english("{path} has no quantizers, so there is nothing to measure.", path=quantized.float_model.path),
            fix=english("give a quantized model with --quantized, or a target with --target"),
        )
    found = {BASE_LINE: Curve(BASE_LINE, tuple(known))}
    for curve in curves:
        for name in curve.quantizers:
            if name not in known:
                what = english(
                    "Curve {name!r} asks for the quantizer {name2!r}, which is not there.",
                    name=curve.name,
                    name2=name,
                )
                raise BadInput(what, fix=nearest(name, known))
        other = found.get(curve.name)
        if other is not None and frozenset(other.quantizers) == frozenset(curve.quantizers):
            continue
        if other is not None:
            raise BadInput(
                "Two curves are called {name!r}.", fix=english("give each a name of its own"), name=curve.name
            )
        found[curve.name] = curve
    return list(found.values())


class _Measurement:
    """What is measured, and on what."""

    def __init__(
        self,
        quantized: QuantizedModel,
        bench: Bench,
        indices: Sequence[int],
        places: Sequence[Place],
        metric: Metric,
    ) -> None:
        self._quantized, self._bench, self._indices = quantized, bench, indices
        self._places, self._metric = places, metric
        self._meter = LightMeter()

    def run(
        self, curves: Sequence[Curve], schedule: CurveSchedule, progress: Progress
    ) -> list[dict[str, PlaceTally]]:
        """Measure all curves; gives for each of them the tally of every place, by tensor."""
        tallies = [{value.name: PlaceTally(self._metric) for _, value in self._places} for _ in curves]
        starts = range(0, len(curves), schedule.together)
        known = KnownConstants()
        progress.start("measuring curves", len(starts) * len(schedule.passes) * len(self._indices))
        try:
            for start in starts:
                group = slice(start, start + schedule.together)
                on = [frozenset(curve.quantizers) for curve in curves[group]]
                choices = [[each for each in self._quantized.quantizers if each.name in names] for names in on]
                copies = build_candidates(self._quantized.float_model, choices, known=known)
                for tensors in schedule.passes:
                    measured = [value for _, value in self._places if value.name in tensors]
                    network = self._bench.open_copies(copies, measured)
                    for chunk, arrays in self._bench.stream(network, self._indices, workers=schedule.workers):
                        self._take(copies, measured, arrays, tallies[group], chunk.label)
                        progress.advance()
        finally:
            progress.finish()
        return tallies

    def _take(
        self,
        copies: Copies[int],
        measured: Sequence[Value],
        arrays: Mapping[str, Array],
        tallies: Sequence[Mapping[str, PlaceTally]],
        sample: str,
    ) -> None:
        waiting: list[PlaceTally] = []
        pairs: list[Pair] = []
        for value in measured:
            for number, own in enumerate(tallies):
                place = copies.tap(value.name, number).name
                if place == value.name:
                    own[value.name].add_equal(sample)
                else:
                    waiting.append(own[value.name])
                    pairs.append((arrays[value.name], arrays[place]))
        for tally, moments in zip(waiting, compare(self._meter, self._metric, pairs), strict=True):
            tally.add(moments, sample)


def _curve(curve: Curve, tallies: Mapping[str, PlaceTally], places: Sequence[Place]) -> MeasuredCurve:
    ordered = [tallies[value.name] for _, value in places]
    values = tuple(tally.score.value for tally in ordered)
    return MeasuredCurve(
        name=curve.name,
        quantizers=curve.quantizers,
        values=values,
        averages=running_means(values),
        worst=tuple(tally.score.samples.worst for tally in ordered),
        worst_samples=tuple(tally.score.samples.worst_sample for tally in ordered),
        sqnr_db=tuple(tally.sqnr_db for tally in ordered),
        sample_sqnr_db=tuple(keep_samples(tally.sample_sqnr_db) for tally in ordered)
        if curve.name == BASE_LINE
        else (),
    )


def _kind_curves(
    quantized: QuantizedModel, curves: Sequence[MeasuredCurve]
) -> tuple[MeasuredCurve, MeasuredCurve] | None:
    """The curves of weights alone and of activations alone, whatever they are called."""
    switches = Switches(quantized)
    found = []
    for word in ("weight", "activation"):
        wanted = frozenset(switches.of_kind(word))
        found += [curve for curve in curves if frozenset(curve.quantizers) == wanted][:1]
    return (found[0], found[1]) if len(found) == 2 else None


def _notes(curves: Sequence[Curve], tallies: Sequence[Mapping[str, PlaceTally]]) -> Iterator[Message]:
    in_float = [tensor for tensor, tally in tallies[0].items() if tally.nonfinite_in_float]
    if in_float:
        yield message("accumulate.note_float", count=len(in_float), names=first_of(in_float, _MOST_NAMED))
    for curve, places in zip(curves, tallies, strict=True):
        nonfinite = [tensor for tensor, tally in places.items() if tally.nonfinite]
        unlike = [tensor for tensor, tally in places.items() if tally.unlike]
        if nonfinite:
            names = first_of(nonfinite, _MOST_NAMED)
            yield message("accumulate.note_nonfinite", curve=curve.name, count=len(nonfinite), names=names)
        if unlike:
            yield message("accumulate.note_shapes", curve=curve.name, names=first_of(unlike, _MOST_NAMED))
