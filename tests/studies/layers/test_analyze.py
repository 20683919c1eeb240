"""Layer by layer on real networks: the numbers, and who is named."""

import math
import threading
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from onnx import helper, numpy_helper

from roundoff.core.quantizers import (
    Consumer,
    Quantizer,
    QuantSpec,
    parameters_from_range,
    quantize,
    representable_range,
)
from roundoff.errors import BadInput
from roundoff.graph.insertion import bake_quantizers
from roundoff.graph.quantized_model import Oddity, QuantizedModel
from roundoff.graph.readers.reader import read_quantized
from roundoff.measure.metrics import score
from roundoff.measure.pairs import channel_axis_of, measure_pair
from roundoff.messages.message import verbatim
from roundoff.studies.layers.result import LayerReport, LayerRow
from roundoff.studies.layers.study import LayerSettings, analyze_layers
from tests.models import conv_net, loaded, random_feed, residual, two_inputs, with_if, with_sequence, wrapped
from tests.quantized import Recipe, quantized_simply, with_scale_times
from tests.run.samples import MemorySamples
from tests.studies.layers.support import (
    accumulated_values,
    demo_network,
    float_values,
    local_values,
    quantizer_of,
    with_quantizer,
)

WEIGHTS = [
    "stem/conv/weight", "block1/depthwise/weight", "block1/pointwise/weight", "block2/depthwise/weight",
    "block2/pointwise/weight", "block3/depthwise/weight", "block3/pointwise/weight", "block4/depthwise/weight",
    "block4/pointwise/weight", "logits/weight",
]  # fmt: skip


def row_of(report: LayerReport, tensor: str) -> LayerRow:
    return next(row for row in report.rows if row.tensor == tensor)


def named(report: LayerReport) -> set[str]:
    return {culprit.node or culprit.tensor for culprit in report.verdict.culprits}


def test_scores_are_those_of_an_independent_evaluation() -> None:
    quantized, samples = demo_network()
    report = analyze_layers(quantized, samples)
    assert [row.order for row in report.rows] == list(range(len(report.rows)))
    exact = [float_values(quantized, feed) for feed in samples.feeds]
    sides = {
        "local": [local_values(quantized, feed) for feed in samples.feeds],
        "accumulated": [accumulated_values(quantized, feed) for feed in samples.feeds],
    }
    for row in report.rows:
        x = np.concatenate([values[row.tensor] for values in exact])
        for method, values in sides.items():
            y = np.concatenate([each[row.tensor] for each in values])
            expected = score(measure_pair(x, y, channel_axis=channel_axis_of(x.shape))).values
            found = getattr(row, method)
            assert found.cosine == pytest.approx(expected["cosine"], abs=1e-9)
            assert found.mse == pytest.approx(expected["mse"], rel=1e-5)
            assert found.sqnr_db == pytest.approx(expected["sqnr_db"], abs=1e-4)
            assert found.worst_channel_sqnr_db == pytest.approx(expected["worst_channel_sqnr_db"], abs=1e-4)
            ratios = [
                score(measure_pair(a[row.tensor], b[row.tensor])).values
                for a, b in zip(exact, values, strict=True)
            ]
            worst = min(each["sqnr_db"] for each in ratios)
            assert found.worst_sample_sqnr_db == pytest.approx(worst, abs=1e-4)


def test_steps_levels_and_clipping_are_those_of_the_quantizer() -> None:
    quantized, samples = demo_network()
    quantized = with_scale_times(quantized, ["block3/relu"], 0.4)
    report = analyze_layers(quantized, samples)
    row, quantizer = row_of(report, "block3/relu"), quantizer_of(quantized, "block3/relu")
    exact = np.concatenate([float_values(quantized, feed)["block3/relu"] for feed in samples.feeds])
    local = np.concatenate([local_values(quantized, feed)["block3/relu"] for feed in samples.feeds])
    step = float(quantizer.params.scale)
    low, high = representable_range(quantizer.params, quantizer.spec)
    assert row.local is not None
    assert row.local.rms_steps == pytest.approx(np.sqrt(np.square(exact - local).mean()) / step, rel=1e-4)
    assert row.local.max_steps == pytest.approx(np.abs(exact - local).max() / step, rel=1e-5)
    assert row.local.used_levels == len(np.unique(quantize(local, quantizer.params, quantizer.spec)))
    outside = (exact < low - step / 2) | (exact > high + step / 2)
    assert row.clipped == pytest.approx(outside.mean())
    assert outside.mean() > 0.005
    assert (row.quantized, row.levels, row.unit) == ("u8", 256, "block3/pointwise")
    fused = row_of(report, "block3/pointwise")
    assert (fused.quantized, fused.levels, fused.clipped) == ("fused", None, None)
    assert fused.local is not None
    assert fused.local.rms_steps is None


