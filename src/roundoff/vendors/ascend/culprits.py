"""Where an error begins: at single operators, between two that were dumped, or little by little everywhere."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

import numpy as np

from roundoff.messages.message import english
from roundoff.vendors.ascend.algorithms import ALL_ZERO, NOT_COMPUTED
from roundoff.vendors.ascend.causes import FaultCause
from roundoff.vendors.ascend.errors import farthest, least_cosine, other_limits
from roundoff.vendors.ascend.rows import NOTHING_RUN, Columns, Row
from roundoff.vendors.ascend.rules import QUANTIZER_TYPES

_STANDS_OUT = 3.0
"""An operator adds an error itself when it adds this many times what others add as well."""

_EVERYWHERE = 0.4
_SEVERAL = 3
"""Operators that are off without a cause of their own, as a share of all and in number, are noise everywhere."""

_LARGE = 0.2
_SOUND = 2
"""An error this large is that of one operator; so is one behind so many that are sound."""

_MORE = 1.5
"""What an operator at fault adds at least, relative to what comes in."""

_PASS_ON = ("TransData", "Cast", *QUANTIZER_TYPES)
"""Types of operators that compute nothing, and so tell nothing of noise."""

_APART = 4.0
"""Among many that are off, those this many times farther off than usual are at fault themselves."""


@dataclass(frozen=True, slots=True)
class OperatorError:
    """What one operator adds to the error, found by computing it again from its own inputs.

    Attributes:
        op: The operator.
        size: The part beyond rounding, relative to what it should write.
        whole: All of the error, relative likewise.
        share: The share of values beyond rounding.
        wrong: Whether that is more than rounding explains.
        cause: Why; None when it is right, or nothing explains it.
        between: Operators in between that were not dumped, so that any of them may be at fault.
    """

    op: str
    size: float
    whole: float
    share: float
    wrong: bool = False
    cause: FaultCause | None = None
    between: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Located:
    """What was found.

    Attributes:
        kind: ``none``; ``node``: operators are at fault themselves; ``between``: one that was not dumped is;
            ``accumulated``: many add a little.
        op: The operator at which the error begins, or becomes too large.
        distance: Relative Euclidean distance of its output; infinite where only the golden one is finite, or zero.
        before: That of what it reads; NaN when unknown.
        reaches_end: Whether the last tensor is wrong, too.
        compared: How many tensors were compared.
        wrong: How many of them are wrong.
        hint: The first tensor, by its operator, that is beyond another of the vendor's limits while none is wrong.
        hinted: Which limit.
        cause: Why the operator is wrong; None when nothing explains it.
        between: Operators that were not dumped or compared, of which one is at fault.
        after: The last operator before these that is right.
        faults: Operators that were computed again and are wrong themselves, in the order of execution.
        replayed: How many were computed again.
        unscaled: Whether some of those in between write codes of which no file tells the scale.
        also: More operators that are wrong though all they read is right; others read wrong inputs.
        rounding: Whether tensors differ though each operator is right by its own inputs.
    """

    kind: Literal["none", "node", "between", "accumulated"]
    op: str = ""
    distance: float = math.nan
    before: float = math.nan
    reaches_end: bool = False
    compared: int = 0
    wrong: int = 0
    hint: str = ""
    hinted: str = ""
    cause: FaultCause | None = None
    between: tuple[str, ...] = ()
    after: str = ""
    faults: tuple[OperatorError, ...] = ()
    replayed: int = 0
    unscaled: bool = False
    also: tuple[str, ...] = ()
    rounding: bool = False


@dataclass(frozen=True, slots=True)
class TensorLimits:
    """When a tensor is wrong.

    Attributes:
        cosine: The least cosine similarity.
        distance: The largest relative Euclidean distance.
        usual: Distances by golden operator that are usual here, such as those of the fake-quant model.
        margin: How many times as much as usual is still right.
    """

    cosine: float = field(default_factory=least_cosine)
    distance: float = field(default_factory=farthest)
    usual: Mapping[str, float] = field(default_factory=dict)
    margin: float = 1.5

    def broken(self, row: Row, cosine: float, distance: float) -> bool:
        """Whether a tensor is wrong."""
        usual = self.margin * max((self.usual.get(name, 0.0) for name in row.golden.split(",")), default=0.0)
        if row.dead:
            return True
        if distance <= usual:
            return False
        return cosine < self.cosine or distance > self.distance


@dataclass(slots=True)
class _Operator:
    """Distances of what an operator reads and writes, and who wrote codes among it of unknown scale."""

    read: float = math.nan
    written: float = math.nan
    wrong: bool = False
    read_wrong: bool = False
    cause: FaultCause | None = None
    passes_on: bool = False
    unscaled: list[str] = field(default_factory=list)

    @property
    def adds(self) -> float:
        """The error that it adds, relative to what it writes; endless when one side is unknown."""
        added = self.written**2 - self.read**2
        return math.inf if math.isnan(added) else math.sqrt(max(added, 0.0))


def locate(rows: Sequence[Row], columns: Columns, limits: TensorLimits | None = None) -> Located:
    """Find where the error begins, by the golden data alone.

    Args:
        rows: A table in the order of execution, with cosine similarity and relative Euclidean distance.
        columns: Its columns.
        limits: When a tensor is wrong; by default the vendor's limits.
    """
    limits = limits or TensorLimits()
    operators: dict[str, _Operator] = {}
    scored = [(row, *scores) for row in rows if (scores := _scores(row, columns)) is not None]
    for row, score, away in scored:
        name, role, _ = row.tensor.rsplit(":", 2)
        operator = operators.setdefault(name, _Operator(passes_on=row.op_type in _PASS_ON))
        broken = limits.broken(row, score, away)
        operator.unscaled += [row.unscaled] if row.unscaled else []
        if role == "input" and row.unscaled and not broken:
            continue  # a line was fitted to it: that says nothing of scale and offset
        if role == "input":
            operator.read = _larger(operator.read, away)
            operator.read_wrong |= broken
        else:
            operator.written = _larger(operator.written, away)
            operator.wrong |= broken
            operator.cause = operator.cause or row.cause
    wrong = sum(operator.wrong for operator in operators.values())
    if not wrong and not any(operator.read_wrong for operator in operators.values()):
        hint, hinted = _hint([row for row, _, _ in scored], columns)
        return Located("none", compared=len(scored), hint=hint, hinted=hinted)
    written = [name for name, operator in operators.items() if not math.isnan(operator.written)]
    found = _between(rows, operators) or _begins(operators)
    return replace(
        found,
        distance=operators[found.op].written,
        reaches_end=bool(written) and operators[written[-1]].wrong,
        compared=len(scored),
        wrong=wrong,
    )


def _hint(rows: Sequence[Row], columns: Columns) -> tuple[str, str]:
    for row in rows:
        found = dict(zip(columns.algorithms, row.values, strict=True))
        name, role, _ = row.tensor.rsplit(":", 2)
        for algorithm, limit in other_limits().items():
            if role == "output" and number(found.get(algorithm, "")) > limit:
                away = float(found[algorithm])
                return name, english(
                    "{algorithm} of {away:.4g}, more than {limit:g}", algorithm=algorithm, away=away, limit=limit
                )
    return "", ""


def _between(rows: Sequence[Row], operators: Mapping[str, _Operator]) -> Located | None:
    """Where the first wrong tensor is one that an operator reads, and whoever wrote it was not compared."""
    last = ""
    unseen: dict[str, bool] = {}
    for row in rows:
        name, role = row.tensor.rsplit(":", 2)[:2] if row.tensor != "NaN" else (row.mine, "output")
        operator = operators.get(name, _Operator())
        if math.isnan(operator.written) and not operator.read_wrong:
            if row.op_type not in NOTHING_RUN and (row.tensor == "NaN" or (role == "output" and row.unscaled)):
                unseen.setdefault(name, bool(row.unscaled))
            continue
        if operator.read_wrong:
            return Located("between", name, before=operator.read, between=tuple(unseen), after=last)
        if operator.wrong:
            unseen |= {writer: True for writer in operator.unscaled if writer != name}
            if math.isnan(operator.read) and unseen:
                return Located("between", name, between=(*unseen, name), after=last, unscaled=any(unseen.values()))
            return None
        if not math.isnan(operator.written) and name != last:
            # Codes that a line was fitted to do not clear whoever wrote them.
            unseen = {**unseen, name: True} if name in operator.unscaled else {}
            last = last if name in operator.unscaled else name
    return None


def _begins(operators: Mapping[str, _Operator]) -> Located:
    """The first wrong operator that adds more than others do, else the first wrong one."""
    previous = math.nan
    first: Located | None = None
    usual = 0.0
    known: dict[str, _Operator] = {}
    for name, operator in operators.items():
        before = previous if math.isnan(operator.read) else operator.read
        known[name] = replace(operator, read=before)
        if not math.isnan(operator.written):
            previous = operator.written
    for name, operator in known.items():
        if not operator.wrong:
            continue
        # Behind others that are off without standing out, more is needed than what each of them adds.
        more = first is None or not operator.adds <= _STANDS_OUT * usual
        if first is not None and operator.read_wrong:
            # What comes in wrong may grow on its way through an operator that is right.
            more = more and not operator.written <= _APART * operator.read
        first = first or Located("accumulated", name, before=operator.read)
        if math.isnan(operator.read) or (more and _stands_out(name, known)):
            also = tuple(each for each in operators if each != name and _alone(each, operators))
            return Located("node", name, before=operator.read, cause=operator.cause, also=also)
        usual = max(usual, operator.adds if math.isfinite(operator.adds) else 0.0)
    return first or Located("accumulated", next(iter(operators)))


def _alone(name: str, operators: Mapping[str, _Operator]) -> bool:
    """Whether an operator is wrong and all that it reads, which was dumped with it, is far from wrong."""
    operator = operators[name]
    right = not operator.read_wrong and not operator.unscaled and operator.read * _APART < operator.written
    return operator.wrong and right and _stands_out(name, operators)


def _stands_out(name: str, known: Mapping[str, _Operator]) -> bool:
    """Whether an operator adds clearly more than comes in, and more than others do."""
    operator = known[name]
    added = operator.adds
    if not added > _MORE * operator.read:
        return False
    names = list(known)
    before = [known[other] for other in names[: names.index(name)] if not known[other].passes_on]
    sound = [each for each in before if each.written * _APART < operator.written]
    if added >= _LARGE or len(sound) >= _SOUND or operator.cause is not None:
        return True
    # Nothing before it tells: noise of every operator shows in those behind it, too, unless they smooth it out.
    others = [each for other, each in known.items() if other != name and not each.passes_on]
    telling = [each for each in others if each.adds > 0]
    alike = [each for each in telling if added < each.adds * _STANDS_OUT < math.inf]
    return len(alike) < max(_SEVERAL - 1, _EVERYWHERE * len(telling))


def conclude(errors: Sequence[OperatorError], rows: Located, *, every: bool = False) -> Located:
    """The same by operators that were computed again; what the golden data say counts for all others.

    Args:
        errors: What operators add themselves, in the order of execution.
        rows: Where the error begins by the golden data.
        every: Whether these are all operators that were compared.
    """
    judged = len(errors)
    wrong = [each for each in errors if each.wrong]
    if not judged:
        return rows
    usual = float(np.median([each.size for each in wrong])) if wrong else 0.0
    everywhere = len(wrong) >= max(_SEVERAL, _EVERYWHERE * judged)
    faults = [
        each for each in wrong
        if not everywhere
        or not each.size <= _APART * usual
        or (each.cause is not None and each.cause.kind != "other")
    ]  # fmt: skip
    if everywhere and not faults:
        worst = max(wrong, key=lambda each: each.size)
        return replace(
            rows, kind="accumulated", op=wrong[0].op, distance=usual, before=math.nan, wrong=len(wrong), faults=(),
            between=(), cause=worst.cause, replayed=judged,
        )  # fmt: skip
    if faults:
        faults = _shared(faults)
        first = faults[0]
        return replace(
            rows, kind="node", op=first.op, cause=first.cause, faults=tuple(faults), between=first.between,
            replayed=judged, also=(),
        )  # fmt: skip
    right = {each.op for each in errors}
    if rows.kind in ("node", "accumulated") and rows.op in right:
        # Computed from what it read, it is right: what differs came in with its inputs, and is rounding where all
        # are right. Nothing is at fault then, unless the outputs cannot bear it.
        rounding = every and not wrong
        kind: Literal["none", "accumulated"] = "none" if rounding and not rows.reaches_end else "accumulated"
        return replace(rows, kind=kind, cause=None, also=(), replayed=judged, rounding=rounding)
    return replace(rows, replayed=judged)


def _shared(faults: Sequence[OperatorError]) -> list[OperatorError]:
    """Faults with those that several readers have in common as one: what none of them wrote is wrong for all."""
    found: list[OperatorError] = []
    for fault in faults:
        same = next((place for place, each in enumerate(found) if set(each.between) & set(fault.between)), None)
        if same is None:
            found.append(fault)
            continue
        common = tuple(name for name in found[same].between if name in fault.between)
        found[same] = replace(found[same], op=common[-1], between=common)
    return found


def _larger(left: float, right: float) -> float:
    """The larger number; the other one where one is none."""
    return right if math.isnan(left) else max(left, right)


def _scores(row: Row, columns: Columns) -> tuple[float, float] | None:
    """Cosine similarity and distance of a row; None when it tells neither right from wrong."""
    if not row.values:
        return None
    found = dict(zip(columns.algorithms, row.values, strict=True))
    cosine, distance = found["CosineSimilarity"], found["RelativeEuclideanDistance"]
    if cosine == NOT_COMPUTED and ALL_ZERO in row.reason:
        # One side is nothing but zeros; where it is the golden one, the vendor gives no distance.
        away = number(distance)
        return None if math.isnan(away) else (0.0, away or math.inf)
    scores = number(cosine), number(distance)
    if not any(map(math.isnan, scores)):
        return scores
    golden = found.get("StandardDeviation", "").rpartition("(")[2].partition(";")[0]
    return (0.0, math.inf) if cosine != NOT_COMPUTED and math.isfinite(number(golden)) else None


def number(text: str) -> float:
    """A printed value; NaN when it is none."""
    try:
        return float(text)
    except ValueError:
        return math.nan
