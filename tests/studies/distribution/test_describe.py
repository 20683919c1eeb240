"""Distributions of a quantized network, against plain numpy on the tensors an independent evaluation gives."""

import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from onnx import helper

from roundoff.core.quantizers import Consumer, Quantizer, QuantParams, QuantSpec, fake_quantize, quantize
from roundoff.core.tensors import Array
from roundoff.errors import BadInput
from roundoff.graph.quantized_model import QuantizedModel
from roundoff.graph.weights import Weights
from roundoff.run.budget import RunBudget
from roundoff.studies.distribution.result import TensorDistribution, ValueSummary
from roundoff.studies.distribution.study import InspectionSettings, describe_distributions
from tests.models import conv_net, loaded, random_feed, value, wrapped
from tests.quantized import Recipe, quantized_simply, with_scale_times
from tests.run.samples import MemorySamples
from tests.studies.layers.support import accumulated_values, float_values

SHAPE = {"image": (1, 3, 8, 8)}
FEEDS = [random_feed(SHAPE, seed) for seed in range(4)]


@pytest.fixture(scope="module")
def network(tmp_path_factory: pytest.TempPathFactory) -> QuantizedModel:
    model = loaded(conv_net(), tmp_path_factory.mktemp("net"))
    return quantized_simply(model, FEEDS[:2])


def describe(network: QuantizedModel, *names: str, **settings: object) -> tuple[TensorDistribution, ...]:
    chosen = InspectionSettings(names, **settings)  # type: ignore[arg-type]
    return describe_distributions(network, MemorySamples(FEEDS), chosen).distributions


def check(summary: ValueSummary | None, values: Array) -> None:
    assert summary is not None
    exact = values.astype(np.float64)
    assert (summary.count, summary.nonfinite) == (exact.size, 0)
    assert summary.zeros == np.count_nonzero(exact == 0)
    assert (summary.minimum, summary.maximum) == (exact.min(), exact.max())
    assert (summary.mean, summary.std) == pytest.approx((exact.mean(), exact.std()), rel=1e-9)
    d = (exact - exact.mean()) / exact.std()
    assert summary.skewness == pytest.approx((d**3).mean(), rel=1e-6, abs=1e-9)
    assert summary.excess_kurtosis == pytest.approx((d**4).mean() - 3, rel=1e-6, abs=1e-9)
    shares = [float(share) for share in summary.quantiles]
    assert list(summary.quantiles.values()) == pytest.approx(np.quantile(exact, shares).tolist(), abs=1e-9)
    span = exact.max() - exact.min()
    near_edge = (exact <= exact.min() + 0.01 * span) | (exact >= exact.max() - 0.01 * span)
    assert summary.edge_share == pytest.approx(near_edge.mean())
    middle = np.quantile(exact, [0.0005, 0.9995])
    assert summary.central_range == pytest.approx((middle[1] - middle[0]) / span)
    assert summary.bins is not None
    counts, _ = np.histogram(exact, summary.bins.edges)
    assert sum(summary.bins.counts) == exact.size
    assert np.abs(counts - summary.bins.counts).sum() <= 2  # the last border is inclusive in numpy


def test_a_node_before_and_after_quantization(network: QuantizedModel) -> None:
    (found,) = describe(network, "Relu2")
    floats = np.concatenate([float_values(network, feed)["relu2"].reshape(-1) for feed in FEEDS])
    quantized = np.concatenate([accumulated_values(network, feed)["relu2"].reshape(-1) for feed in FEEDS])
    assert (found.kind, found.tensor, found.op_type, found.shape) == ("node", "relu2", "Relu", (1, 4, 8, 8))
    check(found.before, floats)
    check(found.after, quantized)
    check(found.difference, quantized.astype(np.float64) - floats)
    assert found.resolution == 0


def test_a_node_inside_a_unit_differs_by_what_was_quantized_before_it(network: QuantizedModel) -> None:
    (found,) = describe(network, "Conv2")
    floats = np.concatenate([float_values(network, feed)["conv2"].reshape(-1) for feed in FEEDS])
    quantized = np.concatenate([accumulated_values(network, feed)["conv2"].reshape(-1) for feed in FEEDS])
    assert found.quantizer is None
    check(found.difference, quantized.astype(np.float64) - floats)


