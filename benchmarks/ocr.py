"""Repair of a text recogniser that loses words in int8: PP-OCRv4 on words drawn with Pillow's built-in font.

The network comes with a package that has to be installed or unpacked beforehand; nothing is fetched here:

    pip install --no-deps rapidocr-onnxruntime==1.4.4
    python -m benchmarks.ocr [MODEL.onnx] [TARGET]

Words are taken from the help texts of Python itself. 64 serve for calibration, 256 for the search and 400 for the
test, none of them twice. The file is an evaluator as well: ``roundoff tune --evaluator benchmarks/ocr.py`` reads
the right word of a sample from its name. Leaves with 0 and says so when the network is not there, and with 1 when
on the words of the test less than 99 % of what float reads is read.
"""

import sys
import time
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from roundoff.demo.stories import Words, characters, decoded, find_model, vocabulary
from roundoff.graph.load import load_model
from roundoff.quantize.targets.files import load_target
from roundoff.search.evaluators import JudgeOptions
from roundoff.search.result import Trial
from roundoff.search.tune import TestSet, TuneData, TuneSettings, TuneStore, tune

NAME, HIGHER_IS_BETTER, RANGE = "words read", True, (0, 1)
CALIBRATION, SEARCH, TEST = 64, 256, 400
TARGET = "generic-int8"
KEPT = 0.99


def evaluate(run: Any, samples: Any) -> list[bool]:
    """Which words are read exactly."""
    return [
        decoded(next(iter(run(feed).values()))[0], letters()) == name
        for name, feed in zip(samples.names, samples, strict=True)
    ]


def model_path() -> Path | None:
    """The network: given on the command line, or that of the installed package."""
    given = [Path(word) for word in sys.argv[1:] if word.endswith(".onnx")]
    if given:
        return given[0]
    return find_model()


@cache
def letters() -> list[str]:
    """What each class stands for."""
    path = model_path()
    assert path is not None
    return characters(path)


def show(trial: Trial, _best: Trial, _metric: str) -> None:
    """A line for each trial."""
    effort = f"{trial.samples:3} words {trial.seconds:5.1f} s"
    print(f"    {trial.number:3} {trial.score:7.2%}  cost {trial.cost:.2f}  {effort}  {trial.change}", flush=True)


def main() -> int:
    path = model_path()
    if path is None:
        print("  skipped: no network; pip install --no-deps rapidocr-onnxruntime==1.4.4")
        return 0
    words = vocabulary()
    sizes = (CALIBRATION, SEARCH, TEST)
    parts = np.cumsum(sizes)
    calibration, search, test = (Words(words[end - size : end]) for size, end in zip(sizes, parts, strict=True))
    reached = []
    for name in [word for word in sys.argv[1:] if not word.endswith(".onnx")] or [TARGET]:
        settings = TuneSettings(load_target(name), judge=JudgeOptions(evaluator=Path(__file__)), max_drop="1%")
        began = time.perf_counter()
        print(f"  {name}")
        data = TuneData(calibration, search, TestSet(test))
        found = tune(load_model(path), data, settings, keeping=TuneStore(on_trial=show)).tuning
        print(f"    {found.verdict} in {time.perf_counter() - began:.0f} s: {found.best.change}")
        kept, unseen = found.remaining, found.holdout
        assert unseen is not None
        low, high = unseen.interval or (np.nan, np.nan)
        print(f"    unseen words {unseen.score:.2%}, float {unseen.float_score:.2%}, loss {low:.2%} to {high:.2%}")
        print(f"    {kept.nodes} of {kept.all_nodes} nodes quantized, cost {found.best.cost:.2f}")
        reached.append(unseen.score >= KEPT * unseen.float_score)
    return 0 if all(reached) else 1


if __name__ == "__main__":
    sys.exit(main())
