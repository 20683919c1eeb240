"""All pages of a run in the order of a report, and the folder it is written to."""

import math
import shlex
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Literal, cast

from roundoff.core.coverage import Coverage, Judgement
from roundoff.core.document import DOCUMENT_NAME, RunDocument, json_text, to_json
from roundoff.core.files import output_directory, write_bytes, write_text
from roundoff.core.names import ALIAS_HEADER
from roundoff.messages.catalogue import Language, Phrase, bilingual, named, plain
from roundoff.messages.message import phrase_of
from roundoff.messages.numbers import csv_text, percentage, time_text
from roundoff.pages.blocks import (
    Cell,
    Chart,
    Column,
    ColumnKind,
    Commands,
    Contents,
    Entry,
    Headline,
    NetworkBlock,
    NetworkBox,
    NetworkNode,
    NetworkView,
    Page,
    Paragraph,
    TableBlock,
    cell_text,
    glossary_page,
    is_hidden,
    role_name,
)
from roundoff.pages.cards import HeroCard, first_screen
from roundoff.pages.text_files import run_tables
from roundoff.report.folding import network_boxes

if TYPE_CHECKING:
    from roundoff.studies.layers.result import LayerRow

# The first page: what was asked, the score, what was judged, the answer.


def with_first_screen(document: RunDocument, pages: Sequence[Page]) -> Iterator[Page]:
    """The pages of a run; the first one begins with its first screen, and with what the others say.

    Args:
        document: The run.
        pages: Its pages.
    """
    entries = {page.id: entry for page in pages if (entry := _entry(page)) is not None}
    for at, page in enumerate(pages):
        headline = next((block for block in page.blocks if isinstance(block, Headline)), None)
        if at or headline is None:
            yield page
            continue
        known = tuple(block for block in page.blocks if isinstance(block, HeroCard))
        hero = known or (first_screen(document, headline, covered=_covered(document)),)
        others = tuple(entry for name, entry in entries.items() if name != page.id)
        rest = [block for block in page.blocks if block not in known]
        if others:
            rest.insert(rest.index(headline) + 1, Contents(others))
        yield replace(page, blocks=(*hero, *rest))


def _entry(page: Page) -> Entry | None:
    first = next((block for block in page.blocks if isinstance(block, Headline)), None)
    return None if first is None else Entry(page.id, page.title, first.tone, first.whole)


def _covered(document: RunDocument) -> Coverage | None:
    """What of everything the first section with a verdict rests on."""
    for section, _, _ in _PAGES:
        judgement = getattr(getattr(document, section), "judgement", None)
        if judgement is not None:
            return cast("Judgement", judgement).coverage
    return None if document.judgement is None else document.judgement.coverage


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
    ("channels", "studies.distribution.page", "channels_page"),
    ("outliers", "studies.distribution.page", "outliers_page"),
    ("worst_samples", "studies.samples.page", "samples_page"),
    ("network", "report.pages", "network_page"),
    ("diagnosis", "diagnosis.page", "diagnosis_details"),
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
    """The pages that a document has something for, the first screen first, and what words mean and the run was."""
    found = tuple(map(_without_empty, section_pages(document)))
    framed = (*with_first_screen(document, found), glossary_page(found), about_page(document))
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
        rows = []
        for each in part.judgement.coverage.unplaced:
            shape = "x".join(map(str, each.shape))
            rows += [[f"# {each.name} {shape}: " + (", ".join(each.could_be) or each.why)], ["", each.name]]
        return {"aliases.csv": csv_text(ALIAS_HEADER, rows)}
    return {}


# The network as a graph, coloured by the most telling number that the run has for its nodes.

_Values = Mapping[str, float | None]


@dataclass(frozen=True, slots=True)
class Colouring:
    """By what nodes are coloured.

    Attributes:
        name: Of its caption in the catalogue.
        kind: What the numbers are.
        higher_is_better: Which way they are better.
        best: From which on they are as good as can be; None when nothing is.
        values: By the names of nodes.
    """

    name: str
    kind: ColumnKind
    higher_is_better: bool
    best: float | None
    values: _Values


