"""Documents keep what the test needs: the SQNR of each of the first samples."""

import math
from pathlib import Path

import numpy as np
import pytest

from roundoff.align.alignment import align
from roundoff.core.document import load_document, to_json
from roundoff.measure.inference import MOST_KEPT, keep_samples
from roundoff.studies.accumulate.study import accumulate
from roundoff.studies.compare.study import compare
from roundoff.studies.layers.study import LayerSettings, analyze_layers
from tests.report.documents import empty_document
from tests.sources import in_samples
from tests.studies.layers.support import accumulated_values, demo_network, float_values


def decibels(reference: np.ndarray, candidate: np.ndarray) -> float:
    error = ((candidate.astype(np.float64) - reference) ** 2).sum()
    return float(10 * np.log10((reference.astype(np.float64) ** 2).sum() / error))


def test_layers_keep_each_sample() -> None:
    quantized, samples = demo_network()
    report = analyze_layers(quantized, samples, LayerSettings())
    row = next(row for row in report.rows if row.output)
    assert row.accumulated is not None
    expected = []
    for index in range(len(samples.names)):
        feed = samples.feed(index)
        values = float_values(quantized, feed)[row.tensor], accumulated_values(quantized, feed)[row.tensor]
        expected.append(decibels(*values))
    assert row.accumulated.sample_sqnr_db == pytest.approx(expected, abs=0.02)
    assert row.accumulated.worst_sample_sqnr_db == pytest.approx(min(row.accumulated.sample_sqnr_db), abs=1e-3)
    curves = accumulate(quantized, samples)
    place = next(each for each in curves.nodes if each.tensor == row.tensor)
    assert curves.base_line.sample_sqnr_db[place.order] == pytest.approx(expected, abs=0.02)
    assert all(not curve.sample_sqnr_db for curve in curves.curves[1:])


def test_comparisons_keep_each_sample() -> None:
    generator = np.random.default_rng(0)
    plain = {name: np.zeros(8) if name == "s1" else generator.normal(size=8) for name in ("s0", "s1", "s2")}
    golden = in_samples({name: {"conv": values, "relu": values} for name, values in plain.items()})
    device = in_samples({name: {"conv": values + 0.1, "relu": values} for name, values in plain.items()})
    found = compare(golden, device, align(golden, device))
    rows = {row.reference: row for row in found.rows}
    kept = rows["conv"].sample_sqnr_db
    # Nothing can be said of a tensor that is silent in the reference.
    assert [math.isnan(each) for each in kept] == [False, True, False]
    assert kept[0] == pytest.approx(decibels(plain["s0"], plain["s0"] + 0.1), abs=1e-3)
    assert rows["relu"].sample_sqnr_db[0] == math.inf


def test_few_samples_are_kept_and_come_back_from_a_document(tmp_path: Path) -> None:
    assert len(keep_samples(float(at) for at in range(1000))) == MOST_KEPT
    quantized, samples = demo_network()
    document = empty_document(layers=analyze_layers(quantized, samples, LayerSettings()))
    (tmp_path / "run.json").write_text(to_json(document), encoding="utf-8")
    assert load_document(tmp_path) == document
