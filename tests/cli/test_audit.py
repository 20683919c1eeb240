import csv
import json
import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper
from onnxruntime.quantization import QuantType

from roundoff.cli import main
from roundoff.core.plan import Precision
from roundoff.quantize.targets.files import load_target, target_names
from tests.graph.readers.tools import quantized_by_onnxruntime
from tests.models import conv_net, random_feed, save, value, weight, wrapped

Run = Callable[..., tuple[int, str, str]]
SHAPES = {"image": (1, 3, 8, 8)}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """float.onnx, what onnxruntime made of it (quantized.onnx), and a run of ours."""
    place = tmp_path_factory.mktemp("audit")
    for activations, name in ((QuantType.QInt8, "signed.onnx"), (QuantType.QUInt8, "quantized.onnx")):
        options = {"activation_type": activations, "weight_type": QuantType.QInt8, "per_channel": True}
        quantized_by_onnxruntime((conv_net(), dict(SHAPES)), place, **options)
        (place / "quantized.onnx").rename(place / name)
    (place / "data").mkdir()
    for seed in range(2):
        np.save(place / "data" / f"{seed}.npy", random_feed(SHAPES, seed)["image"])
    words = ["--data", str(place / "data"), "--target", "generic-int8", "-o", str(place / "run")]
    assert main(["quantize", str(place / "float.onnx"), *words]) == 0
    return place


