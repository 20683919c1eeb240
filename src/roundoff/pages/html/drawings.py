"""Cards and the pictures in them as HTML and SVG, drawn here: they print, follow the theme, need no script.

Lengths across are shares of the width, so that letters keep their size on a telephone; shapes of many points stand
in a box that is stretched. Colours are classes of the style sheet.
"""

import json
import math
from collections.abc import Iterator, Sequence
from dataclasses import replace
from html import escape
from itertools import count as count_from
from itertools import groupby, takewhile
from urllib.parse import quote

from roundoff.messages.catalogue import Language, Phrase, bilingual, plain
from roundoff.pages.cards import (
    Card,
    ChannelDrawing,
    CulpritCard,
    Drawing,
    ErrorChart,
    ErrorPoint,
    HeroCard,
    HistogramDrawing,
    Rung,
    ScatterDrawing,
    StripCard,
    db_class,
)
from roundoff.pages.html.charts import LONGEST_COMMAND, SIZE, percent, spans, texts, unit
from roundoff.pages.terminal import command_lines

_SYMBOLS = {"good": "✓", "bad": "▲", "open": "◐", "plain": ""}
_BOX = f'<svg viewBox="0 0 {SIZE} {SIZE}" preserveAspectRatio="none" width="100%" height="100%">'
# Decibels of the error chart, always the same; what lies beyond is drawn at the edge.
_LOW_DB, _HIGH_DB = -5.0, 50.0
# So many units have their names below; of more, those of culprits, or of the worst, and a few along the axis.
_NAMED, _WORST, _ALONG = 44, 4, 5
_LISTED = 6
# Labels of powers of two that are nearer to that of the limit would touch it.
_POWERS_APART = 4
# How long the bar of what is exact is, in decibels, where nothing else says how long.
_EXACT_BAR = 50.0
# Room that the label of the end of a range takes of the width of a histogram.
_LABEL = 0.3
# Cells of the strip; with more units a cell is the worst of some.
_CELLS = 400
# Targets that can be pointed at.
_TARGETS = 240
_LONGEST = 22


def card_html(card: Card, language: Language) -> str:
    """A card.

    Args:
        card: What it shows.
        language: Of what is said when something is pointed at; all else is there in both.
    """
    if isinstance(card, HeroCard):
        return "\n".join(_hero(card))
    if isinstance(card, CulpritCard):
        return "\n".join(_culprit(card))
    if isinstance(card, StripCard):
        return "\n".join(_strip_card(card, language))
    return "\n".join(_error_chart(card, language))


def link_to(node: str) -> str:
    """The address of a node within the report."""
    return f"#node={quote(node, safe='')}"


def _name(text: str) -> str:
    """A name as it stands in little room: its end tells layers apart more often than its start."""
    return escape(text if len(text) <= _LONGEST else "…" + text[1 - _LONGEST :])


# The score.


def _hero(card: HeroCard) -> Iterator[str]:
    yield '<div class="card hero"><div class="answer">'
    pills = (f'<span class="pill {mark}">{_SYMBOLS[mark]} {spans(text)}</span>' for mark, text in card.pills)
    if card.pills:
        yield f'<p class="pills">{"".join(pills)}</p>'
    yield f'<h2 class="verdict">{spans(card.title)}</h2>'
    if card.text.en:
        yield f'<p class="lead">{spans(card.text)}</p>'
    if card.scores:
        yield '<div class="scores">'
        for each in card.scores:
            small = f"<small>{escape(each.unit)}</small>" if each.unit else ""
            who = f'<span class="who {each.role}">{spans(each.label)}</span>'
            figure = f'<b class="{each.role}">{spans(each.value)}{small}</b>'
            yield f'<div>{who}{figure}<span class="on">{spans(each.detail)}</span></div>'
        yield "</div>"
    if card.axis is not None:
        yield from _intervals(card)
        yield f'<p class="small">{spans(card.axis)}</p>'
    if card.notice is not None:
        mark, text = card.notice
        yield f'<p class="notice {mark}">{_SYMBOLS[mark]} {spans(text)}</p>'
    yield '</div><dl class="asked">'
    for word, lines in card.facts:
        yield f"<dt>{spans(word)}</dt><dd>"
        if word == bilingual("card.coverage") and card.coverage is not None:
            yield _coverage(*card.coverage, lines[0])
        yield "".join(f"<span>{spans(line)}</span>" for line in lines) + "</dd>"
    yield "</dl></div>"


