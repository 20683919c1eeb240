"""Channels against plain numpy."""

import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from onnx import helper

from roundoff.core.quantizers import Quantizer, QuantParams, QuantSpec, parameters_from_range
from roundoff.core.tensors import Array
from roundoff.errors import BadInput
from roundoff.graph.quantized_model import QuantizedModel
from roundoff.graph.weights import Weights
from roundoff.studies.distribution.advice import judge_channels
from roundoff.studies.distribution.records import CHANNEL_QUANTILES as QUANTILES
from roundoff.studies.distribution.records import ChannelRecord, Inspected
from roundoff.studies.distribution.result import ChannelSpread
from roundoff.studies.distribution.study import InspectionSettings, describe_channels
from tests.models import conv_net, loaded, random_feed, value, wrapped
from tests.quantized import Recipe, quantized_simply
from tests.run.samples import MemorySamples
from tests.studies.layers.support import float_values

FEEDS = [random_feed({"image": (1, 3, 8, 8)}, seed) for seed in range(4)]
U8 = QuantSpec(bits=8, signed=False, symmetric=False)


@pytest.fixture(scope="module")
def network(tmp_path_factory: pytest.TempPathFactory) -> QuantizedModel:
    model = loaded(conv_net(), tmp_path_factory.mktemp("net"))
    return quantized_simply(model, FEEDS)


def describe(network: QuantizedModel, *names: str, axis: int | None = None) -> tuple[ChannelSpread, ...]:
    settings = InspectionSettings(names, axis=axis)
    return describe_channels(network, MemorySamples(FEEDS), settings).spreads


def judge(values: Array, quantizer: Quantizer | None = None, axis: int = 0) -> ChannelSpread:
    record = ChannelRecord(axis)
    record.add(values)
    kind = "activation" if quantizer is None else quantizer.kind
    inspected = Inspected("t", "node" if kind == "activation" else "weight", "t", "n", "Conv", quantizer)
    return judge_channels(record, inspected, shape=values.shape, axis=axis)


def check_boxes(spread: ChannelSpread, values: Array) -> None:
    """`values` of shape [channels, n]."""
    exact = values.astype(np.float64)
    for box, row in zip(spread.boxes, exact, strict=True):
        assert (box.low, box.high) == (row.min(), row.max())
        assert box.mean == pytest.approx(row.mean(), rel=1e-9, abs=1e-12)
        found = (box.p01, box.p25, box.median, box.p75, box.p99)
        assert found == pytest.approx(np.quantile(row, QUANTILES), rel=1e-9, abs=1e-12)


def test_an_activation(network: QuantizedModel) -> None:
    (found,) = describe(network, "Relu1")
    values = np.concatenate([float_values(network, feed)["relu1"] for feed in FEEDS])
    rows = values.transpose(1, 0, 2, 3).reshape(4, -1)
    assert (found.axis, found.own_scales, found.assumed, found.dtype) == (1, False, False, "u8")
    check_boxes(found, rows)
    step = float(next(each for each in network.quantizers if each.tensor == "relu1").params.scale)
    assert found.step == step
    highest = rows.astype(np.float64).max(axis=1)
    assert [box.levels for box in found.boxes] == pytest.approx(np.minimum(highest / step, 255).tolist())
    assert found.range_ratio == pytest.approx(highest.max() / np.median(highest[highest > 0]))


def test_a_weight_with_scales_of_its_own_runs_no_risk(network: QuantizedModel) -> None:
    (found,) = describe_channels(network, None, InspectionSettings(("w1",))).spreads
    rows = Weights(network.float_model)["w1"].reshape(4, -1)
    check_boxes(found, rows)
    assert (found.axis, found.own_scales, found.risk) == (0, True, "own scales")
    largest = np.abs(rows.astype(np.float64)).max(axis=1)
    assert found.step == pytest.approx(largest.max() / 127)
    assert found.gain_db == pytest.approx(10 * math.log10(largest.max() ** 2 / np.mean(largest**2)), abs=1e-4)
    assert str(found.advice).startswith("each channel has a scale of its own: no risk")


