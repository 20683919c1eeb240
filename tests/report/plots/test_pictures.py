"""What is in the pictures, and that no name or number keeps them from being drawn."""

import xml.etree.ElementTree as ET
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from matplotlib.colors import to_hex
from matplotlib.figure import Figure

from roundoff.report.plots import curves as worst_samples
from roundoff.report.plots import distributions as channels
from roundoff.report.plots import distributions as distribution
from roundoff.report.plots import distributions as outliers
from roundoff.report.plots.curves import COLORS
from roundoff.studies.distribution.result import ChannelSpread, TensorDistribution, ValueSummary
from tests import inspections
from tests.inspections import HOSTILE

Painted = Callable[..., Figure]


@pytest.fixture
def painted(monkeypatch: pytest.MonkeyPatch) -> Painted:
    """Gives the figure instead of the file."""

    def call(module: Any, picture: Callable[[Any], bytes], result: Any) -> Figure:
        found: list[Figure] = []

        def keep(size: tuple[float, float], paint: Callable[[Figure], None], *, form: str) -> bytes:
            figure = Figure(figsize=size)
            paint(figure)
            found.append(figure)
            return b""

        monkeypatch.setattr(module, "draw", keep)
        picture(result)
        return found[0]

    return call


def of_distribution(painted: Painted, result: TensorDistribution) -> Figure:
    return painted(distribution, distribution.distribution_picture, result)


def test_a_distribution_shows_thresholds_and_the_largest_magnitude(painted: Painted) -> None:
    result = inspections.distribution()
    figure = of_distribution(painted, result)
    assert len(figure.axes) == 3
    for axes in figure.axes[:2]:
        dashed = [line for line in axes.lines if line.get_linestyle() == "--"]
        assert [line.get_xdata()[0] for line in dashed] == [-2.56, 2.54]  # type: ignore[index]
        assert {to_hex(str(line.get_color())) for line in dashed} == {COLORS["threshold"]}
        (triangle,) = [line for line in axes.lines if line.get_marker() == "^"]
        assert triangle.get_xdata()[0] == -3  # type: ignore[index]
    assert figure.axes[1].get_yscale() == "log"
    title = figure.get_suptitle()
    assert "conv1" in title
    assert "200 of 256 levels, clipped 0.2 %, 6.50 bits of information, 38.2 dB" in title
    assert str(result.advice) in title


def test_shares_add_up(painted: Painted) -> None:
    result = inspections.distribution()
    heights, edges, _ = of_distribution(painted, result).axes[0].patches[0].get_data()  # type: ignore[attr-defined]
    assert result.before.bins is not None
    assert sum(heights) == pytest.approx(100 * sum(result.before.bins.counts) / (20_000 - 3))
    assert list(edges) == pytest.approx(list(result.before.bins.edges))


def test_a_spike_does_not_hide_the_rest(painted: Painted) -> None:
    result = inspections.distribution()
    bins = result.before.bins
    assert bins is not None
    counts = list(bins.counts)
    counts[15] = 30 * max(counts)
    spiked = replace(result, before=replace(result.before, bins=replace(bins, counts=tuple(counts))))
    axes = of_distribution(painted, spiked).axes[0]
    assert axes.get_ylim()[1] < 15
    assert any("% near" in text.get_text() for text in axes.texts)


def test_a_float_distribution_has_no_third_panel(painted: Painted) -> None:
    figure = of_distribution(painted, inspections.distribution(quantized=False))
    assert len(figure.axes) == 2
    assert not [line for line in figure.axes[0].lines if line.get_linestyle() == "--"]


def test_nothing_finite_is_said(painted: Painted) -> None:
    empty = replace(inspections.values(), minimum=None, maximum=None, bins=None)
    result = replace(inspections.distribution(), before=empty, after=empty, difference=empty, peaks=())
    figure = of_distribution(painted, result)
    assert [axes.texts[0].get_text() for axes in figure.axes] == [
        "no finite values", "no finite values", "no difference to show",
    ]  # fmt: skip


def of_channels(painted: Painted, spread: ChannelSpread) -> Figure:
    return painted(channels, channels.channels_picture, spread)


def test_few_channels_are_boxes_with_red_medians_and_blue_dashed_means(painted: Painted) -> None:
    spread = inspections.channel_spread()
    boxes, levels = of_channels(painted, spread).axes
    whiskers, medians, means = boxes.collections
    for lines, name, color in ((medians, "median", COLORS["median"]), (means, "mean", COLORS["mean"])):
        heights = [float(segment[0][1]) for segment in lines.get_segments()]  # type: ignore[attr-defined]
        assert heights == [getattr(box, name) for box in spread.boxes]
        assert to_hex(lines.get_color()[0]) == color  # type: ignore[attr-defined]
    # A pattern of dashes, or none.
    patterns: list[Any] = [lines.get_linestyle() for lines in (medians, means)]
    assert [bool(pattern[0][1]) for pattern in patterns] == [False, True]
    ends = [tuple(segment[:, 1]) for segment in whiskers.get_segments()]  # type: ignore[attr-defined]
    assert ends == [(box.p01, box.p99) for box in spread.boxes]
    bars = [bar.get_bbox() for bar in boxes.patches]  # type: ignore[attr-defined]
    assert [bar.y0 for bar in bars] == pytest.approx([box.p25 for box in spread.boxes])
    assert [bar.y1 for bar in bars] == pytest.approx([box.p75 for box in spread.boxes])
    assert [line.get_ydata()[0] for line in levels.lines] == [16, 4, 1]  # type: ignore[index]
    legend = levels.get_legend()
    assert legend is not None
    assert legend.get_texts()[0].get_text() == "fewer than 16: 2 of 7"
    assert boxes.get_yscale() == "linear"


