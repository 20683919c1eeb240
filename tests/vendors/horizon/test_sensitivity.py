"""get_sensitivity_of_nodes."""

import inspect
import json
import logging
import math
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

import roundoff.vendors.horizon as dbg
from roundoff.errors import BadInput
from roundoff.graph.insertion import bake_quantizers
from roundoff.graph.load import load_model
from roundoff.graph.readers.reader import read_quantized
from roundoff.vendors.horizon import gen1
from roundoff.vendors.horizon.inputs import Dataset
from tests.vendors.horizon.support import SAMPLES, cosine_with_only, feeds, horizon_model

Case = tuple[str, str]


def test_values_are_those_of_running_the_whole_model(case: Case) -> None:
    found = dbg.get_sensitivity_of_nodes(case[0], calibrated_data=case[1], node_type="weight", data_num=None)
    quantizers = {"w1": "q:Conv1:weight", "w2": "q:Conv2:weight", "w3": "q:Classifier:weight"}
    assert set(found) == {f"{name}_HzCalibration" for name in quantizers}
    for name, quantizer in quantizers.items():
        value = found[f"{name}_HzCalibration"]["cosine-similarity"]
        assert 1 - value == pytest.approx(1 - cosine_with_only(case[0], quantizer), rel=1e-3)
    values = [float(scores["cosine-similarity"]) for scores in found.values()]
    assert values == sorted(values)


def test_a_node_is_all_that_is_on_its_inputs(case: Case) -> None:
    found = dbg.get_sensitivity_of_nodes(case[0], "cosine-similarity", case[1], data_num=2)
    assert set(found) == {"Conv1", "Conv2", "Pool", "Flatten", "Classifier"}
    expected = cosine_with_only(case[0], "q:relu1", "q:Conv2:weight", count=2)
    assert 1 - found["Conv2"]["cosine-similarity"] == pytest.approx(1 - expected, rel=1e-3)


def test_the_first_metric_ranks_and_all_are_given(case: Case) -> None:
    metrics = ["mse", "cosine-similarity", "mre", "sqnr", "chebyshev"]
    found = dbg.get_sensitivity_of_nodes(case[0], metrics, case[1], node_type="activation", data_num=None)
    assert all(list(scores) == metrics for scores in found.values())
    errors = [scores["mse"] for scores in found.values()]
    assert errors == sorted(errors, reverse=True)
    assert "logits_HzCalibration" in found


def test_data_before_metrics_as_on_the_command_line(case: Case) -> None:
    named = dbg.get_sensitivity_of_nodes(model_or_file=case[0], metrics="mse", calibrated_data=case[1])
    assert dbg.get_sensitivity_of_nodes(case[0], case[1], "mse") == named
    assert list(dbg.get_sensitivity_of_nodes(case[0], case[1])["Conv1"]) == ["cosine-similarity"]


def test_models_with_calibration_nodes_are_taken_from_memory(case: Case) -> None:
    arrays = {"image": [feed["image"] for feed in feeds()]}
    model = horizon_model()
    found = dbg.get_sensitivity_of_nodes(model, "sqnr", arrays, node_type="activation", data_num=None)
    # 16 bits beside 8.
    assert list(found) == ["image_HzCalibration", "b_HzCalibration"]
    assert found["b_HzCalibration"]["sqnr"] > found["image_HzCalibration"]["sqnr"] + 20
    assert set(dbg.get_sensitivity_of_nodes(model, "sqnr", arrays)) == {"Conv_0", "Conv_2"}


def test_interested_nodes_override_the_kind_and_lists_are_groups(case: Case) -> None:
    names = ["w1_HzCalibration", "Conv2"]
    found = dbg.get_sensitivity_of_nodes(
        case[0], calibrated_data=case[1], node_type="activation", interested_nodes=names, data_num=None
    )
    assert set(found) == set(names)
    groups = dbg.get_sensitivity_of_nodes(
        case[0],
        calibrated_data=case[1],
        interested_nodes=[["w1_HzCalibration", "w2_HzCalibration"]],
        data_num=None,
    )
    (value,) = (scores["cosine-similarity"] for scores in groups.values())
    assert 1 - value == pytest.approx(1 - cosine_with_only(case[0], "q:Conv1:weight", "q:Conv2:weight"), rel=1e-3)