def test_a_weight_with_one_scale_is_cut_where_the_operation_has_channels(tmp_path: Path) -> None:
    model = loaded(conv_net(), tmp_path)
    network = quantized_simply(model, FEEDS[:1], Recipe(per_channel=False))
    conv, gemm = describe_channels(network, None, InspectionSettings(("w1", "w3"))).spreads
    assert (conv.axis, gemm.axis) == (0, 1)
    assert (len(conv.boxes), len(gemm.boxes)) == (4, 10)
    assert not conv.own_scales


def test_another_axis(network: QuantizedModel) -> None:
    (found,) = describe(network, "w1", axis=-1)
    assert (found.axis, len(found.boxes), found.own_scales) == (3, 3, False)
    with pytest.raises(BadInput, match=r"'relu1' has the shape \[1, 4, 8, 8\], so there is no axis 4") as caught:
        describe(network, "Relu1", axis=4)
    assert caught.value.fix == "give --axis from 0 to 3"


def test_a_tensor_that_is_not_quantized_is_judged_by_usual_codes(network: QuantizedModel) -> None:
    weight, activation = describe(replace(network, quantizers=()), "Relu1", "w1")
    assert (activation.assumed, activation.dtype) == (True, "u8")
    assert (weight.assumed, weight.dtype) == (True, "s8")


@settings(deadline=None)
@given(arrays(np.float32, (5, 12), elements=st.floats(-100, 100, width=32)))
def test_levels_are_steps_within_the_codes(values: Array) -> None:
    spread = judge(values)
    low, high = values.astype(np.float64).min(axis=1), values.astype(np.float64).max(axis=1)
    reach = np.maximum(high, 0) - np.minimum(low, 0)
    params = parameters_from_range(low.min(), high.max(), U8)
    levels = np.array([box.levels for box in spread.boxes])
    # Rounding of the zero point may leave the outermost value half a step outside.
    np.testing.assert_allclose(levels, np.minimum(reach / float(params.scale), 255), atol=0.51)
    assert spread.live == np.count_nonzero(reach)
    for bound in (16, 4, 1):
        assert spread.below[str(bound)] == np.count_nonzero((levels < bound) & (reach > 0))


def test_clipped_values_have_no_levels() -> None:
    spec = QuantSpec(bits=8, signed=True, symmetric=True)
    quantizer = Quantizer("q", "t", "activation", spec, QuantParams(np.array(1, np.float32), np.array(0)), ())
    spread = judge(np.array([[0, 1000], [-1000, 1000], [0, 3]], np.float32), quantizer)
    assert [box.levels for box in spread.boxes] == [127, 255, 3]


def test_risk_and_advice() -> None:
    even = judge(np.tile(np.array([[-1, 1]], np.float32), (20, 1)))
    assert (even.risk, even.range_ratio) == ("none", 1)
    assert even.gain_db == pytest.approx(0, abs=1e-6)
    assert str(even.advice).startswith("every channel has at least 16 levels")
    scales = np.ones(100)
    scales[0] = 100
    uneven = judge((np.array([[-1, 1]]) * scales[:, None]).astype(np.float32))
    assert (uneven.risk, uneven.below, uneven.range_ratio) == ("high", {"16": 99, "4": 99, "1": 0}, 100)
    assert uneven.gain_db == pytest.approx(10 * math.log10(1e4 / ((1e4 + 99) / 100)), abs=1e-3)
    assert str(uneven.advice).startswith(
        "99 of 100 channels have fewer than 16 levels, 99 fewer than 4: a scale for each"
    )
    scales = np.full(100, 1.0)
    scales[0] = 0.05
    one = judge((np.array([[-1, 1]]) * scales[:, None]).astype(np.float32))
    assert (one.risk, one.below["16"]) == ("some", 1)
    assert str(one.advice).startswith("1 of 100 channels has fewer than 16 levels: a scale")
    assert str(judge(np.zeros((3, 4), np.float32)).advice) == "all channels are zero"
    nothing = judge(np.full((3, 4), np.nan, np.float32))
    assert (nothing.risk, str(nothing.advice)) == ("no values", "no channel has a finite value")
    assert str(judge(np.zeros((3, 0), np.float32)).advice) == "no channel has a finite value"
    assert str(judge(np.ones((1, 4), np.float32)).advice) == "a single channel"


