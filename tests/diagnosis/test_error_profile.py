"""What pictures of a diagnosis are drawn from, against numbers that are computed here."""

import math
from collections.abc import Iterator

import numpy as np
import pytest

from roundoff.core.quantizers import Quantizer, QuantSpec, fake_quantize, parameters_from_range
from roundoff.core.tensors import Array
from roundoff.diagnosis.error_profile import (
    _lost_profile,
    _profile,
    added_operators,
    network_score,
    precisions,
    repaired_profile,
)
from roundoff.diagnosis.investigation import DiagnoseSettings
from roundoff.diagnosis.result import Diagnosis, Repair
from roundoff.diagnosis.study import diagnose_quantization
from roundoff.graph.insertion import switch_on
from roundoff.graph.load import Model
from roundoff.graph.quantized_model import QuantizedModel
from roundoff.graph.weights import Weights
from roundoff.run.capture import LiveSource, Samples
from roundoff.samples.sample_set import ArraySamples
from tests.diagnosis.planting import changed, demo, for_target, scaled, unbalanced


@pytest.fixture(scope="module")
def outlier() -> tuple[Diagnosis, QuantizedModel, ArraySamples]:
    quantized, samples = for_target(*unbalanced(200.0), "generic-int8-per-tensor")
    return diagnose_quantization(quantized, samples), quantized, samples


def run(model: Model, samples: Samples, tensor: str) -> Iterator[Array]:
    source = LiveSource(model, samples, tensors=[tensor])
    try:
        for sample in source.samples:
            yield source.read(tensor, sample)
    finally:
        source.close()


def sqnr_db(quantized: QuantizedModel, samples: Samples, tensor: str) -> float:
    theirs = switch_on(quantized.float_model, quantized.quantizers)
    signal = noise = 0.0
    for exact, found in zip(
        run(quantized.float_model, samples, tensor), run(theirs, samples, tensor), strict=True
    ):
        signal += float((exact.astype(np.float64) ** 2).sum())
        noise += float(((found.astype(np.float64) - exact) ** 2).sum())
    return 10 * math.log10(signal / noise)


def test_every_unit_has_what_it_loses_alone_and_in_the_running_network(
    outlier: tuple[Diagnosis, QuantizedModel, ArraySamples],
) -> None:
    found, quantized, samples = outlier
    layers = found.layers
    assert layers is not None
    assert layers.units == ("conv1", "conv2", "pool", "flatten", "dense")
    assert layers.nodes == ("relu1", "relu2", "pool", "flatten", "dense")
    assert layers.shapes == ("1x8x8x8", "1x6x8x8", "1x6x1x1", "1x6", "1x10")
    assert layers.outputs == (False, False, False, False, True)
    assert len(layers.samples) == found.samples == 24
    assert layers.accumulated_db[-1] == pytest.approx(sqnr_db(quantized, samples, "y"), abs=0.006)
    # The figure of the headline is the one in the picture.
    assert layers.accumulated_db[-1] == pytest.approx(found.measures[0].before, abs=0.006)
    # What the first unit reads is the same either way; what stands last inherits what it did not add.
    assert layers.local_db[0] == pytest.approx(layers.accumulated_db[0], abs=0.01)
    local, whole = layers.local_db[-1], layers.accumulated_db[-1]
    assert local is not None
    assert whole is not None
    assert local > whole + 6
    assert found.judgement is not None
    assert found.judgement.coverage.tensors is not None
    assert (found.judgement.coverage.tensors.judged, found.judgement.coverage.tensors.there) == (5, 5)


def test_a_weight_to_blame_comes_with_its_channels_and_its_values(
    outlier: tuple[Diagnosis, QuantizedModel, ArraySamples],
) -> None:
    found, quantized, _ = outlier
    finding = found.accused[0]
    assert finding.cause == "outlier-channel"
    profile = finding.profiles[0]
    array = Weights(quantized.float_model)[profile.tensor]
    quantizer = next(each for each in quantized.quantizers if each.tensor == profile.tensor)
    assert (profile.node, profile.weight, profile.dtype, profile.scales) == (finding.nodes[0], True, "s8", 1)
    assert profile.channels == array.shape[0]
    assert profile.reaches == pytest.approx(np.abs(array).max(axis=(1, 2, 3)), rel=1e-5)
    assert profile.scale == pytest.approx(float(quantizer.params.scale), rel=1e-5)
    assert (profile.low, profile.high) == pytest.approx((-128 * profile.scale, 127 * profile.scale), rel=1e-4)
    counts, _ = np.histogram(array, bins=60, range=(profile.start, profile.end))
    assert sum(profile.counts) == array.size
    assert np.abs(counts - np.array(profile.counts)).sum() <= 2  # a value may stand on the edge of two bins
    zero = fake_quantize(array, quantizer.params, quantizer.spec) == 0
    assert profile.zeros == pytest.approx(np.count_nonzero(zero) / array.size, rel=1e-4)
    assert profile.clipped == 0.0


