"""Matching by name when two tools spell the same name differently."""

import re
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache

from roundoff.align.axes import core
from roundoff.align.match import Match, Named
from roundoff.align.shapes import layouts_between
from roundoff.core.tensors import TensorInfo

__all__ = ["SPELLINGS", "Rule", "Spelling", "by_node", "match_by_spelling"]


@dataclass(frozen=True, slots=True)
class Rule:
    """One difference in spelling that carries no meaning.

    Attributes:
        why: Where it comes from.
        pattern: What to replace, in a name of lower case.
        replacement: By what.
    """

    why: str
    pattern: re.Pattern[str]
    replacement: str


def _rule(why: str, pattern: str, replacement: str) -> Rule:
    return Rule(why, re.compile(pattern), replacement)


_FILES = (
    _rule("extension of the file it was in", r"\.(npy|npz|bin|raw|dat|data|pb|txt|csv|safetensors)$", ""),
    _rule("<type>.<op>.<task>.<stream>.<time>.output.<k>", r"^\w+\.(.+)\.\d+\.\d+\.\d{13,}\.output\.", r"\1:"),
    _rule("<op>.<k>.<time>", r"\.(\d+)\.\d{10,}$", r":\1"),
    _rule("the first output needs no number", r":0$", ""),
)
_SEPARATORS = (
    _rule("any separator is written as any other", r"[\W_]+", "_"),
    _rule("leading slash and the like", r"^_+|_+$", ""),
)
_OUTPUT_INDEX = (
    _rule("<op>_output_<k>, <op>:<k>, <op>.<k>", r"([._/-]output[._/:-]?|[:.])(\d+)$", r":\2"),
    _rule("the first output needs no number", r":0$", ""),
)


@dataclass(frozen=True, slots=True)
class Spelling:
    """A set of rules applied together.

    Attributes:
        rules: In the order applied.
        confidence: How sure a match is that needs them.
        shapes_must_fit: Whether tensors whose shapes contradict the match are left alone.
    """

    rules: tuple[Rule, ...]
    confidence: float
    shapes_must_fit: bool

    def key(self, name: str) -> str:
        """The name without the differences that the rules describe; names with equal keys are one."""
        return _respelled(name, self.rules)


@lru_cache(maxsize=32_768)
def _respelled(name: str, rules: tuple[Rule, ...]) -> str:
    name = name.casefold().strip()
    for rule in rules:
        name = rule.pattern.sub(rule.replacement, name)
    return name


SPELLINGS = (
    Spelling(_SEPARATORS, confidence=1.0, shapes_must_fit=False),
    Spelling((*_FILES, *_SEPARATORS), confidence=1.0, shapes_must_fit=False),
    Spelling((*_FILES, *_OUTPUT_INDEX, *_SEPARATORS), confidence=0.95, shapes_must_fit=True),
)
"""From the closest to the name as written to the farthest."""


def match_by_spelling(reference: Sequence[Named], candidate: Sequence[Named]) -> list[Match]:
    """Pair tensors whose names differ in spelling only.

    The spelling that explains most names comes first: where all of a side carry an output index, ``a_0:0``
    is ``a_0``, and where separators were replaced, ``a:0`` is ``a_0``.
    """
    found: list[Match] = []
    left = list(SPELLINGS) if reference and candidate else []
    while left:
        tried = [(spelling, list(_pairs(reference, candidate, spelling=spelling))) for spelling in left]
        spelling, pairs = max(tried, key=lambda attempt: len(attempt[1]))
        left.remove(spelling)
        found += [Match(ours.index, theirs.index, "normalized", spelling.confidence) for ours, theirs in pairs]
        taken = {ours.index for ours, _ in pairs}, {theirs.index for _, theirs in pairs}
        reference = [tensor for tensor in reference if tensor.index not in taken[0]]
        candidate = [tensor for tensor in candidate if tensor.index not in taken[1]]
    return found


def by_node(tensors: Sequence[Named]) -> list[Named]:
    """The tensors under the names of their nodes, where known and where a node has but one."""
    count = Counter(tensor.info.node for tensor in tensors)
    return [
        Named(tensor.index, tensor.info.node, tensor.info)
        for tensor in tensors
        if tensor.info.node and count[tensor.info.node] == 1
    ]


def _pairs(
    reference: Sequence[Named], candidate: Sequence[Named], *, spelling: Spelling
) -> Iterator[tuple[Named, Named]]:
    """A key that several tensors of a side share is used only where their shapes tell them apart."""

    def key(tensor: Named) -> str:
        return spelling.key(tensor.name)

    ours, theirs = _grouped(reference, key), _grouped(candidate, key)
    for shared in ours.keys() & theirs.keys() - {""}:
        if len(ours[shared]) == len(theirs[shared]) == 1:
            left, right = ours[shared][0], theirs[shared][0]
            if not spelling.shapes_must_fit or _may_be_one(left.info, right.info):
                yield left, right
        else:
            yield from _told_apart(ours[shared], theirs[shared])


def _told_apart(ours: Sequence[Named], theirs: Sequence[Named]) -> Iterator[tuple[Named, Named]]:
    """Pairs that alone on both sides have their lengths of axes, in whatever order."""
    left, right = _grouped(ours, _lengths), _grouped(theirs, _lengths)
    for lengths in left.keys() & right.keys() - {""}:
        if len(left[lengths]) == len(right[lengths]) == 1:
            yield left[lengths][0], right[lengths][0]


def _lengths(tensor: Named) -> str:
    """The lengths of the axes longer than one, sorted; empty when unknown."""
    return str(sorted(core(tensor.info.shape))) if tensor.info.dtype else ""


def _may_be_one(left: TensorInfo, right: TensorInfo) -> bool:
    known = left.dtype and right.dtype
    return not known or left.shape == right.shape or bool(layouts_between(left.shape, right.shape))


def _grouped(tensors: Sequence[Named], key: Callable[[Named], str]) -> dict[str, list[Named]]:
    groups: dict[str, list[Named]] = defaultdict(list)
    for tensor in tensors:
        groups[key(tensor)].append(tensor)
    return groups