def test_dead_channels_are_no_risk() -> None:
    values = np.zeros((10, 4), np.float32)
    values[:5] = [-1, 0, 0.5, 1]
    spread = judge(values)
    assert (spread.live, spread.risk, spread.below["16"]) == (5, "none", 0)


def test_what_is_not_finite_is_left_out() -> None:
    values = np.array([[1, np.nan, 3], [np.inf, np.inf, np.nan]], np.float32)
    record = ChannelRecord(0)
    record.add(values)
    record.add(np.array([[2, 2, 2], [np.nan] * 3], np.float32))
    assert record.means() == pytest.approx([2, 0])
    spread = judge(values)
    assert (spread.boxes[0].low, spread.boxes[0].high, spread.boxes[1].reach) == (1, 3, 0)


def test_many_values_are_known_to_a_bin() -> None:
    rng = np.random.default_rng(0)
    record = ChannelRecord(1)
    parts = [(rng.standard_normal((2, 300, 200)) * np.linspace(0.1, 5, 300)[:, None]) for _ in range(3)]
    for part in parts:
        record.add(part.astype(np.float32))
    values = np.concatenate(parts).transpose(1, 0, 2).reshape(300, -1)
    exact = np.quantile(values, QUANTILES, axis=1).T
    assert record.resolution == 1 / 8
    error = np.abs(record.quantiles() - exact)
    assert (error <= np.abs(exact) / 8 + 0.02 * values.std(axis=1)[:, None]).all()
    assert record.means() == pytest.approx(values.mean(axis=1), abs=1e-4)


def test_computed_values_need_samples_and_channels(network: QuantizedModel, tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="values of 'Relu1' are computed, and no samples were given"):
        describe_channels(network, None, InspectionSettings(("Relu1",)))
    nodes = [helper.make_node("ReduceSum", ["x"], ["y"], name="total", keepdims=0)]
    scalar = QuantizedModel(loaded(wrapped(nodes, [value("x", (1, 4))], [value("y")]), tmp_path), ())
    samples = MemorySamples([random_feed({"x": (1, 4)})])
    with pytest.raises(BadInput, match="'y' is a single number and has no channels"):
        describe_channels(scalar, samples, InspectionSettings(("total",)))
    with pytest.raises(BadInput, match="'y' is a single number and has no channels"):
        describe_channels(scalar, samples, InspectionSettings(("total", "x")))
    nodes.insert(0, helper.make_node("Relu", ["x"], ["r"], name="act"))
    two = QuantizedModel(loaded(wrapped(nodes, [value("x", (1, 4))], [value("y"), value("r")]), tmp_path), ())
    report = describe_channels(two, samples, InspectionSettings(("*t*",)))
    assert [each.name for each in report.spreads] == ["act"]
    assert [str(note) for note in report.notes] == ["without such channels, and left out: total"]
    with pytest.raises(BadInput, match="no axis 7"):
        describe_channels(two, samples, InspectionSettings(("*t*",), axis=7))


def test_channels_that_change_from_sample_to_sample_are_refused(tmp_path: Path) -> None:
    nodes = [helper.make_node("Relu", ["x"], ["y"], name="act")]
    model = QuantizedModel(loaded(wrapped(nodes, [value("x", (1, "N"))], [value("y")]), tmp_path), ())
    samples = MemorySamples([random_feed({"x": (1, 4)}), random_feed({"x": (1, 5)})])
    with pytest.raises(BadInput, match=r"channels of tensor 'y' cannot be told apart: .* \(sample 's1'\)"):
        describe_channels(model, samples, InspectionSettings(("act",)))
