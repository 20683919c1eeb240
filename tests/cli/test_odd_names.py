# ruff: noqa: RUF001
"""Names of a model stay what they are in Chinese output, whatever sentences they look like."""

import io
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path

import numpy as np
import onnx
import pytest

from roundoff.cli import main
from roundoff.demo import model_path
from roundoff.report.plots import curves, distributions

ODD = """conv (3x3); it's "odd\""""
STUDIES = (
    "layers", "sensitivity", "accumulate", "partial", "distribution", "channels", "outliers", "samples",
    "diagnose",
)  # fmt: skip


@pytest.fixture(scope="module")
def case(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """The demo's model with an odd name of a node and of its tensors, and two samples."""
    folder = tmp_path_factory.mktemp("odd")
    proto = onnx.load(model_path())
    node = next(each for each in proto.graph.node if each.op_type == "Conv")
    old, node.name = node.output[0], ODD
    for each in proto.graph.node:
        for names in (each.input, each.output):
            names[:] = [ODD if name == old else name for name in names]
    del proto.graph.value_info[:]
    onnx.save(proto, folder / "odd.onnx")
    samples = np.load(model_path().parent / "samples.npy")[:2]
    np.save(folder / "x.npy", samples)
    return [str(folder / "odd.onnx"), "--target", "generic-int8", "--data", str(folder / "x.npy")]


@pytest.mark.parametrize("study", STUDIES)
def test_an_odd_name_stays(study: str, case: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # Pictures are looked at nowhere here, and drawing each would take most of the time.
    for module in (curves, distributions):
        monkeypatch.setattr(module, "draw", lambda *_, **__: b"\x89PNG")
    out = io.StringIO()
    model, *others = case
    selected = ["*"] if study in ("distribution", "channels") else []
    words = [study, model, *selected, *others, "-o", str(tmp_path / "run"), "--html", str(tmp_path / "x.html")]
    with redirect_stdout(out), redirect_stderr(out):
        code = main([*words, "--lang", "zh"])
    assert code < 2, out.getvalue()
    page = (tmp_path / "x.html").read_text("utf-8")
    escaped = ODD.replace("'", "&#39;").replace('"', "&#34;")
    assert ODD in page or escaped in page or ODD.replace('"', '\\"') in page
    assert "conv（3x3）" not in page + out.getvalue()
    assert "conv (3x3)；" not in page + out.getvalue()
