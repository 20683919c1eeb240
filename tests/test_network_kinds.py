"""Scores of the bench of real networks, against numbers that are computed here."""

import numpy as np
import pytest
from benchmarks.network_kinds import NETWORKS, Network, boxes, boxes_share, fitted_head
from benchmarks.networks import page

from roundoff.core.tensors import Array


def _found(*rows: tuple[float, ...]) -> Array:
    """What a head says: centre and size of a box, then scores of two classes."""
    return np.array(rows, np.float32).T


def test_boxes_count_once_and_only_where_class_and_place_agree() -> None:
    two = _found(
        (10, 10, 8, 8, 0.9, 0.0), (10.5, 10, 8, 8, 0.8, 0.0), (50, 50, 10, 10, 0.0, 0.7), (9, 9, 2, 2, 0.1, 0)
    )
    assert [kind for kind, _ in boxes(two)] == [0, 1]
    assert boxes(two)[0][1].tolist() == [6, 6, 14, 14]
    other = _found((11, 10, 8, 8, 0.5, 0.0), (50, 50, 10, 10, 0.6, 0.0), (80, 80, 4, 4, 0.9, 0.0))
    # One of two is found again, beside two that are not there: 2 x 1 of 2 + 3.
    assert boxes_share(other, two) == pytest.approx(2 / 5)
    assert boxes_share(two, two) == 1


def test_a_fitted_head_gives_probabilities_of_normal_distributions() -> None:
    rng = np.random.default_rng(0)
    classes = np.repeat([0, 1], [20_000, 60_000])
    features = rng.normal(size=(80_000, 1)) * 2 + np.where(classes, 3.0, 0.0)[:, None]
    head = fitted_head(features, classes, 2)
    at = np.array([-1.0, 1.0, 2.5])
    scores = at[:, None] * head[0] + head[1]
    odds = scores[:, 1] - scores[:, 0]
    # Of equal spread: log of priors, and (x - 3/2) x 3 / 2 ** 2.
    assert odds == pytest.approx(np.log(3) + (at - 1.5) * 0.75, abs=0.06)


def test_of_a_cost_the_part_that_is_left_is_float_over_it() -> None:
    def none(*_: object) -> float:
        raise AssertionError

    network = Network("", (), none, none, lower=True)  # type: ignore[arg-type]
    assert network.kept(4.0, 5.0) == 0.8
    assert Network("", (), none, none).kept(5.0, 4.0) == 0.8  # type: ignore[arg-type]


def test_the_page_has_the_newest_figure_of_each_step_and_what_is_left_of_float() -> None:
    name = NETWORKS[-1].name
    row = {"network": name, "int8": 1.0, "cpu_s": 3.0, "peak_mb": 10.0, "word": "-"}
    figures = [
        {**row, "step": "float", "score": 4.0},
        {**row, "step": "quantize", "score": 8.0, "word": "LOSSY"},
        {**row, "step": "quantize", "score": 5.0, "word": "FINE"},
        {**row, "step": "tune", "score": 4.1},
        {**row, "step": "nncf-fast", "score": 4.4},
    ]
    text = page(figures)
    # A loss: of 4 over 5 four fifths are left.
    assert "| quantize | 5.000 | 80.0% | 100% | 3 | 10 | FINE |" in text
    assert "| NNCF | 4.400 | 90.9% | 100% | 3 | 10 | - |" in text
    assert "Missed: the search keeps 97.56% on unseen samples, its goal is 99.00%." in text
    assert "LOSSY" not in text
    assert NETWORKS[0].name[1:] not in text
