"""Two runs side by side: the verdict, what a gate says, the change along the network, what was not the same."""

from roundoff.core.document import RunDocument
from roundoff.messages.catalogue import Phrase, named, plain, say
from roundoff.pages.blocks import (
    NODE_COLUMNS,
    Block,
    Cell,
    Chart,
    Column,
    Facts,
    Headline,
    Page,
    Paragraph,
    Series,
    Table,
    Tone,
    few_names,
    notes,
)
from roundoff.studies.run_diff.result import RowDiff, RunDiff, names_of

__all__ = ["diff_page"]

_TONES: dict[str, Tone] = {"same": "good", "better": "good", "worse": "bad", "mixed": "bad"}

_COLUMNS = (
    Column("order", plain("#"), "count"),
    *NODE_COLUMNS,
    Column("tensor", say("common.tensor"), "text"),
    Column("measure", say("run_diff.measure"), "text"),
    Column("before_db", say("run_diff.before_db"), "decibels", higher_is_better=True),
    Column("after_db", say("run_diff.after_db"), "decibels", higher_is_better=True),
    Column("change_db", say("run_diff.change_db"), "decibels", higher_is_better=True),
    Column("probability", say("run_diff.probability"), "share", say("run_diff.probability_help")),
    Column("change", say("run_diff.change"), "text"),
    Column("starts", say("run_diff.starts"), "truth", say("run_diff.starts_help")),
)
_AXES = (say("common.place_axis"), say("run_diff.change_axis"))


def diff_page(document: RunDocument) -> Page | None:
    """The page on what differs between two runs; None when none were compared."""
    diff = document.diff
    if diff is None:
        return None
    table = Table("diff", say("run_diff.table"), _COLUMNS, tuple(map(_row, diff.rows)), sort="change_db")
    shown: tuple[Block, ...] = (*_chart(diff), table) if diff.rows else ()
    return Page("diff", say("run_diff.title"), (*_verdict(diff), *_conditions(diff), *shown, *notes(diff.notes)))


def _chart(diff: RunDiff) -> tuple[Chart, ...]:
    """Bars for each kind of score along the network; none where scores have no place in it."""
    measures = dict.fromkeys(row.measure for row in diff.rows if row.order is not None)
    labels = [_measure(each) for each in measures]
    series = tuple(Series(("change_db",), label, "bars", only=("measure", label.en)) for label in labels)
    chart = Chart("diff-along", say("run_diff.along"), "diff", "order", series, *_AXES)
    return (chart,) if series else ()


def _measure(name: str) -> Phrase:
    return named(f"run_diff.measure_{name}") or plain(name)


def _verdict(diff: RunDiff) -> tuple[Block, ...]:
    counts = {kind: len(diff.tensors(kind)) for kind in ("worse", "better", "unclear", "untested")}
    text = say(f"run_diff.{diff.kind}", nodes=len(names_of(diff.rows)), floor=f"{diff.floor_db:g}", **counts)
    blocks: list[Block] = []
    if diff.gate is not None:
        told = say("run_diff.passes") if diff.gate.passed else say("run_diff.fails", count=diff.gate.failed)
        blocks.append(Headline("good" if diff.gate.passed else "bad", told))
    blocks.append(Headline(_TONES.get(diff.kind, "open"), text))
    if diff.first is not None:
        blocks.append(Paragraph(say("run_diff.first", name=diff.first)))
    most = None if diff.first is None else diff.largest
    if most is not None and most.change_db is not None:
        blocks.append(Paragraph(say("run_diff.most", name=most.tensor, change=f"{most.change_db:.1f}")))
    starts = names_of([row for row in diff.rows if row.starts])
    if starts:
        blocks.append(Paragraph(say("run_diff.start_here", names=few_names(starts))))
    named = tuple(f"{old} → {new}" for old, new in diff.renamed)
    for key, names in (("gone", diff.only_before), ("new", diff.only_after), ("renamed", named)):
        if names:
            blocks.append(Paragraph(say(f"run_diff.{key}", count=len(names), names=few_names(names))))
    return tuple(blocks)


def _conditions(diff: RunDiff) -> tuple[Block, ...]:
    runs = (say("run_diff.runs"), plain(f"{diff.before} → {diff.after}"))
    samples = (
        say("run_diff.samples"),
        say(f"run_diff.{diff.pairing}", before=diff.samples[0], after=diff.samples[1]),
    )
    changed = ((plain(each.what), plain(f"{each.before or '-'} → {each.after or '-'}")) for each in diff.inputs)
    return (Facts((runs, samples, *changed)),)


def _row(row: RowDiff) -> tuple[Cell, ...]:
    return (
        row.order,
        row.node,
        row.op_type,
        row.tensor,
        _measure(row.measure),
        row.before,
        row.after,
        row.change_db,
        row.probability,
        row.detail or say(f"run_diff.row_{row.change}"),
        row.starts if row.change == "worse" else None,
    )
