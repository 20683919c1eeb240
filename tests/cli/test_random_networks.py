"""Commands that compare runs say so when a network gives something else in each."""

from pathlib import Path

import numpy as np
import pytest
from onnx import helper

from roundoff.cli import main
from tests.models import save, value
from tests.odd_models import images, with_tail


@pytest.mark.parametrize("command", ["layers", "sensitivity", "accumulate", "partial", "samples"])
def test_a_random_network_is_refused(
    command: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    noise = helper.make_node("RandomUniformLike", ["logits"], ["noise"], name="draw")
    noisy = helper.make_node("Add", ["logits", "noise"], ["y"], name="noisy")
    save(with_tail([noise, noisy], [value("y")]), tmp_path / "net.onnx")
    np.save("images.npy", np.concatenate([feed["image"] for feed in images().feeds]))
    words = ["net.onnx", "--data", "images.npy", "--target", "generic-int8"]
    assert main([command, *words]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert "output 'y' depends on 'draw' (RandomUniformLike), which gives other values in each run" in err
    assert main(["quantize", *words, "-o", "out"]) == 1
    out, err = capsys.readouterr()
    assert out.startswith("NOT ENOUGH EVIDENCE: ")
    assert "two runs cannot be compared by 'y'" in " ".join(out.split())
    assert "roundoff layers" not in out, "it would refuse as well"
