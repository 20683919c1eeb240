"""Answers as tables: by fault, by family, and which cause was taken for which."""

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from typing import Literal

from benchmarks.planted.answers import Answer

TARGETS = {"found": 0.95, "right": 0.85, "accused": 0.01, "holds": 0.95}
"""What the suite is to reach: culprits among the first three, also under each style of names; right causes; clean
cases that are accused, at most; repairs that keep their word on other samples."""


def _share(values: Iterable[bool]) -> tuple[int, int]:
    listed = list(values)
    return sum(listed), len(listed)


def _text(share: tuple[int, int]) -> str:
    good, total = share
    return f"{good}/{total}" if total else ""


def faults_table(answers: Sequence[Answer]) -> list[tuple[str, ...]]:
    """Rows: fault, trials, culprit found, right cause, accused although clean, mean seconds."""
    rows: list[tuple[str, ...]] = [("fault", "trials", "culprit in top 3", "right cause", "falsely accused", "s")]
    groups: dict[str, list[Answer]] = defaultdict(list)
    for answer in answers:
        if not _is_repair(answer):
            groups[answer.fault].append(answer)
    for name in sorted(groups, key=lambda key: (groups[key][0].clean, key)):
        group = groups[name]
        clean = group[0].clean
        found = _share(each for answer in group for each in answer.found)
        right = _share(each for answer in group for each in answer.right)
        accused = _text(_share(answer.accused for answer in group)) if clean else ""
        seconds = f"{sum(answer.seconds for answer in group) / len(group):.1f}"
        rows.append((name, str(len(group)), _text(found), _text(right), accused, seconds))
    return rows


def families_table(answers: Sequence[Answer]) -> list[tuple[str, ...]]:
    """Rows: family, culprit found, right cause, accused although clean."""
    rows: list[tuple[str, ...]] = [("family", "culprit in top 3", "right cause", "falsely accused")]
    groups: dict[str, list[Answer]] = defaultdict(list)
    for answer in answers:
        if not _is_repair(answer):
            groups[answer.family].append(answer)
    for name, group in groups.items():
        found = _share(each for answer in group for each in answer.found)
        right = _share(each for answer in group for each in answer.right)
        accused = _share(answer.accused for answer in group if answer.clean)
        rows.append((name, _text(found), _text(right), _text(accused)))
    return rows


def confusion(answers: Sequence[Answer]) -> list[tuple[str, ...]]:
    """Rows: expected cause, and how often each cause was said instead or in agreement."""
    counts: Counter[tuple[str, str]] = Counter()
    for answer in answers:
        for expected, said in zip(answer.expected, answer.said, strict=False):
            counts[expected, said or "nobody"] += 1
    said_causes = sorted({said for _, said in counts})
    planted = sorted({expected for expected, _ in counts})
    rows = [(expected, *(str(counts[expected, said] or "") for said in said_causes)) for expected in planted]
    return [("planted \\ said", *said_causes), *rows]


def dumps_table(answers: Sequence[Answer], by: Literal["style", "way"]) -> list[tuple[str, ...]]:
    """Rows: style of names or way of a dump, and what was found, said to be good, and falsely accused."""
    head = {"style": "names in the dump", "way": "the dump"}[by]
    rows: list[tuple[str, ...]] = [
        (head, "culprit in top 3", "right cause", "broken, called good", "falsely accused")
    ]
    groups: dict[str, list[Answer]] = defaultdict(list)
    for answer in answers:
        if getattr(answer, by):
            groups[getattr(answer, by)].append(answer)
    for name in sorted(groups):
        group = groups[name]
        found = _share(each for answer in group for each in answer.found)
        right = _share(each for answer in group for each in answer.right)
        good = _share(bool(answer.good) for answer in group if answer.broken)
        accused = _share(answer.accused for answer in group if answer.clean)
        rows.append((name, *map(_text, (found, right, good, accused))))
    return rows


def repairs_table(answers: Sequence[Answer]) -> list[tuple[str, ...]]:
    """Rows: repair, how many, how many claims hold on other samples, the most that one falls short."""
    rows: list[tuple[str, ...]] = [("repair", "trials", "claims", "true of other samples", "most it falls short")]
    groups: dict[str, list[Answer]] = defaultdict(list)
    for answer in answers:
        if _is_repair(answer):
            groups[answer.fault].append(answer)
    for name in sorted(groups):
        claims = [answer for answer in groups[name] if answer.claim]
        short = [(a.claim[0] - a.claim[1], a.unit) for a in claims]
        worst = max(short, default=None)
        told = "" if worst is None else f"{max(worst[0], 0):.2f} {worst[1]}"
        holds = _text(_share(answer.holds for answer in claims))
        rows.append((name, str(len(groups[name])), str(len(claims)), holds, told))
    return rows


def _is_repair(answer: Answer) -> bool:
    return answer.fault.startswith(("fix-", "tune-"))


def summary(answers: Sequence[Answer]) -> dict[str, tuple[int, int]]:
    """The figures that are promised."""
    return {
        "culprit in top 3": _share(each for answer in answers for each in answer.found),
        "right cause": _share(each for answer in answers for each in answer.right),
        "claims with a verified gain": (sum(a.fixes[1] for a in answers), sum(a.fixes[0] for a in answers)),
        "broken boards called HEALTHY or PASS": _share(bool(a.good) for a in answers if a.broken),
        "accused although clean": _share(answer.accused for answer in answers if answer.clean),
        "repairs that keep their word on other samples": _share(a.holds for a in answers if a.claim),
        "commands that failed": _share(bool(answer.error) for answer in answers),
    }


def reached(answers: Sequence[Answer]) -> list[str]:
    """Targets that are missed, in words."""
    found, right, gains, good, accused, holds, failed = summary(answers).values()
    missed = []
    for name, (have, total), least in (
        ("culprit in top 3", found, TARGETS["found"]),
        ("right cause", right, TARGETS["right"]),
        ("claims with a verified gain", gains, 1.0),
        ("repairs that keep their word", holds, TARGETS["holds"]),
    ):
        if have < least * total:
            missed.append(name)
    groups: dict[str, list[bool]] = defaultdict(list)
    for answer in answers:
        groups[answer.style] += answer.found
    missed += [
        f"culprit in top 3, {name}"
        for name, each in sorted(groups.items())
        if name and sum(each) < TARGETS["found"] * len(each)
    ]
    if good[0]:
        missed.append("broken boards called HEALTHY or PASS")
    if accused[0] > TARGETS["accused"] * accused[1]:
        missed.append("accused although clean")
    if failed[0]:
        missed.append("commands that failed")
    return missed