def test_a_healthy_network_is_not_accused() -> None:
    report = analyze_layers(*demo_network())
    verdict = report.verdict
    assert verdict.kind == "fine"
    assert verdict.culprits == ()
    assert verdict.agrees
    shares = [row.introduced.output_share for row in report.rows if row.introduced is not None]
    assert 0.9 < sum(shares) <= 1 + 1e-9
    assert max(shares) < 0.4


def test_a_network_with_one_scale_per_weight_is_not_accused_either() -> None:
    assert analyze_layers(*demo_network(Recipe(per_channel=False))).verdict.culprits == ()


def assert_verdict_follows_the_judge(report: LayerReport) -> None:
    """Units that cost much are named either way; what the outputs keep is no bad verdict."""
    assert report.judgement is not None
    fine = report.judgement.good
    assert (report.verdict.kind, report.exit_good) == ("fine" if fine else "local", fine)


@pytest.mark.parametrize(
    ("tensor", "factor"),
    [
        ("stem/relu", 0.3),
        ("block1/relu", 0.25),
        ("block2/pointwise_norm", 0.2),
        ("block4/depthwise_relu6", 0.3),
        ("head/pool", 0.5),
        ("logits", 0.3),
    ],
)
def test_a_tensor_that_is_clipped_is_named(tensor: str, factor: float) -> None:
    quantized, samples = demo_network()
    report = analyze_layers(with_scale_times(quantized, [tensor], factor), samples)
    verdict = report.verdict
    assert_verdict_follows_the_judge(report)
    assert [(each.node, each.introduced.cause) for each in verdict.culprits] == [(tensor, "clipping")]
    assert verdict.culprits[0].clipped is not None
    assert verdict.culprits[0].clipped > 0.001


def test_a_tensor_with_too_large_a_scale_is_named() -> None:
    quantized, samples = demo_network()
    verdict = analyze_layers(with_scale_times(quantized, ["block3/relu"], 24), samples).verdict
    assert [(each.node, each.introduced.cause) for each in verdict.culprits] == [("block3/relu", "rounding")]
    assert verdict.culprits[0].used_levels is not None
    assert verdict.culprits[0].used_levels < 16


def test_an_input_that_is_clipped_is_named() -> None:
    quantized, samples = demo_network()
    verdict = analyze_layers(with_scale_times(quantized, ["image"], 0.5), samples).verdict
    assert [(each.node, each.tensor, each.introduced.cause) for each in verdict.culprits] == [
        ("", "image", "clipping")
    ]


@pytest.mark.parametrize("node", ["block1/pointwise", "block4/depthwise", "logits"])
def test_a_layer_with_coarse_weights_is_named(node: str) -> None:
    quantized, samples = demo_network()
    report = analyze_layers(with_scale_times(quantized, [f"{node}/weight"], 24), samples)
    assert_verdict_follows_the_judge(report)
    assert [(each.node, each.introduced.cause) for each in report.verdict.culprits] == [(node, "weights")]


def test_a_weight_with_an_outlier_in_one_channel_is_named() -> None:
    """One scale for all channels, stretched by one of them: the others lose their levels."""
    quantized, samples = demo_network(Recipe(per_channel=False))
    verdict = analyze_layers(with_scale_times(quantized, ["block2/pointwise/weight"], 30), samples).verdict
    assert [each.node for each in verdict.culprits] == ["block2/pointwise"]


