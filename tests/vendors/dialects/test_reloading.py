"""Settings that were written give, read again by those they are for, the network they were written from."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime as ort
import pytest
from hypothesis import given
from hypothesis import strategies as st

import roundoff.vendors.amct.onnx as amct
from roundoff.core.plan import FLOAT, Precision, Rule
from roundoff.errors import BadInput
from roundoff.graph.load import load_model
from roundoff.graph.quantized_model import QuantizedModel
from roundoff.graph.readers.reader import read_quantized
from roundoff.quantize.pipeline import QuantizeSettings, quantize_model
from roundoff.quantize.planning.rules import load_rules
from roundoff.quantize.targets.files import load_target
from roundoff.samples.sample_set import ArraySamples
from roundoff.vendors.dialects import find_dialect
from roundoff.vendors.dialects.chips import read_encodings
from roundoff.vendors.dialects.settings import Decisions, Made
from roundoff.vendors.horizon.run_all import sensitivity_analysis
from roundoff.vendors.pulsar2.build import BuildOptions, build
from roundoff.vendors.pulsar2.config.files import load_config
from roundoff.vendors.pulsar2.tables import Log
from tests.models import save
from tests.vendors.dialects.support import FEEDS, RULES, decided, outputs, quantized_outputs, written
from tests.vendors.pulsar2.nets import CALIBRATION, mixed

NNCF = Path(os.environ.get("ROUNDOFF_NNCF_PYTHON", "/tmp/venv-nncf/bin/python"))  # noqa: S108 - where a test looks


@pytest.mark.parametrize("target", ["generic-int8", "generic-int8-per-tensor", "onnxruntime"])
def test_onnxruntime_gives_the_same_network(tmp_path: Path, target: str) -> None:
    decisions = decided(tmp_path, *RULES, target=target)
    found = written("onnxruntime", decisions, tmp_path)
    np.savez(tmp_path / "samples.npz", image=FEEDS)
    script = next(name for name in found.files if name.endswith(".py"))
    command = [sys.executable, script, "float.onnx", "int8.onnx", "samples.npz"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    theirs = read_quantized(load_model(tmp_path / "int8.onnx"), float_model=decisions.quantized.float_model)
    weighted = {edge.node for each in theirs.quantizers for edge in each.consumers if each.kind == "weight"}
    assert weighted == {"conv1", "conv2", "conv3"}
    ours = {each.tensor: each for each in decisions.quantized.quantizers if not each.after}
    same = [each for each in theirs.quantizers if each.kind == "weight" and each.tensor in ours]
    assert len(same) == 3
    for each in same:
        assert np.array_equal(each.params.scale, ours[each.tensor].params.scale)
    assert "u16" in {each.spec.dtype for each in theirs.quantizers}
    assert np.array_equal(quantized_outputs(theirs, tmp_path), quantized_outputs(decisions.quantized, tmp_path))


def test_onnxruntime_computes_the_same_bits(tmp_path: Path) -> None:
    decisions = decided(tmp_path, *RULES[1:])
    written("onnxruntime", decisions, tmp_path)
    np.savez(tmp_path / "samples.npz", image=FEEDS)
    command = [sys.executable, "net_onnxruntime.py", "float.onnx", "int8.onnx", "samples.npz"]
    subprocess.run(command, cwd=tmp_path, capture_output=True, check=True)
    ours = quantized_outputs(decisions.quantized, tmp_path)
    assert np.array_equal(outputs(tmp_path / "int8.onnx"), ours)
    assert not np.array_equal(outputs(tmp_path / "float.onnx"), ours)


def test_results_that_stay_in_float_are_said(tmp_path: Path) -> None:
    """Nobody tells quantize_static not to round what an integer node writes for a Softmax in float."""
    found = written("onnxruntime", decided(tmp_path, "softmax1=float"), tmp_path)
    assert any("results of quantized nodes that stay in float: 'scores'" in str(each) for each in found.missing)


def test_overrides_have_an_effect(tmp_path: Path) -> None:
    decisions = decided(tmp_path)
    found = written("onnxruntime", decisions, tmp_path)
    settings = json.loads(found.files["net_onnxruntime.json"])
    entry = settings["extra_options"]["TensorQuantOverrides"]["s1"][0]
    entry["scale"] *= 20
    (tmp_path / "net_onnxruntime.json").write_text(json.dumps(settings))
    np.savez(tmp_path / "samples.npz", image=FEEDS)
    command = [sys.executable, "net_onnxruntime.py", "float.onnx", "int8.onnx", "samples.npz"]
    subprocess.run(command, cwd=tmp_path, capture_output=True, check=True)
    theirs = read_quantized(load_model(tmp_path / "int8.onnx"))
    scales = {each.tensor: float(each.params.scale) for each in theirs.quantizers if each.params.scale.ndim == 0}
    assert scales["s1"] == pytest.approx(entry["scale"], rel=1e-6)


def test_encodings_give_the_same_network(tmp_path: Path) -> None:
    decisions = decided(tmp_path, "classifier=float")
    written("aimet", decisions, tmp_path)
    again = read_encodings(tmp_path / "net.encodings", decisions.quantized.float_model)
    assert {each.tensor for each in again.quantizers} == {
        each.tensor for each in decisions.quantized.quantizers if each.consumers or each.output
    }
    ours = quantized_outputs(decisions.quantized, tmp_path)
    assert np.array_equal(quantized_outputs(again, tmp_path), ours)


def test_the_newer_layout_of_encodings_is_the_same(tmp_path: Path) -> None:
    decisions = decided(tmp_path)
    text = find_dialect("aimet").write(decisions).files["net.encodings"]
    old = json.loads(text)
    new: dict[str, Any] = {"version": "1.0.0"}
    for section in ("activation_encodings", "param_encodings"):
        new[section] = [
            {
                "name": tensor,
                "bw": entries[0]["bitwidth"],
                "dtype": "INT",
                "is_sym": entries[0]["is_symmetric"] == "True",
                "scale": [each["scale"] for each in entries],
                "offset": [each["offset"] for each in entries],
            }
            for tensor, entries in old[section].items()
        ]
    model = decisions.quantized.float_model
    found = []
    for name, content in (("old.encodings", old), ("new.encodings", new)):
        (tmp_path / name).write_text(json.dumps(content))
        found.append(read_encodings(tmp_path / name, model).quantizers)
    for left, right in zip(*found, strict=True):
        assert (left.name, left.kind, left.spec, left.consumers) == (
            right.name,
            right.kind,
            right.spec,
            right.consumers,
        )
        assert np.array_equal(left.params.scale, right.params.scale)
        assert np.array_equal(left.params.zero_point, right.params.zero_point)


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ("nothing", "is not JSON"),
        ("[]", "has neither activation_encodings nor param_encodings"),
        ('{"activation_encodings": 3}', "is not laid out as encodings are"),
        ('{"activation_encodings": {"a1": [{"bitwidth": 8}]}}', "has no usable numbers for 'a1'"),
        ('{"param_encodings": {"w1": [{"bitwidth": 8, "scale": 0, "offset": 0}]}}', "a scale is not positive"),
        (
            '{"activation_encodings": {"a1": [{"bitwidth": 8, "scale": 1, "offset": 9}]}}',
            "at which zero has no code",
        ),
        (
            '{"param_encodings": [{"name": "w1", "bw": 8, "scale": [1, 1, 1], "offset": [0, 0, 0]}]}',
            "has 3 scales for 'w1'",
        ),
    ],
)
def test_encodings_that_are_none_are_refused(tmp_path: Path, content: str, said: str) -> None:
    model = decided(tmp_path).quantized.float_model
    (tmp_path / "x.encodings").write_text(content)
    with pytest.raises(BadInput, match=said):
        read_encodings(tmp_path / "x.encodings", model)


def test_tensors_that_nothing_reads_are_told(tmp_path: Path) -> None:
    model = decided(tmp_path).quantized.float_model
    entry = {"bitwidth": 8, "scale": 1, "offset": 0}
    in_float = {"bitwidth": 32, "dtype": "float"}
    (tmp_path / "x.encodings").write_text(
        json.dumps({"activation_encodings": {"elsewhere": [entry], "a1": [in_float]}})
    )
    found = read_encodings(tmp_path / "x.encodings", model)
    assert found.quantizers == ()
    assert tuple(map(str, found.notes)) == (
        "x.encodings has a scale for 'elsewhere', which nothing in the model reads",
    )


def test_our_rules_give_the_same_plan(tmp_path: Path) -> None:
    decisions = decided(tmp_path, *RULES, "between:c2..s1=activation=u16")
    written("roundoff", decisions, tmp_path)
    rules = load_rules(tmp_path / "net_rules.toml")
    assert rules == decisions.made.rules
    settings = QuantizeSettings(load_target("generic-int8"), rules=rules)
    samples = ArraySamples({"image": FEEDS})
    again = quantize_model(load_model(save(mixed(), tmp_path / "net.onnx")), samples, settings)
    assert [each.name for each in again.quantized.quantizers] == [
        each.name for each in decisions.quantized.quantizers
    ]


def test_rules_are_found_where_none_are_known(tmp_path: Path) -> None:
    known = decided(tmp_path, *RULES)
    written("roundoff", Decisions(known.quantized, known.nodes, Made("net", "generic-int8")), tmp_path)
    settings = QuantizeSettings(load_target("generic-int8"), rules=load_rules(tmp_path / "net_rules.toml"))
    samples = ArraySamples({"image": FEEDS})
    again = quantize_model(load_model(save(mixed(), tmp_path / "net.onnx")), samples, settings)
    in_float = {node.node for node in again.best.plan.nodes if node.in_float or node.float_between_integers}
    assert {node.name for node in known.floats} <= in_float


@given(names=st.lists(st.text(min_size=1), min_size=1, max_size=4), kind=st.sampled_from(["node", "tensor", "op"]))
def test_rules_survive_any_names(tmp_path_factory: pytest.TempPathFactory, names: list[str], kind: str) -> None:
    rule = Rule(kind, tuple(names), Precision("u16", FLOAT, "u8"))  # type: ignore[arg-type]
    folder = tmp_path_factory.mktemp("rules")
    decisions = Decisions(decided_once(folder), (), Made("net", rules=(rule,)))
    try:
        text = find_dialect("roundoff").write(decisions).files["net_rules.toml"].encode()
    except UnicodeEncodeError:
        return  # no file can hold half a surrogate pair
    (folder / "net_rules.toml").write_bytes(text)
    assert load_rules(folder / "net_rules.toml") == (rule,)


def decided_once(folder: Path) -> QuantizedModel:
    """A network; the same for every example."""
    if not _KNOWN:
        _KNOWN.append(decided(folder).quantized)
    return _KNOWN[0]


_KNOWN: list[QuantizedModel] = []


def test_amct_takes_its_configurations(tmp_path: Path) -> None:
    decisions = decided(tmp_path, *RULES)
    found = written("amct", decisions, tmp_path)
    model = str(save(mixed(), tmp_path / "net.onnx"))
    modified, record = str(tmp_path / "modified.onnx"), str(tmp_path / "record.txt")
    amct.quantize_model(str(tmp_path / "net_amct.json"), model, modified, record)
    session = ort.InferenceSession(modified, amct.AMCT_SO)
    for feed in FEEDS:
        session.run(None, {"image": feed[None]})
    amct.save_model(modified, record, str(tmp_path / "out/net"))
    theirs = read_quantized(load_model(tmp_path / "out/net_fake_quant_model.onnx"))
    readers = {edge.node for each in theirs.quantizers for edge in each.consumers if each.kind == "weight"}
    assert readers == {"conv1", "conv2", "conv3"}
    amct.create_quant_config(str(tmp_path / "again.json"), model, config_defination=str(tmp_path / "net_amct.cfg"))
    again = json.loads((tmp_path / "again.json").read_text())
    full = json.loads(found.files["net_amct.json"])
    for name in ("conv1", "conv2", "conv3", "scores", "context", "classifier"):
        assert again[name]["quant_enable"] == full[name]["quant_enable"], name
        assert again[name]["weight_quant_params"] == full[name]["weight_quant_params"]
        ours, theirs_bits = (each[name]["activation_quant_params"].get("num_bits", 8) for each in (full, again))
        assert ours == theirs_bits
    assert full["conv2"]["activation_quant_params"]["num_bits"] == 16
    assert not full["classifier"]["quant_enable"]


def test_pulsar2_takes_its_configuration(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    decisions = decided(tmp_path, "conv2=u16", "softmax1=float", target="axera-ax650")
    found = written("pulsar2", decisions, tmp_path)
    config = json.loads(found.files["net_pulsar2.json"])
    config["quant"]["input_configs"] = [CALIBRATION]
    (tmp_path / "config.json").write_text(json.dumps(config))
    (tmp_path / "calib").mkdir()
    for number, feed in enumerate(FEEDS):
        np.save(tmp_path / "calib" / f"{number}.npy", feed[None])
    save(mixed(), tmp_path / "net.onnx")
    log = Log()
    loaded_config = load_config(tmp_path / "config.json", [("input", "net.onnx"), ("output_dir", "out")])
    result = build(loaded_config, log, options=BuildOptions(force=True))
    assert result.followed
    built = read_quantized(load_model(tmp_path / "out/quant/quant_axmodel.onnx"))
    reads = {edge.node: each.spec.dtype for each in built.quantizers for edge in each.consumers if edge.input == 0}
    assert reads["conv2"] == "u16"
    assert reads["conv3"] == "u8"


def test_horizon_takes_the_nodes(tmp_path: Path) -> None:
    decisions = decided(tmp_path, "conv2=u16", "classifier=float")
    found = written("horizon", decisions, tmp_path)
    nodes = json.loads(found.files["net_quant_config.json"])["node_config"]
    assert nodes["classifier"] == {"qtype": "float32"}
    assert nodes["conv2"] == {"qtype": "int16"}
    plain = decided(tmp_path)
    quantized_outputs(plain.quantized, tmp_path)
    data = tmp_path / "data" / "image"
    data.mkdir(parents=True)
    np.save(data / "0.npy", FEEDS[:1])
    names = [name for name, each in nodes.items() if each["qtype"] == "float32"]
    scores = sensitivity_analysis(
        str(tmp_path / "ours.onnx"),
        str(tmp_path / "data"),
        sensitive_nodes=names,
        qtype="float32",
        save_dir=str(tmp_path),
    )
    assert set(names) <= set(scores)


@pytest.mark.skipif(not NNCF.exists(), reason="no interpreter with nncf; set ROUNDOFF_NNCF_PYTHON")
def test_nncf_leaves_the_nodes_in_float(tmp_path: Path) -> None:
    decisions = decided(tmp_path, "conv2=float", "classifier=float")
    written("nncf", decisions, tmp_path)
    np.save(tmp_path / "feeds.npy", FEEDS)
    code = (
        "import sys, nncf, onnx, numpy as np; sys.path.insert(0, '.');"
        "from net_nncf import arguments;"
        "data = nncf.Dataset([{'image': each[None]} for each in np.load('feeds.npy')]);"
        "onnx.save(nncf.quantize(onnx.load('float.onnx'), data, subset_size=4, **arguments()), 'int8.onnx')"
    )
    done = subprocess.run([str(NNCF), "-c", code], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    theirs = read_quantized(load_model(tmp_path / "int8.onnx"))
    readers = {edge.node for each in theirs.quantizers for edge in each.consumers if each.kind == "weight"}
    assert {"conv1", "conv3"} <= readers
    assert not readers & {"conv2", "classifier"}