def test_an_activation_quantizer_is_described_by_what_it_is_fed_with(network: QuantizedModel) -> None:
    (found,) = describe(network, "relu1_HzCalibration")
    values = np.concatenate([float_values(network, feed)["relu1"].reshape(-1) for feed in FEEDS])
    quantizer = next(each for each in network.quantizers if each.tensor == "relu1")
    check(found.before, values)
    assert (found.after, found.difference) == (None, None)
    facts = found.quantizer
    assert facts is not None
    scale = float(quantizer.params.scale)
    assert facts.low == 0
    assert facts.high == pytest.approx(255 * scale)
    assert facts.levels_used == np.unique(quantize(values, quantizer.params, quantizer.spec)).size
    assert facts.clipped == pytest.approx(np.mean(values > (255.5 * scale)))
    error = values.astype(np.float64) - fake_quantize(values, quantizer.params, quantizer.spec)
    wanted = 10 * math.log10(np.square(values.astype(np.float64)).sum() / np.square(error).sum())
    assert facts.sqnr_db == pytest.approx(wanted)


def test_weights_need_no_samples(network: QuantizedModel) -> None:
    report = describe_distributions(network, None, InspectionSettings(("w2", "b3")))
    weight, constant = report.distributions
    values = Weights(network.float_model)["w2"]
    quantizer = next(each for each in network.quantizers if each.tensor == "w2")
    check(weight.before, values.reshape(-1))
    check(weight.after, fake_quantize(values, quantizer.params, quantizer.spec).reshape(-1))
    assert weight.quantizer is not None
    assert weight.quantizer.axis == 0
    assert (constant.kind, constant.after, constant.quantizer) == ("constant", None, None)
    assert report.samples == ()


def test_an_input_is_quantized_where_it_enters(network: QuantizedModel) -> None:
    (found,) = describe(network, "image")
    values = np.concatenate([feed["image"].reshape(-1) for feed in FEEDS])
    quantizer = next(each for each in network.quantizers if each.tensor == "image")
    check(found.before, values)
    check(found.after, fake_quantize(values, quantizer.params, quantizer.spec))


def test_histograms_of_both_sides_share_their_bins_and_show_levels(network: QuantizedModel) -> None:
    (found,) = describe(network, "Relu1", bins=60)
    assert found.after is not None
    before, after = found.before.bins, found.after.bins
    assert before is not None
    assert after is not None
    assert (before.start, before.width) == (after.start, after.width)
    quantizer = next(each for each in network.quantizers if each.tensor == "relu1")
    steps = before.width / float(quantizer.params.scale)
    assert steps == pytest.approx(round(steps))
    assert len(before.counts) <= 62


def test_many_values_are_known_to_a_bin(tmp_path: Path) -> None:
    nodes = [helper.make_node("Identity", ["x"], ["y"], name="copy")]
    model = loaded(wrapped(nodes, [value("x", (1, 8, 64, 64))], [value("y")]), tmp_path)
    feeds = [random_feed({"x": (1, 8, 64, 64)}, seed) for seed in range(5)]
    network = quantized_simply(model, feeds)
    (found,) = describe_distributions(network, MemorySamples(feeds), InspectionSettings(("copy",))).distributions
    values = np.concatenate([feed["x"].reshape(-1) for feed in feeds]).astype(np.float64)
    assert found.resolution == 1 / 256
    assert found.before.mean == pytest.approx(values.mean())
    assert found.before.quantiles["0.99"] == pytest.approx(np.quantile(values, 0.99), rel=1 / 256)
    assert found.before.bins is not None
    counts, _ = np.histogram(values, found.before.bins.edges)
    assert np.abs(counts - np.array(found.before.bins.counts)).max() < 0.02 * counts.max()
    assert found.unimodal
    assert found.suits


def test_a_quantizer_behind_another_is_fed_with_what_that_leaves(network: QuantizedModel) -> None:
    first = next(each for each in network.quantizers if each.tensor == "relu1")
    coarse = QuantParams((first.params.scale * np.float32(8)).astype(np.float32), first.params.zero_point)
    again = Quantizer(
        "again", "relu1", "activation", first.spec, coarse, (Consumer("Conv2", 0),), after=first.name
    )
    others = tuple(each for each in network.quantizers if each is not first)
    chained = replace(network, quantizers=(replace(first, consumers=()), again, *others))
    (found,) = describe(chained, "again")
    values = np.concatenate([float_values(network, feed)["relu1"].reshape(-1) for feed in FEEDS])
    check(found.before, fake_quantize(values, first.params, first.spec))


