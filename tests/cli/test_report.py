"""roundoff report."""

import json
from pathlib import Path

import pytest

from roundoff import demo
from roundoff.cli import main
from roundoff.report.run_directory import write_run
from tests.report.documents import empty_document, full_document

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


def test_tables_go_to_a_folder(run: Path, tmp_path: Path) -> None:
    assert main(["report", str(run), "-o", str(tmp_path / "tables"), "--format", "csv"]) == 0
    assert (tmp_path / "tables/layers.csv").read_text(encoding="utf-8").startswith("order,")


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
    for content in (b"\x93NUMPY", b"[" * 100_000, b'{"schema": ' + b"9" * 5000 + b"}"):
        (tmp_path / "other.json").write_bytes(content)
        assert main(["report", str(tmp_path / "other.json"), "-o", str(tmp_path / "r.html")]) == 2
        assert "other.json is not a run document" in capsys.readouterr().err


def test_only_comparisons_become_junit(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_run(empty_document(), tmp_path / "run", force=False)
    assert main(["report", str(tmp_path / "run"), "-o", str(tmp_path / "r.xml")]) == 2
    assert "roundoff compare" in capsys.readouterr().err


def test_every_analysing_command_writes_it_too(tmp_path: Path) -> None:
    out = tmp_path / "r.html"
    words = ["compare", str(DEMO / "digits.onnx"), str(DEMO / "board_dump"), "--data", str(DEMO / "samples.npy")]
    assert main([*words, "--html", str(out)]) == 0
    assert "张量比对" in out.read_text(encoding="utf-8")
    assert main([*words, "--html", str(out)]) == 2
    assert main([*words, "--html", str(out), "--force"]) == 0
