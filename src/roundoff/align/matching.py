"""Pairing two sources: the user's word first, then names, then values."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace

from roundoff.align.aliases import check_aliases
from roundoff.align.by_shape import match_by_shape
from roundoff.align.doubts import match_rest_by_value
from roundoff.align.layout import find_layout
from roundoff.align.match import Match, Named
from roundoff.align.names import by_node, match_by_spelling
from roundoff.align.origins import match_by_origin
from roundoff.align.reporting import reported
from roundoff.align.values import Side
from roundoff.core.pairing import MatchedBy, Pairing, TensorPair, pair_samples
from roundoff.core.progress import SILENT, Progress
from roundoff.core.tensors import TensorInfo, TensorSource
from roundoff.errors import CannotAlign

__all__ = ["align", "pair_names"]


def align(
    reference: TensorSource,
    candidate: TensorSource,
    *,
    aliases: Mapping[str, str] = {},
    origins: Mapping[str, str] = {},
    by_value: bool = True,
    progress: Progress = SILENT,
) -> Pairing:
    """Say which tensor of `candidate` is which of `reference`.

    Aliases come first, then recorded origins, equal names, names that differ in spelling, and values; each looks
    only at what the earlier ones left, except that values may show a name to be on the wrong tensor. Values are
    those of the first sample that both sides have. Last, a shape that only one tensor of each side has is taken
    for a hint.

    Args:
        reference: The tensors that are right.
        candidate: The tensors to be judged.
        aliases: Reference name -> candidate name, as the user says.
        origins: The same as recorded by the tool that made the candidate; names it does not know do not matter.
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
    samples = pair_samples(reference.samples, candidate.samples)
    if samples:
        sides = Side(reference, samples[0][0]), Side(candidate, samples[0][1])
        found = _with_layouts(found, *sides, progress=progress)
        if by_value:
            found = match_rest_by_value(found, *sides, progress=progress)
    if found and by_value:
        found += match_by_shape(reference.tensors, candidate.tensors, found=found)
    if not found:
        raise _nothing_matched(reference, candidate, by_value=by_value, common=bool(samples))
    return _pairing(found, ours, theirs)


def pair_names(ours: Sequence[TensorInfo], theirs: Sequence[TensorInfo]) -> dict[str, str]:
    """Pair tensors by all that names can tell: our name -> their name."""
    found = _match_names(_named(ours), _named(theirs), aliases={}, origins={})
    return {ours[match.reference].name: theirs[match.candidate].name for match in found}


def _match_names(
    ours: Sequence[Named], theirs: Sequence[Named], *, aliases: Mapping[str, str], origins: Mapping[str, str]
) -> list[Match]:
    """Pair by all that names can tell, the surest first."""
    found = _equal(_renamed(ours, aliases), theirs, how="alias")
    left, right = _left(ours, theirs, found)
    found += _equal(_renamed(left, origins), right, how="origin")
    found += match_by_origin(*_left(ours, theirs, found))
    found += _equal(*_left(ours, theirs, found), how="name")
    found += match_by_spelling(*_left(ours, theirs, found))
    found += match_by_spelling(*_left(by_node(ours), theirs, found))
    found += match_by_spelling(*_left(ours, by_node(theirs), found))
    return found


def _renamed(tensors: Sequence[Named], names: Mapping[str, str]) -> list[Named]:
    return [replace(tensor, name=names[tensor.name]) for tensor in tensors if tensor.name in names]


def _named(tensors: Sequence[TensorInfo]) -> list[Named]:
    return [Named(index, info.name, info) for index, info in enumerate(tensors)]


def _equal(ours: Sequence[Named], theirs: Sequence[Named], *, how: MatchedBy) -> list[Match]:
    places = {tensor.name: tensor.index for tensor in theirs}
    return [Match(tensor.index, places[tensor.name], how) for tensor in ours if tensor.name in places]


def _left(
    ours: Sequence[Named], theirs: Sequence[Named], found: Collection[Match]
) -> tuple[list[Named], list[Named]]:
    """What has no partner yet."""
    our_taken, their_taken = {match.reference for match in found}, {match.candidate for match in found}
    return (
        [tensor for tensor in ours if tensor.index not in our_taken],
        [tensor for tensor in theirs if tensor.index not in their_taken],
    )


def _with_layouts(found: Sequence[Match], ours: Side, theirs: Side, *, progress: Progress) -> list[Match]:
    """The matches, with the change of layout of those whose shapes differ."""
    complete = []
    with reported(progress, "Comparing layouts", len(found)):
        for match in found:
            complete.append(_with_layout(match, ours, theirs))
            progress.advance()
    return complete


def _with_layout(match: Match, ours: Side, theirs: Side) -> Match:
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
            return CannotAlign(f"{label} holds no tensors.", fix="check that it is what you meant to compare")
    (ours, our_count), (theirs, their_count) = sides
    what = f"None of the {our_count} tensors of {ours} could be paired with one of the {their_count} of {theirs}"
    pair_yourself = "or pair them yourself in an alias file with the lines reference,candidate"
    if not by_value:
        return CannotAlign(f"{what} by name.", fix=f"allow matching by value, {pair_yourself}")
    if not common:
        why = f"{what} by name, and they have no sample in common whose values could be compared."
        return CannotAlign(why, fix=f"name the samples alike on both sides, {pair_yourself}")
    fix = f"check that both are the same network run on the same input, {pair_yourself}"
    return CannotAlign(f"{what}, neither by name nor by value.", fix=fix)


def _pairing(found: Sequence[Match], ours: Sequence[Named], theirs: Sequence[Named]) -> Pairing:
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
        unmatched_candidate=tuple(tensor.name for tensor in their_rest),
    )
