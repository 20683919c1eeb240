"""Layer by layer with exact integers."""

from pathlib import Path

import numpy as np
import pytest

from roundoff.core.target import Arithmetic
from roundoff.run.integer.machine import IntegerRunner
from roundoff.studies.layers.study import LayerSettings, analyze_layers
from tests.models import loaded, random_feed, two_outputs
from tests.quantized import quantized_simply, with_scale_times
from tests.run.samples import MemorySamples
from tests.studies.layers.support import demo_network, float_values, quantizer_of

INTEGER = LayerSettings(mode="integer")


def test_scores_are_those_of_the_integer_runner() -> None:
    quantized, samples = demo_network()
    report = analyze_layers(quantized, samples, INTEGER)
    row = next(row for row in report.rows if row.tensor == "block2/relu")
    runner = IntegerRunner(quantized.float_model, quantized.quantizers, Arithmetic())
    exact = [float_values(quantized, feed) for feed in samples.feeds]
    x = np.concatenate([values["block2/relu"] for values in exact])
    for score, runs in (
        (row.local, [runner.run_local(values, ["block2/relu"]) for values in exact]),
        (row.accumulated, [runner.run(feed, ["block2/relu"]) for feed in samples.feeds]),
    ):
        y = np.concatenate([run.values["block2/relu"] for run in runs])
        codes = np.concatenate([run.codes["block2/relu"] for run in runs])
        assert score is not None
        assert score.mse == pytest.approx(np.square(x - y).mean(), rel=1e-5)
        assert score.used_levels == len(np.unique(codes))
        step = float(quantizer_of(quantized, "block2/relu").params.scale)
        assert score.max_steps == pytest.approx(np.abs(x - y).max() / step, rel=1e-5)


def test_wide_integers_agree_with_fake_quantization_code_by_code() -> None:
    quantized, samples = demo_network()
    exact, reference = analyze_layers(quantized, samples, INTEGER), analyze_layers(quantized, samples)
    assert (exact.overflows, exact.float_nodes, exact.verdict.kind) == ((), {}, "fine")
    for row, other in zip(exact.rows, reference.rows, strict=True):
        assert row.local is not None
        assert other.local is not None
        assert row.local.sqnr_db == pytest.approx(other.local.sqnr_db, abs=0.05)
        if row.quantized == "u8":
            assert row.differing_codes is not None
            assert row.differing_codes < 0.001
            assert row.distant_codes == 0
            assert other.differing_codes is None
    assert "exact integers, 64-bit sums that saturate" in str(exact.arithmetic)
    assert "fake quantization" in str(reference.arithmetic)


def test_an_accumulator_that_is_too_narrow_is_reported_and_blamed() -> None:
    quantized, samples = demo_network()
    settings = LayerSettings(mode="integer", arithmetic=Arithmetic(accumulator_bits=17))
    report = analyze_layers(quantized, samples, settings)
    assert {each.node for each in report.overflows} >= {"stem/conv"}
    assert "do not fit the accumulator" in str(report.overflows[0].text)
    assert report.verdict.kind == "local"
    assert {each.introduced.cause for each in report.verdict.culprits} == {"integer arithmetic"}
    assert {each.node for each in report.verdict.culprits} <= {each.node for each in report.overflows}
    row = next(row for row in report.rows if row.tensor == "stem/relu")
    assert row.distant_codes is not None
    assert row.distant_codes > 0.01


def test_a_planted_fault_is_named_in_integers_too() -> None:
    quantized, samples = demo_network()
    report = analyze_layers(with_scale_times(quantized, ["block3/relu"], 0.2), samples, INTEGER)
    assert [(each.node, each.introduced.cause) for each in report.verdict.culprits] == [
        ("block3/relu", "clipping")
    ]


def test_nodes_without_an_integer_version_are_listed(tmp_path: Path) -> None:
    feeds = [random_feed({"x": (1, 4, 3)}, seed) for seed in range(2)]
    quantized = quantized_simply(loaded(two_outputs(), tmp_path), feeds)
    report = analyze_layers(quantized, MemorySamples(feeds), INTEGER)
    assert set(report.float_nodes) == {"gate"}
    assert "Sigmoid" in str(report.float_nodes["gate"])


def test_a_small_memory_takes_more_passes_and_gives_the_same_result() -> None:
    quantized, samples = demo_network()
    tight = analyze_layers(quantized, samples, LayerSettings(mode="integer", max_memory=139_000_000))
    assert any("passes per sample" in str(note) for note in tight.notes)
    assert tight.rows == analyze_layers(quantized, samples, INTEGER).rows


def test_accumulated_alone_needs_no_reference() -> None:
    quantized, samples = demo_network()
    report = analyze_layers(quantized, samples, LayerSettings(mode="integer", method="accumulated"))
    assert all(row.local is None and row.differing_codes is None for row in report.rows)
    assert report.verdict.outputs == ("logits",)
