from pathlib import Path
from typing import Any

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper

from roundoff.core.tensors import Array, TensorInfo, TensorSource
from roundoff.errors import BadInput, ModelFailed
from roundoff.graph.load import Model
from roundoff.run.budget import PROGRAM_BYTES
from roundoff.run.capture import NO_INPUTS, LiveSource
from tests.models import (
    branches,
    conv_net,
    loaded,
    random_feed,
    residual,
    single_node,
    two_inputs,
    two_outputs,
    value,
    with_if,
    with_sequence,
    wrapped,
)
from tests.run.samples import MemorySamples


def images(*batches: int) -> MemorySamples:
    return MemorySamples([random_feed({"image": (batch, 3, 8, 8)}, seed=i) for i, batch in enumerate(batches)])


def everything(source: TensorSource) -> dict[tuple[str, str], Array]:
    return {
        (sample, info.name): source.read(info.name, sample)
        for sample in source.samples
        for info in source.tensors
        if not info.problem
    }


def tight(model: Model, source: LiveSource, tensors: int) -> int:
    """A budget that holds so many tensors of the largest size."""
    largest = max(info.size * 4 for info in source.tensors)
    return PROGRAM_BYTES + 4 * model.weight_bytes + (2 + tensors) * largest


def test_every_tensor_of_every_sample_can_be_read(tmp_path: Path) -> None:
    samples = images(1, 1, 1)
    source = LiveSource(loaded(residual(), tmp_path), samples)

    assert [info.name for info in source.tensors] == ["image", "a", "b", "c", "sum"]
    assert source.tensors[3] == TensorInfo("c", "float32", (1, 3, 8, 8), node="act", op_type="Relu")
    assert source.samples == ("s0", "s1", "s2")
    assert source.ordered
    assert source.label.endswith("model.onnx on memory")
    values = everything(source)
    for index, sample in enumerate(source.samples):
        np.testing.assert_array_equal(values[sample, "image"], samples.feeds[index]["image"])
        np.testing.assert_array_equal(values[sample, "c"], np.maximum(values[sample, "b"], 0))
        np.testing.assert_array_equal(values[sample, "sum"], values[sample, "a"] + values[sample, "c"])


def test_reading_a_sample_runs_it_once(tmp_path: Path) -> None:
    samples = images(1, 1)
    source = LiveSource(loaded(residual(), tmp_path), samples)
    samples.asked.clear()

    everything(source)

    assert samples.asked == [0, 1]


def test_reading_in_any_order_is_correct(tmp_path: Path) -> None:
    source = LiveSource(loaded(residual(), tmp_path), images(1, 1))
    straight = everything(source)

    for sample, name in [("s1", "a"), ("s0", "sum"), ("s0", "image"), ("s1", "b"), ("s0", "a")]:
        np.testing.assert_array_equal(source.read(name, sample), straight[sample, name])


def test_the_next_sample_is_computed_meanwhile_once_the_order_is_clear(tmp_path: Path) -> None:
    samples = images(1, 1, 1, 1)
    source = LiveSource(loaded(residual(), tmp_path), samples)
    samples.asked.clear()

    source.read("a", "s0")
    assert samples.asked == [0]
    for sample in source.samples[1:]:
        source.read("sum", sample)

    assert samples.asked == [0, 1, 2, 3]
    np.testing.assert_array_equal(source.read("image", "s3"), samples.feeds[3]["image"])


def test_a_sample_computed_ahead_may_be_skipped(tmp_path: Path) -> None:
    source = LiveSource(loaded(residual(), tmp_path), images(1, 1, 1, 1))
    straight = everything(source)

    for sample in ("s0", "s1", "s3", "s0", "s1", "s2"):
        np.testing.assert_array_equal(source.read("sum", sample), straight[sample, "sum"])


def test_without_room_for_two_samples_nothing_is_computed_ahead(tmp_path: Path) -> None:
    model = loaded(residual(), tmp_path)
    samples = images(1, 1, 1)
    source = LiveSource(model, samples, max_memory=tight(model, LiveSource(model, images(1)), 4))
    assert source.estimate.passes == 1
    samples.asked.clear()

    source.read("sum", "s0")
    source.read("sum", "s1")

    assert samples.asked == [0, 1]


