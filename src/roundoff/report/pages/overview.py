"""The first page: the verdict of every part in one line, with a link to it."""

from collections.abc import Sequence
from pathlib import PurePath

from roundoff.core.document import RunDocument
from roundoff.report.pages.blocks import Block, Contents, Entry, Facts, Headline, Page
from roundoff.report.pages.parts import role_name
from roundoff.report.words import plain, say

__all__ = ["overview_page"]

# What a run is about; the other files it read stand on the page about the run.
_SUBJECTS = ("model", "reference", "candidate")


def overview_page(document: RunDocument, pages: Sequence[Page]) -> Page | None:
    """The page on all others; None where none of them has a verdict.

    Args:
        document: The run.
        pages: Its pages.
    """
    entries = tuple(entry for page in pages if (entry := _entry(page)) is not None)
    if not entries:
        return None
    facts = [
        (role_name(each.role), plain(PurePath(each.path).name))
        for each in document.inputs
        if each.role in _SUBJECTS
    ]
    if document.network is not None:
        facts.append((say("overview.network"), say("overview.nodes", count=len(document.network.nodes))))
    blocks: tuple[Block, ...] = (Contents(entries),)
    return Page("overview", say("overview.title"), (*blocks, Facts(tuple(facts))) if facts else blocks)


def _entry(page: Page) -> Entry | None:
    first = next((block for block in page.blocks if isinstance(block, Headline)), None)
    return None if first is None else Entry(page.id, page.title, first.tone, first.text)
