"""What vendors' simulators compute of networks of ours is read, predicted and judged; faults inside are named.

Networks are of seeds that nothing else uses. A tool that is not there is skipped visibly.
"""

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from benchmarks.exact import Tally, by_scales

import roundoff
from roundoff.graph.draft import Draft
from roundoff.graph.load import load_model
from roundoff.graph.save import save_model
from roundoff.tensors.rknn import read_ranges
from roundoff.tensors.tpu_mlir import read_lowered, read_thresholds
from tests.judges.tools import Network, htp_dumps, network, python_of, rknn_dumps, run_python, tpu_dumps

DUMPS: Mapping[str, Callable[..., Path]] = {"rknn": rknn_dumps, "tpu_mlir": tpu_dumps}
TOOLS = pytest.mark.parametrize("tool", DUMPS)
SEED = 7301
# What tools write for 'stage2/conv1/relu_out', and for what is fused in front of it.
FAULTY, FUSED, NODES = "stage2/conv1/relu_out", "stage2/conv1_out", {"stage2/conv1", "stage2/conv1/relu"}


def _diagnosed(net: Network, dumps: Path) -> Any:
    return roundoff.diagnose(net.path, data=dict(net.samples), dumps=dumps).result


def _named(found: Any) -> set[str]:
    """All that a diagnosis accuses: nodes and tensors."""
    return {name for each in found.findings for name in (*each.nodes, *each.tensors)}


def _planted(net: Network, constant: str, change: Callable[[Any], Any]) -> Path:
    """The network with other values of a constant, as somebody converted it."""
    draft = Draft(load_model(net.path))
    draft.set_constant(constant, change(draft.constants.value(constant)))
    path = net.folder / "wrong" / net.path.name
    path.parent.mkdir()
    save_model(draft.finish(), path)
    return path


@pytest.mark.parametrize("family", ["squeeze", "unet"])
@TOOLS
def test_what_is_right_is_predicted_and_not_accused(tool: str, family: str, tmp_path: Path) -> None:
    python_of(tool)
    net = network(family, SEED, tmp_path)
    dumps = DUMPS[tool](net)
    assert _diagnosed(net, dumps).kind in ("healthy", "elsewhere")
    tally = Tally()
    by_scales(net.path, next(iter(net.samples.values())), dumps, tally)
    shares = {operation: share for operation, share, _, _ in tally.rows()}
    assert shares["Relu"] == shares[f"(outputs, {net.path.stem})"] == 1 or (tool, family) == ("tpu_mlir", "unet")
    assert min(share for operation, share in shares.items() if not operation.startswith("(")) > 0.9


@pytest.mark.parametrize("times", [6, 16])
@TOOLS
def test_a_range_that_is_too_wide_is_named(tool: str, times: int, tmp_path: Path) -> None:
    python_of(tool)
    net = network("residual", SEED + times, tmp_path)
    wide = {"rknn": {FAULTY: {"times": times}, FUSED: {"times": times}}, "tpu_mlir": {f"{FAULTY}_Relu": times}}
    found = _diagnosed(net, DUMPS[tool](net, edits=wide[tool]))
    assert found.kind == "culprits"
    assert found.findings[0].cause == "wide-range"
    assert _named(found) <= {FAULTY, *NODES}


@TOOLS
def test_a_model_with_another_bias_is_named(tool: str, tmp_path: Path) -> None:
    python_of(tool)
    net = network("residual", SEED + 1, tmp_path)
    wrong = _planted(net, "stage2/conv1_bias", lambda bias: bias + 0.8)
    found = _diagnosed(net, DUMPS[tool](net, model=wrong))
    assert found.kind == "culprits"
    assert NODES & _named(found)
    assert "stage1/conv1" not in _named(found)


def test_another_mean_is_named(tmp_path: Path) -> None:
    python_of("rknn")
    net = network("plain", SEED + 2, tmp_path)
    config = {"mean_values": [[0.4, 0.4, 0.4]], "std_values": [[1.0, 1.0, 1.0]]}
    found = _diagnosed(net, rknn_dumps(net, config=config))
    assert found.kind == "culprits"
    assert "image" in _named(found)


