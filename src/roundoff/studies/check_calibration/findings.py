"""Findings on samples by themselves: broken, blank, scaled otherwise, the same twice, of too few classes."""

import itertools
import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from itertools import islice

import numpy as np

from roundoff.core.tensors import Array
from roundoff.graph.load import Model
from roundoff.messages.message import Argument, joined, message, some
from roundoff.messages.numbers import percent_number
from roundoff.studies.check_calibration.preparation import (
    FAR,
    mismatch_between,
    mismatch_by_labels,
    mismatch_by_statistics,
    with_alternatives,
)
from roundoff.studies.check_calibration.ranges import (
    TWICE,
    CalibratedRanges,
    HeldOutRecord,
    InputRecord,
    RangeObservation,
    SampleFacts,
    chance_of_exceeding,
    distances_to,
    exact_groups,
    hardly_differ,
    near_groups,
    nearest_distances,
)
from roundoff.studies.check_calibration.result import (
    CheckFinding,
    ConvergencePoint,
    InputFacts,
    RangeRow,
    Severity,
)

_MOST_NAMED = 3
# A sample is almost constant when it varies by less than this share of what samples usually do ...
_FLAT = 0.05
# ... unless it also is that much smaller: then it was scaled otherwise. By how much others must differ for that.
_SCALED = 8.0
# Exact duplicates are a fault from this share of the set on, near ones from that.
_EXACT_SHARE, _NEAR_SHARE = 0.02, 0.05
# No other scenes spread values so many times as far.
_FAR = 30.0
# With at least so many samples for each class, all classes can be there.
_PER_CLASS = 3
_CHANCE = 1e-4


def broken_findings(fed: InputRecord, names: Sequence[str]) -> Iterator[CheckFinding]:
    """Samples with NaN or infinite values."""
    broken = [each for each in fed.samples if each.nonfinite]
    if broken:
        yield CheckFinding(
            "nonfinite",
            "fault",
            message("check_calibration.broken_samples", count=len(broken), names=_listed(broken, names)),
            message("check_calibration.remove_broken"),
            samples=_names(broken, names),
        )


def blank_findings(fed: InputRecord, names: Sequence[str]) -> Iterator[CheckFinding]:
    """Samples that hold the same value everywhere, or almost.

    An input that is constant in most samples, such as a mask, is meant to be so.
    """
    whole = [each for each in fed.samples if not each.nonfinite]
    zero, constant, flat = [], [], []
    usual = _usual_stds(whole, len(fed.names))
    places = [place for place, std in enumerate(usual) if std > 0] or range(len(usual))
    for each in whole:
        # A single number cannot vary, and says nothing.
        stats = [(each.stats[place], usual[place]) for place in places if each.stats[place].finite > 1]
        if not stats:
            continue
        if all(one.abs_max == 0 for one, _ in stats):
            zero.append(each)
        elif all(one.minimum == one.maximum for one, _ in stats):
            constant.append(each)
        elif all(one.std < _FLAT * std and one.std < _FLAT * one.abs_max for one, std in stats):
            flat.append(each)
    for found, key in ((zero, "zero"), (constant, "constant"), (flat, "almost_constant")):
        if found:
            yield CheckFinding(
                "blank",
                "fault",
                message(f"check_calibration.{key}_samples", count=len(found), names=_listed(found, names)),
                message("check_calibration.remove_flat"),
                weight=len(found),
                samples=_names(found, names),
            )


def scaling_findings(fed: InputRecord, names: Sequence[str]) -> Iterator[CheckFinding]:
    """Samples whose values are many times as large, or as small, as those of most others."""
    whole = [each for each in fed.samples if not each.nonfinite]
    usual = _usual_stds(whole, len(fed.names))
    for place, name in enumerate(fed.names):
        if not usual[place] > 0 or len(whole) < 4:
            continue
        odd = []
        for each in whole:
            std = each.stats[place].std
            ratio = std / usual[place]
            # What hardly varies against its own size is blank, and not scaled.
            small = ratio < 1 / _SCALED and std > _FLAT * each.stats[place].abs_max
            if each.stats[place].finite > 1 and (ratio > _SCALED or small):
                odd.append((each, ratio))
        if odd:
            found = [each for each, _ in odd]
            factor = float(np.median([ratio for _, ratio in odd]))
            key = "check_calibration.larger_samples" if factor > 1 else "check_calibration.smaller_samples"
            times = f"{max(factor, 1 / factor):.3g}"
            yield CheckFinding(
                "scaling",
                "fault",
                message(key, count=len(found), input=name, times=times, names=_listed(found, names)),
                message("check_calibration.same_way"),
                weight=abs(np.log(factor)),
                samples=_names(found, names),
            )


