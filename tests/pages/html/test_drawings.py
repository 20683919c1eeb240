"""Pictures of evidence stand where their numbers are, keep their extremes, and show names as text."""

import re
from itertools import pairwise

import pytest

from roundoff.messages.catalogue import plain
from roundoff.pages.cards import (
    ChannelDrawing,
    CulpritCard,
    Drawing,
    ErrorChart,
    ErrorPoint,
    HistogramDrawing,
    Rung,
    ScatterDrawing,
)
from roundoff.pages.html.drawings import card_html

TEXT = plain("text")


def culprit(drawing: Drawing | None = None, ladder: tuple[Rung, ...] = ()) -> str:
    drawings = () if drawing is None else (drawing,)
    return card_html(CulpritCard(1, TEXT, (), TEXT, ("<b>",), drawings, ladder=ladder, ladder_caption=TEXT), "en")


def chart(points: list[ErrorPoint]) -> str:
    return card_html(ErrorChart("e", TEXT, TEXT, tuple(points), (16.5, plain("limit 16.5"))), "en")


def tops(html: str, kind: str) -> list[float]:
    """How far from the top bars end, of 1000."""
    found = re.search(rf'<path class="{kind}" d="([^"]*)"', html)
    assert found is not None
    return [float(each) for each in re.findall(r"V([\d.]+)H", found[1])]


def test_bars_of_channels_are_as_high_as_the_logarithm_of_their_steps() -> None:
    steps = ((2, 128.0), (0, 8.0), (1, 2.0))
    html = culprit(ChannelDrawing(TEXT, steps, 128.0, 4.0, TEXT, TEXT, TEXT))
    # From half a step to 128 are eight doublings: 8 steps have four of them, 2 have two.
    assert tops(html, "lead") == [0.0]
    assert tops(html, "rest") == [500.0]
    assert tops(html, "few") == [750.0]
    # The band of too few steps begins at 4, which have three doublings of eight.
    assert '<rect class="danger" width="100%" y="62.50%"' in html


def test_bars_of_a_histogram_are_as_high_as_the_root_of_their_counts() -> None:
    drawn = HistogramDrawing(
        TEXT, (4, 16, 1, 0), -2.0, 2.0, zero=(-1.0, 0.0), zero_text=TEXT, limits=((1.5, plain("clip 1.5")),)
    )
    html = culprit(drawn)
    # 86 % of the height are for bars; what becomes zero is marked.
    assert tops(html, "rest") == [140 + 860 * 0.5, 140 + 860 * 0.75]
    assert tops(html, "few") == [140.0]
    assert '<line class="mark" x1="87.50%" x2="87.50%"' in html


def test_a_ladder_has_bars_from_zero_and_marks_what_is_expected() -> None:
    rungs = (
        Rung(TEXT, -5.0, plain("−5.0"), plain(""), "quantized"),  # noqa: RUF001
        Rung(TEXT, 15.0, plain("15.0"), plain("")),
        Rung(TEXT, 10.0, plain("10.0"), plain(""), "expected"),
        Rung(TEXT, float("inf"), plain("exact"), plain(""), "repaired"),
    )
    html = culprit(ladder=rungs)
    assert '<rect class="quantized" x="0%" width="25%"' in html
    assert '<rect class="changed" x="25%" width="75%"' in html
    assert '<rect class="repaired" x="25%" width="75%"' in html
    assert html.count('<line class="mark" x1="75%"') == 4


def test_what_is_exact_has_a_bar_beside_what_is_below_zero() -> None:
    rungs = (
        Rung(TEXT, -5.0, plain("−5.0"), plain(""), "quantized"),  # noqa: RUF001
        Rung(TEXT, float("inf"), plain("exact"), plain("")),
    )
    html = culprit(ladder=rungs)
    assert '<rect class="quantized" x="0%" width="9.09%"' in html
    assert '<rect class="changed" x="9.09%" width="90.91%"' in html


def test_dots_of_a_scatter_stand_at_their_values_beside_the_diagonal() -> None:
    points = ((0.0, 0.0), (1.0, 0.5), (4.0, 2.0))
    html = culprit(ScatterDrawing(TEXT, points, (0.5, 0.0), plain("device = 0.5")))
    assert 'class="dots off" d="M0 1000h0M250 750h0M1000 0h0"' in html
    # The fitted line crosses the whole picture; where the device is right is steeper and leaves it at half.
    assert 'class="fit" d="M0 1000L1000 0"' in html
    assert 'class="even" d="M0 1000L500 0"' in html


def test_what_does_not_fit_is_marked_above_the_limit() -> None:
    html = culprit(
        ChannelDrawing(TEXT, ((0, 2.0**15), (1, 2.0)), 2.0**15, 2.0**7 - 1, TEXT, TEXT, TEXT, over=True)
    )
    assert tops(html, "few") == [0.0]
    assert tops(html, "rest") == [875.0]


def test_dots_and_lines_of_the_error_chart_stand_at_their_decibels() -> None:
    points = [
        ErrorPoint("a", 50.0, 45.0),
        ErrorPoint("b", 22.5, 22.5, 30.0, finding=1),
        ErrorPoint("c", 99.0, -9.0),
    ]
    html = chart(points)
    # 55 dB from 50 to -5; beyond them at the edge.
    assert 'class="accumulated" d="M166.7 90.9L500 500L833.3 1000"' in html
    assert '<path class="rim guilty" d="M500 500h0"/><path class="dot d2"' in html
    assert '<path class="stick" d="M166.7 0V90.9M833.3 0V1000"/>' in html
    assert '<rect class="danger" x="33.33%" width="33.33%"' in html


def test_labels_at_the_right_do_not_hide_each_other() -> None:
    points = [ErrorPoint(name, 30.0, 16.4, 16.6, output=True) for name in "abc"]
    found = re.findall(r'class="at \w+" x="100%" dx="6" y="([\d.]+)%"', chart(points))
    places = sorted({float(each) for each in found})
    assert len(places) == 5
    assert min(b - a for a, b in pairwise(places)) >= 5.4


def test_a_strip_of_many_units_keeps_the_worst() -> None:
    points = [ErrorPoint(f"n{at}", 45.0, 45.0) for at in range(2000)]
    points[1234] = ErrorPoint("bad", -3.0, -3.0)
    html = chart(points)
    assert html.count('class="h5"') == 2
    assert "bad −3.0" in html  # noqa: RUF001
    assert len(html) < 250_000


@pytest.mark.parametrize("count", [1, 44, 45])
def test_names_are_text(count: int) -> None:
    html = chart([ErrorPoint('<img src="x">', 1.0, 1.0, finding=1)] * count)
    assert "<img" not in html
    assert "<b>" not in culprit().split("</h3>")[1]


def test_what_was_not_judged_is_a_gap() -> None:
    html = chart([ErrorPoint("a", 40.0, 40.0), ErrorPoint("b", None, None), ErrorPoint("c", 40.0, 40.0)])
    assert 'class="accumulated" d="M166.7 181.8M833.3 181.8"' in html
    assert 'class="open"' in html