def test_what_an_output_node_does_not_depend_on_is_perfect(case: Case) -> None:
    found = dbg.get_sensitivity_of_nodes(case[0], ["sqnr", "mse"], case[1], output_node="Conv1", data_num=None)
    assert math.isfinite(found["Conv1"]["sqnr"])
    assert found["Classifier"] == {"sqnr": math.inf, "mse": 0.0}


def test_data_num_takes_the_first_samples(case: Case) -> None:
    first = dbg.get_sensitivity_of_nodes(case[0], calibrated_data=case[1])
    alone: dict[str, Any] = {"image": feeds()[0]["image"]}
    assert first == dbg.get_sensitivity_of_nodes(case[0], calibrated_data=alone)
    assert first != dbg.get_sensitivity_of_nodes(case[0], calibrated_data=case[1], data_num=None)


def test_the_table_is_printed_once_and_logged(case: Case, capsys: Any, caplog: Any) -> None:
    caplog.set_level(logging.INFO)
    dbg.get_sensitivity_of_nodes(case[0], ["mse"], case[1], node_type="activation", verbose=True)
    out = capsys.readouterr().out
    assert out.splitlines()[0].strip("=") == "node sensitivity"
    assert out.splitlines()[1].split() == ["activation", "mse", "threshold", "bit"]
    assert out.strip() in caplog.text
    assert out.splitlines()[3].split()[-1] == "8"


def test_where_logging_shows_it_nothing_else_does(case: Case, capsys: Any) -> None:
    root = logging.getLogger()
    handler, level = logging.StreamHandler(), root.level
    root.addHandler(handler)
    root.setLevel(logging.INFO)
    try:
        dbg.get_sensitivity_of_nodes(case[0], "mse", case[1], verbose=True)
    finally:
        root.removeHandler(handler)
        root.setLevel(level)
    printed = capsys.readouterr()
    assert printed.out == ""
    assert printed.err.count("node sensitivity=") == 1


def test_doubts_are_said(case: Case, caplog: Any) -> None:
    dbg.get_sensitivity_of_nodes(case[0], "mse", case[1])
    assert "measured on 1 sample; data_num=None takes all" in caplog.text


def test_weights_that_are_stored_as_codes_are_told_of(case: Case, tmp_path: Path, caplog: Any) -> None:
    quantized = read_quantized(load_model(Path(case[0])))
    onnx.save(bake_quantizers(quantized.float_model, quantized.quantizers).proto, tmp_path / "codes.onnx")
    found = dbg.get_sensitivity_of_nodes(tmp_path / "codes.onnx", "mse", case[1], node_type="weight")
    assert {scores["mse"] for scores in found.values()} == {0.0}
    assert "stores its weights as codes: what quantizing them costs cannot be seen" in caplog.text
    caplog.clear()
    dbg.get_sensitivity_of_nodes(case[0], "mse", case[1], node_type="weight")
    assert "as codes" not in caplog.text


def test_everything_is_stored(case: Case, here: Path) -> None:
    found = dbg.get_sensitivity_of_nodes(case[0], "mse", case[1], data_num=None, save_dir="saved")
    assert sorted(path.name for path in (here / "saved").iterdir()) == [
        "node_sensitivity.csv", "node_sensitivity.json", "node_sensitivity.log",
    ]  # fmt: skip
    stored = json.loads((here / "saved" / "node_sensitivity.json").read_text(encoding="utf-8"))
    assert stored["scores"] == found
    assert len(stored["rankings"]["node"][0]["per_sample"]) == SAMPLES
    log = (here / "saved" / "node_sensitivity.log").read_text(encoding="utf-8").splitlines()
    assert [line.split()[0] for line in log[3:]] == list(found)


def test_the_first_generation_takes_all_samples_and_prints_every_digit(case: Case, capsys: Any) -> None:
    found = gen1.get_sensitivity_of_nodes(case[0], calibrated_data=case[1], verbose=True)
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].strip("=") == "node"
    assert lines[1].split() == ["Node", "cosine-similarity"]
    name, value = lines[3].split()
    assert float(value) == found[name]["cosine-similarity"]
    assert found == dbg.get_sensitivity_of_nodes(case[0], calibrated_data=case[1], data_num=None)