def alike_findings(
    fed: InputRecord, names: Sequence[str]
) -> tuple[list[CheckFinding], tuple[tuple[str, ...], ...]]:
    """Samples that are there twice; and all groups of such."""
    exact, near = exact_groups(fed.samples), near_groups(fed.samples)
    findings = []
    for groups, key, limit in ((exact, "same", _EXACT_SHARE), (near, "nearly_same", _NEAR_SHARE)):
        surplus = sum(len(group) - 1 for group in groups)
        if surplus:
            first = groups[0]
            share = surplus / len(fed.samples)
            findings.append(
                CheckFinding(
                    "duplicates",
                    "fault" if share >= limit else "remark",
                    message(
                        f"check_calibration.{key}_samples",
                        count=surplus,
                        name=names[first[0]],
                        other=names[first[1]],
                    ),
                    message("check_calibration.remove_counts", count=len(fed.samples) - surplus),
                    weight=share,
                    samples=tuple(names[index] for group in groups for index in group),
                )
            )
    if not near and hardly_differ(fed.samples):
        findings.append(
            CheckFinding(
                "duplicates",
                "fault",
                message("check_calibration.all_nearly_same"),
                message("check_calibration.different_scenes"),
                weight=1.0,
            )
        )
    merged = tuple(tuple(names[index] for index in group) for group in (*exact, *near))
    return findings, merged


def class_findings(labels: Array, classes: int | None, names: Sequence[str]) -> Iterator[CheckFinding]:
    """Classes that no sample, or nearly every sample, is of.

    Args:
        labels: The class of each sample.
        classes: How many there are; None when only the labels say.
        names: Of the samples.
    """
    counts = Counter(labels.tolist())
    total = max(classes or 0, max(counts) + 1)
    # A label may be any number, such as one of a hash: classes are counted, not gone through.
    absent = total - len(counts)
    if absent:
        first = islice((number for number in range(total) if number not in counts), 8)
        listed = ", ".join(map(str, first)) + (" ..." if absent > 8 else "")
        enough = len(labels) >= _PER_CLASS * total
        fix = [message("check_calibration.add_classes")]
        if not enough:
            fix.append(message("check_calibration.could_have_all", count=_PER_CLASS * total))
        yield CheckFinding(
            "coverage",
            "fault" if enough else "remark",
            message("check_calibration.no_class", count=absent, all=total, names=listed),
            joined(fix),
            weight=absent / total,
        )
    number, most = counts.most_common(1)[0]
    if total > 2 and most > len(labels) * max(0.5, 3 / total) and len(labels) >= 2 * total:
        yield CheckFinding(
            "coverage",
            "fault",
            message("check_calibration.mostly_class", count=most, samples=len(labels), number=number, all=total),
            message("check_calibration.each_class"),
            weight=most / len(labels),
            samples=tuple(name for name, label in zip(names, labels, strict=False) if label == number)[:8],
        )


def strange_findings(
    fed: InputRecord, others: InputRecord, names: Sequence[str], other_names: Sequence[str]
) -> Iterator[CheckFinding]:
    """Held-out samples that are unlike all samples of the set, are in it, or are scaled otherwise."""
    known = {each.digest for each in fed.samples}
    shared = [each for each in others.samples if each.digest in known]
    if shared:
        yield CheckFinding(
            "coverage",
            "remark",
            message("check_calibration.held_in_set", count=len(shared), names=_listed(shared, other_names)),
            message("check_calibration.hold_others"),
            samples=_names(shared, other_names),
        )
    within, distances = nearest_distances(fed.samples), distances_to(fed.samples, others.samples)
    if within.size > 2 and distances.size:
        far = [each for each, distance in zip(others.samples, distances, strict=False) if distance > within.max()]
        if chance_of_exceeding(within.size, distances.size, len(far)) < _CHANCE:
            listed = _listed(far, other_names)
            yield CheckFinding(
                "coverage",
                "fault",
                message("check_calibration.unlike", count=len(far), all=distances.size, names=listed),
                message("check_calibration.add_kind"),
                weight=len(far) / distances.size,
                samples=_names(far, other_names),
            )
    yield from _other_scale(fed, others)


def prepared_otherwise(fed: InputRecord, others: InputRecord) -> bool:
    """Whether held-out samples are surely prepared otherwise: by a slip that is known, or far from this size."""
    return any(
        ours.dtype.startswith("float")
        and (bool(mismatch_between(ours, theirs)) or not 1 / _FAR < _size_ratio(ours, theirs) < _FAR)
        for ours, theirs in zip(fed.inputs(), others.inputs(), strict=True)
    )


