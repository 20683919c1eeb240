"""What is said when --max-memory does not suffice: with options that the command has, and no others."""

import re
from pathlib import Path

import numpy as np
import pytest

from roundoff.cli import main
from tests.models import conv_net, random_feed, save

QUANTIZING = ("--target", "generic-int8")
COMMANDS = {
    "dump": ("dump", "net.onnx", "--data", "image.npy", "-o", "out"),
    "compare": ("compare", "dumped", "net.onnx", "--data", "image.npy"),
    "quantize": ("quantize", "net.onnx", "--data", "image.npy", *QUANTIZING, "-o", "out"),
    "layers": ("layers", "net.onnx", "--data", "image.npy", *QUANTIZING),
    "sensitivity": ("sensitivity", "net.onnx", "--data", "image.npy", *QUANTIZING),
    "accumulate": ("accumulate", "net.onnx", "--data", "image.npy", *QUANTIZING),
    "distribution": ("distribution", "net.onnx", "*", "--data", "image.npy", *QUANTIZING),
    "outliers": ("outliers", "net.onnx", "--data", "image.npy", *QUANTIZING),
}


@pytest.mark.parametrize("words", COMMANDS.values(), ids=COMMANDS)
def test_only_options_of_the_command_are_named(
    words: tuple[str, ...],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    save(conv_net(), tmp_path / "net.onnx")
    np.save("image.npy", random_feed({"image": (1, 3, 8, 8)})["image"])
    assert main(["dump", "net.onnx", "--data", "image.npy", "-o", "dumped"]) == 0
    capsys.readouterr()
    with pytest.raises(SystemExit):
        main([words[0], "--help"])
    options = set(re.findall(r"--[a-z-]+", capsys.readouterr().out))
    code = main([*words, "--max-memory", "1MB"])
    err = capsys.readouterr().err
    assert code == 2, err
    assert "the budget is 1.0 MB" in err
    named = set(re.findall(r"--[a-z-]+", err.partition("fix:")[2]))
    assert "--max-memory" in named
    assert named <= options
    assert ("--tensors" in named) == (words[0] == "dump")
