"""Curves of accumulated error: the whole way from a quantized model and samples to a verdict."""

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass

from roundoff.analysis.accumulation.candidates import Candidates, build_candidates
from roundoff.analysis.accumulation.places import Place, find_places
from roundoff.analysis.accumulation.planning import Layout, plan_layout
from roundoff.analysis.accumulation.running import CandidateSession
from roundoff.analysis.accumulation.tally import Pair, PlaceTally, compare
from roundoff.analysis.accumulation.verdict import judge
from roundoff.analysis.switches import Switches
from roundoff.core.accumulation import BASE_LINE, Accumulation, Curve, MeasuredCurve, running_means
from roundoff.core.light_measure import LightMeter
from roundoff.core.names import shown
from roundoff.core.progress import SILENT, Progress
from roundoff.core.sample_scores import keep_samples
from roundoff.core.tensors import Array
from roundoff.core.wording import counted
from roundoff.errors import BadInput, nearest
from roundoff.graph.interface import topology
from roundoff.graph.quantized_model import QuantizedModel
from roundoff.graph.randomness import check_repeatable
from roundoff.metrics.registry import Metric, all_metrics, get_metric
from roundoff.runtime.ahead import run_ahead
from roundoff.runtime.feeds import Samples
from roundoff.runtime.runner import read_feed

