"""Matching by name when two tools spell the same name differently."""

import difflib
import json
import re
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path

from roundoff.align.layout import core, layouts_between
from roundoff.align.pairing import Match, NamedTensor
from roundoff.core.files import read_small
from roundoff.core.names import ALIAS_HEADER
from roundoff.core.tensors import TensorInfo, TensorSource
from roundoff.core.untrusted import parse_csv, parse_json
from roundoff.errors import BadInput, nearest
from roundoff.messages.message import english


@dataclass(frozen=True, slots=True)
class NameRule:
    """One difference in spelling that carries no meaning.

    Attributes:
        why: Where it comes from.
        pattern: What to replace, in a name of lower case.
        replacement: By what.
    """

    why: str
    pattern: re.Pattern[str]
    replacement: str


def _rule(why: str, pattern: str, replacement: str) -> NameRule:
    return NameRule(why, re.compile(pattern), replacement)


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
_FIRST_OUTPUT = _rule("the first output, as names of files have it", r"[._-]0$", "")


@dataclass(frozen=True, slots=True)
class Spelling:
    """A set of rules applied together.

    Attributes:
        rules: In the order applied.
        confidence: How sure a match is that needs them.
        shapes_must_fit: Whether tensors whose shapes contradict the match are left alone.
    """

    rules: tuple[NameRule, ...]
    confidence: float
    shapes_must_fit: bool

    def key(self, name: str) -> str:
        """The name without the differences that the rules describe; names with equal keys are one."""
        return _respelled(name, self.rules)


@lru_cache(maxsize=32_768)
def _respelled(name: str, rules: tuple[NameRule, ...]) -> str:
    name = name.casefold().strip()
    for rule in rules:
        name = rule.pattern.sub(rule.replacement, name)
    return name


SPELLINGS = (
    Spelling(_SEPARATORS, confidence=1.0, shapes_must_fit=False),
    Spelling((*_FILES, *_SEPARATORS), confidence=1.0, shapes_must_fit=False),
    Spelling((*_FILES, *_OUTPUT_INDEX, *_SEPARATORS), confidence=0.95, shapes_must_fit=True),
    Spelling((*_FILES, _FIRST_OUTPUT, *_SEPARATORS), confidence=0.95, shapes_must_fit=True),
)
"""From the closest to the name as written to the farthest."""


def match_by_spelling(reference: Sequence[NamedTensor], candidate: Sequence[NamedTensor]) -> list[Match]:
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


_BEHIND = 0.9
"""How sure a name is that stands at the end of a longer one, as others of that dump do."""
_AS_A_RULE = 0.5


def match_by_ending(reference: Sequence[NamedTensor], candidate: Sequence[NamedTensor]) -> list[Match]:
    """Pair tensors of which one name is the end of the other: a tool's own words stand in front of all names.

    Where less than half of the candidates are called so, it is no rule of the tool, and nothing is paired.
    """
    key = SPELLINGS[2].key
    ours, theirs = ({key(tensor.name): tensor for tensor in side} for side in (reference, candidate))
    claims: dict[str, list[str]] = defaultdict(list)
    for name in theirs:
        if end := next((each for each in _endings(name) if each in ours), ""):
            claims[end].append(name)
    shorter = {end: names for end, names in claims.items() if any(map(str.isalpha, end))}
    if not shorter:
        claims = defaultdict(list)
        for name in ours:
            if end := next((each for each in _endings(name) if each in theirs), ""):
                claims[end].append(name)
        shorter = {names[0]: [end] for end, names in claims.items() if len(names) == 1 and not end.isdecimal()}
    found = [
        Match(ours[name].index, theirs[others[0]].index, "normalized", _BEHIND)
        for name, others in shorter.items()
        if len(others) == 1 and _may_be_one(ours[name].info, theirs[others[0]].info)
    ]
    return found if len(found) > 1 and len(found) >= _AS_A_RULE * len(candidate) else []


def _endings(name: str) -> Iterator[str]:
    """What is left of a name without its first words, the longest first."""
    while "_" in name:
        name = name.partition("_")[2]
        yield name


