"""plot_distribution, get_channelwise_data_distribution, tensor_analysis."""

from pathlib import Path

import pytest

import roundoff.vendors.horizon as dbg

Case = tuple[str, str]


def test_a_picture_for_each_node(case: Case, here: Path) -> None:
    dbg.plot_distribution("out", case[0], case[1], ["w1_HzCalibration", "relu1_HzCalibration", "Conv2"])
    names = sorted(path.name for path in (here / "out").iterdir())
    assert names == ["Conv2.png", "relu1_HzCalibration.png", "w1_HzCalibration.png"]


@pytest.mark.usefixtures("undrawn")
def test_channels_of_calibration_nodes_alone(case: Case, here: Path) -> None:
    nodes = ["w1_HzCalibration", "relu1_HzCalibration"]
    dbg.get_channelwise_data_distribution(
        save_dir="out", model_or_file=case[0], calibrated_data=case[1], nodes_list=nodes, axis=None
    )
    assert sorted(path.stem for path in (here / "out").iterdir()) == sorted(nodes)
    with pytest.raises(ValueError, match="'Conv2' is an ordinary node") as caught:
        dbg.get_channelwise_data_distribution("out", case[0], case[1], ["Conv2"])
    assert "relu1_HzCalibration, w2_HzCalibration" in str(caught.value)


@pytest.mark.usefixtures("undrawn")
def test_tensors_are_described(case: Case, here: Path) -> None:
    dbg.tensor_analysis(case[0], case[1], ["w2_HzCalibration"], num_processes=1)
    folder = here / "debug_result"
    lines = (folder / "tensor_analysis.log").read_text(encoding="utf-8").splitlines()
    assert lines[0].strip("=") == "tensor analysis"
    assert lines[3].split()[0] == "w2_HzCalibration"
    assert lines[3].split()[7] == "8"
    assert sorted(path.name for path in folder.iterdir()) == [
        "channelwise_distribution", "data_distribution", "tensor_analysis.csv", "tensor_analysis.json",
        "tensor_analysis.log",
    ]  # fmt: skip


def test_errors_say_what_to_write(case: Case) -> None:
    with pytest.raises(ValueError, match="did you mean 'w1_HzCalibration'"):
        dbg.plot_distribution("out", case[0], case[1], ["w1_HzCalibratio"])
    with pytest.raises(ValueError, match="nodes_list names no node"):
        dbg.plot_distribution("out", case[0], case[1], [])
    with pytest.raises(TypeError, match="lists of names"):
        dbg.plot_distribution("out", case[0], case[1], [["Conv1"]])
    with pytest.raises(TypeError, match="axis is '1'"):
        dbg.get_channelwise_data_distribution("out", case[0], case[1], ["w1_HzCalibration"], "1")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match=r"there is no axis 9\.\nfix: give axis from 0 to 3"):
        dbg.get_channelwise_data_distribution("out", case[0], case[1], ["w1_HzCalibration"], 9)
    with pytest.raises(ValueError, match="num_processes is 0"):
        dbg.tensor_analysis(case[0], case[1], ["Conv1"], num_processes=0)
