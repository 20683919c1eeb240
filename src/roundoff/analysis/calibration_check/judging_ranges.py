"""Findings on ranges: still growing, set by one sample alone, too narrow for other samples."""

import itertools
import math
from collections.abc import Iterator, Sequence

import numpy as np

from roundoff.analysis.calibration_check.held_out import HeldOutRecord, chance_of_exceeding
from roundoff.analysis.calibration_check.watched import Ranges, Seen
from roundoff.core.calibration_check import CheckFinding, ConvergencePoint, RangeRow
from roundoff.core.tensors import Array
from roundoff.core.wording import counted

__all__ = ["Growth", "growth_of", "influence_findings", "range_rows", "saturation_findings", "size_findings"]

# Vendors ask for 10 to 20 samples at the least (Ascend 10, RKNN 20, Pulsar2 starts at 32).
_FEWEST = 10
# Ranges have converged when twice as many samples widen that of the median tensor by less than the first; a fault
# is the second, a quarter of a bit.
_CONVERGED, _GROWING = 0.05, 0.18
# A sample that widens a range by two takes a bit from all others. In one tensor of many that may be chance.
_LONE, _LONE_ONCE, _LONE_SHARE = 2.0, 4.0, 0.05
# Beyond chance, and enough to matter.
_CHANCE, _OUTSIDE, _OVERSHOOT = 1e-4, 0.001, 0.05
_MOST_NAMED = 3


class Growth:
    """How ranges grow with samples.

    Attributes:
        points: The curve.
        last: By how much they grow at the last doubling, of the median tensor; None when unknown.
        enough: How many samples would do; None when that cannot be told.
        halves: Width with half of the samples over that with all, of each tensor.
    """

    def __init__(self, marks: Sequence[int], shares: Array) -> None:
        mean = shares.mean(axis=0)
        quarters = np.quantile(np.median(shares, axis=0), (0.25, 0.5), axis=1)
        self.points = tuple(
            ConvergencePoint(mark, float(typical), float(low))
            for mark, low, typical in zip(marks, quarters[0], quarters[1], strict=True)
        )
        self.halves = mean[-2] if len(marks) > 1 else np.ones(shares.shape[2])
        # In a good order, so that a single sample with the largest values is not taken for growth.
        good = np.median(np.quantile(shares, 0.75, axis=0), axis=1)
        growths = [float(later / max(earlier, 1e-9)) - 1 for earlier, later in itertools.pairwise(good)]
        self.last = growths[-1] if growths else None
        self.enough = self._enough(growths)

    def _enough(self, growths: Sequence[float]) -> int | None:
        total = self.points[-1].samples
        if self.last is None:
            return None
        if self.last <= _CONVERGED:
            there = next(point.samples for point in self.points if point.typical >= 1 - _CONVERGED)
            return max(there, _FEWEST)
        # Each doubling adds less than the one before; how much less, the last ones tell.
        if len(growths) < 3:
            return None
        falling = (growths[-1] / max(growths[-3], 1e-9)) ** 0.5
        if falling >= 1:
            return None
        doublings = math.ceil(math.log(_CONVERGED / self.last) / math.log(falling))
        return total * 2**doublings if doublings <= 10 else None


def growth_of(seen: Seen) -> Growth:
    """How ranges grew with the samples seen."""
    return Growth(*seen.shares())


def size_findings(samples: int, growth: Growth, method: str, *, spoilt: bool) -> Iterator[CheckFinding]:
    """Whether there are too few samples.

    Args:
        samples: How many there are.
        growth: How ranges grew with them.
        method: Calibration method.
        spoilt: Whether single samples set ranges wrongly, so that their growth tells nothing.
    """
    add = "add samples" if growth.enough is None else f"give about {growth.enough} samples"
    if growth.last is not None and growth.last > _GROWING and not spoilt:
        grown = f"ranges still grow by {100 * growth.last:.0f} % when samples are doubled"
        text = f"{counted(samples, 'sample')} {'is' if samples == 1 else 'are'} too few for {method}: {grown}"
        yield CheckFinding("too_few", "fault", text, add, weight=growth.last)
    elif samples < _FEWEST:
        unknown = "; how ranges grow cannot be seen" if growth.last is None else ""
        text = f"{counted(samples, 'sample')} {'is' if samples == 1 else 'are'} too few for {method}{unknown}"
        yield CheckFinding("too_few", "fault", text, f"give at least {_FEWEST}, better 32 to 100", weight=1.0)
    elif growth.last is not None and growth.last > 2 * _CONVERGED and not spoilt:
        text = f"ranges still grow by {100 * growth.last:.0f} % when samples are doubled"
        yield CheckFinding("too_few", "remark", text, add, weight=growth.last)


