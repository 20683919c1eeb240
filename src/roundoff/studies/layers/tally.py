"""What is summed up of one tensor over the samples, in each variant of it."""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

import numpy as np

from roundoff.core.quantizers import Quantizer, QuantSpec, quantize
from roundoff.core.tensors import Array
from roundoff.measure.light_pairs import CodedValues, ErrorTotals, LightMeter, MeterJob, noise_ratio
from roundoff.measure.metrics import Status
from roundoff.measure.pairs import channel_axis_of
from roundoff.run.variants import Variant
from roundoff.studies.layers.tensors import LayerTensor

__all__ = [
    "Candidate",
    "LevelSet",
    "Measurement",
    "Tally",
    "VariantTally",
    "code_meaning",
    "measure_sample",
]


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

    def begin(self, sample: str, reference: Array, candidates: Mapping[Variant, Candidate]) -> "Measurement":
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
                self.variants[variant].failure = status, f"{reason} (sample {sample})" if sample else reason
        totals = [self.variants[variant].totals for variant in comparable]
        job = MeterJob(
            reference,
            [candidates[variant] for variant in comparable],
            totals,
            channel_axis_of(reference.shape) if self._axis is None else self._axis,
            self._limits,
        )
        before = [(total.reference, total.error, total.nonfinite) for total in totals]
        return Measurement(self, job, comparable, before)

    def end(self, measured: "Measurement", sample: str) -> None:
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


class Measurement(NamedTuple):
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
        return "unreadable", "it holds no real numbers"
    if values.shape != reference.shape:
        shapes = " against ".join(
            "x".join(map(str, shape)) or "scalar" for shape in (reference.shape, values.shape)
        )
        return "shape", shapes
    return None
