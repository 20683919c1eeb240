"""``roundoff demo``: copies its inputs, compares them, and says what to look at."""

import argparse
import filecmp
import re
import shlex
from pathlib import Path

import pytest

import roundoff.cli
from roundoff import demo
from roundoff.cli import project as command
from roundoff.cli.terminal import Terminal
from roundoff.core.document import load_document
from roundoff.demo.stories import STORIES
from roundoff.errors import BadInput
from roundoff.messages.catalogue import LANGUAGES, use_language


class FakeCompare:
    """Stands in for the command line: remembers what it was asked and writes one result."""

    def __init__(self, code: int = 0) -> None:
        self.code = code
        self.asked: list[str] = []
        self.language: list[str] = []

    def __call__(self, argv: list[str]) -> int:
        self.language, self.asked = argv[:2], argv[2:]
        results = Path(argv[argv.index("-o") + 1])
        results.mkdir(exist_ok=True)
        (results / "run.json").write_text("{}")
        return self.code


@pytest.fixture
def compare(monkeypatch: pytest.MonkeyPatch) -> FakeCompare:
    fake = FakeCompare()
    monkeypatch.setattr(roundoff.cli, "main", fake)
    return fake


def run(*words: str) -> int:
    parser = argparse.ArgumentParser()
    command.demo.declare(parser)
    return command.demo.run(parser.parse_args(words), Terminal())


