"""A text recogniser in int8: PP-OCRv4 on words drawn here, diagnosed and repaired."""

from pathlib import Path

import numpy as np

from roundoff.demo.ocr import EVALUATOR, PACKAGE, Words, characters, find_model, vocabulary
from roundoff.demo.scenarios.scenario import Scenario
from roundoff.errors import BadInput
from roundoff.graph.load import Model, load_model
from roundoff.graph.save import fill
from roundoff.messages.catalogue import translate
from roundoff.messages.message import english
from roundoff.messages.numbers import share_text
from roundoff.quantize.pipeline import QuantizeSettings, quantize_model
from roundoff.quantize.targets.loading import load_target

__all__ = ["make"]

_MODEL, _REPAIRED = "recogniser.onnx", "recogniser_fake_quant_model.onnx"
# What searching and repairing may look at, and what is read in the end.
_WORDS, _TEST = 96, 300
_TARGET = "generic-int8"


def quantized_for(target: str, path: Path, samples: Words) -> Model:
    """The network as it is quantized for a chip, before any repair."""
    settings = QuantizeSettings(load_target(target))
    return fill(quantize_model(load_model(path), samples, settings).fake_quant_model())


def make(target: str = _TARGET) -> Scenario:
    """The story.

    Args:
        target: For which chip.

    Raises:
        BadInput: The package with the network is not installed.
    """
    model = find_model()
    if model is None:
        raise BadInput(
            english("The network comes with the package {package!r}, which is not installed.", package=PACKAGE),
            fix=english("pip install --no-deps rapidocr-onnxruntime==1.4.4"),
        )
    words = vocabulary()
    seen, unseen = Words(words[:_WORDS]), Words(words[_WORDS : _WORDS + _TEST])

    def prepare(folder: Path) -> None:
        import shutil

        shutil.copyfile(model, folder / _MODEL)
        (folder / "words").mkdir()
        for index, word in enumerate(seen.names):
            np.save(folder / "words" / f"{word}.npy", next(iter(seen.feed(index).values())))
        (folder / "evaluator.py").write_text(EVALUATOR.format(characters=characters(model)), encoding="utf-8")

    def command(inputs: Path, results: Path) -> list[list[str]]:
        return [
            ["diagnose", str(inputs / _MODEL)],
            ["--target", target],
            ["--data", str(inputs / "words")],
            ["--evaluator", str(inputs / "evaluator.py")],
            ["--fix", "-o", str(results), "--html", str(results.with_suffix(".html"))],
        ]

    def conclusion(inputs: Path, results: Path) -> str:
        letters = characters(model)
        plain, repaired = quantized_for(target, inputs / _MODEL, seen), results / _REPAIRED
        rates = {"float": load_model(inputs / _MODEL), "quantized": plain}
        files = [translate("demo.in_browser", file=results.with_suffix(".html"))]
        if repaired.is_file():
            rates["repaired"] = load_model(repaired)
            files.append(str(repaired))
        read = {name: share_text(unseen.read_by(each, letters), 1) for name, each in rates.items()}
        table = "\n".join(translate(f"demo.ocr_{name}", rate=rate) for name, rate in read.items())
        listed = "\n".join(f"  {file}" for file in (*files, results / "run.json"))
        return translate("demo.ocr_end", words=_TEST, table=table, files=listed)

    return Scenario(_MODEL, prepare, translate("demo.ocr", words=_WORDS), command, conclusion)
