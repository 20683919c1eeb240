"""The drawn network: everything fits a screen, nothing hides anything else, numbers stand in their boxes."""

import re

import pytest

from roundoff.messages.catalogue import plain
from roundoff.pages.blocks import NetworkBlock, NetworkBox, NetworkNode
from roundoff.pages.html.render import network_html


def block(count: int, *, value: float = 12.34, kind: str = "decibels", skip: int = 0) -> NetworkBlock:
    nodes = tuple(
        NetworkNode(
            f"n{at}", "Conv", (f"t{at}", *((f"t{at - skip}",) if skip and at >= skip else ())), (f"t{at + 1}",)
        )
        for at in range(count)
    )
    boxes = tuple(NetworkBox(plain(node.name), (node.name,), "Conv 8×8", "u8", value) for node in nodes)  # noqa: RUF001
    return NetworkBlock("n", plain("caption"), nodes, kind, True, boxes=boxes)  # type: ignore[arg-type]


def places(html: str) -> list[tuple[float, float]]:
    found = re.findall(r'transform="translate\(([\d.]+) ([\d.]+)\)"', html)
    return [(float(x), float(y)) for x, y in found]


@pytest.mark.parametrize("count", [1, 14, 52, 104])
def test_boxes_of_a_chain_do_not_touch_and_fit_a_screen(count: int) -> None:
    html = network_html(block(count))
    found = places(html)
    assert len(found) == count
    for at, (x, y) in enumerate(found):
        for other_x, other_y in found[at + 1 :]:
            assert abs(x - other_x) >= 156 or abs(y - other_y) >= 44
    size = re.search(r'viewBox="0 0 (\d+) (\d+)"', html)
    assert size is not None
    wide, tall = map(int, size.groups())
    # Scaled to a screen of 950 x 720 the letters keep two fifths of their size at least.
    assert min(950 / wide, 720 / tall) > 0.4
    assert all(0 < x < wide - 156 and 0 < y < tall - 44 for x, y in found)


def test_a_box_has_name_number_detail_and_codes_in_its_class() -> None:
    html = network_html(block(1))
    assert '<a class="box f3" href="#node=n0" data-box="0"' in html
    for text in (">n0<", ">12.3<", ">Conv 8×8<", ">u8<"):  # noqa: RUF001
        assert text in html
    assert ">−2.0<" in network_html(block(1, value=-2.0))  # noqa: RUF001
    assert 'class="box f5"' in network_html(block(1, value=-2.0))


def test_other_numbers_are_coloured_between_the_best_and_the_worst() -> None:
    several = block(3, kind="number")
    boxes = tuple(
        NetworkBox(box.label, box.nodes, box.detail, value=value)
        for box, value in zip(several.boxes, (4.0, 3.0, 1.0), strict=True)
    )
    html = network_html(
        NetworkBlock("n", plain("caption"), several.nodes, "number", higher_is_better=True, boxes=boxes)
    )
    assert re.findall(r'class="box f(\d)"', html) == ["0", "2", "5"]
    assert '<span class="c0">4</span>' in html
    assert '<span class="c5">1</span>' in html


def test_lines_that_skip_layers_go_around_the_boxes() -> None:
    plain_edges = network_html(block(6))
    edges = re.search(r'class="edge" d="([^"]*)"', network_html(block(6, skip=3)))
    assert edges is not None
    # Five steps of the chain, and the two that read what another one wrote four boxes before.
    assert edges[1].count("C") == 5
    assert edges[1].count("H") == 2 * 2
    assert "H" not in plain_edges.split('class="edge" d="')[1].split('"')[0]


def test_a_box_stands_below_all_that_it_reads_whatever_the_order() -> None:
    # The second box ends before the first one does, and reads from it all the same.
    nodes = (
        NetworkNode("a", "Conv", ("x",), ("t1",)),
        NetworkNode("b", "Relu", ("t1",), ("t2",)),
        NetworkNode("c", "Conv", ("t1",), ("t3",)),
    )
    boxes = (NetworkBox(plain("b"), ("b",), "Relu"), NetworkBox(plain("a"), ("a", "c"), "Conv"))
    html = network_html(NetworkBlock("n", plain("c"), nodes, "number", higher_is_better=True, boxes=boxes))
    below, above = places(html)
    assert below[1] > above[1]


def test_names_are_text() -> None:
    hostile = '<img src="x">'
    node = NetworkNode(hostile, "Conv", ("x",), ("y",))
    box = NetworkBox(plain(hostile), (hostile,), hostile)
    assert "<img" not in network_html(NetworkBlock("n", plain("c"), (node,), "number", True, boxes=(box,)))