def test_an_activation_with_an_outlier_channel_is_named_although_its_own_score_is_good(tmp_path: Path) -> None:
    """Nearly all energy is in the outlier, which survives; what dies with the others shows one layer later."""
    quantized, samples = demo_network()
    stretched = _with_outlier_channel(quantized.float_model, tmp_path, factor=200.0)
    again = quantized_simply(stretched, [{"image": np.concatenate([feed["image"] for feed in samples.feeds])}])
    report = analyze_layers(again, samples)
    assert report.verdict.kind == "local"
    assert "block3/relu" in {culprit.tensor for culprit in report.verdict.culprits}
    culprit = next(each for each in report.verdict.culprits if each.tensor == "block3/relu")
    assert culprit.introduced.channel_sqnr_db < culprit.introduced.sqnr_db - 10


def _with_outlier_channel(model: Any, folder: Path, factor: float) -> Any:
    """The same function, with one channel of block3/relu so many times larger and read with smaller weights."""
    from onnx import ModelProto, numpy_helper

    proto = ModelProto()
    proto.CopyFrom(model.proto)
    weights = {tensor.name: tensor for tensor in proto.graph.initializer}
    for name in ("block3/pointwise_norm/scale", "block3/pointwise_norm/bias"):
        values = numpy_helper.to_array(weights[name]).copy()
        values[5] *= factor
        weights[name].CopyFrom(numpy_helper.from_array(values, name))
    values = numpy_helper.to_array(weights["block4/depthwise/weight"]).copy()
    values[5] /= factor
    weights["block4/depthwise/weight"].CopyFrom(numpy_helper.from_array(values, "block4/depthwise/weight"))
    for node in proto.graph.node:
        if node.name == "block4/add":  # the shortcut would see the outlier
            node.input[1] = node.input[0]
    return loaded(proto, folder)


def test_destroyed_depthwise_layers_are_named_and_no_others() -> None:
    quantized, samples = demo_network(Recipe(per_channel=False))
    depthwise = [f"block{block}/depthwise" for block in range(1, 5)]
    spoilt = with_scale_times(quantized, [f"{node}/weight" for node in depthwise], 30)
    verdict = analyze_layers(spoilt, samples).verdict
    assert verdict.kind == "local"
    assert named(analyze_layers(spoilt, samples)) <= set(depthwise)
    assert len(verdict.culprits) >= 2


@pytest.mark.parametrize("tensors", [WEIGHTS, None], ids=["weights", "activations"])
def test_many_layers_that_are_slightly_bad_are_called_distributed(tensors: Sequence[str] | None) -> None:
    quantized, samples = demo_network()
    chosen = tensors or [each.tensor for each in quantized.quantizers if each.kind == "activation"]
    verdict = analyze_layers(with_scale_times(quantized, chosen, 14), samples).verdict
    assert verdict.kind == "distributed"
    assert verdict.culprits == ()
    assert verdict.before is not None
    assert verdict.after is not None
    assert verdict.after.sqnr_db < verdict.before.sqnr_db + 6
    # What was spoilt is all of one kind, and experiments tell which.
    better, worse = verdict.float_weights, verdict.float_activations
    if tensors is None:
        better, worse = worse, better
    assert better is not None
    assert worse is not None
    assert better.sqnr_db > worse.sqnr_db + 10


def test_two_faults_are_both_named() -> None:
    quantized, samples = demo_network()
    spoilt = with_scale_times(with_scale_times(quantized, ["block1/relu"], 0.3), ["head/pool"], 0.5)
    assert named(analyze_layers(spoilt, samples)) == {"block1/relu", "head/pool"}


def test_a_fault_that_another_one_hides_is_found_when_that_is_out_of_the_way() -> None:
    quantized, samples = demo_network()
    verdict = analyze_layers(with_scale_times(quantized, ["block2/relu", "head/pool"], 0.25), samples).verdict
    assert [each.node for each in verdict.culprits] == ["head/pool", "block2/relu"]
    again = [each.quantized_again for each in verdict.culprits]
    assert all(each is not None and each.sqnr_db < 15 for each in again)