def node_colouring(document: RunDocument) -> Colouring | None:
    """The most telling number that a run has for its nodes; None when it has none."""
    for name, kind, higher, best, read in _COLOURINGS:
        values = read(document)
        if any(value is not None for value in values.values()):
            return Colouring(name, kind, higher, best, values)
    return None


def network_page(document: RunDocument) -> Page | None:
    """The page with the graph; None where the run knows no network."""
    topology = document.network
    if topology is None or not topology.nodes:
        return None
    colouring, facts = node_colouring(document) or _PLAIN, _joint(document)
    nodes = tuple(
        NetworkNode(
            node.name,
            node.op_type,
            node.inputs,
            node.outputs,
            colouring.values.get(node.name),
            facts.get(node.name, ()),
        )
        for node in topology.nodes
    )
    on_device = document.diagnosis is not None and document.diagnosis.side == "device"
    name = "local_device" if on_device and colouring.name == "local" else colouring.name
    caption = bilingual(f"network.{name}")
    boxes = network_boxes(document, colouring.values, higher_is_better=colouring.higher_is_better)
    summary = bilingual("network.summary", count=len(nodes), boxes=len(boxes))
    block = NetworkBlock(
        "network",
        caption,
        nodes,
        colouring.kind,
        colouring.higher_is_better,
        colouring.best,
        boxes=boxes,
        summary=summary,
        views=tuple(_views(document, boxes)) if colouring.name == "local" else (),
    )
    return Page("network", bilingual("network.title"), (block,))


def _views(document: RunDocument, boxes: Sequence[NetworkBox]) -> Iterator[NetworkView]:
    """The layers alone, the whole network as it was met, and as it is repaired."""
    found = document.diagnosis
    layers = None if found is None else found.layers
    views: dict[str, _Values] = {"local": _local(document), "accumulated": _of_units(document, "accumulated")}
    if found is not None and layers is not None:
        views["accumulated"] = dict(zip(layers.units, layers.accumulated_db, strict=True))
        after = () if found.repair is None else found.repair.accumulated_db
        views["repaired"] = dict(zip(layers.units, after, strict=True)) if after else {}
    for name, known in views.items():
        if known:
            worst = (
                min((value for node in box.nodes if (value := known.get(node)) is not None), default=None)
                for box in boxes
            )
            yield NetworkView(bilingual(f"card.{name}"), tuple(worst))


def _proven(document: RunDocument) -> _Values:
    findings = () if document.diagnosis is None else document.diagnosis.accused
    shares: dict[str, float | None] = {}
    for each in findings:
        for node in each.accused_nodes:
            shares[node] = max(each.share, shares.get(node) or 0.0)
    return shares


def _joint(document: RunDocument) -> dict[str, tuple[tuple[Phrase, Phrase], ...]]:
    """What the card of a node says that is accused together with others; a finding of one node is in a table."""
    facts: dict[str, tuple[tuple[Phrase, Phrase], ...]] = {}
    for each in () if document.diagnosis is None else document.diagnosis.accused:
        cause = named(f"diagnosis.cause_{each.cause}") or plain(each.cause)
        text = bilingual(
            "network.joint", number=each.number, cause=cause, count=each.places, share=percentage(each.share)
        )
        for node in each.accused_nodes if each.places > 1 else ():
            facts[node] = (*facts.get(node, ()), (bilingual("network.finding"), text))
    return facts


def _local(document: RunDocument) -> _Values:
    layers = None if document.diagnosis is None else document.diagnosis.layers
    if layers is None:
        return _of_units(document, "local")
    return dict(zip(layers.units, layers.local_db, strict=True))


def _of_units(document: RunDocument, method: Literal["local", "accumulated"]) -> _Values:
    found: dict[str, float | None] = {}
    for name, row in _unit_rows(document):
        score = row.local if method == "local" else row.accumulated
        if score is not None and score.sqnr_db is not None and (row.quantized != "fused" or row.output):
            before = found.get(name)
            found[name] = score.sqnr_db if before is None else min(score.sqnr_db, before)
    return found


