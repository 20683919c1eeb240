"""One network, any quantizers, chosen samples: what the bench gives is what onnxruntime computes."""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import pytest
from hypothesis import given
from hypothesis import strategies as st
from onnx import helper, numpy_helper

from roundoff.core.quantizers import QuantParams
from roundoff.core.tensors import Array
from roundoff.graph.insertion import switch_on
from roundoff.graph.load import Model
from roundoff.quantize.pipeline import QuantizeSettings, quantize_model
from roundoff.quantize.targets.files import load_target
from roundoff.run import bench as bench_module
from roundoff.run import block_chain
from roundoff.run.bench import Bench, spread, spread_first, spread_over
from roundoff.run.block_chain import agreement_db
from roundoff.run.session import Session, open_session
from roundoff.samples.sample_set import ArraySamples
from tests.models import conv_net, loaded, value, weight, wrapped

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


@pytest.mark.parametrize("heavy", [False, True])
def test_networks_beside_each_other_give_the_same_one_after_the_other(
    model: Model, monkeypatch: pytest.MonkeyPatch, *, heavy: bool
) -> None:
    quantized = quantize_model(model, samples(), QuantizeSettings(load_target("generic-int8"))).quantized
    bench = Bench(quantized.float_model, samples())
    other = switch_on(quantized.float_model, quantized.quantizers)
    wanted = list(bench.run([4, 0, 2], bench.open(), bench.open(other)))
    opened: list[Any] = []
    real = Bench.open

    def counted(*args: Any, **kwargs: Any) -> Any:
        opened.append(args)
        return real(*args, **kwargs)

    monkeypatch.setattr(bench_module, "HEAVY_BYTES", 0 if heavy else 1 << 40)
    monkeypatch.setattr(Bench, "open", counted)
    found = bench.beside([4, 0, 2], quantized.float_model, other)
    feed, first = next(found)
    np.testing.assert_array_equal(feed["image"], IMAGES[4])
    for [ours, theirs], [left, right] in zip(wanted, [first, *(each for _, each in found)], strict=True):
        for name in ours:
            np.testing.assert_array_equal(ours[name], left[name])
            np.testing.assert_array_equal(theirs[name], right[name])
    assert len(opened) == 2


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


