"""``roundoff bundle`` of what ``roundoff pulsar2`` builds."""

import json
import shutil
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from roundoff.cli import main
from roundoff.demo import load_split, model_path
from roundoff.graph.nodes import make_model
from tests.cli.inspecting import Run
from tests.cli.test_bundle import check_manifest, run_script, unpacked

NET = "secretnet.onnx"


@pytest.fixture
def bundle(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Run:
    """Runs any command in a folder with a network and its data."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "100")
    shutil.copy(model_path(), NET)
    Path("pictures").mkdir()
    images = load_split("calibration")[0]
    for number in range(6):
        np.save(f"pictures/person_{number}.npy", images[number : number + 1])
    shutil.make_archive("pictures", "gztar", ".", "pictures")

    def call(*words: str) -> tuple[int, str, str]:
        code = main(list(words))
        return (code, *capsys.readouterr())

    return call


def configured(settings: dict[str, Any], **quant: Any) -> None:
    Path("settings").mkdir(exist_ok=True)
    inputs = {"tensor_name": "DEFAULT", "calibration_dataset": "../pictures.tar.gz", "calibration_format": "Numpy"}
    content = {"input": NET, "output_dir": "out", **settings, "quant": {"input_configs": [inputs], **quant}}
    Path("settings/config.json").write_text(json.dumps(content), encoding="utf-8")


def built_inside(bundle: Run, folder: str, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """Build by the configuration in an unpacked ticket, and give its record."""
    with monkeypatch.context() as inside:
        inside.chdir(folder)
        code, out, err = bundle("pulsar2", "build", "--config", "config.json")
    assert code == 0, out + err
    record: dict[str, Any] = json.loads(Path(folder, "out/build_context.json").read_text(encoding="utf-8"))
    return record


def test_a_ticket_of_a_configuration_that_is_called_prototxt(bundle: Run) -> None:
    """Elsewhere such a file is half of a Caffe net, and one of that name may lie beside it."""
    text = 'calibration_dataset: "pictures.tar.gz" calibration_format: Numpy'
    Path("secretnet.prototxt").write_text(
        f'input: "{NET}" output_dir: "out" quant {{ input_configs {{ tensor_name: "DEFAULT" {text} }} }}'
    )
    assert bundle("pulsar2", "build", "--config", "secretnet.prototxt")[0] == 0
    code, out, err = bundle("bundle", "out", "-o", "case.zip")
    assert code == 0, out + err
    with Path("secretnet.prototxt").open("a") as file:
        file.write(" ")
    assert "secretnet.prototxt has changed since the run" in bundle("bundle", "out", "-o", "again.zip")[2]


LAYERS = [
    {"layer_name": "block1/depthwise_norm", "data_type": "U16"},
    {"start_tensor_names": ["block3/relu"], "end_tensor_names": ["DEFAULT"], "data_type": "S8"},
    {"op_types": ["Add"], "data_type": "U16"},
]


def test_a_build_becomes_a_ticket_that_builds(bundle: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    configured({}, precision_analysis=True, layer_configs=LAYERS)
    assert bundle("pulsar2", "build", "--config", "settings/config.json")[0] == 0
    code, out, err = bundle("bundle", "out", "-o", "case.zip")
    assert code == 0, out + err
    assert "the same fault, errors within 6 dB, verified" in " ".join(out.split())
    members = unpacked("case.zip", "case")
    check_manifest(members)
    assert run_script("case").returncode == 0
    assert b"Quant Precision Table" in members["tables/precision_analysis_table.txt"]
    form = members["TICKET.txt"].decode()
    assert "Found by: roundoff pulsar2 build; AX650, MinMax" in form
    assert "The command of the run: roundoff pulsar2 build --config settings/config.json" in form
    written = json.loads(members["config.json"])
    assert (written["input"], written["output_dir"]) == ("model/float.onnx", "out")
    assert written["quant"]["layer_configs"] == LAYERS
    record = built_inside(bundle, "case", monkeypatch)
    assert len(record["layer_configs"]) == 3


def test_the_smallest_calibration_set_that_gives_the_fault(bundle: Run) -> None:
    """One sample with a huge pixel spoils all scales: it must be in the ticket, though it is not the worst."""
    spoilt = np.load("pictures/person_5.npy")
    spoilt[..., 0, 0] = 4000.0
    np.save("pictures/person_5.npy", spoilt)
    shutil.make_archive("pictures", "gztar", ".", "pictures")
    # The analysis looks at pictures that are like those of the user.
    Path("seen").mkdir()
    shutil.copy("pictures/person_0.npy", "seen")
    configured({}, precision_analysis=True, input_sample_dir="seen")
    assert bundle("pulsar2", "build", "--config", "settings/config.json")[0] == 0
    code, out, err = bundle("bundle", "out", "-o", "case.zip")
    assert code == 0, out + err
    members = unpacked("case.zip", "case")
    with zipfile.ZipFile("case/data/calibration/image.zip") as archive:
        assert "person_5.npy" in archive.namelist()
    assert "data/analysis/0000.npy" in members
    assert json.loads(members["config.json"])["quant"]["input_sample_dir"] == "data/analysis"


@pytest.mark.parametrize("quant", [{}, {"enable_smooth_quant": True}, {"input_sample_dir": "pictures"}])
def test_a_confidential_ticket_of_a_build(
    bundle: Run, quant: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    configured({"output_name": "secretnet.axmodel"}, precision_analysis=True, layer_configs=LAYERS, **quant)
    assert bundle("pulsar2", "build", "--config", "settings/config.json")[0] == 0
    code, out, err = bundle("bundle", "out", "-o", "case.zip", "--confidential")
    assert code == 0, out + err
    members = unpacked("case.zip", "case")
    everything = b"\n".join([*members.values(), *(name.encode() for name in members)])
    proto = onnx.load(NET)
    names = {name for node in proto.graph.node for name in (node.name, *node.input, *node.output) if len(name) > 5}
    for text in (*names, "secretnet", "person_", "pictures", "settings", str(Path.cwd())):
        assert text.encode() not in everything, text
    assert run_script("case").returncode == 0
    assert b"Quant Precision Table" in members["tables/precision_analysis_table.txt"]
    record = built_inside(bundle, "case", monkeypatch)
    assert not any(entry["unknown"] for entry in record["layer_configs"])
    first = json.loads(members["config.json"])["quant"]["layer_configs"][0]
    assert first["layer_names"][0].startswith("Conv_")


def two_inputs() -> None:
    weight = np.random.default_rng(0).normal(size=(4, 3, 3, 3)).astype(np.float32)
    graph = helper.make_graph(
        [
            helper.make_node("Conv", ["left/x", "w"], ["c"], "conv", pads=[1, 1, 1, 1]),
            helper.make_node("Add", ["c", "right"], ["y"], "add"),
        ],
        "g",
        [
            helper.make_tensor_value_info("left/x", TensorProto.FLOAT, ["n", 3, 8, 8]),
            helper.make_tensor_value_info("right", TensorProto.FLOAT, ["n", 4, 8, 8]),
        ],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["n", 4, 8, 8])],
        [numpy_helper.from_array(weight, "w")],
    )
    onnx.save(make_model(graph, opset=17), "two.onnx")


@pytest.mark.parametrize("words", [(), ("--confidential",)])
def test_several_inputs_in_one_file(bundle: Run, words: tuple[str, ...], monkeypatch: pytest.MonkeyPatch) -> None:
    two_inputs()
    random = np.random.default_rng(1)
    Path("objects").mkdir()
    for number in range(3):
        left, right = random.normal(size=(1, 3, 8, 8)), random.normal(size=(1, 4, 8, 8))
        content: Any = {"left/x": left.astype(np.float32), "right": right.astype(np.float32)}
        np.save(f"objects/{number}.npy", content)
    configured({"input": "two.onnx", "input_shapes": "left/x:1x3x8x8;right:1x4x8x8"})
    text = Path("settings/config.json").read_text(encoding="utf-8")
    text = text.replace("../pictures.tar.gz", "objects").replace('"Numpy"', '"NumpyObject"')
    Path("settings/config.json").write_text(text, encoding="utf-8")
    assert bundle("pulsar2", "build", "--config", "settings/config.json")[0] == 0
    code, out, err = bundle("bundle", "out", "-o", "case.zip", *words)
    assert code == 0, out + err
    unpacked("case.zip", "case")
    assert run_script("case").returncode == 0
    written = json.loads(Path("case/config.json").read_text(encoding="utf-8"))
    assert "input_shapes" not in written
    built_inside(bundle, "case", monkeypatch)


def test_what_tune_built(bundle: Run) -> None:
    configured({})
    assert bundle("pulsar2", "tune", "--config", "settings/config.json")[0] == 0
    code, out, err = bundle("bundle", "out", "-o", "case.zip")
    assert code == 0, out + err
    members = unpacked("case.zip", "case")
    assert "Found by: roundoff pulsar2 tune" in members["TICKET.txt"].decode()
    assert "tables/tuning.json" in members


def test_builds_that_cannot_be_packed(bundle: Run) -> None:
    configured({})
    assert bundle("pulsar2", "build", "--config", "settings/config.json")[0] == 0
    Path("pictures.tar.gz").write_bytes(b"other")
    code, _, err = bundle("bundle", "out", "-o", "case.zip")
    assert code == 2
    assert "pictures.tar.gz has changed since the run" in err
    shutil.make_archive("pictures", "gztar", ".", "pictures")
    configured({}, highest_mix_precision=True)
    assert bundle("pulsar2", "build", "--config", "settings/config.json", "--force")[0] == 0
    code, _, err = bundle("bundle", "out", "-o", "case.zip")
    assert (code, "highest_mix_precision: nothing in it is quantized" in err) == (2, True)
    Path("out/build_context.json").write_text("{}", encoding="utf-8")
    code, _, err = bundle("bundle", "out", "-o", "case.zip")
    assert (code, "is damaged, or was written by another version" in err) == (2, True)
