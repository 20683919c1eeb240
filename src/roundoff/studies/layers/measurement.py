"""The tensors a layer-by-layer run has a row for, and what is known of them before it."""

import contextlib
import math
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import numpy as np

from roundoff.core.progress import Progress
from roundoff.core.quantizers import Quantizer, QuantSpec, quantize
from roundoff.core.target import Arithmetic
from roundoff.core.tensors import Array
from roundoff.graph.load import MAPPED_BYTES
from roundoff.graph.nodes import constants, reads
from roundoff.graph.quantized_model import QuantizedModel
from roundoff.graph.units import units
from roundoff.measure.classes import index_pair, is_index
from roundoff.measure.inference import keep_samples
from roundoff.measure.light_pairs import CodedValues, ErrorTotals, LightMeter, MeterJob, noise_ratio
from roundoff.measure.metrics import (
    Status,
    cosine,
    mse,
    ratio_db,
    sqnr_db,
    status_of,
    worst_channel,
    worst_channel_sqnr_db,
)
from roundoff.measure.pairs import channel_axis_of
from roundoff.messages.message import Message, as_message, english, message
from roundoff.run.bench import Bench, Runnable
from roundoff.run.budget import WEIGHTS_HELD, RunBudget, split_passes
from roundoff.run.capture import Samples
from roundoff.run.variants import (
    FUSED,
    Copies,
    KnownConstants,
    LayerTensor,
    Tap,
    Variant,
    build_copies,
)
from roundoff.studies.layers.result import LayerOverflow, LayerRow, LayerScore

if TYPE_CHECKING:
    from roundoff.run.integer.machine import IntegerRun, IntegerRunner
    from roundoff.run.integer.results import IntegerReport

# Which of its codes a quantizer really uses.

_BLOCK = 1 << 16
# As many codes are looked at one by one before the common ones are known.
_FIRST_LOOK = 1 << 12


class LevelSet:
    """The distinct codes seen so far; exact, whatever the order in which codes come.

    Codes in the longest run of consecutive ones that were seen already are not news; only the few others are
    marked one by one.
    """

    def __init__(self, spec: QuantSpec) -> None:
        self._spec = spec
        self._seen = np.zeros(spec.code_max - spec.code_min + 1, np.bool_)
        # The longest run of codes that were all seen.
        self._first, self._last = 0, -1

    @property
    def used(self) -> int:
        """How many codes were seen."""
        return int(np.count_nonzero(self._seen))

    @property
    def available(self) -> int:
        """How many codes there are."""
        return self._seen.size

    def add(self, codes: Array) -> None:
        """See codes: integers of 8 or 16 bits, within the range of the quantizer."""
        flat = codes.reshape(-1)
        if not flat.size:
            return
        if self._last < self._first:
            self._mark(flat[:_FIRST_LOOK])
        for start in range(0, flat.size, _BLOCK):
            block = flat[start : start + _BLOCK]
            # Where the extremes are is found fast, and in most blocks they say it all.
            if block[block.argmin()] >= self._first and block[block.argmax()] <= self._last:
                continue
            self._mark(block[(block < self._first) | (block > self._last)])

    def _mark(self, codes: Array) -> None:
        places = codes.astype(np.intp) - self._spec.code_min
        if self._seen[places].all():
            return
        self._seen[places] = True
        edges = np.flatnonzero(np.diff(self._seen, prepend=False, append=False))
        starts, ends = edges[::2], edges[1::2]
        longest = int(np.argmax(ends - starts))
        self._first = int(starts[longest]) + self._spec.code_min
        self._last = int(ends[longest]) - 1 + self._spec.code_min


Candidate = Array | CodedValues


@dataclass(slots=True)
class VariantTally:
    """One variant of a tensor.

    Attributes:
        totals: Sums over the samples so far.
        worst_sample: The sample with the largest error against its own energy.
        worst_ratio: That ratio.
        levels: Codes that occur; None when it has none.
        failure: Status and reason when a sample could not be compared.
        sample_ratios: Energy of the error over that of the float values, by sample; NaN where these are silent.
    """

    totals: ErrorTotals = field(default_factory=ErrorTotals)
    worst_sample: str = ""
    worst_ratio: float = 0.0
    levels: LevelSet | None = None
    failure: tuple[Status, str] | None = None
    sample_ratios: list[float] = field(default_factory=list)


