"""From pages to HTML. All can be read without JavaScript; the script adds the network, sorting and searching."""

import base64
import hashlib
import json
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cache
from html import escape
from importlib.resources import files
from itertools import groupby, pairwise
from typing import TYPE_CHECKING, Any

from roundoff.messages.catalogue import LANGUAGES, Language, Phrase, bilingual, plain
from roundoff.messages.message import sanitize_for_display
from roundoff.pages.blocks import (
    Block,
    Cell,
    Column,
    Headline,
    NetworkBlock,
    NetworkBox,
    Page,
    Picture,
    TableBlock,
    cell_text,
    cell_value,
    column_meaning,
    is_hidden,
)
from roundoff.pages.cards import DB_LIMITS, Card, HeroCard, db_class
from roundoff.pages.html.charts import LONGEST_COMMAND, spans, svg_chart, texts
from roundoff.pages.html.drawings import card_html, link_to
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
    return "wordy" if any(len(text.en) > _LONGEST_LINE for text in cells) else ""


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


_WIDE, _TALL, _GAP_X, _GAP_Y = 156, 44, 22, 20
# Between columns there is room for a line that leads from the foot of one to the head of the next.
_BETWEEN = 34
_MARGIN = 26
# What a screen has room for beside the panel.
_SCREEN = (950, 720)
_LETTERS, _DETAIL = 19, 23
# A break may come so many layers before a column is full, where fewer lines cross it.
_EARLIER = 3
_SHADES = 6


def network_html(block: NetworkBlock) -> str:
    """The graph, its legend, and an empty panel."""
    return "\n".join(_parts(block))


def _parts(block: NetworkBlock) -> Iterator[str]:
    yield f'<figcaption id="caption-{escape(block.id)}">{spans(block.caption)}</figcaption>'
    if block.summary is not None:
        yield f'<p class="small">{spans(block.summary)}</p>'
    yield _legend(block)
    drawn = _Graph(block)
    wide, tall = drawn.size
    yield '<div class="spread"><div class="sheet">'
    yield (
        f'<svg class="graph" viewBox="0 0 {wide} {tall}" role="group" aria-labelledby="caption-{escape(block.id)}"'
        f' width="{wide}" height="{tall}">'
    )
    yield from drawn.frames()
    yield f'<path class="edge" d="{"".join(drawn.edges())}"/>'
    yield from drawn.boxes()
    yield "</svg></div>"
    said = spans(bilingual("network.choose"))
    yield f'<aside class="panel" aria-live="polite"><p class="small">{said}</p></aside>'
    yield "</div>"


def _legend(block: NetworkBlock) -> str:
    """What the colours mean: fixed classes of decibels, else the best and the worst of this network."""
    values = _finite(block)
    if not values:
        return ""
    if block.kind == "decibels":
        name = spans(bilingual("network.classes"))
        ends = [f"≥{DB_LIMITS[0]:g}", *(f"{low:g}–{high:g}" for high, low in pairwise(DB_LIMITS)), "<0"]  # noqa: RUF001
    else:
        name, (best, worst) = "", _ends(block, values)
        column = _column(block)
        ends = [cell_text(best, column).en, *[" "] * (_SHADES - 2), cell_text(worst, column).en]
    steps = "".join(f'<span class="c{at}">{escape(text)}</span>' for at, text in enumerate(ends))
    marks = "".join(
        f'<span class="sign sign-{mark}">{spans(bilingual(f"network.{mark}"))}</span>'
        for mark in ("culprit", "inherited")
        if any(box.mark == mark for box in block.boxes)
    )
    return f'<p class="classes">{name} <span class="ramp">{steps}</span>{marks}</p>'


def _column(block: NetworkBlock) -> Column:
    return Column("value", plain(""), block.kind, digits=3)


def _finite(block: NetworkBlock) -> list[float]:
    return [box.value for box in block.boxes if box.value is not None and math.isfinite(box.value)]


def _ends(block: NetworkBlock, values: Sequence[float]) -> tuple[float, float]:
    """The best and the worst value that colours stand for."""
    worst = min(values) if block.higher_is_better else max(values)
    best = max(values) if block.higher_is_better else min(values)
    return best if block.best is None else block.best, worst