@pytest.mark.parametrize("count", [101, 1000, 4000])
def test_many_channels_are_bands_of_at_most_a_thousand_columns(painted: Painted, count: int) -> None:
    spread = inspections.channel_spread(channels=count)
    bands, levels = of_channels(painted, spread).axes
    assert len(bands.patches) == 3
    heights, edges, bottoms = bands.patches[0].get_data()  # type: ignore[attr-defined]
    assert len(heights) <= 1000
    assert (edges[0], edges[-1]) == (-0.5, count - 0.5)
    # Where several channels share a column, the extremes are shown.
    assert max(heights) == max(box.high for box in spread.boxes)
    assert min(bottoms) == min(box.low for box in spread.boxes)
    assert ("to a column" in levels.get_xlabel()) == (count > 1000)


def test_very_uneven_channels_are_drawn_logarithmically(painted: Painted) -> None:
    figure = of_channels(painted, inspections.channel_spread(uneven=True))
    assert figure.axes[0].get_yscale() == "symlog"


def test_few_tensors_are_named_and_of_many_the_worst(painted: Painted) -> None:
    few = painted(outliers, outliers.outliers_picture, inspections.outlier_report("a", "b", "c"))
    assert [label.get_text() for label in few.axes[0].get_xticklabels()] == ["a", "b", "c"]
    report = inspections.outlier_report(*(f"t{index}" for index in range(500)))
    many = painted(outliers, outliers.outliers_picture, report)
    listed = many.axes[1].texts[0].get_text()
    worst = max(report.rows, key=lambda row: row.share(3))
    assert worst.tensor in listed
    assert len(listed.splitlines()) == 14
    heights, _, _ = many.axes[0].patches[0].get_data()  # type: ignore[attr-defined]
    assert list(heights) == pytest.approx([100 * row.share(3) for row in report.rows])


def test_no_outliers_at_all(painted: Painted) -> None:
    quiet = inspections.outlier_report("a")
    quiet = replace(quiet, rows=tuple(replace(row, sparse=0) for row in quiet.rows))
    figure = painted(outliers, outliers.outliers_picture, quiet)
    assert figure.axes[0].texts[0].get_text() == "no channel of level 3 or more"
    nothing = painted(outliers, outliers.outliers_picture, replace(quiet, rows=()))
    assert nothing.axes[0].texts[0].get_text() == "no tensor has channels"


def test_samples_are_drawn_by_rank(painted: Painted) -> None:
    worst = inspections.worst_samples(*"abcd")
    figure = painted(worst_samples, worst_samples.worst_samples_picture, worst)
    line = figure.axes[0].lines[0]
    assert (list(line.get_xdata()), list(line.get_ydata())) == ([2, 3, 4], [12, 13, 14])  # type: ignore[arg-type]
    assert "1 without a finite score left out" in figure.axes[0].get_xlabel()
    assert figure.axes[1].texts[0].get_text().splitlines()[1] == "1. a   no score"


def hostile(values: ValueSummary) -> ValueSummary:
    return replace(values, skewness=None, excess_kurtosis=None)


def test_hostile_names_and_odd_numbers_are_drawn() -> None:
    """For real: fonts, formulas and layout must take them."""
    odd = replace(inspections.distribution(HOSTILE), before=hostile(inspections.values(1e30)))
    pictures = [
        distribution.distribution_picture(odd, form="svg"),
        channels.channels_picture(inspections.channel_spread(HOSTILE, channels=120), form="svg"),
        outliers.outliers_picture(inspections.outlier_report(HOSTILE, "b"), form="svg"),
        worst_samples.worst_samples_picture(inspections.worst_samples(HOSTILE, "b"), form="svg"),
    ]
    for picture in pictures:
        assert ET.fromstring(picture).tag.endswith("svg")  # noqa: S314 - we have just written it


def test_a_picture_is_a_png_of_a_readable_size() -> None:
    data = distribution.distribution_picture(inspections.distribution())
    assert data.startswith(b"\x89PNG")
    width, height = (int.from_bytes(data[at : at + 4], "big") for at in (16, 20))
    assert 900 <= width <= 1600
    assert 600 <= height <= 1400
