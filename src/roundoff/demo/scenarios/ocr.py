"""A text recogniser in int8: PP-OCRv4 on words drawn here, diagnosed and repaired."""

from pathlib import Path

import numpy as np

from roundoff.demo.ocr import EVALUATOR, PACKAGE, Words, characters, find_model, vocabulary
from roundoff.demo.scenarios.scenario import Scenario
from roundoff.errors import BadInput

__all__ = ["make"]

_MODEL, _REPAIRED = "recogniser.onnx", "recogniser_fake_quant_model.onnx"
# What searching and repairing may look at, and what is read in the end.
_WORDS, _TEST = 96, 300
_TARGET = "generic-int8"


def make() -> Scenario:
    """The story.

    Raises:
        BadInput: The package with the network is not installed.
    """
    model = find_model()
    if model is None:
        raise BadInput(
            f"The network comes with the package {PACKAGE!r}, which is not installed.",
            fix="pip install --no-deps rapidocr-onnxruntime==1.4.4",
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
            ["diagnose", str(inputs / _MODEL), "--target", _TARGET],
            ["--data", str(inputs / "words"), "--evaluator", str(inputs / "evaluator.py")],
            ["--fix", "-o", str(results), "--html", str(results.with_suffix(".html"))],
        ]

    def conclusion(inputs: Path, results: Path) -> str:
        in_float = unseen.read_by(inputs / _MODEL, characters(model))
        if not (results / _REPAIRED).is_file():
            return f"""
No remedy for a single place helps here, so that nothing was repaired. In float
{in_float:.1%} of {_TEST} words that were not looked at before are read. The command
behind 'next' above searches for a better recipe.

The results:
  {results.with_suffix(".html")}   (open it in a browser)
  {results / "run.json"}"""
        repaired = unseen.read_by(results / _REPAIRED, characters(model))
        return f"""
Of {_TEST} words that were not looked at before:
  repaired  {repaired:.1%} are read
  in float  {in_float:.1%}

The results:
  {results.with_suffix(".html")}   (open it in a browser)
  {results / _REPAIRED}
  {results / "run.json"}"""

    introduction = f"""\
A text recogniser as it is in products: PP-OCRv4, about 11 MB. {_WORDS} words are
drawn for it. In 8 bits it misreads some that it reads in float. Why?"""
    return Scenario(_MODEL, prepare, introduction, command, conclusion)