def _unit_rows(document: RunDocument) -> "Iterator[tuple[str, LayerRow]]":
    """Rows by the node that their unit begins with: its weights are to blame, not the Clip behind it."""
    known = set() if document.network is None else {node.name for node in document.network.nodes}
    for row in () if document.layers is None else document.layers.rows:
        yield row.unit if row.unit in known else row.node, row


def _introduced(document: RunDocument) -> _Values:
    rows = _unit_rows(document)
    return {name: row.introduced.output_share for name, row in rows if row.introduced is not None}


def _sensitivity(document: RunDocument) -> _Values:
    report = document.sensitivity
    rows = () if report is None else report.rankings.get("node", ())
    return {row.node: row.scores.get("sqnr_db") for row in rows}


def _comparison(document: RunDocument) -> _Values:
    rows = () if document.comparison is None else document.comparison.rows
    return {row.node: row.score.values.get("relative_euclidean") for row in rows if row.node}


def _accumulated(document: RunDocument) -> _Values:
    found = document.accumulation
    if found is None:
        return {}
    return {node.node: value for node, value in zip(found.nodes, found.base_line.sqnr_db, strict=True)}


def _changed(document: RunDocument) -> _Values:
    rows = () if document.diff is None else document.diff.rows
    found: dict[str, float | None] = {}
    for row in rows:
        if row.node and row.change_db is not None:
            found[row.node] = min(row.change_db, found.get(row.node) or row.change_db)
    return found


_COLOURINGS: tuple[tuple[str, ColumnKind, bool, float | None, Callable[[RunDocument], _Values]], ...] = (
    ("changed", "decibels", True, 0.0, _changed),
    ("local", "decibels", True, None, _local),
    ("proven", "share", False, 0.0, _proven),
    ("introduced", "share", False, 0.0, _introduced),
    ("sensitivity", "decibels", True, None, _sensitivity),
    ("comparison", "number", False, 0.0, _comparison),
    ("accumulation", "decibels", True, None, _accumulated),
)
"""What nodes can be coloured by, the most telling first: caption, kind, whether higher is better, best, values."""

_PLAIN = Colouring("plain", "number", True, None, {})


# From the best to the worst, as in our own drawing of the network.
_GOOD, _MIDDLE, _BAD = "#cfe8d5", "#fde7a8", "#f2938a"


def model_explorer_overlay(document: RunDocument) -> str | None:
    """The number by which our own drawing is coloured, as node data of Model Explorer; None without any.

    Its ONNX adapter calls nodes by their names, as we do. Infinite values cannot be drawn there and are left out.
    """
    colouring = node_colouring(document)
    values = {} if colouring is None else colouring.values
    drawn = {name: value for name, value in values.items() if value is not None and math.isfinite(value)}
    if colouring is None or not drawn:
        return None
    ends = (_BAD, _MIDDLE, _GOOD) if colouring.higher_is_better else (_GOOD, _MIDDLE, _BAD)
    stops = [{"stop": at / 2, "bgColor": colour} for at, colour in enumerate(ends)]
    return json_text({"results": {name: {"value": value} for name, value in drawn.items()}, "gradient": stops})


def node_facts(pages: Sequence[Page], *, language: Language = "en") -> dict[str, dict[str, str]]:
    """What the tables of a report say of each node: words and values, by its name.

    Where a node has several rows in a table, the first one counts.

    Args:
        pages: The report.
        language: Of the words.
    """
    found: dict[str, dict[str, str]] = {}
    for page in pages:
        for table in (block for block in page.blocks if isinstance(block, TableBlock)):
            place = next((at for at, column in enumerate(table.columns) if column.kind == "node"), None)
            if place is None:
                continue
            for row in table.rows:
                node = row[place]
                facts = found.setdefault(str(node), {}) if node else {}
                for at, (value, column) in enumerate(zip(row, table.columns, strict=True)):
                    text = cell_text(value, column).within(language)
                    if at != place and text:
                        facts.setdefault(f"{page.title.within(language)}: {column.label.within(language)}", text)
    return found
