from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper

from roundoff.core.quantizers import QuantSpec
from roundoff.core.tensors import Array
from roundoff.errors import BadInput
from roundoff.graph.subgraph import tap
from roundoff.quantize.calibration.calibration import Calibration, calibrate
from roundoff.quantize.calibration.observer import MOST_ELEMENTS
from roundoff.run.session import open_session
from tests.models import conv_net, loaded, random_feed, single_node, two_inputs, value, with_sequence, wrapped
from tests.quantize.calibration.observing import observed
from tests.quantize.calibration.test_observer import assert_equal
from tests.run.samples import MemorySamples

NAMES = ("image", "conv1", "relu1", "conv2", "relu2", "pooled", "flat", "logits")


def images(count: int) -> MemorySamples:
    return MemorySamples([random_feed({"image": (1, 3, 8, 8)}, seed) for seed in range(count)])


@pytest.mark.parametrize("detail", ["range", "histogram"])
@pytest.mark.parametrize("threads", [None, 1, 3])
def test_every_tensor_is_observed_over_all_samples(tmp_path: Path, detail: Any, threads: int | None) -> None:
    model, samples = loaded(conv_net(), tmp_path), images(5)
    wanted = {name: 1 if name in ("conv1", "logits") else None for name in reversed(NAMES)}
    seen = calibrate(model, samples, wanted, detail=detail, threads=threads)
    assert (seen.samples, seen.detail) == (5, detail)
    assert tuple(seen.observations) == NAMES  # in execution order
    session = open_session(model, outputs=tap(model, NAMES))
    outputs = [session.run(feed) for feed in samples.feeds]
    for index, name in enumerate(NAMES):
        expected = observed(*(each[index] for each in outputs), axis=wanted[name])
        found = seen.observations[name]
        np.testing.assert_array_equal(found.low, expected.low)
        np.testing.assert_array_equal(found.high, expected.high)
        if detail == "histogram":
            assert_equal(found, expected)


def test_each_sample_runs_once_for_all_methods(tmp_path: Path) -> None:
    samples = images(6)
    seen = calibrate(loaded(conv_net(), tmp_path), samples, dict.fromkeys(NAMES), detail="histogram")
    for method in ("minmax", "percentile", "mse", "entropy", "ifmr", "hfmg"):
        seen.range(["relu1"], QuantSpec(8, False, False), method)
    assert samples.asked.count(3) == 1


def test_the_order_of_samples_does_not_matter(tmp_path: Path) -> None:
    model, samples = loaded(conv_net(), tmp_path), images(7)
    backwards = MemorySamples(samples.feeds[::-1])
    first, second = (
        calibrate(model, each, dict.fromkeys(NAMES), detail="histogram") for each in (samples, backwards)
    )
    for name in NAMES:
        assert_equal(first.observations[name], second.observations[name])


def test_two_halves_are_a_whole(tmp_path: Path) -> None:
    model, samples = loaded(conv_net(), tmp_path), images(6)
    parts = [MemorySamples(samples.feeds[:2]), MemorySamples(samples.feeds[2:])]
    halves = [calibrate(model, part, {"conv1": 1}, detail="histogram") for part in parts]
    whole = calibrate(model, samples, {"conv1": 1}, detail="histogram")
    assert_equal(halves[0].merge(halves[1]).observations["conv1"], whole.observations["conv1"])


def test_in_little_memory_the_model_runs_in_several_passes(tmp_path: Path) -> None:
    sizes = {"x": (1, 4, 256, 256)}
    nodes = [helper.make_node("Relu" if step % 2 else "Neg", [f"t{step}"], [f"t{step + 1}"]) for step in range(20)]
    nodes[0].input[0] = "x"
    model = loaded(wrapped(nodes, [value("x", sizes["x"])], [value("t20")]), tmp_path)
    samples = MemorySamples([random_feed(sizes, seed) for seed in range(2)])
    wanted = {f"t{step}": None for step in range(1, 21)}
    plenty = calibrate(model, samples, wanted, detail="histogram")
    scarce = calibrate(model, samples, wanted, detail="histogram", max_memory=140 * 2**20)
    for name in wanted:
        assert_equal(plenty.observations[name], scarce.observations[name])


