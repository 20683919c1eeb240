"""Ranking samples, against outputs of both networks computed node by node."""

from pathlib import Path

import numpy as np
import pytest

from roundoff.errors import BadInput
from roundoff.graph.insertion import bake_quantizers
from roundoff.graph.quantized_model import QuantizedModel
from roundoff.graph.readers.reader import read_quantized
from roundoff.measure.metrics import all_metrics, score
from roundoff.measure.pairs import measure_pair
from roundoff.studies.samples.study import WorstSampleSettings, find_worst_samples
from tests.models import conv_net, loaded, random_feed, two_outputs
from tests.quantized import quantized_simply
from tests.run.samples import MemorySamples
from tests.studies.layers.support import accumulated_values, float_values

FEEDS = [random_feed({"image": (1, 3, 8, 8)}, seed) for seed in range(6)]
# The last one is far outside of what was calibrated for.
FEEDS.append({"image": FEEDS[0]["image"] * np.float32(10)})


@pytest.fixture(scope="module")
def network(tmp_path_factory: pytest.TempPathFactory) -> QuantizedModel:
    model = loaded(conv_net(), tmp_path_factory.mktemp("net"))
    return quantized_simply(model, FEEDS[:6])


@pytest.mark.parametrize("metric", ["sqnr_db", "mse", "cosine", "max_abs_error"])
def test_the_order_is_that_of_the_scores(network: QuantizedModel, metric: str) -> None:
    found = find_worst_samples(network, MemorySamples(FEEDS), WorstSampleSettings((metric,)))
    pairs = [
        (float_values(network, feed)["logits"], accumulated_values(network, feed)["logits"]) for feed in FEEDS
    ]
    wanted = [score(measure_pair(*pair)).values[metric] for pair in pairs]
    better = metric in ("sqnr_db", "cosine")
    order = sorted(range(len(wanted)), key=lambda index: wanted[index] if better else -wanted[index])
    assert [each.index for each in found.samples] == order
    assert [each.rank for each in found.samples] == list(range(1, 8))
    assert [each.sample for each in found.samples] == [f"s{index}" for index in order]
    assert found.samples[0].score == pytest.approx(wanted[order[0]], rel=1e-5)
    assert found.median == pytest.approx(np.median(wanted), rel=1e-5)
    assert found.higher_is_better == better
    moved = [int(np.argmax(ours) != np.argmax(theirs)) for ours, theirs in pairs]
    assert found.moved_top == sum(moved)
    assert [each.moved_top for each in found.samples] == [moved[index] for index in order]


def test_the_worst_is_the_one_out_of_range(network: QuantizedModel) -> None:
    assert find_worst_samples(network, MemorySamples(FEEDS)).samples[0].sample == "s6"


def test_a_sample_is_as_bad_as_its_worst_output(tmp_path: Path) -> None:
    model = loaded(two_outputs(), tmp_path)
    feeds = [random_feed({"x": (1, 4, 3)}, seed) for seed in range(5)]
    network = quantized_simply(model, feeds)
    found = find_worst_samples(network, MemorySamples(feeds))
    for each in found.samples:
        assert [output.output for output in each.outputs] == ["low", "gate"]
        assert each.score == min(output.values["sqnr_db"] for output in each.outputs)
    scores = [each.score for each in found.samples if each.score is not None]
    assert scores == sorted(scores)


def test_other_tensors_can_be_compared(network: QuantizedModel) -> None:
    found = find_worst_samples(network, MemorySamples(FEEDS[:2]), WorstSampleSettings(outputs=("Relu2", "pooled")))
    assert [output.output for output in found.samples[0].outputs] == ["relu2", "pooled"]


def test_what_has_no_score_comes_first(network: QuantizedModel) -> None:
    damaged = {"image": np.full((1, 3, 8, 8), np.nan, np.float32)}
    found = find_worst_samples(network, MemorySamples([FEEDS[0], damaged, FEEDS[1]]))
    assert (found.samples[0].sample, found.samples[0].score, found.unscored) == ("s1", None, 1)


def test_without_the_float_model_nothing_is_known_of_its_weights(network: QuantizedModel) -> None:
    baked = read_quantized(bake_quantizers(network.float_model, network.quantizers))
    samples, said = MemorySamples(FEEDS), "what quantizing them cost is not in these scores"
    assert any(said in str(note) for note in find_worst_samples(baked, samples).notes)
    assert not any(said in str(note) for note in find_worst_samples(network, samples).notes)


def test_bad_input(network: QuantizedModel) -> None:
    samples = MemorySamples(FEEDS[:1])
    with pytest.raises(BadInput, match="has no quantizers, so all samples are equally good"):
        find_worst_samples(QuantizedModel(network.float_model, ()), samples)
    with pytest.raises(BadInput, match="There is no metric 'sqnr'"):
        find_worst_samples(network, samples, WorstSampleSettings(("sqnr",)))
    with pytest.raises(BadInput, match="No metric was given"):
        find_worst_samples(network, samples, WorstSampleSettings(()))
    describing = next(metric.name for metric in all_metrics() if metric.direction == "none")
    with pytest.raises(BadInput, match=f"samples cannot go by '{describing}', which describes"):
        find_worst_samples(network, samples, WorstSampleSettings((describing,)))
