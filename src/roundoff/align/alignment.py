"""Pairing two sources: the user's word first, then names, then values, then their order."""

import contextlib
from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace

import numpy as np

from roundoff.align.layout import correlation, find_layout, positions, relabelled, seen_through, take
from roundoff.align.names import (
    behind_kind,
    by_node,
    check_aliases,
    match_by_ending,
    match_by_origin,
    match_by_spelling,
    other_forms,
    read_back,
)
from roundoff.align.pairing import Match, MatchedBy, NamedTensor, Pairing, TensorPair, pair_samples
from roundoff.align.sequence import ACTIVATIONS, doubted_by_kind, jointly_probable, match_by_order
from roundoff.align.small_tensors import MOST_SAMPLES, settled_by_samples
from roundoff.align.usual_layout import UsualLayout, usual_layout, with_usual_layout
from roundoff.align.values import SURE, SampleSide, match_by_value, reported
from roundoff.core.progress import SILENT, Progress
from roundoff.core.tensors import Array, TensorInfo, TensorSource
from roundoff.errors import BadInput, CannotAlign, RoundoffError
from roundoff.messages.message import english
from roundoff.tensors.stored import SomeTensors, runs_of

# Names that have moved: pairs of equal name whose values belong to other tensors.
#
# Compilers fold an activation into the layer before it and keep only one of the two names; Caffe overwrites the
# values of a layer with those of its in-place successor. The name is then on both sides, but on different tensors.

_AGREEING = 0.99
"""Names are taken at their word when the values correlate as well as this."""

_CLEARLY = 10.0
"""Values overrule a name when they leave so many times less unexplained."""

_LOOKED_AT = 2048
_FEWEST = 16
"""Smaller tensors say too little."""


def match_rest_by_value(
    found: Sequence[Match], ours: SampleSide, theirs: SampleSide, *, progress: Progress
) -> list[Match]:
    """All matches: those found by name, less those that values contradict, and those found by value.

    A name is given up only where another tensor's values agree clearly better.
    """
    agreement = {match: _agreement(match, ours, theirs) for match in found}
    doubted = [match for match, value in agreement.items() if value is not None and value < _AGREEING]
    trusted = [match for match in found if match not in doubted]
    by_value = match_by_value(ours, theirs, known=trusted, progress=progress)
    # Both ends of a doubted pair by one key: reference indices as they are, candidate indices as their complement.
    worst = {match.reference: agreement[match] for match in doubted} | {
        ~m.candidate: agreement[m] for m in doubted
    }
    kept = []
    for match in by_value:
        rivals = [value for end in (match.reference, ~match.candidate) if (value := worst.get(end)) is not None]
        if not rivals or _outdoes(_agreement(match, ours, theirs), rivals):
            kept.append(match)
    # Found by value under its own name, perhaps in another layout: the name stands, and the caller looks into it.
    named = {(match.reference, match.candidate) for match in doubted}
    left_out = _left_out(kept, doubted, trusted, ours.tensors)
    kept = [match for match in kept if (match.reference, match.candidate) not in named and match not in left_out]
    taken = {match.reference for match in kept}, {match.candidate for match in kept}
    restored = [m for m in doubted if m.reference not in taken[0] and m.candidate not in taken[1]]
    return [*trusted, *kept, *restored]


def _left_out(
    by_value: Sequence[Match], doubted: Sequence[Match], trusted: Sequence[Match], tensors: Sequence[TensorInfo]
) -> list[Match]:
    """Matches by value of what is called like an activation and holds what that should have read: it was left out.

    A layer fused with its activation writes the activation's values under either name. Where most activations are
    so, or their values are found elsewhere, the compiler folded them into what comes behind.
    """
    named = {match.candidate: match.reference for match in doubted}
    elsewhere = {match.reference for match in by_value}
    found = [
        match
        for match in by_value
        if (own := named.get(match.candidate)) == match.reference + 1
        and tensors[own].op_type in ACTIVATIONS
        and own not in elsewhere
    ]
    # Behind one that was left out all others are wrong, and keep their names as well.
    moved = {match.candidate for match in by_value}
    standing = [*trusted, *(match for match in doubted if match.candidate not in moved)]
    usual = sum(tensors[match.reference].op_type in ACTIVATIONS for match in standing)
    return found if len(found) <= usual else []


