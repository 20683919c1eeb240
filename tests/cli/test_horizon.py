"""The command ``roundoff horizon``."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest

import roundoff.vendors.horizon as dbg
from roundoff.cli import main
from roundoff.cli.horizon import join_lists
from tests.vendors.horizon.support import write_case

Run = Callable[..., tuple[int, str, str]]
MODEL, DATA = "calibrated_model.onnx", "calibration_data"


@pytest.fixture
def run(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Run:
    """Runs a sub-command in a folder with a calibrated model and its data, without drawing."""
    monkeypatch.chdir(tmp_path)
    write_case(tmp_path)
    for module in ("curves", "distributions"):
        monkeypatch.setattr(f"roundoff.report.plots.{module}.draw", lambda *_, **__: b"\x89PNG")

    def call(sub: str, *words: str) -> tuple[int, str, str]:
        return (main(["horizon", sub, MODEL, DATA, *words]), *capsys.readouterr())

    return call


def test_the_table_of_a_ranking_is_printed(run: Run) -> None:
    code, out, _ = run(
        "get-sensitivity-of-nodes", "-m", "['cosine-similarity','mse']", "-n", "weight", "-d", "None"
    )
    assert code == 0
    lines = out.splitlines()
    assert lines[0].strip("=") == "node sensitivity"
    assert lines[1].split() == ["weight", "cosine-similarity", "mse"]
    expected = dbg.get_sensitivity_of_nodes(MODEL, calibrated_data=DATA, node_type="weight", data_num=None)
    assert [line.split()[0] for line in lines[3:]] == list(expected)
    assert run("get-sensitivity-of-nodes", "-v", "False", "--save_dir", "saved")[:2] == (0, "")
    assert Path("saved/node_sensitivity.log").is_file()


@pytest.mark.parametrize(
    "words",
    [
        ("-q", "[weight,activation]"),
        ("-q", "['weight','activation']"),
        ("-q", "\"['weight', 'activation']\""),
        # What a shell makes of -q ['weight', 'activation'].
        ("-q", "[weight,", "activation]"),
    ],
)
def test_lists_as_people_write_them(run: Run, words: tuple[str, ...]) -> None:
    code, _, err = run("plot_acc_error", *words, "-a", "True", "-s", "out")
    assert (code, err) == (0, "written: out\n")
    content = json.loads(Path("out/accumulate_error_quantize_node.json").read_text(encoding="utf-8"))
    assert [curve["name"] for curve in content["curves"]] == ["all", "weight", "activation"]
    assert content["average"] is True


def test_lists_in_lists(run: Run) -> None:
    assert run("plot-acc-error", "-nq", "[[Conv1, Conv2],", "[Pool]]", "-m", "mse")[0] == 0
    path = Path("debug_result/accumulate_error_non_quantize_node.json")
    content = json.loads(path.read_text(encoding="utf-8"))
    assert [curve["name"] for curve in content["curves"]] == ["all", "partial_qmodel_0", "partial_qmodel_1"]
    assert content["metric"] == "mean_mse"


def test_only_lists_are_joined() -> None:
    words = ["m.onnx", "-n", "[a,", "b[3],", "c]", "-s", "x[1", "-v", "True"]
    assert join_lists(words) == ["m.onnx", "-n", "[a, b[3], c]", "-s", "x[1", "-v", "True"]


def test_the_other_sub_commands(run: Run) -> None:
    assert run("plot-distribution", "-n", "[w1_HzCalibration,Conv2]", "-s", "a")[0] == 0
    assert sorted(path.name for path in Path("a").iterdir()) == ["Conv2.png", "w1_HzCalibration.png"]
    assert run("get-channelwise-data-distribution", "-n", "['w1_HzCalibration']", "-a", "1", "-s", "b")[0] == 0
    assert [path.name for path in Path("b").iterdir()] == ["w1_HzCalibration.png"]
    code, out, _ = run("sensitivity-analysis", "-sn", "[Conv1]", "-q", "int16", "-sd", "c", "-d", "2")
    assert code == 0
    assert out == Path("c/sensitivity_analysis.log").read_text(encoding="utf-8")
    assert json.loads(Path("c/sensitivity_analysis.json").read_text(encoding="utf-8"))["qtype"] == "int16"
    code, out, _ = run("tensor-analysis", "-n", "[Conv1]", "-np", "1", "-s", "d")
    assert (code, out) == (0, Path("d/tensor_analysis.log").read_text(encoding="utf-8"))
    code, out, _ = run(
        "runall", "-s", "e", "-nm", "mse", "-o", "Conv2", "-nt", "activation", "-dn", "2", "-v", "True", "-i",
        "None", "-dnl", "[Conv1]", "-cn", "[w1_HzCalibration]", "-a", "0", "-qn", "[weight]", "-nqn", "[Conv1]",
        "-am", "sqnr", "-avm", "False", "-pt", "0.5", "-sn", "[Conv2]",
    )  # fmt: skip
    assert code == 0
    assert "activation" in out
    assert "sensitivity analysis to float32" in out
    assert {path.name for path in Path("e").iterdir()} == {
        "node_sensitivity", "data_distribution", "channelwise_distribution", "accumulate_error",
        "sensitivity_analysis",
    }  # fmt: skip


@pytest.mark.parametrize(
    ("words", "error"),
    [
        (("get-sensitivity",), "There is no sub-command 'get-sensitivity'"),
        (("get-sensitivity-of-nodes", "-n", "weigth"), "did you mean 'weight'?"),
        (("plot-acc-error",), "write quantize_node=['weight', 'activation']"),
        (("plot-acc-error", "-nq", "weight"), "write quantize_node=['activation']"),
        (("get-channelwise-data-distribution", "-n", "Conv1"), "image_HzCalibration, w1_HzCalibration"),
    ],
)
def test_errors_say_what_to_write(run: Run, words: tuple[str, ...], error: str) -> None:
    code, out, err = run(*words)
    assert (code, out) == (2, "")
    assert err.startswith("error: ")
    assert error in err


@pytest.mark.parametrize(
    ("words", "error"),
    [
        (("plot-distribution",), "the following arguments are required: -n/--nodes_list"),
        (("plot-acc-error", "-q", "[a"), "a bracket is not closed"),
        (("plot-acc-error", "-q", "[a]", "-a", "maybe"), "'maybe' is neither True nor False"),
        (("get-sensitivity-of-nodes", "-d", "few"), "'few' is neither a whole number nor None"),
        (("sensitivity-analysis", "-p", "low"), "'low' is not a number"),
    ],
)
def test_wrong_usage_is_one_line_and_a_fix(
    run: Run, words: tuple[str, ...], error: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as caught:
        run(*words)
    assert caught.value.code == 2
    first, last = capsys.readouterr().err.splitlines()
    assert error in first
    assert last == f"fix: see 'roundoff horizon {words[0]} --help'"


def test_help_of_a_sub_command(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        main(["horizon", "runall", "--help"])
    assert caught.value.code == 0
    out = capsys.readouterr().out
    flags = "s nm o nt dn v i dnl cn a qn nqn am avm pt sn"
    assert all(f"  -{flag} VALUE" in out for flag in flags.split(" "))
