"""One network, any quantizers, chosen samples: what the bench gives is what onnxruntime computes."""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import numpy as np
import onnxruntime
import pytest
from hypothesis import given
from hypothesis import strategies as st

from roundoff.core.quantizers import QuantParams
from roundoff.core.tensors import Array
from roundoff.graph.load import Model
from roundoff.quantize.pipeline import QuantizeSettings, quantize_model
from roundoff.quantize.targets.files import load_target
from roundoff.run.bench import Bench, spread, spread_over
from roundoff.samples.sample_set import ArraySamples
from tests.models import conv_net, loaded

IMAGES = np.random.default_rng(3).standard_normal((5, 1, 3, 8, 8)).astype(np.float32)


class Counted(ArraySamples):
    """Samples that count how often they are read."""

    reads = 0

    def feed(self, index: int) -> Mapping[str, Array]:
        self.reads += 1
        return super().feed(index)


@pytest.fixture
def model(tmp_path: Path) -> Model:
    return loaded(conv_net(), tmp_path)


def samples() -> Counted:
    return Counted({"image": IMAGES[:, 0]})


def plain(model: Model, index: int) -> list[Array]:
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    session = onnxruntime.InferenceSession(model.proto.SerializeToString(), options)
    return list(session.run(None, {"image": IMAGES[index]}))


def test_outputs_are_those_of_onnxruntime_in_the_order_that_is_asked_for(model: Model) -> None:
    bench = Bench(model, samples())
    network = bench.open()
    for index, [found] in zip([4, 0, 2], bench.run([4, 0, 2], network), strict=True):
        assert tuple(found) == network.names
        for ours, theirs in zip(found.values(), plain(model, index), strict=True):
            np.testing.assert_array_equal(ours, theirs)


def test_quantizers_are_on_and_tensors_chosen(model: Model) -> None:
    quantized = quantize_model(model, samples(), QuantizeSettings(load_target("generic-int8"))).quantized
    bench = Bench(quantized.float_model, samples())
    name = quantized.float_model.proto.graph.node[0].output[0]
    networks = [bench.open(each, tensors=[name]) for each in ((), quantized.quantizers)]
    [(ours, theirs)] = bench.run([1], *networks)
    assert list(ours) == list(theirs) == [name]
    lost = np.abs(ours[name] - theirs[name]).max()
    assert 0 < lost < 0.2 * np.abs(ours[name]).max()


def test_networks_that_differ_in_scales_share_a_session_and_give_the_same_bits(model: Model) -> None:
    quantized = quantize_model(model, samples(), QuantizeSettings(load_target("generic-int8"))).quantized
    bench = Bench(quantized.float_model, samples())
    first = bench.open_tuned(quantized.quantizers)
    for factor, shift in ((1.0, 0), (0.5, 3), (3.0, 2)):
        changed = [
            replace(
                each, params=QuantParams(each.params.scale * np.float32(factor), each.params.zero_point + shift)
            )
            if each.kind == "activation"
            else each
            for each in quantized.quantizers
        ]
        tuned, fresh = bench.open_tuned(changed), bench.open(changed)
        assert tuned.session is first.session
        for [ours, theirs] in bench.run([0, 3], tuned, fresh):
            for name in fresh.names:
                np.testing.assert_array_equal(ours[name], theirs[name])
    weightless = [each for each in quantized.quantizers if each.kind != "weight"]
    assert bench.open_tuned(weightless).session is not first.session


@pytest.mark.parametrize(("keep", "reads"), [(False, 6), (True, 3)])
def test_a_sample_is_read_once_for_all_networks_and_once_at_all_where_it_is_kept(
    model: Model, *, keep: bool, reads: int
) -> None:
    fed = samples()
    bench = Bench(model, fed, keep=keep)
    for _ in range(2):
        assert len(list(bench.run([0, 1, 3], bench.open(), bench.open()))) == 3
    assert fed.reads == reads


def test_several_samples_together_give_what_each_gives_alone(model: Model) -> None:
    bench = Bench(model, samples())
    alone = [next(iter(found.values())) for [found] in bench.run(range(5), bench.open())]
    joined = [arrays[0] for _, arrays in bench.run_together(model, range(5))]
    np.testing.assert_allclose(np.concatenate(joined), np.concatenate(alone), rtol=0, atol=1e-4)


@given(st.integers(0, 500), st.integers(2, 64))
def test_samples_are_spread_from_the_first_to_the_last(total: int, most: int) -> None:
    found = spread(total, most)
    assert len(found) == min(total, most) == len(set(found))
    assert list(found) == sorted(found)
    assert not total or (found[0], found[-1]) == (0, total - 1)
    assert spread_over([10 * each for each in range(total)], most) == [10 * each for each in found]