def _intervals(card: HeroCard) -> Iterator[str]:
    """Dots on a shared axis from 0 to 100 %, with their intervals."""
    placed = [each for each in card.scores if each.place is not None]
    foot = 10 * len(placed) + 6
    label = "; ".join(f"{each.label.en} {each.value.en} %" for each in placed)
    yield f'<div class="span"><svg class="axis" role="img" aria-label="{escape(label)}" height="{foot + 18}">'
    yield f'<line class="rule" x2="100%" y1="{foot}" y2="{foot}"/>'
    for at in range(5):
        x = percent(at / 4)
        anchor = ("start", "middle", "middle", "middle", "end")[at]
        yield f'<line class="rule" x1="{x}" x2="{x}" y1="{foot - 3}" y2="{foot + 3}"/>'
        yield f'<text x="{x}" y="{foot + 15}" text-anchor="{anchor}">{25 * at} %</text>'
    for row, each in enumerate(placed):
        y = 6 + 10 * row
        if each.interval is not None:
            low, high = map(percent, each.interval)
            yield f'<line class="reach {each.role}" x1="{low}" x2="{high}" y1="{y}" y2="{y}"/>'
        yield f'<circle class="{each.role}" cx="{percent(each.place or 0.0)}" cy="{y}" r="4"/>'
    yield "</svg></div>"


def _coverage(judged: int, there: int, label: Phrase) -> str:
    share = percent(judged / there if there else 0.0)
    return (
        f'<svg class="cover" role="img" aria-label="{escape(label.en)}" height="8">'
        f'<line class="open" x2="100%" y1="4" y2="4" stroke-width="8"/>'
        f'<rect class="done" width="{share}" height="8"/></svg>'
    )


# Culprits.


def _culprit(card: CulpritCard) -> Iterator[str]:
    yield f'<div class="card culprit" id="finding-{card.number}"><div class="about">'
    yield f'<h3><span class="count">{card.number}</span> {spans(card.title)}</h3>'
    yield "".join(f"<p>{spans(each)}</p>" for each in card.text)
    if card.places:
        yield f"<h4>{spans(card.where)}</h4>"
        links = (f'<a class="chip" href="{link_to(name)}">{escape(name)}</a>' for name in card.places)
        yield f'<p class="chips">{"".join(links)}</p>'
    yield '</div><div class="evidence">'
    if card.drawings:
        yield _drawing(card.drawings[0])
        rest = card.drawings[1:]
        if rest:
            said = spans(bilingual("card.more_pictures", count=len(rest)))
            yield f'<details class="rest"><summary>{said}</summary>{"".join(map(_drawing, rest))}</details>'
    if card.ladder and card.ladder_caption is not None:
        yield f'<p class="caption">{spans(card.ladder_caption)}</p>'
        yield _ladder(card.ladder)
    yield "</div>"
    if card.remedy is not None:
        cost = "" if card.cost is None else f' <span class="tag">{spans(card.cost)}</span>'
        yield f'<div class="todo"><h4>{spans(card.remedy)}{cost}</h4>'
        if card.settings:
            yield f'<p class="small">{spans(bilingual("card.settings"))}</p>'
            names = escape(json.dumps(card.places), quote=True)
            about = f'data-chip="{escape(card.chip)}" data-nodes="{names}"'
            yield f'<pre class="commands settings-of" tabindex="0" {about}>{_lines(card.settings)}</pre>'
        if card.commands:
            yield f'<p class="small">{spans(bilingual("card.carry_out"))}</p>'
            folded = [line for each in card.commands for line in command_lines(each, LONGEST_COMMAND)]
            yield f'<pre class="commands" tabindex="0">{_lines(folded)}</pre>'
        yield "</div>"
    yield "</div>"


def _lines(lines: Sequence[str]) -> str:
    return escape("\n".join(lines))