def test_a_failure_ahead_is_told_when_its_sample_is_read(tmp_path: Path) -> None:
    source = LiveSource(loaded(conv_net(), tmp_path), images(1, 1, 2, 1))
    source.read("logits", "s0")
    source.read("logits", "s1")

    for _ in range(2):
        with pytest.raises(BadInput, match="Sample 's2': input 'image' must be"):
            source.read("logits", "s2")
    assert source.read("logits", "s3").shape == (1, 10)


@pytest.mark.parametrize("build", [branches, residual])
def test_a_small_budget_changes_passes_not_values(tmp_path: Path, build: Any) -> None:
    model = loaded(build(), tmp_path)
    whole = LiveSource(model, images(1, 1))
    parts = LiveSource(model, images(1, 1), max_memory=tight(model, whole, 1))

    assert whole.estimate.passes == 1
    assert parts.estimate.passes > 1
    assert parts.estimate.memory_bytes <= tight(model, whole, 1)
    expected = everything(whole)
    for key, array in everything(parts).items():
        np.testing.assert_array_equal(array, expected[key])


def test_a_later_sample_may_be_larger(tmp_path: Path) -> None:
    model = loaded(conv_net("N"), tmp_path)
    whole = LiveSource(model, images(2, 7, 1))
    parts = LiveSource(model, images(2, 7, 1), max_memory=tight(model, LiveSource(model, images(7)), 1))

    values = everything(parts)

    assert values["s1", "logits"].shape == (7, 10)
    assert not whole.estimate.exact
    for key, array in everything(whole).items():
        np.testing.assert_array_equal(array, values[key])


def test_a_budget_that_is_too_small_is_refused(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="Capturing tensor 'a' takes about"):
        LiveSource(loaded(residual(), tmp_path), images(1), max_memory=1000)


def test_patterns_select_and_are_counted(tmp_path: Path) -> None:
    source = LiveSource(loaded(conv_net(), tmp_path), images(1), tensors=["conv*", "image"])

    assert [info.name for info in source.tensors] == ["image", "conv1", "conv2"]
    assert source.selection.matches == (("conv*", 2), ("image", 1))
    assert source.estimate.tensors == 3
    assert set(everything(source)) == {("s0", "image"), ("s0", "conv1"), ("s0", "conv2")}


def test_several_inputs_and_outputs(tmp_path: Path) -> None:
    feed = random_feed({"left": (2, 5), "right": (2, 5)})
    source = LiveSource(loaded(two_inputs(), tmp_path), MemorySamples([feed]))
    values = everything(source)
    np.testing.assert_array_equal(values["s0", "joined"], feed["left"] + values["s0", "scaled"])

    split = LiveSource(loaded(two_outputs(), tmp_path), MemorySamples([random_feed({"x": (1, 4, 3)})]))
    assert [split.output_index(info.name) for info in split.tensors] == [0, 0, 1, 0]


def test_the_estimate_counts_what_is_read(tmp_path: Path) -> None:
    source = LiveSource(loaded(residual(), tmp_path), images(1, 1))

    assert (source.estimate.tensors, source.estimate.samples, source.estimate.exact) == (5, 2, True)
    assert source.estimate.sample_bytes == sum(array.nbytes for array in everything(source).values()) // 2


def test_shapes_that_depend_on_values_are_measured(tmp_path: Path) -> None:
    nodes = [
        helper.make_node("NonZero", ["x"], ["where"], name="where"),
        helper.make_node("Gelu", ["x"], ["gelu"], name="gelu", domain="com.microsoft"),
    ]
    model = wrapped(
        nodes, [value("x", (2, 3))], [value("where", None, TensorProto.INT64), value("gelu")],
        domains={"com.microsoft": 1},
    )  # fmt: skip
    feeds = [{"x": np.array([[1, 0, 2], [0, 0, 3]], np.float32)}, {"x": np.ones((2, 3), np.float32)}]

    source = LiveSource(loaded(model, tmp_path), MemorySamples(feeds))

    assert {info.name: (info.dtype, info.shape) for info in source.tensors} == {
        "x": ("float32", (2, 3)),
        "where": ("int64", (2, 3)),
        "gelu": ("float32", (2, 3)),
    }
    assert not source.estimate.exact
    assert source.read("where", "s1").shape == (2, 6)


