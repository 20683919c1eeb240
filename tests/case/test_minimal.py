"""Faults are cut out and shown alone: planted in quantized networks, in files, in sums; sets are shrunk."""

import json
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import onnx
import pytest
from hypothesis import given
from hypothesis import strategies as st
from onnx import helper, numpy_helper

from roundoff.case.minimal import (
    NotLocal,
    Reproducer,
    is_accumulator,
    is_of_file,
    reproduce_accumulator,
    reproduce_file,
    reproduce_quantized,
    shrink,
)
from roundoff.case.reproduce import verify, without_names, write_reproducer
from roundoff.core.target import Arithmetic
from roundoff.diagnosis.checks import check_file, check_sums
from roundoff.diagnosis.result import Finding
from roundoff.diagnosis.study import diagnose_quantization
from roundoff.diagnosis.subject import Case, open_case
from roundoff.errors import BadInput
from roundoff.graph.anonymous import texts_of
from roundoff.graph.insertion import insert_quantizers
from roundoff.graph.load import Model, load_model, model_from_proto
from roundoff.graph.quantized_model import QuantizedModel
from roundoff.graph.readers.reader import read_quantized
from roundoff.messages.message import verbatim
from roundoff.run.capture import Samples
from tests.diagnosis.planting import (
    biased,
    changed,
    coded,
    demo,
    detector,
    for_target,
    narrower,
    scaled,
    unbalanced,
)
from tests.models import value, weight, wrapped


@given(size=st.integers(1, 60), data=st.data())
def test_what_is_needed_is_found_wherever_it_is(size: int, data: st.DataObject) -> None:
    needed = data.draw(st.sets(st.integers(0, size - 1), min_size=1, max_size=4))
    found = shrink(range(size), needed.issubset)
    assert found == sorted(needed)


@given(size=st.integers(1, 40), data=st.data())
def test_no_member_can_be_left_out(size: int, data: st.DataObject) -> None:
    """Whatever shows it, as long as everything together does."""
    groups = data.draw(st.lists(st.sets(st.integers(0, size - 1), min_size=1, max_size=4), min_size=1, max_size=4))

    def shows(items: Sequence[int]) -> bool:
        return any(group <= set(items) for group in groups)

    found = shrink(range(size), shows)
    assert shows(found)
    assert not any(shows([item for item in found if item != left]) for left in found)


def test_nothing_is_tried_twice() -> None:
    tried: list[tuple[int, ...]] = []

    def shows(items: Sequence[int]) -> bool:
        tried.append(tuple(items))
        return {3, 11} <= set(items)

    assert shrink(range(16), shows) == [3, 11]
    assert len(tried) == len(set(tried))
    assert len(tried) < 60


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
    return reproduce_quantized(case, finding), finding


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


def shown(found: Reproducer, finding: Finding, folder: Path) -> None:
    """It must fail alone, pass on what is expected, and the whole must be better without it."""
    for name, each in (("named", found), ("anonymous", without_names(found))):
        (folder / name).mkdir()
        write_reproducer(folder / name, each, finding)
        checked = verify(folder / name)
        assert (checked.shows, checked.passes) == (True, True), checked.text
    assert found.passes
    assert found.complement is not None
    assert found.complement.improved
    assert found.faulty_db < found.threshold_db < found.mended_db


def edited(input_at: int, change: float) -> tuple[Case, Model]:
    """The demo's file with another scale, or zero point, where one tensor is dequantized."""
    quantized, samples = demo()
    proto = insert_quantizers(quantized.float_model, quantized.quantizers).proto
    constants = {each.name: numpy_helper.to_array(each) for each in proto.graph.initializer}
    makers = {name: node for node in proto.graph.node for name in node.output}
    node = next(
        each
        for each in proto.graph.node
        if each.op_type == "DequantizeLinear" and makers[each.input[0]].input[0].startswith("block2/relu")
    )
    other = np.asarray(constants[node.input[input_at]] * (change if input_at == 1 else 1))
    other = other if input_at == 1 else (other.astype(np.int64) + int(change)).astype(other.dtype)
    proto.graph.initializer.append(numpy_helper.from_array(other, "other"))
    node.input[input_at] = "other"
    given = model_from_proto(proto, path=Path("edited.onnx"))
    return open_case(read_quantized(given), samples), given


@pytest.mark.parametrize(("input_at", "change"), [(1, 1.6), (2, 40)], ids=["scale", "zero point"])
def test_a_node_of_the_file_shows_a_wrong_dequantization(input_at: int, change: float, tmp_path: Path) -> None:
    case, given = edited(input_at, change)
    [finding] = check_file(case, given).findings
    assert is_of_file(case, given, finding)
    found = reproduce_file(case, given, finding)
    assert len(found.nodes) == 1
    assert "block2/relu" in set(case.facts.nodes[found.nodes[0][0]].input)
    assert found.mended_db - found.faulty_db > 10
    shown(found, finding, tmp_path)


def test_other_findings_are_not_the_files() -> None:
    case, given = edited(1, 1.6)
    assert not is_of_file(case, given, Finding(1, "clipping", ("block2/relu",), ("block2/relu",), verbatim("")))
    with pytest.raises(NotLocal, match="No single node of the file shows finding 1"):
        reproduce_file(case, given, Finding(1, "clipping", ("logits",), (), verbatim("")))


def test_a_sum_that_does_not_fit_is_shown_in_integers(tmp_path: Path) -> None:
    quantized, samples = for_target(*biased())
    case = open_case(quantized, samples, arithmetic=Arithmetic(accumulator_bits=16, overflow="wrap"))
    finding = check_sums(case, ["conv1", "conv2"])
    assert finding is not None
    assert is_accumulator(finding)
    found = reproduce_accumulator(case, replace(finding, number=1))
    assert len(found.nodes) == 1
    assert found.nodes[0][0] in finding.nodes
    assert "16 bits that wrap" in found.observer
    shown(found, finding, tmp_path)


def test_sums_that_fit_are_not_shown() -> None:
    case = open_case(*for_target(*biased()), arithmetic=Arithmetic(accumulator_bits=32))
    finding = Finding(1, "overflow", ("conv1",), (), verbatim(""), evidence={"worst_ratio": 2.0})
    with pytest.raises(NotLocal, match="No node of finding 1"):
        reproduce_accumulator(case, finding)
