"""All pages, in the order of a report."""

import shlex
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import PurePath

from roundoff.core.document import RunDocument
from roundoff.diagnosis.page import diagnosis_page
from roundoff.messages.catalogue import plain, say
from roundoff.messages.numbers import time_text
from roundoff.messages.sentences import known
from roundoff.pages.blocks import (
    Block,
    Cell,
    Chart,
    Column,
    Commands,
    Contents,
    Entry,
    Facts,
    Headline,
    Page,
    Paragraph,
    TableBlock,
    role_name,
)
from roundoff.pages.glossary import glossary_page
from roundoff.report.network import network_page
from roundoff.search.page import tuning_page
from roundoff.studies.accumulate.page import accumulation_page
from roundoff.studies.audit.page import audit_page
from roundoff.studies.check_calibration.page import calibration_page
from roundoff.studies.check_io.page import io_check_page
from roundoff.studies.compare.page import comparison_page
from roundoff.studies.distribution.channel_pages import channels_page, outliers_page
from roundoff.studies.distribution.page import distribution_page
from roundoff.studies.layers.page import layers_page
from roundoff.studies.partial.page import partial_page
from roundoff.studies.run_diff.page import diff_page
from roundoff.studies.samples.page import samples_page
from roundoff.studies.sensitivity.page import sensitivity_page
from roundoff.studies.transform.page import transform_page

__all__ = [
    "PAGES",
    "about_page",
    "all_pages",
    "overview_page",
]


# The first page: the verdict of every part in one line, with a link to it.

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
    return None if first is None else Entry(page.id, page.title, first.tone, first.whole)


# Where a run came from: the command to repeat it, what it read, versions and host.

_INPUTS = (
    Column("role", say("about.role"), "text"),
    Column("path", say("about.file"), "text"),
    Column("size_bytes", say("about.bytes"), "count"),
    Column("sha256", say("about.hash"), "text"),
)
_VERSIONS = (Column("what", say("about.what"), "text"), Column("value", say("about.value"), "text"))


def about_page(document: RunDocument) -> Page:
    """The page on the run itself; every document has one."""
    inputs = tuple((role_name(each.role), each.path, each.size_bytes, each.sha256) for each in document.inputs)
    host = document.environment
    versions: tuple[tuple[Cell, ...], ...] = (
        ("roundoff", host.roundoff),
        ("Python", host.python),
        *host.packages.items(),
        (say("about.host"), host.host),
        (say("about.arithmetic"), known(host.arithmetic)),
        (say("about.elapsed"), time_text(host.elapsed_s)),
    )
    blocks = (
        Paragraph(say("about.commands")),
        Commands((shlex.join(document.command),)),
        TableBlock("inputs", say("about.inputs"), _INPUTS, inputs),
        TableBlock("versions", say("about.versions"), _VERSIONS, versions, folded=True),
    )
    return Page("about", say("about.title"), blocks)


PAGES: tuple[Callable[[RunDocument], Page | None], ...] = (
    diff_page,
    diagnosis_page,
    io_check_page,
    calibration_page,
    comparison_page,
    layers_page,
    sensitivity_page,
    accumulation_page,
    partial_page,
    tuning_page,
    transform_page,
    audit_page,
    distribution_page,
    channels_page,
    outliers_page,
    samples_page,
    network_page,
)


def all_pages(document: RunDocument) -> tuple[Page, ...]:
    """The pages that a document has something for, framed by an overview, a glossary and what the run was."""
    found = tuple(_without_empty(page) for make in PAGES if (page := make(document)) is not None)
    framed = (overview_page(document, found), *found, glossary_page(found), about_page(document))
    return tuple(page for page in framed if page is not None)


def _without_empty(page: Page) -> Page:
    """A page without tables that have no row, and the charts of these."""
    empty = {block.id for block in page.blocks if isinstance(block, TableBlock) and not block.rows}
    blocks = tuple(
        block
        for block in page.blocks
        if (block.id if isinstance(block, TableBlock) else block.table if isinstance(block, Chart) else "")
        not in empty
    )
    return replace(page, blocks=blocks, sections=tuple(_without_empty(each) for each in page.sections))