def by_node(tensors: Sequence[NamedTensor]) -> list[NamedTensor]:
    """The tensors under the names of their nodes, where known and where a node has but one."""
    count = Counter(tensor.info.node for tensor in tensors)
    return [
        NamedTensor(tensor.index, tensor.info.node, tensor.info)
        for tensor in tensors
        if tensor.info.node and count[tensor.info.node] == 1
    ]


def behind_kind(tensors: Sequence[NamedTensor]) -> list[NamedTensor]:
    """The tensors under their names behind the kind of operation; of a number behind it any tool may count."""
    return [
        replace(tensor, name=f"{tensor.info.op_type}_{tensor.name}")
        for tensor in tensors
        if tensor.info.op_type and any(map(str.isalpha, tensor.name))
    ]


def _pairs(
    reference: Sequence[NamedTensor], candidate: Sequence[NamedTensor], *, spelling: Spelling
) -> Iterator[tuple[NamedTensor, NamedTensor]]:
    """A key that several tensors of a side share is used only where their shapes tell them apart."""

    def key(tensor: NamedTensor) -> str:
        return spelling.key(tensor.name)

    ours, theirs = _grouped(reference, key), _grouped(candidate, key)
    for shared in ours.keys() & theirs.keys() - {""}:
        if len(ours[shared]) == len(theirs[shared]) == 1:
            left, right = ours[shared][0], theirs[shared][0]
            if not spelling.shapes_must_fit or _may_be_one(left.info, right.info):
                yield left, right
        else:
            yield from _told_apart(ours[shared], theirs[shared])


def _told_apart(
    ours: Sequence[NamedTensor], theirs: Sequence[NamedTensor]
) -> Iterator[tuple[NamedTensor, NamedTensor]]:
    """Pairs that alone on both sides have their lengths of axes, in whatever order."""
    left, right = _grouped(ours, _lengths), _grouped(theirs, _lengths)
    for lengths in left.keys() & right.keys() - {""}:
        if len(left[lengths]) == len(right[lengths]) == 1:
            yield left[lengths][0], right[lengths][0]


def _lengths(tensor: NamedTensor) -> str:
    """The lengths of the axes longer than one, sorted; empty when unknown."""
    return str(sorted(core(tensor.info.shape))) if tensor.info.dtype else ""


def _may_be_one(left: TensorInfo, right: TensorInfo) -> bool:
    known = left.dtype and right.dtype
    return not known or left.shape == right.shape or bool(layouts_between(left.shape, right.shape))


def _grouped(tensors: Sequence[NamedTensor], key: Callable[[NamedTensor], str]) -> dict[str, list[NamedTensor]]:
    groups: dict[str, list[NamedTensor]] = defaultdict(list)
    for tensor in tensors:
        groups[key(tensor)].append(tensor)
    return groups


# Tensors that a tool wrote twice: values beside their codes, or in another form.

_FORMS = frozenset(
    f"{kind}{bits}"
    for kinds, widths in (
        (("int", "uint", "i", "u", "s", "si", "ui"), (4, 8, 16)),
        (("float", "fp", "f"), (16, 32)),
        (("bf", "bfloat"), (16,)),
    )
    for kind in kinds
    for bits in widths
) | {"quantized", "quantizelinear_output"}
"""Types of numbers, as tools append them to the name of a tensor that they store a second time."""


def other_forms(tensors: Sequence[NamedTensor]) -> Iterator[tuple[NamedTensor, NamedTensor, bool]]:
    """Tensors whose name is another's and something more, of the same size, with that other one.

    Yields:
        The tensor, the one it is named after, and whether what it has more is a type of numbers.
    """
    key = SPELLINGS[1].key
    owners = {key(tensor.name): tensor for tensor in tensors}
    for tensor in tensors:
        name = key(tensor.name)
        at = len(name)
        while (at := name.rfind("_", 0, at)) > 0:
            first = owners.get(name[:at])
            if first is not None and first.info.size == tensor.info.size:
                yield tensor, first, name[at + 1 :] in _FORMS
                break


