"""What roundoff does of the same: ``python -m benchmarks.peers.ours JOB FOLDER``; see `theirs`."""

import sys
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path

import numpy as np
import onnx  # noqa: F401 - imported by the others before their clock starts, too
import onnxruntime  # noqa: F401

from benchmarks.peers.theirs import MAX_DROP, Work, run
from roundoff.align.alignment import align
from roundoff.core.plan import Recipe, Step
from roundoff.core.tensors import Array
from roundoff.graph.insertion import fake_quant_model
from roundoff.graph.load import load_model
from roundoff.graph.quantized_model import QuantizedModel
from roundoff.graph.readers.reader import read_quantized
from roundoff.graph.save import save_model
from roundoff.quantize.pipeline import QuantizeSettings, quantize_model
from roundoff.quantize.recipes import RecipeBuilder
from roundoff.quantize.targets.files import load_target
from roundoff.search.evaluators import JudgeOptions
from roundoff.search.tune import TuneData, TuneSettings, tune
from roundoff.studies.compare.study import compare
from roundoff.studies.layers.study import analyze_layers
from roundoff.studies.sensitivity.ranking import SensitivitySettings
from roundoff.studies.sensitivity.study import analyze_sensitivity
from roundoff.tensors import open_source

TARGET = "generic-int8"


class Part:
    """One part of the samples."""

    def __init__(self, folder: Path, part: str) -> None:
        self.label = part
        self._name = (folder / "input.txt").read_text("utf-8")
        self._values = np.load(folder / f"{part}.npy", mmap_mode="r")
        self.names = tuple(map(str, range(len(self._values))))

    def feed(self, index: int) -> Mapping[str, Array]:
        """What a sample holds."""
        return {self._name: np.asarray(self._values[index : index + 1])}


def _save(quantized: QuantizedModel, path: Path) -> dict[str, float]:
    save_model(fake_quant_model(quantized.float_model, quantized.quantizers), path, replace=True)
    return {}


def _quantize(folder: Path, method: str) -> Work:
    def work() -> dict[str, float]:
        settings = QuantizeSettings(load_target(TARGET), methods=(method,))
        made = quantize_model(load_model(folder / "float.onnx"), Part(folder, "calibration"), settings)
        return _save(made.quantized, folder / f"roundoff-{method}.onnx")

    return work


def _correct(folder: Path, bias: str) -> Work:
    recipe = Recipe() if bias == "none" else Recipe(corrections=(Step("bias_correct"),))

    def work() -> dict[str, float]:
        builder = RecipeBuilder(
            load_model(folder / "float.onnx"), Part(folder, "calibration"), load_target(TARGET)
        )
        return _save(builder.build(recipe).quantized, folder / f"roundoff-{bias}.onnx")

    return work


def _search(folder: Path) -> Work:
    def work() -> dict[str, float]:
        judge = JudgeOptions(labels=np.load(folder / "labels.npy"))
        found = tune(
            load_model(folder / "float.onnx"),
            TuneData(Part(folder, "calibration"), Part(folder, "search")),
            TuneSettings(load_target(TARGET), judge=judge, max_drop=str(MAX_DROP)),
        )
        _save(found.built.quantized, folder / "roundoff-search.onnx")
        return {"runs": found.tuning.sample_runs + found.tuning.ranking_runs}

    return work


def _read(folder: Path) -> QuantizedModel:
    float_model = load_model(folder / "float.onnx")
    return read_quantized(load_model(folder / "onnxruntime-minmax.onnx"), float_model=float_model)


def _layers(folder: Path) -> Work:
    return lambda: {"tensors": len(analyze_layers(_read(folder), Part(folder, "search")).rows)}


def _sensitivity(folder: Path) -> Work:
    def work() -> dict[str, float]:
        settings = SensitivitySettings(kinds=("node",))
        return {
            "nodes": len(analyze_sensitivity(_read(folder), Part(folder, "search"), settings).rankings["node"])
        }

    return work


def _compare(folder: Path) -> Work:
    def work() -> dict[str, float]:
        ours, theirs = open_source(folder / "a.json"), open_source(folder / "b.json")
        return {"tensors": compare(ours, theirs, align(ours, theirs)).verdict.compared}

    return work


JOBS: dict[str, Callable[[Path], Work]] = {
    **{f"roundoff-{method}": partial(_quantize, method=method) for method in ("minmax", "entropy", "percentile")},
    **{f"roundoff-{bias}": partial(_correct, bias=bias) for bias in ("none", "bias")},
    "roundoff-layers": _layers,
    "roundoff-sensitivity": _sensitivity,
    "roundoff-search": _search,
    "roundoff-compare": _compare,
}

if __name__ == "__main__":
    run(JOBS[sys.argv[1]], Path(sys.argv[2]))