def _outputs_db(quantized: QuantizedModel, on: Sequence[Quantizer], samples: MemorySamples) -> float:
    """The SQNR of the outputs with some quantizers on, by the evaluation of the tests."""
    networks = [replace(quantized, quantizers=tuple(each)) for each in ((), on)]
    x, y = (
        np.concatenate([accumulated_values(each, feed)["logits"] for feed in samples.feeds]) for each in networks
    )
    return score(measure_pair(x, y)).values["sqnr_db"]


def test_before_and_after_are_those_of_an_independent_evaluation() -> None:
    quantized, samples = demo_network()
    spoilt = with_scale_times(quantized, ["block1/pointwise/weight"], 24)
    verdict = analyze_layers(spoilt, samples).verdict
    culprit = verdict.culprits[0]
    assert (culprit.node, culprit.remedy) == ("block1/pointwise", ("block1/pointwise=weight=float",))
    assert verdict.samples == len(samples.feeds)
    assert verdict.before is not None
    assert verdict.after is not None
    assert verdict.before.sqnr_db == pytest.approx(_outputs_db(spoilt, spoilt.quantizers, samples), abs=1e-3)
    on = [each for each in spoilt.quantizers if each.name not in verdict.after.switched_off]
    assert {each.tensor for each in spoilt.quantizers if each.kind == "weight"} - {each.tensor for each in on} == {
        "block1/pointwise/weight"
    }
    assert verdict.after.sqnr_db == pytest.approx(_outputs_db(spoilt, on, samples), abs=1e-3)
    assert verdict.after.sqnr_db > verdict.before.sqnr_db + 10


def test_a_culprit_whose_result_is_to_blame_is_repaired_by_the_tensor_alone() -> None:
    quantized, samples = demo_network()
    verdict = analyze_layers(with_scale_times(quantized, ["block3/relu"], 24), samples).verdict
    (culprit,) = verdict.culprits
    assert culprit.remedy == ("tensor:block3/relu=float",)
    assert culprit.weighted == "block3/pointwise"
    assert culprit.quantized_again is None
    assert culprit.weights_again is not None
    assert culprit.result_again is not None
    assert culprit.weights_again.sqnr_db > culprit.result_again.sqnr_db + 10


def test_weights_that_are_rounded_already_are_said_not_to_be_judged() -> None:
    quantized, samples = demo_network()
    assert analyze_layers(quantized, samples).verdict.not_judged == ()
    taken_apart = read_quantized(bake_quantizers(quantized.float_model, quantized.quantizers))
    verdict = analyze_layers(taken_apart, samples).verdict
    assert verdict.kind == "fine"
    assert tuple(map(str, verdict.not_judged)) == (
        "weights are not judged: no float model with unrounded weights was given",
    )
    only_weights = tuple(each for each in taken_apart.quantizers if each.kind != "activation")
    nothing = analyze_layers(replace(taken_apart, quantizers=only_weights), samples).verdict
    assert nothing.kind == "open"


def test_scales_that_are_computed_while_it_runs_are_said_not_to_be_judged() -> None:
    quantized, samples = demo_network()
    odd = replace(quantized, oddities=(Oddity("dynamic", "stem/conv", verbatim("its scale is computed")),))
    (text,) = analyze_layers(odd, samples).verdict.not_judged
    assert str(text) == "activations of 1 node are not judged: their scales are computed while it runs"