def test_clipping_is_seen_and_said(network: QuantizedModel) -> None:
    (found,) = describe(with_scale_times(network, ["relu1"], 0.3), "Relu1")
    assert found.quantizer is not None
    assert found.quantizer.clipped_high > 0.01
    assert found.quantizer.clipped_low == 0
    assert not found.suits
    assert "of the values are clipped: calibrate on data like this" in str(found.advice)


def test_a_float_network_has_no_after(network: QuantizedModel) -> None:
    (found,) = describe(replace(network, quantizers=()), "Relu1")
    assert (found.after, found.quantizer, found.suits, str(found.advice)) == (None, None, True, "one peak")


def test_values_that_are_not_finite_are_counted(tmp_path: Path) -> None:
    nodes = [helper.make_node("Log", ["x"], ["y"], name="log")]
    model = QuantizedModel(loaded(wrapped(nodes, [value("x", (1, 4))], [value("y")]), tmp_path), ())
    samples = MemorySamples([{"x": np.array([[1.0, 0.0, -1.0, 2.0]], np.float32)}])
    (found,) = describe_distributions(model, samples, InspectionSettings(("log",))).distributions
    assert (found.before.nonfinite, found.before.minimum) == (2, 0)
    assert found.before.maximum == pytest.approx(math.log(2))
    assert str(found.advice).startswith("2 values of 4 NaN or infinite")
    nothing = MemorySamples([{"x": np.full((1, 4), -1, np.float32)}])
    (empty,) = describe_distributions(model, nothing, InspectionSettings(("log",))).distributions
    assert (empty.before.minimum, empty.before.bins, empty.peaks) == (None, None, ())


def test_truth_values_and_whole_numbers_have_distributions_too(tmp_path: Path) -> None:
    nodes = [
        helper.make_node("Greater", ["x", "zero"], ["positive"], name="compare"),
        helper.make_node("Cast", ["positive"], ["y"], name="cast", to=7),
        helper.make_node("Sub", ["x", "x"], ["zero"], name="zero"),
    ]
    nodes = [nodes[2], *nodes[:2]]
    model = loaded(wrapped(nodes, [value("x", (1, 4))], [value("y", None, 7)]), tmp_path)
    spec = QuantSpec(bits=8, signed=True, symmetric=True)
    params = QuantParams(np.array(0.1, np.float32), np.array(0))
    quantizer = Quantizer("q", "x", "activation", spec, params, (Consumer("compare", 0),))
    samples = MemorySamples([{"x": np.array([[0.01, -1, 2, 3]], np.float32)}])
    chosen = InspectionSettings(("compare", "cast"))
    compare, cast = describe_distributions(QuantizedModel(model, (quantizer,)), samples, chosen).distributions
    assert (compare.before.mean, cast.before.mean) == (0.75, 0.75)
    # 0.01 is rounded to 0, which is not greater than 0.
    assert cast.difference is not None
    assert (cast.difference.minimum, cast.difference.maximum) == (-1, 0)


def test_computed_values_need_samples(network: QuantizedModel) -> None:
    with pytest.raises(BadInput, match="values of 'Relu1' are computed, and no samples were given"):
        describe_distributions(network, None, InspectionSettings(("Relu1",)))


def test_little_memory_gives_the_same(network: QuantizedModel) -> None:
    limits = RunBudget(threads=1, max_memory=400 << 20)
    assert describe(network, "*", limits=limits) == describe(network, "*")


def test_per_tensor_weights_have_one_step(tmp_path: Path) -> None:
    model = loaded(conv_net(), tmp_path)
    network = quantized_simply(model, FEEDS[:1], Recipe(per_channel=False))
    (found,) = describe_distributions(network, None, InspectionSettings(("w1",))).distributions
    assert found.quantizer is not None
    assert found.quantizer.axis is None
    assert found.quantizer.scales[0] == found.quantizer.scales[1]
