"""A network with any quantizers on gives the same whatever runs it: alone, among copies, or in blocks."""

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from roundoff.graph.load import Model
from roundoff.graph.quantized_model import QuantizedModel
from roundoff.graph.shapes import values
from roundoff.run.bench import Bench
from roundoff.run.block_network import BlockNetwork, NetworkSettings, Recording
from roundoff.run.variants import build_candidates
from tests.graph.quantized_nets import mixed_net, mixed_quantizers, run_model
from tests.models import random_feed
from tests.run.samples import MemorySamples

MODEL = Model(mixed_net(), Path("net.onnx"), 0)
QUANTIZERS = mixed_quantizers()
FEEDS = [random_feed({"image": (1, 3, 4, 4)}, seed=at) for at in range(3)]
LOGITS = [value for value in values(MODEL, {"image": (1, 3, 4, 4)}) if value.name == "logits"]


@pytest.fixture(scope="module")
def blocks() -> tuple[BlockNetwork, Recording]:
    options = NetworkSettings(("logits",), blocks=4, arithmetic="plain")
    network = BlockNetwork(QuantizedModel(MODEL, QUANTIZERS), FEEDS[:2], options)
    recording = Recording(network, range(4))
    recording.record(MODEL, MemorySamples(FEEDS), range(len(FEEDS)))
    return network, recording


@given(st.lists(st.sets(st.sampled_from([each.name for each in QUANTIZERS])), min_size=1, max_size=3))
@settings(max_examples=25, deadline=None)
def test_all_back_ends_give_the_same(blocks: tuple[BlockNetwork, Recording], chosen: list[set[str]]) -> None:
    """Copies and blocks to the last bit; alone up to the order in which products are added."""
    network, recording = blocks
    choices = [[each for each in QUANTIZERS if each.name in names] for names in chosen]
    bench = Bench(MODEL, MemorySamples(FEEDS))
    copies = build_candidates(MODEL, choices)
    ran = bench.stream(bench.open_copies(copies, LOGITS), range(len(FEEDS)), workers=2)
    beside = [[found[copies.tap("logits", at).name] for at in range(len(choices))] for _, found in ran]
    for at, on in enumerate(choices):
        alone = [found["logits"] for [found] in bench.run(range(len(FEEDS)), bench.open(on))]
        opened = network.open(network.change(on))
        cut = [recording.outputs(number, opened)[0] for number in range(len(recording.chunks))]
        among = np.concatenate([each[at] for each in beside])
        np.testing.assert_array_equal(np.concatenate(cut), among)
        # Alone, weights are codes, which onnxruntime cannot arrange beforehand for its products: it adds in other
        # orders, and what leaves by a quantizer may then be rounded to the other side.
        step = sum(float(each.params.scale.max()) for each in on if each.output)
        np.testing.assert_allclose(among, np.concatenate(alone), rtol=0, atol=1e-5 + step)
    floats = [run_model(MODEL, feed)[0] for feed in FEEDS]
    kept = [recording.references(number)[0] for number in range(len(recording.chunks))]
    np.testing.assert_array_equal(np.concatenate(kept), np.concatenate(floats))


@given(st.integers(0, 3))
@settings(max_examples=12, deadline=None)
def test_samples_come_in_order_however_many_run_at_a_time(workers: int) -> None:
    bench = Bench(MODEL, MemorySamples(FEEDS))
    ran = list(bench.stream(bench.open(QUANTIZERS), [2, 0, 1], workers=workers))
    assert [index for chunk, _ in ran for index in chunk.samples] == [2, 0, 1]
    expected = [found["logits"] for [found] in bench.run([2, 0, 1], bench.open(QUANTIZERS))]
    np.testing.assert_array_equal(np.concatenate([found["logits"] for _, found in ran]), np.concatenate(expected))