def _outdoes(agreement: float | None, rivals: Sequence[float]) -> bool:
    """Whether values agree so much better than names that the names must be wrong."""
    return agreement is not None and all(_CLEARLY * (1 - agreement) < 1 - rival for rival in rivals)


def _agreement(match: Match, ours: SampleSide, theirs: SampleSide) -> float | None:
    """Correlation of a pair on a few elements; None where it says nothing, or the user or a tool has spoken."""
    if match.how in ("alias", "origin") or match.layout is not None:
        return None
    left, right = ours.read(match.reference), theirs.read(match.candidate)
    if left is None or right is None or left.shape != right.shape or left.size < _FEWEST:
        return None
    at = positions(left.size, _LOOKED_AT)
    ours_seen, theirs_seen = take(left, at), take(right, at)
    return None if ours_seen is None or theirs_seen is None else correlation(ours_seen, theirs_seen)


# What values leave open, or settle with doubt: the order of both sides decides.


def match_rest_by_order(
    found: Sequence[Match], ours: SampleSide, theirs: SampleSide, *, layout: UsualLayout, ordered: bool
) -> list[Match]:
    """All matches: the certain ones, and of those by value and by order the surest for each tensor.

    Args:
        found: Matches so far.
        ours: The reference, in execution order.
        theirs: The candidate.
        layout: How most of the candidate is stored.
        ordered: Whether the candidate says that it is in execution order.
    """
    found = _as_activations(found, ours, theirs)
    placed = _placed(found, ours, theirs, layout=layout, ordered=ordered)
    told = [match for match in _as_activations(placed, ours, theirs) if match not in placed]
    if not told:
        return placed
    # What was misled by it is placed again.
    taken = {match.reference for match in told}, {match.candidate for match in told}
    rest = [match for match in found if match.reference not in taken[0] and match.candidate not in taken[1]]
    return _placed([*rest, *told], ours, theirs, layout=layout, ordered=ordered)


def _placed(
    found: Sequence[Match], ours: SampleSide, theirs: SampleSide, *, layout: UsualLayout, ordered: bool
) -> list[Match]:
    certain = _certain(found)
    certain = [match for match in certain if match not in doubted_by_kind(certain, ours.tensors)]
    doubtful = {(match.reference, match.candidate): match for match in found if match not in certain}
    placed = match_by_order(ours, theirs, known=certain, layout=layout, ordered=ordered)
    rivals = []
    for match in placed:
        same = doubtful.pop((match.reference, match.candidate), None)
        rivals.append(match if same is None else replace(same, confidence=max(same.confidence, match.confidence)))
    kept = list(certain)
    taken = {match.reference for match in certain}, {match.candidate for match in certain}
    # What is placed by all there is has seen the values too; they speak alone only where it leaves a tensor open.
    settled = [match for match in rivals if match.confidence >= _PLACED]
    rest = [*(match for match in rivals if match.confidence < _PLACED), *doubtful.values()]
    for match in (*settled, *sorted(rest, key=lambda match: -match.confidence)):
        if match.reference not in taken[0] and match.candidate not in taken[1]:
            kept.append(match)
            taken[0].add(match.reference)
            taken[1].add(match.candidate)
    return kept