def _size_ratio(ours: InputFacts, theirs: InputFacts) -> float:
    """How many times as far values spread as others; 1 where some do not spread."""
    std, other_std = float(np.mean(ours.stds)), float(np.mean(theirs.stds))
    return std / other_std if std > 0 and other_std > 0 else 1.0


def _other_scale(fed: InputRecord, others: InputRecord) -> Iterator[CheckFinding]:
    for ours, theirs in zip(fed.inputs(), others.inputs(), strict=True):
        if not ours.dtype.startswith("float"):
            continue
        mean, other_mean = float(np.mean(ours.means)), float(np.mean(theirs.means))
        std, other_std = float(np.mean(ours.stds)), float(np.mean(theirs.stds))
        if not std > 0 or not other_std > 0:
            continue
        ratio = std / other_std
        slip = mismatch_between(ours, theirs)
        if slip:
            given, wanted = slip[0].given.words, slip[0].wanted.words
            # Which way it is among those that the numbers cannot tell apart, the reader knows.
            near = dict.fromkeys(each.wanted.words for each in slip if each.wanted.words != wanted)
            yield CheckFinding(
                "scaling",
                "fault",
                message("check_calibration.prepared_otherwise", input=ours.name, given=given, wanted=wanted),
                with_alternatives(message("check_calibration.make_if", wanted=wanted), near),
                weight=abs(float(np.log(ratio))),
            )
            continue
        if 1 / 3 < ratio < 3 and abs(mean - other_mean) < max(std, other_std):
            continue
        numbers = {"mean": mean, "std": std, "other_mean": other_mean, "other_std": other_std}
        moments = {name: f"{number:.3g}" for name, number in numbers.items()}
        yield CheckFinding(
            "scaling",
            "fault",
            message("check_calibration.means_differ", input=ours.name, **moments),
            message("check_calibration.prepare_both"),
            weight=abs(float(np.log(ratio))),
        )


def _usual_stds(samples: Sequence[SampleFacts], inputs: int) -> list[float]:
    stds = [[each.stats[place].std for each in samples] for place in range(inputs)]
    return [float(np.median(each)) if each else 0.0 for each in stds]


def _names(samples: Sequence[SampleFacts], names: Sequence[str]) -> tuple[str, ...]:
    return tuple(names[each.index] for each in samples)


def _listed(samples: Sequence[SampleFacts], names: Sequence[str]) -> Argument:
    return some(_names(samples, names), _MOST_NAMED)


# Findings on ranges: still growing, set by one sample alone, too narrow for other samples.

# Vendors ask for 10 to 20 samples at the least (Ascend 10, RKNN 20, Pulsar2 starts at 32).
_FEWEST = 10
# Ranges have converged when twice as many samples widen that of the median tensor by less than the first; a fault
# is the second, a quarter of a bit.
_CONVERGED, _GROWING = 0.05, 0.18
# A sample that widens a range by two takes a bit from all others. In one tensor of many that may be chance.
_LONE, _LONE_ONCE, _LONE_SHARE = 2.0, 4.0, 0.05
# Beyond chance, and enough to matter.
_CHANCE_JUDGING_RANGES, _OUTSIDE, _OVERSHOOT = 1e-4, 0.001, 0.05


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
        # Each doubling adds less than the one before; how much less, the last ones tell: growth falls by a factor
        # at each doubling, so that after n more it is last * falling^n, which must come down to what counts as
        # converged.
        if len(growths) < 3:
            return None
        falling = (growths[-1] / max(growths[-3], 1e-9)) ** 0.5
        if falling >= 1:
            return None
        doublings = math.ceil(math.log(_CONVERGED / self.last) / math.log(falling))
        return total * 2**doublings if doublings <= 10 else None


def growth_of(seen: RangeObservation) -> Growth:
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
    add = message("check_calibration.add_samples")
    if growth.enough is not None:
        add = message("check_calibration.give_about", count=growth.enough)
    share = "" if growth.last is None else f"{100 * growth.last:.0f}"
    if growth.last is not None and growth.last > _GROWING and not spoilt:
        text = message("check_calibration.too_few_grown", count=samples, method=method, share=share)
        yield CheckFinding("too_few", "fault", text, add, weight=growth.last)
    elif samples < _FEWEST:
        text = message("check_calibration.too_few", count=samples, method=method)
        if growth.last is None:
            text = joined((text, message("check_calibration.growth_unseen")))
        fix = message("check_calibration.at_least", least=_FEWEST)
        yield CheckFinding("too_few", "fault", text, fix, weight=1.0)
    elif growth.last is not None and growth.last > 2 * _CONVERGED and not spoilt:
        text = message("check_calibration.still_grow", share=share)
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
        size: Argument = f"{worst.lone_factor:.2g}"
        if math.isinf(worst.lone_factor):
            size = message("check_calibration.infinitely_many")
        gaps: dict[str, Argument] = {"sample": sample, "tensor": worst.tensor, "size": size}
        text = message("check_calibration.lone", **gaps)
        if len(own) > 1:
            text = message("check_calibration.lone_more", **gaps, count=len(own) - 1)
        yield CheckFinding(
            "influence",
            "fault" if much and exact else "remark",
            text,
            message("check_calibration.look_remove"),
            weight=min(worst.lone_factor, 1e9),
            samples=(sample,),
            tensors=tuple(row.tensor for row in own),
        )


