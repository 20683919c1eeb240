"""Small tensors, such as the scores of two classes: one sample says too little, several tell them apart."""

import math
from collections.abc import Collection, Sequence

import numpy as np

from roundoff.align.layout import Floats
from roundoff.align.pairing import Layout, Match
from roundoff.align.usual_layout import UsualLayout
from roundoff.align.values import SURE, SampleSide

MOST_SAMPLES = 16
"""So many samples are read at most: a model runs once for each."""

_SMALL = 64
"""Tensors of more elements are told apart by one sample."""

_AGREES = 0.01
"""What agrees leaves no more than this part of what the tensor varies by from sample to sample."""

_BEYOND_CHANCE = 12.0
"""Log-odds against so close an agreement by chance, one degree of freedom for each sample that varies."""

_CLEARLY = 10.0
"""Another tensor that leaves less than so many times as much is a rival."""

_SAME = 1e-9
"""Tensors of the reference that differ by less than this are one under two names."""

_SETTLED = 0.95
_SAID = ("alias", "origin", "name", "normalized")


def settled_by_samples(
    found: Sequence[Match],
    sides: Sequence[tuple[SampleSide, SampleSide]],
    *,
    layout: UsualLayout,
    outputs: Collection[str],
) -> list[Match]:
    """The matches; small tensors in doubt belong to what their values follow over several samples.

    Args:
        found: Matches so far.
        sides: Reference and candidate in each sample.
        layout: How most of the candidate is stored.
        outputs: What the reference hands out: of tensors with the same values, the one that matters.
    """
    if len(sides) < 2:
        return list(found)
    ours, theirs = (side.tensors for side in sides[0])
    settled = [match for match in found if match.how in _SAID or match.confidence >= SURE]
    taken = {match.reference for match in settled}, {match.candidate for match in settled}
    fits = {
        candidate: {
            reference: fit.layout
            for reference, info in enumerate(ours)
            if reference not in taken[0]
            and info.size == stored.size
            and "float" in info.dtype
            and (fit := layout.fit(info.shape, stored.shape)) is not None
        }
        for candidate, stored in enumerate(theirs)
        if candidate not in taken[1] and 0 < stored.size <= _SMALL and "float" in stored.dtype
    }
    fits = {candidate: each for candidate, each in fits.items() if each}
    exact, stored_values = _read(sides[:MOST_SAMPLES], fits)
    doubtful = {match.candidate: match.reference for match in found if match not in settled}
    # From the end: outputs come last on both sides.
    for candidate in sorted(fits, reverse=True):
        options = {at: each for at, each in fits[candidate].items() if at not in taken[0] and at in exact}
        alike = _followed(options, exact, stored_values.get(candidate))
        if not alike:
            continue
        named = [at for at in alike if ours[at].name in outputs]
        own = doubtful.get(candidate, -1)
        reference = own if own in alike else (named or alike)[-1]
        settled.append(Match(reference, candidate, "value", _SETTLED, options[reference]))
        taken[0].add(reference)
        taken[1].add(candidate)
    return settled + [
        match
        for match in found
        if match not in settled and match.reference not in taken[0] and match.candidate not in taken[1]
    ]


def _read(
    sides: Sequence[tuple[SampleSide, SampleSide]], fits: dict[int, dict[int, Layout | None]]
) -> tuple[dict[int, list[Floats]], dict[int, list[Floats]]]:
    """Both sides by index, one array for each sample; tensors that cannot be read in all of them are left out."""
    wanted = sorted({at for each in fits.values() for at in each}), sorted(fits)
    read: tuple[dict[int, list[Floats]], dict[int, list[Floats]]] = ({}, {})
    for pair in sides if fits else ():
        for side, names, held in zip(pair, wanted, read, strict=True):
            for at in names:
                values = side.read(at)
                if values is not None and values.shape == side.tensors[at].shape:
                    held.setdefault(at, []).append(values.astype(np.float64))
    exact, stored = ({at: each for at, each in held.items() if len(each) == len(sides)} for held in read)
    return exact, stored


def _followed(
    options: dict[int, Layout | None], exact: dict[int, list[Floats]], stored: list[Floats] | None
) -> list[int]:
    """Tensors of the reference that a stored one follows: none, one, or several that hold the same."""
    if stored is None or not options:
        return []
    told = {at: _rest(exact[at], stored, layout) for at, layout in options.items()}
    best = min(told, key=lambda at: told[at][0])
    rest, effective = told[best]
    if rest > _AGREES or -0.5 * effective * math.log(max(rest, _SAME)) < _BEYOND_CHANCE:
        return []
    near = [at for at, (other, _) in told.items() if other <= _CLEARLY * max(rest, _SAME)]
    same = [at for at in near if _rest(exact[best], exact[at])[0] <= _SAME]
    return same if same == near else []


def _rest(exact: list[Floats], stored: list[Floats], layout: Layout | None = None) -> tuple[float, float]:
    """What is left of the variation of one tensor when the other is taken away, and how many samples vary."""
    ours = np.stack([each.ravel() for each in exact])
    theirs = np.stack([(each if layout is None else layout.apply(each)).ravel() for each in stored])
    finite = np.isfinite(ours).all(axis=1)
    ours, theirs = ours[finite], theirs[finite]
    if len(ours) < 2 or not np.isfinite(theirs).all():
        return math.inf, 0.0
    spread = np.square(ours - ours.mean(axis=0)).sum(axis=1)
    energy = float(spread.sum())
    if not energy:
        return math.inf, 0.0
    # The mean of the samples takes one of them.
    varying = energy**2 / float(np.square(spread).sum()) * (1 - 1 / len(ours))
    return float(np.square(ours - theirs).sum()) / energy, varying
