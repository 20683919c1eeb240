"""plot_acc_error."""

import csv
import json
from pathlib import Path
from typing import Any

import pytest

import roundoff.vendors.horizon as dbg
from roundoff.vendors.horizon import gen1

Case = tuple[str, str]


def curves_in(path: Path) -> dict[str, tuple[str, ...]]:
    """The quantizers of each curve."""
    content = json.loads(path.read_text(encoding="utf-8"))
    return {curve["name"]: tuple(curve["quantizers"]) for curve in content["curves"]}


def test_a_curve_for_each_entry(case: Case, here: Path) -> None:
    dbg.plot_acc_error(
        save_dir="./",
        calibrated_data=case[1],
        model_or_file=case[0],
        quantize_node=["weight", "activation", "Conv2"],
    )
    assert (here / "accumulate_error_quantize_node.png").read_bytes().startswith(b"\x89PNG")
    found = curves_in(here / "accumulate_error_quantize_node.json")
    assert list(found) == ["all", "weight", "activation", "Conv2"]
    assert found["weight"] == ("q:Conv1:weight", "q:Conv2:weight", "q:Classifier:weight")
    assert found["Conv2"] == ("q:relu1", "q:Conv2:weight")
    assert len(found["all"]) == len(found["weight"]) + len(found["activation"])
    table = list(csv.DictReader((here / "accumulate_error_quantize_node.csv").read_text().splitlines()))
    assert table[-1]["node"] == "Classifier"


@pytest.mark.usefixtures("undrawn")
def test_nested_lists_are_numbered_and_left_out(case: Case, here: Path) -> None:
    nodes = ["w1_HzCalibration", "w2_HzCalibration"]
    gen1.plot_acc_error("out", case[1], case[0], None, [nodes[:1], nodes[:2]], "sqnr", True)
    found = curves_in(here / "out" / "accumulate_error_non_quantize_node.json")
    assert list(found) == ["all", "partial_qmodel_0", "partial_qmodel_1"]
    assert set(found["all"]) - set(found["partial_qmodel_0"]) == {"q:Conv1:weight"}
    assert set(found["all"]) - set(found["partial_qmodel_1"]) == {"q:Conv1:weight", "q:Conv2:weight"}
    content = json.loads((here / "out" / "accumulate_error_non_quantize_node.json").read_text())
    assert (content["metric"], content["average"]) == ("mean_sqnr_db", True)


@pytest.mark.parametrize(
    ("options", "kind", "what", "fix"),
    [
        ({}, ValueError, "both None", "quantize_node=['weight', 'activation']"),
        ({"non_quantize_node": ["weight"]}, ValueError, "not 'weight'", "write quantize_node=['activation']"),
        ({"non_quantize_node": [["Conv1", "activation"]]}, ValueError, "not 'activation'", "['weight']"),
        ({"quantize_node": ["Cnv1"]}, ValueError, "'Cnv1' is no", "did you mean 'Conv1'?"),
        ({"quantize_node": ["weight"], "metric": "l1"}, ValueError, "no metric 'l1'", "choose one of"),
        ({"quantize_node": ["weight"], "metric": ["mse", "mre"]}, ValueError, "Several metrics", "give one"),
        (
            {"quantize_node": ["weight"], "average_mode": "yes"},
            TypeError,
            "average_mode is 'yes'",
            "True or False",
        ),
        ({"quantize_node": "model.onnx"}, TypeError, "looks like a model", "name the arguments"),
    ],
)
def test_errors_say_what_to_write(
    case: Case, here: Path, options: dict[str, Any], kind: type[Exception], what: str, fix: str
) -> None:
    with pytest.raises(kind) as caught:
        dbg.plot_acc_error(case[1], case[0], **options)
    assert what in str(caught.value)
    assert fix in str(caught.value)
    assert list(here.iterdir()) == []