def grown(seed: int, nodes: int = 40) -> Any:
    """A network of random operations on pictures of 16 channels, each of which reads any of the last tensors."""
    rng, made, weights = np.random.default_rng(seed), [], []
    kinds = ("Conv", "Depthwise", "Relu", "Clip", "Add", "Mul", "AveragePool", "MaxPool", "Concat", "Sigmoid")
    tensors = ["stem"]
    made.append(helper.make_node("Conv", ["image", "stem_w"], ["stem"], name="stem", pads=[1] * 4))
    weights.append(weight("stem_w", 16, 3, 3, 3, seed=seed))
    for at in range(nodes):
        kind, out = str(rng.choice(kinds, p=[0.3, *[0.7 / 9] * 9])), f"t{at}"
        left, right = (str(rng.choice(tensors[-4:])) for _ in range(2))
        named = {"name": f"n{at}"}
        if kind in ("Conv", "Depthwise"):
            group = 16 if kind == "Depthwise" else 1
            weights += [weight(f"w{at}", 16, 16 // group, 3, 3, seed=at), weight(f"b{at}", 16, seed=at)]
            made.append(
                helper.make_node("Conv", [left, f"w{at}", f"b{at}"], [out], pads=[1] * 4, group=group, **named)
            )
        elif kind == "Concat":
            weights.append(weight(f"w{at}", 16, 32, 1, 1, seed=at))
            made.append(helper.make_node("Concat", [left, right], [f"{out}_c"], axis=1, name=f"c{at}"))
            made.append(helper.make_node("Conv", [f"{out}_c", f"w{at}"], [out], **named))
        elif kind in ("AveragePool", "MaxPool"):
            made.append(helper.make_node(kind, [left], [out], kernel_shape=[3, 3], pads=[1] * 4, **named))
        elif kind == "Clip":
            made.append(helper.make_node("Clip", [left, "low", "high"], [out], **named))
        else:
            made.append(
                helper.make_node(kind, [left, right] if kind in ("Add", "Mul") else [left], [out], **named)
            )
        tensors.append(out)
    # Nothing is computed in vain: what nobody has read is added up.
    unread = [name for name in tensors[:-1] if not any(name in node.input for node in made)]
    for at, name in enumerate(unread):
        made.append(helper.make_node("Add", [tensors[-1], name], [f"sum{at}"], name=f"add{at}"))
        tensors.append(f"sum{at}")
    made.append(helper.make_node("GlobalAveragePool", [tensors[-1]], ["pooled"], name="pool"))
    made.append(helper.make_node("Add", ["pooled", tensors[-1]], ["both"], name="both"))
    weights += [numpy_helper.from_array(np.float32(end), name) for name, end in (("low", -1), ("high", 1))]
    outputs = [value("pooled", (1, 16, 1, 1)), value("both", (1, 16, 8, 8))]
    return wrapped(made, [value("image", (1, 3, 8, 8))], outputs, weights)


@pytest.mark.parametrize("seed", range(3))
def test_networks_run_in_blocks_give_the_bits_of_the_whole(
    seed: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bench_module, "_NODES_IN_BLOCKS", 1)
    monkeypatch.setattr(bench_module, "_ASKED_BEFORE", 0)
    target = load_target("generic-int8" if seed % 2 else "generic-int8-per-tensor")
    quantized = quantize_model(loaded(grown(seed), tmp_path), samples(), QuantizeSettings(target)).quantized
    bench, every = Bench(quantized.float_model, samples(), keep=True), list(quantized.quantizers)
    rng = np.random.default_rng(seed)
    assert bench._in_blocks(every, fused=True) is not None
    for turn in range(8):
        chosen = list(every)
        if turn % 2:
            share = rng.choice([0.3, 0.5, 0.95])
            chosen = [each for each in every if rng.random() < share]
        elif turn:
            at = int(rng.integers(len(every)))
            wider = replace(every[at].params, scale=every[at].params.scale * np.float32(1.7))
            chosen[at] = replace(every[at], params=wider, codes=None)
        whole = [found for [found] in bench.run(range(3), bench.open_tuned(chosen, fused=True))]
        for ours, theirs in zip(whole, bench.run_switched(range(3), chosen, fused=True), strict=True):
            for name, array in ours.items():
                np.testing.assert_array_equal(array, theirs[name])


def test_networks_with_few_quantizers_run_from_where_these_are(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bench_module, "_NODES_IN_BLOCKS", 1)
    monkeypatch.setattr(bench_module, "_ASKED_BEFORE", 0)
    settings = QuantizeSettings(load_target("generic-int8"))
    quantized = quantize_model(loaded(grown(0), tmp_path), samples(), settings).quantized
    bench, every = Bench(quantized.float_model, samples(), keep=True), list(quantized.quantizers)
    list(bench.run_switched([0, 1], every, fused=True))
    blocks = bench._in_blocks(every[:1], fused=True)
    assert blocks is not None
    assert blocks is not bench._in_blocks(every, fused=True)
    opened: list[str] = []

    def counted(*given: Any, **more: Any) -> Session:
        opened.append("")
        return open_session(*given, **more)

    monkeypatch.setattr(block_chain, "open_session", counted)
    counts = []
    for at in range(0, len(every), 3):
        chosen = every[at : at + 1]
        whole = [found for [found] in bench.run([0, 1], bench.open_tuned(chosen, fused=True))]
        before = len(opened)
        for ours, theirs in zip(whole, bench.run_switched([0, 1], chosen, fused=True), strict=True):
            # A value next to the middle between two codes may fall to the other side.
            assert min(agreement_db(array, theirs[name]) for name, array in ours.items()) > 60
        counts.append(len(opened) - before)
    # What is before and behind them is open already.
    assert max(counts[2:]) <= 4
    assert {state for state, _ in blocks._live} <= (blocks._shared or frozenset())


def test_what_networks_have_in_common_is_run_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bench_module, "_NODES_IN_BLOCKS", 1)
    monkeypatch.setattr(bench_module, "_ASKED_BEFORE", 0)
    settings = QuantizeSettings(load_target("generic-int8"))
    quantized = quantize_model(loaded(grown(1), tmp_path), samples(), settings).quantized
    bench, every = Bench(quantized.float_model, samples(), keep=True), list(quantized.quantizers)
    list(bench.run_switched([0, 1], every))
    runs: list[str] = []
    ran = Session.run

    def counted(self: Session, *given: Any, **more: Any) -> Any:
        runs.append("")
        return ran(self, *given, **more)

    monkeypatch.setattr(Session, "run", counted)
    list(bench.run_switched([0, 1], every))
    assert not runs
    last = max((each for each in every if each.kind == "weight"), key=every.index)
    list(bench.run_switched([0, 1], [each for each in every if each is not last]))
    assert 0 < len(runs) <= 4


@given(st.integers(0, 300), st.integers(2, 300))
def test_every_beginning_of_an_order_spans_all_indices(total: int, count: int) -> None:
    order = spread_first(total)
    assert sorted(order) == list(range(total))
    taken = sorted(order[:count])
    if total > 1:
        assert (taken[0], taken[-1]) == (0, total - 1)
        assert max(np.diff(taken)) <= 2 * (total - 1) / (min(count, total) - 1) + 1
