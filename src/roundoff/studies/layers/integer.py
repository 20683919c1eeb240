"""Measuring what exact integer arithmetic makes of each tensor, beside what fake quantization makes of it."""

from collections.abc import Collection, Mapping
from typing import Any

import numpy as np

from roundoff.core.target import Arithmetic
from roundoff.graph.quantized_model import QuantizedModel
from roundoff.graph.units import units
from roundoff.graph.wiring import constants, reads
from roundoff.measure.light_pairs import CodedValues, LightMeter
from roundoff.run.integer.report import IntegerReport
from roundoff.run.integer.runner import IntegerRun, IntegerRunner
from roundoff.run.variants import Copies, Variant
from roundoff.studies.layers.passes import Arrays, CopiesPass, Feed, candidate_of
from roundoff.studies.layers.result import Overflow
from roundoff.studies.layers.tally import Candidate, Tally, measure_sample

__all__ = ["IntegerPass", "arithmetic_in_words", "overflows"]

_ROUNDING = {
    "half_even": "half to even",
    "half_up": "half up",
    "half_away": "half away from zero",
    "floor": "down",
}


class IntegerPass:
    """Runs the float network and the copies in onnxruntime, and the quantized network with integers.

    Args:
        copies: The graph of the float network; with the variant ``local`` when codes are to be compared with it.
        tallies: What is measured, by tensor; in the variants ``local`` and ``accumulated`` with integers, and
            ``reference`` for the local error of fake quantization.
        quantized: The network.
        runner: What computes with integers.
        threads: Threads per node.
    """

    def __init__(
        self,
        copies: Copies,
        tallies: Mapping[str, Tally],
        *,
        quantized: QuantizedModel,
        runner: IntegerRunner,
        threads: int,
    ) -> None:
        self._tallies, self._runner, self._copies = tallies, runner, copies
        self._variants = {variant for tally in tallies.values() for variant in tally.variants}
        needed = _unit_inputs(quantized, tallies) if "local" in self._variants else frozenset[str]()
        model = quantized.float_model
        self._floats = CopiesPass(copies, tallies, model=model, threads=threads, also=needed)
        self._fed = needed
        self._meter = LightMeter()

    def run(self, sample: str, feed: Feed) -> Arrays:
        """Compute one sample; integer results are beside the tensors, under the names of the variants."""
        arrays = self._floats.run(sample, feed)
        names = tuple(self._tallies)
        if "local" in self._variants:
            given = {**feed, **{name: arrays[name] for name in self._fed}}
            arrays["local"] = self._runner.run_local(given, names)
        if "accumulated" in self._variants:
            arrays["accumulated"] = self._runner.run(feed, names, sample=sample)
        return arrays

    def take(self, sample: str, arrays: Arrays) -> None:
        """Measure what was run."""
        tensors = []
        for name, tally in self._tallies.items():
            candidates = {variant: self._candidate(tally, variant, arrays) for variant in tally.variants}
            _compare_codes(tally, candidates)
            tensors.append((tally, arrays[name], candidates))
        measure_sample(self._meter, sample, tensors)

    def _candidate(self, tally: Tally, variant: Variant, arrays: Arrays) -> Candidate:
        if variant != "reference":
            return _candidate(arrays[variant], tally)
        tapped = self._copies.taps[tally.tensor.name]["local"]
        return candidate_of(tally, tapped, arrays[tapped.name])

    def stop(self) -> None:
        """End the runs that are under way; a node that is computed with integers is finished first."""
        self._floats.stop()


def _candidate(run: Any, tally: Tally) -> Candidate:
    """A tensor of an integer run, as codes where these are codes of the tensor's own quantizer."""
    found: IntegerRun = run
    name, quantizer = tally.tensor.name, tally.tensor.quantizer
    held = found.held[name]
    if quantizer is not None and getattr(held, "params", None) is quantizer.params and tally.tensor.axis is None:
        return CodedValues(held.codes, *tally.code_meaning)
    return found.values[name]


def _compare_codes(tally: Tally, candidates: Mapping[Variant, Candidate]) -> None:
    ours, theirs = candidates.get("local"), candidates.get("reference")
    if (
        isinstance(ours, CodedValues)
        and isinstance(theirs, CodedValues)
        and ours.codes.shape == theirs.codes.shape
    ):
        distance = np.abs(ours.codes.astype(np.int32) - theirs.codes)
        tally.codes_compared += distance.size
        tally.codes_differing += int(np.count_nonzero(distance))
        tally.codes_distant += int(np.count_nonzero(distance > 1))


def _unit_inputs(quantized: QuantizedModel, tensors: Collection[str]) -> frozenset[str]:
    """Tensors that the units of some tensors read."""
    graph = quantized.float_model.proto.graph
    grouped = units(quantized.float_model, quantized.quantizers)
    wanted = {
        grouped.unit_of.get(node.name, node.name)
        for node in graph.node
        if any(name in tensors for name in node.output)
    }
    read = {
        name for node in graph.node if grouped.unit_of.get(node.name, node.name) in wanted for name in reads(node)
    }
    fed = {value.name for value in graph.input}
    return frozenset(read - constants(graph) - fed)


def overflows(report: IntegerReport, operations: Mapping[str, str]) -> tuple[Overflow, ...]:
    """What did not fit, in words.

    Args:
        report: What the integer runs met.
        operations: The operation of each node.
    """
    found = []
    for each in report.overflows:
        what = "biases have no code" if each.kind == "bias" else "sums do not fit the accumulator"
        text = f"{each.count} of {each.elements} {what}, the worst by a factor of {each.worst_ratio:.3g}"
        found.append(Overflow(each.node, operations.get(each.node, ""), text))
    return tuple(found)


def arithmetic_in_words(arithmetic: Arithmetic) -> str:
    """How the integers are computed with."""
    if arithmetic.requantization == "fixed_point":
        scaling = f"multiplier of {arithmetic.multiplier_bits} bits and a shift"
    else:
        scaling = "float multiplier"
    words = f"exact integers, {arithmetic.accumulator_bits}-bit sums that {arithmetic.overflow}"
    return f"{words}, requantized by a {scaling}, rounded {_ROUNDING[arithmetic.rounding]}"
