"""Faults planted in quantized networks are cut out, and shown alone."""

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import helper

from roundoff.case.anonymous import without_names
from roundoff.case.minimal import NotLocal, reproduce_quantized
from roundoff.case.reproducer import Reproducer, verify, write_reproducer
from roundoff.diagnosis.result import Finding
from roundoff.diagnosis.study import diagnose_quantization
from roundoff.diagnosis.subject import open_case
from roundoff.errors import BadInput
from roundoff.graph.anonymous import texts_of
from roundoff.graph.load import load_model, model_from_proto
from roundoff.graph.quantized_model import QuantizedModel
from roundoff.messages.message import verbatim
from roundoff.run.feeds import Samples
from tests.diagnosis.planting import changed, coded, demo, detector, for_target, narrower, scaled, unbalanced
from tests.models import value, weight, wrapped

Subject = tuple[QuantizedModel, Samples]


def _clipped() -> Subject:
    quantized, samples = demo()
    return changed(quantized, "block2/depthwise_relu6", scaled(0.2)), samples


def _coarse() -> Subject:
    quantized, samples = demo()
    return changed(quantized, "block2/relu", narrower(3)), samples


def _cut_weights() -> Subject:
    quantized, samples = demo()
    return changed(quantized, "block2/depthwise/weight", scaled(0.3)), samples


def _wrong_codes() -> Subject:
    quantized, samples = demo()
    return coded(quantized, "block1/pointwise/weight", lambda codes: np.roll(codes, 1, axis=0)), samples


def _mixed_ranges() -> Subject:
    return for_target(*detector(640.0))


def _outlier_channel() -> Subject:
    return for_target(*unbalanced(300.0), "generic-int8-per-tensor")


FAULTS = {
    "clipping": (_clipped, "block2/depthwise_relu6"),
    "resolution": (_coarse, "block2/relu"),
    "weights cut": (_cut_weights, "block2/depthwise"),
    "wrong codes": (_wrong_codes, "block1/pointwise"),
    "mixed ranges": (_mixed_ranges, "join"),
    "outlier channel": (_outlier_channel, "conv1"),
}


def _reproduced(subject: Subject, finding: Finding | None = None) -> tuple[Reproducer, Finding]:
    if finding is None:
        finding = diagnose_quantization(*subject).findings[0]
    case = open_case(*subject)
    return reproduce_quantized(case, finding, values=case.facts.everything), finding


@pytest.mark.parametrize("fault", FAULTS)
def test_one_node_shows_a_fault_of_one_place(fault: str, tmp_path: Path) -> None:
    make, node = FAULTS[fault]
    found, finding = _reproduced(make())
    assert [name for name, _ in found.nodes] == [node]
    assert found.mended_db - found.faulty_db > 10
    assert found.faulty_db < found.threshold_db < found.mended_db
    assert found.passes
    assert found.complement is not None
    assert found.complement.after > found.complement.before + 5
    assert 1 < len(found.samples) <= 4
    names = write_reproducer(tmp_path, found, finding)
    assert {path.name for path in tmp_path.iterdir()} == set(names)
    checked = verify(tmp_path)
    assert (checked.shows, checked.passes) == (True, True)
    nodes = onnx.load(tmp_path / "float.onnx").graph.node
    assert [each.name for each in nodes if each.op_type != "Constant"] == [node]