def test_a_tensor_that_is_only_passed_on_is_not_blamed(tmp_path: Path) -> None:
    """Flatten has the scale of what it reads: its codes are those codes."""
    nodes = [
        helper.make_node("Conv", ["x", "w"], ["conv"], name="conv", kernel_shape=[3, 3]),
        helper.make_node("Flatten", ["conv"], ["flat"], name="flat"),
        helper.make_node("Gemm", ["flat", "v"], ["y"], name="gemm"),
    ]
    rng = np.random.default_rng(3)
    weights = {"w": rng.normal(size=(4, 3, 3, 3)), "v": rng.normal(size=(144, 5))}
    initializers = [numpy_helper.from_array(each.astype(np.float32), name) for name, each in weights.items()]
    ends = [helper.make_tensor_value_info("x", 1, [1, 3, 8, 8]), helper.make_tensor_value_info("y", 1, [1, 5])]
    model = loaded(wrapped(nodes, ends[:1], ends[1:], initializers), tmp_path)
    feeds = [random_feed({"x": (1, 3, 8, 8)}, seed) for seed in range(4)]
    quantized = with_scale_times(quantized_simply(model, feeds), ["conv", "flat"], 30)
    report = analyze_layers(quantized, MemorySamples(feeds))
    assert row_of(report, "flat").introduced is None
    assert [each.node for each in report.verdict.culprits] == ["conv"]
    other = with_scale_times(quantized, ["flat"], 1.1)
    assert row_of(analyze_layers(other, MemorySamples(feeds)), "flat").introduced is not None


@pytest.mark.parametrize("method", ["local", "accumulated"])
def test_one_method_alone_leaves_the_verdict_open(method: Any) -> None:
    quantized, samples = demo_network()
    both = analyze_layers(quantized, samples)
    alone = analyze_layers(quantized, samples, LayerSettings(method=method))
    assert alone.verdict.kind == "open"
    other = "accumulated" if method == "local" else "local"
    for row, full in zip(alone.rows, both.rows, strict=True):
        assert getattr(row, method) == getattr(full, method)
        assert getattr(row, other) is None
        assert row.introduced is None
    assert alone.verdict.outputs == (("logits",) if method == "accumulated" else ())


def test_a_small_memory_takes_more_passes_and_gives_the_same_result() -> None:
    quantized, samples = demo_network()
    roomy = analyze_layers(quantized, samples)
    tight = analyze_layers(quantized, samples, LayerSettings(max_memory=136_000_000))
    assert any("passes per sample" in str(note) for note in tight.notes)
    assert tight.rows == roomy.rows
    with pytest.raises(BadInput, match=r"takes about .* the budget is 50\.0 MB"):
        analyze_layers(quantized, samples, LayerSettings(max_memory=50_000_000))


def test_the_result_does_not_depend_on_threads() -> None:
    quantized, samples = demo_network()
    assert analyze_layers(quantized, samples, LayerSettings(threads=1)) == analyze_layers(
        quantized, samples, LayerSettings(threads=4)
    )


def test_fewer_samples_can_be_asked_for() -> None:
    quantized, samples = demo_network()
    report = analyze_layers(quantized, samples, LayerSettings(samples=2))
    assert report.samples == ("s0", "s1")
    assert {row.samples for row in report.rows} == {2}
    assert set(samples.asked) == {0, 1}


def test_a_sample_that_cannot_be_read_ends_the_run(monkeypatch: pytest.MonkeyPatch) -> None:
    quantized, samples = demo_network()
    before = threading.active_count()

    def feed(index: int) -> Any:
        if index == 3:
            raise KeyboardInterrupt
        return samples.feeds[index]

    monkeypatch.setattr(samples, "feed", feed)
    with pytest.raises(KeyboardInterrupt):
        analyze_layers(quantized, samples)
    assert threading.active_count() <= before


def test_a_model_without_quantizers_is_refused() -> None:
    quantized, samples = demo_network()
    with pytest.raises(BadInput, match="no quantizers"):
        analyze_layers(replace(quantized, quantizers=()), samples)