def _drawing(drawing: Drawing) -> str:
    if isinstance(drawing, ScatterDrawing):
        parts = _scatter(drawing)
    else:
        parts = _channels(drawing) if isinstance(drawing, ChannelDrawing) else _histogram(drawing)
    of = f' data-node="{escape(drawing.node)}"' if drawing.node else ""
    return f'<figure class="drawing"{of}><p class="caption">{spans(drawing.caption)}</p>{"".join(parts)}</figure>'


def _bar(left: float, right: float, top: float) -> str:
    return f"M{unit(left)} {SIZE}V{unit(top)}H{unit(right)}V{SIZE}z"


def _channels(drawing: ChannelDrawing) -> Iterator[str]:
    """Bars on a logarithmic scale of base 2, sorted; the band of too few steps lies behind them."""
    low = 0.5
    top = math.log2(max(drawing.most, 2 * low) / low)

    def height(steps: float) -> float:
        return 1 - min(max(math.log2(max(steps, low) / low) / top, 0.0), 1.0)

    count = len(drawing.steps)
    shapes: dict[str, list[str]] = {"lead": [], "rest": [], "few": []}
    for at, (_, steps) in enumerate(drawing.steps):
        marked = steps > drawing.few if drawing.over else steps < drawing.few
        kind = "few" if marked else "lead" if at == 0 else "rest"
        # The smallest ones are seen, too.
        shapes[kind].append(_bar((at + 0.1) / count, (at + 0.9) / count, min(height(steps), 0.985)))
    label = f"{drawing.caption.en}. {drawing.leader.en}; {drawing.conclusion.en}."
    band = height(drawing.few)
    yield f'<div class="frame tight"><svg class="plot low" role="img" aria-label="{escape(label)}">'
    top_y, tall = (0.0, band) if drawing.over else (band, 1 - band)
    yield f'<rect class="danger" width="100%" y="{percent(top_y)}" height="{percent(tall)}"/>'
    if drawing.over:
        limit = round(math.log2(drawing.few + 1))
        powers = range(0, int(math.log2(drawing.most)) + 1, 8)
        apart = (bits for bits in powers if abs(bits - limit) > _POWERS_APART)
        yield from (_level(height(2.0**bits), f"2^{bits}") for bits in (*apart, limit))
    else:
        ticks = takewhile(drawing.most.__gt__, (2.0**bits for bits in count_from(0)))
        yield from (_level(height(tick), f"{tick:g}") for tick in ticks)
        yield _level(0.0, f"{drawing.most:g}")
    paths = (f'<path class="{kind}" d="{"".join(found)}"/>' for kind, found in shapes.items() if found)
    yield f"{_BOX}{''.join(paths)}</svg>"
    if drawing.leader.en:
        yield texts(drawing.leader, f'class="said" x="{percent(1.4 / max(count, 8))}" y="11"')
    yield texts(drawing.conclusion, f'class="said bad" x="100%" y="{percent(band)}" dy="-5" text-anchor="end"')
    yield texts(bilingual("card.channel_order"), 'class="order" x="0" y="100%" dy="15"')
    yield texts(drawing.median, 'class="end" x="100%" y="100%" dy="15"')
    yield "</svg></div>"


def _level(y: float, text: str) -> str:
    place = percent(y)
    line = f'<line class="grid" x2="100%" y1="{place}" y2="{place}"/>'
    return f'{line}<text class="end" x="-6" y="{place}" dy="4">{text}</text>'


