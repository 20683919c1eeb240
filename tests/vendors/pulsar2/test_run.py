"""Files in, files out."""

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from roundoff.cli import main
from roundoff.core.tensors import Array
from roundoff.errors import BadInput
from roundoff.graph.insertion import fake_quant_model
from roundoff.graph.load import Model, load_model
from roundoff.graph.save import save_model
from roundoff.quantize.targets.files import load_target
from roundoff.run.integer.machine import IntegerRunner
from roundoff.run.session import open_session
from roundoff.vendors.pulsar2.config.schema import PrecisionAnalysisMode, TargetHardware
from roundoff.vendors.pulsar2.run import RunSettings, run_model
from tests.models import conv_net, random_feed, save, value, with_sequence, wrapped
from tests.quantized import quantized_simply

IMAGE = {"image": (1, 3, 8, 8)}
NPU = PrecisionAnalysisMode.NPUBackend


def written(folder: Path, feed: dict[str, Array], name: str = "") -> None:
    (folder / name).mkdir(parents=True, exist_ok=True)
    for tensor, array in feed.items():
        (folder / name / f"{tensor}.bin").write_bytes(array.tobytes())


def settings(folder: Path, model: Path, **changes: Any) -> RunSettings:
    return RunSettings(model, folder / "in", folder / "out", **changes)


def quantized(folder: Path) -> tuple[Path, Model, Any]:
    """A quantized model as a file, its float model and its quantizers."""
    model = load_model(save(conv_net(), folder / "float.onnx"))
    found = quantized_simply(model, [random_feed(IMAGE, seed) for seed in range(3)])
    save_model(fake_quant_model(model, found.quantizers), folder / "quant.onnx")
    return folder / "quant.onnx", model, found


def read(path: Path, dtype: str, shape: tuple[int, ...] = (-1,)) -> Array:
    return np.fromfile(path, dtype).reshape(shape)


def test_a_list_names_the_folders(tmp_path: Path) -> None:
    path = save(conv_net(), tmp_path / "m.onnx")
    model = load_model(path)
    feeds = {name: random_feed(IMAGE, seed) for seed, name in enumerate(("0", "deep/1"))}
    for name, feed in feeds.items():
        written(tmp_path / "in", feed, name)
    (tmp_path / "list.txt").write_text("0\n\ndeep/1\n", encoding="utf-8")
    said: list[str] = []
    outcome = run_model(settings(tmp_path, path, list_file=tmp_path / "list.txt"), said.append)
    assert outcome.cases == ("0", "deep/1")
    session = open_session(model)
    for name, feed in feeds.items():
        (expected,) = session.run(feed)
        np.testing.assert_array_equal(read(tmp_path / "out" / name / "logits.bin", "<f4", (1, 10)), expected)
    assert said[0] == ">>> [0] start"
    assert said[1] == f"write [logits] to [{tmp_path}/out/0/logits.bin], float32 [1, 10]"
    assert said[-1] == ">>> [deep/1] finish"


def test_without_a_list_the_folders_themselves(tmp_path: Path) -> None:
    path = save(conv_net(), tmp_path / "m.onnx")
    written(tmp_path / "in", random_feed(IMAGE, 0))
    run_model(settings(tmp_path, path))
    assert [each.name for each in (tmp_path / "out").iterdir()] == ["logits.bin"]


def test_several_samples_in_a_file(tmp_path: Path) -> None:
    path = save(conv_net(), tmp_path / "m.onnx")
    model = load_model(path)
    feeds = [random_feed(IMAGE, seed) for seed in range(3)]
    written(tmp_path / "in", {"image": np.stack([feed["image"] for feed in feeds])})
    run_model(settings(tmp_path, path, batch_size=3))
    expected = [open_session(model).run(feed)[0] for feed in feeds]
    np.testing.assert_array_equal(read(tmp_path / "out/logits.bin", "<f4", (3, 1, 10)), expected)


