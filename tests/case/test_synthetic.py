"""A disguised case has other numbers, the same shape, and quantizers that fit as they did."""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import hypothesis.extra.numpy as arrays
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from onnx import helper, numpy_helper

from roundoff.case.excerpt import CaseNumbers, CaseSamples, NodeRank, QuantizedCase, measure, same_fault
from roundoff.case.synthetic import (
    Synthesis,
    find_synthetic,
    jittered,
    permuted_alike,
    random_like,
    sample_like,
    shuffled,
    synthetic_case,
)
from roundoff.core.progress import SILENT
from roundoff.core.quantizers import representable_range
from roundoff.core.tensors import Array
from roundoff.graph.load import Model, model_from_proto, weight_tensors
from roundoff.graph.quantized_model import QuantizedModel
from roundoff.graph.weights import constant_value
from roundoff.run.budget import UNLIMITED
from tests.models import conv_net, value, weight, wrapped
from tests.quantized import quantized_simply, with_scale_times
from tests.studies.check_calibration.sets import images


def case_of(model: Model, factor: float = 1.0) -> QuantizedCase:
    feeds: tuple[Mapping[str, Array], ...] = tuple({"image": each[None]} for each in images(3))
    quantized = quantized_simply(model, feeds)
    if factor != 1:
        quantized = with_scale_times(quantized, ["relu1"], factor)
    return QuantizedCase(quantized, CaseSamples("set", ("a", "b", "c"), feeds))


def net() -> Model:
    return model_from_proto(conv_net(1), path=Path("net.onnx"))


@pytest.mark.parametrize("how", ["random", "matched", "shuffled"])
def test_weights_and_samples_are_others(how: Synthesis) -> None:
    case = case_of(net())
    found = synthetic_case(case, how, keep_data=False, seed=0)
    old, new = case.quantized.float_model, found.case.quantized.float_model
    assert found.replaced == 4
    for before, after in zip(weight_tensors(old.proto), weight_tensors(new.proto), strict=True):
        ours, theirs = constant_value(before, old), constant_value(after, new)
        assert ours.shape == theirs.shape
        assert np.mean(ours == theirs) < 0.2
    for feed, other in zip(case.samples.feeds, found.case.samples.feeds, strict=True):
        assert not np.array_equal(feed["image"], other["input_0"])
    kept = synthetic_case(case, how, keep_data=True, seed=0)
    assert np.array_equal(kept.case.samples.feeds[0]["input_0"], case.samples.feeds[0]["image"])


def test_a_quantizer_that_covers_a_fifth_still_does() -> None:
    case = case_of(net(), 0.2)
    found = synthetic_case(case, "random", keep_data=False, seed=0)
    spoilt, whole = (
        next(each for each in quantized.quantizers if each.tensor == name)
        for quantized, name in ((case.quantized, "relu1"), (found.case.quantized, found.names["relu1"]))
    )
    plain = synthetic_case(case_of(net()), "random", keep_data=False, seed=0)
    right = next(each for each in plain.case.quantized.quantizers if each.tensor == found.names["relu1"])
    ratio = representable_range(whole.params, whole.spec)[1] / representable_range(right.params, right.spec)[1]
    assert ratio == pytest.approx(0.2, rel=0.05)
    assert spoilt.spec == whole.spec


@pytest.mark.parametrize("factor", [0.1, 0.2])
def test_a_planted_fault_is_shown_again(factor: float) -> None:
    case = case_of(net(), factor)
    before = measure(case, limits=UNLIMITED, progress=SILENT)
    found = find_synthetic(case, before, keep_data=False, seed=0, limits=UNLIMITED, progress=SILENT)
    assert found.confidence.reasons == ()
    assert found.numbers.verdict == before.verdict
    assert found.confidence.tries <= 7


def test_weights_inside_of_subgraphs_are_replaced_too() -> None:
    branch = [
        helper.make_graph(
            [helper.make_node("Mul", ["relu1", f"inside{number}"], [f"out{number}"])],
            f"branch{number}",
            [],
            [value(f"out{number}")],
            [weight(f"inside{number}", 1, 4, 8, 8, seed=number)],
        )
        for number in (0, 1)
    ]
    nodes = [
        helper.make_node("Conv", ["image", "w1"], ["conv1"], name="Conv1", pads=[1] * 4),
        helper.make_node("Relu", ["conv1"], ["relu1"], name="Relu1"),
        helper.make_node("If", ["yes"], ["sum"], name="choice", then_branch=branch[0], else_branch=branch[1]),
    ]
    constants = [weight("w1", 4, 3, 3, 3), numpy_helper.from_array(np.array(True), "yes")]
    proto = wrapped(nodes, [value("image", (1, 3, 8, 8))], [value("sum")], constants)
    model = model_from_proto(proto, path=Path("net.onnx"))
    case = QuantizedCase(QuantizedModel(model, ()), CaseSamples("set", ("a",), ({"image": images(1)},)))
    found = synthetic_case(case, "random", keep_data=False, seed=0)
    assert found.replaced == 3
    content = found.case.quantized.float_model.proto.SerializeToString()
    for tensor in weight_tensors(model.proto):
        if tensor.name != "yes":
            assert np.asarray(constant_value(tensor, model)).tobytes() not in content


NUMBERS = CaseNumbers("local", "y", 5.0, 0.8, (NodeRank("a", "Conv", 0.9, 8.0, "clipping"),), {"a": 8.0})