__all__ = ["AccumulationSettings", "accumulate", "default_curves"]

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
        curves: Which quantizers are on in each curve, by name (`roundoff.analysis.switches.Switches` finds names);
            weights only and activations only by default.
        settings: What to measure.
        progress: Told of every sample.

    Raises:
        BadInput: Nothing is quantized, a quantizer does not exist, or the samples do not fit the model.
        ModelFailed: The model cannot be run.
    """
    metric = _metric(settings.metric)
    check_repeatable(quantized.float_model)
    asked = _checked(quantized, default_curves(quantized) if curves is None else curves)
    indices = range(len(samples.names))[: settings.samples]
    feed = read_feed(quantized.float_model, samples, 0)
    places, notes = find_places(quantized, feed, threads=settings.threads)
    layout = plan_layout(
        quantized.float_model,
        {value.name: value.size_bytes for _, value in places},
        len(asked),
        max_memory=settings.max_memory,
        threads=settings.threads,
    )
    measurement = _Measurement(quantized, samples, indices, places, metric)
    tallies = measurement.run(asked, layout, progress)
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


def _metric(name: str) -> Metric:
    metric = get_metric(name)
    if metric.direction == "none":
        judging = ", ".join(each.name for each in all_metrics() if each.direction != "none")
        raise BadInput(f"{name} describes, it does not judge.", fix=f"choose one of: {judging}")
    return metric


def _checked(quantized: QuantizedModel, curves: Sequence[Curve]) -> list[Curve]:
    """The base line and the curves, each with a name of its own."""
    known = {each.name: each for each in quantized.quantizers}
    if not known:
        raise BadInput(
            f"{quantized.float_model.path} has no quantizers, so there is nothing to measure.",
            fix="give a quantized model with --quantized, or a target with --target",
        )
    found = {BASE_LINE: Curve(BASE_LINE, tuple(known))}
    for curve in curves:
        for name in curve.quantizers:
            if name not in known:
                what = f"Curve {curve.name!r} asks for the quantizer {name!r}, which is not there."
                raise BadInput(what, fix=nearest(name, known))
        other = found.get(curve.name)
        if other is not None and frozenset(other.quantizers) == frozenset(curve.quantizers):
            continue
        if other is not None:
            raise BadInput(f"Two curves are called {curve.name!r}.", fix="give each a name of its own")
        found[curve.name] = curve
    return list(found.values())


class _Measurement:
    """What is measured, and on what."""

    def __init__(
        self,
        quantized: QuantizedModel,
        samples: Samples,
        indices: Sequence[int],
        places: Sequence[Place],
        metric: Metric,
    ) -> None:
        self._quantized, self._samples, self._indices = quantized, samples, indices
        self._places, self._metric = places, metric
        self._meter = LightMeter()

    def run(self, curves: Sequence[Curve], layout: Layout, progress: Progress) -> list[dict[str, PlaceTally]]:
        """Measure all curves; gives for each of them the tally of every place, by tensor."""
        tallies = [{value.name: PlaceTally(self._metric) for _, value in self._places} for _ in curves]
        starts = range(0, len(curves), layout.together)
        progress.start("measuring curves", len(starts) * len(layout.passes) * len(self._indices))
        try:
            for start in starts:
                group = slice(start, start + layout.together)
                candidates = self._candidates(curves[group])
                for tensors in layout.passes:
                    self._run_pass(candidates, tensors, tallies[group], layout, progress)
        finally:
            progress.finish()
        return tallies

    def _candidates(self, curves: Sequence[Curve]) -> Candidates:
        on = [frozenset(curve.quantizers) for curve in curves]
        choices = [[each for each in self._quantized.quantizers if each.name in names] for names in on]
        return build_candidates(self._quantized.float_model, choices)

    def _run_pass(
        self,
        candidates: Candidates,
        tensors: Collection[str],
        tallies: Sequence[Mapping[str, PlaceTally]],
        layout: Layout,
        progress: Progress,
    ) -> None:
        session = CandidateSession(
            candidates, [value for _, value in self._places if value.name in tensors], threads=layout.threads
        )

        def run(named: tuple[str, Mapping[str, Array]]) -> dict[str, tuple[Array, list[Array]]]:
            return session.run(named[1], sample=named[0])

        for (sample, _), found in run_ahead(run, self._feeds(), stop=session.stop, workers=layout.workers):
            self._take(found, tallies, sample)
            progress.advance()

    def _take(
        self,
        found: Mapping[str, tuple[Array, list[Array]]],
        tallies: Sequence[Mapping[str, PlaceTally]],
        sample: str,
    ) -> None:
        waiting: list[PlaceTally] = []
        pairs: list[Pair] = []
        for tensor, (reference, others) in found.items():
            for own, other in zip(tallies, others, strict=True):
                if other is reference:
                    own[tensor].add_equal(sample)
                else:
                    waiting.append(own[tensor])
                    pairs.append((reference, other))
        for tally, moments in zip(waiting, compare(self._meter, self._metric, pairs), strict=True):
            tally.add(moments, sample)

    def _feeds(self) -> Iterator[tuple[str, Mapping[str, Array]]]:
        for index in self._indices:
            yield self._samples.names[index], read_feed(self._quantized.float_model, self._samples, index)


def _curve(curve: Curve, tallies: Mapping[str, PlaceTally], places: Sequence[Place]) -> MeasuredCurve:
    ordered = [tallies[value.name] for _, value in places]
    values = tuple(tally.mean.value for tally in ordered)
    return MeasuredCurve(
        name=curve.name,
        quantizers=curve.quantizers,
        values=values,
        averages=running_means(values),
        worst=tuple(tally.mean.worst for tally in ordered),
        worst_samples=tuple(tally.mean.worst_sample for tally in ordered),
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


def _notes(curves: Sequence[Curve], tallies: Sequence[Mapping[str, PlaceTally]]) -> Iterator[str]:
    in_float = [tensor for tensor, tally in tallies[0].items() if tally.nonfinite_in_float]
    if in_float:
        yield (
            f"in float already, {counted(len(in_float), 'tensor')} with values that are not finite, "
            f"which are left out of the scores: {_few(in_float)}"
        )
    for curve, places in zip(curves, tallies, strict=True):
        nonfinite = [tensor for tensor, tally in places.items() if tally.nonfinite]
        unlike = [tensor for tensor, tally in places.items() if tally.unlike]
        if nonfinite:
            some = counted(len(nonfinite), "tensor")
            yield (
                f"with {curve.name!r} on, {some} with values that are not finite only then, "
                f"which are left out of the scores: {_few(nonfinite)}"
            )
        if unlike:
            yield f"with {curve.name!r} on, shapes differ from those in float in {_few(unlike)}"


def _few(names: Sequence[str]) -> str:
    return ", ".join(names[:_MOST_NAMED]) + (" ..." if len(names) > _MOST_NAMED else "")