def _as_activations(found: Sequence[Match], ours: SampleSide, theirs: SampleSide) -> list[Match]:
    """The matches, where an activation seems to have been left out with it, not with what it should have read.

    So it is where hardly any other tensor of that kind was dumped, activations were, and what follows is wrong:
    a device that had only folded the activation would go on with the right values.
    """
    last = _last_right(found, ours, theirs)
    if last is None or last.how != "value":
        return list(found)
    # Behind a fault values find nobody: what is dumped shows in front of it, or in what the order tells.
    in_front = [match for match in found if match.reference <= last.reference]
    for seen, tensors in ((in_front, ours.tensors[: last.reference + 3]), (found, ours.tensors)):
        if last in doubted_by_kind(seen, tensors):
            sure = max(last.confidence, _BY_KIND)
            moved = replace(last, reference=last.reference + 1, how="order", confidence=sure)
            ends = (moved.reference, last.candidate)
            return [*(m for m in found if m.reference != ends[0] and m.candidate != ends[1]), moved]
    return list(found)


_BY_KIND = 0.95
"""How sure it is what a tensor is when all others of its kind, and none of the other, were dumped."""


def _last_right(found: Sequence[Match], ours: SampleSide, theirs: SampleSide) -> Match | None:
    """The last match in order before values agree far less."""
    last, least = None, 0.0
    for match in sorted(found, key=lambda each: each.reference):
        left, right = ours.read(match.reference), theirs.read(match.candidate)
        if left is None or right is None or left.size < _FEWEST:
            continue
        if match.layout is None and left.size != right.size:
            continue  # a name that is on something else
        at = seen_through(match.layout, left.shape, right.shape, count=_LOOKED_AT)
        seen = take(left, positions(left.size, _LOOKED_AT)), take(right, at)
        rest = 1.0 if seen[0] is None or seen[1] is None else 1 - correlation(seen[0], seen[1])
        if rest > max(_WRONG, _CLEARLY * least):
            break
        last, least = match, rest
    return last


_WRONG = 1e-4
"""What leaves this much unexplained, and far more than the tensor before it, is wrong."""

_PLACED = 0.5
"""A place as probable as this is settled."""


def _certain(found: Sequence[Match]) -> list[Match]:
    """Matches that others may be judged by."""
    return [match for match in found if match.how not in ("value", "shape") or match.confidence >= SURE]


# The last resort: tensors whose shape nobody else has.
#
# Behind a fault values no longer tell which tensor is which, but the ten logits are still the only ten numbers.

_CONFIDENCE = 0.3
"""A shape is a hint, not more."""


def match_by_shape(
    ours: Sequence[TensorInfo], theirs: Sequence[TensorInfo], *, found: Collection[Match]
) -> list[Match]:
    """Pair what is left where a shape, axes of length 1 aside, belongs to one tensor on each side and no other."""
    our_owners, their_owners = _owners(ours), _owners(theirs)
    taken = {match.reference for match in found}, {match.candidate for match in found}
    matches = []
    for key in our_owners.keys() & their_owners.keys():
        (reference, *more), (candidate, *others) = our_owners[key], their_owners[key]
        if more or others or reference in taken[0] or candidate in taken[1]:
            continue
        left, right = ours[reference].shape, theirs[candidate].shape
        layout = None if left == right else relabelled(left, right)
        if left == right or layout is not None:
            matches.append(Match(reference, candidate, "shape", _CONFIDENCE, layout))
    return matches


_HANDED_OUT = 0.7
"""How sure it is that a dump of no more tensors than a network has outputs holds these."""

_DECIDED = 0.8
"""Which output of several of one shape a tensor is must be as probable as this, by values and order together."""


def match_outputs(
    found: Sequence[Match], ours: SampleSide, theirs: SampleSide, *, layout: UsualLayout, outputs: Collection[str]
) -> list[Match]:
    """All matches; where the candidate holds nothing but outputs, those whose values are wrong by their shapes.

    Args:
        found: Matches so far.
        ours: The reference.
        theirs: The candidate.
        layout: How most of the candidate is stored.
        outputs: What the reference hands out.
    """
    certain = _certain(found)
    handed_out = {index for index, info in enumerate(ours.tensors) if info.name in outputs}
    computed = {match.reference for match in certain if ours.tensors[match.reference].node}
    taken = {match.reference for match in certain}, {match.candidate for match in certain}
    free = [index for index in range(len(theirs.tensors)) if index not in taken[1]]
    left = sorted(handed_out - taken[0])
    if not free or len(free) > len(left) or not computed <= handed_out:
        return list(found)
    fits = {
        (ours_at, theirs_at): fit
        for ours_at in left
        for theirs_at in free
        if (fit := layout.fit(ours.tensors[ours_at].shape, theirs.tensors[theirs_at].shape)) is not None
    }
    told = [
        Match(*pair, "elimination", _HANDED_OUT * sure, fits[pair].layout)
        for pair, sure in jointly_probable(fits, ours, theirs).items()
        if sure >= _DECIDED
    ]
    ends = {match.reference for match in told} | {~match.candidate for match in told}
    return [*told, *(m for m in found if m.reference not in ends and ~m.candidate not in ends)]


