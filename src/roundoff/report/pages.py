"""All pages of a run in the order of a report, and the folder it is written to."""

import csv
import io
import shlex
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from importlib import import_module
from pathlib import Path, PurePath

from roundoff.core.document import DOCUMENT_NAME, RunDocument, to_json
from roundoff.core.files import output_directory, write_bytes, write_text
from roundoff.core.names import ALIAS_HEADER
from roundoff.messages.catalogue import bilingual, plain
from roundoff.messages.message import phrase_of
from roundoff.messages.numbers import time_text
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
    is_hidden,
    role_name,
)
from roundoff.pages.csv import run_tables
from roundoff.pages.glossary import glossary_page

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
        facts.append(
            (bilingual("overview.network"), bilingual("overview.nodes", count=len(document.network.nodes)))
        )
    blocks: tuple[Block, ...] = (Contents(entries),)
    return Page("overview", bilingual("overview.title"), (*blocks, Facts(tuple(facts))) if facts else blocks)


def _entry(page: Page) -> Entry | None:
    first = next((block for block in page.blocks if isinstance(block, Headline)), None)
    return None if first is None else Entry(page.id, page.title, first.tone, first.whole)


# Where a run came from: the command to repeat it, what it read, versions and host.

_INPUTS = (
    Column("role", bilingual("about.role"), "text"),
    Column("path", bilingual("about.file"), "text"),
    Column("size_bytes", bilingual("about.bytes"), "count"),
    Column("sha256", bilingual("about.hash"), "text"),
)
_VERSIONS = (Column("what", bilingual("about.what"), "text"), Column("value", bilingual("about.value"), "text"))


def about_page(document: RunDocument) -> Page:
    """The page on the run itself; every document has one."""
    inputs = tuple((role_name(each.role), each.path, each.size_bytes, each.sha256) for each in document.inputs)
    host = document.environment
    versions: tuple[tuple[Cell, ...], ...] = (
        ("roundoff", host.roundoff),
        ("Python", host.python),
        *host.packages.items(),
        (bilingual("about.host"), host.host),
        (bilingual("about.arithmetic"), phrase_of(host.arithmetic)),
        (bilingual("about.elapsed"), time_text(host.elapsed_s)),
    )
    blocks = (
        Paragraph(bilingual("about.commands")),
        Commands((shlex.join(document.command),)),
        TableBlock("inputs", bilingual("about.inputs"), _INPUTS, inputs),
        TableBlock("versions", bilingual("about.versions"), _VERSIONS, versions, folded=True),
    )
    return Page("about", bilingual("about.title"), blocks)


# Sections of a document, and where the function is that makes the page of each; only those of a run are loaded.
_PAGES = (
    ("diff", "studies.run_diff.page", "diff_page"),
    ("diagnosis", "diagnosis.page", "diagnosis_page"),
    ("io_check", "studies.check_io.page", "io_check_page"),
    ("calibration_check", "studies.check_calibration.page", "calibration_page"),
    ("comparison", "studies.compare.page", "comparison_page"),
    ("layers", "studies.layers.page", "layers_page"),
    ("sensitivity", "studies.sensitivity.page", "sensitivity_page"),
    ("accumulation", "studies.accumulate.page", "accumulation_page"),
    ("partial", "studies.partial.page", "partial_page"),
    ("tuning", "search.page", "tuning_page"),
    ("transform", "studies.transform.page", "transform_page"),
    ("audit", "studies.audit.page", "audit_page"),
    ("distributions", "studies.distribution.page", "distribution_page"),
    ("channels", "studies.distribution.channel_pages", "channels_page"),
    ("outliers", "studies.distribution.channel_pages", "outliers_page"),
    ("worst_samples", "studies.samples.page", "samples_page"),
    ("network", "report.network", "network_page"),
)


def section_pages(document: RunDocument) -> Iterator[Page]:
    """The page of each section that a document has, in the order of a report."""
    for section, module, name in _PAGES:
        if getattr(document, section) is not None:
            make: Callable[[RunDocument], Page | None] = getattr(import_module(f"roundoff.{module}"), name)
            page = make(document)
            if page is not None:
                yield page


def all_pages(document: RunDocument) -> tuple[Page, ...]:
    """The pages that a document has something for, framed by an overview, a glossary and what the run was."""
    found = tuple(map(_without_empty, section_pages(document)))
    framed = (overview_page(document, found), *found, glossary_page(found), about_page(document))
    return tuple(page for page in framed if page is not None)


def _without_empty(page: Page) -> Page:
    """A page without tables that have no row, and the charts of these; a file is written without rows, too."""
    tables = (block for block in page.blocks if isinstance(block, TableBlock) and not is_hidden(block, "html"))
    empty = {table.id for table in tables if not table.rows}
    blocks = tuple(
        block
        for block in page.blocks
        if (block.id if isinstance(block, TableBlock) else block.table if isinstance(block, Chart) else "")
        not in empty
    )
    return replace(page, blocks=blocks, sections=tuple(_without_empty(each) for each in page.sections))


def write_run(
    document: RunDocument,
    directory: Path,
    *,
    force: bool,
    pictures: Mapping[str, bytes] | None = None,
    more: Mapping[str, Callable[[Path], None]] | None = None,
) -> tuple[Path, ...]:
    """Write a run directory, whole or not at all; return its files.

    Args:
        document: The run.
        directory: Where it goes.
        force: Replace an earlier run.
        pictures: More files, by name.
        more: What writes further files, by their names.
    """
    files = run_files(document)
    with output_directory(directory, marker=DOCUMENT_NAME, force=force) as staged:
        for name, text in files.items():
            write_text(staged / name, text)
        for name, data in (pictures or {}).items():
            write_bytes(staged / name, data)
        for name, write in (more or {}).items():
            write(staged / name)
    return tuple(directory / name for name in (*files, *(pictures or {}), *(more or {})))


def run_files(document: RunDocument) -> dict[str, str]:
    """What a run directory holds, by file name: the document, and the tables of what was found."""
    return {DOCUMENT_NAME: to_json(document), **run_tables(all_pages(document)), **_alias_template(document)}


def _alias_template(document: RunDocument) -> dict[str, str]:
    """A file for --aliases with a line for each file of a dump that could not be placed, to be filled in."""
    for part in (document.comparison, document.diagnosis):
        if part is None or part.judgement is None or not part.judgement.coverage.unplaced:
            continue
        text = io.StringIO()
        rows = csv.writer(text, lineterminator="\n")
        rows.writerow(ALIAS_HEADER)
        for each in part.judgement.coverage.unplaced:
            shape = "x".join(map(str, each.shape))
            rows.writerow([f"# {each.name} {shape}: " + (", ".join(each.could_be) or each.why)])
            rows.writerow(["", each.name])
        return {"aliases.csv": text.getvalue()}
    return {}
