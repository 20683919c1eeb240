"""The control of a proof: the same kind of change elsewhere, and samples that it was not chosen on.

A network whose loss is that of one sample near a decision gets better or worse with any change at all. An
intervention proves a cause only when others of its kind do not do as much and it is not one sample that says so,
or when every sample confirms it.
"""

import math
from collections.abc import Callable, Sequence

import numpy as np

from roundoff.core.quantizers import Quantizer
from roundoff.diagnosis.ideal import at_its_range
from roundoff.diagnosis.interventions import reach, with_bits, with_range, with_slice_ranges
from roundoff.diagnosis.loss import Loss
from roundoff.diagnosis.result import Control
from roundoff.diagnosis.subject import Case, Fixes, Suspect, loss_measures, same_grid
from roundoff.measure.inference import paired_probability

# So many changes elsewhere: where half of all would do as much, one chance in 64 that none of them shows it.
_ELSEWHERE = 6
# What elsewhere takes away this part of what was found here is no worse a culprit.
_AS_MUCH = 0.5
# A difference between pairs that is rarer than this by chance is none.
_CHANCE = 0.05
# So many in a row get better by the toss of a coin as often as that: four of four. Of fewer samples each may be
# the one that counts.
_BY_COIN, _FEWEST = 0.07, 4
# Of so many samples two may be luck, of fewer one: without them the loss must still be lower by so much. With 16,
# three of 70 networks whose ranges are off by chance, asked with 8 to 16 samples, had two samples that said so.
_MANY, _STILL_DB = 8, 2.0
# Samples that it was not chosen on must lose at least this part of what all of them do ...
_REPEATED = 0.25
# ... and are harmed when they lose this much more than before.
_HARMED_DB = 0.5
# Where nothing would change, a range is widened by so little that nothing but rounding can come of it.
_NUDGE = 1.01


def controlled(case: Case, fixes: Fixes, *, out_of_time: Callable[[], bool]) -> Control | None:
    """What fixes do on samples they were not chosen on, and what the same kind of change does elsewhere.

    Args:
        case: The network, with everything mended that the fixes were measured with.
        fixes: What was put in the place of quantizers.
        out_of_time: Whether there is no time for it.

    Returns:
        The control; None without the time, or without anything to compare with.

    Raises:
        ModelFailed: The model cannot be run.
    """
    if out_of_time():
        return None
    before, after = case.loss(more=True), case.loss(fixes, more=True)
    pairs = before.sample_decibels(before.worst, after)
    probability = paired_probability(*pairs)
    unseen = _unseen(case, fixes)
    elsewhere = _elsewhere(case, fixes, out_of_time)
    if unseen is None and elsewhere is None:
        return None
    gained, repeated, harmed = before.value - after.value, False, False
    if unseen is not None:
        mine, theirs = unseen
        part = (mine.value - theirs.value) / mine.value if mine.value > 0 else 0.0
        repeated = part >= _REPEATED * gained / before.value if before.value > 0 else False
        harmed = theirs.excess_db(mine) > _HARMED_DB
    # Both are measured on the same few samples.
    few = case.loss().value - case.loss(fixes).value
    apart = elsewhere is None or elsewhere[0].value - elsewhere[1].value < _AS_MUCH * few
    sure = probability is not None and probability < _CHANCE and gained > 0
    better, worse = (int(np.count_nonzero(ours > theirs)) for ours, theirs in (pairs, pairs[::-1]))
    # What one sample of many gains may be luck, however much that is; with fewer there is nothing to ask.
    confirmed = sure or _by_coin(better, worse) < _BY_COIN or before.samples < _FEWEST
    confirmed = confirmed or (repeated and _without_best(before, after) >= _STILL_DB)
    # Where others do as much, this one is the best of several by chance as often as one of them is.
    tried = 1 if elsewhere is None else 1 + elsewhere[2]
    beyond = probability is not None and probability < _CHANCE / tried and gained > 0
    return Control(
        elsewhere=None if elsewhere is None else loss_measures(*elsewhere[:2])[0],
        others=0 if elsewhere is None else elsewhere[2],
        other_half=None if unseen is None else loss_measures(*unseen)[0],
        better=better,
        samples=before.samples,
        probability=probability,
        holds=not harmed and ((apart and confirmed) or (beyond and repeated)),
    )