class Tally:
    """The running sums of one tensor.

    Attributes:
        tensor: What is measured.
        shape: Its shape in the first sample; None before.
        samples: How many samples were taken in.
        count: Float values seen.
        clipped: Those more than half a step outside of what the quantizer can represent.
        variants: The sums of each variant.
        code_meaning: Scale and zero point of its codes, where there is one of each.
        codes_compared: Codes of integer arithmetic that were compared with those of fake quantization.
        codes_differing: Those of them that differ.
        codes_distant: Those that differ by more than one.
    """

    def __init__(self, tensor: LayerTensor, variants: Sequence[Variant]) -> None:
        self.tensor = tensor
        self.shape: tuple[int, ...] | None = None
        self.samples = 0
        self.count = self.clipped = 0
        self.codes_compared = self.codes_differing = self.codes_distant = 0
        quantizer = tensor.quantizer
        spec = None if quantizer is None else quantizer.spec
        self.variants = {
            variant: VariantTally(levels=LevelSet(spec) if spec is not None and spec.bits <= 16 else None)
            for variant in variants
        }
        self._limits, self._axis = tensor.limits, tensor.axis
        self.code_meaning = (1.0, 0)
        if quantizer is not None and tensor.axis is None:
            self.code_meaning = code_meaning(quantizer)

    def begin(self, sample: str, reference: Array, candidates: Mapping[Variant, Candidate]) -> "SampleJob":
        """What is to be measured of one sample.

        Args:
            sample: Its name.
            reference: Float values.
            candidates: Values or codes of each variant.
        """
        comparable = []
        for variant, candidate in candidates.items():
            failure = _failure(reference, candidate)
            if failure is None:
                comparable.append(variant)
            elif self.variants[variant].failure is None:
                status, reason = failure
                self.variants[variant].failure = (
                    status,
                    english("{reason} (sample {sample})", reason=reason, sample=sample) if sample else reason,
                )
        totals = [self.variants[variant].totals for variant in comparable]
        given: list[Candidate] = [candidates[variant] for variant in comparable]
        if is_index(reference.dtype):
            given = [each if isinstance(each, CodedValues) else index_pair(reference, each)[1] for each in given]
            reference = np.ones(reference.shape, np.float32)
        job = MeterJob(
            reference,
            given,
            totals,
            channel_axis_of(reference.shape) if self._axis is None else self._axis,
            self._limits,
        )
        before = [(total.reference, total.error, total.nonfinite) for total in totals]
        return SampleJob(self, job, comparable, before)

    def end(self, measured: "SampleJob", sample: str) -> None:
        """Take in what was measured."""
        job = measured.job
        for variant, candidate, before in zip(measured.variants, job.candidates, measured.before, strict=True):
            part = self.variants[variant]
            ratio = _ratio_since(part.totals, *before)
            part.sample_ratios.append(math.nan if part.totals.reference == before[0] else ratio)
            if ratio > part.worst_ratio:
                part.worst_ratio, part.worst_sample = ratio, sample
            self._see_levels(variant, candidate)
        self.shape = job.reference.shape if self.shape is None else self.shape
        self.samples += 1
        self.count += job.reference.size
        self.clipped += job.clipped

    def _see_levels(self, variant: Variant, candidate: Candidate) -> None:
        levels, quantizer = self.variants[variant].levels, self.tensor.quantizer
        if levels is None or quantizer is None:
            return
        if isinstance(candidate, CodedValues):
            levels.add(candidate.codes)
        else:
            # These values are on the grid of codes but for the last bits: only the nearest code can be meant.
            levels.add(quantize(candidate, quantizer.params, replace(quantizer.spec, rounding="half_even")))


def code_meaning(quantizer: Quantizer) -> tuple[float, int]:
    """Scale and zero point of a quantizer that has one of each."""
    params = quantizer.params
    return float(params.scale.reshape(())), int(params.zero_point.reshape(()))


class SampleJob(NamedTuple):
    """One tensor of one sample: its tally, what to do, and for each variant what its totals were before."""

    tally: Tally
    job: MeterJob
    variants: Sequence[Variant]
    before: Sequence[tuple[float, float, tuple[int, int]]]


def measure_sample(
    meter: LightMeter, sample: str, tensors: Iterable[tuple[Tally, Array, Mapping[Variant, Candidate]]]
) -> None:
    """Measure tensors of one sample and take that in.

    Args:
        meter: What measures.
        sample: Its name.
        tensors: Their tallies, their float values, and values or codes of each variant.
    """
    measured = [tally.begin(sample, reference, candidates) for tally, reference, candidates in tensors]
    with np.errstate(all="ignore"):
        meter.measure([each.job for each in measured])
    for each in measured:
        each.tally.end(each, sample)