class _Graph:
    """Where boxes stand, and the lines between them."""

    def __init__(self, block: NetworkBlock) -> None:
        self.block, count = block, len(block.boxes)
        self.links = _links(block)
        self.above: list[list[int]] = [[] for _ in range(count)]
        self.layer = [0] * count
        layers: list[list[int]] = []
        for at in self._in_order(count):
            depth = max((self.layer[other] + 1 for other in self.above[at]), default=0)
            self.layer[at] = depth
            layers += [[] for _ in range(depth + 1 - len(layers))]
            layers[depth].append(at)
        self.columns = _columns(layers, self._crossing(len(layers)))
        self.place: dict[int, tuple[float, float]] = {}
        self.column: dict[int, int] = {}
        self.right: list[float] = []
        self._arrange(layers)

    def _in_order(self, count: int) -> Iterator[int]:
        """Boxes behind all that they read; where groups read each other, a line that turns back does not count."""
        waiting = [0] * count
        below: list[list[int]] = [[] for _ in range(count)]
        for start, end in self.links:
            below[start].append(end)
            waiting[end] += 1
        left = dict.fromkeys(range(count))
        while left:
            at = next((each for each in left if not waiting[each]), next(iter(left)))
            del left[at]
            yield at
            for other in below[at]:
                if other in left:
                    self.above[other].append(at)
                    waiting[other] -= 1

    def _crossing(self, depth: int) -> list[int]:
        """How many lines cross the boundary before each layer."""
        found = [0] * (depth + 1)
        for start, end in self.links:
            for boundary in range(self.layer[start] + 1, self.layer[end] + 1):
                found[boundary] += 1
        return found

    def _arrange(self, layers: Sequence[Sequence[int]]) -> None:
        left = float(_MARGIN)
        for number, (first, last) in enumerate(self.columns):
            most = max(len(layer) for layer in layers[first:last])
            width = most * _WIDE + (most - 1) * _GAP_X
            for row, layer in enumerate(layers[first:last]):
                order = sorted(layer, key=lambda at: (self._middle(at), at))
                free = (width - len(order) * _WIDE - (len(order) - 1) * _GAP_X) / 2
                for index, at in enumerate(order):
                    x = left + free + index * (_WIDE + _GAP_X)
                    self.place[at] = (x, _MARGIN + row * (_TALL + _GAP_Y))
                    self.column[at] = number
            left += width + _BETWEEN
            self.right.append(left - _BETWEEN)

    def _middle(self, at: int) -> float:
        known = [self.place[other][0] for other in self.above[at] if other in self.place]
        return sum(known) / len(known) if known else 0.0

    @property
    def size(self) -> tuple[int, int]:
        rows = max((last - first for first, last in self.columns), default=0)
        tall = 2 * _MARGIN + rows * (_TALL + _GAP_Y) - _GAP_Y
        return math.ceil((self.right[-1] if self.right else 0) + _MARGIN), math.ceil(max(tall, _TALL))

    def frames(self) -> Iterator[str]:
        """A dashed frame around an open block, in each column that it is in."""
        groups: dict[tuple[str, int], list[tuple[float, float]]] = {}
        for at, box in enumerate(self.block.boxes):
            if box.inside:
                groups.setdefault((box.inside, self.column[at]), []).append(self.place[at])
        for (name, _), places in groups.items():
            x, y = min(x for x, _ in places) - 9, min(y for _, y in places) - 15
            wide, tall = max(x for x, _ in places) + _WIDE + 9 - x, max(y for _, y in places) + _TALL + 7 - y
            yield f'<rect class="open" x="{x:g}" y="{y:g}" width="{wide:g}" height="{tall:g}" rx="7"/>'
            label = bilingual("network.open_block", number=int(name))
            yield texts(label, f'class="open" x="{x + 5:g}" y="{y + 11:g}"')

    def edges(self) -> Iterator[str]:
        for start, end in self.links:
            (x0, y0), (x1, y1) = self.place[start], self.place[end]
            a, b = x0 + _WIDE / 2, x1 + _WIDE / 2
            foot = y0 + _TALL
            if self.column[start] != self.column[end]:
                # Down, through the gap before the column it leads to, and in from above.
                gap, low = x1 - _BETWEEN / 2, foot + _GAP_Y / 2
                gap = self.right[self.column[end] - 1] + _BETWEEN / 2 if self.column[end] else gap
                top = y1 - _GAP_Y / 2
                yield f"M{a:g} {foot:g}V{low:g}H{gap:g}V{top:g}H{b:g}V{y1:g}"
            elif self.layer[end] == self.layer[start] + 1:
                half = (foot + y1) / 2
                yield f"M{a:g} {foot:g}C{a:g} {half:g} {b:g} {half:g} {b:g} {y1:g}"
            else:
                # What skips layers goes around them.
                side = max(x0, x1) + _WIDE + 9
                yield f"M{x0 + _WIDE:g} {y0 + _TALL / 2:g}H{side:g}V{y1 + _TALL / 2:g}H{x1 + _WIDE:g}"

    def boxes(self) -> Iterator[str]:
        for at, box in enumerate(self.block.boxes):
            x, y = self.place[at]
            shown, shade = box_look(self.block, box.value)
            look = f"box {box.mark}".strip() + ("" if shade is None else f" f{shade}")
            place = f'data-box="{at}" transform="translate({x:g} {y:g})"'
            before, behind = _SIGNS.get(box.mark, ("", ""))
            yield (
                f'<a class="{look}" href="{link_to(box.nodes[0])}" {place}>{before}'
                f'<rect width="{_WIDE}" height="{_TALL}" rx="7"/>{behind}{_label(box, shown)}'
                f'<text class="value" x="{_WIDE - 9}" y="18">{shown}</text>'
                f'<text class="small" x="9" y="34">{escape(_detail(box))}</text>'
                f'<text class="small value" x="{_WIDE - 9}" y="34">{escape(box.dtype)}</text>'
                f"<title>{escape(', '.join(box.nodes[:8]))}</title></a>"
            )


