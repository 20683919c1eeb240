"""LiteRT models become ONNX at the door, and compute the integers that LiteRT computes."""

from pathlib import Path

import numpy as np
import pytest
from benchmarks.fuzz.mutations import mutate_bytes
from benchmarks.fuzz.seeds import small_lite

from roundoff.errors import BadInput
from roundoff.graph.litert.schema import read_lite
from roundoff.graph.load import load_model
from roundoff.graph.readers import read_quantized
from roundoff.quantize.targets.files import load_target
from roundoff.run.integer.machine import IntegerRunner
from tests.real_models import tool_files


def _written(folder: Path, data: bytes) -> Path:
    path = folder / "m.tflite"
    path.write_bytes(data)
    return path


def test_a_layer_in_eight_bits(tmp_path: Path) -> None:
    quantized = read_quantized(load_model(_written(tmp_path, small_lite())))
    graph = quantized.float_model.proto.graph
    assert [value.name for value in (*graph.input, *graph.output)] == ["x", "y"]
    (weight,) = (each for each in quantized.quantizers if each.kind == "weight")
    codes = np.random.default_rng(0).integers(-127, 128, (3, 3, 3, 2)).astype(np.int64)
    x = np.random.default_rng(1).integers(-128, 128, (1, 4, 4, 2)).astype(np.int64)
    padded = np.pad(x, [(0, 0), (1, 1), (1, 1), (0, 0)])
    # Sums of codes by loops, brought to the output's scale with one rounding where LiteRT has two.
    sums = np.array([
        [[(padded[0, i : i + 3, j : j + 3] * codes[o]).sum() + o for o in range(3)] for j in range(4)]
        for i in range(4)
    ])  # fmt: skip
    wanted = np.clip(np.rint(sums * np.array([0.02, 0.01, 0.03]) * 0.1 / 0.05), 0, 127) * 0.05
    runner = IntegerRunner(quantized.float_model, quantized.quantizers, load_target("litert").arithmetic)
    made = runner.run({"x": (x * np.float32(0.1)).astype(np.float32)}, ["y"]).values["y"][0]
    assert np.abs(made - wanted).max() <= 0.0501
    assert np.mean(np.abs(made - wanted) < 1e-4) > 0.9
    assert weight.params.scale.size == 3


@pytest.mark.parametrize("network", ["det", "resnet8"])
def test_integers_of_litert_end_to_end(network: str) -> None:
    path = tool_files(f"litert/{network}/{network}_int8.tflite")
    lite, quantized = read_lite(path), read_quantized(load_model(path))
    values = np.load(tool_files(f"litert/{network}/{network}_int8_s1.npz"))

    def real(place: int) -> np.ndarray:
        scales = lite.tensors[place].scales
        assert scales is not None
        codes = np.asarray(values[str(place)], np.float32)
        return np.asarray((codes - scales.zero_point[0]) * scales.scale[0], np.float32)

    runner = IntegerRunner(quantized.float_model, quantized.quantizers, load_target("litert").arithmetic)
    ends = [
        each.name for each in (*quantized.float_model.proto.graph.input, *quantized.float_model.proto.graph.output)
    ]
    made = runner.run({ends[0]: real(lite.inputs[0])}, ends[1:]).values[ends[1]]
    np.testing.assert_allclose(made, real(lite.outputs[0]), atol=1e-6)


def test_files_that_are_none(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match=r"is no \.tflite model"):
        load_model(_written(tmp_path, b"hello, this is text"))
    with pytest.raises(BadInput, match="cut short or damaged"):
        load_model(_written(tmp_path, small_lite()[: len(small_lite()) // 2]))


def test_damaged_files_are_named(tmp_path: Path) -> None:
    rng, seed, refused = np.random.default_rng(5), small_lite(), 0
    for _ in range(60):
        try:
            load_model(_written(tmp_path, mutate_bytes(seed, rng)))
        except BadInput:
            refused += 1
    assert refused > 10