def _ratio_since(totals: ErrorTotals, reference: float, error: float, nonfinite: tuple[int, int]) -> float:
    """The noise of what was added since the totals were these."""
    found = totals.nonfinite[0] - nonfinite[0], totals.nonfinite[1] - nonfinite[1]
    return noise_ratio(totals.reference - reference, totals.error - error, found)


def _failure(reference: Array, candidate: Candidate) -> tuple[Status, str] | None:
    values = candidate.codes if isinstance(candidate, CodedValues) else candidate
    if not isinstance(values, np.ndarray) or values.dtype.kind not in "fiub":
        return "unreadable", english("it holds no real numbers")
    if values.shape != reference.shape:
        ours, theirs = (
            "x".join(map(str, shape)) or english("scalar") for shape in (reference.shape, values.shape)
        )
        return "shape", english("{ours} against {theirs}", ours=ours, theirs=theirs)
    return None


# From what was summed up of a tensor to its row.


def layer_row(order: int, tensor: LayerTensor, tally: Tally | None, variants: Collection[Variant]) -> LayerRow:
    """The row of a tensor.

    Args:
        order: Its position in execution order.
        tensor: The tensor.
        tally: What was measured of it; None when it cannot be read.
        variants: Which of the local and the accumulated error were to be measured.
    """
    value = tensor.value
    if tally is None:
        scores = {variant: LayerScore("unreadable", as_message(value.obstacle())) for variant in variants}
    else:
        scores = {variant: layer_score(tally, variant) for variant in variants}
    return LayerRow(
        order=order,
        node=value.node,
        op_type=value.op_type,
        unit=tensor.unit,
        tensor=value.name,
        shape=value.shape or () if tally is None or tally.shape is None else tally.shape,
        dtype=value.element.dtype if value.element else "",
        quantized=tensor.quantized,
        output=tensor.output,
        samples=0 if tally is None else tally.samples,
        levels=tensor.levels,
        clipped=None if tally is None or tensor.quantizer is None else _share(tally.clipped, tally.count),
        local=scores.get("local"),
        accumulated=scores.get("accumulated"),
        differing_codes=None if tally is None else _share(tally.codes_differing, tally.codes_compared),
        distant_codes=None if tally is None else _share(tally.codes_distant, tally.codes_compared),
    )


def _share(part: int, whole: int) -> float | None:
    return part / whole if whole else None


def layer_score(tally: Tally, variant: Variant) -> LayerScore:
    """The scores of one variant of a tensor."""
    part = tally.variants[variant]
    if part.failure is not None:
        status, reason = part.failure
        return LayerScore(status, as_message(reason))
    moments = part.totals.sums()
    status, detail = status_of(moments)
    if moments.count == 0:
        return LayerScore(status, as_message(detail))
    channel = int(worst_channel(moments))
    rms_steps, max_steps = _steps(tally, part)
    return LayerScore(
        status=status,
        detail=as_message(detail),
        cosine=cosine(moments),
        mse=mse(moments),
        sqnr_db=sqnr_db(moments),
        rms_steps=rms_steps,
        max_steps=max_steps,
        used_levels=None if part.levels is None else part.levels.used,
        worst_channel=channel if channel >= 0 else None,
        worst_channel_sqnr_db=worst_channel_sqnr_db(moments) if channel >= 0 else None,
        worst_sample=part.worst_sample,
        worst_sample_sqnr_db=-ratio_db(part.worst_ratio, 1.0) if part.worst_sample else None,
        sample_sqnr_db=keep_samples(-ratio_db(ratio, 1.0) for ratio in part.sample_ratios),
    )


def _steps(tally: Tally, part: VariantTally) -> tuple[float | None, float | None]:
    """Root mean square and maximum of the error in steps of the tensor's quantizer."""
    quantizer, sums = tally.tensor.quantizer, part.totals
    if quantizer is None:
        return None, None
    scale = quantizer.params.scale.astype(np.float64)
    if scale.size == 1:
        step = float(scale.reshape(()))
        return math.sqrt(sums.error / sums.count) / step, sums.max_error / step
    channels = sums.channels
    if channels is None:
        return None, None
    energy = float((channels.error / scale**2).sum())
    return math.sqrt(energy / sums.count), sums.max_steps


# Passes over the samples: what is run of each, and what is measured of it.

Arrays = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Footprint:
    """What a pass takes.

    Attributes:
        fixed_bytes: Memory that does not depend on the tensors it measures.
        variant_size: How many times the memory of the float tensor a variant takes at most.
        workers: Samples that may run at a time, beside the one that is measured. Measuring takes about as long as
            running, so more than two would only wait.
    """

    fixed_bytes: int
    variant_size: int = 1
    workers: int = 2


