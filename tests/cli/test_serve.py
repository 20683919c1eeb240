"""roundoff serve."""

import signal
import subprocess
import sys
import urllib.request
from pathlib import Path

import pytest

from roundoff.cli import main
from roundoff.cli.terminal import Terminal
from roundoff.core.progress import read_progress
from roundoff.report.pages import write_run
from tests.report.documents import full_document


def test_it_prints_where_it_is_and_ends_when_told(tmp_path: Path) -> None:
    write_run(full_document(), tmp_path / "a-run", force=False)
    command = [sys.executable, "-m", "roundoff", "serve", str(tmp_path), "--lang", "zh"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        address = process.stdout.readline().strip()
        with urllib.request.urlopen(address, timeout=20) as answer:  # noqa: S310 - our own server
            text = answer.read().decode()
    finally:
        process.send_signal(signal.SIGINT)
        _, said = process.communicate(timeout=20)
    assert 'data-language="zh"' in text
    assert "a-run" in text
    assert (process.returncode, "Traceback" in said) == (0, False)


@pytest.mark.parametrize(
    ("words", "said"), [(["none"], "is not a folder"), ([".", "--port", "70000"], "is not a port")]
)
def test_what_cannot_be_served_is_said(
    words: list[str],
    said: str,
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    try:
        code = main(["serve", *words])
    except SystemExit as end:
        code = int(end.code or 0)
    assert code == 2
    assert said in capsys.readouterr().err


def test_a_command_with_an_output_can_be_watched(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("roundoff.core.progress._QUIET_S", 0.0)
    monkeypatch.setattr("roundoff.core.progress._EVERY_S", 0.0)
    terminal = Terminal()
    with terminal.watched(tmp_path / "out"):
        terminal.start("layers", 5)
        terminal.advance(2)
        (job,) = read_progress(tmp_path)
        assert (job.output, job.title, job.done, job.total) == ("out", "layers", 2, 5)
    assert read_progress(tmp_path) == ()
    with terminal.watched(None):
        terminal.start("layers", 5)
    assert list(tmp_path.iterdir()) == []