def opened(block: NetworkBlock, box: NetworkBox) -> dict[str, Any]:
    """A folded block as a script draws it when it is opened: its boxes with their places, the lines, its size."""
    drawn = _Graph(replace(block, boxes=box.parts))
    boxes = []
    for at, each in enumerate(box.parts):
        text, shade = box_look(block, each.value)
        label = _cut(each.label.en, _LETTERS + 1 - len(text))
        boxes.append([*map(round, drawn.place[at]), label, text, shade, _detail(each), each.mark, *each.nodes[:1]])
    return {"size": drawn.size, "edges": "".join(drawn.edges()), "boxes": boxes}


# What is drawn before and behind the shape of a box: sheets under it, a hatched foot, a black corner.
_SIGNS = {
    "block": (f'<rect class="behind" x="4" y="4" width="{_WIDE}" height="{_TALL}" rx="7"/>', ""),
    "inherited": ("", f'<path class="foot" d="M4 {_TALL - 3}H{_WIDE - 4}"/>'),
    "culprit": ("", '<path class="corner" d="M-3-3h14l-14 14z"/>'),
}


def _label(box: NetworkBox, shown: str) -> str:
    """The name as far as there is room beside its number."""
    if box.label.en != box.label.zh:
        return texts(box.label, 'class="name" x="9" y="18"')
    room = _LETTERS + 2 - (len(shown) + 1 if shown else 0)
    return f'<text class="name" x="9" y="18">{escape(_cut(box.label.en, room))}</text>'


def _detail(box: NetworkBox) -> str:
    """Operations and shape; operations give way where there is no room for both."""
    operations, _, shape = box.detail.partition(" ")
    room = _DETAIL - 3 - len(shape) - len(box.dtype)
    return box.detail if len(operations) <= room else f"{operations[: max(room - 1, 3)]}… {shape}"


def _cut(text: str, most: int) -> str:
    return text if len(text) <= most else "…" + text[1 - most :]


def box_look(block: NetworkBlock, value: float | None) -> tuple[str, int | None]:
    """The number that stands in a box, and its class."""
    shown = "" if value is None else cell_text(value, _column(block)).en.replace("-", "\u2212")
    return shown, _shade(block, value, _finite(block))


def _shade(block: NetworkBlock, value: float | None, values: Sequence[float]) -> int | None:
    """The class of a box: of decibels by fixed limits, of other numbers between the best and the worst."""
    if value is None or math.isnan(value):
        return None
    if block.kind == "decibels":
        return db_class(value)
    best, worst = _ends(block, values or [0.0])
    if worst == best:
        return 0
    share = min(max((value - best) / (worst - best), 0.0), 1.0)
    return min(_SHADES - 1, int(share * _SHADES))


def _links(block: NetworkBlock) -> list[tuple[int, int]]:
    """Which box reads what another one writes."""
    of_node = {name: at for at, box in enumerate(block.boxes) for name in box.nodes}
    makers: Mapping[str, int] = {
        tensor: of_node[node.name] for node in block.nodes if node.name in of_node for tensor in node.outputs
    }
    found: dict[tuple[int, int], None] = {}
    for node in block.nodes:
        for tensor in node.inputs:
            if node.name in of_node and tensor in makers and makers[tensor] != of_node[node.name]:
                found[makers[tensor], of_node[node.name]] = None
    return list(found)


def _columns(layers: Sequence[Sequence[int]], crossing: Sequence[int]) -> list[tuple[int, int]]:
    """Where columns begin and end: as many as make the boxes largest, broken where fewest lines cross."""
    best: tuple[float, list[tuple[int, int]]] = (0.0, [(0, len(layers))])
    for count in range(1, min(len(layers), 12) + 1):
        spans_of = _broken(len(layers), count, crossing)
        widths = [max((len(layer) for layer in layers[first:last]), default=1) for first, last in spans_of]
        wide = sum(width * (_WIDE + _GAP_X) - _GAP_X for width in widths) + _BETWEEN * (len(widths) - 1)
        tall = max(last - first for first, last in spans_of) * (_TALL + _GAP_Y)
        scale = min(1.0, _SCREEN[0] / (wide + 2 * _MARGIN), _SCREEN[1] / (tall + 2 * _MARGIN))
        # More columns than are needed make nothing larger.
        if scale > best[0] + 1e-9:
            best = (scale, spans_of)
    return best[1]


def _broken(depth: int, count: int, crossing: Sequence[int]) -> list[tuple[int, int]]:
    rows = -(-depth // count)
    found, start = [], 0
    while depth - start > rows:
        full = start + rows
        earliest = max(start + 1, full - min(_EARLIER, rows // 4))
        end = min(range(full, earliest - 1, -1), key=lambda at: crossing[at])
        found.append((start, end))
        start = end
    return [*found, (start, depth)]