def test_an_activation_that_is_cut_off_comes_with_the_share_that_is() -> None:
    quantized, samples = demo()
    found = diagnose_quantization(changed(quantized, "block3/relu", scaled(0.1)), samples)
    profile = found.accused[0].profiles[0]
    values = np.concatenate([each.ravel() for each in run(quantized.float_model, samples, "block3/relu")])
    outside = np.count_nonzero(values > profile.high + profile.scale / 2) / values.size
    assert (profile.tensor, profile.weight, profile.dtype) == ("block3/relu", False, "u8")
    assert profile.clipped == pytest.approx(outside, rel=1e-4)
    assert profile.clipped > 0.1
    assert profile.end > profile.high
    assert profile.channels == 48


def test_what_a_repaired_network_is_made_of_and_loses() -> None:
    good, samples = demo()
    bad = changed(good, "block3/relu", scaled(0.1))
    found = diagnose_quantization(bad, samples)
    assert found.layers is not None
    done = repaired_profile(Repair((), ()), found.layers, bad, good, samples, DiagnoseSettings())
    places = dict(zip(found.layers.tensors, done.accumulated_db, strict=True))
    assert places["logits"] == pytest.approx(sqnr_db(good, samples, "logits"), abs=0.006)
    assert done.operators == {}
    assert sum(done.precisions.values()) == sum(each.kind != "bias" for each in good.quantizers)
    assert done.precisions == precisions(good.quantizers)


def test_added_nodes_are_counted_by_operation() -> None:
    small, large = unbalanced(1.0)[0], demo()[0].float_model
    ours = [node.op_type for node in small.proto.graph.node]
    theirs = [node.op_type for node in large.proto.graph.node]
    added = added_operators(small, large)
    assert added["Conv"] == theirs.count("Conv") - ours.count("Conv")
    assert "MatMul" not in added


def test_a_share_of_right_answers_has_its_count_and_wilsons_interval() -> None:
    score = network_score("quantized", np.array([1.0] * 85 + [0.0] * 15), samples=100)
    assert (score.right, score.samples, score.value) == (85, 100, 0.85)
    # As the calculators of statistics give it: 85 of 100.
    assert score.interval == pytest.approx((0.76716, 0.90694), abs=1e-5)
    perfect = network_score("float", np.ones(33), samples=33, held_out=True)
    assert perfect.interval == pytest.approx((0.89573, 1.0), abs=1e-5)
    assert perfect.held_out
    other = network_score("float", np.array([0.25, 0.75]), samples=2)
    assert (other.right, other.value) == (None, 0.5)
    assert network_score("float", np.array([12.5]), samples=9).interval is None


def test_the_weights_of_layers_that_nobody_accuses_are_drawn_too(
    outlier: tuple[Diagnosis, QuantizedModel, ArraySamples],
) -> None:
    found, quantized, _ = outlier
    assert found.layers is not None
    accused = {each.node for finding in found.findings for each in finding.profiles}
    others = {each.node: each for each in found.layers.profiles}
    assert {*others, *accused} >= {"conv1", "conv2", "dense"}
    assert accused.isdisjoint(others)
    weights = Weights(quantized.float_model)
    for each in others.values():
        values = weights[each.tensor]
        counts, _ = np.histogram(values, bins=60, range=(each.start, each.end))
        # Ends are told with six digits: a value on the border of two bins may be in either.
        assert sum(each.counts) == values.size
        assert np.abs(np.cumsum(each.counts) - np.cumsum(counts)).max() <= 2


def test_a_range_over_all_numbers_has_a_histogram() -> None:
    lowest = float(np.finfo(np.float32).min)
    spec = QuantSpec(bits=8, signed=False, symmetric=False)
    quantizer = Quantizer("x", "x", "activation", spec, parameters_from_range(lowest, -lowest, spec), ())
    values = np.array([lowest, -1.0, 1.0, -lowest], np.float32)
    found = _profile(quantizer, values, np.zeros(0))
    assert (sum(found.counts), found.counts[0], found.counts[-1]) == (4, 1, 1)


def test_a_small_tensor_is_drawn_beside_the_steps_of_the_scale_it_shares() -> None:
    spec = QuantSpec(8, signed=True, symmetric=False)
    zero = np.array(0.0)
    quantizer = Quantizer("sum", "sum", "activation", spec, parameters_from_range(zero, zero + 902, spec), ())
    values = np.linspace(-4, 4, 801)
    found = _lost_profile(quantizer, "small", values, "add")
    step = float(quantizer.params.scale)
    assert (found.tensor, found.shared, found.node) == ("small", "sum", "add")
    assert found.scale == pytest.approx(step, rel=1e-5)
    assert found.zeros == pytest.approx(
        np.count_nonzero((abs(values) <= step / 2) & (values != 0)) / 801, rel=1e-5
    )
    assert found.low < found.start == -4
    assert sum(found.counts) == 801
