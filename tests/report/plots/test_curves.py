"""Pictures of curves."""

import math
import re
from dataclasses import replace
from itertools import pairwise

import pytest

from roundoff.report.plots.curves import accumulation_picture, partial_picture
from tests.report.curves import curves_of, sweep_of, without_goal

pytest.importorskip("matplotlib")


def svg(picture: bytes) -> str:
    return picture.decode("utf-8")


def test_a_picture_is_png_or_svg_and_the_same_each_time() -> None:
    found = curves_of()
    assert accumulation_picture(found).startswith(b"\x89PNG")
    picture = accumulation_picture(found, form="svg")
    assert picture.startswith(b"<?xml")
    assert picture == accumulation_picture(found, form="svg")


def test_nodes_and_curves_are_named() -> None:
    text = svg(accumulation_picture(curves_of(), form="svg"))
    for part in ("all (everything quantized)", "activation", "block3/conv", "cosine (higher is better)"):
        assert f"<!-- {part} -->" in text


def test_five_hundred_nodes_name_only_what_matters() -> None:
    found = curves_of(500, tuple(f"partial_qmodel_{number}" for number in range(30)))
    text = svg(accumulation_picture(found, form="svg"))
    assert "<!-- 500 quantized nodes in execution order -->" in text
    assert "<!-- block2/conv -->" in text
    assert "<!-- block3/conv -->" not in text
    # Thirty names would hide the curves.
    assert "<!-- partial_qmodel_5 -->" in text
    assert "<!-- partial_qmodel_25 -->" not in text
    assert "<!-- ... partial_qmodel_29 -->" in text


def test_the_curves_of_a_sweep_are_told_apart() -> None:
    found = curves_of(60, tuple(f"partial_qmodel_{number}" for number in range(20)))
    text = svg(accumulation_picture(found, form="svg"))
    assert all(f"<!-- partial_qmodel_{number} -->" in text for number in range(20))
    styles = re.findall(r'id="line2d_\d+">\s*<path d="[^"]{200,}" [^>]*style="([^"]*)"', text)
    colors = [re.findall(r"stroke: (#\w+)", style)[0] for style in styles]
    assert len(set(colors)) == 21
    # Colours of neighbours are close; their lines are not.
    dashes = [re.findall(r"stroke-dasharray: ([\d., ]+)", style) for style in styles[1:]]
    assert all(one != other for one, other in pairwise(dashes))


def test_a_long_sweep_says_what_its_axis_is() -> None:
    found = sweep_of()
    steps = tuple(replace(found.steps[1], count=count) for count in range(50))
    text = svg(partial_picture(replace(found, steps=steps), form="svg"))
    assert "are left in float, in the order of the ranking -->" in text


def test_what_is_missing_or_endless_is_left_out() -> None:
    found = curves_of(4, ("weight",))
    nothing = replace(found.curves[1], values=(None, math.inf, -math.inf, None))
    assert accumulation_picture(replace(found, curves=(found.curves[0], nothing))).startswith(b"\x89PNG")


def test_a_sweep_shows_float_goal_and_knee() -> None:
    text = svg(partial_picture(sweep_of(), form="svg"))
    for part in ("float", "goal 99%", "reached with 2", "2  b/conv", "0  all quantized"):
        assert f"<!-- {part} -->" in text
    text = svg(partial_picture(without_goal(sweep_of()), form="svg"))
    assert "<!-- levels off at 2 -->" in text
    last = replace(without_goal(sweep_of()), levels_off=3)
    assert "levels off" not in svg(partial_picture(last, form="svg"))
    assert "reached with" not in text


def test_a_sweep_of_endless_scores() -> None:
    found = sweep_of()
    steps = (*found.steps[:-1], replace(found.steps[-1], score=math.inf))
    assert partial_picture(replace(found, steps=steps, float_score=math.inf)).startswith(b"\x89PNG")
