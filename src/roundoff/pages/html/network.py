"""The network as SVG: layers from top to bottom, the chain broken into columns like text, to fit a screen.

It is drawn here, so that it prints and is there without a script, which selects, searches and fills the panel.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from html import escape
from itertools import pairwise
from typing import Any

from roundoff.messages.catalogue import bilingual, plain
from roundoff.pages.blocks import Column, NetworkBlock, NetworkBox, cell_text
from roundoff.pages.cards import DB_LIMITS, db_class
from roundoff.pages.html.charts import spans, texts
from roundoff.pages.html.drawings import link_to

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
