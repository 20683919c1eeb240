"""Pages that only a server has: the list of runs, whom to compare with, and two runs side by side."""

import shlex
from collections.abc import Sequence

from roundoff.core.document import RunDocument
from roundoff.core.progress_file import RunningJob
from roundoff.errors import BadInput
from roundoff.report.pages import all_pages
from roundoff.report.pages.blocks import Block, Cell, Column, Contents, Entry, Headline, Page, Paragraph, Table
from roundoff.report.serving.runs import FoundRun, RunFolder
from roundoff.report.words import Phrase, plain, say

__all__ = ["comparison_page", "partners_page", "runs_page"]


def runs_page(folder: RunFolder, runs: Sequence[FoundRun], jobs: Sequence[RunningJob]) -> Page:
    """All runs with their verdicts, and what is running now.

    Args:
        folder: Where they are.
        runs: Those there are, in the order to be shown.
        jobs: Commands that are running.
    """
    blocks: list[Block] = [Headline("open", _running(job)) for job in jobs]
    blocks.append(Contents(tuple(_entry(folder, run, f"run/{run.id}/") for run in runs)))
    if not runs:
        blocks.append(Paragraph(say("serving.none")))
    elif len(runs) > 1:
        pairs = tuple(
            Entry("", plain(run.name), "plain", plain(run.written), f"compare/{run.id}/") for run in runs
        )
        blocks += [Paragraph(say("serving.compare")), Contents(pairs)]
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


def comparison_page(
    names: tuple[str, str], documents: tuple[RunDocument, RunDocument], links: Sequence[str]
) -> Page:
    """Two runs side by side: their commands and what every part of each says.

    Args:
        names: What they are called.
        documents: What they say.
        links: Where they are shown whole.
    """
    verdicts = [_verdicts(document) for document in documents]
    titles = {title.en: title for side in verdicts for title in side}
    commands = tuple(plain(shlex.join(document.command)) for document in documents)
    rows: tuple[tuple[Cell, ...], ...] = (
        (say("serving.command"), *commands),
        *((title, *(side.get(title, plain("")) for side in verdicts)) for title in titles.values()),
    )
    columns = (
        Column("part", say("serving.part"), "text"),
        Column("first", plain(names[0]), "text"),
        Column("second", plain(names[1]), "text"),
    )
    sides = zip(names, documents, links, strict=True)
    entries = tuple(Entry("", plain(name), "plain", _verdict(document), link) for name, document, link in sides)
    blocks = (Contents(entries), Table("sides", say("serving.sides"), columns, rows))
    return Page("comparison-of-runs", say("serving.two"), blocks)


def _running(job: RunningJob) -> Phrase:
    title = job.title or job.output
    return say("serving.running", name=job.output, title=title, done=job.done, total=job.total)


def _entry(folder: RunFolder, run: FoundRun, address: str) -> Entry:
    try:
        document = folder.document(run)
    except BadInput as error:
        return Entry("", plain(run.name), "open", plain(error.what), address)
    headlines = _headlines(document)
    tone = headlines[0][1].tone if headlines else "plain"
    text = say(
        "serving.entry", command=" ".join(document.command[1:2]), written=run.written, verdict=_verdict(document)
    )
    return Entry("", plain(run.name), tone, text, address)


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
