"""What the documentation shows: its commands, its tables, and a folder in which they can be typed."""

import contextlib
import json
import re
import shlex
import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from importlib import resources
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
from onnx import TensorProto, helper, numpy_helper
from PIL import Image

from roundoff.cli import main
from roundoff.core.tensors import Array
from roundoff.graph.nodes import make_model

ROOT = Path(__file__).resolve().parents[1]
# Chinese pages have the commands of their English form, which tests/test_site.py holds them to.
PAGES = (*(each for each in sorted((ROOT / "docs").rglob("*.md")) if ".zh." not in each.name), ROOT / "README.md")
_FENCE = re.compile(r"^( *)```([\w-]*)\n(.*?)^\1```", re.DOTALL | re.MULTILINE)


@dataclass(frozen=True)
class Typed:
    """A command of a page.

    Attributes:
        page: Its name, without the ending.
        words: Behind ``roundoff``.
        refused: Whether the page shows an error.
    """

    page: str
    words: tuple[str, ...]
    refused: bool


def fences(page: Path) -> list[tuple[str, str]]:
    """The blocks of a page, each with its kind."""
    return [(kind, block) for _, kind, block in _FENCE.findall(page.read_text("utf-8"))]


@cache
def commands() -> tuple[Typed, ...]:
    """Every command of every page."""
    found = []
    for page in PAGES:
        for kind, block in fences(page):
            if kind != "console":
                continue
            lines = block.replace("\\\n", " ").splitlines()
            for line, behind in zip(lines, [*lines[1:], ""], strict=True):
                words = shlex.split(line.removeprefix("$ "), comments=True) if "roundoff " in line else []
                # A scheduler on another machine is a reader's own; tests/suite has one of its own.
                if words[:1] == ["roundoff"] and not any("//HOST" in word for word in words):
                    found.append(Typed(page.stem, tuple(words[1:]), behind.startswith("error: ")))
    return tuple(found)


def table_rows(page: str, heading: str) -> list[list[str]]:
    """The rows of the first table below a heading of a page, or of the first whose head begins so."""
    lines = (ROOT / "docs" / page).read_text("utf-8").splitlines()
    start = next(number for number, line in enumerate(lines) if line.startswith(heading))
    rows: list[list[str]] = []
    for line in lines[start:]:
        if line.startswith("|"):
            rows.append([cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]])
        elif rows:
            break
    return rows[2:]


# The folder of a reader who follows the pages.

_SHAPE = (3, 16, 16)


def network(first: str = "layer1/conv", second: str = "layer4/conv2") -> onnx.ModelProto:
    """A small network with the names that the pages mention."""
    draw = np.random.default_rng(0)

    def held(name: str, *shape: int) -> onnx.TensorProto:
        return numpy_helper.from_array(draw.normal(0, (2 / np.prod(shape[1:])) ** 0.5, shape).astype("f4"), name)

    weights = [
        held("layer1.weight", 8, 3, 3, 3),
        held("layer4.weight", 8, 8, 3, 3),
        held("fc", 12, 8),
        held("h", 5, 12),
    ]
    nodes = [
        helper.make_node("Conv", ["image", "layer1.weight"], ["c1"], first, pads=[1] * 4),
        helper.make_node("Relu", ["c1"], ["relu1"], "block3/relu"),
        helper.make_node("Conv", ["relu1", "layer4.weight"], ["c2"], second, pads=[1] * 4),
        helper.make_node("Relu", ["c2"], ["relu2"], "relu2"),
        helper.make_node("GlobalAveragePool", ["relu2"], ["pooled"], "pool"),
        helper.make_node("Flatten", ["pooled"], ["flat"], "flat"),
        helper.make_node("Gemm", ["flat", "fc"], ["e"], "encoder/fc", transB=1),
        helper.make_node("Relu", ["e"], ["er"], "encoder/relu"),
        helper.make_node("Gemm", ["er", "h"], ["logits"], "head", transB=1),
        helper.make_node("Softmax", ["logits"], ["boxes"], "head/boxes"),
    ]
    given = [helper.make_tensor_value_info("image", TensorProto.FLOAT, ["N", *_SHAPE])]
    made = [helper.make_tensor_value_info(name, TensorProto.FLOAT, ["N", 5]) for name in ("logits", "boxes")]
    graph = helper.make_graph(nodes, "net", given, made, weights)
    return make_model(graph, opset=17)


def _pictures(count: int, seed: int) -> Array:
    return np.random.default_rng(seed).normal(0.2, 1, (count, *_SHAPE)).astype(np.float32)


