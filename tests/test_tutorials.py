"""Tutorials: their commands run, and print what the pages show."""

import csv
import gzip
import json
import re
import shlex
import subprocess
import sys
from pathlib import Path

import numpy as np
import onnxruntime
import pytest
from scripts.make_repvgg import BLOCKS, PLANTED, build

from roundoff.cli import main
from roundoff.core.document import load_document
from roundoff.core.tensors import Array
from roundoff.demo import load_split
from roundoff.demo.stories import find_model

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "docs" / "tutorials" / "repvgg.md"
RECOGNISER = ROOT / "docs" / "tutorials" / "ocr.md"
CONSOLE = re.compile(r"```console\n(.*?)```", re.DOTALL)
PYTHON = re.compile(r"```python\n(.*?)```", re.DOTALL)
SHARED = ROOT.parent / "shared"
REAL = SHARED / "models" / "repvgg_fmnist" / "repvgg_fmnist_deploy_planted_conv5.onnx"
FASHION = SHARED / "data" / "fashion_mnist_t10k-{}-ubyte.gz"


def transcript(page: Path = PAGE) -> list[tuple[str, list[str]]]:
    """Each command of a page, with the pieces of its output that are shown."""
    steps: list[tuple[str, list[str]]] = []
    for block in CONSOLE.findall(page.read_text(encoding="utf-8")):
        more, *parts = re.split(r"^\$ ", block, flags=re.MULTILINE)
        if more:
            # The page goes on about the command before.
            steps[-1][1].extend(piece for piece in re.split(r"^\.\.\.\n", more, flags=re.MULTILINE) if piece)
        for part in parts:
            command, _, output = part.partition("\n")
            pieces = re.split(r"^\.\.\.\n", output, flags=re.MULTILINE)
            steps.append((command, [piece for piece in pieces if piece]))
    return steps


def plain(text: str) -> str:
    """Without line ends, and without what another processor may compute to other digits."""
    return " ".join(re.sub(r"[▁▂▃▄▅▆▇█]+", "|", re.sub(r"-?\d+\.\d+", "#", text)).split())


def test_every_command_prints_what_the_page_shows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "80")
    commands = set()
    for command, pieces in transcript():
        words = shlex.split(command)
        if words[0] == "cd":
            monkeypatch.chdir(words[1])
            continue
        if words[0] == "python":
            script = [sys.executable, str(ROOT / words[1]), *words[2:]]
            out = subprocess.run(script, check=True, capture_output=True, text=True).stdout
        else:
            # The quantization that the page starts from is a broken one, and says so.
            broken = words[1] == "quantize" and words[-1] == "int8"
            assert main(words[1:]) == int(broken), command
            out = capsys.readouterr().out
            assert out.startswith("LOSSY") == broken
            commands.add(words[1])
        found, place = plain(out), 0
        for piece in map(plain, pieces):
            place = found.find(piece, place)
            assert place >= 0, f"{command} does not print: {piece}\nbut: {found}"
            place += len(piece)
    assert commands == {"quantize", "accumulate", "sensitivity", "distribution", "channels", "partial"}
    (script_text,) = PYTHON.findall(PAGE.read_text(encoding="utf-8"))
    exec(compile(script_text, str(PAGE), "exec"), {})  # noqa: S102 - the page's own example
    assert "stage2.1.rbr_reparam.weight_HzCalibration" in capsys.readouterr().out
    assert len(list(Path("debug_result").glob("*.png"))) == 4


def test_the_fault_is_invisible_in_float(monkeypatch: pytest.MonkeyPatch) -> None:
    model = build()
    monkeypatch.setattr("scripts.make_repvgg.LARGEST_POWER", 0)
    images, labels = load_split("test")
    broken, sound = (
        onnxruntime.InferenceSession(each.SerializeToString()).run(None, {"image": images})[0]
        for each in (model, build())
    )
    np.testing.assert_array_equal(broken, sound)
    assert np.mean(sound.argmax(axis=1) == labels) > 0.97
    names = [name for name, _, _ in BLOCKS]
    assert names.index(PLANTED[1]) == names.index(PLANTED[0]) + 1


def _fashion(kind: str, header: int) -> Array:
    return np.frombuffer(gzip.decompress(Path(str(FASHION).format(kind)).read_bytes()), np.uint8, offset=header)


