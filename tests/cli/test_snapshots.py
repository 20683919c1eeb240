"""What every analysing command prints, kept in files: in English at 80 and 200 columns, in Chinese at 80.

After a wanted change ``ROUNDOFF_UPDATE_SNAPSHOTS=1 pytest tests/cli/test_snapshots.py`` writes the files anew;
look at what changed. Digits and times are not compared: their last places may differ from machine to machine.
"""

import os
import re
import shutil
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from rich.cells import cell_len
from rich.console import RenderableType

import roundoff.cli
from roundoff.cli import main
from roundoff.cli.terminal import Terminal
from roundoff.demo import load_split, model_path
from tests.cli.inspecting import save_quantized

SNAPSHOTS = Path(__file__).parent / "snapshots"
WIDTHS = {"en": (80, 200), "zh": (80,)}
_QUANTIZED = ("--quantized", "quantized.onnx", "--data", "images.npy")
_MADE = ("digits.onnx", "--target", "generic-int8-per-tensor", "--data", "images.npy")

COMMANDS = {
    "layers": _QUANTIZED,
    "compare": ("digits.onnx", "quantized.onnx", "--data", "images.npy", "--rows", "12"),
    "sensitivity": (*_QUANTIZED, "--top", "5"),
    "accumulate": (*_QUANTIZED, "--top", "5"),
    "partial": (*_QUANTIZED, "--top", "4"),
    "quantize": (*_MADE, "--calibration", "minmax,mse", "--set", "block1/*=float", "-o", "quantized"),
    "tune": (*_MADE, "--labels", "labels.npy", "--max-trials", "3", "-o", "tuned"),
    "transform": ("equalize,bias-correct", *_MADE, "-o", "transformed"),
    "audit": ("quantized.onnx", "--float", "digits.onnx"),
    "distribution": ("block3/relu", *_QUANTIZED),
    "channels": ("block3/*", *_QUANTIZED),
    "outliers": (*_QUANTIZED, "--top", "5"),
    "samples": (*_QUANTIZED, "--top", "5"),
    "diff": ("made", "broken"),
    "gate": ("broken", "--baseline", "made", "--top", "5"),
    "explain": ("block3/relu", "broken"),
    "diagnose": _QUANTIZED,
    "check-io": ("--preprocessed", "training.npy", "board.npy"),
    "check-calibration": (*_MADE, "--top", "5"),
    "bundle": ("broken", "-o", "ticket.zip"),
}


class Recorder(Terminal):
    """Keeps what is printed at each of several widths, results and notes in their order."""

    widths: tuple[int, ...] = ()
    pages: dict[int, str] = {}  # noqa: RUF012 - of the one terminal of a run

    def __init__(self) -> None:
        super().__init__()
        self.pages.clear()
        self.pages.update(dict.fromkeys(self.widths, ""))
        self._current = self.widths

    def print(self, renderable: RenderableType) -> None:
        for width in self.widths:
            self.out.width, self._current = width, (width,)
            super().print(renderable)
        self._current = self.widths

    def note(self, text: str) -> None:
        self._write(text)

    def wrapped(self, text: str) -> None:
        for width in self.widths:
            self.err.width, self._current = width, (width,)
            super().wrapped(timeless(text))
        self._current = self.widths

    def written(self, paths: Sequence[Path], most: int | None = None) -> None:
        for width in self.widths:
            self.err.width, self._current = width, (width,)
            super().written(paths, most)
        self._current = self.widths

    def _write(self, text: str) -> None:
        for width in self._current:
            self.pages[width] += text if text.endswith("\n") else f"{text}\n"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a model, a quantized one that is broken at one place, samples, and runs of 'layers'."""
    here = tmp_path_factory.mktemp("snapshots")
    images, labels = load_split("calibration")[:2]
    np.save(here / "images.npy", images[:12])
    np.save(here / "labels.npy", labels[:12])
    photos = np.random.default_rng(0).integers(0, 256, (4, 3, 12, 12)).astype(np.float32)
    np.save(here / "training.npy", (photos - 120) / 60)
    np.save(here / "board.npy", photos[:, ::-1] / 255)
    shutil.copy(model_path(), here / "digits.onnx")
    save_quantized(here / "quantized.onnx")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(here)
        main(["layers", *_QUANTIZED, "-o", "broken"])
        main(["layers", *_MADE, "-o", "made"])
    return here


def printed(command: str, language: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> dict[int, str]:
    """What a command prints, by width."""
    monkeypatch.chdir(folder)
    monkeypatch.delenv("ROUNDOFF_LANG", raising=False)
    monkeypatch.setattr(Recorder, "widths", WIDTHS[language])
    monkeypatch.setattr(roundoff.cli, "Terminal", Recorder)
    words = list(COMMANDS[command])
    if "-o" in words:
        words.append("--force")
    main([command, *words, "--lang", language])
    return dict(Recorder.pages)


def timeless(text: str) -> str:
    """A text without what a clock says."""
    return re.sub(r"\d+(\.\d+)? (s|min|h)\b", "0 s", text)


def masked(text: str) -> str:
    """A page without what differs from machine to machine."""
    steady = re.sub(r"\d+(\.\d+)?e-\d+", "0e-0", timeless(text))
    return re.sub(r"\d", "0", re.sub(r"\d+(\.\d+)? [kM]?B\b", "0 B", steady))


@pytest.mark.parametrize("language", WIDTHS)
@pytest.mark.parametrize("command", COMMANDS)
def test_the_terminal_shows_what_it_did(
    command: str, language: str, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for width, text in printed(command, language, folder, monkeypatch).items():
        path = SNAPSHOTS / f"{command}_{width}_{language}.txt"
        if os.environ.get("ROUNDOFF_UPDATE_SNAPSHOTS"):
            path.write_text(text, encoding="utf-8")
        assert masked(text) == masked(path.read_text(encoding="utf-8")), f"see {path.name}"


@pytest.mark.parametrize("path", sorted(SNAPSHOTS.glob("*.txt")), ids=lambda path: path.stem)
def test_every_snapshot_is_of_a_command_and_fits(path: Path) -> None:
    command, width, language = path.stem.rsplit("_", 2)
    assert command in COMMANDS
    assert int(width) in WIDTHS[language]
    text = path.read_text(encoding="utf-8")
    # What is no table or verdict is not wrapped: notes go to the standard error, where the terminal wraps them.
    labels = ("note", "written", "trial", "注意", "已写入", "试验")
    wide = [line for line in text.splitlines() if cell_len(line) > int(width) and not line.startswith(labels)]
    assert wide == []
    assert bool(re.search("[\u4e00-\u9fff]", text)) == (language == "zh")
