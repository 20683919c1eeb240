"""The published case on repvgg_b2_deploy: its code, word by word, with another import."""

import re
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper

from tests.models import value, weight, wrapped

SHARED = Path(__file__).resolve().parents[4] / "shared" / "seeds"
# Blocks of each stage of RepVGG-B2, behind a first one.
STAGES = {"1": 4, "2": 6, "3": 16, "4": 1}
# What the page's headings look like: "1.2 Result".
CODE = re.compile(r"^(import horizon_nn\.debug as dbg\n.*?)\n(?=\d\.\d )", re.DOTALL | re.MULTILINE)


def _calibration(tensor: str, **attributes: Any) -> Any:
    return helper.make_node(
        "HzCalibration", [tensor], [f"{tensor}_calibrated"], name=f"{tensor}_HzCalibration", domain="horizon",
        qtype="int8", **attributes,
    )  # fmt: skip


def calibrated_repvgg() -> Any:
    """A narrow network with the names of repvgg_b2_deploy, as a conversion calibrates it."""
    names = ["stage0", *(f"stage{stage}.{block}" for stage, count in STAGES.items() for block in range(count))]
    nodes, weights, source, channels = [], [], "data", 3
    for number, name in enumerate(names):
        kernel = weight(f"{name}.rbr_reparam.weight", 4, channels, 1, 1, seed=number)
        scales = np.abs(numpy_helper.to_array(kernel)).max(axis=(1, 2, 3)) / 127
        inputs = [f"{source}_calibrated", f"{kernel.name}_calibrated"]
        nodes += [
            _calibration(source, thresholds=[4.0]),
            _calibration(kernel.name, scales=scales.tolist(), axis=0),
            helper.make_node("Conv", inputs, [f"{name}.sum"], name=f"Conv_{2 * number}"),
            helper.make_node("Tanh", [f"{name}.sum"], [f"{name}.out"], name=f"Tanh_{2 * number + 1}"),
        ]
        weights.append(kernel)
        source, channels = f"{name}.out", 4
    return wrapped(nodes, [value("data", (1, 3, 4, 4))], [value(source)], weights)


@pytest.fixture
def published(here: Path) -> list[str]:
    """The code of the page, and a folder with what it works on."""
    pages = sorted(SHARED.glob("004_*.txt"))
    if not pages:
        pytest.skip("the published page is not beside this checkout")
    onnx.save(calibrated_repvgg(), here / "calibrated_model.onnx")
    (here / "calibration_data" / "data").mkdir(parents=True)
    for index in range(3):
        image = np.random.default_rng(index).normal(size=(1, 3, 4, 4)).astype(np.float32)
        np.save(here / "calibration_data" / "data" / f"{index}.npy", image)
    return CODE.findall(pages[0].read_text(encoding="utf-8"))


@pytest.mark.usefixtures("undrawn")
@pytest.mark.parametrize("module", ["roundoff.vendors.horizon", "roundoff.vendors.horizon.gen1"])
def test_all_code_runs_with_only_the_import_changed(
    published: list[str], here: Path, module: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert len(published) == 4
    spaces: list[dict[str, Any]] = []
    for code in published:
        space: dict[str, Any] = {}
        exec(code.replace("import horizon_nn.debug as dbg", f"import {module} as dbg"), space)  # noqa: S102
        spaces.append(space)
    ranking = spaces[1]["node_message"]
    assert len(ranking) == 28
    scores = [float(metrics["cosine-similarity"]) for metrics in ranking.values()]
    assert scores == sorted(scores)
    printed = [line.split()[0] for line in capsys.readouterr().out.splitlines()[3:]]
    assert printed == list(ranking) == spaces[3]["nodes"]
    drawn = sorted(path.name for path in here.glob("*.png"))
    weights = ["stage1.3", "stage2.2", "stage3.14", "stage3.2", "stage3.3"]
    assert drawn == [
        "accumulate_error_non_quantize_node.png",
        "accumulate_error_quantize_node.png",
        *(f"{name}.rbr_reparam.weight_HzCalibration.png" for name in weights),
    ]
