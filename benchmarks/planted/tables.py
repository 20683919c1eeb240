"""Answers as tables: by fault, by family, and which cause was taken for which."""

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence

from benchmarks.planted.answers import Answer

__all__ = ["TARGETS", "confusion", "families_table", "faults_table", "summary"]

TARGETS = {"found": 0.95, "right": 0.85}
"""What the suite is to reach: culprits among the first three, and right causes."""


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


def summary(answers: Sequence[Answer]) -> dict[str, tuple[int, int]]:
    """The four figures that are promised."""
    return {
        "culprit in top 3": _share(each for answer in answers for each in answer.found),
        "right cause": _share(each for answer in answers for each in answer.right),
        "claims with a verified gain": (sum(a.fixes[1] for a in answers), sum(a.fixes[0] for a in answers)),
        "accused although clean": _share(answer.accused for answer in answers if answer.clean),
    }