def test_names_are_made_safe_and_nothing_is_lost(tmp_path: Path) -> None:
    nodes = [helper.make_node("Neg", ["in:put"], ["a/b"]), helper.make_node("Abs", ["in:put"], ["a.b"])]
    proto = wrapped(nodes, [value("in:put", (2,))], [value("a/b", (2,)), value("a.b", (2,))])
    path = save(proto, tmp_path / "m.onnx")
    written(tmp_path / "in", {"in_put": np.array([1, -2], np.float32)})
    outcome = run_model(settings(tmp_path, path))
    np.testing.assert_array_equal(read(tmp_path / "out/a_b.bin", "<f4"), [-1, 2])
    other = outcome.files["a.b"]
    assert other.startswith("a_b-")
    np.testing.assert_array_equal(read(tmp_path / "out" / other, "<f4"), [1, 2])
    assert outcome.notes == (
        f"tensor a.b is in {other}: its plain name would be that of another, or is one that no disk takes",
    )


def test_random_inputs_are_made_up_once(tmp_path: Path) -> None:
    nodes = [
        helper.make_node("Cast", ["u"], ["v"], to=TensorProto.FLOAT),
        helper.make_node("Mul", ["v", "x"], ["y"]),
    ]
    proto = wrapped(nodes, [value("u", ("N", 4), TensorProto.UINT8), value("x", (1, 4))], [value("y", ("N", 4))])
    path = save(proto, tmp_path / "m.onnx")
    run_model(settings(tmp_path, path, random_input=True))
    before = {each.name: each.read_bytes() for each in (tmp_path / "in").iterdir()}
    assert {name: len(content) for name, content in before.items()} == {"u.bin": 4, "x.bin": 16}
    said: list[str] = []
    run_model(settings(tmp_path, path, random_input=True), said.append)
    assert {each.name: each.read_bytes() for each in (tmp_path / "in").iterdir()} == before
    assert f"kept: {tmp_path}/in/u.bin exists, no random values are written over it" in said


def test_a_free_axis_is_found_from_the_file(tmp_path: Path) -> None:
    path = save(conv_net("N"), tmp_path / "m.onnx")
    written(tmp_path / "in", {"image": np.zeros((5, 3, 8, 8), np.float32)})
    run_model(settings(tmp_path, path))
    assert read(tmp_path / "out/logits.bin", "<f4", (5, 10)).shape == (5, 10)


def test_layers_of_a_quantized_model_are_codes(tmp_path: Path) -> None:
    path, model, found = quantized(tmp_path)
    feed = random_feed(IMAGE, 7)
    written(tmp_path / "in", feed)
    run_model(settings(tmp_path, path, per_layer=True))
    integer = IntegerRunner(model, found.quantizers, load_target("axera-ax650").arithmetic)
    names = [each.tensor for each in found.quantizers if each.kind == "activation" and each.tensor != "logits"]
    exact = integer.run(feed, names).codes
    run_model(RunSettings(path, tmp_path / "in", tmp_path / "npu", per_layer=True, mode=NPU))
    assert len(names) >= 4
    for name in names:
        reference = read(tmp_path / f"out/{name}.bin", "u1", exact[name].shape)
        # Onnxruntime computes in float what the simulator computes exactly: a code may differ by one.
        assert np.abs(reference.astype(int) - exact[name].astype(int)).max() <= 1
        if name != "image":
            np.testing.assert_array_equal(read(tmp_path / f"npu/{name}.bin", "u1", exact[name].shape), exact[name])
    # What leaves the network, and what is not quantized, are values.
    assert read(tmp_path / "out/logits.bin", "<f4").size == read(tmp_path / "npu/logits.bin", "<f4").size == 10
    assert read(tmp_path / "out/conv1.bin", "<f4").size == 256


def test_both_modes_agree_up_to_a_step(tmp_path: Path) -> None:
    path, _, found = quantized(tmp_path)
    written(tmp_path / "in", random_feed(IMAGE, 7))
    run_model(settings(tmp_path, path))
    run_model(RunSettings(path, tmp_path / "in", tmp_path / "npu", mode=NPU))
    step = float(next(each for each in found.quantizers if each.tensor == "logits").params.scale)
    reference, exact = (read(tmp_path / folder / "logits.bin", "<f4") for folder in ("out", "npu"))
    assert np.abs(reference - exact).max() <= 2.01 * step


