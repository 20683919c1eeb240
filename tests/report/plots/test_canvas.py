"""The page: the same bytes every time, and nobody else's settings touched."""

import subprocess
import sys
from pathlib import Path
from typing import Any

import matplotlib as mpl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from roundoff.errors import MissingExtra
from roundoff.report.plots.curves import PictureForm, draw, drawable, shortened


def paint(figure: Any) -> None:
    axes = figure.subplots()
    axes.plot([0, 1, 2], [3, 1, 2], label="a line")
    axes.set_title(drawable("卷积 $x$ ü"))
    axes.legend()


@pytest.mark.parametrize("form", ["png", "svg"])
def test_the_same_picture_twice_is_the_same_file(form: PictureForm) -> None:
    first, second = (draw((4, 3), paint, form=form) for _ in range(2))
    assert first == second
    assert first.startswith(b"\x89PNG" if form == "png" else b"<?xml")
    for trace in (b"matplotlib v", b"Matplotlib v", b"<dc:date>"):
        assert trace not in first


def settings() -> dict[str, Any]:
    # Asking for the backend would choose one.
    return {name: mpl.rcParams[name] for name in mpl.rcParams if name != "backend"}


def test_the_users_settings_neither_matter_nor_change() -> None:
    plain = draw((4, 3), paint, form="svg")
    before = settings()
    with mpl.rc_context({"font.size": 30, "axes.facecolor": "black", "svg.hashsalt": "mine"}):
        assert draw((4, 3), paint, form="svg") == plain
        assert mpl.rcParams["font.size"] == 30
    assert settings() == before


def test_pyplot_is_never_loaded() -> None:
    code = """
import sys
from roundoff.report.plots import distributions as distribution
from roundoff.report.plots import distributions as channels
from tests import inspections
channels.channels_picture(inspections.channel_spread())
distribution.distribution_picture(inspections.distribution(quantized=False), form="svg")
sys.exit("matplotlib.pyplot" in sys.modules)
"""
    subprocess.run([sys.executable, "-c", code], check=True, cwd=Path(__file__).parents[3])


def test_without_matplotlib_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(MissingExtra, match="Drawing pictures needs the package 'matplotlib'") as caught:
        draw((2, 2), paint, form="png")
    assert caught.value.fix == "pip install 'roundoff[plots]'"


@given(st.text(max_size=30))
def test_any_text_can_be_drawn(text: str) -> None:
    shown = drawable(text)
    assert "\n" not in shown
    # A dollar begins a formula unless a backslash is in front of it.
    assert shown.count("$") == shown.count(r"\$") == text.count("$")


def test_characters_no_font_has_are_spelled() -> None:
    assert drawable("a\ue123\tb") == "a\\ue123\\u0009b"


@given(st.text(max_size=60), st.integers(3, 40))
def test_shortened_text_fits_and_keeps_its_ends(text: str, most: int) -> None:
    short = shortened(text, most)
    assert len(short) <= most
    assert short == text or (short[0] == text[0] and short[-1] == text[-1] and "…" in short)
