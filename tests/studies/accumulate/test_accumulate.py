"""Curves equal those that brute force finds."""

import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from roundoff.core.quantizers import QuantParams
from roundoff.errors import BadInput
from roundoff.graph.interface import outputs
from roundoff.graph.load import Model
from roundoff.graph.quantized_model import QuantizedModel
from roundoff.graph.switches import Switches
from roundoff.graph.weights import Weights
from roundoff.studies.accumulate.result import BASE_LINE, Curve
from roundoff.studies.accumulate.study import AccumulationSettings, accumulate, named_curves
from tests.graph.quantized_nets import mixed_net, mixed_quantizers
from tests.models import random_feed
from tests.quantized import with_scale_times
from tests.run.samples import MemorySamples
from tests.studies.accumulate.brute_force import METRICS, curve_values, pooled_sqnr_db
from tests.studies.layers.support import demo_network, with_quantizer
from tests.studies.sensitivity.support import NETWORKS, network


def many_curves(quantized: QuantizedModel) -> list[Curve]:
    switches = Switches(quantized)
    nodes = switches.nodes
    return [
        *(Curve(word, switches.of_kind(word)) for word in ("weight", "activation")),
        *(Curve(f"only {node}", switches.find(f"node:{node}")) for node in nodes),
        *(Curve(f"but {node}", switches.without(f"node:{node}")) for node in nodes),
        *(Curve(f"first {count}", switches.find(*nodes[:count])) for count in range(2, len(nodes), 2)),
    ]


def assert_like_brute_force(quantized: QuantizedModel, samples: MemorySamples, metric: str) -> None:
    found = accumulate(quantized, samples, many_curves(quantized), AccumulationSettings(metric=metric))
    names = [node.tensor for node in found.nodes]
    assert set(outputs(quantized.float_model)) <= set(names)
    for curve in found.curves:
        expected = curve_values(quantized, curve.quantizers, samples.feeds, names, metric)
        assert curve.values == pytest.approx(expected, rel=2e-5), curve.name
        pooled = pooled_sqnr_db(quantized, curve.quantizers, samples.feeds, names)
        assert curve.sqnr_db == pytest.approx(pooled, rel=2e-5), curve.name


@pytest.mark.parametrize("name", NETWORKS)
def test_curves_equal_brute_force(name: str, tmp_path: Path) -> None:
    quantized, samples = network(name, tmp_path, samples=2)
    assert_like_brute_force(quantized, samples, "cosine")


@pytest.mark.parametrize(
    "metric", [*(name for name in METRICS if name != "cosine"), "mean_cosine", "mean_sqnr_db"]
)
def test_every_metric_equals_brute_force(metric: str, tmp_path: Path) -> None:
    quantized, samples = network("residual", tmp_path, samples=2)
    assert_like_brute_force(quantized, samples, metric)


def test_biases_and_outputs_that_leave_quantized() -> None:
    model = Model(mixed_net(), Path("net.onnx"), 0)
    quantized = QuantizedModel(model, mixed_quantizers())
    samples = MemorySamples([random_feed({"image": (1, 3, 4, 4)}, seed=seed) for seed in range(3)])
    assert_like_brute_force(quantized, samples, "sqnr_db")
    found = accumulate(quantized, samples, [Curve("leaving", ("logits_q",))])
    assert [node.tensor for node in found.nodes if node.output] == ["logits"]
    assert found.curves[1].values[:-1] == (1.0,) * (len(found.nodes) - 1)
    assert found.curves[1].values[-1] not in (None, 1.0)


def test_a_quantizer_that_follows_another() -> None:
    """Of two that follow one another, each can be on alone."""
    model = Model(mixed_net(), Path("net.onnx"), 0)
    quantizers = list(mixed_quantizers())
    first = next(each for each in quantizers if each.name == "act_q")
    coarse = replace(first.params, scale=np.float32(0.5) * np.ones((), np.float32))
    again = replace(first, name="again", after="act_q", consumers=first.consumers[:1], params=coarse)
    quantized = QuantizedModel(model, (*quantizers, again))
    samples = MemorySamples([random_feed({"image": (1, 3, 4, 4)}, seed=seed) for seed in range(2)])
    curves = [Curve("both", ("act_q", "again")), Curve("second", ("again",)), Curve("first", ("act_q",))]
    found = accumulate(quantized, samples, curves)
    names = [node.tensor for node in found.nodes]
    for curve in found.curves:
        expected = curve_values(quantized, curve.quantizers, samples.feeds, names, "cosine")
        assert curve.values == pytest.approx(expected, rel=2e-5), curve.name


def test_places_are_quantized_nodes_in_execution_order() -> None:
    quantized, samples = demo_network()
    found = accumulate(quantized, samples)
    nodes = [node.node for node in found.nodes]
    assert nodes == list(Switches(quantized).nodes)
    assert [node.order for node in found.nodes] == list(range(len(nodes)))
    assert [curve.name for curve in found.curves] == [BASE_LINE, "weight", "activation"]
    assert found.base_line.quantizers == tuple(each.name for each in quantized.quantizers)