def influence_findings(rows: Sequence[RangeRow], names: Sequence[str], *, exact: bool) -> Iterator[CheckFinding]:
    """Samples that alone set the ranges of tensors.

    Args:
        rows: All tensors.
        names: Of the samples.
        exact: Whether codes cover the smallest and largest value; other methods are not led by them.
    """
    if len(names) < 3:
        return
    for sample in dict.fromkeys(row.lone_sample for row in rows if row.lone_sample):
        own = [row for row in rows if row.lone_sample == sample and row.lone_factor >= _LONE]
        if not own:
            continue
        own.sort(key=lambda row: -row.lone_factor)
        worst = own[0]
        much = worst.lone_factor >= _LONE_ONCE or len(own) >= max(1.0, _LONE_SHARE * len(rows))
        size = f"{worst.lone_factor:.2g}" if math.isfinite(worst.lone_factor) else "infinitely many"
        others = f" and {counted(len(own) - 1, 'more tensor')}" if len(own) > 1 else ""
        yield CheckFinding(
            "influence",
            "fault" if much and exact else "remark",
            f"sample {sample} alone makes the range of {worst.tensor!r} {size} times as wide{others}",
            "look at it, and remove it if it is no input that the network must handle; or calibrate by percentile "
            "or mse, which cut off single values",
            weight=min(worst.lone_factor, 1e9),
            samples=(sample,),
            tensors=tuple(row.tensor for row in own),
        )


def saturation_findings(rows: Sequence[RangeRow], held_out: HeldOutRecord, samples: int) -> Iterator[CheckFinding]:
    """Tensors whose ranges are too narrow for held-out samples, beyond what chance gives."""
    # Each side of each tensor is a trial of its own.
    limit = _CHANCE / max(1, len(rows)) ** 0.5
    found = []
    for place, row in enumerate(rows):
        chance = min(chance_of_exceeding(samples, held_out.count, int(side[place])) for side in held_out.exceeding)
        more = (row.outside or 0.0) - row.outside_before
        if chance < limit and (more >= _OUTSIDE or row.overshoot >= _OVERSHOOT):
            found.append((more, row))
    if not found:
        return
    found.sort(key=lambda pair: (-pair[0], -pair[1].overshoot))
    listed = ", ".join(f"{row.tensor} ({100 * (row.outside or 0):.2g} %)" for _, row in found[:_MOST_NAMED])
    ranges, are = ("the range", "is") if len(found) == 1 else ("ranges", "are")
    yield CheckFinding(
        "saturation",
        "fault",
        f"{ranges} of {len(found)} of {counted(len(rows), 'tensor')} {are} too narrow for held-out samples; "
        f"values cut off: {listed}",
        "add samples like those to the set",
        weight=found[0][0] + len(found) / len(rows),
        tensors=tuple(row.tensor for _, row in found),
    )


def range_rows(
    tensors: Sequence[str],
    seen: Seen,
    growth: Growth,
    *,
    covered: Ranges,
    held_out: HeldOutRecord | None,
    names: Sequence[str],
) -> tuple[RangeRow, ...]:
    """The range of each tensor, and all that is known of it."""
    lone, factors = seen.record.lone()
    outside = None if held_out is None or not held_out.count else held_out.outside()
    overshoot = np.zeros(len(tensors)) if held_out is None or not held_out.count else held_out.overshoot()
    return tuple(
        RangeRow(
            tensor=tensor,
            low=float(covered.low[place]),
            high=float(covered.high[place]),
            half=float(growth.halves[place]),
            lone_sample=names[lone[place]] if lone[place] >= 0 else "",
            lone_factor=float(factors[place]),
            outside=None if outside is None else float(outside[place]),
            outside_before=float(covered.outside[place]),
            overshoot=float(overshoot[place]),
            exceeding=0 if held_out is None else int(held_out.exceeding[:, place].max()),
        )
        for place, tensor in enumerate(tensors)
    )
