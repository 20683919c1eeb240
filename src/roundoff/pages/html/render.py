"""From pages to HTML. All can be read without JavaScript; the script adds the network, sorting and searching."""

import base64
import hashlib
import json
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import cache
from importlib.resources import files
from itertools import groupby
from typing import TYPE_CHECKING, Any

from roundoff.messages.catalogue import LANGUAGES, Language, Phrase, bilingual, plain
from roundoff.messages.message import sanitize_for_display
from roundoff.pages.blocks import (
    Block,
    Cell,
    Column,
    Headline,
    NetworkBlock,
    Page,
    Picture,
    TableBlock,
    cell_text,
    cell_value,
    column_meaning,
    is_hidden,
)
from roundoff.pages.cards import Card, HeroCard
from roundoff.pages.html.charts import LONGEST_COMMAND, spans, svg_chart
from roundoff.pages.html.drawings import card_html
from roundoff.pages.html.network import box_look, network_html, opened
from roundoff.pages.terminal import command_lines

if TYPE_CHECKING:
    from jinja2 import Template

# A cell with more characters is broken into lines.
_LONGEST_LINE = 40
# More rows than fit into a window: the table scrolls in a box of its own, whose height is known beforehand.
_MANY_ROWS = 60


def html_report(
    pages: Sequence[Page], *, title: str, language: Language = "en", home: tuple[Phrase, str] | None = None
) -> str:
    """A report as one file.

    Args:
        pages: What it shows; it may be nothing.
        title: Of the window.
        language: In which it opens.
        home: The list of reports that it belongs to, by name and address; None for a file of its own.
    """
    script, style = _asset("report.js"), _asset("report.css")
    safe = tuple(_for_browsers(sanitize_for_display(page)) for page in pages)
    tables = {each.id: each for each in _blocks(safe) if isinstance(each, TableBlock)}
    text: str = _template().render(
        pages=safe,
        title=title,
        language=language,
        languages=LANGUAGES,
        home=home,
        script=script,
        style=style,
        policy=_policy(script, style, forms=any(each.picks for each in tables.values())),
        data=_data(safe),
        drawn=lambda chart: svg_chart(chart, tables, language),
        carded=lambda card: card_html(card, language),
        networked=network_html,
    )
    return text.lstrip()


def _for_browsers(page: Page) -> Page:
    """A page with the columns and sentences that browsers show."""
    blocks = (each.shown_on("html") if isinstance(each, TableBlock) else each for each in page.blocks)
    kept = tuple(each for each in blocks if not is_hidden(each, "html"))
    return replace(page, blocks=kept, sections=tuple(_for_browsers(each) for each in page.sections))


def _policy(script: str, style: str, *, forms: bool) -> str:
    """What the file may do: run its own script, have its own style, show its own pictures; nothing else.

    Args:
        script: Its script.
        style: Its style.
        forms: Whether what is picked in it is sent to where it came from.
    """
    allowed = "'self'" if forms else "'none'"
    return (
        f"default-src 'none'; script-src {_digest(script)}; style-src {_digest(style)}; "
        f"img-src data: blob:; base-uri 'none'; form-action {allowed}"
    )


def _digest(text: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"


def _data(pages: Sequence[Page]) -> str:
    """What the script draws from besides the tables, as JSON that cannot end the element it stands in."""
    networks = [_network(each) for each in _blocks(pages) if isinstance(each, NetworkBlock)]
    text = json.dumps({"networks": networks}, ensure_ascii=False, separators=(",", ":"))
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


def _blocks(pages: Sequence[Page]) -> Iterator[Block]:
    for page in pages:
        yield from page.blocks
        yield from _blocks(page.sections)


def _network(network: NetworkBlock) -> dict[str, Any]:
    places = {each.name: at for at, each in enumerate(network.nodes)}
    return {
        "id": network.id,
        "kind": network.kind,
        "nodes": [
            {
                "name": each.name,
                "op": each.op_type,
                "inputs": each.inputs,
                "outputs": each.outputs,
                "value": None if each.value is None else cell_value(each.value),
                "facts": [[_spoken(word), _spoken(text)] for word, text in each.facts],
            }
            for each in network.nodes
        ],
        "boxes": [[places[name] for name in box.nodes] for box in network.boxes],
        "opened": {str(at): opened(network, box) for at, box in enumerate(network.boxes) if box.parts},
        "views": [
            {"name": _spoken(view.name), "boxes": [box_look(network, value) for value in view.values]}
            for view in network.views
        ],
    }


def _spoken(phrase: Phrase) -> str | dict[str, str]:
    """A phrase as the script knows it: a text where all languages agree, else one for each."""
    return phrase.en if phrase.en == phrase.zh else {"en": phrase.en, "zh": phrase.zh}


def _look(table: TableBlock) -> str:
    """How a table is shown: tall with many rows; one of sentences becomes a list where there is little room."""
    if len(table.rows) > _MANY_ROWS:
        return "tall"
    if table.cards:
        return "cards"
    cells = (
        cell_text(cell, column) for row in table.rows for cell, column in zip(row, table.columns, strict=True)
    )
    return "wordy" if any(len(text.en) > _LONGEST_LINE and " " in text.en for text in cells) else ""


def _has_hero(page: Page) -> bool:
    return any(isinstance(block, HeroCard) for block in page.blocks)


def _runs(page: Page) -> list[tuple[bool, list[Block]]]:
    """Blocks that stand together, and whether they need a frame: beside cards all else stands in one, too.

    The score says what the verdicts of a page do.
    """
    if not _has_hero(page):
        return [(False, list(page.blocks))]
    kept = [each for each in page.blocks if not isinstance(each, Headline)]
    return [(not card, list(run)) for card, run in groupby(kept, key=lambda each: isinstance(each, Card))]


def _cell(value: Cell, column: Column) -> Phrase:
    """What stands in a cell; what is true or not as a mark, which every language reads."""
    return plain("\u2713" if value else "\u2717") if isinstance(value, bool) else cell_text(value, column)


def _asset(name: str) -> str:
    return (files(__package__) / "assets" / name).read_text(encoding="utf-8")


def _picture_source(picture: Picture) -> str:
    return f"data:image/png;base64,{base64.b64encode(picture.png).decode()}"


@cache
def _template() -> "Template":
    from jinja2 import Environment, PackageLoader, StrictUndefined

    environment = Environment(
        loader=PackageLoader(__package__),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.globals |= {
        "cell_text": _cell,
        "column_meaning": column_meaning,
        "cell_value": cell_value,
        "longest_line": _LONGEST_LINE,
        "look_of": _look,
        "many_rows": _MANY_ROWS,
        "kind_of": lambda block: "Card" if isinstance(block, Card) else type(block).__name__,
        "has_hero": _has_hero,
        "runs_of": _runs,
        "picture_source": _picture_source,
        "plain": plain,
        "say": bilingual,
        "spans": spans,
        "command_lines": command_lines,
        "longest_command": LONGEST_COMMAND,
    }
    return environment.get_template("report.html.j2")
