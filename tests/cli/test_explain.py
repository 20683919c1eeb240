"""The command ``roundoff explain``."""

from pathlib import Path

import pytest

from roundoff.cli import main
from roundoff.core.document import to_json
from tests.report.documents import empty_document
from tests.studies.layers import test_layers


def test_words_and_nodes_are_printed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    assert main(["explain", "clipping"]) == 0
    out = capsys.readouterr().out
    assert out.startswith("The range of a quantizer is smaller")
    assert max(map(len, out.splitlines())) <= 80
    (tmp_path / "run.json").write_text(to_json(empty_document(layers=test_layers.REPORT)), encoding="utf-8")
    assert main(["explain", "logits", str(tmp_path)]) == 0
    assert "Alone, fed with float tensors, it keeps" in " ".join(capsys.readouterr().out.split())


def test_unknown_names_are_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["explain", "clippin"]) == 2
    assert "did you mean 'clipping'?" in capsys.readouterr().err
    assert main(["explain", "qqqq"]) == 2
    assert " more. Of a node or finding, name its run, too" in " ".join(capsys.readouterr().err.split())


def test_words_are_known_as_they_are_printed(capsys: pytest.CaptureFixture[str]) -> None:
    said = []
    for name in ("outlier-channel", "离群通道", "OUTLIER CHANNEL"):
        assert main(["explain", name, "--lang", "zh"]) == 0
        said.append(capsys.readouterr().out)
    assert said == [said[0]] * 3
    assert main(["explain", "expected"]) == 0
    assert "every quantizer did the best" in " ".join(capsys.readouterr().out.split())