@pytest.fixture
def run(folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Run:
    """Runs ``roundoff audit`` in that folder; gives exit code, stdout, stderr."""
    monkeypatch.chdir(folder)
    monkeypatch.setenv("COLUMNS", "80")
    capsys.readouterr()

    def call(*words: str) -> tuple[int, str, str]:
        capsys.readouterr()
        code = main(["audit", *words])
        out, err = capsys.readouterr()
        return code, out, err

    return call


def tampered(source: Path, target: Path, scale: str, factor: float) -> Path:
    """A copy of a model with one scale changed."""
    proto = onnx.load(source)
    (tensor,) = [each for each in proto.graph.initializer if each.name == scale]
    tensor.CopyFrom(numpy_helper.from_array(numpy_helper.to_array(tensor) * np.float32(factor), scale))
    return save(proto, target)


def test_a_model_of_another_tool(run: Run) -> None:
    code, out, err = run("quantized.onnx")
    assert (code, err) == (0, "")
    assert out.startswith("OK: no silent difference in 7 nodes of quantized.onnx\n")
    assert "weights      3 s8 per channel" in out


def test_every_node_with_its_scales(run: Run) -> None:
    code, out, _ = run("quantized.onnx", "--all", "--float", "float.onnx")
    assert code == 0
    assert "Relu1" in out
    assert "weight: s8 per channel (axis 0, 4" in out
    assert all(len(line) <= 80 for line in out.splitlines())


def test_a_wrong_scale_is_a_silent_difference(run: Run, folder: Path) -> None:
    tampered(folder / "quantized.onnx", folder / "tampered.onnx", "b3_quantized_scale", 2)
    code, out, _ = run("tampered.onnx")
    assert code == 1
    assert out.startswith("SILENT DIFFERENCES: 1 difference in 7 nodes of tampered.onnx\n")
    assert "the scale of bias 'b3' is off" in " ".join(out.split())


def test_only_some_nodes(run: Run, folder: Path) -> None:
    tampered(folder / "quantized.onnx", folder / "tampered.onnx", "b3_quantized_scale", 2)
    code, out, _ = run("tampered.onnx", "--nodes", "Conv*")
    assert (code, out.splitlines()[0]) == (0, "OK: no silent difference in 4 nodes of tampered.onnx")
    code, _, err = run("tampered.onnx", "--nodes", "Conv*", "Clasifier")
    assert code == 2
    assert err == "error: --nodes 'Clasifier' matches no node of tampered.onnx.\nfix: did you mean 'Classifier'?\n"


def test_a_target_as_the_request(run: Run) -> None:
    code, out, _ = run("signed.onnx", "--float", "float.onnx", "--target", "onnxruntime")
    assert code == 0
    assert "asked by     target onnxruntime" in out
    code, out, _ = run("quantized.onnx", "--float", "float.onnx", "--target", "onnxruntime")
    assert code == 1
    assert "input 0 (image) is u8; target onnxruntime makes it s8" in " ".join(out.split())


def test_a_run_keeps_what_it_promised(run: Run) -> None:
    code, out, _ = run("run")
    assert code == 0
    assert out.startswith("OK: no silent difference in 7 nodes of run\n")
    assert "asked by     the plan of the run" in out
    assert run("run/plan.json")[0] == 0


def test_what_a_run_said_is_repeated_on_request_only(run: Run) -> None:
    said = "the prepared model's outputs equal the original's"
    assert said not in run("run")[1]
    assert said in " ".join(run("run", "--all")[1].split())
    assert any(note.startswith(said) for note in json.loads(run("run", "--json")[1])["notes"])


@pytest.mark.parametrize("target", [name for name in target_names() if not load_target(name).weight_only])
def test_our_own_models_pass_and_count_alike(run: Run, folder: Path, target: str) -> None:
    """Also with a convolution of a single output channel, whose scales are one, and with nodes inside of units."""
    nodes = [
        helper.make_node("Conv", ["image", "w1", "b1"], ["a"], name="wide"),
        helper.make_node("Sigmoid", ["a"], ["s"], name="sigmoid"),
        helper.make_node("Mul", ["a", "s"], ["b"], name="mul"),
        helper.make_node("Conv", ["b", "w2", "b2"], ["c"], name="single"),
        helper.make_node("Relu", ["c"], ["y"], name="relu"),
    ]
    held = [weight("w1", 4, 3, 3, 3), weight("b1", 4), weight("w2", 1, 4, 3, 3), weight("b2", 1)]
    model = folder / f"single_{target}.onnx"
    save(wrapped(nodes, [value("image", (1, 3, 8, 8))], [value("y")], held), model)
    out = f"single_{target}"
    words = ["--data", "data", "--target", target, "-o", out]
    assert main(["quantize", str(model), *words]) == 0
    code, text, _ = run(out, "--json")
    assert code == 0, text
    counts = {counted(text)}
    for kind in ("fake_quant", "deploy"):
        code, text, _ = run(f"{out}/single_{target}_{kind}_model.onnx", "--json")
        assert code == 0, text
        counts.add(counted(text))
        assert run(f"{out}/single_{target}_{kind}_model.onnx", "--target", target)[0] == 0
    plan = json.loads((folder / out / "plan.json").read_text())["plan"]
    counts.add(tuple(Precision(**node["seen"]) for node in plan["nodes"]))
    assert len(counts) == 1


def counted(text: str) -> tuple[Precision, ...]:
    """The effective precision of every node."""
    return tuple(Precision(**row["effective"]) for row in json.loads(text)["rows"])


CORRECTS = """
def propose(problem, history):
    recipe = problem.base
    for option in problem.free_options():
        recipe = problem.with_option(recipe, option) if option.name in ("equalize", "bias_correct") else recipe
    return None if history else recipe
"""


def test_corrected_biases_of_a_search_are_on_record(run: Run, folder: Path) -> None:
    (folder / "corrects.py").write_text(CORRECTS)
    words = ["--data", "data", "--target", "tensorrt-like", "--strategy", "corrects.py", "--min-metric", "0.01"]
    # Two samples are too few to prove the goal on others.
    assert main(["tune", "float.onnx", *words, "-o", "searched"]) == 1
    code, out, _ = run("searched")
    assert (code, out.split(":")[0]) == (0, "OK")
    assert "was corrected, and is held as s32 instead of float" in " ".join(out.split())
    # The other models of the folder, of which none is quantized as the plan says, are not held against it.
    assert "float model" not in out
    code, out, _ = run("searched/float_fake_quant_model.onnx", "--target", "tensorrt-like")
    assert (code, "remarks" in out, "integer_bias" in run("searched", "--json")[1]) == (0, True, False)
    # Where nothing was corrected, a bias that is quantized against the plan is silent as ever.
    plan = json.loads((folder / "searched/plan.json").read_text())
    del plan["files"]["corrected"]
    (folder / "searched/plan.json").write_text(json.dumps(plan))
    code, out, _ = run("searched")
    assert (code, "biases quantized though not planned" in out) == (1, True)


def test_a_run_whose_model_was_changed_afterwards(run: Run, folder: Path) -> None:
    file = folder / "run" / "float_deploy_model.onnx"
    untouched = file.read_bytes()
    names = [each.name for each in onnx.load(file).graph.initializer if each.name.startswith("w2")]
    (scale,) = [name for name in names if name.endswith("_scale")]
    try:
        tampered(file, file, scale, 1.5)
        code, out, _ = run("run")
    finally:
        file.write_bytes(untouched)
    assert code == 1
    text = " ".join(out.split())
    assert "silent: deploy model: weight" in text
    assert "should have 4 scales" in text
    assert "fake-quant model:" not in text


def test_a_plan_that_names_a_tensor_which_does_not_exist(run: Run, folder: Path) -> None:
    shutil.copytree(folder / "run", folder / "other-tensor")
    path = folder / "other-tensor" / "plan.json"
    content = json.loads(path.read_text())
    content["plan"]["quantizers"][0]["tensor"] = "zzz"
    path.write_text(json.dumps(content))
    code, out, _ = run("other-tensor", "--json")
    assert code == 1
    assert "'zzz' is what 'image' should quantize, and it quantizes 'image'" in out


def test_only_an_earlier_table_is_replaced(run: Run, folder: Path) -> None:
    assert run("run", "--csv", "again.csv")[0] == 0
    written = (folder / "again.csv").read_text()
    code, _, err = run("run", "--csv", "again.csv")
    assert code == 2
    assert "add --force" in err
    (folder / "again.csv").write_text(written + "more")
    assert run("run", "--csv", "again.csv", "--force")[0] == 0
    assert (folder / "again.csv").read_text() == written
    (folder / "mine.csv").write_text("mine")
    code, _, err = run("run", "--csv", "mine.csv", "--force")
    assert code == 2
    assert "does not look like a file that roundoff wrote" in err
    assert (folder / "mine.csv").read_text() == "mine"


def test_json_and_csv(run: Run, folder: Path) -> None:
    code, out, err = run("quantized.onnx", "--json", "--csv", "nodes.csv")
    content = json.loads(out)
    assert (code, content["passed"], len(content["rows"])) == (0, True, 7)
    assert err == "written: nodes.csv\n"
    with (folder / "nodes.csv").open(newline="", encoding="utf-8") as file:
        assert next(csv.DictReader(file))["node"] == "Conv1"
    code, _, err = run("quantized.onnx", "--csv", "nodes.csv")
    assert (code, err.splitlines()[0]) == (2, "error: nodes.csv exists.")
    (folder / "nodes.csv").unlink()


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["float.onnx"], "float.onnx is not quantized: no quantizer of a known kind was found in it."),
        (["data"], "data has no plan.json, so it is no run of 'roundoff quantize'."),
        (["run", "--target", "ascend"], "--target was given, but run is a run, which has its own plan."),
        (["run", "--float", "float.onnx"], "--float was given, but run is a run, which has its own plan."),
        (["quantized.onnx", "--target", "ascent"], "ascent"),
        (["missing.onnx"], "missing.onnx does not exist."),
    ],
)
def test_what_cannot_be_audited(run: Run, words: list[str], says: str) -> None:
    code, out, err = run(*words)
    assert (code, out) == (2, "")
    assert says in err
    assert "\nfix: " in err


def test_a_weight_that_is_an_output_too_is_no_difference(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    model = conv_net()
    model.graph.output.append(value("w3", (4, 10)))
    save(model, tmp_path / "net.onnx")
    np.save("image.npy", random_feed(SHAPES)["image"])
    # The values of one sample are no evidence; what the model holds is audited all the same.
    assert main(["quantize", "net.onnx", "--data", "image.npy", "--target", "generic-int8", "-o", "run"]) == 1
    capsys.readouterr()
    assert main(["audit", "run"]) == 0, capsys.readouterr().out