def _owners(tensors: Sequence[TensorInfo]) -> dict[tuple[int, ...], list[int]]:
    owners = defaultdict(list)
    for index, info in enumerate(tensors):
        key = tuple(size for size in info.shape if size != 1)
        if key and 0 not in key and info.dtype and "complex" not in info.dtype and not info.problem:
            owners[key].append(index)
    return owners


def align(  # noqa: PLR0913 - two sides, and what is known of them
    reference: TensorSource,
    candidate: TensorSource,
    *,
    aliases: Mapping[str, str] = {},
    origins: Mapping[str, str] = {},
    outputs: Collection[str] = (),
    by_value: bool = True,
    progress: Progress = SILENT,
) -> Pairing:
    """Say which tensor of `candidate` is which of `reference`.

    Aliases come first, then recorded origins, equal names, names that differ in spelling, and values; each looks
    only at what the earlier ones left, except that values may show a name to be on the wrong tensor. Values are
    those of the first sample that both sides have. What is left, or was found with doubt, is placed by the order
    of both sides, by shapes, signs and values together, so that a tensor that is wrong finds its partner too.
    What holds no more tensors than the network has outputs holds these. Small tensors that are still in doubt are
    judged over several samples. Last, a shape that only one tensor of each
    side has is taken for a hint.

    Args:
        reference: The tensors that are right.
        candidate: The tensors to be judged.
        aliases: Reference name -> candidate name, as the user says.
        origins: The same as recorded by the tool that made the candidate; names it does not know do not matter.
        outputs: Names of what the reference hands out, where that is known.
        by_value: Whether to look at values where names do not tell.
        progress: Told how far it is.

    Raises:
        BadInput: An alias names an unknown tensor, or one tensor twice.
        CannotAlign: Nothing matched.
    """
    check_aliases(aliases, reference, candidate)
    ours, theirs = _named(reference.tensors), _named(candidate.tensors)
    recorded = {name: origin for name, origin in origins.items() if origin not in {tensor.name for tensor in ours}}
    found = _match_names(ours, theirs, aliases=aliases, origins=recorded)
    # Where samples have other names and are not as many, what was fed tells them apart.
    samples = pair_samples(reference.samples, candidate.samples) or pairs_by_inputs(reference, candidate)
    samples = _from_finite(reference, samples)
    side = SampleSide(candidate, candidate.samples[0])
    copies = _copies(*_left(ours, theirs, found), side)
    recorded, behind = _as_read(ours, side, found, recorded)
    copies = behind | {name: first for name, first in copies.items() if name not in recorded.values()}
    if copies:
        candidate = SomeTensors(candidate, frozenset(each.name for each in theirs if each.name not in copies))
        theirs = _named(candidate.tensors)
        found = _match_names(ours, theirs, aliases=aliases, origins=recorded)
    if samples:
        sides = SampleSide(reference, samples[0][0]), SampleSide(candidate, samples[0][1])
        found = _with_layouts(_behind_products(found, *sides), *sides, progress=progress)
        if by_value:
            found = match_rest_by_value(found, *sides, progress=progress)
        layout = usual_layout(reference.tensors, candidate.tensors, _certain(found))
        if by_value and reference.ordered:
            found = match_rest_by_order(found, *sides, layout=layout, ordered=candidate.ordered)
        found = with_usual_layout(found, layout, *sides)
        if by_value:
            found = match_outputs(found, *sides, layout=layout, outputs=outputs)
            every = [(SampleSide(reference, a), SampleSide(candidate, b)) for a, b in samples[:MOST_SAMPLES]]
            found = settled_by_samples(found, every, layout=layout, outputs=outputs)
    if found and by_value:
        found += match_by_shape(reference.tensors, candidate.tensors, found=found)
    if not found:
        raise _nothing_matched(reference, candidate, by_value=by_value, common=bool(samples))
    return _pairing(found, ours, theirs, copies)