def test_a_quantizer_with_one_scale_per_channel_is_measured_by_its_own_steps(tmp_path: Path) -> None:
    read = loaded(conv_net(), tmp_path)
    feeds = [random_feed({"image": (1, 3, 8, 8)}, seed) for seed in range(3)]
    quantized = quantized_simply(read, feeds)
    exact = np.concatenate([float_values(quantized, feed)["relu1"] for feed in feeds])
    whole = quantizer_of(quantized, "relu1")
    spec = whole.spec.along(1)
    params = parameters_from_range(np.zeros(4), exact.max(axis=(0, 2, 3)) * [1, 1, 0.5, 1], spec)
    changed = replace(whole, spec=spec, params=params)
    report = analyze_layers(with_quantizer(quantized, changed), MemorySamples(feeds))
    row = row_of(report, "relu1")
    local = np.concatenate([local_values(with_quantizer(quantized, changed), feed)["relu1"] for feed in feeds])
    steps = (exact - local) / params.scale.reshape(1, -1, 1, 1)
    assert row.local is not None
    assert row.local.rms_steps == pytest.approx(np.sqrt(np.square(steps).mean()), rel=1e-4)
    assert row.local.max_steps == pytest.approx(np.abs(steps).max(), rel=1e-4)
    assert row.local.worst_channel == 2
    assert row.clipped == pytest.approx((exact[:, 2] > 255.5 * params.scale[2]).sum() / exact.size)
    assert row.local.used_levels == len(np.unique(quantize(local, params, spec)))


def test_samples_of_other_shapes_are_measured_together(tmp_path: Path) -> None:
    read = loaded(two_inputs(), tmp_path)
    feeds = [random_feed({"left": (rows, 5), "right": (rows, 5)}, rows) for rows in (2, 7)]
    report = analyze_layers(quantized_simply(read, feeds[:1]), MemorySamples(feeds))
    row = row_of(report, "joined")
    assert row.shape == (2, 5)
    assert row.local is not None
    assert row.local.status == "ok"
    assert row.samples == 2


def test_values_that_are_no_tensors_of_numbers_have_a_row_without_scores(tmp_path: Path) -> None:
    read = loaded(with_sequence(), tmp_path)
    spec = QuantSpec(bits=8, signed=True, symmetric=True)
    consumers = (Consumer("split", 0),)
    quantizer = Quantizer("q", "x", "activation", spec, parameters_from_range(-4, 4, spec), consumers)
    report = analyze_layers(QuantizedModel(read, (quantizer,)), MemorySamples([random_feed({"x": (2, 3)})]))
    parts = row_of(report, "parts")
    assert parts.local is not None
    assert (parts.local.status, parts.local.sqnr_db) == ("unreadable", None)
    assert "sequence" in str(parts.local.detail)
    joined = row_of(report, "joined")
    assert joined.accumulated is not None
    assert joined.accumulated.status == "ok"


def test_what_is_inside_a_branch_is_said_to_have_no_row(tmp_path: Path) -> None:
    read = loaded(with_if(), tmp_path)
    spec = QuantSpec(bits=8, signed=True, symmetric=True)
    quantizer = Quantizer(
        "q", "x", "activation", spec, parameters_from_range(-4, 4, spec), (Consumer("scale", 0),)
    )
    report = analyze_layers(QuantizedModel(read, (quantizer,)), MemorySamples([random_feed({"x": (2, 3)})]))
    assert any("'choose'" in str(note) and "no row" in str(note) for note in report.notes)


def test_activations_that_are_not_finite_have_a_status_and_are_not_fine(tmp_path: Path) -> None:
    read = loaded(residual(), tmp_path)
    feeds = [random_feed({"image": (1, 3, 8, 8)}, seed) for seed in range(2)]
    quantized = quantized_simply(read, feeds)
    damaged = {"image": feeds[1]["image"].copy()}
    damaged["image"][0, 0, 0, 0] = np.nan
    report = analyze_layers(quantized, MemorySamples([feeds[0], damaged]))
    total = row_of(report, "sum").accumulated
    assert total is not None
    assert total.status == "nonfinite"
    assert total.sqnr_db is not None
    assert math.isfinite(total.sqnr_db)
    assert report.verdict.agrees is False


def test_a_network_of_zeros_is_perfect(tmp_path: Path) -> None:
    read = loaded(conv_net(), tmp_path)
    zeros = {"image": np.zeros((1, 3, 8, 8), np.float32)}
    report = analyze_layers(quantized_simply(read, [random_feed({"image": (1, 3, 8, 8)})]), MemorySamples([zeros]))
    row = row_of(report, "relu1")
    assert row.local is not None
    assert (row.local.status, row.local.cosine, row.local.sqnr_db) == ("degenerate", 1.0, math.inf)
    assert row.local.worst_sample == ""
