"""Codes and the numbers they stand for."""

import csv
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from roundoff.cli import main
from roundoff.vendors.ascend.errors import NotCompared
from roundoff.vendors.ascend.layouts import Fitted
from roundoff.vendors.ascend.scales import LayerScale, decode_codes, decode_sums
from tests.ascend_dumps import TIME, item, write_dump
from tests.vendors.ascend.models import op, output, write_model
from tests.vendors.ascend.networks import golden_folder


@given(
    st.lists(st.integers(-128, 127), min_size=3, max_size=50).filter(lambda codes: len(set(codes)) > 1),
    st.floats(0.01, 0.9),
    st.floats(-5, 5),
)
def test_scale_and_offset_are_found(codes: list[int], scale: float, offset: float) -> None:
    mine = np.array(codes, np.int8)
    golden = (mine * np.float64(scale) + offset).astype(np.float32)
    found, told = decode_codes(Fitted(mine, golden, mine.shape), None)
    np.testing.assert_allclose(found.mine, golden, atol=1e-3)
    assert "No file tells the scale of these codes; fitted" in told


def test_codes_stay_where_there_is_no_line_or_the_golden_tensor_has_codes() -> None:
    codes = np.arange(4, dtype=np.int8)
    for mine, golden in (
        (codes, codes.astype(np.float32)),
        (np.zeros(4, np.int8), codes.astype(np.float32)),
        (codes[:0], codes[:0].astype(np.float32)),
    ):
        found, told = decode_codes(Fitted(mine, golden, mine.shape), None)
        assert (found.mine is mine, told) == (True, "")
    halves = codes.astype(np.float32) / 2
    broken = np.array([np.nan, 0.5, 1, 1.5], np.float32)
    for mine, gold in ((codes, -halves), (np.zeros(4, np.int8), halves), (codes, broken)):
        with pytest.raises(NotCompared):
            decode_codes(Fitted(mine, gold, codes.shape), None)


@given(st.integers(-128, 127), st.floats(0.001, 3))
def test_codes_are_decoded_by_the_scale_of_a_file(offset: int, step: float) -> None:
    mine = np.arange(-128, 128).astype(np.int8)
    # The golden numbers do not matter: another scale than that of the file shows.
    golden = mine.astype(np.float32) * 1.7 + 0.1
    found, told = decode_codes(Fitted(mine, golden, mine.shape), LayerScale("record.txt", step, offset))
    expected = [(code - offset) * step for code in range(-128, 128)]
    np.testing.assert_allclose(found.mine, expected, rtol=1e-6)
    assert "of record.txt" in told


@pytest.mark.parametrize(("shape", "layout", "axis"), [((2, 3, 4, 5), "NCHW", 1), ((2, 4, 5, 3), "NHWC", 3),
                                                       ((2, 3), "ND", 1), ((3,), "ND", 0)])  # fmt: skip
def test_sums_are_decoded_channel_by_channel(shape: tuple[int, ...], layout: str, axis: int) -> None:
    sums = np.arange(np.prod(shape), dtype=np.int32) * 7 - 40
    steps = (0.5, 0.25, 2.0)
    golden = np.full(sums.size, 0.5, np.float32)
    found, _ = decode_sums(Fitted(sums, golden, shape), LayerScale("r", sums=steps), layout=layout)
    expected = np.moveaxis(np.moveaxis(sums.reshape(shape).astype(np.float64), axis, -1) * steps, -1, axis)
    np.testing.assert_allclose(found.mine, expected.reshape(-1))
    with pytest.raises(NotCompared):
        decode_sums(Fitted(sums, golden, shape), LayerScale("r", sums=(1.0,) * 7), layout=layout)


def test_a_fused_network_is_compared_throughout(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    # As compilers leave it: convolution, dequantizer, relu and the next quantizer are one operator.
    rng = np.random.default_rng(1)
    relu = np.maximum(rng.normal(size=(1, 16, 4, 4)), 0).astype(np.float32)
    data = rng.normal(size=(1, 16, 4, 4)).astype(np.float32)
    golden_folder(tmp_path / "golden", {"x": data, "conv": relu, "relu": relu})
    (tmp_path / "npu").mkdir()
    codes = {name: np.clip(np.round(array * 40), -128, 127).astype(np.int8) for name, array in
             (("x", data), ("relu", relu))}  # fmt: skip
    write_dump(tmp_path / "npu" / f"AscendQuant.x_quant.1.1.{TIME}", [item(codes["x"])], [item(data)])
    name = "convconv_dequantrelunext_quant"
    outputs = [item(relu.astype(np.float16)), item(codes["relu"])]
    write_dump(tmp_path / "npu" / f"Conv2D.{name}.2.1.{TIME + 1}", outputs, [item(codes["x"])])
    shape = data.shape
    rules = write_model(
        tmp_path / "m.json", op("x", "Data", outputs=[output(shape)]),
        op("x.quant", "AscendQuant", inputs=["x:0"], outputs=[output(shape, dtype="DT_INT8")]),
        op("convconv.dequantrelunext.quant", "Conv2D", inputs=["x.quant:0"],
           originals=["conv", "conv.dequant", "relu", "next.quant"],
           outputs=[output(shape, origin="relu", index=0),
                    output(shape, origin="next.quant", index=0, dtype="DT_INT8")]),
    )  # fmt: skip
    words = ["-m", tmp_path / "npu", "-g", tmp_path / "golden", "-f", rules, "-out", tmp_path / "out"]
    main(["ascend", "compare", *map(str, words)])
    (table,) = (tmp_path / "out").glob("result_*.csv")
    with table.open(newline="") as lines:
        rows = {row["TensorIndex"]: row for row in csv.DictReader(lines) if row["TensorIndex"] != "NaN"}
    assert len(rows) == 5
    assert all(float(row["CosineSimilarity"]) > 0.99 for row in rows.values()), rows
    assert "compared  5 tensors" in capsys.readouterr().out
