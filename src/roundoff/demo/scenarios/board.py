"""A network on a (simulated) board that multiplies the output of one layer by a half."""

import json
import shutil
from importlib import resources
from pathlib import Path

from roundoff.demo.scenarios.scenario import Scenario
from roundoff.messages.numbers import share_text

__all__ = ["make"]

_MODEL, _SAMPLES, _DUMP = "digits.onnx", "samples.npy", "board_dump"


def make() -> Scenario:
    """The story."""
    shipped = Path(str(resources.files("roundoff.demo")))
    truth = json.loads((shipped / "truth.json").read_text(encoding="utf-8"))
    accuracy, fault, images = truth["accuracy"], truth["fault"], len(truth["samples"]["labels"])

    def prepare(folder: Path) -> None:
        (folder / _DUMP).mkdir()
        for name in (_MODEL, _SAMPLES, *(f"{_DUMP}/{path.name}" for path in sorted((shipped / _DUMP).iterdir()))):
            shutil.copyfile(shipped / name, folder / name)

    def command(inputs: Path, results: Path) -> list[list[str]]:
        return [
            ["compare"],
            [str(inputs / _MODEL), str(inputs / _DUMP)],
            ["--data", str(inputs / _SAMPLES), "-o", str(results)],
        ]

    def conclusion(_inputs: Path, results: Path) -> str:
        return f"""
Look first at the verdict above: it names the first tensor that diverges.
What is planted: the board multiplies the output of {fault["node"]}
({fault["tensor"]}) by {fault["gain"]:g}. The cosine there stays almost perfect; a table of
cosines would accuse the layer behind it.
The command above can be run again by hand, into another folder, for example
with --sort worst.

The results:
  {results / "run.json"}
  {results / "tensors.csv"}"""

    introduction = f"""\
A network reads {share_text(accuracy["float"], 1)} of the handwritten digits of its test set right;
on a board, {share_text(accuracy["broken_board"], 1)}. The board wrote its tensors for {images} of the images:
under its own names, channels last, with batch norms and activations fused
away. Which layer is broken?"""
    return Scenario(_MODEL, prepare, introduction, command, conclusion)
