"""Pages that only a server has: the list of runs, whom to compare with, and two runs side by side."""

import shlex
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from roundoff.core.document import RunDocument
from roundoff.core.progress import RunningJob
from roundoff.errors import BadInput
from roundoff.messages.catalogue import Phrase, plain, say
from roundoff.messages.numbers import duration_text
from roundoff.pages.blocks import Block, Cell, Column, Contents, Entry, Headline, Page, Paragraph, TableBlock
from roundoff.pages.glossary import glossary_page
from roundoff.report.pages import all_pages
from roundoff.report.serving.runs import FoundRun, RunFolder
from roundoff.studies.run_diff.page import diff_page
from roundoff.studies.run_diff.result import RunDiff

__all__ = ["Differ", "Side", "comparison_pages", "partners_page", "runs_page"]

Differ = Callable[[tuple[str, RunDocument], tuple[str, RunDocument]], RunDiff]


@dataclass(frozen=True, slots=True)
class Side:
    """One of two runs.

    Attributes:
        name: What it is called.
        document: What it says.
        address: Where it is shown whole.
    """

    name: str
    document: RunDocument
    address: str


def runs_page(folder: RunFolder, runs: Sequence[FoundRun], jobs: Sequence[RunningJob]) -> Page:
    """All runs with their verdicts, and what is running now.

    Args:
        folder: Where they are.
        runs: Those there are, in the order to be shown.
        jobs: Commands that are running.
    """
    blocks: list[Block] = [Headline("open", _running(job)) for job in jobs]
    several = len(runs) > 1
    entries = tuple(
        _entry(folder, run, f"run/{run.id}/", compare=f"compare/{run.id}/" if several else "") for run in runs
    )
    blocks.append(Contents(entries) if runs else Paragraph(say("serving.none")))
    return Page("runs", say("serving.title"), tuple(blocks))


def partners_page(folder: RunFolder, run: FoundRun, others: Sequence[FoundRun]) -> Page:
    """Whom a run may be compared with.

    Args:
        folder: Where they are.
        run: The one.
        others: The other ones.
    """
    entries = tuple(_entry(folder, other, f"{other.id}/") for other in others)
    return Page("partners", say("serving.partners", name=run.name), (Contents(entries),))


def comparison_pages(before: Side, after: Side, differ: Differ, *, swapped: str) -> tuple[Page, ...]:
    """Two runs side by side: what every part of each says, and what differs node by node.

    Args:
        before: The one.
        after: The other.
        differ: Finds what differs.
        swapped: Where they are the other way round.
    """
    sides = (before, after)
    blocks = (_both(sides, swapped), _verdict_table(sides))
    try:
        diff = differ((before.name, before.document), (after.name, after.document))
    except BadInput as error:
        # Runs of two commands have no scores in common; their verdicts still stand side by side.
        said = Paragraph(say("serving.no_diff", why=error.what), note=True)
        return (Page("sides", say("serving.two"), (*blocks, said)),)
    found = diff_page(replace(after.document, diff=diff))
    pages = (Page("sides", say("serving.two"), blocks), *(() if found is None else (found,)))
    glossary = glossary_page(pages)
    return (*pages, *(() if glossary is None else (glossary,)))


def _both(sides: Sequence[Side], swapped: str) -> Contents:
    entries = tuple(
        Entry("", say(f"serving.{word}", name=side.name), "plain", _verdict(side.document), side.address)
        for word, side in zip(("before", "after"), sides, strict=True)
    )
    return Contents((*entries, Entry("", say("serving.swap"), "plain", plain(""), swapped)))


def _verdict_table(sides: Sequence[Side]) -> TableBlock:
    verdicts = [_verdicts(side.document) for side in sides]
    titles = {title.en: title for each in verdicts for title in each}
    commands = tuple(plain(shlex.join(side.document.command)) for side in sides)
    rows: tuple[tuple[Cell, ...], ...] = (
        (say("serving.command"), *commands),
        *((title, *(each.get(title, plain("")) for each in verdicts)) for title in titles.values()),
    )
    columns = (
        Column("part", say("serving.part"), "text"),
        Column("first", plain(sides[0].name), "text"),
        Column("second", plain(sides[1].name), "text"),
    )
    return TableBlock("sides", say("serving.sides"), columns, rows)


def _running(job: RunningJob) -> Phrase:
    title = job.title or job.output
    elapsed = duration_text(job.elapsed_s)
    return say("serving.running", name=job.output, title=title, done=job.done, total=job.total, elapsed=elapsed)


def _entry(folder: RunFolder, run: FoundRun, address: str, *, compare: str = "") -> Entry:
    try:
        document = folder.document(run)
    except BadInput as error:
        return Entry("", plain(run.name), "open", plain(error.what), address)
    also = ((say("serving.compare"), compare),) if compare else ()
    headlines = _headlines(document)
    tone = headlines[0][1].tone if headlines else "plain"
    text = say(
        "serving.entry", command=" ".join(document.command[1:2]), written=run.written, verdict=_verdict(document)
    )
    return Entry("", plain(run.name), tone, text, address, also)


def _headlines(document: RunDocument) -> list[tuple[Phrase, Headline]]:
    return [
        (page.title, block) for page in all_pages(document) for block in page.blocks if isinstance(block, Headline)
    ]


def _verdict(document: RunDocument) -> Phrase:
    found = _headlines(document)
    return found[0][1].text if found else plain("")


def _verdicts(document: RunDocument) -> dict[Phrase, Phrase]:
    found: dict[Phrase, Phrase] = {}
    for title, block in _headlines(document):
        found.setdefault(title, block.text)
    return found