_READ_BACK = ("_dequantized", "_dequantizelinear_output", "_dequantize")
"""What tools append to the name of a tensor that was quantized and read back."""


def read_back(tensors: Sequence[NamedTensor]) -> Iterator[tuple[NamedTensor, NamedTensor]]:
    """Tensors beside what comes out of their quantize/dequantize pair, which is what others read, and that."""
    key = SPELLINGS[1].key
    owners = {key(tensor.name): tensor for tensor in tensors}
    for name, tensor in owners.items():
        for ending in _READ_BACK:
            first = owners.get(name.removesuffix(ending)) if name.endswith(ending) else None
            if first is not None and first.info.size == tensor.info.size:
                yield first, tensor


# Matching by what each tensor is of the original model, as recorded by the tool that fused or renamed it.


def match_by_origin(reference: Sequence[NamedTensor], candidate: Sequence[NamedTensor]) -> list[Match]:
    """Pair tensors that are the same one of the original model.

    A side that records nothing of a tensor is taken for the original model itself. Where several tensors have one
    origin (the result of an operator, and its copies in other layouts), the first is meant.
    """
    if not any(tensor.info.origin for tensor in (*reference, *candidate)):
        return []
    alike = {(tensor.name, tensor.info.origin) for tensor in reference} & {
        (tensor.name, tensor.info.origin) for tensor in candidate
    }
    left, right = (
        _under_origins([tensor for tensor in side if (tensor.name, tensor.info.origin) not in alike])
        for side in (reference, candidate)
    )
    found = match_by_spelling(left, right)
    taken = {match.reference for match in found}, {match.candidate for match in found}
    nodes = [
        replace(tensor, name=tensor.info.node)
        for tensor in left
        if tensor.info.node and not tensor.info.origin and tensor.index not in taken[0]
    ]
    found += match_by_spelling(nodes, [tensor for tensor in right if tensor.index not in taken[1]])
    ours, theirs = ({tensor.index: tensor for tensor in side} for side in (reference, candidate))
    return [
        replace(match, how="origin", confidence=1.0)
        for match in found
        if _tells(ours[match.reference], theirs[match.candidate])
    ]


def _under_origins(tensors: Sequence[NamedTensor]) -> list[NamedTensor]:
    """Each tensor under the name it had in the original model; the first of several."""
    first: dict[str, NamedTensor] = {}
    for tensor in tensors:
        name = tensor.info.origin or tensor.name
        first.setdefault(name, replace(tensor, name=name))
    return list(first.values())


def _tells(ours: NamedTensor, theirs: NamedTensor) -> bool:
    """Whether a record says more than the names do; names that are enough can still be doubted."""
    key = SPELLINGS[0].key
    renamed = any(tensor.info.origin and key(tensor.info.origin) != key(tensor.name) for tensor in (ours, theirs))
    return renamed and key(ours.name) != key(theirs.name)


# The user's own list of which tensor is which.

_SHAPE_OF_FILE = english(
    'write a JSON object {{"reference name": "candidate name"}} or a CSV file with the header reference,candidate'
)
_FEW = 20
"""Up to so many names a message lists them all."""


def read_aliases(path: Path | str) -> dict[str, str]:
    """Read reference -> candidate names from a JSON object or from CSV with a header.

    Raises:
        BadInput: The file cannot be read, is neither of the two, or names a tensor twice.
    """
    path = Path(path)
    content = read_small(path, what=english("The alias file"))
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise BadInput(
            english("The alias file {path} is not UTF-8 text.", path=path), fix=_SHAPE_OF_FILE
        ) from error
    pairs = _from_json(text, path) if text.lstrip().startswith(("{", "[")) else _from_csv(text, path)
    aliases = dict(pairs)
    for column, side in enumerate(ALIAS_HEADER):
        twice = _repeated(pair[column] for pair in pairs)
        if twice is not None:
            partners = ", ".join(repr(pair[1 - column]) for pair in pairs if pair[column] == twice)
            raise BadInput(
                english(
                    "The alias file {path} names the {side} tensor {twice!r} more than once (with {partners}).",
                    path=path,
                    side=side,
                    twice=twice,
                    partners=partners,
                ),
                fix=english("keep one line for it: one tensor has one partner"),
            )
    return aliases


