"""onnx_opt.model_check: the float model before and after it is prepared."""

from pathlib import Path

import pytest

from roundoff.vendors.pulsar2.build import build
from roundoff.vendors.pulsar2.config.files import load_config
from roundoff.vendors.pulsar2.tables import Log
from tests.vendors.pulsar2.nets import mixed, write_all


@pytest.mark.parametrize("asked", [True, False])
def test_the_prepared_model_is_compared_when_asked(
    asked: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    write_all(tmp_path, mixed())
    given = [("input", "net.onnx"), ("output_dir", "out"), ("onnx_opt.model_check", str(asked).lower())]
    log = Log()
    build(load_config(tmp_path / "config.json", given), log)
    said = [line for line in log.lines if "model_check: the prepared model's outputs equal the original's" in line]
    assert len(said) == asked