@pytest.mark.parametrize(
    ("options", "kind", "what", "fix"),
    [
        ({"metrics": "cosine"}, ValueError, "There is no metric 'cosine'", "did you mean 'cosine-similarity'?"),
        ({"metrics": 3}, TypeError, "metrics is int", "choose from: cosine-similarity, mse"),
        ({"metrics": []}, ValueError, "metrics is an empty list", "choose from"),
        ({"node_type": "weights"}, ValueError, "There is no node_type 'weights'", "did you mean 'weight'?"),
        ({"data_num": 5}, ValueError, "data_num is 5, but there are 4", "give 1 to 4, or None"),
        ({"data_num": 0}, ValueError, "data_num is 0", "give 1 to 4"),
        ({"data_num": "2"}, TypeError, "data_num is '2'", "give a number, or None"),
        ({"interested_nodes": ["Conv3"]}, ValueError, "'Conv3' is no quantized node", "did you mean 'Conv2'?"),
        ({"interested_nodes": ["Relu1"]}, ValueError, "'Relu1' (Relu) has no quantizer", "choose nodes that"),
        ({"interested_nodes": 7}, TypeError, "interested_nodes holds 7", "write interested_nodes=["),
        ({"output_node": "w1_HzCalibration"}, ValueError, "is a calibration node", "Conv1, Conv2"),
        ({"output_node": "Conv9"}, ValueError, "no tensor or node 'Conv9'", "did you mean 'conv2'?"),
        ({"model_or_file": 3}, TypeError, "model_or_file is int", "give the path"),
        ({"calibrated_data": 3}, TypeError, "calibrated_data is int", "give the folder"),
        ({"calibrated_data": "nowhere"}, ValueError, "nowhere do not exist", "one folder per input"),
        ({"save_dir": 3}, TypeError, "save_dir is 3", "give a folder"),
    ],
)
def test_errors_say_what_to_write(
    case: Case, options: dict[str, Any], kind: type[Exception], what: str, fix: str
) -> None:
    with pytest.raises(kind) as caught:
        dbg.get_sensitivity_of_nodes(**{"model_or_file": case[0], "calibrated_data": case[1], **options})
    assert isinstance(caught.value, BadInput)
    assert what in caught.value.what
    assert fix in caught.value.fix


def test_a_float_model_has_nothing_to_rank(case: Case, tmp_path: Path) -> None:
    from tests.models import conv_net, save

    with pytest.raises(ValueError, match="has no calibration nodes"):
        dbg.get_sensitivity_of_nodes(save(conv_net(), tmp_path / "float.onnx"), calibrated_data=case[1])


def test_arguments_are_those_of_the_vendor() -> None:
    expected = {
        "get_sensitivity_of_nodes": "model_or_file metrics calibrated_data output_node node_type data_num verbose "
        "interested_nodes save_dir generation",
        "plot_acc_error": "calibrated_data model_or_file quantize_node non_quantize_node metric average_mode "
        "save_dir",
        "plot_distribution": "save_dir model_or_file calibrated_data nodes_list",
        "get_channelwise_data_distribution": "save_dir model_or_file calibrated_data nodes_list axis",
        "sensitivity_analysis": "model_or_file calibrated_data metric pick_threshold data_num sensitive_nodes "
        "qtype output_separated save_dir",
        "tensor_analysis": "model_or_file calibration_data node_names save_dir num_processes",
        "select_sensitive_samples": "calibrated_model calibration_data metric num_sample",
        "runall": "model_or_file calibrated_data save_dir ns_metrics output_node node_type data_num verbose "
        "interested_nodes dis_nodes_list cw_nodes_list axis quantize_node non_quantize_node ae_metric "
        "average_mode pick_threshold sensitive_nodes",
    }
    found = {name: " ".join(inspect.signature(getattr(dbg, name)).parameters) for name in expected}
    assert found == expected
    assert next(iter(inspect.signature(gen1.plot_acc_error).parameters)) == "save_dir"


def test_the_same_model_as_file_and_in_memory(case: Case) -> None:
    proto = onnx.load(case[0])
    before = proto.SerializeToString()
    samples = dbg.select_sensitive_samples(proto, case[1], "cosine-similarity", 2)
    assert isinstance(samples, Dataset)
    from_memory = dbg.get_sensitivity_of_nodes(proto, calibrated_data=samples, data_num=None)
    assert from_memory == dbg.get_sensitivity_of_nodes(Path(case[0]), calibrated_data=samples, data_num=None)
    assert proto.SerializeToString() == before
    assert np.isfinite([scores["cosine-similarity"] for scores in from_memory.values()]).all()