def _histogram(drawing: HistogramDrawing) -> Iterator[str]:
    """Bars as high as the square root of their counts, what becomes zero marked, ends of the range dashed."""
    count, most = len(drawing.counts), max(drawing.counts, default=0) or 1
    width = (drawing.end - drawing.start) or 1.0
    shapes: dict[str, list[str]] = {"rest": [], "few": []}
    for at, found in enumerate(drawing.counts):
        middle = drawing.start + (at + 0.5) / count * width
        lost = drawing.zero is not None and drawing.zero[0] <= middle <= drawing.zero[1]
        outside = any(
            (middle < value and at_low) or (middle > value and not at_low)
            for (value, _), at_low in zip(drawing.limits, _sides(drawing), strict=True)
        )
        if found:
            kind = "few" if lost or outside else "rest"
            top = 0.14 + 0.86 * (1 - math.sqrt(found / most))
            shapes[kind].append(_bar((at + 0.06) / count, (at + 0.94) / count, top))
    said = [*(text.en for _, text in drawing.limits), *([drawing.zero_text.en] if drawing.zero_text else [])]
    label = f"{drawing.caption.en}. {'; '.join(said)}."
    yield f'<div class="frame tight"><svg class="plot low" role="img" aria-label="{escape(label)}">'
    for code in drawing.codes:
        x = percent(min(max((code - drawing.start) / width, 0.0), 1.0))
        yield f'<line class="code" x1="{x}" x2="{x}" y1="12%" y2="100%"/>'
    paths = (f'<path class="{kind}" d="{"".join(found)}"/>' for kind, found in shapes.items() if found)
    yield f"{_BOX}{''.join(paths)}</svg>"
    yield '<line class="rule" x2="100%" y1="100%" y2="100%"/>'
    for (value, text), at_low in zip(drawing.limits, _sides(drawing), strict=True):
        share = min(max((value - drawing.start) / width, 0.0), 1.0)
        x = percent(share)
        # A label stands outside of the range where there is room, so that those of close ends do not meet.
        right = share < _LABEL if at_low else share <= 1 - _LABEL
        side = 'dx="4"' if right else 'dx="-4" text-anchor="end"'
        yield f'<line class="mark" x1="{x}" x2="{x}" y2="100%"/>'
        yield texts(text, f'class="mark" x="{x}" y="10" {side}')
    if drawing.zero_text is not None:
        share = min(max(-drawing.start / width, 0.15), 0.85)
        yield texts(drawing.zero_text, f'class="said bad middle" x="{percent(share)}" y="10"')
    for at in range(5):
        value = drawing.start + width * at / 4
        anchor = ("start", "middle", "middle", "middle", "end")[at]
        yield f'<text x="{percent(at / 4)}" y="100%" dy="15" text-anchor="{anchor}">{_short(value)}</text>'
    yield "</svg></div>"


def _scatter(drawing: ScatterDrawing) -> Iterator[str]:
    """A dot for each value; where the device is right they lie on the dashed diagonal."""
    (left, right), (low, high) = (
        (min(side), max(side)) if min(side) < max(side) else (min(side) - 0.5, max(side) + 0.5)
        for side in zip(*drawing.points, strict=True)
    )

    def place(x: float, y: float) -> tuple[float, float]:
        return (x - left) / (right - left), (high - y) / (high - low)

    def line(gain: float, offset: float) -> str:
        """What of a line lies within the picture."""
        ends = (left, right)
        if gain:
            crossing = sorted((edge - offset) / gain for edge in (low, high))
            ends = max(left, crossing[0]), min(right, crossing[1])
        points = [place(x, min(max(gain * x + offset, low), high)) for x in ends]
        return "" if ends[0] >= ends[1] else "M" + "L".join(f"{unit(x)} {unit(y)}" for x, y in points)

    dots = dict.fromkeys(f"M{unit(x)} {unit(y)}h0" for x, y in (place(*each) for each in drawing.points))
    label = f"{drawing.caption.en}. {drawing.conclusion.en}."
    yield f'<p class="said bad">{spans(drawing.conclusion)}</p>'
    yield f'<div class="frame tight"><svg class="plot square" role="img" aria-label="{escape(label)}">'
    yield f'{_BOX}<path class="even" d="{line(1.0, 0.0)}"/><path class="dots off" d="{"".join(dots)}"/>'
    if drawing.line is not None:
        yield f'<path class="fit" d="{line(*drawing.line)}"/>'
    yield "</svg>"
    for share, value in ((0.0, high), (1.0, low)):
        yield _level(share, _short(value))
    for at in range(3):
        anchor = ("start", "middle", "end")[at]
        told = _short(left + (right - left) * at / 2)
        yield f'<text x="{percent(at / 2)}" y="100%" dy="15" text-anchor="{anchor}">{told}</text>'
    yield "</svg></div>"


def _short(value: float) -> str:
    return f"{value:.3g}".replace("-", "\u2212")


def _sides(drawing: HistogramDrawing) -> list[bool]:
    """Of each limit, whether it is the lower end."""
    lowest = min((value for value, _ in drawing.limits), default=0.0)
    return [value == lowest and (len(drawing.limits) > 1 or value < 0) for value, _ in drawing.limits]