@pytest.mark.parametrize(
    ("other", "reason"),
    [
        (NUMBERS, ""),
        (replace(NUMBERS, sqnr_db=15.0), ""),
        (replace(NUMBERS, sqnr_db=15.0, culprits={"a": 20.0}), "15.0 dB instead of 5.0 dB"),
        (replace(NUMBERS, verdict="fine"), "the loss is fine instead of local"),
        (replace(NUMBERS, culprits={"b": 8.0}, nodes=()), "a is not among the nodes that make it"),
        (replace(NUMBERS, sqnr_db=None, culprits={"a": 30.0}), "without a score instead of 5.0 dB"),
    ],
)
def test_what_counts_as_the_same_fault(other: CaseNumbers, reason: str) -> None:
    shown = same_fault(NUMBERS, other, {}, close_db=6.0)
    assert shown.same == (not reason)
    assert reason in "; ".join(shown.reasons)


SHAPES = st.tuples(st.integers(2, 5), st.integers(2, 6), st.integers(3, 5))
FLOATS = hnp.arrays(np.float32, SHAPES, elements=st.integers(-1000, 1000).map(lambda each: each / 64))


def random() -> np.random.Generator:
    return np.random.default_rng(3)


@given(FLOATS)
def test_each_slice_keeps_its_extremes_and_about_its_mean(values: Array) -> None:
    found = random_like(values, 0, random())
    assert found.dtype == values.dtype
    assert found.shape == values.shape
    if values[0].size < 8:
        return
    for old, new in zip(values, found, strict=True):
        np.testing.assert_allclose([new.min(), new.max()], [old.min(), old.max()], rtol=6e-3, atol=1e-6)
        assert abs(new.mean() - old.mean()) <= 0.5 * (old.max() - old.min()) + 1e-6


@given(FLOATS)
def test_a_shuffled_slice_has_the_same_values(values: Array) -> None:
    found = shuffled(values, 0, random())
    if values[0].size >= 8:
        for old, new in zip(values, found, strict=True):
            np.testing.assert_array_equal(np.sort(old.ravel()), np.sort(new.ravel()))


def test_sizes_of_both_kinds_of_channels_stay() -> None:
    sizes = np.outer([1, 100, 1], [1, 1, 50, 1, 1, 1]).reshape(3, 6, 1, 1)
    values = (random().standard_normal((3, 6, 5, 5)) * sizes).astype(np.float32)
    for replaced in (random_like, shuffled):
        found = replaced(values, 0, np.random.default_rng(1), other=1)
        rows = found.std(axis=(1, 2, 3)) / values.std(axis=(1, 2, 3))
        columns = found.std(axis=(0, 2, 3)) / values.std(axis=(0, 2, 3))
        assert np.all((rows > 0.7) & (rows < 1.4)), rows
        assert np.all((columns > 0.6) & (columns < 1.6)), columns


@given(FLOATS)
def test_jitter_changes_every_value_a_little(values: Array) -> None:
    found = jittered(values, random())
    assert np.array_equal(found == 0, values == 0)
    live = values != 0
    change = np.abs(found[live] / values[live] - 1)
    assert np.all(change > 0.005)
    assert np.all(change < 0.051)


def test_a_picture_keeps_its_distribution_and_not_its_content() -> None:
    grid = np.linspace(0, 1, 16)
    picture = (np.outer(grid, grid**2)[None, None] + np.array([0.0, 1.0, 2.0])[:, None, None]).astype(np.float32)
    found = sample_like(picture, random())
    assert found.shape == picture.shape
    for old, new in zip(picture[0], found[0], strict=True):
        np.testing.assert_allclose(np.sort(new.ravel()), np.sort(old.ravel()), atol=0.06)
        assert abs(np.corrcoef(old.ravel(), new.ravel())[0, 1]) < 0.9
        # Neighbours are as much alike as they were.
        assert np.abs(np.diff(new, axis=1)).mean() < 0.5 * np.abs(new[:, 3:] - new[:, :-3]).mean() + 0.05


def test_masks_stay_and_whole_numbers_are_drawn_anew() -> None:
    mask = np.array([[1, 1, 0, 0]], np.int64)
    assert np.array_equal(sample_like(mask, random()), mask)
    words = np.arange(100, 140)[None]
    found = sample_like(words, random())
    assert found.dtype == words.dtype
    assert found.min() >= 100
    assert found.max() <= 139
    assert not np.array_equal(found, words)


PAIRS = arrays.array_shapes(min_dims=1, max_dims=4, max_side=9).flatmap(
    lambda shape: st.tuples(
        *[arrays.arrays(np.float32, shape, elements=st.floats(-8, 8, width=32)) for _ in range(2)]
    )
)


@given(PAIRS, st.integers(0, 5))
def test_the_same_pairs_of_values_in_another_order(pair: tuple[Array, Array], seed: int) -> None:
    mixed = permuted_alike(*pair, seed=seed)
    assert mixed.reference.shape == pair[0].shape
    before = np.stack([each.ravel() for each in pair])
    after = np.stack([mixed.reference.ravel(), mixed.candidate.ravel()])
    assert np.array_equal(before[:, np.lexsort(before)], after[:, np.lexsort(after)])


@pytest.mark.parametrize("fault", ["gain", "saturation", "channel", "noise"])
def test_faults_that_stay(fault: str) -> None:
    random = np.random.default_rng(0)
    reference = random.normal(size=(1, 8, 12, 12)).astype(np.float32)
    candidate = reference + random.normal(size=reference.shape).astype(np.float32) * 0.01
    if fault == "gain":
        candidate = reference * 1.25
    elif fault == "saturation":
        candidate = np.clip(reference, -0.5, 0.5)
    elif fault == "channel":
        candidate[:, 3] *= -1
    mixed = permuted_alike(reference, candidate, seed=1)
    assert mixed.reasons == ()
    assert not np.array_equal(mixed.reference, reference)
