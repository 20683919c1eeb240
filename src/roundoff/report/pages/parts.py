"""Blocks that many pages share."""

from collections.abc import Iterable, Sequence

from roundoff.core.wording import counted
from roundoff.report.pages.blocks import Column, ColumnKind, Paragraph
from roundoff.report.words import Phrase, known, named, plain, say

__all__ = ["NODE_COLUMNS", "few_names", "metric_axis", "metric_column", "notes", "role_name"]

NODE_COLUMNS = (
    Column("node", say("common.node"), "node"),
    Column("op_type", say("common.operation"), "text"),
)

_MOST_NAMED = 5
_SHARES = frozenset({"accuracy", "same_top1"})


def notes(*groups: Iterable[str]) -> tuple[Paragraph, ...]:
    """Remarks of a run, each as a note; those that are not known again are in English."""
    return tuple(Paragraph(known(note), note=True) for group in groups for note in group)


def few_names(names: Sequence[str]) -> Phrase:
    """The first names, and how many more there are."""
    listed, more = ", ".join(names[:_MOST_NAMED]), len(names) - _MOST_NAMED
    if more <= 0:
        return plain(listed)
    return Phrase(f"{listed} and {counted(more, 'other')}", f"{listed} 等 {len(names)} 个")


def metric_column(name: str, *, higher_is_better: bool | None) -> Column:
    """A column of scores, called as users know the metric."""
    kind: ColumnKind = "decibels" if name.endswith("_db") else "score"
    return Column(name, plain(name), kind, higher_is_better=higher_is_better)


def metric_axis(name: str) -> Phrase:
    """What an axis of scores is called: the metric, and its unit where it has one."""
    if name == "sqnr_db":
        return say("common.sqnr_axis")
    if name in _SHARES:
        return say("common.share_axis", name=name)
    return plain(f"{name.removesuffix('_db')}, dB" if name.endswith("_db") else name)


def role_name(role: str) -> Phrase:
    """What a file was to a run: the model, its samples, the other side."""
    return named(f"about.role_{role}") or plain(role)
