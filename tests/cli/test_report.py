"""roundoff report."""

import json
from pathlib import Path

import numpy as np
import onnx
import pytest

from roundoff import demo
from roundoff.cli import main
from roundoff.core.document import load_document
from roundoff.pages.blocks import TableBlock
from roundoff.report.pages import all_pages, write_run
from tests.report.documents import HOSTILE, empty_document, full_document

DEMO = Path(demo.__file__).parent


@pytest.fixture
def run(tmp_path: Path) -> Path:
    write_run(full_document(), tmp_path / "run", force=False)
    return tmp_path / "run"


@pytest.mark.parametrize(
    ("name", "more", "start"),
    [
        ("r.html", [], "<!doctype html>"),
        ("r.md", [], "# roundoff layers: "),
        ("r.json", [], '{\n "schema"'),
        ("r.xml", [], "<?xml"),
        ("r.txt", ["--format", "md", "--title", "mine"], "# mine"),
        ("r.html", ["--lang", "zh"], "<!doctype html>"),
    ],
)
def test_every_format(run: Path, tmp_path: Path, name: str, more: list[str], start: str) -> None:
    out = tmp_path / name
    assert main(["report", str(run), "-o", str(out), *more]) == 0
    assert out.read_text(encoding="utf-8").lstrip().startswith(start)


@pytest.mark.parametrize(
    ("name", "more", "said"),
    [
        ("r.pdf", [], "no report ends in .pdf"),
        ("r.html", ["--format", "md"], "ends as html does, and --format is md"),
        ("r.json", ["--format", "junit"], "end the file in .xml"),
        ("r.md", ["--format", "csv"], "it is a folder"),
    ],
)
def test_the_ending_says_the_format_and_must_not_contradict_it(
    run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], name: str, more: list[str], said: str
) -> None:
    assert main(["report", str(run), "-o", str(tmp_path / name), *more]) == 2
    assert said in " ".join(capsys.readouterr().err.split())
    assert not (tmp_path / name).exists()


def test_a_folder_of_tables_may_have_a_dot(run: Path, tmp_path: Path) -> None:
    assert main(["report", str(run), "-o", str(tmp_path / "v1.2"), "--format", "csv"]) == 0
    assert (tmp_path / "v1.2/run.json").is_file()


def test_a_quantized_model_is_no_report_yet(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "int8").mkdir()
    (tmp_path / "int8/command.json").write_text("{}")
    assert main(["report", str(tmp_path / "int8"), "-o", str(tmp_path / "r.html")]) == 2
    assert "roundoff audit" in (said := capsys.readouterr().err)
    for words in (["explain", "fc"], ["diff", str(tmp_path / "int8")]):
        assert main([*words, str(tmp_path / "int8")]) == 2
        assert capsys.readouterr().err == said


def test_tables_go_to_a_folder(run: Path, tmp_path: Path) -> None:
    assert main(["report", str(run), "-o", str(tmp_path / "tables"), "--format", "csv"]) == 0
    assert (tmp_path / "tables/layers.csv").read_text(encoding="utf-8").startswith("order,")
    shown = {
        # Parts of a table, which have a word behind its name, are in its file.
        block.id.partition("-")[0]
        for page in all_pages(load_document(run))
        for block in page.blocks
        if isinstance(block, TableBlock)
    }
    assert {"layers", "inputs", "versions"} <= shown
    files = {path.stem for path in (tmp_path / "tables").iterdir()}
    assert shown - {"distributions", "transforms", "suspected"} <= files
    assert {"distribution", "histograms", "channels"} <= files
    assert not {"channels-0", "histogram-0", "distributions"} & files
    assert (tmp_path / "tables/versions.csv").read_text(encoding="utf-8").startswith("what,value\n")