def saturation_findings(rows: Sequence[RangeRow], held_out: HeldOutRecord, samples: int) -> Iterator[CheckFinding]:
    """Tensors whose ranges are too narrow for held-out samples, beyond what chance gives."""
    # Each side of each tensor is a trial of its own.
    limit = _CHANCE_JUDGING_RANGES / max(1, len(rows)) ** 0.5
    found = []
    for place, row in enumerate(rows):
        chance = min(chance_of_exceeding(samples, held_out.count, int(side[place])) for side in held_out.exceeding)
        more = (row.outside or 0.0) - row.outside_before
        if chance < limit and (more >= _OUTSIDE or row.overshoot >= _OVERSHOOT):
            found.append((more, row))
    if not found:
        return
    found.sort(key=lambda pair: (-pair[0], -pair[1].overshoot))
    listed = ", ".join(f"{row.tensor} ({percent_number(row.outside or 0)} %)" for _, row in found[:_MOST_NAMED])
    key = "check_calibration.too_narrow_one" if len(found) == 1 else "check_calibration.too_narrow"
    yield CheckFinding(
        "saturation",
        "fault",
        message(key, count=len(found), all=len(rows), names=listed),
        message("check_calibration.add_like"),
        weight=found[0][0] + len(found) / len(rows),
        tensors=tuple(row.tensor for _, row in found),
    )


def range_rows(
    tensors: Sequence[str],
    seen: RangeObservation,
    growth: Growth,
    *,
    covered: CalibratedRanges,
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


# Findings on how samples were prepared, by what the model itself expects.


def preparation_findings(
    model: Model,
    feeds: Sequence[Mapping[str, Array]],
    facts: Sequence[InputFacts],
    *,
    labels: Sequence[int] | None,
    threads: int | None,
) -> Iterator[CheckFinding]:
    """Whether samples were prepared as in training.

    Args:
        model: The float model as it was exported.
        feeds: A few samples.
        facts: What all of them are like.
        labels: The right classes of these few, if known.
        threads: Threads to use.
    """
    if not feeds:
        return
    slip = mismatch_by_statistics(model, feeds, threads=threads)
    if slip is not None:
        known, before, how = slip.how is not None and slip.usual, f"{slip.before:.2g}", slip.how
        text = message("check_calibration.not_as_trained", node=slip.node, value=before)
        fix = message("check_calibration.prepare")
        if how is not None:
            fix = message("check_calibration.prepare_how", how=how.words, before=before, after=f"{slip.after:.2g}")
            fix = with_alternatives(fix, how.also)
        if how is not None and how.seen:
            gaps = {"given": how.seen, "wanted": how.wanted}
            text = message("check_calibration.not_as_trained_like", **gaps, node=slip.node, value=before)
        severity: Severity = "fault" if known or slip.before > FAR else "remark"
        yield CheckFinding("scaling", severity, text, fix, weight=slip.before)
    right = None if labels is None else mismatch_by_labels(model, feeds, labels, threads=threads)
    if right is not None and right.how is not None:
        how, shares = right.how, {"before": f"{100 * right.before:.0f}", "after": f"{100 * right.after:.0f}"}
        text = message("check_calibration.right", **shares, count=len(feeds))
        if how.seen:
            gaps = {"given": how.seen, "wanted": how.wanted}
            text = message("check_calibration.right_like", **shares, count=len(feeds), **gaps)
        yield CheckFinding("scaling", "fault", text, with_alternatives(how.words, how.also), weight=right.after)
    for each in facts:
        if each.looks_like == TWICE:
            yield CheckFinding(
                "scaling",
                "fault",
                message(
                    "check_calibration.looks_twice",
                    input=each.name,
                    low=f"{each.low:.3g}",
                    high=f"{each.high:.3g}",
                    what=TWICE,
                ),
                message("check_calibration.divide_once"),
                weight=10.0,
            )