class LayerPass(Runnable[Arrays], Protocol):
    """Computes some tensors of one sample, and measures them."""

    def take(self, sample: str, arrays: Arrays) -> None:
        """Measure them, and take that in; called for one sample after the other."""
        ...


class CopiesPass:
    """Runs a graph of copies and measures some of its tensors.

    Args:
        bench: Opens it.
        copies: The graph.
        tallies: What is measured, by tensor.
        also: Tensors to run although they are not measured.
    """

    def __init__(
        self, bench: Bench, copies: Copies[Variant], tallies: Mapping[str, Tally], *, also: Collection[str] = ()
    ) -> None:
        self._tallies = tallies
        self._taps = {name: copies.taps[name] for name in tallies}
        self._network = bench.open_copies(copies, [tally.tensor.value for tally in tallies.values()], also=also)
        self._meter = LightMeter()

    def run(self, feed: Mapping[str, Array], *, sample: str = "") -> Arrays:
        """The tensors of one sample, by their names in the graph of copies."""
        return self._network.run(feed, sample=sample)

    def take(self, sample: str, arrays: Arrays) -> None:
        """Measure what was run."""
        tensors = (
            (
                tally,
                arrays[name],
                {
                    variant: candidate_of(tally, each, arrays[each.name])
                    for variant, each in self._taps[name].items()
                },
            )
            for name, tally in self._tallies.items()
        )
        measure_sample(self._meter, sample, tensors)

    def stop(self) -> None:
        """End the runs that are under way."""
        self._network.stop()


def candidate_of(tally: Tally, tapped: Tap, array: Array) -> Candidate:
    """What was read at a tap, with what its codes mean."""
    return CodedValues(array, *tally.code_meaning) if tapped.coded else array


class IntegerPass:
    """Runs the float network and the copies in onnxruntime, and the quantized network with integers.

    Args:
        bench: Opens networks.
        copies: The graph of the float network; with the variant ``local`` when codes are to be compared with it.
        tallies: What is measured, by tensor; in the variants ``local`` and ``accumulated`` with integers, and
            ``reference`` for the local error of fake quantization.
        quantized: The network.
        runner: What computes with integers.
    """

    def __init__(
        self,
        bench: Bench,
        copies: Copies[Variant],
        tallies: Mapping[str, Tally],
        *,
        quantized: QuantizedModel,
        runner: "IntegerRunner",
    ) -> None:
        self._tallies, self._runner, self._copies = tallies, runner, copies
        self._variants = {variant for tally in tallies.values() for variant in tally.variants}
        needed = _unit_inputs(quantized, tallies) if "local" in self._variants else frozenset[str]()
        self._floats = CopiesPass(bench, copies, tallies, also=needed)
        self._fed = needed
        self._meter = LightMeter()

    def run(self, feed: Mapping[str, Array], *, sample: str = "") -> Arrays:
        """Compute one sample; integer results are beside the tensors, under the names of the variants."""
        arrays = self._floats.run(feed, sample=sample)
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


def overflows(report: "IntegerReport", operations: Mapping[str, str]) -> tuple[LayerOverflow, ...]:
    """What did not fit, in words.

    Args:
        report: What the integer runs met.
        operations: The operation of each node.
    """
    return tuple(
        LayerOverflow(
            each.node,
            operations.get(each.node, ""),
            message(
                f"layers.overflow_{each.kind}",
                count=each.count,
                all=each.elements,
                factor=f"{each.worst_ratio:.3g}",
            ),
        )
        for each in report.overflows
    )


def arithmetic_in_words(arithmetic: Arithmetic | None) -> Message:
    """How the integers are computed with; None for fake quantization."""
    if arithmetic is None:
        return message("layers.arithmetic_reference")
    return message(
        f"layers.arithmetic_{arithmetic.requantization}",
        bits=arithmetic.accumulator_bits,
        overflow=message(f"layers.sums_{arithmetic.overflow}"),
        multiplier=arithmetic.multiplier_bits,
        rounding=message(f"layers.round_{arithmetic.rounding}"),
    )