def _ladder(rungs: Sequence[Rung]) -> str:
    """A bar for each set; what is expected is a mark across all of them."""
    drawn = [each.value for each in rungs if math.isfinite(each.value)]
    low, high = min([0.0, *drawn]), max([0.0, *drawn])
    if high == 0 and len(drawn) < len(rungs):
        high = _EXACT_BAR  # beside what is exact nothing else has a bar to the right
    reach = (high - low) or 1.0

    def share(value: float) -> float:
        return min(max((value - low) / reach, 0.0), 1.0) if math.isfinite(value) else float(value > 0)

    expected = next((share(each.value) for each in rungs if each.role == "expected"), None)
    parts = ['<div class="ladder">']
    for each in rungs:
        strong = " strong" if each.strong else ""
        parts.append(f'<span class="label{strong}">{spans(each.label)}</span>')
        zero, end = share(0.0), share(each.value)
        left, wide = min(zero, end), max(abs(end - zero), 0.004)
        shape = f'<rect class="{each.role}" x="{percent(left)}" width="{percent(wide)}" y="3" height="14"/>'
        if each.role == "expected":
            diamond = '<path class="diamond" d="M-5 0 0-5 5 0 0 5z"/>'
            shape = f'<svg x="{percent(end)}" y="10" overflow="visible">{diamond}</svg>'
        mark = ""
        if expected is not None:
            x = percent(expected)
            mark = f'<line class="mark" x1="{x}" x2="{x}" y2="20"/>'
        parts.append(f'<svg class="bar" aria-hidden="true" height="20">{mark}{shape}</svg>')
        note = f" <small>{spans(each.note)}</small>" if each.note.en else ""
        parts.append(f'<span class="value{strong}">{spans(each.text)}{note}</span>')
    return "".join((*parts, "</div>"))


# The error along the network.


def _high(value: float) -> float:
    """Share from the top."""
    inside = min(max(value, _LOW_DB), _HIGH_DB)
    return (_HIGH_DB - inside) / (_HIGH_DB - _LOW_DB)


def _db(value: float | None) -> Phrase:
    if value is None:
        return bilingual("card.not_judged")
    return bilingual("card.exact") if math.isinf(value) else plain(f"{value:.1f}".replace("-", "\u2212"))


def _error_chart(chart: ErrorChart, language: Language) -> Iterator[str]:
    points = _thinned(chart.points)
    count = len(points)
    named = count <= _NAMED
    yield f'<div class="card errors" id="chart-{escape(chart.id)}">{_legend(points)}'
    yield f'<h3 id="caption-{escape(chart.id)}">{spans(chart.title)}</h3><p class="small">{spans(chart.text)}</p>'
    look = " named" if named else ""
    yield f'<div class="frame errors{look}">'
    yield f'<svg class="plot" role="group" aria-labelledby="caption-{escape(chart.id)}">'
    yield texts(bilingual("card.higher"), 'class="title" x="-6" y="-8"')
    for at, each in enumerate(points):
        if each.finding:
            box = f'x="{percent(at / count)}" width="{percent(1 / count)}" height="100%"'
            yield f'<rect class="danger" {box}/>'
    for level in range(0, 51, 10):
        yield _level(_high(level), str(level))
    y = percent(_high(chart.limit[0]))
    yield f'<line class="mark" x2="100%" y1="{y}" y2="{y}"/>'
    yield _BOX + "".join(_shapes(points)) + "".join(_targets(points, language)) + "</svg>"
    yield from _ends(chart)
    yield from _names(points) if named else _few_names(points)
    yield "</svg></div>"
    yield from _strip(chart.points, language)
    yield from _worst(chart)
    if chart.drawings:
        said = spans(bilingual("card.other_pictures", count=len(chart.drawings)))
        pictures = "".join(map(_drawing, chart.drawings))
        yield f'<details class="rest several"><summary>{said}</summary><div>{pictures}</div></details>'
    yield "</div>"