def check_aliases(aliases: Mapping[str, str], reference: TensorSource, candidate: TensorSource) -> None:
    """Refuse aliases that name tensors that are not there, or give one tensor two partners.

    Raises:
        BadInput: With the name meant, if one is near.
    """
    for names, source, side in (
        (list(aliases), reference, "reference"),
        (list(aliases.values()), candidate, "candidate"),
    ):
        known = dict.fromkeys(tensor.name for tensor in source.tensors)
        unknown = [name for name in names if name not in known]
        if unknown:
            more = english(" (and {number} more)", number=len(unknown) - 1) if len(unknown) > 1 else ""
            what = english(
                "The aliases name {unknown!r}{more}, which the {side} {label} does not hold.",
                unknown=unknown[0],
                more=more,
                side=side,
                label=source.label,
            )
            raise BadInput(what, fix=_suggestion(unknown[0], list(known)))
    twice = _repeated(aliases.values())
    if twice is not None:
        owners = ", ".join(repr(name) for name, partner in aliases.items() if partner == twice)
        raise BadInput(
            english(
                "The aliases give the candidate tensor {twice!r} to several reference tensors: {owners}.",
                twice=twice,
                owners=owners,
            ),
            fix=english("keep one of them: one tensor has one partner"),
        )


def _suggestion(name: str, known: Sequence[str]) -> str:
    if len(known) <= _FEW or difflib.get_close_matches(name, known, n=1, cutoff=0.6):
        return nearest(name, known)
    shown = ", ".join(known[:3])
    return english("use one of its {count} names as they stand, such as {shown}", count=len(known), shown=shown)


def _from_json(text: str, path: Path) -> list[tuple[str, str]]:
    pairs: list[tuple[str, str]] = parse_json(text, path, fix=_SHAPE_OF_FILE, pairs=list)
    if not text.lstrip().startswith("{"):
        raise BadInput(
            english("The alias file {path} holds a JSON list, not an object.", path=path), fix=_SHAPE_OF_FILE
        )
    for name, partner in pairs:
        if not isinstance(partner, str):
            what = english(
                "The alias file {path} gives {name!r} the value {partner}, which is no name.",
                path=path,
                name=name,
                partner=json.dumps(partner),
            )
            raise BadInput(what, fix=_SHAPE_OF_FILE)
    return pairs


def _from_csv(text: str, path: Path) -> list[tuple[str, str]]:
    rows = [
        row
        for row in parse_csv(text, path, strict=True, fix=_SHAPE_OF_FILE)
        # Remarks, and lines of a template that are not filled in yet.
        if any(cell.strip() for cell in row)
        and not row[0].startswith("# ")
        and not (len(row) == len(ALIAS_HEADER) and not row[0].strip())
    ]
    header = [cell.strip().casefold() for cell in rows[0]] if rows else []
    if header != ALIAS_HEADER:
        got = ",".join(header) or "nothing"
        raise BadInput(
            english(
                "The alias file {path} starts with {got!r}, not with reference,candidate.", path=path, got=got
            ),
            fix=_SHAPE_OF_FILE,
        )
    for number, row in enumerate(rows[1:], start=1):
        if len(row) != len(ALIAS_HEADER) or not all(cell.strip() for cell in row):
            what = english(
                "The alias file {path}, entry {number}, holds {row!r}; two names are expected.",
                path=path,
                number=number,
                row=",".join(row),
            )
            raise BadInput(what, fix=english('quote names that contain commas: "a,b",c'))
    return [(row[0], row[1]) for row in rows[1:]]


def _repeated(names: Iterable[str]) -> str | None:
    seen: set[str] = set()
    for name in names:
        if name in seen:
            return name
        seen.add(name)
    return None
