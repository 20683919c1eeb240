"""runall, and the published walk-through as it is written there."""

from pathlib import Path

import pytest

import roundoff.vendors.horizon as dbg

Case = tuple[str, str]


@pytest.mark.usefixtures("undrawn")
def test_files_are_where_the_vendor_puts_them(case: Case, here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    dbg.runall(case[0], case[1], dis_nodes_list=["w1_HzCalibration"], cw_nodes_list=["w1_HzCalibration"],
               sensitive_nodes=["Conv1"], verbose=True)  # fmt: skip
    folder = here / "debug_result"
    assert sorted(path.relative_to(folder).as_posix() for path in folder.rglob("*.*")) == [
        "accumulate_error/accumulate_error_quantize_node.csv",
        "accumulate_error/accumulate_error_quantize_node.json",
        "accumulate_error/accumulate_error_quantize_node.png",
        "channelwise_distribution/w1_HzCalibration.png",
        "data_distribution/w1_HzCalibration.png",
        "node_sensitivity/sensitivity_of_activation.csv",
        "node_sensitivity/sensitivity_of_activation.json",
        "node_sensitivity/sensitivity_of_activation.log",
        "node_sensitivity/sensitivity_of_weight.csv",
        "node_sensitivity/sensitivity_of_weight.json",
        "node_sensitivity/sensitivity_of_weight.log",
        "sensitivity_analysis/sensitivity_analysis.csv",
        "sensitivity_analysis/sensitivity_analysis.json",
        "sensitivity_analysis/sensitivity_analysis.log",
    ]
    assert capsys.readouterr().out.count("node sensitivity=") == 2


@pytest.mark.usefixtures("undrawn")
def test_of_a_ranking_of_nodes_the_calibration_nodes_are_drawn(case: Case, here: Path) -> None:
    dbg.runall(
        case[0], case[1], "out", node_type="node", interested_nodes=["Conv2"], quantize_node=["weight"],
        pick_threshold=-1,
    )  # fmt: skip
    drawn = sorted(path.stem for path in (here / "out" / "data_distribution").iterdir())
    assert drawn == ["relu1_HzCalibration", "w2_HzCalibration"]
    assert drawn == sorted(path.stem for path in (here / "out" / "channelwise_distribution").iterdir())
    assert (here / "out" / "node_sensitivity" / "sensitivity_of_node.log").is_file()
    log = (here / "out" / "sensitivity_analysis" / "sensitivity_analysis.log").read_text(encoding="utf-8")
    assert len(log.splitlines()) == 4


def test_a_kind_that_does_not_exist(case: Case) -> None:
    with pytest.raises(ValueError, match="no node_type 'op'"):
        dbg.runall(case[0], case[1], node_type="op")


@pytest.mark.usefixtures("undrawn")
def test_the_walk_through(case: Case, here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (here / "calibrated_model.onnx").symlink_to(case[0])
    (here / "calibration_data").symlink_to(case[1])
    dbg.plot_acc_error(
        save_dir="./",
        calibrated_data="./calibration_data",
        model_or_file="./calibrated_model.onnx",
        quantize_node=["weight", "activation"],
        metric="cosine-similarity",
        average_mode=False,
    )
    node_message = dbg.get_sensitivity_of_nodes(
        model_or_file="./calibrated_model.onnx",
        metrics="cosine-similarity",
        calibrated_data="./calibration_data/",
        output_node=None,
        node_type="weight",
        data_num=None,
        verbose=True,
        interested_nodes=None,
    )
    nodes = list(node_message.keys())
    assert [line.split()[0] for line in capsys.readouterr().out.splitlines()[3:]] == nodes
    dbg.plot_distribution(
        save_dir="./",
        model_or_file="./calibrated_model.onnx",
        calibrated_data="./calibration_data",
        nodes_list=["w1_HzCalibration", "w2_HzCalibration"],
    )
    dbg.plot_acc_error(
        save_dir="./",
        calibrated_data="./calibration_data/",
        model_or_file="./calibrated_model.onnx",
        non_quantize_node=[nodes[:1], nodes[:2], nodes[:3], nodes[:4]],
        metric="cosine-similarity",
        average_mode=False,
    )
    assert sorted(path.name for path in here.glob("*.png")) == [
        "accumulate_error_non_quantize_node.png", "accumulate_error_quantize_node.png", "w1_HzCalibration.png",
        "w2_HzCalibration.png",
    ]  # fmt: skip
