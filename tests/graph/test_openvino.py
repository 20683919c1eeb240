"""OpenVINO models become ONNX at the door."""

import shutil
from pathlib import Path

import numpy as np
import onnxruntime
import pytest
from benchmarks.fuzz.mutations import mutate_text

from roundoff.errors import BadInput
from roundoff.graph.load import load_model
from roundoff.graph.readers import read_quantized
from tests.real_models import tool_files

_PORT = '<port id="{}" precision="FP32"><dim>1</dim><dim>2</dim></port>'
_LAYER = '<layer id="{}" name="{}" type="{}" version="opset1">{}</layer>'


def small_ir(folder: Path, kind: str = "FakeQuantize") -> Path:
    """x -> FakeQuantize from -1 to 1 in 255 steps -> Relu -> y."""
    stored = '<data element_type="f32" shape="" offset="{}" size="4"/><output><port id="0"/></output>'
    ends = [_LAYER.format(at + 1, name, "Const", stored.format(4 * at)) for at, name in enumerate(("low", "high"))]
    ports = "".join(f'<port id="{at}"/>' for at in range(1, 5))
    layers = [
        _LAYER.format(
            0, "x", "Parameter", f'<data element_type="f32" shape="1,2"/><output>{_PORT.format(0)}</output>'
        ),
        *ends,
        _LAYER.format(
            3,
            "fq",
            kind,
            f'<data levels="255"/><input>{_PORT.format(0)}{ports}</input><output>{_PORT.format(5)}</output>',
        ),
        _LAYER.format(4, "y", "ReLU", f"<input>{_PORT.format(0)}</input><output>{_PORT.format(1)}</output>"),
        _LAYER.format(5, "end", "Result", f"<input>{_PORT.format(0)}</input>"),
    ]
    edges = [(0, 0, 3, 0), (1, 0, 3, 1), (2, 0, 3, 2), (1, 0, 3, 3), (2, 0, 3, 4), (3, 5, 4, 0), (4, 1, 5, 0)]
    lines = "".join(
        f'<edge from-layer="{a}" from-port="{b}" to-layer="{c}" to-port="{d}"/>' for a, b, c, d in edges
    )
    path = folder / "m.xml"
    path.write_text(f'<net name="m" version="11"><layers>{"".join(layers)}</layers><edges>{lines}</edges></net>')
    path.with_suffix(".bin").write_bytes(np.array([-1, 1], "<f4").tobytes())
    return path


def _run(path: Path, feed: np.ndarray) -> np.ndarray:
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    session = onnxruntime.InferenceSession(load_model(path).proto.SerializeToString(), options)
    return np.asarray(session.run(None, {session.get_inputs()[0].name: feed})[0])


def test_levels_are_codes(tmp_path: Path) -> None:
    path = small_ir(tmp_path)
    (quantizer,) = read_quantized(load_model(path)).quantizers
    assert float(quantizer.params.scale) == pytest.approx(2 / 254)
    x = np.array([[0.3, 5.0]], np.float32)
    np.testing.assert_allclose(_run(path, x), [[round(0.3 * 127) / 127, 1.0]], rtol=1e-6)


def test_a_transformer_block_computes_what_openvino_does() -> None:
    data = np.load(tool_files("inputs/xf.npz"))
    x = next(data[name] for name in data.files if name.startswith("sample."))[:1]
    values = np.load(tool_files("openvino/xf/int8_s0.npz"))
    wanted = next(values[name] for name in values.files if name.startswith("result:"))
    np.testing.assert_allclose(_run(tool_files("openvino/xf/xf_int8.xml"), x), wanted, atol=1e-5)


def test_files_that_are_none(tmp_path: Path) -> None:
    path = small_ir(tmp_path, kind="Mystery")
    with pytest.raises(BadInput, match="not read: Mystery"):
        load_model(path)
    path = small_ir(tmp_path)
    path.with_suffix(".bin").write_bytes(b"")
    with pytest.raises(BadInput, match="too short"):
        load_model(path)
    path.with_suffix(".bin").unlink()
    with pytest.raises(BadInput, match="weights"):
        load_model(path)


def test_damaged_files_are_named(tmp_path: Path) -> None:
    path, rng, refused = small_ir(tmp_path), np.random.default_rng(4), 0
    seed = path.read_bytes()
    for at in range(60):
        folder = tmp_path / str(at)
        folder.mkdir()
        shutil.copy(path.with_suffix(".bin"), folder)
        (folder / "m.xml").write_bytes(mutate_text(seed, rng))
        try:
            load_model(folder / "m.xml")
        except BadInput:
            refused += 1
    assert refused > 20