def _from_finite(source: TensorSource, samples: tuple[tuple[str, str], ...]) -> tuple[tuple[str, str], ...]:
    """The samples from the first on that is finite where it comes in: of others no value tells anything."""
    name = next((info.name for info in source.tensors if not info.problem), "")
    for at, (ours, _) in enumerate(samples[:MOST_SAMPLES] if name else ()):
        with contextlib.suppress(RoundoffError):
            fed = np.asarray(source.read(name, ours))
            if fed.dtype.kind != "f" or np.isfinite(fed).all():
                return samples[at:]
    return samples


_ROUNDED = 0.95
"""Values before and after a rounding of few bits correlate better than this; an activation leaves less."""


def _as_read(
    ours: Sequence[NamedTensor], side: SampleSide, found: Sequence[Match], origins: Mapping[str, str]
) -> tuple[dict[str, str], dict[str, str]]:
    """Tensors of a quantized network are what comes out of their quantize/dequantize pairs, where both are there.

    Args:
        ours: Tensors of the reference.
        side: The candidate.
        found: Pairs by name.
        origins: What was recorded: our name -> their name.

    Returns:
        That with those which were read back, and the tensors in front of their pairs: theirs -> what is read.
    """
    partners = {match.candidate: match for match in found}
    read, recorded = {}, dict(origins)
    for tensor, other in read_back(_named(side.tensors)):
        match, known = partners.get(tensor.index), partners.get(other.index)
        # What the user says holds.
        said = match is not None and match.how in ("alias", "origin")
        # A pair that was recorded: what is in front of it is no tensor of its own that another could be.
        front = known is not None and known.how == "origin"
        # A reference that was read back itself has both.
        if said or (not front and (match is None or known is not None)):
            continue
        one, behind = side.read(tensor.index), side.read(other.index)
        # Where an activation was folded into the pair, what is in front of it is another tensor.
        if one is not None and behind is not None and correlation(one.ravel(), behind.ravel()) > _ROUNDED:
            read[tensor.name] = other.name
            if match is not None and not front:
                recorded[ours[match.reference].name] = other.name
    return recorded, read


def _copies(ours: Sequence[NamedTensor], theirs: Sequence[NamedTensor], side: SampleSide) -> dict[str, str]:
    """Tensors without a partner by name that are others in another form: codes beside values, or a reshaped copy.

    Args:
        ours: Tensors of the reference without a partner by name.
        theirs: Those of the candidate.
        side: The candidate.
    """
    wanted, free = {tensor.info.size for tensor in ours}, {tensor.index for tensor in theirs}
    known = {info.name for info in side.tensors}
    found = {tensor.name: tensor.info.copy_of for tensor in theirs if tensor.info.copy_of in known}
    for tensor, first, typed in other_forms(_named(side.tensors)):
        # Under a name of its own it may still be a tensor of the reference that something leaves as it is.
        if tensor.index in free and (typed or (tensor.info.size not in wanted and _same(tensor, first, side))):
            found[tensor.name] = first.name
    return found


def _same(one: NamedTensor, other: NamedTensor, side: SampleSide) -> bool:
    left, right = side.read(one.index), side.read(other.index)
    return left is not None and right is not None and np.array_equal(left.ravel(), right.ravel())


