"""Charts as SVG: what is drawn stands where the numbers of its table say."""

import colorsys
import math
import re
from importlib import resources
from xml.etree import ElementTree as ET

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from roundoff.core.tensors import Array
from roundoff.messages.catalogue import Phrase, plain
from roundoff.pages.blocks import Cell, Chart, Column, ColumnKind, Series, TableBlock
from roundoff.pages.html.charts import svg_chart
from tests.report.documents import HOSTILE

SVG = re.compile(r"([MLHVhz])([-\d. ]*)")


def table(rows: list[tuple[Cell, ...]], *ids: str, kinds: dict[str, ColumnKind] | None = None) -> TableBlock:
    columns = tuple(Column(each, plain(each), (kinds or {}).get(each, "number")) for each in ids)
    return TableBlock("t", plain("t"), columns, tuple(rows))


def drawn(
    rows: list[tuple[Cell, ...]],
    ids: tuple[str, ...],
    *series: Series,
    log: bool = False,
    marks: tuple[tuple[float | str, Phrase], ...] = (),
    kinds: dict[str, ColumnKind] | None = None,
) -> ET.Element:
    """The chart as a tree; the first column is along the bottom."""
    axes = (Phrase("place", "位置"), Phrase("level", "大小"))
    chart = Chart("c", plain("c"), "t", ids[0], series, *axes, "log" if log else "linear", marks)
    text = svg_chart(chart, {"t": table(rows, *ids, kinds=kinds)}, "en")
    return tree_of(text)


def tree_of(text: str) -> ET.Element:
    return ET.fromstring(f"<div>{text}</div>")  # noqa: S314 - our own


def paths(tree: ET.Element, look: str) -> list[str]:
    return [each.get("d", "") for each in tree.iter("path") if look in (each.get("class") or "").split()]


def points(path: str) -> list[tuple[float, float]]:
    found = [part.split() for name, part in SVG.findall(path) if name in "ML"]
    return [(float(x), float(y)) for x, y in found]


def ticks(tree: ET.Element, look: str) -> dict[str, float]:
    """Texts of an axis, and where they stand, in per cent."""
    side = "y" if look == "end" else "x"
    return {
        each.text or "": float((each.get(side) or "").rstrip("%"))
        for each in tree.iter("text")
        if look in (each.get("class") or "").split()
    }


def line(column: str = "v", **more: object) -> Series:
    return Series((column,), Phrase("error", "误差"), **more)  # type: ignore[arg-type]


def test_a_line_stands_where_its_numbers_are_on_both_axes() -> None:
    tree = drawn([(0, 10.0), (1, 20.0), (3, 40.0)], ("x", "v"), line())
    (path,) = paths(tree, "line")
    # From 10 to 40 the axis has a step of 5 and ends where the values do.
    assert points(path) == [(0, 1000), (333.3, 666.7), (1000, 0)]
    assert ticks(tree, "end") == {"10": 100, "15": 83.33, "20": 66.67, "25": 50, "30": 33.33, "35": 16.67, "40": 0}
    # Places that are whole numbers have no half between them.
    assert ticks(tree, "middle") == {"0": 0, "1": 33.33, "2": 66.67, "3": 100}


def test_what_cannot_be_drawn_is_a_gap_and_a_single_value_between_gaps_is_a_dot() -> None:
    tree = drawn([(0, 1.0), (1, 2.0), (2, math.inf), (3, 3.0), (4, None)], ("x", "v"), line())
    (path,) = paths(tree, "line")
    assert [len(points("M" + each)) for each in path.split("M")[1:]] == [2, 1]
    assert len(points(paths(tree, "dots")[0])) == 3