def test_averages_and_the_worst_sample() -> None:
    quantized, samples = demo_network()
    found = accumulate(quantized, samples, [], AccumulationSettings(metric="sqnr_db", average=True))
    curve = found.base_line
    assert found.shown(curve) == curve.averages
    assert curve.averages[1] == pytest.approx((curve.values[0] + curve.values[1]) / 2)  # type: ignore[operator]
    last = found.nodes[-1].tensor
    each = [curve_values(quantized, curve.quantizers, [feed], [last], "sqnr_db")[0] for feed in samples.feeds]
    assert curve.worst[-1] == pytest.approx(min(each), rel=1e-5)
    assert curve.worst_samples[-1] == f"s{each.index(min(each))}"


def test_little_memory_gives_the_same(tmp_path: Path) -> None:
    """In passes of few curves and few tensors, one sample at a time."""
    quantized, samples = network("skips and outputs", tmp_path, samples=2)
    curves = many_curves(quantized)[:4]
    plenty = accumulate(quantized, samples, curves)
    sizes = 128 * 2**20 + 8 * quantized.float_model.weight_bytes
    samples.asked.clear()
    little = accumulate(quantized, samples, curves, AccumulationSettings(max_memory=sizes + 4000))
    assert len(samples.asked) > 2 * len(samples.feeds)
    assert little.curves == plenty.curves


def test_the_tensor_that_does_not_fit_is_named(tmp_path: Path) -> None:
    quantized, samples = network("chain", tmp_path, samples=1)
    with pytest.raises(BadInput) as caught:
        accumulate(quantized, samples, None, AccumulationSettings(max_memory=2**20))
    assert "takes about" in caught.value.what
    assert "--max-memory" in caught.value.fix


def test_values_that_are_not_finite_are_told() -> None:
    quantized, samples = demo_network()
    weight = next(each for each in quantized.quantizers if each.kind == "weight")
    shape = Weights(quantized.float_model).shape(weight.tensor)
    huge = QuantParams(np.full_like(weight.params.scale, 1e36), weight.params.zero_point)
    changed = with_quantizer(quantized, replace(weight, params=huge, codes=np.full(shape, 127, np.int8)))
    found = accumulate(changed, samples, [])
    assert any("with values that are not finite only then" in str(note) for note in found.notes)
    assert -math.inf in found.base_line.sqnr_db


def test_only_some_samples() -> None:
    quantized, samples = demo_network()
    found = accumulate(quantized, samples, [], AccumulationSettings(samples=2))
    assert found.samples == ("s0", "s1")
    expected = accumulate(quantized, MemorySamples(samples.feeds[:2]), [])
    assert found.curves == expected.curves


def test_curves_must_be_possible() -> None:
    quantized, samples = demo_network()
    name = quantized.quantizers[0].name
    with pytest.raises(BadInput, match="asks for the quantizer 'nothing', which is not there"):
        accumulate(quantized, samples, [Curve("mine", ("nothing",))])
    with pytest.raises(BadInput, match="Two curves are called 'mine'"):
        accumulate(quantized, samples, [Curve("mine", (name,)), Curve("mine", ())])
    with pytest.raises(BadInput, match="has no quantizers"):
        accumulate(replace(quantized, quantizers=()), samples)
    with pytest.raises(
        BadInput, match="accumulate cannot go by 'worst_channel', which describes and does not judge"
    ):
        accumulate(quantized, samples, None, AccumulationSettings(metric="worst_channel"))


def test_the_same_curve_twice_is_one() -> None:
    quantized, samples = demo_network()
    everything = tuple(each.name for each in quantized.quantizers)
    found = accumulate(quantized, samples, [Curve(BASE_LINE, everything)])
    assert [curve.name for curve in found.curves] == [BASE_LINE]


def test_spoilt_weights_dominate_and_the_node_is_named() -> None:
    quantized, samples = demo_network()
    weight = next(each for each in quantized.quantizers if each.name == "q:block3/pointwise:weight")
    found = accumulate(with_scale_times(quantized, [weight.tensor], 40), samples)
    verdict = found.verdict
    assert verdict.dominance == "weights"
    assert verdict.at_output is not None
    assert verdict.at_output.activations > 30
    assert verdict.at_output.weights < 15
    assert verdict.output == "logits"
    assert found.nodes[verdict.jumps[0].order].node == "block3/pointwise"
    assert verdict.falls_at == verdict.jumps[0].order


def test_spoilt_activations_dominate() -> None:
    quantized, samples = demo_network()
    found = accumulate(with_scale_times(quantized, ["block3/relu"], 0.1), samples)
    assert found.verdict.dominance == "activations"
    # The quantizer is on the way to this node.
    assert found.nodes[found.verdict.jumps[0].order].node == "block4/depthwise"


def test_lists_become_curves() -> None:
    switches = Switches(QuantizedModel(Model(mixed_net(), Path("net.onnx"), 0), mixed_quantizers()))
    assert named_curves(switches, ("add", ("pool",), ("pool", "add"))) == (
        Curve("add", ("act_q", "deep_q")),
        Curve("partial_qmodel_0", ("both_q",)),
        Curve("partial_qmodel_1", ("act_q", "deep_q", "both_q")),
    )
    (curve,) = named_curves(switches, (("weight", ("activation",)),), leave_out=True, first=3)
    assert curve == Curve("partial_qmodel_3", ())