def _without_best(before: Loss, after: Loss) -> float:
    """By how much a loss is lower, in decibels, without the samples that gain most: one, or two of many."""
    gains = before.sums[:, 2, before.worst] - after.sums[:, 2, before.worst]
    rest = sorted(np.argsort(gains)[: -(2 if gains.size >= _MANY else 1)].tolist())
    return before.of_samples(rest).excess_db(after.of_samples(rest))


def _by_coin(better: int, worse: int) -> float:
    """How often as many samples get better where each gets better or worse by the toss of a coin."""
    total = better + worse
    return sum(math.comb(total, count) for count in range(better, total + 1)) / 2.0**total


def _unseen(case: Case, fixes: Fixes) -> tuple[Loss, Loss] | None:
    """What is lost in one half of the samples, without fixes and with those that the other half asks for."""
    chosen, shown = case.runner.halves()
    if not chosen or not shown:
        return None
    asked = refitted(case, fixes, chosen)
    before, after = (case.runner.loss(case.quantizers(each), places=shown) for each in ({}, asked))
    return before, after


def refitted(case: Case, fixes: Fixes, places: Sequence[int]) -> Fixes:
    """Fixes with ranges that some of the samples have, where the ranges are those that all of them have."""
    facts, found = case.facts, dict(fixes)
    for suspect in facts.suspects:
        mine = [name for name in suspect.quantizers if fixes.get(name) is not None]
        if not mine or suspect.tensor not in facts.observed:
            continue
        whole, some = facts.value_range(suspect), facts.value_range(suspect, places)
        for name in mine:
            fixed = fixes[name]
            if fixed is not None and same_grid(fixed, with_range(fixed, *whole)):
                found[name] = with_range(fixed, *some)
    return found


def _elsewhere(case: Case, fixes: Fixes, out_of_time: Callable[[], bool]) -> tuple[Loss, Loss, int] | None:
    """What is lost before and after the best of some changes of the same kind, and at how many places they are."""
    facts = case.facts
    blamed = [each for each in facts.suspects if fixes.keys() & each.quantizers]
    kinds = {each.kind for each in blamed}
    others = [
        each
        for each in facts.suspects
        if each.kind in kinds and each not in blamed and not case.mended.keys() & each.quantizers
    ]
    example = next(
        ((facts.quantizers[name], fixed) for name, fixed in fixes.items() if name in facts.quantizers), None
    )
    if example is None or not others or not blamed:
        return None
    # As many at a time as were blamed, from all over the network.
    groups = max(1, min(_ELSEWHERE, len(others) // len(blamed)))
    best: Loss | None = None
    tried = 0
    for at in range(groups):
        members = others[at::groups]
        some = members[:: max(1, len(members) // len(blamed))][: len(blamed)]
        alike = {name: fixed for each in some for name, fixed in _alike(case, each, *example).items()}
        if not alike or out_of_time():
            continue
        tried += len(some)
        loss = case.loss(alike)
        best = loss if best is None or loss.value < best.value else best
    return None if best is None else (case.loss(), best, tried)


def _alike(case: Case, suspect: Suspect, original: Quantizer, fixed: Quantizer | None) -> Fixes:
    """The same kind of change at another suspect."""
    facts = case.facts
    if fixed is None:
        return case.in_float(suspect)
    members = [facts.quantizers[name] for name in suspect.quantizers]
    if fixed.spec.bits != original.spec.bits:
        return {each.name: with_bits(each, fixed.spec.bits) for each in members}
    if fixed.params.scale.size > 1 and original.params.scale.size == 1:
        slices = next(iter(facts.channel_ranges(suspect)), None)
        if slices is not None:
            # Other tensors of the same grid may have their channels along another axis.
            return {
                each.name: with_slice_ranges(each, *slices) if each.tensor == suspect.tensor else None
                for each in members
            }
    return {each.name: _at_its_values(case, suspect, each) for each in members}


def _at_its_values(case: Case, suspect: Suspect, quantizer: Quantizer) -> Quantizer:
    """A quantizer over the range that its values have, or a hair more where it has that."""
    facts = case.facts
    if quantizer.tensor in facts.weights:
        values = facts.values(quantizer.tensor)
        found = at_its_range(quantizer, values)
        return found if not same_grid(found, quantizer) else at_its_range(quantizer, values * np.float32(_NUDGE))
    known = suspect.tensor in facts.observed
    seen = facts.value_range(suspect, rarer=False) if known else reach(quantizer)
    found = with_range(quantizer, *seen)
    return found if not same_grid(found, quantizer) else with_range(quantizer, *(_NUDGE * end for end in seen))