def test_bars_start_at_zero_and_stand_side_by_side() -> None:
    rows: list[tuple[Cell, ...]] = [("a", 4.0, 2.0), ("b", -4.0, None)]
    tree = drawn(rows, ("x", "v", "w"), line(role="bars"), line("w", role="bars"), kinds={"x": "text"})
    first, second = paths(tree, "bars")
    # Two places of 500 units, four fifths of each shared by two series: 200 units wide.
    assert first == "M50 500V0h200V500zM550 500V1000h200V500z"
    assert second == "M250 500V250h200V500z"
    assert ticks(tree, "middle") == {"a": 25, "b": 75}


def test_a_box_has_five_numbers() -> None:
    ids = ("x", "a", "b", "c", "d", "e")
    tree = drawn(
        [("n", 0.0, 25.0, 50.0, 75.0, 100.0)], ids, Series(ids[1:], plain("q"), "box"), kinds={"x": "text"}
    )
    assert paths(tree, "box") == ["M200 750H800V250H200z"]
    assert paths(tree, "line") == ["M500 1000V750M500 250V0", "M200 500H800"]


def test_a_band_lies_between_its_lines() -> None:
    tree = drawn(
        [(0, 0.0, 10.0), (1, 5.0, 10.0)], ("x", "low", "high"), Series(("low", "high"), plain("b"), "band")
    )
    assert points(paths(tree, "band")[0]) == [(0, 0), (1000, 0), (1000, 500), (0, 1000)]


def test_steps_change_half_way_and_zero_stands_at_the_foot_of_a_logarithmic_axis() -> None:
    tree = drawn([(0, 200.0), (1, 0.0), (2, 2.0)], ("x", "v"), line(role="steps"), log=True)
    # From 1, half of the smallest value, to 1000: 2 is at 30.1 per cent of it and 200 at 76.7.
    assert paths(tree, "line") == ["M0 233H250V1000H750V899.7H1000"]
    assert list(ticks(tree, "end")) == ["1", "10", "100", "1000"]


def test_rows_of_several_kinds_are_series_of_their_own() -> None:
    rows: list[tuple[Cell, ...]] = [(1, "a", 5.0), (0, "a", 6.0), (0, "b", 7.0)]
    chosen = [line(role="bars", only=("kind", name)) for name in ("a", "b")]
    tree = drawn(rows, ("x", "kind", "v"), *chosen, kinds={"kind": "text"})
    first, second = paths(tree, "bars")
    assert len(re.findall("V", first)) == 4
    assert len(re.findall("V", second)) == 2
    some = drawn(rows, ("x", "kind", "v"), line(role="points"), line(only=("kind", "a")), kinds={"kind": "text"})
    assert [x for x, _ in points(paths(some, "line")[0])] == [0, 1000]


def test_marks_have_a_line_and_a_word_in_both_languages() -> None:
    tree = drawn([(0, 1.0), (4, 2.0)], ("x", "v"), line(), marks=((3, Phrase("knee", "拐点")),))
    found = [
        (each.get("lang"), each.text, each.get("x")) for each in tree.iter("text") if each.get("class") == "mark"
    ]
    assert found == [("en", "knee", "75%"), ("zh", "拐点", "75%")]


def test_places_say_their_numbers_and_lead_to_their_nodes() -> None:
    rows: list[tuple[Cell, ...]] = [(0, 1 / 3, HOSTILE), (1, 2.0, "b/c")]
    tree = drawn(rows, ("x", "v", "node"), line(), kinds={"node": "node"})
    told = [each.text for each in tree.iter("title")]
    assert told == [f"{HOSTILE}\nplace 0\nerror: 0.3333", "b/c\nplace 1\nerror: 2"]
    assert [each.get("href") for each in tree.iter("a")][1] == "#node=b%2Fc"


def test_two_thousand_places_keep_their_extremes_and_stay_small() -> None:
    values = [20.0 + math.sin(at) for at in range(2000)]
    values[1234] = -30.0
    tree = drawn([(at, value) for at, value in enumerate(values)], ("x", "v"), line())
    found = points(paths(tree, "line")[0])
    assert len(found) <= 500
    assert max(y for _, y in found) == pytest.approx(1000, abs=0.1)
    assert len(list(tree.iter("title"))) <= 240
    assert any("-30" in (each.text or "") for each in tree.iter("title"))


