"""A network on a chip with too few bits: diagnosed, repaired, and counted on pictures nobody has seen."""

import shutil
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from roundoff.core.tensors import Array
from roundoff.demo import load_split, model_path
from roundoff.demo.scenarios.scenario import Scenario
from roundoff.messages.catalogue import translate
from roundoff.messages.numbers import share_text

if TYPE_CHECKING:
    from roundoff.graph.load import Model

__all__ = ["make"]

_MODEL, _TARGET, _REPAIRED = "digits.onnx", "tiny-chip.toml", "digits_fake_quant_model.onnx"


def make() -> Scenario:
    """The story."""
    return Scenario(_MODEL, _prepare, translate("demo.repair"), _command, _conclusion)


def _prepare(folder: Path) -> None:
    shutil.copyfile(model_path(), folder / _MODEL)
    shutil.copyfile(Path(str(resources.files("roundoff.demo"))) / _TARGET, folder / _TARGET)
    images, labels = load_split("calibration")
    np.save(folder / "images.npy", images)
    np.save(folder / "labels.npy", labels)


def _command(inputs: Path, results: Path) -> list[list[str]]:
    return [
        ["diagnose", str(inputs / _MODEL), "--target", str(inputs / _TARGET)],
        ["--data", str(inputs / "images.npy"), "--labels", str(inputs / "labels.npy")],
        ["--fix", "-o", str(results), "--html", str(results.with_suffix(".html"))],
    ]


def _conclusion(inputs: Path, results: Path) -> str:
    from roundoff.graph.load import load_model

    images, labels = load_split("test")
    models = {
        "on_chip": _quantized(inputs),
        "repaired": load_model(results / _REPAIRED),
        "in_float": load_model(inputs / _MODEL),
    }
    right = {name: share_text(_accuracy(each, images, labels), 1) for name, each in models.items()}
    browser = translate("demo.in_browser", file=results.with_suffix(".html"))
    files = "\n".join(f"  {file}" for file in (browser, results / _REPAIRED, results / "run.json"))
    return translate("demo.repair_end", images=len(labels), files=files, **right)


def _quantized(inputs: Path) -> "Model":
    """The network as the chip's toolchain makes it, before any repair."""
    from roundoff.graph.load import load_model
    from roundoff.graph.save import fill
    from roundoff.quantize.pipeline import QuantizeSettings, quantize_model
    from roundoff.quantize.targets.loading import load_target
    from roundoff.samples.sample_set import ArraySamples

    samples = ArraySamples({"image": np.load(inputs / "images.npy")})
    settings = QuantizeSettings(load_target(str(inputs / _TARGET)))
    return fill(quantize_model(load_model(inputs / _MODEL), samples, settings).fake_quant_model())


def _accuracy(model: "Model", images: Array, labels: Array) -> float:
    from roundoff.run.evaluators import make_run

    run = make_run(model)
    scores = np.concatenate([run({"image": image[np.newaxis]})["logits"] for image in images])
    return float(np.mean(scores.argmax(axis=1) == labels))