def pair_names(ours: Sequence[TensorInfo], theirs: Sequence[TensorInfo]) -> dict[str, str]:
    """Pair tensors by all that names can tell: our name -> their name."""
    found = _match_names(_named(ours), _named(theirs), aliases={}, origins={})
    return {ours[match.reference].name: theirs[match.candidate].name for match in found}


def _match_names(
    ours: Sequence[NamedTensor],
    theirs: Sequence[NamedTensor],
    *,
    aliases: Mapping[str, str],
    origins: Mapping[str, str],
) -> list[Match]:
    """Pair by all that names can tell, the surest first."""
    # Each step sees only what those before it left: a name that was used up cannot be claimed again by a looser
    # rule. Nodes' names are compared with tensors' for dumps that name what they hold after the node, and both
    # behind the kind of operation, as some tools write them.
    found = _equal(_renamed(ours, aliases), theirs, how="alias")
    left, right = _left(ours, theirs, found)
    found += _equal(_renamed(left, origins), right, how="origin")
    found += match_by_origin(*_left(ours, theirs, found))
    found += _equal(*_left(ours, theirs, found), how="name")
    found += match_by_spelling(*_left(ours, theirs, found))
    found += match_by_spelling(*_left(by_node(ours), theirs, found))
    found += match_by_spelling(*_left(ours, by_node(theirs), found))
    found += match_by_spelling(*_left(behind_kind(by_node(ours)), theirs, found))
    found += match_by_spelling(*_left(behind_kind(ours), theirs, found))
    found += match_by_ending(*_left(ours, theirs, found))
    found += match_by_ending(*_left(by_node(ours), theirs, found))
    return found


def _renamed(tensors: Sequence[NamedTensor], names: Mapping[str, str]) -> list[NamedTensor]:
    return [replace(tensor, name=names[tensor.name]) for tensor in tensors if tensor.name in names]


def _named(tensors: Sequence[TensorInfo]) -> list[NamedTensor]:
    return [NamedTensor(index, info.name, info) for index, info in enumerate(tensors)]


def _equal(ours: Sequence[NamedTensor], theirs: Sequence[NamedTensor], *, how: MatchedBy) -> list[Match]:
    places = {tensor.name: tensor.index for tensor in theirs}
    return [Match(tensor.index, places[tensor.name], how) for tensor in ours if tensor.name in places]


def _left(
    ours: Sequence[NamedTensor], theirs: Sequence[NamedTensor], found: Collection[Match]
) -> tuple[list[NamedTensor], list[NamedTensor]]:
    """What has no partner yet."""
    our_taken, their_taken = {match.reference for match in found}, {match.candidate for match in found}
    return (
        [tensor for tensor in ours if tensor.index not in our_taken],
        [tensor for tensor in theirs if tensor.index not in their_taken],
    )


_PRODUCTS = frozenset({"Conv", "Gemm", "MatMul"})
_FOLDED = 2
"""A bias and an activation are folded into a product, which keeps its name."""


def _behind_products(found: Sequence[Match], ours: SampleSide, theirs: SampleSide) -> list[Match]:
    """The matches, where a product that a tool recorded holds what is folded into it with the last of that."""
    taken = {match.reference for match in found}
    complete = []
    for match in found:
        if match.how == "origin" and theirs.tensors[match.candidate].op_type in _PRODUCTS:
            size = ours.tensors[match.reference].size
            behind = range(match.reference + 1, min(match.reference + 1 + _FOLDED, len(ours.tensors)))
            free = [place for place in behind if place not in taken and ours.tensors[place].size == size]
            near = [replace(match, reference=place) for place in (match.reference, *free)]
            complete.append(min(near, key=lambda each: _unexplained(each, ours, theirs)))
        else:
            complete.append(match)
    return complete


def _unexplained(match: Match, ours: SampleSide, theirs: SampleSide) -> float:
    """The energy of a pair's difference over that of the reference, in the layout that shapes allow."""
    left, right = ours.read(match.reference), theirs.read(match.candidate)
    if left is None or right is None:
        return np.inf
    layout = find_layout(left, right)
    if layout is not None:
        right = layout.apply(right)
    if left.shape != right.shape:
        return np.inf
    exact = left.astype(np.float64)
    energy = float(np.square(exact).sum())
    return float(np.square(right - exact).sum()) / energy if energy else np.inf