def test_nothing_is_overwritten_unasked(run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "r.html"
    out.write_text("mine")
    for more in ([], ["--force"]):
        assert main(["report", str(run), "-o", str(out), *more]) == 2
        assert out.read_text() == "mine"
    assert "exists" in capsys.readouterr().err
    out.unlink()
    assert main(["report", str(run), "-o", str(out)]) == 0
    assert main(["report", str(run), "-o", str(out)]) == 2
    assert main(["report", str(run), "-o", str(out), "--force"]) == 0


def test_what_is_no_run_is_said(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "other.json").write_text(json.dumps({"schema": 99}))
    assert main(["report", str(tmp_path / "other.json"), "-o", str(tmp_path / "r.html")]) == 2
    assert "schema 99" in capsys.readouterr().err
    assert main(["report", str(tmp_path / "none"), "-o", str(tmp_path / "r.html")]) == 2
    capsys.readouterr()
    wrong = {
        b"\x93NUMPY": "is not UTF-8 text",
        b"[" * 100_000: "is nested too deep",
        b'{"schema": ' + b"9" * 5000 + b"}": "holds a number of too many digits",
    }
    for content, told in wrong.items():
        (tmp_path / "other.json").write_bytes(content)
        assert main(["report", str(tmp_path / "other.json"), "-o", str(tmp_path / "r.html")]) == 2
        assert f"other.json {told}" in " ".join(capsys.readouterr().err.split())


def test_what_has_nothing_to_judge_or_draw_is_said(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_run(empty_document(), tmp_path / "run", force=False)
    said = {
        "junit": "nothing that passes",
        "netron": "knows no network",
        "model-explorer": "no number for each node",
    }
    for form, text in said.items():
        assert main(["report", str(tmp_path / "run"), "-o", str(tmp_path / "r"), "--format", form]) == 2
        assert text in capsys.readouterr().err
        assert not (tmp_path / "r").exists()


def test_netron_gets_remarks_on_nodes(run: Path, tmp_path: Path) -> None:
    out = tmp_path / "r.onnx"
    assert main(["report", str(run), "-o", str(out)]) == 0
    model = onnx.load(out)
    remarks = {node.name: {each.key: each.value for each in node.metadata_props} for node in model.graph.node}
    assert list(remarks) == [node.name for node in full_document().network.nodes]  # type: ignore[union-attr]
    assert remarks[f"node of {HOSTILE}"]["Layers: tensor"] == HOSTILE
    assert not model.graph.initializer
    assert main(["report", str(run), "-o", str(out)]) == 2
    assert main(["report", str(run), "-o", str(out), "--force"]) == 0
    # A model is no earlier report, whoever wrote it.
    model.producer_name = "roundoff"
    onnx.save(model, out)
    assert main(["report", str(run), "-o", str(out), "--force"]) == 2


def test_model_explorer_gets_a_number_for_each_node(run: Path, tmp_path: Path) -> None:
    out = tmp_path / "r.json"
    assert main(["report", str(run), "-o", str(out), "--format", "model-explorer"]) == 0
    data = json.loads(out.read_text(encoding="utf-8"))
    assert [each["stop"] for each in data["gradient"]] == [0, 0.5, 1]
    assert data["results"]
    assert all(isinstance(each["value"], float) for each in data["results"].values())


def test_every_analysing_command_writes_it_too(tmp_path: Path) -> None:
    out = tmp_path / "r.html"
    words = ["compare", str(DEMO / "digits.onnx"), str(DEMO / "board_dump"), "--data", str(DEMO / "samples.npy")]
    assert main([*words, "--html", str(out)]) == 1
    assert "张量比对" in out.read_text(encoding="utf-8")
    assert main([*words, "--html", str(out)]) == 2
    assert main([*words, "--html", str(out), "--force"]) == 1


def test_searching_and_checking_commands_write_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    images, labels = demo.load_split("calibration")
    np.save("images.npy", images[:8])
    np.save("labels.npy", labels[:8])
    np.save("turned.npy", images[:8, :, ::-1])
    model, samples = str(DEMO / "digits.onnx"), ["--data", "images.npy", "--target", "generic-int8"]
    assert main(["quantize", model, *samples, "-o", "quantized"]) == 0
    commands = {
        "精度审计": ["audit", "quantized"],
        "变换与修正": ["transform", "equalize", model, *samples, "-o", "transformed"],
        "自动调优": ["tune", model, *samples, "--labels", "labels.npy", "--max-trials", "2", "-o", "tuned"],
        "输入输出对齐检查": ["check-io", "--preprocessed", "images.npy", "turned.npy"],
    }
    for title, words in commands.items():
        out = tmp_path / f"{words[0]}.html"
        assert main([*words, "--html", str(out)]) in (0, 1)
        assert title in out.read_text(encoding="utf-8")
        assert main([*words, "--html", str(out)]) == 2
    for folder in ("transformed", "tuned"):
        assert load_document(tmp_path / folder).network is not None
