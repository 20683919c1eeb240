"""A network on a (simulated) board that multiplies the output of one layer by a half."""

import json
import shutil
from importlib import resources
from pathlib import Path

from roundoff.demo.scenarios.scenario import Scenario
from roundoff.messages.catalogue import translate
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
        files = (results / "run.json", results / "tensors.csv")
        return translate("demo.board_end", **fault, files="\n".join(f"  {file}" for file in files))

    introduction = translate(
        "demo.board",
        in_float=share_text(accuracy["float"], 1),
        on_board=share_text(accuracy["broken_board"], 1),
        images=images,
    )
    return Scenario(_MODEL, prepare, introduction, command, conclusion)
