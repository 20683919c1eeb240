"""The runs of a folder, found anew on every request, and the pages that list and compare them."""

import hashlib
import os
import shlex
import stat
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from roundoff.core.document import DOCUMENT_NAME, RunDocument, load_document
from roundoff.core.progress import RunningJob, read_progress
from roundoff.errors import BadInput
from roundoff.messages.catalogue import Phrase, bilingual, plain
from roundoff.messages.numbers import duration_text
from roundoff.pages.blocks import Block, Cell, Column, Contents, Entry, Headline, Page, Paragraph, TableBlock
from roundoff.pages.glossary import glossary_page
from roundoff.report.pages import all_pages
from roundoff.studies.run_diff.page import diff_page
from roundoff.studies.run_diff.result import RunDiff

# Enough for a folder of results; a whole disk is not walked through.
_MOST_RUNS = 500
_MOST_FOLDERS = 5000
_DEEPEST = 4
_LARGEST_BYTES = 256 << 20


@dataclass(frozen=True, slots=True)
class FoundRun:
    """One run.

    Attributes:
        id: By which it is asked for: made of its place, so that no address names a file.
        name: Its place below the folder.
        path: The folder of the run.
        written: When it was written, in the time of this machine.
        stamp: Changes when the run does.
    """

    id: str
    name: str
    path: Path
    written: str
    stamp: tuple[int, int]


@dataclass(slots=True)
class RunFolder:
    """All runs at or below a folder.

    Attributes:
        root: The folder.
    """

    root: Path
    _read: dict[tuple[str, tuple[int, int]], RunDocument | BadInput] = field(default_factory=dict)

    def runs(self) -> dict[str, FoundRun]:
        """Every run by its id, the newest first. Links are not followed, hidden folders not entered."""
        found = sorted(self._walk(), key=lambda run: run.stamp, reverse=True)
        return {run.id: run for run in found[:_MOST_RUNS]}

    def document(self, run: FoundRun) -> RunDocument:
        """What a run says.

        Raises:
            BadInput: It is no document that this version reads.
        """
        key = (run.id, run.stamp)
        found = self._read.get(key)
        if found is None:
            for old in [each for each in list(self._read) if each[0] == run.id]:
                self._read.pop(old, None)
            try:
                found = load_document(run.path)
            except BadInput as error:
                found = error
            self._read[key] = found
        if isinstance(found, BadInput):
            raise found
        return found

    def jobs(self) -> tuple[RunningJob, ...]:
        """The commands that run now and will write at or below the folder, called by their place in it."""
        return tuple(
            replace(job, output=(place.relative_to(self.root) / job.output).as_posix())
            for place in self._folders()
            for job in read_progress(place)
        )

    def _walk(self) -> Iterator[FoundRun]:
        return (run for place in self._folders() if (run := self._run(place)) is not None)

    def _folders(self) -> Iterator[Path]:
        for count, (place, folders, _) in enumerate(os.walk(self.root)):
            if count >= _MOST_FOLDERS:
                return
            path = Path(place)
            depth = len(path.relative_to(self.root).parts)
            folders[:] = sorted(name for name in folders if depth < _DEEPEST and not name.startswith("."))
            yield path

    def _run(self, path: Path) -> FoundRun | None:
        try:
            # Not what a link points to: that may be anywhere.
            status = (path / DOCUMENT_NAME).lstat()
        except OSError:
            return None
        if not stat.S_ISREG(status.st_mode) or status.st_size > _LARGEST_BYTES:
            return None
        name = path.relative_to(self.root).as_posix()
        written = time.strftime("%Y-%m-%d %H:%M", time.localtime(status.st_mtime))
        identity = hashlib.sha256(os.fsencode(name)).hexdigest()[:16]
        shown = self.root.name if name == "." else name
        return FoundRun(identity, shown, path, written, (status.st_mtime_ns, status.st_size))


Differ = Callable[[tuple[str, RunDocument], tuple[str, RunDocument]], RunDiff]


@dataclass(frozen=True, slots=True)
class RunSide:
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
    blocks.append(Contents(entries) if runs else Paragraph(bilingual("serve.none")))
    return Page("runs", bilingual("serve.title"), tuple(blocks))


def partners_page(folder: RunFolder, run: FoundRun, others: Sequence[FoundRun]) -> Page:
    """Whom a run may be compared with.

    Args:
        folder: Where they are.
        run: The one.
        others: The other ones.
    """
    entries = tuple(_entry(folder, other, f"{other.id}/") for other in others)
    return Page("partners", bilingual("serve.partners", name=run.name), (Contents(entries),))


def comparison_pages(before: RunSide, after: RunSide, differ: Differ, *, swapped: str) -> tuple[Page, ...]:
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
        said = Paragraph(bilingual("serve.no_diff", why=error.what), note=True)
        return (Page("sides", bilingual("serve.two"), (*blocks, said)),)
    found = diff_page(replace(after.document, diff=diff))
    pages = (Page("sides", bilingual("serve.two"), blocks), *(() if found is None else (found,)))
    glossary = glossary_page(pages)
    return (*pages, *(() if glossary is None else (glossary,)))


def _both(sides: Sequence[RunSide], swapped: str) -> Contents:
    entries = tuple(
        Entry("", bilingual(f"serve.{word}", name=side.name), "plain", _verdict(side.document), side.address)
        for word, side in zip(("before", "after"), sides, strict=True)
    )
    return Contents((*entries, Entry("", bilingual("serve.swap"), "plain", plain(""), swapped)))


def _verdict_table(sides: Sequence[RunSide]) -> TableBlock:
    verdicts = [_verdicts(side.document) for side in sides]
    titles = {title.en: title for each in verdicts for title in each}
    commands = tuple(plain(shlex.join(side.document.command)) for side in sides)
    rows: tuple[tuple[Cell, ...], ...] = (
        (bilingual("serve.command"), *commands),
        *((title, *(each.get(title, plain("")) for each in verdicts)) for title in titles.values()),
    )
    columns = (
        Column("part", bilingual("serve.part"), "text"),
        Column("first", plain(sides[0].name), "text"),
        Column("second", plain(sides[1].name), "text"),
    )
    return TableBlock("sides", bilingual("serve.sides"), columns, rows)


def _running(job: RunningJob) -> Phrase:
    title = job.title or job.output
    elapsed = duration_text(job.elapsed_s)
    return bilingual(
        "serve.running", name=job.output, title=title, done=job.done, total=job.total, elapsed=elapsed
    )


def _entry(folder: RunFolder, run: FoundRun, address: str, *, compare: str = "") -> Entry:
    try:
        document = folder.document(run)
    except BadInput as error:
        return Entry("", plain(run.name), "open", plain(error.what), address)
    also = ((bilingual("serve.compare"), compare),) if compare else ()
    headlines = _headlines(document)
    tone = headlines[0][1].tone if headlines else "plain"
    text = bilingual(
        "serve.entry", command=" ".join(document.command[1:2]), written=run.written, verdict=_verdict(document)
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
