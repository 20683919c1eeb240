"""A folder with images and a quantized model, in which commands that look at tensors are run."""

from collections.abc import Callable
from functools import cache
from pathlib import Path

import numpy as np
import onnx
import pytest

from roundoff.cli import main
from roundoff.demo import load_split, model_path
from roundoff.graph.insertion import insert_quantizers
from roundoff.report.plots import distributions as channels
from roundoff.report.plots import distributions as distribution
from roundoff.report.plots import distributions as outliers
from tests.quantized import with_scale_times
from tests.studies.layers.support import demo_network

Run = Callable[..., tuple[int, str, str]]
MODEL = str(model_path())


@cache
def _quantized(factor: float) -> bytes:
    quantized, _ = demo_network()
    # A range that is too small: a planted fault.
    spoilt = with_scale_times(quantized, ["block3/relu"], factor)
    return bytes(insert_quantizers(spoilt.float_model, spoilt.quantizers).proto.SerializeToString())


def save_quantized(path: Path, *, factor: float = 0.2) -> None:
    """Write the demo's network, quantized, with a range that is too small at one place."""
    onnx.save(onnx.ModelProto.FromString(_quantized(factor)), path)


def runner(command: str, folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Run:
    """Runs one command in a folder with ``images.npy`` and ``quantized.onnx``."""
    monkeypatch.chdir(folder)
    monkeypatch.setenv("COLUMNS", "100")
    np.save("images.npy", load_split("calibration")[0][:12])
    save_quantized(Path("quantized.onnx"))
    # What is in the pictures is tested with them; drawing each again would take most of the time.
    for module in (channels, distribution, outliers):
        monkeypatch.setattr(
            module, "draw", lambda size, paint, *, form: {"png": b"\x89PNG", "svg": b"<?xml"}[form]
        )

    def call(*words: str) -> tuple[int, str, str]:
        code = main([command, *words])
        return (code, *capsys.readouterr())

    return call
