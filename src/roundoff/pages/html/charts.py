"""Charts as SVG, drawn here and not by a script: they print, follow the theme, and are there without one.

Shapes stand in a box of 1000 x 1000 units that is stretched to the width of the page; texts stand beside it at
shares of that width, so that letters and lines keep their size on a telephone. Colours are classes of the style
sheet.
"""

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from html import escape
from itertools import groupby, pairwise
from typing import TypeVar
from urllib.parse import quote

from roundoff.messages.catalogue import Language, Phrase
from roundoff.messages.lines import unbroken
from roundoff.messages.numbers import number
from roundoff.pages.blocks import Chart, Series, TableBlock

Value = float | str | None
_T = TypeVar("_T")

SIZE = 1000
"""Units of the box that shapes are drawn in, each way."""
LONGEST_COMMAND = 100
"""A command with more characters goes on in another line that a shell joins again."""
_COLOURS = 6
"""Series of the style sheet; lines beyond them have a colour of their own, areas take the first again."""
_FIRST_HUE, _NEXT_HUE, _SATURATIONS, _LIGHTNESSES = 96, 55, (40, 90), (36, 50, 62)
"""Of these colours: searched for, so that of 24 lines any two are 12 or more apart in CIE 1976, in both themes."""
_SHADES = 6
"""Steps of a heat map, as many as classes of decibels."""
_NAMED = 12
"""So many names along the bottom are all written; of more, some."""
_TICKS = 6
_LONGEST_NAME = 18
_MOST_PLACES = 240
"""More places share columns: so many have four pixels each on a usual page, and can be pointed at."""
_MOST_POINTS = 500
"""A line with more is drawn by the lowest and the highest value of each piece, which is what pixels show of it."""
_TALL_ROWS = 12
_LARGEST = 1e300
_RIGHT = 0.85
"""Behind this share of the width a word stands to the left of its line, or it would leave the page."""
_POINTWISE = frozenset({"line", "points", "steps", "band"})


def svg_chart(chart: Chart, tables: Mapping[str, TableBlock], language: Language) -> str:
    """A chart as HTML: a legend where there are several series, the drawing, and the name of the bottom axis.

    Args:
        chart: What is drawn.
        tables: Tables of the report by id.
        language: Of what is said when a place is pointed at; other texts are there in both.
    """
    drawing = _Drawing(chart, tables, language)
    heat = next((each for each in chart.series if each.role == "heat"), None)
    parts = drawing.heat_map(heat) if heat is not None else drawing.plot()
    return "\n".join(parts)


# What stands in the tables.


def _columns(table: TableBlock) -> dict[str, list[Value]]:
    """Numbers and English texts of a table, by column."""
    return {column.id: [_value(row[at]) for row in table.rows] for at, column in enumerate(table.columns)}


def _value(cell: object) -> Value:
    if isinstance(cell, Phrase):
        return cell.en
    if isinstance(cell, (bool, int, float)):
        return float(cell)
    return None if cell is None else str(cell)


def _finite(values: Iterable[Value]) -> list[float | None]:
    """What can be drawn; sums of the largest floats, and the least of them, leave no room for an axis."""
    return [
        each if isinstance(each, float) and (each == 0 or 1 / _LARGEST <= abs(each) <= _LARGEST) else None
        for each in values
    ]


# Axes.


