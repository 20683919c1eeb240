"""The base is run once; changes are run from what was kept of it."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper

from roundoff.core.quantizers import QuantSpec
from roundoff.errors import BadInput
from roundoff.graph.insertion import insert_quantizers
from roundoff.graph.quantized_model import QuantizedModel
from roundoff.run.block_network import BlockNetwork, NetworkSettings, Recording, Room
from tests.graph.quantized_nets import S8, make_quantizer, mixed_net, mixed_quantizers, run_model
from tests.models import conv_net, loaded, random_feed, value, wrapped
from tests.quantized import quantized_simply
from tests.run.samples import MemorySamples

IMAGES = [random_feed({"image": (1, 3, 4, 4)}, seed=at) for at in range(5)]


def mixed(folder: Path, **settings: Any) -> tuple[QuantizedModel, BlockNetwork]:
    quantized = QuantizedModel(loaded(mixed_net(), folder), mixed_quantizers())
    options = NetworkSettings(("logits",), blocks=4, arithmetic="plain", **settings)
    return quantized, BlockNetwork(quantized, IMAGES[:2], options)


@pytest.mark.parametrize("store_bytes", [1 << 20, 0])
@pytest.mark.parametrize("together", [1, 2])
def test_changes_run_from_what_was_kept(
    store_bytes: int, together: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("roundoff.run.block_chain._SMALL_BYTES", 0)
    quantized, network = mixed(tmp_path)
    network.room = Room(together, 2, store_bytes)
    recording = Recording(network, range(4), folder=tmp_path)
    done: list[int] = []
    recording.record(quantized.float_model, MemorySamples(IMAGES), range(5), on_chunk=done.append)
    assert sum(done) == 5
    assert (recording.store.disk_bytes > 0) == (store_bytes == 0)
    for on in (mixed_quantizers()[:2], mixed_quantizers()[7:], mixed_quantizers()):
        change = network.change(on)
        opened = network.open(change)
        assert set(opened.blocks) >= set(change.blocks)
        expected = [run_model(insert_quantizers(quantized.float_model, on), feed)[0] for feed in IMAGES]
        found = [recording.outputs(number, opened)[0] for number in range(len(recording.chunks))]
        # All scales are powers of two, so that nothing is rounded.
        np.testing.assert_array_equal(np.concatenate(found), np.concatenate(expected))
    floats = [run_model(quantized.float_model, feed)[0] for feed in IMAGES]
    kept = [recording.references(number)[0] for number in range(len(recording.chunks))]
    np.testing.assert_array_equal(np.concatenate(kept), np.concatenate(floats))
    recording.close()
    assert not list(tmp_path.rglob("*.bin"))


def test_the_base_may_be_the_quantized_model(tmp_path: Path) -> None:
    quantized, network = mixed(tmp_path, base="quantized")
    assert network.change(quantized.quantizers).blocks == ()
    without = [each for each in quantized.quantizers if each.tensor != "w2"]
    change = network.change(without)
    assert [network.cutting.blocks[at].nodes[0] for at in change.blocks] == ["depthwise"]
    recording = Recording(network, change.blocks)
    recording.record(quantized.float_model, MemorySamples(IMAGES), [3])
    (found,) = recording.outputs(0, network.open(change))
    np.testing.assert_array_equal(
        found, run_model(insert_quantizers(quantized.float_model, without), IMAGES[3])[0]
    )
    (reference,) = recording.references(0)
    np.testing.assert_array_equal(reference, run_model(quantized.float_model, IMAGES[3])[0])


def test_an_output_that_leaves_quantized_needs_no_run(tmp_path: Path) -> None:
    quantized, network = mixed(tmp_path)
    change = network.change([each for each in quantized.quantizers if each.output])
    assert change.blocks == ()
    recording = Recording(network, ())
    recording.record(quantized.float_model, MemorySamples(IMAGES), [0])
    (found,) = recording.outputs(0, network.open(change))
    on = [each for each in quantized.quantizers if each.output]
    np.testing.assert_array_equal(found, run_model(insert_quantizers(quantized.float_model, on), IMAGES[0])[0])


def test_samples_of_another_shape_are_run_apart(tmp_path: Path) -> None:
    model = loaded(conv_net("N"), tmp_path)
    feeds = [random_feed({"image": (rows, 3, 8, 8)}, seed=rows) for rows in (1, 1, 2, 2, 1)]
    quantized = quantized_simply(model, feeds[:2])
    network = BlockNetwork(quantized, feeds[:2], NetworkSettings(("logits",), arithmetic="plain", blocks=3))
    recording = Recording(network, range(3))
    recording.record(model, MemorySamples(feeds), range(5))
    assert [chunk.samples for chunk in recording.chunks] == [(0, 1), (2, 3), (4,)]
    assert recording.references(1)[0].shape == (4, 10)


def test_an_input_that_is_an_output_passes_through(tmp_path: Path) -> None:
    nodes = [helper.make_node("Neg", ["x"], ["y"], name="neg")]
    model = loaded(wrapped(nodes, [value("x", ("N", 3))], [value("x", ("N", 3)), value("y")]), tmp_path)
    feeds = [random_feed({"x": (1, 3)}, seed=at) for at in range(2)]
    quantized = QuantizedModel(model, (make_quantizer("x", S8, 0.5, ("neg", 0)),))
    network = BlockNetwork(quantized, feeds, NetworkSettings(("x", "y")))
    recording = Recording(network, [0])
    recording.record(model, MemorySamples(feeds), [1])
    change = network.change(quantized.quantizers)
    same, changed = recording.outputs(0, network.open(change))
    np.testing.assert_array_equal(same, feeds[1]["x"])
    np.testing.assert_array_equal(changed, -np.round(feeds[1]["x"] * 2) / 2)


def test_constant_outputs_are_not_compared(tmp_path: Path) -> None:
    nodes = [
        helper.make_node("Neg", ["x"], ["y"], name="neg"),
        helper.make_node("Neg", ["c"], ["d"], name="fixed"),
    ]
    constant = numpy_helper.from_array(np.ones(2, np.float32), "c")
    model = loaded(wrapped(nodes, [value("x", (1, 3))], [value("d"), value("y")], [constant]), tmp_path)
    quantized = QuantizedModel(model, (make_quantizer("x", S8, 0.5, ("neg", 0)),))
    feeds = [random_feed({"x": (1, 3)})]
    network = BlockNetwork(quantized, feeds, NetworkSettings(("d", "y")))
    assert network.constant == ("d",)
    assert network.cutting.wanted == ("y",)
    with pytest.raises(BadInput, match="the same whatever the model is fed"):
        BlockNetwork(quantized, feeds, NetworkSettings(("d",)))


def test_text_cannot_be_compared(tmp_path: Path) -> None:
    nodes = [helper.make_node("Cast", ["x"], ["y"], name="print", to=TensorProto.STRING)]
    model = loaded(wrapped(nodes, [value("x", (1, 3))], [value("y", (1, 3), TensorProto.STRING)]), tmp_path)
    quantized = QuantizedModel(model, (make_quantizer("x", S8, 0.5, ("print", 0)),))
    with pytest.raises(BadInput, match="'y' cannot be compared: it holds text"):
        BlockNetwork(quantized, [random_feed({"x": (1, 3)})], NetworkSettings(("y",)))


def test_scales_along_the_samples_forbid_batches(tmp_path: Path) -> None:
    quantized, network = mixed(tmp_path)
    assert network.room.together > 1
    per_sample = make_quantizer("act", QuantSpec(8, True, True, axis=0), [0.5], ("depthwise", 0))
    split = replace(quantized, quantizers=(per_sample,))
    network = BlockNetwork(split, IMAGES[:2], NetworkSettings(("logits",), blocks=4))
    assert network.room.together == 1


def test_quantizers_of_another_model_are_refused(tmp_path: Path) -> None:
    quantized, _ = mixed(tmp_path)
    wrong = replace(quantized, quantizers=(make_quantizer("nowhere", S8, 1.0, ("add", 0)),))
    with pytest.raises(BadInput, match="nowhere"):
        BlockNetwork(wrong, IMAGES[:1], NetworkSettings(("logits",)))
