"""Running the quantized network with some of its quantizers off, and looking at its outputs."""

import contextlib
import math
from collections.abc import Callable, Collection, Generator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from roundoff.analysis.layers.copies import written_quantizers
from roundoff.analysis.layers.measuring import Measuring
from roundoff.analysis.layers.passes import Arrays, Feed, Network, SampleRange, in_order
from roundoff.analysis.layers.tally import code_meaning
from roundoff.analysis.layers.unit_parts import switched_on
from roundoff.core.layer_scores import Experiment
from roundoff.core.light_measure import CodedValues, ErrorTotals, Job, LightMeter
from roundoff.core.quantizer import Quantizer
from roundoff.core.target import Arithmetic
from roundoff.core.thresholds import ThresholdSet
from roundoff.graph.edges import Edges
from roundoff.graph.interface import outputs
from roundoff.graph.load import Model
from roundoff.graph.tap import tap
from roundoff.graph.unused import drop_unused
from roundoff.graph.wiring import reads
from roundoff.metrics.error import relative_euclidean, sqnr_db
from roundoff.metrics.similarity import cosine
from roundoff.runtime.integer import IntegerRunner
from roundoff.runtime.session import open_session

__all__ = ["FEW_SAMPLES", "Experiments", "Outcome", "integer_runs", "reference_runs", "spread_over"]

FEW_SAMPLES, MORE_SAMPLES = 8, 32
"""On so many samples, evenly spaced, units are tried, and what came of it is confirmed."""

# An error beyond measure, such as NaN or another shape, counts as this many times the output's energy.
_ENDLESS = 1e6
# Float outputs are kept for all experiments; samples beyond this are left out.
_MOST_KEPT_BYTES = 1 << 26

Opener = Callable[[Sequence[Quantizer]], Network]
"""Makes the network in which these quantizers are on; it computes the outputs, by their names."""


class _InOnnxruntime:
    """The graph of copies with nothing but the quantized network in it, or without quantizers the float one."""

    def __init__(self, measuring: Measuring, quantizers: Sequence[Quantizer], threads: int) -> None:
        model = measuring.quantized.float_model
        network = replace(measuring.quantized, quantizers=tuple(quantizers))
        copies = measuring.copies(network, ("accumulated",))
        written = written_quantizers(model, Edges(model, network.quantizers))
        computed = [name for name in outputs(model) if name in copies.taps]
        taps = {name: copies.taps[name]["accumulated"] for name in computed}
        self._meaning = {name: code_meaning(written[name]) for name, each in taps.items() if each.coded}
        self._names = {name: each.name for name, each in taps.items()}
        taps_asked = tap(_only(copies.model, self._names.values()), tuple(self._names.values()))
        held = {tensor.name for tensor in copies.model.proto.graph.initializer}
        constants = {name: values for name, values in copies.constants.items() if name in held}
        asked = replace(taps_asked, constants=constants)
        # Outputs of the float network are kept, and would hold on to all memory of their session.
        self._session = open_session(model, outputs=asked, threads=threads, keep_memory=bool(quantizers))

    def run(self, sample: str, feed: Feed) -> Arrays:
        arrays = dict(zip(self._names, self._session.run(feed, sample=sample), strict=True))
        return arrays | {name: CodedValues(arrays[name], *each) for name, each in self._meaning.items()}

    def stop(self) -> None:
        self._session.stop()


class _InIntegers:
    def __init__(self, runner: IntegerRunner, names: Sequence[str]) -> None:
        self._runner, self._names = runner, names

    def run(self, sample: str, feed: Feed) -> Arrays:
        return dict(self._runner.run(feed, self._names, sample=sample).values)

    def stop(self) -> None:
        """A node that is computed with integers is finished first."""


def _only(model: Model, tensors: Collection[str]) -> Model:
    """The graph without what these tensors do not need; it is changed, being nobody else's."""
    from onnx.helper import make_empty_tensor_value_info

    graph = model.proto.graph
    del graph.output[:]
    graph.output.extend(make_empty_tensor_value_info(name) for name in tensors)
    needed = set(tensors)
    for index in reversed(range(len(graph.node))):
        if needed.isdisjoint(graph.node[index].output):
            del graph.node[index]
        else:
            needed.update(reads(graph.node[index]))
    drop_unused(graph)
    return model


def reference_runs(measuring: Measuring, threads: int) -> Opener:
    """Networks in fake quantization."""
    return lambda quantizers: _InOnnxruntime(measuring, quantizers, threads)


def integer_runs(measuring: Measuring, arithmetic: Arithmetic, threads: int) -> Opener:
    """Networks in exact integers; without any quantizer it is the float network in onnxruntime."""
    in_float = reference_runs(measuring, threads)
    model = measuring.quantized.float_model

    def open_network(quantizers: Sequence[Quantizer]) -> Network:
        if not quantizers:
            return in_float(())
        return _InIntegers(IntegerRunner(model, quantizers, arithmetic, threads=threads), outputs(model))

    return open_network


@dataclass(frozen=True, slots=True)
class Outcome:
    """What came of an experiment.

    Attributes:
        found: Its scores.
        loss: How much of the outputs is lost, summed over them: the energy of the error over that of the output
            where that is small, and its logarithm where it is large.
    """

    found: Experiment
    loss: float