@dataclass(frozen=True, slots=True)
class _ChartAxis:
    """From values to shares of a length, and where numbers stand along it."""

    low: float
    high: float
    log: bool = False

    def share(self, value: float) -> float:
        low, high, at = (math.log10(each) if self.log else each for each in (self.low, self.high, value))
        return min(max((at - low) / (high - low), 0.0), 1.0) if high > low else 0.5

    def ticks(self, *, whole: bool = False) -> list[float]:
        if self.log:
            first, last = math.ceil(math.log10(self.low) - 1e-9), math.floor(math.log10(self.high) + 1e-9)
            every = max(1, -(-(last - first) // _TICKS))
            return [10.0**power for power in range(first, last + 1, every)]
        step = max(_round_step((self.high - self.low) / _TICKS), 1.0 if whole else 0.0)
        first = math.ceil(self.low / step - 1e-9)
        return [at * step for at in range(first, math.floor(self.high / step + 1e-9) + 1)]


def _round_step(wanted: float) -> float:
    """The next of 1, 2, 5, 10, 20, ... that is at least as large."""
    power = 10.0 ** math.floor(math.log10(wanted))
    return next(factor * power for factor in (1, 2, 5, 10) if factor * power >= wanted * (1 - 1e-9))


def _axis(values: Iterable[float], *, log: bool, from_zero: bool, floor: float | None = None) -> _ChartAxis:
    """An axis that holds all values, and ends at round numbers."""
    found = [each for each in values if not log or each > 0]
    if floor is not None:
        found.append(floor)
    if not found:
        return _ChartAxis(0.1, 1.0, log=True) if log else _ChartAxis(0.0, 1.0)
    low, high = min(found), max(found)
    if log:
        start = low if floor is not None else 10 ** math.floor(math.log10(low))
        return _ChartAxis(start, max(10 ** math.ceil(math.log10(high)), start * 10), log=True)
    if from_zero:
        low, high = min(low, 0.0), max(high, 0.0)
    if low == high:
        low, high = low - (abs(low) or 1) / 2, high + (abs(high) or 1) / 2
    step = _round_step((high - low) / _TICKS)
    return _ChartAxis(math.floor(low / step + 1e-9) * step, math.ceil(high / step - 1e-9) * step)


# Drawing.


def unit(share: float) -> str:
    """A share in units of the box."""
    return f"{share * SIZE:.1f}".removesuffix(".0")


def percent(share: float) -> str:
    """A share of a width or a height."""
    return f"{share * 100:.2f}%".replace(".00%", "%")


def texts(phrase: Phrase, attributes: str) -> str:
    """A text at a place, in each language where they differ."""
    if phrase.en == phrase.zh:
        return f"<text {attributes}>{escape(phrase.en)}</text>"
    return "".join(
        f'<text lang="{language}" {attributes}>{escape(phrase.within(language))}</text>'
        for language in ("en", "zh")
    )


def spans(phrase: Phrase) -> str:
    """A text in each language where they differ, as HTML; no line ends between a number and its unit."""
    english, chinese = (escape(unbroken(phrase.within(language))) for language in ("en", "zh"))
    return english if english == chinese else f'<span lang="en">{english}</span><span lang="zh">{chinese}</span>'


def _short(name: str) -> str:
    """A name as it stands below an axis: its end tells layers apart more often than its start."""
    return name if len(name) <= _LONGEST_NAME else "…" + name[1 - _LONGEST_NAME :]


@dataclass(frozen=True)
class _Drawing:
    """One chart, with what its tables hold."""

    chart: Chart
    tables: Mapping[str, TableBlock]
    language: Language

    @cached_property
    def columns(self) -> dict[str, list[Value]]:
        return _columns(self.tables[self.chart.table])

    @cached_property
    def places(self) -> list[Value]:
        """Along the bottom: one for each row, or for each x where rows of several kinds share it."""
        rows = self.columns[self.chart.x]
        if not any(each.only for each in self.chart.series) or self._pointwise:
            return rows
        return sorted({each for each in rows if each is not None}, key=lambda each: (str(type(each)), each))

    @property
    def _pointwise(self) -> bool:
        return all(each.role in _POINTWISE for each in self.chart.series)

    @cached_property
    def numeric(self) -> bool:
        """Whether places stand where their numbers say; else each has as much room as any other."""
        return self._pointwise and all(isinstance(each, float) for each in self.places)

    @cached_property
    def across(self) -> _ChartAxis:
        found = [each for each in _finite(self.places) if each is not None]
        low, high = (min(found), max(found)) if found else (0.0, 1.0)
        return _ChartAxis(low, high) if low < high else _ChartAxis(low - 0.5, high + 0.5)

    @cached_property
    def floor(self) -> float | None:
        """Where steps end that stand for 0 on a logarithmic scale, which has none: half of the smallest value."""
        if self.chart.y_scale != "log" or any(each.role != "steps" for each in self.chart.series):
            return None
        found = [
            each for one in self.chart.series for each in self.values(one, 0) if each is not None and each > 0
        ]
        return min(found) / 2 if found else None

    @cached_property
    def upwards(self) -> _ChartAxis:
        found = (
            each
            for one in self.chart.series
            for at in range(len(one.columns))
            for each in self.values(one, at)
            if each is not None
        )
        bars = any(each.role == "bars" for each in self.chart.series)
        return _axis(found, log=self.chart.y_scale == "log", from_zero=bars, floor=self.floor)

    @cached_property
    def _kept(self) -> dict[tuple[Series, int], list[float | None]]:
        return {}

    def values(self, series: Series, at: int) -> list[float | None]:
        """The column of a series by place; None where nothing can be drawn: no value, or an infinite one."""
        if (series, at) not in self._kept:
            self._kept[series, at] = self._read(series, at)
        return self._kept[series, at]

    def _read(self, series: Series, at: int) -> list[float | None]:
        column = self.columns[series.columns[at]]
        if series.only is not None:
            where, what = series.only
            chosen = [_as_text(each) == what for each in self.columns[where]]
            if self.places is self.columns[self.chart.x]:
                column = [each if kept else None for each, kept in zip(column, chosen, strict=True)]
            else:
                rows = zip(self.columns[self.chart.x], column, chosen, strict=True)
                found = {place: each for place, each, kept in rows if kept}
                column = [found.get(place) for place in self.places]
        return _finite(column)

    def at(self, place: int) -> float:
        """Share of the width at which a place stands."""
        value = self.places[place]
        if self.numeric and isinstance(value, float):
            return self.across.share(value)
        return (place + 0.5) / max(len(self.places), 1)

    def height(self, value: float) -> float:
        """Share from the top; what is zero on a logarithmic scale stands at its foot."""
        if self.upwards.log and value <= 0:
            return 1.0
        return 1 - self.upwards.share(value)

    def points(self, series: Series, column: int = 0) -> list[tuple[float, float] | None]:
        """The series from left to right; None where it is interrupted."""
        log = self.chart.y_scale == "log" and self.floor is None
        found = [
            (self.at(place), self.height(value)) if value is not None and (value > 0 or not log) else None
            for place, value in enumerate(self.values(series, column))
        ]
        if self.numeric:
            found = [
                each if there is not None else None
                for each, there in zip(found, _finite(self.places), strict=True)
            ]
        if self.numeric and series.only:
            # Rows of other series do not interrupt it.
            return [*sorted(each for each in found if each is not None)]
        return [found[place] for place in self._order] if self.numeric else found

    @cached_property
    def _order(self) -> list[int]:
        """Places from left to right."""
        return sorted(range(len(self.places)), key=self.at)

    # The parts.

    def plot(self) -> Iterator[str]:
        if len(self.chart.series) > 1:
            yield self._legend()
        yield '<div class="frame">'
        yield f'<svg class="plot" role="group" aria-labelledby="caption-{escape(self.chart.id)}">'
        yield from self._grid()
        yield f'<svg viewBox="0 0 {SIZE} {SIZE}" preserveAspectRatio="none" width="100%" height="100%">'
        for index, series in enumerate(self.chart.series):
            yield self._series(series, partial(_look, index))
        yield from self._targets()
        yield "</svg>"
        yield from self._bottom()
        yield from self._marks()
        yield "</svg>"
        yield self._below()

    def _below(self) -> str:
        return f'<p class="axis">{spans(self.chart.x_label)}</p></div>'

    def _legend(self) -> str:
        entries = (
            f'<li><svg class="key" aria-hidden="true"><path d="M1 6H19" {_look(at)}/></svg>'
            f"{spans(each.label)}</li>"
            for at, each in enumerate(self.chart.series)
        )
        return f'<ul class="legend" aria-hidden="true">{"".join(entries)}</ul>'

    def _grid(self) -> Iterator[str]:
        for tick in self.upwards.ticks():
            y = percent(self.height(tick))
            yield f'<line class="grid" x2="100%" y1="{y}" y2="{y}"/>'
            yield f'<text class="end" x="-6" y="{y}" dy="4">{number(tick)}</text>'
        yield texts(self.chart.y_label, 'class="title" x="-6" y="-8"')

    def _bottom(self) -> Iterator[str]:
        if self.numeric:
            whole = all(each.is_integer() for each in self.places if isinstance(each, float))
            for at, tick in enumerate(self.across.ticks(whole=whole)):
                yield _bottom_text(self.across.share(tick), number(tick), minor=at % 2 == 1)
            return
        step = 1 if len(self.places) <= _NAMED else -(-len(self.places) // (_NAMED // 2))
        for index, place in enumerate(range(0, len(self.places), step)):
            name = self.places[place]
            text = number(name) if isinstance(name, float) else name or ""
            yield _bottom_text(self.at(place), text, minor=index % 2 == 1)

    def _marks(self) -> Iterator[str]:
        """Lines with a word at places along the bottom, words one below the other so that none hides another."""
        names = [_as_text(each) for each in self.places]
        for index, (place, label) in enumerate(self.chart.marks):
            name = place if isinstance(place, str) else _as_text(float(place))
            if self.numeric:
                share = self.across.share(float(place))
            elif name in names:
                share = self.at(names.index(name))
            else:
                continue
            x = percent(share)
            side = 'dx="4"' if share < _RIGHT else 'dx="-4" text-anchor="end"'
            yield f'<line class="mark" x1="{x}" x2="{x}" y2="100%"/>'
            yield texts(label, f'class="mark" x="{x}" y="{12 + 14 * (index % 4)}" {side}')

    def _series(self, series: Series, look: Callable[[str], str]) -> str:
        if series.role == "bars":
            return f'<path {look("bars")} d="{self._bars(series)}"/>'
        if series.role == "box":
            return self._boxes(series, look)
        if series.role == "band":
            return f'<path {look("band")} d="{self._band(series)}"/>'
        points = self.points(series)
        dots = _dots(points)
        if series.role == "points":
            return f'<path {look("dots")} d="{dots}"/>'
        runs = _runs(points)
        shape = _stairs if series.role == "steps" else _polyline
        line = f'<path {look("line")} d="{"".join(map(shape, runs))}"/>'
        few = len(points) <= _NAMED * 5 and series.role == "line"
        alone = _dots([run[0] for run in runs if len(run) == 1])
        return line + (f'<path {look("dots")} d="{dots if few else alone}"/>' if few or alone else "")

    def _bars(self, series: Series) -> str:
        group = [each for each in self.chart.series if each.role == "bars"]
        room = 1 / max(len(self.places), 1)
        # A fifth of the room is left between places, the rest is shared by the series that stand side by side.
        wide = room * 0.8 / len(group)
        foot = unit(self.height(0.0))
        return "".join(
            f"M{unit(self.at(place) - room * 0.4 + wide * group.index(series))} {foot}"
            f"V{unit(self.height(value))}h{unit(wide)}V{foot}z"
            for place, value in enumerate(self.values(series, 0))
            if value is not None
        )

    def _boxes(self, series: Series, look: Callable[[str], str]) -> str:
        rows = zip(*(self.values(series, at) for at in range(len(series.columns))), strict=True)
        half = 0.3 / max(len(self.places), 1)
        whiskers, bodies, middles = [], [], []
        for place, row in enumerate(rows):
            found = [each for each in row if each is not None]
            if len(found) < len(row):
                continue
            low, lower, middle, upper, high = (unit(self.height(each)) for each in found)
            x, left, right = (unit(self.at(place) + shift) for shift in (0.0, -half, half))
            whiskers.append(f"M{x} {low}V{lower}M{x} {upper}V{high}")
            bodies.append(f"M{left} {lower}H{right}V{upper}H{left}z")
            middles.append(f"M{left} {middle}H{right}")
        return (
            f'<path {look("line")} d="{"".join(whiskers)}"/><path {look("box")} d="{"".join(bodies)}"/>'
            f'<path {look("line")} d="{"".join(middles)}"/>'
        )

    def _band(self, series: Series) -> str:
        low, high = self.points(series, 0), self.points(series, 1)
        both = [None if a is None or b is None else (a, b) for a, b in zip(low, high, strict=True)]
        shapes = []
        for run in _runs(both):
            upper = [end for _, end in run]
            lower = [start for start, _ in run][::-1]
            shapes.append(_polyline([*upper, *lower], thin=False) + "z")
        return "".join(shapes)

    def _targets(self) -> Iterator[str]:
        """What can be pointed at: a column for each place, or for a few, that says what stands there."""
        count = len(self.places)
        if not count:
            return
        nodes = self._nodes()
        if self.numeric:
            order = self._order
            ends = [(self.at(a) + self.at(b)) / 2 for a, b in pairwise(order)]
            edges = [0.0, *ends, 1.0]
        else:
            order, edges = list(range(count)), [at / count for at in range(count + 1)]
        size = -(-count // _MOST_PLACES)
        for start in range(0, count, size):
            group = order[start : start + size]
            left, right = edges[start], edges[min(start + size, count)]
            if right <= left:
                continue
            told = escape("\n".join(self._told(group, nodes)))
            shape = (
                f'<rect class="target" x="{unit(left)}" width="{unit(right - left)}" height="{SIZE}">'
                f"<title>{told}</title></rect>"
            )
            node = nodes[group[0]] if len(group) == 1 else None
            yield f'<a href="#node={quote(node, safe="")}" tabindex="-1">{shape}</a>' if node else shape

    def _nodes(self) -> list[str | None]:
        column = next((each.id for each in self.tables[self.chart.table].columns if each.kind == "node"), None)
        if column is None:
            return [None] * len(self.places)
        names = [None if each is None else str(each) for each in self.columns[column]]
        if self.places is self.columns[self.chart.x]:
            return names
        first = dict(zip(reversed(self.columns[self.chart.x]), reversed(names), strict=True))
        return [first[place] for place in self.places]

    def _told(self, group: Sequence[int], nodes: Sequence[str | None]) -> Iterator[str]:
        if len(group) == 1 and nodes[group[0]]:
            yield str(nodes[group[0]])
        names = [_as_text(self.places[each]) for each in group]
        told = names[0] if len(names) == 1 else f"{names[0]} … {names[-1]}"
        yield f"{self.chart.x_label.within(self.language)} {told}"
        for series in self.chart.series:
            column = len(series.columns) // 2
            found = [each for place in group if (each := self.values(series, column)[place]) is not None]
            if found and series.role != "band":
                low, high = number(min(found)), number(max(found))
                yield f"{series.label.within(self.language)}: {low if low == high else f'{low} … {high}'}"

    # Heat maps.

    def heat_map(self, series: Series) -> Iterator[str]:
        """Rows of cells, as dark as their values are bad; of more places than fit, a cell shows the worst."""
        tables = [self.tables[each] for each in series.tables or (self.chart.table,) * len(series.columns)]
        sides = list(zip(series.columns, tables, strict=True))
        rows = [_finite(_columns(table)[name]) for name, table in sides]
        shown = (column for name, table in sides for column in table.columns if column.id == name)
        higher = all(column.higher_is_better is True for column in shown)
        found = [each for row in rows for each in row if each is not None] or [0.0]
        ends = (max(found), min(found)) if higher else (min(found), max(found))
        most = max(map(len, rows), default=1) or 1
        yield '<div class="frame heat">'
        tall = " tall" if len(rows) > _TALL_ROWS else ""
        yield f'<svg class="plot{tall}" role="group" aria-labelledby="caption-{escape(self.chart.id)}">'
        yield f'<svg viewBox="0 0 {SIZE} {SIZE}" preserveAspectRatio="none" width="100%" height="100%">'
        size = -(-most // _MOST_PLACES)
        for index, row in enumerate(rows):
            shades = [_shade(row[at : at + size], ends) for at in range(0, len(row), size)]
            yield from _heat_row(index, len(rows), shades, size / most)
        yield "</svg>"
        for index, name in enumerate(series.names):
            y = percent((index + 0.5) / max(len(rows), 1))
            yield texts(Phrase(_short(name.en), _short(name.zh)), f'class="end" x="-6" y="{y}" dy="4"')
        ticks = [each for each in _ChartAxis(0.0, float(most)).ticks() if each < most and each.is_integer()]
        for at, tick in enumerate(ticks):
            yield _bottom_text(tick / most, number(tick), minor=at % 2 == 1)
        yield "</svg>"
        yield self._below()
        steps = "".join(f'<rect class="h{at}" x="{at * 22}" width="22" height="12"/>' for at in range(_SHADES))
        scale = f'{number(ends[0])} <svg class="shades" aria-hidden="true">{steps}</svg> {number(ends[1])}'
        yield f'<p class="legend">{spans(series.label)} {scale}</p>'


def _heat_row(row: int, rows: int, shades: Sequence[int | None], wide: float) -> Iterator[str]:
    """Cells of one row, neighbours of one shade as one."""
    top, tall = unit(row / rows), unit(0.92 / rows)
    for shade, group in groupby(range(len(shades)), key=shades.__getitem__):
        cells = list(group)
        if shade is not None:
            left = cells[0] * wide
            box = f'x="{unit(left)}" y="{top}" width="{unit(min(len(cells) * wide, 1 - left))}" height="{tall}"'
            yield f'<rect class="h{shade}" {box}/>'


def _shade(values: Sequence[float | None], ends: tuple[float, float]) -> int | None:
    """Of a cell, by the worst of its values; None where it has none."""
    good, bad = ends
    shares = [(each - good) / (bad - good) if bad != good else 0.0 for each in values if each is not None]
    return min(_SHADES - 1, int(max(shares) * _SHADES)) if shares else None


def _look(index: int, kind: str = "") -> str:
    """The attributes of a drawn series by its number."""
    if index >= _COLOURS and kind not in ("bars", "band", "box"):
        turn, place = divmod(index - _COLOURS, len(_SATURATIONS))
        hue = (_FIRST_HUE + (index - _COLOURS) * _NEXT_HUE) % 360
        look = f"{hue} {_SATURATIONS[place]}% {_LIGHTNESSES[turn % len(_LIGHTNESSES)]}%"
        return f'class="{kind}" stroke="hsl({look})"'
    again = " again" if index >= _COLOURS else ""
    return f'class="{f"{kind} s{index % _COLOURS}{again}".strip()}"'


def _as_text(value: Value) -> str:
    """A place or a cell as series and marks name it."""
    if isinstance(value, float):
        return str(int(value)) if value.is_integer() else repr(value)
    return value or ""


def _bottom_text(share: float, text: str, *, minor: bool) -> str:
    """A text below the axis; every second one gives way where the page is narrow."""
    look = "middle minor" if minor else "middle"
    shown = escape(_short(text))
    return f'<text class="{look}" x="{percent(share)}" y="100%" dy="16">{shown}</text>'


def _runs(points: Sequence[_T | None]) -> list[list[_T]]:
    """Pieces without a gap."""
    return [
        [each for each in group if each is not None]
        for there, group in groupby(points, key=lambda each: each is not None)
        if there
    ]


def _polyline(run: Sequence[tuple[float, float]], *, thin: bool = True) -> str:
    kept = _thinned(run) if thin else run
    return "M" + "L".join(f"{unit(x)} {unit(y)}" for x, y in kept)


def _stairs(run: Sequence[tuple[float, float]]) -> str:
    """Each value from half-way to its left neighbour to half-way to its right one."""
    if len(run) == 1:
        return f"M{unit(run[0][0])} {unit(run[0][1])}h0"
    parts = [f"M{unit(run[0][0])} {unit(run[0][1])}"]
    for (x, _), (following, y) in pairwise(run):
        parts.append(f"H{unit((x + following) / 2)}V{unit(y)}")
    return "".join((*parts, f"H{unit(run[-1][0])}"))


def _dots(points: Iterable[tuple[float, float] | None]) -> str:
    """Lines of no length: their round ends stay round however the box is stretched."""
    return "".join(f"M{unit(x)} {unit(y)}h0" for x, y in (each for each in points if each is not None))


def _thinned(run: Sequence[tuple[float, float]]) -> Sequence[tuple[float, float]]:
    """Of long lines the lowest and the highest point of each piece, so that no peak is lost."""
    if len(run) <= _MOST_POINTS:
        return run
    size = -(-len(run) // (_MOST_POINTS // 2))
    pieces = (run[at : at + size] for at in range(0, len(run), size))
    return [
        point
        for piece in pieces
        for point in sorted({min(piece, key=lambda each: each[1]), max(piece, key=lambda each: each[1])})
    ]
