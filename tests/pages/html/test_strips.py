"""Tensors along the network as cells: gaps where nothing was judged, the bar of coverage, where the fault lies."""

import re

from roundoff.messages.catalogue import plain
from roundoff.pages.cards import StripCard
from roundoff.pages.html.drawings import card_html


def card(values: tuple[float | None, ...], **more: object) -> StripCard:
    names = tuple(f"t{at}" for at in range(len(values)))
    return StripCard("x", plain("title"), plain("text"), names, ((plain("row"), values),), **more)  # type: ignore[arg-type]


def test_cells_have_the_class_of_their_decibels_and_gaps_are_no_cells() -> None:
    html = card_html(card((45.0, 45.0, None, 5.0)), "en")
    assert re.findall(r'<rect class="(h\d)" x="([\d.]+)" width="([\d.]+)"', html) == [
        ("h0", "0", "500"),
        ("h4", "750", "250"),
    ]
    assert re.findall(r'<path class="open" d="M([\d.]+) 500h([\d.]+)"', html) == [("500", "250")]
    assert "not judged" in html
    assert html.count("<a href=") == 4


def test_the_bar_shows_shares_of_all() -> None:
    parts = (("good", plain("agree"), 6), ("bad", plain("differ"), 2), ("open", plain("not judged"), 8))
    html = card_html(card((1.0,) * 16, parts=parts, between=(2, 5, plain("in here")), marked=(3,)), "en")
    assert re.findall(r'<rect class="(good|bad|open)" x="([\d.]+)%" width="([\d.]+)%"', html) == [
        ("good", "0", "37.50"),
        ("bad", "37.50", "12.50"),
    ]
    assert '<line class="open" x1="50%" x2="100%"' in html  # hatched, as all that was not judged
    assert 'aria-label="6 agree; 2 differ; 8 not judged"' in html
    assert '<rect class="between" x="12.50%" width="25%"' in html
    assert html.count("▲") == 1


def test_thousands_of_tensors_share_cells_and_the_worst_shows() -> None:
    values = tuple(-3.0 if at == 1234 else 45.0 for at in range(3000))
    html = card_html(card(values), "en")
    assert html.count('class="h5"') == 1
    assert html.count("<a href=") <= 240
    assert "t1234" in html
    assert len(html) < 120_000


def test_a_comparison_shows_every_tensor_of_the_reference_in_its_place() -> None:
    from roundoff import compare, demo

    folder = demo.model_path().parent
    outcome = compare(demo.model_path(), folder / "board_dump", data=folder / "samples.npy")
    strip = next(block for block in outcome.page.blocks if isinstance(block, StripCard))
    found = outcome.result
    assert [count for *_, count in strip.parts] == [8, 6, 19]
    assert len(strip.names) == 33 == len(set(strip.names))
    (_, values) = strip.rows[0]
    for row in found.rows:
        assert strip.names[row.order] == row.reference
        assert values[row.order] == row.score.values["sqnr_db"]
    assert sum(value is None for value in values) == 19
    assert strip.between is not None
    first, last, _ = strip.between
    assert strip.names[first - 1] == "block3/depthwise_relu6"
    assert [strip.names[at] for at in (last, *strip.marked)] == ["block3/relu", "block3/relu"]