@pytest.mark.skipif(not REAL.is_file(), reason="no real models beside this checkout")
@pytest.mark.parametrize(
    ("target", "quantized", "guilty"),
    [
        ("generic-int8-per-tensor", 0.5, {"/f/f.5/dep/Conv", "/f/f.6/dep/Conv"}),
        # With a scale for each channel the weights in front are no longer hurt.
        ("generic-int8", 0.8, {"/f/f.6/dep/Conv"}),
    ],
)
def test_the_same_way_leads_to_the_fault_of_a_trained_network(
    target: str,
    quantized: float,
    guilty: set[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    images = _fashion("images-idx3", 16).reshape(-1, 1, 28, 28)
    inputs = ((images / 255 - 0.286) / 0.353).astype(np.float32)
    np.save("calibration.npy", inputs[-64:])
    np.save("test.npy", inputs[:1000])
    np.save("labels.npy", _fashion("labels-idx1", 8)[:1000].astype(np.int64))
    common = [str(REAL), "--quantized", "int8"]
    calibration = [*common, "--data", "calibration.npy"]
    assert main(["quantize", str(REAL), "--target", target, "--data", "calibration.npy", "-o", "int8"]) == 1
    assert main(["accumulate", *calibration]) == 0
    assert "/f/f.6/dep/Conv (Conv)" in re.search(r"jumps at (.*\n)", capsys.readouterr().out)[1]  # type: ignore[index]
    assert main(["sensitivity", *calibration, "-o", "ranking"]) == 0
    assert main(["distribution", *calibration, "*", "--csv", "values.csv"]) == 0
    with Path("values.csv").open(encoding="utf-8", newline="") as file:
        vanishing = [row["name"] for row in csv.DictReader(file) if "become zero" in row["advice"]]
    assert vanishing == ["/f/f.5/Relu"]
    scored = ["--data", "test.npy", "--labels", "labels.npy", "--ranking", "ranking", "--top", "3"]
    assert main(["partial", *common, *scored, "-o", "partial"]) == 0
    found = load_document(Path("partial")).partial
    assert found is not None
    assert set(found.chosen) == guilty
    assert found.float_score > 0.9
    assert found.steps[0].score < quantized
    assert found.steps[2].score >= 0.99 * found.float_score


@pytest.mark.skipif(find_model() is None, reason="the package rapidocr-onnxruntime is not installed")
def test_the_way_back_of_the_recogniser(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "80")
    steps = [(shlex.split(command), pieces) for command, pieces in transcript(RECOGNISER)]
    demos = [(words, pieces) for words, pieces in steps if words[:3] == ["roundoff", "demo", "ocr"]]
    assert len(demos) == 2
    for words, pieces in demos:
        assert main(words[1:]) == 0
        captured = capsys.readouterr()
        printed = plain(captured.out), plain(captured.err)
        for piece in map(plain, pieces):
            assert any(piece in each for each in printed), f"{words} does not print: {piece}\nbut: {printed}"
        told = re.findall(r"^  (in float|in 8 bits|repaired) +([\d.]+) % are read", captured.err, re.MULTILINE)
        rates = {name: float(share) for name, share in told}
        assert rates["repaired"] >= 0.98 * rates["in float"] > rates["in 8 bits"]


def test_the_recogniser_s_page_is_complete_without_it() -> None:
    """What the page tells to type is what there is, also where the network is not."""
    commands = [shlex.split(command) for command, _ in transcript(RECOGNISER)]
    assert any(words[:2] == ["pip", "install"] and "rapidocr-onnxruntime==1.4.4" in words for words in commands)
    for words in commands:
        if words[0] == "roundoff":
            with pytest.raises(SystemExit) as left:
                main([words[1], "--help"])
            assert left.value.code == 0


# Pages that show what the goldens keep, and the lines of which language.
KEPT = {
    "docs/reference/accumulate.md": ("accumulate", "en-80"),
    "docs/reference/diagnose.md": ("diagnose", "en-80"),
    "docs/reference/diff.md": ("diff", "en-80"),
    "docs/reference/explain.md": ("explain", "en-80"),
    "docs/reference/language.md": ("layers", "zh-80"),
    "docs/reference/partial.md": ("partial", "en-80"),
    "docs/reference/sensitivity.md": ("sensitivity", "en-80"),
    "README.md": ("compare-board", "en-80"),
}


@pytest.mark.parametrize(("page", "kept"), KEPT.items(), ids=KEPT)
def test_what_a_page_shows_is_what_the_program_prints(page: str, kept: tuple[str, str]) -> None:
    case, view = kept
    document = json.loads((ROOT / "tests/goldens/data" / f"{case}.json").read_text("utf-8"))
    printed = document["text"][view]["out"]
    (block,) = [each for each in CONSOLE.findall((ROOT / page).read_text("utf-8")) if printed[0] in each]
    shown = block[block.index(printed[0]) :].removesuffix("\n").removesuffix("\n...").splitlines()
    assert shown == printed[: len(shown)]
    assert len(shown) >= 5
