"""Channels for people, and as CSV."""

from collections.abc import Iterator
from dataclasses import fields

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from roundoff.messages.catalogue import told
from roundoff.messages.numbers import csv_text, number, percentage, shape_text
from roundoff.messages.phrases import count_of
from roundoff.messages.sanitize import short_name
from roundoff.messages.sentences import sentence
from roundoff.pages.terminal import note_lines
from roundoff.studies.channels.result import LEVEL_BOUNDS, ChannelBox, ChannelReport, ChannelSpread

__all__ = ["CHANNELS_CSV_START", "channels_csv", "channels_page"]

# Tensors whose poorest channels are listed, and how many of each.
_MOST_DETAILED, _POOREST = 3, 5
# Of more tensors at risk the worst are spoken of.
_MOST_ADVISED = 6

CHANNELS_CSV_START = "name,kind,tensor,axis,channel,low,p01"
"""By this an earlier table of ours is known."""


def channels_page(report: ChannelReport) -> RenderableType:
    """Which tensors one scale serves badly."""
    risky = [each for each in report.spreads if each.risk in ("some", "high")]
    total = len(report.spreads)
    number_of = 1 if 1 in (len(risky), total) else total
    headline = told("channels_text.headline", risky=len(risky), all=total, number=number_of)
    if report.samples:
        samples = count_of(len(report.samples), "sample")
        headline = told("distribution_text.samples", text=headline, samples=samples)
    title = Text(headline)
    title.stylize("bold")
    parts: list[RenderableType] = [title, Text(""), _table(report), Text("")]
    worst = sorted(risky, key=_shortage, reverse=True)
    parts += [
        Text(told("distribution_text.named", name=each.name, text=sentence(each.advice)))
        for each in (worst or report.spreads)[:_MOST_ADVISED]
    ]
    if len(worst) > _MOST_ADVISED:
        parts.append(Text(told("channels_text.more", count=len(worst) - _MOST_ADVISED), style="dim"))
    if len(report.spreads) <= _MOST_DETAILED:
        parts += [part for each in report.spreads for part in _poorest(each)]
    coarse = max((each.resolution for each in report.spreads), default=0.0)
    if coarse:
        parts += note_lines([told("channels_text.bins", width=percentage(coarse))])
    parts += note_lines(report.notes, report.preparation)
    return Group(*parts)


def _shortage(each: ChannelSpread) -> tuple[float, ...]:
    """How bad it is: shares of the channels with next to no levels, then of those with few."""
    return tuple(each.below[str(bound)] / max(1, each.live) for bound in sorted(LEVEL_BOUNDS))


def _table(report: ChannelReport) -> Table:
    table = Table(box=None, pad_edge=False, padding=(0, 1, 0, 0), header_style="bold")
    table.add_column(told("distribution_text.column_name"), overflow="fold", min_width=12)
    headings = [
        told("channels_text.column_axis"),
        told("channels_text.column_channels"),
        told("channels_text.column_zero"),
        told("distribution_text.column_type"),
        told("channels_text.column_ratio"),
        *(f"<{bound}" for bound in LEVEL_BOUNDS),
        told("channels_text.column_gain"),
        told("channels.risk"),
    ]
    for heading in headings:
        table.add_column(heading, justify="right", no_wrap=True)
    for each in report.spreads:
        dtype = f"({each.dtype})" if each.assumed else each.dtype
        counts = [str(each.below[str(bound)]) for bound in LEVEL_BOUNDS]
        cells = [str(each.axis), str(len(each.boxes)), str(len(each.boxes) - each.live), dtype]
        risk = told(f"channels_text.risk_{each.risk.replace(' ', '_')}")
        cells += [number(each.range_ratio, 3), *counts, f"{each.gain_db:.1f}", risk]
        table.add_row(Text(short_name(each.name), style="bold" if each.risk == "high" else ""), *cells)
    return table


def _poorest(each: ChannelSpread) -> Iterator[RenderableType]:
    live = sorted((box for box in each.boxes if box.reach > 0), key=lambda box: box.levels)
    if not live:
        return
    table = Table(box=None, pad_edge=False, padding=(0, 1, 0, 0), header_style="bold")
    smallest, median, largest, mean = (
        told(f"channels_text.column_{name}") for name in ("smallest", "median", "largest", "mean")
    )
    levels = (told("channels.channel"), told("channels.levels"), told("channels_text.column_own"))
    for heading in (*levels, smallest, "25 %", median, "75 %", largest, mean):
        table.add_column(heading, justify="right", no_wrap=True)
    shown = live[:_POOREST] + live[-1:] if len(live) > _POOREST + 1 else live
    for box in shown:
        values = (box.low, box.p25, box.median, box.p75, box.high, box.mean)
        cells = (f"{box.levels:.1f}", f"{box.own_levels:.0f}", *(number(value, 3) for value in values))
        table.add_row(str(box.channel), *cells)
    yield Text("")
    yield Text(told("channels_text.poorest", name=each.name), style="dim")
    yield table


def channels_csv(report: ChannelReport) -> str:
    """One row for each channel of each tensor."""
    names = [field.name for field in fields(ChannelBox)]
    heading = ["name", "kind", "tensor", "axis", *names, "shape", "dtype", "own_scales", "step"]

    def rows() -> Iterator[list[object]]:
        for each in report.spreads:
            last = [shape_text(each.shape), each.dtype, each.own_scales, each.step]
            for box in each.boxes:
                yield [
                    each.name,
                    each.kind,
                    each.tensor,
                    each.axis,
                    *(getattr(box, name) for name in names),
                    *last,
                ]

    return csv_text(heading, rows())