@pytest.mark.parametrize("most", [MOST_ELEMENTS, 10])
@pytest.mark.parametrize("detail", ["range", "histogram"])
@pytest.mark.parametrize("odd", [(), (np.nan,), (np.inf, -np.inf, np.nan)], ids=["finite", "nan", "all"])
def test_what_follows_from_another_tensor_is_as_if_it_were_observed(
    tmp_path: Path, detail: Any, odd: tuple[float, ...], most: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("roundoff.quantize.calibration.observer.MOST_ELEMENTS", most)
    nodes = [
        helper.make_node("Neg", ["x"], ["y"]),
        helper.make_node("Clip", ["y", "", "six"], ["below"]),
        helper.make_node("Reshape", ["below", "flat"], ["long"]),
        helper.make_node("Relu", ["long"], ["between"]),
        helper.make_node("Relu", ["y"], ["above"]),
    ]
    weights = [numpy_helper.from_array(np.float32(0.6), "six"), numpy_helper.from_array(np.array([-1]), "flat")]
    names = ("y", "below", "long", "between", "above")
    model = loaded(wrapped(nodes, [value("x", (2, 6))], [value("between"), value("above")], weights), tmp_path)
    samples = MemorySamples([random_feed({"x": (2, 6)}, seed) for seed in range(4)])
    for place, number in enumerate(odd):
        samples.feeds[2]["x"][1, place] = number
    seen = calibrate(model, samples, dict.fromkeys(names), detail=detail)
    assert tuple(seen.observations) == names
    session = open_session(model, outputs=tap(model, names))
    outputs = [session.run(feed) for feed in samples.feeds]
    for index, name in enumerate(names):
        found, expected = seen.observations[name], observed(*(each[index] for each in outputs))
        assert found.has_distribution == (detail == "histogram")
        assert_equal(
            found, expected if found.has_distribution else replace(expected, elements=None, histogram=None)
        )


def test_nothing_to_observe(tmp_path: Path) -> None:
    seen = calibrate(loaded(conv_net(), tmp_path), images(2), {}, detail="histogram")
    assert (dict(seen.observations), seen.samples) == ({}, 2)


def test_progress(tmp_path: Path) -> None:
    told: list[object] = []

    class Recorder:
        def start(self, title: str, total: int) -> None:
            told.append((title, total))

        def advance(self, steps: int = 1) -> None:
            told.append(steps)

        def finish(self) -> None:
            told.append("end")

    calibrate(loaded(conv_net(), tmp_path), images(3), {"relu1": None}, detail="range", progress=Recorder())
    assert told == [("calibrating", 3), 1, 1, 1, "end"]


def test_unknown_tensor(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="'relu9'"):
        calibrate(loaded(conv_net(), tmp_path), images(1), {"relu9": None}, detail="range")


def test_what_holds_no_numbers(tmp_path: Path) -> None:
    model = loaded(with_sequence(), tmp_path)
    samples = MemorySamples([random_feed({"x": (2, 3)})])
    with pytest.raises(BadInput, match="'text' cannot be read: it holds text"):
        calibrate(model, samples, {"text": None}, detail="range")


def test_channels_that_change_from_sample_to_sample(tmp_path: Path) -> None:
    model = loaded(two_inputs(), tmp_path)
    samples = MemorySamples([random_feed({"left": (n, 5), "right": (n, 5)}) for n in (2, 3)])
    seen = calibrate(model, samples, {"joined": None, "left": 1}, detail="histogram")
    assert seen.observations["joined"].count == 25
    with pytest.raises(
        BadInput, match="Tensor 'joined' cannot have a scale for each channel: 2 channels"
    ) as caught:
        calibrate(model, samples, {"joined": 0}, detail="histogram")
    assert "sample 's1'" in caught.value.what
    assert "one scale for the whole tensor" in caught.value.fix


def test_activations_that_are_not_finite(tmp_path: Path) -> None:
    model = loaded(single_node(helper.make_node("Log", ["x"], ["y"]), [value("x", (4,))]), tmp_path)
    feeds: list[dict[str, Array]] = [{"x": np.array([1.0, 0.0, -1.0, np.e], np.float32)}]
    seen = calibrate(model, MemorySamples(feeds), {"y": None}, detail="histogram")
    observation = seen.observations["y"]
    assert (observation.nans, observation.infs, observation.high.tolist()) == (1, 1, [1.0])
    low, high = seen.range(["y"], QuantSpec(8, False, False), "mse")
    assert low == 0
    assert high == pytest.approx(1, rel=1e-3)
    assert any("'y': 2 elements of 4 NaN or infinite" in str(note) for note in seen.notes)


@pytest.mark.parametrize(
    "kind", [TensorProto.FLOAT16, TensorProto.DOUBLE, TensorProto.INT32, TensorProto.BFLOAT16]
)
def test_other_types(tmp_path: Path, kind: int) -> None:
    nodes = [
        helper.make_node("Cast", ["x"], ["other"], to=kind),
        helper.make_node("Cast", ["other"], ["y"], to=TensorProto.FLOAT),
    ]
    model = loaded(wrapped(nodes, [value("x", (3,))], [value("y", (3,))]), tmp_path)
    feeds: list[dict[str, Array]] = [{"x": np.array([-2.0, 0.0, 3.0], np.float32)}]
    seen = calibrate(model, MemorySamples(feeds), {"other": 0, "y": None}, detail="histogram")
    assert seen.observations["other"].low.tolist() == [-2, 0, 3]


def test_a_scalar_and_a_constant_output(tmp_path: Path) -> None:
    nodes = [
        helper.make_node("ReduceMax", ["x"], ["top"], keepdims=0),
        helper.make_node("Mul", ["top", "nothing"], ["zero"]),
    ]
    constant = numpy_helper.from_array(np.float32(0), "nothing")
    model = loaded(wrapped(nodes, [value("x", (3,))], [value("zero")], [constant]), tmp_path)
    samples = MemorySamples([random_feed({"x": (3,)}, seed) for seed in range(4)])
    seen = calibrate(model, samples, {"top": None, "zero": None}, detail="histogram")
    assert isinstance(seen, Calibration)
    assert seen.observations["top"].count == 4
    low, high = seen.range(["zero"], QuantSpec(8, False, False), "entropy")
    assert (float(low), float(high)) == (0, 0)
