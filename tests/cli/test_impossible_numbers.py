"""Quantized models of others whose numbers are impossible: what audit, layers and sensitivity say."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from onnx import helper, numpy_helper

from roundoff.cli import main
from roundoff.core.tensors import Array
from tests.models import save, value, weight, wrapped

Run = Callable[..., tuple[int, str, str]]
WEIGHT = numpy_helper.to_array(weight("w", 4, 3, 3, 3))
STEP = np.float32(0.01)
SHAPE = (1, 3, 8, 8)


def float_net() -> Any:
    nodes = [helper.make_node("Conv", ["image", "w"], ["y"], name="conv")]
    return wrapped(nodes, [value("image", SHAPE)], [value("y")], [numpy_helper.from_array(WEIGHT, "w")])


def quantized_net(*, axis: int = 0, image_axis: int = 1, read: str = "image_values", **numbers: Any) -> Any:
    """A convolution between quantizers; numbers replace scales, zero points and codes."""
    held = {
        "image_scale": np.float32(0.03),
        "image_zero": np.uint8(128),
        "image_scale_back": None,
        "w_scale": np.full(4, STEP),
        "w_zero": np.zeros(4, np.int8),
        "y_scale": np.float32(0.05),
        "y_zero": np.uint8(128),
        "codes": np.clip(np.rint(WEIGHT / STEP), -128, 127).astype(np.int8),
    } | numbers
    back = "image_scale" if held["image_scale_back"] is None else "image_scale_back"
    nodes = [
        helper.make_node(
            "QuantizeLinear", ["image", "image_scale", "image_zero"], ["image_codes"], name="q1", axis=image_axis
        ),
        helper.make_node(
            "DequantizeLinear", ["image_codes", back, "image_zero"], ["image_values"], name="dq1", axis=image_axis
        ),
        helper.make_node("DequantizeLinear", ["codes", "w_scale", "w_zero"], ["w"], name="dq2", axis=axis),
        helper.make_node("Conv", [read, "w"], ["sum"], name="conv"),
        helper.make_node("QuantizeLinear", ["sum", "y_scale", "y_zero"], ["y_codes"], name="q3"),
        helper.make_node("DequantizeLinear", ["y_codes", "y_scale", "y_zero"], ["y"], name="dq3"),
    ]
    constants = [
        numpy_helper.from_array(np.asarray(array), name) for name, array in held.items() if array is not None
    ]
    return wrapped(nodes, [value("image", SHAPE)], [value("y")], constants)


@pytest.fixture
def run(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Run:
    """Runs a command on a quantized model beside its float twin."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "80")
    np.save("images.npy", np.random.default_rng(0).standard_normal((2, *SHAPE[1:])).astype(np.float32))
    save(float_net(), Path("float.onnx"))

    def call(command: str, model: Any) -> tuple[int, str, str]:
        save(model, Path("other.onnx"))
        compared = ["float.onnx", "--quantized", "other.onnx", "--data", "images.npy"]
        code = main([command, *(["other.onnx"] if command == "audit" else compared)])
        out, err = (" ".join(text.split()) for text in capsys.readouterr())
        return code, out, err

    return call


def slices(*scales: Any) -> Array:
    return np.array(scales, np.float32)


IMPOSSIBLE = {
    "negative": ({"image_scale": np.float32(-0.03)}, "'image'", "the scale -0.03, which is not above zero"),
    "zero": ({"y_scale": np.float32(0)}, "'sum'", "the scale 0, which is not above zero"),
    "nan": ({"image_scale": np.float32("nan")}, "'image'", "the scale nan, which is not finite"),
    "infinite": ({"image_scale": np.float32("inf")}, "'image'", "the scale inf, which is not finite"),
    "negative slice": ({"w_scale": slices(STEP, -STEP, STEP, STEP)}, "'w'", "the scale -0.01 for slice 1, which"),
    "nan slice": ({"w_scale": slices(STEP, STEP, np.nan, STEP)}, "'w'", "the scale nan for slice 2, which is not"),
    "too few": (
        {"image_scale": slices(0.1, 0.2), "image_zero": np.zeros(2, np.uint8)},
        "'image'",
        "2 scales for 3 slices along axis 1",
    ),
}


@pytest.mark.parametrize(("numbers", "tensor", "said"), IMPOSSIBLE.values(), ids=IMPOSSIBLE)
def test_analyses_refuse_what_nothing_can_be_computed_with(
    run: Run, numbers: dict[str, Any], tensor: str, said: str
) -> None:
    model = quantized_net(**numbers)
    for command in ("layers", "sensitivity"):
        code, _, err = run(command, model)
        assert code == 2, err
        assert said in err
        assert tensor in err or "'y'" in err  # the twin may name the output as the float model does
        assert "fix: quantize the model again" in err
    code, out, _ = run("audit", model)
    assert code == 1
    assert "SILENT DIFFERENCES" in out


UNREAD = {
    "too few for a weight": ({"w_scale": slices(STEP, STEP, STEP)}, "'dq2'", True),
    "wrong axis": (
        {"axis": 7},
        "4 scales along axis 7 of a tensor of shape [4, 3, 3, 3], where they do not fit",
        True,
    ),
    "zero points of another number": ({"w_zero": np.zeros(3, np.int8)}, "4 scales and 3 zero points", True),
    "another scale on the way back": ({"image_scale_back": np.float32(0.06)}, "scale 0.06", True),
    "never dequantized": ({"read": "image_codes"}, "'image_codes', which nothing dequantizes", True),
    "zero point that is no code": ({"y_zero": np.float32(3)}, "only integer codes can be represented", False),
}


@pytest.mark.parametrize(("numbers", "said", "silent"), UNREAD.values(), ids=UNREAD)
def test_what_cannot_be_read_is_never_called_fine(
    run: Run, numbers: dict[str, Any], said: str, silent: bool
) -> None:
    model = quantized_net(**numbers)
    code, out, err = run("layers", model)
    assert code == 1, err
    # A file that runs otherwise than its quantizers say is doubted as a whole.
    assert out.startswith(
        (
            "INCONCLUSIVE: what could be judged agrees, but not all that is quantized could be",
            "INCONCLUSIVE: not enough evidence, what was measured allows no verdict",
        )
    )
    assert said in out
    code, out, err = run("audit", model)
    assert code == (1 if silent else 0)
    assert said in out
    assert err == ""


def test_a_sound_model_is_fine(run: Run) -> None:
    code, out, _ = run("layers", quantized_net())
    assert code == 0
    assert out.startswith("FINE: ")
    assert run("audit", quantized_net(axis=-4))[0] == 0


def test_a_huge_scale_makes_no_noise(run: Run) -> None:
    code, out, err = run("layers", quantized_net(image_scale=np.float32(1e38)))
    assert (code, err) == (1, "")
    assert out.startswith("LOCAL: ")
