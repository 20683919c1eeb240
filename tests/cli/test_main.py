"""The command line as a whole: exit codes, interruptions, progress."""

import argparse
import errno
import os
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from rich.table import Table

import roundoff.cli.terminal
from roundoff import __version__
from roundoff.cli import COMMANDS, command_of, main
from roundoff.cli.diagnosis import compare
from roundoff.cli.options import OptionGroup, flat_options
from roundoff.cli.terminal import Terminal
from roundoff.errors import BadInput
from roundoff.studies.distribution.page import CHANNELS_CSV_START, DISTRIBUTION_CSV_START, OUTLIERS_CSV_START
from roundoff.studies.samples.page import WORST_SAMPLES_CSV_START
from roundoff.studies.sensitivity.page import SENSITIVITY_CSV_START


def test_module_and_command_are_one() -> None:
    asked = [sys.executable, "-m", "roundoff", "--version"]
    assert subprocess.run(asked, capture_output=True, text=True, check=True).stdout == f"roundoff {__version__}\n"


def test_no_command_shows_the_three_that_fit(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main([]) == 2
    printed = capsys.readouterr()
    assert "finds where a quantized or deployed network loses accuracy" in printed.err
    commands = [line.strip() for line in printed.out.splitlines() if line.startswith("  roundoff ")]
    assert commands == ["roundoff demo", "roundoff demo board", "roundoff init"]


@pytest.mark.parametrize(
    ("words", "fix"),
    [
        (["quantise", "m.onnx"], "fix: did you mean 'quantize'? See 'roundoff --help'"),
        (["layer"], "fix: did you mean 'layers'? See 'roundoff --help'"),
        (
            ["layers", "m.onnx", "--quantised=q", "--target", "t"],
            "fix: did you mean '--quantized'? See 'roundoff layers --help'",
        ),
    ],
)
def test_a_slip_of_the_pen_is_understood(words: list[str], fix: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        main(words)
    assert caught.value.code == 2
    assert capsys.readouterr().err.splitlines()[-1] == fix


@pytest.mark.parametrize(
    ("words", "error", "asked"),
    [
        (["frobnicate"], "there is no command 'frobnicate'", "roundoff --help"),
        (["--frobnicate"], "the following arguments are required: COMMAND", "roundoff --help"),
        (["compare", "--nonsense", "a", "b"], "unrecognized arguments: --nonsense", "roundoff compare --help"),
        (["--nonsense", "compare", "a", "b"], "unrecognized arguments: --nonsense", "roundoff compare --help"),
        (["compare", "a"], "the following arguments are required: CANDIDATE", "roundoff compare --help"),
        (
            ["dump", "m.onnx", "-o", "d", "--samples", "0"],
            "argument --samples: '0' is not",
            "roundoff dump --help",
        ),
    ],
)
def test_wrong_usage_is_one_line_and_a_fix(
    words: list[str], error: str, asked: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as caught:
        main(words)
    assert caught.value.code == 2
    first, last = capsys.readouterr().err.splitlines()
    assert first.startswith("error: ")
    assert error in first
    assert last == f"fix: see '{asked}'"


@pytest.fixture
def pair(tmp_path: Path) -> list[str]:
    for side, factor in (("a", 1), ("b", 2)):
        (tmp_path / side).mkdir()
        for index in range(30):
            np.save(tmp_path / side / f"t{index}.npy", factor * np.arange(1.0, 40.0))
    return [sys.executable, "-m", "roundoff", "compare", str(tmp_path / "a"), str(tmp_path / "b")]


@pytest.mark.parametrize(("limit", "code"), [("cosine=0.9", 0), ("norm_error=0.1", 1)])
@pytest.mark.parametrize("style", [[], ["--csv"], ["--json"]])
def test_a_reader_that_leaves_does_not_change_the_verdict(
    pair: list[str], limit: str, code: int, style: list[str]
) -> None:
    process = subprocess.Popen(
        [*pair, "--threshold", limit, *style], stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    assert process.stdout is not None
    process.stdout.close()
    err = process.stderr.read().decode() if process.stderr else ""
    assert process.wait(timeout=60) == code
    assert err == ""


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no /dev/full on this system")
def test_an_output_that_is_full_is_said(pair: list[str]) -> None:
    with Path("/dev/full").open("w") as full:
        done = subprocess.run([*pair, "--csv"], stdout=full, stderr=subprocess.PIPE, text=True, check=False)
    assert done.returncode == 2
    assert "The standard output cannot be written: No space left" in done.stderr
    assert "Traceback" not in done.stderr


def test_names_are_printed_on_a_terminal_that_lacks_their_letters(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    np.save(tmp_path / "a" / "\u540d.npy", np.ones(3))
    asked = [sys.executable, "-m", "roundoff", "compare", str(tmp_path / "a"), str(tmp_path / "a"), "--csv"]
    environment = {**os.environ, "PYTHONIOENCODING": "ascii"}
    done = subprocess.run(asked, capture_output=True, text=True, env=environment, check=False)
    assert (done.returncode, "\\u540d" in done.stdout) == (0, True)


@pytest.mark.parametrize(
    ("error", "code", "message"),
    [
        (KeyboardInterrupt(), 130, "interrupted: nothing incomplete was left behind"),
        (MemoryError(), 2, "There is not enough memory"),
        (OSError(errno.ENOMEM, "Cannot allocate memory"), 2, "There is not enough memory"),
        (ImportError("x.so: failed to map segment from shared object"), 2, "There is not enough memory"),
    ],
)
def test_what_ends_a_command_early(
    error: BaseException,
    code: int,
    message: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    def fail(*_: object) -> int:
        raise error

    monkeypatch.setattr("roundoff.cli.diagnosis.compare", replace(compare, run=fail))
    with monkeypatch.context() as patched:
        patched.setattr(sys, "stdout", sys.stdout)
        assert main(["compare", "a", "b"]) == code
    assert message in capsys.readouterr().err


@pytest.mark.parametrize("sent", [signal.SIGINT, signal.SIGTERM])
def test_being_stopped_leaves_nothing_behind(tmp_path: Path, sent: signal.Signals) -> None:
    for side in ("a", "b"):
        (tmp_path / side).mkdir()
        for index in range(40):
            np.save(tmp_path / side / f"t{index}.npy", np.zeros((16, 1 << 14), np.float32))
    asked = [sys.executable, "-m", "roundoff", "compare", "a", "b", "-o", "out"]
    process = subprocess.Popen(asked, cwd=tmp_path, stderr=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    deadline = time.monotonic() + 10
    # Interrupt once it reads the tensors, that is, while it holds some of them mapped.
    maps = Path(f"/proc/{process.pid}/maps")
    while process.poll() is None and time.monotonic() < deadline:
        if not maps.exists() or ".npy" in maps.read_text():
            os.kill(process.pid, sent)
            break
    _, err = process.communicate(timeout=60)
    assert "Traceback" not in err
    assert process.returncode in (0, 130)
    if process.returncode == 130:
        assert sorted(path.name for path in tmp_path.iterdir()) == ["a", "b"]


def test_progress_is_shown_to_people_only(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(roundoff.cli.terminal, "_QUIET_S", 0.0)
    terminal = Terminal()
    terminal.start("comparing", 3)
    terminal.advance()
    terminal.finish()
    assert capsys.readouterr().err == ""
    monkeypatch.setenv("FORCE_COLOR", "1")
    terminal = Terminal()
    terminal.start("comparing", 3)
    terminal.advance(2)
    terminal.finish()
    assert "comparing" in capsys.readouterr().err


@pytest.mark.parametrize("screen", [True, False])
def test_an_error_fits_the_screen_and_is_one_line_in_a_log(
    screen: bool, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    if screen:
        monkeypatch.setenv("FORCE_COLOR", "1")
    Terminal().error(BadInput("There is no such thing " * 6 + "here.", fix="give another " * 9 + "one"))
    lines = capsys.readouterr().err.splitlines()
    assert (max(map(len, lines)) <= 80) == screen
    assert [line[:5] for line in lines if not line.startswith(" ")] == ["error", "fix: "]
    assert len(lines) == (4 if screen else 2)


@pytest.mark.skipif(sys.platform == "win32", reason="pipes of POSIX")
def test_whoever_stops_reading_notes_does_not_change_the_verdict() -> None:
    code = "from roundoff.cli.terminal import Terminal; Terminal().note('a note'); print('done')"
    read, written = os.pipe()
    os.close(read)
    ended = subprocess.run([sys.executable, "-c", code], stderr=written, stdout=subprocess.PIPE, check=False)
    os.close(written)
    assert (ended.returncode, ended.stdout.strip()) == (0, b"done")


def test_notes_and_results_are_text_not_markup(capsys: pytest.CaptureFixture[str]) -> None:
    terminal = Terminal()
    terminal.note("layer[0] [bold]x[/bold]")
    terminal.text("line [red]")
    printed = capsys.readouterr()
    assert printed.err == "layer[0] [bold]x[/bold]\n"
    assert printed.out == "line [red]\n"


def test_printed_lines_end_without_blanks(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    table = Table(box=None)
    table.add_column("name")
    table.add_column("remark", style="red")
    table.add_row("a", "long remark")
    table.add_row("b", "")
    Terminal().print(table)
    assert capsys.readouterr().out == " name  remark\n a     long remark\n b\n"
    monkeypatch.setenv("FORCE_COLOR", "1")
    Terminal().print(table)
    assert "long remark\x1b[0m\n b\n" in capsys.readouterr().out


def test_an_earlier_table_is_known_by_the_beginning_that_pages_write() -> None:
    starts = {
        "sensitivity": SENSITIVITY_CSV_START,
        "distribution": DISTRIBUTION_CSV_START,
        "channels": CHANNELS_CSV_START,
        "outliers": OUTLIERS_CSV_START,
        "samples": WORST_SAMPLES_CSV_START,
    }
    for name, start in starts.items():
        groups = [each for each in command_of(name).options if isinstance(each, OptionGroup)]
        assert [each.defaults["csv_start"] for each in groups if "csv_start" in each.defaults] == [start]


def test_no_command_declares_an_option_twice() -> None:
    for name in COMMANDS:
        command = command_of(name)
        names = [each.name for each in flat_options(command.options)]
        assert len(names) == len(set(names)), name
        assert command.about.strip(), name


def test_what_nobody_foresaw_is_bad_input(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fails(*_: object) -> int:
        raise KeyError("\x1b[31mdims")

    monkeypatch.setattr("roundoff.cli.parse_words", lambda _: argparse.Namespace(execute=fails))
    monkeypatch.delenv("ROUNDOFF_TRACEBACK")
    assert main(["targets"]) == 2
    out, err = capsys.readouterr()
    said = " ".join(err.split())
    assert out == ""
    assert "holds something unforeseen: KeyError" in said
    assert "test_main.py, line" in said
    assert "fix: check the files" in said
    assert "ROUNDOFF_TRACEBACK=1" in said
    assert "\x1b" not in err
    monkeypatch.setenv("ROUNDOFF_TRACEBACK", "1")
    with pytest.raises(KeyError):
        main(["targets"])
