"""The safetensors layout, read directly."""

import json
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest
from safetensors.numpy import save_file

from roundoff.core.tensors import Array, TensorInfo
from roundoff.errors import BadInput
from roundoff.tensors import open_source


def put(path: Path, header: object, values: bytes = b"") -> None:
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    path.write_bytes(len(text).to_bytes(8, "little") + text + values)


def entry(dtype: str, shape: list[int], begin: int, end: int) -> dict[str, object]:
    return {"dtype": dtype, "shape": shape, "data_offsets": [begin, end]}


def problem_of(path: Path, name: str) -> str:
    return next(info.problem for info in open_source(path).tensors if info.name == name)


def test_reads_what_the_package_writes(tmp_path: Path) -> None:
    arrays = {
        "layer10": np.arange(6, dtype=np.float32).reshape(2, 3),
        "layer2": np.array([True, False]),
        "empty": np.zeros((0, 3), np.int64),
        "scalar": np.array(4, np.uint8),
    }
    save_file(arrays, tmp_path / "a.safetensors", metadata={"note": "x"})
    source = open_source(tmp_path / "a.safetensors")
    assert [info.name for info in source.tensors] == ["empty", "layer2", "layer10", "scalar"]
    for name, array in arrays.items():
        np.testing.assert_array_equal(source.read(name, ""), array)
    assert not source.read("layer10", "").flags.owndata


@pytest.mark.parametrize(
    ("code", "dtype"),
    [
        ("BF16", ml_dtypes.bfloat16),
        ("F8_E4M3", ml_dtypes.float8_e4m3fn),
        ("F8_E5M2", ml_dtypes.float8_e5m2),
        ("F8_E8M0", ml_dtypes.float8_e8m0fnu),
    ],
)
def test_small_floats_are_read_exactly_as_float32(tmp_path: Path, code: str, dtype: type) -> None:
    truth: Array = np.array([1.0, 2.0, 0.25]).astype(dtype)
    put(tmp_path / "a.safetensors", {"x": entry(code, [3], 0, truth.nbytes)}, truth.tobytes())
    source = open_source(tmp_path / "a.safetensors")
    assert source.tensors == (TensorInfo("x", truth.dtype.name, (3,)),)
    values = source.read("x", "")
    assert values.dtype == np.float32
    np.testing.assert_array_equal(values, truth.astype(np.float32))


def test_damaged_entries_are_rows_with_problems(tmp_path: Path) -> None:
    path = tmp_path / "a.safetensors"
    header = {
        "good": entry("F32", [2], 0, 8),
        "beyond": entry("F32", [2], 4, 12),
        "short": entry("F32", [3], 0, 8),
        "reversed": entry("U8", [0], 8, 0),
        "negative": entry("U8", [1], -9, -8),
        "packed": entry("F4", [4], 0, 2),
        "strange": {"dtype": "F32"},
        "worse": 7,
        "huge": entry("U8", [2**62, 2**62], 0, 8),
    }
    put(path, header, bytes(8))
    problems = {info.name: info.problem for info in open_source(path).tensors}
    assert problems == {
        "good": "",
        "beyond": "truncated: 4 of 8 bytes",
        "short": "damaged: 8 bytes at 0 for float32 [3], which takes 12",
        "reversed": "damaged: -8 bytes at 8 for uint8 [0], which takes 0",
        "negative": "its entry in the header is damaged",
        "packed": "holds values of type 'F4', which are not read",
        "strange": "its entry in the header is damaged",
        "worse": "its entry in the header is damaged",
        "huge": f"its header claims the impossible shape {[2**62, 2**62]}",
    }


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"", "is empty"),
        (b"\xff" * 20, "is not a complete .safetensors file"),
        ((4).to_bytes(8, "little") + b"{]x}", "its .safetensors header is damaged"),
        ((2).to_bytes(8, "little") + b"[]", "its .safetensors header is damaged"),
        ((2).to_bytes(8, "little") + b"{}", "holds no tensors"),
    ],
)
def test_a_damaged_file_is_bad_input(tmp_path: Path, content: bytes, reason: str) -> None:
    (tmp_path / "a.safetensors").write_bytes(content)
    with pytest.raises(BadInput, match=reason):
        open_source(tmp_path / "a.safetensors")


def test_the_parts_of_a_checkpoint_are_one_sample(tmp_path: Path) -> None:
    save_file({"a": np.zeros(1)}, tmp_path / "model-00001-of-00002.safetensors")
    save_file({"b": np.zeros(1)}, tmp_path / "model-00002-of-00002.safetensors")
    source = open_source(tmp_path)
    assert source.samples == ("",)
    assert [info.name for info in source.tensors] == ["a", "b"]


def test_files_with_the_same_tensors_are_samples(tmp_path: Path) -> None:
    for sample in ("img1", "img2"):
        save_file({"a": np.array([sample == "img2"])}, tmp_path / f"{sample}.safetensors")
    source = open_source(tmp_path)
    assert source.samples == ("img1", "img2")
    assert source.read("a", "img2").tolist() == [True]


@pytest.mark.parametrize("dtype", [[], {}, None, 3, "F3"])
def test_a_type_that_is_none_is_a_problem(tmp_path: Path, dtype: object) -> None:
    put(tmp_path / "a.safetensors", {"x": {"dtype": dtype, "shape": [1], "data_offsets": [0, 4]}}, bytes(4))
    assert "which are not read" in problem_of(tmp_path / "a.safetensors", "x")


def test_a_name_that_is_no_text_is_spelled_out_and_refused(tmp_path: Path) -> None:
    put(tmp_path / "a.safetensors", {"\ud800x": entry("F32", [1], 0, 4), "y": entry("F32", [1], 4, 8)}, bytes(8))
    source = open_source(tmp_path / "a.safetensors")
    problems = {info.name: info.problem for info in source.tensors}
    assert problems == {r"\ud800x": "its name is not valid Unicode", "y": ""}
    with pytest.raises(BadInput, match="its name is not valid Unicode"):
        source.read(r"\ud800x", "")