def test_a_heat_map_shows_the_worst_of_each_cell_in_six_shades() -> None:
    column = Column("v", plain("v"), "number", higher_is_better=True)
    block = TableBlock("t", plain("t"), (column,), tuple((float(each),) for each in range(6)))
    heat = Series(("v",), Phrase("dB", "分贝"), "heat", tables=("t",), names=(plain("conv"),))
    chart = Chart("c", plain("c"), "t", "v", (heat,), plain("channel"), plain(""))
    tree = tree_of(svg_chart(chart, {"t": block}, "en"))
    cells = [each for each in tree.iter("rect") if each.get("y") is not None]
    # The largest is the best, so the first place is the darkest.
    assert [each.get("class") for each in cells] == ["h5", "h4", "h3", "h2", "h1", "h0"]
    assert [each.get("x") for each in cells] == ["0", "166.7", "333.3", "500", "666.7", "833.3"]


@example([-1.7e308, 1.7e308], False)
@example([5e-324, 1.7e308], True)
@given(st.lists(st.floats(allow_nan=True) | st.none(), min_size=0, max_size=30), st.booleans())
def test_any_numbers_give_a_drawing_inside_of_its_box(values: list[float | None], log: bool) -> None:
    tree = drawn([(at, value) for at, value in enumerate(values)], ("x", "v"), line(), log=log)
    for path in paths(tree, "line"):
        assert all(0 <= x <= 1000 and 0 <= y <= 1000 for x, y in points(path))


def lab(red: float, green: float, blue: float) -> Array:
    """A colour of a screen (0 to 1) in CIE 1976 L*a*b*, where a distance of 2 can be seen."""
    screen = np.array([red, green, blue])
    linear = np.where(screen > 0.04045, ((screen + 0.055) / 1.055) ** 2.4, screen / 12.92)
    matrix = np.array([[0.4124, 0.3576, 0.1805], [0.2126, 0.7152, 0.0722], [0.0193, 0.1192, 0.9505]])
    white = matrix @ linear / np.array([0.9505, 1, 1.089])
    x, y, z = np.where(white > 0.008856, np.cbrt(white), 7.787 * white + 16 / 116)
    return np.array([116 * y - 16, 500 * (x - y), 200 * (y - z)])


def test_twenty_four_lines_have_colours_that_are_told_apart() -> None:
    """Twenty curves are those of the published case of partial quantization, and a base line."""
    count = 24
    names = [f"c{number}" for number in range(count)]
    rows: list[tuple[Cell, ...]] = [
        (float(place), *(float(place + number) for number in range(count))) for place in range(4)
    ]
    tree = drawn(rows, ("x", *names), *(Series((name,), plain(name), "line") for name in names))
    lines = [
        each
        for each in tree.iter("path")
        if "line" in (each.get("class") or "").split() and len(each.get("d", "")) > 8
    ]
    looks = [(each.get("class"), each.get("stroke")) for each in lines]
    assert len(set(looks)) == count
    assert all("again" not in (kind or "") for kind, _ in looks)
    made = [re.findall(r"(\d+) (\d+)% (\d+)%", stroke)[0] for _, stroke in looks if stroke]
    own = [
        lab(*colorsys.hls_to_rgb(int(hue) / 360, int(light) / 100, int(full) / 100)) for hue, full, light in made
    ]
    style = resources.files("roundoff.pages.html").joinpath("assets/report.css").read_text("utf-8")
    for theme in (0, 1):  # light, then dark
        series = [re.findall(rf"--series-{number}: *#(\w{{6}})", style)[theme] for number in range(6)]
        named = [lab(*(int(each[at : at + 2], 16) / 255 for at in (0, 2, 4))) for each in series]
        every = np.array([*named, *own])
        apart = np.linalg.norm(every[:, None] - every[None], axis=-1) + 1e3 * np.eye(count)
        assert apart.min() >= 12