_EVALUATOR = """\
import numpy as np


def evaluate(run, samples):
    return float(np.mean([np.max(run(sample)["boxes"]) for sample in samples]))
"""


def write_folder(folder: Path) -> None:
    """What the pages' commands read; what commands made before comes from `make_folder`."""
    for name in ("model", "net"):
        onnx.save(network(), folder / f"{name}.onnx")
    for name in ("float", "repvgg"):
        onnx.save(network("conv5", "conv6"), folder / f"{name}.onnx")
    for name, count in (("calib", 12), ("samples", 12), ("images", 12), ("test", 24), ("validation", 16)):
        pictures = _pictures(count, seed=count)
        np.save(folder / f"{name}.npy", pictures)
        (folder / name).mkdir()
        for number, picture in enumerate(pictures):
            np.save(folder / name / f"{number:02}.npy", picture[None])
    (folder / "photos").mkdir()
    for number, picture in enumerate(_pictures(12, seed=3)):
        pixels = (picture * 40 + 120).clip(0, 255).astype(np.uint8).transpose(1, 2, 0)
        Image.fromarray(pixels).save(folder / "photos" / f"{number}.png")
    (folder / "eval.py").write_text(_EVALUATOR)
    target = resources.files("roundoff.quantize.targets").joinpath("generic-int8.toml").read_text("utf-8")
    (folder / "chip.toml").write_text(target.replace("generic-int8", "chip"))
    calibration = {"tensor_name": "image", "calibration_dataset": "calib", "calibration_format": "Numpy"}
    settings = {"input": "model.onnx", "output_dir": "out", "quant": {"input_configs": [calibration]}}
    (folder / "config.json").write_text(json.dumps(settings))
    (folder / "in" / "0").mkdir(parents=True)
    _pictures(1, seed=5).tofile(folder / "in" / "0" / "image.bin")
    (folder / "list.txt").write_text("0\n")


def make_folder(folder: Path) -> Path:
    """The folder of a reader who has quantized, dumped and ranked before."""
    write_folder(folder)
    with contextlib.chdir(folder):
        data = ["--data", "calib.npy"]
        for model, output in (("model", "int8"), ("float", "DIR")):
            main(["quantize", f"{model}.onnx", *data, "--target", "generic-int8", "-o", output])
        for name, made in (("model_int8", "int8/model"), ("theirs_int8", "int8/model"), ("quantized", "DIR/float"),
                           ("old", "DIR/float"), ("new", "DIR/float")):  # fmt: skip
            shutil.copy(f"{made}_fake_quant_model.onnx", f"{name}.onnx")
        shutil.copytree("int8", "run1")
        main(["dump", "model.onnx", "--data", "calib/", "-o", "golden"])
        for name in ("npu_dump", "board"):
            shutil.copytree("golden", name)
        main(["layers", "float.onnx", "--quantized", "old.onnx", "--data", "samples.npy", "-o", "baseline"])
        main(["sensitivity", "model.onnx", "--quantized", "int8", *data, "-o", "ranking"])
        main(["sensitivity", "float.onnx", "--quantized", "DIR", *data, "-o", "ranked"])
        shutil.copy("ranked/sensitivity.csv", "ranking.csv")
        session = onnxruntime.InferenceSession("model.onnx")
        (logits, boxes) = session.run(None, {"image": np.load("test.npy")})
        labels = logits.argmax(axis=1)
        np.save("labels.npy", labels)
        np.savez("float.npz", logits=logits, boxes=boxes)
        np.savez("device.npz", out_0=logits, out_1=boxes)
        Path("names.csv").write_text("reference,candidate\nlogits,out_0\nboxes,out_1\n")
    return folder


def labels_for(words: Sequence[str]) -> None:
    """``labels.csv`` for as many samples as a command reads."""
    labels = np.load("labels.npy")
    data = words[words.index("--data") + 1] if "--data" in words else "test.npy"
    few = labels if data == "test.npy" and Path(data).exists() else labels[:12]
    Path("labels.csv").write_text("label\n" + "".join(f"{label}\n" for label in few))


def clear_output(words: Sequence[str]) -> None:
    """Remove what a command is going to write, as a reader would choose another name for it."""
    for option in ("-o", "--output_dir", "--copy-to", "--junit", "--csv", "--plot"):
        if option in words[:-1]:
            path = Path(words[words.index(option) + 1])
            if path.is_dir():
                shutil.rmtree(path)
            else:
                path.unlink(missing_ok=True)