def test_values_that_are_no_numbers_are_listed_and_refused(tmp_path: Path) -> None:
    source = LiveSource(loaded(with_sequence(), tmp_path), MemorySamples([random_feed({"x": (2, 3)})]))

    problems = {info.name: info.problem for info in source.tensors}
    assert problems["parts"] == "it is of the kind sequence, not a tensor"
    assert problems["text"] == "it holds text, not numbers"
    assert source.estimate.tensors == 3
    np.testing.assert_array_equal(source.read("joined", "s0"), source.read("x", "s0"))
    with pytest.raises(BadInput, match="Tensor 'parts' cannot be read: it is of the kind sequence"):
        source.read("parts", "s0")


@pytest.mark.parametrize(
    ("elem_type", "dtype"),
    [
        (TensorProto.BFLOAT16, "float32"),
        (TensorProto.FLOAT8E4M3FN, "float32"),
        (TensorProto.INT4, "int8"),
        (TensorProto.UINT4, "uint8"),
        (TensorProto.FLOAT16, "float16"),
        (TensorProto.BOOL, "bool"),
    ],
)
def test_every_type_is_read_without_loss(tmp_path: Path, elem_type: int, dtype: str) -> None:
    nodes = [
        helper.make_node("Cast", ["x"], ["narrow"], to=elem_type),
        helper.make_node("Cast", ["narrow"], ["y"], to=TensorProto.FLOAT),
    ]
    model = loaded(wrapped(nodes, [value("x", (1, 4))], [value("y")], opset=21, ir_version=10), tmp_path)
    source = LiveSource(model, MemorySamples([{"x": np.array([[0, 1, 2, 5]], np.float32)}]))

    narrow = source.read("narrow", "s0")

    assert narrow.dtype.name == dtype == source.tensors[1].dtype
    np.testing.assert_array_equal(narrow.astype(np.float32), source.read("y", "s0"))


def test_branches_of_an_if_run_and_their_inside_is_out_of_reach(tmp_path: Path) -> None:
    model = loaded(with_if(), tmp_path)
    samples = MemorySamples([{"x": np.ones((1, 3), np.float32)}, {"x": -np.ones((2, 3), np.float32)}])

    values = everything(LiveSource(model, samples))

    np.testing.assert_array_equal(values["s0", "chosen"], np.full((1, 3), -2))
    np.testing.assert_array_equal(values["s1", "chosen"], np.full((2, 3), -2))
    with pytest.raises(BadInput) as caught:
        LiveSource(model, samples, tensors=["inner*"])
    assert "computed inside node 'choose'" in caught.value.fix


def test_a_model_without_inputs_runs(tmp_path: Path) -> None:
    shape = numpy_helper.from_array(np.array([2, 2]), "shape")
    model = loaded(single_node(helper.make_node("ConstantOfShape", ["shape"], ["y"]), [], [shape]), tmp_path)

    assert not LiveSource(model, NO_INPUTS).read("y", "").any()


def test_samples_that_do_not_fit_are_named(tmp_path: Path) -> None:
    model = loaded(conv_net(), tmp_path)
    with pytest.raises(BadInput, match=r"Sample 's0': input 'image' must be float32 \[1, 3, 8, 8\], got"):
        LiveSource(model, images(2))
    source = LiveSource(model, images(1, 2))
    source.read("logits", "s0")
    with pytest.raises(BadInput, match="Sample 's1'"):
        source.read("logits", "s1")
    assert source.read("logits", "s0").shape == (1, 10)


def test_a_sample_the_model_fails_on_is_named(tmp_path: Path) -> None:
    node = helper.make_node("Gather", ["table", "x"], ["y"], name="look up")
    table = numpy_helper.from_array(np.arange(4, dtype=np.float32), "table")
    model = loaded(single_node(node, [value("x", (1,), TensorProto.INT64)], [table]), tmp_path)
    source = LiveSource(model, MemorySamples([{"x": np.array([3])}, {"x": np.array([9])}]))

    assert source.read("y", "s0") == 3
    with pytest.raises(ModelFailed, match=r"failed on sample 's1': .*look up"):
        source.read("y", "s1")


def test_unknown_tensors_and_samples_are_refused(tmp_path: Path) -> None:
    source = LiveSource(loaded(conv_net(), tmp_path), images(1))
    with pytest.raises(BadInput, match="has no tensor 'pooled_'") as caught:
        source.read("pooled_", "s0")
    assert caught.value.fix == "did you mean 'pooled'?"
    with pytest.raises(BadInput, match="has no sample 's9'"):
        source.read("conv1", "s9")