def test_what_has_no_effect_is_said(tmp_path: Path) -> None:
    path, _, _ = quantized(tmp_path)
    written(tmp_path / "in", random_feed(IMAGE, 7))
    outcome = run_model(settings(tmp_path, path, group_index=1, target_hardware=TargetHardware.M57))
    assert outcome.notes == (
        "group_index has no effect: groups of shapes exist in compiled models only",
        "target_hardware has no effect in the mode Reference",
    )
    outcome = run_model(settings(tmp_path, path, mode=NPU, target_hardware=TargetHardware.M57))
    assert "M57 is simulated as AX650" in outcome.notes[0]


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        ("", "names no folders"),
        ("../x", "names '../x', which is not a folder inside of another"),
        ("/x", "which is not a folder inside of another"),
        ("a\na", "names 'a' twice"),
        ("missing", r"There is no file for the input 'image' .*missing/image\.bin; there are no \.bin files"),
        ("short", r"has 2 bytes; the input 'image' takes float32 \[1, 3, 8, 8\], 768 bytes"),
        ("other", r"expected .*other/image\.bin; found images\.bin"),
    ],
)
def test_lists_and_files_that_do_not_fit(lines: str, message: str, tmp_path: Path) -> None:
    path = save(conv_net(), tmp_path / "m.onnx")
    (tmp_path / "list.txt").write_text(lines, encoding="utf-8")
    written(tmp_path / "in", {"image": np.zeros(2, np.uint8)}, "short")
    written(tmp_path / "in", {"images": np.zeros(2, np.uint8)}, "other")
    with pytest.raises(BadInput, match=message):
        run_model(settings(tmp_path, path, list_file=tmp_path / "list.txt"))


def test_models_that_cannot_be_run(tmp_path: Path) -> None:
    path = save(conv_net(), tmp_path / "m.onnx")
    with pytest.raises(BadInput, match="is a float model, which the mode NPUBackend cannot run"):
        run_model(settings(tmp_path, path, mode=NPU))
    with pytest.raises(BadInput, match="A batch_size of -1 is none"):
        run_model(settings(tmp_path, path, batch_size=-1))
    node = helper.make_node("AxQuantizedConv", ["x"], ["y"], name="Conv_0", domain="axera")
    foreign = wrapped([node], [value("x", (1,))], [value("y", (1,))], domains={"axera": 1})
    onnx.save(foreign, tmp_path / "vendor.onnx")
    with pytest.raises(BadInput, match=r"holds the vendor's operator AxQuantizedConv \(Conv_0\)"):
        run_model(settings(tmp_path, tmp_path / "vendor.onnx"))


def test_free_shapes_need_more_than_a_file(tmp_path: Path) -> None:
    proto = wrapped([helper.make_node("Neg", ["x"], ["y"])], [value("x", ("A", "B"))], [value("y", ("A", "B"))])
    written(tmp_path / "in", {"x": np.zeros(6, np.float32)})
    with pytest.raises(BadInput, match="says nothing of its shape"):
        run_model(settings(tmp_path, save(proto, tmp_path / "m.onnx")))


def test_the_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = save(conv_net(), tmp_path / "m.onnx")
    words = ["pulsar2", "run", "--model", str(path), "--input_dir", str(tmp_path / "in")]
    words += ["--output_dir", str(tmp_path / "out"), "--random_input"]
    assert main(words) == 0
    assert "write [logits] to [" in capsys.readouterr().out
    assert main([*words, "--json", "--mode", "Reference"]) == 0
    assert '"logits": "logits.bin"' in capsys.readouterr().out
    assert main([*words, "--mode", "npubackend"]) == 2
    assert "did you mean 'NPUBackend'?" in capsys.readouterr().err


def test_text_and_sequences_are_told_and_not_written(tmp_path: Path) -> None:
    path = save(with_sequence(), tmp_path / "m.onnx")
    said: list[str] = []
    asked = settings(tmp_path, path, random_input=True, per_layer=True)
    outcome = run_model(asked, said.append)
    assert [name for name in ("parts", "text", "y") if any(f"[{name}] is not" in line for line in said)] == [
        "parts",
        "text",
    ]
    assert sorted(file.name for file in (tmp_path / "out").iterdir()) == ["joined.bin", "y.bin"]
    assert sorted(outcome.files) == ["joined", "y"]
    assert len(outcome.notes) == 2