def test_stories_can_be_told_one_behind_the_other(
    tmp_path: Path, compare: FakeCompare, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each has a folder of its own where none is named."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "roundoff-demo" / "inputs").mkdir(parents=True)
    assert run("board") == 0
    assert compare.asked[-1] == str(Path("board-demo/results"))


def test_the_inputs_are_copied_whole(tmp_path: Path, compare: FakeCompare) -> None:
    assert run("board", "-o", str(tmp_path / "demo")) == 0
    shipped, copied = demo.model_path().parent, tmp_path / "demo" / "inputs"
    names = ["digits.onnx", "samples.npy", *(f"board_dump/{index}.npz" for index in range(8))]
    assert sorted(p.relative_to(copied).as_posix() for p in copied.rglob("[!.]*.*")) == sorted(names)
    assert all(filecmp.cmp(shipped / name, copied / name, shallow=False) for name in names)


def test_the_command_shown_is_the_command_run(
    tmp_path: Path, compare: FakeCompare, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "a demo"
    run("board", "-o", str(folder))
    assert compare.asked == [
        "compare", f"{folder}/inputs/digits.onnx", f"{folder}/inputs/board_dump",
        "--data", f"{folder}/inputs/samples.npy", "-o", f"{folder}/results",
    ]  # fmt: skip
    shown = capsys.readouterr().err.replace("\\\n", "").splitlines()
    command_line = next(line for line in shown if line.startswith("  roundoff "))
    assert shlex.split(command_line) == ["roundoff", *compare.asked]


def test_the_command_speaks_the_language_of_the_demo(tmp_path: Path, compare: FakeCompare) -> None:
    for language in LANGUAGES:
        with use_language(language):
            run("board", "-o", str(tmp_path / language))
        assert compare.language == ["--lang", language]


def test_it_says_what_it_shows_and_names_the_results(
    tmp_path: Path, compare: FakeCompare, capsys: pytest.CaptureFixture[str]
) -> None:
    run("board", "-o", str(tmp_path / "demo"))
    printed = capsys.readouterr().err
    assert "reads 99.6 % of the handwritten digits of its test set right;\non a board, 83.6 %." in printed
    assert "tensors for 8 of the images" in printed
    results = tmp_path / "demo" / "results"
    assert printed.endswith(f"The results:\n  {results}/run.json\n  {results}/tensors.csv\n")
    assert "Look first at the verdict above" in printed
    assert "the output of block3/pointwise\n(block3/relu) by 0.5." in printed


def test_its_lines_fit_a_terminal(
    tmp_path: Path, compare: FakeCompare, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    run("board")
    run("board", "--force")
    assert [line for line in capsys.readouterr().err.splitlines() if len(line) > 80] == []


@pytest.mark.parametrize(("code", "expected"), [(0, 0), (1, 0), (2, 2), (3, 3), (4, 4), (130, 130)])
def test_a_missed_threshold_is_what_the_demo_is_about_but_a_failure_is_a_failure(
    tmp_path: Path, compare: FakeCompare, capsys: pytest.CaptureFixture[str], code: int, expected: int
) -> None:
    compare.code = code
    assert run("board", "-o", str(tmp_path / "demo")) == expected
    assert ("The results:" in capsys.readouterr().err) == (expected == 0)


def test_an_earlier_demo_is_replaced_only_when_told(tmp_path: Path, compare: FakeCompare) -> None:
    folder = str(tmp_path / "demo")
    run("board", "-o", folder)
    with pytest.raises(BadInput, match="already holds a result") as caught:
        run("board", "-o", folder)
    assert "--force" in caught.value.fix
    assert run("board", "-o", folder, "--force") == 0
    assert compare.asked[-1] == "--force"


def test_foreign_files_are_never_replaced(tmp_path: Path, compare: FakeCompare) -> None:
    mine = tmp_path / "demo" / "inputs" / "notes.txt"
    mine.parent.mkdir(parents=True)
    mine.write_text("mine")
    with pytest.raises(BadInput, match="holds files that roundoff did not write"):
        run("board", "-o", str(tmp_path / "demo"), "--force")
    assert mine.read_text() == "mine"
    assert compare.asked == []


def test_the_whole_demo_finds_the_planted_fault(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The real comparison, end to end, as a newcomer sees it."""
    assert roundoff.cli.main(["demo", "board", "-o", str(tmp_path / "demo")]) == 0
    printed = capsys.readouterr()
    comparison = load_document(tmp_path / "demo" / "results").comparison
    assert comparison is not None
    verdict = comparison.verdict
    assert verdict.first_divergence == "block3/relu"
    assert verdict.introduces == ("block3/relu",)
    start = next(line for line in printed.out.splitlines() if "starts at" in line)
    assert "block3/relu (Relu): 6.0 dB, cosine 0.99932, gain 0.49" in start
    assert printed.err.rstrip().endswith("results/tensors.csv")


def test_the_repair_brings_the_accuracy_back(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The real diagnosis, end to end, counted on images that it has not seen."""
    folder = tmp_path / "demo"
    assert roundoff.cli.main(["demo", "-o", str(folder)]) == 0
    printed = capsys.readouterr()
    rates = dict(re.findall(r"^  (on the chip|repaired|in float) +([\d.]+) %", printed.err, re.MULTILINE))
    broken, repaired, exact = (float(rates[name]) for name in ("on the chip", "repaired", "in float"))
    assert broken < exact - 5
    assert exact - repaired < 0.2 * (exact - broken)
    assert printed.out.startswith("CULPRITS: ")
    assert (folder / "results.html").read_bytes().startswith(b"<!doctype html>")
    found = load_document(folder / "results").diagnosis
    assert found is not None
    assert found.repair is not None
    assert found.repair.held_out > 0
    # What it promises for other samples, from the few that were held out, is what these show.
    assert found.repair.gain is not None
    low, high = found.repair.gain
    assert 0 < 100 * low <= repaired - broken <= 100 * high
    assert found.repair.interval is not None
    low, high = found.repair.interval
    assert 100 * low <= repaired <= 100 * high
    # They are too few for the word: that no more than 1 % is lost, 33 cannot show.
    assert 1 - low > 0.01
    assert not found.repair.reached
    assert "BETTER: top-1 accuracy " in printed.out


def test_the_recogniser_needs_its_package(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr("roundoff.demo.stories.PACKAGE", "no_such_package")
    with pytest.raises(BadInput, match="which is not installed") as caught:
        run("ocr", "-o", str(tmp_path / "demo"))
    assert "rapidocr-onnxruntime" in caught.value.fix
    assert list(tmp_path.iterdir()) == []


def test_every_story_is_offered() -> None:
    assert set(command._STORIES) == set(STORIES)