def _thinned(points: Sequence[ErrorPoint]) -> Sequence[ErrorPoint]:
    """Of very many units some share a place: the worst of them, and what the last of them hands on."""
    if len(points) <= _CELLS:
        return points
    size, found = -(-len(points) // _TARGETS), []
    for start in range(0, len(points), size):
        group = points[start : start + size]
        worst = min(group, key=lambda each: (not each.finding, math.inf if each.local is None else each.local))
        last = group[-1]
        output = any(each.output for each in group)
        found.append(replace(worst, accumulated=last.accumulated, repaired=last.repaired, output=output))
    return found


def _legend(points: Sequence[ErrorPoint]) -> str:
    keys = ["local", "accumulated", *(["repaired"] if any(each.repaired is not None for each in points) else [])]
    keys += ["culprit"] if any(each.finding for each in points) else []
    items = "".join(f'<li class="key-{key}">{spans(bilingual(f"card.{key}"))}</li>' for key in keys)
    return f'<ul class="keys" aria-hidden="true">{items}</ul>'


def _shapes(points: Sequence[ErrorPoint]) -> Iterator[str]:
    """Sticks, lines and dots; dots are lines without length, whose round ends stay round."""
    count = len(points)
    at = [(place + 0.5) / count for place in range(count)]
    sticks = "".join(
        f"M{unit(x)} {unit(_high(each.local))}V{unit(_high(each.accumulated))}"
        for x, each in zip(at, points, strict=True)
        if each.local is not None and each.accumulated is not None and each.accumulated < each.local
    )
    yield f'<path class="stick" d="{sticks}"/>'
    yield f'<path class="repaired" d="{_line(at, [each.repaired for each in points])}"/>'
    yield f'<path class="accumulated" d="{_line(at, [each.accumulated for each in points])}"/>'
    for guilty in (False, True):
        look = "rim guilty" if guilty else "rim"
        for shade in range(6):
            dots = _dots(at, points, shade, guilty=guilty)
            if dots:
                yield f'<path class="{look}" d="{dots}"/><path class="dot d{shade}" d="{dots}"/>'


def _dots(at: Sequence[float], points: Sequence[ErrorPoint], shade: int, *, guilty: bool) -> str:
    return "".join(
        f"M{unit(x)} {unit(_high(each.local))}h0"
        for x, each in zip(at, points, strict=True)
        if each.local is not None and db_class(each.local) == shade and (each.finding > 0) is guilty
    )


def _line(at: Sequence[float], values: Sequence[float | None]) -> str:
    """A line with a gap where nothing was judged."""
    parts, drawn = [], False
    for x, value in zip(at, values, strict=True):
        if value is not None:
            parts.append(f"{'L' if drawn else 'M'}{unit(x)} {unit(_high(value))}")
        drawn = value is not None
    return "".join(parts)


def _told(each: ErrorPoint, language: Language) -> str:
    words = [("local", each.local), ("accumulated", each.accumulated), ("repaired", each.repaired)]
    lines = [
        f"{bilingual(f'card.{word}').within(language)} {_db(value).within(language)} dB"
        for word, value in words
        if value is not None
    ]
    return escape("\n".join([each.node, *lines]))


def _targets(points: Sequence[ErrorPoint], language: Language) -> Iterator[str]:
    """What can be pointed at and selected: each unit, or the worst of a few."""
    size = -(-len(points) // _TARGETS)
    for start in range(0, len(points), size):
        group = points[start : start + size]
        worst = min(group, key=lambda each: math.inf if each.local is None else each.local)
        box = f'x="{unit(start / len(points))}" width="{unit(len(group) / len(points))}" height="{SIZE}"'
        shape = f'<rect class="target" {box}><title>{_told(worst, language)}</title></rect>'
        yield f'<a href="{link_to(worst.node)}" tabindex="-1">{shape}</a>'


def _ends(chart: ErrorChart) -> Iterator[str]:
    """Labels at the right edge, pushed apart so that none hides another."""
    found: list[tuple[float, str, Phrase]] = [(chart.limit[0], "limit", chart.limit[1])]
    last = [each for each in chart.points if each.output and each.accumulated is not None]
    found += [
        (each.accumulated or 0.0, "bad", bilingual("card.output_at", value=_db(each.accumulated)))
        for each in sorted(last, key=lambda each: each.accumulated or 0.0)[:3]
    ]
    again = [each.repaired for each in last if each.repaired is not None]
    if again:
        found.append((min(again), "good", bilingual("card.repaired_at", value=_db(min(again)))))
    placed = -1.0
    for value, kind, text in sorted(found, key=lambda each: -each[0]):
        # One line takes so much of the height of the chart.
        y = max(_high(value), placed + 0.055)
        placed = y
        yield texts(text, f'class="at {kind}" x="100%" dx="6" y="{percent(y)}" dy="4"')


def _names(points: Sequence[ErrorPoint]) -> Iterator[str]:
    for at, each in enumerate(points):
        look = ' class="guilty"' if each.finding else ""
        place = percent((at + 0.5) / len(points))
        text = f'<text{look} transform="rotate(-48)" text-anchor="end">{_name(each.node)}</text>'
        moved = f'<g transform="translate(4 14)">{text}</g>'
        yield f'<svg class="name" x="{place}" y="100%" overflow="visible">{moved}</svg>'


def _few_names(points: Sequence[ErrorPoint]) -> Iterator[str]:
    """Names of culprits, else of the worst, with a leader; and a few along the axis."""
    count = len(points)
    for at in range(_ALONG):
        place = min(count - 1, round(at * (count - 1) / (_ALONG - 1)))
        anchor = "start" if at == 0 else "end" if at == _ALONG - 1 else "middle"
        x = percent((place + 0.5) / count)
        look = f'class="along{" minor" if at % 2 else ""}" text-anchor="{anchor}"'
        yield f'<text {look} x="{x}" y="100%" dy="16">{_name(points[place].node)}</text>'
    for row, place in enumerate(_standing_out(points)):
        each, x = points[place], percent((place + 0.5) / count)
        text = f"{_name(each.node)} {_db(each.local).en}"
        y, top = percent(0.86 + 0.05 * (row % 2)), percent(_high(each.local or 0.0))
        anchor = "start" if place < count * 0.15 else "end" if place > count * 0.85 else "middle"
        yield f'<line class="leader" x1="{x}" x2="{x}" y1="{top}" y2="{y}"/>'
        yield f'<text class="said" x="{x}" y="{y}" dy="10" text-anchor="{anchor}">{text}</text>'


def _standing_out(points: Sequence[ErrorPoint]) -> list[int]:
    """Culprits, else the worst units that stand apart from each other."""
    order = sorted(
        (at for at, each in enumerate(points) if each.local is not None),
        key=lambda at: (not points[at].finding, points[at].local or 0.0),
    )
    accused = any(each.finding for each in points)
    chosen: list[int] = []
    for at in order:
        if accused and not points[at].finding:
            break
        if all(abs(at - other) > len(points) * 0.12 for other in chosen):
            chosen.append(at)
        if len(chosen) == _WORST:
            break
    return sorted(chosen)


def _strip(points: Sequence[ErrorPoint], language: Language) -> Iterator[str]:
    """Two rows of cells in the classes of decibels; below them the culprits."""
    yield '<div class="strip">'
    for row in ("local", "accumulated"):
        targets = "".join(_targets(points, language)) if row == "local" else ""
        yield from _cells(bilingual(f"card.{row}"), [getattr(each, row) for each in points], targets)
    yield from _marks([at for at, each in enumerate(points) if each.finding], len(points))
    yield "</div>"


def _cells(label: Phrase, values: Sequence[float | None], targets: str) -> Iterator[str]:
    """A row of cells, each the worst of some tensors where they are very many; neighbours of one class are one."""
    size = -(-len(values) // _CELLS) or 1
    shades = [_worst_shade(values[at : at + size]) for at in range(0, len(values), size)]
    yield f'<span class="label">{spans(label)}</span><svg class="cells" aria-hidden="true" height="14">{_BOX}'
    for shade, run in groupby(range(len(shades)), key=shades.__getitem__):
        cells = list(run)
        left, wide = cells[0] / len(shades), len(cells) / len(shades)
        if shade is None:
            yield f'<path class="open" d="M{unit(left)} {SIZE // 2}h{unit(wide)}"/>'
        else:
            yield f'<rect class="h{shade}" x="{unit(left)}" width="{unit(wide)}" height="{SIZE}"/>'
    yield f"{targets}</svg></svg>"


def _marks(places: Sequence[int], count: int) -> Iterator[str]:
    """A sign below each of some places."""
    if places:
        marks = "".join(
            f'<text x="{percent((at + 0.5) / count)}" y="9" text-anchor="middle">▲</text>' for at in places
        )
        yield f'<span></span><svg class="marks" aria-hidden="true" height="10">{marks}</svg>'


def _strip_card(card: StripCard, language: Language) -> Iterator[str]:
    yield f'<div class="card stripes" id="chart-{escape(card.id)}"><h3>{spans(card.title)}</h3>'
    yield f'<p class="lead">{spans(card.text)}</p>'
    if card.parts:
        yield _parts(card)
    count = len(card.names) or 1
    yield '<div class="strip">'
    for number, (label, values) in enumerate(card.rows):
        targets = "" if number else "".join(_strip_targets(card, language))
        yield from _cells(label, values, targets)
    yield from _marks(card.marked, count)
    if card.between is not None:
        first, last, text = card.between
        box = f'x="{percent(first / count)}" width="{percent((last - first + 1) / count)}" height="6"'
        yield f'<span></span><svg class="marks" aria-hidden="true" height="8"><rect class="between" {box}/></svg>'
        yield f'<span></span><span class="notice open">{_SYMBOLS["open"]} {spans(text)}</span>'
    yield "</div></div>"


def _parts(card: StripCard) -> str:
    """A bar of how many of all agree, differ, and were not judged."""
    whole = sum(count for *_, count in card.parts) or 1
    label = "; ".join(f"{count} {text.en}" for _, text, count in card.parts)
    boxes, words, start = [], [], 0.0
    for mark, text, count in card.parts:
        end = start + count / whole
        shape = f'<rect class="{mark}" x="{percent(start)}" width="{percent(count / whole)}" height="12"/>'
        if mark == "open":  # hatched, as all that was not judged
            place = f'x1="{percent(start)}" x2="{percent(end)}" y1="6" y2="6"'
            shape = f'<line class="{mark}" {place} stroke-width="12"/>'
        boxes.append(shape)
        words.append(f'<li class="key-{mark}"><b>{count}</b> {spans(text)}</li>')
        start = end
    bar = f'<svg class="cover wide" role="img" aria-label="{escape(label)}" height="12">{"".join(boxes)}</svg>'
    return f'{bar}<ul class="keys parts">{"".join(words)}</ul>'


def _strip_targets(card: StripCard, language: Language) -> Iterator[str]:
    """What can be pointed at: each tensor with what every row says of it, or the worst of a few."""
    count = len(card.names)
    size = -(-count // _TARGETS) or 1
    lowest = [
        min((each for each in column if each is not None), default=math.inf)
        for column in zip(*(values for _, values in card.rows), strict=True)
    ]
    for start in range(0, count, size):
        group = range(start, min(start + size, count))
        at = min(group, key=lowest.__getitem__)
        lines = [f"{label.within(language)}: {_db(values[at]).within(language)}" for label, values in card.rows]
        box = f'x="{unit(start / count)}" width="{unit(len(group) / count)}" height="{SIZE}"'
        told = escape("\n".join([card.names[at], *lines]))
        shape = f'<rect class="target" {box}><title>{told}</title></rect>'
        yield f'<a href="{link_to(card.names[at])}" tabindex="-1">{shape}</a>'


def _worst_shade(values: Sequence[float | None]) -> int | None:
    return max((db_class(each) for each in values if each is not None), default=None)


def _worst(chart: ErrorChart) -> Iterator[str]:
    """Where there is no room for names: the six worst with their numbers."""
    found = [each for each in chart.points if each.local is not None]
    found.sort(key=lambda each: (not each.finding, each.local or 0.0))
    name = f"worst-{escape(chart.id)}"
    caption = f'<caption id="{name}">{spans(bilingual("card.worst"))}</caption>'
    yield f'<table class="worst" aria-labelledby="{name}">{caption}<tbody>'
    for each in found[:_LISTED]:
        mark = "▲ " if each.finding else ""
        shade = db_class(each.local or 0.0)
        yield (
            f'<tr><td>{mark}<a href="{link_to(each.node)}">{_name(each.node)}</a></td>'
            f'<td class="chipped d{shade}"><b>{spans(_db(each.local))}</b></td>'
            f"<td>{spans(_db(each.accumulated))}</td></tr>"
        )
    yield "</tbody></table>"
