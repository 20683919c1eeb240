"""Findings on samples by themselves: broken, blank, scaled otherwise, the same twice, of too few classes."""

from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import islice

import numpy as np

from roundoff.analysis.calibration_check.alike import (
    distances_to,
    exact_groups,
    hardly_differ,
    near_groups,
    nearest_distances,
)
from roundoff.analysis.calibration_check.held_out import chance_of_exceeding
from roundoff.analysis.calibration_check.inputs import InputRecord, SampleFacts
from roundoff.analysis.calibration_check.slips import not_told_apart, slip_between
from roundoff.core.calibration_check import CheckFinding, InputFacts
from roundoff.core.tensors import Array
from roundoff.core.wording import counted

__all__ = [
    "alike_findings",
    "blank_findings",
    "broken_findings",
    "class_findings",
    "prepared_otherwise",
    "scaling_findings",
    "strange_findings",
]

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
        listed = _listed(broken, names)
        yield CheckFinding(
            "nonfinite",
            "fault",
            f"{counted(len(broken), 'sample')} with NaN or infinite values: {listed}",
            "remove them, or make them again; they were left out of everything below",
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
    for found, words in ((zero, "all zero"), (constant, "constant"), (flat, "almost constant")):
        if found:
            yield CheckFinding(
                "blank",
                "fault",
                f"{counted(len(found), 'sample')} {'is' if len(found) == 1 else 'are'} {words}: "
                f"{_listed(found, names)}",
                "remove them: they say nothing of real inputs and move every statistic but the extremes",
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
            size = f"{factor:.3g} times as large" if factor > 1 else f"{1 / factor:.3g} times as small"
            yield CheckFinding(
                "scaling",
                "fault",
                f"{counted(len(found), 'sample')} of input {name!r} {'is' if len(found) == 1 else 'are'} {size} "
                f"as the others: {_listed(found, names)}",
                "prepare all samples in the same way (0..1 or 0..255, mean, standard deviation), or remove them",
                weight=abs(np.log(factor)),
                samples=_names(found, names),
            )


def alike_findings(
    fed: InputRecord, names: Sequence[str]
) -> tuple[list[CheckFinding], tuple[tuple[str, ...], ...]]:
    """Samples that are there twice; and all groups of such."""
    exact, near = exact_groups(fed.samples), near_groups(fed.samples)
    findings = []
    for groups, words, limit in ((exact, "the same as", _EXACT_SHARE), (near, "nearly the same as", _NEAR_SHARE)):
        surplus = sum(len(group) - 1 for group in groups)
        if surplus:
            first = groups[0]
            share = surplus / len(fed.samples)
            findings.append(
                CheckFinding(
                    "duplicates",
                    "fault" if share >= limit else "remark",
                    f"{counted(surplus, 'sample')} {'is' if surplus == 1 else 'are'} {words} others, such as "
                    f"{names[first[0]]} and {names[first[1]]}",
                    f"remove them: the set counts as {len(fed.samples) - surplus} samples",
                    weight=share,
                    samples=tuple(names[index] for group in groups for index in group),
                )
            )
    if not near and hardly_differ(fed.samples):
        findings.append(
            CheckFinding(
                "duplicates",
                "fault",
                "all samples are nearly the same: they differ by far less than what they have in common",
                "take samples of different scenes; ranges of one scene do not hold for others",
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
        yield CheckFinding(
            "coverage",
            "fault" if enough else "remark",
            f"no sample of {absent} class{'' if absent == 1 else 'es'} of {total}: {listed}",
            "add samples of these classes" + ("" if enough else f"; {_PER_CLASS * total} samples could have all"),
            weight=absent / total,
        )
    number, most = counts.most_common(1)[0]
    if total > 2 and most > len(labels) * max(0.5, 3 / total) and len(labels) >= 2 * total:
        yield CheckFinding(
            "coverage",
            "fault",
            f"{most} of {len(labels)} samples are of class {number}, of {total} classes",
            "take about as many samples of each class",
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
            f"{counted(len(shared), 'held-out sample')} {'is' if len(shared) == 1 else 'are'} in the set, too: "
            f"{_listed(shared, other_names)}",
            "hold out other samples; these prove nothing",
            samples=_names(shared, other_names),
        )
    within, distances = nearest_distances(fed.samples), distances_to(fed.samples, others.samples)
    if within.size > 2 and distances.size:
        far = [each for each, distance in zip(others.samples, distances, strict=False) if distance > within.max()]
        if chance_of_exceeding(within.size, distances.size, len(far)) < _CHANCE:
            yield CheckFinding(
                "coverage",
                "fault",
                f"{len(far)} of {distances.size} held-out samples are unlike every sample of the set: "
                f"{_listed(far, other_names)}",
                "add samples of their kind to the set",
                weight=len(far) / distances.size,
                samples=_names(far, other_names),
            )
    yield from _other_scale(fed, others)


def prepared_otherwise(fed: InputRecord, others: InputRecord) -> bool:
    """Whether held-out samples are surely prepared otherwise: by a slip that is known, or far from this size."""
    return any(
        ours.dtype.startswith("float")
        and (bool(slip_between(ours, theirs)) or not 1 / _FAR < _size_ratio(ours, theirs) < _FAR)
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
        slip = slip_between(ours, theirs)
        if slip:
            given, wanted = slip[0].given.words, slip[0].wanted.words
            # Which way it is among those that the numbers cannot tell apart, the reader knows.
            near = dict.fromkeys(each.wanted.words for each in slip if each.wanted.words != wanted)
            also = not_told_apart(near)
            yield CheckFinding(
                "scaling",
                "fault",
                f"input {ours.name!r} is prepared otherwise than in held-out samples: data look like "
                f"{given}, held-out samples like {wanted}",
                f"make {wanted} of pixels x from 0 to 255, if the network is fed so{also}",
                weight=abs(float(np.log(ratio))),
            )
            continue
        if 1 / 3 < ratio < 3 and abs(mean - other_mean) < max(std, other_std):
            continue
        yield CheckFinding(
            "scaling",
            "fault",
            f"input {ours.name!r} has mean {mean:.3g} and standard deviation {std:.3g} in the set, but "
            f"{other_mean:.3g} and {other_std:.3g} in held-out samples",
            "prepare both in the same way: one of them lacks a scale or a mean, or has it twice",
            weight=abs(float(np.log(ratio))),
        )


def _usual_stds(samples: Sequence[SampleFacts], inputs: int) -> list[float]:
    stds = [[each.stats[place].std for each in samples] for place in range(inputs)]
    return [float(np.median(each)) if each else 0.0 for each in stds]


def _names(samples: Sequence[SampleFacts], names: Sequence[str]) -> tuple[str, ...]:
    return tuple(names[each.index] for each in samples)


def _listed(samples: Sequence[SampleFacts], names: Sequence[str]) -> str:
    listed = ", ".join(_names(samples[:_MOST_NAMED], names))
    return listed + (f" and {len(samples) - _MOST_NAMED} more" if len(samples) > _MOST_NAMED else "")