def _with_layouts(
    found: Sequence[Match], ours: SampleSide, theirs: SampleSide, *, progress: Progress
) -> list[Match]:
    """The matches, with the change of layout of those whose shapes differ."""
    complete = []
    with reported(progress, "Comparing layouts", len(found)):
        for match in found:
            complete.append(_with_layout(match, ours, theirs))
            progress.advance()
    return complete


def _with_layout(match: Match, ours: SampleSide, theirs: SampleSide) -> Match:
    left, right = ours.tensors[match.reference], theirs.tensors[match.candidate]
    if left.dtype and right.dtype and left.shape == right.shape:
        return match
    our_array, their_array = ours.read(match.reference), theirs.read(match.candidate)
    if our_array is None or their_array is None or our_array.shape == their_array.shape:
        return match
    return replace(match, layout=find_layout(our_array, their_array))


def _nothing_matched(
    reference: TensorSource, candidate: TensorSource, *, by_value: bool, common: bool
) -> CannotAlign:
    sides = [(reference.label, len(reference.tensors)), (candidate.label, len(candidate.tensors))]
    for label, count in sides:
        if not count:
            return CannotAlign(
                english("{label} holds no tensors.", label=label),
                fix=english("check that it is what you meant to compare"),
            )
    (ours, our_count), (theirs, their_count) = sides
    what = english(
        "None of the {our_count} tensors of {ours} could be paired with one of the {their_count} of {theirs}",
        our_count=our_count,
        ours=ours,
        their_count=their_count,
        theirs=theirs,
    )
    pair_yourself = english("or pair them yourself in an alias file with the lines reference,candidate")
    if not by_value:
        return CannotAlign(
            english("{what} by name.", what=what),
            fix=english("allow matching by value, {pair_yourself}", pair_yourself=pair_yourself),
        )
    if not common:
        why = english(
            "{what} by name, and they have no sample in common whose values could be compared.", what=what
        )
        return CannotAlign(
            why, fix=english("name the samples alike on both sides, {pair_yourself}", pair_yourself=pair_yourself)
        )
    fix = english(
        "check that both are the same network run on the same input, {pair_yourself}", pair_yourself=pair_yourself
    )
    return CannotAlign(english("{what}, neither by name nor by value.", what=what), fix=fix)


def _pairing(
    found: Sequence[Match],
    ours: Sequence[NamedTensor],
    theirs: Sequence[NamedTensor],
    copies: Mapping[str, str],
) -> Pairing:
    our_rest, their_rest = _left(ours, theirs, found)
    return Pairing(
        pairs=tuple(
            TensorPair(
                reference=ours[match.reference].name,
                candidate=theirs[match.candidate].name,
                how=match.how,
                confidence=match.confidence,
                layout=match.layout,
            )
            for match in sorted(found, key=lambda match: match.reference)
        ),
        unmatched_reference=tuple(tensor.name for tensor in our_rest),
        unmatched_candidate=(*(tensor.name for tensor in their_rest), *copies),
        copies=copies,
    )


# A dump under the names, and in the order, of the model it was made from.


def rename_after(source: TensorSource, model: Sequence[TensorInfo]) -> TensorSource:
    """View a source under a model's tensor names, in the model's order; what the model does not know comes last.

    Args:
        source: Tensors whose names may be spelt as file names or another tool would.
        model: The model's tensors in execution order.

    Raises:
        CannotAlign: No tensor of the source is one of the model's.
    """
    theirs = pair_names(model, source.tensors)
    if not theirs:
        raise CannotAlign(
            english(
                "None of the {count} tensors of {label} has the name of a tensor of the model.",
                count=len(source.tensors),
                label=source.label,
            ),
            fix=english("give the model that the dump was made from, or leave --model out"),
        )
    return _Renamed(source, model, theirs)


