"""Commands on networks whose outputs hold nothing finite, no numbers, no channels, or change their shape."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from roundoff.cli import main
from tests.models import value
from tests.odd_models import IMAGE, with_tail

Run = Callable[..., tuple[int, str, str]]
ZERO = numpy_helper.from_array(np.float32(0), "zero")
FIRST = numpy_helper.from_array(np.array([0]), "first")
TEXT = [helper.make_node("Cast", ["logits"], ["text"], name="print", to=TensorProto.STRING)]
PARTS = [helper.make_node("SplitToSequence", ["logits"], ["parts"], name="split", axis=1)]
INFINITE = [helper.make_node("Div", ["logits", "zero"], ["y"], name="divide")]
NO_CHANNELS = [helper.make_node("Slice", ["logits", "first", "first", "second"], ["none"], name="nothing")]
PLACES = [helper.make_node("NonZero", ["r"], ["places"], name="places")]


@pytest.fixture
def run(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Run:
    """Runs a command on a network with these nodes behind its logits, quantized by itself."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "500")
    np.save("images.npy", np.random.default_rng(0).standard_normal((3, *IMAGE[1:])).astype(np.float32))

    def call(
        command: str, nodes: Sequence[Any], outputs: Sequence[Any], *words: str, target: bool = True
    ) -> tuple[int, str, str]:
        constants = (ZERO, FIRST, numpy_helper.from_array(np.array([1]), "second"))
        onnx.save(with_tail(nodes, outputs, constants), "net.onnx")
        quantized = ("--target", "generic-int8") if target else ()
        code = main([command, "net.onnx", *words, *quantized, "--data", "images.npy"])
        return (code, *capsys.readouterr())

    return call


def test_what_has_no_score_is_not_called_lossless(run: Run) -> None:
    for words in ((), ("--exact",), ("--fast",), ("--leave-one-out",)):
        code, out, _ = run("sensitivity", INFINITE, [value("y")], *words)
        assert code == 1
        assert out.startswith("NO SCORE of ")
        assert "NOTHING LOST" not in out
        assert "nodes        none of 5 has a score" in out
        assert "note: 1 output with NaN or infinite values, which are left out: y" in out
    _, out, _ = run("accumulate", INFINITE, [value("y")])
    assert out.startswith("NO SCORE: no output holds anything that can be compared (3 samples)")
    assert "in float already, 1 tensor with values that are not finite" in out
    _, out, _ = run("samples", INFINITE, [value("y")])
    assert out.startswith("No score: the outputs of 3 samples hold nothing that can be compared")
    _, out, _ = run("channels", INFINITE, [value("y")], "divide")
    assert "divide: no channel has a finite value" in out
    assert "1 tensor with NaN or infinite values, which are left out: divide" in out
    _, out, _ = run("outliers", INFINITE, [value("y")], target=False)
    assert "1 tensor without a row: y (none of its values is finite)" in out


@pytest.mark.parametrize(
    ("nodes", "name", "declared"),
    [
        (TEXT, "text", value("text", None, TensorProto.STRING)),
        (PARTS, "parts", helper.make_tensor_sequence_value_info("parts", TensorProto.FLOAT, None)),
    ],
    ids=["text", "sequence"],
)
def test_outputs_that_are_no_numbers_are_left_out_and_named(
    run: Run, nodes: Sequence[Any], name: str, declared: Any
) -> None:
    outputs = [value("logits"), declared]
    for command in ("sensitivity", "samples"):
        code, out, _ = run(command, nodes, outputs)
        assert code == 0
        assert f"note: '{name}' is not compared: not a tensor of numbers" in out
        assert "no score" not in out.lower()
    assert run("partial", nodes, outputs)[0] == 0
    code, _, err = run("sensitivity", nodes, outputs, "--output-node", name)
    assert (code, f"'{name}' cannot be compared" in err) == (2, True)


def test_a_glob_passes_over_what_holds_no_numbers(run: Run) -> None:
    outputs = [value("logits"), helper.make_tensor_sequence_value_info("parts", TensorProto.FLOAT, None)]
    code, out, _ = run("distribution", PARTS, outputs, "*")
    assert (code, "note: holding no numbers, and left out: split" in out) == (0, True)
    code, _, err = run("distribution", PARTS, outputs, "split")
    assert (code, "Tensor 'parts' cannot be read" in err) == (2, True)


def test_a_tensor_without_channels_has_a_row_and_a_picture(run: Run, tmp_path: Path) -> None:
    code, out, _ = run("outliers", NO_CHANNELS, [value("logits"), value("none")], target=False)
    assert run("channels", NO_CHANNELS, [value("logits"), value("none")], "nothing", "-o", "out")[0] == 0
    assert len(list((tmp_path / "out").glob("*nothing*.png"))) == 1
    row = next(line.split() for line in out.splitlines() if " none " in line)
    assert (code, [word for word in row[4:] if word != "%"][:6]) == (0, ["0"] * 6)


def test_shapes_that_depend_on_values_are_told(run: Run) -> None:
    outputs = [value("logits"), value("places", None, TensorProto.INT64)]
    _, out, _ = run("sensitivity", PLACES, outputs)
    assert "'places' has no score in " in out
    assert "of another shape than in float, or nothing is finite" in out
    _, out, _ = run("samples", PLACES, outputs)
    assert "'places' has another shape than in float in 3 samples" in out


def test_an_axis_that_no_tensor_has(run: Run) -> None:
    code, out, err = run("outliers", (), [value("logits")], "--axis", "9", target=False)
    assert (code, out) == (2, "")
    assert "No tensor has channels that can be counted: 'image': it has no axis 9" in err


def test_an_output_without_elements_passes_nothing(run: Run, capsys: pytest.CaptureFixture[str]) -> None:
    run("quantize", NO_CHANNELS, [value("none")], "-o", "quantized")
    code = main(["compare", "net.onnx", "net.onnx", "--data", "images.npy"])
    out = capsys.readouterr().out
    assert (code, out.split(":")[0]) == (1, "INCOMPLETE")
