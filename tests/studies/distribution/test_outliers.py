"""The outlier table against plain numpy, and its edges."""

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import TensorProto, helper

from roundoff.core.tensors import Array
from roundoff.errors import BadInput
from roundoff.graph.quantized_model import QuantizedModel
from roundoff.studies.distribution.result import OUTLIER_LEVELS, OutlierReport
from roundoff.studies.distribution.study import InspectionSettings, find_outliers
from tests.models import conv_net, loaded, random_feed, value, with_sequence, wrapped
from tests.run.samples import MemorySamples
from tests.studies.layers.support import demo_network, float_values


@pytest.fixture(scope="module")
def copying(tmp_path_factory: pytest.TempPathFactory) -> QuantizedModel:
    nodes = [helper.make_node("Identity", ["x"], ["y"], name="copy")]
    graph = wrapped(nodes, [value("x", ("N", "C"))], [value("y")])
    return QuantizedModel(loaded(graph, tmp_path_factory.mktemp("copy")), ())


def table(copying: QuantizedModel, *samples: Array, base: float = 2.0, axis: int | None = None) -> OutlierReport:
    feeds = MemorySamples([{"x": np.atleast_2d(np.asarray(each, np.float32))} for each in samples])
    return find_outliers(copying, feeds, InspectionSettings(("copy",), log_base=base, axis=axis))


def test_levels_are_counted_where_they_begin(copying: QuantizedModel) -> None:
    # Of 64: level 0, exactly 3, just below 3, exactly 6, 7, and a channel that is always zero.
    (row,) = table(copying, np.array([[-64, 8, 8.001, 1, 0.5, 0]])).rows
    assert row.at_least == {"3": 3, "4": 2, "5": 2, "6": 2}
    assert (row.channels, row.sparse, row.largest, row.largest_channel) == (6, 1, 64, 0)
    assert row.share(3) == 0.5
    assert row.sparse_share == pytest.approx(1 / 6)


def test_another_base(copying: QuantizedModel) -> None:
    (row,) = table(copying, np.array([[1000.0, 1.0, 0.0625]]), base=10).rows
    assert row.at_least == {"3": 2, "4": 1, "5": 0, "6": 0}
    with pytest.raises(BadInput, match=r"logarithm to the base 1.0 has no levels"):
        table(copying, np.array([[1.0]]), base=1.0)


def test_the_largest_of_all_samples_counts(copying: QuantizedModel) -> None:
    (row,) = table(copying, np.array([[1, 1, 1]]), np.array([[-100, 50, 2]])).rows
    assert row.at_least == {"3": 1, "4": 1, "5": 1, "6": 0}


def test_another_axis(copying: QuantizedModel) -> None:
    (row,) = table(copying, np.array([[1, 2], [100, 3]]), axis=0).rows
    assert (row.axis, row.channels, row.at_least["5"]) == (0, 2, 1)
    with pytest.raises(BadInput, match=r"No tensor has channels that can be counted: 'y': it has no axis 5\."):
        table(copying, np.array([[1, 2]]), axis=5)


@settings(deadline=None)
@given(st.lists(st.lists(st.floats(-1e3, 1e3, width=16), min_size=7, max_size=7), min_size=1, max_size=4))
def test_shares_are_those_of_the_definition(copying: QuantizedModel, rows: list[list[float]]) -> None:
    values = np.array(rows, np.float32)
    (row,) = table(copying, *values).rows
    largest = np.abs(values.astype(np.float64)).max(axis=0)
    assert row.sparse == np.count_nonzero(largest == 0)
    with np.errstate(divide="ignore"):
        level = np.log2(largest.max() / largest[largest > 0]) if largest.any() else np.zeros(0)
    for bound in OUTLIER_LEVELS:
        assert row.at_least[str(bound)] == np.count_nonzero(level >= bound - 1e-12)


def test_every_tensor_of_a_network_in_execution_order() -> None:
    quantized, samples = demo_network()
    report = find_outliers(quantized, samples)
    computed = [float_values(quantized, feed) for feed in samples.feeds]
    assert [row.order for row in report.rows] == list(range(len(report.rows)))
    for row in report.rows:
        values = np.concatenate([each[row.tensor] for each in computed])
        axes = tuple(axis for axis in range(values.ndim) if axis != row.axis)
        largest = np.abs(values).max(axis=axes)
        assert row.largest == pytest.approx(largest.max(), rel=1e-5)
        assert row.at_least["3"] == np.count_nonzero((largest > 0) & (largest * 8 <= largest.max()))
    labels = {row.tensor: row.quantized for row in report.rows}
    assert labels["image"] == "u8"
    assert labels["stem/conv"] == "fused"


def test_names_choose_tensors_and_nodes(tmp_path: Path) -> None:
    model = QuantizedModel(loaded(conv_net(), tmp_path), ())
    samples = MemorySamples([random_feed({"image": (1, 3, 8, 8)})])
    chosen = find_outliers(model, samples, InspectionSettings(("Relu*", "logits")))
    assert [row.tensor for row in chosen.rows] == ["relu1", "relu2", "logits"]
    with pytest.raises(BadInput, match="'relu9' names no node and no computed tensor") as caught:
        find_outliers(model, samples, InspectionSettings(("relu9",)))
    assert "did you mean" in caught.value.fix


def test_tensors_without_channels_have_no_row(tmp_path: Path) -> None:
    model = QuantizedModel(loaded(with_sequence(), tmp_path), ())
    report = find_outliers(model, MemorySamples([random_feed({"x": (2, 3)})]))
    assert [row.tensor for row in report.rows] == ["x", "joined", "y"]
    assert str(report.skipped["parts"]) == "it is of the kind sequence, not a tensor"
    assert str(report.skipped["text"]) == "it holds text, not numbers"


def test_whole_numbers_and_changing_channels_are_left_out(tmp_path: Path) -> None:
    nodes = [
        helper.make_node("Cast", ["x"], ["whole"], name="cast", to=TensorProto.INT32),
        helper.make_node("Relu", ["x"], ["y"], name="act"),
        helper.make_node("Transpose", ["x"], ["turned"], name="turn"),
        helper.make_node("Softmax", ["turned"], ["soft"], name="soft", axis=0),
    ]
    graph = wrapped(nodes, [value("x", (2, "C"))], [value("y"), value("whole", None, 6), value("soft")])
    model = QuantizedModel(loaded(graph, tmp_path), ())
    samples = MemorySamples([random_feed({"x": (2, 3)}), random_feed({"x": (2, 4)})])
    report = find_outliers(model, samples, InspectionSettings(axis=1))
    assert [row.tensor for row in report.rows] == ["turned", "soft"]
    assert str(report.skipped["whole"]) == "its values are of the type int32"
    assert str(report.skipped["y"]) == "3 channels in one sample and 4 in another"


def test_what_is_not_finite_is_left_out(copying: QuantizedModel) -> None:
    (row,) = table(copying, np.array([[np.nan, 1, 0, np.inf], [np.inf, 32, 0, 2]])).rows
    assert (row.largest, row.largest_channel, row.sparse, row.nonfinite) == (32, 1, 1, 3)
    assert row.at_least["4"] == 1


def test_a_tensor_without_finite_values_is_no_tensor_without_outliers(copying: QuantizedModel) -> None:
    with pytest.raises(BadInput, match="none of its values is finite") as refused:
        table(copying, np.full((2, 4), np.nan))
    assert "dump --stats-only" in refused.value.fix
