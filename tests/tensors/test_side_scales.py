"""Codes with scales in a file beside them are read as the values that they stand for."""

import json
from pathlib import Path

import numpy as np
import pytest

from roundoff.errors import BadInput
from roundoff.tensors import open_source

CODES = np.array([[-128, -3, 0, 5, 127]], np.int8)
SCALE, ZERO = 0.25, -3
VALUES = ((CODES.astype(np.float64) - ZERO) * SCALE).astype(np.float32)


def stored(folder: Path) -> Path:
    np.save(folder / "conv1_out.npy", CODES)
    np.save(folder / "other.npy", CODES)
    np.save(folder / "real.npy", VALUES)
    return folder


@pytest.mark.parametrize(
    ("file", "text"),
    [
        ("scales.json", json.dumps({"conv1/out": {"scale": SCALE, "zero_point": ZERO}, "real": {"scale": 7}})),
        ("scales.json", json.dumps({"conv1_out": [SCALE, ZERO]})),
        ("quant_params.json", json.dumps({"tensors": [{"name": "conv1.out", "scale": [SCALE], "zp": [ZERO]}]})),
        ("scales.csv", f"name,scale,zero_point\nconv1_out,{SCALE},{ZERO}\n"),
    ],
)
def test_codes_become_values(tmp_path: Path, file: str, text: str) -> None:
    (stored(tmp_path) / file).write_text(text, encoding="utf-8")
    source = open_source(tmp_path)
    infos = {info.name: info for info in source.tensors}
    assert infos["conv1_out"].dtype == "float32"
    assert np.array_equal(source.read("conv1_out", ""), VALUES)
    assert np.array_equal(source.read("other", ""), CODES)
    assert np.array_equal(source.read("real", ""), VALUES)


def test_of_an_archive_the_scales_lie_beside_it(tmp_path: Path) -> None:
    np.savez(tmp_path / "all.npz", conv1_out=CODES)
    (tmp_path / "scales.json").write_text(json.dumps({"conv1_out": [SCALE, ZERO]}), encoding="utf-8")
    for path in (tmp_path, tmp_path / "all.npz"):
        assert np.array_equal(open_source(path).read("conv1_out", ""), VALUES)


@pytest.mark.parametrize(
    "text",
    ['{"a": {"scale": 0}}', '{"a": "x"}', "[]", "3", '{"a": [0.1, 0.5]}', '{"a": [true, 0]}', '{"a": [1e999, 0]}'],
)
def test_what_is_no_file_of_scales_is_refused(tmp_path: Path, text: str) -> None:
    (stored(tmp_path) / "scales.json").write_text(text, encoding="utf-8")
    with pytest.raises(BadInput, match="is no file of scales"):
        open_source(tmp_path)


def test_two_files_of_scales_are_refused(tmp_path: Path) -> None:
    for name in ("scales.json", "scales.csv"):
        (stored(tmp_path) / name).write_text("{}", encoding="utf-8")
    with pytest.raises(BadInput, match="several files of scales"):
        open_source(tmp_path)