@dataclass(slots=True)
class LayerBench:
    """What is measured, on what, and with what.

    Attributes:
        quantized: The network.
        tensors: Its tensors.
        samples: What it is fed.
        budget: What may be used.
        progress: Told of every sample.
        passes: How often the network ran per sample in the last measurement, to stay within the memory.
    """

    quantized: QuantizedModel
    tensors: Sequence[LayerTensor]
    samples: Samples
    budget: RunBudget
    progress: Progress
    passes: int = 0
    _known: KnownConstants = field(default_factory=KnownConstants)

    def bench(self, threads: int) -> Bench:
        """Runs networks with so many threads per sample."""
        return Bench(self.quantized.float_model, self.samples, threads=threads)

    def copies(self, network: QuantizedModel, variants: Sequence[Variant]) -> Copies[Variant]:
        """Copies of this network, or of the same with fewer quantizers; weights are quantized once for all."""
        return build_copies(network, variants, known=self._known)

    def reference(
        self, variants: Sequence[Variant], indices: Sequence[int], *, fused: bool = True, levels: bool = True
    ) -> dict[str, Tally]:
        """Measure some variants in fake quantization, over some samples.

        Args:
            variants: Which.
            indices: The samples.
            fused: Also tensors inside units.
            levels: Also which codes occur.
        """
        copies = self.copies(self.quantized, variants)
        tallies = {
            tensor.name: Tally(tensor, [variant for variant in variants if variant in copies.taps[tensor.name]])
            for tensor in self._readable(copies)
            if fused or tensor.quantized != FUSED
        }
        for part in () if levels else [part for tally in tallies.values() for part in tally.variants.values()]:
            part.levels = None
        footprint = Footprint(self._fixed_bytes(copies))
        self._measure(tallies, partial(CopiesPass, copies=copies), indices, footprint=footprint)
        return tallies

    def integer(
        self, variants: Sequence[Variant], indices: Sequence[int], runner: "IntegerRunner"
    ) -> dict[str, Tally]:
        """Measure the local and the accumulated error with integers, over some samples.

        Beside the local error that of fake quantization is measured, as the variant ``reference``.
        """
        compared: tuple[Variant, ...] = ("local",) if "local" in variants else ()
        beside: tuple[Variant, ...] = ("reference",) if compared else ()
        copies = self.copies(self.quantized, compared)
        tallies = {tensor.name: Tally(tensor, (*variants, *beside)) for tensor in self._readable(copies)}
        open_pass = partial(IntegerPass, copies=copies, quantized=self.quantized, runner=runner)
        # The integer runner computes one sample at a time, and its sums are float64.
        footprint = Footprint(self._fixed_bytes(copies), variant_size=2, workers=1)
        self._measure(tallies, open_pass, indices, footprint=footprint)
        return tallies

    def _fixed_bytes(self, copies: Copies[Variant]) -> int:
        """The model as loaded, the constants as kept for the session, and the session's own copy of them all."""
        weights = self.quantized.float_model.weight_bytes
        if weights >= MAPPED_BYTES:
            # Sessions use these where they are, and what that comes to was measured.
            return int(WEIGHTS_HELD["study"] * weights)
        return copies.model.file_bytes + copies.model.weight_bytes + 2 * copies.constant_bytes

    def _readable(self, copies: Copies[Variant]) -> list[LayerTensor]:
        return [tensor for tensor in self.tensors if tensor.name in copies.taps and not tensor.value.obstacle()]

    def _measure(
        self,
        tallies: Mapping[str, Tally],
        open_pass: Callable[..., LayerPass],
        indices: Sequence[int],
        *,
        footprint: Footprint,
    ) -> None:
        """Measure tensors over samples, in as many passes over the samples as the memory takes."""
        budget, progress = self.budget, self.progress
        sizes = {
            name: tally.tensor.value.size_bytes * (1 + footprint.variant_size * len(tally.variants))
            for name, tally in tallies.items()
        }
        # What the largest nodes read and write is alive while they run, captured or not.
        held = footprint.fixed_bytes + 2 * max(sizes.values(), default=0)
        budget.check_room(sizes, held, doing="Measuring")
        room = budget.room(held)
        groups = split_passes(sizes, room)
        progress.start("measuring layers", len(groups) * len(indices))
        try:
            for group in groups:
                largest = max(1, sum(sizes[name] for name in group))
                # Beside those that run, one is measured; without room for two, each waits for the one before.
                workers = max(0, min(budget.cores, footprint.workers, len(indices), room // largest - 1))
                bench = self.bench(budget.cores // max(1, workers))
                one_pass = open_pass(bench, tallies={name: tallies[name] for name in group})
                with contextlib.closing(bench.stream(one_pass, indices, workers=workers)) as computed:
                    for chunk, arrays in computed:
                        one_pass.take(chunk.label, arrays)
                        arrays.clear()
                        progress.advance()
        finally:
            progress.finish()
        self.passes = len(groups)