def test_the_script_needs_numpy_and_onnxruntime_alone(tmp_path: Path) -> None:
    found, finding = _reproduced(_clipped())
    write_reproducer(tmp_path, found, finding)
    code = (
        "import sys, runpy\n"
        "class Refused:\n"
        "    def find_spec(self, name, path=None, target=None):\n"
        "        if name.split('.')[0] in ('roundoff', 'onnx', 'rich', 'pydantic'): raise ImportError(name)\n"
        "sys.meta_path.insert(0, Refused())\n"
        "sys.argv = ['run.py']\n"
        "runpy.run_path('run.py', run_name='__main__')\n"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 1, done.stderr
    assert done.stdout.endswith("FAULT\n")


def test_the_script_is_content_once_the_model_is_repaired(tmp_path: Path) -> None:
    found, finding = _reproduced(_clipped())
    write_reproducer(tmp_path, found, finding)
    (tmp_path / "quantized.onnx").write_bytes((tmp_path / "float.onnx").read_bytes())
    done = subprocess.run([sys.executable, "run.py"], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.endswith("no fault\n")


def test_what_is_stored_is_what_the_models_give(tmp_path: Path) -> None:
    found, finding = _reproduced(_cut_weights())
    write_reproducer(tmp_path, found, finding)
    case = json.loads((tmp_path / "case.json").read_text())
    inputs, expected, observed = (np.load(tmp_path / f"{name}.npz") for name in ("inputs", "expected", "observed"))
    for sample in case["samples"]:
        feed = {name: inputs[key] for name, key in sample["inputs"].items()}
        for path, stored in (("float.onnx", expected), ("quantized.onnx", observed)):
            from roundoff.run.session import open_session

            given = open_session(load_model(tmp_path / path)).run(feed)[0]
            key = sample["outputs"][case["tensor"]]
            np.testing.assert_array_equal(given, stored[key])


def test_names_are_gone_and_the_fault_is_not(tmp_path: Path) -> None:
    found, finding = _reproduced(_clipped())
    write_reproducer(tmp_path, without_names(found), finding)
    checked = verify(tmp_path)
    assert (checked.shows, checked.passes) == (True, True)
    for path in tmp_path.iterdir():
        assert b"block2" not in path.read_bytes(), path.name
    for name in ("float.onnx", "quantized.onnx"):
        assert not any("block" in text for text in texts_of(load_model(tmp_path / name)))


def test_the_node_that_shows_it_need_not_be_the_one_that_is_blamed() -> None:
    """A large number that is added and taken away again leaves nothing of what is coded between."""
    nodes = [
        helper.make_node("Relu", ["x"], ["a"], name="relu"),
        helper.make_node("Add", ["a", "far"], ["b"], name="there"),
        helper.make_node("Sub", ["b", "far"], ["c"], name="back"),
        helper.make_node("Conv", ["c", "w"], ["y"], name="conv"),
    ]
    far = onnx.numpy_helper.from_array(np.float32(1000.0), "far")
    proto = wrapped(nodes, [value("x", (1, 3, 8, 8))], [value("y", (1, 4, 8, 8))], [far, weight("w", 4, 3, 1, 1)])
    model = model_from_proto(proto, path=Path("far.onnx"))
    data = np.random.default_rng(0).standard_normal((8, 3, 8, 8)).astype(np.float32)
    subject = for_target(model, {"x": data})
    assert any(each.tensor == "b" for each in subject[0].quantizers)
    finding = Finding(1, "resolution", ("there",), ("b",), verbatim("b is coarse"))
    found, _ = _reproduced(subject, finding)
    assert [name for name, _ in found.nodes] == ["back"]
    assert found.spot.tensor == "c"


def test_a_finding_without_quantizers_is_refused() -> None:
    with pytest.raises(BadInput, match=r"Finding 3 \(bias-shift\) blames no quantizer"):
        _reproduced(demo(), Finding(3, "bias-shift", ("nobody",), ("nothing",), verbatim("")))


def test_what_makes_no_loss_is_not_shown() -> None:
    finding = Finding(1, "rounding", ("logits",), (), verbatim(""))
    with pytest.raises(NotLocal, match=r"'logits' is not what makes the loss: the whole model has 3\d"):
        _reproduced(demo(), finding)


def test_what_no_part_shows_is_said_to_be_in_none() -> None:
    quantized, samples = demo()
    subject = changed(quantized, "block2/relu", narrower(16)), samples
    finding = Finding(1, "resolution", ("block2/relu",), ("block2/relu",), verbatim(""), proven=True)
    with pytest.raises(NotLocal, match="No part of the network shows finding 1"):
        _reproduced(subject, finding)
