"""Fast analyses: the same measurements, on fewer samples."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from roundoff.errors import BadInput
from roundoff.graph.quantized_model import QuantizedModel
from roundoff.studies.sensitivity.ranking import (
    FAST_FIRST_SAMPLES,
    FAST_SAMPLES,
    FIRST_SAMPLES,
    SensitivitySettings,
)
from roundoff.studies.sensitivity.result import Sensitivity
from roundoff.studies.sensitivity.study import analyze_sensitivity
from tests.quantized import with_scale_times
from tests.run.samples import MemorySamples
from tests.studies.sensitivity.support import network
from tests.studies.sensitivity.test_analyze import flat, interrupting
from tests.studies.sensitivity.test_exact import scores_of

SETTINGS = SensitivitySettings(metrics=("sqnr_db", "chebyshev"), top=2, blocks=4, fast=True)
SAMPLES = 40
Net = tuple[QuantizedModel, MemorySamples]


@pytest.fixture(scope="module")
def net(tmp_path_factory: pytest.TempPathFactory) -> Net:
    return network("residual", tmp_path_factory.mktemp("net"), samples=SAMPLES)


def taken(found: Sensitivity) -> list[int]:
    return sorted({len(score.samples) for score in scores_of(found)})


def test_all_come_on_few_samples_and_leaders_on_more(net: Net) -> None:
    found = analyze_sensitivity(*net, SETTINGS)
    assert found.complete
    assert (found.effort.how, found.effort.first_samples) == ("fast", FAST_FIRST_SAMPLES)
    exact = analyze_sensitivity(*net, replace(SETTINGS, fast=False, exact=True))
    assert exact.effort.how == "exact"
    truth = {score.subject: score.values for score in scores_of(exact)}
    for kind, rows in found.rankings.items():
        counts = [len(row.score.samples) for row in rows]
        leaders = counts.count(FAST_SAMPLES)
        assert 2 <= leaders <= 4
        assert counts == [FAST_SAMPLES] * leaders + [FAST_FIRST_SAMPLES] * (len(rows) - leaders)
        # Spread over all there are, and measured: no number is another than in the exact run.
        assert (rows[0].score.samples[0], rows[0].score.samples[-1]) == (0, SAMPLES - 1)
        for row in rows:
            expected = truth[row.score.subject][list(row.score.samples)]
            np.testing.assert_allclose(row.score.values, expected, rtol=1e-3)
        assert rows[0].score.subject == exact.rankings[kind][0].score.subject
    assert str(found.notes[-1]) == (
        "a fast analysis: all on 4 of 40 samples, the leading ones on 16; ranks behind these are rough"
    )


def test_the_usual_analysis_takes_more(net: Net) -> None:
    found = analyze_sensitivity(*net, replace(SETTINGS, fast=False))
    assert found.effort.how == "stages"
    assert taken(found) == [FIRST_SAMPLES, SAMPLES]
    assert not any("fast" in str(note) for note in found.notes)


@pytest.mark.parametrize(
    ("change", "samples"),
    [
        ({"first_samples": 6}, [6, 16]),
        ({"first_samples": 20}, [20]),
        ({"samples": 9}, [4, 9]),
        ({"samples": 3}, [3]),
    ],
)
def test_what_is_asked_for_counts(net: Net, change: dict[str, Any], samples: list[int]) -> None:
    assert taken(analyze_sensitivity(*net, replace(SETTINGS, **change))) == samples


def test_few_samples_are_all_taken_without_a_remark(net: Net) -> None:
    quantized, samples = net
    few = MemorySamples(samples.feeds[:3])
    found = analyze_sensitivity(quantized, few, SETTINGS)
    assert flat(found) == flat(analyze_sensitivity(quantized, few, replace(SETTINGS, fast=False)))
    assert not any("fast" in str(note) for note in found.notes)


@pytest.mark.parametrize("change", [{"mode": "left_out"}, {"metrics": ("chebyshev",)}])
def test_a_planted_fault_leads(net: Net, change: dict[str, Any]) -> None:
    quantized, samples = net
    broken = with_scale_times(quantized, ["a"], 60.0)
    found = analyze_sensitivity(broken, samples, replace(SETTINGS, kinds=("activation",), **change))
    assert found.rankings["activation"][0].score.subject.tensor == "a"


def test_it_goes_on_where_it_was_ended(net: Net, tmp_path: Path) -> None:
    journal = tmp_path / "journal"
    with pytest.raises(ZeroDivisionError):
        analyze_sensitivity(*net, SETTINGS, journal=journal, on_result=interrupting(5, ZeroDivisionError))
    resumed = analyze_sensitivity(*net, SETTINGS, journal=journal)
    assert 0 < resumed.effort.resumed < resumed.effort.planned
    assert flat(resumed) == flat(analyze_sensitivity(*net, SETTINGS))


def test_exact_and_fast_is_refused() -> None:
    with pytest.raises(BadInput, match="either exact or fast"):
        SensitivitySettings(exact=True, fast=True)