class Experiments:
    """Experiments with one network, on the same few samples.

    Args:
        measuring: The network and the samples.
        indices: All samples.
        thresholds: What the outputs must keep.
        open_network: Makes networks.
        workers: Samples that may run at a time.

    Attributes:
        samples: How many samples were fed in the last experiment.
    """

    def __init__(
        self,
        measuring: Measuring,
        indices: Sequence[int],
        *,
        thresholds: ThresholdSet,
        open_network: Opener,
        workers: int = 1,
    ) -> None:
        self._measuring, self._thresholds, self._open = measuring, thresholds, open_network
        self._indices, self._workers = indices, workers
        self._known: dict[tuple[int, frozenset[str]], Outcome] = {}
        self._exact: dict[int, list[Arrays]] = {}
        self.samples = 0

    def run(self, off: Collection[str]) -> Outcome:
        """Run the network with these quantizers off, on few samples."""
        return self._outcome(frozenset(off), FEW_SAMPLES)

    def confirm(self, off: Collection[str]) -> tuple[Outcome, Outcome]:
        """Run it as it is and with these quantizers off, on more samples."""
        return self._outcome(frozenset(), MORE_SAMPLES), self._outcome(frozenset(off), MORE_SAMPLES)

    def _outcome(self, off: frozenset[str], most: int) -> Outcome:
        most = min(most, len(self._indices))
        if most not in self._exact:
            self._exact = {most: self._in_float(most)}
        self.samples = len(self._exact[most])
        if (most, off) not in self._known:
            self._known[most, off] = self._run(off, most)
        return self._known[most, off]

    def _computed(self, quantizers: Sequence[Quantizer], most: int) -> Generator[tuple[str, Arrays], None, None]:
        """The outputs for each sample when some quantizers are on."""
        chosen = spread_over(self._indices, most)
        fed = SampleRange(self._measuring.quantized.float_model, self._measuring.samples, chosen)
        # A single sample waits for nobody, and needs no thread of its own.
        return in_order(fed.feeds(), self._open(quantizers), self._workers if self._workers > 1 else 0)

    def _in_float(self, most: int) -> list[Arrays]:
        """The outputs of the float network for the first samples of some that fit in memory."""
        exact: list[Arrays] = []
        kept = 0
        with contextlib.closing(self._computed((), most)) as computed:
            for _, arrays in computed:
                exact.append(arrays)
                kept += sum(getattr(each, "nbytes", 0) for each in arrays.values())
                if kept > _MOST_KEPT_BYTES:
                    break
        return exact

    def _run(self, off: frozenset[str], most: int) -> Outcome:
        quantizers, expected = self._measuring.quantized.quantizers, self._exact[most]
        on = switched_on(quantizers, off)
        meter = LightMeter()
        totals: dict[str, ErrorTotals | None] = {name: ErrorTotals() for name in expected[0]}
        with contextlib.closing(self._computed(on, len(expected))) as computed:
            for exact, (_, arrays) in zip(expected, computed, strict=True):
                for name, total in totals.items():
                    if total is not None and not _measure(meter, exact[name], arrays[name], total):
                        totals[name] = None
                self._measuring.progress.advance()
        left = {each.name for each in on}
        switched_off = [each.name for each in quantizers if each.name not in left]
        return _outcome(list(totals.values()), switched_off, self._thresholds)


def _measure(meter: LightMeter, reference: Any, candidate: Any, totals: ErrorTotals) -> bool:
    """Take in one output of one sample; False when both cannot be compared."""
    if getattr(reference, "shape", None) is None or reference.dtype.kind not in "fiub":
        return True  # no numbers: nothing is lost, and nothing gained
    if (candidate.codes if isinstance(candidate, CodedValues) else candidate).shape != reference.shape:
        return False
    with np.errstate(all="ignore"):
        meter.measure([Job(reference, [candidate], [totals])])
    return True


def _outcome(totals: Sequence[ErrorTotals | None], off: Sequence[str], thresholds: ThresholdSet) -> Outcome:
    loss = math.fsum(
        math.log1p(_ENDLESS if total is None else min(total.noise_ratio, _ENDLESS)) for total in totals
    )
    worst = (math.inf, 1.0)
    agrees = True
    for total in totals:
        if total is None or total.noise_ratio == math.inf:
            worst, agrees = (-math.inf, 0.0), False
        elif total.count:
            moments = total.moments()
            scores = {"sqnr_db": sqnr_db(moments), "cosine": cosine(moments)}
            agrees &= thresholds.holds(scores | {"relative_euclidean": relative_euclidean(moments)})
            agrees &= not any(total.nonfinite)
            worst = min(worst, (scores["sqnr_db"], scores["cosine"]))
    return Outcome(Experiment(tuple(off), *worst, agrees), loss)


def spread_over(indices: Sequence[int], most: int) -> list[int]:
    """At most so many of the samples, evenly spaced."""
    if len(indices) <= most:
        return list(indices)
    return [indices[round(at * (len(indices) - 1) / (most - 1))] for at in range(most)]
