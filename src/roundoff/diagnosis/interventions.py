"""Where interventions are made: the network runs with any quantizers, and its outputs are compared with float."""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from roundoff.core.names import shown
from roundoff.core.progress import NO_DEADLINE, SILENT, Deadline, Progress
from roundoff.core.quantizers import Quantizer, QuantParams, parameters_from_range, representable_range
from roundoff.core.tensors import Array
from roundoff.diagnosis.loss import Loss, LossMeter, output_parts
from roundoff.errors import BadInput
from roundoff.graph.interface import check_repeatable, outputs, random_outputs
from roundoff.graph.load import Model
from roundoff.graph.shapes import Value
from roundoff.messages.message import Message, english, message
from roundoff.run.bench import FEW_SAMPLES, MORE_SAMPLES, Bench, spread, spread_over
from roundoff.run.capture import Samples
from roundoff.run.evaluators import Subset

# Of a limited time this part goes to what comes before any experiment, which takes so many times as long as the
# float network: it is run, its tensors are looked at, and the quantized one is run.
_FOR_A_START, _RUNS_AT_START = 0.3, 12
# So many runs tell how long one takes.
_TIMED = 2
_A_MOMENT = 1e-6
_NOTHING = 1e-30
_NARROWEST_FUSED = 8


class InterventionRunner:
    """Runs one float network with quantizers of any kind, on the same few samples.

    Args:
        model: The float model.
        samples: What it is fed.
        everything: All tensors of the model with their shapes.
        threads: Threads per node; all cores by default.
        max_memory: Bytes the process may take.
        progress: Told of every experiment.
        deadline: When all has to be done; the less time there is, the fewer samples are used.
        most: Use so many samples at most.

    Attributes:
        runs: Experiments so far.
        seconds: What one took at most.
        sample_seconds: What one sample took in float.
        indices: The samples that are used at most.

    Raises:
        BadInput: No output holds numbers that can be compared.
        ModelFailed: The model cannot be run.
    """

    def __init__(  # noqa: PLR0913 - what to run on what, and how much it may take
        self,
        model: Model,
        samples: Samples,
        *,
        everything: Sequence[Value],
        threads: int | None = None,
        max_memory: int | None = None,
        progress: Progress = SILENT,
        deadline: Deadline = NO_DEADLINE,
        most: int = MORE_SAMPLES,
    ) -> None:
        check_repeatable(model)
        self._most = most
        self._deadline, self.seconds, self.sample_seconds = deadline, 0.0, math.inf
        self.model, self.samples = model, samples
        self.bench = Bench(model, samples, threads=threads, keep=True, max_memory=max_memory)
        self._progress = progress
        chance = random_outputs(model)
        self._names = [name for name in outputs(model) if name not in chance]
        self._exact: list[dict[str, Any]] = []
        self._known: dict[tuple[tuple[int, ...], frozenset[tuple[str, int]]], Loss] = {}
        self._kept: list[Quantizer] = []  # as long as these live, no other has the id of one of them
        self._few: tuple[int, ...] = ()
        self._losing: tuple[int, ...] = ()
        self.runs = 0
        self._run_float()
        first = self._exact[0]
        numbers = {name: first[name].shape for name in self._names if _is_numeric(first[name])}
        if not numbers:
            raise BadInput(
                english("No output of {path} holds numbers.", path=model.path),
                fix=english("cut the model before its last node"),
            )
        self._names = list(numbers)
        self.notes = self._not_finite()
        shapes = {value.name: value.shape for value in everything if value.shape is not None}
        self.parts = output_parts(model, numbers, shapes)

    @property
    def chosen(self) -> Subset:
        """The same as samples."""
        return Subset(self.samples, self.indices)

    def _run_float(self) -> None:
        network, kept, clock = self.bench.open(keep_memory=False), 0, self._deadline.clock
        self.indices: tuple[int, ...] = spread(len(self.samples.names), self._most)
        while len(self._exact) < len(self.indices):
            began, index = clock(), self.indices[len(self._exact)]
            [[found]] = self.bench.run([index], network)
            if len(self._exact) < _TIMED:
                # The first one takes longer.
                self.sample_seconds = min(self.sample_seconds, clock() - began)
            self._exact.append({name: found[name] for name in self._names})
            kept += sum(getattr(each, "nbytes", 0) for each in (*self.bench.feed(index).values(), *found.values()))
            if len(self._exact) == _TIMED:
                self._choose(self._affordable())
            if kept > self.bench.room:  # inputs and float outputs are kept for all experiments
                self.indices = self.indices[: len(self._exact)]

    def _choose(self, most: int) -> None:
        """Use so many samples; those that were run are among them."""
        done, evenly = self.indices[: len(self._exact)], spread(len(self.samples.names), most)
        others = [index for index in evenly if index not in done]
        self.indices = (*done, *others[: max(0, most - len(done))])

    def _affordable(self) -> int:
        """How many samples there is time for."""
        runs = self._deadline.left * _FOR_A_START / max(self.sample_seconds, _A_MOMENT)
        return int(max(1, min(self._most, runs / _RUNS_AT_START)))

    def _not_finite(self) -> tuple[Message, ...]:
        """What to know of float outputs that are NaN or infinite, which nothing can be compared with.

        Raises:
            BadInput: There are no others.
        """
        finite = [
            np.concatenate([np.isfinite(each[name].astype(np.float64)).ravel() for name in self._names])
            for each in self._exact
        ]
        whole = [
            sample for (sample, _), good in zip(self.feeds(), finite, strict=True) if good.size and not good.any()
        ]
        if len(whole) == len(finite):
            raise BadInput(
                english(
                    "{path} in float gives nothing but NaN and infinite values, for every sample.",
                    path=self.model.path,
                ),
                fix=english(
                    "check the samples in {label}, then the model with 'roundoff dump --stats-only'",
                    label=self.samples.label,
                ),
            )
        if not whole:
            return ()
        return (message("diagnosis.note_float_not_finite", count=len(whole), sample=shown(whole[0])),)

    def float_outputs(self) -> list[dict[str, Any]]:
        """The outputs of the float network, sample by sample."""
        return self._exact

    def feeds(self) -> list[tuple[str, Mapping[str, Array]]]:
        """Names and inputs of the samples."""
        return [(self.samples.names[index], self.bench.feed(index)) for index in self.indices]

    def pairs(
        self, network: Model | Sequence[Quantizer], places: Sequence[int] | None = None, *, fused: bool = False
    ) -> Iterator[tuple[dict[str, Any], dict[str, Any]]]:
        """The outputs of the float network and those of another, sample by sample.

        Args:
            network: The quantizers that are on, or another network with the same inputs.
            places: Places of the samples; all that are used by default.
            fused: Let onnxruntime fuse nodes.

        Raises:
            ModelFailed: The network cannot be run.
        """
        chosen = range(len(self._exact)) if places is None else places
        bench, indices = self.bench, [self.indices[place] for place in chosen]
        ran: Iterator[dict[str, Any]]
        if isinstance(network, Model):
            ran = (found for [found] in bench.run(indices, bench.open(network, fused=fused)))
        else:
            ran = bench.run_switched(indices, network, fused=fused)
        for place, found in zip(chosen, ran, strict=True):
            yield self._exact[place], found

    def few(self) -> tuple[int, ...]:
        """Places of the samples on which interventions are chosen."""
        return self._few or spread(len(self._exact), FEW_SAMPLES)

    def focus(self, quantizers: Sequence[Quantizer]) -> None:
        """Choose interventions, from now on, half on the samples that lose most with these quantizers.

        What is cut off in few of the samples would else not show in any that are looked at.
        """
        own = self.loss(quantizers, more=True).by_sample
        self._losing = tuple(sorted(range(len(own)), key=lambda place: -own[place]))
        if len(own) <= FEW_SAMPLES:
            return
        # Half of the few are the worst samples, half are spread evenly: chosen on the worst alone, an intervention
        # may harm all others. Where there are enough, all are of one half, so that the other half was never asked
        # when anything was chosen. What was chosen is confirmed on all samples (`more`).
        half = self.halves()[0]
        pool = half if len(half) >= FEW_SAMPLES else range(len(own))
        worst = [place for place in self._losing if place in pool][: FEW_SAMPLES // 2]
        others = [place for place in spread_over(pool, FEW_SAMPLES // 2) if place not in worst]
        self._few = tuple(sorted((*worst, *others)))

    def halves(self) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """Places of the samples on which something is chosen, and of those on which it is shown.

        Both lose about as much: of each pair, from the worst on, one is in each half, first and second by turns.
        """
        order = self._losing or tuple(range(len(self._exact)))
        first = {place for rank, place in enumerate(order) if rank % 4 in (0, 3)}
        return tuple(sorted(first)), tuple(place for place in range(len(self._exact)) if place not in first)

    def loss(
        self, quantizers: Sequence[Quantizer], *, more: bool = False, places: Sequence[int] | None = None
    ) -> Loss:
        """What the outputs lose with these quantizers on.

        Args:
            quantizers: All that are on.
            more: On all samples that are used at most, instead of a few.
            places: On these of them.

        Raises:
            ModelFailed: The model cannot be run.
        """
        chosen = tuple(range(len(self._exact))) if more else self.few()
        chosen = chosen if places is None else tuple(places)
        # By identity, not by value: comparing scales of every channel would cost as much as a small run. All that
        # were ever measured are kept alive in `_kept`, so that no id is given to another quantizer.
        key = chosen, frozenset((each.name, id(each)) for each in quantizers)
        if key not in self._known:
            self._kept += quantizers
            self._known[key] = self._measure(quantizers, chosen)
        return self._known[key]

    def _measure(self, quantizers: Sequence[Quantizer], chosen: Sequence[int]) -> Loss:
        began = self._deadline.clock()
        meter = LossMeter(self.parts)
        self.runs += 1
        for exact, found in self.pairs(quantizers, chosen, fused=can_fuse(quantizers)):
            meter.add(exact, found)
        self.seconds = max(self.seconds, self._deadline.clock() - began)
        self._progress.advance()
        return meter.loss()


def can_fuse(quantizers: Sequence[Quantizer]) -> bool:
    """Whether onnxruntime's rewriting knows the codes; it stumbles over those of less than 8 bits."""
    return all(each.spec.bits >= _NARROWEST_FUSED for each in quantizers)


def _is_numeric(array: Any) -> bool:
    return getattr(array, "dtype", None) is not None and array.dtype.kind in "fiub" and array.size > 0


# Other quantizers in the place of one: the same bits over another range, scales of slices, more bits.

WIDE_BITS = 16
"""So wide that rounding is no part of what is lost."""


def reach(quantizer: Quantizer) -> tuple[float, float]:
    """Smallest and largest value that a quantizer can represent, in any slice."""
    low, high = representable_range(quantizer.params, quantizer.spec)
    return float(low.min()), float(high.max())


def times_wider(quantizer: Quantizer, seen: tuple[float, float]) -> float:
    """How many times coarser steps are than values need; symmetric codes reach as far on both sides."""
    (low, high), (data_low, data_high) = reach(quantizer), seen
    if quantizer.spec.symmetric:
        return min(-low, high) / max(-data_low, data_high, _NOTHING)
    return (high - low) / max(data_high - data_low, _NOTHING)


def with_range(quantizer: Quantizer, low: float, high: float) -> Quantizer:
    """The same bits over another range, with one scale for the whole tensor."""
    spec = quantizer.spec.along(None)
    return replace(quantizer, spec=spec, params=parameters_from_range(low, high, spec), codes=None)


def with_slice_ranges(quantizer: Quantizer, axis: int, low: Array, high: Array) -> Quantizer:
    """The same bits with a range for each slice along an axis.

    Args:
        quantizer: The quantizer.
        axis: The axis.
        low: Smallest value of each slice, of shape [C].
        high: Largest value of each.
    """
    spec = quantizer.spec.along(axis)
    params = parameters_from_range(low, high, spec)
    empty = (np.minimum(low, 0) == 0) & (np.maximum(high, 0) == 0)
    if empty.any() and not empty.all():
        # A slice of zeros has the scale of the others; the default of 1 would lose biases that are told in it.
        params = QuantParams(np.where(empty, params.scale[~empty].max(), params.scale), params.zero_point)
    return replace(quantizer, spec=spec, params=params, codes=None)


def per_slice(
    quantizer: Quantizer, axis: int, sizes: Sequence[int], ranges: Sequence[tuple[float, float]]
) -> Quantizer:
    """The same bits with a range for each of several slices of different sizes."""
    low = np.repeat([low for low, _ in ranges], sizes)
    high = np.repeat([high for _, high in ranges], sizes)
    return with_slice_ranges(quantizer, axis, low, high)


def rounded_again(quantizer: Quantizer) -> Quantizer:
    """The same scale with codes that rounding gives, half to even."""
    return replace(quantizer, codes=None, spec=replace(quantizer.spec, rounding="half_even"))


def with_bits(quantizer: Quantizer, bits: int) -> Quantizer:
    """Codes of other width over the same range; each slice keeps its own."""
    low, high = representable_range(quantizer.params, quantizer.spec)
    spec = replace(quantizer.spec, bits=bits, narrow=False)
    return replace(quantizer, spec=spec, params=parameters_from_range(low, high, spec), codes=None)