class _Renamed:
    """Implements `TensorSource`."""

    ordered = True

    def __init__(self, source: TensorSource, model: Sequence[TensorInfo], theirs: dict[str, str]) -> None:
        known = {info.name: info for info in source.tensors}
        self._source = source
        self._homes = dict(theirs)
        self.label, self.samples, self.runs = source.label, source.samples, runs_of(source)
        named = [
            replace(known[theirs[info.name]], name=info.name, node=info.node, op_type=info.op_type, origin="")
            for info in model
            if info.name in theirs
        ]
        taken, used = set(theirs.values()), set(theirs)
        rest = [info for info in source.tensors if info.name not in taken]
        # A stranger may carry the name that a renamed tensor has now.
        strangers = [
            replace(info, name=f"{info.name} (not of the model)" if info.name in used else info.name)
            for info in rest
        ]
        self._homes |= {stranger.name: info.name for stranger, info in zip(strangers, rest, strict=True)}
        self.tensors: tuple[TensorInfo, ...] = (*named, *strangers)

    def read(self, name: str, sample: str) -> Array:
        return self._source.read(self._homes.get(name, name), sample)


def behind_pairs(source: TensorSource, dequantized: Mapping[str, str], *, kept: Collection[str]) -> TensorSource:
    """View a quantized model's tensors by what comes out of their quantize/dequantize pairs.

    Args:
        source: The tensors of the model.
        dequantized: For each tensor that is quantized, the one that comes out and is used in its place.
        kept: Tensors that keep a name of their own, such as outputs of the network.
    """
    known = {info.name for info in source.tensors}
    there = {name: pair for name, pair in dequantized.items() if {name, pair} <= known}
    return _BehindPairs(source, there, set(there.values()) - set(kept)) if there else source


class _BehindPairs:
    """Implements `TensorSource`."""

    def __init__(self, source: TensorSource, pairs: Mapping[str, str], hidden: Collection[str]) -> None:
        self._source, self._pairs = source, pairs
        self.label, self.samples, self.ordered = source.label, source.samples, source.ordered
        self.tensors = tuple(info for info in source.tensors if info.name not in hidden)

    def read(self, name: str, sample: str) -> Array:
        return self._source.read(self._pairs.get(name, name), sample)


# Samples that are told apart by what they are.
_MOST_TOLD_APART = 256
# A dump may hold its inputs in half precision.
_SAME_INPUT = 1e-2


def pairs_by_inputs(reference: TensorSource, candidate: TensorSource) -> tuple[tuple[str, str], ...]:
    """Samples whose first tensor is the same on both sides, each with one partner; none where that is unsure."""
    first = next(iter(reference.tensors), None)
    named = {} if first is None else pair_names([first], candidate.tensors)
    other = next((info for info in candidate.tensors if info.name in named.values()), None)
    many = max(len(reference.samples), len(candidate.samples)) > _MOST_TOLD_APART
    if first is None or other is None or many or first.problem or other.problem:
        return ()
    found = []
    try:
        theirs = {name: candidate.read(other.name, name) for name in candidate.samples}
        for ours in reference.samples:
            exact = reference.read(first.name, ours)
            alike = [name for name, each in theirs.items() if _same_values(exact, each)]
            found += [(ours, alike[0])] if len(alike) == 1 else []
    except BadInput:
        return ()
    return tuple(found) if len({each for _, each in found}) == len(found) else ()


def _same_values(ours: Array, theirs: Array) -> bool:
    if (
        ours.ndim == theirs.ndim > 2
        and ours.shape != theirs.shape
        and ours.shape == np.moveaxis(theirs, -1, 1).shape
    ):
        theirs = np.moveaxis(theirs, -1, 1)  # a dump with channels last
    if ours.shape != theirs.shape or not ours.size or not {ours.dtype.kind, theirs.dtype.kind} <= set("fiu"):
        return False
    size = float(np.abs(ours).max(initial=0))
    return size > 0 and bool(np.abs(ours.astype(np.float64) - theirs).max() <= _SAME_INPUT * size)
