"""Record files in all dialects."""

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from roundoff.errors import BadInput
from roundoff.vendors.amct.records import (
    LayerRecord,
    check_record,
    read_records,
    record_bits,
    record_text,
    write_records,
)
from tests.vendors.amct.support import VECTORS, vectors


def read(folder: Path, text: str) -> dict[str, LayerRecord]:
    path = folder / "record.txt"
    path.write_text(text, encoding="utf-8")
    return read_records(path)


@vectors
@pytest.mark.parametrize(
    "name",
    ["ascend_samples/caffe_resnet50_record_trimmed.txt",
     "ascend_samples/tf_mobilenet_v2_record_quantized_trimmed.txt",
     "hicann_amct_tests/quantize_model_002_record.txt", "hicann_amct_tests/quantize_tool_model_001_record.txt"],
)  # fmt: skip
def test_real_records_are_written_as_they_were(name: str) -> None:
    records = read_records(VECTORS / name)
    for layer, record in records.items():
        check_record(layer, record, channels=len(record.scale_w))
    assert record_text(records).strip() == (VECTORS / name).read_text(encoding="utf-8").strip()


@vectors
def test_the_invalid_record_is_refused_by_layer_and_value() -> None:
    records = read_records(VECTORS / "hicann_amct_tests/custom_op_conv_model_record.txt")
    bad = {}
    for layer, record in records.items():
        try:
            check_record(layer, record, channels=1)
        except ValueError as error:
            bad[layer] = str(error)
    assert set(bad) == {"conv3", "conv8"}
    assert "'conv3' has scale_d 0; it must be positive" in bad["conv3"]


@vectors
def test_a_record_of_weights_alone_is_not_complete() -> None:
    records = read_records(VECTORS / "hicann_amct_tests/custom_op_conv_model_w_record.txt")
    with pytest.raises(ValueError, match="was not calibrated"):
        check_record("conv1", records["conv1"], channels=4)


def test_the_dialect_with_inputs_in_messages_of_their_own(tmp_path: Path) -> None:
    text = """record { key: "c" value { scale_w: 0.5 offset_w: 0 num_bits_w: 8 object_layer: "d"
        record_d { scale_d: 0.25 offset_d: -3 index: 0 channels: 4 height: 1 width: 1 num_bits_d: 8 } } }"""
    found = read(tmp_path, text)["c"]
    assert (found.scale_d, found.offset_d, found.scale_w) == (0.25, -3, (0.5,))
    assert record_bits(found, "wts") == 8


def test_fields_we_do_not_use_survive(tmp_path: Path) -> None:
    text = """record { key: "a" value { scale_d: 1 offset_d: 0 channels: 3 height: 1 width: 2 skip_fusion: true
        act_type: "INT16" } }
        record { key: "kv" kv_cache_value { scale: 0.5 offset: 1 } } prune_record { producer { name: "x" } }"""
    found = read(tmp_path, text)
    assert record_bits(found["a"], "act") == 16
    again = read(tmp_path, record_text(found))
    assert again == found or record_text(again) == record_text(found)
    assert "kv_cache_value {" in record_text(found)


@pytest.mark.parametrize(
    ("record", "message"),
    [
        (LayerRecord(float("nan"), 0, (1.0,)), "scale_d nan"),
        (LayerRecord(1.0, 128, (1.0,)), "offset_d 128; codes go from -128 to 127"),
        (LayerRecord(1.0, 0, (1.0, 0.0, 1.0)), "scale_w 0"),
        (LayerRecord(1.0, 0, (1.0,), (1,)), "offset_w that is not 0"),
        (LayerRecord(1.0, 0, (1.0, 1.0)), "2 values of scale_w; 1 or 3 are possible"),
        (LayerRecord(1.0, 0, (1.0,), (0, 0)), "1 scale_w and 2 offset_w"),
        (LayerRecord(1.0, 0, (1.0,), (), (0, 3)), "shift_bit values of 0 to 3"),
        (LayerRecord(1.0, 0, (1.0,), tensor_balance_factor=(-1.0,)), "tensor_balance_factor -1"),
    ],
)
def test_what_means_nothing_is_refused(record: LayerRecord, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        check_record("c", record, channels=3)


def test_a_layer_stands_in_a_file_once(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="a second record of 'a'"):
        read(tmp_path, 'record { key: "a" value { } } record { key: "a" value { } }')


def test_unknown_fields_are_refused(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match=r"line 1: value has no field 'scale_x'"):
        read(tmp_path, 'record { key: "a" value { scale_x: 1 } }')


@given(
    st.lists(st.floats(2.0**-100, 2.0**100, width=32), min_size=1, max_size=5),
    st.integers(-128, 127),
    st.text(min_size=1, max_size=8),
)
def test_float32_scales_come_back_exactly(
    tmp_path_factory: object, scales: list[float], offset: int, name: str
) -> None:
    record = LayerRecord(scales[0], offset, tuple(scales), (0,) * len(scales))
    path = tmp_path_factory.mktemp("records") / "record.txt"  # type: ignore[attr-defined]
    write_records(path, {name: record})
    found = read_records(path)[name]
    np.testing.assert_array_equal(np.asarray(found.scale_w, np.float32), np.asarray(scales, np.float32))
    assert (np.float32(found.scale_d or 0), found.offset_d) == (np.float32(scales[0]), offset)