@TOOLS
def test_two_tensors_that_were_exchanged_are_named(tool: str, tmp_path: Path) -> None:
    python_of(tool)
    net = network("residual", SEED + 3, tmp_path)
    dumps = DUMPS[tool](net)
    other = "stage3/conv1/relu_out"
    if tool == "rknn":
        for each in dumps.glob("s*/simulator/npy"):
            paths = [each / f"{name.replace('/', '_')}.npy" for name in (FAULTY, other)]
            values = [np.load(path) for path in paths]
            for path, array in zip(paths, values[::-1], strict=True):
                np.save(path, array)
    else:
        for path in dumps.glob("INT8/s*_tpu.npz"):
            held = dict(np.load(path))
            one, two = f"{FAULTY}_Relu", f"{other}_Relu"
            held[one], held[two] = held[two], held[one]
            np.savez(path, **held)
    found = _diagnosed(net, dumps)
    assert found.kind == "culprits"
    assert {FAULTY, other} & _named(found)


def test_a_wrong_scale_in_the_emulator_is_never_called_right(tmp_path: Path) -> None:
    python_of("htp")
    net = network("residual", SEED + 4, tmp_path)
    clean = htp_dumps(net)
    assert _diagnosed(net, clean).kind in ("healthy", "elsewhere")
    # The emulator's dumps say no scales: a wide range is at least never called right.
    found = _diagnosed(net, htp_dumps(net, "wide", scales={FAULTY: 8.0}))
    assert found.kind not in ("healthy", "elsewhere")
    assert _named(found) <= {FAULTY, *NODES}


@TOOLS
def test_settings_are_taken(tool: str, tmp_path: Path) -> None:
    """The script that export-settings writes builds, and the tool uses the ranges that it was given."""
    python_of(tool)
    net = network("residual", SEED + 5, tmp_path)
    target = {"rknn": "rknn", "tpu_mlir": "bm1684x"}[tool]
    made = roundoff.quantize(net.path, data=dict(net.calibration), target=target)
    made.save(tmp_path / "quantized")
    roundoff.export_settings(tmp_path / "quantized", dialect=tool.replace("_", "-")).save(tmp_path / "settings")
    script = next((tmp_path / "settings").glob("*.py"))
    model = next((tmp_path / "settings").glob("*_float_model.onnx"), net.path)
    if tool == "rknn":
        rows = net.stored(net.calibration, "row")
        lines = tmp_path / "dataset.txt"
        lines.write_text("".join(" ".join(each.values()) + "\n" for each in rows), encoding="utf-8")
        sample = next(iter(net.stored(net.samples, "sample")[0].values()))
        words = [str(script), str(model), str(lines), "rk3588", str(tmp_path / "out.rknn"), sample]
        run_python(python_of(tool), words, tmp_path)
        used = read_ranges(next(tmp_path.glob("*.quantization.cfg")))
        wanted = json.loads(next(script.parent.glob("*_ranges.json")).read_text(encoding="utf-8"))
        assert {FAULTY, "stem/relu_out"} <= used.keys() & wanted.keys()
        assert (used["image_int8"].low, used["image_int8"].high) == pytest.approx(wanted["image"], abs=1e-4)
        for name in used.keys() & wanted.keys():
            assert (used[name].low, used[name].high) == pytest.approx(wanted[name], abs=1e-4)
        assert (tmp_path / "out.rknn").is_file()
    else:
        sample = net.archives(net.samples, "samples")[0]
        words = [str(script), str(model), "bm1684x", str(tmp_path / "out.bmodel"), sample]
        run_python(python_of(tool), words, tmp_path)
        table = read_thresholds(next((tmp_path / "settings").glob("*_cali_table")))
        lowered = read_lowered(next(tmp_path.glob("out_*_tpu.mlir")))
        for name in (f"{FAULTY}_Relu", "stem/relu_out_Relu"):
            assert lowered[name].high == pytest.approx(table[name].high, rel=1e-4)
        assert (tmp_path / "out.bmodel").is_file()
